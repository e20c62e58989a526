"""How much memory a model takes, reckoned from its file before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from selectrie.backends.llama_cpp.gguf_header import Header, read_header
from selectrie.backends.llama_cpp.size import rows_of_call, sequences_for, sized, usual_nodes
from selectrie.backends.llama_cpp.weights import LlamaOptions
from selectrie.core.types import Precision


def memory_needed(path: Path, options: LlamaOptions) -> int:
    """Bytes that weights and context of a GGUF file take at most, were memory not short.

    The sum of: the file, which is mapped; keys and values of every cell; states of every sequence (recurrent and hybrid
    models); two buffers of logits of a whole call, llama.cpp's output and its graph's; the graph's other parts that grow
    with a call: in `exact` precision one layer's attention scores, the attention mask, activations of one layer. Part of it
    lies on a GPU where layers do. Buffers are reserved when a model is opened and filled with use.

    Not in it: rows that an engine keeps for prompts that come again, at most 64 MiB; the small second context in which
    near ties are settled, for as long as that takes. Cost: the file's header is read, 0.1 s for a large vocabulary.
    Raises `ModelFileError`, `UnsupportedModelError`.
    """
    header = read_header(path)
    n_vocabulary = header.lengths.get("tokenizer.ggml.tokens") or _of(header, "vocab_size") or 1
    rows = rows_of_call(options, n_vocabulary)
    nodes = options.n_ctx if options.n_ctx is not None else usual_nodes(_of(header, "context_length"))
    state = _state_bytes(header)
    sequences = sequences_for(state, rows)
    cells = sized(header, nodes, rows, sequences).cells
    call = rows * (8 * n_vocabulary + 4 * _activations(header) + cells * _score_bytes(header, options))
    return header.n_bytes + cells * _cell_bytes(header, options) + sequences * state + call


def _of(header: Header, key: str) -> int:
    """A whole number of the architecture's, 0 where there is none."""
    return header.metadata_int("{arch}." + key) or 0


def _cell_bytes(header: Header, options: LlamaOptions) -> int:
    """Keys and values of one cell; of layers that differ the largest stands for all."""
    heads = _of(header, "attention.head_count")
    width = _of(header, "embedding_length") // max(1, heads)
    both = (_of(header, "attention.key_length") or width) + (_of(header, "attention.value_length") or width)
    item = 4 if options.precision is Precision.EXACT else 2
    return _of(header, "block_count") * (_of(header, "attention.head_count_kv") or heads) * both * item


def _score_bytes(header: Header, options: LlamaOptions) -> int:
    """Of one row and one cell: an attention score a head, none where flash attention sums them up (`fast`), and the mask
    in the same precision, twice where a window slides."""
    masks = 2 if _of(header, "attention.sliding_window") else 1
    if options.precision is Precision.EXACT:
        return 4 * (_of(header, "attention.head_count") + masks)
    return 2 * masks


def _activations(header: Header) -> int:
    """Numbers that one row needs beside its scores and logits: the widest layer twice, in a state-space layer the three
    streams of its scan before and after it; queries, keys, values, sums."""
    inner = max(2 * _of(header, "feed_forward_length"), 6 * _of(header, "ssm.inner_size"))
    return inner + 8 * _of(header, "embedding_length")


def _state_bytes(header: Header) -> int:
    """One sequence's state: two vectors a layer (`n_embd_r` and `n_embd_s` of llama-hparams.cpp), f32; 0 without one."""
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
