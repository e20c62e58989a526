"""Turns scores, exact or as intervals, into a decision."""

from __future__ import annotations

import math
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
            equal paths all get the path's probability. NaN where the score is unknown.
        bounds: float64[C], bounds on the probability. They differ if a search left mass
            open, or if the scores are intervals.
        winner: Index of the choice with the best score; the lowest index on exact ties.
            It always has a score.
        is_tie: Whether another path has the winner's score, as far as rounding can
            show.
        margin: The winner's score minus the best score, or upper bound on a score, of
            another path; inf if there is only one path.
        bound_gap: The lowest score of the first k paths minus the best bound on a path
            without a score; inf if no path without a score can have any probability.
    """

    probability: FloatArray
    bounds: Interval[FloatArray]
    winner: int
    is_tie: bool
    margin: float
    bound_gap: float = math.inf


def duplicates(path_of: IntArray) -> IntArray:
    """Return for each choice the first choice with the same path, int32[C].

    It is -1 for that first choice itself.
    """
    _, first, inverse = np.unique(path_of, return_index=True, return_inverse=True)
    earliest = first[inverse.reshape(-1)]
    return np.where(earliest == np.arange(len(path_of)), -1, earliest).astype(np.int32)


def coverage_of(logp: FloatArray) -> float:
    """Return the total probability of the choices, the sum of exp(logp).

    `logp` is float64[P], over distinct paths; NaN counts as probability 0.
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
    k: int = 1,
) -> Posterior:
    """Decide among C choices by their scores, or by bounds on them.

    The best of `ranking` wins; of equal ones the lowest index, also if all are -inf.
    The margin is the winner's lower bound minus the best upper bound on another path,
    so it may be negative for intervals. For ties see `has_near_tie`.

    Args:
        scores: float64[C]. `low` is NaN where a choice has no score; `high` still
            bounds it. A constant that is added to all scores may be left out.
        path_of: int32[C]; equal paths count once, by their best score.
        ranking: float64[C], the scores to rank by, NaN where there is none; None for
            `scores.low`.
        log_open: Log of a bound on the summed exp(score) of all paths without a score.
        slack: float64[C], nats by which rounding, or reading it again, may move each
            score; None for 0.
        k: The number of best paths that `Posterior.bound_gap` is about.
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
        share = _bound_shares(weights, np.where(done, most, -np.inf), log_open)
    if not done.all():
        left = np.minimum(np.where(done, -np.inf, most), log_open)
        most_left = _round_up(_log_share(left, np.array(numerics.logsumexp(weights))))
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
        bound_gap=_bound_gap(best_of_paths(ranking, path_of), Interval(least, most), k),
    )


def _bound_gap(ranking: FloatArray, scores: Interval[FloatArray], k: int) -> float:
    """Return the lowest score of the first k paths minus the best bound on the others.

    The others are those that have no score. The result is -inf if fewer than k paths
    have one, and inf if the others can have no probability.

    Args:
        ranking: float64[P], the scores that are shown; NaN where there is none.
        scores: float64[P], bounds on the scores; NaN as `low` where there is none.
        k: The number of best paths; all of them if there are fewer.
    """
    best_open = float(scores.high[np.isnan(ranking)].max(initial=-np.inf))
    if best_open == -np.inf:
        return np.inf
    ranked = np.sort(ranking)[: np.count_nonzero(~np.isnan(ranking))]  # NaN comes last
    k = min(k, len(ranking))
    return -np.inf if len(ranked) < k else float(scores.low[ranking >= ranked[-k]].min()) - best_open


def _softmax(weights: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    `weights` are log masses. The sum may include up to exp(log_open) more.
    """
    total = numerics.logsumexp(weights)
    high = numerics.exp(_log_difference(weights, total))
    if log_open == -np.inf:
        return Interval.point(high)
    return Interval(numerics.exp(_log_difference(weights, float(np.logaddexp(total, log_open)))), high)


def _log_difference(x: FloatArray, y: float) -> FloatArray:
    """Return x - y for logarithms, with -inf - -inf defined as 0."""
    return np.where(np.isneginf(x), -np.inf, np.where(np.isneginf(x), 0.0, x) - (0.0 if y == -np.inf else y))


_ROUNDED = 1e-11
"""Relative widening of bounds on a probability, for rounding.

A score of 10 000 nats is rounded by 2e-12, and its exponential relatively by as much.
"""


def has_near_tie(scores: Interval[FloatArray], path_of: IntArray, slack: FloatArray, winner: int) -> bool:
    """Return whether another choice may be as good as `winner`, by bounds and slack.

    Only choices with a score count, on another path than the winner's. The arguments
    are those of `posterior`.
    """
    others = ~np.isnan(scores.low) & (path_of != path_of[winner])
    return bool((scores.high + slack >= scores.low[winner] - slack[winner])[others].any())


def is_certain(scores: Interval[FloatArray], path_of: IntArray, tolerances: FloatArray, k: int) -> bool:
    """Return whether bounds and tolerances decide the order of the first k paths.

    Exactly known, equal scores without a tolerance are ordered by their index, if the
    best choice of each of their paths is known too. The arguments are those of
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
    """Return the first choice with the best score of each path, int64[P]."""
    best = np.flatnonzero(scores == best_of_paths(scores, path_of)[path_of])
    return np.asarray(best[np.unique(path_of[best], return_index=True)[1]])


def _largest_after(values: FloatArray) -> FloatArray:
    """Return for each value the largest of those after it; -inf for the last."""
    return np.append(np.maximum.accumulate(values[::-1])[::-1][1:], -np.inf)


def _bound_shares(low: FloatArray, high: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    Each mass lies between exp(low) and exp(high). The sum may include up to
    exp(log_open) more.
    """
    p_low = numerics.exp(_log_share(low, np.logaddexp(_log_sum_others(high), log_open))) * (1 - _ROUNDED)
    return Interval(p_low, _round_up(_log_share(high, _log_sum_others(low))))


def _round_up(log_share: FloatArray) -> FloatArray:
    """Return exp(log_share), rounded up and at most 1."""
    return np.minimum(numerics.exp(log_share) * (1 + _ROUNDED), 1.0)


def _log_share(x: FloatArray, others: FloatArray) -> FloatArray:
    """Return the log of the share of exp(x) in the sum of exp(x) and exp(others)."""
    total = np.logaddexp(x, others)
    with np.errstate(invalid="ignore"):  # inf - inf
        share = np.where(np.isneginf(x), -np.inf, x - np.where(np.isneginf(total), 0.0, total))
    return np.where(np.isposinf(x), 0.0, share)


def _log_sum_others(x: FloatArray) -> FloatArray:
    """Return for each of P logarithms the log of the sum of all others, float64[P]."""
    padded = np.concatenate([[-np.inf], x, [-np.inf]])
    before, after = np.logaddexp.accumulate(padded), np.logaddexp.accumulate(padded[::-1])[::-1]
    return np.logaddexp(before[:-2], after[2:])
