"""Looks up names and evaluates expressions while a page is rendered.

Every error has the position of its expression. `names_in` finds the names to which a
part of a template gives values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TypeAlias, final

from selectrie.errors import TemplateError
from selectrie.template.syntax import ast
from selectrie.template.values.values import (
    are_equal,
    compare_order,
    contains,
    describe,
    did_you_mean,
    get_part,
    is_true,
    items_of,
    text_of,
)

MAX_NESTING = 100
"""Maximum depth of nested expressions."""

Snapshot: TypeAlias = tuple[dict[str, object], dict[str, object]]


class Undecided(Exception):
    """An expression needs the value of a slot that is not decided yet.

    It occurs only in checks and lookaheads, which run before the model decides.
    """


@final
class _Mark:
    """The type of `UNDECIDED`."""

    def __repr__(self) -> str:
        return "UNDECIDED"


UNDECIDED = _Mark()
"""The value, in a scope, of a slot that is not decided yet.

Evaluating it raises `Undecided`.
"""


@final
class Scope:
    """The values of names for the evaluation of expressions.

    They are the given values, those of the page (slots and `set` tags), and inside
    a loop those of its current pass. Inner names hide outer ones. A scope without
    an outer one belongs to the page. The given mapping is never changed.
    """

    __slots__ = ("_inputs", "_outer", "_own", "_page")

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._inputs: Mapping[str, object] = {} if values is None else values
        self._own: dict[str, object] = {}
        self._outer: Scope | None = None
        self._page: Scope = self

    def child(self, variables: Mapping[str, object] | None = None) -> Scope:
        """Return the scope for one pass of a loop.

        It holds the loop's variables ("this" or a name, "@index", "@first", "@last",
        "@key") and the values of the slots in its body.
        """
        inner = Scope(self._inputs)
        inner._outer, inner._page = self, self._page
        inner._own.update(variables or {})
        return inner

    def copy(self, outer: Scope | None) -> Scope:
        """Return a copy of this scope inside `outer`, a copy of its outer scope.

        Names that are bound in the copy are not bound here.
        """
        if outer is not None:
            return outer.child(self._own)
        page = Scope(self._inputs)
        page._own.update(self._own)
        return page

    def set(self, name: str, value: object) -> None:
        """Bind a name to a value in this scope.

        The value is that of a slot or, after a loop, the list of its values in each
        pass. A name of the form "this.field" sets that key of the mapping `this` of
        this scope.
        """
        base, dot, field = name.partition(".")
        if not dot:
            self._own[name] = value
            return
        held = self._own.get(base)
        # The mapping is new each time, so that earlier references to it keep their
        # content.
        self._own[base] = {**(held if isinstance(held, dict) else {}), field: value}

    def assign(self, name: str, value: object) -> None:
        """Bind a name to a value on the page, even inside a loop.

        `<<set name=value>>` does this.
        """
        self._page.set(name, value)

    def get(self, name: str, *steps: object) -> object:
        """Return the value of a name, or the part of it that `steps` select.

        Steps are keys of mappings and indices of lists.

        Raises `TemplateError` (a reason without a position) if there is none.
        """
        level: Scope | None = self
        while level is not None and name not in level._own:  # twice as quick as `_levels`
            level = level._outer
        if level is None and name not in self._inputs:
            raise TemplateError(f"no value is called {describe(name)}{did_you_mean(name, self.names())}")
        value = self._inputs[name] if level is None else level._own[name]
        for step in steps:
            _check_decided(value)
            value = get_part(value, step)
        return _check_decided(value)

    def __contains__(self, name: object) -> bool:
        return any(name in held for held in self._levels())

    def is_input(self, name: str) -> bool:
        """Return whether a name is among the given values."""
        return name in self._inputs

    def names(self) -> tuple[str, ...]:
        """Return every name that has a value here, innermost first."""
        return tuple(dict.fromkeys(chain.from_iterable(self._levels())))

    def _levels(self) -> Iterator[Mapping[str, object]]:
        """Yield the names of this scope, of those around it, and the given values."""
        level: Scope | None = self
        while level is not None:
            yield level._own
            level = level._outer
        yield self._inputs

    def own(self) -> Mapping[str, object]:
        """Return the names and values of this scope alone, as a read-only mapping.

        Those of the page are its slots and `set` tags; those of a loop are its
        variables and slots.
        """
        return MappingProxyType(self._own)

    def snapshot(self, names: Iterable[str]) -> Snapshot:
        """Return the present values of these names on the page and in this scope.

        Names without a value are left out.
        """
        levels = [{name: own[name] for name in names if name in own} for own in (self._page._own, self._own)]
        return levels[0], levels[1]

    def restore(self, names: Iterable[str], held: Snapshot) -> None:
        """Restore the values of these names from a snapshot of this scope.

        Names that are missing in the snapshot are removed.
        """
        for own, kept in zip((self._page._own, self._own), held, strict=True):
            for name in names:
                own.pop(name, None)
            own.update(kept)


@final
class _Everything(Mapping[str, object]):
    """A mapping that contains every name, with no value known."""

    def __getitem__(self, name: str) -> object:
        return UNDECIDED

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, name: object) -> bool:
        return True


UNKNOWN = Scope(_Everything())
"""The scope before any values are given: no name has a known value."""


def _check_decided(value: object) -> object:
    """Return the value; raise `Undecided` if a slot has not been decided."""
    if value is UNDECIDED:
        raise Undecided
    return value


def evaluate(expression: ast.Expression, scope: Scope, document: ast.Document) -> object:
    """Return the value of an expression.

    Raises `TemplateError` at the smallest expression that has no value.
    """
    return _evaluate(expression, scope, document, MAX_NESTING)


def _evaluate(expression: ast.Expression, scope: Scope, document: ast.Document, room: int) -> object:
    """Evaluate an expression that may be nested `room` levels deep."""
    if room == 0:
        raise ast.error_at(document, expression.span, f"expressions are nested more than {MAX_NESTING} deep")
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Path):
        return _evaluate_path(expression, scope, document, room)
    if isinstance(expression, ast.ListOf):
        return [_evaluate_operand(item, scope, document, room - 1) for item in expression.items]
    if isinstance(expression, ast.Compare):
        left = _evaluate_operand(expression.left, scope, document, room - 1)
        right = _evaluate_operand(expression.right, scope, document, room - 1)
        with ast.report_at(document, expression.span):
            return _COMPARISONS[expression.operator](left, right)
    if isinstance(expression, ast.Not):
        value = _evaluate(expression.operand, scope, document, room - 1)
        with ast.report_at(document, expression.operand.span):
            return not is_true(value)
    return _evaluate_logical(expression, scope, document, room)


def _evaluate_operand(expression: ast.Expression, scope: Scope, document: ast.Document, room: int) -> object:
    """Return the value of an operand of a list or a comparison.

    An unknown name in this position is most often a text without quotes, and the error
    says so.
    """
    if isinstance(expression, ast.Path) and not expression.steps and expression.name not in scope:
        name = expression.name
        advice = did_you_mean(name, scope.names()) or f"; if it is a text, put it in quotes: {describe(name)}"
        raise ast.error_at(document, expression.span, f"no value is called {describe(name)}{advice}")
    return _evaluate(expression, scope, document, room)


def _evaluate_path(path: ast.Path, scope: Scope, document: ast.Document, room: int) -> object:
    """Return the value at a path."""
    steps = [step if isinstance(step, str | int) else _evaluate(step, scope, document, room - 1) for step in path.steps]
    with ast.report_at(document, path.span):
        return scope.get(path.name, *steps)


def _evaluate_logical(expression: ast.Logical, scope: Scope, document: ast.Document, room: int) -> bool:
    """Return the truth of an `and` or `or`, up to the operand that decides it."""
    decides = expression.operator == "or"
    for operand in expression.operands:
        value = _evaluate(operand, scope, document, room - 1)
        with ast.report_at(document, operand.span):
            if is_true(value) is decides:
                return decides
    return not decides


_COMPARISONS: Mapping[str, Callable[[object, object], bool]] = {
    "==": are_equal,
    "!=": lambda left, right: not are_equal(left, right),
    "<": lambda left, right: compare_order(left, right) < 0,
    "<=": lambda left, right: compare_order(left, right) <= 0,
    ">": lambda left, right: compare_order(left, right) > 0,
    ">=": lambda left, right: compare_order(left, right) >= 0,
    "in": lambda left, right: contains(right, left),
    "not in": lambda left, right: not contains(right, left),
}


def text_at(expression: ast.Expression, scope: Scope, document: ast.Document) -> str:
    """Return an expression's value as text, as `<<name>>` writes it to the page."""
    value = evaluate(expression, scope, document)
    with ast.report_at(document, expression.span):
        return text_of(value)


def truth_at(expression: ast.Expression, scope: Scope, document: ast.Document) -> bool:
    """Return whether the value of a condition counts as true."""
    value = evaluate(expression, scope, document)
    with ast.report_at(document, expression.span):
        return is_true(value)


def items_at(expression: ast.Expression, scope: Scope, document: ast.Document) -> list[tuple[object, object]]:
    """Return the items that a loop over an expression's value has.

    They are pairs (index, item) of a list or (key, value) of a mapping.
    """
    value = evaluate(expression, scope, document)
    with ast.report_at(document, expression.span):
        return items_of(value)


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The names that a part of a template declares.

    Each name occurs once, in page order. Names that begin with `this` belong to a
    loop's items and are not included.

    Attributes:
        slots: Names of slots and of `geneach` lists.
        texts: Names of blocks and of `logprobs=`.
        sets: Names of `set` tags.
    """

    slots: tuple[str, ...]
    texts: tuple[str, ...]
    sets: tuple[str, ...]

    @property
    def decided(self) -> tuple[str, ...]:
        """Return the names whose values a loop collects into lists."""
        return tuple(dict.fromkeys((*self.slots, *self.texts)))


def names_in(body: ast.Body, documents: Mapping[str, ast.Document]) -> DeclaredNames:
    """Return the names that a body declares, including blocks and included files.

    `documents` maps paths to the included files.
    """
    slots: dict[str, None] = {}
    texts: dict[str, None] = {}
    sets: dict[str, None] = {}
    for segment in ast.walk_through(body, documents):
        if isinstance(segment, ast.Slot | ast.GenEach):
            slots[segment.name] = None
        if isinstance(segment, ast.Slot):
            texts.update(dict.fromkeys(logprobs_names(segment)))
        elif isinstance(segment, ast.Block) and segment.name is not None:
            texts[segment.name] = None
        elif isinstance(segment, ast.Set):
            sets[segment.name] = None
    return DeclaredNames(_without_items(slots), _without_items(texts), tuple(sets))


def logprobs_names(slot: ast.Slot) -> tuple[str, ...]:
    """Return the name that a slot declares by `logprobs=`, if any."""
    argument = dict(slot.arguments).get("logprobs")
    return (argument.value,) if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else ()


def refuse_input_name(segment: ast.Slot | ast.Block | ast.GenEach, scope: Scope, document: ast.Document) -> None:
    """Raise `TemplateError` if a segment declares the name of a given value.

    In the handlebars dialect this is allowed.
    """
    if document.dialect == "handlebars":
        return
    for name in _own_names(segment):
        if scope.is_input(name):
            reason = (
                f"{describe(name)} is decided here, but a value of that name was passed too; "
                "leave it out, or rename the slot"
            )
            raise ast.error_at(document, segment.span, reason)


def _own_names(segment: ast.Slot | ast.Block | ast.GenEach) -> tuple[str, ...]:
    """Return the names that a segment itself declares, without those in its body."""
    if isinstance(segment, ast.Slot):
        return (*_without_items({segment.name: None}), *logprobs_names(segment))
    return () if segment.name is None else (segment.name,)


def _without_items(names: dict[str, None]) -> tuple[str, ...]:
    """Return the names that are not `this` or a field of it."""
    return tuple(name for name in names if name.partition(".")[0] != "this")
