"""Draws ranked texts as bars relative to 1, with intervals hatched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from selectrie.core.output import count
from selectrie.results.drawing.numbers import show_text
from selectrie.results.drawing.shapes import Drawing, Item, Shape, hatch, label_in, rect, text

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
            is not compared, else "".
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
    rest = rest or (f"… {count(len(bars) - len(shown), 'more text')}" if len(bars) > len(shown) else "")
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
        name = one.kind if one.kind != "off" else ""
        faint = "soft" if one.kind == "off" else ""
        shapes.append(text(12, top + 16, one.mark[0], "strong", name))
        shapes += label_in(34, top, _LABEL, _ROW, show_text(one.label), "data", name or faint)
        if one.low is not None and one.high is not None:
            low, high = max(0.0, one.low), min(1.0, one.high)
            shapes.append(rect(x_bar, top + 5, _BAR, _ROW - 10, "band"))
            shapes.append(rect(x_bar, top + 5, max(_BAR * low, 1.0 if low > 0 else 0.0), _ROW - 10, "bar", name))
            if high - low > 1e-4:
                shapes.append(hatch(x_bar + _BAR * low, top + 5, _BAR * (high - low), _ROW - 10, name))
        shapes.append(text(x_words, top + 16, one.words, "end", faint, "strong" if name == "win" else ""))
        shapes.append(text(x_more, top + 16, one.more, "end", "soft"))
    if rest:
        shapes.append(text(38, _TOP + len(shown) * _ROW + 16, rest, "soft"))
    outline = tuple(Item(show_text(one.label), one.numbers, (one.mark[1],) if one.mark[1] else ()) for one in shown) + (
        (Item(rest),) if rest else ()
    )
    return Drawing(WIDTH, height, title, tuple(shapes), outline)
