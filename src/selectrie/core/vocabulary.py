"""Token id <-> bytes, special ids, plain and chat text -> tokens."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import numpy as np

from selectrie.core.types import BoolArray, IntArray
from selectrie.errors import TextError, TokenRangeError

Derived = TypeVar("Derived")

_NONE: IntArray = np.empty(0, dtype=np.int32)


class Tokenize(Protocol):
    """The back end's tokenizer: bytes of UTF-8 -> ids, plain text only: no BOS or EOS, no control token recognised.

    May be called from any thread, several at once.
    """

    def __call__(self, text: bytes, /) -> list[int]: ...


class ChatTemplate(Protocol):
    """The model's own chat template: messages -> one text, generation prompt included
    unless `add_generation_prompt=False`.

    Where it is given `TrackedText` it may return `TrackedText`: it vouches then for the
    origin of every character.
    Raises `PromptError` where the template refuses the messages.
    """

    def __call__(self, messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str: ...


@unique
class TokenizerKind(Enum):
    """How a tokenizer finds the tokens of a word, as far as that is known. What rests
    on a law of one kind asks for it by name.

    MERGES: byte pairs by rank and nothing else, each of which makes a token, inside of
    words of which a run of letters is one or a part of one. SCORES: SentencePiece's merges by score, of the
    whole text. LONGEST: the longest match from the left, of the whole text. UNKNOWN:
    any other, such as words taken whole before any merge, and WordPiece.
    """

    MERGES = "merges"
    SCORES = "scores"
    LONGEST = "longest match"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Tokenizing:
    """What is known of how a tokenizer works.

    kind: how words become tokens. altered: byte strings; every text that holds none of
    them becomes tokens that spell it. None: any text may become tokens that do not.
    """

    kind: TokenizerKind = TokenizerKind.UNKNOWN
    altered: frozenset[bytes] | None = None


@dataclass(slots=True)
class _Tables:
    """What is computed from a vocabulary on first use. Filling it twice gives the same, so threads need no lock."""

    digest: str | None = None
    tokenizing: Tokenizing | None = None
    lengths: IntArray | None = None
    by_bytes: tuple[list[bytes], IntArray] | None = None
    distinct: frozenset[bytes] | None = None
    joined: BoolArray | None = None
    control_pattern: re.Pattern[bytes] | None = None
    control_ids: dict[bytes, int] = field(default_factory=dict)
    derived: dict[Callable[[Vocabulary], Any], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """What a model reads and writes.

    pieces: bytes of each token as text; b"" for control and unused tokens.
    texts: spelling of each token, control tokens included (`<|im_end|>`).
    bos: id put before a prompt, or None where the model says that none is added. eos:
    end-of-sequence id or None.
    eog: int32[], all end-of-generation ids. control: int32[], ids never made from user
    text.
    space_prefix: a space is put before text (SentencePiece); its piece is longer than
    the text by one byte.
    strips_left, strips_right: int32[], control ids that swallow the white space before
    or after them in a template.
    user_defined: int32[], ids that are looked up in any text before it is cut into
    words. examine: finds out how the tokenizer works, when that is first needed.
    """

    pieces: tuple[bytes, ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    bos: int | None
    eos: int | None
    eog: IntArray
    control: IntArray
    space_prefix: bool
    tokenize: Tokenize = field(repr=False)
    chat_template: ChatTemplate | None = field(default=None, repr=False)
    strips_left: IntArray = field(default_factory=_NONE.copy, repr=False)
    strips_right: IntArray = field(default_factory=_NONE.copy, repr=False)
    user_defined: IntArray = field(default_factory=_NONE.copy, repr=False)
    examine: Callable[[Vocabulary], Tokenizing] = field(default=lambda _: Tokenizing(), repr=False)
    _tables: _Tables = field(default_factory=_Tables, init=False, repr=False)

    @property
    def n_tokens(self) -> int:
        """V, the number of ids."""
        return len(self.pieces)

    @property
    def tokenizing(self) -> Tokenizing:
        """How the tokenizer works, as far as that is known. Found out on first use."""
        if self._tables.tokenizing is None:
            self._tables.tokenizing = self.examine(self)
        return self._tables.tokenizing

    @property
    def kind(self) -> TokenizerKind:
        """How words become tokens."""
        return self.tokenizing.kind

    @property
    def digest(self) -> str:
        """Hexadecimal blake2b of pieces, texts and specials: equal digests, equal tokens (merge rules are not seen)."""
        if self._tables.digest is None:
            state = blake2b(digest_size=16)
            state.update(self.lengths.tobytes())
            state.update(b"".join(self.pieces))
            state.update("\0".join(self.texts).encode("utf-8", "surrogatepass"))
            state.update(repr((self.bos, self.eos, self.space_prefix)).encode())
            for ids in (self.eog, self.control, self.strips_left, self.strips_right):
                state.update(np.asarray([len(ids), *ids], dtype=np.int64).tobytes())
            self._tables.digest = state.hexdigest()
        return self._tables.digest

    @property
    def lengths(self) -> IntArray:
        """int32[V]: bytes of each token."""
        if self._tables.lengths is None:
            self._tables.lengths = np.fromiter(map(len, self.pieces), dtype=np.int32, count=len(self.pieces))
        return self._tables.lengths

    def encode(self, text: bytes) -> IntArray:
        """int32[]: tokens of plain text that stands at a beginning (with a `space_prefix` vocabulary a space goes before it)."""
        return np.asarray(self.tokenize(text) if text else (), dtype=np.int32)

    def encode_spans(self, spans: Iterable[tuple[bytes, bool]]) -> tuple[IntArray, bytes]:
        """Tokens of consecutive spans of text up to the last control token, and the plain text after it.

        spans: (text, whether control tokens are recognised in it); adjoining plain text is encoded jointly.
        Control tokens swallow white space as `strips_left` and `strips_right` say, like llama.cpp's partition of the text.
        """
        pattern, control_ids = self._control_tokens()
        tokens: list[int] = []
        run, last = b"", None
        for text, has_control in spans:
            start = 0
            for match in pattern.finditer(text) if has_control and control_ids else ():
                control = control_ids[match[0]]
                run += text[start : match.start()]
                run = self._stripped(run, after=last, before=control)
                tokens += self.tokenize(run) if run else []
                tokens.append(control)
                run, last, start = b"", control, match.end()
            run += text[start:]
        return np.asarray(tokens, dtype=np.int32), self._stripped(run, after=last, before=None)

    def _stripped(self, run: bytes, *, after: int | None, before: int | None) -> bytes:
        if after is not None and after in self.strips_right:
            run = run.lstrip()
        return run.rstrip() if before is not None and before in self.strips_left else run

    def _control_tokens(self) -> tuple[re.Pattern[bytes], dict[bytes, int]]:
        """The pattern of every control token's spelling, longest first, and the id of each spelling."""
        tables = self._tables
        if tables.control_pattern is None:
            spellings = {self.texts[i].encode("utf-8", "surrogatepass"): int(i) for i in reversed(self.control)}
            spellings.pop(b"", None)
            tables.control_ids = spellings
            longest_first = sorted(spellings, key=lambda spelling: (-len(spelling), spelling))
            tables.control_pattern = re.compile(b"|".join(map(re.escape, longest_first)))
        return tables.control_pattern, tables.control_ids

    def piece(self, token: int) -> bytes:
        """Bytes of one token; `TokenRangeError` where it does not exist."""
        if not 0 <= token < len(self.pieces):
            raise TokenRangeError(token, len(self.pieces))
        return self.pieces[token]

    def decode(self, ids: Iterable[int]) -> bytes:
        """Bytes of tokens one after the other; a prefix space stays (it is part of the first token)."""
        pieces = self.pieces
        return b"".join([pieces[i] for i in (ids.tolist() if isinstance(ids, np.ndarray) else ids)])

    def show(self, token: int) -> str:
        r"""A readable spelling: text as it is, line breaks and the like escaped, broken UTF-8 as `\xf0`, control tokens by name."""
        piece = self.piece(token)
        text = piece.decode("utf-8", "backslashreplace") if piece else self.texts[token]
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

    def check_tokens(self, ids: Iterable[int]) -> IntArray:
        """The ids as int32[]; raises `TokenRangeError` for the first one that does not exist, `TypeError` for a non-integer."""
        values = [operator.index(i) for i in ids]
        for value in values:
            if not 0 <= value < len(self.pieces):
                raise TokenRangeError(value, len(self.pieces))
        return np.asarray(values, dtype=np.int32)

    def with_prefix(self, start: bytes) -> IntArray:
        """int32[], by id: tokens whose bytes begin with `start` (b"": every token that has bytes)."""
        texts, ids = self.by_bytes()
        low = bisect_left(texts, start)
        after = _after_prefix(start)
        high = len(texts) if after is None else bisect_left(texts, after)
        return np.sort(ids[low:high])

    def prefixes_of(self, text: bytes) -> IntArray:
        """int32[], by id: tokens with bytes that are a proper prefix of `text`."""
        texts, ids = self.by_bytes()
        found: list[IntArray] = []
        low = 0
        for n in range(1, min(len(text), int(self.lengths.max(initial=0)) + 1)):
            start = text[:n]
            low = bisect_left(texts, start, lo=low)
            high = low
            while high < len(texts) and texts[high] == start:
                high += 1
            found.append(ids[low:high])
        return np.sort(np.concatenate(found)) if found else _NONE.copy()

    def same_bytes(self) -> tuple[tuple[int, ...], ...]:
        """Groups of two or more ids that spell the same bytes (the 256 byte tokens of SentencePiece do), by first id."""
        texts, ids = self.by_bytes()
        groups: dict[bytes, list[int]] = {}
        for i in range(1, len(texts)):
            if texts[i] == texts[i - 1]:
                groups.setdefault(texts[i], [int(ids[i - 1])]).append(int(ids[i]))
        return tuple(sorted(tuple(sorted(group)) for group in groups.values()))

    def begins_with(self, start: bytes) -> bool:
        """Is there a token whose bytes begin with `start`?"""
        texts, _ = self.by_bytes()
        place = bisect_left(texts, start)
        return place < len(texts) and texts[place].startswith(start)

    def has_bytes(self, text: bytes) -> bool:
        """Is there a token with exactly these bytes?"""
        if self._tables.distinct is None:
            self._tables.distinct = frozenset(self.pieces) - {b""}
        return text in self._tables.distinct

    def joins(self, left: int, right: int) -> bool:
        """Does some token hold byte `right` straight after byte `left`? Where none does, no token spans that place of a text."""
        if self._tables.joined is None:
            joined = np.zeros(1 << 16, dtype=np.bool_)
            flat = np.frombuffer(b"".join(self.pieces), dtype=np.uint8).astype(np.uint16)
            inside = np.ones(len(flat), dtype=np.bool_)
            ends = np.cumsum(self.lengths, dtype=np.int64)
            inside[ends[self.lengths > 0] - 1] = False
            inside = inside[:-1]
            joined[((flat[:-1] << 8) | flat[1:])[inside]] = True
            self._tables.joined = joined
        return bool(self._tables.joined[left << 8 | right])

    def derived(self, make: Callable[[Vocabulary], Derived]) -> Derived:
        """`make(self)`, made on first use and kept as long as the vocabulary: what higher layers compute from it alone."""
        if make not in self._tables.derived:
            self._tables.derived[make] = make(self)
        found: Derived = self._tables.derived[make]
        return found

    def by_bytes(self) -> tuple[list[bytes], IntArray]:
        """Bytes of the tokens that have any, sorted, and int32[] their ids; equal bytes by id. Read only."""
        if self._tables.by_bytes is None:
            order = sorted(range(len(self.pieces)), key=self.pieces.__getitem__)
            first = len(self.pieces) - int(np.count_nonzero(self.lengths))
            self._tables.by_bytes = [self.pieces[i] for i in order[first:]], np.asarray(order[first:], dtype=np.int32)
        return self._tables.by_bytes


def to_bytes(text: str, what: str) -> bytes:
    """UTF-8 of `text`; raises `TextError` about `what` for a lone surrogate, naming it and its place."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        surrogate = ord(text[error.start])
        reason = (
            f"character {error.start} is the lone surrogate U+{surrogate:04X}, which is not text; "
            "decode the source with errors='replace' or repair it"
        )
        raise TextError(what, reason) from error


def _after_prefix(start: bytes) -> bytes | None:
    """The least byte string greater than every one that begins with `start`; None where there is none."""
    trimmed = start.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
