"""Encodes text after a prompt: added spaces, and short tails of long prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from selectrie.core.types import IntArray, OffsetArray
from selectrie.core.vocabulary import Tokenize, TokenizerKind, Vocabulary
from selectrie.tokenization.flat_paths import flatten
from selectrie.tokenization.records import PromptText

_SPACE = b" "
_SEPARATORS = b"\n" + bytes(byte for byte in range(1, 128) if byte not in b"\n ")
"""Bytes that keep a vocabulary from adding a space to the text after them.

The preferred byte comes first.
"""
_WORDS_BYTES = 16
"""Minimum text encoded again before every rest if it begins with a space, in bytes."""
_TAIL_BYTES = 64
"""Minimum text encoded again before every rest if it begins elsewhere, in bytes."""
_SEARCH_BYTES = 1024
"""How far back a position is searched."""
_TEXTS_AT_ONCE = 256
"""Number of short texts encoded in one call; more gain nothing."""
_FIND_WORDS = re.compile(rb" +[^ ]+").findall
_NO_WORD_ENDS = (b"", _SPACE)
SPACE_SIGN = "\u2581"
"""The sign for a space in SentencePiece's vocabulary."""
_SPACE_WITHIN = re.compile(f"[^{SPACE_SIGN} ][{SPACE_SIGN} ]")
_MAX_TRIED = 8
"""Positions tried before the whole text is encoded before every rest."""


def encode_prompt(vocabulary: Vocabulary, prompt: PromptText) -> IntArray:
    """Return the tokens of a prompt alone, int32[]."""
    return np.concatenate([prompt.prefix, np.asarray(encode_text(vocabulary, prompt), dtype=np.int32)])


def encode_text(vocabulary: Vocabulary, prompt: PromptText, rest: bytes = b"") -> list[int]:
    """Return the tokens of a prompt's text and a rest after the prompt's prefix."""
    return encode_after(vocabulary, prompt.prefix, prompt.text + rest, continues=prompt.continues)


def least_tokens(vocabulary: Vocabulary, text: bytes, *, limit: int = 0) -> int:
    """Return a number of tokens that a text has at least, without encoding it.

    It follows from the bytes of the longest token, names of control tokens included. 0
    where the tokenizer may change or swallow text, and where the number is at most
    `limit`: to find out whether it is right means to examine the tokenizer.
    """
    n_least = -(-len(text) // vocabulary.derived(_longest_token))
    if n_least <= limit or vocabulary.normalize is not None:
        return 0
    if len(vocabulary.strips_left) or len(vocabulary.strips_right):
        return 0
    altered = vocabulary.tokenizing.altered
    if altered is None or any(one in text for one in altered):
        return 0
    return n_least


def _longest_token(vocabulary: Vocabulary) -> int:
    """Return the most bytes that a token spells, names of control tokens included."""
    names = [len(vocabulary.texts[token].encode("utf-8", "surrogatepass")) for token in vocabulary.control.tolist()]
    return max(1, int(vocabulary.lengths.max(initial=1)), *names)


def is_at_start(vocabulary: Vocabulary, prefix: IntArray, *, continues: bool = False) -> bool:
    """Return whether text after the tokens `prefix` counts as the beginning of a text.

    The vocabulary's space is added there. `continues` is that of
    `PromptText`.
    """
    if vocabulary.spacing is not None and not vocabulary.spacing.after_control:
        return not len(prefix) or (len(prefix) == 1 and bool(prefix[0] == vocabulary.bos) and not continues)
    if not len(prefix) or prefix[-1] == vocabulary.bos:  # text may spell it too: `<s` and `>` merge to it
        return True
    return bool((vocabulary.control == prefix[-1]).any())


def find_separator(vocabulary: Vocabulary) -> bytes | None:
    """Return a byte to put before text, so that no space is added to the text.

    The byte has a token, occurs in no longer token (so it merges with nothing), and is
    not a user-defined token, after which a space would be added again. It is usually a
    line end, which SentencePiece spells with a byte token. None if a vocabulary has no
    such byte.
    """
    longer = "".join(text for text in vocabulary.texts if len(text) > 1)
    longer_pieces = b"".join(piece for piece in vocabulary.pieces if len(piece) > 1)
    own = {vocabulary.texts[token] for token in vocabulary.user_defined.tolist()}
    for byte in _SEPARATORS:
        one = bytes([byte])
        has_token = byte == _SEPARATORS[0] or vocabulary.has_bytes(one)
        if has_token and one not in longer_pieces and chr(byte) not in longer and chr(byte) not in own:
            return one
    return None


def separator_of(vocabulary: Vocabulary) -> bytes:
    """Return the byte of `find_separator`, or a line end if there is none."""
    return vocabulary.derived(find_separator) or _SEPARATORS[:1]


def encode_after(vocabulary: Vocabulary, prefix: IntArray, text: bytes, *, continues: bool = False) -> list[int]:
    """Return the tokens of text after `prefix`.

    No space is added before the text unless it begins a new text. `continues` is that
    of `PromptText`.
    """
    if not text:
        return []
    if not vocabulary.space_prefix or is_at_start(vocabulary, prefix, continues=continues):
        return vocabulary.tokenize(text)
    if vocabulary.spacing is not None:
        return vocabulary.spacing.encode_inside(text)
    separator = separator_of(vocabulary)
    separating = vocabulary.tokenize(separator)
    tokens = vocabulary.tokenize(separator + text)
    if tokens[: len(separating)] == separating:
        return tokens[len(separating) :]
    # A token spans the separator and the text. If the text begins with a space, let the
    # added space replace it.
    return vocabulary.tokenize(text[1:] if text[:1] == _SPACE and len(text) > 1 else text)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The last part of a prompt, which is encoded together with every rest.

    A rest is the text after the prompt: a choice, with the delimiter before it and the
    following text. It is encoded as `lead` + rest[skip:]. The first tokens of that
    encoding must be `expected`; they are in `before` already, or belong to no text.

    Attributes:
        before: int32[], the tokens of the prompt before the tail.
        own: int32[], the prompt's own tokens after them.
        text: Bytes of the prompt after `before`, as tokens spell them.
        tokenize: The tokenizer of every rest with `lead`.
        begins: Whether every rest begins a text, so that a space is added before it.
        lead: Bytes encoded before every rest.
        skip: Number of bytes of a rest that `lead` replaces.
        expected: First tokens of every encoding.
    """

    before: IntArray
    own: IntArray
    text: bytes
    tokenize: Tokenize
    begins: bool
    lead: bytes
    skip: int
    expected: list[int]

    def encode(self, vocabulary: Vocabulary, rests: Sequence[bytes]) -> list[list[int] | None]:
        """Return the tokens of each rest after `before`.

        None for a rest whose encoding does not begin with the expected tokens.
        """
        lead, skip, expected, n = self.lead, self.skip, self.expected, len(self.expected)
        encoded = _encode_each(vocabulary, [lead + rest[skip:] for rest in rests], self.tokenize)
        return [
            tokens[n:] if tokens[:n] == expected and (tokens or not rest) else None
            for tokens, rest in zip(encoded, rests, strict=True)
        ]


def find_tail(vocabulary: Vocabulary, prompt: PromptText, rests: Sequence[bytes]) -> Tail:
    """Return a short tail that gives the same tokens, or one with the whole text.

    It begins at a position in the text, or at its end, that no token spans. Tokenizers
    that merge (BPE, SentencePiece), and those that match or weigh whole tokens, encode
    the two sides of such a position separately. Tokenizers that first split text into
    words look a little to both sides of it. Therefore positions before a space are
    tried first; prompt and first rest must have the same tokens with the tail as with
    the whole text; and a quarter of the tail's tokens are expected in every encoding.
    """
    text, prefix = prompt.text, prompt.prefix
    whole = encode_text(vocabulary, prompt)
    own = np.asarray(whole, dtype=np.int32)
    sample = rests[0] if rests else b""
    tokens_of_sample = encode_text(vocabulary, prompt, sample)
    begin = vocabulary.tokenize
    inside = begin if vocabulary.spacing is None else vocabulary.spacing.encode_inside
    puts = vocabulary.space_prefix and vocabulary.spacing is None
    for position in islice(_positions(vocabulary, text, rests), _MAX_TRIED):
        takes_space = puts and (position == len(text) or text[position] == _SPACE[0])
        put = separator_of(vocabulary) if puts and not takes_space else b""
        lead, skip = put + text[position + takes_space :], int(takes_space and position == len(text))
        encoded, n_put = inside(lead), len(inside(put))
        n_own = len(encoded) - n_put
        if n_own < 0 or encoded[n_put:] != whole[len(whole) - n_own :]:
            continue
        cut = len(whole) - n_own + n_own // 4
        expected = encoded[: n_put + n_own // 4]
        before = np.concatenate([prefix, own[:cut]])
        spelled = vocabulary.decode(whole[cut:])
        tail = Tail(before, own[cut:], spelled, inside, begins=False, lead=lead, skip=skip, expected=expected)
        [tokens] = tail.encode(vocabulary, [sample])
        if tokens is not None and whole[:cut] + tokens == tokens_of_sample:
            return tail
    if not vocabulary.space_prefix or is_at_start(vocabulary, prefix, continues=prompt.continues):
        return Tail(prefix, own, vocabulary.begun(text), begin, begins=not text, lead=text, skip=0, expected=[])
    put = separator_of(vocabulary) if puts else b""
    return Tail(prefix, own, text, inside, begins=False, lead=put + text, skip=0, expected=inside(put))


def _encode_each(vocabulary: Vocabulary, texts: list[bytes], tokenize: Tokenize | None = None) -> list[list[int]]:
    """Return the tokens of each text, encoding many texts at once if possible.

    Texts that begin with a space, and end with a byte that no token continues with a
    space, are encoded together. A call of llama.cpp costs up to 140 µs before it reads
    any text (it compiles DeepSeek's patterns in each).

    `tokenize` is the vocabulary's own if it is None.
    """
    tokenize = vocabulary.tokenize if tokenize is None else tokenize
    adds_space = vocabulary.space_prefix and vocabulary.spacing is None
    if len(texts) > 1 and adds_space and vocabulary.derived(_encodes_words_apart):
        return _encode_by_words(vocabulary, texts)
    result: list[list[int] | None] = [None] * len(texts)
    if not vocabulary.space_prefix and len(texts) > 1 and vocabulary.encodes_together:
        last = {text[-1] for text in texts if text}
        ends_word = {byte for byte in last if 33 <= byte < 127 and not vocabulary.joins(byte, _SPACE[0])}
        alike = [i for i, text in enumerate(texts) if text[:1] == _SPACE and text[-1] in ends_word]
        for first in range(0, len(alike), _TEXTS_AT_ONCE):
            block = alike[first : first + _TEXTS_AT_ONCE]
            joined = b"".join([texts[i] for i in block])
            tokens = tokenize(joined)
            ends = np.cumsum(vocabulary.lengths[tokens])
            stops = np.cumsum([len(texts[i]) for i in block])
            last_tokens = np.minimum(np.searchsorted(ends, stops), len(tokens) - 1)
            if (ends[last_tokens] == stops).all() and vocabulary.decode(tokens) == joined:
                bounds = [0, *(last_tokens + 1).tolist()]
                for i, (start, stop) in zip(block, pairwise(bounds), strict=True):
                    result[i] = tokens[start:stop]
                    if vocabulary.on_encoded is not None:
                        vocabulary.on_encoded(texts[i], tokens[start:stop])
    return [tokenize(text) if done is None else done for text, done in zip(texts, result, strict=True)]


def _encodes_words_apart(vocabulary: Vocabulary) -> bool:
    """Return whether a word, with the spaces before it, has fixed tokens in any text.

    This holds if the tokenizer merges by score, no token has a space after another
    character, and there are no user-defined tokens, which would be looked up before
    anything is merged.
    """
    is_merged = vocabulary.kind is TokenizerKind.SCORES and not len(vocabulary.user_defined)
    return is_merged and not any(map(_SPACE_WITHIN.search, vocabulary.texts))


def _encode_by_words(vocabulary: Vocabulary, texts: list[bytes]) -> list[list[int]]:
    """Return the tokens of each text, encoding every distinct word once.

    The vocabulary must add a space before text and encode words separately. A text that
    ends in spaces, is not UTF-8 or contains the sign for a space is encoded as a whole.
    """
    known: dict[bytes, list[int]] = {}
    result = []
    for text in texts:
        if text[-1:] in _NO_WORD_ENDS or not (text.isascii() or _is_plain(text)):
            result.append(vocabulary.tokenize(text))
            continue
        tokens: list[int] = []
        for word in _FIND_WORDS(_SPACE + text):
            own = known.get(word)
            if own is None:
                own = known[word] = vocabulary.tokenize(word[1:])
            tokens += own
        result.append(tokens)
    return result


def _is_plain(text: bytes) -> bool:
    """Return whether the text is UTF-8 without U+2581, which is merged like a space."""
    try:
        return SPACE_SIGN not in text.decode()
    except UnicodeDecodeError:
        return False


def _positions(vocabulary: Vocabulary, text: bytes, rests: Sequence[bytes]) -> Iterator[int]:
    """Yield positions of `text` that no token spans, nearest the end first.

    Positions before a space after another character come first, then any others.
    """
    size = len(text)
    first = max(0, size - _SEARCH_BYTES)
    ends_word = size > 0 and not text[-1:].isspace() and not vocabulary.joins(text[-1], _SPACE[0])
    if ends_word and all(rest[:1] == _SPACE for rest in rests):
        yield size
    for position in range(size - _WORDS_BYTES, first, -1):
        if (
            text[position] == _SPACE[0]
            and not text[position - 1 : position].isspace()
            and not is_spanned(vocabulary, text, position)
        ):
            yield position
    for position in range(size - _TAIL_BYTES, first, -1):
        inside_number = text[position - 1 : position + 1].isdigit()
        inside_character = text[position] & 0xC0 == 0x80
        if not inside_number and not inside_character and not is_spanned(vocabulary, text, position):
            yield position


def is_spanned(vocabulary: Vocabulary, text: bytes, position: int) -> bool:
    """Return whether a token may lie on both sides of `position`.

    The result holds for the text, and for any text that continues it.
    """
    if not vocabulary.joins(text[position - 1], text[position]):
        return False
    longest = int(vocabulary.lengths.max(initial=0))
    for start in range(position - 1, max(-1, position - longest), -1):
        stop = position + 1
        while vocabulary.begins_with(text[start:stop]):
            if stop == len(text) or vocabulary.has_bytes(text[start:stop]):
                return True
            stop += 1
    return False


def shortened(vocabulary: Vocabulary, following: bytes) -> bytes:
    """Return the part of the following text that can affect the tokens before it.

    It ends at a position where every encoding has a boundary.
    """
    for position in range(_TAIL_BYTES, len(following)):
        is_word_end = following[position] == _SPACE[0] and not following[position - 1 : position].isspace()
        if is_word_end and not is_spanned(vocabulary, following, position):
            return following[:position]
    return following


def encode_rests(
    vocabulary: Vocabulary, prompt: PromptText, tail: Tail, rests: Sequence[bytes]
) -> tuple[Tail, IntArray, OffsetArray]:
    """Return a tail, and the flat tokens and offsets of each rest after its `before`.

    A rest that the tail does not fit is encoded with the whole prompt. If that changes
    tokens in `tail.before`, the tokens from there on become part of every path, and the
    returned tail differs from the one given.
    """
    tried = tail.encode(vocabulary, rests)
    paths = [path for path in tried if path is not None]
    if len(paths) < len(tried):
        n_prefix = len(prompt.prefix)
        fixed = tail.before[n_prefix:].tolist()
        wholes = {c: encode_text(vocabulary, prompt, rests[c]) for c, path in enumerate(tried) if path is None}
        n_fixed = min(_common_length(whole, fixed) for whole in wholes.values())
        moved = fixed[n_fixed:]
        paths = [wholes[c][n_fixed:] if path is None else moved + path for c, path in enumerate(tried)]
        tail = replace(
            tail,
            before=tail.before[: n_prefix + n_fixed],
            own=np.concatenate([np.asarray(moved, dtype=np.int32), tail.own]),
            text=vocabulary.decode(moved) + tail.text,
        )
    return tail, *flatten(paths)


def is_aligned(vocabulary: Vocabulary, prompt: PromptText, tail: Tail, rests: list[bytes], tokens: IntArray) -> bool:
    """Return whether token bytes are those of the text, in the prompt and all rests."""
    if prompt.text and vocabulary.decode(tail.own) != tail.text:
        return False
    if tail.begins:
        return vocabulary.decode(tokens) == b"".join(map(vocabulary.begun, rests))
    return vocabulary.decode(tokens) == b"".join([tail.text + rest for rest in rests if prompt.text or rest])


def _common_length(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
