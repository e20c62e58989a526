"""Admits requests, or refuses them by their headers before a body is read.

This is plain ASGI, without a framework's middleware: one that reads the body itself
could not see that a client has left.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from time import perf_counter
from typing import Any, TypeAlias

from starlette.types import Receive

from selectrie.engine.scheduler.job import charge_to
from selectrie.engine.scheduler.task_group import set_client
from selectrie.results.advice import collected_warnings
from selectrie.server.transport import request_context
from selectrie.server.transport import state as states
from selectrie.server.transport.body import ENCODINGS, BodyShare, Disconnected, read_body, receive_body, too_large_error
from selectrie.server.transport.http_errors import HttpError, draining_error, response_headers, retry_error
from selectrie.server.transport.request_context import CONTENT_TYPE, Exchange, encode_error_ending, id_of
from selectrie.server.transport.state import ServerState

logger = logging.getLogger("selectrie.server")

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready", "/healthz", "/livez", "/readyz"})
"""Paths of probes: answered without a key, for any `Host`, also while draining."""
ENDING_TIMEOUT_S = 1.0
"""Seconds in which a client must take the error that ends its stream."""
LOST: Mapping[str, int] = {"disconnected": 499, "deadline": 504, "shutdown": 503}
"""Status in log and metrics of a request that was given up, by the reason.

Its response did not begin, or was cut.
"""
_KEY_DIGITS = 8
"""Number of hexadecimal digits of a key's digest in the log."""
_KIND = b"content-type"
"""Name of the header by which a stream of events is recognised."""
_MAX_DIGITS = 20
"""Maximum number of digits read of a content length; such a body is too large."""
READS = frozenset({"/tokenizer_info", "/v1/vocabulary"})
"""Paths without a body that may load a model. Requests to them count as open too."""
_MODELS = "/v1/models"
"""Path of the list of models; a longer path is one model, and logged as this one."""
_PAGE = "/"
"""Path of the page for browsers, as which its files are logged."""
_OTHER = frozenset({_MODELS, _PAGE, "/metrics", "/version", "/docs", "/openapi.json"})
"""Paths that do not count as open. But for those of the page, they need a key."""

PAGE_FILES = "/page/"
"""The beginning of the paths of the page's files but `index.html`, which is `/`."""


def wants_page(method: str, path: str, accept: str) -> bool:
    """Return whether a request asks for the page or a file of it.

    Args:
        method: The method of the request.
        path: Its path.
        accept: Its header `Accept`. Clients that do not want HTML get no page at `/`.
    """
    return method in ("GET", "HEAD") and (path.startswith(PAGE_FILES) or (path == _PAGE and "text/html" in accept))


class Gate:
    """An ASGI application that checks requests before the inner application.

    It refuses requests by their headers, reads bodies, enforces the deadline, and
    counts and logs every request.

    Args:
        inner: The application that answers admitted requests. It reads the parsed body
            from its `Exchange`.
        state: The state that the parts of the application share.
        work: Paths that take a JSON body. Requests to them count as open and are
            limited.
    """

    def __init__(self, inner: AsgiApp, state: ServerState, work: Collection[str]) -> None:
        self._inner, self._state, self._work = inner, state, work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, after putting its `Exchange` into its scope."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        endpoint = _MODELS if path.startswith(_MODELS) else path
        if self._is_page(scope, headers):
            endpoint = _PAGE
        known = any(endpoint in paths for paths in (self._work, READS, OPEN, _OTHER))
        meter, client = self._state.metrics.count_work, (scope.get("client") or ("",))[0]
        name, permits = id_of(headers.get(b"x-request-id", "")), self._state.permits
        exchange = Exchange(name, endpoint if known else "other", meter, client, permits=permits)
        scope[request_context.KEY], scope[states.KEY] = exchange, self._state
        answer = _Response(send, exchange, self._state)
        try:
            with collected_warnings() as exchange.notices:
                self._check_headers(scope, headers)
                if self._is_work(scope):
                    await self._answer_work(scope, receive, answer, headers)
                else:
                    await self._inner(scope, receive, answer)
        except Disconnected:
            exchange.lost = "disconnected"
        except Exception as error:  # noqa: BLE001 - everything is answered
            await self._fail(error, answer)
        except asyncio.CancelledError:  # the server ends and does not wait any more
            exchange.lost = "shutdown"
            await self._fail(draining_error(), answer)
            raise
        finally:
            if self._state.is_dropping and not answer.is_whole:
                exchange.lost = "shutdown"
            self._end(exchange, scope["method"])

    def _check_headers(self, scope: Scope, headers: dict[bytes, str]) -> None:
        """Raise `HttpError` for a request that its headers alone show to be refused."""
        options, path = self._state.options, scope["path"]
        host = headers.get(b"host", "")
        if options.hosts and path not in OPEN and _without_port(host) not in options.hosts:
            scope[request_context.KEY].refused_host = host[:80]
            remedy = "a proxy can send another Host, or the operator can start the server with --allowed-host"
            raise HttpError(403, "host", f"the host {host[:80]!r} is not one that this server answers to: {remedy}")
        key = _find_key(headers, options.key_digests)
        if options.key_digests and not (key or path in OPEN or self._is_page(scope, headers)):
            message = "the API key is missing or wrong: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            raise HttpError(401, "api_key", message, headers={"www-authenticate": "Bearer"})
        exchange: Exchange = scope[request_context.KEY]
        exchange.key = key.hex()[:_KEY_DIGITS]
        if not self._is_work(scope):
            return
        exchange.turn = self._state.turn_of(key or exchange.client)
        if self._state.is_draining:
            raise draining_error()
        if path in self._work:
            exchange.encoding = self._check_body(headers)
        # If all places are taken, an unfinished upload of another client may have to
        # give up its place.
        if self._state.n_open >= options.max_requests and not self._state.uploads.give_way_to(exchange.turn):
            message = (
                f"{options.max_requests} requests wait or are worked on, and no more are taken: "
                "send fewer at once, or the operator can start the server with a larger --max-requests"
            )
            raise retry_error(message, status=429, code="queue_full")

    def _is_work(self, scope: Scope) -> bool:
        """Return whether a request needs a model, so that it counts as open."""
        return scope["path"] in {"POST": self._work, "GET": READS}.get(scope["method"], ())

    def _is_page(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        """Return whether a request asks for the page, which holds no data."""
        return self._state.options.page and wants_page(scope["method"], scope["path"], headers.get(b"accept", ""))

    def _check_body(self, headers: dict[bytes, str]) -> str:
        """Return the body's encoding; raise `HttpError` if its headers are refused."""
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            why = "; images and files are not read" if kind.startswith("multipart/") else ""
            raise HttpError(415, "content_type", f"the content type is {kind[:80]!r}: expected application/json{why}")
        encoding = headers.get(b"content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise HttpError(415, "content_encoding", f"the encoding is {encoding[:80]!r}: expected zstd or gzip")
        limit = self._state.options.max_body_bytes
        if _declared_length(headers) > limit:
            raise too_large_error(limit)
        return encoding

    async def _answer_work(self, scope: Scope, receive: Receive, answer: _Response, headers: dict[bytes, str]) -> None:
        """Read the body and answer; stop if the client leaves or time is over."""
        state, exchange = self._state, scope[request_context.KEY]
        state.n_open += 1
        exchange.is_accepted = True
        # Also for streams, each of whose events is awaited in a copy of this context.
        set_client(exchange.turn)
        charge_to(exchange)
        state.metrics.count_accepted(exchange)
        try:
            with state.uploads.count_request(exchange.turn), state.bodies.share() as share:
                data = list[bytes]()
                if scope["path"] in self._work:
                    share.grow(_declared_length(headers))
                    with state.uploads.permit(exchange.turn, receive) as received:
                        data.append(await receive_body(received, state.options, share))
                exchange.waits_for = ""
                await self._answer_until_gone(scope, receive, answer, self._read_and_answer(scope, answer, data, share))
        finally:
            state.n_open -= 1

    async def _read_and_answer(self, scope: Scope, answer: _Response, data: list[bytes], share: BodyShare) -> None:
        """Parse the body, if there is one, and answer.

        The only item of `data`, the body's bytes, is removed so that they can be freed.
        """
        if data:
            await read_body(data.pop(), scope[request_context.KEY], self._state.options, share)
        await self._inner(scope, _receive_nothing, answer)

    async def _answer_until_gone(
        self, scope: Scope, receive: Receive, answer: _Response, answering: Coroutine[Any, Any, None]
    ) -> None:
        """Await `answering`; cancel it when the client leaves or the deadline passes.

        Raises `Disconnected`, or `HttpError` for the deadline.
        """
        exchange: Exchange = scope[request_context.KEY]
        left = self._state.options.deadline_s - (perf_counter() - exchange.began_s)
        work = asyncio.ensure_future(answering)
        answer.leaving = leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
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
        raise _deadline_error(exchange, self._state.options.deadline_s)

    async def _fail(self, error: Exception, answer: _Response) -> None:
        """Send an error: as the whole response, or as the end of a stream.

        A client that does not take the end of its stream in time does not get it.
        """
        response = answer.exchange.response_of(error)
        if response.status >= 500 and not isinstance(error, HttpError):
            logger.error("%s failed", answer.exchange.id, exc_info=error)
        answer.exchange.error = response.code
        if not answer.exchange.status:
            await send_error(response, answer)
        elif answer.is_streaming:
            ending = answer({"type": "http.response.body", "body": encode_error_ending(response)})
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ending, ENDING_TIMEOUT_S)

    def _end(self, exchange: Exchange, method: str) -> None:
        """Count an exchange, and log it once no model call is under way for it."""
        seconds = perf_counter() - exchange.began_s
        if exchange.lost and exchange.status < 400:
            exchange.status = LOST[exchange.lost]
        self._state.metrics.count_ended(exchange, seconds)
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
        """Log an exchange as one line of JSON."""
        line = {
            "request_id": exchange.id,
            "client": exchange.client,
            "key": exchange.key,
            "method": method[:80],
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
        if exchange.refused_host is not None:
            line["host"] = exchange.refused_host
        if self._state.options.log_prompts and exchange.body:
            line["body"] = exchange.body
        level = logging.WARNING if exchange.status >= 500 else logging.INFO
        logger.log(level, json.dumps(line), extra={"line": line})


class _Response:
    """Sends a response with the headers of its exchange, and notes its status.

    Attributes:
        is_streaming: Whether a stream of events has begun and not ended.
        is_whole: Whether everything was sent while the client was still there.
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
        # The last part of the body is sent as one that others follow.
        await self._send({**message, "more_body": True})
        # This waits until the connection has taken the rest.
        await self._send({"type": "http.response.body", "body": b""})
        self.is_streaming = False
        self.is_whole = not (self._state.is_dropping or (self.leaving is not None and self.leaving.done()))


async def send_error(error: HttpError, send: Send) -> None:
    """Send an error as a whole response."""
    body = error.to_json()
    await send({"type": "http.response.start", "status": error.status, "headers": response_headers(error, body)})
    await send({"type": "http.response.body", "body": body})


def _deadline_error(exchange: Exchange, deadline_s: float) -> HttpError:
    """Return the error for a request that was not answered within the deadline.

    One that waited for its model until then may be sent again (503).
    """
    if exchange.waits_for == "model":
        return retry_error(
            f"no memory was free for the model within {deadline_s:g} s", status=503, code="memory_budget"
        )
    message = f"there was no answer within {deadline_s:g} s"
    return HttpError(504, "deadline", message, headers={"x-should-retry": "false"})


def _declared_length(headers: dict[bytes, str]) -> int:
    """Return the body's declared length in bytes; 0 if none is declared."""
    length = headers.get(b"content-length", "0")
    return int(length[:_MAX_DIGITS]) if length.isdecimal() else 0


async def _receive_nothing() -> MutableMapping[str, Any]:
    """Wait forever: the body was read, and the gate sees when the client leaves."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("a future without a result has ended")


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _without_port(host: str) -> str:
    """Return a host without its port: `[::1]:80` is `[::1]`."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


def _find_key(headers: dict[bytes, str], digests: Sequence[bytes]) -> bytes:
    """Return the digest of the request's API key if it is a known one, else b"".

    The comparison takes the same time for every key. Keys are compared as the bytes
    that were sent.
    """
    bearer = headers.get(b"authorization", "")
    keys = [bearer[7:].strip() if bearer[:7].lower() == "bearer " else "", headers.get(b"x-api-key", "").strip()]
    own = [sha256(key.encode("latin-1")).digest() for key in keys if key]
    found = [digest for one in own for digest in digests if hmac.compare_digest(one, digest)]  # all are compared
    return found[0] if found else b""
