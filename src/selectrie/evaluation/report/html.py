"""HTML pages of an evaluation and of a comparison.

A page needs no network and no script, has a light and a dark style, and describes every
picture in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from selectrie.core.plain_text import count, thousands
from selectrie.evaluation import metrics
from selectrie.evaluation.metrics import METRICS, Estimate
from selectrie.evaluation.report import svg
from selectrie.evaluation.report.numbers import between, number, p_value, signed, signed_interval
from selectrie.evaluation.report.svg import Pile, Point, Row, Words, printable
from selectrie.evaluation.results import Evaluation, Figures, TaskResult
from selectrie.evaluation.statistics import wilson

_FOLDER = resources.files("selectrie.evaluation.report")
MAX_FLIPS = 1000
"""Maximum number shown for a task and direction; the rest is counted."""
MAX_PROBLEMS = 200
_N_PILES = 20
_POSITIONS = ("first", "second")

Cells: TypeAlias = Sequence[object]
Block: TypeAlias = Mapping[str, Any]
"""A part of a section as `page.html` reads it: its kind, and what that kind has."""
Section: TypeAlias = Mapping[str, Any]


def evaluation_page(evaluation: Evaluation) -> str:
    """Return an HTML page about an evaluation.

    It shows figures, accuracy with 95 % intervals beside random chance, reliability,
    margins, items that could not be measured, and the signature.
    """
    model = evaluation.signature.get("model", "")
    rows = [row for task in evaluation.tasks for row in _task_rows(task, named=len(evaluation.tasks) > 1)]
    picture = _figure(svg.intervals(rows, _row_words("Accuracy", rows)), key="intervals") if rows else None
    overview = [] if picture is None else [_section("Accuracy", picture)]
    body = [*overview, *map(_task, evaluation.tasks), _cost(evaluation), _signature(evaluation)]
    n = sum(task.figures.n for task in evaluation.tasks)
    return _page(f"Evaluation of {model}", f"{count(len(evaluation.tasks), 'task')}, {count(n, 'item')} measured", body)


def comparison_page(comparison: Mapping[str, Any], runs: tuple[Evaluation, Evaluation], names: tuple[str, str]) -> str:
    """Return an HTML page that compares two runs.

    It shows differences with intervals and p-values, items that only one run gets
    right, and the differences of their signatures.

    Args:
        comparison: The comparison, ready for JSON (`compare.comparison_dict`).
        runs: The two runs.
        names: The names of the runs to show.
    """
    rows = [
        (position, name, run.signature.get("model", ""))
        for position, name, run in zip(_POSITIONS, names, runs, strict=True)
    ]
    head = _table("Folder and model", ("", "folder", "model"), rows, left=3)
    body = [_section("Runs", head), *map(_compared, comparison["tasks"]), _two_signatures(runs)]
    return _page("Two runs of the same items", f"{names[0]} and {names[1]}", body)


def _page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    environment = Environment(
        loader=FunctionLoader(lambda name: (_FOLDER / name).read_text(encoding="utf-8")),
        autoescape=True,
        keep_trailing_newline=True,
        finalize=_printable,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)


def _printable(value: object) -> object:
    """Escape characters that do not print, but leave the template's markup as it is."""
    return value if hasattr(value, "__html__") else printable(value)


def _section(title: str, *blocks: Block) -> Section:
    return {"title": title, "blocks": blocks}


def _heading(text: str) -> Block:
    return {"kind": "heading", "text": text}


def _paragraph(text: str) -> Block:
    return {"kind": "paragraph", "text": text}


def _figure(picture: str, caption: str = "", *, key: str = "") -> Block:
    """Return a picture with its caption, as HTML.

    `key` is the kind of legend in front of the caption: "intervals", "bars" or "".
    """
    return {"kind": "figure", "picture": picture, "caption": caption, "key": key}


def _table(caption: str, names: Sequence[str], rows: Sequence[Cells], *, left: int = 1) -> Block:
    """Return an HTML table; its first `left` columns are words, the others numbers.

    The first cell of a row is its heading.
    """
    return {"kind": "table", "caption": caption, "names": names, "rows": rows, "left": left}


def _details(title: str, table: Block) -> Block:
    return {"kind": "details", "title": title, "table": table}


def _metric(name: str) -> str:
    metric = METRICS.get(name)
    return name if metric is None or metric.higher_is_better else f"{name} (lower is better)"


def _row(label: str, figure: Estimate) -> Row:
    note = f"{100 * figure.value:.1f} % ({100 * figure.low:.1f} – {100 * figure.high:.1f})"
    return Row(label, figure.value, figure.low, figure.high, figure.chance, note)


def _is_shown(name: str, figure: Estimate) -> bool:
    return METRICS[name].is_proportion and math.isfinite(figure.value)


def _task_rows(task: TaskResult, *, named: bool) -> Iterator[Row]:
    for name, figure in task.figures.metrics.items():
        if _is_shown(name, figure):
            yield _row(f"{task.task} {name}" if named else name, figure)


def _row_words(title: str, rows: Sequence[Row]) -> Words:
    return Words(title, "; ".join(f"{row.label} {row.note}" + _random_note(row) for row in rows))


def _random_note(row: Row) -> str:
    return "" if row.mark is None else f", random {100 * row.mark:.1f} %"


def _task(task: TaskResult) -> Section:
    shots = f"{count(task.n_shots, 'shot')}, " if task.n_shots else ""
    failed = f", {thousands(task.figures.n_failed)} could not be measured" if task.figures.n_failed else ""
    parts = [_paragraph(f"{shots}{count(task.figures.n, 'item')}{failed}"), _figures(task.figures)]
    columns = [column for column in (_reliability(task), _margins(task)) if column]
    if columns:
        parts.append({"kind": "columns", "columns": columns})
    if task.subsets:
        parts += _subsets(task)
    problems = [record for record in task.records if record.problem is not None]
    if problems:
        rows = [(r.id or r.index, r.subset, r.problem) for r in problems[:MAX_PROBLEMS]]
        caption = "Items that could not be measured" + _more(len(problems) - len(rows))
        parts.append(_table(caption, ("item", "subset", "why"), rows, left=3))
    return _section(f"{task.task}", *parts)


def _more(n: int) -> str:
    return f" (and {thousands(n)} more)" if n > 0 else ""


def _figures(figures: Figures) -> Block:
    names = ("metric", "value", "± standard error", "95 % interval", "random")
    rows = [
        (_metric(name), number(one.value), number(one.stderr), between(one.low, one.high), number(one.chance))
        for name, one in figures.metrics.items()
    ]
    return _table("Figures", names, rows)


def _reliability(task: TaskResult) -> list[Block]:
    points = []
    for one in task.calibration:
        if one.n:
            interval = wilson(one.accuracy * one.n, one.n)
            points.append(Point(one.confidence, one.accuracy, interval.low, interval.high, one.n))
    if not points:
        return []
    rows = [
        (f"{100 * p.x:.1f} %", p.n, f"{100 * p.y:.1f} %", f"{100 * p.low:.1f} – {100 * p.high:.1f}") for p in points
    ]
    words = Words(
        f"Reliability of {task.task}",
        f"Expected calibration error {task.ece:.3f}. "
        + "; ".join(f"{row[1]} items of confidence {row[0]}: right {row[2]}" for row in rows),
    )
    caption = (
        f"Expected calibration error {task.ece:.3f}. "
        "Dots below the line: the model is surer than it is right. Below: items."
    )
    numbers = _details("The numbers", _table("Bins", ("confidence", "items", "right", "95 % interval"), rows))
    return [_heading("Reliability"), _figure(svg.reliability(points, words), caption), numbers]


def _margins(task: TaskResult) -> list[Block]:
    sets = [record for record in task.records if record.problem is None and len(record.choices) > 1 and record.gold]
    if not sets:
        return []
    margins = np.array([metrics.margin(record) for record in sets])
    right = np.array([metrics.predicted(record) in record.gold for record in sets])
    piles, beyond = _piles(margins, right)
    alternative = "; ".join(f"{p.low:.3g} to {p.high:.3g} nats: {p.right} right, {p.wrong} wrong" for p in piles)
    words = Words(f"Margins of {task.task}", f"Median {float(np.median(margins)):.3g} nats. {alternative}")
    end = f"; {count(beyond, 'item')} beyond the right end are counted in the last column." if beyond else "."
    caption = f"Median {float(np.median(margins)):.3g} nats{end}"
    picture = svg.histogram(piles, words, "nats between the two most probable choices")
    return [_heading("Margins"), _figure(picture, caption, key="bars")]


def _piles(margins: np.ndarray, right: np.ndarray) -> tuple[list[Pile], int]:
    """Return histogram columns from 0 to about the 99th percentile of the margins.

    The second value is the number of items with larger margins.
    """
    finite = margins[np.isfinite(margins)]
    end = float(np.quantile(finite, 0.99)) if len(finite) else 0.0
    edges = np.linspace(0.0, svg.round_up(end or 1.0), _N_PILES + 1)
    pile_of = np.minimum(np.searchsorted(edges, margins, side="right") - 1, _N_PILES - 1)
    piles = [
        Pile(
            float(edges[i]),
            float(edges[i + 1]),
            int((right & (pile_of == i)).sum()),
            int((~right & (pile_of == i)).sum()),
        )
        for i in range(_N_PILES)
    ]
    return piles, int((margins > edges[-1]).sum())


def _subsets(task: TaskResult) -> list[Block]:
    name = next((name for name, figure in task.figures.metrics.items() if _is_shown(name, figure)), None)
    names = ("subset", "items", *map(_metric, task.figures.metrics))
    rows = [
        (label, part.n, *(number(figure.value) for figure in part.metrics.values()))
        for label, part in task.subsets.items()
    ]
    numbers = _details(f"The numbers of {count(len(rows), 'subset')}", _table("Subsets", names, rows))
    if name is None:
        return [_heading("Subsets"), numbers]
    lines = [
        _row(label, part.metrics[name]) for label, part in task.subsets.items() if _is_shown(name, part.metrics[name])
    ]
    lines.sort(key=lambda row: -row.value)
    picture = svg.intervals(lines, _row_words(f"{name} of the subsets of {task.task}", lines))
    return [_heading(f"Subsets: {name}"), _figure(picture, key="intervals"), numbers]


def _cost(evaluation: Evaluation) -> Section:
    evaluated, naive = evaluation.rows_evaluated, evaluation.rows_naive
    share = f": {1 - evaluated / naive:.1%} saved, {naive / evaluated:.2f} × fewer" if evaluated and naive else ""
    words = (
        f"{thousands(evaluated)} rows evaluated, where evaluating every context and choice alone takes "
        f"{thousands(naive)}{share}."
    )
    return _section("Cost", _paragraph(words))


def _signature(evaluation: Evaluation) -> Section:
    rows = list(evaluation.signature.items())
    return _section("Signature", _table("What the log-probabilities depend on", ("", "value"), rows, left=2))


def _two_signatures(runs: tuple[Evaluation, Evaluation]) -> Section:
    first, second = (run.signature for run in runs)
    names = list(dict.fromkeys([*first, *second]))
    rows = [(name, first.get(name, ""), second.get(name, ""), _sameness(first, second, name)) for name in names]
    rows.sort(key=lambda row: row[3] == "same")
    return _section(
        "Signatures", _table("What the log-probabilities depend on", ("", "first", "second", ""), rows, left=4)
    )


def _sameness(first: Mapping[str, object], second: Mapping[str, object], name: str) -> str:
    return "same" if first.get(name) == second.get(name) else "differs"


def _compared(task: Mapping[str, Any]) -> Section:
    differences = task["differences"]
    names = ("metric", "first", "second", "difference", "95 % interval", "p")
    rows = [
        (
            _metric(one["metric"]),
            number(one["first"]),
            number(one["second"]),
            signed(one["difference"]),
            signed_interval(one["interval"]),
            p_value(one["p"]),
        )
        for one in differences
    ]
    left_out = f"; {count(task['n_left_out'], 'item')} left out" if task["n_left_out"] else ""
    parts = [
        _paragraph(f"{count(task['n'], 'item')} that both measured{left_out}"),
        _table("Second less first", names, rows),
    ]
    lines = [_difference_row(one) for one in differences if one["p"] is not None]
    if lines:
        words = _row_words(f"Differences of {task['task']}, percentage points", lines)
        picture = svg.intervals(lines, words, lambda start, end: svg.difference_axis(lines, start, end))
        caption = (
            "Second less first, percentage points, with 95 % intervals of paired draws; "
            "hollow: no difference lies within."
        )
        parts.append(_figure(picture, caption))
    gained, lost = task["gained"], task["lost"]
    words_of_flips = (
        f"{count(len(gained), 'item')} right in the second run alone, {thousands(len(lost))} in the first alone."
    )
    parts += [_heading("Flips"), _paragraph(words_of_flips)]
    parts += [*_flips(gained, "Right in the second alone"), *_flips(lost, "Right in the first alone")]
    return _section(str(task["task"]), *parts)


def _difference_row(one: Mapping[str, Any]) -> Row:
    low, high = one["interval"]["low"], one["interval"]["high"]
    note = f"{100 * one['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return Row(one["metric"], one["difference"], low, high, 0.0, note)


def _flips(flips: Sequence[Mapping[str, Any]], title: str) -> list[Block]:
    if not flips:
        return []
    has_subsets = any(one["subset"] for one in flips)
    names = (
        "item",
        *(["subset"] if has_subsets else []),
        "right",
        "first chose",
        "second chose",
        "margin, first",
        "second",
    )
    rows = [
        (
            one["id"] or one["index"],
            *([one["subset"]] if has_subsets else []),
            ", ".join(map(str, one["gold"])),
            one["first"],
            one["second"],
            number(one["margin_first"]),
            number(one["margin_second"]),
        )
        for one in flips[:MAX_FLIPS]
    ]
    return [_table(title + _more(len(flips) - len(rows)), names, rows, left=1 + has_subsets)]
