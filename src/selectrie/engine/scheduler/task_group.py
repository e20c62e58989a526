"""Starts and cancels the tasks of a request together, also in a second memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from selectrie.core.model import Model
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job, Observer, Outcome
from selectrie.engine.scheduler.model_thread import Handle, JobThread, Runner
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.engine.scheduler.turns import Turn
from selectrie.errors import CancelledError, ClosedError, ForkedError

_MAX_HANDLES = 256
"""Number of handles at which a group drops those of finished tasks."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
MemoryT = TypeVar("MemoryT", bound="SecondMemory")


class Counting(Task[R_co], Protocol[R_co]):
    """A task that counts the rows it has read."""

    @property
    def n_evaluated(self) -> int: ...


class TaskGroup:
    """The tasks and calls of one request.

    Any thread may cancel the group at any time; tasks started afterwards raise
    `CancelledError`.

    Args:
        model_thread: Runs the tasks: the model's thread, or a runner on it.
        priority: Priority of every task; higher goes first. 0 is that of the context
            (`set_priority`).
        deadline_s: Seconds from the creation of the group, or None for no deadline.
            After it a task ends with a partial result if it can
            (`job.SupportsDeadline`), else with `DeadlineError`.
        keep_cached: Whether the nodes of a finished task stay cached.
    """

    def __init__(
        self,
        model_thread: Runner,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        keep_cached: bool = False,
    ) -> None:
        self.model_thread = model_thread
        self._priority, self._keep_cached = priority or _PRIORITY.get(), keep_cached
        self._until = None if deadline_s is None else model_thread.now() + deadline_s
        self._handles: list[Handle[Any]] = []
        self._max_handles = _MAX_HANDLES
        self._held: list[Handle[Any]] | None = None
        self._is_cancelled = False
        self._is_calling = False
        self._turn = _REQUEST.get() or Turn()
        self._scope = _SCOPE.get()
        if self._scope is not None:
            self._scope.add(self)

    @property
    def late_s(self) -> float:
        """Return the seconds since the deadline; 0 before it, or if there is none."""
        return 0.0 if self._until is None else max(0.0, self.model_thread.now() - self._until)

    @property
    def observer(self) -> Observer | None:
        """Return the observer of tasks that begin now, or None."""
        return self.model_thread.observer

    def begin(self, task: Task[R], on_step: Callable[[], None] | None = None) -> Handle[R]:
        """Queue a task and return its handle.

        `on_step` is called on the model's thread when the row of the prompt's end is
        known and after each model call of the task.
        """
        if len(self._handles) >= self._max_handles:  # a page starts thousands of tasks in turn
            self._handles[:] = [handle for handle in self._handles if not handle.is_done]
            self._max_handles = _MAX_HANDLES + 2 * len(self._handles)
        job = Job(task, on_step, priority=self._priority, deadline=self._until, keep_cached=self._keep_cached)
        job.request, job.client = self._turn, _CLIENT.get() or self._turn
        observer = self.observer
        if observer is not None:
            job.observer = observer.begin(task)
        handle: Handle[R] = self.model_thread.handle(job)
        self._handles.append(handle)  # before it is queued: Ctrl-C may come as soon as it runs
        self._check_cancelled()
        if self._held is None:
            self.model_thread.queue(handle)
        else:
            self._held.append(handle)
        return handle

    @contextmanager
    def together(self) -> Iterator[None]:
        """Queue the tasks that begin in the `with` block all at once at its end.

        They then share calls in the same way whenever the request is repeated alone.
        Queued one by one, the first might run before the last has arrived.
        """
        self._held = held = list[Handle[Any]]()
        try:
            yield
        finally:
            self._held = None
        if held:
            self.model_thread.queue(*held)

    def begin_counted(
        self,
        task: Counting[R],
        report: Callable[[int, int], None] | None,
        total: int = 0,
    ) -> Handle[R]:
        """Queue a task and return its handle; report progress after each model call.

        Args:
            task: The task to run.
            report: Called with the number of rows read and `total`; None reports
                nothing.
            total: Total number of rows to read; 0 if unknown.
        """
        on_step = None if report is None else lambda: report(task.n_evaluated, total)
        return self.begin(task, on_step)

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, as `JobThread.call` does.

        It sees the context variables of this thread.
        """
        context = copy_context()
        self._is_calling = True
        try:
            self._check_cancelled()
            # After `cancel` interrupts a decode, the thread calls again and learns that
            # the group was cancelled.
            answer = self.model_thread.call(lambda: () if self._is_cancelled else (context.run(function),))
        finally:
            self._is_calling = False
        if not answer:
            raise CancelledError
        return answer[0]

    def cancel(self) -> None:
        """Cancel all tasks and calls that have not ended.

        `Handle.result` of the tasks then raises `CancelledError`.
        """
        self._is_cancelled = True
        for handle in tuple(self._handles):
            if not handle.is_done:  # cancelling stops the decode, which others share
                handle.cancel()
        if self._is_calling:
            self.model_thread.interrupt()

    def leave(self) -> None:
        """Remove the group from its scope, which then no longer cancels it."""
        if self._scope is not None:
            self._scope.drop(self)

    def _check_cancelled(self) -> None:
        """Raise `CancelledError` if the group was cancelled."""
        if self._is_cancelled:
            raise CancelledError


@contextmanager
def task_group(
    model_thread: JobThread[Any], *, priority: int = 0, deadline_s: float | None = None, keep_cached: bool = False
) -> Iterator[TaskGroup]:
    """Yield a group of tasks that is cancelled if the `with` block fails.

    Ctrl-C counts as a failure. The model's memory stays valid until the block ends.

    Args:
        model_thread: The thread that runs the tasks.
        priority: Priority of every task; higher goes first.
        deadline_s: Seconds from now, or None for no deadline.
        keep_cached: Whether the tasks' nodes stay cached when they end, for requests
            that continue their texts.

    Raises:
        ClosedError: If the engine was closed.
        ForkedError: In a child process, where the thread does not run.
    """
    with model_thread.using():
        group = TaskGroup(model_thread, priority=priority, deadline_s=deadline_s, keep_cached=keep_cached)
        try:
            yield group
        except BaseException:
            group.cancel()
            raise
        finally:
            group.leave()


class CancelScope:
    """Collects the task groups that are created within a `with` block, to cancel them.

    Only the groups of the same thread or asyncio task are collected. Code that waits
    for the block can cancel all of them through the scope.

    Attributes:
        is_cancelled: Whether the scope was cancelled.
    """

    def __init__(self) -> None:
        self._members: list[TaskGroup | CancelScope] = []
        self.is_cancelled = False

    @classmethod
    def nested(cls) -> CancelScope:
        """Return a new scope, which is cancelled with the enclosing scope, if any."""
        scope, outer = cls(), _SCOPE.get()
        if outer is not None:
            outer.add(scope)
        return scope

    @contextmanager
    def open(self) -> Iterator[None]:
        """Collect the groups that are created in the `with` block."""
        token = _SCOPE.set(self)
        try:
            yield
        finally:
            _SCOPE.reset(token)

    def add(self, group: TaskGroup | CancelScope) -> None:
        """Add a group or scope; cancel it at once if this scope is cancelled."""
        self._members.append(group)
        if self.is_cancelled:
            group.cancel()

    def drop(self, group: TaskGroup) -> None:
        """Remove a group."""
        self._members.remove(group)

    def cancel(self) -> None:
        """Cancel all groups, present and later ones. May be called from any thread."""
        self.is_cancelled = True
        for group in tuple(self._members):
            group.cancel()


# Of this thread or asyncio task: the scope that new groups join, the client and the
# request that their jobs count for, and the function of `when_prepared`.
_SCOPE: ContextVar[CancelScope | None] = ContextVar("selectrie_scope", default=None)
_CLIENT: ContextVar[Turn | None] = ContextVar("selectrie_client", default=None)
_REQUEST: ContextVar[Turn | None] = ContextVar("selectrie_request", default=None)
_PRIORITY: ContextVar[int] = ContextVar("selectrie_priority", default=0)
_WHEN_PREPARED: ContextVar[Callable[[], object] | None] = ContextVar("selectrie_prepared", default=None)


def set_client(client: Turn) -> None:
    """Count all groups that begin in this context as one request of a client.

    Otherwise, each group counts as a request and as a client.
    """
    _CLIENT.set(client)
    _REQUEST.set(Turn())


def set_priority(priority: int) -> None:
    """Give a priority to all requests that begin in this context and have none."""
    _PRIORITY.set(priority)


def check_cancelled() -> None:
    """Raise `CancelledError` if the work of this context was cancelled.

    Work without tasks calls this between its steps.
    """
    scope = _SCOPE.get()
    if scope is not None and scope.is_cancelled:
        raise CancelledError


@contextmanager
def when_prepared(call: Callable[[], object]) -> Iterator[None]:
    """Call `call` each time a request of the `with` block has been prepared.

    A prepared request is checked and tokenized, and waits for the model. For a request
    that cannot be prepared, or needs no model, `call` is called at its end, on its own
    thread.
    """
    before = _WHEN_PREPARED.get()
    _WHEN_PREPARED.set(call)
    try:
        yield
    finally:
        _WHEN_PREPARED.set(before)  # a garbage-collected task ends in another context


def note_prepared() -> None:
    """Report that a request of this context was prepared, or has ended."""
    call = _WHEN_PREPARED.get()
    if call is not None:
        call()


class ScopedThread(threading.Thread, Generic[R]):
    """A daemon thread that runs a function within a `CancelScope`.

    The function sees the context variables of the thread that created this one.

    Attributes:
        outcome: The result or the error of the function.
    """

    def __init__(
        self, name: str, scope: CancelScope, function: Callable[[], R], when_done: Callable[[], None] | None = None
    ) -> None:
        """Prepare the thread; `when_done` is called once `outcome` is set."""
        self.outcome, work = scoped_work(scope, function, when_done)
        super().__init__(target=work, name=name, daemon=True)


def scoped_work(
    scope: CancelScope, function: Callable[[], R], when_done: Callable[[], None] | None = None
) -> tuple[Outcome[R], Callable[[], None]]:
    """Return an outcome, and a function that runs `function` in a scope and sets it.

    The returned function may run in another thread. In it, `function` sees the context
    variables of this thread. `when_done` is called once the outcome is set.
    """
    outcome: Outcome[R] = Outcome()

    def work() -> None:
        try:
            with scope.open():
                outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - belongs to the thread that reads the outcome
            outcome.set_exception(error)
        note_prepared()
        if when_done is not None:
            when_done()

    return outcome, partial(copy_context().run, work)


class SecondMemoryRunner:
    """Runs tasks on a second memory, one step at a time, for the thread that waits.

    A step runs only while a result is waited for, so all tasks that were queued before
    are under way together. One thread at a time may use a runner.

    Args:
        group: The group on the model's thread in which steps and calls run. If it is
            cancelled, they raise `CancelledError`.
        scheduler: The scheduler of the second memory.
    """

    def __init__(self, group: TaskGroup, scheduler: Scheduler) -> None:
        self._group, self._scheduler = group, scheduler

    @property
    def observer(self) -> Observer | None:
        """Return the observer of tasks that begin now, or None."""
        return self._group.observer

    def now(self) -> float:
        """Return the seconds on the clock that deadlines are compared with."""
        return self._group.model_thread.now()

    def handle(self, job: Job) -> Handle[Any]:
        """Return the handle of a job that is not queued yet (`JobThread.handle`)."""
        job.future = _LazyOutcome(self._step)
        return Handle(self, job)

    def queue(self, *handles: Handle[Any]) -> None:
        """Queue the tasks of handles; the next step takes up all of them."""
        for handle in handles:
            self._scheduler.submit(handle.job)

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, as `JobThread.call` does."""
        return self._group.call(function)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled; it ends with the next step."""
        job.cancelled = True

    def interrupt(self) -> None:
        """Do nothing: cancelling the group interrupts a running step."""

    def check_process(self) -> None:
        """Raise `ForkedError` in a child process."""
        self._group.model_thread.check_process()

    def _step(self) -> None:
        """Do one step of the scheduler on the model's thread."""
        self._group.call(self._scheduler.step)


class _LazyOutcome(Outcome[Any]):
    """An outcome whose work is done by the thread that waits for it."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._work = step

    def wait(self, timeout_s: float | None = None) -> bool:
        """Work until the outcome is set; the time limit is ignored."""
        del timeout_s
        while not self.done():
            self._work()
        return True


class SecondMemory:
    """A second memory of a model: a small context that is evaluated apart from it.

    Its rows do not depend on what the model holds. It may hold nodes between two uses.
    All methods are called on the model's thread. The results of all tasks of a use are
    needed together, so the tasks run one after the other, each with as many rows of a
    call as it can use.

    Args:
        model: A model made by `Model.new_context`; `close` closes it.
    """

    def __init__(self, model: Model) -> None:
        rows = model.limits.rows_per_call
        self.model, self.scheduler = model, Scheduler(model, prefill_rows=rows, takes_turns=False)

    def clear(self) -> None:
        """Drop all nodes that are not held."""
        self.scheduler.forget_all()

    def close(self) -> None:
        """Free the memory."""
        self.model.close()


class SecondMemoryPool(Generic[MemoryT]):
    """A pool of second memories of a model, one for each group under way.

    Any thread may ask for groups. Other work of the model gets a turn after every call
    of a group's tasks, which changes no bit of them.

    Args:
        thread: The thread of the model.
        open_memory: Creates a memory; called on this thread.
    """

    def __init__(self, thread: JobThread[Any], open_memory: Callable[[], MemoryT]) -> None:
        self._thread, self._open = thread, open_memory
        self._spare: list[MemoryT] = []
        self._is_closed = False

    @contextmanager
    def group(self) -> Iterator[TaskGroup]:
        """Yield a group of tasks in a memory, as `task_group` does.

        Afterwards the memory is cleared for the next group. If the `with` block fails,
        its memory is freed.
        """
        with self.lend() as (_, group):
            yield group

    @contextmanager
    def lend(self) -> Iterator[tuple[MemoryT, TaskGroup]]:
        """Yield a memory and a group of tasks in it; see `group`."""
        with task_group(self._thread) as outer:
            memory = outer.call(self._take)
            try:
                group = TaskGroup(SecondMemoryRunner(outer, memory.scheduler))
                try:
                    yield memory, group
                finally:
                    group.leave()
                outer.call(memory.clear)
            except BaseException:
                with suppress(ClosedError, ForkedError):
                    self._thread.call(memory.close)
                raise
            self._spare.append(memory)
            if self._is_closed:  # by another thread in the meantime
                self.close()

    def _take(self) -> MemoryT:
        """Return an unused memory, or open one."""
        with suppress(IndexError):
            return self._spare.pop()
        return self._open()

    def close(self) -> None:
        """Free the memories. May be called twice, and after the engine was closed."""
        self._is_closed = True
        with suppress(ClosedError, ForkedError):  # the rest is freed by garbage collection
            while self._spare:
                self._thread.call(self._spare.pop().close)
