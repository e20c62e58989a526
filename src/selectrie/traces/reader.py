"""Reads a trace, and checks every record before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from selectrie.core.types import Cost, IntArray
from selectrie.errors import TraceFileError
from selectrie.traces import checks
from selectrie.traces.blocks import BlockError, BlockReader, Tail, opened
from selectrie.traces.checks import require
from selectrie.traces.payloads import PayloadError, decode
from selectrie.traces.records import (
    Begin,
    Context,
    ContextCost,
    Encoding,
    End,
    Ending,
    Header,
    Lookup,
    Normalized,
    Note,
    Record,
    Rendered,
    Request,
    Specials,
    Step,
    TokenIds,
    Tokens,
    WholeRow,
)
from selectrie.traces.values import StepValues

MAX_TRACE_BYTES = 8 << 30
"""Maximum size of all payloads of a trace that is read, which are held in memory."""


@dataclass(slots=True, eq=False)
class RecordedTask:
    """A task of a trace.

    Attributes:
        request: Number of its request.
        context: The memory in which its rows were evaluated.
        kind: Its name.
        prompt: int32[T], the tokens up to row 0.
        steps: Its asks and the values that it was told; the first is row 0.
        ending: How it ended; None if the trace ends before.
        cost: The cost that it had in the end.
        up, token: Parent and token of each local row; -1 for row 0.
    """

    request: int
    context: Context
    kind: str
    prompt: IntArray
    steps: list[StepValues] = field(default_factory=list)
    ending: Ending | None = None
    cost: Cost = field(default_factory=Cost)
    up: list[int] = field(default_factory=lambda: [-1])
    token: list[int] = field(default_factory=lambda: [-1])

    def wanted_rows(self, step: int) -> list[int]:
        """Return the local rows whose values a step has."""
        first = self._first[step]
        asked = self.steps[step].step
        return [0] * asked.n_rows if step == 0 else [first + i for i in np.flatnonzero(asked.wanted).tolist()]

    _first: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RecordedRequest:
    """A request of a trace.

    Attributes:
        name: Its kind.
        digest: Its digest.
        tasks: Numbers of its tasks, in the order in which they began.
        contexts: Costs of contexts before which near ties were scored, by the bytes of
            the context.
        lookups: What it found of earlier requests, by the key of the path, in order;
            None where it found nothing.
    """

    name: str
    digest: str
    tasks: list[int] = field(default_factory=list)
    contexts: dict[bytes, list[Cost]] = field(default_factory=dict)
    lookups: dict[bytes, list[Lookup | None]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Trace:
    """All that a trace holds.

    Attributes:
        path: The file.
        header: What it was recorded from.
        tail: How the file ends.
        tokens: The parts of the vocabulary, if it is there.
        specials: What else the vocabulary has; None if it is not there.
        encodings, inside: Ids by text, or the message of an error: of texts that begin,
            and of texts that continue others.
        normalized: What texts are normalised to.
        chats: What chats were rendered to, by their key.
        notes: Texts by name.
        requests, tasks: In the order in which they began.
    """

    path: Path
    header: Header
    tail: Tail = field(default_factory=lambda: Tail(0, 0, is_complete=False))
    tokens: list[Tokens] = field(default_factory=list)
    specials: Specials | None = None
    encodings: dict[bytes, list[int] | str] = field(default_factory=dict)
    inside: dict[bytes, list[int] | str] = field(default_factory=dict)
    normalized: dict[bytes, bytes] = field(default_factory=dict)
    chats: dict[bytes, Rendered] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    requests: list[RecordedRequest] = field(default_factory=list)
    tasks: list[RecordedTask] = field(default_factory=list)


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Of a torn file, whose end is missing, all complete blocks are read; `Trace.tail`
    says so.

    Raises:
        TraceFileError: If the file cannot be read, is not a trace of this version, or
            is damaged.
    """
    try:
        with opened(path) as file:
            blocks = BlockReader(file)
            reading: _Reading | None = None
            for record in _records(blocks):
                if reading is None:
                    require(isinstance(record, Header), "it has no header")
                    reading = _Reading(path, record)  # type: ignore[arg-type]
                else:
                    reading.take(record)
            if reading is None:
                raise PayloadError("it ends before its header, so nothing was recorded")  # noqa: TRY301 - as the checks
            reading.trace.tail = blocks.tail
            return reading.trace
    except (BlockError, PayloadError) as error:
        raise TraceFileError(str(path), str(error)) from error
    except (OSError, ValueError) as error:
        raise TraceFileError(str(path), getattr(error, "strerror", None) or str(error)) from error


def _records(blocks: BlockReader) -> Iterator[Record]:
    n_bytes = 0
    for payload, max_records in blocks:
        n_bytes += len(payload)
        require(n_bytes <= MAX_TRACE_BYTES, f"it holds more than {MAX_TRACE_BYTES >> 30} GiB")
        for number, record in enumerate(decode(payload)):
            require(number < max_records, "a block has more records than its size allows")
            yield record


class _Reading:
    """Takes the records of a trace in order."""

    def __init__(self, path: Path, header: Header) -> None:
        checks.check_header(header)
        self.trace = Trace(path, header)
        self._n_tokens = header.n_tokens
        self._sets: list[bytes] = []
        self._whole: list[WholeRow] = []

    def take(self, record: Record) -> None:
        """Check a record and add it; raise `PayloadError` if it cannot be one."""
        trace = self.trace
        if isinstance(record, Step):
            self._step(record)
        elif isinstance(record, TokenIds):
            checks.check_ids(record.ids, self._n_tokens)
            require(len(record.digest) == 16, "a set has no digest")
            self._sets.append(record.digest.tobytes())
        elif isinstance(record, WholeRow):
            checks.check_whole(record, self._n_tokens)
            self._whole.append(record)
        elif isinstance(record, Begin):
            self._request(record.request).tasks.append(len(trace.tasks))
            checks.check_begin(record.context, record.prompt, self._n_tokens)
            trace.tasks.append(RecordedTask(record.request, Context(record.context), record.kind, record.prompt))
        elif isinstance(record, End):
            self._end(record)
        elif isinstance(record, Request):
            trace.requests.append(RecordedRequest(record.name, record.digest))
        elif isinstance(record, Encoding):
            checks.check_ids(record.ids, self._n_tokens)
            known = trace.inside if record.is_inside else trace.encodings
            known[record.text.tobytes()] = record.error or record.ids.tolist()
        elif isinstance(record, Normalized):
            trace.normalized[record.text.tobytes()] = record.result.tobytes()
        else:
            self._take_rare(record)

    def _take_rare(self, record: Record) -> None:
        trace = self.trace
        if isinstance(record, Lookup):
            checks.check_ids(record.ids, self._n_tokens)
            checks.check_ids(record.top_ids, self._n_tokens)
            require(len(record.ids) == len(record.logp) and record.best < self._n_tokens, "a lookup does not match")
            require(len(record.top_ids) == len(record.top_logp) <= record.n_top, "a lookup does not match")
            found = self._request(record.request).lookups.setdefault(record.key.tobytes(), [])
            found.append(record if record.is_known else None)
        elif isinstance(record, ContextCost):
            cost = Cost(record.model_calls, record.rows, 0, record.rows_padded, decode_s=record.decode_s)
            self._request(record.request).contexts.setdefault(record.context.tobytes(), []).append(cost)
        elif isinstance(record, Rendered):
            checks.check_rendered(record)
            trace.chats[record.key.tobytes()] = record
        elif isinstance(record, Note):
            trace.notes[record.name] = record.text
        elif isinstance(record, Tokens):
            trace.tokens.append(record)
        elif isinstance(record, Specials):
            trace.specials = record
        else:
            raise PayloadError("it has a second header")

    def _request(self, number: int) -> RecordedRequest:
        require(number < len(self.trace.requests), "a record belongs to no request")
        return self.trace.requests[number]

    def _task(self, number: int) -> RecordedTask:
        require(number < len(self.trace.tasks), "a record belongs to no task")
        task = self.trace.tasks[number]
        require(task.ending is None, "a task goes on after its end")
        return task

    def _step(self, step: Step) -> None:
        task = self._task(step.task)
        n_local = len(task.up) if task.steps else 0
        checks.check_step(
            step, n_local=n_local, n_tokens=self._n_tokens, n_sets=len(self._sets), n_whole=len(self._whole)
        )
        first = len(task.up)
        task._first.append(first)
        task.up += [parent if parent >= 0 else first + ~parent for parent in step.parents.tolist()]
        task.token += step.tokens.tolist()
        task.steps.append(StepValues(step, self._sets, self._whole.__getitem__))

    def _end(self, end: End) -> None:
        task = self._task(end.task)
        checks.check_end(end.ending)
        task.ending = Ending(end.ending)
        task.cost = Cost(end.model_calls, end.rows, end.rows_repeated, end.rows_padded, decode_s=end.decode_s)
