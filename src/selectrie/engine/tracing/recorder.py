"""Adds to a trace what every task of an engine is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from selectrie.core.rows import DenseRows, Reads, Rows
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.decoding.task import Ask, Task
from selectrie.decoding.trie.prompt_rows import KnownValues, RowValues
from selectrie.engine.scheduler.observer import TaskObserver, reads_whole_rows
from selectrie.engine.tracing.subjects import name_of, subject_digest
from selectrie.errors import (
    CancelledError,
    DeadlineError,
    DecodeInterrupted,
    IncompatibleOptionsError,
    NonFiniteLogitsError,
    OptionRef,
    words,
)
from selectrie.traces.records import Begin, Context, ContextCost, End, Ending, Lookup, Request
from selectrie.traces.told import AllowedSets, copied_values
from selectrie.traces.writer import Numbered, TraceWriter

MethodT = TypeVar("MethodT", bound=Callable[..., None])

logger = logging.getLogger(__name__)

_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_NO_FLAGS = np.empty(0, dtype=np.uint8)
_MAX_INT32 = 2**31 - 1


class Recorder:
    """An `Observer` that adds to a trace what tasks are told.

    Args:
        writer: The trace.
        full_rows: Whether tasks may read whole rows.
    """

    def __init__(self, writer: TraceWriter, *, full_rows: bool) -> None:
        self._writer, self._full_rows = writer, full_rows
        self._last: tuple[object, Numbered] | None = None
        self._allowed = AllowedSets()

    def begin(self, task: Task[Any], subject: object, *, is_canonical: bool = False) -> TaskObserver:
        if not self._full_rows and reads_whole_rows(task):
            raise IncompatibleOptionsError(
                OptionRef("full_rows", value=False),
                f"a request that reads whole rows ({type(task).__name__})",
                words(
                    "record with `full_rows=True`; each row then takes up to 4 bytes for each token of the vocabulary"
                ),
            )
        context = Context.CANONICAL if is_canonical else Context.MAIN
        return self.recorded_task(subject, context, type(task).__name__, task.prompt)

    def recorded_task(self, subject: object, context: Context, kind: str, prompt: IntArray) -> RecordedTask:
        """Add the beginning of a task, and return what adds the rest of it."""
        begin = Begin(0, context, kind, np.array(prompt, dtype=np.int32))
        return RecordedTask(self._writer, self._writer.begin(self._request(subject), begin), self._allowed)

    def begin_sequences(self, subject: object) -> TaskObserver:
        task = self.recorded_task(subject, Context.LOGLIKELIHOOD, "Sequences", _NO_IDS)
        task.told(Reads(0), DenseRows(np.empty((0, 0), dtype=np.float32)))
        return task

    def known_values(self, subject: object, known: KnownValues) -> KnownValues:
        return _RecordedLookups(known, self._writer, self._request(subject))

    def context_cost(self, subject: object, context: IntArray, cost: Cost) -> None:
        record = ContextCost(
            0, np.array(context, dtype=np.int32), cost.model_calls, cost.rows, cost.rows_padded, cost.decode_s
        )
        self._writer.of_request(self._request(subject), record)

    def _request(self, subject: object) -> Numbered:
        last = self._last
        if last is not None and last[0] is subject:
            return last[1]
        # A subject does not change, so its digest can be made on the writer's thread.
        request = self._writer.request(lambda: Request(name_of(subject), subject_digest(subject)))
        self._last = subject, request
        return request


def _never_raises(method: MethodT) -> MethodT:
    """Wrap a method of `RecordedTask` so that an error ends the task's recording."""

    @wraps(method)
    def guarded(self: RecordedTask, *args: Any, **kwargs: Any) -> None:
        if self._is_broken:
            return
        try:
            method(self, *args, **kwargs)
        except NonFiniteLogitsError:  # the task will raise it
            self._is_broken = True
        except Exception:
            logger.exception("a task is not recorded any further")
            self._is_broken = True

    return guarded  # type: ignore[return-value]


class RecordedTask:
    """A `TaskObserver` that adds steps to a trace."""

    def __init__(self, writer: TraceWriter, task: Numbered, allowed: AllowedSets) -> None:
        self._writer, self._task, self._allowed = writer, task, allowed
        self._ask = _fields_of_ask(None, None)
        self._is_broken = False

    @_never_raises
    def asked(self, capacity: Capacity, ask: Ask) -> None:
        self._ask = _fields_of_ask(capacity, ask)

    @_never_raises
    def told(self, reads: Reads, rows: Rows) -> None:
        self._writer.step(self._task, self._ask, copied_values(rows, reads, self._allowed))

    @_never_raises
    def ended(self, cost: Cost, error: BaseException | None, *, is_expired: bool) -> None:
        ending = Ending.EXPIRED if is_expired else Ending.RESULT
        if error is not None and not (is_expired and isinstance(error, DeadlineError)):
            ending = Ending.CANCELLED if isinstance(error, CancelledError | DecodeInterrupted) else Ending.FAILED
        counts = cost.model_calls, cost.rows, cost.rows_repeated, cost.rows_padded
        self._writer.end(self._task, End(0, ending, *counts, decode_s=cost.decode_s))


def _fields_of_ask(capacity: Capacity | None, ask: Ask | None) -> dict[str, Any]:
    if capacity is None or ask is None:
        return {"capacity": _NO_IDS, "parents": _NO_IDS, "tokens": _NO_IDS, "wanted": _NO_FLAGS}
    return {
        "capacity": np.array(
            [min(one, _MAX_INT32) for one in (capacity.rows, capacity.nodes, capacity.sequences)], dtype=np.int32
        ),
        "parents": np.array(ask.parents, dtype=np.int32),
        "tokens": np.array(ask.tokens, dtype=np.int32),
        "wanted": np.array(ask.wanted, dtype=np.uint8),
    }


class _RecordedLookups:
    """Values that were read before, with a record of each that is looked up."""

    def __init__(self, known: KnownValues, writer: TraceWriter, request: Numbered) -> None:
        self._known, self._writer, self._request = known, writer, request

    def get(self, key: bytes) -> RowValues | None:
        values = self._known.get(key)
        self._writer.of_request(self._request, _lookup(key, values))
        return values

    def put(self, key: bytes, values: RowValues) -> None:
        self._known.put(key, values)


def _lookup(key: bytes, values: RowValues | None) -> Lookup:
    name = np.frombuffer(key, dtype=np.uint8)
    if values is None:
        return Lookup(0, name, is_known=False)
    return Lookup(
        0,
        name,
        is_known=True,
        best=values.best,
        ids=np.array(list(values.logp), dtype=np.int32),
        logp=np.array(list(values.logp.values()), dtype=np.float64),
        n_top=values.n_top,
        top_ids=np.array([token for token, _ in values.top], dtype=np.int32),
        top_logp=np.array([logp for _, logp in values.top], dtype=np.float64),
    )
