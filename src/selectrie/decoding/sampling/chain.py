"""The sampler chain: logits -> the distribution a token is drawn from.

Each step is a pure function and follows llama.cpp's sampler of that name (`src/llama-sampler.cpp`, `min_keep` 1), in the
order of llama.cpp's default chain (`common/sampling.cpp`). Adjusted logits are rounded to float32 as there; probabilities
are float64. Where llama.cpp leaves the order of ties open, the smaller id comes first. What an automaton forbids is
taken out before the chain.
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
from selectrie.options import Sampling

Positions = NDArray[np.int64]

MARGINS = (8.0, 16.0, 32.0)
"""Nats below the most probable token within which the tokens of top-p are looked for first: sorting a few beats sorting all."""

_NONE: Positions = np.empty(0, dtype=np.int64)
_LARGEST = float(np.finfo(np.float32).max)
_TIE_DECIMALS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """What bias and penalties do to some tokens' logits; all others are left alone.

    ids: int64[t], ascending. bias: float64[t]. counts: int64[t], occurrences among the tokens looked back.
    """

    ids: Positions
    bias: FloatArray
    counts: NDArray[np.int64]
    sampling: Sampling

    @classmethod
    def of(cls, sampling: Sampling, counts: Mapping[int, int] | None = None) -> Adjustments:
        """Those of a chain after tokens that occurred so often; positive counts."""
        known = counts if counts is not None and sampling.penalises else {}
        if not known and not sampling.logit_bias:
            return cls(_NONE, np.empty(0), _NONE, sampling)
        ids = sorted({*known, *sampling.logit_bias})
        bias = np.array([sampling.logit_bias.get(token, 0.0) for token in ids], dtype=np.float64)
        return cls(np.array(ids), bias, np.array([known.get(token, 0) for token in ids]), sampling)

    def of_logits(self, logits: FloatArray) -> FloatArray:
        """float64[t]: the adjusted logits of the tokens `ids`, rounded to float32; rises with each of them."""
        biased = add_bias(logits, self.bias)
        return penalise(biased, self.counts, self.sampling)


def add_bias(logits: FloatArray, bias: FloatArray) -> FloatArray:
    """float64[t]: logits + bias in float32 (llama.cpp `llama_sampler_logit_bias_apply`)."""
    return _float32(logits + bias)


def penalise(logits: FloatArray, counts: NDArray[np.int64], sampling: Sampling) -> FloatArray:
    """float64[t]: logits after repetition, frequency and presence penalties for tokens that occurred `counts` times.

    llama.cpp `llama_sampler_penalties_apply`: division by the repetition penalty (Keskar et al., CTRL, arXiv:1909.05858)
    for positive logits, multiplication for others; then count * frequency + presence is taken off. Count 0: unchanged.
    """
    with np.errstate(over="ignore"):
        scaled = np.where(logits <= 0, logits * sampling.repeat_penalty, logits / sampling.repeat_penalty)
        taken = counts * sampling.frequency_penalty + sampling.presence_penalty
    taken = np.clip(taken, -_LARGEST, _LARGEST)  # -inf - -inf is no number
    return np.where(counts > 0, _float32(_float32(scaled) - taken), logits)


def top_k(logits: LogitArray, k: int) -> Positions:
    """int64[], ascending: places of the k largest finite logits, ties by place (llama.cpp `llama_sampler_top_k_impl`)."""
    return np.sort(numerics.top_k(logits, k)).astype(np.int64)


def typical(logits: FloatArray, p: float) -> BoolArray:
    """bool[m]: the tokens nearest the entropy up to the first that takes their mass above p (llama.cpp
    `llama_sampler_typical_apply`; Meister et al., arXiv:2202.00666).

    The distance |-log p - H| is |E[logit] - logit|: the normaliser cancels. Distances equal to 1e-9 nats are ties.
    logits: finite; llama.cpp keeps impossible tokens in, where p log p is NaN.
    """
    p_each = numerics.softmax(logits)
    distance = np.round(np.abs(logits - float(p_each @ logits)), _TIE_DECIMALS)
    order = np.argsort(distance, kind="stable")
    n_kept = 1 + int(np.searchsorted(np.cumsum(p_each[order]), p, side="right"))
    return _marked(order[:n_kept], len(logits))


def top_p(logits: FloatArray, p: float, log_total: float) -> BoolArray:
    """bool[m]: the most probable tokens up to the first that takes their mass to p (llama.cpp `llama_sampler_top_p_apply`;
    Holtzman et al., arXiv:1904.09751).

    log_total: log of the summed exponentials of all tokens the mass is a share of; those left out of `logits` are smaller.
    """
    order = np.argsort(-logits, kind="stable")
    mass = np.cumsum(numerics.exp(logits[order] - log_total))
    n_kept = 1 + int(np.searchsorted(mass, p))
    return _marked(order[:n_kept], len(logits))


def min_p(logits: FloatArray, p: float) -> BoolArray:
    """bool[m]: tokens of at least p times the probability of the most probable one (llama.cpp
    `llama_sampler_min_p_apply`; Nguyen et al., arXiv:2407.01082)."""
    kept: BoolArray = logits >= logits.max() + np.log(p)
    return kept


def tempered(logits: FloatArray, temperature: float) -> FloatArray:
    """float64[m]: probabilities of logits / temperature; 0 gives all to the first of the largest (llama.cpp
    `llama_sampler_temp_impl`)."""
    if temperature == 0:
        result = np.zeros(len(logits))
        result[int(np.argmax(logits))] = 1.0
        return result
    with np.errstate(over="ignore"):
        return numerics.softmax((logits - logits.max()) / temperature)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Adjusted logits of what may be drawn, before any filter.

    raw: float32[V], as the model gave them. ids: int64[n], ascending; None = all. values: float32[n], adjusted.
    peak: the largest of them, finite.
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
        """int32[]: token ids of some positions."""
        ids = positions if self.ids is None else self.ids[positions]
        return ids.astype(np.int32)


def distribution(pool: Pool, sampling: Sampling) -> tuple[IntArray, FloatArray]:
    """Ids and probabilities after all filters."""
    if sampling.temperature == 0 and sampling.typical_p == 1:  # no other filter drops the most probable token
        return pool.id_of(np.array([int(np.argmax(pool.values))])), np.ones(1)
    positions, log_total = _first_filter(pool, sampling)
    logits = pool.values[positions].astype(np.float64)
    if sampling.typical_p < 1:
        kept = typical(logits, sampling.typical_p)
        positions, logits = positions[kept], logits[kept]
    if sampling.top_p < 1:
        kept = top_p(logits, sampling.top_p, numerics.logsumexp(logits) if log_total is None else log_total)
        positions, logits = positions[kept], logits[kept]
    if sampling.min_p > 0:
        kept = min_p(logits, sampling.min_p)
        positions, logits = positions[kept], logits[kept]
    return pool.id_of(positions), tempered(logits, sampling.temperature)


def _first_filter(pool: Pool, sampling: Sampling) -> tuple[Positions, float | None]:
    """Positions that top-k leaves, or all that are possible; cut to those that top-p and min-p can leave where that is
    cheap, and then the log-sum-exp of what they were cut from."""
    values = pool.values
    if 0 < sampling.top_k < len(values):
        return top_k(values, sampling.top_k), None
    if sampling.typical_p < 1 or (sampling.top_p == 1 and sampling.min_p == 0):
        return np.flatnonzero(values > -np.inf), None
    log_total = 0.0 if sampling.top_p == 1 else log_total_of(values)
    if sampling.min_p > 0:  # both leave the most probable ones, so their order does not matter
        return np.flatnonzero(values >= not_above(pool.peak + math.log(sampling.min_p))), log_total
    log_p = math.log(sampling.top_p) if sampling.top_p > 0 else -math.inf
    for margin in MARGINS:
        near = np.flatnonzero(values >= not_above(pool.peak - margin))
        if numerics.logsumexp(values[near].astype(np.float64)) - log_total >= log_p:
            return near, log_total
    return np.flatnonzero(values > -np.inf), log_total


def log_total_of(values: LogitArray) -> float:
    """Log-sum-exp of float32[n], not all -inf."""
    return float(numerics.logsumexp_rows(values[None], np.zeros(1, dtype=np.int64))[0])


def _marked(positions: Positions, n: int) -> BoolArray:
    """bool[n]: true at these positions."""
    result = np.zeros(n, dtype=np.bool_)
    result[positions] = True
    return result


def _float32(x: FloatArray) -> FloatArray:
    """Rounded to float32; too large becomes the largest, too small -inf."""
    with np.errstate(over="ignore"):
        return np.minimum(x, _LARGEST).astype(np.float32).astype(np.float64)


def not_above(x: float) -> np.float32:
    """The float32 next to x that is not above it: compared in float32, an array is not copied to float64."""
    near: np.float32 = np.float32(x)
    if near > x:
        near = np.nextafter(near, np.float32(-np.inf))
    return near
