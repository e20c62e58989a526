"""Results as self-contained HTML tables.

They use no script and no style sheet, and are readable in light and dark notebooks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from selectrie.results.cells import bar, cell, label, row, table
from selectrie.results.plain import between
from selectrie.results.records import ChoiceScore


def selection_html(shown: Sequence[ChoiceScore], *, winner: int, hidden: int, caption: str) -> str:
    """Return a table of choices: text, bar, probability, log-probability and score.

    The winner is bold; pruned choices are grey.
    """
    rows = [_row(choice, winner) for choice in shown]
    return table(("choice", "", "p", "logp", "score"), rows, caption, hidden=hidden)


def _row(choice: ChoiceScore, winner: int) -> str:
    is_winner = choice.index == winner
    text = label(repr(choice.text), bold=is_winner)
    if choice.logp is None or choice.probability is None:
        return row(text, cell(), cell(), cell(f"≤ {choice.logp_upper:.3f}"), cell(), faint=True)
    logp = between(choice.logp_lower, choice.logp_upper)
    p = between(choice.probability_low, choice.probability_high, 4)
    numbers = (cell(p), cell(logp), cell(f"{choice.score:.3f}"))
    return row(text, bar(choice.probability, strong=is_winner), *numbers)


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


def joint_html(
    names: Sequence[str], rows: Sequence[tuple[tuple[str, ...], float, float]], *, hidden: int, caption: str
) -> str:
    """Return a table of assignments, best first, the first one bold.

    A row has an option per slot, a bar, the probability and the log-probability.
    """
    lines = []
    for rank, (texts, probability, logp) in enumerate(rows):
        options = (label(repr(text), bold=rank == 0, of=len(names)) for text in texts)
        numbers = (cell(f"{probability:.4f}"), cell(f"{logp:.3f}"))
        lines.append(row(*options, bar(probability, strong=rank == 0), *numbers))
    return table((*names, "", "p", "logp"), lines, caption, hidden=hidden)
