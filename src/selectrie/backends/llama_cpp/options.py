"""The options of llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.core.types import Precision
from selectrie.errors import OptionError
from selectrie.options import at_least, flag, one_of

USUAL_TOKENS = 8192
"""Default of `n_ctx` for models that were trained on longer texts."""
MAX_THREADS = 512
"""GGML_MAX_N_THREADS (ggml.h); more threads end the process."""
MAX_CELLS = 1 << 30
"""Limit for the tokens held and for the rows of a call.

Positions are signed 32-bit integers, and the rows of a call are added to the tokens.
"""
MAX_GPU_LAYERS = (1 << 31) - 1
"""The number of layers is an `int32_t`."""


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """Options for opening a model.

    Attributes:
        n_ctx: Maximum number of tokens held at once, at most 2³⁰. None: the training
            context, at most `USUAL_TOKENS`, less if memory is short.
        n_batch: Maximum number of rows per call, at most 2³⁰; less if the rows' logits
            would take more than 384 MiB.
        n_threads: Number of threads. None: those of a shared `Llama`; otherwise one per
            core, or a single one for models below 20 M weights.
        n_gpu_layers: Number of layers put on a GPU, -1 for all.
        precision: See `selectrie.core.types.Precision`.
        verbose: Whether to show llama.cpp's log on stderr.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    n_threads: int | None = None
    n_gpu_layers: int = 0
    precision: Precision = Precision.EXACT
    verbose: bool = False

    def __post_init__(self) -> None:
        at_least("n_ctx", self.n_ctx, 8, max_value=MAX_CELLS)
        at_least("n_batch", self.n_batch, 8, max_value=MAX_CELLS, optional=False)
        at_least("n_threads", self.n_threads, 1)
        if self.n_threads is not None and self.n_threads > MAX_THREADS:
            raise OptionError("n_threads", self.n_threads, f"at most {MAX_THREADS}")
        at_least("n_gpu_layers", self.n_gpu_layers, -1, max_value=MAX_GPU_LAYERS, optional=False)
        one_of("precision", self.precision, tuple(p.value for p in Precision))
        object.__setattr__(self, "precision", Precision(self.precision))
        flag("verbose", self.verbose)
