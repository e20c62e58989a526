"""Bring a sampler of your own: sequential Monte Carlo, on the model port alone.

    python examples/smc_sampler.py [model.gguf or folder]

The texts must not contain the letter "e". Masking alone draws every token from those that are allowed, and does not notice
when nearly all that the model would have said was forbidden. Here each of several texts, a particle, has a weight: the product of
the probabilities of the allowed tokens at its steps. Particles with small weights are replaced by copies of those with large
ones. So the texts are distributed as the model's own texts that happen to have no "e", and the mean weight is an unbiased
estimate of how probable such texts are.

The function `smc` uses the model port (`selectrie.core.model.Model`) and nothing else, so it works on every back end. All
particles form one tree: equal texts are one node, and each step is one call.
"""

from __future__ import annotations

import math
import sys
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Model, chain
from selectrie.core.rows import Reads
from selectrie.core.types import ROOT, FloatArray, IntArray
from selectrie.engine.sources import resolve

PROMPT = "Once upon a time there was a"
LETTERS = b"eE"


@dataclass(frozen=True)
class Particles:
    texts: IntArray  # int32[n, T], the tokens of each particle after the prompt
    log_weights: FloatArray  # float64[n], relative to each other
    log_z: float  # estimate of the log of the probability that T tokens satisfy the constraint
    n_resampled: int


def systematic(weights: FloatArray, offset: float) -> NDArray[np.int64]:
    """Choose n of n particles. On average over offsets in [0, 1), one of weight w is chosen n w times."""
    points = (np.arange(len(weights)) + offset) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), points, side="right"), len(weights) - 1)


def smc(
    model: Model, prompt: IntArray, allowed: IntArray, *, n: int, n_tokens: int, seed: int, least_ess: float = 0.5
) -> Particles:
    """Draw n texts of `allowed` tokens; resample where the effective sample size is less than this share of n."""
    rng, every = np.random.default_rng(seed), np.ones(n, dtype=np.bool_)
    texts, log_weights, log_z, n_resampled = np.empty((n, 0), dtype=np.int32), np.zeros(n), 0.0, 0
    is_last = np.arange(len(prompt)) == len(prompt) - 1
    call = model.extend(chain(ROOT, len(prompt)), prompt, is_last, is_last)
    held, at = call.nodes, np.full(n, len(prompt) - 1)  # of each particle: its node among those held
    row = np.zeros(n, dtype=np.int64)  # and its row among those of the last call
    for step in range(n_tokens):
        if step:
            call = model.extend(held[at], texts[:, -1], every, every)
            model.release(held, forget=True)
            held, at, row = call.nodes, np.arange(n), np.arange(n)
        n_rows = len(call.rows)
        logp = call.rows.fetch(lambda n_rows=n_rows: Reads.everything(n_rows)).logp(row[:, None], allowed)
        log_weights = log_weights + np.logaddexp.reduce(logp, axis=1)
        total = float(np.logaddexp.reduce(log_weights))
        if total == -math.inf:  # no particle can go on: the estimate is 0
            break
        weights = np.exp(log_weights - total)
        if 1 / np.square(weights).sum() < least_ess * n:
            log_z += total - math.log(n)
            chosen = systematic(weights, rng.random())
            at, texts, logp, log_weights = at[chosen], texts[chosen], logp[chosen], np.zeros(n)
            n_resampled += 1
        drawn = allowed[np.argmax(logp + rng.gumbel(size=logp.shape), axis=1)]
        texts = np.column_stack([texts, drawn])
    model.release(held, forget=True)
    log_z += float(np.logaddexp.reduce(log_weights)) - math.log(n)
    return Particles(texts, log_weights, log_z, n_resampled)


def without_letters(model: Model, letters: bytes) -> IntArray:
    """The tokens that spell something, and none of these letters."""
    control = set(model.vocabulary.control.tolist()) | set(model.vocabulary.eog.tolist())
    pieces = enumerate(model.vocabulary.pieces)
    return np.array(
        [token for token, piece in pieces if piece and token not in control and not set(piece) & set(letters)],
        dtype=np.int32,
    )


def main() -> None:
    source = resolve(sys.argv[1] if sys.argv[1:] else None, None, {})
    with closing(source.backend.open_model(source.opened, source.options)) as model:
        vocabulary = model.vocabulary
        prompt, allowed = vocabulary.encode(PROMPT.encode()), without_letters(model, LETTERS)
        if vocabulary.bos is not None:
            prompt = np.concatenate([[vocabulary.bos], prompt]).astype(np.int32)
        n = min(32, model.limits.sequences // 2, model.limits.rows_per_call)
        drawn = smc(model, prompt, allowed, n=n, n_tokens=16, seed=1)
    print(f"{len(allowed)} of {vocabulary.n_tokens} tokens have no {LETTERS.decode()!r}")
    print(
        f"16 tokens without one: p about {math.exp(drawn.log_z):.2g}, by {n} particles, resampled {drawn.n_resampled} times"
    )
    order = np.argsort(-drawn.log_weights, kind="stable")
    shown = dict.fromkeys(vocabulary.decode(drawn.texts[i]).decode("utf-8", "replace") for i in order)
    for text in list(shown)[:4]:
        print(f"  {PROMPT}{text}")


if __name__ == "__main__":
    main()
