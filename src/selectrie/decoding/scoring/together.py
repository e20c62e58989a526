"""Scores several evaluations of one trie with a few numpy calls.

The numbers are those of each evaluation alone, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation
from selectrie.decoding.scoring.posterior import Posterior
from selectrie.decoding.scoring.tolerance import is_near


def stacked(evaluations: Sequence[TrieEvaluation]) -> TrieEvaluation | None:
    """Return evaluations of one trie as one whose arrays have a leading axis.

    None if they did not evaluate the same nodes, or if one has bounds. The most
    probable tokens are those of the first one.
    """
    first = evaluations[0]
    if any(one.is_bounded for one in evaluations):
        return None
    if any(not np.array_equal(one.evaluated, first.evaluated) for one in evaluations[1:]):
        return None
    return TrieEvaluation(
        edge_logp=np.stack([one.edge_logp for one in evaluations]),
        eog_logp=np.stack([one.eog_logp for one in evaluations]),
        rest_logp=np.stack([one.rest_logp for one in evaluations]),
        observed=first.observed,
        evaluated=first.evaluated,
        n_evaluated=first.n_evaluated,
        top_ids=first.top_ids,
        top_logp=first.top_logp,
        best_token=first.best_token,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Decisions over the same C choices by B rows of scores, as `Posterior` has one.

    Attributes:
        probability: float64[B, C].
        winner: int64[B].
        is_tie: bool[B].
        margin: float64[B].
    """

    probability: FloatArray
    winner: IntArray
    is_tie: BoolArray
    margin: FloatArray

    def __getitem__(self, row: int) -> Posterior:
        p = self.probability[row]
        return Posterior(p, p, p, self.winner.item(row), self.is_tie.item(row), self.margin.item(row))


def posteriors(scores: FloatArray, path_of: IntArray, rounding: FloatArray | None = None) -> Posteriors:
    """Decide among C choices by each row of scores; every score is known.

    Args:
        scores: float64[B, C], without NaN.
        path_of: int32[C]; equal paths count once, by their best score.
        rounding: float64[B, C], as for `posterior`.
    """
    n_rows, n_paths = len(scores), int(path_of.max()) + 1
    rows = np.arange(n_rows)
    best = np.full((n_rows, n_paths), -np.inf)
    np.maximum.at(best.T, path_of, scores.T)
    winner = np.argmax(scores, axis=1)
    top = scores[rows, winner]
    others = best.copy()
    others[rows, path_of[winner]] = -np.inf
    rival = others.max(axis=1)
    with np.errstate(invalid="ignore"):
        margin = np.where(rival > -np.inf, top - rival, np.where(top > -np.inf, np.inf, 0.0))
    slack = np.zeros(scores.shape) if rounding is None else rounding
    near = scores + slack >= (top - slack[rows, winner])[:, None]
    total = _logsumexp_rows(best)[:, None]
    share = np.where(np.isneginf(best), -np.inf, best - np.where(np.isneginf(total), 0.0, total))
    return Posteriors(
        probability=numerics.exp(share)[:, path_of],
        winner=winner,
        is_tie=(near & (path_of != path_of[winner][:, None])).any(axis=1),
        margin=margin if n_paths > 1 else np.full(n_rows, np.inf),
    )


def coverages(logp: FloatArray) -> FloatArray:
    """Return `coverage_of` each row of float64[B, P], which has no NaN."""
    return numerics.exp(_logsumexp_rows(logp))


def are_clear(scores: FloatArray, tolerances: FloatArray, path_of: IntArray) -> BoolArray:
    """Return bool[B], the rows of scores whose best one has no near tie.

    `tolerance.finalists` finds nothing for them if one best choice is asked for. Rows
    that are left out may have none either.

    Args:
        scores: float64[B, C], without NaN.
        tolerances: float64[B, C].
        path_of: int32[C], the path of each choice.
    """
    rows, winner = np.arange(len(scores)), np.argmax(scores, axis=1)
    with np.errstate(invalid="ignore"):  # -inf - -inf
        ahead = scores - scores[rows, winner][:, None]
    near = is_near(ahead, tolerances, tolerances[rows, winner][:, None]) & (scores > -np.inf)
    near &= path_of != path_of[winner][:, None]
    return np.asarray(~near.any(axis=1))


def _logsumexp_rows(x: FloatArray) -> FloatArray:
    """Return `numerics.logsumexp` of each row of float64[B, n], n > 0."""
    x = np.ascontiguousarray(x)  # numpy sums the rows of other arrays in another order
    peak = x.max(axis=1)
    shift = np.where(np.isneginf(peak), 0.0, peak)
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(numerics.exp(x - shift[:, None]).sum(axis=1))
    return np.where(np.isneginf(peak), -np.inf, peak + total)
