"""The records of a trace, each a flat frozen dataclass.

A record has numbers, short texts and one-dimensional arrays, and refers to others by
their numbers, which begin with 0 for each kind. A record comes after those that it
refers to. Lists of lists are one array of all elements and one of their lengths.

`Header` is the first record and is there once. The others may be interleaved, since
tasks run at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import partial
from typing import Annotated, Any, TypeAlias, Union, get_type_hints

import numpy as np
from numpy.typing import NDArray

ByteArray: TypeAlias = NDArray[np.uint8]

Int32s = Annotated[NDArray[np.int32], "<i4"]
Float32s = Annotated[NDArray[np.float32], "<f4"]
Float64s = Annotated[NDArray[np.float64], "<f8"]
Bytes = Annotated[ByteArray, "|u1"]
"""Arrays with the type of their elements in the file."""

NO_SET = -1
"""Number in place of a set where every token is allowed."""


class Context(IntEnum):
    """The memory in which rows were evaluated, which decides their last bits.

    Attributes:
        MAIN: The memory that all requests share.
        CANONICAL: A memory in which near ties are scored again.
        LOGLIKELIHOOD: An empty memory for one unit of token sequences.
    """

    MAIN = 0
    CANONICAL = 1
    LOGLIKELIHOOD = 2


class Ending(IntEnum):
    """How a task ended.

    Attributes:
        RESULT: It returned a result.
        EXPIRED: Its deadline passed. It returned what it had, or raised
            `DeadlineError` if it has no partial result.
        FAILED: It raised an error.
        CANCELLED: It was cancelled, or its call of the model was interrupted.
    """

    RESULT = 0
    EXPIRED = 1
    FAILED = 2
    CANCELLED = 3


_EMPTY = {code: np.empty(0, dtype=code) for code in ("<i4", "<f4", "<f8", "|u1")}


_ints = partial(_EMPTY.__getitem__, "<i4")
_floats = partial(_EMPTY.__getitem__, "<f8")
_logits = partial(_EMPTY.__getitem__, "<f4")


@dataclass(frozen=True, slots=True, eq=False)
class Header:
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
class Request:
    """What is decided by itself: one selection, sequence or search.

    Attributes:
        name: The kind of request.
        digest: Hexadecimal digest of all that decides what its tasks ask.
    """

    name: str
    digest: str


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """A task begins.

    Attributes:
        request: Number of its request.
        context: A `Context`.
        kind: Name of the task.
        prompt: Tokens up to row 0; empty for sequences from an empty memory.
    """

    request: int
    context: int
    kind: str
    prompt: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """A set of tokens to which steps refer.

    Attributes:
        size: Number of tokens.
        ids: The tokens, if they are few; else empty.
        digest: 16 bytes that tell sets apart (`sets.py`).
    """

    size: int
    ids: Int32s
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
class Step:
    """An ask of a task, and the values of the rows that it was then told.

    Step 0 of a task is row 0, which it does not ask for.

    Attributes:
        task: Number of the task.
        capacity: Rows, nodes and sequences that the task was offered; empty in step 0.
        parents, tokens, wanted: The ask (`decoding.task.Ask`); empty in step 0.
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
            (`core.path_model.PartialRow`), in place of all values above: how many
            tokens are known, these, and their log-probabilities.
        rest_low, rest_high, rest_max: float64[n_rows], the bounds on what is not known.
    """

    task: int
    capacity: Int32s
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


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """A task has ended.

    Attributes:
        task: Number of the task.
        ending: An `Ending`.
        model_calls, rows, rows_repeated, rows_padded: Its `Cost`.
        decode_s: Seconds inside the model.
    """

    task: int
    ending: int
    model_calls: int
    rows: int
    rows_repeated: int
    rows_padded: int
    decode_s: float


@dataclass(frozen=True, slots=True, eq=False)
class ContextCost:
    """The cost of evaluating a context before near ties are scored after it.

    Attributes:
        request: Number of the request.
        context: The tokens.
        model_calls, rows, rows_padded, decode_s: The `Cost`.
    """

    request: int
    context: Int32s
    model_calls: int
    rows: int
    rows_padded: int
    decode_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Values that a request found where an earlier one had left them, or did not find.

    Attributes:
        request: Number of the request.
        key: 16 bytes, the key of a token path.
        is_known: Whether they were there; if not, the rest is empty.
        best: The most probable token.
        ids, logp: Tokens and their log-probabilities.
        n_top: Number of most probable tokens that were read.
        top_ids, top_logp: These tokens, and their log-probabilities.
    """

    request: int
    key: Bytes
    is_known: bool
    best: int = 0
    ids: Int32s = field(default_factory=_ints)
    logp: Float64s = field(default_factory=_floats)
    n_top: int = 0
    top_ids: Int32s = field(default_factory=_ints)
    top_logp: Float64s = field(default_factory=_floats)


Record = Union[  # noqa: UP007 - `X | Y` of classes is no value that older versions of Python can iterate
    Header,
    Tokens,
    Specials,
    Encoding,
    Normalized,
    Rendered,
    Note,
    Request,
    Begin,
    TokenIds,
    WholeRow,
    Step,
    End,
    ContextCost,
    Lookup,
]

KINDS: dict[str, type[Any]] = {
    "header": Header,
    "tokens": Tokens,
    "specials": Specials,
    "encoding": Encoding,
    "normalized": Normalized,
    "chat": Rendered,
    "note": Note,
    "request": Request,
    "begin": Begin,
    "set": TokenIds,
    "row": WholeRow,
    "step": Step,
    "end": End,
    "context": ContextCost,
    "lookup": Lookup,
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
