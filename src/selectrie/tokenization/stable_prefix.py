"""Text that is settled: what of a prompt's text becomes fixed tokens, so that what follows costs its own tail alone."""

from __future__ import annotations

from itertools import islice

import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.tokenization.canonical import spells_text
from selectrie.tokenization.encoding import encode_after
from selectrie.tokenization.records import PromptText
from selectrie.tokenization.settled_positions import settled_places

_LEAST_LEFT = 16
"""Bytes of text that stay behind the place, at least: a slot that opens the end of a
page again finds it there."""
_MOST_TRIED = 8
"""Places tried before the text stays as it is."""


def keep(vocabulary: Vocabulary, prompt: PromptText) -> PromptText:
    """The same prompt with the beginning of its text as fixed tokens, as much as is
    settled whatever comes after.

    For every text that follows: encoding the prompt's text and that text after its
    tokens gives the tokens of doing so with what comes back. The place between is a
    settled one, some way before the end and behind no white space (lm-eval's rule moves
    all that ends a prompt), where the two sides encoded apart give the tokens of the
    whole; where there is none, or token bytes are not those of the text, the prompt
    comes back as it is. One encoding of the text, and of a short tail for each place
    tried.
    """
    prefix, text = prompt.prefix, prompt.text
    whole = encode_after(vocabulary, prefix, text)
    if not spells_text(vocabulary, whole, text):
        return prompt
    spelled = vocabulary.decode(whole)
    before = np.asarray(whole[:1], dtype=np.int32)  # any token of text: what stands after it begins no text of its own
    for place in islice(settled_places(vocabulary, spelled, _LEAST_LEFT), _MOST_TRIED):
        tail = encode_after(vocabulary, before, spelled[place:])
        n_kept = len(whole) - len(tail)
        if (
            n_kept < 1
            or spelled[place - 1 : place].isspace()
            or whole[n_kept:] != tail
            or vocabulary.decode(tail) != spelled[place:]
        ):
            continue
        return PromptText(np.concatenate([prefix, np.asarray(whole[:n_kept], dtype=np.int32)]), spelled[place:])
    return prompt
