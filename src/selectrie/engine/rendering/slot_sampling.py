"""Draw one of a scored set by softmax(score / temperature)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import FloatArray, OffsetArray
from selectrie.decoding import scoring
from selectrie.decoding.rng import uniform
from selectrie.decoding.sampling.stability import Band, is_close
from selectrie.options import SamplingParams
from selectrie.results import ChoiceTable, Selection
from selectrie.results.sampled_choice import SampledChoice


def drawn_choice(selection: Selection, temperature: float, seed: int) -> SampledChoice:
    """Draw one of a set of scored choices, by the uniform number of (seed, step 0).

    Every choice must be scored. Temperature 0 takes the winner. The same seed draws the
    same text whatever the order of the choices; choices of one path count once. If
    every score is -inf, no choice has any probability, and the winner is drawn.
    """
    if temperature == 0 or not np.isfinite(selection.score):
        close = None if selection.signature.tolerance is None else not selection.certificate.rescored
        return SampledChoice(selection, selection.index, 1.0, temperature, seed, close)
    places = order_of(selection.choices)
    chances = chances_of(selection.choices.score[places], temperature)
    u = uniform(seed, 0)
    at = place_of(chances, u)
    close = _could_change(selection, places, at, u, temperature)
    return SampledChoice(selection, int(places[at]), float(chances[at]), temperature, seed, close)


def _could_change(selection: Selection, places: OffsetArray, at: int, u: float, temperature: float) -> bool | None:
    """Return whether scores within their tolerances could have drawn another path.

    The path drawn is the one at position `at`. Returns None if no tolerance was
    measured.
    """
    tolerance, table = selection.signature.tolerance, selection.choices
    if tolerance is None:
        return None
    lengths = scoring.Lengths.of(table.texts, table.trie)
    moves = scoring.tolerance_of(selection.rule, tolerance, table.trie, selection.terminator, lengths=lengths)
    finite = np.flatnonzero(table.score[places] > -np.inf)
    score, move = table.score[places[finite]], moves[places[finite]]
    band = Band(score - move, score + move, np.ones(len(finite), dtype=np.bool_))
    place = int(np.searchsorted(finite, at))
    return is_close(band, place, u, replace(SamplingParams.UNCHANGED, temperature=temperature))


def order_of(table: ChoiceTable) -> OffsetArray:
    """Return the first choice of each path, int64[P], in byte order of the texts."""
    return np.array(sorted(table.first.tolist(), key=lambda place: table.texts[place].encode()), dtype=np.int64)


def chances_of(scores: FloatArray, temperature: float) -> FloatArray:
    """Return softmax(score / temperature), float64[P].

    Scores must be below inf, at least one of them finite, and the temperature positive.
    """
    with np.errstate(over="ignore"):
        return numerics.softmax((scores - scores.max()) / temperature)


def place_of(chances: FloatArray, u: float) -> int:
    """Return the index whose share of [0, 1) holds u.

    The shares lie side by side in order. An index of probability 0 is never returned.
    `u` must be below 1 by at least 2**-53, so that its share of the sum is below the
    sum, however it is rounded.
    """
    ends = np.cumsum(chances)
    return int(np.searchsorted(ends, u * ends[-1], side="right"))
