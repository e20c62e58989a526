"""A `llama_context`: its size and memory, its sequences, and the call to decode."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.gguf_header import GgufHeader, read_header
from selectrie.backends.llama_cpp.library import Metadata, StopFlag, cell_item_bytes, cell_type, log
from selectrie.backends.llama_cpp.options import USUAL_TOKENS, LlamaOptions
from selectrie.backends.llama_cpp.weights import Weights
from selectrie.core.types import BoolArray, IntArray, LogitArray, Precision
from selectrie.errors import (
    LESS_MEMORY,
    CapacityError,
    DecodeError,
    DecodeInterrupted,
    InternalError,
    MessageText,
    ModelError,
)


@dataclass(frozen=True, slots=True, eq=False)
class BatchRows:
    """The R rows of one decode, in the order in which llama.cpp gets them.

    Attributes:
        token: int32[R], the token of each row.
        position: int32[R], the position of each row, from 0.
        first_id: int32[R]; a row belongs to the sequences `ids[first_id : first_id +
            n_ids]`.
        n_ids: int32[R], number of sequences that each row belongs to.
        output: bool[R], whether the row's logits are needed.
        ids: int32[], sequence ids.
    """

    token: IntArray
    position: IntArray
    first_id: IntArray
    n_ids: IntArray
    output: BoolArray
    ids: IntArray


class Batch:
    """A `llama_batch` over numpy arrays.

    The pointers to the rows' ids are written as one array of addresses.
    """

    def __init__(self, rows: int) -> None:
        self._token = np.zeros(rows, dtype=np.int32)
        self._position = np.zeros(rows, dtype=np.int32)
        self._n_ids = np.zeros(rows, dtype=np.int32)
        self._address = np.zeros(rows, dtype=np.uint64)
        self._output = np.zeros(rows, dtype=np.int8)
        self._ids = np.zeros(rows + 1, dtype=np.int32)
        self.struct = llama_cpp.llama_batch()
        for name, array in (
            ("token", self._token),
            ("pos", self._position),
            ("n_seq_id", self._n_ids),
            ("seq_id", self._address),
            ("logits", self._output),
        ):
            field_type = dict(llama_cpp.llama_batch._fields_)[name]
            setattr(self.struct, name, array.ctypes.data_as(field_type))

    def fill(self, rows: BatchRows, padding: int, batch_multiple: int, padding_sequence: int) -> int:
        """Write rows into the batch, and return the number of rows with logits.

        `padding` rows of the sequence `padding_sequence` are added. The number of rows
        with logits is also padded to a multiple of `batch_multiple`, because the last
        layer and the output projection run only on these, and their number affects the
        choice of kernels.
        """
        n, n_ids = len(rows.token), len(rows.ids)
        end = n + padding
        self._ids[:n_ids] = rows.ids
        self._ids[n_ids] = padding_sequence
        base = self._ids.ctypes.data
        self._token[:n], self._token[n:end] = rows.token, rows.token[0]
        self._position[:n], self._position[n:end] = rows.position, np.arange(padding)
        self._n_ids[:n], self._n_ids[n:end] = rows.n_ids, 1
        self._address[:n], self._address[n:end] = base + 4 * rows.first_id.astype(np.uint64), base + 4 * n_ids
        self._output[:n], self._output[n:end] = rows.output, 0
        n_outputs = int(np.count_nonzero(rows.output))
        if fill := -n_outputs % batch_multiple:
            self._output[np.flatnonzero(self._output[:end] == 0)[-fill:]] = 1
        self.struct.n_tokens = end
        return n_outputs + fill

    def output_index(self, n: int) -> NDArray[np.int64]:
        """Return int64[n], the index of each of n rows among the rows with logits.

        The index of a row without logits is meaningless.
        """
        return np.cumsum(self._output[:n], dtype=np.int64) - 1


_RC_NO_ROOM, _RC_ABORTED = 1, 2
"""Return codes of `llama_decode` (llama.h)."""


@dataclass(frozen=True, slots=True)
class ContextSize:
    """The size of a context.

    Attributes:
        nodes: Maximum number of nodes (tokens) held.
        cells: Number of cells of the key/value cache, for the nodes and the rows of one
            call.
        rows: Maximum number of rows of one call.
        sequences: Number of sequence ids.
    """

    nodes: int
    cells: int
    rows: int
    sequences: int


class Context:
    """A `llama_context` with its memory, a batch over numpy arrays, and a stop flag.

    Sequence ids are 0..size.sequences-1; positions count from 0. `n_vocabulary` is V.

    Attributes:
        window: Number of tokens that a layer with a sliding window sees; 0 without one.
        is_spoiled: Whether a row was NaN since the last `clear`. Its cells then hold
            NaN, even when they are free. Without flash attention they make all other
            rows NaN, because hidden cells are read with weight 0, and 0 times NaN is
            NaN.
    """

    def __init__(
        self, weights: Weights, options: LlamaOptions, size: ContextSize, stop: StopFlag | None = None
    ) -> None:
        """Create the context.

        `stop` may be the flag of another context. An interrupt then stops both.
        """
        weights.require_open()
        self.weights, self.options, self.size = weights, options, size
        self.n_vocabulary: int = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(weights.pointer))
        self.stop = StopFlag() if stop is None else stop
        self._pointer = create_context(weights, options, size)
        self._free = weakref.finalize(self, _free, self._pointer, weights, os.getpid(), verbose=options.verbose)
        weights.acquire(_address(self._pointer), self._free)
        self._memory = llama_cpp.llama_get_memory(self._pointer)
        self.window = int(llama_cpp.llama_model_n_swa(weights.pointer))
        try:
            self._apply_adapters()
        except BaseException:
            self._free()
            raise
        self._callback = self.stop.attach(self._pointer)
        self._batch = Batch(size.rows)
        self.is_spoiled = False

    def _apply_adapters(self) -> None:
        """Apply the LoRA adapters of a shared `Llama` to the context."""
        borrowed = self.weights.borrowed
        if borrowed is None or not borrowed.adapters:
            return
        n = len(borrowed.adapters)
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * n)(*(adapter for adapter, _ in borrowed.adapters))
        scales = (ctypes.c_float * n)(*(scale for _, scale in borrowed.adapters))
        if llama_cpp.llama_set_adapters_lora(self._pointer, adapters, n, scales) != 0:
            raise ModelError(f"{self.weights.name}: llama.cpp refuses the LoRA adapter of the shared Llama")

    @property
    def is_open(self) -> bool:
        """Return whether neither this context nor a shared `Llama` has been closed."""
        return bool(self._free.alive)

    def close(self) -> None:
        """Free the context, and the weights if this was their last user.

        Calling it again does nothing.
        """
        self._free()

    def set_abort_callback(self, callback: Callable[[], bool] | None) -> None:
        """Call `callback` after every graph node; if it returns true, the decode stops.

        None removes the callback. The stop flag is checked in either case.
        """
        self._callback = self.stop.attach(self._pointer, callback)

    # Sequences

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Add the cells of sequence `source` at positions start..end-1 to `target`.

        With start = end = -1 adds all of them, and copies a recurrent state.
        """
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, start, end)

    def remove(self, sequence: int, start: int = -1) -> bool:
        """Remove a sequence from its cells from position `start` on; -1 means all.

        Cells that then belong to no sequence are free. Returns whether llama.cpp could
        do it.
        """
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def last_position(self, sequence: int) -> int:
        """Return the highest position that `sequence` owns; -1 if it owns none."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, sequence))

    def require_end(self, sequence: int, depth: int) -> int:
        """Return `sequence` if its last position belongs to a node of this depth.

        Raises `InternalError` if it ends elsewhere.
        """
        last = self.last_position(sequence)
        if last != depth - 1:
            raise InternalError(f"sequence {sequence} ends at position {last}, its node at depth {depth}")
        return sequence

    def first_position(self, sequence: int) -> int:
        """Return the lowest position that `sequence` owns in every layer.

        -1 if it owns none.
        """
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, sequence))

    def read(self, sequence: int) -> NDArray[np.uint8]:
        """Return uint8[], a copy of the cells of a sequence, which `write` takes."""
        n_bytes = llama_cpp.llama_state_seq_get_size(self._pointer, sequence)
        cells = np.empty(n_bytes, dtype=np.uint8)
        n_read = llama_cpp.llama_state_seq_get_data(self._pointer, _bytes(cells), n_bytes, sequence)
        if n_read != n_bytes:
            raise InternalError(f"llama.cpp wrote out {n_read} of {n_bytes} bytes of a sequence")
        return cells

    def write(self, sequence: int, cells: NDArray[np.uint8]) -> bool:
        """Write cells that `read` returned into free cells of an empty sequence.

        Returns whether there was room.
        """
        with log.our_calls(verbose=self.options.verbose):
            return bool(llama_cpp.llama_state_seq_set_data(self._pointer, _bytes(cells), len(cells), sequence))

    def clear(self) -> None:
        """Free every cell, so that the next decode starts at the first one.

        If memory is spoiled, it is filled with zeros too.
        """
        llama_cpp.llama_memory_clear(self._memory, self.is_spoiled)
        self.is_spoiled = False

    def decode(self, rows: BatchRows, *, batch_multiple: int, padding_sequence: int) -> Decoded:
        """Evaluate rows in one `llama_decode`.

        The number of rows is padded to a multiple of `batch_multiple` with rows of
        `padding_sequence`, a sequence that the caller removes afterwards.

        Raises:
            CapacityError: If not enough cells are free.
            DecodeInterrupted: If the stop flag was set.
            DecodeError: If llama.cpp failed for another reason.
        """
        n = len(rows.token)
        padding = -n % batch_multiple
        n_outputs = self._batch.fill(rows, padding, batch_multiple, padding_sequence)
        with log.our_calls(verbose=self.options.verbose):
            log.forget()
            begin = time.perf_counter()
            code = llama_cpp.llama_decode(self._pointer, self._batch.struct)
            if code == 0:
                llama_cpp.llama_synchronize(self._pointer)
            seconds = time.perf_counter() - begin
        if code == _RC_NO_ROOM:
            raise CapacityError("cells", required=n + padding, available=0)
        if code == _RC_ABORTED and self.stop.is_set:
            raise DecodeInterrupted("the decode was interrupted", return_code=code)
        if code != 0:
            raise DecodeError(log.reason("llama.cpp gives no reason"), return_code=code)
        matrix = np.empty((0, self.n_vocabulary), dtype=np.float32)
        if n_outputs:
            pointer = llama_cpp.llama_get_logits(self._pointer)
            matrix = np.ctypeslib.as_array(pointer, shape=(n_outputs, self.n_vocabulary))
            # A state that is not finite makes all logits of its row NaN.
            self.is_spoiled |= bool(np.isnan(matrix[:, 0]).any())
        return Decoded(matrix, self._batch.output_index(n), padding, seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The result of a decode.

    Attributes:
        matrix: float32[M, V], llama.cpp's own buffer, valid until the next decode.
        index: int64[R], the row of `matrix` for each row that has logits.
        padding: Number of padding rows.
        seconds: Time spent inside llama.cpp.
    """

    matrix: LogitArray
    index: NDArray[np.int64]
    padding: int
    seconds: float


def _bytes(cells: NDArray[np.uint8]) -> Any:
    return cells.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _free(pointer: Any, weights: Weights, process: int, *, verbose: bool) -> None:
    """Free a context and release its weights, except in a fork of `process`."""
    if process != os.getpid():
        # In a forked child, llama.cpp would wait for threads that exist only in the
        # parent.
        return
    # Freeing a context reads its model. If a shared Llama was closed without our
    # knowledge, leaking is the lesser evil.
    if weights.borrowed is None or weights.borrowed.is_open:
        with log.our_calls(verbose=verbose):
            llama_cpp.llama_free(pointer)
    weights.release(_address(pointer))


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def create_context(weights: Weights, options: LlamaOptions, size: ContextSize) -> Any:
    """Return a new `llama_context *`.

    Raises `ModelError` with llama.cpp's reason if it cannot be made.
    """
    params = _params(weights, options, size)
    with log.our_calls(verbose=options.verbose):
        log.forget()
        pointer = llama_cpp.llama_init_from_model(weights.pointer, params)
        reason = log.reason("llama.cpp gives no reason")
    if not pointer:
        context = f"context of {size.nodes} tokens ({size.cells} cells, {size.rows} rows a call)"
        raise ModelError(MessageText(f"{weights.name}: no {context} could be made: {reason}; ", LESS_MEMORY))
    if not llama_cpp.llama_get_memory(pointer):
        llama_cpp.llama_free(pointer)
        raise ModelError(f"{weights.name}: keeps no context, so it is not a language model")
    return pointer


def on_gpu(weights: Weights, options: LlamaOptions) -> bool:
    """Return whether layers of the model are computed on a GPU."""
    borrowed = weights.borrowed
    n_layers = options.n_gpu_layers if borrowed is None else borrowed.llama.model_params.n_gpu_layers
    return bool(n_layers and llama_cpp.llama_supports_gpu_offload())


def _params(weights: Weights, options: LlamaOptions, size: ContextSize) -> Any:
    """Return the `llama_context_params` of a context."""
    params = llama_cpp.llama_context_default_params()
    threads = options.n_threads or (1 if weights.n_parameters < _THREADED_PARAMETERS else _cores())
    params.n_threads = params.n_threads_batch = threads
    borrowed = weights.borrowed
    if borrowed is not None:
        for name in _SHARED_PARAMS:
            setattr(params, name, getattr(borrowed.params, name))
        if options.n_threads is None:
            # Rows come in batches, so both settings are the one meant for batches.
            params.n_threads = params.n_threads_batch = borrowed.params.n_threads_batch
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = size.cells, size.rows, size.rows, size.sequences
    # Rows of several sequences need it, and partial copies abort the process without
    # it.
    params.kv_unified = True
    params.swa_full = True
    params.embeddings = False
    params.no_perf = True
    params.type_k = params.type_v = cell_type(weights, options.precision)
    is_exact = options.precision is Precision.EXACT
    if is_exact or not on_gpu(weights, options):
        # On a CPU it takes up to three times as long for calls below 64 rows behind
        # 1 000 cells, and saves at most a tenth of larger ones.
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.op_offload = params.op_offload and not is_exact
    return params


_SHARED_PARAMS = (
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
    "offload_kqv",
)
"""Parameters that are taken over from a shared `Llama`.

They change a model's numbers, or where it is computed.
"""


_THREADED_PARAMETERS = 20_000_000
"""Number of weights from which on several threads pay off.

Threads wait for each other by spinning after every operation. In a tiny model that
takes longer than the operation, and a hundred times longer beside another busy process.
"""


def _cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


MAX_SEQUENCES = 256
"""`LLAMA_MAX_SEQ` (llama-cparams.h)."""
_LOGITS_BUDGET_BYTES = 384 << 20
_STATES_BUDGET_BYTES = 512 << 20
_MIN_STATES = 8
_CELL_BLOCK = 256
"""llama.cpp rounds a context up to a multiple of this many cells."""


def fit_size(weights: Weights, options: LlamaOptions) -> ContextSize:
    """Return the size of a new model's context.

    It depends on the options, the budgets for logits and states, and free memory. The
    cells of a whole call are added to the requested tokens, so that there is always
    room for padding and for rows evaluated again.
    """
    n_vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(weights.pointer))
    rows = rows_of_call(options, n_vocabulary)
    sequences = min(MAX_SEQUENCES, rows)
    if weights.kind.is_recurrent:
        sequences = sequences_for(_state_bytes(weights, options), rows)
    nodes = options.n_ctx
    if nodes is None:
        nodes = usual_nodes(llama_cpp.llama_model_n_ctx_train(weights.pointer))
        nodes = max(min(nodes, _cells_that_fit(weights, options, rows) - rows), min(nodes, 256))
    return size_for(weights, nodes, rows, sequences)


def rows_of_call(options: LlamaOptions, n_vocabulary: int) -> int:
    """Return the number of rows of one call: `n_batch` within the logits budget.

    It is a multiple of 8, and of 64 from 64 rows on.
    """
    rows = min(options.n_batch, max(8, _LOGITS_BUDGET_BYTES // (4 * n_vocabulary)))
    return rows - rows % (64 if rows >= 64 else 8)


def sequences_for(state_bytes: int, rows: int) -> int:
    """Return the number of sequence ids of a recurrent or hybrid model.

    It is the number of rows, or fewer if their states would exceed the budget.
    """
    return min(MAX_SEQUENCES, rows, max(_MIN_STATES, _STATES_BUDGET_BYTES // max(1, state_bytes)))


def usual_nodes(trained: int) -> int:
    """Return the default number of tokens held when memory is not short.

    Args:
        trained: The training context in tokens; 0 if unknown.
    """
    return min(trained if trained > 0 else USUAL_TOKENS, USUAL_TOKENS)


def size_for(
    weights: Metadata, nodes: int, rows: int, sequences: int, *, long_context: bool | None = None
) -> ContextSize:
    """Return the `ContextSize` with these numbers and the cells that they need.

    A model with two sets of RoPE factors (Phi-3 128k) uses the long ones if the context
    has more cells than its original context. The cells added for a call must not change
    which set is used. `long_context` says whether it is the long one; None means that
    `nodes` decides.
    """
    cells = _round_to_block(nodes + rows)
    original = weights.metadata_int("{arch}.rope.scaling.original_context_length")
    if original:
        is_long = nodes > original if long_context is None else long_context
        if not is_long and cells > original:
            return ContextSize(max(1, original - rows), original, rows, sequences)
        if is_long:
            cells = max(cells, _round_to_block(original + 1))
    return ContextSize(nodes, cells, rows, sequences)


def is_long(weights: Weights, size: ContextSize) -> bool:
    """Return whether a context of this size uses the long set of RoPE factors."""
    original = weights.metadata_int("{arch}.rope.scaling.original_context_length")
    return original is not None and 0 < original < size.cells


def _round_to_block(cells: int) -> int:
    return -(-cells // _CELL_BLOCK) * _CELL_BLOCK


def _state_bytes(weights: Weights, options: LlamaOptions) -> int:
    """Return the bytes of one sequence's state, measured on a context of one token."""
    pointer = create_context(weights, options, ContextSize(_CELL_BLOCK, _CELL_BLOCK, 8, 1))
    try:
        token = (llama_cpp.llama_token * 1)(0)
        with log.our_calls(verbose=options.verbose):
            llama_cpp.llama_decode(pointer, llama_cpp.llama_batch_get_one(token, 1))
            return int(llama_cpp.llama_state_seq_get_size(pointer, 0))
    finally:
        with log.our_calls(verbose=options.verbose):
            llama_cpp.llama_free(pointer)


def _cells_that_fit(weights: Weights, options: LlamaOptions, rows: int) -> int:
    """Return how many cells fit in half of the free memory.

    A cell needs keys, values, and the scores of one layer's attention.
    """
    free = _free_bytes()
    if free is None:
        return USUAL_TOKENS * 2
    model = weights.pointer
    heads = llama_cpp.llama_model_n_head(model)
    width = llama_cpp.llama_model_n_embd(model) // max(1, heads)
    key = weights.metadata_int("{arch}.attention.key_length") or width
    value = weights.metadata_int("{arch}.attention.value_length") or width
    item = cell_item_bytes(weights, options.precision)
    cell = llama_cpp.llama_model_n_layer(model) * llama_cpp.llama_model_n_head_kv(model) * (key + value) * item
    return int(free // 2 // max(1, cell + 2 * rows * heads * 4))


def _free_bytes() -> int | None:
    """Return the bytes that can be used without swapping; None if unknown.

    This is the smaller of the system's free memory and the rest of the control group's
    limit.
    """
    sizes = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit.isdigit():
            sizes.append(int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError, IndexError):
        pass
    return max(0, min(sizes)) if sizes else None


def memory_needed(path: Path, options: LlamaOptions) -> int:
    """Return an upper bound on the bytes of a model's weights and context.

    Assumes that free memory does not limit the size of the context. The bound is the
    sum of:

    - the file, which is mapped;
    - keys and values of every cell, twice in `exact` precision, because a second
      context is kept that grows to the longest prompt of a selection (except for
      recurrent and hybrid models);
    - states of every sequence (recurrent and hybrid models);
    - two buffers for the logits of a whole call, llama.cpp's output and its graph's;
    - the other parts of the graph that grow with a call: one layer's attention scores,
      the attention mask, one layer's activations.

    Part of it lies on a GPU if layers do. Buffers are reserved when a model is opened
    and are filled with use.

    Not included is an engine's cache of recently read rows (at most 64 MiB). Reads the
    file's header, which takes 0.1 s for a large vocabulary.

    Raises:
        ModelFileError: If the file is not a GGUF file, or damaged.
        UnsupportedModelError: If the file holds only a vocabulary.
    """
    header = read_header(path)
    n_vocabulary = header.lengths.get("tokenizer.ggml.tokens") or _arch_int(header, "vocab_size") or 1
    rows = rows_of_call(options, n_vocabulary)
    nodes = options.n_ctx if options.n_ctx is not None else usual_nodes(_arch_int(header, "context_length"))
    state = _state_bytes_of_file(header)
    sequences = sequences_for(state, rows)
    cells = size_for(header, nodes, rows, sequences).cells
    call = rows * (8 * n_vocabulary + 4 * _activations(header) + cells * _score_bytes(header))
    contexts = 2 if options.precision is Precision.EXACT and not state else 1
    return header.n_bytes + contexts * cells * _cell_bytes(header, options) + sequences * state + call


def _arch_int(header: GgufHeader, key: str) -> int:
    """Return the integer `key` of the architecture's metadata; 0 if it is missing."""
    return header.metadata_int("{arch}." + key) or 0


def _cell_bytes(header: GgufHeader, options: LlamaOptions) -> int:
    """Return the bytes of one cell's keys and values.

    If layers differ, all count as large as the largest.
    """
    heads = _arch_int(header, "attention.head_count")
    width = _arch_int(header, "embedding_length") // max(1, heads)
    both = (_arch_int(header, "attention.key_length") or width) + (_arch_int(header, "attention.value_length") or width)
    item = cell_item_bytes(header, options.precision)
    return _arch_int(header, "block_count") * (_arch_int(header, "attention.head_count_kv") or heads) * both * item


def _score_bytes(header: GgufHeader) -> int:
    """Return the bytes that one row needs for each cell.

    They hold one attention score per head, and the mask. A sliding window needs the
    mask twice. Flash attention, which a GPU may use, needs less.
    """
    masks = 2 if _arch_int(header, "attention.sliding_window") else 1
    return 4 * (_arch_int(header, "attention.head_count") + masks)


def _activations(header: GgufHeader) -> int:
    """Return the number of activations of one row, besides its scores and logits.

    These are the widest layer twice (in a state-space layer the three streams of its
    scan, before and after it), plus queries, keys, values and sums.
    """
    inner = max(2 * _arch_int(header, "feed_forward_length"), 6 * _arch_int(header, "ssm.inner_size"))
    return inner + 8 * _arch_int(header, "embedding_length")


def _state_bytes_of_file(header: GgufHeader) -> int:
    """Return the bytes of one sequence's state, 0 for models without one.

    Each layer has two f32 vectors (`n_embd_r` and `n_embd_s` of llama-hparams.cpp).
    """
    width = _arch_int(header, "embedding_length")
    if head := _arch_int(header, "wkv.head_size"):
        numbers = width * head + width * (_arch_int(header, "token_shift_count") or 2)
    elif shift := _arch_int(header, "shortconv.l_cache"):
        numbers = width * (shift - 1)
    else:
        inner, state = _arch_int(header, "ssm.inner_size"), _arch_int(header, "ssm.state_size")
        convolved = inner + 2 * _arch_int(header, "ssm.group_count") * state
        numbers = max(0, _arch_int(header, "ssm.conv_kernel") - 1) * convolved + state * inner
    return 4 * _arch_int(header, "block_count") * numbers
