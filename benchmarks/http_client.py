"""An HTTP/1.1 client for `benchmarks/serving.py`, which also does what good clients do not.

It keeps connections open, reads streams of events, and can hang up, read slowly and send
what is no HTTP. It connects to loopback addresses only, and each operation has a time
limit, so a benchmark ends by itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

MAX_BODY_BYTES = 64 << 20
_LIMIT = 1 << 16
"""Bytes that are read ahead."""
_SLOW_LIMIT = 1 << 12
"""Bytes that a slow reader reads ahead, and the size that its socket asks for."""
_NO_LINGER = struct.pack("ii", 1, 0)


class Lost(Exception):
    """The connection ended before the whole response was there."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a slow reader reads: so many bytes, then a pause.

    Attributes:
        n_bytes: Bytes read at once.
        pause_s: Seconds between.
    """

    n_bytes: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response.

    Attributes:
        status: The status.
        headers: The headers, with names in small letters.
        body: The body, without the framing of chunks.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    def events(self) -> list[str]:
        """Return the data of a stream of server-sent events, comments left out."""
        return events_of(self.body)


def events_of(body: bytes) -> list[str]:
    """Return the data of server-sent events, one text an event."""
    lines = body.decode().split("\n")
    return [line[len("data: ") :] for line in lines if line.startswith("data: ")]


class Connection:
    """One connection to a server on this machine. It is opened again when it was closed.

    Args:
        address: Host, a loopback address, and port.
        timeout_s: Seconds for sending, and for reading a response.
        pace: How slowly responses are read; None for as fast as they come.
    """

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 120.0, pace: Pace | None = None) -> None:
        if not ipaddress.ip_address(address[0]).is_loopback:
            raise ValueError(f"{address[0]} is not a loopback address")
        self._address, self._timeout_s, self._pace = address, timeout_s, pace
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_open(self) -> bool:
        """Return whether there is a connection that the server has not closed."""
        return self._writer is not None and self._reader is not None and not self._reader.at_eof()

    async def open(self) -> None:
        """Connect, unless there is a connection. Raises `OSError` if no server
        listens."""
        if self.is_open:
            return
        self.close()
        made = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._pace is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_LIMIT)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, self._address), self._timeout_s)
            limit = _LIMIT if self._pace is None else _SLOW_LIMIT
            self._reader, self._writer = await asyncio.open_connection(sock=made, limit=limit)
        except BaseException:
            made.close()
            raise

    async def send(self, data: bytes) -> None:
        """Send bytes as they are. Raises `Lost` if the server has left."""
        await self.open()
        assert self._writer is not None
        try:
            with self._limited():
                self._writer.write(data)
                await self._writer.drain()
        except ConnectionError as error:
            self.close()
            raise Lost(f"while sending: {error}") from error

    async def reply(self) -> Reply:
        """Read one response. Raises `Lost` if it does not come whole."""
        with self._limited():
            return await self._reply()

    async def first_line(self) -> bytes:
        """Read the first line of a response. Raises `Lost` if there is none."""
        with self._limited():
            return await self._line()

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request and return its response."""
        await self.send(request_of(method, path, body, headers))
        return await self.reply()

    async def events(self, data: bytes) -> AsyncIterator[tuple[float, str]]:
        """Send a request and yield the events of its response as they come.

        Yields the seconds since the request was sent, by `time.perf_counter`, and the
        data. Raises `Lost` for a response that is no stream.
        """
        began = perf_counter()
        await self.send(data)
        with self._limited():
            status, headers = await self._head()
        if status != 200 or not headers.get("content-type", "").startswith("text/event-stream"):
            self.close()
            raise Lost(f"status {status} instead of a stream")
        rest, chunks = b"", self._chunks()
        while True:
            with self._limited():
                part = await anext(chunks, b"")
            if not part:
                return
            *whole, rest = (rest + part).split(b"\n\n")
            for event in whole:
                for found in events_of(event):
                    yield perf_counter() - began, found

    def hang_up(self, *, reset: bool = False) -> None:
        """Leave at once, whatever is on its way; with `reset`, by a reset."""
        if self._writer is not None and reset:
            own = self._writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Close the connection when the time is over, which ends what waits for it."""
        timer = asyncio.get_running_loop().call_later(self._timeout_s, self.close)
        try:
            yield
        finally:
            timer.cancel()

    async def _reply(self) -> Reply:
        status, headers = await self._head()
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b"".join([part async for part in self._chunks()])
        else:
            body = await self._exactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Reply(status, headers, body)

    async def _head(self) -> tuple[int, dict[str, str]]:
        line = await self._line()
        words = line.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
            raise Lost(f"no response of HTTP: {line[:80]!r}")
        headers: dict[str, str] = {}
        while line := await self._line():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(words[1]), headers

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._line(), 16):
            yield await self._exactly(size)
            await self._line()
        await self._line()

    async def _line(self) -> bytes:
        reader = self._readable()
        try:
            line = await reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            self.close()
            raise Lost(f"while reading: {error}") from error
        return line[:-2]

    async def _exactly(self, size: int) -> bytes:
        if size > MAX_BODY_BYTES:
            raise Lost(f"a body of {size} bytes")
        reader, parts, left = self._readable(), [], size
        while left:
            wanted = left if self._pace is None else min(left, self._pace.n_bytes)
            try:
                parts.append(await reader.readexactly(wanted))
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                self.close()
                raise Lost(f"{left} of {size} bytes did not come: {error}") from error
            left -= wanted
            if self._pace is not None:
                await asyncio.sleep(self._pace.pause_s)
        return b"".join(parts)

    def _readable(self) -> asyncio.StreamReader:
        if self._reader is None:
            raise Lost("the connection is closed")
        return self._reader


def request_of(method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a request; a body is JSON unless a header says otherwise."""
    own = {"host": "127.0.0.1"}
    if body is not None:
        own |= {"content-type": "application/json", "content-length": str(len(body))}
    own |= dict(headers or {})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")
