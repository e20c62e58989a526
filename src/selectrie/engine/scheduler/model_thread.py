"""The thread that owns a model. Calls from any thread queue to it; it works while there is work and sleeps otherwise."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from selectrie.core.model import Model
from selectrie.core.types import Cost, SelfCheck
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.scheduler import Load, Scheduler
from selectrie.errors import (
    CancelledError,
    ClosedError,
    DecodeInterrupted,
    ForkedError,
    OptionError,
    QueueFullError,
)
from selectrie.options import at_least

R = TypeVar("R")

_AGAIN_S = 0.005
"""Seconds between two interrupts of work that goes on: a model forgets one that comes between two of its decodes."""

_LEAVING_S = 0.2
"""Seconds between two looks at who still uses the memory of a model that is closed: Ctrl-C may keep one who leaves from
saying so."""


class Handle(Generic[R]):
    """A task under way. Who forgets the handle cancels the task: it is kept as long as the answer is wanted."""

    def __init__(self, owner: Owner, job: Job) -> None:
        self._owner, self._job = owner, job
        # Of the job no more than a weak reference: its task or callback may hold, by way of the engine, this very handle.
        weakref.finalize(self, _abandon, owner, weakref.ref(job)).atexit = False

    def start(self) -> None:
        """Queue the task. A handle made before it is queued can be cancelled whenever Ctrl-C comes."""
        self._owner.queue(self._job)

    def result(self) -> R:
        """Wait for the answer. Ctrl-C cancels the task, in the middle of a decode too, and is raised again.

        Raises `ForkedError` in a child process where there is none: none will come.
        """
        if not self.is_done:
            self._owner.check_process()
        try:
            answer: R = self._job.future.result()
        except KeyboardInterrupt:
            self.cancel()
            raise
        return answer

    def cancel(self) -> None:
        """Stop the task; its nodes are given back. `result` raises `CancelledError`."""
        self._owner.cancel(self._job)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call a function once when the task has ended, on the model's thread; at once where it has."""
        self._job.future.add_done_callback(lambda _: callback())

    @property
    def is_done(self) -> bool:
        """Has it ended, one way or another?"""
        return self._job.future.done()

    @property
    def cost(self) -> Cost:
        """What it has cost so far."""
        return self._job.cost


def _abandon(owner: Owner, job: weakref.ref[Job]) -> None:
    """Cancel a job whose handle is gone. Runs wherever the garbage collector does, so it takes no lock."""
    under_way = job()
    if under_way is not None and not under_way.answered:
        owner.cancel(under_way)


def _move(source: list[bool], target: list[bool]) -> bool:
    """Move an item from one list to another, False where there is none. No signal and no thread comes in between, since
    no Python runs there."""
    try:
        target.extend(islice(iter(source.pop, None), 1))
    except IndexError:
        return False
    return True


class _Call:
    """A function for the model's thread. is_stopped: nobody waits for it any more."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.future: Future[Any] = Future()
        self.is_stopped = False


class Owner:
    """Runs a scheduler on a thread of its own, which alone touches the model.

    Threads meet at a `SimpleQueue` and at single assignments, without a lock: a signal handler, a finalizer or a forked
    child may come at any point, and would wait for ever for a lock that is held there.
    """

    def __init__(
        self, model: Model, *, max_waiting: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """max_waiting: tasks that may wait to begin; None: any number. clock: seconds, for deadlines."""
        at_least("max_waiting", max_waiting, 1)
        self._clock = clock
        self._max_waiting = max_waiting
        self._places = [True] * (max_waiting or 0)  # one for each task that may still come to wait
        self.scheduler = Scheduler(model, clock=clock)
        self._model = model
        self.check: SelfCheck | None = None  # of the model, once it was made; set by the engine
        self._inbox: SimpleQueue[_Call | Job | None] = SimpleQueue()
        self._running: _Call | Scheduler | None = None
        self._users: dict[int, int] = {}
        self._closing = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="selectrie-model", daemon=True)
        self._thread.start()

    def handle(
        self,
        task: Task[R],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        linger: bool = False,
    ) -> Handle[R]:
        """A task that is not queued yet. on_step: called on the model's thread when its prompt's row is known and after each of its model calls.

        priority: higher goes first. deadline_s: seconds from now; a task that has none left ends with what it has where it
        can (`jobs.Expiring`), else with `DeadlineError`. linger: its nodes stay as cache when it has ended.
        """
        if deadline_s is not None and not deadline_s > 0:
            raise OptionError("deadline_s", deadline_s, "seconds above 0, or None for no deadline")
        deadline = None if deadline_s is None else self._clock() + deadline_s
        return Handle(self, Job(task, on_step, priority=priority, deadline=deadline, linger=linger))

    def submit(
        self,
        task: Task[R],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> Handle[R]:
        """Queue a task, as `handle` makes it."""
        handle = self.handle(task, on_step, priority=priority, deadline_s=deadline_s)
        try:
            handle.start()
        except BaseException:
            handle.cancel()
            raise
        return handle

    def queue(self, job: Job) -> None:
        """Let the model's thread work at a job. Raises `QueueFullError`, `ClosedError` or `ForkedError`."""
        with self.using():
            try:
                if self._max_waiting is not None:
                    self._take_place(job, self._max_waiting)
                self._put(job)
            except BaseException:
                job.leave_queue()
                raise

    def _take_place(self, job: Job, most: int) -> None:
        place: list[bool] = []
        job.on_queued_no_more = partial(_move, place, self._places)  # before: Ctrl-C may come as soon as it has one
        if not _move(self._places, place):
            raise QueueFullError(most)

    def now(self) -> float:
        """Seconds on the clock that deadlines are held against."""
        return self._clock()

    def load(self) -> Load:
        """How busy the model is, as of its last call; tasks that came in since count as waiting."""
        load = self.scheduler.load
        return replace(load, n_waiting=load.n_waiting + self._inbox.qsize())

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, between two steps, and return what it returns.

        It must be one that can be done again: a stray interrupt starts it anew. Ctrl-C stops it, in the middle of a decode
        too, its own or that of a `solo` model, and is raised again when it has ended.
        """
        call = _Call(function)
        with self.using():
            try:
                self._put(call)
                answer: R = call.future.result()
            except KeyboardInterrupt:
                self._stop(call)
                raise
            return answer

    def _put(self, item: _Call | Job) -> None:
        if threading.current_thread() is self._thread:
            expected = "a function that asks nothing of the engine: it runs on the thread that would have to answer"
            raise OptionError("on_progress", "a call of the engine", expected)
        self._inbox.put(item)

    def _stop(self, call: _Call) -> None:
        """Take a call back where it is queued; else interrupt it until it has ended."""
        call.is_stopped = True
        while not (call.future.cancel() or call.future.done()):
            self._interrupt(call)
            wait([call.future], _AGAIN_S)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled; the decode that is running is stopped unless somebody else waits for it."""
        job.cancelled = True
        if self._process == os.getpid() and all(sharer.cancelled for sharer in self.scheduler.calling):
            self._interrupt(self.scheduler)

    def _interrupt(self, work: _Call | Scheduler) -> None:
        """Stop the decode of this work. One of other work that starts at this very moment may be hit: it is done again."""
        if self._running is work:
            self._model.interrupt()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the model's memory until the block ends: its tokenizer reads it on the caller's thread.

        Raises `ClosedError` or `ForkedError`. A `close` meanwhile ends waits in the block with `ClosedError`. One that
        comes from within the block, out of a callback or a signal handler, is complete when the block has ended.
        """
        self._check()
        thread = threading.get_ident()
        self._users[thread] = self._users.get(thread, 0) + 1  # nobody else touches this entry
        try:
            self._check()  # again: a close that came before sees the entry, or is seen here
            yield
        finally:
            self._users[thread] -= 1
            if not self._users[thread]:
                self._leave(thread)

    def _leave(self, thread: int) -> None:
        del self._users[thread]
        if self._closing and self._process == os.getpid():
            self._inbox.put(None)
            if not self._is_used():
                self._join()

    def _is_used(self) -> bool:
        """Is a thread within `using`? One that Ctrl-C kept from leaving altogether has left an entry of 0."""
        return any(list(self._users.values()))

    def close(self) -> None:
        """End all work with `ClosedError`, close the model, end the thread. Closing twice is fine.

        Waits for that, but where the thread would wait for the caller: on itself, and within `using`.
        """
        if self._process != os.getpid():
            return
        self._closing = True
        self._inbox.put(None)
        if not self._users.get(threading.get_ident()):
            self._join()

    def _join(self) -> None:
        if threading.current_thread() is self._thread:
            return
        while self._thread.is_alive():
            self._model.interrupt()
            self._thread.join(_AGAIN_S)

    @property
    def closed(self) -> bool:
        return self._closing

    def check_process(self) -> None:
        """Raise `ForkedError` in a child process: the thread has stayed with the parent."""
        if self._process != os.getpid():
            raise ForkedError

    def _check(self) -> None:
        self.check_process()
        if self._closing:
            raise ClosedError("the engine")

    # On the model's thread

    def _loop(self) -> None:
        while self._turn():
            pass
        self._shut()

    def _turn(self) -> bool:
        """Wait for work and do one step of it; False = closing."""
        for item in self._received(block=self.scheduler.idle):
            if isinstance(item, Job):
                self.scheduler.submit(item)
            elif item is not None:
                self._run(item)
        if self._closing:
            return False
        self._step()
        return True

    def _received(self, *, block: bool, most_s: float | None = None) -> list[_Call | Job | None]:
        """What came in since; waits for the first of it where told to, `most_s` seconds. It waits with nothing in its
        frame or its caller's: what somebody asked for last may hold the engine, which would never be forgotten."""
        try:
            items = [self._inbox.get(timeout=most_s)] if block else []
        except Empty:
            return []
        return items + [self._inbox.get() for _ in range(self._inbox.qsize())]

    def _run(self, call: _Call) -> None:
        if not call.future.set_running_or_notify_cancel():
            return
        self._running = call
        try:
            call.future.set_result(self._until_done(call))
        except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for it
            call.future.set_exception(error)
        finally:
            self._running = None

    def _until_done(self, call: _Call) -> Any:
        """What the function returns; it is called again after an interrupt that was meant for others."""
        while not self._closing:
            try:
                return call.function()
            except (DecodeInterrupted, CancelledError):  # noqa: PERF203 - the body is many decodes
                if call.is_stopped:
                    raise
        raise ClosedError("the engine")

    def _step(self) -> None:
        """One step; an error nobody foresaw ends the jobs under way instead of the thread."""
        self._running = self.scheduler
        try:
            if not self.scheduler.idle:
                self.scheduler.step()
        except BaseException as error:  # noqa: BLE001 - the thread must live on and every waiting caller must hear of it
            self.scheduler.fail_all(error)
        finally:
            self._running = None

    def _shut(self) -> None:
        error = ClosedError("the engine")
        self.scheduler.fail_all(error)
        is_used = True
        while is_used:
            is_used = self._is_used()  # asked before the inbox: who has left puts nothing into it any more
            for item in self._received(block=is_used, most_s=_LEAVING_S):
                if isinstance(item, Job):
                    item.answer(None, error)
                elif item is not None and item.future.set_running_or_notify_cancel():
                    item.future.set_exception(error)
        self._model.close()
