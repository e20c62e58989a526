"""Reports of evaluations and comparisons, as tables for people.

They are built from JSON-ready dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selectrie.cli.report.terminal import make_table
from selectrie.core.notation import count, escaped, rate, thousands
from selectrie.evaluation.results import (
    MAX_CONTEXT,
    between,
    choices_line,
    number,
    p_value,
    position,
    shorten,
    shown_flips,
    signed,
    signed_interval,
)

_MAX_SUBSETS = 80


def evaluation_report(evaluation: Mapping[str, Any]) -> RenderableType:
    """Return the report of an evaluation.

    It has the figures of each task and its subsets with intervals, the items that could
    not be measured, and the rows saved.

    Args:
        evaluation: The evaluation as a JSON-ready dictionary.
    """
    parts: list[RenderableType] = []
    for task in evaluation["tasks"]:
        shots = f", {count(task['shots'], 'shot')}" if task["shots"] else ""
        parts.append(Text(f"{escaped(task['task'])}{shots}: {count(task['n'], 'item')}", style="bold"))
        subsets = list(task["subsets"].items())[:_MAX_SUBSETS]
        parts.append(_figures_table([("all", task), *subsets] if subsets else [("", task)]))
        parts += [Text(line) for line in _note_lines(task)]
        parts.append(Text(""))
    evaluated, naive = evaluation["rows_evaluated"], evaluation["rows_naive"]
    saved = f" ({rate(1 - evaluated / naive)} saved)" if naive else ""
    parts.append(Text(f"{count(evaluated, 'row')} evaluated of {thousands(naive)} one by one{saved}"))
    model = evaluation["signature"].get("model", "")
    parts.append(Text(f"model {escaped(str(model))}"))
    return Group(*parts)


def _figures_table(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return a table of metrics, with a group of rows for each (label, figures)."""
    named, names = len(rows) > 1, ("metric", "value", "± stderr", "95 % interval", "random")
    columns, texts = (("subset", "items", *names), (0, 2)) if named else (names, (0,))
    table = make_table(*columns, texts=texts, style="dim")
    for label, figures in rows:
        for i, (metric, figure) in enumerate(figures["metrics"].items()):
            head = ((_one_line_text(label), Text(str(figures["n"]))) if i == 0 else ("", "")) if named else ()
            interval = between(figure["low"], figure["high"])
            numbers = (number(figure["value"]), number(figure["stderr"]), interval, number(figure["chance"]))
            table.add_row(*head, *map(Text, (metric, *numbers)))
    return table


def _note_lines(task: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a task's calibration, problems and hidden subsets."""
    if task["metrics"].get("acc", {}).get("value") is not None:
        yield f"accuracy {rate(task['metrics']['acc']['value'])} (acc)"
    if task["ece"] is not None:
        yield f"expected calibration error {task['ece']:.3f}"
    if task["problems"]:
        first = task["problems"][0]
        name = escaped(str(first["id"] or first["index"]))
        yield f"{count(len(task['problems']), 'item')} could not be measured; the first: {name}: {first['problem']}"
    more = len(task["subsets"]) - _MAX_SUBSETS
    if more > 0:
        yield f"… and {count(more, 'more subset')} (--json shows all)"


def _one_line_text(text: str) -> Text:
    """Return a text on one line, shortened if there is little room."""
    return Text(escaped(text), no_wrap=True, overflow="ellipsis")


def tasks_report(tasks: Sequence[tuple[str, str, Sequence[str], Sequence[str]]]) -> RenderableType:
    """Return a table of tasks with their metrics and the records that they read.

    Args:
        tasks: Tuples of name, kind, metrics, and the fields of each record shape.
    """
    table = make_table("task", "metrics", "reads records of", texts=(0, 1, 2), style="dim")
    for name, kind, metrics, shapes in tasks:
        measured = ", ".join(metrics) + ("" if kind == "multiple_choice" else f" ({kind})")
        for i, shape in enumerate(shapes):
            table.add_row(*map(Text, (name if i == 0 else "", measured if i == 0 else "", shape)))
    return table


def comparison_report(comparison: Mapping[str, Any], *, flips: int) -> RenderableType:
    """Return the differences of each task, and items that only one run gets right.

    Args:
        comparison: The comparison as a JSON-ready dictionary.
        flips: Maximum number of such items to list for each task and run.
    """
    names = comparison["runs"]
    width = max(len(position(i)) for i in range(len(names)))
    parts: list[RenderableType] = [Text(f"{position(i):{width}}  {name}") for i, name in enumerate(names)]
    for task in comparison["tasks"]:
        other = position(task["run"])
        among = f"first and {other}" if len(names) > 2 else "both"
        parts += [
            Text(""),
            Text(f"{escaped(task['task'])}: {count(task['n'], 'item')} in {among}", style="bold"),
            _differences_table(task, other),
        ]
        parts.append(Text(f"right in the {other} alone {len(task['gained'])}, in the first alone {len(task['lost'])}"))
        if task["n_left_out"]:
            parts.append(Text(f"{count(task['n_left_out'], 'item')} left out, not measured in both"))
        if flips and (task["gained"] or task["lost"]):
            parts += [Text(""), *_list_flips(task, other, flips)]
    return Group(*parts)


def _differences_table(task: Mapping[str, Any], other: str) -> Table:
    """Return a table of each metric in both runs, with intervals and p-values."""
    table = make_table("metric", "first", other, "difference", "95 % interval", "p", texts=(0,), style="dim")
    for one in task["differences"]:
        numbers = (number(one["first"]), number(one["second"]), signed(one["difference"]))
        table.add_row(*map(Text, (one["metric"], *numbers, signed_interval(one["interval"]), p_value(one["p"]))))
    return table


def _list_flips(task: Mapping[str, Any], other: str, max_shown: int) -> Iterator[RenderableType]:
    """Yield a table of items that only one run gets right, a note, and their texts."""
    shown = shown_flips(task, max_shown)
    has_subsets = any(flip["subset"] for flip in (*task["gained"], *task["lost"]))
    names = ("", "item", *(["subset"] if has_subsets else []), "right", "first", other, "margins, nats")
    table = make_table(*names, texts=range(len(names) - 4), style="dim")
    for sign, flip in shown:
        gold = ",".join(map(str, flip["gold"]))
        margins = f"{number(flip['margin_first'])} {number(flip['margin_second'])}"
        numbers = map(Text, (gold, str(flip["first"]), str(flip["second"]), margins))
        subset = [_one_line_text(flip["subset"])] if has_subsets else []
        table.add_row(sign, _one_line_text(_item_name(flip)), *subset, *numbers)
    yield table
    left = len(task["gained"]) + len(task["lost"]) - len(shown)
    if left:
        yield Text(f"… and {left} more (--flips N)")
    for _, flip in shown:
        if flip["context"] is not None:
            yield Text(f"\n{escaped(_item_name(flip))}  {escaped(shorten(flip['context'], MAX_CONTEXT))}")
            yield Text(escaped(choices_line(flip, other)))


def _item_name(flip: Mapping[str, Any]) -> str:
    return flip["id"] or str(flip["index"])
