"""Which token paths after a prompt are those that the tokenizer itself makes of prompt and text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selectrie.boundary import PromptText, encode_after
from selectrie.types import IntArray
from selectrie.vocabulary import Vocabulary

_KEPT_BYTES = 256
"""Text of the prompt that is encoded again with every text."""


class Canonicity:
    """Of one prompt, the context that is kept of it, and what follows. Answers are kept.

    prompt: as it was read. context: int32[T], its tokens but for what was healed. last: bytes of the prompt after the context.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: PromptText, context: IntArray, last: bytes) -> None:
        self._vocabulary, self._context, self._last = vocabulary, context.tolist(), last
        self._prompt = _shortened(vocabulary, prompt)
        self._n_before = len(self._prompt.prefix)
        self._neighbours: dict[tuple[int, int], bool] = {}

    def is_canonical(self, path: Sequence[int]) -> bool:
        """Is the encoding of prompt and text the context and this path?"""
        spelled = self._vocabulary.decode(path)
        text = self._prompt.text + spelled[len(self._last) :]
        tokens = encode_after(self._vocabulary, self._prompt.prefix, text)
        return self._context[self._n_before :] + list(path) == tokens

    def may_join(self, left: int, right: int) -> bool:
        """Could two tokens be neighbours in the encoding of any text? Only if the two by themselves are encoded so."""
        known = self._neighbours.get((left, right))
        if known is None:
            known = self._neighbours[left, right] = may_join(self._vocabulary, left, right)
        return known


def may_join(vocabulary: Vocabulary, left: int, right: int) -> bool:
    """`Canonicity.may_join`, worked out: False only where both are letters and the two by themselves are encoded otherwise.

    Within a run of letters this decides: merges of pairs, longest matches and the best path all give a part of a text that lies
    between two token boundaries the tokens it has by itself. Not so beside white space and punctuation, where the patterns
    that cut text into words look further than the two (seen with GPT-2, Falcon, StarCoder, Qwen2, DeepSeek): True.
    """
    first, second = vocabulary.pieces[left], vocabulary.pieces[right]
    if not _is_word(first.removeprefix(b" ")) or not _is_word(second):
        return True
    return encode_after(vocabulary, np.array([left], dtype=np.int32), first + second) == [left, right]


def _is_word(piece: bytes) -> bool:
    """Whole letters and nothing else?"""
    try:
        return piece.decode("utf-8").isalpha()
    except UnicodeDecodeError:
        return False


def _shortened(vocabulary: Vocabulary, prompt: PromptText) -> PromptText:
    """The same prompt with the beginning of its text as tokens, where that changes nothing: text is cut before a space
    that begins a token."""
    tokens = np.asarray(encode_after(vocabulary, prompt.prefix, prompt.text), dtype=np.int32)
    n_bytes = len(prompt.text)
    lengths = vocabulary.lengths[tokens]
    if n_bytes <= _KEPT_BYTES or int(lengths.sum()) != n_bytes:
        return prompt
    starts = np.cumsum(lengths) - lengths
    for place in np.flatnonzero(starts <= n_bytes - _KEPT_BYTES)[::-1][:32].tolist():
        rest = prompt.text[int(starts[place]) :]
        if not place or rest[:1] != b" " or rest[1:2].isspace():
            continue
        prefix = np.concatenate([prompt.prefix, tokens[:place]])
        if encode_after(vocabulary, prefix, rest) == tokens[place:].tolist():
            return PromptText(prefix, rest)
    return prompt
