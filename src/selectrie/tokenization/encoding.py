"""Encodes text after a prompt, and choices, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, pairwise

import numpy as np

from selectrie.core.numerics import common_length
from selectrie.core.types import BoolArray, IntArray, OffsetArray
from selectrie.core.vocabulary import Tokenize, TokenizerKind, Vocabulary
from selectrie.errors import OptionError, PromptError, remedies, words


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt as fixed tokens and the text after them, which is not encoded yet.

    Attributes:
        prefix: int32[], the fixed tokens (BOS, the template up to its last control
            token, given ids).
        text: Bytes of plain text after them, to be encoded jointly with the text that
            follows the prompt.
        continues: Whether the text continues other text although only BOS precedes it,
            because a text or a chat template spelled that. A tokenizer that adds a
            space at the beginning of everything alone then adds none.
        is_normalized: Whether the text was changed as the tokenizer normalises it.
        time: The time that the chat template writes, in ISO 8601, or "".
        spelled: Names of control tokens in a plain text, which are read as text.
        skips_template: Whether this is a plain text for a model with a chat template.
    """

    prefix: IntArray
    text: bytes
    continues: bool = False
    is_normalized: bool = False
    time: str = ""
    spelled: tuple[str, ...] = ()
    skips_template: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EncodedChoices:
    """A prompt and its choices as tokens.

    Attributes:
        context: int32[T], T >= 1, the shared context.
        tokens: int32[], the paths of all choices: choice c after the context is
            tokens[offsets[c]:offsets[c+1]]. With following text, each path includes the
            fewest following bytes after which every encoding has a boundary.
        offsets: int64[C+1].
        first_scored: int32[C], index of the first token of the path that is part of the
            score (> 0 only for lm-eval's rule).
        prompt_tokens: int32[], the tokens of the prompt alone ("harness": without its
            trailing white space).
        healed: Bytes of the prompt after the context on which every score is
            conditional, as tokens spell them. If they reach back to the beginning of a
            text, they begin with the space that a `space_prefix` vocabulary adds there.
            b"" if no prompt token is encoded again, or if the boundary is not "heal".
        boundary_shift: int32[C], number of prompt tokens that this choice's encoding
            changes (0 = the prompt's own tokens are kept).
        following_bytes: Number of bytes of the following text in the paths.
        boundary: The boundary used: "heal", "split" or "harness". "heal" becomes
            "split" if the bytes of the prompt's tokens are not those of its text
            (unknown tokens, lower-casing).
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


def cut_following(
    vocabulary: Vocabulary, tokens: IntArray, offsets: OffsetArray, following_bytes: int
) -> tuple[IntArray, OffsetArray, int]:
    """Cut paths at the fewest following bytes after which all have a token boundary.

    At least one following byte is kept. Returns the tokens, the offsets, and the
    number of following bytes kept.
    """
    lengths = vocabulary.lengths[tokens]
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    left = np.repeat(ends[offsets[1:]], np.diff(offsets)) - ends[1:]
    n_paths = np.bincount(left[(left < following_bytes) & (lengths > 0)], minlength=1)
    max_left = int(np.flatnonzero(n_paths == len(offsets) - 1)[-1])
    kept = left >= max_left
    return tokens[kept], _offsets_of(kept, offsets), following_bytes - max_left


def flatten(paths: list[list[int]]) -> tuple[IntArray, OffsetArray]:
    """Concatenate paths; return int32[] tokens and int64[C+1] offsets."""
    lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.fromiter(chain.from_iterable(paths), dtype=np.int32, count=int(offsets[-1])), offsets


def _path_positions(offsets: OffsetArray) -> OffsetArray:
    """Return the position of each flat token within its path, as int64[]."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _offsets_of(kept: BoolArray, offsets: OffsetArray) -> OffsetArray:
    """Return the offsets of the paths when only the tokens with `kept` set remain."""
    return np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[offsets]


def drop_first(tokens: IntArray, offsets: OffsetArray, n: int) -> tuple[IntArray, OffsetArray]:
    """Return every path without its first n tokens, as flat tokens and offsets."""
    if n == 0:
        return tokens, offsets
    kept = _path_positions(offsets) >= n
    return tokens[kept], _offsets_of(kept, offsets)


def shared_prefix(tokens: IntArray, offsets: OffsetArray, own: IntArray) -> OffsetArray:
    """Return int64[C], the length of the prefix that each path shares with `own`."""
    lengths = np.diff(offsets)
    position = _path_positions(offsets)
    differs = np.ones(len(tokens), dtype=np.bool_)
    inside = position < len(own)
    differs[inside] = tokens[inside] != own[position[inside]]
    result: OffsetArray = lengths.copy()
    filled = lengths > 0
    if filled.any():
        first = np.minimum.reduceat(np.where(differs, position, len(tokens)), offsets[:-1][filled])
        result[filled] = np.minimum(first, lengths[filled])
    return result


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
"""Maximum number of bytes at the end of a text in which a position is searched."""
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
    """Return the tokens of a prompt, int32[], as if nothing followed it."""
    return np.concatenate([prompt.prefix, np.asarray(encode_text(vocabulary, prompt), dtype=np.int32)])


def encode_text(vocabulary: Vocabulary, prompt: PromptText, rest: bytes = b"") -> list[int]:
    """Return the tokens of a prompt's text and of `rest`, after the fixed tokens."""
    return encode_after(vocabulary, prompt.prefix, prompt.text + rest, continues=prompt.continues)


def least_tokens(vocabulary: Vocabulary, text: bytes, *, limit: int = 0) -> int:
    """Return a lower bound on the number of tokens of a text, without encoding it.

    The bound follows from the bytes of the longest token, names of control tokens
    included. It is 0 if the tokenizer may change or swallow text. It is also 0 if
    the bound is at most `limit`, because a valid bound requires examining the
    tokenizer.
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
    """Return the maximum number of bytes of a token or a control token's name."""
    names = [len(vocabulary.texts[token].encode("utf-8", "surrogatepass")) for token in vocabulary.control.tolist()]
    return max(1, int(vocabulary.lengths.max(initial=1)), *names)


def is_at_start(vocabulary: Vocabulary, prefix: IntArray, *, continues: bool = False) -> bool:
    """Return whether text after the tokens `prefix` counts as the beginning of a text.

    There the vocabulary adds its space. `continues` is that of `PromptText`.
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
class PromptTail:
    """The last part of a prompt, which is encoded together with every rest.

    A rest is the text after the prompt: a choice, with the delimiter before it and
    the following text. It is encoded as `lead` + rest[skip:]. The first tokens of
    that encoding must be `expected`; they are in `before` already, or belong to no
    text.

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


def find_tail(vocabulary: Vocabulary, prompt: PromptText, rests: Sequence[bytes]) -> PromptTail:
    """Return a short tail that gives the same tokens as the prompt's whole text.

    The tail is the whole text if no shorter one is found. It begins at a position
    in the text, or at its end, that no token spans. Tokenizers that merge (BPE,
    SentencePiece), and those that match or weigh whole tokens, encode the two sides
    of such a position separately. Tokenizers that first split text into words look
    a little to both sides of it. Therefore positions before a space are tried
    first; prompt and first rest must have the same tokens with the tail as with the
    whole text; and a quarter of the tail's tokens are expected in every encoding.
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
        tail = PromptTail(before, own[cut:], spelled, inside, begins=False, lead=lead, skip=skip, expected=expected)
        [tokens] = tail.encode(vocabulary, [sample])
        if tokens is not None and whole[:cut] + tokens == tokens_of_sample:
            return tail
    if not vocabulary.space_prefix or is_at_start(vocabulary, prefix, continues=prompt.continues):
        return PromptTail(
            prefix, own, vocabulary.with_added_space(text), begin, begins=not text, lead=text, skip=0, expected=[]
        )
    put = separator_of(vocabulary) if puts else b""
    return PromptTail(prefix, own, text, inside, begins=False, lead=put + text, skip=0, expected=inside(put))


def _encode_each(vocabulary: Vocabulary, texts: list[bytes], tokenize: Tokenize | None = None) -> list[list[int]]:
    """Return the tokens of each text, encoding many texts at once if possible.

    Texts that begin with a space, and end with a byte that no token continues with a
    space, are encoded together. A call of llama.cpp costs up to 140 µs before it reads
    any text (it compiles DeepSeek's patterns in each). A vocabulary that puts a space
    before every text and encodes each word apart goes word by word.

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
            # Each text must end where a token ends; otherwise all are encoded one by
            # one.
            if (ends[last_tokens] == stops).all() and vocabulary.decode(tokens) == joined:
                bounds = [0, *(last_tokens + 1).tolist()]
                for i, (start, stop) in zip(block, pairwise(bounds), strict=True):
                    result[i] = tokens[start:stop]
                    if vocabulary.on_encoded is not None:  # `tokenize` has reported the joined text alone
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
        # A choice that begins with a space begins a word at the end of the prompt.
        yield size
    for position in range(size - _WORDS_BYTES, first, -1):
        if (
            text[position] == _SPACE[0]
            and not text[position - 1 : position].isspace()
            and not is_spanned(vocabulary, text, position)
        ):
            yield position
    for position in range(size - _TAIL_BYTES, first, -1):
        # Tokenizers may group the digits of a number.
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


def shorten_following(vocabulary: Vocabulary, following: bytes) -> bytes:
    """Return the part of the following text that can affect the tokens before it.

    It ends at a position where every encoding has a boundary.
    """
    for position in range(_TAIL_BYTES, len(following)):
        is_word_end = following[position] == _SPACE[0] and not following[position - 1 : position].isspace()
        if is_word_end and not is_spanned(vocabulary, following, position):
            return following[:position]
    return following


def encode_rests(
    vocabulary: Vocabulary, prompt: PromptText, tail: PromptTail, rests: Sequence[bytes]
) -> tuple[PromptTail, IntArray, OffsetArray]:
    """Encode every rest after a prompt.

    Returns (tail, tokens, offsets): the flat tokens of each rest after
    `tail.before`. A rest that the given tail does not fit is encoded with the whole
    prompt. If that changes tokens in `tail.before`, the tokens from there on become
    part of every path, and the returned tail differs from the given one.
    """
    tried = tail.encode(vocabulary, rests)
    paths = [path for path in tried if path is not None]
    if len(paths) < len(tried):
        n_prefix = len(prompt.prefix)
        fixed = tail.before[n_prefix:]
        wholes = {c: encode_text(vocabulary, prompt, rests[c]) for c, path in enumerate(tried) if path is None}
        n_fixed = min(common_length(np.array(whole, dtype=np.int32), fixed) for whole in wholes.values())
        moved = fixed[n_fixed:].tolist()
        paths = [wholes[c][n_fixed:] if path is None else moved + path for c, path in enumerate(tried)]
        tail = replace(
            tail,
            before=tail.before[: n_prefix + n_fixed],
            own=np.concatenate([np.asarray(moved, dtype=np.int32), tail.own]),
            text=vocabulary.decode(moved) + tail.text,
        )
    return tail, *flatten(paths)


def is_aligned(
    vocabulary: Vocabulary, prompt: PromptText, tail: PromptTail, rests: list[bytes], tokens: IntArray
) -> bool:
    """Return whether tokens spell exactly the text, in the prompt and in all rests.

    `tokens` are the flat tokens of the rests after `tail.before`.
    """
    if prompt.text and vocabulary.decode(tail.own) != tail.text:
        return False
    if tail.begins:
        return vocabulary.decode(tokens) == b"".join(map(vocabulary.with_added_space, rests))
    return vocabulary.decode(tokens) == b"".join([tail.text + rest for rest in rests if prompt.text or rest])


def spell_tokens(vocabulary: Vocabulary, tokens: IntArray) -> str:
    """Return the text that the tokens, int32[], spell.

    Control tokens, and others without text, are written by their names. A space
    that the tokenizer adds before text is left out. If the tokenizer made these
    tokens of some text in which it recognised control tokens, it makes them of the
    result too, unless a control token swallowed white space or a byte is no UTF-8:
    U+FFFD replaces such bytes.
    """
    return b"".join(spell_pieces(vocabulary, tokens)).decode("utf-8", "replace")


def spell_pieces(vocabulary: Vocabulary, tokens: IntArray) -> list[bytes]:
    """Return the bytes that each token, int32[], adds to the text of `spell_tokens`."""
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


def encode_choices(
    vocabulary: Vocabulary, prompt: PromptText, choices: Sequence[bytes], following: bytes = b"", boundary: str = "heal"
) -> EncodedChoices:
    """Encode a prompt and each choice after it.

    Boundaries:

    - "heal": prompt + choice + following are encoded jointly. The context is the
      longest token prefix common to the prompt alone and all these encodings.
    - "split": prompt and choice (+ following) are encoded separately, and no space is
      added before the choice.
    - "harness": as `_encode_pair` of lm-evaluation-harness does. White space that ends
      the prompt moves to the choice, and the joint encoding is cut at the length of the
      prompt's own.

    `following` is text after every choice. Each path includes the fewest of its bytes
    (at least one) after which every encoding has a token boundary. If token bytes are
    not those of the text, paths include all of it.

    Equal choices are encoded once. After a long prompt only its tail is encoded again
    (see `PromptTail`). If no token of the prompt would be left as context, "heal"
    becomes "split". Raises `PromptError` if "harness" leaves none, and `OptionError`
    for an unknown boundary.
    """
    if boundary not in ("heal", "split", "harness"):
        raise OptionError("boundary", boundary, "one of 'heal', 'split', 'harness'")
    index_of = {choice: i for i, choice in enumerate(dict.fromkeys(choices))}
    which = np.fromiter(map(index_of.__getitem__, choices), dtype=np.int64, count=len(choices))
    distinct = list(index_of)
    part = shorten_following(vocabulary, following)
    encoded, aligned = _encode_distinct(vocabulary, prompt, distinct, part, boundary)
    if not aligned and part != following:
        encoded, aligned = _encode_distinct(vocabulary, prompt, distinct, following, boundary)
    if not aligned and encoded.healed:
        encoded, aligned = _encode_distinct(vocabulary, prompt, distinct, following, "split")
    return encoded if len(distinct) == len(choices) else expand_duplicates(encoded, which)


def _encode_distinct(
    vocabulary: Vocabulary, prompt: PromptText, distinct: list[bytes], following: bytes, boundary: str
) -> tuple[EncodedChoices, bool]:
    """Encode distinct choices.

    Returns (the encoding, whether token bytes are those of the text everywhere).
    """
    moved = b""
    if boundary == "harness":
        kept = prompt.text.decode("utf-8", "surrogateescape").rstrip().encode("utf-8", "surrogateescape")
        moved, prompt = prompt.text[len(kept) :], replace(prompt, text=kept)
    elif boundary == "split":
        prompt = replace(prompt, prefix=encode_prompt(vocabulary, prompt), text=b"")
    rests = [moved + choice + following for choice in distinct]
    tail = find_tail(vocabulary, prompt, rests)
    tail, tokens, offsets = encode_rests(vocabulary, prompt, tail, rests)
    aligned = is_aligned(vocabulary, prompt, tail, rests, tokens)
    following_bytes = len(following)
    if following and distinct and aligned:
        tokens, offsets, following_bytes = cut_following(vocabulary, tokens, offsets, following_bytes)

    own = tail.own
    shared = shared_prefix(tokens, offsets, own)
    n_kept = int(shared.min(initial=len(own)))
    context = np.concatenate([tail.before, own[:n_kept]])
    if not len(context) and boundary == "heal" and len(own):
        return _encode_distinct(vocabulary, prompt, distinct, following, "split")
    if not len(context):
        raise PromptError(
            words(
                "no token of the prompt stays the same before every choice, so there is nothing to predict the first "
                "one from; {}",
                remedies("begin the prompt with more text or a control token", "use `boundary='split'`"),
            )
        )
    # The harness scores what follows as many tokens as the prompt has alone.
    n_own = np.minimum(np.diff(offsets), len(own)) if boundary == "harness" else np.full(len(distinct), n_kept)
    tokens, offsets = drop_first(tokens, offsets, n_kept)
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


def expand_duplicates(encoded: EncodedChoices, which: OffsetArray) -> EncodedChoices:
    """Return the encoding of all choices from that of the distinct choices.

    `which`, int64[C], is the index of each choice's distinct choice.
    """
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
