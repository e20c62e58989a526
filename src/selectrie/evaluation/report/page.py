"""Pages of HTML without script, made of sections of headings, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from jinja2 import Environment, FunctionLoader, StrictUndefined

from selectrie.core.output import thousands
from selectrie.evaluation.report.charts import FOLDER, escape_unprintable

Cells: TypeAlias = Sequence[object]
Block: TypeAlias = Mapping[str, Any]
"""A part of a section as `page.html` reads it: its kind and that kind's fields."""
Section: TypeAlias = Mapping[str, Any]


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

    `key` is the kind of legend in front of the caption: "intervals", "bars" or "".
    """
    return {"kind": "figure", "picture": picture, "caption": caption, "key": key}


def table_block(caption: str, names: Sequence[str], rows: Sequence[Cells], *, left: int = 1) -> Block:
    """Return a table, as a block; the first cell of each row is its heading.

    The first `left` columns are words, the others numbers.
    """
    return {"kind": "table", "caption": caption, "names": names, "rows": rows, "left": left}


def details_block(title: str, table: Block) -> Block:
    """Return a table that is folded below a title, as a block."""
    return {"kind": "details", "title": title, "table": table}


def more_note(n: int) -> str:
    """Return how many more there are, as text; "" for none."""
    return f" (and {thousands(n)} more)" if n > 0 else ""
