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

from selectrie.core.strict_json import refuse_constant

ByteArray: TypeAlias = NDArray[np.uint8]

Int32s = Annotated[NDArray[np.int32], "<i4"]
Float32s = Annotated[NDArray[np.float32], "<f4"]
Float64s = Annotated[NDArray[np.float64], "<f8"]
Bytes = Annotated[ByteArray, "|u1"]
"""Arrays with the type of their elements in the file."""

FORMAT = 5
"""Version of the format that this version writes and reads."""
MAX_LINES_BYTES = 8 << 20
"""Maximum size of the lines of a payload. The parsed objects are larger."""
_LENGTH_BYTES = 4
"""Number of bytes, at the beginning of a payload, with the size of its lines."""
_MAX_INT = 1 << 62
"""The least whole number that a field cannot have."""
NO_SET = -1
"""The set number of `ReadStep.top_sets` that stands for all tokens."""


class MemoryKind(IntEnum):
    """The memory in which rows were evaluated, which decides their last bits.

    Attributes:
        MAIN: The memory that all requests share.
        CANONICAL: A separate memory, in which scores that are too close to call are
            evaluated again.
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
    """The model and the settings that a trace was recorded with.

    Attributes:
        format: Version of the format.
        versions: JSON object: the versions of selectrie, numpy and Python, and
            `chat_time`, the current time given to the chat template, if it reads it.
        identity, limits, check: JSON objects: `ModelIdentity`, `Limits`, and
            `SelfCheck`, which is null if there was none.
        searches: JSON object: `n_together` and `max_named` of the engine's `Session`.
        n_tokens: Number of tokens of the vocabulary.
        vocabulary_digest: Digest of the vocabulary.
        has_vocabulary: Whether the bytes and texts of all tokens are in the trace.
        full_rows: Whether requests that read whole rows were allowed.
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
    """Consecutive tokens of the vocabulary.

    Attributes:
        first: Id of the first of these tokens.
        piece_lengths, pieces: Lengths and bytes of the tokens, one after another.
        text_lengths, texts: Lengths and UTF-8 of `Vocabulary.texts` of the tokens.
    """

    first: int
    piece_lengths: Int32s
    pieces: Bytes
    text_lengths: Int32s
    texts: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Specials:
    """The other fields of a vocabulary; comes after the last `Tokens`.

    Attributes:
        facts: JSON object of the plain fields of `Vocabulary` and of `Tokenizing`.
        eog, control, strips_left, strips_right, user_defined: Token ids, as in
            `Vocabulary`.
        ambiguous_lengths, ambiguous: Lengths and bytes of `Vocabulary.ambiguous`.
        altered_lengths, altered: Lengths and bytes of `Tokenizing.altered`.
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
    """A text with its tokens, or with the tokenizer's error.

    Attributes:
        is_inside: Whether the text continues another one (`Spacing.encode_inside`).
        text: The bytes of the text.
        ids: The ids of its tokens; empty after an error.
        error: The reason of the tokenizer's `TextError`, or "".
    """

    is_inside: bool
    text: Bytes
    ids: Int32s
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Normalized:
    """A text and its form after the tokenizer's normalisation, both as UTF-8."""

    text: Bytes
    result: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """A chat with the text that the model's template rendered, or with its error.

    Attributes:
        key: 16 bytes, the digest of messages and arguments.
        text: UTF-8 of the text; empty after an error.
        span_lengths, origins: Number of characters of each part of the text, and its
            origin (`core.tracked_text`); empty unless `is_tracked`.
        error: The message of the `PromptError`, or "".
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
    """The beginning of a task.

    Attributes:
        context: The `MemoryKind` of the task's rows.
        kind: Name of the task's class.
        prompt: Tokens up to row 0, the end of the prompt; empty for sequences from an
            empty memory.
    """

    context: int
    kind: str
    prompt: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """A set of tokens, to which steps refer by its number.

    Attributes:
        size: Number of tokens.
        digest: 16 bytes, the digest of the set (`values.digest_of`).
    """

    size: int
    digest: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class WholeRow:
    """All values of a row, to which a step refers by its number.

    Attributes:
        normaliser: The log of the sum of exponentials of the logits.
        logits: float32[V], the logits of the row.
    """

    normaliser: float
    logits: Float32s


@dataclass(frozen=True, slots=True, eq=False)
class ReadStep:
    """The values that a task read in one step, with the paths of their rows.

    Attributes:
        task: Number of the task.
        parents, tokens, wanted: The nodes that the task asked for below its row 0, as
            in `decoding.task.Ask`, and 1 for each whose row was given to the task;
            empty if the step is about row 0 itself, the end of the prompt.
        offered: Rows, nodes and sequences of the `Capacity` within which the task asked
            for these nodes; empty for row 0.
        n_rows: Number of rows given to the task.
        owner, ids: Row and token of each log-probability that was read.
        normaliser: float64[n_rows], the log of the sum of exponentials of each row's
            logits; empty if the rows had no logits.
        logits: float32[], logits of the pairs (owner, ids); empty without logits.
        logp: float64[], log-probabilities of the pairs; empty if there are `logits`.
        mass_rows, mass_sets, masses: Row, number of the set and log-probability of
            each sum over a set of tokens.
        rest_rows, rest_sets, rests: Likewise of each sum over all tokens outside a set.
        top_rows, top_counts, top_sets: Row, requested number of tokens, and number of
            the allowed set (or `NO_SET`) of each list of most probable tokens.
        top_lengths, top_ids: Length of each list, and the tokens of all.
        top_logits, top_logp: Values of these tokens; one is empty, as of `logits` and
            `logp`.
        whole_rows, whole: Each row that was read whole, and the number of its
            `WholeRow`.
        has_best, best: Whether the most probable token of each row was read, and these
            tokens.
        known_lengths, known_ids, known_logp: For rows with unknown values
            (`core.path_model.RowBounds`), in place of all values above: number of
            known tokens of each row, the tokens, and their log-probabilities.
        rest_low, rest_high, rest_max: float64[n_rows], the bounds of such rows.
        known_reads: 8 bytes for each such row, the signature of the values that were
            read (`values.signatures`).
    """

    task: int
    parents: Int32s
    tokens: Int32s
    wanted: Bytes
    offered: Int32s
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
    TraceHeader, Tokens, Specials, Encoding, Normalized, Rendered, Note, Begin, TokenIds, WholeRow, ReadStep
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
"""The classes of records by their names in the file."""
NAMES = {kind: name for name, kind in KINDS.items()}


FieldType: TypeAlias = Union[type, "np.dtype[Any]"]
"""`int`, `bool`, `float`, `str`, or the type of an array's elements."""


def _fields_of(kind: Any) -> tuple[tuple[str, FieldType], ...]:
    """Return the name and type of each field of a record class."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((one.name, _field_type(hints[one.name])) for one in fields(kind))


def _field_type(hint: Any) -> FieldType:
    """Return the numpy type of an array field, or the Python type of another."""
    plain: type = hint
    return np.dtype(hint.__metadata__[0]) if hasattr(hint, "__metadata__") else plain


FIELDS: dict[type[Any], tuple[tuple[str, FieldType], ...]] = {kind: _fields_of(kind) for kind in KINDS.values()}
"""The fields of each record, in order, with their types."""


class PayloadError(ValueError):
    """The bytes are not a valid payload; the message says why."""


_Layout: TypeAlias = tuple[str, Callable[[Any], tuple[Any, ...]], tuple["np.dtype[Any] | None", ...]]
_LAYOUTS: dict[type[Any], _Layout] = {
    kind: (
        NAMES[kind],
        attrgetter(*(name for name, _ in fields)),
        tuple(of if isinstance(of, np.dtype) else None for _, of in fields),
    )
    for kind, fields in FIELDS.items()
}
"""Name, getter of all fields, and types of array fields (None for others) by class.

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
    """Return some records as a payload."""
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
    """Yield the records of a payload; raise `PayloadError` if it is not valid."""
    n_text = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    if len(payload) < _LENGTH_BYTES or n_text > min(MAX_LINES_BYTES, len(payload) - _LENGTH_BYTES):
        raise PayloadError(f"its lines of {n_text} bytes do not fit")
    at = _LENGTH_BYTES + n_text
    text = payload[_LENGTH_BYTES:at]
    for line in text.split(b"\n") if text else ():
        values = _parse_line(line)
        arguments: dict[str, Any] = {}
        names = FIELDS[KINDS[values[0]]]
        if len(values) != 1 + len(names):
            raise PayloadError(f"a record {values[0]!r} has {len(values) - 1} fields, not {len(names)}")
        for (name, kind), value in zip(names, values[1:], strict=True):
            if isinstance(kind, np.dtype):
                size = _check_length(name, value, (len(payload) - at) // kind.itemsize)
                arguments[name] = _read_array(payload, kind, size, at)
                at += size * kind.itemsize
            else:
                arguments[name] = _check_plain(name, kind, value)
        yield KINDS[values[0]](**arguments)
    if at != len(payload):
        raise PayloadError(f"{len(payload) - at} bytes belong to no record")


def _parse_line(line: bytes) -> list[Any]:
    """Parse a line of a payload: the name of a record, then its values.

    Raises `PayloadError` if it is not JSON or names no record.
    """
    try:
        values = json.loads(line, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PayloadError("a line is not JSON") from error
    if not isinstance(values, list) or not values or not isinstance(values[0], str) or values[0] not in KINDS:
        raise PayloadError("a line is not a record of this version")
    return values


def _check_length(name: str, value: object, most: int) -> int:
    """Return a length from 0 to `most`; raise `PayloadError` for another value."""
    if type(value) is not int or not 0 <= value <= most:
        raise PayloadError(f"{name} has a length that does not fit")
    return value


@cache
def _empty(kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the empty array that all records share; most arrays are empty."""
    return np.empty(0, dtype=kind.newbyteorder("="))


def _read_array(payload: bytes, kind: np.dtype[Any], size: int, at: int) -> NDArray[Any]:
    """Return the array of `size` elements at offset `at`, in native byte order."""
    if not size:
        return _empty(kind)
    return np.frombuffer(payload, dtype=kind, count=size, offset=at).astype(kind.newbyteorder("="))


def _check_plain(name: str, kind: type, value: object) -> object:
    """Return the value of a plain field; raise `PayloadError` if its type is wrong.

    Integers must not be negative.
    """
    if kind is float and type(value) is int:  # another JSON writer may have made 1 of 1.0
        value = float(value) if abs(value) < _MAX_INT else value
    if type(value) is not kind or (kind is int and not 0 <= value < _MAX_INT):  # type: ignore[operator]
        raise PayloadError(f"{name} is not what it must be")
    return value
