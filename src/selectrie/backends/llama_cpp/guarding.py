"""A guard that raises `TextError` for texts on which a llama.cpp tokenizer fails.

On some texts the tokenizer ends the process, and from others it never returns, so it
must not see them.

SentencePiece writes a character without a token as its bytes, and throws if a byte has
none (`byte_to_token`). RWKV's longest match starts again at the first byte of the text
if nothing it has read is a token. Both kinds have a token for every byte only by
convention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import llama_cpp

from selectrie.backends.llama_cpp.metadata import metadata_of
from selectrie.core.vocabulary import Tokenize
from selectrie.errors import TextError

_SIGN = "\u2581".encode()
"""The character that SentencePiece writes for a space."""
_CHARACTERS = re.compile(rb"[\xc0-\xdf].?|[\xe0-\xef].{0,2}|[\xf0-\xff].{0,3}|.", re.DOTALL)
"""Cuts bytes into characters as llama.cpp does (`unicode_len_utf8`)."""


def guarded(
    tokenize: Tokenize, model: llama_cpp.llama_model_p, spelled: frozenset[bytes], pieces: Iterable[bytes]
) -> Tokenize:
    """Return `tokenize` with a check of the text, which raises `TextError`.

    The error is raised where llama.cpp would end the process or hang, and where it
    reports that a part of the text has no token.

    Args:
        tokenize: The tokenizer to guard.
        model: The loaded model.
        spelled: The texts of all tokens.
        pieces: The bytes of every token, control tokens included.
    """
    kind = llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(model))
    fault: Callable[[bytes], bytes | None] | None = None
    if kind == llama_cpp.LLAMA_VOCAB_TYPE_SPM:
        has_prefix = metadata_of(model, "tokenizer.ggml.add_space_prefix") != "false"
        fault = _without_bytes(spelled, has_prefix=has_prefix)
    elif kind == llama_cpp.LLAMA_VOCAB_TYPE_RWKV:
        fault = _without_beginning(frozenset(pieces))

    def guard(text: bytes, /) -> list[int]:
        character = None if fault is None else fault(text)
        if character is not None:
            raise _refusal(character)
        ids = tokenize(text)
        if ids and min(ids) < 0:
            raise TextError("text", "the model's vocabulary has no token for a part of it; leave that out")
        return ids

    return guard


def _refusal(character: bytes) -> TextError:
    shown = character.replace(_SIGN, b" ").decode("utf-8", "backslashreplace")
    return TextError("text", f"the model's vocabulary has no token for {shown!r}; leave it out, or use another model")


def _without_bytes(spelled: frozenset[bytes], *, has_prefix: bool) -> Callable[[bytes], bytes | None] | None:
    """Return a function that finds a character SentencePiece cannot spell.

    Such a character has neither a token nor tokens for its bytes. Returns None if the
    vocabulary has every byte.

    A user-defined token is matched before the text is cut, so a character that occurs
    only as a part of one is refused although it need not be.
    """
    missing = frozenset(byte for byte in range(256) if not {b"<0x%02X>" % byte, bytes([byte])} & spelled)
    if not missing:
        return None
    always = {_SIGN} if has_prefix else set()

    def find(text: bytes) -> bytes | None:
        characters = always.union(_CHARACTERS.findall(text.replace(b" ", _SIGN)))
        return min((one for one in characters - spelled if not missing.isdisjoint(one)), default=None)

    return find


def _without_beginning(pieces: frozenset[bytes]) -> Callable[[bytes], bytes | None] | None:
    """Return a function that finds a byte that begins a token but is not one.

    Returns None if there is no such byte.
    """
    bare = frozenset(piece[:1] for piece in pieces if piece) - pieces
    if not bare:
        return None
    pattern = re.compile(b"|".join(map(re.escape, sorted(bare))))

    def find(text: bytes) -> bytes | None:
        match = pattern.search(text)
        return None if match is None else match[0]

    return find
