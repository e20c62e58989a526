"""A reader for the vocabulary of a llama.cpp model."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from selectrie.backends.chat.template import chat_template
from selectrie.backends.llama_cpp.guarding import guarded
from selectrie.backends.llama_cpp.tokenizer_rules import examiner
from selectrie.core.types import IntArray
from selectrie.core.vocabulary import ChatTemplate, Tokenize, Vocabulary
from selectrie.errors import TextError, UnsupportedModelError

_USUAL_PIECE_BYTES = 256
"""Longer pieces are read again into a larger buffer.

GLM-4, for example, has a token of 1024 spaces.
"""
_USUAL_TEXT_TOKENS = 1024
_MAX_TEXT_BYTES = 2**31 - 1
_ABSENT = ("functions", "function_call", "tools", "tool_choice")
"""Arguments of a template that are None unless given, as llama-cpp-python has them."""
_ADD_SPECIAL = _PARSE_SPECIAL = _SPELL_SPECIAL = False
"""Switches of llama.cpp.

No BOS or EOS is added, no control token is recognised in text, and none is spelled out.
"""


def read_vocabulary(model: llama_cpp.llama_model_p, path: Path | None) -> Vocabulary:
    """Return the vocabulary of `model`.

    The result holds the pointer to llama.cpp's vocabulary, so it must not outlive the
    model's memory.

    Args:
        model: The loaded model.
        path: The model's file; None if its metadata may differ from the model's.

    Raises:
        UnsupportedModelError: If the model has no vocabulary, or one without a token
            for any letter.
    """
    vocab = llama_cpp.llama_model_get_vocab(model)
    if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        raise UnsupportedModelError("this model", "it has no vocabulary, so it cannot read text")
    n_tokens = llama_cpp.llama_vocab_n_tokens(vocab)
    pieces = _pieces(vocab, n_tokens)
    spellings = [one or b"" for one in map(llama_cpp.llama_vocab_get_text, repeat(vocab), range(n_tokens))]
    texts = tuple([spelling.decode("utf-8", "replace") for spelling in spellings])
    attributes = _ids(map(llama_cpp.llama_vocab_get_attr, repeat(vocab), range(n_tokens)), n_tokens)
    is_eog = _ids(map(llama_cpp.llama_vocab_is_eog, repeat(vocab), range(n_tokens)), n_tokens)
    control = _with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)
    special = [_piece(vocab, token, _USUAL_PIECE_BYTES, special=True) for token in control.tolist()]
    tokenize = guarded(_tokenizer(vocab), model, spellings, [*pieces, *special])
    reachable = _spelled_by_text(vocab, control, tokenize)
    for token, piece in reachable.items():
        pieces[token] = piece
    bos, eos = llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)
    adds_bos = llama_cpp.llama_vocab_get_add_bos(vocab) and bos >= 0
    first = _tokens_of_a_letter(tokenize)
    source = (llama_cpp.llama_model_chat_template(model, None) or b"").decode("utf-8", "replace")
    return Vocabulary(
        pieces=tuple(pieces),
        texts=texts,
        bos=bos if adds_bos else None,
        eos=eos if eos >= 0 else None,
        eog=np.flatnonzero(is_eog).astype(np.int32),
        control=np.setdiff1d(control, np.asarray(list(reachable), dtype=np.int32)),
        # The tokenizer is asked instead of `tokenizer.ggml.add_space_prefix`, because
        # only some kinds of vocabulary heed that key.
        space_prefix=bool(first) and pieces[first[0]].startswith(b" "),
        tokenize=tokenize,
        chat_template=_chat_template(source, bos=_name(texts, bos), eos=_name(texts, eos)),
        chat_source=source,
        strips_left=_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP),
        strips_right=_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP),
        user_defined=_with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED),
        examine=examiner(model, path),
    )


def _tokens_of_a_letter(tokenize: Tokenize) -> list[int]:
    for letter in (b"a", *map(bytes, zip(range(0x21, 0x7F), strict=True))):
        with suppress(TextError):
            return tokenize(letter)
    raise UnsupportedModelError(
        "this model", "its vocabulary has no token for any letter, so it is of another kind than its file says"
    )


def _ids(values: Any, count: int) -> IntArray:
    return np.fromiter(values, dtype=np.int32, count=count)


def _with(attributes: IntArray, attribute: int) -> IntArray:
    return np.flatnonzero(attributes & attribute).astype(np.int32)


def _name(texts: tuple[str, ...], token: int) -> str:
    return texts[token] if 0 <= token < len(texts) else ""


def _pieces(vocab: llama_cpp.llama_vocab_p, n_tokens: int) -> list[bytes]:
    """Return the bytes of every token.

    They are b"" for control, unknown and unused tokens (`special=False`).
    """
    read = llama_cpp.llama_token_to_piece
    buffer = ctypes.create_string_buffer(_USUAL_PIECE_BYTES)
    pieces: list[bytes] = []
    for token in range(n_tokens):
        length = read(vocab, token, buffer, _USUAL_PIECE_BYTES, 0, _SPELL_SPECIAL)
        pieces.append(buffer.raw[:length] if length >= 0 else _piece(vocab, token, -length, special=False))
    return pieces


def _piece(vocab: llama_cpp.llama_vocab_p, token: int, size: int, *, special: bool) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    length = llama_cpp.llama_token_to_piece(vocab, token, buffer, size, 0, special)
    return buffer.raw[:length] if length >= 0 else _piece(vocab, token, -length, special=special)


def _spelled_by_text(vocab: llama_cpp.llama_vocab_p, control: IntArray, tokenize: Tokenize) -> dict[int, bytes]:
    """Return the control tokens that plain text produces, mapped to their bytes.

    An example is RWKV's id 0, the byte NUL.
    """
    result = {}
    for token in control.tolist():
        piece = _piece(vocab, token, _USUAL_PIECE_BYTES, special=True)
        with suppress(TextError):  # no text can contain it
            if piece and token in tokenize(piece):
                result[token] = piece
    return result


def _tokenizer(vocab: llama_cpp.llama_vocab_p) -> Tokenize:
    """Return the function from plain text to ids.

    The function holds only the pointer, not the model object. It has one buffer for
    each thread.
    """
    call = llama_cpp.llama_tokenize
    local = threading.local()

    def tokenize(text: bytes, /) -> list[int]:
        n_bytes = len(text)
        if n_bytes > _MAX_TEXT_BYTES // 4:  # a space may take four: U+2581's three bytes and a prefix
            raise TextError("text", f"{n_bytes} bytes are more than the tokenizer takes; shorten it")
        try:
            buffer = local.buffer
        except AttributeError:
            buffer = local.buffer = (llama_cpp.llama_token * _USUAL_TEXT_TOKENS)()
        count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        if count < 0:
            buffer = local.buffer = (llama_cpp.llama_token * -count)()
            count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        ids: list[int] = buffer[:count]
        return ids

    return tokenize


def _chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate | None:
    """Return the chat template with this source; None if it is ""."""
    return chat_template(source, {"bos_token": bos, "eos_token": eos}, absent=_ABSENT) if source else None
