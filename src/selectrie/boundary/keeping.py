"""Text that is settled: what of a prompt's text becomes fixed tokens, so that what follows costs its own tail alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from selectrie.boundary.canonical import spells_text
from selectrie.boundary.records import PromptText
from selectrie.boundary.tail import encode_after, is_spanned
from selectrie.vocabulary import Vocabulary

_SPACE = b" "
_LINE_END = b"\n"
_WORDS_BYTES = 16
"""Text that stays behind a place before a space, at least."""
_TAIL_BYTES = 64
"""The same behind any other place."""
_SEARCH_BYTES = 1024
"""How far back a place is looked for."""
_MOST_TRIED = 8
"""Places tried before the text stays as it is."""


def keep(vocabulary: Vocabulary, prompt: PromptText) -> PromptText:
    """The same prompt with the beginning of its text as fixed tokens, as much as is settled whatever comes after.

    For every text that follows: encoding the prompt's text and that text after its tokens gives the tokens of doing so with
    what comes back. The place between is one that no token spans, some way before the end, where the two sides encoded apart
    give the tokens of the whole; where there is none, or token bytes are not those of the text, the prompt comes back as it is.
    One encoding of the text, and of a short tail for each place tried.
    """
    prefix, text = prompt.prefix, prompt.text
    whole = encode_after(vocabulary, prefix, text)
    if not spells_text(vocabulary, whole, text):
        return prompt
    before = np.asarray(whole[:1], dtype=np.int32)  # any token of text: what stands after it begins no text of its own
    for place in islice(_places(vocabulary, text), _MOST_TRIED):
        tail = encode_after(vocabulary, before, text[place:])
        n_kept = len(whole) - len(tail)
        if n_kept < 1 or whole[n_kept:] != tail or vocabulary.decode(tail) != text[place:]:
            continue
        return PromptText(np.concatenate([prefix, np.asarray(whole[:n_kept], dtype=np.int32)]), text[place:])
    return prompt


def _places(vocabulary: Vocabulary, text: bytes) -> Iterator[int]:
    """Places of `text` that no token spans, each kind nearest the end first: before a space after something else, then any
    others that are not inside a number, a character or white space."""
    size = len(text)
    least = max(0, size - _SEARCH_BYTES)
    for place in range(size - _WORDS_BYTES, least, -1):
        if text[place] == _SPACE[0] and _is_settled(vocabulary, text, place):
            yield place
    for place in range(size - _TAIL_BYTES, least, -1):
        inside_number = text[place - 1 : place + 1].isdigit()
        inside_character = text[place] & 0xC0 == 0x80
        if not inside_number and not inside_character and _is_settled(vocabulary, text, place):
            yield place


def _is_settled(vocabulary: Vocabulary, text: bytes, place: int) -> bool:
    """Has the place something else than white space before it, and does no token span it, nor the line end that `encode_after`
    puts there for a `space_prefix` vocabulary?"""
    if text[place - 1 : place].isspace() or is_spanned(vocabulary, text, place):
        return False
    return not vocabulary.space_prefix or not is_spanned(vocabulary, _LINE_END + text[place:], 1)
