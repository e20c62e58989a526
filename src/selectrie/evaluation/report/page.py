"""Pages of HTML without script, made of sections of headings, tables and charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import Environment, FunctionLoader, StrictUndefined

from selectrie.core.output import thousands
from selectrie.evaluation.metrics import CalibrationBin, wilson
from selectrie.evaluation.report.charts import (
    FOLDER,
    ChartDescription,
    Point,
    escape_unprintable,
    reliability_chart,
)
from selectrie.evaluation.results import shorten

Cells: TypeAlias = Sequence[object]
Block: TypeAlias = Mapping[str, Any]
"""A part of a section as `page.html` reads it: its kind and that kind's fields."""
Section: TypeAlias = Mapping[str, Any]
_MAX_TINT = 35
"""Largest share of colour of a cell, in per cent; text on it is still readable."""


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the HTML of `page.html` with these sections."""
    environment = Environment(
        loader=FunctionLoader(lambda name: (FOLDER / name).read_text(encoding="utf-8")),
        autoescape=True,
        keep_trailing_newline=True,
        finalize=_finalize,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)


def _finalize(value: object) -> object:
    """Escape characters that do not print, except in markup."""
    return value if hasattr(value, "__html__") else escape_unprintable(value)


def section(title: str, *blocks: Block) -> Section:
    """Return a section of a page."""
    return {"title": title, "blocks": blocks}


def heading_block(text: str) -> Block:
    """Return a heading, as a block."""
    return {"kind": "heading", "text": text}


def paragraph_block(text: str) -> Block:
    """Return a paragraph, as a block."""
    return {"kind": "paragraph", "text": text}


def figure_block(picture: str, caption: str = "", *, key: str = "") -> Block:
    """Return a chart with its caption, as a block.

    `key` is the kind of legend in front of the caption: "intervals", "bars", "curve",
    "curves", "flips" or "".
    """
    return {"kind": "figure", "picture": picture, "caption": caption, "key": key}


def table_block(caption: str, names: Sequence[str], rows: Sequence[Cells], *, left: int = 1) -> Block:
    """Return a table, as a block; the first cell of each row is its heading.

    The first `left` columns are words, the others numbers.
    """
    return {"kind": "table", "caption": caption, "names": names, "rows": rows, "left": left}


MAX_LINE, MAX_TEXT = 120, 20_000
"""Maximum characters of a text that is shown at once, and of one that is unfolded."""


def text_cell(text: str) -> object:
    """Return the cell of a text: a long one is shown in part, and unfolds."""
    if len(text) <= MAX_LINE and "\n" not in text:
        return text
    whole = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({thousands(len(text))} characters)"
    return {"short": shorten(text[:MAX_TEXT], MAX_LINE), "whole": whole}


def matrix_block(caption: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Block:
    """Return a table of counts by right answer and answer, as a block.

    The share of each count in its row tints its cell.
    """
    rows = [
        (name, [(n, round(_MAX_TINT * n / max(1, sum(row)), 1)) for n in row])
        for name, row in zip(names, counts, strict=True)
    ]
    return {"kind": "matrix", "caption": caption, "names": names, "rows": rows}


def columns_block(*columns: Sequence[Block]) -> Block:
    """Return blocks beside each other, as a block."""
    return {"kind": "columns", "columns": columns}


def details_block(title: str, table: Block) -> Block:
    """Return a table that is folded below a title, as a block."""
    return {"kind": "details", "title": title, "table": table}


def more_note(n: int) -> str:
    """Return how many more there are, as text; "" for none."""
    return f" (and {thousands(n)} more)" if n > 0 else ""


def reliability_blocks(title: str, bins: Iterable[CalibrationBin], ece: float) -> list[Block]:
    """Return a reliability diagram and its numbers, as blocks; [] without items.

    Args:
        title: What the diagram shows, for its description.
        bins: The bins of confidence; each gets Wilson's interval.
        ece: Expected calibration error.
    """
    points = []
    for one in bins:
        if one.n:
            interval = wilson(one.accuracy * one.n, one.n)
            points.append(Point(one.confidence, one.accuracy, interval.low, interval.high, one.n))
    if not points:
        return []
    rows = [
        (f"{100 * p.x:.1f} %", p.n, f"{100 * p.y:.1f} %", f"{100 * p.low:.1f} – {100 * p.high:.1f}") for p in points
    ]
    error = f"Expected calibration error {ece:.3f}."
    about = "; ".join(f"{row[1]} items of confidence {row[0]}: right {row[2]}" for row in rows)
    picture = reliability_chart(points, ChartDescription(title, f"{error} {about}"))
    caption = f"{error} Dots below the line: the model is surer than it is right. Below: items."
    numbers = table_block("Bins", ("confidence", "items", "right", "95 % interval"), rows)
    return [figure_block(picture, caption), details_block("The numbers", numbers)]
