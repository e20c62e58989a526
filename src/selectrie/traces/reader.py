"""Reads a trace, and checks every record before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.core.tracked_text import MIXED
from selectrie.core.types import IntArray
from selectrie.errors import TraceFileError
from selectrie.traces import records
from selectrie.traces.blocks import BlockError, BlockReader, FileTail, open_plain_file
from selectrie.traces.values import DIGEST_BYTES, SIGNATURE_BYTES, StepValues

MAX_VOCABULARY = 1 << 22
"""Maximum number of tokens of a vocabulary."""
MAX_TRACE_BYTES = 8 << 30
"""Maximum size of all payloads of a trace, which are held in memory."""


@dataclass(slots=True, eq=False)
class RecordedTask:
    """A task of a trace, with the values that it read.

    The task's rows are numbered from 0, the row after its prompt.

    Attributes:
        context: The memory in which its rows were evaluated.
        kind: Name of the task's class.
        prompt: int32[T], the tokens up to row 0.
        steps: The values that it read, step by step.
        rows: The numbers of the rows of each step.
        up, token: Number of the parent row, and token, of each row; -1 for row 0.
    """

    context: records.MemoryKind
    kind: str
    prompt: IntArray
    steps: list[StepValues] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    up: list[int] = field(default_factory=lambda: [-1])
    token: list[int] = field(default_factory=lambda: [-1])


@dataclass(slots=True, eq=False)
class Trace:
    """The content of a trace.

    Attributes:
        path: The file.
        header: The first record.
        tail: The end of the file: complete, or torn.
        tokens: The parts of the vocabulary; empty if it was not recorded.
        specials: The other fields of the vocabulary; None if it was not recorded.
        encodings: Token ids, or the message of the tokenizer's error, by text.
        inside: The same for texts that continue others (`Spacing.encode_inside`).
        normalized: The normalised form of texts, by text.
        chats: The rendered chats, by `Rendered.key`.
        notes: Texts about the trace, by name (`Note`).
        tasks: The tasks in the order in which they began.
    """

    path: Path
    header: records.TraceHeader
    tail: FileTail = field(default_factory=lambda: FileTail(0, 0, is_complete=False))
    tokens: list[records.Tokens] = field(default_factory=list)
    specials: records.Specials | None = None
    encodings: dict[bytes, list[int] | str] = field(default_factory=dict)
    inside: dict[bytes, list[int] | str] = field(default_factory=dict)
    normalized: dict[bytes, bytes] = field(default_factory=dict)
    chats: dict[bytes, records.Rendered] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    tasks: list[RecordedTask] = field(default_factory=list)


def read_trace(path: Path) -> Trace:
    """Read a trace.

    If the end of the file is missing, all complete blocks are read, and
    `Trace.tail.is_complete` is False.

    Raises:
        TraceFileError: If the file cannot be read, is not a trace of this version, or
            is damaged.
    """
    try:
        with open_plain_file(path) as file:
            blocks = BlockReader(file)
            builder: _TraceBuilder | None = None
            for record in _records(blocks):
                if builder is None:
                    require(isinstance(record, records.TraceHeader), "it has no header")
                    builder = _TraceBuilder(path, record)  # type: ignore[arg-type]
                else:
                    builder.add(record)
            if builder is None:
                reason = "it ends before its header, so nothing was recorded"
                raise records.PayloadError(reason)  # noqa: TRY301 - as the checks
            builder.trace.tail = blocks.tail
            return builder.trace
    except (BlockError, records.PayloadError) as error:
        raise TraceFileError(str(path), str(error)) from error
    except (OSError, ValueError) as error:
        raise TraceFileError(str(path), getattr(error, "strerror", None) or str(error)) from error


def _records(blocks: BlockReader) -> Iterator[records.TraceRecord]:
    """Yield the records of all blocks; raise `PayloadError` if there are too many."""
    n_bytes = 0
    for payload, max_records in blocks:
        n_bytes += len(payload)
        require(n_bytes <= MAX_TRACE_BYTES, f"it holds more than {MAX_TRACE_BYTES >> 30} GiB")
        for number, record in enumerate(records.decode(payload)):
            require(number < max_records, "a block has more records than its size allows")
            yield record


class _TraceBuilder:
    """Makes a `Trace` from its records, which are added in order."""

    def __init__(self, path: Path, header: records.TraceHeader) -> None:
        check_header(header)
        self.trace = Trace(path, header)
        self._n_tokens = header.n_tokens
        self._sets: list[bytes] = []
        self._whole: list[records.WholeRow] = []

    def add(self, record: records.TraceRecord) -> None:
        """Check a record and add it to the trace; raise `PayloadError` if invalid."""
        trace = self.trace
        if isinstance(record, records.ReadStep):
            self._add_step(record)
        elif isinstance(record, records.TokenIds):
            require(len(record.digest) == DIGEST_BYTES, "a set has no digest")
            self._sets.append(record.digest.tobytes())
        elif isinstance(record, records.WholeRow):
            check_whole(record, self._n_tokens)
            self._whole.append(record)
        elif isinstance(record, records.Begin):
            check_begin(record.context, record.prompt, self._n_tokens)
            trace.tasks.append(RecordedTask(records.MemoryKind(record.context), record.kind, record.prompt))
        elif isinstance(record, records.Encoding):
            check_ids(record.ids, self._n_tokens)
            known = trace.inside if record.is_inside else trace.encodings
            known[record.text.tobytes()] = record.error or record.ids.tolist()
        elif isinstance(record, records.Normalized):
            trace.normalized[record.text.tobytes()] = record.result.tobytes()
        else:
            self._add_rare(record)

    def _add_rare(self, record: records.TraceRecord) -> None:
        """Check and add a record of one of the less frequent kinds."""
        trace = self.trace
        if isinstance(record, records.Rendered):
            check_rendered(record)
            trace.chats[record.key.tobytes()] = record
        elif isinstance(record, records.Note):
            trace.notes[record.name] = record.text
        elif isinstance(record, records.Tokens):
            trace.tokens.append(record)
        elif isinstance(record, records.Specials):
            trace.specials = record
        else:
            raise records.PayloadError("it has a second header")

    def _add_step(self, step: records.ReadStep) -> None:
        """Check a step and add it, with the rows that it asks for, to its task."""
        require(step.task < len(self.trace.tasks), "a record belongs to no task")
        task = self.trace.tasks[step.task]
        first = len(task.up)
        check_step(step, n_local=first, n_tokens=self._n_tokens, n_sets=len(self._sets), n_whole=len(self._whole))
        task.up += [parent if parent >= 0 else first + ~parent for parent in step.parents.tolist()]
        task.token += step.tokens.tolist()
        task.rows.append((first + np.flatnonzero(step.wanted)).tolist() if len(step.tokens) else [0])
        task.steps.append(StepValues(step, self._sets, self._whole.__getitem__))


def check_header(header: records.TraceHeader) -> None:
    """Raise `PayloadError` unless this version can read the trace."""
    if header.format != records.FORMAT:
        raise records.PayloadError(
            f"it has format {header.format}; this version of selectrie reads format {records.FORMAT}"
        )
    require(1 <= header.n_tokens <= MAX_VOCABULARY, "it has an impossible number of tokens")


def require(is_right: object, what: str) -> None:
    """Raise `PayloadError` with the message `what` unless `is_right` is true."""
    if not is_right:
        raise records.PayloadError(what)


def check_ids(ids: NDArray[np.int32], n_tokens: int) -> None:
    """Raise `PayloadError` unless all ids are from 0 to `n_tokens` - 1."""
    require(_are_within(ids, 0, n_tokens), "a token does not exist")


def check_begin(context: int, prompt: NDArray[np.int32], n_tokens: int) -> None:
    """Raise `PayloadError` unless the fields of a `Begin` are valid."""
    require(context in tuple(records.MemoryKind), "a task has an unknown context")
    require(len(prompt) or context == records.MemoryKind.LOGLIKELIHOOD, "a task has no prompt")
    check_ids(prompt, n_tokens)


def check_whole(row: records.WholeRow, n_tokens: int) -> None:
    """Raise `PayloadError` unless a row has `n_tokens` logits and is finite."""
    require(len(row.logits) == n_tokens, "a whole row has another number of tokens")
    require(np.isfinite(row.normaliser) and _are_logits(row.logits), "a whole row is not finite")


def check_rendered(chat: records.Rendered) -> None:
    """Raise `PayloadError` unless the spans of a chat cover its text exactly."""
    text = chat.text.tobytes().decode("utf-8", "replace")
    require(len(chat.span_lengths) == len(chat.origins), "a chat's parts and origins do not match")
    require((chat.span_lengths >= 0).all() and (chat.origins <= MIXED).all(), "a chat has an impossible part")
    n = int(chat.span_lengths.sum(dtype=np.int64))
    require(n == (len(text) if chat.is_tracked else 0), "a chat's parts do not add up")


def split_array(lengths: NDArray[np.int32], data: NDArray[Any]) -> list[NDArray[Any]]:
    """Split an array into consecutive parts of these lengths, and return the parts.

    Raises `PayloadError` unless the lengths add up to that of the array.
    """
    require(_are_within(lengths, 0, len(data) + 1), "a list has an impossible length")
    ends = np.cumsum(lengths, dtype=np.int64)
    require((int(ends[-1]) if len(ends) else 0) == len(data), "the lengths of lists do not add up")
    return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def check_step(step: records.ReadStep, *, n_local: int, n_tokens: int, n_sets: int, n_whole: int) -> None:
    """Raise `PayloadError` unless a step is consistent and its references exist.

    Args:
        step: The step.
        n_local: Number of rows of the task so far, row 0 included.
        n_tokens: Number of tokens of the vocabulary.
        n_sets, n_whole: Number of sets and of whole rows in the trace so far.
    """
    _check_ask(step, n_local, n_tokens)
    n = step.n_rows
    _check_rows(n, len(step.ids), step.owner, step.mass_rows, step.rest_rows, step.top_rows, step.whole_rows)
    check_ids(step.ids, n_tokens)
    check_ids(step.top_ids, n_tokens)
    check_ids(step.best, n_tokens)
    for sets, rows, values in (
        (step.mass_sets, step.mass_rows, step.masses),
        (step.rest_sets, step.rest_rows, step.rests),
    ):
        require(len(rows) == len(sets) == len(values), "sums and their sets do not match")
        require(_are_within(sets, 0, n_sets) and _are_logp(values), "a sum is no sum over a set")
    require(len(step.best) == (n if step.has_best else 0), "the most probable tokens do not match the rows")
    tops = (step.top_rows, step.top_counts, step.top_sets, step.top_lengths)
    require(len({len(column) for column in tops}) == 1, "lists of most probable tokens do not match")
    require(_are_within(step.top_sets, records.NO_SET, n_sets), "an allowed set does not exist")
    split_array(step.top_lengths, step.top_ids)
    require((step.top_lengths <= step.top_counts).all(), "there are more most probable tokens than asked for")
    require(len(step.whole_rows) == len(step.whole) and _are_within(step.whole, 0, n_whole), "a whole row is missing")
    _check_values(step)
    _check_known(step, n_tokens)


def _check_ask(step: records.ReadStep, n_local: int, n_tokens: int) -> None:
    """Raise `PayloadError` unless the nodes that a step asks for are valid."""
    n = len(step.tokens)
    require(len(step.parents) == len(step.wanted) == n, "the columns of an ask do not match")
    require(_are_within(step.parents, -n, n_local), "a row has no parent")
    inside = step.parents < 0
    require((~step.parents[inside] < np.flatnonzero(inside)).all(), "a row comes before its parent")
    require(len(step.offered) == 3 * (n > 0) and (step.offered >= 0).all(), "an ask has no capacity")
    require((step.wanted <= 1).all(), "a row is neither wanted nor unwanted")
    require(step.n_rows == (int(step.wanted.sum()) if n else 1), "the rows are not those that were asked for")
    check_ids(step.tokens, n_tokens)


def _check_rows(n: int, n_pairs: int, owner: NDArray[np.int32], *others: NDArray[np.int32]) -> None:
    """Raise `PayloadError` unless each value of a step belongs to one of `n` rows.

    `owner` has the row of each of the `n_pairs` pairs, `others` those of other values.
    """
    require(len(owner) == n_pairs, "pairs of row and token do not match")
    require(all(_are_within(rows, 0, n) for rows in (owner, *others)), "a value belongs to no row")


def _check_values(step: records.ReadStep) -> None:
    """Raise `PayloadError` unless each pair and top token has one finite value."""
    has_logits = len(step.normaliser) > 0
    require(not has_logits or len(step.normaliser) == step.n_rows, "rows and normalisers do not match")
    for ids, logits, logp in ((step.ids, step.logits, step.logp), (step.top_ids, step.top_logits, step.top_logp)):
        expected = (len(ids), 0) if has_logits else (0, len(ids))
        require((len(logits), len(logp)) == expected, "tokens and values do not match")
        require(_are_logits(logits) and _are_logp(logp), "a value is not finite")
    require(np.isfinite(step.normaliser).all(), "a value is not finite")


def _check_known(step: records.ReadStep, n_tokens: int) -> None:
    """Raise `PayloadError` unless the columns of a step are valid `RowBounds`.

    They are those of rows of which only some tokens' values are known: `known_…` and
    `rest_…`, which are empty if every row was whole.
    """
    columns = (step.known_lengths, step.rest_low, step.rest_high, step.rest_max)
    n = len(step.known_lengths)
    require(n in (0, step.n_rows) and all(len(one) == n for one in columns), "bounds and rows do not match")
    require(len(step.known_reads) == SIGNATURE_BYTES * n, "bounds and what was read do not match")
    require(len(step.known_ids) == len(step.known_logp), "known tokens and values do not match")
    check_ids(step.known_ids, n_tokens)
    for ids in split_array(step.known_lengths, step.known_ids):
        require((np.diff(ids) > 0).all(), "known tokens do not ascend")
    require(all(map(_are_logp, (step.known_logp, *columns[1:]))), "a bound is no log-probability")
    require((step.rest_low <= step.rest_high).all(), "a bound is above the other")


def _are_within(values: NDArray[np.int32], low: int, high: int) -> bool:
    """Return whether all values are at least `low` and below `high`."""
    return not len(values) or bool(values.min() >= low and values.max() < high)


def _are_logits(values: NDArray[np.float32]) -> bool:
    return bool((values < np.inf).all())  # neither NaN nor +inf


def _are_logp(values: NDArray[np.float64]) -> bool:
    return bool((values < 1.0).all())  # of a probability, which rounding may bring above 1
