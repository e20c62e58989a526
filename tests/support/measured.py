"""How far layout moves rows on the machine at hand, and how far it may do so at all."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from selectrie import Selection
from selectrie.backends.llama_cpp.model import open_model
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.core.model import Model
from selectrie.core.types import BoolArray, FloatArray, ModelKind, SelfCheck
from selectrie.decoding.scoring.tolerance import rows_of_paths
from selectrie.engine import precision_check
from selectrie.engine.precision_check import batch_multiple, measure

CEILING_NATS = {
    "f32": 1e-4,
    "sliding-window": 1e-2,
    "hybrid": 1e-3,
    "f16": 5e-2,
    "quantised": 1.0,
}
"""The largest move that a self-check may measure, per kind of model.

f32: last bits of sums, 1e-5 measured on three builds (AVX-512, AVX2, SSE4.2).
sliding-window: the random weights of these files amplify last bits a hundredfold, 2e-3.
hybrid: a state sums over the whole path, and one row takes another kernel than two, 7e-5.
f16: a rounded activation falls into the next bucket, 8e-3.
quantised: the same with buckets of 1/127, on models of 0.1 to 2 million weights, 0.2.
A row that sees a wrong cell moves by nats.
"""

WHOLE_ROW = 3.0
"""Over the tolerance, where every token of a row is compared.

The tolerance is about one token of a row. Of 500 normal deviates the largest is three
standard deviations.
"""


def self_check(model: Model) -> SelfCheck:
    """The self-check of an idle model, or the assumed one where it tells none."""
    if batch_multiple(model.limits) > 1:
        model.set_batch_multiple(batch_multiple(model.limits))
    *_, check = measure(model)
    assert check is not None
    return check


def largest_move(model: Model) -> float:
    """The largest move of many rows of random tokens between the layouts of the self-check, in nats.

    Moves of random weights are not spread as those of text: most rows stay, and a few move by a hundred times the others.
    """
    usable = np.array([i for i, piece in enumerate(model.vocabulary.pieces) if piece], dtype=np.int32)
    n_tokens = min(64, model.limits.nodes // 2)
    largest = 0.0
    for seed in range(8):
        tokens = np.random.default_rng(seed).choice(usable, n_tokens).astype(np.int32)
        # A recurrent model, whose calls are not filled up, takes other kernels for one row than for many.
        layouts = [(0, 32), (37, 16), *([(0, 1)] if model.limits.kind.is_recurrent else [])]
        found = [drained(precision_check._evaluated(model, tokens, n_foreign=n, step=step)) for n, step in layouts]
        largest = max(largest, float(np.ptp(np.stack(found), axis=0).max()))
    return largest


def drained(steps: Generator[None, None, FloatArray]) -> FloatArray:
    """What a generator returns."""

    def returned() -> Generator[None, None, None]:
        found.append((yield from steps))

    found: list[FloatArray] = []
    for _ in returned():
        pass
    return found[0]


@cache
def measured(path: Path) -> SelfCheck:
    """The self-check of a model on this machine, whose tolerance is four times the largest move of many rows if that is more.

    The move is held to the ceiling of its kind.
    """
    with open_model(path, LlamaOptions(n_threads=1)) as model:
        check = self_check(model)
        moved = max(check.moved, largest_move(model))
        check = replace(check, moved=moved, tolerance=max(check.tolerance, 4 * moved))
        name, kind = model.identity.weights, model.limits.kind
    if kind in (ModelKind.SLIDING_WINDOW, ModelKind.HYBRID):
        name = kind.value
    assert check.moved <= CEILING_NATS[name], f"{path.name}: {check} is above the ceiling of {name}"
    return check


def row_nats(path: Path) -> float:
    """Nats by which any log-probability of a row may move on this machine."""
    return WHOLE_ROW * measured(path).tolerance


def score_nats(selection: Selection) -> FloatArray:
    """float64[C]: nats by which layout may move each choice's `logp`, by the tolerance that the answer states.

    Of every row that it is read from, those that spell healed bytes included.
    """
    trie = selection.choices.trie
    n_rows = rows_of_paths(trie, selection.terminator)[trie.path_of] + len(selection.healed)
    return (selection.signature.tolerance or 0.0) * n_rows


def assert_same_logp(found: Selection, expected: FloatArray, finished: BoolArray | None = None) -> None:
    """Log-probabilities of choices are equal but for what layout may move. finished: those to compare, None = all."""
    nats = score_nats(found)
    assert len(nats) == len(expected)
    which = np.ones(len(nats), dtype=bool) if finished is None else finished
    moved = np.abs(found.choices.logp - expected)
    assert (moved[which] <= nats[which]).all(), (moved[which].max(), nats[which])
