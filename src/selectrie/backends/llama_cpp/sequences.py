"""Assigns llama.cpp's sequence ids: one for each leaf of the tree, or each kept state.

Attention needs an id for each leaf. The state of a recurrent or hybrid model exists
only at the end of a sequence. Branching copies a whole sequence. Nothing is ever
evaluated under the id of a kept state, so a failed call cannot spoil it. A run of new
rows is evaluated under a copy of the state at which it begins. The copy is kept for the
run's last node or discarded. (RWKV refuses coupled sequences. A hybrid accepts them,
but gives wrong answers with rc 0 when an inner node is extended later.)

A call goes through `plan_rows`, `make_room`, `recover`, `lay_out`, `prepare`, the
decode, `PrefixTree.commit` and `finish`. Row plans and layouts are passed back to the
object that made them. After an exception from `recover` on, `restore` is called; if it
returns False, the memory must be cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.context import BatchRows, Context
from selectrie.backends.node_store import NodeStates, Run
from selectrie.backends.prefix_tree import CallPlan, PrefixTree, TreeStore
from selectrie.core.types import NO_NODE, ROOT, BoolArray, IntArray
from selectrie.errors import CapacityError

Evaluate: TypeAlias = Callable[[int, IntArray, int], float]
"""Evaluates consecutive tokens of one sequence, without logits.

(sequence id, tokens, position of the first one) -> seconds.
"""


_PIECE = 128
"""Maximum number of cells that are copied from another context at once."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRowLayout:
    """The rows of a call in depth-first order, with their sequence ids.

    Attributes:
        rows: The rows for the decode.
        entry: int64[R], index in the plan of the entry that each row evaluates.
        fresh: bool[R], whether the entry is new. The others are evaluated again, on a
            scratch branch (see `AttentionSequences`).
        copies: (source id, new id, number of positions) to copy before the decode.
        leaves: For each new leaf its id, its entry, and the live node below which its
            new rows begin.
        scratch: Ids to remove after the decode.
    """

    rows: BatchRows
    entry: NDArray[np.int64]
    fresh: BoolArray
    copies: list[tuple[int, int, int]]
    leaves: list[tuple[int, int, int]]
    scratch: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRowPlan:
    """The rows that a call evaluates, parents before children.

    Attributes:
        n_rows: Number of rows.
        entry: The entry that each row evaluates.
        parent: Index of the row above, or -1 if the parent is a live node.
        base: The live node below which the row, or its topmost ancestor among the rows,
            is evaluated.
        start: Index of the row in depth-first order.
        first_leaf: Index of the first leaf at or below the row, in depth-first order.
        n_leaves: Number of leaves at or below the row.
        n_scratch_leaves: Number of branches for rows that are evaluated again.
    """

    n_rows: int

    entry: list[int]
    parent: list[int]
    base: list[int]
    start: list[int]
    first_leaf: list[int]
    n_leaves: list[int]
    n_scratch_leaves: int


class AttentionSequences(TreeStore):
    """The sequence ids of the leaves of the tree.

    The last ids are reserved: one for padding, one for a scratch branch, on which rows
    of existing nodes are evaluated again, and one as the keeper.

    Only models with a sliding window have a keeper: an id that owns every cell in use,
    and under which nothing is evaluated. Without it, llama.cpp would reuse cells that
    have left the window if only one id owns them (`find_slot` in llama-kv-cache.cpp),
    with or without `swa_full`. A branch made there later would get log-probabilities
    that are wrong by nats.
    """

    def __init__(self, tree: PrefixTree, context: Context, *, keeper: bool) -> None:
        n_ids = context.size.sequences
        super().__init__(tree, n_ids - 3 if keeper else n_ids - 2)
        self._context = context
        self.padding_id = n_ids - 1
        self._scratch_id = n_ids - 2
        self._keeper = n_ids - 3 if keeper else None
        self._tip = [NO_NODE] * self.sequences
        self._id: dict[int, int] = {}
        self._before: tuple[list[int], dict[int, int]] | None = None
        # llama.cpp does not write out cells that a sliding window has left behind.
        self._piece = min(_PIECE, context.window or _PIECE)
        self._copied: set[int] = set()

    # A call

    def plan_rows(self, plan: CallPlan) -> AttentionRowPlan:
        """Return the rows that a call evaluates.

        They are the new entries of `plan` and the existing ones wanted again.
        """
        entry: list[int] = []
        parent: list[int] = []
        base: list[int] = []
        row_of_entry: dict[int, int] = {}
        scratch_row_of: dict[int, int] = {}
        for e, (above, node) in enumerate(zip(plan.parent, plan.node, strict=True)):
            if node == NO_NODE:
                row_of_entry[e] = len(entry)
                p = row_of_entry[~above] if above < 0 else -1
            elif plan.wanted[e]:
                p = scratch_row_of.get(above, -1)
                scratch_row_of[node] = len(entry)
            else:
                continue
            entry.append(e)
            parent.append(p)
            base.append(above if p < 0 else base[p])
        return _depth_first(entry, parent, base, scratch=set(scratch_row_of.values()))

    def make_room(self, plan: CallPlan, row_plan: AttentionRowPlan, nodes: int) -> None:
        """Drop nodes without references until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        self._before = None
        extra = max(0, row_plan.n_scratch_leaves - 1)
        self._drop(self._tree.make_room(plan, nodes=nodes, sequences=self.sequences, extra_sequences=extra))

    def lay_out(self, plan: CallPlan, row_plan: AttentionRowPlan) -> AttentionRowLayout:
        """Return the rows of a plan with positions and ids. Changes nothing."""
        n = len(row_plan.entry)
        entry = np.array(row_plan.entry, dtype=np.int64)
        fresh = np.array(plan.node, dtype=np.int64)[entry] == NO_NODE
        ids, copies, leaves, scratch = self._assign(row_plan, fresh.tolist())
        order = np.empty(n, dtype=np.int64)
        order[row_plan.start] = np.arange(n)
        entry, fresh = entry[order], fresh[order]
        rows = BatchRows(
            token=np.array(plan.token, dtype=np.int32)[entry],
            position=np.array(plan.depth, dtype=np.int32)[entry] - 1,
            first_id=np.array(row_plan.first_leaf, dtype=np.int32)[order],
            n_ids=np.array(row_plan.n_leaves, dtype=np.int32)[order],
            output=np.array(plan.wanted, dtype=np.bool_)[entry],
            ids=np.array(ids, dtype=np.int32),
        )
        return AttentionRowLayout(rows, entry, fresh, copies, leaves, scratch)

    def _assign(
        self, row_plan: AttentionRowPlan, fresh: list[bool]
    ) -> tuple[list[int], list[tuple[int, int, int]], list[tuple[int, int, int]], list[int]]:
        """Assign sequence ids to the leaves of a plan.

        Returns the id of each leaf in depth-first order, and `copies`, `leaves` and
        `scratch` of `AttentionRowLayout`. `fresh` says which rows are of new entries.
        """
        free = [i for i in range(self.sequences - 1, -1, -1) if self._tip[i] == NO_NODE]
        free_scratch = [self._scratch_id]
        ids = [0] * sum(n for n, p in zip(row_plan.n_leaves, row_plan.parent, strict=True) if p < 0)
        copies: list[tuple[int, int, int]] = []
        leaves: list[tuple[int, int, int]] = []
        scratch: list[int] = []
        source: dict[int, int] = {}
        inherited: set[int] = set()
        inner = set(row_plan.parent)
        for k, e in enumerate(row_plan.entry):
            if k in inner:
                continue
            base = row_plan.base[k]
            if base != ROOT and base not in source:
                source[base] = self._sequence_through(base)
            # The first new leaf below a leaf takes over its sequence; others get
            # copies.
            if fresh[k] and base in self._id and base not in inherited:
                inherited.add(base)
                new = source[base]
            else:
                new = free_scratch.pop() if free_scratch and not fresh[k] else free.pop()
                if base != ROOT:
                    copies.append((source[base], new, self._tree.depth[base]))
            ids[row_plan.first_leaf[k]] = new
            if fresh[k]:
                leaves.append((new, e, base))
            else:
                scratch.append(new)
        return ids, copies, leaves, scratch

    def _sequence_through(self, node: int) -> int:
        """Return the sequence id of a leaf at or below a live node.

        That sequence owns the cells of the node's path. Its end is checked against
        llama.cpp's memory.
        """
        tree = self._tree
        while tree.n_children[node]:
            node = tree.first_child[node]
        return self._context.require_end(self._id[node], tree.depth[node])

    def prepare(self, layout: AttentionRowLayout) -> None:
        """Copy the sequences that the decode continues."""
        for source, new, end in layout.copies:
            self._context.copy(source, new, 0, end)

    def finish(self, layout: AttentionRowLayout, nodes: list[int]) -> None:
        """Clean up after the decode and the commit of the call.

        Removes the sequences that only this call needed, and records which sequence
        ends at which node. `nodes` has the node of each entry of the plan.
        """
        context = self._context
        for sequence in (*layout.scratch, self.padding_id):
            context.remove(sequence)
        if self._keeper is not None:
            for sequence, _, base in layout.leaves:
                context.copy(sequence, self._keeper, self._tree.depth[base], -1)
        tip, id_of = list(self._tip), dict(self._id)
        for sequence, entry, base in layout.leaves:
            if id_of.get(base) == sequence:
                del id_of[base]
            tip[sequence] = nodes[entry]
            id_of[nodes[entry]] = sequence
        self._before = self._tip, self._id
        self._tip, self._id = tip, id_of

    # Copying from another context

    def copy_cells(self, layout: AttentionRowLayout, source: AttentionSequences, node: int) -> None:
        """Copy the cells of a new path from the path of `node` in another context.

        It takes the place of the decode of `layout`. Raises `CapacityError` if there is
        no room.
        """
        ((own, _, base),) = layout.leaves
        theirs, ours, scratch = source._context, self._context, self._scratch_id
        end = source._tree.depth[node]
        for first in range(self._tree.depth[base], end, self._piece):
            last = min(first + self._piece, end)
            theirs.copy(source._sequence_through(node), source._scratch_id, first, last)
            try:
                cells = theirs.read(source._scratch_id)
            finally:
                theirs.remove(source._scratch_id)
            if not ours.write(scratch, cells):
                raise CapacityError("cells", required=last - first, available=0)
            for sequence in (own, self._keeper):
                if sequence is not None:
                    ours.copy(scratch, sequence, first, last)
            ours.remove(scratch)

    def mark_copied(self, nodes: IntArray) -> None:
        """Record that these nodes were copied from another context."""
        self._copied.update(nodes.tolist())

    def copied_part(self, tokens: IntArray) -> tuple[int, int]:
        """Return the depths between which a path was copied.

        See `CopiesPaths.copied_part`.
        """
        node, _ = self._tree.match_prefix(tokens)
        while node != ROOT and node not in self._copied:
            node = self._tree.parent[node]
        end = self._tree.depth[node]
        while node in self._copied:
            node = self._tree.parent[node]
        return self._tree.depth[node], end

    # Dropping and repairing

    def recover(self, _row_plan: AttentionRowPlan, _evaluate: Evaluate) -> tuple[int, float]:
        """Do nothing: cells survive a failed decode."""
        return 0, 0.0

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes from the tree and from llama.cpp's memory, leaf first.

        The id of a leaf passes to its parent if the parent becomes a leaf.
        """
        if not nodes:
            return
        tree, changed = self._tree, set()
        lowest = min(tree.depth[node] for node in nodes) - 1
        left: dict[int, int] = {}
        for node in nodes:
            above = tree.parent[node]
            sequence = self._id.pop(node)
            changed.add(sequence)
            left[above] = left.get(above, tree.n_children[above]) - 1
            is_leaf = above != ROOT and left[above] == 0
            self._tip[sequence] = above if is_leaf else NO_NODE
            # The parent is a leaf now, so the sequence ends there.
            if is_leaf:
                self._id[above] = sequence
        tree.drop(nodes)
        self._copied.difference_update(nodes)
        if tree.n_nodes == 0:
            self._context.clear()
            return
        for sequence in changed:
            self._context.remove(sequence, self._end(sequence))
        self._update_keeper(lowest)

    def _end(self, sequence: int) -> int:
        """Return the position after the last one that a sequence should own.

        For a free sequence returns -1, with which `Context.remove` removes all.
        """
        tip = self._tip[sequence]
        return -1 if tip == NO_NODE else self._tree.depth[tip]

    def _update_keeper(self, start: int) -> None:
        """Make the keeper own exactly the cells of all leaves from `start` on."""
        if self._keeper is None:
            return
        self._context.remove(self._keeper, start)
        for sequence, tip in enumerate(self._tip):
            if tip != NO_NODE and self._tree.depth[tip] > start:
                self._context.copy(sequence, self._keeper, start, -1)

    def restore(self) -> bool:
        """Cut every sequence back to its leaf after a failure.

        Returns whether llama.cpp's memory then matches the tree.
        """
        context = self._context
        if self._before is not None:  # `finish` had already recorded the call
            self._tip, self._id = self._before
        kept = True
        for sequence in range(context.size.sequences):
            end = self._end(sequence) if sequence < self.sequences else -1
            if sequence != self._keeper:
                kept = context.remove(sequence, end) and kept
                kept = kept and context.last_position(sequence) == max(end, 0) - 1
                kept = kept and context.first_position(sequence) == min(max(end, 0) - 1, 0)
        self._update_keeper(0)
        return kept

    def forget(self) -> None:
        """Forget all sequences, because the tree was cleared."""
        self._tip, self._id, self._before = [NO_NODE] * self.sequences, {}, None
        self._copied.clear()


def _depth_first(entry: list[int], parent: list[int], base: list[int], *, scratch: set[int]) -> AttentionRowPlan:
    """Return the plan of rows with their places in depth-first order.

    Args:
        entry, parent, base: As in `AttentionRowPlan`.
        scratch: Indices of the rows that are evaluated again.
    """
    n = len(entry)
    size, n_leaves = [1] * n, [0] * n
    n_scratch_leaves = 0
    # From the leaves up: rows and leaves below each row. Then from the top down:
    # places.
    for k in range(n - 1, -1, -1):
        if not n_leaves[k]:
            n_leaves[k] = 1
            n_scratch_leaves += k in scratch
        if (p := parent[k]) >= 0:
            size[p] += size[k]
            n_leaves[p] += n_leaves[k]
    start, first_leaf = [0] * n, [0] * n
    next_row, next_leaf = [0] * n, [0] * n
    row = leaf = 0
    for k in range(n):
        p = parent[k]
        if p < 0:
            start[k], first_leaf[k] = row, leaf
            row += size[k]
            leaf += n_leaves[k]
        else:
            start[k], first_leaf[k] = next_row[p], next_leaf[p]
            next_row[p] += size[k]
            next_leaf[p] += n_leaves[k]
        next_row[k], next_leaf[k] = start[k] + 1, first_leaf[k]
    return AttentionRowPlan(n, entry, parent, base, start, first_leaf, n_leaves, n_scratch_leaves)


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
