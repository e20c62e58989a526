"""The sampler chain against llama.cpp's own samplers, run on the same rows."""

from __future__ import annotations

import ctypes
import math
from collections import Counter

import llama_cpp
import numpy as np
import pytest

from selectrie.options import SamplingParams
from tests.support.sampler_chain import candidates

TOLERANCE = 2e-5
"""Of a probability: llama.cpp sums in float32."""


def of_llama_cpp(logits: np.ndarray, sampling: SamplingParams, history: list[int]) -> dict[int, float]:
    """Probability by token after llama.cpp's default chain."""
    n_looked = len(history) if sampling.penalty_last_n < 0 else sampling.penalty_last_n
    biases = [llama_cpp.llama_logit_bias(token=token, bias=bias) for token, bias in sampling.logit_bias.items()]
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in (
        llama_cpp.llama_sampler_init_logit_bias(
            len(logits), len(biases), (llama_cpp.llama_logit_bias * len(biases))(*biases)
        ),
        llama_cpp.llama_sampler_init_penalties(
            len(logits), n_looked, sampling.repeat_penalty, sampling.frequency_penalty, sampling.presence_penalty
        ),
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_typical(sampling.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
        llama_cpp.llama_sampler_init_dist(1),
    ):
        llama_cpp.llama_sampler_chain_add(chain, sampler)
    try:
        for token in history:
            llama_cpp.llama_sampler_accept(chain, token)
        rows = [llama_cpp.llama_token_data(token, float(logit), 0.0) for token, logit in enumerate(logits)]
        data = (llama_cpp.llama_token_data * len(rows))(*rows)
        left = llama_cpp.llama_token_data_array(data=data, size=len(rows), selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(left))
        return {left.data[i].id: left.data[i].p for i in range(left.size) if left.data[i].p > 0}
    finally:
        llama_cpp.llama_sampler_free(chain)


def of_ours(logits: np.ndarray, sampling: SamplingParams, history: list[int]) -> dict[int, float]:
    """Probability by token after our chain."""
    n_looked = len(history) if sampling.penalty_last_n < 0 else min(sampling.penalty_last_n, len(history))
    ids, p = candidates(logits, sampling, counts=Counter(history[len(history) - n_looked :]))
    return {token: each for token, each in zip(ids.tolist(), p.tolist(), strict=True) if each > 0}


def drawn_case(rng: np.random.Generator) -> tuple[np.ndarray, SamplingParams, list[int]]:
    """A row, a chain and what stands before, at random. -inf and typical_p apart: llama.cpp makes NaN of them."""

    def one_of(*values: float) -> float:
        return values[rng.integers(len(values))]

    n_vocabulary = int(one_of(5, 40, 300))
    logits = rng.normal(3 * rng.normal(), one_of(0.5, 2, 5), n_vocabulary).astype(np.float32)
    typical_p = one_of(1.0, 1.0, 0.9, 0.3)
    biases = (1.5, -2.0, -math.inf if typical_p == 1 else -9.0)
    sampling = SamplingParams(
        temperature=one_of(0.0, 0.3, 0.8, 1.0, 2.0),
        top_k=int(one_of(0, 1, 5, 40, 1000)),
        top_p=one_of(1.0, 0.95, 0.5, 0.1, 0.0),
        min_p=one_of(0.0, 0.05, 0.3, 1.0),
        typical_p=typical_p,
        repeat_penalty=one_of(1.0, 1.1, 1.5, 0.8),
        presence_penalty=one_of(0.0, 0.6, -0.5),
        frequency_penalty=one_of(0.0, 0.4, -0.2),
        penalty_last_n=int(one_of(64, -1, 0, 5)),
        logit_bias=dict(zip(rng.integers(0, n_vocabulary, 3).tolist(), biases, strict=True)),
    )
    return logits, sampling, rng.integers(0, n_vocabulary, rng.integers(0, 90)).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_the_chain_is_that_of_llama_cpp(seed):
    """The same tokens with the same probabilities: order, edges of every filter, and what penalties count."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        logits, sampling, history = drawn_case(rng)
        assert of_ours(logits, sampling, history) == pytest.approx(
            of_llama_cpp(logits, sampling, history), abs=TOLERANCE
        ), sampling


def test_another_order_would_be_seen():
    """A negative check: top-p before top-k leaves other tokens than after it."""
    logits = np.log(np.array([0.3, 0.3, 0.2, 0.1, 0.1], dtype=np.float32))
    both = SamplingParams(temperature=1, top_k=3, top_p=0.7, min_p=0)
    swapped = SamplingParams(temperature=1, top_k=0, top_p=0.7, min_p=0)
    assert len(of_llama_cpp(logits, both, [])) == len(of_ours(logits, both, [])) == 2
    assert len(of_llama_cpp(logits, swapped, [])) == len(of_ours(logits, swapped, [])) == 3
