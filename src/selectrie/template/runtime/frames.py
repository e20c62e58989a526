"""What of a template is under way: bodies, loops with what they go through and how often, and what each turn names."""

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
"""Items of a `geneach` that says neither `num` nor `max`."""

Values: TypeAlias = "dict[str, object]"


@dataclass(slots=True)
class Level:
    """One turn of a loop, or the page itself: what is named in it.

    records: beside each value of a slot, what its decision says of itself. assumed: what a look ahead takes for granted.
    """

    scope: Scope
    values: Values = field(default_factory=dict)
    records: Values = field(default_factory=dict)
    assumed: Values = field(default_factory=dict)

    def set(self, name: str, value: object, record: object) -> None:
        """Name a slot's value; `this.field` is a field of what `this` is."""
        self.scope.set(name, value)
        self._put(self.values, name, value)
        if record is not None:
            self._put(self.records, name, record)

    def _put(self, held: Values, name: str, value: object) -> None:
        base, _, inner = name.partition(".")
        held[base] = {**fields_of(held.get(base)), inner: value} if inner else value


def fields_of(held: object) -> dict[str, object]:
    """What `this` has so far, where it is put together from fields."""
    return held if isinstance(held, dict) else {}


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop under way. n_done: turns that began. items: of an `each`; None of a `geneach`. names: that it gives values to.
    bounds: least and most turns of a `geneach`, and what ends it between the two. values, records: of each name, an entry a turn that
    ended; they are shared by what looks ahead, which adds nothing."""

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
    """A body under way: the next segment, the loop it is a turn of, the steps that follow its end."""

    body: Body
    document: Document
    at: int = 0
    loop: Loop | None = None
    closing: tuple[Step, ...] = ()


def loop_over(each: Each, template: Template, scope: Scope, document: Document) -> Loop:
    """A loop over the items of a list or a mapping. `TemplateError` for what has none, or too many."""
    items = items_at(each.items, scope, document)
    join = dict(each.arguments).get("join")
    between = "" if join is None else text_at(join, scope, document)
    return Loop(each, names_in(each.body, template.documents), between, items=items)


def loop_of(each: GenEach, template: Template, scope: Scope, document: Document) -> Loop:
    """A loop whose items the model makes."""
    given: dict[str, Any] = {name: plain(one) for name, one in values_at(each, scope, document, template).items()}
    check_range(each, document, given)
    join, stop = (text_of(given[name]) if name in given else None for name in ("join", "stop"))
    least = given.get("num", given.get("min", 0))
    most = given.get("num", given.get("max", max(DEFAULT_MOST, least)))
    return Loop(each, names_in(each.body, template.documents), join or "", bounds=(least, most, stop))


def path_of(name: str, loops: list[Loop]) -> str:
    """Where a name of the innermost loop is found on the page: `food[1]`, `items[0].name`."""
    base, dot, inner = name.partition(".")
    if base != "this":
        return name + "".join(f"[{loop.n_done - 1}]" for loop in loops)
    while loops and isinstance(loops[-1].segment, Each):
        loops = loops[:-1]
    if not loops:
        return name
    segment = loops[-1].segment
    place = f"{path_of(segment.name, loops[:-1])}[{loops[-1].n_done - 1}]" if isinstance(segment, GenEach) else ""
    return f"{place}{dot}{inner}"
