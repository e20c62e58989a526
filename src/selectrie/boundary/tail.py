"""Encoding behind a prompt: the space a tokenizer puts before text, and short tails of long prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.boundary.paths import flatten, without_first
from selectrie.boundary.records import PromptText
from selectrie.types import IntArray, OffsetArray
from selectrie.vocabulary import Vocabulary

_SPACE = b" "
_LINE_END = b"\n"
"""Put before text to keep a vocabulary from putting a space there. SentencePiece spells it with a byte token, which merges with nothing."""
_TAIL_BYTES = 64
"""Text encoded again in front of every choice, at least. Longer is slower, shorter leaves fewer places to cut."""
_SEARCH_BYTES = 1024
"""How far before the tail a place to cut is looked for."""
_SPAN_BYTES = 32
"""Longest token looked for across a place to cut; longer ones are runs of one character, whose shorter runs are tokens too."""


def encode_prompt(vocabulary: Vocabulary, prompt: PromptText) -> IntArray:
    """int32[]: the prompt alone as tokens."""
    return np.concatenate(
        [prompt.prefix, np.asarray(encode_after(vocabulary, prompt.prefix, prompt.text), dtype=np.int32)]
    )


def _at_start(vocabulary: Vocabulary, prefix: IntArray) -> bool:
    """Does text after these tokens begin a text of its own, before which llama.cpp puts the vocabulary's space?"""
    return not len(prefix) or bool((vocabulary.control == prefix[-1]).any())


def encode_after(vocabulary: Vocabulary, prefix: IntArray, text: bytes) -> list[int]:
    """Tokens of text that stands after `prefix`: no space is put before it unless it begins a text of its own."""
    if not text:
        return []
    if not vocabulary.space_prefix or _at_start(vocabulary, prefix):
        return vocabulary.tokenize(text)
    line_end = vocabulary.tokenize(_LINE_END)
    tokens = vocabulary.tokenize(_LINE_END + text)
    if tokens[: len(line_end)] == line_end:
        return tokens[len(line_end) :]
    # A token spans the line end and the text: let the space put before the text be the text's own where it has one.
    return vocabulary.tokenize(text[1:] if text[:1] == _SPACE and len(text) > 1 else text)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """How every choice is encoded: `lead` + rest, whose first tokens must be `expected`; those stand in `before` already.

    before: int32[], tokens that stand before. own: int32[], the prompt's own tokens after them.
    text: bytes of the prompt after `before`, as tokens spell them.
    """

    before: IntArray
    own: IntArray
    text: bytes
    lead: bytes
    expected: list[int]


def find_tail(vocabulary: Vocabulary, prompt: PromptText) -> Tail:
    """Behind a long text, a short tail of it from a place that no token of the vocabulary spans; else the whole text.

    Tokenizers that merge (BPE, SentencePiece), or that match or weigh whole tokens, encode the two sides of such a place
    apart. Those that split text into words before merging look a little at what follows; so the place is before white
    space that follows something else, the tail must reproduce the tokens of the whole, and a quarter of it is expected
    in every encoding.
    """
    text, prefix = prompt.text, prompt.prefix
    whole = encode_after(vocabulary, prefix, text)
    own = np.asarray(whole, dtype=np.int32)
    last = len(text) - _TAIL_BYTES
    for place in _places(vocabulary, text, range(last, max(0, last - _SEARCH_BYTES), -1)):
        lead = text[place + vocabulary.space_prefix :]
        encoded = vocabulary.tokenize(lead)
        n_expected = len(encoded) // 4
        if encoded == whole[-len(encoded) :]:
            cut = len(whole) - len(encoded) + n_expected
            before = np.concatenate([prefix, own[:cut]])
            return Tail(before, own[cut:], vocabulary.decode(whole[cut:]), lead, encoded[:n_expected])
    if not vocabulary.space_prefix:
        return Tail(prefix, own, text, text, [])
    if _at_start(vocabulary, prefix):
        return Tail(prefix, own, _SPACE + text, text, [])
    return Tail(prefix, own, text, _LINE_END + text, vocabulary.tokenize(_LINE_END))


def _places(vocabulary: Vocabulary, text: bytes, candidates: range) -> Iterator[int]:
    """Candidates before a white-space byte that follows another byte, and that no token spans."""
    blanks = _SPACE if vocabulary.space_prefix else _SPACE + _LINE_END
    for place in candidates:
        if text[place] in blanks and not text[place - 1 : place].isspace() and not _is_spanned(vocabulary, text, place):
            yield place


def _is_spanned(vocabulary: Vocabulary, text: bytes, place: int) -> bool:
    """Is some piece of text on both sides of `place` one token?"""
    return vocabulary.joins(text[place - 1], text[place]) and any(
        vocabulary.has_bytes(text[start:stop])
        for start in range(max(0, place - _SPAN_BYTES), place)
        for stop in range(place + 1, min(len(text), start + _SPAN_BYTES) + 1)
    )


def shortened(vocabulary: Vocabulary, following: bytes) -> bytes:
    """As much of a long following text as can matter: up to a place where every encoding has a boundary."""
    places = _places(vocabulary, following, range(_TAIL_BYTES, len(following)))
    return following[: next(places, len(following))]


def encode_rests(
    vocabulary: Vocabulary, prompt: PromptText, tail: Tail, rests: list[bytes]
) -> tuple[Tail, IntArray, OffsetArray]:
    """Flat tokens of each rest (a choice and what belongs to it) after `tail.before`, and their offsets.

    A rest that changes what the tail expects is encoded with the whole prompt. Where that changes tokens in `before`,
    these move from there to every path, and the tail that comes back says so.
    """
    tokenize, lead, expected = vocabulary.tokenize, tail.lead, tail.expected
    n_expected = len(expected)
    paths = [tokenize(lead + rest) for rest in rests]
    if not lead and b"" in rests:
        paths[rests.index(b"")] = []
    broken = [c for c, path in enumerate(paths) if path[:n_expected] != expected] if expected else []
    if broken:
        n_prefix = len(prompt.prefix)
        fixed = tail.before[n_prefix:].tolist()
        wholes = {c: encode_after(vocabulary, prompt.prefix, prompt.text + rests[c]) for c in broken}
        n_fixed = min(_common_length(whole, fixed) for whole in wholes.values())
        moved = fixed[n_fixed:]
        paths = [wholes[c][n_fixed:] if c in wholes else moved + path[n_expected:] for c, path in enumerate(paths)]
        tail = replace(
            tail,
            before=tail.before[: n_prefix + n_fixed],
            own=np.concatenate([np.asarray(moved, dtype=np.int32), tail.own]),
            text=vocabulary.decode(moved) + tail.text,
        )
        n_expected = 0
    tokens, offsets = flatten(paths)
    return tail, *without_first(tokens, offsets, n_expected)


def is_aligned(vocabulary: Vocabulary, prompt: PromptText, tail: Tail, rests: list[bytes], tokens: IntArray) -> bool:
    """Are the bytes of the tokens those of the text, in the prompt and in every path?"""
    if prompt.text and vocabulary.decode(tail.own) != tail.text:
        return False
    return vocabulary.decode(tokens) == b"".join([tail.text + rest for rest in rests if prompt.text or rest])


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
