"""Turns a row of logits into a distribution, and draws a token from it.

Each step of the chain is a pure function and follows llama.cpp's sampler of that name
(`src/llama-sampler.cpp`, `min_keep` 1), in the order of llama.cpp's default chain
(`common/sampling.cpp`). Adjusted logits are rounded to float32 as there; probabilities
are float64. Where llama.cpp leaves the order of ties open, the smaller id comes first.
Tokens that an automaton forbids are removed before the chain. A draw also says whether
it is stable.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import DeadEndError, NonFiniteLogitsError, TokenRangeError
from selectrie.options import SamplingParams

Positions = NDArray[np.int64]

MARGINS = (8.0, 16.0, 32.0)
"""Nats below the most probable token within which top-p first looks for its tokens.

Sorting few tokens is cheaper than sorting all.
"""

_NONE: Positions = np.empty(0, dtype=np.int64)
_LARGEST = float(np.finfo(np.float32).max)
_TIE_DECIMALS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """Bias and penalties for the logits of some tokens; other logits stay unchanged.

    Attributes:
        ids: int64[t], the tokens, ascending.
        bias: float64[t], the bias of each token.
        counts: int64[t], how often each occurs among the recent tokens.
        sampling: The options.
    """

    ids: Positions
    bias: FloatArray
    counts: NDArray[np.int64]
    sampling: SamplingParams

    @classmethod
    def of(cls, sampling: SamplingParams, counts: Mapping[int, int] | None = None) -> Adjustments:
        """Return the bias and penalties of a chain.

        Args:
            sampling: The options.
            counts: Number of occurrences of each recent token, above 0.
        """
        known = counts if counts is not None and sampling.penalises else {}
        if not known and not sampling.logit_bias:
            return cls(_NONE, np.empty(0), _NONE, sampling)
        ids = sorted({*known, *sampling.logit_bias})
        bias = np.array([sampling.logit_bias.get(token, 0.0) for token in ids], dtype=np.float64)
        return cls(np.array(ids), bias, np.array([known.get(token, 0) for token in ids]), sampling)

    def of_logits(self, logits: FloatArray) -> FloatArray:
        """Return the adjusted logits of `ids`, float64[t], rounded to float32.

        A larger logit never gets a smaller adjusted one.

        Args:
            logits: float64[t], the raw logits of `ids`.
        """
        biased = add_bias(logits, self.bias)
        return penalise(biased, self.counts, self.sampling)


def add_bias(logits: FloatArray, bias: FloatArray) -> FloatArray:
    """Return logits + bias in float32, float64[t].

    See `llama_sampler_logit_bias_apply` in llama.cpp.
    """
    return _float32(logits + bias)


def penalise(logits: FloatArray, counts: NDArray[np.int64], sampling: SamplingParams) -> FloatArray:
    """Return logits with repetition, frequency and presence penalties, float64[t].

    See `llama_sampler_penalties_apply` in llama.cpp. Positive logits are divided by the
    repetition penalty (Keskar et al., CTRL, arXiv:1909.05858), others are multiplied by
    it. Then count * frequency + presence is subtracted. A count of 0 changes nothing.
    """
    with np.errstate(over="ignore"):
        scaled = np.where(logits <= 0, logits * sampling.repeat_penalty, logits / sampling.repeat_penalty)
        taken = counts * sampling.frequency_penalty + sampling.presence_penalty
    taken = np.clip(taken, -_LARGEST, _LARGEST)  # -inf - -inf would be NaN.
    return np.where(counts > 0, _float32(_float32(scaled) - taken), logits)


def top_k(logits: LogitArray, k: int) -> Positions:
    """Return the positions of the k largest finite logits, int64[], ascending.

    Ties go by position. See `llama_sampler_top_k_impl` in llama.cpp.
    """
    return np.sort(numerics.top_k(logits, k)).astype(np.int64)


def typical(logits: FloatArray, p: float) -> BoolArray:
    """Return bool[m], the tokens that locally typical sampling keeps.

    Tokens are taken in the order of their distance from the entropy until their summed
    probability exceeds p. See `llama_sampler_typical_apply` in llama.cpp, and Meister
    et al., arXiv:2202.00666. The distance |-log p - H| is |E[logit] - logit|, since the
    normaliser cancels. Distances that are equal to 1e-9 nats are ties.

    Args:
        logits: float64[m], finite. llama.cpp also passes impossible tokens, for which p
            log p is NaN.
        p: Probability to exceed.
    """
    p_each = numerics.softmax(logits)
    distance = np.round(np.abs(logits - float(p_each @ logits)), _TIE_DECIMALS)
    order = np.argsort(distance, kind="stable")
    n_kept = 1 + int(np.searchsorted(np.cumsum(p_each[order]), p, side="right"))
    return _mask_of(order[:n_kept], len(logits))


def top_p(logits: FloatArray, p: float, log_total: float) -> BoolArray:
    """Return bool[m], the tokens that top-p sampling keeps.

    Tokens are taken, most probable first, until their summed probability reaches p. See
    `llama_sampler_top_p_apply` in llama.cpp, and Holtzman et al., arXiv:1904.09751.

    Args:
        logits: float64[m], the largest logits.
        p: Probability to reach.
        log_total: Log of the summed exponentials of all logits, including smaller ones
            that are not in `logits`.
    """
    order = np.argsort(-logits, kind="stable")
    mass = np.cumsum(numerics.exp(logits[order] - log_total))
    n_kept = 1 + int(np.searchsorted(mass, p))
    return _mask_of(order[:n_kept], len(logits))


def min_p(logits: FloatArray, p: float) -> BoolArray:
    """Return bool[m], the tokens with at least p times the largest probability.

    See `llama_sampler_min_p_apply` in llama.cpp, and Nguyen et al., arXiv:2407.01082.
    """
    kept: BoolArray = logits >= logits.max() + np.log(p)
    return kept


def apply_temperature(logits: FloatArray, temperature: float) -> FloatArray:
    """Return the probabilities of logits / temperature, float64[m].

    With temperature 0, the first of the largest logits gets probability 1. See
    `llama_sampler_temp_impl` in llama.cpp.
    """
    if temperature == 0:
        result = np.zeros(len(logits))
        result[int(np.argmax(logits))] = 1.0
        return result
    # In place: for 152k tokens, making arrays takes longer than filling them.
    weights: FloatArray = logits - logits.max()
    if temperature != 1:
        with np.errstate(over="ignore"):
            weights /= temperature
    np.exp(weights, out=weights)
    weights /= weights.sum()
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Adjusted logits of the tokens that may be drawn, before any filter.

    Attributes:
        raw: float32[V], the model's logits.
        adjustments: Bias and penalties.
        ids: int64[n], the tokens that may be drawn, ascending; None means all.
        values: float32[n], adjusted logits.
        peak: The largest adjusted logit, finite.
    """

    raw: LogitArray
    adjustments: Adjustments
    ids: Positions | None
    values: LogitArray
    peak: float

    @classmethod
    def of(
        cls, logits: LogitArray, adjustments: Adjustments, allowed: BoolArray | IntArray | None, *, row: int = 0
    ) -> Pool:
        """Return the pool of the `allowed` tokens (bool[V], ids, or None for all).

        Raises `NonFiniteLogitsError` if the largest logit is not finite, `DeadEndError`
        if no allowed token is possible, and `TokenRangeError` for an adjustment of an
        unknown token. `row` is the row's number, for errors.
        """
        peak = float(logits.max())
        if not np.isfinite(peak):
            raise NonFiniteLogitsError(row=row, value=peak)
        values, touched = logits, adjustments.ids
        if len(touched):
            if touched[-1] >= len(logits):
                raise TokenRangeError(int(touched[-1]), len(logits))
            values = logits.copy()
            values[touched] = adjustments.of_logits(logits[touched].astype(np.float64))
        ids = None
        if allowed is not None:
            ids = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else np.unique(allowed).astype(np.int64)
            values = values[ids]
        if ids is not None or len(touched):
            peak = float(values.max(initial=-np.inf))
            if peak == -np.inf:
                raise DeadEndError(len(values))
        return cls(logits, adjustments, ids, values, peak)

    def id_of(self, positions: Positions) -> IntArray:
        """Return the token ids at `positions` of `values`, int32[]."""
        ids = positions if self.ids is None else self.ids[positions]
        return ids.astype(np.int32)


def distribution(pool: Pool, sampling: SamplingParams) -> tuple[IntArray, FloatArray]:
    """Return the tokens that all filters keep, int32[], and their probabilities."""
    # No other filter drops the most probable token.
    if sampling.temperature == 0 and sampling.typical_p == 1:
        return pool.id_of(np.array([int(np.argmax(pool.values))])), np.ones(1)
    positions, log_total = _first_filter(pool, sampling)
    values = pool.values if len(positions) == len(pool.values) else pool.values[positions]
    logits = values.astype(np.float64)
    if sampling.typical_p < 1:
        kept = typical(logits, sampling.typical_p)
        positions, logits = positions[kept], logits[kept]
    if sampling.top_p < 1:
        kept = top_p(logits, sampling.top_p, numerics.logsumexp(logits) if log_total is None else log_total)
        positions, logits = positions[kept], logits[kept]
    if sampling.min_p > 0:
        kept = min_p(logits, sampling.min_p)
        positions, logits = positions[kept], logits[kept]
    return pool.id_of(positions), apply_temperature(logits, sampling.temperature)


def _first_filter(pool: Pool, sampling: SamplingParams) -> tuple[Positions, float | None]:
    """Return the positions in `pool.values` that the first filter keeps.

    The first filter is top-k, or else it drops impossible tokens. Where it is cheap,
    the positions are also cut to those that top-p and min-p can keep. The second
    element is then the log-sum-exp of the logits before that cut; otherwise it is None.
    """
    values = pool.values
    if 0 < sampling.top_k < len(values):
        return top_k(values, sampling.top_k), None
    if sampling.typical_p < 1 or (sampling.top_p == 1 and sampling.min_p == 0):
        return np.flatnonzero(values > -np.inf), None
    log_total = 0.0 if sampling.top_p == 1 else log_total_of(values)
    # Both leave the most probable tokens, so their order does not matter.
    if sampling.min_p > 0:
        return np.flatnonzero(values >= not_above(pool.peak + math.log(sampling.min_p))), log_total
    log_p = math.log(sampling.top_p) if sampling.top_p > 0 else -math.inf
    for margin in MARGINS:
        near = np.flatnonzero(values >= not_above(pool.peak - margin))
        if numerics.logsumexp(values[near].astype(np.float64)) - log_total >= log_p:
            return near, log_total
    return np.flatnonzero(values > -np.inf), log_total


def log_total_of(values: LogitArray) -> float:
    """Return the log-sum-exp of float32[n], which must not all be -inf."""
    return float(numerics.logsumexp_rows(values[None], np.zeros(1, dtype=np.int64))[0])


def _mask_of(positions: Positions, n: int) -> BoolArray:
    """Return bool[n], true at these positions."""
    result = np.zeros(n, dtype=np.bool_)
    result[positions] = True
    return result


def _float32(x: FloatArray) -> FloatArray:
    """Return the values rounded to float32.

    Values above the largest float32 become that number; values below the lowest become
    -inf.
    """
    with np.errstate(over="ignore"):
        return np.minimum(x, _LARGEST).astype(np.float32).astype(np.float64)


def not_above(x: float) -> np.float32:
    """Return the largest float32 that is not above x.

    A float32 array can be compared with it without a copy to float64.
    """
    near: np.float32 = np.float32(x)
    if near > x:
        near = np.nextafter(near, np.float32(-np.inf))
    return near


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
