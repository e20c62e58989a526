"""Iterators over what other threads produce.

A producer puts pieces into an unbounded queue and never waits for the reader.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
AnyStream = TypeVar("AnyStream", bound="QueueStream[Any]")


def _ignore() -> None:
    pass


class Outlet(Generic[T]):
    """Receives the pieces of a stream, and the number of each producer that has ended.

    It holds no reference to the stream, which could otherwise not be garbage-collected
    while its producers work.

    Attributes:
        queue: What the reader has not taken yet.
        listener: Called after each item, on the thread that put it.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[T | int] = SimpleQueue()
        self.listener: Callable[[], None] = _ignore

    def put(self, item: T | int) -> None:
        """Queue an item for the reader."""
        self.queue.put(item)
        self.listener()


class QueueStream(Iterator[T]):
    """The pieces of several producers, in the order in which they come.

    The producers work whether or not the stream is read. `close`, leaving a `with`
    block, an error, and garbage collection of the stream cancel those that have not
    ended. Errors are raised to the reader. Only one thread may read at a time.
    """

    def __init__(
        self, outlet: Outlet[T], n_producers: int, check_process: Callable[[], None], cancel: Callable[[], None]
    ) -> None:
        """Begin to read.

        Args:
            outlet: Where the producers put their pieces.
            n_producers: Number of producers; each reports its end once.
            check_process: Raises in a forked child, where no piece will come.
            cancel: Cancels the producers; holds no reference to the stream.
        """
        self._outlet, self._n_running, self._check_process = outlet, n_producers, check_process
        self._is_closed = False
        self._finalizer = weakref.finalize(self, cancel)

    @abstractmethod
    def _ended(self, number: int) -> T | None:
        """Return the last piece of a producer that has ended, if any.

        Counts it in `_n_running`, or raises the error that ended it.
        """

    def __enter__(self: AnyStream) -> AnyStream:  # noqa: PYI019 - Self is not in typing before Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __next__(self) -> T:
        """Wait for the next piece.

        Ctrl-C cancels the producers and is raised again. Raises `ForkedError` in a
        child process.
        """
        if self.is_finished:
            raise StopIteration
        try:
            self._check_process()
            piece = self._piece(self._outlet.queue.get())
        except BaseException:
            self.close()
            raise
        if piece is None:
            raise StopIteration
        return piece

    @property
    def is_finished(self) -> bool:
        """Return whether no further piece will come."""
        return self._is_closed or not self._n_running

    def close(self) -> None:
        """Cancel the producers that have not ended. May be called twice."""
        self._is_closed = True
        self._outlet.listener = _ignore
        self._finalizer()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function on a producer's thread when `arrived` may have a piece."""
        self._outlet.listener = listener

    def arrived(self) -> Iterator[T]:
        """Yield the pieces that are there, without waiting."""
        while not self.is_finished:
            try:
                item = self._outlet.queue.get_nowait()
            except Empty:
                return
            piece = self._piece(item)
            if piece is not None:
                yield piece

    def _piece(self, item: T | int) -> T | None:
        return self._ended(item) if isinstance(item, int) else item
