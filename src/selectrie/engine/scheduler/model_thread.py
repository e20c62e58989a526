"""Runs the tasks of an engine on a thread, which owns the model.

Other threads queue work to it. It runs while there is work and sleeps otherwise.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from selectrie.core.model import Model
from selectrie.core.types import Cost
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import LOOK_AGAIN_S, Job, Observer, Outcome
from selectrie.engine.scheduler.scheduler import JobScheduler, Load, Scheduler
from selectrie.errors import CancelledError, ClosedError, DecodeInterrupted, ForkedError, OptionError, QueueFullError
from selectrie.options import at_least
from selectrie.options.checks import DEADLINE

logger = logging.getLogger(__name__)

R = TypeVar("R")
SchedulerT = TypeVar("SchedulerT", bound=JobScheduler)

_INTERRUPT_AGAIN_S = 0.005
"""Seconds between two interrupts of running work.

A model forgets an interrupt that comes between two of its decodes.
"""

_IDLE_S = 0.1
"""Seconds without work after which one step of idle work is done."""

_LEAVING_S = 0.2
"""Seconds between two checks of whether the memory of a closed model is still in use.

Ctrl-C may keep a thread that leaves `ModelThread.using` from reporting that.
"""


class Runner(Protocol):
    """Runs the tasks of a group: the model's thread, or a second memory on that thread.

    `JobThread` describes the methods.
    """

    @property
    def observer(self) -> Observer | None: ...
    def now(self) -> float: ...
    def handle(self, job: Job) -> Handle[Any]: ...
    def queue(self, *handles: Handle[Any]) -> None: ...
    def call(self, function: Callable[[], R]) -> R: ...
    def cancel(self, job: Job) -> None: ...
    def interrupt(self) -> None: ...
    def check_process(self) -> None: ...


class Handle(Generic[R]):
    """A task that was passed to the model's thread.

    If the handle is garbage-collected, the task is cancelled.

    Attributes:
        job: The task with its state, for the thread that runs it.
    """

    def __init__(self, model_thread: Runner, job: Job) -> None:
        self._model_thread, self.job = model_thread, job
        # Only a weak reference to the job: its task or callback may hold this handle,
        # by way of the engine.
        weakref.finalize(self, _abandon, model_thread, weakref.ref(job)).atexit = False

    def result(self) -> R:
        """Wait for the task to end and return its result.

        Ctrl-C cancels the task, even in the middle of a decode, and is raised again.
        Raises `ForkedError` in a child process without a result, since the thread does
        not run there.
        """
        if not self.is_done:
            self._model_thread.check_process()
        try:
            answer: R = self.job.future.result()
        except KeyboardInterrupt:
            self.cancel()
            raise
        return answer

    def cancel(self) -> None:
        """Stop the task and release its nodes; `result` raises `CancelledError`."""
        self._model_thread.cancel(self.job)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the task ends.

        It is called on the model's thread, or here if the task has ended already.
        """
        self.job.future.add_done_callback(callback)

    @property
    def is_done(self) -> bool:
        """Return whether the task has ended, successfully or not."""
        return self.job.future.done()

    @property
    def cost(self) -> Cost:
        """Return the cost of the task so far."""
        return self.job.cost


def _abandon(model_thread: Runner, job: weakref.ref[Job]) -> None:
    """Cancel a job whose handle was garbage-collected.

    The garbage collector may call this at any point of any thread, so it takes no lock.
    """
    under_way = job()
    if under_way is not None and not under_way.answered:
        model_thread.cancel(under_way)


def _move_item(source: list[bool], target: list[bool]) -> bool:
    """Move an item from one list to another; return False if there is none.

    This is atomic: no signal handler and no other thread can run in between, since no
    Python code does.
    """
    try:
        target.extend(islice(iter(source.pop, None), 1))
    except IndexError:
        return False
    return True


class _Call:
    """A function to run on the model's thread.

    `is_stopped` is set if its caller no longer waits for it.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.future: Outcome[Any] = Outcome()
        self.is_stopped = False
        self._claims = [True]

    def claim(self) -> bool:
        """Return True to the first caller, which alone may run or drop the function."""
        return _move_item(self._claims, [])


class _Use:
    """An open `with model_thread.using()` block.

    The block is over once no reference to this object exists, since Ctrl-C may end the
    block before it has reported its end.
    """

    __slots__ = ("__weakref__", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread


class JobThread(ABC, Generic[SchedulerT]):
    """Runs a scheduler on a background thread.

    Threads communicate through a `SimpleQueue` and single assignments, without a lock.
    A signal handler, a finalizer or a forked child may run at any point, and would wait
    forever for a lock that is held at that point.

    Attributes:
        closed: Whether `close` was called.
        observer: Observes tasks from their beginning on, or None; any thread may set
            it.
    """

    def __init__(
        self, scheduler: SchedulerT, *, again_s: float, max_waiting: int | None, clock: Callable[[], float]
    ) -> None:
        """Start the thread.

        Args:
            scheduler: The scheduler, which runs the jobs.
            again_s: Seconds between two interrupts of work that is to end.
            max_waiting: Maximum number of tasks that wait to begin; None for no limit.
            clock: Returns the seconds that deadlines are compared with.
        """
        self._clock = clock
        self._max_waiting = max_waiting
        self._free_slots = [True] * (max_waiting or 0)  # one for each task that may still be queued
        self.scheduler = scheduler
        self._again_s = again_s
        # Calls, jobs that are queued together, and None, which only wakes the thread.
        self._inbox: SimpleQueue[_Call | tuple[Job, ...] | None] = SimpleQueue()
        self._arriving: set[int] = set()  # `id` of each job in the inbox, which keeps none alive
        self._running: _Call | SchedulerT | None = None
        self._uses: set[weakref.ref[_Use]] = set()
        self.closed = self._has_worked = False
        self.observer: Observer | None = None
        self._process = os.getpid()
        self._ended: Outcome[None] = Outcome()
        self._thread = threading.Thread(target=self._loop, name="selectrie-model", daemon=True)
        self._thread.start()

    def handle(self, job: Job) -> Handle[Any]:
        """Return the handle of a job that is not queued yet; see `queue`."""
        return Handle(self, job)

    def submit(
        self,
        task: Task[R],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> Handle[R]:
        """Queue a task and return its handle; `TaskGroup` describes the arguments."""
        if deadline_s is not None and not deadline_s > 0:
            raise OptionError("deadline_s", deadline_s, DEADLINE.remedy)
        deadline = None if deadline_s is None else self._clock() + deadline_s
        handle: Handle[R] = self.handle(Job(task, on_step, priority=priority, deadline=deadline))
        try:
            self.queue(handle)
        except BaseException:
            handle.cancel()
            raise
        return handle

    def queue(self, *handles: Handle[Any]) -> None:
        """Queue the tasks of handles for the model's thread.

        The thread takes up all of them in one step. The handles exist before their
        tasks are queued, so that a task can be cancelled whenever Ctrl-C comes.

        Raises `QueueFullError`, `ClosedError` or `ForkedError`; no task is queued then.
        """
        jobs = tuple(handle.job for handle in handles)
        with self.using():
            try:
                if self._max_waiting is not None:
                    self._take_slots(jobs, self._max_waiting)
                self._arriving.update(map(id, jobs))
                self._put(jobs)
            except BaseException:
                self._arriving.difference_update(map(id, jobs))
                for job in jobs:
                    job.leave_queue()
                raise

    def _take_slots(self, jobs: Sequence[Job], max_waiting: int) -> None:
        """Take a free place in the queue for each job, or raise `QueueFullError`."""
        for job in jobs:
            slot: list[bool] = []
            # Set first: Ctrl-C may come as soon as the job has a place.
            job.on_queued_no_more = partial(_move_item, slot, self._free_slots)
            if not _move_item(self._free_slots, slot):
                raise QueueFullError(max_waiting, n_tasks=len(jobs))

    def now(self) -> float:
        """Return the seconds on the clock that deadlines are compared with."""
        return self._clock()

    def load(self) -> Load:
        """Return how busy the model is, as of its last call.

        Tasks that were queued after that call count as waiting.
        """
        load = self.scheduler.load
        return replace(load, n_waiting=load.n_waiting + len(self._arriving))

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, between two steps; return its result.

        The function must be repeatable: it is run again after an interrupt that was
        meant for other work. Ctrl-C stops it, even in the middle of a decode of this
        model or of one made by `Model.new_context`, and is raised again when the
        function has ended.
        """
        call = _Call(function)
        with self.using():
            try:
                self._put(call)
                answer: R = call.future.result()
            except KeyboardInterrupt:
                self._stop_call(call)
                raise
            return answer

    def after_step(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the running step, if any, has ended.

        It is called on the model's thread, or here if the engine was closed.
        """
        call = _Call(lambda: None)
        call.future.add_done_callback(callback)
        try:
            with self.using():
                self._put(call)
        except (ClosedError, ForkedError) as error:
            call.future.set_exception(error)

    def _put(self, item: _Call | tuple[Job, ...]) -> None:
        """Put an item into the inbox; raise `OptionError` on the model's own thread."""
        if threading.current_thread() is self._thread:
            expected = "a function that calls no method of the engine: it runs on the thread that would have to answer"
            raise OptionError("on_progress", "a call of the engine", expected)
        self._inbox.put(item)

    def _stop_call(self, call: _Call) -> None:
        """Cancel a queued call; interrupt a running one until it has ended.

        If the model cannot be interrupted, this waits for the end of the call.
        """
        call.is_stopped = True
        if call.claim():
            return
        while not call.future.done():
            self._interrupt_if_running(call)
            call.future.wait(self._again_s)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled.

        The running decode is interrupted, unless it also serves a job that is not
        cancelled. If the model cannot be interrupted, the job ends after the decode.
        """
        job.cancelled = True
        if self._process == os.getpid() and all(sharer.cancelled for sharer in self.scheduler.calling):
            self._interrupt_if_running(self.scheduler)

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt the running work, if that is possible."""

    @abstractmethod
    def _free(self) -> None:
        """Free the resources of the jobs; the thread calls this last."""

    def _interrupt_if_running(self, work: _Call | SchedulerT) -> None:
        """Interrupt the running decode if it belongs to `work`.

        The interrupt may hit other work that begins at this very moment. That work is
        repeated.
        """
        if self._running is work:
            self.interrupt()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the model's memory valid until the `with` block ends.

        The block may call the model's tokenizer, which reads that memory on the
        caller's thread. If `close` is called meanwhile, waits in the block end with
        `ClosedError`. A `close` from within the block (in a callback or a signal
        handler) completes when the block ends.

        Raises:
            ClosedError: If the engine was closed.
            ForkedError: In a child process, where the thread does not run.
        """
        self._check_open()
        use = _Use(threading.get_ident())
        reference = weakref.ref(use)
        try:
            self._uses.add(reference)
            self._check_open()  # again: a close before this line sees the use, or is seen here
            yield
        finally:
            self._uses.discard(reference)
            if self.closed and self._process == os.getpid():
                self._inbox.put(None)
                if not self._is_used():
                    self._join()

    def _is_used(self, thread: int | None = None) -> bool:
        """Return whether `thread`, or any thread if it is None, is within `using`."""
        uses = [reference() for reference in tuple(self._uses)]
        return any(use is not None and thread in {None, use.thread} for use in uses)

    def close(self) -> None:
        """End all work with `ClosedError`, close the model and end the thread.

        May be called twice. Waits for the thread to end, except where that would
        deadlock: on the thread itself, and within `using`. If the model cannot be
        interrupted, the call that is running ends first.
        """
        if self._process != os.getpid():
            return
        self.closed = True
        self._inbox.put(None)
        if not self._is_used(threading.get_ident()):
            self._join()

    def _join(self) -> None:
        """Interrupt the thread's work until it has ended; do nothing on it itself."""
        if threading.current_thread() is self._thread:
            return
        while not self._ended.done():  # not `is_alive`: a join that Ctrl-C interrupts takes the thread for ended
            self.interrupt()
            self._ended.wait(self._again_s)
        self._thread.join()

    def check_process(self) -> None:
        """Raise `ForkedError` in a child process: the thread stayed with the parent."""
        if self._process != os.getpid():
            raise ForkedError

    def _check_open(self) -> None:
        """Raise `ForkedError` in a child process, and `ClosedError` after `close`."""
        self.check_process()
        if self.closed:
            raise ClosedError("the engine")

    # The methods below run on the model's thread.

    def _loop(self) -> None:
        """Receive and do work until the engine closes, and then end all work."""
        try:
            while self._do_turn():
                pass
            self._shut_down()
        finally:
            self._ended.set_result(None)

    def _do_turn(self) -> bool:
        """Receive queued work and do one step; return False if the engine is closing.

        Waits for work if there is none.
        """
        wait_s = self.scheduler.wait_s
        if wait_s is None and self._has_worked:
            wait_s = self._idle_wait_s()
        received = self._receive(block=wait_s is None or wait_s > 0, timeout_s=wait_s)
        self._has_worked |= bool(received)
        for item in received:
            if isinstance(item, tuple):
                self._arriving.difference_update(map(id, item))
                for job in item:
                    self.scheduler.submit(job)
            elif item is not None:
                self._run_call(item)
        if self.closed:
            return False
        if not received and self.scheduler.idle:
            self._do_idle_work()
        self._step()
        return True

    def _idle_wait_s(self) -> float | None:
        """Return the seconds after which an idle thread has work; None for never."""
        return None

    def _do_idle_work(self) -> None:
        """Do one step of idle work."""

    def _receive(self, *, block: bool, timeout_s: float | None = None) -> list[_Call | tuple[Job, ...] | None]:
        """Return all items queued since the last call.

        With `block`, waits up to `timeout_s` seconds for the first item, or forever if
        that is None. No local variable here or in the caller may hold a job while
        waiting: that reference would keep an abandoned engine alive.
        """
        try:
            items = [self._inbox.get(timeout=timeout_s)] if block else []
        except Empty:
            return []
        return items + [self._inbox.get() for _ in range(self._inbox.qsize())]

    def _run_call(self, call: _Call) -> None:
        """Run a queued call and set its outcome, unless its caller has dropped it."""
        if not call.claim():
            return
        self._running = call
        try:
            call.future.set_result(self._repeat_until_done(call))
        except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for it
            call.future.set_exception(error)
        finally:
            self._running = None

    def _repeat_until_done(self, call: _Call) -> Any:
        """Return the function's result, calling it again after a stray interrupt."""
        while not self.closed:
            try:
                return call.function()
            except (DecodeInterrupted, CancelledError):  # noqa: PERF203 - the body is many decodes
                if call.is_stopped:
                    raise
        raise ClosedError("the engine")

    def _step(self) -> None:
        """Do one step; an unexpected error ends all jobs, but not the thread."""
        self._running = self.scheduler
        try:
            if not self.scheduler.idle:
                self.scheduler.step()
        except BaseException as error:  # noqa: BLE001 - the thread lives on and every caller gets the error
            self.scheduler.fail_all(error)
        finally:
            self._running = None

    def _shut_down(self) -> None:
        """End all work with `ClosedError`; free all once no thread is in `using`."""
        error = ClosedError("the engine")
        self.scheduler.fail_all(error)
        is_used = True
        while is_used:
            # Checked before the inbox: a thread that has left puts nothing into it.
            is_used = self._is_used()
            for item in self._receive(block=is_used, timeout_s=_LEAVING_S):
                if isinstance(item, tuple):
                    self._arriving.difference_update(map(id, item))
                    for job in item:
                        job.answer(None, error)
                elif item is not None and item.claim():
                    item.future.set_exception(error)
        self._free()


class ModelThread(JobThread[Scheduler]):
    """Runs the tasks of a model on a thread; no other thread touches the model."""

    def __init__(
        self,
        model: Model,
        *,
        max_waiting: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        idle_work: Iterator[None] | None = None,
        before_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread.

        Args:
            model: The model to run.
            max_waiting: Maximum number of tasks that wait to begin; None for no limit.
            clock: Returns the seconds that deadlines are compared with.
            idle_work: Work on the model in small steps. One step is done whenever the
                thread has been idle for `_IDLE_S`, after its first work. An error ends
                it.
            before_close: Called on the thread before the model is freed.
        """
        at_least("max_waiting", max_waiting, 1)
        self._model, self._idle_work, self._before_close = model, idle_work, before_close
        # Work that cannot be interrupted ends by itself.
        again_s = _INTERRUPT_AGAIN_S if model.limits.can_interrupt else LOOK_AGAIN_S
        super().__init__(Scheduler(model, clock=clock), again_s=again_s, max_waiting=max_waiting, clock=clock)

    def interrupt(self) -> None:
        """Interrupt the running decode, if any."""
        self._model.interrupt()

    def _idle_wait_s(self) -> float | None:
        """Return `_IDLE_S` while there is idle work, else None."""
        return None if self._idle_work is None else _IDLE_S

    def _do_idle_work(self) -> None:
        """Do one step of the idle work, if the thread has worked before."""
        if self._idle_work is None or not self._has_worked:
            return
        try:
            next(self._idle_work)
        except StopIteration:
            self._idle_work = None
        except Exception as error:  # noqa: BLE001 - the thread lives on, as in `_step`
            logger.debug("work for idle times ended: %s", error)
            self._idle_work = None

    def _free(self) -> None:
        """Close the model."""
        try:
            self._idle_work = None
            self._before_close()
        finally:
            self._model.close()
