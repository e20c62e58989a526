"""The vocabulary of a model: token ids and bytes, special ids, and the tokenizer."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import numpy as np

from selectrie.core.notation import escaped
from selectrie.core.types import BoolArray, IntArray
from selectrie.errors import MessageText, PythonOnly, TextError, TokenRangeError

Derived = TypeVar("Derived")

_NONE: IntArray = np.empty(0, dtype=np.int32)
_SPACE = b" "
_WHITE_SPACE = " \t\n\r\v\f"
_BYTES_STAY = "surrogateescape"
"""Bytes that are not UTF-8 are decoded and encoded again without a change."""


class Tokenize(Protocol):
    """The back end's tokenizer: from bytes of UTF-8 to ids.

    It takes plain text only: it adds no BOS or EOS and recognises no control token. It
    may be called from several threads at once.
    """

    def __call__(self, text: bytes, /) -> list[int]: ...


TIME_ARGUMENT = "strftime_now"
"""Name of the function by which chat templates write the time.

As an argument of a chat template, it is the local time that they write, in ISO 8601.
"""


class ChatTemplate(Protocol):
    """The model's own chat template: from messages to one text.

    The text includes the generation prompt unless `add_generation_prompt=False`. If the
    template gets `TrackedText`, it may return `TrackedText`; it then vouches for the
    origin of every character. Raises `PromptError` if the template refuses the
    messages.
    """

    def __call__(self, messages: Sequence[Mapping[str, object]], /, **template_args: object) -> str: ...


@unique
class TokenizerKind(Enum):
    """The method by which a tokenizer finds the tokens of a word, if it is known.

    Code that relies on a law of one kind names that kind.

    Attributes:
        MERGES: Merges of byte pairs by rank and nothing else. Every merge makes a
            token. Merges stay inside words; a run of letters is one word or part of
            one.
        SCORES: SentencePiece's merges by score, of the whole text.
        LONGEST: The longest match from the left, of the whole text.
        UNKNOWN: Any other, such as WordPiece, or words that are looked up whole before
            any merge.
    """

    MERGES = "merges"
    SCORES = "scores"
    LONGEST = "longest match"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Tokenizing:
    """The known facts about how a tokenizer works.

    Attributes:
        kind: The method by which words become tokens.
        altered: Byte strings. A text that contains none of them is encoded as tokens
            whose bytes are the text. None means that this is certain for no text.
        splits_locally: Whether the text on one side of a settled position has no
            influence on how the other side is split into words. If that is not known,
            no position is settled.
    """

    kind: TokenizerKind = TokenizerKind.UNKNOWN
    altered: frozenset[bytes] | None = None
    splits_locally: bool = True


@dataclass(frozen=True, slots=True)
class Spacing:
    """The positions at which a tokenizer adds a space, if its back end can tell.

    Attributes:
        encode_inside: The tokenizer of text that continues other text, before which no
            space is added.
        after_control: Whether a space is added before text after a control token too,
            not only at the beginning of everything.
        before_space: Whether a space is added before text that begins with one.
    """

    encode_inside: Tokenize = field(repr=False)
    after_control: bool
    before_space: bool


@dataclass(slots=True)
class _Tables:
    """Tables that are computed from a vocabulary on first use.

    Computing a table twice gives the same result, so threads need no lock.
    """

    digest: str | None = None
    tokenizing: Tokenizing | None = None
    lengths: IntArray | None = None
    by_bytes: tuple[list[bytes], IntArray] | None = None
    distinct: frozenset[bytes] | None = None
    joined: BoolArray | None = None
    control_tokens: tuple[dict[bytes, int], list[int], re.Pattern[bytes]] | None = None
    derived: dict[Callable[[Vocabulary], Any], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The vocabulary of a model: token bytes, special ids, tokenizer and chat template.

    Attributes:
        pieces: Bytes of each token as text; b"" for control and unused tokens.
        texts: Spelling of each token, control tokens included (`<|im_end|>`).
        bos: Id that goes before a prompt, or None if the model says that none is added.
        eos: End-of-sequence id, or None.
        eog: int32[], all end-of-generation ids.
        control: int32[], ids that are never made from user text.
        space_prefix: Whether a space is added before text (SentencePiece). Its piece is
            longer than the text by one byte.
        tokenize: The back end's tokenizer.
        spacing: Positions of the space. None if there is no `space_prefix`, and for
            llama.cpp: it adds one before any text that begins, also after a control
            token, and its tokenizer has no other form.
        normalize: Applies the tokenizer's changes to a text before it looks for tokens,
            apart from spaces; None if there are none.
        declared_bos: Id of a BOS token that the tokenizer names and does not put before
            a text, or None.
        bos_in_chats: Whether BOS goes before a rendered chat that does not begin with
            it.
        chat_template: The model's own chat template, or None.
        chat_source: The source of that template, or "".
        chat_time: The time that the template writes, in ISO 8601, or "" for none; None
            for the time of each request.
        strips_left: int32[], control ids that swallow the white space before them in a
            template.
        strips_right: int32[], control ids that swallow the white space after them.
        white_space: The characters that such control tokens swallow.
        user_defined: int32[], ids that are looked up in any text before it is split
            into words.
        ambiguous: Spellings of special tokens that are no reliable control tokens: the
            tokenizer finds them only in some places of a text, or makes the same token
            of other text. They are refused where control tokens are recognised.
        examine: Returns the facts about the tokenizer; called on first use.
        encodes_together: Whether several texts may be passed to `tokenize` at once if
            their tokens can be separated again.
        on_encoded: Called with each text and its tokens after several texts were passed
            to `tokenize` at once; None for no call.
    """

    pieces: tuple[bytes, ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    bos: int | None
    eos: int | None
    eog: IntArray
    control: IntArray
    space_prefix: bool
    tokenize: Tokenize = field(repr=False)
    spacing: Spacing | None = None
    normalize: Callable[[str], str] | None = field(default=None, repr=False)
    declared_bos: int | None = None
    bos_in_chats: bool = True
    chat_template: ChatTemplate | None = field(default=None, repr=False)
    chat_source: str = field(default="", repr=False)
    chat_time: str | None = field(default=None, repr=False)
    strips_left: IntArray = field(default_factory=_NONE.copy, repr=False)
    strips_right: IntArray = field(default_factory=_NONE.copy, repr=False)
    white_space: str = field(default=_WHITE_SPACE, repr=False)
    user_defined: IntArray = field(default_factory=_NONE.copy, repr=False)
    ambiguous: frozenset[bytes] = field(default=frozenset(), repr=False)
    examine: Callable[[Vocabulary], Tokenizing] = field(default=lambda _: Tokenizing(), repr=False)
    encodes_together: bool = field(default=True, repr=False)
    on_encoded: Callable[[bytes, Sequence[int]], None] | None = field(default=None, repr=False)
    _tables: _Tables = field(default_factory=_Tables, init=False, repr=False)

    def with_functions(
        self,
        *,
        tokenize: Tokenize,
        spacing: Spacing | None,
        normalize: Callable[[str], str] | None,
        chat_template: ChatTemplate | None,
        chat_time: str | None,
        on_encoded: Callable[[bytes, Sequence[int]], None],
    ) -> Vocabulary:
        """Return the vocabulary with other functions that give the same results.

        Tables that only tokens decide are shared. Those of `derived` are
        computed again, so that the new functions see every text.
        """
        own = self.tokenizing
        made = replace(
            self,
            tokenize=tokenize,
            spacing=spacing,
            normalize=normalize,
            chat_template=chat_template,
            chat_time=chat_time,
            examine=lambda _: own,
            on_encoded=on_encoded,
        )
        object.__setattr__(made, "_tables", replace(self._tables, derived={}))
        return made

    def at_time(self, chat_time: str) -> Vocabulary:
        """Return the same vocabulary at another time; all tables are shared."""
        made = replace(self, chat_time=chat_time)
        object.__setattr__(made, "_tables", self._tables)
        return made

    @property
    def n_tokens(self) -> int:
        """Return V, the number of ids."""
        return len(self.pieces)

    @property
    def start(self) -> int | None:
        """Return the id that represents an empty context, or None if there is none.

        That is BOS, also one that is not put before texts, or else EOS: the
        rule of lm-evaluation-harness.
        """
        return next((one for one in (self.bos, self.declared_bos, self.eos) if one is not None), None)

    @property
    def tokenizing(self) -> Tokenizing:
        """Return the known facts about the tokenizer, examined on first use."""
        if self._tables.tokenizing is None:
            self._tables.tokenizing = self.examine(self)
        return self._tables.tokenizing

    @property
    def kind(self) -> TokenizerKind:
        """Return the method by which words become tokens."""
        return self.tokenizing.kind

    @property
    def digest(self) -> str:
        """Return the hexadecimal blake2b digest of pieces, texts and special ids.

        Equal digests mean equal tokens. Merge rules are not part of the digest.
        """
        if self._tables.digest is None:
            state = blake2b(digest_size=16)
            state.update(self.lengths.tobytes())
            state.update(b"".join(self.pieces))
            state.update("\0".join(self.texts).encode("utf-8", "surrogatepass"))
            state.update(repr((self.bos, self.eos, self.space_prefix)).encode())
            if self.declared_bos is not None:
                state.update(f"declared {self.declared_bos}".encode())
            if self.spacing is not None:
                state.update(repr((self.spacing.after_control, self.spacing.before_space)).encode())
            for ids in (self.eog, self.control, self.strips_left, self.strips_right):
                state.update(np.asarray([len(ids), *ids], dtype=np.int64).tobytes())
            self._tables.digest = state.hexdigest()
        return self._tables.digest

    @property
    def lengths(self) -> IntArray:
        """Return the number of bytes of each token, as int32[V]."""
        if self._tables.lengths is None:
            self._tables.lengths = np.fromiter(map(len, self.pieces), dtype=np.int32, count=len(self.pieces))
        return self._tables.lengths

    def encode(self, text: bytes) -> IntArray:
        """Return the tokens of plain text, as int32[].

        The text is encoded as the beginning of a text: with a `space_prefix` vocabulary
        a space is added before it.
        """
        return np.asarray(self.tokenize(text) if text else (), dtype=np.int32)

    def encode_spans(self, spans: Iterable[tuple[bytes, bool]]) -> tuple[IntArray, bytes]:
        """Return the tokens up to the last control token, and the plain text after it.

        `spans` are consecutive pairs (text, whether control tokens are recognised in
        it). Adjacent plain text is encoded jointly. Control tokens swallow white space
        as `strips_left` and `strips_right` say, like llama.cpp's partition of the text.

        Raises `TextError` for a spelling of `ambiguous` where control tokens are
        recognised.
        """
        tokens: list[int] = []
        run, last = b"", None
        for text, has_control in spans:
            if has_control:
                self._refuse_ambiguous(text)
            start = 0
            for begin, end, control in self._controls_in(text) if has_control else ():
                run += text[start:begin]
                run = self._strip_white_space(run, after=last, before=control)
                tokens += self.encode_run(run, after=last)
                tokens.append(control)
                run, last, start = b"", control, end
            run += text[start:]
        return np.asarray(tokens, dtype=np.int32), self._strip_white_space(run, after=last, before=None)

    def _refuse_ambiguous(self, text: bytes) -> None:
        """Raise `TextError` for a text with a spelling of `ambiguous`."""
        one = min((spelling for spelling in self.ambiguous if spelling in text), default=None)
        if one is not None:
            raise TextError(
                "prompt",
                f"it has the special token {one.decode()!r}, which this tokenizer also makes of other text, or does "
                "not find everywhere; give token ids, or text without it",
            )

    def encode_run(self, run: bytes, *, after: int | None) -> list[int]:
        """Return the tokens of plain text that follows the control token `after`.

        `after` is None at the very beginning.
        """
        if not run:
            return []
        continues = after is not None and self.spacing is not None and not self.spacing.after_control
        return self.spacing.encode_inside(run) if self.spacing is not None and continues else self.tokenize(run)

    def with_added_space(self, text: bytes) -> bytes:
        """Return the text with the space that the tokenizer adds before it, if any."""
        takes_none = self.spacing is not None and not self.spacing.before_space and text[:1] == _SPACE
        return _SPACE + text if self.space_prefix and text and not takes_none else text

    def normalized(self, text: bytes) -> bytes:
        """Return text as the tokenizer normalises it, apart from spaces.

        Bytes that are not UTF-8 stay as they are.
        """
        if self.normalize is None:
            return text
        try:
            return self.normalize(text.decode()).encode()
        except UnicodeDecodeError:
            return text

    def _strip_white_space(self, run: bytes, *, after: int | None, before: int | None) -> bytes:
        """Remove the white space that the control tokens around a text swallow.

        `after` and `before` are the ids of these tokens, or None.
        """
        if after is not None and after in self.strips_right:
            run = self.without_leading_space(run)
        if before is not None and before in self.strips_left:
            run = self.without_trailing_space(run)
        return run

    def without_leading_space(self, text: bytes) -> bytes:
        """Return text without the white space at its beginning."""
        return text.decode("utf-8", _BYTES_STAY).lstrip(self.white_space).encode("utf-8", _BYTES_STAY)

    def without_trailing_space(self, text: bytes) -> bytes:
        """Return text without the white space at its end."""
        return text.decode("utf-8", _BYTES_STAY).rstrip(self.white_space).encode("utf-8", _BYTES_STAY)

    def controls_spelled(self, text: bytes) -> tuple[str, ...]:
        """Return the names of control tokens in a text, each once, in order."""
        return tuple(dict.fromkeys(self.texts[token] for _, _, token in self._controls_in(text)))

    def _controls_in(self, text: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield begin, end and id of each control token that a text spells.

        Where several begin, the longest spelling counts.
        """
        if not len(self.control):
            return
        ids, lengths, beginnings = self._control_tokens()
        at = 0
        while (match := beginnings.search(text, at)) is not None:
            at = match.start()
            spelled = next((one for n in lengths if (one := text[at : at + n]) in ids), b"")
            if spelled:
                yield at, at + len(spelled), ids[spelled]
            at += len(spelled) or 1

    def _control_tokens(self) -> tuple[dict[bytes, int], list[int], re.Pattern[bytes]]:
        """Return the ids of control tokens by spelling, the lengths, and a pattern.

        The lengths of the spellings are in descending order. The pattern matches the
        bytes with which they begin: one of all spellings takes 0.2 s to compile for the
        6 000 of Gemma 3.
        """
        tables = self._tables
        if tables.control_tokens is None:
            ids = {self.texts[i].encode("utf-8", "surrogatepass"): i for i in reversed(self.control.tolist())}
            ids.pop(b"", None)
            beginnings = b"|".join(sorted({re.escape(spelling[:1]) for spelling in ids})) or b"(?!)"
            tables.control_tokens = ids, sorted(set(map(len, ids)), reverse=True), re.compile(beginnings)
        return tables.control_tokens

    def piece(self, token: int) -> bytes:
        """Return the bytes of one token.

        Raises `TokenRangeError` if it does not exist.
        """
        if not 0 <= token < len(self.pieces):
            raise TokenRangeError(token, len(self.pieces))
        return self.pieces[token]

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the concatenated bytes of the tokens.

        A prefix space stays, because it is part of the first token.
        """
        pieces = self.pieces
        return b"".join([pieces[i] for i in (ids.tolist() if isinstance(ids, np.ndarray) else ids)])

    def show(self, token: int) -> str:
        r"""Return a readable spelling of a token.

        Line breaks and other characters that do not print are escaped. Broken UTF-8 is
        written as `\xf0`. Control tokens are shown by name.
        """
        piece = self.piece(token)
        text = piece.decode("utf-8", "backslashreplace") if piece else self.texts[token]
        return escaped(text)

    def check_tokens(self, ids: Iterable[int]) -> IntArray:
        """Return the ids as int32[].

        Raises `TokenRangeError` for the first id that does not exist, and `TypeError`
        for a non-integer.
        """
        values = (
            ids if isinstance(ids, list | tuple) and set(map(type, ids)) == {int} else list(map(operator.index, ids))
        )
        if values and min(values) >= 0 and max(values) < len(self.pieces):
            return np.asarray(values, dtype=np.int32)
        for value in values:
            if not 0 <= value < len(self.pieces):
                raise TokenRangeError(value, len(self.pieces))
        return np.asarray(values, dtype=np.int32)

    def with_prefix(self, start: bytes) -> IntArray:
        """Return the tokens whose bytes begin with `start`, as int32[] ordered by id.

        b"" gives every token that has bytes.
        """
        texts, ids = self.by_bytes()
        low = bisect_left(texts, start)
        after = _after_prefix(start)
        high = len(texts) if after is None else bisect_left(texts, after)
        return np.sort(ids[low:high])

    def prefixes_of(self, text: bytes) -> IntArray:
        """Return the tokens whose bytes are a proper prefix of `text`.

        The result is int32[], ordered by id. Tokens without bytes are not included.
        """
        texts, ids = self.by_bytes()
        parts: list[IntArray] = []
        low = 0
        for n in range(1, min(len(text), int(self.lengths.max(initial=0)) + 1)):
            start = text[:n]
            low = bisect_left(texts, start, lo=low)
            high = low
            while high < len(texts) and texts[high] == start:
                high += 1
            parts.append(ids[low:high])
        return np.sort(np.concatenate(parts)) if parts else _NONE.copy()

    def with_bytes(self, text: bytes) -> IntArray:
        """Return the tokens whose bytes are exactly `text`, as int32[] ordered by id.

        Tokens without bytes are not included.
        """
        texts, ids = self.by_bytes()
        return np.sort(ids[bisect_left(texts, text) : bisect_right(texts, text)])

    def begins_with(self, start: bytes) -> bool:
        """Return whether some token's bytes begin with `start`."""
        texts, _ = self.by_bytes()
        index = bisect_left(texts, start)
        return index < len(texts) and texts[index].startswith(start)

    def goes_beyond(self, start: bytes) -> bool:
        """Return whether some token's bytes begin with `start` and are longer."""
        texts, _ = self.by_bytes()
        index = bisect_right(texts, start)
        return index < len(texts) and texts[index].startswith(start)

    def has_bytes(self, text: bytes) -> bool:
        """Return whether some token has exactly these bytes."""
        if self._tables.distinct is None:
            self._tables.distinct = frozenset(self.pieces) - {b""}
        return text in self._tables.distinct

    def joins(self, left: int, right: int) -> bool:
        """Return whether some token contains byte `left` directly before byte `right`.

        If not, no token spans a position of a text between these bytes.
        """
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
        """Return `make(self)`, computed on first use and cached by `make`.

        It is kept as long as the vocabulary. Higher layers use it for values
        that depend on the vocabulary alone.
        """
        if make not in self._tables.derived:
            self._tables.derived[make] = make(self)
        value: Derived = self._tables.derived[make]
        return value

    def by_bytes(self) -> tuple[list[bytes], IntArray]:
        """Return the sorted bytes of all tokens that have any, and their ids, int32[].

        Equal bytes are ordered by id. Both must not be written to.
        """
        if self._tables.by_bytes is None:
            order = sorted(range(len(self.pieces)), key=self.pieces.__getitem__)
            first = len(self.pieces) - int(np.count_nonzero(self.lengths))
            self._tables.by_bytes = [self.pieces[i] for i in order[first:]], np.asarray(order[first:], dtype=np.int32)
        return self._tables.by_bytes


def to_bytes(text: str, what: str) -> bytes:
    """Return the UTF-8 of `text`.

    Raises `TextError` for a lone surrogate; the message names `what`, the surrogate and
    its position.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        surrogate = ord(text[error.start])
        reason = f"character {error.start} is the lone surrogate U+{surrogate:04X}, which is not text; "
        remedy = MessageText(PythonOnly("decode the source with errors='replace' or "), "repair it")
        raise TextError(what, MessageText(reason, remedy)) from error


def _after_prefix(start: bytes) -> bytes | None:
    """Return the least byte string that sorts after all those with prefix `start`.

    None if there is no such string.
    """
    trimmed = start.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _byte_characters() -> dict[str, int]:
    """Map the characters of byte-level vocabularies to the bytes they represent.

    Printable characters of Latin-1 stand for themselves; the others are represented by
    characters from U+0100 on.
    """
    themselves = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    others = [byte for byte in range(256) if byte not in themselves]
    return {chr(byte): byte for byte in themselves} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()

_WORDS_END = re.compile(rb"[A-Za-z0-9][!-&(-/:-@\[-^{-~]")
"""A letter or digit before punctuation: every pattern ends a word between them."""
_FRAMES = (b"%s", b" %s", b"a%s", b".%s", b"\n%s", b"%sa", b"%s.", b"%s a", b"%s\n")
"""Contexts in which a word is tried out."""


def is_found(vocabulary: Vocabulary, token: int, data: bytes) -> bool:
    """Return whether the tokenizer makes a token of its bytes `data` in any context."""
    return any(token in vocabulary.tokenize(frame % data) for frame in _FRAMES)


def spans_words(vocabulary: Vocabulary, token: int, data: bytes) -> bool:
    """Return whether a token's bytes `data` span words, so that no merge makes it."""
    return _WORDS_END.search(data) is not None and not is_found(vocabulary, token, data)
