"""Charts as inline SVG, and texts escaped for pages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from selectrie.core.output import count
from selectrie.evaluation.results import shorten

FOLDER = resources.files("selectrie.evaluation.report")
"""Folder of the template and the style sheet."""
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


def whole_percent(value: float) -> str:
    """Return a share as `12 %`."""
    return f"{100 * value:.0f} %"


def signed_points(value: float) -> str:
    """Return a difference of two proportions in percentage points."""
    return f"{100 * value:+.3g}" if value else "0"


def share_axis(start: float, end: float) -> Axis:
    """Return an axis for shares, from 0 to 1."""
    return Axis(0, 1, start, end, (0, 0.25, 0.5, 0.75, 1), whole_percent)


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
    """Return a chart of this module as an SVG file that brings its styles."""
    style = tag("style", (FOLDER / "page.css").read_text(encoding="utf-8"))
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


def _grid(x: Axis, y: Axis, title: str, *, tick_y: float) -> list[str]:
    """Return the lines of a grid, its ticks, and the title of its vertical axis.

    `tick_y` is the height of the horizontal axis' ticks.
    """
    parts = [_svg_text(x.start, 12, title)]
    for tick in x.ticks:
        parts.append(_svg_line(x(tick), y.end, x(tick), y.start, "grid"))
        parts.append(_svg_text(x(tick), tick_y, x.write(tick), "tick", "middle"))
    for tick in y.ticks:
        parts.append(_svg_line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(_svg_text(x.start - 8, y(tick) + 4, y.write(tick), "tick", "end"))
    return parts


def _diagonal(x: Axis, y: Axis) -> str:
    """Return the line on which both shares are equal."""
    return _svg_line(x(0), y(0), x(1), y(1), "mark dashed")


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
    parts = [*_grid(x, y, "share that is right", tick_y=y.start + 62), _diagonal(x, y)]
    max_n = max((point.n for point in points), default=1)
    for point in points:
        about = f"{point.n} items: confidence {whole_percent(point.x)}, right {whole_percent(point.y)}"
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

    @property
    def n(self) -> int:
        """Return the number of items."""
        return self.right + self.wrong

    def in_words(self, *, is_judged: bool) -> str:
        """Return the numbers as text; `right` counts all items if none is judged."""
        return f"{self.right} right, {self.wrong} wrong" if is_judged else count(self.right, "item")


def histogram(piles: Sequence[Pile], words: ChartDescription, label: str, *, is_judged: bool = True) -> str:
    """Return an SVG histogram of right items, with wrong items stacked on them.

    Args:
        piles: The columns, from left to right.
        words: The chart's description.
        label: Label of the horizontal axis.
        is_judged: Whether it is known which items are right.
    """
    low, high = (piles[0].low, piles[-1].high) if piles else (0.0, 1.0)
    max_count = max((pile.n for pile in piles), default=1) or 1
    x = Axis(low, high, 52, 332, tuple(low + (high - low) * i / 4 for i in range(5)), lambda value: f"{value:.3g}")
    top = round_up(max_count)
    y = Axis(0, top, 304, 24, (0, top / 2, top), lambda value: f"{value:g}")
    parts = [_svg_line(x.start, y(tick), x.end, y(tick), "grid") for tick in y.ticks]
    parts.append(_svg_text(x.start, 12, "items"))
    parts += [_svg_text(x.start - 8, y(tick) + 4, y.write(tick), "tick", "end") for tick in y.ticks]
    parts += [_svg_text(x(tick), y.start + 18, x.write(tick), "tick", "middle") for tick in x.ticks]
    for pile in piles:
        about = f"{pile.low:.3g} to {pile.high:.3g}: {pile.in_words(is_judged=is_judged)}"
        left, width = x(pile.low) + 0.5, max(1.0, x(pile.high) - x(pile.low) - 1)
        middle, over = y(pile.right), y(pile.n)
        inside = _svg_tooltip(about)
        inside += tag("rect", x=left, y=middle, width=width, height=y.start - middle, class_="bar")
        inside += tag("rect", x=left, y=over, width=width, height=middle - over, class_="bar wrong")
        parts.append(tag("g", inside))
    parts.append(_svg_text((x.start + x.end) / 2, y.start + 38, label, "", "middle"))
    return _svg_chart(words, 360, y.start + 46, parts)


MAX_STEPS = 400
"""Maximum number of points of a curve that are drawn."""
MAX_DOTS = 3000
"""Maximum number of dots of a scatter chart that are drawn."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve of a chart.

    Attributes:
        name: What it is.
        x, y: Its points, by rising `x`.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


def curve_chart(curves: Sequence[Curve], mark: float, words: ChartDescription, titles: tuple[str, str]) -> str:
    """Return an SVG chart of curves over shares; the second curve is dashed.

    Args:
        curves: One curve or two.
        mark: A height that is marked.
        words: The chart's description.
        titles: Titles of the horizontal and the vertical axis.
    """
    top = min(1.0, round_up(max(mark, *(max(one.y) for one in curves)) or 0.01))
    x = share_axis(52, 332)
    y = Axis(0, top, 304, 24, tuple(top * i / 4 for i in range(5)), lambda value: f"{100 * value:.3g} %")
    parts = _grid(x, y, titles[1], tick_y=y.start + 18)
    parts.append(_svg_line(x.start, y(mark), x.end, y(mark), "mark dashed"))
    for curve, kind in zip(curves, ("curve", "curve second"), strict=False):
        n = len(curve.x)
        shown = sorted({round(i * (n - 1) / (MAX_STEPS - 1)) for i in range(MAX_STEPS)}) if n > MAX_STEPS else range(n)
        points = " ".join(f"{x(curve.x[i]):.1f},{y(curve.y[i]):.1f}" for i in shown)
        parts.append(tag("g", _svg_tooltip(curve.name) + tag("polyline", points=points, class_=kind)))
    parts.append(_svg_text((x.start + x.end) / 2, y.start + 38, titles[0], "", "middle"))
    return _svg_chart(words, 360, y.start + 46, parts)


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot of a scatter chart.

    Attributes:
        x, y: Two shares.
        kind: "gained" if only the second is right, "lost" if only the first is, or "".
        about: What it stands for.
    """

    x: float
    y: float
    kind: str
    about: str


def scatter_chart(dots: Sequence[Dot], words: ChartDescription, titles: tuple[str, str]) -> str:
    """Return an SVG chart of pairs of shares, with the diagonal of equal ones.

    Dots of a kind are above the others. Those that only one run has right differ in
    shape too: triangles point up or down.
    """
    x, y = share_axis(52, 332), share_axis(304, 24)
    parts = [*_grid(x, y, titles[1], tick_y=y.start + 18), _diagonal(x, y)]
    for dot in sorted(dots[:MAX_DOTS], key=lambda one: bool(one.kind)):
        at_x, at_y = x(dot.x), y(dot.y)
        shape = tag("circle", cx=at_x, cy=at_y, r=2.5, class_="dot soft")
        if dot.kind:
            up = 5 if dot.kind == "gained" else -5
            corners = f"{at_x:.1f},{at_y - up:.1f} {at_x - 5:.1f},{at_y + up:.1f} {at_x + 5:.1f},{at_y + up:.1f}"
            shape = tag("polygon", points=corners, class_=dot.kind)
        parts.append(tag("g", _svg_tooltip(dot.about) + shape))
    parts.append(_svg_text((x.start + x.end) / 2, y.start + 38, titles[0], "", "middle"))
    return _svg_chart(words, 360, y.start + 46, parts)
