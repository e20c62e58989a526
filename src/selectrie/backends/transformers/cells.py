"""Keep contexts of attention models in cells: one for each node of the tree."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.attention import CELL_MULTIPLE, TreeCall
from selectrie.backends.transformers.module import PreparedModule, Route, pad_outputs
from selectrie.core.types import NO_NODE, ROOT, IntArray
from selectrie.errors import InternalError


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """The logits of one call.

    Attributes:
        logits: [M, V], on the model's device.
        row_of: The row of `logits` for each entry of the plan that has one.
        n_rows: Number of rows evaluated.
        padding: Number of rows added.
        seconds: Time spent inside the model.
        n_programs: Number of forward passes.
    """

    logits: Tensor | None
    row_of: dict[int, int]
    n_rows: int
    padding: int
    seconds: float
    n_programs: int


class Contexts(Protocol):
    """Keeps what a model remembers of the nodes of a tree.

    A call goes through `plan_rows`, `make_room`, `evaluate`, `PrefixTree.commit` and
    `finish`. After an exception from `evaluate` on, `restore` is called.
    """

    sequences: int

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free if all unheld nodes were dropped."""

    def can_extend(self, node: int) -> bool:
        """Return whether a live node can be a parent."""

    def plan_rows(self, plan: CallPlan) -> tuple[Any, int]:
        """Return what a plan evaluates, and the number of rows. Changes nothing."""

    def make_room(self, plan: CallPlan, rows: Any) -> None:
        """Drop unheld nodes until the call fits.

        Raises `CapacityError` before anything has changed.
        """

    def evaluate(self, plan: CallPlan, rows: Any, batch_multiple: int) -> Evaluated:
        """Evaluate a call without changing what is remembered of live nodes."""

    def finish(self, plan: CallPlan, rows: Any, nodes: list[int]) -> None:
        """Remember the new nodes. `nodes` has the node of each entry."""

    def restore(self) -> None:
        """Forget what a failed call remembered of nodes that are not in the tree."""

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""

    def close(self) -> None:
        """Free everything."""


Cells: TypeAlias = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class TreeRows:
    """The rows of a call, parents before children.

    Attributes:
        entries: The entry that each row evaluates.
        cells: int64[n], the cell of each row, once they are evaluated.
    """

    entries: list[int]
    cells: Cells | None = None


def cells_for(nodes: int, rows: int) -> int:
    """Return the number of cells for so many nodes and rows of a call."""
    return -(-(nodes + rows) // CELL_MULTIPLE) * CELL_MULTIPLE


class CellContexts:
    """Assigns a cell to each node, and knows for each cell what its row may see.

    What a cell sees is kept as packed bits: those of its parent and its own. Cells of a
    call are free until the call has succeeded, so a failed call changes nothing. A node
    that is wanted again is evaluated into a scratch cell: writing its own would move
    its bits for all nodes below.
    """

    def __init__(
        self, tree: PrefixTree, prepared: PreparedModule, *, nodes: int, rows: int, stop: threading.Event, solo: bool
    ) -> None:
        self._tree, self._prepared, self._stop = tree, prepared, stop
        self._nodes = nodes
        self.sequences = nodes
        self._in_path_order = solo and prepared.route is Route.FUNCTION
        self._reads_all = solo and prepared.route is not Route.FUNCTION
        n_cells = cells_for(nodes, rows)
        self._cache = prepared.new_cache(n_cells)
        self._cell: dict[int, int] = {}
        self._is_used = np.zeros(n_cells, dtype=np.bool_)
        self._position = np.zeros(n_cells, dtype=np.int64)
        # The last row belongs to the root: it sees nothing.
        self._visible = np.zeros((n_cells + 1, n_cells // 8), dtype=np.uint8)

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free if all unheld nodes were dropped."""
        return self.sequences - self._tree.n_held_leaves

    def can_extend(self, _node: int) -> bool:
        """Return True: every node of the tree can be a parent."""
        return True

    def plan_rows(self, plan: CallPlan) -> tuple[TreeRows, int]:
        """Return what a plan evaluates: new entries and existing ones wanted again."""
        entries = [e for e, node in enumerate(plan.node) if node == NO_NODE or plan.wanted[e]]
        return TreeRows(entries), len(entries)

    def make_room(self, plan: CallPlan, _rows: TreeRows) -> None:
        """Drop unheld nodes until the call fits.

        Raises `CapacityError` before anything has changed.
        """
        self._drop(self._tree.make_room(plan, nodes=self._nodes, sequences=self.sequences))

    def evaluate(self, plan: CallPlan, rows: TreeRows, batch_multiple: int) -> Evaluated:
        """Evaluate a call in free cells."""
        entries = rows.entries
        n = len(entries)
        if not n:
            return Evaluated(None, {}, 0, 0, 0.0, 0)
        padding = -n % batch_multiple
        call, ids = self._lay_out(plan, entries, n + padding)
        rows.cells = call.cells[:n]
        wanted = [i for i, e in enumerate(entries) if plan.wanted[e]]
        prepared, device = self._prepared, self._prepared.device
        begin = time.perf_counter()
        logits = prepared.forward_tree(
            call,
            torch.from_numpy(ids).to(device),
            torch.from_numpy(call.positions).to(device),
            torch.tensor(pad_outputs(wanted, batch_multiple), dtype=torch.long, device=device),
            self._cache,
        )
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        row_of = {entries[i]: row for row, i in enumerate(wanted)}
        return Evaluated(logits[: len(wanted)], row_of, n, padding, seconds, 1)

    def _lay_out(self, plan: CallPlan, entries: list[int], size: int) -> tuple[TreeCall, Cells]:
        """Return the call, with rows of padding at its end, and its tokens."""
        free = np.flatnonzero(~self._is_used)[:size]
        used = np.flatnonzero(self._is_used)
        if len(free) < size:
            raise InternalError(f"{len(free)} cells are free, {size} are needed: {len(self._cell)} nodes are held")
        n_cells = max(int(free[-1]), int(used[-1]) if len(used) else 0) + 1
        n_cells = len(self._is_used) if self._reads_all else -(-n_cells // CELL_MULTIPLE) * CELL_MULTIPLE
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
        ids, positions = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        ids[: len(entries)] = [plan.token[e] for e in entries]
        positions[: len(entries)] = [plan.depth[e] - 1 for e in entries]
        self._position[free] = positions
        seen = np.unpackbits(visible[free, : n_cells // 8], axis=1, bitorder="little").view(np.bool_)
        call = TreeCall(
            self._stop, free, seen, positions, self._position[:n_cells].copy(), in_path_order=self._in_path_order
        )
        return call, ids

    def finish(self, plan: CallPlan, rows: TreeRows, nodes: list[int]) -> None:
        """Remember the cells of the new nodes. `nodes` has the node of each entry."""
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
        """Forget the cells of nodes that are not in the tree."""
        references = self._tree.references
        self._cell = {node: cell for node, cell in self._cell.items() if references[node] >= 0}
        self._is_used[:] = False
        self._is_used[list(self._cell.values())] = True

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""
        self._drop(self._tree.release(nodes, forget=forget))

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""
        nodes = self._tree.idle(idle_rows)
        self._drop(nodes)
        return len(nodes)

    def _drop(self, nodes: list[int]) -> None:
        if nodes:
            self._tree.drop(nodes)
            self._is_used[[self._cell.pop(node) for node in nodes]] = False

    def close(self) -> None:
        """Free the cells."""
        del self._cache
