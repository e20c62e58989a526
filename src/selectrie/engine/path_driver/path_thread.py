"""The thread that runs the tasks of an engine whose rows are read by their path."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from selectrie.core.row_reader import RowReader, RowStarter
from selectrie.core.types import Limits
from selectrie.engine.path_driver.path_scheduler import PathScheduler
from selectrie.engine.scheduler.job import Job
from selectrie.engine.scheduler.model_thread import JobThread
from selectrie.engine.scheduler.outcome import LOOK_AGAIN_S
from selectrie.options import at_least


class PathThread(JobThread[PathScheduler]):
    """Runs the tasks of an engine on a background thread, which alone knows them.

    Rows are read by other threads, which only report that they have arrived.
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
            limits: What a task may need.
            max_active: Number of tasks that are under way at once (`PathScheduler`).
            max_waiting: Maximum number of tasks that wait to begin; None for no limit.
            clock: Returns the seconds that deadlines are compared with.
            reader_of: Returns what reads the rows of a task in place of `reader`.
        """
        at_least("max_waiting", max_waiting, 1)
        self._reader = reader
        scheduler = PathScheduler(
            reader, limits, max_active=max_active, wake=self._wake, clock=clock, reader_of=reader_of
        )
        super().__init__(scheduler, again_s=LOOK_AGAIN_S, max_waiting=max_waiting, clock=clock)

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled; requests that only it waits for end."""
        job.cancelled = True
        if self._process == os.getpid():
            self._wake()

    def interrupt(self) -> None:
        """Do nothing: no call of a model runs on the thread."""

    def _wake(self) -> None:
        self._inbox.put(None)

    def _free(self) -> None:
        self._reader.close()
