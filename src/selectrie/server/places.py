"""Bounds how many large requests are prepared at once.

To read, tokenize or write a large request takes seconds of a core. Requests wait for
one of a few places on the event loop, without a thread, and clients take turns.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Coroutine
from contextlib import suppress
from operator import attrgetter
from threading import Lock
from typing import Any, TypeVar

from selectrie.engine.scheduler.task_group import when_prepared
from selectrie.engine.scheduler.turns import Turn

R = TypeVar("R")

LARGE_AT_ONCE = 2
"""Number of threads of a server that work on large requests at once.

More would take cores, and Python's lock, from the event loop and the model.
"""


class Places:
    """The places of a server for work on large requests.

    Args:
        n_places: Number of places.
    """

    def __init__(self, n_places: int = LARGE_AT_ONCE) -> None:
        self._lock = Lock()
        self._n_free = n_places
        self._waiting: dict[Turn, list[_Place]] = {}

    async def hold(self, turn: Turn, start: Callable[[], Coroutine[Any, Any, R]], began_s: float = 0.0) -> R:
        """Await work that runs in a thread, which it gets once there is a place.

        The place is free when the thread ends, or before it waits for the model. If the
        awaiting task is cancelled while it waits for a place, the work does not begin.
        If it is cancelled later, this still waits until the place is free: who sends
        and leaves, again and again, would else have any number of threads.

        Args:
            turn: Who waits: those with different turns get places alternately.
            start: Starts the work, with `in_thread` or an awaitable method of an
                engine.
            began_s: When the request came. The first of a client goes on first, so
                requests are answered one after the other, and not all at the end.
        """
        place = await self._place(turn, began_s)
        try:
            with when_prepared(place.leave):
                return await start()
        except asyncio.CancelledError:
            await place.is_left.wait()
            raise
        finally:
            place.leave()  # no thread was started

    async def _place(self, turn: Turn, began_s: float = 0.0) -> _Place:
        place = _Place(self, began_s)
        with self._lock:
            if self._n_free:
                self._n_free -= 1
                return place
            insort(self._waiting.setdefault(turn, []), place, key=attrgetter("began_s"))
        try:
            await place.is_taken.wait()
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = place in self._waiting.get(turn, ())
                if is_waiting:
                    self._waiting[turn].remove(place)
                    if not self._waiting[turn]:
                        del self._waiting[turn]
            if not is_waiting:  # it was taken just now
                place.leave()
            raise
        return place

    def free(self) -> None:
        """Give a place to the next client that waits. Any thread may call it."""
        with self._lock:
            while self._waiting:
                turn = next(iter(self._waiting))
                line = self._waiting.pop(turn)
                place = line.pop(0)
                if line:
                    self._waiting[turn] = line  # behind all others
                if place.wake(place.is_taken):
                    return
            self._n_free += 1


class _Place:
    """A place, or the wait for one.

    Attributes:
        began_s: When its request came.
        is_taken: Set when who waited has the place.
        is_left: Set when the place is free again.
    """

    def __init__(self, places: Places, began_s: float) -> None:
        self.began_s = began_s
        self._places, self._loop, self._lock = places, asyncio.get_running_loop(), Lock()
        self.is_taken, self.is_left = asyncio.Event(), asyncio.Event()
        self._was_left = False

    def leave(self) -> None:
        """Free the place, once. Any thread may call it."""
        with self._lock:
            was_left, self._was_left = self._was_left, True
        if not was_left:
            self._places.free()
            self.wake(self.is_left)

    def wake(self, event: asyncio.Event) -> bool:
        """Set an event of the loop; return False if the loop was closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(event.set)
            return True
        return False
