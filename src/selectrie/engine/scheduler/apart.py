"""Runs the tasks of requests on a second memory of a model.

A second memory is a `Model.new_context` model. It has a scheduler of its own, whose
steps are calls on the model's thread: other work of the engine gets a turn after each.
What a task group computes there depends on nothing that the engine does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from selectrie.core.model import Model
from selectrie.decoding.task import Task
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.model_thread import Handle
from selectrie.engine.scheduler.observer import Observer
from selectrie.engine.scheduler.outcome import Outcome
from selectrie.engine.scheduler.scheduler import Scheduler
from selectrie.engine.scheduler.task_group import TaskGroup
from selectrie.errors import OptionError

R = TypeVar("R")


class RunnerApart:
    """Runs tasks on a second memory, one step at a time, for the thread that waits.

    A task begins when a result is waited for, so all tasks that are queued before are
    under way together. One thread at a time may use a runner.

    Args:
        group: The group on the model's thread in which steps and calls run. If it is
            cancelled, they raise `CancelledError`.
        scheduler: The scheduler of the second memory.
    """

    def __init__(self, group: TaskGroup, scheduler: Scheduler) -> None:
        self._group, self._scheduler = group, scheduler

    @property
    def observer(self) -> Observer | None:
        """Return what watches the tasks that begin now, or None."""
        return self._group.observer

    def now(self) -> float:
        """Return the seconds on the clock that deadlines are compared with."""
        return self._group.model_thread.now()

    def handle(
        self,
        task: Task[R],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        keep_cached: bool = False,
    ) -> Handle[R]:
        """Return the handle of a task that is not queued yet (`JobThread.handle`)."""
        if deadline_s is not None:
            raise OptionError("deadline_s", deadline_s, "none: tasks on a second memory have no deadline")
        job = Job(task, on_step, priority=priority, keep_cached=keep_cached)
        job.future = _Driven(self._step)
        return Handle(self, job)

    def queue(self, *handles: Handle[Any]) -> None:
        """Queue the tasks of handles; the next step takes up all of them."""
        for handle in handles:
            self._scheduler.submit(handle.job)

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, as `JobThread.call` does."""
        return self._group.call(function)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled: it ends with the next step."""
        job.cancelled = True

    def interrupt(self) -> None:
        """Do nothing: a step that is running is interrupted with its group."""

    def check_process(self) -> None:
        """Raise `ForkedError` in a child process."""
        self._group.model_thread.check_process()

    def _step(self) -> None:
        self._group.call(self._scheduler.step)


class _Driven(Outcome[Any]):
    """An outcome that is worked on by whoever waits for it."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._work = step

    def wait(self, timeout_s: float | None = None) -> bool:
        """Work until the outcome is set, whatever the time."""
        del timeout_s
        while not self.done():
            self._work()
        return True


class MemoryApart:
    """A second memory of a model, with what stays in it between two uses.

    All methods are called on the model's thread. The tasks of a use are waited for
    together, so they go one after the other, each with as many rows of a call as it can
    use.

    Args:
        model: A model made by `Model.new_context`; `close` closes it.
    """

    def __init__(self, model: Model) -> None:
        rows = model.limits.rows_per_call
        self.model, self.scheduler = model, Scheduler(model, prefill_rows=rows, takes_turns=False)

    def clear(self) -> None:
        """Drop everything but what is held."""
        self.scheduler.forget_all()

    def close(self) -> None:
        """Free the memory."""
        self.model.close()
