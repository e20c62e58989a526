"""Draws a selection: the strip, its ranked choices, and its trie."""

from __future__ import annotations

import math
from collections.abc import Collection

from selectrie.core.notation import count, quoted
from selectrie.results.beam import BeamResult
from selectrie.results.drawing.bars import MAX_ROWS, Bar, draw_bars, more_words
from selectrie.results.drawing.inputs import SelectionLike
from selectrie.results.drawing.pieces import cut_strip
from selectrie.results.drawing.sentences import (
    all_words,
    is_tied,
    logp_words,
    score_words,
    selection_sentences,
    set_words,
    share_of_set,
)
from selectrie.results.drawing.shapes import Drawing
from selectrie.results.drawing.strip import draw_strip
from selectrie.results.drawing.trie import MAX_NODES, End, draw_trie
from selectrie.results.records import ChoiceScore

_WANTED = 3
"""Maximum number of tokens shown that the model would go on with."""
_LEAST_WANTED = 0.01
"""Least probability of such a token."""


def draw_selection(
    selection: SelectionLike, examples: BeamResult | None = None, *, fold: Collection[int] = ()
) -> dict[str, object]:
    """Return the drawings of a selection and the sentences on it, ready for JSON.

    Args:
        selection: The selection.
        examples: Probable texts after the same prompt, or None.
        fold: As for `draw_selection_trie`.

    Raises:
        OptionError: If the trie has no node that is to be folded.
    """
    strip = cut_strip(selection, examples)
    return {
        "strip": None if strip is None else draw_strip(selection, strip).to_dict(),
        "trie": draw_selection_trie(selection, fold=fold).to_dict(),
        "sentences": selection_sentences(selection),
    }


def draw_choices(selection: SelectionLike) -> Drawing:
    """Return the drawing of the choices as bars, best first."""
    shown = selection.top(MAX_ROWS, distinct=True)
    n = int(selection.choices.distinct.sum())
    rest = more_words(n - len(shown))
    bars = [_make_bar(selection, one) for one in shown]
    title = f"The share of each choice in the set, best first: {_first_words(selection)}"
    return draw_bars(bars, title=title, heads=("choice", "share of the set", _score_name(selection)), rest=rest)


def _first_words(selection: SelectionLike) -> str:
    """Return which choice has the first place."""
    return f"{quoted(selection.text)} {'shares the first place' if selection.is_tie else 'has the best score'}"


def _score_name(selection: SelectionLike) -> str:
    """Return the name of the second number of a choice."""
    return "log-probability" if selection.rule == "joint" else f"score ({selection.rule})"


def _make_bar(selection: SelectionLike, choice: ChoiceScore) -> Bar:
    """Return the bar of a choice."""
    at = choice.index
    path_of = selection.choices.trie.path_of
    won = bool(path_of[at] == path_of[selection.index])
    is_greedy = selection.greedy_index is not None and bool(path_of[at] == path_of[selection.greedy_index])
    shares = is_tied(selection, at)
    marks = (
        [("=", "shares the first place")] * shares
        + [("★", "winner")] * (won and not shares)
        + [("~", "what masked greedy decoding picks")] * is_greedy
    )
    mark = ("".join(one for one, _ in marks), "; ".join(words for _, words in marks))
    if choice.score is None or choice.logp is None or choice.probability is None:
        bound = logp_words(selection, choice)
        numbers = (("log-probability", choice.logp_upper, bound),)
        return Bar(choice.text, None, None, "pruned", bound, numbers, "off", ("×", "pruned"))
    low, high = share_of_set(selection, at)
    shown, all_shown = set_words(selection, at), all_words(selection, at)
    logp, score = logp_words(selection, choice), score_words(selection, choice)
    numbers = (
        ("share of the set", choice.probability, shown),
        ("share of everything", math.exp(min(0.0, choice.logp)), all_shown),
        ("log-probability", choice.logp, logp),
        *((("score", choice.score, score),) if choice.score != choice.logp else ()),
    )
    kind = "win" if won or shares else "alt" if is_greedy else ""
    return Bar(choice.text, low, high, shown, logp if selection.rule == "joint" else score, numbers, kind, mark)


def draw_selection_trie(selection: SelectionLike, *, limit: int = MAX_NODES, fold: Collection[int] = ()) -> Drawing:
    """Return the drawing of the trie, the winner and masked greedy decoding marked.

    Args:
        selection: The selection.
        limit: Maximum number of nodes drawn.
        fold: Numbers of nodes of the trie below which nothing is drawn.
    """
    choices, view, name = selection.choices, selection.trie(limit, fold=fold), "share of the set"

    def end(choice: int) -> End:
        if math.isnan(choices.score[choice]):
            return End(name, math.nan, math.nan, logp_words(selection, choices[choice]))
        low, high = share_of_set(selection, choice)
        logp = (float(choices.logp[choice]), logp_words(selection, choices[choice]))
        return End(name, low, high, set_words(selection, choice), logp)

    wanted: tuple[tuple[str, float], ...] = ()
    if not selection.healed:
        first = set(choices.trie.token[choices.trie.children(0)].tolist())
        others = [one for one in selection.top_tokens if one.id not in first and math.exp(one.logp) >= _LEAST_WANTED]
        wanted = tuple((one.label, math.exp(one.logp)) for one in others[:_WANTED])
    n = int(choices.distinct.sum())
    title = f"The tokens of {count(n, 'choice')} as a tree: {_first_words(selection)}"
    return draw_trie(view, end, title=title, wanted=wanted)
