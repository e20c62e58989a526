"""Attention over a tree of contexts: the cells, and the function that reads them.

Each layer keeps keys and values in cells. A node of the tree has one cell, the same in
every layer, and a row sees the cells of its own path. Positions are given explicitly,
so one call can have rows of any depth.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from selectrie.core.types import BoolArray, OffsetArray
from selectrie.errors import ModelError

ATTENTION = "selectrie"
"""Name of our attention function.

No mask function has this name, so models that use it build no mask.
"""
CELL_MULTIPLE = 64
"""A call reads a multiple of this many cells."""
EXACT_BATCH_MULTIPLE = 8
"""In `exact` precision, calls are padded to a multiple of this many rows.

The same rows then go through the same kernels, however they are cut into calls. This
was measured for float32 and bfloat16 on x86-64, where calls of 1 to 3 rows differ.
"""
_GATHERED_BYTES = 1 << 26
_GATHERED_BYTES_ON_CPU = 1 << 22
"""Maximum size of the keys and values that are gathered at once.

On the CPU, smaller parts stay in its cache until they are read: 512 rows of 256 cells
with 2 heads of 64 took 108 ms at once, and 44 ms in parts of 4 MiB.
"""

_running = threading.local()


@dataclass(slots=True, eq=False)
class ModuleCall:
    """One forward pass of a module.

    Attributes:
        stop: Setting this event interrupts the forward pass.
    """

    stop: threading.Event

    is_traced = False
    """Whether operations are recorded for a compiler instead of being run."""


@dataclass(slots=True, eq=False)
class TreeCall(ModuleCall):
    """The cells that the rows of one forward pass write, and those that they see.

    There are R rows and C cells.

    Attributes:
        cells: int64[R], the cell that each row writes; ascending.
        visible: bool[R, C], the cells that each row may see; its own is among them.
        positions: int64[R], the position of each row.
        cell_positions: int64[C], the position that each cell holds.
        in_path_order: Whether the cells of each row are gathered in the order of its
            path. The bits of a row then do not depend on which cells these are.
        windows: Sizes of the sliding windows that layers asked for.
        n_stored: Number of layers that have stored keys and values.
        n_attended: Number of layers that have read them by `tree_attention`.
        is_finite: bool[R], whether all numbers that a row has stored are finite; None
            before the first layer.
    """

    cells: OffsetArray
    visible: BoolArray
    positions: OffsetArray
    cell_positions: OffsetArray
    in_path_order: bool = False
    windows: set[int] = field(default_factory=set)
    n_stored: int = 0
    n_attended: int = 0
    is_finite: Tensor | None = None
    _on_device: dict[Any, Any] = field(default_factory=dict)

    @property
    def n_cells(self) -> int:
        """Return C, the number of cells that are read."""
        return int(self.visible.shape[1])

    def index(self, device: torch.device) -> Tensor:
        """Return the cells that the rows write, int64[R]."""
        return self._memoize(("cells", device), lambda: self._tensor(self.cells, device))

    def zero_non_finite(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values with zeros for rows whose numbers are not finite.

        A hidden cell is read with weight 0, and 0 times NaN is NaN, so such a row would
        make all others NaN. `is_finite` records which rows are finite.

        Args:
            keys: [1, key heads, R, width].
            values: [1, key heads, R, value width].
        """
        found = (keys.isfinite().all(3) & values.isfinite().all(3)).all(1)[0]
        self.is_finite = found if self.is_finite is None else self.is_finite & found.to(self.is_finite.device)
        hidden = ~found[None, None, :, None]
        return keys.masked_fill(hidden, 0), values.masked_fill(hidden, 0)

    def mask(self, window: int | None, device: torch.device) -> Tensor:
        """Return which cells each row sees, bool[1, 1, R, C].

        `window` is the number of positions that a row sees; None means all.
        """
        return self._memoize(
            ("mask", window, device), lambda: self._tensor(self._visible_cells(window), device)[None, None]
        )

    def bias(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the numbers to add to scores, [1, 1, R, C].

        They are 0 for cells that a row sees, and the lowest finite number for others.
        """

        def make() -> Tensor:
            hidden = ~self.mask(None, device)
            return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, torch.finfo(dtype).min)

        return self._memoize(("bias", dtype, device), make)

    def distance(self, device: torch.device) -> Tensor:
        """Return the position that each cell holds, float32[C], for ALiBi's biases."""
        return self._memoize(("distance", device), lambda: self._tensor(self.cell_positions, device).float())

    def paths(self, window: int | None, device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return the cells that each row sees, in the order of its path.

        Rows are grouped by the number of cells, rounded up to a multiple of
        `CELL_MULTIPLE`, so that the length of a sum depends on the path alone.

        Returns:
            For each group of n rows: int64[n], the rows; int64[n, L], their cells;
            bool[n, L], which of these are cells and not padding.
        """

        def make() -> list[tuple[Tensor, ...]]:
            return [tuple(self._tensor(one, device) for one in group) for group in self._groups(window)]

        paths: list[tuple[Tensor, Tensor, Tensor]] = self._memoize(("paths", window, device), make)
        return paths

    def _visible_cells(self, window: int | None) -> BoolArray:
        """Return the cells that each row sees within a window, bool[R, C]."""
        if window is None:
            return self.visible
        near: BoolArray = self.positions[:, None] - self.cell_positions[None, :] < window
        near &= self.visible
        return near

    @staticmethod
    def _tensor(values: Any, device: torch.device) -> Tensor:
        """Return an array as a tensor on a device."""
        return torch.from_numpy(values).to(device)

    def _groups(self, window: int | None) -> Iterator[tuple[OffsetArray, OffsetArray, BoolArray]]:
        """Yield the groups of `paths` as arrays."""
        groups: dict[int, list[tuple[int, OffsetArray]]] = {}
        for row, seen in enumerate(self._visible_cells(window)):
            cells = np.flatnonzero(seen)
            cells = cells[np.argsort(self.cell_positions[cells], kind="stable")]
            # The length of a row's sum depends on its own path alone.
            groups.setdefault(-(-len(cells) // CELL_MULTIPLE) * CELL_MULTIPLE, []).append((row, cells))
        for length, members in sorted(groups.items()):
            table = np.zeros((len(members), length), dtype=np.int64)
            there = np.zeros((len(members), length), dtype=np.bool_)
            for i, (_, cells) in enumerate(members):
                table[i, : len(cells)] = cells
                there[i, : len(cells)] = True
            yield np.array([row for row, _ in members], dtype=np.int64), table, there

    def _memoize(self, key: Any, make: Any) -> Any:
        """Return the value under a key, which `make` makes at first."""
        if key not in self._on_device:
            self._on_device[key] = make()
        return self._on_device[key]


def running_call() -> ModuleCall | None:
    """Return the call of a module that this thread is making, or None."""
    call: ModuleCall | None = getattr(_running, "call", None)
    return call


@contextmanager
def running(call: ModuleCall) -> Iterator[None]:
    """Let `running_call` return `call` in this thread, inside the `with` block."""
    _running.call = call
    try:
        yield
    finally:
        _running.call = None


def require_tree_call() -> TreeCall:
    """Return the tree call that this thread is making.

    Raises `ModelError` if there is none, because other code has called the module.
    """
    call = running_call()
    if not isinstance(call, TreeCall):
        raise ModelError(
            "this Transformers model is in use by selectrie, and its attention reads selectrie's cache; "
            "close the engine before calling the model, or load it twice"
        )
    return call


class CellLayer(CacheLayerMixin):  # type: ignore[misc]  # mypy does not follow transformers
    """The key/value cache of one layer, in cells.

    Attributes:
        keys: [1, key heads, cells, width], after the first call.
        values: [1, value heads, cells, width], after the first call.
    """

    is_sliding = False

    def __init__(self, n_cells: int) -> None:
        super().__init__()
        self._n_cells = n_cells

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the cells, like these keys and values in shape, type and device."""
        self.keys = _cells_like(key_states, self._n_cells)
        self.values = _cells_like(value_states, self._n_cells)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the rows of the running call; return the cells that it may read."""
        call = require_tree_call()
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        at = call.index(key_states.device)
        keys, values = call.zero_non_finite(key_states, value_states)
        self.keys, self.values = self._put(self.keys, at, keys), self._put(self.values, at, values)
        call.n_stored += 1
        return self.keys[:, :, : call.n_cells], self.values[:, :, : call.n_cells]

    @staticmethod
    def _put(cells: Tensor, at: Tensor, states: Tensor) -> Tensor:
        """Return the cells with these states written at `at`, int64[R]."""
        return cells.index_copy_(2, at, states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - the signature is the base's
        """Return the number of cells that the call reads, and 0."""
        return require_tree_call().n_cells, 0

    def get_seq_length(self) -> int:
        """Return the number of cells that the call reads, without its own rows.

        ALiBi models size their bias by this number, and the bias is then replaced.
        Nothing else depends on it, since positions are given explicitly.
        """
        call = running_call()
        return call.n_cells - len(call.cells) if isinstance(call, TreeCall) else 0

    def get_max_length(self) -> int:
        """Return -1: the layer limits nothing."""
        return -1


def _cells_like(states: Tensor, n_cells: int) -> Tensor:
    return states.new_zeros((1, states.shape[1], n_cells, states.shape[3]))


class CellCache(Cache):  # type: ignore[misc]  # as above
    """The cells of all layers: the key/value cache that a model is called with."""

    def __init__(self, n_layers: int, n_cells: int) -> None:
        super().__init__(layers=[CellLayer(n_cells) for _ in range(n_layers)])
        self._n_cells = n_cells
        self._spoiled: Tensor | None = None

    def mask_spoiled(self, call: TreeCall, logits: Tensor, outputs: Tensor) -> Tensor:
        """Return logits with NaN for rows whose path has numbers that are not finite.

        Args:
            call: The call that has been evaluated.
            logits: [M, V], its logits.
            outputs: int64[M], the row of the call that each row of logits belongs to.
        """
        if call.is_finite is None or (self._spoiled is None and bool(call.is_finite.all())):
            return logits
        with torch.inference_mode():
            device = call.is_finite.device
            spoiled = self._spoiled
            if spoiled is None:
                spoiled = torch.zeros(self._n_cells, dtype=torch.bool, device=device)
            spoiled[call.index(device)] = ~call.is_finite
            self._spoiled = spoiled if bool(spoiled.any()) else None
            rows = (call.mask(None, device)[0, 0] & spoiled[: call.n_cells]).any(1)
            return logits.masked_fill(rows.to(logits.device)[outputs][:, None], torch.nan)


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """The arguments of `tree_attention` by which scores become weights."""

    scale: float
    window: int | None
    softcap: float | None
    s_aux: Tensor | None


def tree_attention(  # noqa: PLR0913, PLR0917 - the signature is that of Transformers
    module: torch.nn.Module,  # noqa: ARG001 - as above
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_kwargs: Any,
) -> tuple[Tensor, None]:
    """Let each row of the running call attend to the cells that it may see.

    This is the function that Transformers' layers call, see `AttentionInterface`.

    Args:
        module: The layer.
        query: [1, heads, R, width].
        key: [1, key heads, C, width].
        value: [1, key heads, C, value width].
        attention_mask: None. A mask that a model builds itself is refused.
        scaling: Factor of the scores; None means width ** -0.5.
        sliding_window: Number of positions that a row of this layer sees, or None.
        softcap: Bound of the scores, by tanh, or None.
        s_aux: [heads], scores of the attention sinks, or None.

    Returns:
        [1, R, heads, value width], and no weights.
    """
    call = require_tree_call()
    call.n_attended += 1
    if attention_mask is not None:
        raise NotImplementedError("the model builds an attention mask of its own")
    if sliding_window is not None:
        call.windows.add(int(sliding_window))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if call.in_path_order:
        scoring = _Scoring(scale, sliding_window, softcap, s_aux)
        return _in_path_order(call, query, key, value, scoring), None
    mask = call.mask(sliding_window, query.device)
    n_shared = query.shape[1] // key.shape[1]
    if softcap is None and s_aux is None and not call.is_traced:
        # Only the CPU kernel is fast for key heads that several query heads share.
        is_shared = n_shared > 1 and query.device.type == "cpu"
        if n_shared > 1 and not is_shared:
            key, value = key.repeat_interleave(n_shared, 1), value.repeat_interleave(n_shared, 1)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=is_shared
        )
        return mixed.transpose(1, 2).contiguous(), None
    # Heads that share keys are rows of one product, so that no key is copied.
    n_heads, n_rows = query.shape[1:3]
    grouped = query.reshape(1, key.shape[1], n_shared * n_rows, -1)
    scores = ((grouped @ key.transpose(2, 3)) * scale).reshape(1, n_heads, n_rows, -1)
    weights = _weights(scores, mask, softcap, None if s_aux is None else s_aux.reshape(1, -1, 1, 1))
    mixed = weights.to(value.dtype).reshape(1, key.shape[1], n_shared * n_rows, -1) @ value
    return mixed.reshape(1, n_heads, n_rows, -1).transpose(1, 2).contiguous(), None


def _weights(scores: Tensor, mask: Tensor, softcap: float | None, sinks: Tensor | None) -> Tensor:
    """Return the float32 weights of scores [..., rows, cells].

    `sinks` has as many dimensions as the scores; its last two are 1.
    """
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    if sinks is None:
        return torch.softmax(scores, -1, dtype=torch.float32)
    sink = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([scores, sink], -1), -1, dtype=torch.float32)[..., :-1]


def _in_path_order(call: TreeCall, query: Tensor, key: Tensor, value: Tensor, scoring: _Scoring) -> Tensor:
    """Attend as `tree_attention` does, over cells gathered in the order of each path.

    A sum has only terms of the row's own cells, and their number depends on the path
    alone. So do the bits of the result, [1, R, heads, value width].
    """
    n_keys = key.shape[1]
    n_shared = query.shape[1] // n_keys
    mixed = query.new_empty((query.shape[2], query.shape[1], value.shape[3]))
    sinks = None if scoring.s_aux is None else scoring.s_aux.reshape(n_keys, 1, n_shared, 1)
    width = n_keys * (key.shape[3] + value.shape[3]) * key.element_size()
    at_once = _GATHERED_BYTES_ON_CPU if query.device.type == "cpu" else _GATHERED_BYTES
    for rows, cells, there in call.paths(scoring.window, query.device):
        # Gather few rows at a time, since every row needs a copy of its cells.
        step = max(1, at_once // (width * cells.shape[1]))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            keys, values = _gather(key[0], cells[part]), _gather(value[0], cells[part])
            grouped = query[0][:, rows[part]].reshape(n_keys, n_shared, -1, query.shape[3]).transpose(1, 2)
            scores = (grouped @ keys.transpose(2, 3)) * scoring.scale
            weights = _weights(scores, there[part][None, :, None, :], scoring.softcap, sinks)
            read = weights.to(values.dtype) @ values
            mixed[rows[part]] = read.permute(1, 0, 2, 3).reshape(-1, query.shape[1], value.shape[3])
    return mixed[None]


def _gather(states: Tensor, cells: Tensor) -> Tensor:
    """Return [heads, n, L, width], the states of int64[n, L] cells.

    `states` is [heads, C, width]. Indexing it by a table takes twice as long.
    """
    return states.index_select(1, cells.reshape(-1)).unflatten(1, cells.shape)


AttentionInterface.register(ATTENTION, tree_attention)
