"""The size of a context and the memory that a model takes."""

from __future__ import annotations

from pathlib import Path

import llama_cpp

from selectrie.backends.llama_cpp.context import Size, create
from selectrie.backends.llama_cpp.gguf_header import Header, read_header
from selectrie.backends.llama_cpp.library import Metadata, cell_item_bytes, log
from selectrie.backends.llama_cpp.weights import LlamaOptions, Weights
from selectrie.core.types import Precision

MAX_SEQUENCES = 256
"""`LLAMA_MAX_SEQ` (llama-cparams.h)."""
_LOGITS_BUDGET_BYTES = 384 << 20
_STATES_BUDGET_BYTES = 512 << 20
_MIN_STATES = 8
_USUAL_TOKENS = 8192
_CELL_BLOCK = 256
"""llama.cpp rounds a context up to a multiple of this many cells."""


def fit(weights: Weights, options: LlamaOptions) -> Size:
    """Return the size of a model's context.

    Depends on the options, the budgets for logits and states, and free memory. Cells
    for a whole call are added to the requested tokens, so that padding and rows
    evaluated again always find room.
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
    return sized(weights, nodes, rows, sequences)


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
    return min(trained if trained > 0 else _USUAL_TOKENS, _USUAL_TOKENS)


def sized(weights: Metadata, nodes: int, rows: int, sequences: int, *, long_context: bool | None = None) -> Size:
    """Return the `Size` with these numbers and the cells that they need.

    A model with two sets of RoPE factors (Phi-3 128k) uses the long ones when the
    context exceeds the original one. The added cells must therefore not carry it over
    that limit; `long_context` says on which side it has to stay.
    """
    cells = _rounded(nodes + rows)
    original = weights.metadata_int("{arch}.rope.scaling.original_context_length")
    if original:
        is_long = nodes > original if long_context is None else long_context
        if not is_long and cells > original:
            return Size(max(1, original - rows), original, rows, sequences)
        if is_long:
            cells = max(cells, _rounded(original + 1))
    return Size(nodes, cells, rows, sequences)


def is_long(weights: Weights, size: Size) -> bool:
    """Return whether a context of this size uses the long set of RoPE factors."""
    original = weights.metadata_int("{arch}.rope.scaling.original_context_length")
    return original is not None and 0 < original < size.cells


def _rounded(cells: int) -> int:
    return -(-cells // _CELL_BLOCK) * _CELL_BLOCK


def _state_bytes(weights: Weights, options: LlamaOptions) -> int:
    """Return the bytes of one sequence's state.

    They are measured on a context of one sequence after one token.
    """
    pointer = create(weights, options, Size(_CELL_BLOCK, _CELL_BLOCK, 8, 1))
    try:
        token = (llama_cpp.llama_token * 1)(0)
        with log.of_ours(verbose=options.verbose):
            llama_cpp.llama_decode(pointer, llama_cpp.llama_batch_get_one(token, 1))
            return int(llama_cpp.llama_state_seq_get_size(pointer, 0))
    finally:
        with log.of_ours(verbose=options.verbose):
            llama_cpp.llama_free(pointer)


def _cells_that_fit(weights: Weights, options: LlamaOptions, rows: int) -> int:
    """Return how many cells fit in half of the free memory.

    A cell needs keys, values, and the scores of one layer's attention.
    """
    free = _free_bytes()
    if free is None:
        return _USUAL_TOKENS * 2
    model = weights.pointer
    heads = llama_cpp.llama_model_n_head(model)
    width = llama_cpp.llama_model_n_embd(model) // max(1, heads)
    key = weights.metadata_int("{arch}.attention.key_length") or width
    value = weights.metadata_int("{arch}.attention.value_length") or width
    item = cell_item_bytes(weights, options.precision)
    cell = llama_cpp.llama_model_n_layer(model) * llama_cpp.llama_model_n_head_kv(model) * (key + value) * item
    return int(free // 2 // max(1, cell + 2 * rows * heads * 4))


def _free_bytes() -> int | None:
    """Return the memory that can be used without swapping; None if unknown.

    This is the smaller of the system's free memory and what is left of the control
    group's.
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
    - keys and values of every cell, twice in `exact` precision: a second context, which
      grows to the longest prompt of a selection, is kept (but not for recurrent and
      hybrid models);
    - states of every sequence (recurrent and hybrid models);
    - two buffers for the logits of a whole call, llama.cpp's output and its graph's;
    - the other parts of the graph that grow with a call: one layer's attention scores,
      the attention mask, one layer's activations.

    Part of it lies on a GPU if layers do. Buffers are reserved when a model is opened
    and are filled with use.

    Not included are the rows that an engine keeps for prompts that come again (at most
    64 MiB). Reads the file's header, which takes 0.1 s for a large vocabulary.

    Raises:
        ModelFileError: If the file is not a GGUF file, or damaged.
        UnsupportedModelError: If the file holds only a vocabulary.
    """
    header = read_header(path)
    n_vocabulary = header.lengths.get("tokenizer.ggml.tokens") or _of(header, "vocab_size") or 1
    rows = rows_of_call(options, n_vocabulary)
    nodes = options.n_ctx if options.n_ctx is not None else usual_nodes(_of(header, "context_length"))
    state = _state_bytes_of_file(header)
    sequences = sequences_for(state, rows)
    cells = sized(header, nodes, rows, sequences).cells
    call = rows * (8 * n_vocabulary + 4 * _activations(header) + cells * _score_bytes(header))
    contexts = 2 if options.precision is Precision.EXACT and not state else 1
    return header.n_bytes + contexts * cells * _cell_bytes(header, options) + sequences * state + call


def _of(header: Header, key: str) -> int:
    """Return the integer `key` of the architecture's metadata; 0 if it is missing."""
    return header.metadata_int("{arch}." + key) or 0


def _cell_bytes(header: Header, options: LlamaOptions) -> int:
    """Return the bytes of one cell's keys and values.

    If layers differ, all count as large as the largest.
    """
    heads = _of(header, "attention.head_count")
    width = _of(header, "embedding_length") // max(1, heads)
    both = (_of(header, "attention.key_length") or width) + (_of(header, "attention.value_length") or width)
    item = cell_item_bytes(header, options.precision)
    return _of(header, "block_count") * (_of(header, "attention.head_count_kv") or heads) * both * item


def _score_bytes(header: Header) -> int:
    """Return the bytes that one row needs for each cell.

    They hold one attention score per head, and the mask. A sliding window needs the
    mask twice. Flash attention, which a GPU may use, needs less.
    """
    masks = 2 if _of(header, "attention.sliding_window") else 1
    return 4 * (_of(header, "attention.head_count") + masks)


def _activations(header: Header) -> int:
    """Return how many numbers one row needs besides its scores and logits.

    They are the widest layer twice (in a state-space layer the three streams of its
    scan, before and after it), plus queries, keys, values and sums.
    """
    inner = max(2 * _of(header, "feed_forward_length"), 6 * _of(header, "ssm.inner_size"))
    return inner + 8 * _of(header, "embedding_length")


def _state_bytes_of_file(header: Header) -> int:
    """Return the bytes of one sequence's state, 0 for models without one.

    Each layer has two f32 vectors (`n_embd_r` and `n_embd_s` of llama-hparams.cpp).
    """
    width = _of(header, "embedding_length")
    if head := _of(header, "wkv.head_size"):
        numbers = width * head + width * (_of(header, "token_shift_count") or 2)
    elif shift := _of(header, "shortconv.l_cache"):
        numbers = width * (shift - 1)
    else:
        inner, state = _of(header, "ssm.inner_size"), _of(header, "ssm.state_size")
        convolved = inner + 2 * _of(header, "ssm.group_count") * state
        numbers = max(0, _of(header, "ssm.conv_kernel") - 1) * convolved + state * inner
    return 4 * _of(header, "block_count") * numbers
