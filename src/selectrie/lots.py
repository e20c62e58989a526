"""One of a scored set, drawn by softmax(score / temperature)."""

from __future__ import annotations

import numpy as np

from selectrie import numerics
from selectrie.results import ChoiceTable, Selection
from selectrie.results.drawn import DrawnChoice
from selectrie.sampling import uniform
from selectrie.types import FloatArray


def drawn_choice(selection: Selection, temperature: float, seed: int) -> DrawnChoice:
    """Draw one of a set of which every choice is scored, by the uniform number of (seed, step 0).

    temperature 0: the winner. The same seed draws the same text whatever the order of the choices; choices of one path count
    once. Where every score is -inf nothing has any probability, and the winner is drawn.
    """
    if temperature == 0 or not np.isfinite(selection.score):
        return DrawnChoice(selection, selection.index, 1.0, temperature, seed)
    places = order_of(selection.choices)
    chances = chances_of(selection.choices.score[places], temperature)
    at = place_of(chances, uniform(seed, 0))
    return DrawnChoice(selection, int(places[at]), float(chances[at]), temperature, seed)


def order_of(table: ChoiceTable) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """int64[P]: the first choice of each path, by the bytes of its text."""
    return np.array(sorted(table.first.tolist(), key=lambda place: table.texts[place].encode()), dtype=np.int64)


def chances_of(scores: FloatArray, temperature: float) -> FloatArray:
    """float64[P]: softmax(score / temperature); scores below inf, at least one finite; temperature > 0."""
    with np.errstate(over="ignore"):
        return numerics.softmax((scores - scores.max()) / temperature)


def place_of(chances: FloatArray, u: float) -> int:
    """The place whose share of [0, 1) holds u, the shares side by side in order; never one of probability 0."""
    ends = np.cumsum(chances)
    at = int(np.searchsorted(ends, u * ends[-1], side="right"))
    last = int(np.flatnonzero(chances)[-1])
    return min(at, last)
