"""A reader for the vocabulary of a llama.cpp model."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import llama_cpp
import numpy as np

from selectrie.backends.chat.template import chat_template
from selectrie.backends.llama_cpp.gguf_header import NORMAL, TokenTable
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
_ADD_SPECIAL = _PARSE_SPECIAL = _SPELL_SPECIAL = _REMOVE_SPECIAL = False
"""Switches of llama.cpp.

No BOS or EOS is added or removed, no control token is recognised in text, and none is
spelled out.
"""
_LAST_BYTE = (b"<0xFF>", "ÿ".encode(), b"\\xff")
"""Texts of the token for the byte 0xFF: of SentencePiece, byte-level, and RWKV's."""


def read_vocabulary(model: llama_cpp.llama_model_p, path: Path | None, tokens: TokenTable | None = None) -> Vocabulary:
    """Return the vocabulary of `model`.

    The result holds the pointer to llama.cpp's vocabulary, so it must not outlive the
    model's memory.

    Args:
        model: The loaded model.
        path: The model's file; None if its metadata may differ from the model's.
        tokens: What the header says about the tokens; None to ask llama.cpp about
            every one.

    Raises:
        UnsupportedModelError: If the model has no vocabulary, or one without a token
            for any letter.
    """
    vocab = llama_cpp.llama_model_get_vocab(model)
    if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        raise UnsupportedModelError("this model", "it has no vocabulary, so it cannot read text")
    n_tokens = llama_cpp.llama_vocab_n_tokens(vocab)
    if tokens is None or len(tokens.spellings) != n_tokens:
        spellings = [one or b"" for one in map(llama_cpp.llama_vocab_get_text, repeat(vocab), range(n_tokens))]
        asked: Sequence[int] = range(n_tokens)
        joined, spelled = b"\0".join([*spellings, b""]), frozenset(spellings)
    else:
        spellings, asked = tokens.spellings, _unusual(tokens, vocab)
        joined, spelled = tokens.joined, tokens.spelled
    pieces = _pieces_at_once(vocab, spellings) or _pieces(vocab, n_tokens)
    texts = tuple(joined.decode("utf-8", "replace").split("\0")[:-1])
    attributes = np.full(n_tokens, llama_cpp.LLAMA_TOKEN_ATTR_NORMAL, dtype=np.int32)
    attributes[asked] = list(map(llama_cpp.llama_vocab_get_attr, repeat(vocab), asked))
    eog = [token for token in asked if llama_cpp.llama_vocab_is_eog(vocab, token)]
    control = _with(attributes, llama_cpp.LLAMA_TOKEN_ATTR_CONTROL)
    names = {token: _piece(vocab, token, _USUAL_PIECE_BYTES, special=True) for token in control.tolist()}
    tokenize = guarded(_tokenizer(vocab), model, spelled, [*pieces, *names.values()])
    if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        names = {token: name for token, name in names.items() if _is_mergeable(name, spelled)}
    reachable = _spelled_by_text(names, tokenize)
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
        eog=np.asarray(eog, dtype=np.int32),
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


def _unusual(tokens: TokenTable, vocab: llama_cpp.llama_vocab_p) -> Sequence[int]:
    """Return the tokens that llama.cpp may treat as other than normal, by id.

    Besides those of other types and named ids, llama.cpp knows special tokens by their
    text. All texts that it knows have a bracket.
    """
    joined = np.frombuffer(tokens.joined, dtype=np.uint8)
    is_bracket = (joined == ord("<")) | (joined == ord("["))
    bracketed = np.searchsorted(np.flatnonzero(joined == 0), np.flatnonzero(is_bracket)).tolist()
    named = {*tokens.special, llama_cpp.llama_vocab_bos(vocab), llama_cpp.llama_vocab_eos(vocab)}
    unusual = {*np.flatnonzero(tokens.types != NORMAL).tolist(), *bracketed, *named}
    return sorted(token for token in unusual if 0 <= token < len(tokens.spellings))


def _with(attributes: IntArray, attribute: int) -> IntArray:
    return np.flatnonzero(attributes & attribute).astype(np.int32)


def _name(texts: tuple[str, ...], token: int) -> str:
    return texts[token] if 0 <= token < len(texts) else ""


def _pieces_at_once(vocab: llama_cpp.llama_vocab_p, spellings: Sequence[bytes]) -> list[bytes] | None:
    """Return what `_pieces` returns, read in one call; None if that is not possible.

    llama.cpp decodes all tokens with one between them that spells the byte 0xFF, which
    is in no UTF-8. The call is of no use if other pieces have that byte, or if spaces
    are removed from the text (`clean_spaces`), which makes it shorter than its pieces.
    """
    between = next((spellings.index(one) for one in _LAST_BYTE if one in spellings), -1)
    if between < 0 or _piece(vocab, between, _USUAL_PIECE_BYTES, special=False) != b"\xff":
        return None
    n_tokens = len(spellings)
    tokens = np.full(2 * n_tokens, between, dtype=np.int32)
    tokens[1::2] = np.arange(n_tokens)
    pointer = tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
    size = -llama_cpp.llama_detokenize(vocab, pointer, len(tokens), b"", 0, _REMOVE_SPECIAL, _SPELL_SPECIAL)
    buffer = ctypes.create_string_buffer(size)
    n_bytes = llama_cpp.llama_detokenize(vocab, pointer, len(tokens), buffer, size, _REMOVE_SPECIAL, _SPELL_SPECIAL)
    parts = buffer.raw.split(b"\xff")
    if n_bytes != size or len(parts) != n_tokens + 2:
        return None
    return [*parts[1 : between + 1], b"\xff", *parts[between + 3 :]]


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


def _spelled_by_text(names: Mapping[int, bytes], tokenize: Tokenize) -> dict[int, bytes]:
    """Return the control tokens that plain text produces, mapped to their bytes.

    An example is RWKV's id 0, the byte NUL. `names` has the bytes of those to try.
    """
    result = {}
    for token, name in names.items():
        with suppress(TextError):  # no text can contain it
            if name and token in tokenize(name):
                result[token] = name
    return result


def _is_mergeable(name: bytes, spelled: frozenset[bytes]) -> bool:
    """Return whether SentencePiece may merge a text to one token, or spell a byte so.

    A merge joins two parts that are tokens or single characters. The 6 000 control
    tokens of Gemma 3 need not be tokenized then, which takes 6 µs each.
    """
    if not name.isascii() or len(name) == 1 or b" " in name or name.startswith(b"<0x"):
        return True  # a space is another character in the vocabulary
    last = len(name) - 1
    return any((i == last or name[i:] in spelled) and (i == 1 or name[:i] in spelled) for i in range(1, len(name)))


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
        if n_bytes > _USUAL_TEXT_TOKENS:  # a call that lacks room has encoded the whole text in vain
            buffer = (llama_cpp.llama_token * (n_bytes + 1))()
        count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        if count < 0:
            buffer = (llama_cpp.llama_token * -count)()
            count = call(vocab, text, n_bytes, buffer, len(buffer), _ADD_SPECIAL, _PARSE_SPECIAL)
        ids: list[int] = buffer[:count]
        return ids

    return tokenize


def _chat_template(source: str, *, bos: str, eos: str) -> ChatTemplate | None:
    """Return the chat template with this source; None if it is ""."""
    return chat_template(source, {"bos_token": bos, "eos_token": eos}, absent=_ABSENT) if source else None
