"""Resources that clients share: permits to send bodies and to prepare large requests.

To read, tokenize or write a large request takes seconds of a core. Requests wait for
one of a few permits on the event loop, without a thread, and clients take turns. A body
that is being received holds a permit in the queue, which it may lose to another client.
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
from selectrie.server.http_errors import HttpError, retry_error

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
        """Await work that runs in a thread and starts once there is a permit.

        The permit is free when the thread ends, or before it waits for the model. If
        the awaiting task is cancelled while it waits for a permit, the work does not
        begin. If it is cancelled later, this still waits until the permit is free: a
        client that sends and leaves, again and again, would otherwise have any number
        of threads.

        Args:
            turn: The client's turn: different clients get permits alternately.
            start: Starts the work, with `in_thread` or an awaitable method of an
                engine.
            began_s: Time at which the request came. A client's oldest request goes
                first, so its requests are answered one after the other, not all at the
                end.
        """
        permit = await self._permit(turn, began_s)
        try:
            with when_prepared(permit.leave):
                return await start()
        except asyncio.CancelledError:
            await permit.left.wait()
            raise
        finally:
            permit.leave()  # no thread was started

    async def _permit(self, turn: Turn, began_s: float = 0.0) -> _Permit:
        """Return a permit, after waiting for one if none is free."""
        permit = _Permit(self, began_s)
        with self._lock:
            if self._n_free:
                self._n_free -= 1
                return permit
            insort(self._waiting.setdefault(turn, []), permit, key=attrgetter("began_s"))
        try:
            await permit.taken.wait()
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
                if permit.wake(permit.taken):
                    return
            self._n_free += 1


class _Permit:
    """A permit, or a place in the line for one.

    Attributes:
        began_s: Time at which its request came.
        taken: Set when the waiting request gets the permit.
        left: Set when the permit is free again.
    """

    def __init__(self, permits: Permits, began_s: float) -> None:
        self.began_s = began_s
        self._permits, self._loop, self._lock = permits, asyncio.get_running_loop(), Lock()
        self.taken, self.left = asyncio.Event(), asyncio.Event()
        self._was_left = False

    def leave(self) -> None:
        """Free the permit; later calls do nothing. Any thread may call it."""
        with self._lock:
            was_left, self._was_left = self._was_left, True
        if not was_left:
            self._permits.free()
            self.wake(self.left)

    def wake(self, event: asyncio.Event) -> bool:
        """Set an event on the event loop; return False if the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(event.set)
            return True
        return False


class Uploads:
    """Shares the server's places for requests between clients that send bodies.

    A body may take its time, so one client could hold every place with bodies that
    hardly arrive. When all places are taken, the newest upload of the client with most
    of them gives way to a client that has at least two requests fewer.
    """

    def __init__(self) -> None:
        self._permits: dict[Turn, list[asyncio.Future[HttpError]]] = {}
        self._n_open: Counter[Turn] = Counter()

    @contextmanager
    def count_request(self, client: Turn) -> Iterator[None]:
        """Count one more open request of a client until the block ends."""
        self._n_open[client] += 1
        try:
            yield
        finally:
            self._n_open[client] -= 1
            if not self._n_open[client]:
                del self._n_open[client]

    @contextmanager
    def permit(self, client: Turn, receive: Receive) -> Iterator[Receive]:
        """Yield a replacement for `receive` that reads a client's body.

        It raises `HttpError` when the upload has to give way, which may happen until
        the body has arrived or the block ends.
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
        """Forget an upload, which has arrived or ended."""
        permits = self._permits.get(client, [])
        if lost in permits:
            permits.remove(lost)
            if not permits:
                del self._permits[client]

    def give_way_to(self, client: Turn) -> bool:
        """Make the busiest client's newest upload give way to a request of `client`.

        Returns whether there was such an upload.
        """
        most = max(self._permits.values(), key=len, default=[])
        if len(most) <= self._n_open[client] + 1:
            return False
        message = (
            "another client needs the place, and most bodies that are not received yet are yours: "
            "send fewer requests at once, and each body without a pause"
        )
        most.pop().set_result(retry_error(message, status=429, code="queue_full"))
        return True

    def refuse(self, error: HttpError) -> None:
        """Answer every request whose body has not arrived with an error."""
        for permits in self._permits.values():
            for lost in permits:
                lost.set_result(error)
        self._permits.clear()
