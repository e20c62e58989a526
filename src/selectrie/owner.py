"""The thread that owns a model. Calls from any thread queue to it; it works while there is work and sleeps otherwise."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from selectrie.errors import ClosedError, ForkedError
from selectrie.model import Model
from selectrie.scheduler import Job, Scheduler
from selectrie.tasks import Task
from selectrie.types import Cost

R = TypeVar("R")


class Handle(Generic[R]):
    """A task under way."""

    def __init__(self, owner: Owner, job: Job) -> None:
        self._owner, self._job = owner, job

    def start(self) -> None:
        """Queue the task. A handle made before it is queued can be cancelled whenever Ctrl-C comes."""
        self._owner.queue(self._job)

    def result(self) -> R:
        """Wait for the answer. Ctrl-C cancels the task, in the middle of a decode too, and is raised again."""
        try:
            answer: R = self._job.future.result()
        except KeyboardInterrupt:
            self.cancel()
            raise
        return answer

    def cancel(self) -> None:
        """Stop the task; its nodes are given back. `result` raises `CancelledError`."""
        self._owner.cancel(self._job)

    @property
    def cost(self) -> Cost:
        """What it has cost so far."""
        return self._job.cost


class Owner:
    """Runs a scheduler on a thread of its own, which alone touches the model."""

    def __init__(self, model: Model) -> None:
        self.scheduler = Scheduler(model)
        self._model = model
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._users = 0
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="selectrie-model", daemon=True)
        self._thread.start()

    def handle(self, task: Task[R], on_step: Callable[[], None] | None = None) -> Handle[R]:
        """A task that is not queued yet; `on_step` is called on the model's thread after each of its model calls."""
        return Handle(self, Job(task, on_step))

    def submit(self, task: Task[R], on_step: Callable[[], None] | None = None) -> Handle[R]:
        """Queue a task."""
        handle = self.handle(task, on_step)
        try:
            handle.start()
        except BaseException:
            handle.cancel()
            raise
        return handle

    def queue(self, job: Job) -> None:
        """Let the model's thread work at a job. Raises `ClosedError` or `ForkedError`."""
        with self._wake:
            self._check()
            self._jobs.append(job)
            self._wake.notify_all()

    def call(self, function: Callable[[], R]) -> R:
        """Run a function on the model's thread, between two steps, and return what it returns."""
        future: Future[R] = Future()
        with self._wake:
            self._check()
            self._calls.append((function, future))
            self._wake.notify_all()
        return future.result()

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the model's memory until the block ends: its tokenizer reads it on the caller's thread.

        Raises `ClosedError` or `ForkedError`. A `close` meanwhile ends waits in the block with `ClosedError`.
        """
        with self._wake:
            self._check()
            self._users += 1
        try:
            yield
        finally:
            with self._wake:
                self._users -= 1
                self._wake.notify_all()

    def cancel(self, job: Job) -> None:
        """Mark a job as cancelled and stop the decode that may be running for it."""
        job.cancelled = True
        if self._process == os.getpid():
            self._model.interrupt()
            with self._wake:
                self._wake.notify_all()

    def close(self) -> None:
        """End all work with `ClosedError`, close the model, end the thread. Closing twice is fine."""
        if self._process != os.getpid():
            return
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._model.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def closed(self) -> bool:
        return self._closing

    def _check(self) -> None:
        if self._process != os.getpid():
            raise ForkedError
        if self._closing:
            raise ClosedError("the engine")

    def _loop(self) -> None:
        while self._turn():
            pass
        self._shut()

    def _turn(self) -> bool:
        """Wait for work and do one step of it; False = closing. Waits with nothing in its frame: what a caller asked for
        last may hold the engine, which would never be forgotten."""
        with self._wake:
            while not (self._closing or self._calls or self._jobs or not self.scheduler.idle):
                self._wake.wait()
            if self._closing:
                return False
            calls, self._calls = self._calls, deque()
            jobs, self._jobs = self._jobs, deque()
        for function, future in calls:
            _fulfil(future, function)
        for job in jobs:
            self.scheduler.submit(job)
        self._step()
        return True

    def _step(self) -> None:
        """One step; an error nobody foresaw ends the jobs under way instead of the thread."""
        try:
            if not self.scheduler.idle:
                self.scheduler.step()
        except Exception as error:  # noqa: BLE001 - the thread must live on and every waiting caller must hear of it
            self.scheduler.fail_all(error)

    def _shut(self) -> None:
        error = ClosedError("the engine")
        self.scheduler.fail_all(error)
        for job in self._jobs:
            job.future.set_exception(error)
        for _, future in self._calls:
            future.set_exception(error)
        with self._wake:
            self._wake.wait_for(lambda: self._users == 0)
        self._model.close()


def _fulfil(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - belongs to the thread that waits for it
        future.set_exception(error)
