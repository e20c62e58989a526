"""Draws ranked texts as bars relative to 1, with intervals hatched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from selectrie.core.notation import count, percent, show_text, write_logp
from selectrie.results.drawing.shapes import Drawing, Item, Shape, bounded_bar, label_in, rect, text

MAX_ROWS = 200
"""Maximum number of bars that are drawn."""
WIDTH = 720.0
_ROW, _TOP, _LABEL, _BAR = 24.0, 30.0, 250.0, 240.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A text with a number between 0 and 1.

    Attributes:
        label: The text.
        low, high: Bounds on the number, which are equal if it is known; None if only
            `words` say something.
        words: The number as text.
        more: Another number as text; "" without one.
        numbers: The numbers of the outline, as in `Item`.
        kind: "win" for the first place, "alt" for another mark, "off" for a text that
            is not compared, "head" for the name of the rows below, else "".
        mark: A mark before the text, and its meaning in words.
    """

    label: str
    low: float | None
    high: float | None
    words: str
    more: str = ""
    numbers: tuple[tuple[str, float | None, str], ...] = ()
    kind: str = ""
    mark: tuple[str, str] = ("", "")


def draw_bars(bars: Sequence[Bar], *, title: str, heads: tuple[str, str, str], rest: str = "") -> Drawing:
    """Return a drawing with a row for each text, at most `MAX_ROWS`.

    Args:
        bars: The texts in the order of drawing.
        title: What is drawn, as a sentence.
        heads: Names of text, number and other number.
        rest: What is left out, in words.
    """
    shown = bars[:MAX_ROWS]
    rest = rest or more_words(len(bars) - len(shown))
    height = _TOP + (len(shown) + bool(rest)) * _ROW + 6
    x_bar = 34 + _LABEL
    x_words, x_more = x_bar + _BAR + 90, WIDTH - 8
    shapes: list[Shape] = [
        rect(0, 0, WIDTH, height, "ground"),
        text(34 + 4, 19, heads[0], "small", "soft"),
        text(x_words, 19, heads[1], "small", "soft", "end"),
        text(x_more, 19, heads[2], "small", "soft", "end"),
    ]
    for at, one in enumerate(shown):
        top = _TOP + at * _ROW
        if one.kind == "head":
            shapes += label_in(8, top, WIDTH - 200, _ROW, show_text(one.label), "strong")
            shapes.append(text(x_more, top + 16, one.more, "end", "soft"))
            continue
        name = one.kind if one.kind != "off" else ""
        faint = "soft" if one.kind == "off" else ""
        shapes.append(text(12, top + 16, one.mark[0], "strong", name))
        shapes += label_in(34, top, _LABEL, _ROW, show_text(one.label), "data", name or faint)
        if one.low is not None and one.high is not None:
            shapes += bounded_bar(one.low, one.high, (x_bar, top + 5, _BAR, _ROW - 10), name)
        shapes.append(text(x_words, top + 16, one.words, "end", faint, "strong" if name == "win" else ""))
        shapes.append(text(x_more, top + 16, one.more, "end", "soft"))
    if rest:
        shapes.append(text(38, _TOP + len(shown) * _ROW + 16, rest, "soft"))
    return Drawing(WIDTH, height, title, tuple(shapes), _describe(shown, rest))


def _describe(bars: Sequence[Bar], rest: str) -> tuple[Item, ...]:
    """Return the outline: an item for each row, below that of its head."""
    items: list[tuple[Item, list[Item]]] = []
    for one in bars:
        item = Item(show_text(one.label), one.numbers, (one.mark[1],) if one.mark[1] else ())
        if one.kind != "head" and bars[0].kind == "head":
            items[-1][1].append(item)
        else:
            items.append((item, []))
    outline = [replace(item, children=tuple(children)) for item, children in items]
    return (*outline, Item(rest)) if rest else tuple(outline)


def more_words(n: int) -> str:
    """Return how many texts are left out, as text; "" for none."""
    return f"… {count(n, 'more text')}" if n > 0 else ""


def make_bar(
    label: str,
    p: float,
    logp: float | None,
    kind: str = "",
    mark: tuple[str, str] = ("", ""),
    *,
    tolerance: float,
) -> Bar:
    """Return the bar of a known probability, with a log-probability if there is one."""
    words = percent(p, tolerance)
    numbers: tuple[tuple[str, float | None, str], ...] = (("probability", p, words),)
    more = "" if logp is None else write_logp(logp, tolerance)
    if logp is not None:
        numbers += (("log-probability", logp, more),)
    return Bar(label, p, p, words, more, numbers, kind, mark)


def draw_texts(texts: Sequence[tuple[str, float, bool]], *, title: str, tolerance: float, n: int = 0) -> Drawing:
    """Return texts with their probabilities as bars.

    Args:
        texts: Triples of text, log-probability, and whether the text is complete.
        title: What is drawn, as a sentence.
        tolerance: The tolerance of the probabilities, as for `percent`.
        n: Number of all texts, if some are left out.
    """
    marks = {True: ("", ("", "")), False: ("off", ("…", "a beginning"))}
    bars = [
        make_bar(words, math.exp(min(0.0, logp)), logp, *marks[is_whole], tolerance=tolerance)
        for words, logp, is_whole in texts
    ]
    return draw_bars(
        bars, title=title, heads=("text", "probability", "log-probability"), rest=more_words(n - len(texts))
    )
