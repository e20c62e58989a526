"""HTML pages of an evaluation and of a comparison, with charts as inline SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from selectrie.core.output import count, thousands
from selectrie.evaluation import metrics
from selectrie.evaluation.metrics import METRICS, Estimate, wilson
from selectrie.evaluation.results import (
    MAX_CONTEXT,
    Evaluation,
    Figures,
    TaskResult,
    between,
    choices_line,
    number,
    p_value,
    position,
    shorten,
    signed,
    signed_interval,
)

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Matches control characters, direction marks, and what no page may hold."""
_WIDTH = 720
_ROW = 22
_LABEL, _NOTE = 216, 160
_LABEL_CHARS = 30


def escape_text(text: object) -> str:
    r"""Return a text escaped for HTML, for element content and attribute values.

    Characters that do not print are written `\xNN` or `\uNNNN`.
    """
    return escape(escape_unprintable(text))


def escape_unprintable(text: object) -> str:
    r"""Return a text with unprintable characters written as `\xNN` or `\uNNNN`."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


@dataclass(frozen=True, slots=True)
class ChartDescription:
    """The description of a chart, for readers who cannot see it.

    Attributes:
        title: The title, a few words.
        alternative: A description of the chart in sentences.
    """

    title: str
    alternative: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a chart of intervals.

    Attributes:
        label: Text at the left of the row.
        value: The figure.
        low, high: Its interval.
        mark: A reference value, such as that of random guessing, or None.
        note: Text at the right of the row.
    """

    label: str
    value: float
    low: float
    high: float
    mark: float | None = None
    note: str = ""

    @property
    def is_apart(self) -> bool:
        """Return whether the mark, if any, lies outside the interval."""
        return self.mark is not None and not self.low <= self.mark <= self.high


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`.

    Attributes:
        low, high: The range of values.
        start, end: The range of pixels.
        ticks: Values that are marked.
        write: Formats a tick.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    write: Callable[[float], str]

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values out of range are moved to the edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def percent(value: float) -> str:
    """Return a share as `12 %`."""
    return f"{100 * value:.0f} %"


def signed_points(value: float) -> str:
    """Return a difference of two proportions in percentage points."""
    return f"{100 * value:+.3g}" if value else "0"


def share_axis(start: float, end: float) -> Axis:
    """Return an axis for shares, from 0 to 1."""
    return Axis(0, 1, start, end, (0, 0.25, 0.5, 0.75, 1), percent)


def difference_axis(rows: Sequence[Row], start: float, end: float) -> Axis:
    """Return an axis centred on 0 that is wide enough for every row's interval."""
    limit = round_up(max((max(abs(row.low), abs(row.high)) for row in rows), default=0.0) or 0.01)
    return Axis(-limit, limit, start, end, (-limit, -limit / 2, 0, limit / 2, limit), signed_points)


def round_up(value: float) -> float:
    """Return the smallest n · 10^k that is at least `value`, n one of 1-6 and 8."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """Return an SVG or HTML element as text.

    Args:
        name: Name of the element.
        content: Its content, which is not escaped.
        attributes: Its attributes; `_` in a name becomes `-`, `class_` becomes `class`.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute_text(value)}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _attribute_text(value: object) -> str:
    """Return an attribute's value as text, with one decimal for pixels."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape_text(value)


def _svg_text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return tag("text", escape_text(words), x=x, y=y, text_anchor=anchor, **({"class_": kind} if kind else {}))


def _svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _svg_tooltip(words: str) -> str:
    return tag("title", escape_text(words))


def svg_file(picture: str) -> str:
    """Return a chart of this module as an SVG file of its own, with its styles."""
    style = tag("style", (_FOLDER / "page.css").read_text(encoding="utf-8"))
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f">{style}", 1) + "\n"


def _svg_chart(words: ChartDescription, width: float, height: float, parts: Iterable[str]) -> str:
    """Return an SVG image of these parts, with its description for screen readers."""
    inside = f"<title>{escape_text(words.title)}</title><desc>{escape_text(words.alternative)}</desc>{''.join(parts)}"
    alternative = f"{words.title}. {words.alternative}"
    box = f"0 0 {width:g} {height:g}"
    return tag(
        "svg",
        inside,
        viewBox=box,
        role="img",
        aria_label=alternative,
        style=f"max-width:{width:g}px;min-width:{0.8 * width:g}px",
    )


def interval_chart(
    rows: Sequence[Row], words: ChartDescription, axis_of: Callable[[float, float], Axis] = share_axis
) -> str:
    """Return an SVG chart with a dot and whiskers for each row, one below the other.

    The dot is hollow if the row's mark lies within the whiskers.

    Args:
        words: The chart's description.
        axis_of: Returns the axis between two pixels.
    """
    axis = axis_of(_LABEL + 12, _WIDTH - _NOTE)
    bottom = 8 + _ROW * len(rows)
    parts = []
    for tick in axis.ticks:
        parts.append(_svg_line(axis(tick), 4, axis(tick), bottom, "grid"))
        parts.append(_svg_text(axis(tick), bottom + 16, axis.write(tick), "tick", "middle"))
    for i, row in enumerate(rows):
        parts.append(_svg_interval(row, axis, 8 + _ROW * i + _ROW / 2))
    return _svg_chart(words, _WIDTH, bottom + 24, parts)


def _svg_interval(row: Row, axis: Axis, y: float) -> str:
    """Return the SVG group of one row at the height `y`."""
    parts = [
        _svg_tooltip(f"{row.label}: {row.note}"),
        _svg_text(_LABEL, y + 4, shorten(row.label, _LABEL_CHARS), anchor="end"),
    ]
    if row.mark is not None:
        parts.append(_svg_line(axis(row.mark), y - 8, axis(row.mark), y + 8, "mark"))
    parts.append(_svg_line(axis(row.low), y, axis(row.high), y, "whisker"))
    parts += [_svg_line(axis(end), y - 4, axis(end), y + 4, "whisker") for end in (row.low, row.high)]
    kind = "dot" if row.mark is None or row.is_apart else "dot hollow"
    parts.append(tag("circle", cx=axis(row.value), cy=y, r=4.5, class_=kind))
    parts.append(_svg_text(axis.end + 14, y + 4, row.note, "tick"))
    return tag("g", "".join(parts))


@dataclass(frozen=True, slots=True)
class Point:
    """A bin of a reliability diagram.

    Attributes:
        x: Mean confidence.
        y: Accuracy.
        low, high: The interval of the accuracy.
        n: Number of items.
    """

    x: float
    y: float
    low: float
    high: float
    n: int


def reliability_chart(points: Sequence[Point], words: ChartDescription) -> str:
    """Return an SVG chart of accuracy over confidence.

    On the diagonal both are equal. Dots grow with the number of items, which bars below
    show.
    """
    x, y = share_axis(52, 332), share_axis(304, 24)
    parts = [_svg_text(x.start, 12, "share that is right")]
    for tick in x.ticks:
        parts += [
            _svg_line(x(tick), y.end, x(tick), y.start, "grid"),
            _svg_line(x.start, y(tick), x.end, y(tick), "grid"),
        ]
        parts.append(_svg_text(x(tick), y.start + 62, percent(tick), "tick", "middle"))
        parts.append(_svg_text(x.start - 8, y(tick) + 4, percent(tick), "tick", "end"))
    parts.append(_svg_line(x(0), y(0), x(1), y(1), "mark dashed"))
    max_n = max((point.n for point in points), default=1)
    for point in points:
        about = f"{point.n} items: confidence {percent(point.x)}, right {percent(point.y)}"
        inside = _svg_tooltip(about) + _svg_line(x(point.x), y(point.low), x(point.x), y(point.high), "whisker")
        inside += tag("circle", cx=x(point.x), cy=y(point.y), r=3 + 6 * math.sqrt(point.n / max_n), class_="dot soft")
        height = 30 * point.n / max_n
        left = x(max(0.0, math.ceil(point.x * 10 - 1e-9) - 1) / 10) + 2
        inside += tag("rect", x=left, y=y.start + 46 - height, width=24.0, height=height, class_="bar")
        inside += _svg_text(left + 12, y.start + 43 - height, str(point.n), "tick small", "middle")
        parts.append(tag("g", inside))
    parts.append(
        _svg_text((x.start + x.end) / 2, y.start + 80, "confidence: probability of the choice in its set", "", "middle")
    )
    return _svg_chart(words, 360, y.start + 88, parts)


@dataclass(frozen=True, slots=True)
class Pile:
    """A column of a histogram.

    Attributes:
        low, high: The range of values that it covers.
        right, wrong: Number of right and of wrong items; `wrong` is stacked on `right`.
    """

    low: float
    high: float
    right: int
    wrong: int


def histogram(piles: Sequence[Pile], words: ChartDescription, label: str) -> str:
    """Return an SVG histogram of right items, with wrong items stacked on them.

    Args:
        piles: The columns, from left to right.
        words: The chart's description.
        label: Label of the horizontal axis.
    """
    low, high = (piles[0].low, piles[-1].high) if piles else (0.0, 1.0)
    max_count = max((pile.right + pile.wrong for pile in piles), default=1) or 1
    x = Axis(low, high, 52, 332, tuple(low + (high - low) * i / 4 for i in range(5)), lambda value: f"{value:.3g}")
    top = round_up(max_count)
    y = Axis(0, top, 304, 24, (0, top / 2, top), lambda value: f"{value:g}")
    parts = [_svg_line(x.start, y(tick), x.end, y(tick), "grid") for tick in y.ticks]
    parts.append(_svg_text(x.start, 12, "items"))
    parts += [_svg_text(x.start - 8, y(tick) + 4, y.write(tick), "tick", "end") for tick in y.ticks]
    parts += [_svg_text(x(tick), y.start + 18, x.write(tick), "tick", "middle") for tick in x.ticks]
    for pile in piles:
        about = f"{pile.low:.3g} to {pile.high:.3g}: {pile.right} right, {pile.wrong} wrong"
        left, width = x(pile.low) + 0.5, max(1.0, x(pile.high) - x(pile.low) - 1)
        middle, over = y(pile.right), y(pile.right + pile.wrong)
        inside = _svg_tooltip(about)
        inside += tag("rect", x=left, y=middle, width=width, height=y.start - middle, class_="bar")
        inside += tag("rect", x=left, y=over, width=width, height=middle - over, class_="bar wrong")
        parts.append(tag("g", inside))
    parts.append(_svg_text((x.start + x.end) / 2, y.start + 38, label, "", "middle"))
    return _svg_chart(words, 360, y.start + 46, parts)


_FOLDER = resources.files("selectrie.evaluation.report")
MAX_FLIPS = 1000
"""Maximum number of flips shown for each task and direction; the rest is counted."""
MAX_PROBLEMS = 200
_N_PILES = 20

Cells: TypeAlias = Sequence[object]
Block: TypeAlias = Mapping[str, Any]
"""A part of a section as `page.html` reads it: its kind and that kind's fields."""
Section: TypeAlias = Mapping[str, Any]


def evaluation_page(evaluation: Evaluation) -> str:
    """Return an HTML page about an evaluation.

    It shows figures, accuracy with 95 % intervals beside random chance, reliability,
    margins, items that could not be measured, and the signature.
    """
    model = evaluation.signature.get("model", "")
    rows = [row for task in evaluation.tasks for row in _task_rows(task, named=len(evaluation.tasks) > 1)]
    picture = _figure_block(interval_chart(rows, _describe_rows("Accuracy", rows)), key="intervals") if rows else None
    overview = [] if picture is None else [_section("Accuracy", picture)]
    body = [*overview, *map(_task_section, evaluation.tasks), _cost_section(evaluation), _signature_section(evaluation)]
    n = sum(task.figures.n for task in evaluation.tasks)
    return _render_page(
        f"Evaluation of {model}", f"{count(len(evaluation.tasks), 'task')}, {count(n, 'item')} measured", body
    )


def comparison_page(comparison: Mapping[str, Any], runs: Sequence[Evaluation]) -> str:
    """Return an HTML page that compares runs with the first one.

    It shows differences with intervals and p-values, items that only one run gets
    right, and the differences of their signatures.

    Args:
        comparison: The comparison, ready for JSON (`comparison.comparison_dict`), with
            the names of the runs.
        runs: The runs.
    """
    names = comparison["runs"]
    rows = [
        (position(i), name, run.signature.get("model", ""))
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    head = _table_block("Folder and model", ("", "folder", "model"), rows, left=3)
    is_many = len(runs) > 2
    sections = (_comparison_section(task, position(task["run"]), is_many=is_many) for task in comparison["tasks"])
    body = [_section("Runs", head), *sections, _signatures_section(runs)]
    title = f"{len(runs) if is_many else 'Two'} runs of the same items"
    return _render_page(title, (", " if is_many else " and ").join(names), body)


def _render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the HTML of `page.html` with these sections."""
    environment = Environment(
        loader=FunctionLoader(lambda name: (_FOLDER / name).read_text(encoding="utf-8")),
        autoescape=True,
        keep_trailing_newline=True,
        finalize=_finalize,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)


def _finalize(value: object) -> object:
    """Escape characters that do not print, except in markup."""
    return value if hasattr(value, "__html__") else escape_unprintable(value)


def _section(title: str, *blocks: Block) -> Section:
    return {"title": title, "blocks": blocks}


def _heading_block(text: str) -> Block:
    return {"kind": "heading", "text": text}


def _paragraph_block(text: str) -> Block:
    return {"kind": "paragraph", "text": text}


def _figure_block(picture: str, caption: str = "", *, key: str = "") -> Block:
    """Return a chart with its caption, as a block.

    `key` is the kind of legend in front of the caption: "intervals", "bars" or "".
    """
    return {"kind": "figure", "picture": picture, "caption": caption, "key": key}


def _table_block(caption: str, names: Sequence[str], rows: Sequence[Cells], *, left: int = 1) -> Block:
    """Return a table, as a block; the first cell of each row is its heading.

    The first `left` columns are words, the others numbers.
    """
    return {"kind": "table", "caption": caption, "names": names, "rows": rows, "left": left}


def _details_block(title: str, table: Block) -> Block:
    return {"kind": "details", "title": title, "table": table}


def _metric_heading(name: str) -> str:
    metric = METRICS.get(name)
    return name if metric is None or metric.higher_is_better else f"{name} (lower is better)"


def _estimate_row(label: str, figure: Estimate) -> Row:
    note = f"{100 * figure.value:.1f} % ({100 * figure.low:.1f} – {100 * figure.high:.1f})"
    return Row(label, figure.value, figure.low, figure.high, figure.chance, note)


def _is_charted(name: str, figure: Estimate) -> bool:
    return METRICS[name].is_proportion and math.isfinite(figure.value)


def _task_rows(task: TaskResult, *, named: bool) -> Iterator[Row]:
    for name, figure in task.figures.metrics.items():
        if _is_charted(name, figure):
            yield _estimate_row(f"{task.task} {name}" if named else name, figure)


def _describe_rows(title: str, rows: Sequence[Row]) -> ChartDescription:
    return ChartDescription(title, "; ".join(f"{row.label} {row.note}" + _random_note(row) for row in rows))


def _random_note(row: Row) -> str:
    return "" if row.mark is None else f", random {100 * row.mark:.1f} %"


def _task_section(task: TaskResult) -> Section:
    """Return the section of a task: figures, charts, subsets and problems."""
    shots = f"{count(task.n_shots, 'shot')}, " if task.n_shots else ""
    failed = f", {thousands(task.figures.n_failed)} could not be measured" if task.figures.n_failed else ""
    parts = [_paragraph_block(f"{shots}{count(task.figures.n, 'item')}{failed}"), _figures_block(task.figures)]
    columns = [column for column in (_reliability_blocks(task), _margin_blocks(task)) if column]
    if columns:
        parts.append({"kind": "columns", "columns": columns})
    if task.subsets:
        parts += _subset_blocks(task)
    problems = [record for record in task.records if record.problem is not None]
    if problems:
        rows = [(r.id or r.index, r.subset, r.problem) for r in problems[:MAX_PROBLEMS]]
        caption = "Items that could not be measured" + _more_note(len(problems) - len(rows))
        parts.append(_table_block(caption, ("item", "subset", "why"), rows, left=3))
    return _section(f"{task.task}", *parts)


def _more_note(n: int) -> str:
    return f" (and {thousands(n)} more)" if n > 0 else ""


def _figures_block(figures: Figures) -> Block:
    """Return a table of the metrics of a group of items."""
    names = ("metric", "value", "± standard error", "95 % interval", "random")
    rows = [
        (_metric_heading(name), number(one.value), number(one.stderr), between(one.low, one.high), number(one.chance))
        for name, one in figures.metrics.items()
    ]
    return _table_block("Figures", names, rows)


def _reliability_blocks(task: TaskResult) -> list[Block]:
    """Return a task's reliability chart and its numbers; [] without calibration."""
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
    words = ChartDescription(
        f"Reliability of {task.task}",
        f"Expected calibration error {task.ece:.3f}. "
        + "; ".join(f"{row[1]} items of confidence {row[0]}: right {row[2]}" for row in rows),
    )
    caption = (
        f"Expected calibration error {task.ece:.3f}. "
        "Dots below the line: the model is surer than it is right. Below: items."
    )
    numbers = _details_block(
        "The numbers", _table_block("Bins", ("confidence", "items", "right", "95 % interval"), rows)
    )
    return [_heading_block("Reliability"), _figure_block(reliability_chart(points, words), caption), numbers]


def _margin_blocks(task: TaskResult) -> list[Block]:
    """Return a histogram of a task's margins; [] without choices."""
    sets = [record for record in task.records if record.problem is None and len(record.choices) > 1 and record.gold]
    if not sets:
        return []
    margins = np.array([metrics.margin(record) for record in sets])
    right = np.array([metrics.predicted_choice(record) in record.gold for record in sets])
    piles, beyond = _make_piles(margins, right)
    alternative = "; ".join(f"{p.low:.3g} to {p.high:.3g} nats: {p.right} right, {p.wrong} wrong" for p in piles)
    words = ChartDescription(f"Margins of {task.task}", f"Median {float(np.median(margins)):.3g} nats. {alternative}")
    end = f"; {count(beyond, 'item')} beyond the right end are counted in the last column." if beyond else "."
    caption = f"Median {float(np.median(margins)):.3g} nats{end}"
    picture = histogram(piles, words, "nats between the two most probable choices")
    return [_heading_block("Margins"), _figure_block(picture, caption, key="bars")]


def _make_piles(margins: np.ndarray, right: np.ndarray) -> tuple[list[Pile], int]:
    """Return histogram columns from 0 to about the 99th percentile of the margins.

    The second value is the number of items with larger margins.
    """
    finite = margins[np.isfinite(margins)]
    end = float(np.quantile(finite, 0.99)) if len(finite) else 0.0
    edges = np.linspace(0.0, round_up(end or 1.0), _N_PILES + 1)
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


def _subset_blocks(task: TaskResult) -> list[Block]:
    """Return a chart and a table of a task's subsets."""
    name = next((name for name, figure in task.figures.metrics.items() if _is_charted(name, figure)), None)
    names = ("subset", "items", *map(_metric_heading, task.figures.metrics))
    rows = [
        (label, part.n, *(number(figure.value) for figure in part.metrics.values()))
        for label, part in task.subsets.items()
    ]
    numbers = _details_block(f"The numbers of {count(len(rows), 'subset')}", _table_block("Subsets", names, rows))
    if name is None:
        return [_heading_block("Subsets"), numbers]
    lines = [
        _estimate_row(label, part.metrics[name])
        for label, part in task.subsets.items()
        if _is_charted(name, part.metrics[name])
    ]
    lines.sort(key=lambda row: -row.value)
    picture = interval_chart(lines, _describe_rows(f"{name} of the subsets of {task.task}", lines))
    return [_heading_block(f"Subsets: {name}"), _figure_block(picture, key="intervals"), numbers]


def _cost_section(evaluation: Evaluation) -> Section:
    """Return a section on the number of rows evaluated and saved."""
    evaluated, naive = evaluation.rows_evaluated, evaluation.rows_naive
    share = f": {1 - evaluated / naive:.1%} saved, {naive / evaluated:.2f} × fewer" if evaluated and naive else ""
    words = (
        f"{thousands(evaluated)} rows evaluated, where evaluating every context and choice alone takes "
        f"{thousands(naive)}{share}."
    )
    return _section("Cost", _paragraph_block(words))


def _signature_section(evaluation: Evaluation) -> Section:
    rows = list(evaluation.signature.items())
    return _section("Signature", _table_block("What the log-probabilities depend on", ("", "value"), rows, left=2))


def _signatures_section(runs: Sequence[Evaluation]) -> Section:
    """Return a table of the signatures of the runs; differences come first."""
    names = list(dict.fromkeys(name for run in runs for name in run.signature))
    rows = []
    for name in names:
        values = [run.signature.get(name, "") for run in runs]
        rows.append((name, *values, "same" if all(one == values[0] for one in values) else "differs"))
    rows.sort(key=lambda row: row[-1] == "same")
    heads = ("", *map(position, range(len(runs))), "")
    return _section("Signatures", _table_block("What the log-probabilities depend on", heads, rows, left=len(heads)))


def _comparison_section(task: Mapping[str, Any], other: str, *, is_many: bool) -> Section:
    """Return the section that compares one task of the first run and of another one.

    Args:
        task: The comparison of the task.
        other: The other run's position in words.
        is_many: Whether there are more than two runs.
    """
    differences = task["differences"]
    names = ("metric", "first", other, "difference", "95 % interval", "p")
    rows = [
        (
            _metric_heading(one["metric"]),
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
        _paragraph_block(f"{count(task['n'], 'item')} that both measured{left_out}"),
        _table_block(f"{other.capitalize()} less first", names, rows),
    ]
    lines = difference_rows([task])
    if lines:
        caption = (
            f"{other.capitalize()} less first, percentage points, with 95 % intervals of paired draws; "
            "hollow: no difference lies within."
        )
        parts.append(_figure_block(difference_chart(lines, f"Differences of {task['task']}"), caption))
    gained, lost = task["gained"], task["lost"]
    words_of_flips = (
        f"{count(len(gained), 'item')} right in the {other} run alone, {thousands(len(lost))} in the first alone."
    )
    parts += [_heading_block("Flips"), _paragraph_block(words_of_flips)]
    for flips, alone in ((gained, other), (lost, "first")):
        parts += _flip_blocks(flips, f"Right in the {alone} alone", other)
    return _section(f"{task['task']}, first and {other}" if is_many else str(task["task"]), *parts)


def difference_rows(tasks: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> list[Row]:
    """Return a chart's row for each difference of two proportions.

    Args:
        tasks: Comparisons, ready for JSON.
        names: Names of the runs, for the labels; empty if the metrics are enough.
    """
    return [
        _difference_row(one, f"{task['task']} {one['metric']} {names[task['run']]}" if names else one["metric"])
        for task in tasks
        for one in task["differences"]
        if one["p"] is not None
    ]


def difference_chart(rows: Sequence[Row], title: str) -> str:
    """Return an SVG chart of differences in percentage points."""
    words = ChartDescription(f"{title}, percentage points", "; ".join(f"{row.label} {row.note}" for row in rows))
    return interval_chart(rows, words, lambda start, end: difference_axis(rows, start, end))


def _difference_row(one: Mapping[str, Any], label: str) -> Row:
    low, high = one["interval"]["low"], one["interval"]["high"]
    note = f"{100 * one['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    return Row(label, one["difference"], low, high, 0.0, note)


def _flip_blocks(flips: Sequence[Mapping[str, Any]], title: str, other: str) -> list[Block]:
    """Return a table of items that only one run gets right; [] for none."""
    if not flips:
        return []
    table = [
        {
            "item": one["id"] or one["index"],
            "subset": one["subset"],
            "text": None if one["context"] is None else shorten(one["context"], MAX_CONTEXT),
            "choices": choices_line(one, other),
            "right": ", ".join(map(str, one["gold"])),
            "first chose": one["first"],
            f"{other} chose": one["second"],
            "margin, first": number(one["margin_first"]),
            other: number(one["margin_second"]),
        }
        for one in flips[:MAX_FLIPS]
    ]
    words = [name for name in ("item", "subset", "text", "choices") if any(row[name] for row in table)]
    names = [*words, *list(table[0])[4:]]
    rows = [tuple(row[name] for name in names) for row in table]
    return [_table_block(title + _more_note(len(flips) - len(rows)), names, rows, left=len(words))]
