"""Numbers within bounds, log-sum-exp, stable top-k, and numbers drawn from a seed.

`exp` is called only here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import NonFiniteLogitsError, OptionError

_BLOCK_ELEMENTS = 1 << 14
"""Logits processed at once: they and their exponentials fit the L1 and L2 caches."""
_WHOLE_ROWS = 1 << 13
"""Longest row of which several are processed at once.

Numpy casts this many numbers in one step. It would cast and sum a longer row in pieces,
and the pieces would change the bits of the sum.
"""

_GROUPS = 1 << 11
"""Number of groups whose maxima bound the k-th largest logit of a long row."""

ROUNDED_SUM = 1e-12
"""Share of the size of its terms by which a sum of float64 numbers may be wrong.

A sum of n terms is wrong by at most n / 2^53 of their size: 1e-12 for 9 000 terms.
"""

Numbers = TypeVar("Numbers", float, FloatArray)
Others = TypeVar("Others", float, FloatArray)


@dataclass(frozen=True, slots=True, eq=False)
class Interval(Generic[Numbers]):
    """Numbers that are known within bounds: each lies between `low` and `high`.

    Attributes:
        low, high: Two numbers, or two float64 arrays of one shape. NaN in `low` says
            that there is no value (yet); `high` then bounds it.
        is_known: Whether the numbers are exact: `high` equals `low` wherever `low` is
            not NaN. Exact numbers are never widened; bounds are, by the error of
            rounding.
    """

    low: Numbers
    high: Numbers
    is_known: bool = False

    @classmethod
    def point(cls, values: Numbers) -> Interval[Numbers]:
        """Return exact numbers: both bounds are `values`."""
        return cls(values, values, is_known=True)

    @property
    def width(self) -> Numbers:
        """Return the distance of the bounds; 0 where both are -inf."""
        if isinstance(self.low, float):
            return 0.0 if self.low == self.high else float(self.high - self.low)
        with np.errstate(invalid="ignore"):  # -inf - -inf
            width: Any = np.where(np.equal(self.low, self.high), 0.0, np.subtract(self.high, self.low))
        return cast("Numbers", width[()])

    def map(self, rising: Callable[[Numbers], Others]) -> Interval[Others]:
        """Return both bounds mapped by a function that never decreases.

        It is called once if both bounds are the same object.
        """
        low = rising(self.low)
        return Interval(low, low if self.low is self.high else rising(self.high), self.is_known)

    def widened(self) -> Interval[Numbers]:
        """Return the bounds, widened by what rounding may do to sums of logarithms."""
        if self.is_known:
            return self
        return Interval(self.low - _slack(self.low), self.high + _slack(self.high))

    @classmethod
    def above(cls, low: float, gap: float) -> Interval[float]:
        """Return the numbers from `low` to `low` + `gap`."""
        return Interval(low, math.nextafter(low + gap, math.inf)) if gap else Interval.point(low)


def _slack(x: Numbers) -> Numbers:
    """Return the largest rounding error of each logarithm, in nats; 0 for -inf."""
    slack: Any = np.where(np.isneginf(x), 0.0, ROUNDED_SUM * np.maximum(np.abs(x), 1.0))
    return cast("Numbers", slack[()])


def logsumexp(x: FloatArray) -> float:
    """Return log(sum(exp(x))) of a float64 vector; -inf if it is empty or all -inf."""
    if x.size == 0:
        return -np.inf
    peak = float(x.max())
    if peak == -np.inf:
        return peak
    return peak + float(np.log(np.exp(x - peak).sum()))


def logdiffexp(a: float, b: float) -> float:
    """Return log(exp(a) - exp(b)); -inf unless a > b."""
    return a + float(np.log(-np.expm1(b - a))) if a > b else -np.inf


def logsumexp_rows(matrix: LogitArray, index: NDArray[np.int64]) -> FloatArray:
    """Return the float64[n] log-sum-exp of the rows `index` of float32[M, V].

    The bits of each result do not depend on which other rows are requested.
    Exponentials are taken in float32 (relative error 6e-8 each) and summed in float64.
    The result is mostly within 1e-7 of float64 throughout, at a third of its cost, and
    always within 1e-6: in the worst case all terms are rounded in one direction when
    the peak is subtracted in float32, by up to 5e-7 where they are 16 below it.

    Raises `NonFiniteLogitsError`, naming the row of `matrix`, for a row with NaN or
    +inf, or without a finite value.
    """
    n, vocabulary_size = len(index), matrix.shape[1]
    result = np.empty(n, dtype=np.float64)
    if vocabulary_size > _WHOLE_ROWS:
        scratch = np.empty(_BLOCK_ELEMENTS, dtype=np.float32)
        for i, row in enumerate(index):
            peak = float(matrix[row].max())
            _check_finite(peak, int(row))
            result[i] = peak + np.log(_sum_exp(matrix[row], peak, scratch))
        return result
    step = max(1, 2 * _BLOCK_ELEMENTS // max(1, vocabulary_size))
    for start in range(0, n, step):
        block = matrix[index[start : start + step]]
        peaks = block.max(axis=1)
        for bad in np.flatnonzero(~np.isfinite(peaks)):
            _check_finite(float(peaks[bad]), int(index[start + bad]))
        block -= peaks[:, None]
        np.exp(block, out=block)
        # Cast before summing: a sum that casts uses a buffer, and the bounds of the
        # buffer depend on the address of the row.
        result[start : start + step] = peaks + np.log(block.astype(np.float64).sum(axis=1))
    return result


def argmax_rows(matrix: LogitArray, index: NDArray[np.int64]) -> IntArray:
    """Return the position of the maximum of each of the rows `index`, as int32[n].

    `matrix` is float32[M, V]. The first of equal positions is returned.
    """
    result: IntArray = np.empty(len(index), dtype=np.int32)
    step = max(1, _BLOCK_ELEMENTS // max(1, matrix.shape[1]))
    if step == 1:
        result[:] = [matrix[row].argmax() for row in index]
        return result
    for start in range(0, len(index), step):
        result[start : start + step] = matrix[index[start : start + step]].argmax(axis=1)
    return result


def logsumexp_without(logits: LogitArray, token_ids: NDArray[np.int64]) -> float:
    """Return the log-sum-exp of a float32[V] row without `token_ids`.

    The result is -inf if nothing is left.
    """
    rest = logits.copy()
    rest[token_ids] = -np.inf
    peak = float(rest.max())
    if peak == -np.inf:
        return peak
    return peak + float(np.log(_sum_exp(rest, peak, np.empty(_BLOCK_ELEMENTS, dtype=np.float32))))


def _sum_exp(logits: LogitArray, peak: float, scratch: LogitArray) -> float:
    """Return the sum of exp(logits - peak), computed in blocks that fit the cache."""
    total = 0.0
    for start in range(0, len(logits), len(scratch)):
        block = logits[start : start + len(scratch)]
        weights = scratch[: len(block)]
        np.subtract(block, np.float32(peak), out=weights)
        np.exp(weights, out=weights)
        total += float(weights.sum(dtype=np.float64))
    return total


def _check_finite(peak: float, row: int) -> None:
    """Raise `NonFiniteLogitsError` if the largest logit of a row is not finite."""
    if not np.isfinite(peak):
        raise NonFiniteLogitsError(row=row, value=peak)


def top_k(logits: LogitArray, k: int, allowed: BoolArray | IntArray | None = None) -> IntArray:
    """Return the ids of the k largest finite logits, largest first.

    Ties are ordered by id, smaller first. Fewer ids are returned if fewer are allowed.
    """
    if allowed is None:
        n_groups = _GROUPS if len(logits) >= _GROUPS * 8 else 0
        if 0 < k < len(logits):
            bound = _kth_bound(logits, k, n_groups) if k <= n_groups else np.partition(logits, -k)[-k]
            ids = np.flatnonzero(logits >= bound)
        else:
            ids = np.arange(len(logits))
    elif allowed.dtype == np.bool_:
        ids = np.flatnonzero(allowed)
    else:
        ids = np.unique(allowed)
    values = logits[ids]
    if k <= 0:
        return np.empty(0, dtype=np.int32)
    if k < len(ids):
        threshold = np.partition(values, len(values) - k)[len(values) - k]
        near = values >= threshold
        ids, values = ids[near], values[near]
    order = np.lexsort((ids, -values))[:k]
    order = order[values[order] > -np.inf]
    return ids[order].astype(np.int32)


def _kth_bound(logits: LogitArray, k: int, n_groups: int) -> np.float32:
    """Return a close lower bound on the k-th largest logit.

    Few more than k logits reach it. It is the k-th largest of the maxima of `n_groups`
    >= k groups of logits. That takes two vectorised passes over the row and a partition
    of `n_groups` numbers, instead of a partition of the whole row.
    """
    groups = logits[: len(logits) // n_groups * n_groups].reshape(-1, n_groups)
    largest = groups.max(axis=0)
    bound: np.float32 = np.partition(largest, n_groups - k)[n_groups - k]
    return bound


def softmax(scores: FloatArray) -> FloatArray:
    """Return probabilities that sum to one, or all zeros if every score is -inf."""
    peak = scores.max(initial=-np.inf)
    if peak == -np.inf:
        return np.zeros_like(scores)
    weights = np.exp(scores - peak)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def exp(x: FloatArray) -> FloatArray:
    """Return the probabilities of log-probabilities, elementwise."""
    return np.exp(x)


def uniform(seed: int, step: int) -> float:
    """Return a number in [0, 1), a multiple of 2**-53, for a seed and a step.

    It is made from the first word of block `step` + 1 of the counter-based generator
    Philox4x64-10 under the key `seed` (Salmon, Moraes, Dror and Shaw, "Parallel random
    numbers: as easy as 1, 2, 3", SC 2011). Any step can thus be drawn without those
    before it. Raises `OptionError` for a seed below 0 or of more than 128 bits.
    """
    if isinstance(seed, bool) or not 0 <= seed < 1 << 128:
        raise OptionError("seed", seed, "a whole number from 0 to 2**128 - 1")
    word = int(np.random.Philox(key=int(seed), counter=step).random_raw())
    return (word >> 11) * 2.0**-53


def common_length(one: IntArray, other: IntArray) -> int:
    """Return the length of the longest common prefix of two token paths."""
    n = min(len(one), len(other))
    differs = np.flatnonzero(one[:n] != other[:n])
    return int(differs[0]) if len(differs) else n
