"""One request and its response, as all parts of the server see it."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.types import Cost
from selectrie.engine.aio import in_thread
from selectrie.engine.scheduler.turns import Turn
from selectrie.server.options import ServerOptions
from selectrie.server.places import Places
from selectrie.server.structured_outputs import FIELD as STRUCTURED_OUTPUTS

R = TypeVar("R")
_NO_ID = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_SHOWN = re.compile(r"[^\x20-\x7e]")
_MAX_ID = 128
KEY = "selectrie.exchange"
"""Name of the exchange in the scope of a request."""


NO_COST = Cost()


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way, and what is known of it for the log and the metrics.

    Attributes:
        id: The request's id, from the client if it gave one.
        endpoint: The path, or "other" for paths that there are not.
        encoding: How the body is compressed.
        body: The object of a body of JSON.
        fields: The fields of the body by the names of the options that they become.
        meter: Called with each cost as the engine reports it, on the model's thread.
        client: The address that it came from.
        key: The first digits of the SHA-256 digest of its API key; "" without one.
        turn: The turn of its client, which all requests of a key or an address share.
        is_large: Whether work on the body holds up the event loop.
        places: Where work on large requests is done, of which a server has few.
        model: Name of the model that answers.
        warnings: Header `x-selectrie-warning`.
        notices: What the library warns of while it works on the request.
        n_prompt: Number of tokens that were read for the answer.
        n_drawn: Number of tokens that were drawn for it.
        n_reused: Number of tokens in prompts of its tasks that needed no row.
        cost: The model work that it has taken so far.
        rows_naive: Rows that its answer would have taken one by one.
        is_accepted: Whether it has taken a place in the queue.
        waits_for: What it waits for: "body", "model" or "engine"; "" for nothing.
        lost: Why it was given up before its end; "" if it was not.
        status: Status of the response; 0 before it has begun.
        error: Code of the error that is the response or ended it; "" for none.
        began_s: When the request came, by `time.perf_counter`.
        queue_s: Seconds until the engine began to work on it; None if it did not.
        first_s: Seconds until the first event of a stream; None if there is none.
    """

    id: str
    endpoint: str
    meter: Callable[[Cost], object] = lambda _: None
    client: str = ""
    key: str = ""
    encoding: str = "identity"
    body: dict[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    turn: Turn = field(default_factory=Turn)
    is_large: bool = False
    places: Places = field(default_factory=Places)
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
        """Await the result of a function in a thread; a large request needs a place."""
        return await self.hold(lambda: in_thread(function))

    async def hold(self, start: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Await what `start` starts in a thread; a large request needs a place."""
        return await (self.places.hold(self.turn, start, self.began_s) if self.is_large else start())

    async def run(self, function: Callable[[], R]) -> R:
        """Return the result of a function that is quick unless the request is large.

        It then runs in a thread, and else at once.
        """
        return await self.in_thread(function) if self.is_large else function()

    def admitted(self) -> None:
        """Note that the engine works on it. May be called from any thread."""
        if self.queue_s is None:
            self.queue_s, self.waits_for = perf_counter() - self.began_s, ""

    def spent(self, cost: Cost) -> None:
        """Add what a task took of a model call, on the model's thread."""
        self.cost += cost
        self.meter(cost)

    def reused(self, n_tokens: int) -> None:
        """Add tokens of a task's prompt that needed no row, on the model's thread."""
        self.n_reused += n_tokens

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that every response has."""
        own = self.id.encode("ascii")
        warned = _NOT_SHOWN.sub("?", "; ".join(self.warnings)).encode("ascii")
        headers = [(b"x-request-id", own), (b"x-typesafe-request-id", own)]
        return [*headers, (b"x-selectrie-warning", warned)] if warned else headers


async def read_request(
    exchange: Exchange, read: Callable[[Mapping[str, Any], ServerOptions], R], options: ServerOptions
) -> R:
    """Return the request that a body is; its `request_id` names the exchange.

    A large body is read in one of the server's places, and one with a grammar in a
    thread. Neither can be stopped. If the request is given up meanwhile, it keeps its
    place in the queue, and its bytes, until the thread has ended: a client that sends
    and leaves, again and again, would else have any number of threads.
    """
    name = exchange.body.get("request_id")
    if name and isinstance(name, str):
        exchange.id = id_of(name)
    if exchange.is_large or exchange.body.get(STRUCTURED_OUTPUTS) is None:
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
    """Return a client's id, cut to what a log and a header can hold; else a new one."""
    return _NO_ID.sub("", value[: 8 * _MAX_ID])[:_MAX_ID] or uuid.uuid4().hex


def exchange_of(request: Request) -> Exchange:
    """Return the exchange of a request."""
    exchange: Exchange = request.scope[KEY]
    return exchange


def encoded_json(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON; floats have the digits that give them back."""
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return data.encode("utf-8", "backslashreplace")


def json_response(content: Mapping[str, Any], warnings: Sequence[str] = ()) -> Response:
    """Return a response of JSON, with the warnings if there are any."""
    warned = {**content, "warnings": list(warnings)} if warnings else content
    return Response(encoded_json(warned), media_type="application/json")
