"""Sends requests to a server in a separate thread, and reads its answers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import math
import os
import threading
import time
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import httpx2

from selectrie.core.path_model import Cancellation
from selectrie.core.strict_json import object_of_unique_keys, refuse_constant
from selectrie.errors import (
    CancelledError,
    ClosedError,
    ForkedError,
    OptionError,
    ProtocolError,
    ServerError,
    clip,
    of_value,
)

_NO_MODEL = -9999.0
"""Log-probabilities down to this one stand for -inf, which JSON does not have.

vLLM and this project's server write -9999; llama-server writes the least float32 where
its softmax, in float32, rounds to zero.
"""
_ABOVE_ONE = 1e-3
"""Maximum by which rounding may lift a log-probability above 0; it is read as 0."""


class JsonValue:
    """A value of a JSON answer, with its place in it for errors.

    Args:
        value: The value.
        url: The address that answered, without a key, for errors.
        place: Path of the value in the answer, such as "choices[0].logprobs".

    The methods that return the value check its type, and raise `ServerError` otherwise.
    """

    def __init__(self, value: object, url: str, place: str = "") -> None:
        self._value, self._url, self._place = value, url, place

    @staticmethod
    def parse(data: bytes, url: str) -> JsonValue:
        """Parse a body as JSON.

        Raises `ServerError` if it is not JSON, or has NaN, infinities or repeated keys.
        """
        try:
            return JsonValue(
                json.loads(data, object_pairs_hook=object_of_unique_keys, parse_constant=refuse_constant), url
            )
        except (ValueError, RecursionError) as error:
            raise ServerError(
                url, f"its answer is not the JSON that was expected: {_json_error_text(error)}"
            ) from error

    @property
    def value(self) -> object:
        """Return the value, of any type."""
        return self._value

    def refuse(self, reason: str) -> NoReturn:
        """Raise `ServerError` about this value: its place, and then `reason`."""
        raise ServerError(self._url, f"{self._place or 'the answer'} {reason}")

    def _refuse_value(self, expected: str) -> NoReturn:
        self.refuse(f"is {of_value(self._value)}: expected {expected}")

    def get(self, name: str) -> JsonValue | None:
        """Return a field of the object; None if it is missing or null."""
        if not isinstance(self._value, dict):
            self._refuse_value("an object")
        found = self._value.get(name)
        return None if found is None else JsonValue(found, self._url, f"{self._place}.{name}" if self._place else name)

    def __getitem__(self, name: str) -> JsonValue:
        """Return a field of the object; it must not be missing or null."""
        found = self.get(name)
        if found is None:
            self.refuse(f"has no {name!r}")
        return found

    def items(self) -> list[tuple[str, JsonValue]]:
        """Return the names and values of the object's fields."""
        if not isinstance(self._value, dict):
            self._refuse_value("an object")
        return [(name, JsonValue(value, self._url, f"{self._place}[{name!r}]")) for name, value in self._value.items()]

    def sequence(self, n: int | None = None) -> list[JsonValue]:
        """Return the items of the list, which must have `n` of them if n is given."""
        if not isinstance(self._value, list):
            self._refuse_value("a list")
        if n is not None and len(self._value) != n:
            self.refuse(f"has {len(self._value)} items: expected {n}")
        return [JsonValue(one, self._url, f"{self._place}[{index}]") for index, one in enumerate(self._value)]

    def text(self) -> str:
        """Return the value, which must be a string."""
        if not isinstance(self._value, str):
            self._refuse_value("a text")
        return self._value

    def flag(self) -> bool:
        """Return the value, which must be true or false."""
        if not isinstance(self._value, bool):
            self._refuse_value("true or false")
        return self._value

    def whole(self) -> int:
        """Return the value, which must be an integer of at least 0."""
        if isinstance(self._value, bool) or not isinstance(self._value, int) or self._value < 0:
            self._refuse_value("a whole number of at least 0")
        return self._value

    def whole_numbers(self) -> list[int]:
        """Return the value, which must be a list of integers of at least 0."""
        if not isinstance(self._value, list) or any(type(one) is not int or one < 0 for one in self._value):
            self._refuse_value("a list of whole numbers")
        return list(self._value)

    def texts(self) -> list[str]:
        """Return the value, which must be a list of strings."""
        if not isinstance(self._value, list) or any(type(one) is not str for one in self._value):
            self._refuse_value("a list of texts")
        return list(self._value)

    def logp(self) -> float:
        """Return the value, which must be a finite log-probability of at most 0.

        Numbers down to -9999, which stand for -inf, become -inf.
        """
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse_value("a log-probability")
        if not _is_finite(value) or value > _ABOVE_ONE:
            self._refuse_value("a log-probability")
        return -math.inf if value <= _NO_MODEL else min(float(value), 0.0)

    def nats(self) -> float:
        """Return the value, which must be a finite number of at least 0, in nats."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value) or value < 0:
            self._refuse_value("a number of nats")
        return float(value)

    def token(self, n_tokens: int) -> int:
        """Return the value, which must be a token id below `n_tokens`."""
        token = self.whole()
        if token >= n_tokens:
            self.refuse(f"is token {of_value(token)}: ids run from 0 to {n_tokens - 1}")
        return token


def refuse_duplicates(ids: Sequence[int], answer: JsonValue) -> None:
    """Raise `ServerError` about `answer` if a token id occurs twice in `ids`."""
    if len(set(ids)) < len(ids):
        seen: set[int] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        answer.refuse(f"has token {twice} twice")


def _is_finite(value: float) -> bool:
    """Return whether a JSON number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _json_error_text(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


T = TypeVar("T")

_AGAIN = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same request may succeed."""
_MAX_ERROR_BYTES = 64 << 10
_FIRST_WAIT_S, _MAX_WAIT_S = 0.1, 5.0
"""Seconds before a request is sent again where the server does not say."""
_MAX_FAILURES = 3
"""Number of failed connections in a row after which a request fails."""
_MAX_SHOWN = 200
"""Maximum number of characters of a server's own message that an error quotes."""


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, and the limits of requests to it.

    Attributes:
        url: The base address, to which the paths of endpoints are appended.
        api_key: The key that is sent as a bearer token, or None.
        concurrency: Maximum number of requests that are under way at once.
        timeout_s: Seconds in which a request must be answered, retries included.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 8
    timeout_s: float = 60.0


def base_url(url: str) -> str:
    """Return the address of a server without a slash or `/v1` at its end.

    Raises `OptionError` if it is not an HTTP address, or has a user, a query or a
    fragment.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise OptionError("url", url, "the address of a server, as in http://host:8000") from None
    if parts.username is not None or parts.password is not None:
        raise OptionError("url", f"{parts.scheme}://…@{parts.hostname}", "an address without a user; give `api_key`")
    if not is_right or parts.query or parts.fragment:
        raise OptionError("url", url, "the address of a server, as in http://host:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Transport:
    """A connection to one server, with an event loop in a thread of its own.

    Coroutine methods run on that loop. Others may be called from any other thread.

    Args:
        server: The server.
        http_transport: Replaces the network in tests.

    Attributes:
        n_requests: Number of HTTP requests sent so far.
        n_bytes: Number of bytes of answers received so far, compressed.
    """

    def __init__(self, server: Server, http_transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.server = server
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="selectrie-remote", daemon=True)
        self._thread.start()
        self._client, self._places = asyncio.run_coroutine_threadsafe(
            self._make_client(http_transport), self._loop
        ).result()
        self.n_requests = 0
        self.n_bytes = 0

    async def _make_client(
        self, transport: httpx2.AsyncBaseTransport | None
    ) -> tuple[httpx2.AsyncClient, asyncio.Semaphore]:
        """Return the HTTP client, and the semaphore that bounds its requests."""
        n, key = self.server.concurrency, self.server.api_key
        headers = {"accept": "application/json", "accept-encoding": "gzip"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(self.server.timeout_s),
            limits=httpx2.Limits(max_connections=n, max_keepalive_connections=n),
            follow_redirects=False,
            transport=transport,
        )
        return client, asyncio.Semaphore(n)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], cancellation: Cancellation | None = None) -> T:
        """Run a coroutine on the loop and return its result.

        Cancelling the call or closing the connection aborts its requests.

        Raises:
            ClosedError: If the connection was closed, before or during the call.
            CancelledError: If the call was cancelled.
            ForkedError: In a forked child process, where the thread does not run.
        """
        if threading.current_thread() is self._thread:
            raise ProtocolError("the thread that sends requests may not wait for one")
        future = self._submit(work, cancellation)
        try:
            return self._wait_for(future, cancellation)
        except BaseException:
            future.cancel()  # the thread that waits was interrupted
            raise

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        done: Callable[[T | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        """Run a coroutine on the loop, and pass its result or error to `done`.

        The errors are those of `run`. `done` is called once, in any thread, and must
        not raise. It is not called if this raises `ClosedError` or `ForkedError`,
        because the coroutine cannot begin.
        """

        def end(future: concurrent.futures.Future[T]) -> None:
            result: T | BaseException
            try:
                result = self._wait_for(future, cancellation)
            except BaseException as error:  # noqa: BLE001 - it goes to the caller
                result = error
            done(result)

        self._submit(work, cancellation).add_done_callback(end)

    def _submit(
        self, work: Callable[[], Coroutine[Any, Any, T]], cancellation: Cancellation | None
    ) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop; cancelling the call cancels the future."""
        self.require_open()
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"the connection to {self.server.url}")
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        if cancellation is not None:
            cancellation.when_cancelled(lambda: _cancel(future))
        return future

    def _wait_for(self, future: concurrent.futures.Future[T], cancellation: Cancellation | None) -> T:
        """Return the result of work on the loop; a cancelled one raises our error."""
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if cancellation is not None and cancellation.is_cancelled:
                raise CancelledError from None
            raise ClosedError(f"the connection to {self.server.url}") from None

    def require_open(self) -> None:
        """Raise `ClosedError` after `close`, and `ForkedError` in a forked child."""
        if os.getpid() != self._pid:
            raise ForkedError
        if self._is_closed:
            raise ClosedError(f"the connection to {self.server.url}")

    def close(self) -> None:
        """Abort all requests and close the connection. A second call does nothing."""
        with self._lock:
            if self._is_closed or os.getpid() != self._pid:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._abort_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _abort_all(self) -> None:
        """Abort all work, and wait until it has ended."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def get(self, path: str, *, max_bytes: int = 1 << 20, may_lack: bool = False) -> JsonValue | None:
        """Return the answer of a GET request.

        `max_bytes` is the maximum size of the decoded answer. With `may_lack`, returns
        None if the server does not know the path. Raises `ServerError` as `post` does.
        """
        return await self._request("GET", path, None, max_bytes, may_lack=may_lack)

    async def post(self, path: str, body: Mapping[str, Any], *, max_bytes: int = 4 << 20) -> JsonValue:
        """Return the answer of a POST of JSON.

        Args:
            path: Path below the server's address.
            body: The object that is sent.
            max_bytes: Maximum size of the decoded answer.

        Raises `ServerError` if there is no answer within `timeout_s`, retries included,
        or if it is an error or not valid.
        """
        found = await self._request("POST", path, body, max_bytes, may_lack=False)
        assert found is not None  # noqa: S101 - only what may lack is None
        return found

    async def try_post(self, path: str, body: Mapping[str, Any]) -> JsonValue | None:
        """Return the answer as `post` does; None if the server lacks the path."""
        return await self._request("POST", path, body, 4 << 20, may_lack=True)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, max_bytes: int, *, may_lack: bool
    ) -> JsonValue | None:
        """Send a request, again after failures that may pass, and return the answer.

        Args:
            method: "GET" or "POST".
            path: Path below the server's address.
            body: The object that is sent, or None.
            max_bytes: Maximum size of the decoded answer.
            may_lack: Whether None is returned if the server does not know the path.
        """
        url = self.server.url + path
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        deadline_s = time.monotonic() + self.server.timeout_s
        wait_s, n_failures = _FIRST_WAIT_S, 0
        while True:
            async with self._places:
                reply = await self._try_once(method, url, content, max_bytes, deadline_s)
            if isinstance(reply, bytes):
                return JsonValue.parse(reply, url)
            if may_lack and reply.status in (404, 405, 501):
                return None
            pause_s = wait_s if reply.wait_s is None else reply.wait_s
            # Only failures without any response are counted; a busy server is asked
            # until the deadline.
            n_failures = n_failures + 1 if reply.status is None else 0
            is_late = time.monotonic() + pause_s >= deadline_s
            if not reply.may_retry or n_failures == _MAX_FAILURES or is_late:
                raise self._server_error(url, reply, pause_s)
            await asyncio.sleep(pause_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)

    async def _try_once(
        self, method: str, url: str, content: bytes | None, max_bytes: int, deadline_s: float
    ) -> bytes | _Refusal:
        """Send a request once, and return the body of the answer or the failure."""
        headers = {} if content is None else {"content-type": "application/json"}
        left_s = max(0.0, deadline_s - time.monotonic())
        self.n_requests += 1
        try:
            return await asyncio.wait_for(self._send(method, url, content, headers, max_bytes), left_s)
        except (asyncio.TimeoutError, httpx2.TimeoutException):
            return _Refusal(None, "it did not answer in time", may_retry=False)
        except httpx2.TransportError as error:
            said = clip(str(error), _MAX_SHOWN) or type(error).__name__
            return _Refusal(None, f"the connection failed: {said}", may_retry=True)
        except httpx2.InvalidURL as error:
            raise OptionError("url", url, "the address of a server, as in http://host:8000") from error

    async def _send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], max_bytes: int
    ) -> bytes | _Refusal:
        """Send a request; return the body of the answer, or the failure it means."""
        async with self._client.stream(method, url, content=content, headers=headers) as response:
            is_right = response.status_code == 200
            data = await self._read_body(
                response, url, max_bytes if is_right else _MAX_ERROR_BYTES, is_cut=not is_right
            )
            return data if is_right else _read_refusal(response, data)

    async def _read_body(self, response: httpx2.Response, url: str, max_bytes: int, *, is_cut: bool) -> bytes:
        """Return the decoded body of a response.

        One of more than `max_bytes` is cut if `is_cut`, and otherwise a `ServerError`.
        """
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", ""):
            raise ServerError(url, f"its answer is encoded as {encoding[:40]!r}: expected gzip or nothing")
        unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        found = bytearray()
        try:
            async for chunk in response.aiter_raw():
                self.n_bytes += len(chunk)
                found += chunk if unpack is None else unpack.decompress(chunk, max_bytes + 1 - len(found))
                if len(found) > max_bytes:
                    if is_cut:
                        return bytes(found[:max_bytes])
                    raise ServerError(url, f"its answer is larger than {max_bytes} bytes")
        except zlib.error as error:
            raise ServerError(url, f"its answer is not the gzip that it says: {error}") from error
        if unpack is not None and not unpack.eof and not is_cut:
            raise ServerError(url, "its answer is cut off")
        return bytes(found)

    def _server_error(self, url: str, reply: _Refusal, pause_s: float) -> ServerError:
        """Return the error about a failure that is not retried; `pause_s` was next."""
        status = "" if reply.status is None else f"it answered {reply.status}: "
        late, timeout = "", f"timeout_s={self.server.timeout_s:g}"
        if reply.status is None:
            late = f" ({timeout})" if not reply.may_retry else f", {_MAX_FAILURES} times; check the address"
        elif reply.may_retry:
            late = f"; it was asked again until {timeout} was over"
            if reply.wait_s is not None and pause_s > _MAX_WAIT_S:
                late = f"; it asks to wait {pause_s:g} s, more than is left of {timeout}"
        return ServerError(url, f"{status}{self._without_key(reply.reason)}{late}", status=reply.status)

    def _without_key(self, text: str) -> str:
        """Return a server's text with "…" in place of the API key."""
        key = self.server.api_key
        return text if not key else text.replace(key, "…")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The failure of a request.

    Attributes:
        status: The HTTP status; None if there was no response.
        reason: The message of the server or the connection.
        may_retry: Whether the same request may succeed later.
        wait_s: Seconds that the server asks to wait, or None.
    """

    status: int | None
    reason: str
    may_retry: bool
    wait_s: float | None = None


def _read_refusal(response: httpx2.Response, data: bytes) -> _Refusal:
    """Return the failure that an error response means."""
    status, headers = response.status_code, response.headers
    may_retry = status in _AGAIN and headers.get("x-should-retry", "").strip().lower() != "false"
    return _Refusal(status, _error_message(data) or response.reason_phrase, may_retry, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after`; None without either."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            value = float(text) * unit_s
        except ValueError:
            value = _seconds_until(text)
        if 0 <= value < float("inf"):
            return value
    return None


def _seconds_until(text: str) -> float:
    """Return the seconds until an HTTP date; -1 if the text is not a date."""
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return -1.0


def _error_message(data: bytes) -> str:
    """Return the message in the body of an error response, in one line."""
    text: object = data.decode("utf-8", "replace")
    try:
        found = json.loads(data)
        for name in ("error", "message", "detail"):
            text = found = found.get(name, found) if isinstance(found, dict) else found
    except (ValueError, RecursionError):
        pass
    return clip(" ".join(str(text).split()), _MAX_SHOWN)


def _cancel(future: concurrent.futures.Future[Any]) -> None:
    future.cancel()
