"""Sequence ids for recurrent and hybrid models, one for each kept state.

The state of such a model exists only at the end of a sequence. Branching copies a whole
sequence. Nothing is ever evaluated under the id of a kept state, so a failed call
cannot spoil it. A run of new rows is evaluated under a copy of the state at which it
begins. The copy is kept for the run's last node or discarded. (RWKV refuses coupled
sequences. A hybrid accepts them, but gives wrong answers with rc 0 when an inner node
is extended later.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.context import BatchRows, Context
from selectrie.backends.llama_cpp.sequences import Evaluate
from selectrie.backends.node_store import NodeStates, Run
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.core.types import ROOT
from selectrie.errors import CapacityError

_NO_ID = -1
_SCRATCH_IDS = 1


@dataclass(slots=True, eq=False)
class _CellRun:
    """The attention cells that one run wrote.

    They are free again when no state and no later run depends on them.

    Attributes:
        cells: Number of cells.
        below: The run from whose end this one started, or None.
        users: Number of states and later runs that depend on it.
    """

    cells: int
    below: _CellRun | None
    users: int = 0


@dataclass(slots=True, eq=False)
class _State:
    """A recurrent state that is kept for a node.

    Attributes:
        sequence: Id of its sequence; -1 after a failure, until it is evaluated again.
        cell_run: The cells of the run that ends with it; None after a failure.
    """

    sequence: int
    cell_run: _CellRun | None


@dataclass(frozen=True, slots=True)
class RecurrentRowPlan:
    """The rows that a call evaluates, before they have positions and ids.

    `n_rows` counts the rows of all runs.
    """

    runs: list[Run]
    n_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RecurrentRowLayout:
    """The rows of a call, run by run, with their sequence ids.

    Attributes:
        rows: The rows for the decode.
        entry: int64[R], the entry that each row evaluates.
        runs: The runs.
        ids: Sequence id of each run.
    """

    rows: BatchRows
    entry: NDArray[np.int64]
    runs: list[Run]
    ids: list[int]


class RecurrentSequences(NodeStates[_State]):
    """The sequence ids of the kept states, and the nodes that own the states."""

    def __init__(self, tree: PrefixTree, context: Context, *, cells: bool) -> None:
        n_ids = context.size.sequences
        super().__init__(tree, n_ids - _SCRATCH_IDS)
        self._context = context
        self.padding_id = n_ids - 1
        self._cells = context.size.cells if cells else None
        self._cells_used = 0

    # A call

    def plan_rows(self, plan: CallPlan) -> RecurrentRowPlan:
        """Return the runs of a call. Changes nothing."""
        runs = self.plan_runs(plan)
        return RecurrentRowPlan(runs, sum(len(run.entries) for run in runs))

    def make_room(self, plan: CallPlan, row_plan: RecurrentRowPlan, nodes: int) -> None:
        """Drop nodes without references, and states, until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        drops = self._nodes_to_drop(plan, nodes)
        gone = {node for node in drops if node in self._state}
        runs = row_plan.runs
        lost, sources = self._nodes_to_recover(row_plan)
        n_rows = len(lost) + row_plan.n_rows
        n_required = len(runs) - min(_SCRATCH_IDS, sum(not run.keeps for run in runs))
        protected = plan.live_nodes().union(drops, sources, (run.base for run in runs))
        candidates = sorted(self._droppable(protected), key=self._eviction_key, reverse=True)
        while True:
            short_ids = n_required - (self.sequences - len(self._state) + len(gone))
            short_cells = 0
            if self._cells is not None:
                short_cells = n_rows - (self._cells - self._cells_used + self._cells_of(gone))
            if short_ids <= 0 and short_cells <= 0:
                break
            if not candidates:
                if short_ids > 0:
                    raise CapacityError("sequences", required=n_required, available=n_required - short_ids)
                raise CapacityError("cells", required=n_rows, available=n_rows - short_cells)
            gone.add(candidates.pop())
        for node in gone:
            self._drop_state(node)
        self._tree.drop(drops)

    def lay_out(self, plan: CallPlan, row_plan: RecurrentRowPlan) -> RecurrentRowLayout:
        """Return the rows of the runs with their sequence ids. Changes nothing."""
        runs = row_plan.runs
        ids = self._free_ids(len(runs))
        entry = np.array([e for run in runs for e in run.entries], dtype=np.int64)
        lengths = np.array([len(run.entries) for run in runs], dtype=np.int64)
        is_first = np.zeros(len(entry), dtype=np.bool_)
        is_first[np.unique(entry, return_index=True)[1]] = True
        rows = BatchRows(
            token=np.array(plan.token, dtype=np.int32)[entry],
            position=np.array(plan.depth, dtype=np.int32)[entry] - 1,
            first_id=np.repeat(np.arange(len(runs), dtype=np.int32), lengths),
            n_ids=np.ones(len(entry), dtype=np.int32),
            output=np.array(plan.wanted, dtype=np.bool_)[entry] & is_first,
            ids=np.array(ids, dtype=np.int32),
        )
        return RecurrentRowLayout(rows, entry, runs, ids)

    def _free_ids(self, n: int) -> list[int]:
        """Return n free ids, consecutive if possible.

        llama.cpp evaluates only consecutive ids side by side (`split_equal`).
        """
        used = {state.sequence for state in self._state.values()}
        free = [i for i in range(self._context.size.sequences) if i not in used]
        for start in range(len(free) - n + 1):
            if n and free[start + n - 1] - free[start] == n - 1:
                return free[start : start + n]
        return free[:n]

    def prepare(self, layout: RecurrentRowLayout) -> None:
        """Copy the states from which the runs start."""
        for run, sequence in zip(layout.runs, layout.ids, strict=True):
            if run.base != ROOT:
                self._context.copy(self._sequence_of(run.base), sequence, -1, -1)

    def _sequence_of(self, node: int) -> int:
        """Return the sequence id of a node's state.

        Raises `InternalError` if it ends elsewhere in llama.cpp's memory.
        """
        return self._context.require_end(self._state[node].sequence, self._tree.depth[node])

    def finish(self, layout: RecurrentRowLayout, nodes: list[int]) -> None:
        """Keep the states that runs ask for, and discard the others, after the commit.

        `nodes` has the node of each entry of the plan.
        """
        for run, sequence in zip(layout.runs, layout.ids, strict=True):
            node = nodes[run.entries[-1]]
            if run.keeps and node not in self._state:
                below = None if run.base == ROOT else self._state[run.base].cell_run
                self._state[node] = _State(sequence, self._cell_run(len(run.entries), below))
            else:
                self._context.remove(sequence)

    # States

    def recover(self, row_plan: RecurrentRowPlan, evaluate: Evaluate) -> tuple[int, float]:
        """Evaluate the states again from which runs start and which a failure lost.

        Returns the number of rows and the seconds that it took. Each row is evaluated
        once: lost states on the way are kept as well, and where the paths to two states
        part at a node without one, a temporary state is made. The order is depth-first,
        so that only one id more than the number of states is needed, the scratch id.
        """
        lost, _ = self._nodes_to_recover(row_plan)
        stops = [node for node in lost if lost[node] > 1 or node in self._state]
        temporary = {node for node in stops if node not in self._state}
        above = {node: self._state_above(node, lost) for node in stops}
        below: dict[int, list[int]] = {node: [] for node in above.values()}
        for node, base in above.items():
            below[base].append(node)
        ready = [node for node, base in above.items() if base not in lost]
        n_rows, seconds = 0, 0.0
        try:
            while ready:
                node = ready.pop()
                base = above[node]
                seconds += self._evaluate_state(node, base, evaluate)
                n_rows += self._tree.depth[node] - self._tree.depth[base]
                ready += below.get(node, [])
                below[base].remove(node)
                if base in temporary and not below[base]:
                    self._drop_state(base)
        finally:
            for node in temporary.intersection(self._state):
                self._drop_state(node)
        return n_rows, seconds

    def _nodes_to_recover(self, row_plan: RecurrentRowPlan) -> tuple[dict[int, int], set[int]]:
        """Return the nodes to evaluate so that every run has its initial state.

        The dict maps each node to the number of its children that are evaluated too.
        The set has the nodes with states from which the evaluation starts.
        """
        tree = self._tree
        lost: dict[int, int] = {}
        sources = set()
        for node in {run.base for run in row_plan.runs}:
            at, came_from_below = node, 0
            while not self._is_in_memory(at):
                # Climb until a state in memory, or a node that another run has climbed
                # from.
                is_known = at in lost
                lost[at] = lost.get(at, 0) + came_from_below
                if is_known:
                    break
                at, came_from_below = tree.parent[at], 1
            else:
                sources.add(at)
        return lost, sources

    def _is_in_memory(self, node: int) -> bool:
        """Return whether the node's state is in memory; True for the root."""
        return node == ROOT or (node in self._state and self._state[node].sequence != _NO_ID)

    def _state_above(self, node: int, lost: dict[int, int]) -> int:
        """Return the nearest ancestor from whose state `node` will be evaluated.

        That is a node whose state was lost, one at which the paths to two states part,
        or one that is not in `lost` and so needs no evaluation.
        """
        at = self._tree.parent[node]
        while lost.get(at) == 1 and at not in self._state:
            at = self._tree.parent[at]
        return at

    def _evaluate_state(self, node: int, base: int, evaluate: Evaluate) -> float:
        """Evaluate a node's state from that of its ancestor `base`; return seconds."""
        tree = self._tree
        below = None if base == ROOT else self._state[base].cell_run
        sequence = self._free_ids(1)[0]
        if base != ROOT:
            self._context.copy(self._sequence_of(base), sequence, -1, -1)
        start = tree.depth[base]
        seconds = evaluate(sequence, tree.path(node)[start:], start)
        self._state[node] = _State(sequence, self._cell_run(tree.depth[node] - start, below))
        return seconds

    def _cell_run(self, cells: int, below: _CellRun | None) -> _CellRun:
        """Return the record of a new run's cells, and count them as used."""
        if below is not None:
            below.users += 1
        self._cells_used += cells
        return _CellRun(cells, below, users=1)

    def _drop_state(self, node: int) -> None:
        """Drop a node's state, and the cells of runs that nothing depends on now."""
        state = self._state.pop(node)
        if state.sequence != _NO_ID:
            self._context.remove(state.sequence)
        cell_run = state.cell_run
        while cell_run is not None:
            cell_run.users -= 1
            if cell_run.users:
                return
            self._cells_used -= cell_run.cells
            cell_run = cell_run.below

    def _cells_of(self, nodes: set[int]) -> int:
        """Return how many cells would be freed by dropping the states of `nodes`."""
        lost: dict[int, int] = {}
        cells = 0
        for node in nodes:
            cell_run = self._state[node].cell_run
            while cell_run is not None:
                lost[id(cell_run)] = lost.get(id(cell_run), 0) + 1
                if lost[id(cell_run)] < cell_run.users:
                    break
                cells += cell_run.cells
                cell_run = cell_run.below
        return cells

    # Dropping and repairing

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes, leaf first; without any state left, free all cells."""
        super()._drop(nodes)
        if not self._state:
            self._context.clear()

    def restore(self) -> bool:
        """Discard all of memory after a failure, and return True.

        An aborted graph may have changed half a state, so nothing in memory is trusted.
        States are evaluated again when they are needed; the tree remains valid.
        """
        self._context.clear()
        # A node that already got a state from the failed call is either gone from the
        # tree or was in it before, so it may keep a state.
        self._state = {node: _State(_NO_ID, None) for node in self._state if self._tree.references[node] >= 0}
        self._cells_used = 0
        return True

    def forget(self) -> None:
        """Forget all states, because the tree was cleared."""
        self._state.clear()
        self._cells_used = 0
