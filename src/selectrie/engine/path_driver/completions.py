"""Has a server draw text, as tasks beside those that read rows.

A text is a task like others, so that it has a priority, a deadline and a place in the
queue, and ends with its group or its engine. It reads no rows: its reader answers when
the server has drawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from selectrie.core.completion import SupportsCompletion
from selectrie.core.path_model import Cancellation
from selectrie.core.reads import Reads
from selectrie.core.row_reader import Answer
from selectrie.core.rows import DenseRows
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.decoding.sampling.served_task import CompletionTask
from selectrie.errors import CancelledError, ProtocolError

Done = Callable[[Answer | BaseException], None]

_NO_VALUES = DenseRows(np.empty((1, 0), dtype=np.float32))
"""What a task is told that reads nothing."""


class CompletionPool:
    """Asks a server for text from a few threads, which end when nothing is left to ask.

    Args:
        model: What draws.
        max_threads: Number of calls that are made at once.
    """

    def __init__(self, model: SupportsCompletion, max_threads: int) -> None:
        self._model, self._max_threads = model, max_threads
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int, _Call]] = []
        self._numbers = count()
        self._n_threads = 0

    def reader_of(self, task: CompletionTask) -> CompletionReader:
        """Return what answers a task."""
        return CompletionReader(self, task)

    def add(self, call: _Call, priority: int) -> None:
        """Have a call made; those of a higher priority go first."""
        with self._lock:
            heappush(self._waiting, (-priority, next(self._numbers), call))
            if self._n_threads == self._max_threads:
                return
            self._n_threads += 1
        threading.Thread(target=self._work, name="selectrie-completion", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._n_threads -= 1
                    return
                _, _, call = heappop(self._waiting)
            call.make(self._model)
            del call  # nothing is kept while this thread waits


class _Call:
    """One call of the model, and what is done with its result."""

    def __init__(self, task: CompletionTask, done: Done, cancellation: Cancellation) -> None:
        self._task, self._done, self._cancellation = task, done, cancellation

    def make(self, model: SupportsCompletion) -> None:
        if self._cancellation.is_cancelled:
            self._done(CancelledError())
            return
        began = time.perf_counter()
        try:
            completed = model.complete(self._task.request, self._cancellation)
        except BaseException as error:  # noqa: BLE001 - a model is foreign code; the error goes to its caller
            self._done(error)
            return
        if len(completed.sequences) != self._task.request.n:
            self._done(ProtocolError(f"{len(completed.sequences)} sequences came for {self._task.request.n}"))
            return
        self._task.completed = completed
        cost = Cost(model_calls=completed.n_requests, decode_s=time.perf_counter() - began)
        self._done(Answer(_NO_VALUES, cost))


class CompletionReader:
    """Answers one `CompletionTask`. It satisfies `RowReader`."""

    def __init__(self, pool: CompletionPool, task: CompletionTask) -> None:
        self._pool, self._task = pool, task

    def capacity(self, floor: Capacity) -> Capacity:
        return floor

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Done,
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        del paths, reads
        self._pool.add(_Call(self._task, done, cancellation), priority)

    def flush(self) -> None:
        """Do nothing: every call is made by itself."""

    def clear(self) -> None:
        """Do nothing: no text is kept."""

    def close(self) -> None:
        """Do nothing: calls end with their tasks."""
