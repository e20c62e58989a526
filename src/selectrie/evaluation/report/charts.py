"""Draws the figures of evaluations, comparisons and label reports as charts.

Each element of a chart says on hover what the outline says of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from selectrie.core.notation import UNKNOWN, count, cut, percent, rate, show_text, thousands
from selectrie.core.types import BoolArray, FloatArray
from selectrie.evaluation import metrics
from selectrie.evaluation.metrics import METRICS, CalibrationBin, Estimate, ItemRecord, wilson
from selectrie.results.drawing.shapes import LABEL_CELL, Drawing, Item, Shape, dot, group, line, path, rect, text, write

MAX_STEPS = 400
"""Maximum number of points of a curve that are drawn."""
MAX_DOTS = 3000
"""Maximum number of pairs that are drawn."""
MAX_ITEMS = 200
"""Maximum number of pairs in an outline; the rest is counted."""
_WIDTH, _ROW, _LABEL, _NOTE = 720.0, 22.0, 216.0, 196.0
_LABEL_CELLS = 28
_SQUARE, _LEFT, _RIGHT, _TOP, _BOTTOM = 352.0, 52.0, 332.0, 24.0, 304.0
_N_PILES = 20
_Key = tuple[Callable[[float, float], Shape], str]
"""Draws what a legend explains around a point, and the explanation."""


def short_percent(share: float) -> str:
    """Return a round share, such as that of a tick, as a percentage."""
    return f"{100 * share:.3g} %"


def rate_with_interval(share: float, low: float, high: float) -> str:
    """Return a share of items with its 95 % interval as text."""
    return f"{rate(share)} ({rate(low)} to {rate(high)})"


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`.

    Attributes:
        low, high: The range of values.
        start, end: The range of pixels.
        write: Formats a tick.
        steps: Number of parts between ticks.
    """

    low: float
    high: float
    start: float
    end: float
    write: Callable[[float], str] = short_percent
    steps: int = 4

    @property
    def ticks(self) -> list[float]:
        """Return the values that are marked."""
        return [self.low + (self.high - self.low) * i / self.steps for i in range(self.steps + 1)]

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values out of range are moved to the edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def round_up(value: float) -> float:
    """Return the smallest n · 10^k that is at least `value`, n one of 1-6 and 8."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _finish(
    title: str, size: tuple[float, float], shapes: Iterable[Shape], outline: Iterable[Item], keys: Iterable[_Key]
) -> Drawing:
    """Return a drawing of shapes of this width and height, with a legend below them."""
    width, height = size
    x, y, legend = 12.0, height + 10, list[Shape]()
    for draw, words in keys:
        key_width = 34 + (LABEL_CELL - 0.4) * len(words)
        if x > 12 and x + key_width > width:
            x, y = 12.0, y + 18
        legend += [draw(x + 8, y), text(x + 22, y + 4, words, "small", "soft")]
        x += key_width
    height = y + 12 if legend else height
    return Drawing(
        width, height, show_text(title), (rect(0, 0, width, height, "ground"), *shapes, *legend), tuple(outline)
    )


def _dot_key(*names: str) -> Callable[[float, float], Shape]:
    return lambda x, y: dot(x, y, 4.5, *names)


def _line_key(*names: str) -> Callable[[float, float], Shape]:
    return lambda x, y: line(x - 8, y, x + 8, y, *names)


def _bar_key(*names: str) -> Callable[[float, float], Shape]:
    return lambda x, y: rect(x - 5, y - 5, 10, 10, "bar", *names)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a chart of intervals.

    Attributes:
        label: Text at the left of the row.
        value: The figure.
        low, high: Its interval.
        words: The figure and its interval, at the right of the row.
        mark: A reference value, such as that of random guessing, or None.
    """

    label: str
    value: float
    low: float
    high: float
    words: str
    mark: float | None = None


def draw_rows(title: str, rows: Sequence[Row], axis: Axis, name: str, mark: str) -> Drawing:
    """Return a drawing with a dot and whiskers for each row, one below the other.

    The dot is hollow if the row's mark lies within the whiskers.

    Args:
        title: What is drawn.
        rows: The rows, from top to bottom.
        axis: Maps values to pixels.
        name: What a row's value is.
        mark: What the reference values are.
    """
    bottom = 8 + _ROW * len(rows)
    shapes, outline = list[Shape](), list[Item]()
    for tick in axis.ticks:
        shapes.append(line(axis(tick), 4, axis(tick), bottom, "grid"))
        shapes.append(text(axis(tick), bottom + 16, axis.write(tick), "small", "soft", "middle"))
    for i, row in enumerate(rows):
        y, label = 8 + _ROW * (i + 0.5), show_text(row.label)
        is_within = row.mark is not None and row.low <= row.mark <= row.high
        numbers = [(name, row.value, row.words)] + ([(mark, row.mark, axis.write(row.mark))] if row.mark else [])
        outline.append(Item(label, tuple(numbers), (f"{mark} lies within the interval",) * is_within))
        parts = [text(_LABEL, y + 4, _cut_middle(label), "end")]
        if row.mark is not None:
            parts.append(line(axis(row.mark), y - 8, axis(row.mark), y + 8, "alt", "thick"))
        parts.append(line(axis(row.low), y, axis(row.high), y, "win", "thick"))
        parts += [line(axis(end), y - 4, axis(end), y + 4, "win", "thick") for end in (row.low, row.high)]
        parts.append(dot(axis(row.value), y, 4.5, "hollow" * is_within))
        parts.append(text(axis.end + 14, y + 4, row.words, "small", "soft"))
        shapes.append(group(outline[-1], *parts))
    keys: list[_Key] = [(_dot_key(), f"{name} with its 95 % interval")]
    if any(row.mark is not None for row in rows):
        keys.append((lambda x, y: line(x, y - 7, x, y + 7, "alt", "thick"), mark))
        keys.append((_dot_key("hollow"), f"{mark} lies within the interval"))
    return _finish(title, (_WIDTH, bottom + 24), shapes, outline, keys)


def _cut_middle(label: str) -> str:
    """Return a label, with … in its middle if it is long."""
    if cut(label, _LABEL_CELLS) == label:
        return label
    half = _LABEL_CELLS / 2
    return cut(label, half).removesuffix("…") + cut(label[::-1], half)[::-1]


def draw_estimates(title: str, estimates: Iterable[tuple[str, str, Estimate]]) -> Drawing | None:
    """Return a drawing of the figures that are proportions; None if there are none.

    Args:
        title: What is drawn.
        estimates: Triples of label, name of the metric, and figure.
    """
    rows = [
        Row(label, one.value, one.low, one.high, rate_with_interval(one.value, one.low, one.high), one.chance)
        for label, metric, one in estimates
        if METRICS[metric].is_proportion and math.isfinite(one.value)
    ]
    axis = Axis(0, 1, _LABEL + 12, _WIDTH - _NOTE)
    return draw_rows(title, rows, axis, "value", "guessing at random") if rows else None


def draw_differences(title: str, tasks: Iterable[Mapping[str, Any]], runs: Sequence[str] = ()) -> Drawing | None:
    """Return a drawing of the differences of proportions; None if there are none.

    Args:
        title: What is drawn.
        tasks: Comparisons, ready for JSON.
        runs: Names of all runs; () if there are only two.
    """
    rows = []
    for task in tasks:
        for one in task["differences"]:
            if one["p"] is None:
                continue
            value, low, high = (100 * x for x in (one["difference"], *one["interval"].values()))
            words = f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
            label = f"{task['task']} {one['metric']} {runs[task['run']]}" if runs else one["metric"]
            rows.append(Row(label, value, low, high, words, 0.0))
    if not rows:
        return None
    limit = round_up(max(max(abs(row.low), abs(row.high)) for row in rows) or 1.0)
    axis = Axis(-limit, limit, _LABEL + 12, _WIDTH - _NOTE, lambda value: f"{value:+.3g}" if value else "0")
    return draw_rows(f"{title}, percentage points", rows, axis, "difference", "no difference")


def _square(x: Axis, y: Axis, below: str, above: str, *, tick_y: float = 18) -> list[Shape]:
    """Return the grid of a square chart with the titles of both axes.

    Args:
        x, y: The axes.
        below, above: Titles of the horizontal and of the vertical axis.
        tick_y: Pixels from the horizontal axis to its ticks.
    """
    shapes = [text(x.start, 12, above), text((x.start + x.end) / 2, y.start + tick_y + 19, below, "middle")]
    for tick in x.ticks:
        shapes.append(line(x(tick), y.end, x(tick), y.start, "grid"))
        shapes.append(text(x(tick), y.start + tick_y, x.write(tick), "small", "soft", "middle"))
    for tick in y.ticks:
        shapes.append(line(x.start, y(tick), x.end, y(tick), "grid"))
        shapes.append(text(x.start - 8, y(tick) + 4, y.write(tick), "small", "soft", "end"))
    return shapes


def _share_axes() -> tuple[Axis, Axis]:
    """Return the axes of a square chart of two shares."""
    return Axis(0, 1, _LEFT, _RIGHT), Axis(0, 1, _BOTTOM, _TOP)


_DIAGONAL = line(_LEFT, _BOTTOM, _RIGHT, _TOP, "alt", "thick", "dash")
"""The line on which both shares of a square chart are equal."""


def draw_reliability(title: str, bins: Iterable[CalibrationBin], ece: float) -> Drawing | None:
    """Return a drawing of accuracy over confidence; None without items.

    Dots grow with the number of items, which bars below show.

    Args:
        title: What is drawn.
        bins: The bins of confidence; each gets Wilson's interval.
        ece: Expected calibration error.
    """
    bins = [one for one in bins if one.n]
    if not bins:
        return None
    x, y = _share_axes()
    below = "confidence: probability of the choice in its set"
    shapes, outline = [*_square(x, y, below, "share that is right", tick_y=62), _DIAGONAL], list[Item]()
    max_n = max(one.n for one in bins)
    for one in bins:
        interval, size = wilson(one.accuracy * one.n, one.n), one.n / max_n
        at, left, width = x(one.confidence), x(one.low) + 2, x(one.high) - x(one.low) - 4
        right = rate_with_interval(one.accuracy, interval.low, interval.high)
        numbers = (("items", float(one.n), thousands(one.n)), ("right", one.accuracy, right))
        mean = percent(one.confidence, UNKNOWN)  # a mean over items moves by less than a row
        outline.append(Item(f"confidence {mean}", numbers))
        parts = [
            line(at, y(interval.low), at, y(interval.high), "win", "thick"),
            dot(at, y(one.accuracy), 3 + 6 * math.sqrt(size), "sheer"),
            rect(left, y.start + 46 - 30 * size, width, 30 * size, "bar", "win"),
            text(left + width / 2, y.start + 43 - 30 * size, thousands(one.n), "tiny", "middle"),
        ]
        shapes.append(group(outline[-1], *parts))
    keys: list[_Key] = [
        (_dot_key("sheer"), "share right, with its 95 % interval"),
        (_line_key("alt", "thick", "dash"), "calibrated; below: surer than right"),
        (_bar_key("win"), "items"),
    ]
    return _finish(f"{title}: expected calibration error {ece:.3f}", (_SQUARE, y.start + 88), shapes, outline, keys)


def draw_margins(title: str, records: Iterable[ItemRecord]) -> Drawing | None:
    """Return a histogram of the margins of items; None if none has several choices.

    The columns end at about the 99th percentile; the last one has the items beyond too.
    """
    sets = [record for record in records if record.problem is None and len(record.choices) > 1 and record.gold]
    if not sets:
        return None
    margins = np.array([metrics.margin(record) for record in sets])
    right = np.array([metrics.predicted_choice(record) in record.gold for record in sets])
    finite = margins[np.isfinite(margins)]
    end = round_up((float(np.quantile(finite, 0.99)) if len(finite) else 0.0) or 1.0)
    beyond = int((margins > end).sum())
    more = f"; {count(beyond, 'item')} beyond {end:g} nats in the last column" if beyond else ""
    about = f"{title}: median {float(np.median(margins)):.3g} nats{more}"
    label = "nats between the two most probable choices"
    return draw_histogram(about, label, margins, right, Axis(0, end, _LEFT, _RIGHT, lambda value: f"{value:.3g}"))


def draw_shares(title: str, label: str, shares: FloatArray, is_right: BoolArray | None, tolerance: float) -> Drawing:
    """Return a histogram of probabilities from 0 to 1.

    Args:
        title: What is drawn.
        label: Title of the horizontal axis.
        shares: The probability of each item.
        is_right: Whether each item is right; None if that is not known.
        tolerance: By how many nats probabilities may move.
    """
    middle, least = (percent(float(one), tolerance) for one in (np.median(shares), shares.min()))
    x, _ = _share_axes()
    return draw_histogram(f"{title}: median {middle}, least {least}", label, shares, is_right, x)


def draw_histogram(title: str, label: str, values: FloatArray, is_right: BoolArray | None, x: Axis) -> Drawing:
    """Return a histogram of right items, with wrong ones stacked on them.

    Args:
        title: What is drawn.
        label: Title of the horizontal axis.
        values: The value of each item; those beyond an end count in its column.
        is_right: Whether each item is right; None if that is not known.
        x: The horizontal axis.
    """
    edges = np.linspace(x.low, x.high, _N_PILES + 1)
    pile_of = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, _N_PILES - 1)
    n = np.bincount(pile_of, minlength=_N_PILES)
    right = n if is_right is None else np.bincount(pile_of[is_right], minlength=_N_PILES)
    top = round_up(float(n.max()))
    y = Axis(0, top, _BOTTOM, _TOP, lambda value: f"{value:g}", steps=1 if top % 2 else 2)
    shapes, outline = _square(x, y, label, "items"), list[Item]()
    for i in np.flatnonzero(n).tolist():
        low, high, parts = float(edges[i]), float(edges[i + 1]), [("items", int(n[i]))]
        if is_right is not None:
            parts = [("right", int(right[i])), ("wrong", int(n[i] - right[i]))]
        numbers = tuple((name, float(k), thousands(k)) for name, k in parts)
        outline.append(Item(f"{x.write(low)} to {x.write(high)}", numbers))
        left, width, middle, upper = x(low) + 0.5, x(high) - x(low) - 1, y(float(right[i])), y(float(n[i]))
        bars = [rect(left, middle, width, y.start - middle, "bar", "win")]
        bars.append(rect(left, upper, width, middle - upper, "bar"))
        shapes.append(group(outline[-1], *bars))
    keys: list[_Key] = [] if is_right is None else [(_bar_key("win"), "right"), (_bar_key(), "wrong")]
    return _finish(title, (_SQUARE, y.start + 46), shapes, outline, keys)


class RiskLike(Protocol):
    """The attributes of `LabelFigures` that a curve of risk over coverage reads."""

    @property
    def accuracy(self) -> float: ...
    @property
    def aurc(self) -> float: ...
    @property
    def coverage(self) -> FloatArray: ...
    @property
    def risk(self) -> FloatArray: ...
    def risk_at(self, coverage: float) -> float: ...


def draw_risk(title: str, figures: Mapping[str, RiskLike], shares: Iterable[float]) -> Drawing:
    """Return a drawing of risk over coverage; the second curve is dashed.

    Args:
        title: What is drawn.
        figures: One or two sets of figures, by what they are.
        shares: Coverages of which the outline says the risk.
    """
    wrong = 1 - next(iter(figures.values())).accuracy
    top = min(1.0, round_up(max(wrong, *(float(one.risk.max()) for one in figures.values())) or 0.01))
    x, y = Axis(0, 1, _LEFT, _RIGHT), Axis(0, top, _BOTTOM, _TOP)
    shapes = _square(x, y, "coverage: share answered, the surest first", "risk: share of these that is wrong")
    shapes.append(line(x(0), y(wrong), x(1), y(wrong), "alt", "thick", "dash"))
    outline, keys = list[Item](), list[_Key]()
    for (name, one), look in zip(figures.items(), (("win", "thick"), ("ink", "thick", "dash")), strict=False):
        risks = [(short_percent(share), one.risk_at(share)) for share in shares]
        parts = tuple(Item(f"surest {share}", (("wrong", risk, rate(risk)),)) for share, risk in risks)
        outline.append(Item(name, (("area below the curve", one.aurc, f"{one.aurc:.3f}"),), children=parts))
        shown = np.unique(np.linspace(0, len(one.risk) - 1, min(len(one.risk), MAX_STEPS)).round().astype(int))
        points = (f"{write(x(float(one.coverage[i])))} {write(y(float(one.risk[i])))}" for i in shown)
        shapes.append(group(outline[-1], path(f"M{'L'.join(points)}", "line", *look)))
        keys.append((_line_key(*look), name))
    keys.append((_line_key("alt", "thick", "dash"), f"all answers: {rate(wrong)} wrong"))
    return _finish(title, (_SQUARE, y.start + 46), shapes, outline, keys)


def draw_pairs(
    title: str, pairs: Iterable[tuple[ItemRecord, ItemRecord]], other: str, tolerance: float
) -> Drawing | None:
    """Return a drawing of each item at p(right) in two runs; None without choices.

    Triangles are items that only one run has right. They lie above the others.

    Args:
        title: What is drawn.
        pairs: The records of the items that both runs measured.
        other: Position in words of the run that is compared with the first.
        tolerance: By how many nats probabilities may move.
    """
    marks = {"": (), "win": (f"right in the {other} run alone",), "alt": ("right in the first run alone",)}

    def make_item(label: str, first: float, second: float, kind: str = "") -> Item:
        numbers = (("first", first, percent(first, tolerance)), (other, second, percent(second, tolerance)))
        return Item(show_text(label), numbers, marks[kind])

    kinds, items, rows = list[str](), list[Item](), list[tuple[float, float]]()
    for pair in pairs:
        if len(pair[0].choices) < 2 or len(pair[0].choices) != len(pair[1].choices) or not pair[0].gold:
            continue
        was_right, is_right = (metrics.predicted_choice(one) in one.gold for one in pair)
        first, second = (float(metrics.posterior(one)[list(one.gold)].sum()) for one in pair)
        kinds.append("" if was_right == is_right else "win" if is_right else "alt")
        items.append(make_item(pair[0].id or str(pair[0].index), first, second, kinds[-1]))
        rows.append((first, second))
    if not items:
        return None
    n, change, (x, y) = len(items), [second - first for first, second in rows], _share_axes()
    above = sorted(range(min(n, MAX_DOTS)), key=lambda i: bool(kinds[i]))
    dots = [group(items[i], _pair_mark(x(rows[i][0]), y(rows[i][1]), kinds[i])) for i in above]
    shapes = [*_square(x, y, "in the first run", f"in the {other} run"), _DIAGONAL, *dots]
    higher, lower = sum(one > 0 for one in change), sum(one < 0 for one in change)
    about = f"{title}: higher in the {other} run for {count(higher, 'item')}, lower for {thousands(lower)}"
    about += f"; {thousands(MAX_DOTS)} of {thousands(n)} are drawn" if n > MAX_DOTS else ""
    order = sorted(range(n), key=lambda i: (not kinds[i], -abs(change[i])))
    outline = [make_item("mean", *np.mean(rows, axis=0).tolist()), *(items[i] for i in order[:MAX_ITEMS])]
    if n > MAX_ITEMS:
        outline.append(Item(f"{count(n - MAX_ITEMS, 'item')} more"))
    keys: list[_Key] = [(partial(_pair_mark, kind=kind), marks[kind][0]) for kind in ("win", "alt")]
    return _finish(about, (_SQUARE, y.start + 46), shapes, outline, [*keys, (_dot_key("sheer"), "others")])


def _pair_mark(x: float, y: float, kind: str) -> Shape:
    """Return a dot, or a triangle that points up for "win" and down for "alt"."""
    if not kind:
        return dot(x, y, 2.5, "sheer")
    up = 5 if kind == "win" else -5
    corners = (f"{write(a)} {write(b)}" for a, b in ((x, y - up), (x - 5, y + up), (x + 5, y + up)))
    return path(f"M{'L'.join(corners)}Z", "dot", kind)
