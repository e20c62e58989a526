"""What models that evaluate a prepared module have in common."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np

from selectrie.backends.calls import require_one_round, require_rows
from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.backends.transformers.cells import Contexts, Evaluated
from selectrie.backends.transformers.module import PreparedModule
from selectrie.backends.transformers.rows import rows_of
from selectrie.core.model import Extension
from selectrie.core.rows import DenseRows, Rows
from selectrie.core.types import BoolArray, Capacity, IntArray, Limits
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CapacityError, ClosedError, ways

_Model = TypeVar("_Model", bound="ModuleModel")


class ModuleModel(ABC):
    """A model that evaluates trees of contexts by a prepared module.

    See `selectrie.core.model.Model` for the contracts of its methods. A subclass says
    how a call is evaluated, and what the model's limits and identity are.

    Only `interrupt` is thread-safe. Nodes that were evicted for a call do not come back
    if the call fails. No caller held them.
    """

    def __init__(
        self,
        prepared: PreparedModule,
        vocabulary: Vocabulary,
        tree: PrefixTree,
        contexts: Contexts,
        *,
        stop: threading.Event,
        n_prefix: int = 0,
    ) -> None:
        """Hold the module until `close`.

        Args:
            prepared: The module.
            vocabulary: What its token ids mean.
            tree: The tree, which is empty.
            contexts: What the model remembers of the nodes of the tree.
            stop: Set to interrupt a running call.
            n_prefix: Number of tokens that stand before all contexts.
        """
        self._prepared, self._vocabulary = prepared, vocabulary
        self._tree, self._contexts = tree, contexts
        self._stop, self._n_prefix = stop, n_prefix
        prepared.acquire()
        self._release = weakref.finalize(self, prepared.release)

    @abstractmethod
    def _evaluate(self, plan: CallPlan, rows: Any) -> Evaluated:
        """Evaluate a call; `rows` is what `Contexts.plan_rows` has returned."""

    @property
    @abstractmethod
    def limits(self) -> Limits: ...

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._require_open()
        self._stop.clear()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        require_one_round(self._prepared.kind, parents, keep)
        row_plan, n_rows = self._contexts.plan_rows(plan)
        require_rows(n_rows, self.limits.rows_per_call)
        self._require_positions(plan)
        self._contexts.make_room(plan, row_plan)
        try:
            evaluated = self._evaluate(plan, row_plan)
            rows = _rows(evaluated, plan, wanted, self._vocabulary.n_tokens)
            nodes = self._tree.commit(plan, evaluated.n_rows)
            self._contexts.finish(plan, row_plan, plan.nodes_of_entries(nodes))
        except BaseException:
            self._tree.rollback(plan)
            self._contexts.restore()
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
        usable = self._contexts.can_extend if self._prepared.kind.is_recurrent else None
        node, depth = self._tree.match_prefix(tokens, usable)
        self._tree.inc_ref(node)
        return node, depth

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._require_open()
        self._contexts.release(nodes, forget=forget)

    def capacity(self) -> Capacity:
        self._require_open()
        limits = self.limits
        nodes = limits.nodes - self._tree.n_held
        free, cached = self._contexts.free_sequences, self._tree.n_nodes
        return Capacity(rows=limits.rows_per_call, nodes=nodes, sequences=free, nodes_cached=cached)

    def trim(self, idle_rows: int) -> int:
        self._require_open()
        return self._contexts.trim(idle_rows)

    def interrupt(self) -> None:
        """Stop the running decode as `Model.interrupt` does.

        It stops at the next block of the module. A compiled model stops when the
        program that runs has ended.
        """
        self._stop.set()

    def close(self) -> None:
        if self._release.alive:
            self._release()
            self._contexts.close()

    def __enter__(self: _Model) -> _Model:  # noqa: PYI019 - Self is not in typing before Python 3.11
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self._release.alive:
            raise ClosedError(f"the model {self._prepared.name}")

    def _require_positions(self, plan: CallPlan) -> None:
        bound, required = self._prepared.max_positions, self._n_prefix + max(plan.depth, default=0)
        if bound is not None and required > bound:
            raise CapacityError("positions", required=required, available=bound)


def larger_context(nodes: int, max_positions: int | None) -> str:
    """Return how to get a context of more nodes, as in `Limits`.

    `nodes` counts those of a prefix too.
    """
    if max_positions is not None and nodes >= max_positions:
        return f"use a model of more than {max_positions} positions"
    return ways(operator="load with a larger `n_ctx`")


def _rows(evaluated: Evaluated, plan: CallPlan, wanted: BoolArray, n_vocabulary: int) -> Rows:
    """Return the rows of the wanted elements of a call."""
    if evaluated.logits is None:
        return DenseRows(np.empty((0, n_vocabulary), dtype=np.float32))
    order = [evaluated.row_of[e] for e in plan.entries_of_wanted(wanted)]
    if isinstance(evaluated.logits, np.ndarray):
        return DenseRows(evaluated.logits, np.array(order, dtype=np.int64))
    return rows_of(evaluated.logits, order)
