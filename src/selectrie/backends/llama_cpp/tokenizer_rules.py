"""The rules of a llama.cpp tokenizer, read from the library and the model's file."""

from __future__ import annotations

from codecs import charmap_decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import llama_cpp
import numpy as np

from selectrie.backends.byte_alphabet import BYTE_CHARACTERS, is_found, spans_words
from selectrie.backends.llama_cpp.gguf_header import read_texts
from selectrie.backends.llama_cpp.metadata import metadata_of
from selectrie.core.vocabulary import TokenizerKind, Tokenizing, Vocabulary
from selectrie.errors import ModelFileError

_MODEL, _PRE_TOKENIZER, _MERGES = "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.merges"
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
"""Pre-tokenizers that merge byte pairs and take no word as a whole.

For these names llama.cpp does not set its `ignore_merges`, which no function of its
interface reports, and runs of ASCII letters stay together. A test makes a vocabulary
for each and asks llama.cpp.
"""
_BYTE_LEVEL = "gpt2"
_ALPHABET = "".join(sorted(BYTE_CHARACTERS, key=BYTE_CHARACTERS.__getitem__))
"""The characters of byte-level vocabularies in the order of their bytes."""
_SIGN = "\u2581"
"""The character that SentencePiece writes for a space."""
_WHITE = b" \t\n\v\f\r"


def examiner(model: llama_cpp.llama_model_p, path: Path | None) -> Callable[[Vocabulary], Tokenizing]:
    """Return a function that finds out how the tokenizer of `model` works.

    Takes up to 0.5 s for a vocabulary of 150 000 tokens, because the merges are read
    from the file.

    Args:
        model: The loaded model.
        path: The model's file; None if its metadata may differ from the model's.
    """
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model))
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        return _by_score
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_RWKV:
        return _by_length
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_BPE and metadata_of(model, _MODEL) == _BYTE_LEVEL:
        return partial(_by_rank, metadata_of(model, _PRE_TOKENIZER) or "default", path)
    return lambda _: Tokenizing()


def _by_score(vocabulary: Vocabulary) -> Tokenizing:
    """Describe a SentencePiece tokenizer.

    The altered texts are its character for a space, bytes without a token, and the
    results of merges that are tokens with other bytes or none (control tokens, unused
    ones). A merge joins only two parts that are tokens or single characters.
    """
    spelled = frozenset(vocabulary.texts)
    no_space = () if _SIGN in spelled else (b" ",)
    meant = "\0".join(vocabulary.texts).replace(_SIGN, " ").encode("utf-8", "surrogatepass").split(b"\0")
    made = {
        data
        for text, data, piece in zip(vocabulary.texts, meant, vocabulary.pieces, strict=True)
        if data != piece and text and _is_mergeable(text, spelled)
    }
    return Tokenizing(
        TokenizerKind.SCORES,
        frozenset({_SIGN.encode(), *no_space, *made, *_unspelled_bytes(vocabulary), *_set_apart(vocabulary)}),
    )


def _is_mergeable(text: str, spelled: frozenset[str]) -> bool:
    pairs = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
    return len(text) == 1 or any(all(len(one) == 1 or one in spelled for one in pair) for pair in pairs)


def _by_length(vocabulary: Vocabulary) -> Tokenizing:
    """Describe a longest-match tokenizer.

    The altered texts are bytes without a token, and tokens that have no bytes.
    """
    control = set(vocabulary.control.tolist())
    silent = [
        text
        for token, (text, piece) in enumerate(zip(vocabulary.texts, vocabulary.pieces, strict=True))
        if text and not piece and token not in control
    ]
    if any("\\" in text for text in silent):
        return Tokenizing(TokenizerKind.LONGEST)
    altered = {text.encode("utf-8", "surrogatepass") for text in silent}
    return Tokenizing(
        TokenizerKind.LONGEST, frozenset({*altered, *_unspelled_bytes(vocabulary), *_set_apart(vocabulary)})
    )


def _by_rank(name: str, path: Path | None, vocabulary: Vocabulary) -> Tokenizing:
    """Describe a tokenizer that merges byte pairs.

    The result of a merge is a token, or is taken apart again; the parts spell the same
    bytes if its characters stand for themselves. Merges stay inside words, so a result
    that no word holds is never made (`</s>`, which llama.cpp declares a control token).
    """
    merge_results = None if path is None else _merge_results(path)
    if merge_results is None:
        return Tokenizing()
    token_of = {text: token for token, text in enumerate(vocabulary.texts)}
    is_plain = name in MERGING and merge_results <= token_of.keys()
    ends = np.cumsum(vocabulary.lengths, dtype=np.int64).tolist()
    spelled = charmap_decode(b"".join(vocabulary.pieces), "strict", _ALPHABET)[0]
    meant = {
        text for text, start, end in zip(vocabulary.texts, [0, *ends], ends, strict=False) if spelled[start:end] == text
    }
    altered = {
        data
        for text in {*(merge_results - meant), *BYTE_CHARACTERS}
        if (data := _bytes_of(text)) is not None
        and (vocabulary.pieces[token_of[text]] != data if text in token_of else not (text.isascii() and len(text) > 1))
        and not (text in token_of and spans_words(vocabulary, token_of[text], data))
    }
    if name not in MERGING:
        altered.update(_taken_whole(vocabulary))
    return Tokenizing(
        TokenizerKind.MERGES if is_plain else TokenizerKind.UNKNOWN,
        frozenset({*altered, *_set_apart(vocabulary)}),
    )


def _taken_whole(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield words that the tokenizer turns into one token with other or no bytes.

    They are found by running the tokenizer on each candidate.
    """
    user_defined = set(vocabulary.user_defined.tolist())
    for token, (text, piece) in enumerate(zip(vocabulary.texts, vocabulary.pieces, strict=True)):
        data = None if token in user_defined and text.encode() == piece else _bytes_of(text)
        if data and data != piece and is_found(vocabulary, token, data):
            yield data


def _bytes_of(text: str) -> bytes | None:
    """Return the bytes that byte-level text stands for; None if it is not such text."""
    try:
        return bytes(BYTE_CHARACTERS[character] for character in text)
    except KeyError:
        return None


def _unspelled_bytes(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the bytes that no single token spells."""
    yield from (one for one in map(bytes, zip(range(256), strict=True)) if not vocabulary.has_bytes(one))


def _set_apart(vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield texts of tokens that are matched first and alter the text around them.

    White space beside such a text is removed, or a space is put before the text that
    follows.
    """
    strips_left, strips_right = set(vocabulary.strips_left.tolist()), set(vocabulary.strips_right.tolist())
    for token in np.setdiff1d(vocabulary.user_defined, vocabulary.control).tolist():
        text = vocabulary.texts[token].encode("utf-8", "surrogatepass")
        if vocabulary.space_prefix or text != vocabulary.pieces[token]:
            yield text
        if token in strips_left:
            yield from (bytes([white]) + text for white in _WHITE)
        if token in strips_right:
            yield from (text + bytes([white]) for white in _WHITE)


def _merge_results(path: Path) -> frozenset[str] | None:
    """Return the results of all merges; None if the file cannot be read."""
    try:
        merges = read_texts(path, _MERGES)
    except (OSError, ModelFileError):
        return None
    cuts = [(merge, merge.find(" ", 1)) for merge in merges]  # cut as llama.cpp does
    return frozenset(merge[:cut] + merge[cut + 1 :] for merge, cut in cuts if cut > 0)
