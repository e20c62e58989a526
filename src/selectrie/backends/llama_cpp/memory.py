"""An estimate of the memory that a loaded model takes, made from its file."""

from __future__ import annotations

from pathlib import Path

from selectrie.backends.llama_cpp.gguf_header import Header, read_header
from selectrie.backends.llama_cpp.metadata import cell_item_bytes
from selectrie.backends.llama_cpp.size import rows_of_call, sequences_for, sized, usual_nodes
from selectrie.backends.llama_cpp.weights import LlamaOptions
from selectrie.core.types import Precision


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
    state = _state_bytes(header)
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


def _state_bytes(header: Header) -> int:
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
