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

_NO_ID = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_ID = 128
KEY = "selectrie.exchange"
"""Name of the exchange in the scope of a request."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way, and what is known of it for the log and the metrics.

    Attributes:
        id: The request's id, from the client if it gave one.
        endpoint: The path, or "other" for paths that there are not.
        body: The object of a body of JSON.
        model: Name of the model that answers.
        warnings: Header `x-selectrie-warning`.
        tokens, rows, rows_one_by_one, model_calls: What the answer took.
        decode_s: Seconds inside the model.
        status: Status of the response; 0 before it has begun.
        error: Code of the error that ended a response after it had begun.
        began_s: When the request came, by `time.perf_counter`.
        queue_s: Seconds until the model was there.
        first_s: Seconds until the first event of a stream; None if there is none.
    """

    id: str
    endpoint: str
    body: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    warnings: list[str] = field(default_factory=list)
    tokens: int = 0
    rows: int = 0
    rows_one_by_one: int = 0
    model_calls: int = 0
    decode_s: float = 0.0
    status: int = 0
    error: str = ""
    began_s: float = field(default_factory=perf_counter)
    queue_s: float = 0.0
    first_s: float | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that every response has."""
        own = self.id.encode("ascii")
        warned = "; ".join(self.warnings).encode("ascii", "backslashreplace")
        found = [(b"x-request-id", own), (b"x-typesafe-request-id", own)]
        return [*found, (b"x-selectrie-warning", warned)] if warned else found


def id_of(given: str) -> str:
    """Return a client's id, cut to what a log and a header can hold; else a new one."""
    return _NO_ID.sub("", given)[:_MAX_ID] or uuid.uuid4().hex


def exchange_of(request: Request) -> Exchange:
    """Return the exchange of a request."""
    found: Exchange = request.scope[KEY]
    return found


def encoded_json(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON; floats have the digits that give them back."""
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return data.encode("utf-8", "backslashreplace")


def json_response(content: Mapping[str, Any]) -> Response:
    """Return a response of JSON."""
    return Response(encoded_json(content), media_type="application/json")
