"""Reads the body of a request: its size, its encoding, and its JSON."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from io import BytesIO
from typing import Any, TypeAlias

from selectrie.errors import OptionError
from selectrie.server.http_errors import HttpError
from selectrie.server.options import ServerOptions

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

ENCODINGS = ("identity", "gzip", "zstd")
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_PARSED_IN_PLACE = 1 << 18
"""Maximum size of a body that is parsed on the event loop, in bytes."""


class Disconnected(Exception):
    """The client closed the connection."""


async def read_body(receive: Receive, encoding: str, options: ServerOptions) -> bytes:
    """Return the decoded body of a request.

    Raises:
        HttpError: 408 if it does not arrive in time, 413 if it is too large, 400 if it
            cannot be decoded.
        Disconnected: If the client leaves before.
    """
    try:
        data = await asyncio.wait_for(_received(receive, options.max_body_bytes), options.body_timeout_s)
    except asyncio.TimeoutError as error:
        message = f"the body did not arrive within {options.body_timeout_s:g} s"
        raise HttpError(408, "body_timeout", message) from error
    return data if encoding == "identity" else _decoded(data, encoding, options.max_body_bytes)


async def _received(receive: Receive, max_bytes: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def too_large(max_bytes: int) -> HttpError:
    """Return the error for a body that is too large."""
    return HttpError(413, "body_too_large", f"the body is larger than {max_bytes} bytes; send less at once")


def _decoded(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the body without its compression; it is never decoded beyond the limit."""
    try:
        if encoding == "gzip":
            decoder = zlib.decompressobj(31)
            plain = decoder.decompress(data, max_bytes + 1)
            is_whole = decoder.eof and not decoder.unused_data
        else:
            plain, is_whole = _without_zstd(data, max_bytes + 1)
    except Exception as error:
        raise HttpError(400, "bad_encoding", f"the body is not {encoding}: {error}") from error
    if len(plain) > max_bytes:
        raise too_large(max_bytes)
    if not is_whole:
        raise HttpError(400, "bad_encoding", f"the body is not one whole stream of {encoding}")
    return plain


def _without_zstd(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """Return at most so many decoded bytes, and whether the frame ended."""
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor

        decoder = ZstdDecompressor()
        plain = decoder.decompress(data, max_bytes)
        return plain, decoder.eof and not decoder.unused_data
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(BytesIO(data)) as reader:
        plain = reader.read(max_bytes)
    declared = zstandard.frame_content_size(data)
    return plain, declared in (-1, len(plain)) or len(plain) == max_bytes


async def parsed(data: bytes, options: ServerOptions) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises:
        HttpError: 400 for anything else, and for one that is nested too deeply.
    """
    if len(data) > _PARSED_IN_PLACE:
        return await asyncio.to_thread(_object, data, options.max_depth)
    return _object(data, options.max_depth)


def _object(data: bytes, max_depth: int) -> dict[str, Any]:
    if data.count(b"[") + data.count(b"{") > max_depth and _depth(data) > max_depth:
        raise HttpError(400, "bad_json", f"the body is nested more than {max_depth} levels deep")
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "bad_json", f"the body is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise HttpError(400, "bad_json", f"the body is a JSON {type(found).__name__}: expected an object")
    return found


def flag_of(body: Mapping[str, Any], name: str, path: str = "", *, default: bool = False) -> bool:
    """Return a field of a request that is true or false, or not given.

    `path` is what errors put before the name.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise OptionError(path + name, value, "true or false")
    return default if value is None else value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no value of JSON")


def _depth(data: bytes) -> int:
    """Return the depth of brackets outside of texts."""
    depth = deepest = 0
    for token in _TOKENS.finditer(data):
        if token[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in (b"]", b"}"):
            depth -= 1
    return deepest
