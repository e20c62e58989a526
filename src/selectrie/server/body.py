"""Reads the body of a request: its size, its encoding, and its JSON."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from starlette.types import Receive

from selectrie.engine.aio import in_thread
from selectrie.errors import clip
from selectrie.server.allocator import give_back
from selectrie.server.exchange import Exchange
from selectrie.server.http_errors import HttpError, busy
from selectrie.server.options import ServerOptions

ENCODINGS = ("identity", "gzip", "zstd")
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A text of JSON, ended or not.

It matches wherever a quote is, so no part of a body is searched twice.
"""
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""What a bracket adds to the depth, as int8."""
_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_NUMBER = b"0" * 309
"""Digits of the smallest whole number that no float can hold, as `_DIGITS` has them."""
_READ_IN_PLACE = 1 << 16
"""Maximum size of a body that is decoded and parsed on the event loop, in bytes."""
_UNPACKED_IN_PLACE = 1 << 12
"""The same for a body that is compressed."""
_ZSTD_WINDOW_LOG = 23
"""Log of the largest window that a decoder of zstd must support (RFC 9659): 8 MiB."""
_ZSTD_PIECE, _GZIP_PIECE = 1 << 8, 1 << 12
"""Bytes that are decoded at once. So few of zstd make at most 8 MiB."""
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


_NOUNS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
}


class Disconnected(Exception):
    """The client closed the connection."""


class BodyBudget:
    """The bytes that the bodies of all open requests have together.

    The first 64 KiB of a body are not counted, so large ones never keep small ones out.
    A body whose size is known takes it before it is read, so of many at once some are
    read to their end.

    Args:
        max_bytes: Maximum size of one body.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = _LARGE_AT_ONCE * max_bytes
        self.lock = Lock()

    @contextmanager
    def share(self) -> Iterator[BodyShare]:
        """Yield what takes bytes for one request, which holds them until the end.

        Memory is given back to the system some time after the end.
        """
        share = BodyShare(self)
        try:
            yield share
        finally:
            if share.end():
                loop = asyncio.get_running_loop()
                loop.call_later(_TRIM_S, loop.run_in_executor, None, give_back)

    def move(self, more: int) -> None:
        """Take bytes, or give back as many if `more` is below 0.

        Raises `HttpError` (503) if all bodies together would be too large.
        """
        if more > self._left:
            message = "the bodies of other requests leave no room for one of this size; send it again later"
            raise busy(message, status=503, code="bodies_full")
        self._left -= more


class BodyShare:
    """The bytes that one request has taken of a `BodyBudget`.

    A thread that unpacks a body takes them too, and ends with `Disconnected` after the
    request has.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._held, self._is_over = budget, 0, False

    def grow(self, size: int) -> None:
        """Hold at least a body of `size` bytes; see `BodyBudget.move` for errors."""
        with self._budget.lock:
            if self._is_over:
                raise Disconnected
            more = size - _READ_IN_PLACE - self._held
            if more > 0:
                self._budget.move(more)
                self._held += more

    def end(self) -> bool:
        """Give everything back for good; return whether there was anything."""
        with self._budget.lock:
            self._budget.move(-self._held)
            self._is_over = True
            return self._held > 0


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
        return await asyncio.wait_for(_received(receive, options.max_body_bytes, share), options.body_timeout_s)
    except asyncio.TimeoutError as error:
        message = f"the body did not arrive within {options.body_timeout_s:g} s"
        raise HttpError(408, "body_timeout", message) from error


async def read_body(data: bytes, exchange: Exchange, options: ServerOptions, share: BodyShare) -> None:
    """Read the JSON object of a request's body, `Exchange.body`.

    That of a large one is read under a permit of the server, so others are answered.

    Args:
        data: The body as it was sent.
        exchange: Gets the object, and whether it is large.
        options: The limits.
        share: Takes its bytes from the budget of all bodies.

    Raises:
        HttpError: 413 if it is too large, 503 if there is no room for it, 400 if it
            cannot be decoded, is no object of JSON, or is nested too deeply.
    """
    encoding = exchange.encoding
    if encoding != "identity":
        unpack = partial(decoded, data, encoding, options.max_body_bytes, share.grow)
        data = unpack() if len(data) <= _UNPACKED_IN_PLACE else await in_thread(unpack)
    exchange.is_large = len(data) > _READ_IN_PLACE
    exchange.body = await exchange.run(partial(parsed, data, options.max_depth))


async def _received(receive: Receive, max_bytes: int, share: BodyShare) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise too_large(max_bytes)
        share.grow(size)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def too_large(max_bytes: int) -> HttpError:
    """Return the error for a body that is too large."""
    return HttpError(413, "body_too_large", f"the body is larger than {max_bytes} bytes; send less at once")


def decoded(data: bytes, encoding: str, max_bytes: int, on_size: Callable[[int], object] = lambda _: None) -> bytes:
    """Return the body without its compression; it is never decoded beyond the limit.

    `on_size` is called with the size of all that is decoded, and may raise `HttpError`.
    A body may have several streams of gzip, or frames of zstd, one after the other.
    Raises `HttpError` (400, 413) for a body that cannot be decoded, or is too large.
    """
    parts = _gzip_parts(data, max_bytes + 1) if encoding == "gzip" else _zstd_parts(data)
    try:
        return b"".join(_limited(parts, max_bytes, on_size))
    except HttpError:
        raise
    except Exception as error:  # each decoder raises errors of its own
        reason = clip(str(error), 200)
        raise HttpError(400, "bad_encoding", f"the body is not {encoding}: {reason}") from error


def _limited(parts: Iterator[bytes], max_bytes: int, on_size: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the parts, and raise `HttpError` when they exceed the limit together."""
    size = 0
    for part in parts:
        size += len(part)
        if size > max_bytes:
            raise too_large(max_bytes)
        on_size(size)
        yield part


def _gzip_parts(data: bytes, max_bytes: int) -> Iterator[bytes]:
    """Yield decoded parts of at most so many bytes each."""
    start = 0
    for _ in range(_MAX_STREAMS):
        decoder = zlib.decompressobj(31)
        while not decoder.eof:
            piece = decoder.unconsumed_tail or data[start : start + _GZIP_PIECE]
            start += 0 if decoder.unconsumed_tail else len(piece)
            if not piece:
                raise ValueError("it ends too early")
            yield decoder.decompress(piece, max_bytes)
        start -= len(decoder.unused_data)
        if start == len(data):
            return
    raise ValueError(f"it has more than {_MAX_STREAMS} parts")


def _zstd_parts(data: bytes) -> Iterator[bytes]:
    """Yield decoded parts of at most 8 MiB each."""
    start = 0
    for _ in range(_MAX_STREAMS):
        decoder = _zstd_decoder()
        while not decoder.eof:
            piece = data[start : start + _ZSTD_PIECE]
            start += len(piece)
            if not piece:
                raise ValueError("it ends too early")
            yield decoder.decompress(piece)
        start -= len(decoder.unused_data)
        if start == len(data):
            return
    raise ValueError(f"it has more than {_MAX_STREAMS} parts")


def _zstd_decoder() -> Any:
    """Return a decoder of one frame: of Python's own, or of the package `zstandard`."""
    if sys.version_info >= (3, 14):
        from compression.zstd import DecompressionParameter, ZstdDecompressor

        return ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()


def parsed(data: bytes, max_depth: int) -> dict[str, Any]:
    """Return the object of a body of JSON.

    Raises `HttpError` (400, 413) for other JSON, and for what is too deep or too much.
    """
    if data.count(b",") > MAX_VALUES and (n_commas := _TEXTS.sub(b"", data).count(b",")) > MAX_VALUES:
        message = f"the body has {n_commas} commas between values: expected at most {MAX_VALUES}; send less at once"
        raise HttpError(413, "body_too_large", message)
    if data.count(b"[") + data.count(b"{") > max_depth:
        n_containers, depth = _containers(data)
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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no value of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {clip(digits, 40)} is too large")
    return value


def _whole(digits: str) -> int:
    """Return a whole number that a float could hold, so that readers of JSON agree."""
    _finite(digits)
    return int(digits)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object, none of whose keys was written twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the key {clip(ascii(twice), 80)} twice")
    return result


_JSON, _JSON_WITH_LONG_NUMBERS = (
    json.JSONDecoder(
        parse_constant=_no_constant, parse_float=_finite, parse_int=whole, object_pairs_hook=_without_repeats
    )
    for whole in (None, _whole)
)
"""Decoders of bodies; the second looks at each whole number, which takes longer."""


def _containers(data: bytes) -> tuple[int, int]:
    """Return the number of opening brackets outside of texts, and their depth."""
    brackets = np.frombuffer(_TEXTS.sub(b"", data).translate(_STEPS, _NO_BRACKETS), dtype=np.int8)
    depth = np.cumsum(brackets, dtype=np.int64).max(initial=0)
    return int(np.count_nonzero(brackets > 0)), int(depth)
