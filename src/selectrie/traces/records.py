"""The records of a trace, each a flat frozen dataclass, and their bytes.

A record has numbers, short texts and one-dimensional arrays, and refers to others by
their numbers, which begin with 0 for each kind. A record comes after those that it
refers to. Lists of lists are one array of all elements and one of their lengths.

`TraceHeader` is the first record and is there once. The others may be interleaved,
since tasks run at the same time.

A payload is a line for each record in JSON, then the arrays of all of them. The line of
a record is a list: its kind, then its fields in order. In place of an array is its
length. The arrays follow each other in the order of the lines. Nothing in a payload is
trusted: every length is compared with the bytes that are left before anything is
allocated, and every value with the type of its field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cache, partial
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, Union, get_type_hints

import numpy as np
from numpy.typing import NDArray

ByteArray: TypeAlias = NDArray[np.uint8]

Int32s = Annotated[NDArray[np.int32], "<i4"]
Float32s = Annotated[NDArray[np.float32], "<f4"]
Float64s = Annotated[NDArray[np.float64], "<f8"]
Bytes = Annotated[ByteArray, "|u1"]
"""Arrays with the type of their elements in the file."""

FORMAT = 4
"""Version of the format that this version writes and reads."""
MAX_LINES_BYTES = 8 << 20
"""Maximum size of the lines of a payload. The objects that they become are larger."""
_LENGTH_BYTES = 4
_MAX_INT = 1 << 62
NO_SET = -1
"""Number in place of a set where every token is allowed."""


class MemoryKind(IntEnum):
    """The memory in which rows were evaluated, which decides their last bits.

    Attributes:
        MAIN: The memory that all requests share.
        CANONICAL: A memory in which near ties are scored again.
        LOGLIKELIHOOD: An empty memory for one unit of token sequences.
    """

    MAIN = 0
    CANONICAL = 1
    LOGLIKELIHOOD = 2


_EMPTY = {code: np.empty(0, dtype=code) for code in ("<i4", "<f4", "<f8", "|u1")}
_ints = partial(_EMPTY.__getitem__, "<i4")
_floats = partial(_EMPTY.__getitem__, "<f8")
_logits = partial(_EMPTY.__getitem__, "<f4")


@dataclass(frozen=True, slots=True, eq=False)
class TraceHeader:
    """What the trace was recorded from.

    Attributes:
        format: Version of the format.
        versions: JSON object: the versions of selectrie, numpy and Python, and
            `chat_time`, the time that the chat template was told, if it reads it.
        identity, limits, check: JSON objects: `ModelIdentity`, `Limits`, and
            `SelfCheck`, which is null if there was none.
        searches: JSON object: how searches ask, where that is not in `limits`
            (`n_together` and `max_named` of a `Session`).
        n_tokens: Number of tokens of the vocabulary.
        vocabulary_digest: Digest of the vocabulary.
        has_vocabulary: Whether the pieces and texts of all tokens are in the trace.
        full_rows: Whether requests that read whole rows were recorded.
    """

    format: int
    versions: str
    identity: str
    limits: str
    check: str
    searches: str
    n_tokens: int
    vocabulary_digest: str
    has_vocabulary: bool
    full_rows: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The tokens of the vocabulary from `first` on: a part of it, in order.

    Attributes:
        first: Id of the first of these tokens.
        piece_lengths, pieces: Bytes of each token.
        text_lengths, texts: UTF-8 of the spelling of each token.
    """

    first: int
    piece_lengths: Int32s
    pieces: Bytes
    text_lengths: Int32s
    texts: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Specials:
    """What else a vocabulary holds; comes after the last `Tokens`.

    Attributes:
        facts: JSON object of the plain fields of `Vocabulary` and of `Tokenizing`.
        eog, control, strips_left, strips_right, user_defined: Ids.
        ambiguous_lengths, ambiguous: Spellings that are refused.
        altered_lengths, altered: Byte strings that the tokenizer may alter.
    """

    facts: str
    eog: Int32s
    control: Int32s
    strips_left: Int32s
    strips_right: Int32s
    user_defined: Int32s
    ambiguous_lengths: Int32s
    ambiguous: Bytes
    altered_lengths: Int32s
    altered: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """A text and what the tokenizer made of it.

    Attributes:
        is_inside: Whether the text continues another one (`Spacing.encode_inside`).
        text: Its bytes.
        ids: Its tokens; empty if it was refused.
        error: The message with which the tokenizer refused it, or "".
    """

    is_inside: bool
    text: Bytes
    ids: Int32s
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Normalized:
    """A text and what the tokenizer normalises it to, as UTF-8."""

    text: Bytes
    result: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """A chat and what the model's template made of it.

    Attributes:
        key: 16 bytes, the digest of messages and arguments.
        text: UTF-8 of the text; empty if it was refused.
        span_lengths, origins: Characters of each part of the text, and its origin
            (`core.tracked_text`); empty unless `is_tracked`.
        error: The message with which the template refused it, or "".
        is_tracked: Whether the origins are known.
    """

    key: Bytes
    text: Bytes
    span_lengths: Int32s
    origins: Bytes
    error: str = ""
    is_tracked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """A text about the trace as a whole, such as the command that was recorded."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """A task begins.

    Attributes:
        context: A `MemoryKind`.
        kind: Name of the task.
        prompt: Tokens up to row 0; empty for sequences from an empty memory.
    """

    context: int
    kind: str
    prompt: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """A set of tokens to which steps refer.

    Attributes:
        size: Number of tokens.
        digest: 16 bytes that tell sets apart (`values.digest_of`).
    """

    size: int
    digest: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class WholeRow:
    """All values of a row, to which a step refers.

    Attributes:
        normaliser: The log of the sum of exponentials of the logits.
        logits: float32[V].
    """

    normaliser: float
    logits: Float32s


@dataclass(frozen=True, slots=True, eq=False)
class ReadStep:
    """The values that a task read of some rows, with the paths of these.

    Attributes:
        task: Number of the task.
        parents, tokens, wanted: Nodes below the task's row 0, the end of its prompt,
            as in `decoding.task.Ask`, and whether the row of each was told; empty for
            row 0 itself.
        n_rows: Number of rows.
        owner, ids: Pairs of row and token whose log-probability was read.
        normaliser: float64[n_rows], the log of the sum of exponentials of each row's
            logits, if the rows had logits; else empty.
        logits: Logits of the pairs; empty if the rows had none.
        logp: Log-probabilities of the pairs if the rows had no logits; else empty.
        mass_rows, mass_sets, masses: Sums over sets of tokens: row, number of the set,
            log-probability.
        rest_rows, rest_sets, rests: Sums over all tokens outside a set.
        top_rows, top_counts, top_sets: Most probable tokens: row, how many were asked
            for, number of the allowed set or `NO_SET`.
        top_lengths, top_ids: How many there were, and the tokens.
        top_logits, top_logp: Their values, as those of pairs.
        whole_rows, whole: Rows that were read whole, and the numbers of `WholeRow`s.
        has_best, best: Whether the most probable token of each row was read, and these.
        known_lengths, known_ids, known_logp: Of rows of which not all is known
            (`core.path_model.RowBounds`), in place of all values above: how many
            tokens are known, these, and their log-probabilities.
        rest_low, rest_high, rest_max: float64[n_rows], the bounds on what is not known.
        known_reads: 8 bytes for each of these rows, which tell what was read of it
            (`values.signatures`).
    """

    task: int
    parents: Int32s
    tokens: Int32s
    wanted: Bytes
    n_rows: int
    owner: Int32s
    ids: Int32s
    normaliser: Float64s
    logits: Float32s
    logp: Float64s
    mass_rows: Int32s = field(default_factory=_ints)
    mass_sets: Int32s = field(default_factory=_ints)
    masses: Float64s = field(default_factory=_floats)
    rest_rows: Int32s = field(default_factory=_ints)
    rest_sets: Int32s = field(default_factory=_ints)
    rests: Float64s = field(default_factory=_floats)
    top_rows: Int32s = field(default_factory=_ints)
    top_counts: Int32s = field(default_factory=_ints)
    top_sets: Int32s = field(default_factory=_ints)
    top_lengths: Int32s = field(default_factory=_ints)
    top_ids: Int32s = field(default_factory=_ints)
    top_logits: Float32s = field(default_factory=_logits)
    top_logp: Float64s = field(default_factory=_floats)
    whole_rows: Int32s = field(default_factory=_ints)
    whole: Int32s = field(default_factory=_ints)
    has_best: bool = False
    best: Int32s = field(default_factory=_ints)
    known_lengths: Int32s = field(default_factory=_ints)
    known_ids: Int32s = field(default_factory=_ints)
    known_logp: Float64s = field(default_factory=_floats)
    rest_low: Float64s = field(default_factory=_floats)
    rest_high: Float64s = field(default_factory=_floats)
    rest_max: Float64s = field(default_factory=_floats)
    known_reads: Bytes = field(default_factory=partial(_EMPTY.__getitem__, "|u1"))


TraceRecord = Union[  # noqa: UP007 - `X | Y` of classes is no value that older versions of Python can iterate
    TraceHeader,
    Tokens,
    Specials,
    Encoding,
    Normalized,
    Rendered,
    Note,
    Begin,
    TokenIds,
    WholeRow,
    ReadStep,
]

KINDS: dict[str, type[Any]] = {
    "header": TraceHeader,
    "tokens": Tokens,
    "specials": Specials,
    "encoding": Encoding,
    "normalized": Normalized,
    "chat": Rendered,
    "note": Note,
    "begin": Begin,
    "set": TokenIds,
    "row": WholeRow,
    "step": ReadStep,
}
"""The records by their names in the file."""
NAMES = {kind: name for name, kind in KINDS.items()}


FieldType: TypeAlias = Union[type, "np.dtype[Any]"]
"""`int`, `bool`, `float`, `str`, or the type of an array's elements."""


def _fields_of(kind: Any) -> tuple[tuple[str, FieldType], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, _field_type(hints[one.name])) for one in fields(kind))


def _field_type(hint: Any) -> FieldType:
    plain: type = hint
    return np.dtype(hint.__metadata__[0]) if hasattr(hint, "__metadata__") else plain


FIELDS: dict[type[Any], tuple[tuple[str, FieldType], ...]] = {kind: _fields_of(kind) for kind in KINDS.values()}
"""The fields of each record, in order, with their types."""


class PayloadError(ValueError):
    """The bytes are not a payload; the message says why."""


_Layout: TypeAlias = tuple[str, Callable[[Any], tuple[Any, ...]], tuple["np.dtype[Any] | None", ...]]
_LAYOUTS: dict[type[Any], _Layout] = {
    kind: (
        NAMES[kind],
        attrgetter(*(name for name, _ in fields)),
        tuple(of if isinstance(of, np.dtype) else None for _, of in fields),
    )
    for kind, fields in FIELDS.items()
}
"""Of each record its name, what returns its fields, and the types of arrays.

All records have at least two fields, so `attrgetter` returns a tuple.
"""
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def size_of(record: TraceRecord) -> int:
    """Return roughly how many bytes a record takes in a payload."""
    _, values_of, kinds = _LAYOUTS[type(record)]
    n_bytes = 4 * len(kinds)
    for value, kind in zip(values_of(record), kinds, strict=True):
        if kind is not None:
            n_bytes += value.nbytes
        elif isinstance(value, str):
            n_bytes += len(value)
    return n_bytes


def encode(records: Iterable[TraceRecord]) -> bytes:
    """Return the payload of some records."""
    lines: list[str] = []
    arrays: list[bytes] = []
    for record in records:
        name, values_of, kinds = _LAYOUTS[type(record)]
        values = values_of(record)
        sizes = [value if kind is None else len(value) for value, kind in zip(values, kinds, strict=True)]
        arrays += [
            np.asarray(value, dtype=kind).tobytes()
            for value, kind, size in zip(values, kinds, sizes, strict=True)
            if size and kind is not None
        ]
        lines.append(_to_json([name, *sizes]))
    text = "\n".join(lines).encode()
    return b"".join((len(text).to_bytes(_LENGTH_BYTES, "little"), text, *arrays))


def decode(payload: bytes) -> Iterator[TraceRecord]:
    """Yield the records of a payload; raise `PayloadError` if it is not one."""
    n_text = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    if len(payload) < _LENGTH_BYTES or n_text > min(MAX_LINES_BYTES, len(payload) - _LENGTH_BYTES):
        raise PayloadError(f"its lines of {n_text} bytes do not fit")
    at = _LENGTH_BYTES + n_text
    text = payload[_LENGTH_BYTES:at]
    for line in text.split(b"\n") if text else ():
        values = _line(line)
        arguments: dict[str, Any] = {}
        names = FIELDS[KINDS[values[0]]]
        if len(values) != 1 + len(names):
            raise PayloadError(f"a record {values[0]!r} has {len(values) - 1} fields, not {len(names)}")
        for (name, kind), value in zip(names, values[1:], strict=True):
            if isinstance(kind, np.dtype):
                size = _count(name, value, (len(payload) - at) // kind.itemsize)
                arguments[name] = _array(payload, kind, size, at)
                at += size * kind.itemsize
            else:
                arguments[name] = _plain(name, kind, value)
        yield KINDS[values[0]](**arguments)
    if at != len(payload):
        raise PayloadError(f"{len(payload) - at} bytes belong to no record")


def _line(line: bytes) -> list[Any]:
    """Return the values of a line, the first of which is the name of a record."""
    try:
        values = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PayloadError("a line is not JSON") from error
    if not isinstance(values, list) or not values or not isinstance(values[0], str) or values[0] not in KINDS:
        raise PayloadError("a line is not a record of this version")
    return values


def _refuse(text: str) -> None:
    raise ValueError(text)


def _count(name: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise PayloadError(f"{name} has a length that does not fit")
    return value


@cache
def _empty(kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the empty array that all records share; most arrays are empty."""
    return np.empty(0, dtype=kind.newbyteorder("="))


def _array(payload: bytes, kind: np.dtype[Any], size: int, at: int) -> NDArray[Any]:
    if not size:
        return _empty(kind)
    return np.frombuffer(payload, dtype=kind, count=size, offset=at).astype(kind.newbyteorder("="))


def _plain(name: str, kind: type, value: object) -> object:
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < _MAX_INT else value
    if type(value) is not kind or (kind is int and not 0 <= value < _MAX_INT):  # type: ignore[operator]
        raise PayloadError(f"{name} is not what it must be")
    return value
