"""Pages of HTML without script, made of sections of headings, tables and charts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, TypeAlias

from jinja2 import Environment, FunctionLoader, StrictUndefined

from selectrie.core.notation import thousands
from selectrie.evaluation.results import shorten
from selectrie.results.drawing.shapes import Drawing, style, to_html

Cells: TypeAlias = Sequence[object]
Block: TypeAlias = Mapping[str, Any]
"""A part of a section as `page.html` reads it: its kind and that kind's fields."""
Section: TypeAlias = Mapping[str, Any]
_FOLDER = resources.files("selectrie.evaluation.report")
"""Folder of the template and the style sheet."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Matches control characters, direction marks, and what no page may hold."""
_MAX_TINT = 35
"""Largest share of colour of a cell, in per cent; text on it is still readable."""


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Return the HTML of `page.html` with these sections."""
    environment = Environment(
        loader=FunctionLoader(lambda name: (_FOLDER / name).read_text(encoding="utf-8")),
        autoescape=True,
        keep_trailing_newline=True,
        finalize=_finalize,
        undefined=StrictUndefined,
    )
    template = environment.get_template("page.html")
    return template.render(title=title, subtitle=subtitle, sections=sections, drawing_style=style())


def _finalize(value: object) -> object:
    r"""Write characters that do not print as `\xNN` or `\uNNNN`, except in markup."""
    if hasattr(value, "__html__"):
        return value
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(value))


def section(title: str, *blocks: Block) -> Section:
    """Return a section of a page."""
    return {"title": title, "blocks": blocks}


def heading_block(text: str) -> Block:
    """Return a heading, as a block."""
    return {"kind": "heading", "text": text}


def paragraph_block(text: str) -> Block:
    """Return a paragraph, as a block."""
    return {"kind": "paragraph", "text": text}


def figure_blocks(drawing: Drawing | None, heading: str = "") -> list[Block]:
    """Return a drawing below a heading, if there is one, as blocks; [] for None."""
    if drawing is None:
        return []
    figure = {"kind": "figure", "picture": to_html(drawing, is_styled=False)}
    return [heading_block(heading), figure] if heading else [figure]


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
