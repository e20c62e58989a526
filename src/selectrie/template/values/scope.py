"""Names and their values while a page is made, and what an expression comes to. Every error stands at its expression."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, final

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import Document
from selectrie.template.syntax.expressions import Compare, Constant, Expression, ListOf, Logical, Not, Path
from selectrie.template.syntax.source_positions import error_at, told_at
from selectrie.template.values.values import (
    Option,
    contains,
    did_you_mean,
    items_of,
    option_of,
    options_of,
    order,
    part,
    same,
    shown,
    text_of,
    truth,
)

__all__ = [
    "UNDECIDED",
    "UNKNOWN",
    "Option",
    "Scope",
    "Snapshot",
    "Undecided",
    "evaluate",
    "items_at",
    "option_of",
    "options_at",
    "options_of",
    "text_at",
    "text_of",
    "truth",
    "truth_at",
]

MOST_NESTED = 100
"""Expressions within expressions."""

Snapshot: TypeAlias = tuple[dict[str, object], dict[str, object]]


class Undecided(Exception):
    """An expression needs a slot's value, which only the model can give: for checks that run before it."""


@final
class _Mark:
    def __repr__(self) -> str:
        return "UNDECIDED"


UNDECIDED = _Mark()
"""Stands in a scope for the value of a slot that nobody decided yet; whoever evaluates it gets `Undecided`."""


@final
class Scope:
    """Values by name: those given, those of the page (slots and sets), and in a loop those of this turn of it, innermost first.

    A scope without an outer one is a page's. The given mapping is read, never changed.
    """

    __slots__ = ("_given", "_outer", "_own", "_page")

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self._given: Mapping[str, object] = {} if given is None else given
        self._own: dict[str, object] = {}
        self._outer: Scope | None = None
        self._page: Scope = self

    def child(self, variables: Mapping[str, object] | None = None) -> Scope:
        """One turn of a loop: its variables ("this" or a name, "@index", "@first", "@last", "@key") and what slots in it get."""
        inner = Scope(self._given)
        inner._outer, inner._page = self, self._page
        inner._own.update(variables or {})
        return inner

    def set(self, name: str, value: object) -> None:
        """Name a value in this scope: of a slot, or after a loop the list of a slot's values.

        "this.field" is a key of a mapping `this`, which belongs to this scope.
        """
        base, dot, field = name.partition(".")
        if not dot:
            self._own[name] = value
            return
        held = self._own.get(base)
        # A new mapping each time: whoever holds the earlier one keeps what it was.
        self._own[base] = {**(held if isinstance(held, dict) else {}), field: value}

    def assign(self, name: str, value: object) -> None:
        """Name a value on the page, whatever loop this is in: what `<<set name=value>>` does."""
        self._page.set(name, value)

    def get(self, name: str, *steps: object) -> object:
        """The value of a name, and of the keys and places in it. `TemplateError` (a reason without a place) where there is none."""
        level: Scope | None = self
        while level is not None and name not in level._own:
            level = level._outer
        if level is None and name not in self._given:
            raise TemplateError(f"no value is called {shown(name)}{did_you_mean(name, self.names())}")
        value = self._given[name] if level is None else level._own[name]
        for step in steps:
            _decided(value)
            value = part(value, step)
        return _decided(value)

    def __contains__(self, name: object) -> bool:
        level: Scope | None = self
        while level is not None and name not in level._own:
            level = level._outer
        return level is not None or name in self._given

    def is_given(self, name: str) -> bool:
        """Is it among the values that were given?"""
        return name in self._given

    def names(self) -> tuple[str, ...]:
        """Every name that has a value here, innermost first."""
        return tuple(dict.fromkeys(self._names()))

    def own(self) -> Mapping[str, object]:
        """What this scope itself names: of a page its slots and sets, of a turn of a loop its variables and slots."""
        return MappingProxyType(self._own)

    def snapshot(self, names: Iterable[str]) -> Snapshot:
        """What the page and this scope hold under these names now; names that they do not hold are left out."""
        levels = [{name: own[name] for name in names if name in own} for own in (self._page._own, self._own)]
        return levels[0], levels[1]

    def restore(self, names: Iterable[str], held: Snapshot) -> None:
        """Hold under these names what a snapshot of this scope says, and nothing else."""
        for own, kept in zip((self._page._own, self._own), held, strict=True):
            for name in names:
                own.pop(name, None)
            own.update(kept)

    def _names(self) -> Iterator[str]:
        level: Scope | None = self
        while level is not None:
            yield from level._own
            level = level._outer
        yield from self._given


@final
class _Everything(Mapping[str, object]):
    """Every name there may be, of which nothing is known."""

    def __getitem__(self, name: str) -> object:
        return UNDECIDED

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, name: object) -> bool:
        return True


UNKNOWN = Scope(_Everything())
"""What is known before any value is given: nothing of any name."""


def _decided(value: object) -> object:
    if value is UNDECIDED:
        raise Undecided
    return value


def evaluate(expression: Expression, scope: Scope, document: Document) -> object:
    """What an expression comes to. `TemplateError` at the smallest expression that comes to nothing."""
    return _value(expression, scope, document, MOST_NESTED)


def _value(expression: Expression, scope: Scope, document: Document, room: int) -> object:
    if room == 0:
        raise error_at(document, expression.span, f"more than {MOST_NESTED} expressions stand one within the other")
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Path):
        return _at_path(expression, scope, document, room)
    if isinstance(expression, ListOf):
        return [_operand(item, scope, document, room - 1) for item in expression.items]
    if isinstance(expression, Compare):
        left = _operand(expression.left, scope, document, room - 1)
        right = _operand(expression.right, scope, document, room - 1)
        with told_at(document, expression.span):
            return _COMPARISONS[expression.operator](left, right)
    if isinstance(expression, Not):
        value = _value(expression.operand, scope, document, room - 1)
        with told_at(document, expression.operand.span):
            return not truth(value)
    return _logical(expression, scope, document, room)


def _operand(expression: Expression, scope: Scope, document: Document, room: int) -> object:
    """Of a list or a comparison, where an unknown name is most often a text without its quotes."""
    if isinstance(expression, Path) and not expression.steps and expression.name not in scope:
        name = expression.name
        advice = did_you_mean(name, scope.names()) or f"; if it is a text, it stands in quotes: {shown(name)}"
        raise error_at(document, expression.span, f"no value is called {shown(name)}{advice}")
    return _value(expression, scope, document, room)


def _at_path(path: Path, scope: Scope, document: Document, room: int) -> object:
    steps = [step if isinstance(step, str | int) else _value(step, scope, document, room - 1) for step in path.steps]
    with told_at(document, path.span):
        return scope.get(path.name, *steps)


def _logical(expression: Logical, scope: Scope, document: Document, room: int) -> bool:
    decides = expression.operator == "or"
    for operand in expression.operands:
        value = _value(operand, scope, document, room - 1)
        with told_at(document, operand.span):
            if truth(value) is decides:
                return decides
    return not decides


_COMPARISONS: Mapping[str, Callable[[object, object], bool]] = MappingProxyType(
    {
        "==": same,
        "!=": lambda left, right: not same(left, right),
        "<": lambda left, right: order(left, right) < 0,
        "<=": lambda left, right: order(left, right) <= 0,
        ">": lambda left, right: order(left, right) > 0,
        ">=": lambda left, right: order(left, right) >= 0,
        "in": lambda left, right: contains(right, left),
        "not in": lambda left, right: not contains(right, left),
    }
)


def text_at(expression: Expression, scope: Scope, document: Document) -> str:
    """An expression's value as text: what `<<name>>` puts on the page."""
    value = evaluate(expression, scope, document)
    with told_at(document, expression.span):
        return text_of(value)


def truth_at(expression: Expression, scope: Scope, document: Document) -> bool:
    """Does a condition hold?"""
    value = evaluate(expression, scope, document)
    with told_at(document, expression.span):
        return truth(value)


def options_at(expression: Expression, scope: Scope, document: Document) -> tuple[Option, ...]:
    """The options that an expression lists (`values.options_of`)."""
    value = evaluate(expression, scope, document)
    with told_at(document, expression.span):
        return options_of(value)


def items_at(expression: Expression, scope: Scope, document: Document) -> list[tuple[object, object]]:
    """What `each` goes through: (place, item) of a list, (key, value) of a mapping."""
    value = evaluate(expression, scope, document)
    with told_at(document, expression.span):
        return items_of(value)
