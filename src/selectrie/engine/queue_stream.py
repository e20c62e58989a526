"""Iterators over items that other threads produce.

A producer puts items into an unbounded queue and never waits for the reader.
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
    """Receives the items of a stream, and the number of each producer that has ended.

    It holds no reference to the stream, which could otherwise not be garbage-collected
    while its producers work.

    Attributes:
        queue: The items that the reader has not taken yet.
        listener: Called after each item, on the thread that put it.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[T | int] = SimpleQueue()
        self.listener: Callable[[], None] = _ignore

    def put(self, item: T | int) -> None:
        """Queue an item, or the number of a producer that has ended, for the reader."""
        self.queue.put(item)
        self.listener()


class QueueStream(Iterator[T]):
    """An iterator over the items of several producers, in the order of their arrival.

    The producers work whether or not the stream is read. `close`, leaving a `with`
    block, an error, and garbage collection of the stream cancel the producers that have
    not ended. Errors are raised to the reader. Only one thread may read at a time.
    """

    def __init__(
        self, outlet: Outlet[T], n_producers: int, check_process: Callable[[], None], cancel: Callable[[], None]
    ) -> None:
        """Begin to read.

        Args:
            outlet: The outlet into which the producers put their items.
            n_producers: Number of producers; each reports its end once.
            check_process: Raises `ForkedError` in a child process, where no item
                arrives.
            cancel: Cancels the producers. It must hold no reference to the stream.
        """
        self._outlet, self._n_running, self._check_process = outlet, n_producers, check_process
        self._is_closed = False
        self._finalizer = weakref.finalize(self, cancel)

    @abstractmethod
    def _ended(self, number: int) -> T | None:
        """Return the last item of a producer that has ended, None if it has none.

        Counts the end in `_n_running`, or raises the error that ended the producer.
        """

    def __enter__(self: AnyStream) -> AnyStream:  # noqa: PYI019 - Self is not in typing before Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __next__(self) -> T:
        """Wait for the next item and return it.

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
        """Return whether no further item will come."""
        return self._is_closed or not self._n_running

    def close(self) -> None:
        """Cancel the producers that have not ended. May be called twice."""
        self._is_closed = True
        self._outlet.listener = _ignore
        self._finalizer()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on a producer's thread when `arrived` may have an item."""
        self._outlet.listener = listener

    def arrived(self) -> Iterator[T]:
        """Yield the items that have arrived, without waiting."""
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
