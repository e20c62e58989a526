"""The model port of `selectrie.core.model`, implemented with a GGUF model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

import llama_cpp
import numpy as np

from selectrie.backends.llama_cpp.context import (
    BatchRows,
    Context,
    ContextSize,
    Decoded,
    fit_size,
    is_long,
    on_gpu,
    size_for,
)
from selectrie.backends.llama_cpp.library import StopFlag, build, processor, weights_type
from selectrie.backends.llama_cpp.options import LlamaOptions
from selectrie.backends.llama_cpp.sequences import AttentionSequences, RecurrentSequences
from selectrie.backends.llama_cpp.weights import Weights, open_weights
from selectrie.backends.prefix_tree import (
    CallPlan,
    PrefixTree,
    context_rows,
    max_idle_rows,
    require_batch_multiple,
    require_one_round,
    require_rows,
)
from selectrie.core.model import SOLO_SEQUENCES, Extension, chain
from selectrie.core.rows import DenseRows
from selectrie.core.types import (
    BatchSizes,
    BoolArray,
    CallCost,
    Capacity,
    IntArray,
    Limits,
    ModelIdentity,
    ModelKind,
    Precision,
)
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import CapacityError, ClosedError, InternalError, remedies

CELLS_PER_READ = 256
"""Cells that llama.cpp's attention reads at once (`llama_kv_cache::get_n_kv`)."""

MIN_ROWS, MIN_COSTLY_ROWS = 16, 64
"""Number of rows of a call below which its fixed cost matters.

The first is for the cost of reading the weights, which each call does once. The second
is for models whose rows cost much more than their cells.
"""

COSTLY_ROW = 8192
"""`Limits.max_idle_rows` from which on rows cost much more than their cells."""

PREFILL_ROWS = 128
"""Maximum number of prompt rows in a call that other tasks wait for.

A model of 0.5B in q8_0 on 2 cores takes 6.8 ms a row in calls of 32 rows and 6.4 ms in
calls of 128: more rows would only make the other tasks wait.
"""


def call_cost(max_idle_rows: int) -> CallCost:
    """Return the `CallCost` of a model with this `Limits.max_idle_rows`."""
    if max_idle_rows < COSTLY_ROW:
        return CallCost(CELLS_PER_READ, MIN_ROWS, min_short_rows=1, prefill_rows=PREFILL_ROWS)
    return CallCost(CELLS_PER_READ, MIN_COSTLY_ROWS, min_short_rows=MIN_COSTLY_ROWS, prefill_rows=PREFILL_ROWS)


EXACT_BATCH_MULTIPLE = 8
"""Batch multiple with which rows do not depend on how they are cut into calls.

Calls whose number of rows is a multiple of this use the same kernels: measured on
x86-64 for f32, f16, q8_0, q4_0 and q4_K_M. Other machines can need another multiple;
see `LlamaModel.set_batch_multiple`.
"""


def open_model(source: str | os.PathLike[str] | llama_cpp.Llama, options: LlamaOptions | None = None) -> LlamaModel:
    """Open a GGUF file, or share the weights of an open `llama_cpp.Llama`.

    Raises:
        ModelFileError: If the file cannot be loaded.
        UnsupportedModelError: If the model does not predict a next token.
        OptionError: If an option or the source is invalid.
        ClosedError: If the `Llama` has been closed.
        ModelError: If no context of the requested size can be made.
    """
    options = options or LlamaOptions()
    weights = open_weights(source, options)
    try:
        return LlamaModel(weights, options, fit_size(weights, options))
    finally:
        # The model's context has been counted as a separate user of the weights.
        weights.release()


@final
class LlamaModel:
    """A model that owns a llama.cpp context.

    See `selectrie.core.model.Model` for the contracts of its methods.

    Only `interrupt` is thread-safe. If a call fails after nodes were evicted for it,
    they are not restored: they were cached and held by no caller.
    """

    def __init__(
        self, weights: Weights, options: LlamaOptions, size: ContextSize, stop: StopFlag | None = None
    ) -> None:
        """Create a model.

        `stop` may be the flag of another model. An interrupt then stops both.
        """
        self._weights, self._options = weights, options
        self._context = Context(weights, options, size, stop)
        self._kind = weights.kind
        self._tree = PrefixTree(self._context.n_vocabulary)
        self._sequences: AttentionSequences | RecurrentSequences
        if self._kind.is_recurrent:
            self._sequences = RecurrentSequences(self._tree, self._context, cells=self._kind is ModelKind.HYBRID)
        else:
            keeper = self._kind is ModelKind.SLIDING_WINDOW
            self._sequences = AttentionSequences(self._tree, self._context, keeper=keeper)
        pads = options.precision is Precision.EXACT and not self._kind.is_recurrent
        self._batch_multiple = EXACT_BATCH_MULTIPLE if pads else 1
        self._n_decodes = 0
        self._identity: ModelIdentity | None = None
        self._limits: Limits | None = None

    # What it is

    def metadata(self, key: str) -> str | None:
        """Return the metadata value of `key` as text; None if it is missing."""
        return self._weights.metadata(key)

    @property
    def vocabulary(self) -> Vocabulary:
        return self._weights.vocabulary

    @property
    def limits(self) -> Limits:
        if self._limits is None:
            self._limits = self._make_limits()
        return self._limits

    def _make_limits(self) -> Limits:
        """Return the limits for the current batch multiple."""
        model = self._weights.pointer
        idle_rows = max_idle_rows(
            n_parameters=llama_cpp.llama_model_n_params(model),
            n_layers=llama_cpp.llama_model_n_layer(model),
            width=llama_cpp.llama_model_n_embd(model),
        )
        return Limits(
            nodes=self._context.size.nodes,
            sequences=self._sequences.sequences,
            rows_per_call=self._rows_per_call,
            kind=self._kind,
            max_idle_rows=idle_rows,
            batch_sizes=BatchSizes(self._batch_multiple),
            call_cost=call_cost(idle_rows),
            larger_context=remedies(operator="load with a larger `n_ctx`"),
            copies_paths=self._copies_paths,
        )

    @property
    def _copies_paths(self) -> bool:
        """Return whether evaluating prompts in a separate context and copying pays off.

        It does not for float weights, whose rows hardly depend on the batch, and on a
        GPU, where small calls are slow.
        """
        if self._options.precision is not Precision.EXACT or self._kind.is_recurrent:
            return False
        return weights_type(self._weights) == "quantised" and not on_gpu(self._weights, self._options)

    @property
    def identity(self) -> ModelIdentity:
        if self._identity is None:
            self._identity = ModelIdentity(
                name=self._weights.name,
                digest=self._weights.digest,
                tokenizer_digest=self.vocabulary.digest,
                backend="llama.cpp",
                build=build(),
                processor=processor(),
                precision=self._options.precision.value,
                n_parameters=self._weights.n_parameters,
                weights=weights_type(self._weights),
            )
        return self._identity

    # The port's verbs

    def set_batch_multiple(self, value: int) -> None:
        """Set the multiple to which the rows of a call are padded.

        See `Model.set_batch_multiple`.

        The rows whose logits are computed are padded in the same way. With 1 there is
        no padding. That is the default in `fast` precision, and for recurrent and
        hybrid models, whose rows llama.cpp regroups by sequence.
        """
        self._require_open()
        require_batch_multiple(value, max_rows=self._context.size.rows, tree=self._tree)
        self._batch_multiple, self._limits = value, None

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        self._require_open()
        self._context.stop.clear()
        plan = self._tree.plan(parents, tokens, wanted, keep)
        require_one_round(self._kind, parents, keep)
        row_plan: Any = self._sequences.plan_rows(plan)
        require_rows(row_plan.n_rows, self._rows_per_call)
        self._sequences.make_room(plan, row_plan, self._context.size.nodes)
        n_decodes = self._n_decodes
        try:
            n_recovered, recovery_s = self._sequences.recover(row_plan, self._evaluate_run)
            layout: Any = self._sequences.lay_out(plan, row_plan)
            self._sequences.prepare(layout)
            decoded = self._decode(layout.rows)
            n_rows = n_recovered + row_plan.n_rows
            nodes = self._tree.commit(plan, n_rows)
            self._sequences.finish(layout, plan.nodes_of_entries(nodes))
        except BaseException:
            self._undo_call(plan)
            raise
        row = np.zeros(len(plan.node), dtype=np.int64)
        output = layout.rows.output
        row[layout.entry[output]] = decoded.index[output]
        return Extension(
            nodes=nodes,
            rows=DenseRows(decoded.matrix, row[plan.entries_of_wanted(wanted)]),
            rows_evaluated=n_rows,
            rows_repeated=n_rows - plan.n_new,
            rows_padded=decoded.padding,
            n_programs=self._n_decodes - n_decodes,
            decode_s=recovery_s + decoded.seconds,
        )

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        self._require_open()
        node, depth = self._tree.match_prefix(tokens, self._sequences.can_extend if self._kind.is_recurrent else None)
        self._tree.inc_ref(node)
        return node, depth

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        self._require_open()
        self._sequences.release(nodes, forget=forget)
        if self._context.is_spoiled and not self._tree.n_held:
            self._sequences.trim(0)

    def capacity(self) -> Capacity:
        self._require_open()
        nodes = self._context.size.nodes - self._tree.n_held
        free, cached = self._sequences.free_sequences, self._tree.n_nodes
        return Capacity(rows=self._rows_per_call, nodes=nodes, sequences=free, nodes_cached=cached)

    def trim(self, idle_rows: int) -> int:
        self._require_open()
        return self._sequences.trim(idle_rows)

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> LlamaModel:
        self._require_open()
        size = self._context.size
        rows = context_rows(nodes, rows, max_rows=size.rows, multiple=self._batch_multiple)
        sequences = min(size.sequences, rows, sequences)
        long_context = is_long(self._weights, size)
        small = size_for(self._weights, nodes, rows, sequences, long_context=long_context)
        if small.nodes < nodes:
            raise CapacityError("nodes", required=nodes, available=small.nodes)
        model = LlamaModel(self._weights, self._options, small, self._context.stop)
        model._batch_multiple = self._batch_multiple
        return model

    def copy_path(self, source: LlamaModel, tokens: IntArray) -> None:
        """Copy a path's cells from another context; see `CopiesPaths.copy_path`."""
        self._require_open()
        source._require_open()
        ours, theirs = self._sequences, source._sequences
        if not (isinstance(ours, AttentionSequences) and isinstance(theirs, AttentionSequences)):
            raise InternalError("paths of a recurrent-state model cannot be copied")
        node, depth = source._tree.match_prefix(tokens)
        above, start = self._tree.match_prefix(tokens[:depth])
        if start == depth:
            return
        is_last = np.arange(start, depth) == depth - 1
        plan = self._tree.plan(chain(above, depth - start), tokens[start:depth], np.zeros_like(is_last), is_last)
        row_plan = ours.plan_rows(plan)
        ours.make_room(plan, row_plan, self._context.size.nodes)
        try:
            layout = ours.lay_out(plan, row_plan)
            ours.prepare(layout)
            ours.copy_cells(layout, theirs, node)
            nodes = self._tree.commit(plan, 0)
            ours.finish(layout, plan.nodes_of_entries(nodes))
        except BaseException:
            self._undo_call(plan)
            raise
        ours.mark_copied(nodes)
        ours.release(nodes, forget=False)

    def copied_part(self, tokens: IntArray) -> tuple[int, int]:
        self._require_open()
        return self._sequences.copied_part(tokens) if isinstance(self._sequences, AttentionSequences) else (0, 0)

    def interrupt(self) -> None:
        """Stop the running decode as `Model.interrupt` does.

        The decode may also be that of a model made with `new_context`.
        """
        self._context.stop.set()

    def set_abort_callback(self, callback: Callable[[], bool] | None) -> None:
        """Call `callback` after every node of llama.cpp's compute graph.

        If it returns true, the decode stops with `DecodeError`. None removes the
        callback. It serves tests and callers with a custom stop condition, and takes
        the GIL at each node.
        """
        self._require_open()
        self._context.set_abort_callback(callback)

    def close(self) -> None:
        self._context.close()

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # How it is done

    @property
    def _rows_per_call(self) -> int:
        return self._context.size.rows // self._batch_multiple * self._batch_multiple

    def _require_open(self) -> None:
        """Raise `ClosedError` if this model or the `Llama` it shares was closed."""
        if not self._context.is_open:
            raise ClosedError(f"the model {self._weights.name}")
        if self._weights.borrowed is not None:
            self._weights.require_open()

    def _decode(self, rows: BatchRows) -> Decoded:
        """Evaluate rows in one decode, and count it; nothing runs for no rows."""
        if not len(rows.token):
            return Decoded(
                np.empty((0, self._context.n_vocabulary), dtype=np.float32), np.empty(0, dtype=np.int64), 0, 0.0
            )
        self._n_decodes += 1
        return self._context.decode(
            rows, batch_multiple=self._batch_multiple, padding_sequence=self._sequences.padding_id
        )

    def _evaluate_run(self, sequence: int, tokens: IntArray, first_position: int) -> float:
        """Evaluate consecutive tokens of one sequence without logits.

        Returns the seconds that the decodes took.
        """
        max_rows, seconds = self._rows_per_call, 0.0
        for start in range(0, len(tokens), max_rows):
            part = tokens[start : start + max_rows]
            n = len(part)
            position = first_position + start + np.arange(n, dtype=np.int32)
            zeros = np.zeros(n, dtype=np.int32)
            rows = BatchRows(part, position, zeros, zeros + 1, zeros > 0, np.array([sequence], dtype=np.int32))
            seconds += self._decode(rows).seconds
        return seconds

    def _undo_call(self, plan: CallPlan) -> None:
        """Restore nodes, references and llama.cpp's memory after `extend` failed."""
        self._tree.rollback(plan)
        if not self._sequences.restore():
            # If memory cannot be cut back, it is not trusted: every node is dropped,
            # and using one raises NodeError.
            self._context.clear()
            self._sequences.forget()
            self._tree.clear()
