"""The distribution that the sampler chain draws from."""

from __future__ import annotations

from collections.abc import Mapping

from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.decoding.sampling.chain import Adjustments, Pool, distribution
from selectrie.options import SamplingParams


def candidates(
    logits: LogitArray,
    sampling: SamplingParams,
    *,
    counts: Mapping[int, int] | None = None,
    allowed: BoolArray | IntArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """Return ids, int32[m] ascending, and their probabilities, float64[m].

    Args:
        logits: float32[V]; -inf is probability 0.
        counts: Occurrences of recent tokens, for penalties.
        allowed: bool[V] or ids; None means all.
    """
    return distribution(Pool.of(logits, Adjustments.of(sampling, counts), allowed), sampling)
