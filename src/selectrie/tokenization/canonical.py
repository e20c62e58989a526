"""Prepares prompts for texts that cannot be listed, and finds canonical token paths."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import TokenizerKind, Vocabulary
from selectrie.errors import OptionError, PromptError, TextError
from selectrie.tokenization.encoding import (
    SPACE_SIGN,
    PromptText,
    encode_after,
    encode_choices,
    encode_text,
    find_separator,
    is_at_start,
    is_spanned,
    separator_of,
)

_SPACE_TEXT = " "
_LINE_END = "\n"
MAX_HEALED_BYTES = 1024
"""Maximum number of bytes from a position to the end of the text in a search."""
_BLANKS = " \t"
_WORD_SIGNS = "'’_"
"""Punctuation that may be part of a word.

Contractions have apostrophes, and patterns count the underscore among the letters.
"""
_WORDLESS = frozenset({TokenizerKind.SCORES, TokenizerKind.LONGEST})
"""Kinds that look for tokens in the whole text."""


def settled_positions(vocabulary: Vocabulary, text: bytes, min_behind: int = 1) -> Iterator[int]:
    """Yield settled positions of a text after its beginning, nearest the end first.

    The two sides of a settled position are encoded separately, whatever text follows.
    SentencePiece merges anywhere in a text, and the longest match needs no words. For
    these, every position between characters that no token spans is settled.

    Other tokenizers first split the text into words, with patterns that look to both
    sides. All of llama.cpp's patterns agree on how words are split at these positions,
    whatever follows the text:

    - before a space that follows no white space;
    - between a letter or a digit and a punctuation mark that is not an apostrophe;
    - after a line end, before blanks and then an ASCII letter or digit of this text.

    If the tokenizer works by merges alone, the position between two letters of a script
    without case is settled too.

    Args:
        vocabulary: The vocabulary.
        text: The text as its tokens spell it, including an added space.
        min_behind: Minimum number of bytes after a position.
    """
    if not vocabulary.tokenizing.splits_locally:
        return
    size = len(text)
    first = max(0, size - MAX_HEALED_BYTES)
    while first < size and text[first] & 0xC0 == 0x80:  # inside a character
        first += 1
    characters = text[first:].decode("utf-8", "surrogateescape")
    certain_to = _user_defined_from(vocabulary, text)
    last = _first_beginning(text, vocabulary.derived(_other_beginnings))
    position = size
    for i in range(len(characters) - 1, 0, -1):
        position -= len(characters[i].encode("utf-8", "surrogateescape"))
        if (
            position > last
            or size - position < min_behind
            or not _ends_word(vocabulary.kind, characters, i, certain_to - position)
        ):
            continue
        if not is_spanned(vocabulary, text, position) and _begins_apart(vocabulary, text[position:]):
            yield position


def _ends_word(kind: TokenizerKind, characters: str, i: int, n_certain: int) -> bool:
    """Return whether words are certainly split before character `i`.

    `n_certain` is the number of bytes from there on that cannot belong to a
    user-defined token, which would be looked up before the text is split into words.
    """
    left, right = characters[i - 1], characters[i]
    if _is_broken(left) or _is_broken(right):
        return False
    if kind in _WORDLESS:
        return True
    if left == _LINE_END:
        # A word ends after a line end if a letter or digit of this text follows the
        # blanks.
        behind = characters[i:].lstrip(_BLANKS)
        n_blanks = len(characters) - i - len(behind)
        return n_certain > n_blanks and behind[:1].isascii() and behind[:1].isalnum()
    if right == _SPACE_TEXT:
        return not left.isspace()
    if not left.isalpha() and not (left.isascii() and left.isdigit()):
        return False
    # See `settled_positions` for letters without case.
    is_inside = kind is TokenizerKind.MERGES and n_certain > 0 and _is_caseless(left) and _is_caseless(right)
    return is_inside or (unicodedata.category(right)[0] == "P" and right not in _WORD_SIGNS)


def _begins_apart(vocabulary: Vocabulary, rest: bytes) -> bool:
    """Return whether `rest` can be encoded after a separator without merging with it.

    The separator is the byte that `encode_after` puts before text.
    """
    if not vocabulary.space_prefix or vocabulary.spacing is not None:
        return True
    return not is_spanned(vocabulary, separator_of(vocabulary) + rest, 1)


def _user_defined_from(vocabulary: Vocabulary, text: bytes) -> int:
    """Return the first position from which the text may begin a user-defined token.

    User-defined tokens are looked up before the text is split into words. Without
    such a position, the length of the text is returned.
    """
    return _first_beginning(text, vocabulary.derived(_beginnings))


def _first_beginning(text: bytes, beginnings: frozenset[bytes]) -> int:
    """Return the first position from which the text is one of `beginnings`.

    The length of the text is returned if there is none.
    """
    longest = max(map(len, beginnings), default=0)
    positions = range(max(0, len(text) - longest), len(text))
    return next((position for position in positions if text[position:] in beginnings), len(text))


def _beginnings(vocabulary: Vocabulary) -> frozenset[bytes]:
    """Return the proper prefixes of user-defined tokens."""
    pieces = [vocabulary.pieces[token] for token in vocabulary.user_defined.tolist()]
    return frozenset(piece[:n] for piece in pieces for n in range(1, len(piece)))


def _other_beginnings(vocabulary: Vocabulary) -> frozenset[bytes]:
    """Return beginnings of the names of user-defined tokens that spell other bytes.

    An example is `<0x0A>`, where a byte token is listed among the added tokens. The
    bytes of such tokens do not show which positions they span.
    """
    tokens = vocabulary.user_defined.tolist()
    names = (
        (vocabulary.texts[token].replace(SPACE_SIGN, _SPACE_TEXT).encode(), vocabulary.pieces[token])
        for token in tokens
    )
    return frozenset(name[:n] for name, piece in names if name != piece for n in range(1, len(name)))


def _is_broken(character: str) -> bool:
    """Return whether this is a byte of an incomplete character (a lone surrogate)."""
    return "\udc80" <= character <= "\udcff"


def _is_caseless(character: str) -> bool:
    """Return whether a character is a letter of a script without case."""
    return unicodedata.category(character) == "Lo"


_SPACE = b" "
_LETTER = b"a"
_NOTHING_ADDED = (b"", _SPACE)
"""Bytes that follow the first space of a path if the tokenizer did not add it."""
_WORD_PART = re.compile(rb" \Z| ?(?!(?:[sStTdDmMeElL]|[rR][eE]|[vV][eE]|[lL][lL])\Z)[A-Za-z]+\Z")
"""A space, or ASCII letters after at most one space, that do not end a contraction.

Some tokenizers split off "'re" whatever letters come next, so that its last token ends
a word there.
"""
_LETTERS = re.compile(rb"[A-Za-z]+\Z")
_ENCODE_PARTS_ALIKE = frozenset({TokenizerKind.MERGES, TokenizerKind.SCORES, TokenizerKind.LONGEST})
"""Kinds that provably encode two neighbours within a word alone as they do there."""

Listing = Callable[[], Sequence[bytes] | None]
"""Returns all texts that may follow a prompt, or None if they are not known."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptBoundary:
    """A prompt before unknown texts, and the bytes that come before every text.

    At most one of `healed` and `space_prefix` has bytes.

    Attributes:
        context: int32[T], T >= 1, the tokens that are kept.
        healed: Bytes of the prompt whose tokens were removed from the context, because
            the text may change them. Every path spells them first, and every
            log-probability is conditional on them.
        space_prefix: The space that the tokenizer adds before a text that begins here.
            Every path spells it first; log-probabilities are not conditional on it.
        prompt_tokens: int32[], the tokens of the prompt alone.
        boundary: The boundary used, "heal" or "split".
        doubt: Why the encoding of prompt and text may begin with other tokens than the
            context; "" if it cannot.
        paths: Tells which paths are canonical. If it is not certain that the context
            stays, each text is encoded with the whole prompt.
        is_changed: Whether the tokens of the prompt do not spell its text, so that
            nothing was healed.
    """

    context: IntArray
    healed: bytes
    space_prefix: bytes
    prompt_tokens: IntArray
    boundary: str
    doubt: str
    paths: CanonicalPaths
    is_changed: bool

    @property
    def prefix(self) -> bytes:
        """Return the bytes that every path spells before the text."""
        return self.healed or self.space_prefix

    @property
    def last(self) -> int | None:
        """Return the last token of the context if a path is encoded together with it.

        None if nothing was healed.
        """
        return int(self.context[-1]) if self.healed else None


@dataclass(frozen=True, slots=True, eq=False)
class HealedPrompt:
    """A prompt whose last tokens were removed, because later text may change them.

    Attributes:
        context: int32[T], T >= 1, the tokens that are kept.
        healed: Bytes of the removed tokens; b"" if there are none.
        prompt_tokens: int32[], the tokens of the prompt alone.
        is_aligned: Whether the bytes of the prompt's tokens are those of its text.
        doubt: As in `PromptBoundary`.
        is_apart: Whether text after the context is encoded separately from it.
    """

    context: IntArray
    healed: bytes
    prompt_tokens: IntArray
    is_aligned: bool
    doubt: str
    is_apart: bool


def reopen(
    vocabulary: Vocabulary, prompt: PromptText, *, heal: bool = True, listing: Listing = lambda: None
) -> HealedPrompt:
    """Return the prompt without its last tokens that later text may change.

    These are the tokens after the last settled position of the text. For a longest
    match they begin with the first token that a longer one may replace. If there is no
    such position, all tokens of the text are removed, provided that other tokens
    precede them and the text has at most `MAX_HEALED_BYTES` bytes. Otherwise the tokens
    are removed that `encode_choices` removes for the texts that `listing()` returns. If
    these texts are not known either, the tokens are removed into which a token over the
    end of the text may reach, except the first of all, and `doubt` says that this may
    not be enough.

    No token is removed with `heal` false, if the text is empty, or if token bytes
    are not those of the text. Tokens up to the last end-of-generation token are
    never removed, because no text spells that token again.

    Raises `PromptError` for a prompt without tokens.
    """
    own = np.asarray(encode_text(vocabulary, prompt), dtype=np.int32)
    tokens = np.concatenate([prompt.prefix, own])
    if not len(tokens):
        raise PromptError("the prompt has no tokens, so there is nothing to predict the first one from")
    is_aligned = spells_text(vocabulary, own, prompt.text)
    is_separable = not vocabulary.space_prefix or vocabulary.spacing is not None
    is_certain = is_separable or vocabulary.derived(find_separator) is not None
    unknown = "" if is_certain else "it is not certain how the tokenizer writes text after other text"
    if not heal or not is_aligned or not len(own):
        return HealedPrompt(tokens, b"", tokens, is_aligned, unknown, is_apart=not unknown)
    n_kept, doubt = _n_settled(vocabulary, prompt, own)
    is_apart = not (unknown or doubt)
    texts = listing() if doubt else None
    if texts is not None:
        with suppress(TextError):  # no tokens spell one of them
            encoded = encode_choices(vocabulary, prompt, texts)
            n_shared = len(encoded.context) - len(prompt.prefix)
            if not np.isin(own[n_shared:], vocabulary.eog).any():
                n_kept, doubt, is_apart = n_shared, "", not unknown and encoded.boundary == "split"
    healed, context = vocabulary.decode(own[n_kept:]), tokens[: len(prompt.prefix) + n_kept]
    return HealedPrompt(context, healed, tokens, is_aligned, unknown or doubt, is_apart)


def _n_settled(vocabulary: Vocabulary, prompt: PromptText, own: IntArray) -> tuple[int, str]:
    """Return (number of the text's tokens that stay whatever text follows, doubt).

    The doubt is that of `PromptBoundary`. `own` are the tokens of the text.
    """
    ends = np.cumsum(vocabulary.lengths[own])
    n_put = int(ends[-1]) - len(prompt.text)  # bytes of a space added before the text
    is_eog = np.isin(own, vocabulary.eog)
    min_kept = int(np.flatnonzero(is_eog)[-1]) + 1 if is_eog.any() else 0
    if vocabulary.kind is TokenizerKind.LONGEST and not len(vocabulary.user_defined):
        n_kept = _n_kept_by_longest_match(vocabulary, own, max(len(own) - 1, int(not len(prompt.prefix))))
        if n_kept >= min_kept and len(prompt.prefix) + n_kept:
            return n_kept, ""
    for position in settled_positions(vocabulary, vocabulary.decode(own)):
        n_kept = int(np.searchsorted(ends, position)) + 1
        # It must be a token boundary in the text itself, after any end of generation.
        if position <= n_put or n_kept < min_kept or ends[n_kept - 1] != position:
            continue
        rest = vocabulary.decode(own[n_kept:])
        if encode_after(vocabulary, own[:n_kept], rest) == own[n_kept:].tolist():
            return n_kept, ""
    if len(prompt.prefix) and not min_kept and len(prompt.text) <= MAX_HEALED_BYTES:
        return 0, ""
    reach = min(int(vocabulary.lengths.max()), MAX_HEALED_BYTES)
    n_kept = max(min_kept, int(np.searchsorted(ends, ends[-1] - reach, "right")), int(not len(prompt.prefix)))
    return n_kept, "no position of the prompt's text is certain to stay a token boundary whatever follows"


def _n_kept_by_longest_match(vocabulary: Vocabulary, own: IntArray, at_most: int) -> int:
    """Return how many first tokens of a longest match stay whatever text follows.

    The result is at most `at_most`. A token changes only if a longer one begins
    with the whole rest of the text, and the tokens after it only if it does. The
    tokens kept do not end inside a character.
    """
    longest, left = int(vocabulary.lengths.max()), b""
    n_kept = at_most
    for i in range(len(own) - 1, -1, -1):
        left = vocabulary.pieces[own[i]] + left
        if len(left) >= longest:
            break
        if vocabulary.goes_beyond(left):
            n_kept = min(n_kept, i)
    while 0 < n_kept < len(own) and vocabulary.pieces[own[n_kept]][0] & 0xC0 == 0x80:
        n_kept -= 1
    return n_kept


def open_prompt(
    vocabulary: Vocabulary, prompt: PromptText, boundary: str = "heal", listing: Listing = lambda: None
) -> PromptBoundary:
    """Prepare a prompt for texts that are not known yet.

    Boundary "heal" removes the last tokens that the text may change (see `reopen`).
    "split" keeps all tokens, which also happens if token bytes are not those of the
    text. Raises `PromptError` for a prompt without tokens, and `OptionError` for
    another boundary ("harness" needs known texts).
    """
    if boundary not in ("heal", "split"):
        raise OptionError("boundary", boundary, "'heal' or 'split' with a grammar")
    opened = reopen(vocabulary, prompt, heal=boundary == "heal", listing=listing)
    put = b""
    if not opened.healed and vocabulary.space_prefix:
        # A letter shows whether a text that begins here gets a space.
        first = encode_after(vocabulary, opened.context, _LETTER, continues=prompt.continues)
        put = _SPACE if first and vocabulary.pieces[first[0]].startswith(_SPACE) else b""
    is_changed = boundary == "heal" and not opened.is_aligned
    is_apart = opened.is_apart and not is_changed
    before, text = (opened.context, opened.healed) if is_apart else (prompt.prefix, prompt.text)
    if opened.healed and len(opened.context) == len(prompt.prefix):
        # All tokens of the text were removed. `healed` then includes a space that the
        # tokenizer added before the text, and will add again.
        text = prompt.text
    return PromptBoundary(
        context=opened.context,
        healed=opened.healed,
        space_prefix=put,
        prompt_tokens=opened.prompt_tokens,
        boundary=boundary if opened.is_aligned else "split",
        doubt=opened.doubt,
        paths=CanonicalPaths(vocabulary, PromptText(before, text, prompt.continues), opened, opened.healed or put),
        is_changed=is_changed,
    )


def spells_text(vocabulary: Vocabulary, tokens: Iterable[int], text: bytes) -> bool:
    """Return whether the tokens of a prompt's text spell that text.

    A space added before the text is allowed.
    """
    return vocabulary.decode(tokens) in (text, _SPACE + text)


class CanonicalPaths:
    """Tells which token paths after a context are canonical.

    A finished path is canonical if its text, encoded together with the prompt, gives
    the kept tokens and then those of the path. If that encoding changes the context or
    spells other bytes, nothing is proved (`PromptBoundary.doubt`,
    `Tokenizing.altered`), and the text is encoded separately: after the context, or
    else after the tokens of the prompt alone.

    Control tokens are not part of any text. Each begins a new text, before which no
    space is added that the grammar does not have.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: PromptText, opened: HealedPrompt, prefix: bytes) -> None:
        """Prepare the encoding of texts after a prompt.

        Args:
            vocabulary: The vocabulary.
            prompt: The tokens that stay, and the text that is encoded together with the
                texts.
            opened: The result of `reopen` for the prompt.
            prefix: Bytes that paths spell before the text.
        """
        self._vocabulary, self._prompt, self._prefix = vocabulary, prompt, prefix
        self._shares_space = bool(prefix) and not opened.healed and vocabulary.with_added_space(_SPACE) == _SPACE
        self._context, self._prompt_tokens = opened.context, opened.prompt_tokens
        self._kept = opened.context[len(prompt.prefix) :].tolist()
        self._last_tokens = {int(self._context[-1]), int(self._prompt_tokens[-1])}
        self._pairs: dict[tuple[int, int], bool] = {}

    def is_canonical(self, tokens: Sequence[int]) -> bool:
        """Return whether `tokens`, which follow the context, are a canonical path.

        This normally takes one tokenizer call, on the prompt's tail and the text.
        """
        pieces = self._vocabulary.pieces
        starts = [0, *(index + 1 for index, token in enumerate(tokens) if not pieces[token])]
        stops = [*(start - 1 for start in starts[1:]), len(tokens)]
        first, *others = [list(tokens[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        if not self._is_own_encoding(first):
            return False
        return all(encode_inside(self._vocabulary, self._vocabulary.decode(part)) == part for part in others)

    def writes(self, text: bytes) -> bool:
        """Return whether encoding a text with the prompt keeps context and bytes.

        Otherwise no path after the context is its joint encoding.
        """
        whole = text if self._shares_space and text[:1] == _SPACE else self._prefix + text
        encoded = self._encode_jointly(whole)
        return encoded is not None and self._vocabulary.decode(encoded) == whole

    def may_join(self, left: int, right: int) -> bool:
        """Return whether two tokens may be neighbours in a canonical path.

        The result is False only if they certainly are not. That can be certain
        only for two parts of one word of ASCII letters, and for kinds of
        tokenizer that encode such neighbours alone as they do within any text.

        Merges by rank and by score are such kinds, and so is the longest match
        from the left, inside one word (for merges: Berglund and van der Merwe,
        "Formalizing BPE tokenization", arXiv:2309.08715). If words are looked
        up whole before any merge, and in WordPiece, a token depends on where
        its word begins and ends, so the result is always true.
        """
        known = self._pairs.get((left, right))
        if known is None:
            known = self._pairs[left, right] = self._compute_may_join(left, right)
        return known

    def may_join_apart(self, left: int, right: int) -> bool:
        """Return whether two tokens may be neighbours if texts are encoded separately.

        This is `may_join`, with one exception: after the last token of the context, or
        of the prompt, any token may follow.
        """
        return left in self._last_tokens or self.may_join(left, right)

    def _compute_may_join(self, left: int, right: int) -> bool:
        """Compute `may_join` by encoding the two pieces between some letters."""
        one, other = self._vocabulary.pieces[left], self._vocabulary.pieces[right]
        if not _WORD_PART.match(one) or not _LETTERS.match(other):
            return True
        if self._vocabulary.kind not in _ENCODE_PARTS_ALIKE:
            return True
        before, behind = one[-1:].strip(), other[-1:]
        around = ((b"", b""), (b"", behind), (before, behind))  # as a word, at the beginning of a word, inside a word
        return any(_are_neighbours(self._vocabulary, left, right, *letters) for letters in around)

    def may_start(self, tokens: Sequence[int]) -> bool:
        """Return whether a canonical path may begin with these tokens, by their text.

        The answer may be wrong, so it serves only searches without a proof. The
        beginning of an encoding is the encoding of its text, unless the division into
        words looks ahead. The last token is therefore not compared, and the result is
        true for tokens that end inside a character.
        """
        text = self._vocabulary.decode(tokens)
        if len(tokens) < 2 or len(text) < len(self._prefix) or is_cut(text):
            return True
        own = self.canonical_path(tokens)
        return not own or own[: len(tokens) - 1] == list(tokens[:-1])

    def canonical_path(self, tokens: Sequence[int]) -> list[int]:
        """Return the canonical path of the text that these tokens spell.

        Both paths follow the context. The result is empty if no canonical path spells
        the text, or if `tokens` contain a control token.
        """
        if not all(self._vocabulary.pieces[token] for token in tokens):
            return []
        return self.encode(self._vocabulary.decode(tokens))

    def encode(self, text: bytes) -> list[int]:
        """Return the canonical path of a text, empty if no canonical path spells it.

        The text includes the bytes that every path spells first.
        """
        return (self._encode_canonically(text) or []) if text.startswith(self._prefix) else []

    def _is_own_encoding(self, tokens: list[int]) -> bool:
        """Return whether tokens are the canonical encoding of the text they spell.

        `tokens` are the path up to its first control token.
        """
        text = self._vocabulary.decode(tokens)
        return text.startswith(self._prefix) and self._encode_canonically(text) == tokens

    def _encode_canonically(self, text: bytes) -> list[int] | None:
        """Return the first of three encodings that spells the text, or None.

        The text is encoded together with the prompt, then separately after the context,
        then separately after the whole prompt. `text` begins with the bytes that every
        path spells first (`prefix`).
        """
        encodings = (self._encode_jointly, self._encode_after_context, self._encode_after_prompt)
        candidates = (encode(text) for encode in encodings)
        return next((one for one in candidates if one is not None and self._vocabulary.decode(one) == text), None)

    def _encode_after_context(self, text: bytes) -> list[int]:
        """Encode a text separately after the context.

        The text begins with the bytes that every path spells first (`prefix`).
        """
        vocabulary, continues = self._vocabulary, self._prompt.continues
        puts_space = vocabulary.space_prefix and is_at_start(vocabulary, self._context, continues=continues)
        rest = text.removeprefix(_SPACE) if puts_space else text
        if puts_space and vocabulary.spacing is not None and vocabulary.with_added_space(rest) != text:
            return vocabulary.spacing.encode_inside(text)
        return encode_after(vocabulary, self._context, rest, continues=continues)

    def _encode_after_prompt(self, text: bytes) -> list[int]:
        """Encode a text separately after the whole prompt.

        The result begins with the prompt's own tokens after the context. The
        text begins with the bytes that every path spells first (`prefix`).
        """
        rest, continues = text[len(self._prefix) :], self._prompt.continues
        behind = encode_after(self._vocabulary, self._prompt_tokens, rest, continues=continues)
        return [*self._prompt_tokens[len(self._context) :].tolist(), *behind]

    def _encode_jointly(self, text: bytes) -> list[int] | None:
        """Encode a text together with the prompt; return the tokens after the context.

        Returns None if the encoding begins with other tokens than the context.
        The text begins with the bytes that every path spells first (`prefix`).
        """
        prompt, n = self._prompt, len(self._kept)
        rest = text[len(self._prefix) :]
        if self._shares_space and rest[:1] in _NOTHING_ADDED:
            rest = text
        tokens = encode_text(self._vocabulary, prompt, rest)
        return tokens[n:] if tokens[:n] == self._kept else None


def is_cut(text: bytes) -> bool:
    """Return whether UTF-8 bytes end inside a character."""
    # The last character begins with its last byte from 0xC0 on, which says its length.
    for n in range(1, min(4, len(text) + 1)):
        if text[-n] >= 0xC0:
            return n < (2 if text[-n] < 0xE0 else 3 if text[-n] < 0xF0 else 4)
        if text[-n] < 0x80:
            return False
    return False


def _are_neighbours(vocabulary: Vocabulary, left: int, right: int, before: bytes, behind: bytes) -> bool:
    """Return whether two tokens are neighbours in the encoding of some letters.

    The letters are `before`, the tokens' bytes and `behind`.
    """
    pieces = vocabulary.pieces
    tokens = encode_inside(vocabulary, before + pieces[left] + pieces[right] + behind)
    ends = np.cumsum(vocabulary.lengths[tokens]).tolist()
    index = ends.index(len(before)) + 1 if len(before) in ends else 0 if not before else len(tokens)
    return tokens[index : index + 2] == [left, right]


def encode_inside(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """Return the tokens of text inside other text, before which no space is added."""
    if not vocabulary.space_prefix or not text:
        return vocabulary.tokenize(text) if text else []
    if vocabulary.spacing is not None:
        return vocabulary.spacing.encode_inside(text)
    # After any token of text no new text begins.
    anything = np.flatnonzero(vocabulary.lengths > 0)[:1].astype(np.int32)
    return encode_after(vocabulary, anything, text)


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
