"""How a llama.cpp tokenizer works, from what it says and from its file."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from pathlib import Path

import llama_cpp

from selectrie.backends.llama_cpp.header import read_texts
from selectrie.errors import ModelFileError
from selectrie.vocabulary import TokenizerKind, Tokenizing

_PRE_TOKENIZER, _MERGES = "tokenizer.ggml.pre", "tokenizer.ggml.merges"
_LONGEST_NAME_BYTES = 256
MERGING = frozenset(
    {
        *(
            "default",
            "gpt-2",
            "phi-2",
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "hunyuan",
            "stablelm2",
            "starcoder",
            "refact",
        ),
        *("command-r", "smollm", "codeshell", "exaone", "exaone4", "mpt", "olmo", "jais", "falcon", "deepseek-coder"),
        *("deepseek-llm", "dbrx", "smaug-bpe", "chatglm-bpe", "jina-v2-code", "roberta-bpe", "modern-bert", "grok-2"),
    }
)
"""Names of pre-tokenizers behind which llama.cpp merges and takes no word whole (its
`ignore_merges`, which no function of its interface tells), and that leave runs of ASCII
letters together. A test makes a vocabulary of each and asks llama.cpp."""
_KINDS = {
    llama_cpp.LLAMA_VOCAB_TYPE_SPM: TokenizerKind.SCORES,
    llama_cpp.LLAMA_VOCAB_TYPE_RWKV: TokenizerKind.LONGEST,
}


def examiner(model: llama_cpp.llama_model_p, path: Path | None, texts: tuple[str, ...]) -> Callable[[], Tokenizing]:
    """What finds out how the tokenizer of `model` works. path: of its file, None where
    the file may say something else. texts: of the tokens, as the file has them.

    Of the model's memory only what is read here is kept. Cost of the call: up to 0.3 s
    for a vocabulary of 150 000, for the merges are read from the file.
    """
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model))
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_BPE:
        name = _metadata(model, _PRE_TOKENIZER) or "default"
        return partial(_merging, name, path, texts)
    return partial(Tokenizing, _KINDS.get(kind, TokenizerKind.UNKNOWN))


def _merging(name: str, path: Path | None, texts: tuple[str, ...]) -> Tokenizing:
    made = None if path is None else _made(path)
    is_plain = name in MERGING and made is not None and made <= frozenset(texts)
    return Tokenizing(TokenizerKind.MERGES if is_plain else TokenizerKind.UNKNOWN)


def _made(path: Path) -> frozenset[str] | None:
    """What the merges make; None where the file cannot be read any more."""
    try:
        merges = read_texts(path, _MERGES)
    except (OSError, ModelFileError):
        return None
    places = [(merge, merge.find(" ", 1)) for merge in merges]  # as llama.cpp cuts them
    return frozenset(merge[:place] + merge[place + 1 :] for merge, place in places if place > 0)


def _metadata(model: llama_cpp.llama_model_p, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(_LONGEST_NAME_BYTES)
    length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, _LONGEST_NAME_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
