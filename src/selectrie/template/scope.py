"""Names and their values while a page is made, and what an expression comes to. Every error stands at its expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar, final

from selectrie.errors import TemplateError
from selectrie.template.expressions import Compare, Constant, Expression, ListOf, Logical, Not, Path
from selectrie.template.places import error_at
from selectrie.template.segments import Document
from selectrie.template.values import (
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

_T = TypeVar("_T")
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

    def names(self) -> tuple[str, ...]:
        """Every name that has a value here, innermost first."""
        return tuple(dict.fromkeys(self._names()))

    def own(self) -> Mapping[str, object]:
        """What this scope itself names: of a page its slots and sets, of a turn of a loop its variables and slots."""
        return MappingProxyType(self._own)

    def snapshot(self) -> Snapshot:
        """What the page and this scope name now."""
        return dict(self._page._own), dict(self._own)

    def restore(self, held: Snapshot) -> None:
        """Name again what a snapshot of this scope says, and nothing else."""
        self._page._own = dict(held[0])
        if self._page is not self:
            self._own = dict(held[1])

    def _names(self) -> Iterator[str]:
        level: Scope | None = self
        while level is not None:
            yield from level._own
            level = level._outer
        yield from self._given


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
        return [_value(item, scope, document, room - 1) for item in expression.items]
    if isinstance(expression, Compare):
        left = _value(expression.left, scope, document, room - 1)
        right = _value(expression.right, scope, document, room - 1)
        return _placed(lambda: _COMPARISONS[expression.operator](left, right), expression, document)
    if isinstance(expression, Not):
        value = _value(expression.operand, scope, document, room - 1)
        return not _placed(lambda: truth(value), expression.operand, document)
    return _logical(expression, scope, document, room)


def _at_path(path: Path, scope: Scope, document: Document, room: int) -> object:
    if not path.steps:
        return _placed(lambda: scope.get(path.name), path, document)
    steps = [step if isinstance(step, str | int) else _value(step, scope, document, room - 1) for step in path.steps]
    return _placed(lambda: scope.get(path.name, *steps), path, document)


def _logical(expression: Logical, scope: Scope, document: Document, room: int) -> bool:
    decides = expression.operator == "or"
    for operand in expression.operands:
        value = _value(operand, scope, document, room - 1)
        if _placed(lambda value=value: truth(value), operand, document) is decides:  # type: ignore[misc]
            return decides
    return not decides


def _placed(made: Callable[[], _T], expression: Expression, document: Document) -> _T:
    """What is made of an expression's value; a reason without a place gets the expression's."""
    try:
        return made()
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, expression.span, error.reason) from None


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
    return _placed(lambda: text_of(value), expression, document)


def truth_at(expression: Expression, scope: Scope, document: Document) -> bool:
    """Does a condition hold?"""
    value = evaluate(expression, scope, document)
    return _placed(lambda: truth(value), expression, document)


def options_at(expression: Expression, scope: Scope, document: Document) -> tuple[Option, ...]:
    """The options that an expression lists (`values.options_of`)."""
    value = evaluate(expression, scope, document)
    return _placed(lambda: options_of(value), expression, document)


def items_at(expression: Expression, scope: Scope, document: Document) -> list[tuple[object, object]]:
    """What `each` goes through: (place, item) of a list, (key, value) of a mapping."""
    value = evaluate(expression, scope, document)
    return _placed(lambda: items_of(value), expression, document)
