"""Answers from a trace, without the model.

The engine's tasks run as those of a server do: their rows are asked for by token path,
and `TraceReader` finds what was read of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from selectrie.backends.remote.vocabulary import read_tokenizer
from selectrie.core.model import DescribedModel, ModelDescription
from selectrie.core.path_model import REMOTE, Answer, Cancellation
from selectrie.core.rows import Reads
from selectrie.core.types import (
    BatchSizes,
    CallCost,
    Capacity,
    Cost,
    IntArray,
    Limits,
    ModelIdentity,
    ModelKind,
    Precision,
    SelfCheck,
)
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.task import Task
from selectrie.engine.engine import Engine
from selectrie.engine.path_driver.path_scheduler import PathScheduler, PathThread
from selectrie.engine.requests.canonical_memory import CanonicalMemory
from selectrie.engine.requests.session import Session
from selectrie.engine.runtimes import Runtime
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.engine.sources import download_tokenizer, is_hub_source
from selectrie.engine.tracing.texts import replayed_vocabulary
from selectrie.errors import (
    InternalError,
    MissingRowError,
    OptionError,
    SelectrieError,
    TraceFileError,
    WholeRowsError,
    words,
)
from selectrie.traces.reader import RecordedTask, Trace, read_trace
from selectrie.traces.records import MemoryKind
from selectrie.traces.values import NotRecordedError, RowSource, rebuild_rows, signatures

R = TypeVar("R")

_ANY = 1 << 30
_SHOWN_TOKENS = 100
"""Number of tokens at the end of a path that an error shows."""
_DIGEST_BYTES = 16
_MAX_COUNT = 1 << 48
_IDENTITY = {
    **dict.fromkeys(("name", "digest", "tokenizer_digest", "backend", "build", "processor", "precision"), str),
    "n_parameters": int,
    "weights": str,
}
_CHECK = {"batch_multiple": int, "moved": float, "tolerance": float, "n_rows": int}
_LIMITS = {
    **dict.fromkeys(("nodes", "sequences", "rows_per_call", "prefix_tokens"), int),
    "kind": str,
    "can_interrupt": bool,
    "larger_context": str,
}


def replay(path: Path, *, tokenizer: object = None, max_waiting: int | None = None) -> Engine:
    """Return an engine that answers from a trace instead of a model.

    The arguments are those of `selectrie.load` for a trace.

    Raises:
        TraceFileError: If the file is not a trace of this version, or is damaged.
        OptionError: If the trace needs a tokenizer and none is given, or if the given
            one is not that of the recorded model.
    """
    trace = read_trace(path)
    return Engine(ReplayRuntime(trace, _read_vocabulary(tokenizer), max_waiting=max_waiting))


def _read_vocabulary(tokenizer: object) -> Vocabulary | None:
    """Return the vocabulary that the option `tokenizer` of `load` names, or None."""
    if tokenizer is None or isinstance(tokenizer, Vocabulary):
        return tokenizer
    if isinstance(tokenizer, Engine):
        return tokenizer.vocabulary
    if is_hub_source(tokenizer):
        return read_tokenizer(download_tokenizer(tokenizer))
    if isinstance(tokenizer, str | os.PathLike):
        return read_tokenizer(Path(os.fspath(tokenizer)))
    raise OptionError("tokenizer", tokenizer, "a GGUF file, a folder with a tokenizer, hf:owner/repo, or an engine")


class ReplayRuntime(Runtime):
    """The runtime of an engine that answers from a trace.

    `TraceReader.answer` raises for whole rows that were not recorded.

    Args:
        trace: The trace.
        tokenizer: The vocabulary of the recorded model; None for the recorded one.
        max_waiting: Maximum number of tasks that wait to begin; None for no limit.

    Raises:
        TraceFileError: If the description of the model in the trace is damaged.
        OptionError: If `tokenizer` is needed and None, or is that of another model.
    """

    def __init__(self, trace: Trace, tokenizer: Vocabulary | None, *, max_waiting: int | None = None) -> None:
        model = DescribedModel(replayed_vocabulary(trace, tokenizer), limits_of(trace), identity_of(trace))
        self.model, self.check = model, check_of(trace)
        self._searches = searches_of(trace)
        rows = RecordedRows(trace)
        self._rows = rows
        readers: WeakKeyDictionary[Job, TraceReader] = WeakKeyDictionary()

        def reader_of(job: Job) -> TraceReader:
            if job not in readers:
                context = MemoryKind.MAIN if len(job.prompt) else MemoryKind.LOGLIKELIHOOD
                readers[job] = TraceReader(rows, model, job.task, context)
            return readers[job]

        # No time passes for deadlines: the clock of a replay is not that of the model.
        self.thread: PathThread = PathThread(
            _NoReader(), model.limits, max_active=_ANY, max_waiting=max_waiting, clock=lambda: 0.0, reader_of=reader_of
        )

    def session(self, group: TaskGroup, model: ModelDescription) -> Session:
        n_together, max_named = self._searches["n_together"], self._searches["max_named"]
        return Session(group, model, self.check, memories=self, n_together=n_together, max_named=max_named)

    def require_whole_rows(self, what: str, *, instead: str = "") -> None:
        del what, instead

    @contextmanager
    def open_memory(self, context: IntArray) -> Iterator[CanonicalMemory]:
        """Yield a memory in which scores too close to call are evaluated again."""
        del context
        yield _ReplayedMemory(self._rows, self.model)


class _ReplayedMemory:
    """A `CanonicalMemory` (where close scores are evaluated again) on a trace."""

    def __init__(self, rows: RecordedRows, model: ModelDescription) -> None:
        self._rows, self._model, self.spent = rows, model, Cost()

    def work(self, task: Task[R]) -> tuple[R, Cost]:
        """Run a task to its end on recorded rows; return its result and its cost."""
        reader, job = TraceReader(self._rows, self._model, task, MemoryKind.CANONICAL), Job(task)
        job.account = None  # its prompt is no cache hit
        scheduler = PathScheduler(
            _NoReader(), self._model.limits, max_active=1, wake=lambda: None, reader_of=lambda _: reader
        )
        scheduler.submit(job)
        while not job.future.done():
            scheduler.step()
        answer: R = job.future.result()
        return answer, job.cost


class TraceReader:
    """A `RowReader` that finds the rows of one task in a trace.

    Args:
        rows: The rows of the trace.
        model: The recorded model.
        task: The task.
        context: The memory in which the task's rows are evaluated.
    """

    def __init__(self, rows: RecordedRows, model: ModelDescription, task: Task[Any], context: MemoryKind) -> None:
        self._rows, self._model, self._task = rows, model, task
        self._contexts = [context]
        if context is not MemoryKind.CANONICAL:
            self._contexts = [MemoryKind.LOGLIKELIHOOD, MemoryKind.MAIN]
            self._contexts.sort(key=lambda one: one is not context)
        self._ranks: dict[int, int] | None = None
        self._n_read = 0

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the capacity that was offered when this ask was recorded.

        What a search asks for depends on it, and it depended on the other tasks of that
        time. For an ask that was not recorded, it is the capacity of the whole model.
        The result is at least `floor`.
        """
        limits = self._model.limits
        offered: Sequence[int] = limits.rows_per_call, limits.nodes, limits.sequences
        if self._ranks:
            steps = self._rows.trace.tasks[min(self._ranks, key=self._ranks.__getitem__)].steps
            if self._n_read < len(steps):
                offered = steps[self._n_read].step.offered.tolist()
        return Capacity(*map(max, offered, (floor.rows, floor.nodes, floor.sequences)))

    def answer(self, paths: Sequence[IntArray], reads: Reads) -> Answer:
        """Return the rows after some paths, with the values that `reads` names.

        Raises `MissingRowError` if a row, or a value of it, was not recorded, and
        `WholeRowsError` if whole rows are read and none were recorded.
        """
        trace = self._rows.trace
        if len(reads.whole) and not trace.header.full_rows:
            raise WholeRowsError("this request", words("record the trace with `full_rows=True`"))
        computed: list[bytes] = []

        def signature(row: int) -> bytes:
            computed[:] = computed or signatures(reads)
            return computed[row]

        if self._ranks is None:  # its first rows
            self._ranks = self._rows.rank_tasks(self._contexts[0], self._task, reads)
        n_context = len(self._task.prompt)
        sources = [
            [
                source
                for context in self._contexts
                for source in self._rows.sources(
                    _path_key(context, n_context, path), partial(signature, row), self._ranks
                )
            ]
            for row, path in enumerate(paths)
        ]
        try:
            rows = rebuild_rows(reads, sources, trace.header.n_tokens)
        except NotRecordedError as error:
            raise self._missing_row_error(paths[error.row], error.what if sources[error.row] else "the row") from None
        self._n_read += 1
        return Answer(rows, Cost(model_calls=1, rows=len(paths)))

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Callable[[Answer | BaseException], None],
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        """Call `done` at once with the answer or its error (see `RowStarter`)."""
        del cancellation, priority
        try:
            answer = self.answer(paths, reads)
        except SelectrieError as error:
            done(error)
        else:
            done(answer)

    def _missing_row_error(self, path: IntArray, what: str) -> MissingRowError:
        """Return the error for a value `what` of the row after a path."""
        trace = self._rows.trace
        shown = "".join(map(self._model.vocabulary.show, path[-_SHOWN_TOKENS:].tolist()))
        is_torn = "" if trace.tail.is_complete else ", whose end is missing,"
        return MissingRowError(shown, what, f"{trace.path}{is_torn}")


class _NoReader:
    """A `RowReader` for a thread in which each task has its own reader; unused."""

    def capacity(self, floor: Capacity) -> Capacity:
        return floor

    def start(self, *asked: Any, **how: Any) -> None:
        """Raise `InternalError`: nothing is read here."""
        del asked, how
        raise InternalError("a task of a trace has no reader")

    def flush(self) -> None:
        """Do nothing."""

    clear = close = flush


class RecordedRows:
    """The rows of a trace, found by their token path.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

        self._turns: dict[object, Iterator[int]] = {}

    def rank_tasks(self, context: MemoryKind, task: Task[Any], reads: Reads) -> dict[int, int]:
        """Rank the recorded tasks with the kind, prompt and first read of a new task.

        Returns a dict from the number of a recorded task to its rank, of which the
        lowest is preferred. Each call lets the next task, in the order of recording,
        come first, and after the last one the first again.
        """
        key = context, type(task).__name__, _token_bytes(task.prompt), *signatures(reads)
        several = self._by_beginning.get(key, ())
        turn = next(self._turns.setdefault(key, count())) if several else 0
        return {number: (at - turn) % len(several) for at, number in enumerate(several)}

    def sources(self, key: bytes, signature: Callable[[], bytes], ranks: Mapping[int, int]) -> list[RowSource]:
        """Return the places where a row was recorded, the preferred one first.

        If the same values of the row were read several times, the reading of the task
        that is best in `ranks` is preferred. Without such a task, the readings take
        turns.

        Args:
            key: Key of the row's path, as `_path_key` returns it.
            signature: Returns the signature of the values that are read now.
            ranks: Ranks of recorded tasks, as `rank_tasks` returns them.
        """
        found = self._by_path.get(key, ())
        if len(found) < 2:
            return [*found]
        wanted = signature()
        same = [one for one in found if one[0].signature(one[1]) == wanted]
        ranked = [one for one in same if one[0].step.task in ranks]
        if ranked:
            return [min(ranked, key=lambda one: ranks[one[0].step.task]), *found]
        turn = next(self._turns.setdefault((key, wanted), count())) if same else 0
        return [*same[turn % len(same) :][:1], *found] if same else [*found]

    @cached_property
    def _by_beginning(self) -> dict[object, list[int]]:
        """Return the numbers of the tasks by memory, kind, prompt and first read."""
        found: dict[object, list[int]] = {}
        for number, task in enumerate(self.trace.tasks):
            if task.steps:
                key = task.context, task.kind, _token_bytes(task.prompt), task.steps[0].signature(0)
                found.setdefault(key, []).append(number)
        return found

    @cached_property
    def _by_path(self) -> dict[bytes, list[RowSource]]:
        """Return the places of each row by the key of its path."""
        found: dict[bytes, list[RowSource]] = {}
        for task in self.trace.tasks:
            for key, source in _keyed_rows(task):
                found.setdefault(key, []).append(source)
        return found


def _keyed_rows(task: RecordedTask) -> Iterator[tuple[bytes, RowSource]]:
    """Yield the key of the path and the place of each row that a task read."""
    states = [_start_digest(task.context, len(task.prompt))]
    states[0].update(_token_bytes(task.prompt))
    tokens = np.array(task.token, dtype=np.int32).tobytes()
    for row in range(1, len(task.up)):
        state = states[task.up[row]].copy()
        state.update(tokens[4 * row : 4 * row + 4])
        states.append(state)
    for values, rows in zip(task.steps, task.rows, strict=True):
        for index, row in enumerate(rows):
            yield states[row].digest(), (values, index)


def _start_digest(context: MemoryKind, n_context: int) -> Any:
    """Return the hash object of a path's key before the first token.

    It covers the memory and, for a row evaluated again because scores were too close,
    the number of tokens of its context, on which its bits depend.
    """
    state = blake2b(digest_size=_DIGEST_BYTES)
    state.update(b"%d %d " % (context, n_context if context is MemoryKind.CANONICAL else 0))
    return state


def _path_key(context: MemoryKind, n_context: int, path: IntArray) -> bytes:
    """Return the key of a row: a digest of its memory and its token path."""
    state = _start_digest(context, n_context)
    state.update(_token_bytes(path))
    digest: bytes = state.digest()
    return digest


def _token_bytes(tokens: IntArray) -> bytes:
    return np.ascontiguousarray(tokens, dtype=np.int32).tobytes()


def identity_of(trace: Trace) -> ModelIdentity:
    """Return the identity of the recorded model.

    Raises `TraceFileError` if the header is damaged.
    """
    fields = _check_fields(trace, "identity", _parse_object(trace, "identity"), _IDENTITY)
    if fields["precision"] not in (REMOTE, *(one.value for one in Precision)):
        raise _header_error(trace, "precision")
    return ModelIdentity(**fields)


def check_of(trace: Trace) -> SelfCheck | None:
    """Return the recorded self-check (measured precision), or None if there was none.

    Raises `TraceFileError` if the header is damaged.
    """
    found = _parse(trace, "check")
    if found is None:
        return None
    try:
        return SelfCheck(**_check_fields(trace, "check", found, _CHECK))
    except OptionError as error:
        raise _header_error(trace, "check") from error


def limits_of(trace: Trace) -> Limits:
    """Return the limits of the recorded model.

    Raises `TraceFileError` if the header is damaged.
    """
    found = dict(_parse_object(trace, "limits"))
    sizes, cost, idle = (found.pop(name, None) for name in ("batch_sizes", "call_cost", "max_idle_rows"))
    plain = _check_fields(trace, "limits", found, _LIMITS)
    try:
        _check_counts(trace, [idle] if idle is not None else [])
        pairs = [(rows, seconds) for rows, seconds in sizes["buckets"]]
        _check_counts(trace, [sizes["multiple"], *(rows for rows, _ in pairs), *cost.values()])
        return Limits(
            **plain | {"kind": ModelKind(plain["kind"])},
            max_idle_rows=idle,
            batch_sizes=BatchSizes(sizes["multiple"], tuple(pairs)),
            call_cost=CallCost(**cost),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OptionError) as error:
        raise _header_error(trace, "limits") from error


def searches_of(trace: Trace) -> dict[str, int | None]:
    """Return the recorded `Session`'s settings of searches, as its arguments.

    They are `n_together` and `max_named`. Raises `TraceFileError` if the header is
    damaged.
    """
    found = _parse_object(trace, "searches")
    if found.keys() != {"n_together", "max_named"}:
        raise _header_error(trace, "searches")
    _check_counts(trace, [value for value in found.values() if value is not None])
    return found


def _parse(trace: Trace, name: str) -> Any:
    """Return the JSON value of a field of the header."""
    try:
        return json.loads(getattr(trace.header, name))
    except (ValueError, RecursionError) as error:
        raise _header_error(trace, name) from error


def _parse_object(trace: Trace, name: str) -> dict[str, Any]:
    """Return a field of the header, which must be a JSON object."""
    found = _parse(trace, name)
    if not isinstance(found, dict):
        raise _header_error(trace, name)
    return found


def _check_fields(trace: Trace, name: str, found: Any, kinds: dict[str, type]) -> dict[str, Any]:
    """Return `found` if it is an object with exactly the fields and types of `kinds`.

    Raises `TraceFileError` about the header's field `name` otherwise.
    """
    if not isinstance(found, dict) or {key: type(value) for key, value in found.items()} != kinds:
        raise _header_error(trace, name)
    _check_counts(trace, [value for value in found.values() if type(value) is int])
    return found


def _check_counts(trace: Trace, values: list[Any]) -> None:
    """Raise `TraceFileError` unless all values are integers from 0 to `_MAX_COUNT`."""
    if not all(type(value) is int and 0 <= value <= _MAX_COUNT for value in values):
        raise _header_error(trace, "header")


def _header_error(trace: Trace, name: str) -> TraceFileError:
    return TraceFileError(str(trace.path), f"what its header says about the model is no {name}")
