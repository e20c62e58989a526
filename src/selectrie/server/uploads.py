"""The requests whose bodies are being received, by client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from selectrie.engine.scheduler.turns import Turn
from selectrie.server.body import Receive
from selectrie.server.http_errors import HttpError, busy


class Uploads:
    """Shares places in the queue between clients that send bodies.

    A body may take its time, so one client could hold every place with bodies that
    hardly come. When all places are taken, the newest upload of the client that has
    most of them gives way to a client with fewer requests, by two at least.
    """

    def __init__(self) -> None:
        self._places: dict[Turn, list[asyncio.Future[HttpError]]] = {}
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
    def place(self, client: Turn, receive: Receive) -> Iterator[Receive]:
        """Yield what receives a body of a client, in place of `receive`.

        It raises `HttpError` when the place is lost, which lasts until the body has
        come or the block ends.
        """
        lost: asyncio.Future[HttpError] = asyncio.get_running_loop().create_future()
        self._places.setdefault(client, []).append(lost)

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
        places = self._places.get(client, [])
        if lost in places:
            places.remove(lost)
            if not places:
                del self._places[client]

    def give_way(self, client: Turn) -> bool:
        """Return whether the place of an upload was given to a request of `client`."""
        most = max(self._places.values(), key=len, default=[])
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
        for places in self._places.values():
            for lost in places:
                lost.set_result(error)
        self._places.clear()
