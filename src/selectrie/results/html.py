"""Results as self-contained HTML tables: no script, no style sheet, readable in light and dark notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from selectrie.results.records import ChoiceScore

_BAR = '<div style="width:{width:.1f}%;min-width:1px;height:.8em;background:{colour}"></div>'
_HEAD = '<table style="border-collapse:collapse"><caption style="text-align:left">{caption}</caption><thead><tr>{cells}</tr></thead>'
_LEFT = ' style="text-align:left;white-space:pre"'


def selection_html(shown: Sequence[ChoiceScore], *, winner: int, hidden: int, caption: str) -> str:
    """A row per choice shown: text, bar, probability, log-probability, score; the winner bold, pruned ones grey."""
    head = _HEAD.format(
        caption=escape(caption), cells="".join(f"<th>{name}</th>" for name in ("choice", "", "p", "logp", "score"))
    )
    rows = [_row(choice, winner) for choice in shown]
    more = f'<tr><td colspan="5">… {hidden} more</td></tr>' if hidden > 0 else ""
    return f"{head}<tbody>{''.join(rows)}{more}</tbody></table>"


def _row(choice: ChoiceScore, winner: int) -> str:
    is_winner = choice.index == winner
    text = escape(repr(choice.text))
    if choice.pruned or choice.probability is None:
        bound = f"≤ {choice.logp_upper:.3f}"
        return f'<tr style="opacity:.5"><td{_LEFT}>{text}</td><td></td><td></td><td>{bound}</td><td></td></tr>'
    bar = _BAR.format(width=100 * choice.probability, colour="#4c8bf5" if is_winner else "#9aa5b1")
    name = f"<b>{text}</b>" if is_winner else text
    numbers = f"<td>{choice.probability:.4f}</td><td>{choice.logp:.3f}</td><td>{choice.score:.3f}</td>"
    return f'<tr><td{_LEFT}>{name}</td><td style="width:12em">{bar}</td>{numbers}</tr>'


def texts_html(texts: Sequence[tuple[str, float, bool]], *, caption: str) -> str:
    """A row per text: a bar, its length the probability beside that of the likeliest, and the log-probability; texts that were broken off grey."""
    head = _HEAD.format(caption=escape(caption), cells="".join(f"<th>{name}</th>" for name in ("text", "", "logp")))
    best = max((logp for _, logp, _ in texts), default=0.0)
    rows = []
    for text, logp, is_complete in texts:
        style, more = ("", "") if is_complete else (' style="opacity:.5"', " …")
        bar = _BAR.format(width=100 * math.exp(logp - best) if best > -math.inf else 0.0, colour="#4c8bf5")
        name = escape(repr(text)) + more
        rows.append(f'<tr{style}><td{_LEFT}>{name}</td><td style="width:12em">{bar}</td><td>{logp:.3f}</td></tr>')
    return f"{head}<tbody>{''.join(rows)}</tbody></table>"


def joint_html(
    names: Sequence[str], rows: Sequence[tuple[tuple[str, ...], float, float]], *, hidden: int, caption: str
) -> str:
    """A row per assignment, best first: an option a slot, bar, probability, log-probability; the first bold."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in (*names, "", "p", "logp"))
    lines = []
    for place, (texts, probability, logp) in enumerate(rows):
        shown = (f"<b>{escape(repr(text))}</b>" if place == 0 else escape(repr(text)) for text in texts)
        options = "".join(f"<td{_LEFT}>{text}</td>" for text in shown)
        bar = _BAR.format(width=100 * probability, colour="#4c8bf5" if place == 0 else "#9aa5b1")
        numbers = f"<td>{probability:.4f}</td><td>{logp:.3f}</td>"
        lines.append(f'<tr>{options}<td style="width:12em">{bar}</td>{numbers}</tr>')
    more = f'<tr><td colspan="{len(names) + 3}">… {hidden} more</td></tr>' if hidden > 0 else ""
    return f"{_HEAD.format(caption=escape(caption), cells=cells)}<tbody>{''.join(lines)}{more}</tbody></table>"
