"""The alphabet in which byte-level vocabularies spell bytes, and what a word holds."""

from __future__ import annotations

import re

from selectrie.core.vocabulary import Vocabulary


def _byte_characters() -> dict[str, int]:
    """Return the characters of byte-level vocabularies and their bytes.

    Printable characters of Latin-1 stand for themselves; the others are represented by
    characters from U+0100 on.
    """
    themselves = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    others = [byte for byte in range(256) if byte not in themselves]
    return {chr(byte): byte for byte in themselves} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()

_WORDS_END = re.compile(rb"[A-Za-z0-9][!-&(-/:-@\[-^{-~]")
"""A letter or digit before punctuation: every pattern ends a word between them."""
_FRAMES = (b"%s", b" %s", b"a%s", b".%s", b"\n%s", b"%sa", b"%s.", b"%s a", b"%s\n")
"""Contexts in which a word is tried out."""


def is_found(vocabulary: Vocabulary, token: int, data: bytes) -> bool:
    """Return whether the tokenizer makes the token of its text in some context."""
    return any(token in vocabulary.tokenize(frame % data) for frame in _FRAMES)


def spans_words(vocabulary: Vocabulary, token: int, data: bytes) -> bool:
    """Return whether no word holds the text of a token, so that no merge makes it."""
    return _WORDS_END.search(data) is not None and not is_found(vocabulary, token, data)
