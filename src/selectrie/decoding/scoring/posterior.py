"""Turns scores, known exactly or within bounds, into a decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray


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


_ROUNDED = 1e-11
"""Share by which bounds on a probability are widened, for rounding.

A score of 10 000 nats is rounded by 2e-12, and its exponential by as large a share.
"""


def bounded_posterior(
    low: FloatArray,
    high: FloatArray,
    path_of: IntArray,
    tolerances: FloatArray,
    *,
    ranking: FloatArray,
    log_open: float = -np.inf,
) -> Posterior:
    """Decide among C choices by bounds on their scores.

    The margin is the winner's lower bound minus the best upper bound on another path,
    so it may be negative. There is a tie if `has_near_tie` says so.

    Args:
        low, high: float64[C], bounds on the scores, without what is added to all of
            them alike. `low` is NaN where there is no score, and `high` then bounds it.
        path_of: int32[C], the path of each choice.
        tolerances: float64[C], nats by which a score may differ when it is read again.
        ranking: float64[C], the scores that are shown; the best one wins (ties: the
            lowest index). NaN where there is none.
        log_open: As for `posterior`.
    """
    lower, upper = best_of_paths(low, path_of), best_of_paths(high, path_of)
    done = ~np.isnan(lower)
    known = np.flatnonzero(~np.isnan(ranking))
    winner = int(known[np.argmax(ranking[known])])
    others = np.delete(np.arange(len(lower)), path_of[winner])
    rival = float(upper[others].max(initial=-np.inf))
    margin = float(low[winner]) - rival if rival > -np.inf else (np.inf if low[winner] > -np.inf else 0.0)
    weights = np.where(done, lower, -np.inf)
    p_low, p_high = _shares(weights, np.where(done, upper, -np.inf), log_open)
    left = np.minimum(upper[~done], log_open)
    p_high[~done] = np.minimum(numerics.exp(_share(left, np.array(numerics.logsumexp(weights)))) * (1 + _ROUNDED), 1.0)
    probability = np.where(done, (p_low + p_high) / 2, np.nan)
    return Posterior(
        probability=probability[path_of],
        probability_low=p_low[path_of],
        probability_high=p_high[path_of],
        winner=winner,
        is_tie=has_near_tie(low, high, path_of, tolerances, winner),
        margin=margin if len(others) else np.inf,
    )


def has_near_tie(low: FloatArray, high: FloatArray, path_of: IntArray, tolerances: FloatArray, winner: int) -> bool:
    """Return whether bounds and tolerances leave open who is better than `winner`.

    Only choices with a score count, on another path than the winner's. The arguments
    are those of `bounded_posterior`.
    """
    others = ~np.isnan(low) & (path_of != path_of[winner])
    return bool((high + tolerances >= low[winner] - tolerances[winner])[others].any())


def is_certain(low: FloatArray, high: FloatArray, path_of: IntArray, tolerances: FloatArray, k: int) -> bool:
    """Return whether bounds and tolerances decide the order of the first k paths.

    Equal scores that are known, and have no tolerance, are decided by their index. The
    arguments are those of `bounded_posterior`.
    """
    lower = np.where(np.isnan(low), -np.inf, low)
    first = np.flatnonzero(lower == best_of_paths(lower, path_of)[path_of])
    first = first[np.sort(np.unique(path_of[first], return_index=True)[1])]
    ranked = path_of[first[np.argsort(-lower[first], kind="stable")]]
    lowest = best_of_paths(lower - tolerances, path_of)[ranked]
    highest = best_of_paths(high + tolerances, path_of)[ranked]
    is_known: BoolArray = lowest == highest
    below, doubtful = _largest_after(highest), _largest_after(np.where(is_known, -np.inf, highest))
    decided = (lowest > below) | (is_known & ((lowest > doubtful) | np.isneginf(doubtful)))
    decided[-1] = True
    return bool(decided[:k].all())


def _largest_after(values: FloatArray) -> FloatArray:
    """Return the largest of the values after each one; -inf after the last."""
    return np.append(np.maximum.accumulate(values[::-1])[::-1][1:], -np.inf)


def _shares(low: FloatArray, high: FloatArray, log_open: float) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    Each lies between exp(low) and exp(high); up to exp(log_open) may be added to the
    sum.
    """
    p_low = numerics.exp(_share(low, np.logaddexp(_others(high), log_open))) * (1 - _ROUNDED)
    p_high = np.minimum(numerics.exp(_share(high, _others(low))) * (1 + _ROUNDED), 1.0)
    return p_low, p_high


def _share(x: FloatArray, others: FloatArray) -> FloatArray:
    """Return the log of the share of exp(x) in the sum of exp(x) and exp(others)."""
    total = np.logaddexp(x, others)
    with np.errstate(invalid="ignore"):  # inf - inf
        share = np.where(np.isneginf(x), -np.inf, x - np.where(np.isneginf(total), 0.0, total))
    return np.where(np.isposinf(x), 0.0, share)


def _others(x: FloatArray) -> FloatArray:
    """Return for each of P logarithms the log of the sum of all others, float64[P]."""
    padded = np.concatenate([[-np.inf], x, [-np.inf]])
    before, after = np.logaddexp.accumulate(padded), np.logaddexp.accumulate(padded[::-1])[::-1]
    return np.logaddexp(before[:-2], after[2:])
