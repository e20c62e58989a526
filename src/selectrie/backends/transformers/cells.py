"""Keeps contexts in cells, or as states of recurrent and hybrid models."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from selectrie.backends.node_store import CellRows, NodeCells, NodeStates, Run
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.attention import CELL_MULTIPLE, ModuleCall, TreeCall
from selectrie.backends.transformers.module import PreparedModule, Route, pad_outputs
from selectrie.backends.transformers.prefix import Prefix
from selectrie.core.types import ROOT, IntArray, LogitArray
from selectrie.errors import LESS_MEMORY, CapacityError, MessageText, ModelError


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
