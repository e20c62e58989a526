"""Ends jobs before they have finished: those that were cancelled or are too late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from selectrie.engine.scheduler.job import Job, SupportsDeadline
from selectrie.errors import CancelledError, DeadlineError


class EndsJob(Protocol):
    """Ends a job with a result or an error, and frees what is held for it."""

    def __call__(self, job: Job, *, result: object = None, error: BaseException | None = None) -> None: ...


def end_early(jobs: Iterable[Job], now: float, end: EndsJob) -> None:
    """End the jobs that were cancelled, and those whose deadline has passed.

    Args:
        jobs: The jobs; `end` may change the collection that they come from.
        now: Seconds on the clock that deadlines are compared with.
        end: Called for each job that ends.
    """
    for job in tuple(jobs):
        if job.cancelled:
            end(job, error=CancelledError())
        elif job.deadline is not None and now >= job.deadline:
            _expire(job, now - job.deadline, end)


def _expire(job: Job, late_s: float, end: EndsJob) -> None:
    job.expired = True
    if not isinstance(job.task, SupportsDeadline):
        end(job, error=DeadlineError(late_s))
        return
    try:
        job.task.expire()
        result = job.task.result()
    except BaseException as error:  # noqa: BLE001 - a task is foreign code; the error goes to its caller
        end(job, error=error)
    else:
        end(job, result=result)
