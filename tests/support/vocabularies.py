"""Vocabularies for the tests of text: real ones read from GGUF files, and one that behaves like SentencePiece."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import llama_cpp
import numpy as np

from selectrie.backends.llama_cpp.library import log
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.core.vocabulary import Vocabulary


@cache
def open_model(path: Path):
    """A model's vocabulary alone, as llama.cpp's own pointer; never freed, for the vocabularies read from it live on."""
    log.install()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    with log.our_calls():
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    return model


@cache
def vocabulary_of(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file, read once a session."""
    return read_vocabulary(open_model(path), path)


def llama_tokens(path: Path, text: bytes, *, parse_special: bool) -> list[int]:
    """What llama.cpp itself makes of a text, nothing added."""
    vocab = llama_cpp.llama_model_get_vocab(open_model(path))
    buffer = (llama_cpp.llama_token * (len(text) + 8))()
    count = llama_cpp.llama_tokenize(vocab, text, len(text), buffer, len(buffer), False, parse_special)
    return buffer[:count]


def start_of(vocabulary: Vocabulary) -> np.ndarray:
    """A token that a prompt may stand after: BOS, or what ends a text where there is none."""
    return np.array([vocabulary.eos if vocabulary.bos is None else vocabulary.bos], dtype=np.int32)
