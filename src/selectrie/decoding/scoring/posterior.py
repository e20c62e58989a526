"""Turns scores, known exactly or within bounds, into a decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A decision over C choices.

    Attributes:
        probability: float64[C], softmax of the scores over distinct paths. Choices with
            equal paths share its probability. NaN where the score is not known.
        bounds: float64[C], bounds on the probability. They differ where a search left
            mass open, or the scores have bounds.
        winner: The index of the choice with the best score; the lowest index on exact
            ties. It always has a score.
        is_tie: Whether another path has the winner's score, as far as rounding tells.
        margin: The winner's score minus the best score, or bound on a score, of another
            path; inf if there is only one path.
    """

    probability: FloatArray
    bounds: Interval[FloatArray]
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
    scores: Interval[FloatArray],
    path_of: IntArray,
    *,
    ranking: FloatArray | None = None,
    log_open: float = -np.inf,
    slack: FloatArray | None = None,
) -> Posterior:
    """Decide among C choices by their scores, or by bounds on them.

    The best of `ranking` wins; of equal ones the lowest index, also if all are -inf.
    The margin is its lower bound minus the best upper bound on another path, so it may
    be negative for bounds. There is a tie if `has_near_tie` says so.

    Args:
        scores: float64[C]. NaN where a choice has no score, and `high` then bounds it.
            What is added to all bounds alike may be left out.
        path_of: int32[C]; equal paths count once, by their best score.
        ranking: float64[C], the scores that are shown, NaN where there is none; None
            for `scores.low`.
        log_open: Log of a bound on the summed exp(score) of all paths without a score.
        slack: float64[C], nats by which rounding, or reading it again, may move each
            score; None for 0.
    """
    low, ranking = scores.low, scores.low if ranking is None else ranking
    best = scores.map(lambda one: best_of_paths(one, path_of))
    least, most = best.low, best.high
    done = ~np.isnan(least)
    weights = np.where(done, least, -np.inf)
    if scores.is_known:
        most = np.where(done, least, most)
        share = _softmax(weights, log_open)
    else:
        share = _shares(weights, np.where(done, most, -np.inf), log_open)
    if not done.all():
        left = np.minimum(np.where(done, -np.inf, most), log_open)
        most_left = _rounded_up(_share(left, np.array(numerics.logsumexp(weights))))
        share = Interval(share.low, np.where(done, share.high, most_left))
    known = np.flatnonzero(~np.isnan(ranking))  # `nanargmax` takes NaN for -inf
    winner = int(known[np.argmax(ranking[known])])
    rival = float(np.delete(most, path_of[winner]).max(initial=-np.inf))
    margin = float(low[winner]) - rival if rival > -np.inf else (np.inf if low[winner] > -np.inf else 0.0)
    return Posterior(
        probability=np.where(done, (share.low + share.high) / 2, np.nan)[path_of],
        bounds=share.map(lambda p: p[path_of]),
        winner=winner,
        is_tie=has_near_tie(scores, path_of, np.zeros(len(low)) if slack is None else slack, winner),
        margin=margin if len(most) > 1 else np.inf,
    )


def _softmax(weights: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the shares of P masses in a sum with exp(log_open) more."""
    total = numerics.logsumexp(weights)
    high = numerics.exp(_difference(weights, total))
    if log_open == -np.inf:
        return Interval.point(high)
    return Interval(numerics.exp(_difference(weights, float(np.logaddexp(total, log_open)))), high)


def _difference(x: FloatArray, y: float) -> FloatArray:
    """Return x - y for logarithms, where -inf - -inf is 0."""
    return np.where(np.isneginf(x), -np.inf, np.where(np.isneginf(x), 0.0, x) - (0.0 if y == -np.inf else y))


_ROUNDED = 1e-11
"""Share by which bounds on a probability are widened, for rounding.

A score of 10 000 nats is rounded by 2e-12, and its exponential by as large a share.
"""


def has_near_tie(scores: Interval[FloatArray], path_of: IntArray, slack: FloatArray, winner: int) -> bool:
    """Return whether bounds and slack leave open who is better than `winner`.

    Only choices with a score count, on another path than the winner's. The arguments
    are those of `posterior`.
    """
    others = ~np.isnan(scores.low) & (path_of != path_of[winner])
    return bool((scores.high + slack >= scores.low[winner] - slack[winner])[others].any())


def is_certain(scores: Interval[FloatArray], path_of: IntArray, tolerances: FloatArray, k: int) -> bool:
    """Return whether bounds and tolerances decide the order of the first k paths.

    Equal scores that are known, and have no tolerance, are decided by their index, if
    that of the best choice of each path is known too. The arguments are those of
    `posterior`.
    """
    lower = np.where(np.isnan(scores.low), -np.inf, scores.low)
    first, may_be_first = _first_best(lower, path_of), _first_best(scores.high, path_of)
    ranked = np.lexsort((first, -lower[first]))
    lowest = best_of_paths(lower - tolerances, path_of)[ranked]
    highest = best_of_paths(scores.high + tolerances, path_of)[ranked]
    is_known: BoolArray = (lowest == highest) & (first == may_be_first)[ranked]
    below, doubtful = _largest_after(highest), _largest_after(np.where(is_known, -np.inf, highest))
    decided = (lowest > below) | (is_known & ((lowest > doubtful) | np.isneginf(doubtful)))
    decided[-1] = True
    return bool(decided[:k].all())


def _first_best(scores: FloatArray, path_of: IntArray) -> IntArray:
    """Return the first of the choices with the best score of each path, int64[P]."""
    best = np.flatnonzero(scores == best_of_paths(scores, path_of)[path_of])
    return np.asarray(best[np.unique(path_of[best], return_index=True)[1]])


def _largest_after(values: FloatArray) -> FloatArray:
    """Return the largest of the values after each one; -inf after the last."""
    return np.append(np.maximum.accumulate(values[::-1])[::-1][1:], -np.inf)


def _shares(low: FloatArray, high: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    Each lies between exp(low) and exp(high); up to exp(log_open) may be added to the
    sum.
    """
    p_low = numerics.exp(_share(low, np.logaddexp(_others(high), log_open))) * (1 - _ROUNDED)
    return Interval(p_low, _rounded_up(_share(high, _others(low))))


def _rounded_up(log_share: FloatArray) -> FloatArray:
    """Return upper bounds on shares."""
    return np.minimum(numerics.exp(log_share) * (1 + _ROUNDED), 1.0)


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
