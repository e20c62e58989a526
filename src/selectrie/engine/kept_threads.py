"""Threads that wait for calls, and are kept for a short time to wait for others.

Python waits until a new thread runs before it goes on. A thread that is there already
is woken by a queue, which takes less time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

KEEP_S = 1.0
"""An idle thread ends after this many seconds."""
MAX_IDLE = 16
"""More idle threads are not kept."""

_Work = Callable[[], None]


class KeptThreads:
    """Daemon threads that each run one function at a time.

    Any number of functions may run at once: if no thread is idle, another is started.
    Any thread may call `run`.

    Args:
        name: Name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin without threads, as a process does that was forked."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Work]] = []

    def run(self, work: _Work) -> None:
        """Run a function, which raises nothing, in a thread."""
        with self._lock:
            queue = self._idle.pop() if self._idle else None
        if queue is not None:
            queue.put(work)
            return
        queue = SimpleQueue()
        queue.put(work)
        threading.Thread(target=self._loop, args=(queue,), name=self._name, daemon=True).start()

    def _loop(self, queue: SimpleQueue[_Work]) -> None:
        queue.get()()
        while self._is_kept(queue):
            try:
                work = queue.get(timeout=KEEP_S)
            except Empty:
                with self._lock:
                    if queue in self._idle:
                        self._idle.remove(queue)
                        return
                work = queue.get()  # it came just now
            work()
            del work  # it holds a request

    def _is_kept(self, queue: SimpleQueue[_Work]) -> bool:
        with self._lock:
            if len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(queue)
            return True
