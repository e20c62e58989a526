"""Loops as they begin: what they go through, how often, and what stands between two turns."""

from __future__ import annotations

from typing import Any

from selectrie.template.forms import check_range
from selectrie.template.naming import names_in
from selectrie.template.scope import Scope, items_at, text_at
from selectrie.template.segments import Document, Each, GenEach
from selectrie.template.steps import Loop
from selectrie.template.tag_values import values_at
from selectrie.template.template import Template
from selectrie.template.values import plain, text_of

DEFAULT_MOST = 100
"""Items of a `geneach` that says neither `num` nor `max`."""


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
