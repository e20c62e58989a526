"""One request and its response, as all parts of the server see it.

A streamed response has server-sent events, as clients of OpenAI's API read them. An
event is a line `data: {…}` and an empty line, after a line `event: …` if it has a
`type`; the last one is `data: [DONE]`. Memory does not grow with a slow reader: an
event is made when the connection has taken the one before it, and text drawn meanwhile
is joined into the next one. The engine draws no more than the request's `max_tokens`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from bisect import insort
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from selectrie.core.types import Cost
from selectrie.engine.aio import in_thread
from selectrie.engine.scheduler.task_group import when_prepared
from selectrie.engine.scheduler.turns import Turn
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, error_at, error_of

R = TypeVar("R")
LARGE_AT_ONCE = 2
"""Number of threads of a server that work on large requests at once.

More would take cores, and Python's lock, from the event loop and the model.
"""
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_SHOWN = re.compile(r"[^\x20-\x7e]")
"""Characters that a header cannot have."""
_MAX_ID = 128
"""Maximum number of characters of a request's id."""
KEY = "selectrie.exchange"
"""Name of the exchange in the scope of a request."""
NO_COST = Cost()


class Permits:
    """The permits of a server for work on large requests.

    To read, tokenize or write a large request takes seconds of a core. Requests wait
    for one of a few permits on the event loop, without a thread. Clients take turns.

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


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way through the server, with facts for log and metrics.

    Attributes:
        id: The request's id, from the client if it gave one.
        endpoint: The path, or "other" for unknown paths.
        refused_host: Value of the header `Host`, if it is refused.
        encoding: Compression of the body: "identity", "gzip" or "zstd".
        body: The object of a body of JSON.
        fields: Names of the body's fields by the options that they set.
        meter: Called with each cost as the engine reports it, on the model's thread.
        client: Address of the client.
        key: The first digits of the SHA-256 digest of its API key; "" without one.
        turn: The turn of its client, which all requests of a key or an address share.
        is_large: Whether work on the body holds up the event loop.
        permits: The server's few permits for work on large requests.
        model: Name of the model that answers.
        warnings: Warnings for the header `x-selectrie-warning`.
        notices: Warnings of the library while it works on the request.
        n_prompt: Number of prompt tokens.
        n_drawn: Number of tokens drawn.
        n_reused: Number of prompt tokens that were cached, so needed no model row.
        cost: The model's work for it so far.
        rows_naive: Rows that the answer would take with one model call for each text.
        is_accepted: Whether it counts as an open request.
        waits_for: The cause of its waiting: "body", "model", "engine" or "" (none).
        lost: Reason why it was given up (`state.REASONS`); "" if it was not.
        status: Status of the response; 0 before it has begun.
        error: Code of the error that is the response or ended it; "" for none.
        began_s: Time at which the request came, by `time.perf_counter`.
        queue_s: Seconds until the engine began to work on it; None before.
        first_s: Seconds until the first event of a stream; None before.
    """

    id: str
    endpoint: str
    meter: Callable[[Cost], object] = lambda _: None
    client: str = ""
    key: str = ""
    refused_host: str | None = None
    encoding: str = "identity"
    body: dict[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    turn: Turn = field(default_factory=Turn)
    is_large: bool = False
    permits: Permits = field(default_factory=Permits)
    model: str = ""
    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    n_prompt: int = 0
    n_drawn: int = 0
    n_reused: int = 0
    cost: Cost = NO_COST
    rows_naive: int = 0
    is_accepted: bool = False
    waits_for: str = "body"
    lost: str = ""
    status: int = 0
    error: str = ""
    began_s: float = field(default_factory=perf_counter)
    queue_s: float | None = None
    first_s: float | None = None

    async def in_thread(self, function: Callable[[], R]) -> R:
        """Return the function's result, computed in a thread.

        If the request is large, this waits for a permit first.
        """
        return await self.hold(lambda: in_thread(function))

    async def hold(self, start: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Await the coroutine of `start`, whose work runs in a thread.

        If the request is large, this waits for a permit first.
        """
        return await (self.permits.hold(self.turn, start, self.began_s) if self.is_large else start())

    async def run(self, function: Callable[[], R]) -> R:
        """Return the function's result.

        It runs in a thread if the request is large, else at once on the event loop.
        """
        return await self.in_thread(function) if self.is_large else function()

    def response_of(self, error: Exception) -> HttpError:
        """Return the response for an exception, as clients of the endpoint read it."""
        return error_at(self.endpoint, error_of(error, self.fields), self.body)

    def note_admission(self) -> None:
        """Note that the engine has begun to work on it. Any thread may call it."""
        if self.queue_s is None:
            self.queue_s, self.waits_for = perf_counter() - self.began_s, ""

    def add_cost(self, cost: Cost) -> None:
        """Add the cost of a task's part of a model call, on the model's thread."""
        self.cost += cost
        self.meter(cost)

    def add_reused(self, n_tokens: int) -> None:
        """Add cached tokens of a task's prompt, on the model's thread."""
        self.n_reused += n_tokens

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that every response has."""
        own = self.id.encode("ascii")
        warned = _NOT_SHOWN.sub("?", "; ".join(self.warnings)).encode("ascii")
        spent_ms = str(round(1_000 * (perf_counter() - self.began_s))).encode("ascii")
        headers = [(b"x-request-id", own), (b"x-typesafe-request-id", own), (b"openai-processing-ms", spent_ms)]
        return [*headers, (b"x-selectrie-warning", warned)] if warned else headers


async def read_request(
    exchange: Exchange,
    read: Callable[[Mapping[str, Any], ServerOptions], R],
    options: ServerOptions,
    *,
    has_grammar: bool = False,
) -> R:
    """Return the request that `read` makes of the body; `request_id` sets the id.

    A large body is read under one of the server's permits, and one with a grammar in a
    thread. Neither can be stopped. If the request is given up meanwhile, it keeps its
    place in the queue, and its bytes, until the thread has ended: a client that sends
    and leaves, again and again, would otherwise have any number of threads.

    Args:
        exchange: The request.
        read: Reads the body.
        options: The limits, which `read` gets.
        has_grammar: Whether `read` compiles a grammar, which may take seconds.
    """
    name = exchange.body.get("request_id")
    if name and isinstance(name, str):
        exchange.id = id_of(name)
    if exchange.is_large or not has_grammar:
        return await exchange.run(lambda: read(exchange.body, options))
    reading = asyncio.ensure_future(in_thread(lambda: read(exchange.body, options)))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.exception()  # it is read, so it is not logged
        raise


def id_of(value: str) -> str:
    """Return a client's id, reduced to safe characters and length; else a new one."""
    return _NOT_IN_ID.sub("", value[: 8 * _MAX_ID])[:_MAX_ID] or uuid.uuid4().hex


def exchange_of(request: Request) -> Exchange:
    """Return the record of a request that `middleware.Gate` has put into its scope.

    Every request passes the gate, so a missing record is a `KeyError`.
    """
    exchange: Exchange = request.scope[KEY]
    return exchange


def encode_json(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8; floats keep all their digits."""
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return data.encode("utf-8", "backslashreplace")


def json_response(content: Mapping[str, Any], warnings: Sequence[str] = ()) -> Response:
    """Return a JSON response, with a field `warnings` if there are any."""
    warned = {**content, "warnings": list(warnings)} if warnings else content
    return Response(encode_json(warned), media_type="application/json")


logger = logging.getLogger("selectrie.server")

Event: TypeAlias = Mapping[str, Any] | bytes
"""An object, or a large one as `encode_event` has written it in a thread."""
Events: TypeAlias = AsyncGenerator[Sequence[Event], None]
"""Events in the order in which they are sent; an item's events are sent together."""

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
"""A comment, which clients ignore: it keeps the connection from looking idle."""
CONTENT_TYPE = "text/event-stream"


class EventStream(Response):
    """A response whose events are made while it is sent.

    Its first events are awaited before the response begins. An error before them is
    raised, and so becomes a whole response with its own status. A later one becomes an
    event `data: {"error": …}`, after which the stream ends. The generator is closed
    however the response ends, also if it is cancelled.

    Args:
        events: Yields the events, and frees its resources when it is closed.
        ping_s: Seconds without an event after which a comment is sent.
    """

    media_type = CONTENT_TYPE

    def __init__(self, events: Events, ping_s: float) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"}, media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self._events, self._ping_s = events, ping_s
        self._idle_since_s: float | None = None
        """Time at which the last event had been sent; None while one is being sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and comments while there are none."""
        del receive  # the gate sees when the client leaves, and cancels
        exchange: Exchange = scope[KEY]
        pinging, ending = None, DONE
        try:
            events = await anext(self._events, None)
            if events:
                exchange.first_s = perf_counter() - exchange.began_s
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pinging = asyncio.ensure_future(self._ping(send))
            while events is not None:
                if events:
                    self._idle_since_s = None
                    await _send(send, b"".join(map(encode_event, events)))
                self._idle_since_s = asyncio.get_running_loop().time()
                try:
                    events = await anext(self._events, None)
                except Exception as error:  # noqa: BLE001 - the response has begun, so it ends with an event
                    ending, events = self._end_with_error(error, exchange), None
            pinging.cancel()
            await asyncio.wait({pinging})
            await _send(send, ending, is_last=True)
        finally:
            if pinging is not None:
                pinging.cancel()
            await self._events.aclose()

    async def _ping(self, send: Send) -> None:
        """Send a comment whenever no event was sent for some time, until cancelled."""
        clock = asyncio.get_running_loop().time
        with suppress(Exception):  # if the connection is broken, the events say so
            while True:
                since_s = self._idle_since_s
                await asyncio.sleep(self._ping_s if since_s is None else since_s + self._ping_s - clock())
                if since_s is not None and since_s == self._idle_since_s:
                    await _send(send, PING)
                    self._idle_since_s = clock()

    @staticmethod
    def _end_with_error(error: Exception, exchange: Exchange) -> bytes:
        """Return the bytes that end the stream with an error, and note it."""
        response = exchange.response_of(error)
        if response.status >= 500 and not isinstance(error, HttpError):
            logger.error("%s failed while it was streamed", exchange.id, exc_info=error)
        exchange.error = response.code
        return encode_error_ending(response)


def encode_event(event: Event) -> bytes:
    """Return an event as the bytes `data: {…}`, with its type before, if it has one."""
    if isinstance(event, bytes):
        return event
    name = b"event: " + event["type"].encode() + b"\n" if "type" in event else b""
    return name + b"data: " + encode_json(event) + b"\n\n"


def encode_error_ending(error: HttpError) -> bytes:
    """Return the bytes that end a stream with an error."""
    return encode_event(error.body()) + DONE


async def _send(send: Send, data: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not is_last})
