"""Turns settled beginnings of prompts into fixed tokens, to encode less text."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.tokenization.canonical import spells_text
from selectrie.tokenization.encoding import encode_after, encode_text
from selectrie.tokenization.records import PromptText
from selectrie.tokenization.settled_positions import settled_positions

_MIN_LEFT = 16
"""Minimum bytes of text after the position.

A slot that opens the end of a page again finds the text there.
"""
_MAX_TRIED = 8
"""Positions tried before the text stays as it is."""


def split_stable(vocabulary: Vocabulary, prompt: PromptText) -> PromptText:
    """Return the prompt with the beginning of its text turned into fixed tokens.

    Those tokens stay the same whatever text follows: encoding any text after the result
    gives the same tokens as encoding it after the prompt.

    The cut is at a settled position where the two sides, encoded separately, give the
    tokens of the whole. It is some way before the end, and not after white space,
    because the prompt option `boundary="harness"` moves white space at the end of a
    prompt. If there is none, or if token bytes are not those of the text, the prompt is
    returned unchanged.
    This takes one encoding of the text, and one of a short tail for each position
    tried.
    """
    prefix, text = prompt.prefix, prompt.text
    whole = encode_text(vocabulary, prompt)
    if not spells_text(vocabulary, whole, text):
        return prompt
    spelled = vocabulary.decode(whole)
    before = np.asarray(whole[:1], dtype=np.int32)  # after any token of text no new text begins
    for position in islice(settled_positions(vocabulary, spelled, _MIN_LEFT), _MAX_TRIED):
        tail = encode_after(vocabulary, before, spelled[position:])
        n_kept = len(whole) - len(tail)
        if (
            n_kept < 1
            or spelled[position - 1 : position].isspace()
            or whole[n_kept:] != tail
            or vocabulary.decode(tail) != spelled[position:]
        ):
            continue
        kept = np.concatenate([prefix, np.asarray(whole[:n_kept], dtype=np.int32)])
        return replace(prompt, prefix=kept, text=spelled[position:])
    return prompt
