"""Loops as they begin: what they go through, how often, and what stands between two turns."""

from __future__ import annotations

from typing import Any

from selectrie.template.arguments import MOST_TURNS
from selectrie.template.expressions import Expression
from selectrie.template.naming import names_in
from selectrie.template.places import error_at
from selectrie.template.scope import Scope, evaluate, items_at, text_at
from selectrie.template.segments import Document, Each, GenEach
from selectrie.template.steps import Loop
from selectrie.template.template import Template
from selectrie.template.values import plain, shown

DEFAULT_MOST = 100
"""Items of a `geneach` that says neither `num` nor `max`."""


def loop_over(each: Each, template: Template, scope: Scope, document: Document) -> Loop:
    """A loop over the items of a list or a mapping. `TemplateError` for what has none, or too many."""
    items = items_at(each.items, scope, document)
    if len(items) > MOST_TURNS:
        reason = f"{len(items)} items are more than the {MOST_TURNS} that a loop goes through; give fewer"
        raise error_at(document, each.items.span, reason)
    join = dict(each.arguments).get("join")
    between = "" if join is None else text_at(join, scope, document)
    return Loop(each, names_in(each.body, template.documents), between, items=items)


def loop_of(each: GenEach, template: Template, scope: Scope, document: Document) -> Loop:
    """A loop whose items the model makes."""
    arguments = dict(each.arguments)
    texts = {name: text_at(arguments[name], scope, document) for name in ("join", "stop") if name in arguments}
    bounds = _bounds(each, texts.get("stop"), scope, document)
    return Loop(each, names_in(each.body, template.documents), texts.get("join", ""), bounds=bounds)


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


def flag_at(expression: Expression, name: str, scope: Scope, document: Document) -> bool:
    """An argument that is true or false."""
    value: Any = plain(evaluate(expression, scope, document))
    if not isinstance(value, bool):
        raise error_at(document, expression.span, f"{name}={shown(value)}: expected true or false")
    return value


def _bounds(each: GenEach, stop: str | None, scope: Scope, document: Document) -> tuple[int, int, str | None]:
    """The least and the most turns, and the text that ends them between the two."""
    given = {
        name: _count_at(expression, name, scope, document)
        for name, expression in each.arguments
        if name in ("num", "min", "max")
    }
    if "num" in given:
        if len(given) > 1 or stop is not None:
            reason = "num says exactly how many items there are: leave out min, max and stop"
            raise error_at(document, each.span, reason)
        return given["num"], given["num"], None
    if not stop:
        raise error_at(document, each.span, "nothing ends this loop; give num=, or stop= and how many at most: max=")
    least = given.get("min", 0)
    most = given.get("max", max(DEFAULT_MOST, least))
    if least > most:
        raise error_at(document, each.span, f"min={least} is more than max={most}")
    return least, most, stop


def _count_at(expression: Expression, name: str, scope: Scope, document: Document) -> int:
    value: Any = plain(evaluate(expression, scope, document))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TURNS:
        reason = f"{name}={shown(value)}: expected a whole number from 0 to {MOST_TURNS}"
        raise error_at(document, expression.span, reason)
    return value
