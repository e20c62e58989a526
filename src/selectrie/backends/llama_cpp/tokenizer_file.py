"""The vocabulary of a GGUF file, read without its weights."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp

from selectrie.backends.llama_cpp.gguf_header import require_magic
from selectrie.backends.llama_cpp.library import interrupt_held, log
from selectrie.backends.llama_cpp.soundness import require_sound
from selectrie.backends.llama_cpp.vocabulary import read_vocabulary
from selectrie.core.vocabulary import Tokenize, Vocabulary
from selectrie.errors import ModelFileError


class _Tokenizer:
    """A tokenizer that keeps the `llama_model *` alive whose memory it reads."""

    __slots__ = ("__weakref__", "_encode")

    def __init__(self, pointer: Any, encode: Tokenize) -> None:
        self._encode = encode
        weakref.finalize(self, llama_cpp.llama_model_free, pointer)

    def __call__(self, text: bytes, /) -> list[int]:
        return self._encode(text)


def open_vocabulary(path: Path) -> Vocabulary:
    """Return the vocabulary of a GGUF file, which may hold nothing else.

    Raises:
        ModelFileError: If the file cannot be loaded.
        UnsupportedModelError: If it holds no vocabulary.
    """
    log.install()
    require_magic(path)
    tokens = require_sound(path)
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    with interrupt_held(), log.of_ours(verbose=False):
        llama_cpp.llama_backend_init()
        log.forget()
        pointer = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        reason = log.reason("llama.cpp cannot load it")
    if not pointer:
        raise ModelFileError(str(path), f"{reason}; get the file again")
    vocabulary = read_vocabulary(pointer, path, tokens)
    return replace(vocabulary, tokenize=_Tokenizer(pointer, vocabulary.tokenize))
