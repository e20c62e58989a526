"""Draws one token from a row of logits, and tells whether the draw is stable."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decoding.sampling.chain import (
    MARGINS,
    Adjustments,
    Pool,
    Positions,
    distribution,
    log_total_of,
    not_above,
    top_k,
)
from selectrie.errors import DeadEndError
from selectrie.options import SamplingParams

_HOPELESS = 100.0
"""Tolerance in nats above which every draw counts as close."""
_EXP32 = 1e-6
"""Upper bound on the relative error of sums of exponentials in float32."""
_ROUNDING = 1e-12
"""Allowance for rounding in the difference of two log-probabilities."""
_SLACK = 1e-9
"""Allowance for rounding in float64 sums, far above it and far below any tolerance."""


_NOTHING = Interval.point(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Tokens that may be drawn, by ascending id, and bounds on their adjusted logits.

    Attributes:
        low, high: float64[m], the bounds, finite.
        sure: bool[m], tokens kept by all filters so far.
        tail: The summed exponentials of further tokens, in units of exp(peak). No
            filter can keep these tokens, and none of them can precede the others.
    """

    low: FloatArray
    high: FloatArray
    sure: BoolArray
    tail: Interval[float] = _NOTHING

    @property
    def peak(self) -> float:
        """Return the largest upper bound."""
        return float(self.high.max())

    def weights(self, temperature: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Return bounds on exp((logit - peak) / temperature), float64[m] twice.

        The lower bound is 0 unless the token is sure.
        """
        peak = self.peak
        with np.errstate(over="ignore", under="ignore"):
            min_weights = numerics.exp((self.low - peak) / temperature)
            max_weights = numerics.exp((self.high - peak) / temperature)
        return np.where(self.sure, min_weights, 0.0), max_weights

    def only(self, sure: BoolArray, maybe: BoolArray) -> Band:
        """Return the band restricted to the tokens that a filter may keep.

        A token stays sure if the filter surely keeps it.

        Args:
            sure: bool[m], the tokens that the filter surely keeps.
            maybe: bool[m], the tokens that it may keep.
        """
        sure = sure & self.sure
        kept = maybe | sure
        return replace(self, low=self.low[kept], high=self.high[kept], sure=sure[kept])


def could_change(pool: Pool, token: int, uniform: float, sampling: SamplingParams, tolerance: float) -> bool:
    """Return whether moving raw logits by `tolerance` nats could change the token.

    It is never False where that could happen. Moving all logits by the same amount
    changes nothing except through the repetition penalty, so the logits may be
    log-probabilities.

    Args:
        pool: The adjusted logits.
        token: The token that was drawn.
        uniform: The number that drew it, in [0, 1).
        sampling: The sampler chain.
        tolerance: Nats by which each raw logit may be off.
    """
    touched, raw = pool.adjustments.ids, pool.raw[pool.adjustments.ids].astype(np.float64)
    moved = np.stack([pool.adjustments.of_logits(raw + shift) for shift in (-tolerance, 0.0, tolerance)])
    widest = max(tolerance, float(np.diff(moved[:, moved[1] > -np.inf], axis=0).max(initial=0.0)))
    if widest > _HOPELESS:
        return True
    positions, tails = _all_that_may_stay(pool, sampling, widest)
    logits, ids = pool.values[positions].astype(np.float64), pool.id_of(positions)
    low, high = logits - tolerance, logits + tolerance
    if len(touched):
        at = np.minimum(np.searchsorted(touched, ids), len(touched) - 1)
        is_touched = touched[at] == ids
        low[is_touched], high[is_touched] = moved[0][at[is_touched]], moved[2][at[is_touched]]
    band = Band(low, high, np.ones(len(ids), dtype=np.bool_), Interval(*tails))
    return is_close(band, int(np.searchsorted(ids, token)), uniform, sampling)


def is_close_to_best(gap: float, tolerance: float) -> bool:
    """Return whether moving logits by `tolerance` nats could change a greedy draw.

    It is `could_change` where no logit is adjusted.

    Args:
        gap: Nats by which the drawn token is above the next one; inf if there is none.
        tolerance: Nats, above 0.
    """
    return tolerance > _HOPELESS or gap <= 2 * tolerance + _ROUNDING


def _all_that_may_stay(pool: Pool, sampling: SamplingParams, widest: float) -> tuple[Positions, tuple[float, float]]:
    """Return the positions of all tokens that the filters could keep.

    Each logit may be moved by at most `widest`. The second element bounds the summed
    exponentials of the other tokens, in units of that of the largest moved logit, if
    top-p counts them; otherwise it is (0, 0). Two logits can change places if they are
    within 2 `widest`. Where the other tokens are counted, none of them is that close to
    a token that may stay.
    """
    values, peak = pool.values, pool.peak
    if sampling.temperature == 0 and sampling.typical_p == 1:
        return np.flatnonzero(values >= not_above(peak - 2 * widest)), (0.0, 0.0)
    if 0 < sampling.top_k < len(values):
        kth = float(values[top_k(values, sampling.top_k)].min())
        return np.flatnonzero((values >= not_above(kth - 2 * widest)) & (values > -np.inf)), (0.0, 0.0)
    everything = np.flatnonzero(values > -np.inf)
    # Typical sampling may keep any token; so does a chain without filters.
    if sampling.typical_p < 1 or (sampling.top_p == 1 and sampling.min_p == 0):
        return everything, (0.0, 0.0)
    total = 0.0 if sampling.top_p == 1 else math.exp(log_total_of(values) - peak)
    margin = -math.log(sampling.min_p) if sampling.min_p > 0 else _margin_of_top_p(pool, sampling.top_p, widest, total)
    if math.isinf(margin):
        return everything, (0.0, 0.0)
    near, mass = _near(pool, margin + 4 * widest)
    rest = total - mass
    min_mass, max_mass = max(rest - _EXP32 * total, 0.0), max(rest, 0.0) + _EXP32 * total
    return near, (min_mass * math.exp(-2 * widest), max_mass * math.exp(widest))


def _margin_of_top_p(pool: Pool, p: float, widest: float, total: float) -> float:
    """Return the nats below the peak within which top-p surely finds all its tokens.

    That holds however the logits are moved by at most `widest`. inf if no margin is
    known.
    """
    for margin in MARGINS:
        _, mass = _near(pool, margin)
        min_mass, max_mass = mass * math.exp(-widest), (max(total - mass, 0.0) + _EXP32 * total) * math.exp(widest)
        if min_mass >= (p + _SLACK) * (min_mass + max_mass):
            return margin
    return math.inf


def _near(pool: Pool, margin: float) -> tuple[Positions, float]:
    """Return the positions of logits at most `margin` below the peak, and their mass.

    The mass is the sum of their exponentials in units of exp(peak).
    """
    near = np.flatnonzero(pool.values >= not_above(pool.peak - margin))
    return near, float(numerics.exp(pool.values[near].astype(np.float64) - pool.peak).sum())


def is_close(band: Band, index: int, uniform: float, sampling: SamplingParams) -> bool:
    """Return whether logits within their bounds could have drawn another token.

    Args:
        band: The bounds, before any filter. It holds every token that top-k, top-p or
            min-p can keep for some logits within the bounds.
        index: Position of the drawn token in the band.
        uniform: The number that was drawn, in [0, 1).
        sampling: The sampler chain.
    """
    # No filter drops the most probable token.
    if sampling.temperature == 0 and sampling.typical_p == 1:
        return _other_may_be_largest(band, index)
    marked = np.zeros(len(band.low), dtype=np.bool_)
    marked[index] = True
    for step in (_top_k, _typical, _top_p, _min_p):
        sure, maybe = step(band, sampling)
        if not (sure & band.sure)[marked].all():
            return True
        marked, band = marked[maybe | (sure & band.sure)], band.only(sure, maybe)
    index = int(np.argmax(marked))
    if sampling.temperature == 0:
        return _other_may_be_largest(band, index)
    return _edges_may_cross(band, index, uniform, sampling.temperature)


def _other_may_be_largest(band: Band, index: int) -> bool:
    """Return whether a token other than that at `index` may have the largest logit."""
    return int(np.count_nonzero(band.high >= band.low[index])) > 1


def _edges_may_cross(band: Band, index: int, uniform: float, temperature: float) -> bool:
    """Return whether `uniform` could lie outside the interval of the drawn token.

    With weights w, an edge lies at sum(w before it) / sum(all w). It is highest with
    the largest weights before it and the smallest after it.
    """
    min_weights, max_weights = band.weights(temperature)
    before, after = float(max_weights[:index].sum()), float(min_weights[index:].sum())
    if before > 0 and before > (uniform - _SLACK) * (before + after):
        return True
    before, after = float(min_weights[: index + 1].sum()), float(max_weights[index + 1 :].sum())
    return after > 0 and before <= (uniform + _SLACK) * (before + after)


def _top_k(band: Band, sampling: SamplingParams) -> tuple[BoolArray, BoolArray]:
    """Return the tokens that top-k surely keeps, and those that it may keep.

    It surely keeps a token whose lower bound is above the (k+1)-th largest upper bound.
    It may keep one whose upper bound is not below the k-th largest lower bound.
    """
    k = sampling.top_k
    if not 0 < k < len(band.low):
        return _all(band)
    high = np.partition(band.high, len(band.high) - k - 1)[len(band.high) - k - 1]
    low = np.partition(band.low, len(band.low) - k)[len(band.low) - k]
    return band.low > high, band.high >= low


def _typical(band: Band, sampling: SamplingParams) -> tuple[BoolArray, BoolArray]:
    """Return the tokens that typical-p surely keeps, and those that it may keep.

    Tokens are ordered by their distance from the mean logit, which has bounds too.
    """
    if sampling.typical_p == 1:
        return _all(band)
    mean = Interval(*_mean_bounds(band))
    # At most one of these distances is positive.
    below, above = mean.low - band.high, band.low - mean.high
    nearest = np.maximum(np.maximum(below, above), 0.0)
    farthest = np.maximum(mean.high - band.low, band.high - mean.low)
    return _by_mass(band, Interval(-farthest - _SLACK, -nearest + _SLACK), sampling.typical_p)


def _mean_bounds(band: Band) -> tuple[float, float]:
    """Return bounds on the mean logit, for all logits and weights within their bounds.

    A weighted mean is largest with the most weight on the largest values and the least
    weight on all others, for some split between them.
    """
    min_weights, max_weights = band.weights()
    results = []
    for sign, values in ((-1, band.low), (1, band.high)):
        shifted = sign * (values - band.peak)
        order = np.argsort(-shifted)
        shifted, gain = shifted[order], (max_weights - min_weights)[order]
        weight = min_weights.sum() + np.cumsum(gain)
        total = (min_weights[order] * shifted).sum() + np.cumsum(gain * shifted)
        mean = float((total[weight > 0] / weight[weight > 0]).max())
        results.append(sign * (mean + 10 * _SLACK) + band.peak)
    return results[0], results[1]


def _top_p(band: Band, sampling: SamplingParams) -> tuple[BoolArray, BoolArray]:
    """Return the tokens that top-p surely keeps, and those that it may keep."""
    return _all(band) if sampling.top_p == 1 else _by_mass(band, Interval(band.low, band.high), sampling.top_p)


def _by_mass(band: Band, key: Interval[FloatArray], p: float) -> tuple[BoolArray, BoolArray]:
    """Return the tokens that a filter by mass surely keeps, and those that it may keep.

    The filter takes tokens, largest key first, until they hold the share p: it keeps a
    token if those before it hold less. A token is surely kept if this holds even when
    all tokens that may precede it have their largest mass and the others their
    smallest. It may be kept if this holds when only the tokens that must precede it do
    so, with their smallest mass, and the others have their largest.
    """
    n = len(key.low)
    min_weights, max_weights = band.weights()
    order = np.argsort(key.high)
    n_after = np.searchsorted(key.high[order], key.low)
    before = _tail_sums(max_weights[order])[n_after] - max_weights
    after = _head_sums(min_weights[order])[n_after] + min_weights + band.tail.low
    sure = (before <= (p - _SLACK) * (before + after)) | (n - n_after == 1)
    # The same for the tokens that may be kept.
    order = np.argsort(key.low)
    n_after = np.searchsorted(key.low[order], key.high, side="right")
    before = _tail_sums(min_weights[order])[n_after]
    after = _head_sums(max_weights[order])[n_after] + band.tail.high
    maybe = (before < (p + _SLACK) * (before + after)) | (before == 0)
    return sure, maybe


def _min_p(band: Band, sampling: SamplingParams) -> tuple[BoolArray, BoolArray]:
    """Return the tokens that min-p surely keeps, and those that it may keep.

    A token is surely kept if its lower bound reaches `min_p` times the upper bound of
    every other token. It may be kept if its upper bound reaches `min_p` times the lower
    bound of every token that is sure so far. (The logarithms are compared.)
    """
    if sampling.min_p == 0:
        return _all(band)
    share = float(np.log(sampling.min_p))
    others = np.full(len(band.high), band.peak)
    top = int(np.argmax(band.high))
    others[top] = np.delete(band.high, top).max(initial=-np.inf)
    floor = band.low[band.sure].max(initial=-np.inf)
    return band.low >= others + share + _SLACK, band.high >= floor + share - _SLACK


def _all(band: Band) -> tuple[BoolArray, BoolArray]:
    """Return all tokens as those that are surely kept, and as those that may be."""
    everything = np.ones(len(band.low), dtype=np.bool_)
    return everything, everything


def _head_sums(x: FloatArray) -> FloatArray:
    """Return the sums of the first 0..n values, float64[n+1]."""
    return np.concatenate([[0.0], np.cumsum(x)])


def _tail_sums(x: FloatArray) -> FloatArray:
    """Return the sums of all but the first 0..n values, float64[n+1].

    Each is summed from the last value on, so nothing cancels.
    """
    return np.concatenate([np.cumsum(x[::-1])[::-1], [0.0]])


@dataclass(frozen=True, slots=True)
class Draw:
    """A token that was drawn.

    Attributes:
        token: The token's id.
        close: Whether a change of every logit by at most the tolerance could change the
            token. It is never False where it could (see `could_change`).
        logp: The token's log-probability under the full softmax, if it was read.
    """

    token: int
    close: bool
    logp: float | None = field(default=None, compare=False)


class Sampler:
    """The sampler chain of one sequence, with the recent tokens that penalties count.

    Args:
        sampling: The options of the chain.
        history: int[T], the prompt's tokens.
    """

    def __init__(self, sampling: SamplingParams, history: Iterable[int] | IntArray) -> None:
        self._sampling = sampling
        n = sampling.penalty_last_n if sampling.penalises else 0
        self._recent: deque[int] = deque(maxlen=None if n < 0 else n)
        self._counts: Counter[int] = Counter()
        self._adjustments: Adjustments | None = None
        if n:
            tokens = np.asarray(history, dtype=np.int64).tolist()
            for token in tokens if n < 0 else tokens[-n:]:
                self.accept(token)

    @property
    def n_top(self) -> int:
        """Return how many of the most probable allowed tokens a draw reads.

        0 means that it reads the whole row. A greedy draw from unchanged logits reads
        two tokens: the one it draws, and the one that may be close to it.
        """
        options = self._sampling
        is_plain = not options.penalises and not options.logit_bias
        return 2 if options.temperature == 0 and options.typical_p == 1 and is_plain else 0

    def accept(self, token: int) -> None:
        """Record a token that was drawn, for the penalties."""
        if not self._sampling.penalises:
            return
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._recent.append(token)
        self._counts[token] += 1
        self._adjustments = None

    def draw(
        self,
        rows: Rows,
        i: int,
        uniform: float,
        *,
        allowed: BoolArray | IntArray | None = None,
        tolerance: float = 0.0,
    ) -> Draw:
        """Draw the first token, by id, whose cumulative probability exceeds `uniform`.

        Args:
            uniform: A number in [0, 1).
            allowed: bool[V] or ids; None means all.
            tolerance: Nats by which each logit may be off; with 0, `close` is not
                computed.

        Raises:
            DeadEndError: If no allowed token is possible.
            NonFiniteLogitsError: If the largest logit is not finite.
            TokenRangeError: For a bias or count of a token that does not exist.
        """
        if self.n_top:
            return self._best(rows, i, allowed, tolerance)
        if self._adjustments is None:
            self._adjustments = Adjustments.of(self._sampling, self._counts)
        pool = Pool.of(rows.logits(i), self._adjustments, allowed, row=i)
        ids, p = distribution(pool, self._sampling)
        index = 0
        if len(ids) > 1:
            cumulative = np.cumsum(p)
            cumulative /= cumulative[-1]
            index = int(np.searchsorted(cumulative, uniform, side="right"))
        token = int(ids[index])
        return Draw(token, tolerance > 0 and could_change(pool, token, uniform, self._sampling, tolerance))

    def _best(self, rows: Rows, i: int, allowed: BoolArray | IntArray | None, tolerance: float) -> Draw:
        """Draw the most probable allowed token, the smallest id of several."""
        ids, logp = rows.top(i, self.n_top, allowed)
        if not len(ids):
            n_allowed = 0 if allowed is None else len(np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed)
            raise DeadEndError(n_allowed)
        gap = float(logp[0] - logp[1]) if len(ids) > 1 else np.inf
        return Draw(int(ids[0]), tolerance > 0 and is_close_to_best(gap, tolerance), float(logp[0]))
