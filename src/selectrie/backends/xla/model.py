"""Implement the model port of `selectrie.core.model` with programs of fixed shapes."""

from __future__ import annotations

import os
import platform
import threading
import weakref
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

import numpy as np
import torch

from selectrie.backends.calls import require_rows
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.module import PreparedModule
from selectrie.backends.xla.cells import PoolCells, cells_needed
from selectrie.backends.xla.options import XlaOptions
from selectrie.backends.xla.programs import Programs
from selectrie.core.model import SOLO_SEQUENCES, Extension
from selectrie.core.rows import DenseRows
from selectrie.core.types import BatchSizes, BoolArray, Capacity, IntArray, Limits, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CapacityError, ClosedError, OptionError

_SHORT = 4
"""The short pools have this fraction of the cells of the long ones."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The two lengths of pools, to which contexts are rounded up.

    Attributes:
        long: Cells of the pool of the model that is opened.
        short: Cells of a small one; equal to `long` where that is small itself.
    """

    long: int
    short: int

    @staticmethod
    def of(nodes: int, rows: int) -> Lengths:
        """Return the lengths for a model of so many nodes, and rows of a call.

        A context that holds a call's rows beside as many nodes fits into the long one.
        """
        long = cells_needed(nodes + rows, rows)
        return Lengths(long, min(long, cells_needed(-(-long // _SHORT), 0)))

    def fitting(self, n_cells: int) -> int:
        """Return the length of a pool of at least `n_cells` cells.

        Beyond the long one it is a multiple of that, with programs of its own.
        """
        return self.short if n_cells <= self.short else -(-n_cells // self.long) * self.long


@dataclass(slots=True)
class Source:
    """What the models of one module share.

    Attributes:
        prepared: The module.
        programs: Its programs.
        vocabulary: Its vocabulary.
        options: The options it was opened with.
        digest: Digest of the weights.
        device: The device of JAX.
        lengths: Lengths of pools.
        bodies: The bodies, and how long they take.
        heads: The heads, and how long they take.
        stop: Set to interrupt a running call.
    """

    prepared: PreparedModule
    programs: Programs
    vocabulary: Vocabulary
    options: XlaOptions
    digest: str
    device: Any
    lengths: Lengths
    bodies: BatchSizes
    heads: BatchSizes
    stop: threading.Event

    @property
    def rows_per_call(self) -> int:
        """Return the maximum number of rows of a call."""
        return max(self.options.buckets)

    @property
    def identity(self) -> ModelIdentity:
        """Return what a score depends on."""
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
class XlaModel:
    """A model that evaluates trees of contexts by compiled programs.

    See `selectrie.core.model.Model` for the contracts of its methods.

    Only `interrupt` is thread-safe. If a call fails after nodes were evicted for it,
    they are not restored: they were cached and held by no caller.
    """

    def __init__(self, source: Source, *, nodes: int, rows: int, n_cells: int) -> None:
        self._source, self._nodes, self._rows = source, nodes, rows
        self._tree = PrefixTree(source.vocabulary.n_tokens)
        self._cells = PoolCells(self._tree, source.programs, nodes=nodes, n_cells=n_cells, stop=source.stop)
        source.prepared.acquire()
        self._release = weakref.finalize(self, source.prepared.release)

    # What it is

    @property
    def vocabulary(self) -> Vocabulary:
        return self._source.vocabulary

    @property
    def limits(self) -> Limits:
        return Limits(
            nodes=self._nodes,
            sequences=self._nodes,
            rows_per_call=self._rows,
            kind=self._source.prepared.kind,
            max_idle_rows=None,
            batch_sizes=self._source.bodies,
        )

    @property
    def identity(self) -> ModelIdentity:
        return self._source.identity

    @property
    def source(self) -> Source:
        """Return what this model shares with its contexts."""
        return self._source

    @property
    def n_compiled(self) -> tuple[int, int]:
        """Return how many bodies and heads were compiled for the module so far."""
        return self._source.programs.n_bodies, self._source.programs.n_heads

    def seconds_of_body(self, size: int, n_runs: int) -> float:
        """Compile a body for the pool of this model, and return how long it takes.

        See `programs.least_seconds`. The model must be empty.
        """
        return self._cells.seconds_of_body(size, n_runs)

    def set_batch_multiple(self, value: int) -> None:
        """Raise `OptionError`: the batch sizes are fixed."""
        self._require_open()
        raise OptionError("batch_multiple", value, "no value: the batch sizes of a compiled model are fixed")

    # The port's verbs

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._require_open()
        self._source.stop.clear()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        row_plan, n_rows = self._cells.plan_rows(plan)
        require_rows(n_rows, self._rows)
        bound = self._source.prepared.max_positions
        if bound is not None and plan.depth and max(plan.depth) > bound:
            raise CapacityError("positions", required=max(plan.depth), available=bound)
        self._cells.make_room(plan, row_plan)
        try:
            evaluated = self._cells.evaluate(plan, row_plan, self._source.bodies, self._source.heads)
            rows = self._dense_rows(evaluated.logits, evaluated.row_of, plan, wanted)
            nodes = self._tree.commit(plan, evaluated.n_rows)
            self._cells.finish(plan, row_plan, plan.nodes_of_entries(nodes))
        except BaseException:
            self._tree.rollback(plan)
            self._cells.restore()
            raise
        return Extension(
            nodes=nodes,
            rows=rows,
            rows_evaluated=evaluated.n_rows,
            rows_repeated=evaluated.n_rows - plan.n_new,
            rows_padded=evaluated.padding,
            decode_s=evaluated.seconds,
            n_programs=evaluated.n_programs,
        )

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        self._require_open()
        node, depth = self._tree.match_prefix(tokens)
        self._tree.inc_ref(node)
        return node, depth

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._require_open()
        self._cells.release(nodes, forget=forget)

    def capacity(self) -> Capacity:
        self._require_open()
        nodes = self._nodes - self._tree.n_held
        return Capacity(rows=self._rows, nodes=nodes, sequences=self._cells.free_sequences)

    def trim(self, idle_rows: int) -> int:
        self._require_open()
        return self._cells.trim(idle_rows)

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> XlaModel:  # noqa: ARG002 - branches cost nothing here
        self._require_open()
        nodes = max(nodes, 8)
        rows = min(self._source.rows_per_call, nodes, rows or nodes)
        n_cells = self._source.lengths.fitting(cells_needed(nodes, rows))
        return XlaModel(self._source, nodes=nodes, rows=rows, n_cells=n_cells)

    def interrupt(self) -> None:
        """Stop the running decode as `Model.interrupt` does, after its program."""
        self._source.stop.set()

    def close(self) -> None:
        if self._release.alive:
            self._release()
            self._cells.close()

    def __enter__(self) -> XlaModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # How it is done

    def _require_open(self) -> None:
        if not self._release.alive:
            raise ClosedError(f"the model {self._source.prepared.name}")

    def _dense_rows(self, logits: Any, row_of: dict[int, int], plan: CallPlan, wanted: BoolArray) -> DenseRows:
        if logits is None:
            return DenseRows(np.empty((0, self.vocabulary.n_tokens), dtype=np.float32))
        order = [row_of[e] for e in plan.entries_of_wanted(wanted)]
        return DenseRows(logits if order == list(range(len(logits))) else logits[order])


def _processor(device: Any) -> str:
    """Return what computes, by the name that decides which kernels are used."""
    if device.platform == "cpu":
        return f"{platform.machine()}: {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"
    return str(device.device_kind)
