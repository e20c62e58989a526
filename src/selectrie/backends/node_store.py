"""Memory of the nodes of a tree: cells of attention, or states of recurrent models."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from selectrie.backends.prefix_tree import CallPlan, PrefixTree, TreeStore
from selectrie.core.types import NO_NODE, ROOT, BoolArray, IntArray, OffsetArray
from selectrie.errors import InternalError, ModelError, NodeError, remedies, words


@dataclass(slots=True, eq=False)
class CellRows:
    """The rows that a call evaluates, parents before children.

    Attributes:
        entries: Index in the `CallPlan` of the entry that each row evaluates.
        cells: int64[n], the cell of each row, once the rows have been laid out.
    """

    entries: list[int]
    cells: OffsetArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CellLayout:
    """The tokens of a call and the cells that its rows write and see.

    There are R rows, padding included, and C cells that are read.

    Attributes:
        tokens: int64[R], the token of each row; 0 for padding.
        positions: int64[R], the position of each row; 0 for padding.
        cells: int64[R], the cell that each row writes; ascending.
        visible: bool[R, C], the cells that each row may see; its own is among them.
            Rows of padding see nothing else.
        cell_positions: int64[C], the position that each cell holds.
    """

    tokens: OffsetArray
    positions: OffsetArray
    cells: OffsetArray
    visible: BoolArray
    cell_positions: OffsetArray


class NodeCells(TreeStore):
    """Assigns a cell to each node of a tree, and records which cells a node's row sees.

    A cell is the place of one token in the key/value cache. For each cell, packed bits
    say which cells its row sees: its own, and those that its parent sees. The cells of
    a call count as free until the call has succeeded, so a failed call changes nothing.
    A node that is wanted again is evaluated in another cell, which stays free. If its
    own cell were written again, its keys and values might change in their last bits,
    and so might the rows of all nodes below. There can be as many branches as nodes.
    """

    def __init__(
        self, tree: PrefixTree, *, nodes: int, n_cells: int, read_multiple: int, n_prefix: int = 0, n_reserved: int = 0
    ) -> None:
        """Start without nodes.

        Args:
            tree: The tree, which is empty.
            nodes: Maximum number of nodes.
            n_cells: Number of cells, a multiple of 8. A call needs a free one for each
                of its rows, also for those of existing nodes and of padding.
            read_multiple: A call reads the first cells of the pool, and a multiple of
                this many. `n_cells` means that it reads all.
            n_prefix: Number of tokens that stand before all contexts. They have the
                first cells, which every row sees, and the first positions.
            n_reserved: Number of cells at the end that are assigned to no node.
        """
        super().__init__(tree, nodes)
        self._nodes, self._read_multiple = nodes, read_multiple
        self._cell: dict[int, int] = {}
        self._n_prefix = n_prefix
        try:
            cells = np.arange(n_cells)
            self._end = n_cells - n_reserved
            self._is_used: BoolArray = (cells < n_prefix) | (cells >= self._end)
            self._position = np.where(cells < n_prefix, cells, 0)
            # The last row belongs to the root: it sees the prefix and nothing else.
            self._visible = np.zeros((n_cells + 1, n_cells // 8), dtype=np.uint8)
        except MemoryError as error:
            remedy = remedies(operator="ask for a smaller `n_ctx`")
            raise ModelError(words("no memory for the bookkeeping of {} cells; {}", n_cells, remedy)) from error
        self._visible[n_cells] = np.packbits(cells < n_prefix, bitorder="little")

    # A call

    def plan_rows(self, plan: CallPlan) -> tuple[CellRows, int]:
        """Return the rows that a plan evaluates, and their number. Changes nothing.

        These are the rows of new entries, and of existing ones that are wanted again.
        """
        entries = [e for e, node in enumerate(plan.node) if node == NO_NODE or plan.wanted[e]]
        return CellRows(entries), len(entries)

    def make_room(self, plan: CallPlan, _rows: CellRows) -> None:
        """Drop unheld nodes until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        self._drop(self._tree.make_room(plan, nodes=self._nodes, sequences=self.sequences))

    def lay_out(self, plan: CallPlan, rows: CellRows, n_rows: int) -> CellLayout:
        """Choose free cells for the rows of a call, and set `rows.cells`.

        Args:
            plan: The plan of the call.
            rows: Its rows.
            n_rows: Number of rows with padding, which comes last; at least 1.
        """
        entries = rows.entries
        free = np.flatnonzero(~self._is_used)[:n_rows]
        used = np.flatnonzero(self._is_used)
        if len(free) < n_rows:
            raise InternalError(f"{len(free)} cells are free, {n_rows} are needed: {len(self._cell)} nodes are held")
        n_read = max(int(free[-1]), int(used[-1]) if len(used) else 0) + 1
        n_read = -(-n_read // self._read_multiple) * self._read_multiple
        cells, root = free.tolist(), len(self._is_used)
        visible, cell_of = self._visible, self._cell
        in_call: dict[int, int] = {}
        for e, cell in zip(entries, cells, strict=False):
            parent = plan.parent[e]
            above = in_call[~parent] if parent < 0 else root if parent == ROOT else cell_of[parent]
            in_call[e] = cell
            row = visible[cell]
            row[:] = visible[above]
            row[cell >> 3] |= 1 << (cell & 7)
        for cell in cells[len(entries) :]:
            visible[cell] = 0
            visible[cell, cell >> 3] = 1 << (cell & 7)
        tokens, positions = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
        tokens[: len(entries)] = [plan.token[e] for e in entries]
        positions[: len(entries)] = [self._n_prefix + plan.depth[e] - 1 for e in entries]
        self._position[free] = positions
        seen = np.unpackbits(visible[free, : n_read // 8], axis=1, bitorder="little").view(np.bool_)
        rows.cells = free[: len(entries)]
        return CellLayout(tokens, positions, free, seen, self._position[:n_read].copy())

    def finish(self, plan: CallPlan, rows: CellRows, nodes: list[int]) -> None:
        """Record the cells of the new nodes.

        Args:
            plan: The call.
            rows: Its rows, after `lay_out`.
            nodes: The node of each entry of the plan (`CallPlan.nodes_of_entries`).
        """
        if rows.cells is None:
            return
        new = [
            (nodes[e], cell)
            for e, cell in zip(rows.entries, rows.cells.tolist(), strict=True)
            if plan.node[e] == NO_NODE
        ]
        self._cell.update(new)
        self._is_used[[cell for _, cell in new]] = True

    def restore(self) -> None:
        """Forget the cells of nodes that are not in the tree, after a failed call."""
        references = self._tree.references
        self._cell = {node: cell for node, cell in self._cell.items() if references[node] >= 0}
        self._is_used[self._n_prefix : self._end] = False
        self._is_used[list(self._cell.values())] = True

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes, leaf first, and free their cells."""
        if nodes:
            self._tree.drop(nodes)
            self._is_used[[self._cell.pop(node) for node in nodes]] = False


S = TypeVar("S")

_NO_ENTRY = -1
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Run:
    """Entries on one path that are evaluated one after the other, from a state.

    Attributes:
        base: The node from whose state the run starts.
        entries: Indices of the entries in the `CallPlan`.
        keeps: Whether the state after the last entry is kept.
    """

    base: int
    entries: list[int]
    keeps: bool


class NodeStates(Generic[S]):
    """The states of type S that are kept for nodes of a tree.

    A back end derives from this class. It adds states to `_state`, and overrides
    `_drop_state` if a dropped state has to be freed.

    Attributes:
        sequences: Maximum number of states.
    """

    def __init__(self, tree: PrefixTree, sequences: int) -> None:
        self._tree, self.sequences = tree, sequences
        self._state: dict[int, S] = {}

    @property
    def free_sequences(self) -> int:
        """Return how many states would be free if all unheld nodes were dropped."""
        references = self._tree.references
        return self.sequences - sum(1 for node in self._state if references[node])

    def can_extend(self, node: int) -> bool:
        """Return whether the node owns a state; the empty context needs none."""
        return node == ROOT or node in self._state

    # A call

    def plan_runs(self, plan: CallPlan) -> list[Run]:
        """Return the smallest number of runs that evaluate all entries that are due.

        An entry is due if it is new, wanted again, or needs a state. A run ends at
        every entry that needs a state, and at every due entry that no other run passes
        through. Existing nodes without a state on the way are evaluated again.

        Raises `NodeError` for a parent whose state was not kept.
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
            runs.append(Run(base[e], entries[::-1], needs_state))
        return runs[::-1]

    def _nodes_to_drop(self, plan: CallPlan, nodes: int) -> list[int]:
        """Return the cached nodes to drop so that the tree has at most `nodes` nodes.

        Raises `CapacityError` if that is not possible. Branches are not counted, since
        only states are limited.
        """
        return self._tree.make_room(plan, nodes=nodes, sequences=_UNLIMITED)

    def _droppable(self, protected: Collection[int]) -> list[int]:
        """Return the nodes without references, and not protected, that have states.

        Their states may be dropped. They come in the order in which the states were
        kept. The nodes themselves may stay in the tree.
        """
        references = self._tree.references
        return [node for node in self._state if not references[node] and node not in protected]

    def _eviction_key(self, node: int) -> tuple[int, int]:
        """Return a sort key of nodes whose smallest one loses its state first.

        The least recently used node comes first, and of several the deepest.
        """
        return self._tree.used[node], -self._tree.depth[node]

    # Dropping

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does, and drop forgotten nodes.

        A forgotten node loses its state now, even if the node has to stay for others.
        """
        gone = self._tree.release(nodes, forget=forget)
        if forget:
            for node in set(np.asarray(nodes).tolist()):
                if node in self._state and not self._tree.references[node]:
                    self._drop_state(node)
        self._drop(gone)

    def trim(self, idle_rows: int) -> int:
        """Drop nodes and states unused for `idle_rows` rows, and return their number.

        A node that stays for others loses only its state.
        """
        tree = self._tree
        nodes = tree.idle(idle_rows)
        dropped = set(nodes)
        states = [n for n in self._state if not tree.references[n] and tree.clock - tree.used[n] >= idle_rows]
        states = [n for n in states if n not in dropped]
        for node in states:
            self._drop_state(node)
        self._drop(nodes)
        return len(nodes) + len(states)

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes, leaf first, with their states."""
        for node in nodes:
            if node in self._state:
                self._drop_state(node)
        self._tree.drop(nodes)

    def _drop_state(self, node: int) -> None:
        """Drop the state of a node that has one."""
        del self._state[node]
