"""Sends responses of server-sent events, as clients of OpenAI's API read them.

An event is a line `data: {…}` and an empty line; the last one is `data: [DONE]`. Memory
does not grow with a slow reader: an event is made when the one before it has been taken
by the connection, and what the engine draws meanwhile is joined into the next one. The
engine itself draws no more than the request's `max_tokens`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from selectrie.server import exchange as exchanges
from selectrie.server import state as states
from selectrie.server.exchange import Exchange, encoded_json
from selectrie.server.http_errors import HttpError, error_of

logger = logging.getLogger("selectrie.server")

Event: TypeAlias = Mapping[str, Any]
Events: TypeAlias = AsyncGenerator[Sequence[Event], None]
"""Events in the order in which they are sent; those of one item are sent together."""

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
CONTENT_TYPE = "text/event-stream"


class EventStream(Response):
    """A response whose events are made while it is sent.

    Its first events are awaited before the response begins. An error before them is
    raised, and so becomes a whole response with its own status. A later one becomes an
    event `data: {"error": …}`, after which the stream ends. The generator is closed
    however the response ends, also if it is cancelled.

    Args:
        events: The events. Its `finally` blocks and context managers free what it
            holds.
    """

    media_type = CONTENT_TYPE

    def __init__(self, events: Events) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"}, media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and comments while there are none."""
        del receive  # the gate sees when the client leaves, and cancels
        exchange: Exchange = scope[exchanges.KEY]
        ping_s: float = scope[states.KEY].options.ping_interval_s
        coming = self._next()
        try:
            events = await coming
            if events:
                exchange.first_s = perf_counter() - exchange.began_s
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while events is not None:
                if events:
                    await _send(send, b"".join(map(encoded_event, events)))
                coming = self._next()
                while not (await asyncio.wait({coming}, timeout=ping_s))[0]:
                    await _send(send, PING)
                try:
                    events = coming.result()
                except Exception as error:  # noqa: BLE001 - the response has begun, so it ends with an event
                    await _send(send, self._failed(error, exchange), is_last=True)
                    return
            await _send(send, DONE, is_last=True)
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await coming
            await self._events.aclose()

    def _next(self) -> asyncio.Future[Sequence[Event] | None]:
        """Begin to wait for the next events, None after the last."""
        return asyncio.ensure_future(_next_or_none(self._events))

    @staticmethod
    def _failed(error: Exception, exchange: Exchange) -> bytes:
        response = error_of(error, exchange.fields)
        if response.status >= 500 and not isinstance(error, HttpError):
            logger.error("%s failed while it was streamed", exchange.id, exc_info=error)
        exchange.error = response.code
        return error_ending(response)


def encoded_event(event: Event) -> bytes:
    """Return an event as it is sent."""
    return b"data: " + encoded_json(event) + b"\n\n"


def error_ending(error: HttpError) -> bytes:
    """Return the end of a stream that an error has ended."""
    return encoded_event(error.body()) + DONE


async def _next_or_none(events: Events) -> Sequence[Event] | None:
    async for item in events:
        return item
    return None


async def _send(send: Send, data: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not is_last})
