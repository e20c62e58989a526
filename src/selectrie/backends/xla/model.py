"""Implement the model port of `selectrie.core.model` with programs of fixed shapes."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, final

import torch

from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.cells import Evaluated
from selectrie.backends.transformers.model import processor_name
from selectrie.backends.transformers.module import PreparedModule
from selectrie.backends.transformers.module_model import ModuleModel, larger_context
from selectrie.backends.xla.cells import PoolCells, cells_needed
from selectrie.backends.xla.options import XlaOptions
from selectrie.backends.xla.programs import Programs
from selectrie.core.model import SOLO_SEQUENCES
from selectrie.core.types import BatchSizes, Limits, ModelIdentity
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import OptionError

_SHORT_PART = 4
"""A short pool has one cell for this many of the long one's."""


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
        """Return the lengths for a model of this many nodes, and rows of a call.

        A context of `nodes + rows` nodes fits into the long one.
        """
        long = cells_needed(nodes + rows, rows)
        return Lengths(long, min(long, cells_needed(-(-long // _SHORT_PART), 0)))

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
class XlaModel(ModuleModel):
    """A model that evaluates trees of contexts by compiled programs."""

    def __init__(self, source: Source, *, nodes: int, rows: int, n_cells: int) -> None:
        tree = PrefixTree(source.vocabulary.n_tokens)
        self._source = source
        self._cells = PoolCells(tree, source.programs, nodes=nodes, n_cells=n_cells, stop=source.stop)
        super().__init__(source.prepared, source.vocabulary, tree, self._cells, stop=source.stop)
        self._nodes, self._rows = nodes, rows

    @property
    def limits(self) -> Limits:
        prepared = self._source.prepared
        return Limits(
            nodes=self._nodes,
            sequences=self._nodes,
            rows_per_call=self._rows,
            kind=prepared.kind,
            max_idle_rows=None,
            batch_sizes=self._source.bodies,
            larger_context=larger_context(self._nodes, prepared.max_positions),
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

    def new_context(
        self,
        nodes: int,
        sequences: int = SOLO_SEQUENCES,  # noqa: ARG002 - branches cost nothing here
        rows: int | None = None,
    ) -> XlaModel:
        self._require_open()
        nodes = max(nodes, 8)
        rows = min(self._source.rows_per_call, nodes, rows or nodes)
        n_cells = self._source.lengths.fitting(cells_needed(nodes, rows))
        return XlaModel(self._source, nodes=nodes, rows=rows, n_cells=n_cells)

    def _evaluate(self, plan: CallPlan, rows: Any) -> Evaluated:
        return self._cells.evaluate(plan, rows, self._source.bodies, self._source.heads)


def _processor(device: Any) -> str:
    """Return what computes, by the name that decides which kernels are used."""
    if device.platform == "cpu":
        return f"{processor_name(torch.device('cpu'))}, {os.cpu_count()} cores"
    return str(device.device_kind)
