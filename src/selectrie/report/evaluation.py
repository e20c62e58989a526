"""Evaluations and comparisons as tables for people, from their JSON-ready dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_MOST_SUBSETS = 80


def evaluation_report(evaluation: Mapping[str, Any]) -> RenderableType:
    """Figures of each task with their intervals, then of its subsets; what could not be measured; rows saved."""
    parts: list[RenderableType] = []
    for task in evaluation["tasks"]:
        shots = f", {task['shots']} shots" if task["shots"] else ""
        parts.append(Text(f"{task['task']}{shots}: {task['n']} items", style="bold"))
        parts.append(_figures([("", task)]) if not task["subsets"] else _figures([("all", task), *_subsets(task)]))
        parts += [Text(line) for line in _notes(task)]
        parts.append(Text(""))
    evaluated, naive = evaluation["rows_evaluated"], evaluation["rows_naive"]
    saved = f" ({1 - evaluated / naive:.1%} saved)" if naive else ""
    parts.append(Text(f"rows evaluated: {evaluated:_} of {naive:_} one by one{saved}".replace("_", " ")))
    return Group(*parts)


def _subsets(task: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(task["subsets"].items())[:_MOST_SUBSETS]


def _figures(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    named = len(rows) > 1
    for name in ("subset", "items") if named else ():
        table.add_column(name, justify="left" if name == "subset" else "right")
    for name in ("metric", "value", "± stderr", "95 % interval", "chance"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for label, figures in rows:
        for i, (metric, figure) in enumerate(figures["metrics"].items()):
            head = ((label, str(figures["n"])) if i == 0 else ("", "")) if named else ()
            table.add_row(*head, metric, *_cells(figure))
    return table


def _cells(figure: Mapping[str, float | None]) -> Iterator[str]:
    yield _number(figure["value"])
    yield _number(figure["stderr"])
    low, high = figure["low"], figure["high"]
    yield "" if low is None or high is None else f"{_number(low)} – {_number(high)}"
    yield _number(figure["chance"])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def _notes(task: Mapping[str, Any]) -> Iterator[str]:
    if task["ece"] is not None:
        yield f"expected calibration error {task['ece']:.3f}"
    if task["problems"]:
        first = task["problems"][0]
        yield f"{len(task['problems'])} items could not be measured; the first: {first['id'] or first['index']}: {first['problem']}"
    more = len(task["subsets"]) - _MOST_SUBSETS
    if more > 0:
        yield f"… and {more} more subsets (--json shows all)"


def comparison_report(comparison: Mapping[str, Any], first: str, second: str, *, flips: int) -> RenderableType:
    """Differences of each task, and the items that one run alone has right. first, second: names of the runs."""
    parts: list[RenderableType] = [Text(f"first: {first}\nsecond: {second}\n")]
    for task in comparison["tasks"]:
        parts.append(Text(f"{task['task']}: {task['n']} items in both", style="bold"))
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("metric", "first", "second", "difference", "95 % interval", "p"):
            table.add_column(name, justify="left" if name == "metric" else "right")
        for one in task["differences"]:
            interval = f"{one['interval']['low']:+.4f} – {one['interval']['high']:+.4f}"
            p = "" if one["p"] is None else f"{one['p']:.3g}"
            table.add_row(
                one["metric"], _number(one["first"]), _number(one["second"]), f"{one['difference']:+.4f}", interval, p
            )
        parts += [
            table,
            Text(f"right in the second alone {len(task['gained'])}, in the first alone {len(task['lost'])}"),
        ]
        if flips and (task["gained"] or task["lost"]):
            parts.append(_flips(task, flips))
        parts.append(Text(""))
    return Group(*parts[:-1]) if len(parts) > 1 else Group(*parts)


def _flips(task: Mapping[str, Any], most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("item", "subset", "gold", "first", "second", "margins, nats"):
        table.add_column(name)
    shown = [*((one, "+") for one in task["gained"]), *((one, "-") for one in task["lost"])]
    for one, sign in shown[:most]:
        gold = ",".join(map(str, one["gold"]))
        margins = f"{one['margin_first']:.3f} {one['margin_second']:.3f}"
        table.add_row(
            f"{sign} {one['id'] or one['index']}", one["subset"], gold, str(one["first"]), str(one["second"]), margins
        )
    return table
