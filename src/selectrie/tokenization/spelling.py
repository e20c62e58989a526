"""The text of tokens, written so that the tokenizer reads the same tokens back."""

from __future__ import annotations

from itertools import groupby

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.tokenization.encoding import is_at_start

_SPACE = b" "


def spelled(vocabulary: Vocabulary, tokens: IntArray) -> str:
    """Return the text of tokens, int32[].

    Control tokens, and others without text, are written by their names. A space that
    the tokenizer adds before text is left out. If the tokenizer made these tokens of
    some text in which it recognised control tokens, it makes them of the result too,
    unless a control token swallowed white space or a byte is no UTF-8: U+FFFD replaces
    such bytes.
    """
    return b"".join(spelled_pieces(vocabulary, tokens)).decode("utf-8", "replace")


def spelled_pieces(vocabulary: Vocabulary, tokens: IntArray) -> list[bytes]:
    """Return the bytes that each token, int32[], adds to the text of `spelled`."""
    pieces: list[bytes] = []
    for has_text, group in groupby(tokens.tolist(), key=lambda token: bool(vocabulary.pieces[token])):
        run = list(group)
        if not has_text:
            pieces += [vocabulary.texts[token].encode("utf-8", "surrogatepass") for token in run]
            continue
        is_added = vocabulary.space_prefix and is_at_start(vocabulary, tokens[: len(pieces)])
        first, *rest = [vocabulary.pieces[token] for token in run]
        pieces += [first[1:] if is_added and first[:1] == _SPACE and (rest or len(first) > 1) else first, *rest]
    return pieces
