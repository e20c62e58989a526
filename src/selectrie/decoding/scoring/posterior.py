"""Turns scores into a decision: probabilities, winner, tie, margin and coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A decision over C choices.

    Attributes:
        probability: float64[C], softmax of the scores over distinct paths. Choices with
            equal paths share its probability. NaN where the score is not known.
        probability_low, probability_high: float64[C], bounds on the probability. They
            differ only where a search left mass open.
        winner: The index of the choice with the best score; the lowest index on exact
            ties. It always has a score.
        is_tie: Whether another path has the winner's score, as far as rounding tells.
        margin: The winner's score minus the best score, or bound on a score, of another
            path; inf if there is only one path.
    """

    probability: FloatArray
    probability_low: FloatArray
    probability_high: FloatArray
    winner: int
    is_tie: bool
    margin: float


def duplicates(path_of: IntArray) -> IntArray:
    """Return for each choice the first one with the same path, -1 for that one itself.

    The result is int32[C].
    """
    _, first, inverse = np.unique(path_of, return_index=True, return_inverse=True)
    earliest = first[inverse.reshape(-1)]
    return np.where(earliest == np.arange(len(path_of)), -1, earliest).astype(np.int32)


def coverage_of(logp: FloatArray) -> float:
    """Return the probability mass that the model gives the set of choices.

    It is the sum of exp(logp). `logp` is float64[P], over distinct paths; NaN counts as
    0.
    """
    return float(numerics.exp(np.array(numerics.logsumexp(logp[~np.isnan(logp)]))))


def best_of_paths(scores: FloatArray, path_of: IntArray) -> FloatArray:
    """Return the best score among the choices of each path, float64[P].

    It is NaN where no choice has a score.
    """
    best = np.full(int(path_of.max(initial=-1)) + 1, np.nan)
    np.fmax.at(best, path_of, scores)
    return best


def posterior(
    scores: FloatArray,
    path_of: IntArray,
    *,
    upper: FloatArray | None = None,
    log_open: float = -np.inf,
    rounding: FloatArray | None = None,
) -> Posterior:
    """Decide among C choices by their scores.

    If every known score is -inf, the choices that have one tie, and the lowest index of
    them wins.

    Args:
        scores: float64[C], NaN where not known.
        path_of: int32[C]; equal paths count once, by their best score.
        upper: float64[C], upper bounds on the scores that are not known, from a search.
        log_open: Log of a bound on the summed exp(score) of all paths without a score.
        rounding: float64[C], nats by which rounding may move each score
            (`rounding_of`); None for 0.
    """
    best = best_of_paths(scores, path_of)
    done = ~np.isnan(best)
    weights = np.where(done, best, -np.inf)
    finished = numerics.logsumexp(weights)
    low = numerics.exp(_difference(weights, np.logaddexp(finished, log_open)))
    high = numerics.exp(_difference(weights, finished))
    if upper is not None and not done.all():
        bound = best_of_paths(np.where(np.isnan(scores), upper, np.nan), path_of)[~done]
        bound = np.minimum(bound, log_open)
        high[~done] = numerics.exp(_difference(bound, np.logaddexp(finished, bound)))
    probability = np.where(done, (low + high) / 2, np.nan)
    known = np.flatnonzero(~np.isnan(scores))  # `nanargmax` takes NaN for -inf
    winner = int(known[np.argmax(scores[known])])
    others = np.delete(np.arange(len(best)), path_of[winner])
    rival = float(weights[others].max(initial=-np.inf))
    if upper is not None and not done.all():
        rival = max(rival, float(best_of_paths(np.where(np.isnan(scores), upper, np.nan), path_of)[~done].max()))
    margin = float(scores[winner]) - rival if rival > -np.inf else (np.inf if scores[winner] > -np.inf else 0.0)
    if not len(others):
        margin = np.inf
    slack = np.zeros(len(scores)) if rounding is None else rounding
    near = scores + slack >= scores[winner] - slack[winner]  # false where there is no score
    is_tie = bool(near[path_of != path_of[winner]].any())
    return Posterior(probability[path_of], low[path_of], high[path_of], winner, is_tie, margin)


def _difference(x: FloatArray, y: FloatArray | float) -> FloatArray:
    """Return x - y for logarithms, where -inf - -inf is 0."""
    return np.where(np.isneginf(x), -np.inf, np.where(np.isneginf(x), 0.0, x) - np.where(np.isneginf(y), 0.0, y))
