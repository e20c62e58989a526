"""An estimate of the memory that a checkpoint takes, made before it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selectrie.backends.transformers import checkpoint
from selectrie.backends.transformers.caches import cache_in, may_have_cells
from selectrie.backends.transformers.cells import cells_for
from selectrie.backends.transformers.checkpoint import Checkpoint
from selectrie.backends.transformers.model import nodes_and_rows
from selectrie.backends.transformers.options import TransformersOptions
from selectrie.backends.transformers.positions import max_positions_of
from selectrie.backends.transformers.prefix import length_of
from selectrie.backends.transformers.states import bytes_of, states_for
from selectrie.backends.transformers.weights import (
    dtype_for,
    find_device,
    quantisation_of,
    quiet,
    read_config,
    skeleton,
)
from selectrie.core.types import Precision

_UNPACKED = ("fp8", "mxfp4")
"""Quantisations that Transformers computes with on a GPU, and unpacks elsewhere."""
_TYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """The bytes that a model takes.

    Attributes:
        weights: The weights, in the type that they are loaded in.
        contexts: The cells, also those of a prefix, and the bits that say which cells
            each row may see; or all states that may be kept.
        n_cells: Number of cells; 0 where contexts are states.
        call: The logits of a call with all rows, twice, as the model's own and as a
            copy.
    """

    weights: int
    contexts: int
    n_cells: int
    call: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return self.weights + self.contexts + self.call


def memory_needed(folder: Path, options: TransformersOptions) -> int:
    """Return an upper bound on the bytes of a checkpoint's weights and contexts.

    In `exact` precision cells count twice: a second context is kept, which grows to the
    longest prompt behind which near ties were settled. See `memory_needs`.
    """
    needs = memory_needs(folder, options)
    has_second = options.precision is Precision.EXACT and needs.n_cells
    return needs.total + (needs.contexts if has_second else 0)


def memory_needs(
    folder: Path,
    options: TransformersOptions,
    *,
    rows: int | None = None,
    cells_of: Callable[[int, int], int] = cells_for,
) -> MemoryNeeds:
    """Return the bytes that a checkpoint takes when it is opened with these options.

    The headers of its files are read, and the model is called with a few tokens on
    torch's `meta` device, where tensors have shapes but no data. The size of its cache
    then says how large a cell or a state is. Not included are one layer's activations.

    Args:
        folder: The folder of the checkpoint.
        options: The options.
        rows: Maximum number of rows of a call; None for what the options give.
        cells_of: Returns the number of cells of a model that holds this many nodes, and
            takes this many rows in a call.

    Raises:
        ModelFileError: A file is missing, damaged, truncated or cannot be read.
        UnsupportedModelError: The model is of a kind that does not work.
        OptionError: The device is not there.
    """
    with quiet(options.verbose):
        device = find_device(options.device)
        found = checkpoint.read_checkpoint(folder)
        config = read_config(found)
        module = skeleton(found, config)
        dtype = _dtype(found, config, options)
        weights = _weight_bytes(found, config, module, dtype, device)
        text = config.get_text_config()
        shapes = _shapes(module, dtype)
        n_vocabulary = shapes.n_vocabulary or int(getattr(text, "vocab_size", 0)) or 1
        nodes, usual_rows = nodes_and_rows(options, text, n_vocabulary, max_positions_of(text))
        rows = rows or usual_rows
        n_cells = cells_of(nodes, rows) if shapes.is_cells else 0
        if shapes.is_cells:
            n_prefix = 0 if options.prefix is None else length_of(options.prefix)  # those of `nodes` are copies
            contexts = (n_cells + n_prefix) * shapes.cell_bytes + (n_cells + 1) * (n_cells // 8)
        else:
            state = shapes.state_bytes + shapes.cell_bytes * nodes
            contexts = state * states_for(state, device)
        return MemoryNeeds(weights, contexts, n_cells, 8 * rows * n_vocabulary)


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The size of a model's cache.

    Attributes:
        is_cells: Whether contexts are kept in cells; otherwise they are states.
        cell_bytes: Bytes that the cache grows by with each token.
        state_bytes: Bytes of a context's cache that do not depend on its length.
        n_vocabulary: Number of logits of a row; 0 if it is not known.
    """

    is_cells: bool
    cell_bytes: int
    state_bytes: int
    n_vocabulary: int


def _shapes(module: Any, dtype: torch.dtype) -> _Shapes:
    """Return the size of the cache, from calls on the meta device.

    A call with two tokens and one with four are compared. If the module cannot be
    called there, the size is that of the keys and values of all heads.
    """
    for experts in (part for part in module.modules() if hasattr(part, "_is_expert_parallel")):
        experts.forward = _unchanged  # without data it is not known which rows an expert gets
    module = module.eval().to(dtype)
    try:
        with torch.no_grad():
            sizes, cache, n_vocabulary = [], None, 0
            for n_tokens in (2, 4):
                ids = torch.zeros((1, n_tokens), dtype=torch.long, device="meta")
                result = module(input_ids=ids, use_cache=True)
                cache = cache_in(result)
                sizes.append(bytes_of(cache))
                n_vocabulary = int(result.logits.shape[-1])
    except Exception:  # noqa: BLE001 - a model's own code may raise anything without data
        text = module.config.get_text_config()
        cell = 2 * dtype.itemsize * int(text.num_hidden_layers) * int(text.hidden_size)
        return _Shapes(is_cells=True, cell_bytes=cell, state_bytes=0, n_vocabulary=0)
    cell = (sizes[1] - sizes[0]) // 2
    return _Shapes(may_have_cells(module, cache), cell, sizes[0] - 2 * cell, n_vocabulary)


def _unchanged(hidden: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return hidden


def _dtype(found: Checkpoint, config: Any, options: TransformersOptions) -> torch.dtype:
    """Return the type that weights are loaded in."""
    name = dtype_for(options)
    if name == "auto":
        own = getattr(config, "dtype", None)
        types = [_TYPES[entry.dtype] for entry in found.tensors.values() if entry.dtype in _TYPES]
        name = str(own).removeprefix("torch.") if own is not None else next(iter(types), "float32")
    dtype: torch.dtype = getattr(torch, name, torch.float32)
    return dtype


def _weight_bytes(found: Checkpoint, config: Any, module: Any, dtype: torch.dtype, device: torch.device) -> int:
    """Return the bytes of the weights; of quantised weights, those of the files.

    Those that are unpacked when they are loaded count as if they were not quantised.
    """
    method = quantisation_of(config)
    if method is not None and (method not in _UNPACKED or device.type == "cuda"):
        return sum(path.stat().st_size for path in found.files)
    parameters: int = sum(p.numel() for p in module.parameters()) * dtype.itemsize
    buffers: int = sum(b.numel() * b.element_size() for b in module.buffers())
    return parameters + buffers
