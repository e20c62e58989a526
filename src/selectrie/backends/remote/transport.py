"""Sends requests to a server in a separate thread, and reads what it answers."""

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
"""A log-probability may be above 0 by this much, by rounding; it is then 0."""


class JsonValue:
    """A value of a JSON answer, with its place in it for errors.

    Args:
        value: The value.
        url: The address that answered, without a key.
        place: Where it is in the answer: "choices[0].logprobs".
    """

    def __init__(self, value: object, url: str, place: str = "") -> None:
        self._value, self._url, self._place = value, url, place

    @staticmethod
    def parse(data: bytes, url: str) -> JsonValue:
        """Return a body of JSON. Names that come twice, NaN and inf are errors."""
        try:
            return JsonValue(json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant), url)
        except (ValueError, RecursionError) as error:
            raise ServerError(url, f"its answer is not the JSON that was expected: {_said(error)}") from error

    @property
    def value(self) -> object:
        """Return the value itself."""
        return self._value

    def wrong(self, reason: str) -> NoReturn:
        """Raise `ServerError` about this value."""
        raise ServerError(self._url, f"{self._place or 'the answer'} {reason}")

    def _unlike(self, expected: str) -> NoReturn:
        self.wrong(f"is {of_value(self._value)}: expected {expected}")

    def get(self, name: str) -> JsonValue | None:
        """Return a field of an object, None if it is missing or null."""
        if not isinstance(self._value, dict):
            self._unlike("an object")
        found = self._value.get(name)
        return None if found is None else JsonValue(found, self._url, f"{self._place}.{name}" if self._place else name)

    def __getitem__(self, name: str) -> JsonValue:
        """Return a field of an object that must be there."""
        found = self.get(name)
        if found is None:
            self.wrong(f"has no {name!r}")
        return found

    def items(self) -> list[tuple[str, JsonValue]]:
        """Return the fields of an object."""
        if not isinstance(self._value, dict):
            self._unlike("an object")
        return [(name, JsonValue(value, self._url, f"{self._place}[{name!r}]")) for name, value in self._value.items()]

    def sequence(self, n: int | None = None) -> list[JsonValue]:
        """Return the items of a list, which must have `n` of them."""
        if not isinstance(self._value, list):
            self._unlike("a list")
        if n is not None and len(self._value) != n:
            self.wrong(f"has {len(self._value)} items: expected {n}")
        return [JsonValue(one, self._url, f"{self._place}[{index}]") for index, one in enumerate(self._value)]

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self._value, str):
            self._unlike("a text")
        return self._value

    def flag(self) -> bool:
        """Return a truth value."""
        if not isinstance(self._value, bool):
            self._unlike("true or false")
        return self._value

    def whole(self) -> int:
        """Return a whole number of at least 0."""
        if isinstance(self._value, bool) or not isinstance(self._value, int) or self._value < 0:
            self._unlike("a whole number of at least 0")
        return self._value

    def whole_numbers(self) -> list[int]:
        """Return a list of whole numbers of at least 0."""
        if not isinstance(self._value, list) or any(type(one) is not int or one < 0 for one in self._value):
            self._unlike("a list of whole numbers")
        return list(self._value)

    def texts(self) -> list[str]:
        """Return a list of texts."""
        if not isinstance(self._value, list) or any(type(one) is not str for one in self._value):
            self._unlike("a list of texts")
        return list(self._value)

    def logp(self) -> float:
        """Return a log-probability; -inf for what stands for it.

        Raises `ServerError` for anything but a finite number of at most 0.
        """
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._unlike("a log-probability")
        if not _is_finite(value) or value > _ABOVE_ONE:
            self._unlike("a log-probability")
        return -math.inf if value <= _NO_MODEL else min(float(value), 0.0)

    def nats(self) -> float:
        """Return a finite number of nats of at least 0."""
        value = self._value
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value) or value < 0:
            self._unlike("a number of nats")
        return float(value)

    def token(self, n_tokens: int) -> int:
        """Return the id of a token that exists."""
        token = self.whole()
        if token >= n_tokens:
            self.wrong(f"is token {of_value(token)}: ids run from 0 to {n_tokens - 1}")
        return token


def refuse_duplicates(ids: Sequence[int], answer: JsonValue) -> None:
    """Raise `ServerError` if a token comes twice."""
    if len(set(ids)) < len(ids):
        seen: set[int] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        answer.wrong(f"has token {twice} twice")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {of_value(twice)} comes twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _said(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


T = TypeVar("T")

_AGAIN = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same request may succeed."""
_MAX_ERROR_BYTES = 64 << 10
_FIRST_WAIT_S, _MAX_WAIT_S = 0.1, 5.0
"""Seconds before a request is sent again where the server does not say."""
_MAX_FAILURES = 3
"""How often in a row a connection may fail before a request is given up."""
_MAX_SHOWN = 200
"""Characters of a server's own message that an error quotes."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is, and how it is asked.

    Attributes:
        url: Its address, up to where the paths of its endpoints begin.
        api_key: The key, or None.
        concurrency: Number of requests that are under way at once.
        timeout_s: Seconds in which a request must be answered, repetitions included.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 8
    timeout_s: float = 60.0


def base_url(url: str) -> str:
    """Return the address of a server without a slash or `/v1` at its end.

    Raises `OptionError` if it is none, or holds a user, a query or a fragment.
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
    """A connection to one server. Methods may be called from any thread but its own.

    Args:
        server: Where it is.
        http_transport: What carries requests, for tests; None for the network.
    """

    def __init__(self, server: Server, http_transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.server = server
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="selectrie-remote", daemon=True)
        self._thread.start()
        self._client, self._places = asyncio.run_coroutine_threadsafe(self._made(http_transport), self._loop).result()
        self.n_requests = 0
        self.n_bytes = 0

    async def _made(self, transport: httpx2.AsyncBaseTransport | None) -> tuple[httpx2.AsyncClient, asyncio.Semaphore]:
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

        Cancelling, and closing, abort its requests.

        Raises:
            ClosedError: If the connection was closed, before or meanwhile.
            CancelledError: If the call was cancelled.
            ForkedError: In a forked child process, which has no thread for it.
        """
        if threading.current_thread() is self._thread:
            raise ProtocolError("the thread that sends requests may not wait for one")
        future = self._begin(work, cancellation)
        try:
            return self._result(future, cancellation)
        except BaseException:
            future.cancel()  # the thread that waits was interrupted
            raise

    def start(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        done: Callable[[T | BaseException], None],
        cancellation: Cancellation,
    ) -> None:
        """Run a coroutine on the loop; `done` gets its result, or an error as of `run`.

        Raises `ClosedError` or `ForkedError` if it cannot begin; `done` is not called
        then. Otherwise it is called once, in any thread, and must not raise.
        """

        def end(future: concurrent.futures.Future[T]) -> None:
            result: T | BaseException
            try:
                result = self._result(future, cancellation)
            except BaseException as error:  # noqa: BLE001 - it goes to the caller
                result = error
            done(result)

        self._begin(work, cancellation).add_done_callback(end)

    def _begin(
        self, work: Callable[[], Coroutine[Any, Any, T]], cancellation: Cancellation | None
    ) -> concurrent.futures.Future[T]:
        self.require_open()
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"the connection to {self.server.url}")
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        if cancellation is not None:
            cancellation.when_cancelled(lambda: _cancel(future))
        return future

    def _result(self, future: concurrent.futures.Future[T], cancellation: Cancellation | None) -> T:
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
        """Abort what is under way, and close. May be called twice."""
        with self._lock:
            if self._is_closed or os.getpid() != self._pid:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _ended(self) -> None:
        """Abort all work, and wait until it has ended."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    async def get(self, path: str, *, max_bytes: int = 1 << 20, may_lack: bool = False) -> JsonValue | None:
        """Return the answer of a GET; None with `may_lack` for an unknown path."""
        return await self._asked("GET", path, None, max_bytes, may_lack=may_lack)

    async def post(self, path: str, body: Mapping[str, Any], *, max_bytes: int = 4 << 20) -> JsonValue:
        """Return the answer of a POST of JSON.

        Args:
            path: Path below the server's address.
            body: The object that is sent.
            max_bytes: Maximum size of the answer, decoded.

        Raises `ServerError` if there is none within the time, after repetitions.
        """
        found = await self._asked("POST", path, body, max_bytes, may_lack=False)
        assert found is not None  # noqa: S101 - only what may lack is None
        return found

    async def try_post(self, path: str, body: Mapping[str, Any], *, max_bytes: int = 4 << 20) -> JsonValue | None:
        """Return the answer of a POST, None where the path is unknown."""
        return await self._asked("POST", path, body, max_bytes, may_lack=True)

    async def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None, max_bytes: int, *, may_lack: bool
    ) -> JsonValue | None:
        url = self.server.url + path
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        deadline_s = time.monotonic() + self.server.timeout_s
        wait_s, n_failures = _FIRST_WAIT_S, 0
        while True:
            async with self._places:
                reply = await self._once(method, url, content, max_bytes, deadline_s)
            if isinstance(reply, bytes):
                return JsonValue.parse(reply, url)
            if may_lack and reply.status in (404, 405, 501):
                return None
            pause_s = wait_s if reply.wait_s is None else reply.wait_s
            n_failures = n_failures + 1 if reply.status is None else 0
            is_late = time.monotonic() + pause_s >= deadline_s
            if not reply.may_retry or n_failures == _MAX_FAILURES or is_late:
                raise self._failure(url, reply, pause_s)
            await asyncio.sleep(pause_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)

    async def _once(
        self, method: str, url: str, content: bytes | None, max_bytes: int, deadline_s: float
    ) -> bytes | _Refusal:
        """Send a request and return its body, or why there is none."""
        headers = {} if content is None else {"content-type": "application/json"}
        left_s = max(0.0, deadline_s - time.monotonic())
        self.n_requests += 1
        try:
            return await asyncio.wait_for(self._sent(method, url, content, headers, max_bytes), left_s)
        except (asyncio.TimeoutError, httpx2.TimeoutException):
            return _Refusal(None, "it did not answer in time", may_retry=False)
        except httpx2.TransportError as error:
            said = clip(str(error), _MAX_SHOWN) or type(error).__name__
            return _Refusal(None, f"the connection failed: {said}", may_retry=True)
        except httpx2.InvalidURL as error:
            raise OptionError("url", url, "the address of a server, as in http://host:8000") from error

    async def _sent(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str], max_bytes: int
    ) -> bytes | _Refusal:
        async with self._client.stream(method, url, content=content, headers=headers) as response:
            is_right = response.status_code == 200
            data = await self._body(response, url, max_bytes if is_right else _MAX_ERROR_BYTES, is_cut=not is_right)
            return data if is_right else _refusal(response, data)

    async def _body(self, response: httpx2.Response, url: str, max_bytes: int, *, is_cut: bool) -> bytes:
        """Return a body, decoded within the limit. A longer one is cut, or an error."""
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

    def _failure(self, url: str, reply: _Refusal, pause_s: float) -> ServerError:
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
        """Return text in which the key, if a server repeats it, is left out."""
        key = self.server.api_key
        return text if not key else text.replace(key, "…")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request has no answer.

    Attributes:
        status: The status, None if there was no response.
        reason: What the server or the connection says.
        may_retry: Whether the same request may succeed later.
        wait_s: Seconds that the server asks to wait, or None.
    """

    status: int | None
    reason: str
    may_retry: bool
    wait_s: float | None = None


def _refusal(response: httpx2.Response, data: bytes) -> _Refusal:
    status, headers = response.status_code, response.headers
    may_retry = status in _AGAIN and headers.get("x-should-retry", "").strip().lower() != "false"
    return _Refusal(status, _message(data) or response.reason_phrase, may_retry, _retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `retry-after-ms` or `retry-after`; None without either."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            value = float(text) * unit_s
        except ValueError:
            value = _until_s(text)
        if 0 <= value < float("inf"):
            return value
    return None


def _until_s(text: str) -> float:
    """Return the seconds until a date of HTTP; -1 if it is none."""
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return -1.0


def _message(data: bytes) -> str:
    """Return what the body of an error says, in one line."""
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
