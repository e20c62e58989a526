"""Keep contexts of recurrent and hybrid models as states: copies of the model's cache.

A state exists only at the end of what was evaluated. A node that may become a parent
owns a copy, which is never evaluated on, so a failed call cannot spoil it.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.attention import ModuleCall
from selectrie.backends.transformers.cells import Evaluated
from selectrie.backends.transformers.module import PreparedModule
from selectrie.core.types import NO_NODE, ROOT, IntArray
from selectrie.errors import CapacityError, ModelError, NodeError

_NO_ENTRY = -1
_MAX_STATES = 256
_MAX_STATE_BYTES = 4 << 30
_STATE_SHARE = 4
"""States take at most this part of the free memory: a quarter."""
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class _Run:
    """Entries that are evaluated one after the other.

    Attributes:
        base: The node from whose state the run starts.
        entries: The entries.
        keeps: Whether the state after it is kept.
    """

    base: int
    entries: list[int]
    keeps: bool


@dataclass(slots=True, eq=False)
class StateRows:
    """The runs of a call.

    Attributes:
        runs: The runs.
        states: The state after each run that keeps one, once they are evaluated.
    """

    runs: list[_Run]
    states: dict[int, Any]


class StateContexts:
    """Knows the nodes that own a state, and evaluates runs from copies of states."""

    def __init__(
        self, tree: PrefixTree, prepared: PreparedModule, *, nodes: int, sequences: int, stop: threading.Event
    ) -> None:
        self._tree, self._prepared, self._stop = tree, prepared, stop
        self._nodes, self.sequences = nodes, sequences
        self._state: dict[int, Any] = {}
        self._configs = prepared.configs()

    @property
    def free_sequences(self) -> int:
        """Return how many states would be free if unheld nodes were dropped."""
        references = self._tree.references
        return self.sequences - sum(1 for node in self._state if references[node])

    def can_extend(self, node: int) -> bool:
        """Return whether the node owns a state; the empty context needs none."""
        return node == ROOT or node in self._state

    def plan_rows(self, plan: CallPlan) -> tuple[StateRows, int]:
        """Return the fewest runs that evaluate all that is due, and their rows.

        Due are new entries, entries wanted again, and entries that need a state. A run
        ends at every entry that needs a state, and at every due entry that no other run
        passes through. Existing nodes without a state on the way are evaluated again.
        """
        n = len(plan.node)
        entry_of = {node: e for e, node in enumerate(plan.node) if node != NO_NODE}
        above, base = [_NO_ENTRY] * n, [ROOT] * n
        for e, parent in enumerate(plan.parent):
            if parent < 0:
                above[e], base[e] = ~parent, base[~parent]
            elif self.can_extend(parent):
                base[e] = parent
            elif parent in entry_of:
                above[e], base[e] = entry_of[parent], base[entry_of[parent]]
            else:
                raise NodeError(parent, "cannot be extended: it was made without keep, so its state is gone")
        passed = [False] * n
        runs = []
        for e in range(n - 1, -1, -1):
            needs_state = plan.keep[e] and not (plan.node[e] != NO_NODE and plan.node[e] in self._state)
            is_due = plan.node[e] == NO_NODE or plan.wanted[e] or needs_state
            if not is_due or (passed[e] and not needs_state):
                continue
            entries = []
            at = e
            while at != _NO_ENTRY:
                passed[at] = True
                entries.append(at)
                at = above[at]
            runs.append(_Run(base[e], entries[::-1], needs_state))
        return StateRows(runs[::-1], {}), sum(len(run.entries) for run in runs)

    def make_room(self, plan: CallPlan, rows: StateRows) -> None:
        """Drop unheld nodes and states until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        tree = self._tree
        drops = tree.make_room(plan, nodes=self._nodes, sequences=_UNLIMITED)
        gone = {node for node in drops if node in self._state}
        required = sum(run.keeps for run in rows.runs)
        excess = len(self._state) - len(gone) + required - self.sequences
        protected = plan.live_nodes().union(drops, (run.base for run in rows.runs))
        free = [node for node in self._state if not tree.references[node] and node not in protected]
        if excess > len(free):
            raise CapacityError("sequences", required=required, available=required - excess + len(free))
        free.sort(key=lambda node: (tree.used[node], -tree.depth[node]))
        for node in gone.union(free[: max(0, excess)]):
            del self._state[node]
        tree.drop(drops)

    def evaluate(self, plan: CallPlan, rows: StateRows, _batch_multiple: int) -> Evaluated:
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
        return Evaluated(torch.cat(logits) if logits else None, row_of, n_rows, 0, seconds, len(logits))

    def _parts(self, run: _Run) -> Iterator[list[int]]:
        """Yield the entries of a run as they are evaluated: at once, or one by one."""
        if run.base == ROOT or self._prepared.runs_below_states:
            yield run.entries
        else:
            for entry in run.entries:
                yield [entry]

    def _evaluate_part(
        self, call: ModuleCall, plan: CallPlan, entries: list[int], outputs: list[int], state: Any
    ) -> tuple[Tensor, Any]:
        device = self._prepared.device

        def index(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        ids, positions = index([plan.token[e] for e in entries]), index([plan.depth[e] - 1 for e in entries])
        return self._prepared.forward_run(call, ids, positions, index(outputs), state)

    def _copy(self, state: Any) -> Any:
        """Copy a state's tensors, but not the model's config, which it may refer to."""
        return copy.deepcopy(state, {id(config): config for config in self._configs})

    def finish(self, _plan: CallPlan, rows: StateRows, nodes: list[int]) -> None:
        """Keep the states after runs. `nodes` has the node of each entry."""
        for i, state in rows.states.items():
            self._state.setdefault(nodes[rows.runs[i].entries[-1]], state)

    def restore(self) -> None:
        """Forget the states of nodes that are not in the tree."""
        references = self._tree.references
        self._state = {node: state for node, state in self._state.items() if references[node] >= 0}

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does.

        A forgotten node loses its state now, even if the node has to stay for others.
        """
        gone = self._tree.release(nodes, forget=forget)
        if forget:
            for node in set(nodes.tolist()):
                if not self._tree.references[node]:
                    self._state.pop(node, None)
        self._drop(gone)

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes and states as `Model.trim` does.

        A node that stays for others loses only its state.
        """
        tree = self._tree
        nodes = tree.idle(idle_rows)
        dropped = set(nodes)
        states = [n for n in self._state if not tree.references[n] and tree.clock - tree.used[n] >= idle_rows]
        states = [n for n in states if n not in dropped]
        for node in states:
            del self._state[node]
        self._drop(nodes)
        return len(nodes) + len(states)

    def _drop(self, nodes: list[int]) -> None:
        for node in nodes:
            self._state.pop(node, None)
        self._tree.drop(nodes)

    def close(self) -> None:
        """Free the states."""
        self._state.clear()


def sequences_for(prepared: PreparedModule, nodes: int) -> int:
    """Return how many states fit, from the size of one at the full context.

    Raises `ModelError` if there is no memory for two.
    """
    index = torch.arange(2, dtype=torch.long, device=prepared.device)
    call, state = ModuleCall(threading.Event()), None
    sizes: list[int] = []
    for _ in range(2):
        for at in index:
            _, state = prepared.forward_run(call, at[None], at[None] + 2 * len(sizes), index[:1] * 0, state)
        sizes.append(_bytes_of(state))
    largest = sizes[0] + (sizes[1] - sizes[0]) // 2 * max(0, nodes - 2)
    n_states = states_for(largest, prepared.device)
    if n_states < 2:
        raise ModelError(
            f"{prepared.name}: a context of {nodes} tokens takes {largest >> 20} MiB, and {_STATE_SHARE} times as much "
            "is to be free for each of two; ask for a smaller n_ctx, or free memory"
        )
    return n_states


def states_for(n_bytes: int, device: torch.device) -> int:
    """Return how many states of this size fit on a device now, at most 256."""
    return min(_MAX_STATES, _free_bytes(device) // max(1, n_bytes))


def _free_bytes(device: torch.device) -> int:
    """Return how much memory states may take."""
    if device.type == "cuda":
        free = int(torch.cuda.mem_get_info(device)[0])
    else:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):  # macOS does not say
            free = _STATE_SHARE * _MAX_STATE_BYTES
    return min(_MAX_STATE_BYTES, free // _STATE_SHARE)


def _bytes_of(state: Any) -> int:
    """Return the size of the tensors in a state."""
    sizes: dict[int, int] = {}
    stack, visited = [state], set()
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            sizes[value.data_ptr()] = value.numel() * value.element_size()
        elif id(value) not in visited:
            visited.add(id(value))
            if isinstance(value, (list, tuple)):
                stack += value
            elif isinstance(value, dict):
                stack += value.values()
            elif hasattr(value, "__dict__") and not hasattr(value, "to_dict"):
                stack += vars(value).values()
    return sum(sizes.values())
