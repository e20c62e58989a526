"""Evaluate nodes into cells of a pool, by programs of fixed sizes."""

from __future__ import annotations

import threading
import time

import numpy as np
from numpy.typing import NDArray

from selectrie.backends.node_cells import CellLayout, CellRows, NodeCells
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.cells import Evaluated
from selectrie.backends.xla.programs import Int32s, Pool, Programs, is_lost, least_seconds
from selectrie.core.types import BatchSizes, BoolArray, LogitArray
from selectrie.errors import DecodeInterrupted, ModelError

CELL_MULTIPLE = 64
"""Pools have a multiple of this many cells."""


def cells_needed(nodes: int, rows: int) -> int:
    """Return the number of cells for this many nodes, and rows of a call.

    Nodes that are wanted again are evaluated into cells of their own, and the rows of
    padding share one.
    """
    return -(-(nodes + min(nodes, rows) + 1) // CELL_MULTIPLE) * CELL_MULTIPLE


class PoolCells(NodeCells):
    """Evaluates nodes into the cells of a pool; its last cell is for padding."""

    def __init__(
        self, tree: PrefixTree, programs: Programs, *, nodes: int, n_cells: int, stop: threading.Event
    ) -> None:
        super().__init__(tree, nodes=nodes, n_cells=n_cells, read_multiple=n_cells, n_reserved=1)
        self._programs, self._stop = programs, stop
        self._padding_cell = n_cells - 1
        self._is_spoiled = np.zeros(n_cells, dtype=np.bool_)
        self._pool: Pool | None = programs.new_pool(n_cells)

    def evaluate(self, plan: CallPlan, rows: CellRows, bodies: BatchSizes, heads: BatchSizes) -> Evaluated:
        """Evaluate a call in free cells, by as many programs as the sizes say.

        Raises:
            DecodeError: A program failed.
            DecodeInterrupted: `stop` was set; looked at after each program.
        """
        entries = rows.entries
        n = len(entries)
        if not n:
            return Evaluated(None, {}, 0, 0, 0.0, 0)
        layout = self.lay_out(plan, rows, n)
        wanted = [i for i, e in enumerate(entries) if plan.wanted[e]]
        sizes = bodies.programs(n)
        begin = time.perf_counter()
        start = 0
        for size in sizes:
            is_finite = self._evaluate_part(self._part(layout, start, size), start)
            cells = layout.cells[start : start + size]
            self._is_spoiled[cells] = ~is_finite[: len(cells)]
            start += size
            if self._stop.is_set():
                raise DecodeInterrupted("the decode was interrupted")
        logits = self._logits(np.array(wanted, dtype=np.int32), heads)
        if logits is not None and self._is_spoiled.any():
            # As `CellCache.without_spoiled` does.
            logits = logits.copy()
            logits[np.any(layout.visible[wanted] & self._is_spoiled, axis=1)] = np.nan
        seconds = time.perf_counter() - begin
        row_of = {entries[i]: row for row, i in enumerate(wanted)}
        return Evaluated(logits, row_of, n, start - n, seconds, len(sizes))

    def seconds_of_body(self, size: int, n_runs: int) -> float:
        """Compile a body, and return its seconds, measured as by `least_seconds`."""
        nothing = np.empty(0, dtype=np.int64)
        n_cells = len(self._is_used)
        layout = CellLayout(
            nothing, nothing, nothing, np.empty((0, n_cells), dtype=np.bool_), np.zeros(n_cells, np.int64)
        )
        part = self._part(layout, 0, size)
        return least_seconds(lambda: self._evaluate_part(part, 0), n_runs)

    def _evaluate_part(self, part: tuple[NDArray[np.generic], ...], start: int) -> BoolArray:
        if self._pool is None:
            raise ModelError("the contexts were lost when a program failed; close the engine and load the model again")
        pool = self._pool
        try:
            self._pool, is_finite = self._programs.body(pool, part, start)
        except BaseException:
            if is_lost(pool):
                self._pool = None
            raise
        return is_finite

    def _part(self, layout: CellLayout, start: int, size: int) -> tuple[NDArray[np.generic], ...]:
        """Return the arguments of a body: rows from `start` on, and padding."""
        part = slice(start, start + size)
        n = len(layout.tokens[part])
        visible = np.zeros((size, layout.visible.shape[1]), dtype=np.bool_)
        visible[:n] = layout.visible[part]
        visible[n:, self._padding_cell] = True
        return (
            _filled(layout.tokens[part], size, 0),
            _filled(layout.positions[part], size, 0),
            _filled(layout.cells[part], size, self._padding_cell),
            visible,
            layout.cell_positions.astype(np.int32),
        )

    def _logits(self, wanted: Int32s, heads: BatchSizes) -> LogitArray | None:
        """Return the logits of hidden states, float32[M, V], or None for none."""
        parts: list[LogitArray] = []
        start = 0
        for size in heads.programs(len(wanted)):
            part = wanted[start : start + size]
            parts.append(self._programs.head(_filled(part, size, 0))[: len(part)])
            start += size
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def close(self) -> None:
        """Free the cells."""
        self._pool = None


def _filled(values: NDArray[np.integer], size: int, fill: int) -> Int32s:
    result = np.full(size, fill, dtype=np.int32)
    result[: len(values)] = values
    return result
