"""One request and its response, as all parts of the server see it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.types import Cost
from selectrie.engine.scheduler.turns import Turn

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
        body: The object of a body of JSON.
        turn: The turn of its client, which all requests of a key or an address share.
        is_large: Whether work on the body holds up the event loop.
        model: Name of the model that answers.
        warnings: Header `x-selectrie-warning`.
        tokens: Number of tokens that were read and drawn for the answer.
        cost: The model work that the answer took.
        is_accepted: Whether it has taken a place in the queue.
        is_waiting: Whether it waits for its model.
        cancelled: Why it was given up before its end; "" if it was not.
        status: Status of the response; 0 before it has begun.
        error: Code of the error that ended a response after it had begun.
        began_s: When the request came, by `time.perf_counter`.
        queue_s: Seconds until the engine began to work on it; None if it did not.
        first_s: Seconds until the first event of a stream; None if there is none.
    """

    id: str
    endpoint: str
    body: dict[str, Any] = field(default_factory=dict)
    turn: Turn = field(default_factory=Turn)
    is_large: bool = False
    model: str = ""
    warnings: list[str] = field(default_factory=list)
    tokens: int = 0
    cost: Cost = NO_COST
    is_accepted: bool = False
    is_waiting: bool = False
    cancelled: str = ""
    status: int = 0
    error: str = ""
    began_s: float = field(default_factory=perf_counter)
    queue_s: float | None = None
    first_s: float | None = None

    def admitted(self) -> None:
        """Note that the engine works on it. May be called from any thread."""
        if self.queue_s is None:
            self.queue_s = perf_counter() - self.began_s

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that every response has."""
        own = self.id.encode("ascii")
        warned = _NOT_SHOWN.sub("?", "; ".join(self.warnings)).encode("ascii")
        headers = [(b"x-request-id", own), (b"x-typesafe-request-id", own)]
        return [*headers, (b"x-selectrie-warning", warned)] if warned else headers


def id_of(value: str) -> str:
    """Return a client's id, cut to what a log and a header can hold; else a new one."""
    return _NO_ID.sub("", value)[:_MAX_ID] or uuid.uuid4().hex


def exchange_of(request: Request) -> Exchange:
    """Return the exchange of a request."""
    exchange: Exchange = request.scope[KEY]
    return exchange


def encoded_json(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON; floats have the digits that give them back."""
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return data.encode("utf-8", "backslashreplace")


def json_response(content: Mapping[str, Any]) -> Response:
    """Return a response of JSON."""
    return Response(encoded_json(content), media_type="application/json")
