"""Makes the cells, rows and tables of HTML for notebooks.

They use no script and no style sheet, and are readable in light and dark notebooks.

A long text is cut at the width of its cell and shown whole in a tooltip, so that the
bars beside it keep their width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

_WIDEST_EM = 32
_BAR_EM = 12
STRONG, PLAIN = "#4c8bf5", "#9aa5b1"
"""Colours of bars: for what was chosen, and for the rest."""


def table(heads: Sequence[str], rows: Iterable[str], caption: str, *, hidden: int = 0) -> str:
    """Return an HTML table of `rows`, which `row` returned.

    `hidden` is the number of further rows that are not shown.
    """
    more = f'<tr><td colspan="{len(heads)}">… {hidden} more</td></tr>' if hidden > 0 else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>'
    style = ' style="border-collapse:collapse"'
    return f"<table{style}>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}{more}</tbody></table>"


def captioned(caption: str, warnings: Iterable[object]) -> str:
    """Return a caption that is followed by the warnings of a result."""
    return " · ".join([caption, *(f"! {one}" for one in warnings)])


def row(*cells: str, faint: bool = False) -> str:
    """Return an HTML table row of `cells`, which are HTML table cells."""
    style = ' style="opacity:.5"' if faint else ""
    return f"<tr{style}>{''.join(cells)}</tr>"


def label(text: str, *, bold: bool = False, of: int = 1, indent: int = 0, wide: bool = False) -> str:
    """Return an HTML table cell with a text, cut if it is wider than its share.

    `of` is the number of texts that share the width. `wide` doubles the share, for a
    row without a bar. `indent` counts steps from the left.
    """
    shown = escape(text)
    style = (
        f"max-width:{max(8, _WIDEST_EM * (1 + wide) // of)}em;overflow:hidden;text-overflow:ellipsis;white-space:pre"
    )
    style += f";margin-left:{indent}em" if indent else ""
    inner = f"<b>{shown}</b>" if bold else shown
    return f'<td style="text-align:left"><div style="{style}" title="{shown}">{inner}</div></td>'


def bar(share: float, *, strong: bool = True) -> str:
    """Return an HTML table cell with a bar that fills the fraction `share` of it."""
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    colour = STRONG if strong else PLAIN
    inner = f'<div style="width:{100 * share:.1f}%;min-width:1px;height:.8em;background:{colour}"></div>'
    return f'<td><div style="width:{_BAR_EM}em">{inner}</div></td>'


def cell(text: str = "") -> str:
    """Return an HTML table cell with a short text, such as a number."""
    return f"<td>{escape(text)}</td>"


def tokens_table(rows: Iterable[tuple[str, float]], caption: str) -> str:
    """Return an HTML table of (token, logp) rows with bar, probability and logp."""
    lines = [
        row(label(repr(text)), bar(math.exp(logp)), cell(f"{math.exp(logp):.4f}"), cell(f"{logp:.3f}"))
        for text, logp in rows
    ]
    return table(("token", "", "p", "logp"), lines, caption)


def texts_html(texts: Sequence[tuple[str, float, bool]], *, caption: str) -> str:
    """Return a table of texts: text, bar and log-probability.

    The length of a bar is the probability relative to that of the likeliest text.
    Incomplete texts are grey.
    """
    best = max((logp for _, logp, _ in texts), default=0.0)
    rows = []
    for text, logp, is_complete in texts:
        share = math.exp(logp - best) if best > -math.inf else 0.0
        name = label(repr(text) if is_complete else f"{text!r} …")
        rows.append(row(name, bar(share), cell(f"{logp:.3f}"), faint=not is_complete))
    return table(("text", "", "logp"), rows, caption)
