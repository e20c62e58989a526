"""A file of blocks: each compressed, with its length and a digest of all before it.

```
magic    16 bytes
block    method, stored length, payload length (little-endian); digest; stored bytes
…
end      a block without bytes, of the method `END`
```

The digest of a block covers its numbers, its stored bytes and the digest before it, so
a block that was changed, moved or left out is noticed. A file that ends before its end
block is torn: its process was killed, or it was not copied as a whole. All complete
blocks of it count.

Blocks are small and are decompressed one by one, to no more than they say. A block is
stored as it is if it would become more than `MAX_RATIO` times smaller, or if it would
have more items (records) than its size allows. So the memory that a file takes is
bounded by its size.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

MAGIC = b"selectrie trace\n"
MAX_PAYLOAD_BYTES = 64 << 20
"""Maximum size of a payload, which is held in memory."""
MAX_RATIO = 64
"""A block is never compressed further."""
_FREE_BYTES = 4 << 10
"""A payload of this size may be compressed by more than `MAX_RATIO`."""
_BYTES_PER_ITEM, _FREE_ITEMS = 4, 8
"""The maximum number of items of a compressed block: see `max_items`."""

_NUMBERS = struct.Struct("<BII")
_DIGEST_BYTES = 16
_HEAD_BYTES = _NUMBERS.size + _DIGEST_BYTES
_STORED, _ZLIB, _END = 0, 1, 2
"""Methods of a block: stored as it is, compressed, or the end of the file."""
_LEVEL = 6
"""Level of the compression by zlib, from 1 (fast) to 9 (small)."""


class BlockError(ValueError):
    """The file is not a valid file of blocks; the message says why and where."""


def is_trace(path: Path) -> bool:
    """Return whether a file begins as a trace does. Raises nothing.

    A file that ends within the first bytes of a trace counts as one; an empty file or
    one that cannot be read does not.
    """
    try:
        with open_plain_file(path) as file:
            beginning = file.read(len(MAGIC))
            return beginning != b"" and MAGIC.startswith(beginning)
    except (OSError, ValueError):
        return False


def open_plain_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting for the writer of a FIFO.

    Raises `ValueError` for anything but a regular file, and `OSError`.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not a plain file")
    return file


@dataclass(frozen=True, slots=True)
class FileTail:
    """The end of a file of blocks, which may be torn.

    Attributes:
        n_bytes: Number of bytes up to the end of the last complete block.
        n_torn: Number of bytes behind it, of an incomplete block.
        is_complete: Whether the file ends with its end block.
    """

    n_bytes: int
    n_torn: int
    is_complete: bool


class BlockWriter:
    """Appends blocks to a file that is open for writing and unbuffered."""

    def __init__(self, file: BinaryIO) -> None:
        """Write the magic."""
        self._file, self._digest = file, b""
        file.write(MAGIC)
        self.n_bytes = len(MAGIC)

    def write(self, payload: bytes, n_items: int) -> None:
        """Append a block with a payload of `n_items` records.

        Raises `BlockError` if the payload is larger than `MAX_PAYLOAD_BYTES`.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BlockError(f"a payload of {len(payload)} bytes is too large")
        stored = zlib.compress(payload, _LEVEL)
        is_bounded = _may_become(len(stored), len(payload)) and n_items <= max_items(len(stored))
        if len(stored) < len(payload) and is_bounded:
            self._append(_ZLIB, stored, len(payload))
        else:
            self._append(_STORED, payload, len(payload))

    def end(self) -> None:
        """Append the end block."""
        self._append(_END, b"", 0)

    def _append(self, method: int, stored: bytes, n_payload: int) -> None:
        """Write one block: its numbers, its chained digest, and the stored bytes."""
        numbers = _NUMBERS.pack(method, len(stored), n_payload)
        self._digest = _chain_digest(self._digest, numbers, stored)
        self._file.write(b"".join((numbers, self._digest, stored)))
        self.n_bytes += _HEAD_BYTES + len(stored)


class BlockReader:
    """Reads the payloads of a file of blocks, in order.

    Attributes:
        tail: The end of the file; set when all payloads have been read.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Read the magic; raise `BlockError` if the file does not begin with it."""
        self._file, self.tail = file, FileTail(0, 0, is_complete=False)
        if file.read(len(MAGIC)) != MAGIC:
            raise BlockError("it does not begin as a trace does")

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Yield each payload, with the maximum number of records that it can have.

        Raises `BlockError` where the file is damaged.
        """
        digest, at = b"", len(MAGIC)
        while True:
            head = self._file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                self.tail = FileTail(at, len(head), is_complete=False)
                return
            method, n_stored, n_payload = _NUMBERS.unpack_from(head)
            _check_numbers(method, n_stored, n_payload, at)
            stored = self._file.read(n_stored)
            if len(stored) < n_stored:
                self.tail = FileTail(at, len(head) + len(stored), is_complete=False)
                return
            digest = _chain_digest(digest, head[: _NUMBERS.size], stored)
            if digest != head[_NUMBERS.size :]:
                raise BlockError(f"it is damaged: the block at byte {at} is not what was written")
            if method == _END:
                break
            payload = stored if method == _STORED else _decompress(stored, n_payload, at)
            yield payload, max_items(n_stored)
            at += _HEAD_BYTES + n_stored
        at += _HEAD_BYTES
        if self._file.read(1):
            raise BlockError(f"it goes on after its end at byte {at}")
        self.tail = FileTail(at, 0, is_complete=True)


def max_items(n_stored: int) -> int:
    """Return the maximum number of items of a block with `n_stored` stored bytes."""
    return _FREE_ITEMS + n_stored // _BYTES_PER_ITEM


def _may_become(n_stored: int, n_payload: int) -> bool:
    """Return whether bytes of a block may be decompressed to so large a payload."""
    return n_payload <= max(_FREE_BYTES, MAX_RATIO * n_stored)


def _check_numbers(method: int, n_stored: int, n_payload: int, at: int) -> None:
    """Raise `BlockError` unless `BlockWriter` can have written these numbers."""
    is_possible = {
        _STORED: n_stored == n_payload,
        _ZLIB: n_stored < n_payload and _may_become(n_stored, n_payload),
        _END: n_stored == n_payload == 0,
    }.get(method, False)
    if not is_possible or n_payload > MAX_PAYLOAD_BYTES:
        raise BlockError(f"it is damaged: the block at byte {at} has impossible numbers")


def _chain_digest(before: bytes, numbers: bytes, stored: bytes) -> bytes:
    """Return the digest of a block from the previous one, its numbers and its bytes."""
    state = blake2b(before, digest_size=_DIGEST_BYTES)
    state.update(numbers)
    state.update(stored)
    return state.digest()


def _decompress(stored: bytes, n_payload: int, at: int) -> bytes:
    """Return the payload of a block, which must have exactly `n_payload` bytes.

    Raises `BlockError` for other bytes; `at` is the block's offset, for the message.
    """
    reader = zlib.decompressobj()
    try:
        payload = reader.decompress(stored, n_payload)
        is_whole = reader.eof or not reader.decompress(reader.unconsumed_tail, 1)
    except zlib.error as error:
        raise BlockError(f"it is damaged: the block at byte {at} cannot be decompressed") from error
    if len(payload) != n_payload or not is_whole or not reader.eof or reader.unused_data:
        raise BlockError(f"it is damaged: the block at byte {at} has another length than it says")
    return payload
