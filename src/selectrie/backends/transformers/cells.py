"""Keeps contexts in cells, or as states of recurrent and hybrid models.

A prefix is the caller's keys and values, which stand before every context of a model.
They were computed by the model, as `past_key_values` of a forward, or learned, as by
prefix tuning. They are copied when the model is opened.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Event
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
)

from selectrie.backends.node_store import CellRows, NodeCells, NodeStates, Run
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.attention import CELL_MULTIPLE, CellCache, ModuleCall, TreeCall
from selectrie.backends.transformers.module import PreparedModule, Route, full_precision, pad_outputs
from selectrie.backends.transformers.options import PREFIXES
from selectrie.core.types import ROOT, IntArray, LogitArray
from selectrie.errors import LESS_MEMORY, CapacityError, MessageText, ModelError, OptionError

MIN_NODES = 8
"""Number of tokens that must fit behind a prefix; also the minimum of `n_ctx`."""
_NEAR = 2**-6
"""Distance of a key from the expected one, relative to its length, that is allowed.

Kernels differ by less, also those that round to TF32. Keys of different tokens are
about their own length apart.
"""

Pair: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The keys and values of P tokens, on the devices of their layers.

    Attributes:
        layers: For each layer its keys, [1, heads, P, width], and its values; None for
            a layer that keeps none. They are 0 for tokens that have left a sliding
            window.
        length: Number of tokens, P.
        digest: Digest of all shapes, types and bytes.
        first_whole: Index of the first layer that has all P tokens, or None.
    """

    layers: tuple[Pair | None, ...]
    length: int
    digest: str
    first_whole: int | None

    def write(self, cache: CellCache) -> None:
        """Write the prefix into the first P cells of all layers."""
        with torch.inference_mode():
            for layer, pair in zip(cache.layers, self.layers, strict=True):
                if pair is not None:
                    layer.keys[:, :, : self.length] = pair[0]
                    layer.values[:, :, : self.length] = pair[1]

    def own_cache(self, config: Any, n_texts: int) -> DynamicCache:
        """Return a cache of the model's own kind that begins with the prefix.

        Args:
            config: The configuration of the model.
            n_texts: Number of texts that are evaluated with it at once.
        """
        cache = DynamicCache(config=config)
        for i, pair in enumerate(self.layers):
            if pair is not None:
                cache.update(*(one.expand(n_texts, -1, -1, -1) for one in pair), i)
        return cache


def begins_with(prefix: Prefix, prepared: PreparedModule, token: int) -> bool:
    """Return whether a prefix was computed from a text that begins with this token.

    The first token of a text sees only itself, so its key in a layer is known and is
    compared. If no layer has the beginning any more, returns True.
    """
    pair = None if prefix.first_whole is None else prefix.layers[prefix.first_whole]
    if pair is None:
        return True
    cache, at = prepared.new_cache(1), np.zeros(1, dtype=np.int64)
    call = TreeCall(Event(), at, np.ones((1, 1), dtype=np.bool_), at, at)
    zero = torch.zeros(1, dtype=torch.long, device=prepared.device)
    with full_precision():
        prepared.forward_tree(call, zero + token, zero, zero, cache)
    own, given = (one[:, :, 0].double() for one in (cache.layers[prefix.first_whole].keys, pair[0]))
    allowed = max(_NEAR, torch.finfo(pair[0].dtype).eps ** 0.5)
    return bool((given - own).norm() <= allowed * own.norm())


def length_of(value: Any) -> int:
    """Return the number of tokens of the caller's prefix, without checking its shapes.

    Raises `OptionError` if it is not a cache or a sequence of pairs.
    """
    return max((layer.length for layer in _read_layers(value) if layer is not None), default=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A layer of the caller's prefix: keys and values of the last n of P tokens.

    Attributes:
        keys: [1, heads, n, width]; not checked yet.
        values: [1, heads, n, width]; not checked yet.
        length: P, the number of tokens.
    """

    keys: Tensor
    values: Tensor
    length: int


def read_prefix(value: Any, prepared: PreparedModule) -> Prefix:
    """Check a caller's prefix, and return a copy of it for a prepared module.

    Args:
        value: A `DynamicCache` or `StaticCache` of Transformers, or a sequence with a
            (key, value) of each layer. Nothing is written to it.
        prepared: The module.

    Raises:
        OptionError: The model is recurrent, the value is of another kind, or it does
            not fit the model: number of layers, shapes, type, lengths that differ
            between layers, numbers that are not finite.
    """
    kind, name = type(value).__name__, prepared.name
    if prepared.route is Route.STATES:
        remedy = f"None, as {name} is recurrent or hybrid: nothing can be put before the states that it keeps"
        raise OptionError("prefix", kind, remedy)
    given, expected = _read_layers(value), prepared.cache_like
    n_given, n_expected = (sum(one is not None for one in layers) for layers in (given, expected))
    if n_given != n_expected:
        raise OptionError("prefix", kind, f"keys and values of {n_expected} layers, as {name} has them, not {n_given}")
    given = [*given, *[None] * len(expected)][: len(expected)]
    length = next((one.length for one in given if one is not None), 0)
    if not length:
        raise OptionError("prefix", kind, "one token or more; it holds none, so leave it out")
    state = blake2b(digest_size=16)
    made: list[Pair | None] = []
    for i, (layer, own) in enumerate(zip(given, expected, strict=True)):
        if layer is None or own is None:
            if own is not None or layer is not None:
                raise OptionError("prefix", kind, f"keys and values in the layers where {name} keeps them, unlike {i}")
            made.append(None)
            continue
        wrong = _describe_mismatch(layer, own, length, prepared.cache_windows[i])
        if wrong:
            raise OptionError("prefix", kind, f"{wrong} in layer {i}, as {name} has it")
        pair = (layer.keys.detach(), layer.values.detach())
        for tensor in pair:
            state.update(f"{i} {length} {tuple(tensor.shape)} {tensor.dtype} ".encode())
            state.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        made.append((_copy_padded(pair[0], own[0], length), _copy_padded(pair[1], own[1], length)))
    whole = (i for i, layer in enumerate(given) if layer is not None and layer.keys.shape[2] == length)
    return Prefix(tuple(made), length, f"blake2b:{state.hexdigest()}", next(whole, None))


def _read_layers(value: Any) -> list[_Layer | None]:
    """Return the layers of a caller's prefix; None for a layer without keys.

    Raises `OptionError` if it is neither a cache nor a sequence of pairs.
    """
    if isinstance(value, Cache) and isinstance(getattr(value, "layers", None), list):
        return [_read_layer(i, layer) for i, layer in enumerate(value.layers)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_read_pair(i, pair) for i, pair in enumerate(value)]
    raise OptionError("prefix", type(value).__name__, PREFIXES)


def _read_layer(i: int, layer: Any) -> _Layer | None:
    """Return layer i of a cache of Transformers; None if it has no keys.

    Only known classes are read. Others may keep more than keys and values, or keep
    them in another form, as quantised caches do; they raise `OptionError`.
    """
    if type(layer) not in (DummyLayer, DynamicLayer, DynamicSlidingWindowLayer, StaticLayer):
        raise OptionError("prefix", type(layer).__name__, f"{PREFIXES}; layer {i} cannot be read, so copy it into one")
    if layer.keys is None or not layer.is_initialized:
        return None
    length = int(layer.get_seq_length())
    if type(layer) is StaticLayer:
        return _Layer(layer.keys[:, :, :length], layer.values[:, :, :length], length)
    return _Layer(layer.keys, layer.values, length)


def _read_pair(i: int, pair: Any) -> _Layer | None:
    """Return layer i from a pair (key, value), or a tensor of both; None if empty.

    A `DynamicCache` that is turned into a tuple has a third item, the window's size.
    """
    parts = list(pair) if isinstance(pair, Tensor | Sequence) and not isinstance(pair, str) else []
    if len(parts) in (2, 3) and parts[0] is None and parts[1] is None:
        return None
    if len(parts) not in (2, 3) or not all(isinstance(one, Tensor) and one.dim() == 4 for one in parts[:2]):
        raise OptionError("prefix", type(pair).__name__, f"{PREFIXES}: tensors of 4 dimensions each, also in layer {i}")
    return _Layer(parts[0], parts[1], int(parts[0].shape[2]))


def _describe_mismatch(layer: _Layer, own: Pair, length: int, window: int | None) -> str:
    """Return, in words, how a layer differs from what is expected; "" if it does not.

    Args:
        layer: The layer.
        own: Keys and values that the model itself has made in this layer.
        length: Number of tokens of the first layer.
        window: Size of the sliding window of the model's own cache, or None.
    """
    for what, tensor, mine in (("keys", layer.keys, own[0]), ("values", layer.values, own[1])):
        shape, right = tuple(tensor.shape), tuple(mine.shape)
        if len(shape) != len(right) or (shape[0], shape[1], shape[3]) != (1, right[1], right[3]):
            return f"{what} of shape (1, {right[1]}, tokens, {right[3]}), not {shape},"
        if tensor.dtype != mine.dtype or tensor.is_meta:
            return f"{what} of {mine.dtype}, not {'without numbers' if tensor.is_meta else tensor.dtype},"
        if not torch.isfinite(tensor).all():
            return f"finite {what}, not NaN or inf,"
    if layer.length != length:
        return f"as many tokens as in the first layer, {length}, not {layer.length},"
    n_keys, n_values = layer.keys.shape[2], layer.values.shape[2]
    # A model with this window never reads more tokens.
    required = length if window is None else min(length, window - 1)
    if n_keys != n_values or not required <= n_keys <= length:
        return f"keys and values of the last {required} tokens or more, not of {n_keys} and {n_values},"
    return ""


def _copy_padded(tensor: Tensor, own: Tensor, length: int) -> Tensor:
    """Return a copy on the device of `own`, [1, heads, length, width].

    It has zeros for the first tokens if `tensor` lacks them.
    """
    result = own.new_zeros((1, own.shape[1], length, own.shape[3]))
    result[:, :, length - tensor.shape[2] :] = tensor
    return result


@dataclass(frozen=True, slots=True, eq=False)
class CallLogits:
    """The logits of one call.

    Attributes:
        logits: [M, V]: a tensor on the model's device, or an array; None if there are
            none.
        row_of: Row of `logits` for each entry of the plan (by index) that has one.
        n_rows: Number of rows evaluated.
        padding: Number of rows added as padding.
        seconds: Time spent inside the model.
        n_programs: Number of forward passes.
    """

    logits: Tensor | LogitArray | None
    row_of: dict[int, int]
    n_rows: int
    padding: int
    seconds: float
    n_programs: int


class Contexts(Protocol):
    """Keeps the memory of the nodes of a context tree, and decides what is evicted.

    The memory of a node is a cell of the key/value cache, or a recurrent state. A call
    goes through `plan_rows`, `make_room`, its evaluation, `PrefixTree.commit` and
    `finish`. If the evaluation or a later step raises, `restore` must be called.

    Attributes:
        sequences: Maximum number of branches that can be held at a time.
    """

    sequences: int

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free if all unheld nodes were dropped."""

    def can_extend(self, node: int) -> bool:
        """Return whether a live node can be a parent."""

    def plan_rows(self, plan: CallPlan) -> tuple[Any, int]:
        """Return the rows that a plan evaluates, and their number. Changes nothing."""

    def make_room(self, plan: CallPlan, rows: Any) -> None:
        """Drop unheld nodes until the call fits.

        Raises `CapacityError` before anything has changed.
        """

    def finish(self, plan: CallPlan, rows: Any, nodes: list[int]) -> None:
        """Keep the memory of an evaluated call's nodes.

        Args:
            plan: The call.
            rows: The rows that `plan_rows` returned for it, after their evaluation.
            nodes: The node of each entry of the plan (`CallPlan.nodes_of_entries`).
        """

    def restore(self) -> None:
        """Forget nodes that are not in the tree, after a failed call."""

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""

    def close(self) -> None:
        """Free the memory."""


class TorchContexts(Contexts, Protocol):
    """Contexts whose calls are evaluated by a module of torch."""

    def evaluate(self, plan: CallPlan, rows: Any, batch_multiple: int) -> CallLogits:
        """Evaluate a call without changing the memory of live nodes.

        Args:
            plan: The call.
            rows: The rows that `plan_rows` returned for it.
            batch_multiple: The number of rows is padded to a multiple of this.
        """


def cells_for(nodes: int, rows: int) -> int:
    """Return the number of cells for `nodes` nodes and the `rows` rows of a call."""
    return -(-(nodes + rows) // CELL_MULTIPLE) * CELL_MULTIPLE


class CellContexts(NodeCells):
    """Keeps keys and values in cells, and evaluates calls over them.

    The first cells are always those of `prefix`.

    Args:
        tree: The tree, which is empty.
        prepared: The module.
        nodes: Maximum number of nodes.
        rows: Maximum number of rows of a call.
        stop: Setting this event interrupts a call.
        solo: Whether rows must not depend on other contexts in memory, not even in
            their last bits. Near ties are evaluated so.
        prefix: Keys and values that stand before every context, or None.
    """

    def __init__(
        self,
        tree: PrefixTree,
        prepared: PreparedModule,
        *,
        nodes: int,
        rows: int,
        stop: threading.Event,
        solo: bool,
        prefix: Prefix | None = None,
    ) -> None:
        n_prefix = 0 if prefix is None else prefix.length
        n_cells = cells_for(n_prefix + nodes, rows)
        reads_all = solo and prepared.route is not Route.FUNCTION
        multiple = n_cells if reads_all else CELL_MULTIPLE
        super().__init__(tree, nodes=nodes, n_cells=n_cells, read_multiple=multiple, n_prefix=n_prefix)
        self._prepared, self._stop = prepared, stop
        self._in_path_order = solo and prepared.route is Route.FUNCTION
        self._cache = prepared.new_cache(n_cells)
        if prefix is not None:
            prefix.write(self._cache)

    def evaluate(self, plan: CallPlan, rows: CellRows, batch_multiple: int) -> CallLogits:
        """Evaluate a call in free cells."""
        entries = rows.entries
        n = len(entries)
        if not n:
            return CallLogits(None, {}, 0, 0, 0.0, 0)
        padding = -n % batch_multiple
        layout = self.lay_out(plan, rows, n + padding)
        call = TreeCall(
            self._stop,
            layout.cells,
            layout.visible,
            layout.positions,
            layout.cell_positions,
            in_path_order=self._in_path_order,
        )
        wanted = [i for i, e in enumerate(entries) if plan.wanted[e]]
        prepared, device = self._prepared, self._prepared.device
        begin = time.perf_counter()
        outputs = torch.tensor(pad_outputs(wanted, batch_multiple), dtype=torch.long, device=device)
        logits = prepared.forward_tree(
            call,
            torch.from_numpy(layout.tokens).to(device),
            torch.from_numpy(layout.positions).to(device),
            outputs,
            self._cache,
        )
        logits = self._cache.mask_spoiled(call, logits, outputs)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        row_of = {entries[i]: row for row, i in enumerate(wanted)}
        return CallLogits(logits[: len(wanted)], row_of, n, padding, seconds, 1)

    def close(self) -> None:
        """Free the cells."""
        del self._cache


_MAX_STATES = 256
_MAX_STATE_BYTES = 4 << 30
_STATE_SHARE = 4
"""States take at most one part in this many of the free memory."""


@dataclass(slots=True, eq=False)
class StateRows:
    """The runs that a call evaluates.

    Attributes:
        runs: The runs (see `node_store.Run`).
        states: The states to keep, by the index of their run, once evaluated.
    """

    runs: list[Run]
    states: dict[int, Any]


class StateContexts(NodeStates[Any]):
    """Keeps recurrent states of nodes, and evaluates runs that start from copies."""

    def __init__(
        self, tree: PrefixTree, prepared: PreparedModule, *, nodes: int, sequences: int, stop: threading.Event
    ) -> None:
        super().__init__(tree, sequences)
        self._prepared, self._stop, self._nodes = prepared, stop, nodes
        self._configs = prepared.configs()

    def plan_rows(self, plan: CallPlan) -> tuple[StateRows, int]:
        """Return the runs of a call and their number of rows. Changes nothing."""
        runs = self.plan_runs(plan)
        return StateRows(runs, {}), sum(len(run.entries) for run in runs)

    def make_room(self, plan: CallPlan, rows: StateRows) -> None:
        """Drop unheld nodes and states until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        drops = self._nodes_to_drop(plan, self._nodes)
        gone = {node for node in drops if node in self._state}
        required = sum(run.keeps for run in rows.runs)
        excess = len(self._state) - len(gone) + required - self.sequences
        protected = plan.live_nodes().union(drops, (run.base for run in rows.runs))
        free = self._droppable(protected)
        if excess > len(free):
            raise CapacityError("sequences", required=required, available=required - excess + len(free))
        free.sort(key=self._eviction_key)
        for node in gone.union(free[: max(0, excess)]):
            self._drop_state(node)
        self._tree.drop(drops)

    def evaluate(self, plan: CallPlan, rows: StateRows, _batch_multiple: int) -> CallLogits:
        """Evaluate the runs, each from a copy of its state."""
        n_rows = sum(len(run.entries) for run in rows.runs)
        call = ModuleCall(self._stop)
        logits: list[Tensor] = []
        row_of: dict[int, int] = {}
        begin = time.perf_counter()
        for i, run in enumerate(rows.runs):
            state = None if run.base == ROOT else self._copy(self._state[run.base])
            for entries in self._parts(run):
                outputs = [k for k, e in enumerate(entries) if plan.wanted[e] and e not in row_of]
                part, state = self._evaluate_part(call, plan, entries, outputs, state)
                logits.append(part)
                first = len(row_of)
                row_of.update((entries[k], first + row) for row, k in enumerate(outputs))
            if run.keeps:
                rows.states[i] = state
        seconds = time.perf_counter() - begin
        return CallLogits(torch.cat(logits) if logits else None, row_of, n_rows, 0, seconds, len(logits))

    def _parts(self, run: Run) -> Iterator[list[int]]:
        """Yield the entries of a run that are evaluated together.

        That is the whole run, or single entries if the module needs it
        (`runs_below_states`).
        """
        if run.base == ROOT or self._prepared.runs_below_states:
            yield run.entries
        else:
            for entry in run.entries:
                yield [entry]

    def _evaluate_part(
        self, call: ModuleCall, plan: CallPlan, entries: list[int], outputs: list[int], state: Any
    ) -> tuple[Tensor, Any]:
        """Evaluate entries after a state; return their logits and the new state.

        `outputs` has the indices of the entries whose logits are computed.
        """
        device = self._prepared.device

        def index(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        ids, positions = index([plan.token[e] for e in entries]), index([plan.depth[e] - 1 for e in entries])
        return self._prepared.forward_run(call, ids, positions, index(outputs), state)

    def _copy(self, state: Any) -> Any:
        """Copy a state's tensors, but not the model's config, which it may refer to."""
        return copy.deepcopy(state, {id(config): config for config in self._configs})

    def finish(self, _plan: CallPlan, rows: StateRows, nodes: list[int]) -> None:
        """Keep the states at the ends of runs.

        `nodes` has the node of each entry of the plan.
        """
        for i, state in rows.states.items():
            self._state.setdefault(nodes[rows.runs[i].entries[-1]], state)

    def restore(self) -> None:
        """Forget the states of nodes that are not in the tree."""
        references = self._tree.references
        self._state = {node: state for node, state in self._state.items() if references[node] >= 0}

    def close(self) -> None:
        """Free the states."""
        self._state.clear()


def sequences_for(prepared: PreparedModule, nodes: int) -> int:
    """Return how many states of contexts of `nodes` tokens fit in memory.

    Raises `ModelError` if there is no memory for two.
    """
    index = torch.arange(2, dtype=torch.long, device=prepared.device)
    call, state = ModuleCall(threading.Event()), None
    sizes: list[int] = []
    for _ in range(2):
        for at in index:
            _, state = prepared.forward_run(call, at[None], at[None] + 2 * len(sizes), index[:1] * 0, state)
        sizes.append(bytes_of(state))
    largest = sizes[0] + (sizes[1] - sizes[0]) // 2 * max(0, nodes - 2)
    n_states = states_for(largest, prepared.device)
    if n_states < 2:
        takes = f"a context of {nodes} tokens takes {largest >> 20} MiB, and {_STATE_SHARE} times as much"
        raise ModelError(MessageText(f"{prepared.name}: {takes} is to be free for each of two; ", LESS_MEMORY))
    return n_states


def states_for(n_bytes: int, device: torch.device) -> int:
    """Return how many states of this size fit on a device now, at most 256."""
    return min(_MAX_STATES, _free_bytes(device) // max(1, n_bytes))


def _free_bytes(device: torch.device) -> int:
    """Return the number of bytes that states may take on a device."""
    if device.type == "cuda":
        free = int(torch.cuda.mem_get_info(device)[0])
    else:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):  # macOS has no such name
            free = _STATE_SHARE * _MAX_STATE_BYTES
    return min(_MAX_STATE_BYTES, free // _STATE_SHARE)


def bytes_of(cache: Any) -> int:
    """Return the size of the tensors in a model's cache, each counted once, in bytes.

    Tensors on the `meta` device count as if they had memory.
    """
    sizes: dict[int, int] = {}
    stack, visited = [cache], set()
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            sizes[value.data_ptr() or id(value)] = value.numel() * value.element_size()
        elif id(value) not in visited:
            visited.add(id(value))
            if isinstance(value, (list, tuple)):
                stack += value
            elif isinstance(value, dict):
                stack += value.values()
            elif hasattr(value, "__dict__") and not hasattr(value, "to_dict"):
                stack += vars(value).values()
    return sum(sizes.values())
