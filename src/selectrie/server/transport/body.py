"""Reads the body of a request, with limits on size, encoding and time.

Clients share the places of the queue, and the memory, that bodies take.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from starlette.types import Receive

from selectrie.core.strict_json import object_of_unique_keys, refuse_constant
from selectrie.engine.aio import in_thread
from selectrie.engine.scheduler.turns import Turn
from selectrie.errors import clip
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, retry_error
from selectrie.server.transport.request_context import Exchange

ENCODINGS = ("identity", "gzip", "zstd")
_JSON_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A string of JSON, closed or not.

It matches wherever a quote is, so no part of a body is searched twice.
"""
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DEPTH_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Maps each bracket to its change of the nesting depth, as int8."""
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_NUMBER = b"0" * 309
"""Shortest run of digits that may be too large for a float, as `_DIGITS` maps them."""
_READ_IN_PLACE = 1 << 16
"""Maximum size of a body that is decoded and parsed on the event loop, in bytes."""
_UNPACKED_IN_PLACE = 1 << 12
"""Maximum size of a compressed body that is unpacked on the event loop, in bytes."""
_ZSTD_WINDOW_LOG = 23
"""Log of the largest window that a decoder of zstd must support (RFC 9659): 8 MiB."""
_ZSTD_PIECE, _GZIP_PIECE = 1 << 8, 1 << 12
"""Bytes that are decoded at once; this number of bytes of zstd gives at most 8 MiB."""
MAX_CONTAINERS = 100_000
"""Maximum number of lists and objects in a body. Python's lock is held while they are
made, about a second for the two million that 8 MiB can hold."""
MAX_VALUES = 250_000
"""Maximum number of commas between values, so that a body has at most twice as many.

An object of 8 MiB could have 760 000 keys, for which Python's lock is held 1.2 s.
"""
_MAX_STREAMS = 1_000
"""Maximum number of streams of gzip, or frames of zstd, of one body."""


_TRIM_S = 1.0
"""Seconds from the end of a large request until memory is given back."""
_LARGE_AT_ONCE = 4
"""Number of bodies of the largest size that all open requests may have together.

A body of JSON takes up to ten times its size once it is parsed.
"""


_NOUNS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


class Disconnected(Exception):
    """The client closed the connection."""


class BodyBudget:
    """The number of bytes that the bodies of all open requests may have together.

    The first 64 KiB of a body are not counted, so large ones never keep small ones out.
    A body whose size is declared takes its bytes before it is read, so of many at once
    some are read to their end.

    Args:
        max_bytes: Maximum size of one body. The budget is `_LARGE_AT_ONCE` times that.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = _LARGE_AT_ONCE * max_bytes
        self.lock = Lock()

    @contextmanager
    def share(self) -> Iterator[BodyShare]:
        """Yield the share of one request, which the end of the `with` block gives back.

        If the share had any bytes, free memory is returned to the system a second
        later.
        """
        share = BodyShare(self)
        try:
            yield share
        finally:
            if share.end():
                loop = asyncio.get_running_loop()
                loop.call_later(_TRIM_S, loop.run_in_executor, None, release_memory)

    def take(self, more: int) -> None:
        """Take `more` bytes from the budget; a negative number gives bytes back.

        Raises `HttpError` (503) if all bodies together would be too large. The caller
        holds `lock`.
        """
        if more > self._left:
            message = "the bodies of other requests leave no room for one of this size; send it again later"
            raise retry_error(message, status=503, code="bodies_full")
        self._left -= more


def release_memory() -> bool:
    """Return free memory to the system; return whether there was any.

    Python keeps a large body that is part of a reference cycle, such as an error and
    its traceback, until enough new objects were made. glibc keeps memory that was freed
    below a block in use. Without this call the process would stay as large as its
    largest requests made it. After the largest, the call takes about 25 ms.
    """
    gc.collect()
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False


class BodyShare:
    """The bytes of a `BodyBudget` that one request has taken.

    A thread that still unpacks a body when its request has ended gets `Disconnected`
    from `grow`.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._held, self._is_over = budget, 0, False

    def grow(self, size: int) -> None:
        """Take bytes until the share covers a body of `size` bytes.

        Raises `Disconnected` after `end`, and `HttpError` as `BodyBudget.take` does.
        """
        with self._budget.lock:
            if self._is_over:
                raise Disconnected
            more = size - _READ_IN_PLACE - self._held
            if more > 0:
                self._budget.take(more)
                self._held += more

    def end(self) -> bool:
        """Give all bytes back for good; return whether there were any."""
        with self._budget.lock:
            self._budget.take(-self._held)
            self._is_over = True
            return self._held > 0


class Uploads:
    """Shares the server's places for requests between clients that send bodies.

    A body may take its time, so one client could hold every place with bodies that
    hardly arrive. When all places are taken, the newest upload of the client with most
    of them gives way to a client that has at least two requests fewer.
    """

    def __init__(self) -> None:
        self._permits: dict[Turn, list[asyncio.Future[HttpError]]] = {}
        self._n_open: Counter[Turn] = Counter()

    @contextmanager
    def count_request(self, client: Turn) -> Iterator[None]:
        """Count one more open request of a client until the `with` block ends."""
        self._n_open[client] += 1
        try:
            yield
        finally:
            self._n_open[client] -= 1
            if not self._n_open[client]:
                del self._n_open[client]

    @contextmanager
    def permit(self, client: Turn, receive: Receive) -> Iterator[Receive]:
        """Yield a replacement for `receive` that reads a client's body.

        It raises `HttpError` when the upload has to give way, which may happen until
        the body has arrived or the `with` block ends.
        """
        lost: asyncio.Future[HttpError] = asyncio.get_running_loop().create_future()
        self._permits.setdefault(client, []).append(lost)

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
        """Forget an upload, which has arrived or ended."""
        permits = self._permits.get(client, [])
        if lost in permits:
            permits.remove(lost)
            if not permits:
                del self._permits[client]

    def give_way_to(self, client: Turn) -> bool:
        """Make the busiest client's newest upload give way to a request of `client`.

        Returns whether there was such an upload.
        """
        most = max(self._permits.values(), key=len, default=[])
        if len(most) <= self._n_open[client] + 1:
            return False
        message = (
            "another client needs the place, and most bodies that are not received yet are yours: "
            "send fewer requests at once, and each body without a pause"
        )
        most.pop().set_result(retry_error(message, status=429, code="queue_full"))
        return True

    def refuse(self, error: HttpError) -> None:
        """Answer every request whose body has not arrived with an error."""
        for permits in self._permits.values():
            for lost in permits:
                lost.set_result(error)
        self._permits.clear()


async def receive_body(receive: Receive, options: ServerOptions, share: BodyShare) -> bytes:
    """Return the body of a request as it is sent.

    Args:
        receive: The messages of the request.
        options: The limits.
        share: Takes its bytes from the budget of all bodies.

    Raises:
        HttpError: 408 if it does not arrive in time, 413 if it is too large, 503 if
            there is no room for it.
        Disconnected: If the client leaves before.
    """
    try:
        return await asyncio.wait_for(_receive_parts(receive, options.max_body_bytes, share), options.body_timeout_s)
    except asyncio.TimeoutError as error:
        message = f"the body did not arrive within {options.body_timeout_s:g} s"
        raise HttpError(408, "body_timeout", message) from error


async def read_body(data: bytes, exchange: Exchange, options: ServerOptions, share: BodyShare) -> None:
    """Decompress and parse a request's body into `Exchange.body`.

    A large body is parsed in a thread, under a permit of the server, so that other
    requests are answered meanwhile.

    Args:
        data: The body as it was sent.
        exchange: Receives the object in `body`, and whether it is large in `is_large`.
        options: The limits.
        share: Takes its bytes from the budget of all bodies.

    Raises:
        HttpError: 413 if it is too large, 503 if there is no room for it, 400 if it
            cannot be decoded, is no object of JSON, or is nested too deeply.
    """
    encoding = exchange.encoding
    if encoding != "identity":
        unpack = partial(decompress, data, encoding, options.max_body_bytes, share.grow)
        data = unpack() if len(data) <= _UNPACKED_IN_PLACE else await in_thread(unpack)
    exchange.is_large = len(data) > _READ_IN_PLACE
    exchange.body = await exchange.run(partial(parse_object, data, options.max_depth))


async def _receive_parts(receive: Receive, max_bytes: int, share: BodyShare) -> bytes:
    """Return the whole body; raise `HttpError` if it is larger than `max_bytes`.

    Raises `Disconnected` if the client leaves.
    """
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise too_large_error(max_bytes)
        share.grow(size)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def too_large_error(max_bytes: int) -> HttpError:
    """Return the error (413) for a body of more than `max_bytes` bytes."""
    return HttpError(413, "body_too_large", f"the body is larger than {max_bytes} bytes; send less at once")


def decompress(data: bytes, encoding: str, max_bytes: int, on_size: Callable[[int], object] = lambda _: None) -> bytes:
    """Return the decompressed body; decoding stops at `max_bytes`.

    Several gzip streams or zstd frames in a row are joined.

    Args:
        data: The compressed body.
        encoding: "gzip" or "zstd".
        max_bytes: Maximum size of the result.
        on_size: Called with the number of bytes decoded so far; may raise `HttpError`.

    Raises:
        HttpError: 400 if the body cannot be decoded, 413 if it is too large.
    """
    if encoding == "gzip":  # 31: with the largest window
        parts = _decompress_streams(data, partial(zlib.decompressobj, 31), _GZIP_PIECE, max_bytes + 1)
    else:
        parts = _decompress_streams(data, _make_zstd_decoder, _ZSTD_PIECE)
    try:
        return b"".join(_check_total_size(parts, max_bytes, on_size))
    except HttpError:
        raise
    except Exception as error:  # each decoder raises errors of its own
        reason = clip(str(error), 200)
        raise HttpError(400, "bad_encoding", f"the body is not {encoding}: {reason}") from error


def _check_total_size(parts: Iterator[bytes], max_bytes: int, on_size: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the parts; raise `HttpError` once they exceed `max_bytes` together."""
    size = 0
    for part in parts:
        size += len(part)
        if size > max_bytes:
            raise too_large_error(max_bytes)
        on_size(size)
        yield part


def _decompress_streams(data: bytes, make_decoder: Callable[[], Any], n_bytes: int, *limit: int) -> Iterator[bytes]:
    """Yield the decompressed parts of data, which may be several streams.

    Args:
        data: The compressed data.
        make_decoder: Returns a decoder of one stream.
        n_bytes: Number of bytes that it reads at a time.
        limit: Maximum size of a part in bytes, if the decoder takes one.
    """
    start = 0
    for _ in range(_MAX_STREAMS):
        decoder = make_decoder()
        while not decoder.eof:
            rest = getattr(decoder, "unconsumed_tail", b"")
            piece = rest or data[start : start + n_bytes]
            start += len(piece) - len(rest)
            if not piece:
                raise ValueError("it ends too early")
            yield decoder.decompress(piece, *limit)
        start -= len(decoder.unused_data)
        if start == len(data):
            return
    raise ValueError(f"it has more than {_MAX_STREAMS} parts")


def _make_zstd_decoder() -> Any:
    """Return a decoder of one zstd frame: Python's own or the package `zstandard`'s."""
    if sys.version_info >= (3, 14):
        from compression.zstd import DecompressionParameter, ZstdDecompressor

        return ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()


def parse_object(data: bytes, max_depth: int) -> dict[str, Any]:
    """Return the JSON object that a body holds.

    Raises `HttpError`: 400 for anything but an object of JSON, or one nested deeper
    than `max_depth`; 413 for too many values.
    """
    if data.count(b",") > MAX_VALUES and (n_commas := _JSON_STRINGS.sub(b"", data).count(b",")) > MAX_VALUES:
        message = f"the body has {n_commas} commas between values: expected at most {MAX_VALUES}; send less at once"
        raise HttpError(413, "body_too_large", message)
    if data.count(b"[") + data.count(b"{") > max_depth:
        n_containers, depth = _count_containers(data)
        if depth > max_depth:
            raise HttpError(400, "bad_json", f"the body is nested more than {max_depth} levels deep")
        if n_containers > MAX_CONTAINERS:
            message = f"the body has {n_containers} lists and objects: expected at most {MAX_CONTAINERS}"
            raise HttpError(413, "body_too_large", message)
    decoder = _JSON_WITH_LONG_NUMBERS if _LONG_NUMBER in data.translate(_DIGITS) else _JSON
    try:
        value = decoder.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else clip(str(error), 200)
        raise HttpError(400, "bad_json", f"the body is not JSON: {reason}") from error
    if not isinstance(value, dict):
        raise HttpError(400, "bad_json", f"the body is {_NOUNS[type(value)]}: expected an object of JSON")
    return value


def _parse_float(digits: str) -> float:
    """Return a number; raise `ValueError` if it is too large for a float."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {clip(digits, 40)} is too large")
    return value


def _parse_int(digits: str) -> int:
    """Return a whole number that a float can hold, so that JSON parsers agree."""
    _parse_float(digits)
    return int(digits)


_JSON, _JSON_WITH_LONG_NUMBERS = (
    json.JSONDecoder(
        object_pairs_hook=object_of_unique_keys,
        parse_constant=refuse_constant,
        parse_float=_parse_float,
        parse_int=whole,
    )
    for whole in (None, _parse_int)
)
"""Decoders of bodies. The second checks each whole number, which takes longer."""


def _count_containers(data: bytes) -> tuple[int, int]:
    """Return the number of lists and objects in JSON, and their greatest depth."""
    brackets = np.frombuffer(_JSON_STRINGS.sub(b"", data).translate(_DEPTH_STEPS, _NO_BRACKETS), dtype=np.int8)
    depth = np.cumsum(brackets, dtype=np.int64).max(initial=0)
    return int(np.count_nonzero(brackets > 0)), int(depth)
