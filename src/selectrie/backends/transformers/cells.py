"""Keep contexts of attention models in cells: one for each node of the tree."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from selectrie.backends.node_cells import CellRows, NodeCells
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.attention import CELL_MULTIPLE, TreeCall
from selectrie.backends.transformers.module import PreparedModule, Route, pad_outputs
from selectrie.backends.transformers.prefix import Prefix
from selectrie.core.types import IntArray, LogitArray


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """The logits of one call.

    Attributes:
        logits: [M, V], on the model's device; an array if that is not one of torch.
        row_of: The row of `logits` for each entry of the plan that has one.
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
    """Keeps what a model remembers of the nodes of a tree.

    A call goes through `plan_rows`, `make_room`, its evaluation, `PrefixTree.commit`
    and `finish`. After an exception from the evaluation on, `restore` is called.
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
        """Remember the new nodes. `nodes` has the node of each entry."""

    def restore(self) -> None:
        """Forget what a failed call remembered of nodes that are not in the tree."""

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""

    def close(self) -> None:
        """Free everything."""


class TorchContexts(Contexts, Protocol):
    """Contexts that a module of torch evaluates, in calls of one program."""

    def evaluate(self, plan: CallPlan, rows: Any, batch_multiple: int) -> Evaluated:
        """Evaluate a call without changing what is remembered of live nodes."""


def cells_for(nodes: int, rows: int) -> int:
    """Return the number of cells that hold this many nodes, and the rows of a call."""
    return -(-(nodes + rows) // CELL_MULTIPLE) * CELL_MULTIPLE


class CellContexts(NodeCells):
    """Keeps keys and values in cells, and evaluates calls over them.

    A prefix has the first cells for good.
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

    def evaluate(self, plan: CallPlan, rows: CellRows, batch_multiple: int) -> Evaluated:
        """Evaluate a call in free cells."""
        entries = rows.entries
        n = len(entries)
        if not n:
            return Evaluated(None, {}, 0, 0, 0.0, 0)
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
        logits = self._cache.without_spoiled(call, logits, outputs)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        row_of = {entries[i]: row for row, i in enumerate(wanted)}
        return Evaluated(logits[: len(wanted)], row_of, n, padding, seconds, 1)

    def close(self) -> None:
        """Free the cells."""
        del self._cache
