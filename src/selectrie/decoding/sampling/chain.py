"""The sampler chain, from logits to the distribution from which a token is drawn.

Each step is a pure function and follows llama.cpp's sampler of that name
(`src/llama-sampler.cpp`, `min_keep` 1), in the order of llama.cpp's default chain
(`common/sampling.cpp`). Adjusted logits are rounded to float32 as there; probabilities
are float64. Where llama.cpp leaves the order of ties open, the smaller id comes first.
Tokens that an automaton forbids are removed before the chain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
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
