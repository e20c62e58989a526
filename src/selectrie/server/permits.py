"""What clients share: permits to send bodies, and to have large requests prepared.

To read, tokenize or write a large request takes seconds of a core. Requests wait for
one of a few permits on the event loop, without a thread, and clients take turns. A body
that is being received has a permit of the queue, which it may lose to another client.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from threading import Lock
from typing import Any, TypeVar

from starlette.types import Receive

from selectrie.engine.scheduler.task_group import when_prepared
from selectrie.engine.scheduler.turns import Turn
from selectrie.server.http_errors import HttpError, busy

R = TypeVar("R")

LARGE_AT_ONCE = 2
"""Number of threads of a server that work on large requests at once.

More would take cores, and Python's lock, from the event loop and the model.
"""


class Permits:
    """The permits of a server for work on large requests.

    Args:
        n_permits: Number of permits.
    """

    def __init__(self, n_permits: int = LARGE_AT_ONCE) -> None:
        self._lock = Lock()
        self._n_free = n_permits
        self._waiting: dict[Turn, list[_Permit]] = {}

    async def hold(self, turn: Turn, start: Callable[[], Coroutine[Any, Any, R]], began_s: float = 0.0) -> R:
        """Await work that runs in a thread, which it gets once there is a permit.

        The permit is free when the thread ends, or before it waits for the model. If
        the awaiting task is cancelled while it waits for a permit, the work does not
        begin. If it is cancelled later, this still waits until the permit is free: who
        sends and leaves, again and again, would else have any number of threads.

        Args:
            turn: Who waits: those with different turns get permits alternately.
            start: Starts the work, with `in_thread` or an awaitable method of an
                engine.
            began_s: When the request came. The first of a client goes on first, so
                requests are answered one after the other, and not all at the end.
        """
        permit = await self._permit(turn, began_s)
        try:
            with when_prepared(permit.leave):
                return await start()
        except asyncio.CancelledError:
            await permit.is_left.wait()
            raise
        finally:
            permit.leave()  # no thread was started

    async def _permit(self, turn: Turn, began_s: float = 0.0) -> _Permit:
        permit = _Permit(self, began_s)
        with self._lock:
            if self._n_free:
                self._n_free -= 1
                return permit
            insort(self._waiting.setdefault(turn, []), permit, key=attrgetter("began_s"))
        try:
            await permit.is_taken.wait()
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = permit in self._waiting.get(turn, ())
                if is_waiting:
                    self._waiting[turn].remove(permit)
                    if not self._waiting[turn]:
                        del self._waiting[turn]
            if not is_waiting:  # it was taken just now
                permit.leave()
            raise
        return permit

    def free(self) -> None:
        """Give a permit to the next client that waits. Any thread may call it."""
        with self._lock:
            while self._waiting:
                turn = next(iter(self._waiting))
                line = self._waiting.pop(turn)
                permit = line.pop(0)
                if line:
                    self._waiting[turn] = line  # behind all others
                if permit.wake(permit.is_taken):
                    return
            self._n_free += 1


class _Permit:
    """A permit, or the wait for one.

    Attributes:
        began_s: When its request came.
        is_taken: Set when who waited has the permit.
        is_left: Set when the permit is free again.
    """

    def __init__(self, permits: Permits, began_s: float) -> None:
        self.began_s = began_s
        self._permits, self._loop, self._lock = permits, asyncio.get_running_loop(), Lock()
        self.is_taken, self.is_left = asyncio.Event(), asyncio.Event()
        self._was_left = False

    def leave(self) -> None:
        """Free the permit, once. Any thread may call it."""
        with self._lock:
            was_left, self._was_left = self._was_left, True
        if not was_left:
            self._permits.free()
            self.wake(self.is_left)

    def wake(self, event: asyncio.Event) -> bool:
        """Set an event of the loop; return False if the loop was closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(event.set)
            return True
        return False


class Uploads:
    """Shares permits in the queue between clients that send bodies.

    A body may take its time, so one client could hold every permit with bodies that
    hardly come. When all permits are taken, the newest upload of the client that has
    most of them gives way to a client with fewer requests, by two at least.
    """

    def __init__(self) -> None:
        self._permits: dict[Turn, list[asyncio.Future[HttpError]]] = {}
        self._n_open: Counter[Turn] = Counter()

    @contextmanager
    def counted(self, client: Turn) -> Iterator[None]:
        """Count a request of a client, whatever it waits for, until the block ends."""
        self._n_open[client] += 1
        try:
            yield
        finally:
            self._n_open[client] -= 1
            if not self._n_open[client]:
                del self._n_open[client]

    @contextmanager
    def permit(self, client: Turn, receive: Receive) -> Iterator[Receive]:
        """Yield what receives a body of a client, in place of `receive`.

        It raises `HttpError` when the permit is lost, which lasts until the body has
        come or the block ends.
        """
        lost: asyncio.Future[HttpError] = asyncio.get_running_loop().create_future()
        self._permits.setdefault(client, []).append(lost)

        async def received() -> MutableMapping[str, Any]:
            waiting = asyncio.ensure_future(receive())
            either: list[asyncio.Future[Any]] = [waiting, lost]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    raise lost.result()
                message = waiting.result()
            finally:
                waiting.cancel()
            if not message.get("more_body", False):
                self._leave(client, lost)
            return message

        try:
            yield received
        finally:
            self._leave(client, lost)

    def _leave(self, client: Turn, lost: asyncio.Future[HttpError]) -> None:
        permits = self._permits.get(client, [])
        if lost in permits:
            permits.remove(lost)
            if not permits:
                del self._permits[client]

    def give_way(self, client: Turn) -> bool:
        """Return whether the permit of an upload was given to a request of `client`."""
        most = max(self._permits.values(), key=len, default=[])
        if len(most) <= self._n_open[client] + 1:
            return False
        message = (
            "another client needs the place, and most bodies that are not received yet are yours: "
            "send fewer requests at once, and each body without a pause"
        )
        most.pop().set_result(busy(message, status=429, code="queue_full"))
        return True

    def refuse(self, error: HttpError) -> None:
        """Answer all requests whose bodies have not come with an error."""
        for permits in self._permits.values():
            for lost in permits:
                lost.set_result(error)
        self._permits.clear()
