"""Holds the result of work on another thread without a lock."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

R = TypeVar("R")

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1
"""Maximum seconds of one wait of the main thread for another thread.

A signal that comes just before the system call does not interrupt it. Python then runs
the signal's handler only after the wait. No handler runs in the other threads, so they
wait without a limit: 1000 threads that woke so often would take a sixth of a core.
"""


class Outcome(Generic[R]):
    """The result or error of work on another thread, set once.

    `concurrent.futures.Future` guards its state with a `threading.Condition`, whose
    methods are Python code. If Ctrl-C is raised in them while the lock is held, the
    lock stays held, and the thread that sets the result waits for it forever. Here
    every shared step is a single operation on a builtin object.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[], None]] = deque()

    def done(self) -> bool:
        """Return whether the result or the error was set."""
        return self._is_set

    def set_result(self, result: R) -> None:
        """Set the result and call the callbacks."""
        self._result = result
        self._mark_set()

    def set_exception(self, error: BaseException) -> None:
        """Set the error and call the callbacks."""
        self._error = error
        self._mark_set()

    def _mark_set(self) -> None:
        """Mark the outcome as set and call the callbacks."""
        self._is_set = True
        while self._callbacks:
            with suppress(IndexError):  # its own thread has called the last one meanwhile
                _run_callback(self._callbacks.popleft())

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the outcome is set, or now if it is set already."""
        self._callbacks.append(callback)
        if self._is_set:
            with suppress(ValueError):  # the other thread calls it
                self._callbacks.remove(callback)
                _run_callback(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait up to `timeout_s` seconds for the outcome; return whether it is set."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        is_main = threading.current_thread() is threading.main_thread()
        most_s = LOOK_AGAIN_S if is_main else threading.TIMEOUT_MAX
        is_waiting = threading.Lock()
        is_waiting.acquire()
        self.add_done_callback(is_waiting.release)
        while not self._is_set:
            left_s = min(most_s, until - time.monotonic())
            if left_s <= 0:
                break
            is_waiting.acquire(timeout=left_s)
        if not self._is_set:
            with suppress(ValueError):  # the other thread calls it
                self._callbacks.remove(is_waiting.release)
        return self._is_set

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None if there is none.

        Raises `TimeoutError` if the outcome is not set in time.
        """
        if not self._is_set and not self.wait(timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> R:
        """Return the result or raise the error.

        Raises `TimeoutError` if the outcome is not set in time.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame
        return cast("R", self._result)


def _run_callback(callback: Callable[[], None]) -> None:
    """Call a callback; log its error, if any."""
    try:
        callback()
    except Exception:
        logger.exception("a callback of a finished task failed")
