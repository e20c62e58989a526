"""One of a scored set, drawn by softmax(score / temperature)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import FloatArray, OffsetArray
from selectrie.decoding import scoring
from selectrie.decoding.rng import uniform
from selectrie.decoding.sampling.stability import Band, is_close
from selectrie.options import Sampling
from selectrie.results import ChoiceTable, Selection
from selectrie.results.sampled_choice import DrawnChoice


def drawn_choice(selection: Selection, temperature: float, seed: int) -> DrawnChoice:
    """Draw one of a set of which every choice is scored, by the uniform number of (seed, step 0).

    temperature 0: the winner. The same seed draws the same text whatever the order of the choices; choices of one path count
    once. Where every score is -inf nothing has any probability, and the winner is drawn.
    """
    if temperature == 0 or not np.isfinite(selection.score):
        close = None if selection.signature.tolerance is None else not selection.certificate.settled
        return DrawnChoice(selection, selection.index, 1.0, temperature, seed, close)
    places = order_of(selection.choices)
    chances = chances_of(selection.choices.score[places], temperature)
    u = uniform(seed, 0)
    at = place_of(chances, u)
    close = _could_change(selection, places, at, u, temperature)
    return DrawnChoice(selection, int(places[at]), float(chances[at]), temperature, seed, close)


def _could_change(selection: Selection, places: OffsetArray, at: int, u: float, temperature: float) -> bool | None:
    """Could scores within their tolerances have drawn another path than that of place
    `at`?"""
    tau, table = selection.signature.tolerance, selection.choices
    if tau is None:
        return None
    lengths = scoring.Lengths.of(table.texts, table.trie)
    moves = scoring.tolerance_of(selection.rule, tau, table.trie, selection.terminator, lengths=lengths)
    finite = np.flatnonzero(table.score[places] > -np.inf)
    score, move = table.score[places[finite]], moves[places[finite]]
    band = Band(score - move, score + move, np.ones(len(finite), dtype=np.bool_))
    place = int(np.searchsorted(finite, at))
    return is_close(band, place, u, replace(Sampling.UNCHANGED, temperature=temperature))


def order_of(table: ChoiceTable) -> OffsetArray:
    """int64[P]: the first choice of each path, by the bytes of its text."""
    return np.array(sorted(table.first.tolist(), key=lambda place: table.texts[place].encode()), dtype=np.int64)


def chances_of(scores: FloatArray, temperature: float) -> FloatArray:
    """float64[P]: softmax(score / temperature); scores below inf, at least one finite; temperature > 0."""
    with np.errstate(over="ignore"):
        return numerics.softmax((scores - scores.max()) / temperature)


def place_of(chances: FloatArray, u: float) -> int:
    """The place whose share of [0, 1) holds u, the shares side by side in order; never one of probability 0.

    u: below 1 by at least 2**-53, so that its share of the sum is below the sum, whatever it is rounded to.
    """
    ends = np.cumsum(chances)
    return int(np.searchsorted(ends, u * ends[-1], side="right"))
