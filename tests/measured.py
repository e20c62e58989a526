"""How far layout moves rows on the machine at hand, and how far it may do so at all."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from selectrie.backends.llama_cpp import LlamaOptions, open_model
from selectrie.selfcheck import self_check
from selectrie.types import ModelKind, SelfCheck

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


@cache
def measured(path: Path) -> SelfCheck:
    """The self-check of a model on this machine; its figure is held to the ceiling of its kind."""
    with open_model(path, LlamaOptions(n_threads=1)) as model:
        check = self_check(model)
        file_type, kind = model._weights.metadata_int("general.file_type"), model.limits.kind
    name = {0: "f32", 1: "f16"}.get(file_type, "quantised")
    if kind in (ModelKind.SLIDING_WINDOW, ModelKind.HYBRID):
        name = kind.value
    assert check.moved <= CEILING_NATS[name], f"{path.name}: {check} is above the ceiling of {name}"
    return check


def row_nats(path: Path) -> float:
    """Nats by which any log-probability of a row may move on this machine."""
    return WHOLE_ROW * measured(path).tolerance
