"""Decides among choices whose scores are known within bounds only.

Such bounds come from rows that were not read in full.
"""

from __future__ import annotations

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.posterior import Posterior, best_of_paths

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
