"""Behind a prompt, with texts nobody can list: what of it is kept, and which token paths are the tokenizer's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.boundary.records import PromptText
from selectrie.boundary.tail import Tail, encode_after, find_tail, is_at_start
from selectrie.errors import OptionError, PromptError
from selectrie.types import IntArray
from selectrie.vocabulary import Vocabulary

_SPACE = b" "
_WORD_PART = re.compile(rb" \Z| ?(?!(?:[sStTdDmM]|[rR][eE]|[vV][eE]|[lL][lL])\Z)[A-Za-z]+\Z")
"""A space, or ASCII letters after at most one, that are not what follows the apostrophe of a contraction: some tokenizers
cut "'re" off whatever letters come next."""
_LETTERS = re.compile(rb"[A-Za-z]+\Z")


@dataclass(frozen=True, slots=True, eq=False)
class OpenPrompt:
    """A prompt and what texts after it begin with.

    context: int32[T], T >= 1, tokens kept. healed: bytes of the prompt's last token, taken off the context: every path spells
    them first, and every log-probability is conditional on them. put: the space that the tokenizer puts before a text that
    begins here: every path spells it first, without any condition. At most one of the two has bytes.
    prompt_tokens: int32[], the prompt alone. boundary: "heal" or "split", as used. paths: which paths are the tokenizer's own.
    """

    context: IntArray
    healed: bytes
    put: bytes
    prompt_tokens: IntArray
    boundary: str
    paths: OwnPaths

    @property
    def prefix(self) -> bytes:
        """Bytes that every path spells before the text."""
        return self.healed or self.put

    @property
    def last(self) -> int | None:
        """The token before a path's first where both are encoded together, else None."""
        return int(self.context[-1]) if self.healed and self.paths.joins else None


def open_prompt(vocabulary: Vocabulary, prompt: PromptText, boundary: str = "heal") -> OpenPrompt:
    """Cut a prompt for texts that are not known yet.

    "heal": the prompt's last token is taken off, for the text may change it; unless it has no bytes, is all there is, or
    token bytes are not those of the text. "split": all tokens stay. Raises `PromptError` for a prompt without tokens,
    `OptionError` for another boundary ("harness" looks at whole texts).
    """
    if boundary not in ("heal", "split"):
        raise OptionError("boundary", boundary, "'heal' or 'split' with a grammar")
    own = np.asarray(encode_after(vocabulary, prompt.prefix, prompt.text), dtype=np.int32)
    tokens = np.concatenate([prompt.prefix, own])
    if not len(tokens):
        raise PromptError("the prompt has no tokens, so there is nothing to predict the first one from")
    is_aligned = spells_text(vocabulary, own, prompt.text)
    healed = b""
    if boundary == "heal" and len(own) and len(tokens) > 1 and is_aligned:
        healed = vocabulary.pieces[own[-1]]
    if boundary == "split" or not is_aligned:
        prompt = PromptText(tokens, b"")
    context = tokens[:-1] if healed else tokens
    put = b""
    if not prompt.text and vocabulary.space_prefix and is_at_start(vocabulary, prompt.prefix):
        put = _SPACE
    return OpenPrompt(
        context=context,
        healed=healed,
        put=put,
        prompt_tokens=tokens,
        boundary="split" if boundary == "heal" and not is_aligned else boundary,
        paths=OwnPaths(vocabulary, prompt, context, healed or put),
    )


def spells_text(vocabulary: Vocabulary, tokens: IntArray, text: bytes) -> bool:
    """Are the bytes of a prompt's own tokens those of its text, but for a space put before it?"""
    return vocabulary.decode(tokens) in (text, _SPACE + text)


class OwnPaths:
    """Which token paths after a context are the tokenizer's own encoding of their text, as it stands there.

    A finished path is, where its text, encoded behind the prompt, gives the kept tokens and then the path's. Control tokens
    are nobody's text: each begins another one.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: PromptText, context: IntArray, prefix: bytes) -> None:
        self._vocabulary, self._prompt, self._context, self._prefix = vocabulary, prompt, context.tolist(), prefix
        self._tail: Tail | None = find_tail(vocabulary, prompt, [b""]) if prompt.text else None
        self._pairs: dict[tuple[int, int], bool] = {}

    @property
    def joins(self) -> bool:
        """The prompt's own text is encoded together with the paths'."""
        return self._tail is not None

    def is_canonical(self, tokens: Sequence[int]) -> bool:
        """Are these, all tokens after the context, the tokenizer's own? One tokenizer call, of the prompt's tail and the text."""
        pieces = self._vocabulary.pieces
        starts = [0, *(place + 1 for place, token in enumerate(tokens) if not pieces[token])]
        stops = [*(start - 1 for start in starts[1:]), len(tokens)]
        first, *others = [list(tokens[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        if not self._begins_own(first):
            return False
        for start, part in zip(starts[1:], others, strict=True):
            before = np.array([tokens[start - 1]], dtype=np.int32)
            if encode_after(self._vocabulary, before, self._vocabulary.decode(part)) != part:
                return False
        return True

    def may_join(self, left: int, right: int) -> bool:
        """May these be neighbours in an own path? False only where that is certain, for two parts of one word of ASCII letters.

        Such neighbours are encoded alone as they are within any text: merges by rank, the best of all segmentations and the
        longest match from the left all have that property inside of one word (for merges: Berglund and van der Merwe,
        "Formalizing BPE tokenization", arXiv:2309.08715). Elsewhere what stands further off may matter.
        """
        known = self._pairs.get((left, right))
        if known is None:
            known = self._pairs[left, right] = self._joins(left, right)
        return known

    def _joins(self, left: int, right: int) -> bool:
        one, other = self._vocabulary.pieces[left], self._vocabulary.pieces[right]
        if not _WORD_PART.match(one) or not _LETTERS.match(other):
            return True
        return encode_inside(self._vocabulary, one + other) == [left, right]

    def may_begin(self, tokens: Sequence[int]) -> bool:
        """May an own path begin with these, as far as their text alone tells? For searches that promise nothing.

        The beginning of an encoding is the encoding of its text, unless the cut into words looks ahead: so the last token is
        left out, and what ends inside a character is not judged.
        """
        text = self._vocabulary.decode(tokens)
        if len(tokens) < 2 or len(text) < len(self._prefix) or _is_cut(text):
            return True
        own = self.own(tokens)
        return not own or own[: len(tokens) - 1] == list(tokens[:-1])

    def own(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's own path of the text that these spell after the context.

        Empty where it has none that keeps the context, and where control tokens stand between.
        """
        text = self._vocabulary.decode(tokens)
        if not text.startswith(self._prefix) or not all(self._vocabulary.pieces[token] for token in tokens):
            return []
        return self._encoded(text) or []

    def _begins_own(self, tokens: list[int]) -> bool:
        """Are these, up to the first control token, encoded as they stand behind the prompt?"""
        text = self._vocabulary.decode(tokens)
        return text.startswith(self._prefix) and self._encoded(text) == tokens

    def _encoded(self, text: bytes) -> list[int] | None:
        """Tokens after the context of text that begins with the prefix; None where the context becomes another."""
        text = text[len(self._prefix) :]
        if self._tail is None:
            return encode_after(self._vocabulary, self._prompt.prefix, text)
        [encoded] = self._tail.encode(self._vocabulary, [text])
        before = self._tail.before.tolist()
        if encoded is None:
            before = self._prompt.prefix.tolist()
            encoded = encode_after(self._vocabulary, self._prompt.prefix, self._prompt.text + text)
        n = len(self._context) - len(before)
        return encoded[n:] if encoded[:n] == self._context[len(before) :] else None


def _is_cut(text: bytes) -> bool:
    """Does this end inside a character of UTF-8?"""
    for n in range(1, min(4, len(text) + 1)):
        if text[-n] >= 0xC0:
            return n < (2 if text[-n] < 0xE0 else 3 if text[-n] < 0xF0 else 4)
        if text[-n] < 0x80:
            return False
    return False


def encode_inside(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """Tokens of text that stands within another: no space is put before it."""
    if not vocabulary.space_prefix:
        return vocabulary.tokenize(text)
    anything = np.flatnonzero(vocabulary.lengths > 0)[:1].astype(np.int32)
    return encode_after(vocabulary, anything, text)
