"""Awaitable forms of blocking methods, their threads, and streams of results."""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from selectrie.engine.scheduler.job import wake
from selectrie.engine.scheduler.task_group import CancelScope, scoped_work
from selectrie.errors import SelectrieError, of_request

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
AnyStream = TypeVar("AnyStream", bound="QueueStream[Any]")


def _ignore() -> None:
    pass


class Outlet(Generic[T]):
    """Queues the items of a stream, and the number of each producer that has ended.

    It holds no reference to the stream, so that the stream can be garbage-collected
    while its producers work.

    Attributes:
        queue: The items that the reader has not taken yet.
        listener: Called after each item, on the producer's thread.
    """

    def __init__(self) -> None:
        self.queue: SimpleQueue[T | int] = SimpleQueue()
        self.listener: Callable[[], None] = _ignore

    def put(self, item: T | int) -> None:
        """Queue an item for the reader, or the number of a producer that has ended."""
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
    def _end_producer(self, number: int) -> T | None:
        """Return the last item of a producer that has ended; None if it has none.

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
            piece = self._to_item(self._outlet.queue.get())
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
        """Call `listener` on a producer's thread whenever an item may have arrived."""
        self._outlet.listener = listener

    def take_arrived(self) -> Iterator[T]:
        """Yield the items that have arrived, without waiting for more."""
        while not self.is_finished:
            try:
                item = self._outlet.queue.get_nowait()
            except Empty:
                return
            piece = self._to_item(item)
            if piece is not None:
                yield piece

    def _to_item(self, item: T | int) -> T | None:
        return self._end_producer(item) if isinstance(item, int) else item


KEEP_S = 1.0
"""Seconds after which an idle thread ends."""
MAX_IDLE = 16
"""Maximum number of idle threads that are kept."""

_Work = Callable[[], None]


class KeptThreads:
    """Daemon threads that are reused; each runs one function at a time.

    Any number of functions may run at once: if no thread is idle, another is started.
    Any thread may call `run`.

    Args:
        name: Name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Begin without threads, as a forked process must."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Work]] = []

    def run(self, work: _Work) -> None:
        """Run a function in a thread; it must not raise."""
        with self._lock:
            queue = self._idle.pop() if self._idle else None
        if queue is not None:
            queue.put(work)
            return
        queue = SimpleQueue()
        queue.put(work)
        threading.Thread(target=self._loop, args=(queue,), name=self._name, daemon=True).start()

    def _loop(self, queue: SimpleQueue[_Work]) -> None:
        """Run functions from the queue until the thread has been idle too long."""
        queue.get()()
        while self._is_reusable(queue):
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

    def _is_reusable(self, queue: SimpleQueue[_Work]) -> bool:
        """Add a thread's queue to the idle ones; return False if there are enough."""
        with self._lock:
            if len(self._idle) >= MAX_IDLE:
                return False
            self._idle.append(queue)
            return True


P = ParamSpec("P")
R = TypeVar("R")

_THREADS = KeptThreads("selectrie-await")
MAX_BATCH = 256
"""Maximum number of items in a batch; the event loop handles a batch in one go."""


def awaitable(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine function that runs the method in a thread.

    It takes the same arguments. Cancelling it cancels the work.
    """

    @wraps(method)
    async def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(lambda: method(*args, **kwargs))

    return _name_awaitable(waiting, method)


def async_stream(method: Callable[P, QueueStream[T]]) -> Callable[P, AsyncGenerator[T, None]]:
    """Return an asynchronous generator function for a method that returns a stream.

    It takes the same arguments, and starts the stream when the first item is requested.
    No thread waits while it streams.
    """

    @wraps(method)
    async def streaming(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        async with open_in_thread(lambda: method(*args, **kwargs)) as stream:
            async for batch in Arrivals(stream):
                for chunk in batch:
                    yield chunk

    return _name_awaitable(streaming, method)


def async_iterator(method: Callable[P, Iterator[T]]) -> Callable[P, AsyncGenerator[T, None]]:
    """Return an asynchronous generator function for a method that flattens windows.

    It takes the same arguments. Each window is run in a thread.
    """

    @wraps(method)
    async def iterating(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        items = method(*args, **kwargs)
        windows: Iterator[list[T]] = items.windows  # type: ignore[attr-defined]  # of `WindowItems`
        while window := await in_thread(lambda: next(windows, [])):
            for item in window:
                yield item

    return _name_awaitable(iterating, method)


@asynccontextmanager
async def open_in_thread(
    start: Callable[[], AnyStream], run: Callable[[Callable[[], None]], Awaitable[None]] | None = None
) -> AsyncGenerator[AnyStream, None]:
    """Start a stream in a thread, yield it, and close it after the `with` block.

    However the `with` block ends, and also if the awaiting task is cancelled while the
    stream is being started, its work is cancelled.

    Args:
        start: Starts the stream and returns it.
        run: Runs a function in a thread and awaits it; None for `in_thread`.
    """
    streams: list[AnyStream] = []
    is_left = False

    def begin() -> None:
        streams.append(start())
        if is_left:
            streams[0].close()

    try:
        await (in_thread if run is None else run)(begin)
        yield streams[0]
    finally:
        is_left = True
        for stream in streams:
            stream.close()


class Arrivals(Generic[T]):
    """An asynchronous iterator over a stream's items, in batches.

    A batch has the items that have arrived since the last one, at most `MAX_BATCH`, so
    a slow reader gets fewer and larger batches. No thread waits.

    Args:
        stream: The stream, which has no other reader.
    """

    def __init__(self, stream: QueueStream[T]) -> None:
        import asyncio  # imported already where an event loop runs

        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        stream.listen(lambda: _wake(loop, arrived))
        self._stream, self._arrived = stream, arrived
        self._failure: Exception | None = None

    def __aiter__(self) -> Arrivals[T]:
        return self

    async def __anext__(self) -> list[T]:
        """Wait for the next batch, which is not empty, and return it.

        An error of the stream is raised after the items that arrived before it.
        """
        while self._failure is None and not self._stream.is_finished:
            self._arrived.clear()
            batch = self._take_batch()
            if batch:
                return batch
            if not self._stream.is_finished:
                await self._arrived.wait()
        if self._failure is not None:
            raise self._failure
        raise StopAsyncIteration

    def _take_batch(self) -> list[T]:
        """Return the items that have arrived; keep an error for after them."""
        batch: list[T] = []
        try:
            for item in islice(self._stream.take_arrived(), MAX_BATCH):
                batch.append(item)  # noqa: PERF402 - what came before an error is kept
        except Exception as error:
            if not batch:
                raise
            self._failure = error
        return batch


async def in_thread(function: Callable[[], R]) -> R:
    """Await the result of `function`, which runs in a daemon thread.

    The function sees the context variables of the awaiting task. If that task is
    cancelled, the function's task groups are cancelled too.
    """
    import asyncio  # as in `Arrivals`

    scope = CancelScope()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    outcome, work = scoped_work(scope, function, lambda: _wake(loop, ended))
    _THREADS.run(work)
    try:
        await ended.wait()
    except (asyncio.CancelledError, GeneratorExit):
        scope.cancel()
        raise
    return outcome.result()  # raised here, where Python can handle a StopIteration


class _Waker:
    """Sets events of an event loop from other threads.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._events: deque[asyncio.Event] = deque()

    def set(self, event: asyncio.Event) -> None:
        """Set an event of the loop soon. Any thread may call it.

        Events that are set in one block of `wake_once` cost one wake-up, which is a
        system call on each side.
        """
        self._events.append(event)
        wake(self._wake)

    def _wake(self) -> None:
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop was closed, so no task waits
                loop.call_soon_threadsafe(self._set_all)

    def _set_all(self) -> None:
        while self._events:
            self._events.popleft().set()


_WAKERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waker] = weakref.WeakKeyDictionary()


def _wake(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> None:
    """Set an event of the loop from any thread, unless it is set already.

    Readers clear the event before they look for new items, so they miss none.
    """
    if not arrived.is_set():
        waker = _WAKERS.get(loop)
        if waker is None:
            waker = _WAKERS.setdefault(loop, _Waker(loop))
        waker.set(arrived)


def _name_awaitable(form: Callable[P, R], method: Callable[P, Any]) -> Callable[P, R]:
    """Give an awaitable form the method's name with an "a" before, and a docstring."""
    form.__name__ = "a" + method.__name__
    form.__qualname__ = method.__qualname__[: -len(method.__name__)] + form.__name__
    form.__doc__ = f"`{method.__name__}`, to be awaited. Cancelling it cancels the work."
    return form


def by_windows(items: Iterator[T], size: int, run: Callable[[list[T], int], list[R]]) -> Iterator[list[R]]:
    """Yield what `run` returns for `size` items at a time and the index of their first.

    If reading an item fails, the items before it are run first.
    """
    first = 0
    failed: Exception | None = None
    while failed is None:
        window: list[T] = []
        try:
            window.extend(islice(items, size))
        except Exception as error:  # noqa: BLE001 - whatever the caller's iterator raises
            failed = error
        if not window:
            break
        yield run(window, first)
        first += len(window)
    if failed is not None:
        raise failed


@contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Add the index of a window's first item to the request index of errors."""
    try:
        with of_request(0):
            yield
    except SelectrieError as error:
        error.request = None if error.request is None else first + error.request
        raise


class WindowItems(Iterator[T]):
    """The items of windows, one after the other.

    Attributes:
        windows: The windows that are left.
    """

    def __init__(self, windows: Iterator[list[T]]) -> None:
        self.windows = windows
        self._items = chain.from_iterable(windows)

    def __next__(self) -> T:
        return next(self._items)
