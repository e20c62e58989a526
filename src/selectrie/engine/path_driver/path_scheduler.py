"""Runs jobs on rows that are read by their token path."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from selectrie.core.path_model import Answer, Cancellation, RowReader, RowStarter
from selectrie.core.types import IntArray, Limits
from selectrie.decoding.task import Ask
from selectrie.engine.scheduler.job import LOOK_AGAIN_S, Job, end_early
from selectrie.engine.scheduler.model_thread import JobThread
from selectrie.engine.scheduler.scheduler import JobScheduler, Load, copy_error
from selectrie.errors import ProtocolError
from selectrie.options import at_least


class JobPaths:
    """The local rows of a job, each stored as its parent's number and a token.

    Row 0 is the end of the prompt. A row that was released keeps its number.

    Args:
        prompt: int32[T], the prompt.
    """

    def __init__(self, prompt: IntArray) -> None:
        self._prompt = prompt
        self._up, self._token = [0], [0]

    def of_prompt(self) -> Sequence[IntArray]:
        """Return a sequence with the path of row 0 alone."""
        return _Paths(self, [0])

    def add(self, ask: Ask) -> Sequence[IntArray]:
        """Append the nodes of an ask as rows, and return the paths of the wanted ones.

        Wanted are the nodes whose logits the task reads. Each path is the whole prompt
        and the tokens from its end to the node. Raises `ProtocolError` for a parent
        that does not exist.
        """
        first = len(self._up)
        parents = [parent if parent >= 0 else first + ~parent for parent in ask.parents.tolist()]
        for index, parent in enumerate(parents):
            if parent >= first + index:
                raise ProtocolError(f"asked for a child of row {parent}; there are {first + index}")
        self._up += parents
        self._token += ask.tokens.tolist()
        return _Paths(self, (first + np.flatnonzero(ask.wanted)).tolist())

    def path(self, row: int) -> IntArray:
        """Return the token path of a row, int32[]."""
        below = []
        while row:
            below.append(self._token[row])
            row = self._up[row]
        return np.concatenate([self._prompt, np.array(below[::-1], dtype=np.int32)])


class _Paths(Sequence["IntArray"]):
    """The paths of some rows, each built when it is indexed."""

    def __init__(self, paths: JobPaths, rows: list[int]) -> None:
        self._paths, self._rows = paths, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> IntArray: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[IntArray]: ...
    def __getitem__(self, index: int | slice) -> IntArray | Sequence[IntArray]:
        if isinstance(index, slice):
            return _Paths(self._paths, self._rows[index])
        return self._paths.path(self._rows[index])


class PathScheduler(JobScheduler):
    """Runs jobs on a `RowReader`. No call of a model runs on its thread.

    Args:
        reader: Reads the rows.
        limits: The maximum capacity of a job.
        max_active: Number of jobs that are under way at once. A job of higher priority
            than all of these begins in addition.
        wake: Called in any thread when rows have arrived, so that `step` is called.
        clock: Returns the seconds that deadlines are compared with.
        reader_of: Returns the reader of a job's rows; None for `reader`.
    """

    def __init__(
        self,
        reader: RowReader,
        limits: Limits,
        *,
        max_active: int,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        reader_of: Callable[[Job], RowStarter] | None = None,
    ) -> None:
        super().__init__(limits, clock)
        self._reader, self._max_active, self._wake = reader, max_active, wake
        self._reader_of: Callable[[Job], RowStarter] = (lambda _: reader) if reader_of is None else reader_of
        self._active: dict[Job, _Progress] = {}
        self._arrived: deque[tuple[Job, Answer | BaseException]] = deque()

    @property
    def wait_s(self) -> float | None:
        """Return the seconds until the next deadline; 0 if rows or jobs wait now.

        None means that there is no deadline to wait for.
        """
        if self._arrived or (self._waiting and not self._active):
            return 0.0
        deadlines = [job.deadline for job in (*self._active, *self._waiting) if job.deadline is not None]
        return max(0.0, min(deadlines) - self._clock()) if deadlines else None

    def step(self) -> None:
        """Give jobs the rows that have arrived, and start to read what they ask for."""
        end_early([*self._active, *self._waiting], self._clock(), self._end)
        while self._arrived:
            job, answer = self._arrived.popleft()
            if job in self._active:
                self._take_rows(job, answer)
        self._admit_waiting()
        self._reader.flush()
        self.load = Load(len(self._active), len(self._waiting), self._limits.nodes, self._limits.sequences)

    def fail_all(self, error: BaseException) -> None:
        """End every job with this error."""
        for job in [*self._active, *self._waiting]:
            self._end(job, error=copy_error(error))
        self.load = Load(0, 0, self._limits.nodes, self._limits.sequences)

    def forget_all(self) -> None:
        """Drop all cached rows."""
        self._reader.clear()

    def _admit_waiting(self) -> None:
        """Begin waiting jobs in order of rank while fewer than `max_active` are active.

        A job with a higher priority than an active one begins regardless, so that it
        does not wait for less important work.
        """
        while self._waiting:
            job = self._waiting[0]
            lowest = min((active.priority for active in self._active), default=job.priority - 1)
            if len(self._active) >= self._max_active and job.priority <= lowest:
                return
            self._waiting.pop(0)
            progress = self._active[job] = _Progress(job.prompt)
            job.admit()
            if job.has_prompt_row:  # the prompt is empty
                self._continue(job)
            else:
                self._start(job, progress.paths.of_prompt())

    def _start(self, job: Job, paths: Sequence[IntArray]) -> None:
        """Start to read the rows at these paths for a job."""

        def done(answer: Answer | BaseException) -> None:
            self._arrived.append((job, answer))
            self._wake()

        cancellation = self._active[job].cancellation = Cancellation()  # it refers to the requests to cancel
        try:
            self._reader_of(job).start(paths, job.task.reads(), done, cancellation, priority=job.priority)
        except BaseException as error:  # noqa: BLE001 - a task is foreign code; the error goes to its caller
            self._end(job, error=error)

    def _take_rows(self, job: Job, answer: Answer | BaseException) -> None:
        """Give a job its rows, and start its next ask."""
        if not isinstance(answer, Answer):
            self._end(job, error=copy_error(answer))
            return
        job.spend(answer.cost)
        try:
            job.tell(answer.rows, job.ask)
            job.has_prompt_row = True
            if job.on_step is not None:
                job.on_step()
        except BaseException as error:  # noqa: BLE001 - as above
            self._end(job, error=error)
            return
        self._continue(job)

    def _continue(self, job: Job) -> None:
        """Start the next ask of a job, or end the job."""
        try:
            paths = self._next_paths(job)
            if paths is None:
                self._end(job, result=job.task.result())
                return
        except BaseException as error:  # noqa: BLE001 - as above
            self._end(job, error=error)
            return
        self._start(job, paths)

    def _next_paths(self, job: Job) -> Sequence[IntArray] | None:
        """Return the paths that a task asks for next; None if it has finished."""
        ask = job.next_ask(self._reader_of(job).capacity(job.floor))
        if ask is None:
            return None
        job.ask = ask
        return self._active[job].paths.add(ask)

    def _end(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None:
        """Cancel the reading for a job, and set its future."""
        progress = self._active.pop(job, None)
        if progress is None:
            self._waiting.remove(job)
        try:
            if progress is not None:
                progress.cancellation.cancel()
        finally:
            job.answer(result, error)


class _Progress:
    """The rows of a job under way, and the cancellation of their reading."""

    __slots__ = ("cancellation", "paths")

    def __init__(self, prompt: IntArray) -> None:
        self.paths, self.cancellation = JobPaths(prompt), Cancellation()


class PathThread(JobThread[PathScheduler]):
    """Runs the tasks of an engine on a background thread, which alone accesses them.

    Rows are read by other threads, which only report that rows have arrived.
    """

    def __init__(
        self,
        reader: RowReader,
        limits: Limits,
        *,
        max_active: int,
        max_waiting: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        reader_of: Callable[[Job], RowStarter] | None = None,
    ) -> None:
        """Start the thread.

        Args:
            reader: Reads the rows. The thread closes it.
            limits: The maximum capacity of a task.
            max_active: Number of tasks that are under way at once (`PathScheduler`).
            max_waiting: Maximum number of tasks that wait to begin; None for no limit.
            clock: Returns the seconds that deadlines are compared with.
            reader_of: Returns the reader of a task's rows; None for `reader`.
        """
        at_least("max_waiting", max_waiting, 1)
        self._reader = reader
        scheduler = PathScheduler(
            reader, limits, max_active=max_active, wake=self._wake, clock=clock, reader_of=reader_of
        )
        super().__init__(scheduler, again_s=LOOK_AGAIN_S, max_waiting=max_waiting, clock=clock)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled; requests that serve no other job are aborted."""
        job.cancelled = True
        if self._process == os.getpid():
            self._wake()

    def interrupt(self) -> None:
        """Do nothing: no call of a model runs on the thread."""

    def _wake(self) -> None:
        """Wake the thread, so that it does a step."""
        self._inbox.put(None)

    def _free(self) -> None:
        """Close the reader."""
        self._reader.close()
