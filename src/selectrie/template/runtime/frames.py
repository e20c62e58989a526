"""The state of an interpreter: open bodies, loops, and the names of loop passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from selectrie.template.analysis.template import Template
from selectrie.template.runtime.steps import Step
from selectrie.template.syntax.ast import Body, Document, Each, GenEach
from selectrie.template.values.declared_names import Names, names_in
from selectrie.template.values.scope import Scope, items_at, text_at
from selectrie.template.values.tag_checks import check_range
from selectrie.template.values.tag_values import values_at
from selectrie.template.values.values import plain, text_of

DEFAULT_MOST = 100
"""Maximum number of items of a `geneach` that has neither `num` nor `max`."""

Values: TypeAlias = "dict[str, object]"


@dataclass(slots=True)
class Environment:
    """The names that one pass of a loop, or the page, has set.

    Attributes:
        scope: The scope in which expressions are evaluated.
        values: The values by name.
        records: For each slot by name, the result of its decision.
        assumed: The values that a lookahead assumes.
    """

    scope: Scope
    values: Values = field(default_factory=dict)
    records: Values = field(default_factory=dict)
    assumed: Values = field(default_factory=dict)

    def set(self, name: str, value: object, record: object) -> None:
        """Set a slot's value and its result; `this.field` sets a field of `this`."""
        self.scope.set(name, value)
        self._put(self.values, name, value)
        if record is not None:
            self._put(self.records, name, record)

    def _put(self, held: Values, name: str, value: object) -> None:
        base, _, inner = name.partition(".")
        held[base] = {**fields_of(held.get(base)), inner: value} if inner else value


def fields_of(held: object) -> dict[str, object]:
    """Return the fields of `this` that are set so far, {} if it is no mapping."""
    return held if isinstance(held, dict) else {}


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A running loop.

    Attributes:
        segment: The tag.
        names: Names that the loop's body declares.
        join: Text between two passes.
        items: Items of an `each`; None for a `geneach`.
        bounds: Minimum and maximum number of passes of a `geneach`, and the stop text
            that may end it between the two.
        n_done: Number of passes that have begun.
        values: For each name, the values of the passes that have ended.
        records: For each name, the results of decisions of the passes that have ended.

    Lookaheads share `values` and `records` and add nothing to them.
    """

    segment: Each | GenEach
    names: Names
    join: str
    items: Sequence[tuple[object, object]] | None = None
    bounds: tuple[int, int, str | None] = (0, 0, None)
    n_done: int = 0
    values: dict[str, list[object]] = field(default_factory=dict)
    records: dict[str, list[object]] = field(default_factory=dict)


@dataclass(slots=True)
class Frame:
    """A body of segments that is being executed.

    Attributes:
        body: The segments.
        document: The document that contains them.
        at: Index of the next segment.
        loop: The loop whose body it is, or None.
        closing: Steps that follow the end of the body.
    """

    body: Body
    document: Document
    at: int = 0
    loop: Loop | None = None
    closing: tuple[Step, ...] = ()


def loop_over(each: Each, template: Template, scope: Scope, document: Document) -> Loop:
    """Return a loop over the items of a list or a mapping.

    Raises `TemplateError` for a value without items, or with too many.
    """
    items = items_at(each.items, scope, document)
    join = dict(each.arguments).get("join")
    between = "" if join is None else text_at(join, scope, document)
    return Loop(each, names_in(each.body, template.documents), between, items=items)


def loop_of(each: GenEach, template: Template, scope: Scope, document: Document) -> Loop:
    """Return a loop whose items the model generates."""
    values: dict[str, Any] = {name: plain(one) for name, one in values_at(each, scope, document, template).items()}
    check_range(each, document, values)
    join, stop = (text_of(values[name]) if name in values else None for name in ("join", "stop"))
    min_turns = values.get("num", values.get("min", 0))
    max_turns = values.get("num", values.get("max", max(DEFAULT_MOST, min_turns)))
    return Loop(each, names_in(each.body, template.documents), join or "", bounds=(min_turns, max_turns, stop))


def path_of(name: str, loops: list[Loop]) -> str:
    """Return the path within the page's values of a name of the innermost loop.

    Examples are `food[1]` and `items[0].name`.
    """
    base, dot, inner = name.partition(".")
    if base != "this":
        return name + "".join(f"[{loop.n_done - 1}]" for loop in loops)
    while loops and isinstance(loops[-1].segment, Each):
        loops = loops[:-1]
    if not loops:
        return name
    segment = loops[-1].segment
    prefix = f"{path_of(segment.name, loops[:-1])}[{loops[-1].n_done - 1}]" if isinstance(segment, GenEach) else ""
    return f"{prefix}{dot}{inner}"
