"""Whether a small change of the logits could change a draw.

Every logit lies somewhere between two bounds. From these follow, for each filter of the chain, the tokens it keeps
wherever in their bounds the logits lie (**sure**) and those it keeps for some (the rest: **maybe**), and from them bounds
on both edges of the drawn token's interval. A draw is close unless the token is sure and the drawn number lies within the
interval for all of them. So a draw that is not close is certain; one that is close may be safe: bounds of one step are not
tied to those of the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray
from selectrie.decoding.sampling.chain import MARGINS, Pool, Positions, log_total_of, not_above, top_k
from selectrie.options import Sampling

_HOPELESS = 100.0
"""Nats; a tolerance as large as this says nothing about the draw."""
_EXP32 = 1e-6
"""Relative error of sums of exponentials in float32, with room to spare."""
_SLACK = 1e-9
"""Room for rounding in sums of float64, far above it and far below any tolerance."""


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Tokens that may be drawn, by ascending id, and where their adjusted logits lie.

    low, high: float64[m], finite. sure: bool[m], kept by all filters so far. tail_low, tail_high: bounds on the summed
    exponentials of further tokens that no filter can keep and none can stand before, in units of exp(peak).
    """

    low: FloatArray
    high: FloatArray
    sure: BoolArray
    tail_low: float = 0.0
    tail_high: float = 0.0

    @property
    def peak(self) -> float:
        return float(self.high.max())

    def weights(self, temperature: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """float64[m] twice: the least (0 unless sure) and the most that exp((logit - peak) / temperature) can be."""
        peak = self.peak
        with np.errstate(over="ignore", under="ignore"):
            least = numerics.exp((self.low - peak) / temperature)
            most = numerics.exp((self.high - peak) / temperature)
        return np.where(self.sure, least, 0.0), most

    def only(self, sure: BoolArray, maybe: BoolArray) -> Band:
        """What a filter leaves: the tokens it may keep, of which those stay sure that it surely keeps."""
        sure = sure & self.sure
        kept = maybe | sure
        return replace(self, low=self.low[kept], high=self.high[kept], sure=sure[kept])


def could_change(pool: Pool, token: int, uniform: float, sampling: Sampling, tolerance: float) -> bool:
    """Could another token than the one drawn be, with every raw logit moved by at most `tolerance` nats?

    Never false where it could. A move of all by one amount is none, but for the repetition penalty; so logits may be read
    as log-probabilities.
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
    band = Band(low, high, np.ones(len(ids), dtype=np.bool_), *tails)
    return is_close(band, int(np.searchsorted(ids, token)), uniform, sampling)


def _all_that_may_stay(pool: Pool, sampling: Sampling, widest: float) -> tuple[Positions, tuple[float, float]]:
    """Positions of all tokens that the filters could keep with each logit moved by at most `widest`, and bounds on the
    mass of the others where top-p counts it, in units of the exponential of the largest moved logit.

    Two logits can change places where they are within 2 widest; where others are counted, no token that may stay is
    within that of them.
    """
    values, peak = pool.values, pool.peak
    if sampling.temperature == 0 and sampling.typical_p == 1:
        return np.flatnonzero(values >= not_above(peak - 2 * widest)), (0.0, 0.0)
    if 0 < sampling.top_k < len(values):
        least = float(values[top_k(values, sampling.top_k)].min())
        return np.flatnonzero((values >= not_above(least - 2 * widest)) & (values > -np.inf)), (0.0, 0.0)
    everything = np.flatnonzero(values > -np.inf)
    if sampling.typical_p < 1 or (sampling.top_p == 1 and sampling.min_p == 0):
        return everything, (0.0, 0.0)
    total = 0.0 if sampling.top_p == 1 else math.exp(log_total_of(values) - peak)
    margin = -math.log(sampling.min_p) if sampling.min_p > 0 else _margin_of_top_p(pool, sampling.top_p, widest, total)
    if math.isinf(margin):
        return everything, (0.0, 0.0)
    near, mass = _near(pool, margin + 4 * widest)
    rest = total - mass
    least, most = max(rest - _EXP32 * total, 0.0), max(rest, 0.0) + _EXP32 * total
    return near, (least * math.exp(-2 * widest), most * math.exp(widest))


def _margin_of_top_p(pool: Pool, p: float, widest: float, total: float) -> float:
    """Nats below the peak within which top-p is full, however the logits are moved by at most `widest`; inf: not known."""
    for margin in MARGINS:
        _, mass = _near(pool, margin)
        least, most = mass * math.exp(-widest), (max(total - mass, 0.0) + _EXP32 * total) * math.exp(widest)
        if least >= (p + _SLACK) * (least + most):
            return margin
    return math.inf


def _near(pool: Pool, margin: float) -> tuple[Positions, float]:
    """Positions of logits at most `margin` below the peak, and their summed exponentials in units of exp(peak)."""
    near = np.flatnonzero(pool.values >= not_above(pool.peak - margin))
    return near, float(numerics.exp(pool.values[near].astype(np.float64) - pool.peak).sum())


def is_close(band: Band, place: int, uniform: float, sampling: Sampling) -> bool:
    """Could logits within the band have made the draw another than token `place` of it?

    band: before any filter, and all that top-k, top-p or min-p can keep for logits within it.
    """
    if sampling.temperature == 0 and sampling.typical_p == 1:  # no filter drops the most probable
        return _other_may_be_largest(band, place)
    marked = np.zeros(len(band.low), dtype=np.bool_)
    marked[place] = True
    for step in (_top_k, _typical, _top_p, _min_p):
        sure, maybe = step(band, sampling)
        if not (sure & band.sure)[marked].all():
            return True
        marked, band = marked[maybe | (sure & band.sure)], band.only(sure, maybe)
    place = int(np.argmax(marked))
    if sampling.temperature == 0:
        return _other_may_be_largest(band, place)
    return _edges_may_cross(band, place, uniform, sampling.temperature)


def _other_may_be_largest(band: Band, place: int) -> bool:
    return int(np.count_nonzero(band.high >= band.low[place])) > 1


def _edges_may_cross(band: Band, place: int, uniform: float, temperature: float) -> bool:
    """Could the drawn number lie outside the token's interval?

    An edge lies at before / (before + after); it is highest with the most before and the least after.
    """
    least, most = band.weights(temperature)
    before, after = float(most[:place].sum()), float(least[place:].sum())
    if before > 0 and before > (uniform - _SLACK) * (before + after):
        return True
    before, after = float(least[: place + 1].sum()), float(most[place + 1 :].sum())
    return after > 0 and before <= (uniform + _SLACK) * (before + after)


def _top_k(band: Band, sampling: Sampling) -> tuple[BoolArray, BoolArray]:
    """Sure: above the (k+1)-th largest upper bound. Maybe: not below the k-th largest lower bound."""
    k = sampling.top_k
    if not 0 < k < len(band.low):
        return _all(band)
    high = np.partition(band.high, len(band.high) - k - 1)[len(band.high) - k - 1]
    low = np.partition(band.low, len(band.low) - k)[len(band.low) - k]
    return band.low > high, band.high >= low


def _typical(band: Band, sampling: Sampling) -> tuple[BoolArray, BoolArray]:
    """By distance from the mean logit, which lies within bounds of its own."""
    if sampling.typical_p == 1:
        return _all(band)
    mean_low, mean_high = _mean_bounds(band)
    below, above = mean_low - band.high, band.low - mean_high  # of these distances at most one is positive
    nearest = np.maximum(np.maximum(below, above), 0.0)
    farthest = np.maximum(mean_high - band.low, band.high - mean_low)
    return _by_mass(band, -farthest - _SLACK, -nearest + _SLACK, sampling.typical_p)


def _mean_bounds(band: Band) -> tuple[float, float]:
    """Bounds of the mean logit under the distribution, wherever logits and weights lie.

    A weighted mean is largest with the most weight on the largest values and the least on all others, cut somewhere.
    """
    least, most = band.weights()
    results = []
    for sign, values in ((-1, band.low), (1, band.high)):
        shifted = sign * (values - band.peak)
        order = np.argsort(-shifted)
        shifted, gain = shifted[order], (most - least)[order]
        weight = least.sum() + np.cumsum(gain)
        total = (least[order] * shifted).sum() + np.cumsum(gain * shifted)
        mean = float((total[weight > 0] / weight[weight > 0]).max())
        results.append(sign * (mean + 10 * _SLACK) + band.peak)
    return results[0], results[1]


def _top_p(band: Band, sampling: Sampling) -> tuple[BoolArray, BoolArray]:
    return _all(band) if sampling.top_p == 1 else _by_mass(band, band.low, band.high, sampling.top_p)


def _by_mass(band: Band, key_low: FloatArray, key_high: FloatArray, p: float) -> tuple[BoolArray, BoolArray]:
    """What stays when the tokens of largest key stay until they hold p: those before which stands less than p.

    Sure: even with all before it that may be there, at their most, and the others at their least. Maybe: even with those
    alone that must be, at their least, and the others at their most.
    """
    n = len(key_low)
    least, most = band.weights()
    order = np.argsort(key_high)
    n_after = np.searchsorted(key_high[order], key_low)
    before = _tail_sums(most[order])[n_after] - most
    after = _head_sums(least[order])[n_after] + least + band.tail_low
    sure = (before <= (p - _SLACK) * (before + after)) | (n - n_after == 1)
    order = np.argsort(key_low)
    n_after = np.searchsorted(key_low[order], key_high, side="right")
    before = _tail_sums(least[order])[n_after]
    after = _head_sums(most[order])[n_after] + band.tail_high
    maybe = (before < (p + _SLACK) * (before + after)) | (before == 0)
    return sure, maybe


def _min_p(band: Band, sampling: Sampling) -> tuple[BoolArray, BoolArray]:
    """Sure: at its least above the share of every other's most. Maybe: at its most above the share of the sure ones' least."""
    if sampling.min_p == 0:
        return _all(band)
    share = float(np.log(sampling.min_p))
    others = np.full(len(band.high), band.peak)
    top = int(np.argmax(band.high))
    others[top] = np.delete(band.high, top).max(initial=-np.inf)
    floor = band.low[band.sure].max(initial=-np.inf)
    return band.low >= others + share + _SLACK, band.high >= floor + share - _SLACK


def _all(band: Band) -> tuple[BoolArray, BoolArray]:
    everything = np.ones(len(band.low), dtype=np.bool_)
    return everything, everything


def _head_sums(x: FloatArray) -> FloatArray:
    """float64[n+1]: sums of the first 0..n."""
    return np.concatenate([[0.0], np.cumsum(x)])


def _tail_sums(x: FloatArray) -> FloatArray:
    """float64[n+1]: sums of all but the first 0..n, each summed from its own end: no cancellation."""
    return np.concatenate([np.cumsum(x[::-1])[::-1], [0.0]])
