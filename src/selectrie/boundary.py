"""Where the prompt ends and the choices begin, on tokens: healing, splitting, lm-eval's rule."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from selectrie import numerics
from selectrie.errors import OptionError, PromptError
from selectrie.trie import TokenTrie
from selectrie.types import BoolArray, FloatArray, IntArray, OffsetArray
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


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt before its last stretch of text is encoded.

    prefix: int32[], tokens that stand fixed (BOS, the template up to its last control token, given ids).
    text: bytes of plain text after them, encoded jointly with what follows.
    """

    prefix: IntArray
    text: bytes


@dataclass(frozen=True, slots=True, eq=False)
class EncodedChoices:
    """A prompt and its choices as tokens.

    context: int32[T], T >= 1, the shared context. tokens int32[], offsets int64[C+1]: path of choice c after the context is
    tokens[offsets[c]:offsets[c+1]] (with `following`, up to the fewest following bytes at which every encoding has a boundary).
    first_scored: int32[C], tokens of the path before this one are not part of the score (only lm-eval's rule: > 0).
    prompt_tokens: int32[], the prompt alone ("harness": without its trailing white space). healed: bytes of the prompt
    after the context that every score is conditional on, as tokens spell them: where they reach back to the beginning of a
    text they begin with the space that a `space_prefix` vocabulary puts there (b"" = nothing moved, or not "heal").
    boundary_shift: int32[C], prompt tokens that this choice's encoding changes (0 = the prompt's own tokens are kept).
    following_bytes: bytes of the following text in the paths. boundary: "heal", "split" or "harness", as used: "heal"
    becomes "split" where tokens would have to be moved whose bytes are not the text's (unknown tokens, lower-casing).
    """

    context: IntArray
    tokens: IntArray
    offsets: OffsetArray
    first_scored: IntArray
    prompt_tokens: IntArray
    healed: bytes
    boundary_shift: IntArray
    following_bytes: int
    boundary: str


def encode_choices(
    vocabulary: Vocabulary, prompt: PromptText, choices: Sequence[bytes], following: bytes = b"", boundary: str = "heal"
) -> EncodedChoices:
    """Tokens of a prompt and of each choice after it.

    "heal": prompt + choice + following are encoded jointly, and the context is the longest token prefix common to the
    prompt alone and all of them. "split": prompt and choice (+ following) are encoded apart, the choice without a space
    put before it. "harness": lm-evaluation-harness' `_encode_pair`: white space that ends the prompt moves to the choice,
    and the joint encoding is cut at the length of the prompt's own.

    `following` is text after every choice: paths run to the fewest of its bytes (at least one) at which every encoding
    has a token boundary, the end of the text being one; where token bytes are not the text's, to its end.
    Equal choices are encoded once. Behind a long prompt only its tail is encoded again (see `_Tail`).
    Raises `PromptError` where nothing is left as context, `OptionError` for an unknown boundary.
    """
    if boundary not in ("heal", "split", "harness"):
        raise OptionError("boundary", boundary, "one of 'heal', 'split', 'harness'")
    place = {choice: i for i, choice in enumerate(dict.fromkeys(choices))}
    which = np.fromiter(map(place.__getitem__, choices), dtype=np.int64, count=len(choices))
    distinct = list(place)
    part = _shortened(vocabulary, following)
    encoded, aligned = _encode(vocabulary, prompt, distinct, part, boundary)
    if not aligned and part != following:
        encoded, aligned = _encode(vocabulary, prompt, distinct, following, boundary)
    if not aligned and encoded.healed:
        encoded, aligned = _encode(vocabulary, prompt, distinct, following, "split")
    return encoded if len(distinct) == len(choices) else _spread(encoded, which)


def _encode(
    vocabulary: Vocabulary, prompt: PromptText, distinct: list[bytes], following: bytes, boundary: str
) -> tuple[EncodedChoices, bool]:
    """`encode_choices` for distinct choices, and whether token bytes are those of the text throughout."""
    moved = b""
    if boundary == "harness":
        kept = prompt.text.decode("utf-8", "surrogateescape").rstrip().encode("utf-8", "surrogateescape")
        moved, prompt = prompt.text[len(kept) :], replace(prompt, text=kept)
    elif boundary == "split":
        prompt = PromptText(encode_prompt(vocabulary, prompt), b"")
    tail = _find_tail(vocabulary, prompt)
    rests = [moved + choice + following for choice in distinct]
    tail, tokens, offsets = _encode_rests(vocabulary, prompt, tail, rests)
    aligned = _is_aligned(vocabulary, prompt, tail, rests, tokens)
    following_bytes = len(following)
    if following and distinct and aligned:
        tokens, offsets, following_bytes = _cut(vocabulary, tokens, offsets, following_bytes)

    own = tail.own
    shared = _shared_prefix(tokens, offsets, own)
    n_kept = int(shared.min(initial=len(own)))
    context = np.concatenate([tail.before, own[:n_kept]])
    if not len(context):
        raise PromptError(
            "no token of the prompt stays the same before every choice, so there is nothing to predict the first one from; "
            "begin the prompt with more text or a control token, or use boundary='split'"
        )
    n_own = np.minimum(np.diff(offsets), len(own)) if boundary == "harness" else np.full(len(distinct), n_kept)
    tokens, offsets = _without_first(tokens, offsets, n_kept)
    encoded = EncodedChoices(
        context=context,
        tokens=tokens,
        offsets=offsets,
        first_scored=(n_own - n_kept).astype(np.int32),
        prompt_tokens=np.concatenate([tail.before, own]),
        healed=vocabulary.decode(own[n_kept:]) if boundary == "heal" else b"",
        boundary_shift=(len(own) - shared).astype(np.int32),
        following_bytes=following_bytes,
        boundary=boundary,
    )
    return encoded, aligned


def encode_prompt(vocabulary: Vocabulary, prompt: PromptText) -> IntArray:
    """int32[]: the prompt alone as tokens."""
    return np.concatenate([prompt.prefix, np.asarray(_encode_after(vocabulary, prompt.prefix, prompt.text), dtype=np.int32)])


def _at_start(vocabulary: Vocabulary, prefix: IntArray) -> bool:
    """Does text after these tokens begin a text of its own, before which llama.cpp puts the vocabulary's space?"""
    return not len(prefix) or bool((vocabulary.control == prefix[-1]).any())


def _encode_after(vocabulary: Vocabulary, prefix: IntArray, text: bytes) -> list[int]:
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
class _Tail:
    """How every choice is encoded: `lead` + rest, whose first tokens must be `expected`; those stand in `before` already.

    before: int32[], tokens that stand before. own: int32[], the prompt's own tokens after them.
    text: bytes of the prompt after `before`, as tokens spell them.
    """

    before: IntArray
    own: IntArray
    text: bytes
    lead: bytes
    expected: list[int]


def _find_tail(vocabulary: Vocabulary, prompt: PromptText) -> _Tail:
    """Behind a long text, a short tail of it from a place that no token of the vocabulary spans; else the whole text.

    Tokenizers that merge (BPE, SentencePiece), or that match or weigh whole tokens, encode the two sides of such a place
    apart. Those that split text into words before merging look a little at what follows; so the place is before white
    space that follows something else, the tail must reproduce the tokens of the whole, and a quarter of it is expected
    in every encoding.
    """
    text, prefix = prompt.text, prompt.prefix
    whole = _encode_after(vocabulary, prefix, text)
    own = np.asarray(whole, dtype=np.int32)
    last = len(text) - _TAIL_BYTES
    for place in _places(vocabulary, text, range(last, max(0, last - _SEARCH_BYTES), -1)):
        lead = text[place + vocabulary.space_prefix :]
        encoded = vocabulary.tokenize(lead)
        n_expected = len(encoded) // 4
        if encoded == whole[-len(encoded) :]:
            cut = len(whole) - len(encoded) + n_expected
            before = np.concatenate([prefix, own[:cut]])
            return _Tail(before, own[cut:], vocabulary.decode(whole[cut:]), lead, encoded[:n_expected])
    if not vocabulary.space_prefix:
        return _Tail(prefix, own, text, text, [])
    if _at_start(vocabulary, prefix):
        return _Tail(prefix, own, _SPACE + text, text, [])
    return _Tail(prefix, own, text, _LINE_END + text, vocabulary.tokenize(_LINE_END))


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


def _shortened(vocabulary: Vocabulary, following: bytes) -> bytes:
    """As much of a long following text as can matter: up to a place where every encoding has a boundary."""
    places = _places(vocabulary, following, range(_TAIL_BYTES, len(following)))
    return following[: next(places, len(following))]


def _encode_rests(
    vocabulary: Vocabulary, prompt: PromptText, tail: _Tail, rests: list[bytes]
) -> tuple[_Tail, IntArray, OffsetArray]:
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
        wholes = {c: _encode_after(vocabulary, prompt.prefix, prompt.text + rests[c]) for c in broken}
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
    tokens, offsets = _flat(paths)
    return tail, *_without_first(tokens, offsets, n_expected)


def _is_aligned(vocabulary: Vocabulary, prompt: PromptText, tail: _Tail, rests: list[bytes], tokens: IntArray) -> bool:
    """Are the bytes of the tokens those of the text, in the prompt and in every path?"""
    if prompt.text and vocabulary.decode(tail.own) != tail.text:
        return False
    return vocabulary.decode(tokens) == b"".join([tail.text + rest for rest in rests if prompt.text or rest])


def _cut(
    vocabulary: Vocabulary, tokens: IntArray, offsets: OffsetArray, following_bytes: int
) -> tuple[IntArray, OffsetArray, int]:
    """Paths up to the fewest following bytes, at least one, at which each has a token boundary; and how many those are."""
    lengths = vocabulary.lengths[tokens]
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    left = np.repeat(ends[offsets[1:]], np.diff(offsets)) - ends[1:]
    n_paths = np.bincount(left[(left < following_bytes) & (lengths > 0)], minlength=1)
    most_left = int(np.flatnonzero(n_paths == len(offsets) - 1)[-1])
    kept = left >= most_left
    return tokens[kept], _offsets_of(kept, offsets), following_bytes - most_left


def _flat(paths: list[list[int]]) -> tuple[IntArray, OffsetArray]:
    lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.fromiter(chain.from_iterable(paths), dtype=np.int32, count=int(offsets[-1])), offsets


def _positions(offsets: OffsetArray) -> OffsetArray:
    """int64[]: place of each flat token in its own path."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _offsets_of(kept: BoolArray, offsets: OffsetArray) -> OffsetArray:
    """Offsets once only the kept tokens are left."""
    return np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]


def _without_first(tokens: IntArray, offsets: OffsetArray, n: int) -> tuple[IntArray, OffsetArray]:
    """Every path without its first n tokens."""
    if n == 0:
        return tokens, offsets
    kept = _positions(offsets) >= n
    return tokens[kept], _offsets_of(kept, offsets)


def _shared_prefix(tokens: IntArray, offsets: OffsetArray, own: IntArray) -> OffsetArray:
    """int64[C]: first tokens that each path shares with `own`."""
    lengths = np.diff(offsets)
    place = _positions(offsets)
    differs = np.ones(len(tokens), dtype=np.bool_)
    inside = place < len(own)
    differs[inside] = tokens[inside] != own[place[inside]]
    result = lengths.copy()
    filled = lengths > 0
    if filled.any():
        first = np.minimum.reduceat(np.where(differs, place, len(tokens)), offsets[:-1][filled])
        result[filled] = np.minimum(first, lengths[filled])
    return result


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _spread(encoded: EncodedChoices, which: OffsetArray) -> EncodedChoices:
    """One path for each choice from one for each distinct choice: `which` names the distinct one."""
    lengths = np.diff(encoded.offsets)[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    source = np.repeat(encoded.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return replace(
        encoded,
        tokens=encoded.tokens[source],
        offsets=offsets,
        first_scored=encoded.first_scored[which],
        boundary_shift=encoded.boundary_shift[which],
    )
