"""Lets requests in, or refuses them by their headers before a body is read.

This is plain ASGI, without a framework's middleware: one that reads the body itself
could not see that a client has left.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from time import perf_counter
from typing import Any, TypeAlias

from starlette.types import Receive

from selectrie.engine.scheduler.task_group import count_for
from selectrie.results.advice import collected_warnings
from selectrie.server import exchange as exchanges
from selectrie.server import state as states
from selectrie.server.body import ENCODINGS, BodyShare, Disconnected, read_body, receive_body, too_large
from selectrie.server.exchange import CONTENT_TYPE, Exchange, error_ending, id_of
from selectrie.server.http_errors import HttpError, busy, draining, error_of, headers_of
from selectrie.server.state import ServerState

logger = logging.getLogger("selectrie.server")

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready"})
"""Paths of probes: no key, any `Host` or none, answered while the server drains."""
WORK = frozenset(
    {
        "/v1/decisions",
        "/v1/systemone",
        "/v1/completions",
        "/v1/chat/completions",
        "/tokenize",
        "/detokenize",
        "/v1/vocabulary/encode",
    }
)
"""Paths that take a body of JSON, and count as open requests."""
ENDING_TIMEOUT_S = 1.0
"""Seconds in which a reader must take the error that ends its stream."""
LOST: Mapping[str, int] = {"disconnected": 499, "deadline": 504, "shutdown": 503}
"""Statuses in the log and the metrics of requests that were given up, by the reason.

The response of such a request did not begin, or was cut.
"""
_KEY_DIGITS = 8
"""Number of hexadecimal digits by which the log names a key."""
_KIND = b"content-type"
_MAX_DIGITS = 20
"""Number of digits of a length that are read; any so long is too large."""
READS = frozenset({"/tokenizer_info", "/v1/vocabulary"})
"""Paths without a body that may load a model, and count as open requests too."""
_MODELS = "/v1/models"
_OTHER = frozenset({_MODELS, "/metrics", "/version", "/docs", "/openapi.json"})


class Gate:
    """An ASGI application around another one.

    Args:
        inner: The application that answers what is let in. It reads the parsed body
            from its `Exchange`.
        state: What the application shares.
    """

    def __init__(self, inner: AsgiApp, state: ServerState) -> None:
        self._inner, self._state = inner, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        endpoint = _MODELS if path.startswith(_MODELS) else path
        known = endpoint in WORK or endpoint in READS or endpoint in OPEN or endpoint in _OTHER
        meter, client = self._state.metrics.spent, (scope.get("client") or ("",))[0]
        exchange = Exchange(id_of(headers.get(b"x-request-id", "")), endpoint if known else "other", meter, client)
        exchange.permits = self._state.permits
        scope[exchanges.KEY], scope[states.KEY] = exchange, self._state
        answer = _Response(send, exchange, self._state)
        try:
            with collected_warnings() as exchange.notices:
                self._check_headers(scope, headers)
                if _is_work(scope):
                    await self._work(scope, receive, answer, headers)
                else:
                    await self._inner(scope, receive, answer)
        except Disconnected:
            exchange.lost = "disconnected"
        except Exception as error:  # noqa: BLE001 - everything is answered
            await self._fail(error, answer)
        except asyncio.CancelledError:  # the server ends and does not wait any more
            exchange.lost = "shutdown"
            await self._fail(draining(), answer)
            raise
        finally:
            if self._state.is_dropping and not answer.is_whole:
                exchange.lost = "shutdown"
            self._end(exchange, scope["method"])

    def _check_headers(self, scope: Scope, headers: dict[bytes, str]) -> None:
        """Raise `HttpError` for what headers alone tell."""
        options, path = self._state.options, scope["path"]
        host = headers.get(b"host", "")
        if options.hosts and path not in OPEN and _without_port(host) not in options.hosts:
            raise HttpError(403, "host", f"the host {host[:80]!r} is not one that this server answers to")
        key = _key_of(headers, options.key_digests)
        if path not in OPEN and options.key_digests and not key:
            message = "the API key is missing or wrong: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            raise HttpError(401, "api_key", message, headers={"www-authenticate": "Bearer"})
        exchange: Exchange = scope[exchanges.KEY]
        exchange.key = key.hex()[:_KEY_DIGITS]
        if not _is_work(scope):
            return
        exchange.turn = self._state.turn_of(key or exchange.client)
        if self._state.is_draining:
            raise draining()
        if path in WORK:
            exchange.encoding = self._check_body(headers)
        if self._state.n_open >= options.max_requests and not self._state.uploads.give_way(exchange.turn):
            message = (
                f"{options.max_requests} requests wait or are worked on, and no more are taken: "
                "send fewer at once, or the operator can start the server with a larger --max-requests"
            )
            raise busy(message, status=429, code="queue_full")

    def _check_body(self, headers: dict[bytes, str]) -> str:
        """Return a body's encoding; raise `HttpError` if it would not be read."""
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            why = "; images and files are not read" if kind.startswith("multipart/") else ""
            raise HttpError(415, "content_type", f"the content type is {kind[:80]!r}: expected application/json{why}")
        encoding = headers.get(b"content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise HttpError(415, "content_encoding", f"the encoding is {encoding[:80]!r}: expected zstd or gzip")
        limit = self._state.options.max_body_bytes
        if _declared_length(headers) > limit:
            raise too_large(limit)
        return encoding

    async def _work(self, scope: Scope, receive: Receive, answer: _Response, headers: dict[bytes, str]) -> None:
        """Read the body and answer; stop when the client leaves or time is over."""
        state, exchange = self._state, scope[exchanges.KEY]
        state.n_open += 1
        exchange.is_accepted = True
        count_for(exchange.turn)
        state.metrics.accepted(exchange)
        try:
            with state.uploads.counted(exchange.turn), state.bodies.share() as share:
                data = list[bytes]()
                if scope["path"] in WORK:
                    share.grow(_declared_length(headers))
                    with state.uploads.permit(exchange.turn, receive) as received:
                        data.append(await receive_body(received, state.options, share))
                exchange.waits_for = ""
                await self._until_gone(scope, receive, answer, self._read_and_answered(scope, answer, data, share))
        finally:
            state.n_open -= 1

    async def _read_and_answered(self, scope: Scope, answer: _Response, data: list[bytes], share: BodyShare) -> None:
        """Answer a request; the bytes of its body, if it has one, leave `data`."""
        if data:
            await read_body(data.pop(), scope[exchanges.KEY], self._state.options, share)
        await self._inner(scope, _nothing, answer)

    async def _until_gone(
        self, scope: Scope, receive: Receive, answer: _Response, answering: Coroutine[Any, Any, None]
    ) -> None:
        exchange: Exchange = scope[exchanges.KEY]
        left = self._state.options.deadline_s - (perf_counter() - exchange.began_s)
        work = asyncio.ensure_future(answering)
        answer.leaving = leaving = asyncio.ensure_future(_left(receive))
        try:
            done, _ = await asyncio.wait({work, leaving}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not work.done():
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
        if work in done:
            work.result()
        if leaving in done and not answer.is_whole:
            raise Disconnected
        if done:
            return
        exchange.lost = "deadline"
        raise _too_late(exchange, self._state.options.deadline_s)

    async def _fail(self, error: Exception, answer: _Response) -> None:
        """Answer with an error, which ends a stream and else leaves the response open.

        A reader that does not take the end of its stream does not get it.
        """
        response = error_of(error, answer.exchange.fields)
        if response.status >= 500 and not isinstance(error, HttpError):
            logger.error("%s failed", answer.exchange.id, exc_info=error)
        answer.exchange.error = response.code
        if not answer.exchange.status:
            await send_error(response, answer)
        elif answer.is_streaming:
            ending = answer({"type": "http.response.body", "body": error_ending(response)})
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ending, ENDING_TIMEOUT_S)

    def _end(self, exchange: Exchange, method: str) -> None:
        """Count an exchange, and log it when no model call is under way for it."""
        seconds = perf_counter() - exchange.began_s
        if exchange.lost and exchange.status < 400:
            exchange.status = LOST[exchange.lost]
        self._state.metrics.ended(exchange, seconds)
        if not self._state.options.log_prompts:
            exchange.body = {}  # what still refers to the exchange may wait for Python's collector
        if exchange.endpoint in OPEN:
            return
        write = partial(self._log, exchange, method, seconds)
        engine = self._state.models.engines.get(exchange.model)
        if engine is not None and (exchange.lost or exchange.error):
            engine.after_call(write)
        else:
            write()

    def _log(self, exchange: Exchange, method: str, seconds: float) -> None:
        line = {
            "request_id": exchange.id,
            "client": exchange.client,
            "key": exchange.key,
            "method": method,
            "endpoint": exchange.endpoint,
            "status": exchange.status,
            "error": exchange.error,
            "lost": exchange.lost,
            "model": exchange.model,
            "tokens": exchange.n_prompt + exchange.n_drawn,
            "rows": exchange.cost.rows,
            "model_calls": exchange.cost.model_calls,
            "decode_seconds": round(exchange.cost.decode_s, 6),
            "seconds": round(seconds, 6),
        }
        if self._state.options.log_prompts and exchange.body:
            line["body"] = exchange.body
        level = logging.WARNING if exchange.status >= 500 else logging.INFO
        logger.log(level, json.dumps(line), extra={"line": line})


class _Response:
    """Sends a response with the headers of its exchange, and keeps its status.

    Attributes:
        is_streaming: Whether a stream of events has begun and not ended.
        is_whole: Whether the client was still there when all was sent.
        leaving: A future that is done once the client has left, or None.
    """

    def __init__(self, send: Send, exchange: Exchange, state: ServerState) -> None:
        self._send, self.exchange, self._state = send, exchange, state
        self.is_streaming = self.is_whole = False
        self.leaving: asyncio.Future[None] | None = None

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.exchange.status = message["status"]
            own = list(message.get("headers", ()))
            self.is_streaming = any(value.startswith(CONTENT_TYPE.encode()) for name, value in own if name == _KIND)
            message = {**message, "headers": [*own, *self.exchange.headers()]}
        if message["type"] == "http.response.start" or message.get("more_body", False):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        # This waits until the connection has taken the rest.
        await self._send({"type": "http.response.body", "body": b""})
        self.is_streaming = False
        self.is_whole = not (self._state.is_dropping or (self.leaving is not None and self.leaving.done()))


async def send_error(error: HttpError, send: Send) -> None:
    """Send an error as a whole response."""
    body = error.encoded()
    await send({"type": "http.response.start", "status": error.status, "headers": headers_of(error, body)})
    await send({"type": "http.response.body", "body": body})


def _too_late(exchange: Exchange, deadline_s: float) -> HttpError:
    """Return the error for a request that was not answered in time.

    One that waited for its model all the time may have more luck later.
    """
    if exchange.waits_for == "model":
        return busy(f"no memory was free for the model within {deadline_s:g} s", status=503, code="memory_budget")
    message = f"there was no answer within {deadline_s:g} s"
    return HttpError(504, "deadline", message, headers={"x-should-retry": "false"})


def _declared_length(headers: dict[bytes, str]) -> int:
    """Return the length of the body in bytes as far as it is declared, else 0."""
    length = headers.get(b"content-length", "0")
    return int(length[:_MAX_DIGITS]) if length.isdecimal() else 0


def _is_work(scope: Scope) -> bool:
    """Return whether a request takes a place in the queue."""
    return scope["path"] in (WORK if scope["method"] == "POST" else READS if scope["method"] == "GET" else ())


async def _nothing() -> MutableMapping[str, Any]:
    """Wait for ever: the body was read, and the gate sees when the client leaves."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("a future without a result has ended")


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _without_port(host: str) -> str:
    """Return a host without its port: `[::1]:80` is `[::1]`."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def _key_of(headers: dict[bytes, str], digests: Sequence[bytes]) -> bytes:
    """Return the digest of a request's key, or b"" if it has none of the keys.

    The time that it takes tells nothing. Keys are compared as bytes, as they came.
    """
    bearer = headers.get(b"authorization", "")
    keys = [bearer[7:].strip() if bearer[:7].lower() == "bearer " else "", headers.get(b"x-api-key", "").strip()]
    own = [sha256(key.encode("latin-1")).digest() for key in keys if key]
    found = [digest for one in own for digest in digests if hmac.compare_digest(one, digest)]  # all are compared
    return found[0] if found else b""
