"""Implements the model port of `selectrie.core.model` with programs of fixed shapes."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from selectrie.backends.node_store import CellLayout, CellRows, NodeCells
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.cells import CallLogits
from selectrie.backends.transformers.model import ModuleModel, larger_context, processor_name
from selectrie.backends.transformers.module import PreparedModule
from selectrie.backends.xla.options import XlaOptions
from selectrie.backends.xla.programs import Int32s, Pool, Programs, is_lost, least_seconds
from selectrie.core.model import SOLO_SEQUENCES
from selectrie.core.types import BatchSizes, BoolArray, Limits, LogitArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import DecodeInterrupted, ModelError, OptionError

CELL_MULTIPLE = 64
"""The number of cells of a pool is a multiple of this."""


def cells_needed(nodes: int, rows: int) -> int:
    """Return the number of cells of a key/value pool for `nodes` nodes.

    `rows` is the maximum number of rows of a call. Nodes that are wanted again are
    evaluated into additional cells, and the rows of padding share one.
    """
    return -(-(nodes + min(nodes, rows) + 1) // CELL_MULTIPLE) * CELL_MULTIPLE


class PoolCells(NodeCells):
    """Evaluates nodes into the cells of a key/value pool; one cell is for padding."""

    def __init__(
        self, tree: PrefixTree, programs: Programs, *, nodes: int, n_cells: int, stop: threading.Event
    ) -> None:
        super().__init__(tree, nodes=nodes, n_cells=n_cells, read_multiple=n_cells, n_reserved=1)
        self._programs, self._stop = programs, stop
        self._padding_cell = n_cells - 1
        self._is_spoiled = np.zeros(n_cells, dtype=np.bool_)
        self._pool: Pool | None = programs.new_pool(n_cells)

    def evaluate(self, plan: CallPlan, rows: CellRows, bodies: BatchSizes, heads: BatchSizes) -> CallLogits:
        """Evaluate a call in free cells.

        `bodies` and `heads` have the batch sizes of the compiled programs of the layers
        and of the logits, among which the rows are split.

        Raises:
            DecodeError: A program failed.
            DecodeInterrupted: `stop` was set; it is checked after each program.
        """
        entries = rows.entries
        n = len(entries)
        if not n:
            return CallLogits(None, {}, 0, 0, 0.0, 0)
        layout = self.lay_out(plan, rows, n)
        wanted = [i for i, e in enumerate(entries) if plan.wanted[e]]
        sizes = bodies.programs(n)
        begin = time.perf_counter()
        start = 0
        for size in sizes:
            is_finite = self._evaluate_part(self._body_arguments(layout, start, size), start)
            cells = layout.cells[start : start + size]
            self._is_spoiled[cells] = ~is_finite[: len(cells)]
            start += size
            if self._stop.is_set():
                raise DecodeInterrupted("the decode was interrupted")
        logits = self._logits(np.array(wanted, dtype=np.int32), heads)
        if logits is not None and self._is_spoiled.any():
            # As `CellCache.mask_spoiled` does.
            logits = logits.copy()
            logits[np.any(layout.visible[wanted] & self._is_spoiled, axis=1)] = np.nan
        seconds = time.perf_counter() - begin
        row_of = {entries[i]: row for row, i in enumerate(wanted)}
        return CallLogits(logits, row_of, n, start - n, seconds, len(sizes))

    def seconds_of_body(self, size: int, n_runs: int) -> float:
        """Compile the layers for batches of `size` rows, and return their seconds.

        `n_runs` is the number of runs to measure (`least_seconds`).
        """
        nothing = np.empty(0, dtype=np.int64)
        n_cells = len(self._is_used)
        layout = CellLayout(
            nothing, nothing, nothing, np.empty((0, n_cells), dtype=np.bool_), np.zeros(n_cells, np.int64)
        )
        part = self._body_arguments(layout, 0, size)
        return least_seconds(lambda: self._evaluate_part(part, 0), n_runs)

    def _evaluate_part(self, part: tuple[NDArray[np.generic], ...], start: int) -> BoolArray:
        """Run the layers for some rows; return whether each row's numbers are finite.

        `part` has the arguments of `_body_arguments`, `start` the index of row 0 among
        the hidden states.
        """
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

    def _body_arguments(self, layout: CellLayout, start: int, size: int) -> tuple[NDArray[np.generic], ...]:
        """Return the arguments of a body: `size` rows from `start` on, with padding."""
        part = slice(start, start + size)
        n = len(layout.tokens[part])
        visible = np.zeros((size, layout.visible.shape[1]), dtype=np.bool_)
        visible[:n] = layout.visible[part]
        visible[n:, self._padding_cell] = True
        return (
            _pad(layout.tokens[part], size, 0),
            _pad(layout.positions[part], size, 0),
            _pad(layout.cells[part], size, self._padding_cell),
            visible,
            layout.cell_positions.astype(np.int32),
        )

    def _logits(self, wanted: Int32s, heads: BatchSizes) -> LogitArray | None:
        """Return float32[M, V], the logits of the rows with these indices.

        None if there are none.
        """
        parts: list[LogitArray] = []
        start = 0
        for size in heads.programs(len(wanted)):
            part = wanted[start : start + size]
            parts.append(self._programs.head(_pad(part, size, 0))[: len(part)])
            start += size
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def close(self) -> None:
        """Free the cells."""
        self._pool = None


def _pad(values: NDArray[np.integer], size: int, fill: int) -> Int32s:
    """Return int32[size], the values and then `fill`."""
    result = np.full(size, fill, dtype=np.int32)
    result[: len(values)] = values
    return result


_SHORT_PART = 4
"""A short pool has one cell for this many of the long one's."""


@dataclass(frozen=True, slots=True)
class PoolLengths:
    """The two lengths of key/value pools, to which contexts are rounded up.

    Attributes:
        long: Number of cells in the key/value pool of the opened model.
        short: Number of cells of a pool for short contexts; at most `long`.
    """

    long: int
    short: int

    @staticmethod
    def of(nodes: int, rows: int) -> PoolLengths:
        """Return the lengths for a model of `nodes` nodes and calls of `rows` rows.

        A context of `nodes + rows` nodes fits into the long one.
        """
        long = cells_needed(nodes + rows, rows)
        return PoolLengths(long, min(long, cells_needed(-(-long // _SHORT_PART), 0)))

    def length_for(self, n_cells: int) -> int:
        """Return the length of a pool of at least `n_cells` cells.

        Beyond the long length it is a multiple of that, and needs further programs.
        """
        return self.short if n_cells <= self.short else -(-n_cells // self.long) * self.long


@dataclass(slots=True)
class SharedModule:
    """The parts that all models on one module share.

    Attributes:
        prepared: The module.
        programs: Its compiled programs. A body runs the layers, a head computes logits.
        vocabulary: Its vocabulary.
        options: The options it was opened with.
        digest: Digest of the weights.
        device: The device of JAX.
        lengths: Lengths of key/value pools.
        bodies: Batch sizes of the bodies, and their seconds.
        heads: Batch sizes of the heads, and their seconds.
        stop: Set to interrupt a running call.
    """

    prepared: PreparedModule
    programs: Programs
    vocabulary: Vocabulary
    options: XlaOptions
    digest: str
    device: Any
    lengths: PoolLengths
    bodies: BatchSizes
    heads: BatchSizes
    stop: threading.Event

    @property
    def rows_per_call(self) -> int:
        """Return the maximum number of rows of a call."""
        return max(self.options.buckets)

    @property
    def identity(self) -> ModelIdentity:
        """Return the identity of every model on this module."""
        return ModelIdentity(
            name=self.prepared.name,
            digest=self.digest,
            tokenizer_digest=self.vocabulary.digest,
            backend="xla",
            build=", ".join(f"{name} {version(name)}" for name in ("jax", "torchax", "transformers", "torch")),
            processor=_processor(self.device),
            precision=self.options.precision.value,
            n_parameters=self.prepared.n_parameters,
        )


@final
class XlaModel(ModuleModel):
    """A model that evaluates trees of contexts with compiled programs.

    Attributes:
        source: The parts that it shares with its `new_context` models.
    """

    def __init__(self, source: SharedModule, *, nodes: int, rows: int, n_cells: int) -> None:
        tree = PrefixTree(source.vocabulary.n_tokens)
        self.source = source
        self._cells = PoolCells(tree, source.programs, nodes=nodes, n_cells=n_cells, stop=source.stop)
        super().__init__(source.prepared, source.vocabulary, tree, self._cells, stop=source.stop)
        self._nodes, self._rows = nodes, rows

    @property
    def limits(self) -> Limits:
        prepared = self.source.prepared
        return Limits(
            nodes=self._nodes,
            sequences=self._nodes,
            rows_per_call=self._rows,
            kind=prepared.kind,
            max_idle_rows=None,
            batch_sizes=self.source.bodies,
            larger_context=larger_context(self._nodes, prepared.max_positions),
        )

    @property
    def identity(self) -> ModelIdentity:
        return self.source.identity

    @property
    def n_compiled(self) -> tuple[int, int]:
        """Return the numbers of bodies and of heads compiled for the module so far."""
        return self.source.programs.n_bodies, self.source.programs.n_heads

    def seconds_of_body(self, size: int, n_runs: int) -> float:
        """Compile the layers for `size` rows over this model's key/value pool.

        Returns the seconds of the fastest of up to `n_runs` runs, or infinity with 0
        (`programs.least_seconds`). The model must hold no nodes.
        """
        return self._cells.seconds_of_body(size, n_runs)

    def set_batch_multiple(self, value: int) -> None:
        """Raise `OptionError`: the batch sizes are fixed."""
        self._require_open()
        raise OptionError("batch_multiple", value, "no value: the batch sizes of a compiled model are fixed")

    def new_context(
        self,
        nodes: int,
        sequences: int = SOLO_SEQUENCES,  # noqa: ARG002 - branches cost nothing here
        rows: int | None = None,
    ) -> XlaModel:
        self._require_open()
        nodes = max(nodes, 8)
        rows = min(self.source.rows_per_call, nodes, rows or nodes)
        n_cells = self.source.lengths.length_for(cells_needed(nodes, rows))
        return XlaModel(self.source, nodes=nodes, rows=rows, n_cells=n_cells)

    def _evaluate(self, plan: CallPlan, rows: Any) -> CallLogits:
        return self._cells.evaluate(plan, rows, self.source.bodies, self.source.heads)


def _processor(device: Any) -> str:
    """Return the name of a JAX device's processor, which decides which kernels run."""
    if device.platform == "cpu":
        return f"{processor_name(torch.device('cpu'))}, {os.cpu_count()} cores"
    return str(device.device_kind)
