"""Records as bytes: a line for each record in JSON, then the arrays of all of them.

The line of a record is a list: its kind, then its fields in order. In place of an array
is its length. The arrays follow each other in the order of the lines.

Nothing in a payload is trusted: every length is compared with the bytes that are left
before anything is allocated, and every value with the type of its field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.traces.records import FIELDS, KINDS, NAMES, Record

MAX_LINES_BYTES = 8 << 20
"""Maximum size of the lines of a payload. The objects that they become are larger."""
_LENGTH_BYTES = 4
_MAX_INT = 1 << 62


class PayloadError(ValueError):
    """The bytes are not a payload; the message says why."""


_Layout: TypeAlias = tuple[str, Callable[[Any], tuple[Any, ...]], tuple["np.dtype[Any] | None", ...]]
_LAYOUTS: dict[type[Any], _Layout] = {
    kind: (
        NAMES[kind],
        attrgetter(*(name for name, _ in fields)),
        tuple(of if isinstance(of, np.dtype) else None for _, of in fields),
    )
    for kind, fields in FIELDS.items()
}
"""Of each record its name, what returns its fields, and the types of arrays.

All records have at least two fields, so `attrgetter` returns a tuple.
"""
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def size_of(record: Record) -> int:
    """Return roughly how many bytes a record takes in a payload."""
    _, values_of, kinds = _LAYOUTS[type(record)]
    n_bytes = 4 * len(kinds)
    for value, kind in zip(values_of(record), kinds, strict=True):
        if kind is not None:
            n_bytes += value.nbytes
        elif isinstance(value, str):
            n_bytes += len(value)
    return n_bytes


def encode(records: Iterable[Record]) -> bytes:
    """Return the payload of some records."""
    lines: list[str] = []
    arrays: list[bytes] = []
    for record in records:
        name, values_of, kinds = _LAYOUTS[type(record)]
        values = values_of(record)
        sizes = [value if kind is None else len(value) for value, kind in zip(values, kinds, strict=True)]
        arrays += [
            np.asarray(value, dtype=kind).tobytes()
            for value, kind, size in zip(values, kinds, sizes, strict=True)
            if size and kind is not None
        ]
        lines.append(_to_json([name, *sizes]))
    text = "\n".join(lines).encode()
    return b"".join((len(text).to_bytes(_LENGTH_BYTES, "little"), text, *arrays))


def decode(payload: bytes) -> Iterator[Record]:
    """Yield the records of a payload; raise `PayloadError` if it is not one."""
    n_text = int.from_bytes(payload[:_LENGTH_BYTES], "little")
    if len(payload) < _LENGTH_BYTES or n_text > min(MAX_LINES_BYTES, len(payload) - _LENGTH_BYTES):
        raise PayloadError(f"its lines of {n_text} bytes do not fit")
    at = _LENGTH_BYTES + n_text
    text = payload[_LENGTH_BYTES:at]
    for line in text.split(b"\n") if text else ():
        values = _line(line)
        arguments: dict[str, Any] = {}
        names = FIELDS[KINDS[values[0]]]
        if len(values) != 1 + len(names):
            raise PayloadError(f"a record {values[0]!r} has {len(values) - 1} fields, not {len(names)}")
        for (name, kind), value in zip(names, values[1:], strict=True):
            if isinstance(kind, np.dtype):
                size = _count(name, value, (len(payload) - at) // kind.itemsize)
                arguments[name] = _array(payload, kind, size, at)
                at += size * kind.itemsize
            else:
                arguments[name] = _plain(name, kind, value)
        yield KINDS[values[0]](**arguments)
    if at != len(payload):
        raise PayloadError(f"{len(payload) - at} bytes belong to no record")


def _line(line: bytes) -> list[Any]:
    """Return the values of a line, the first of which is the name of a record."""
    try:
        values = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PayloadError("a line is not JSON") from error
    if not isinstance(values, list) or not values or not isinstance(values[0], str) or values[0] not in KINDS:
        raise PayloadError("a line is not a record of this version")
    return values


def _refuse(text: str) -> None:
    raise ValueError(text)


def _count(name: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise PayloadError(f"{name} has a length that does not fit")
    return value


@cache
def _empty(kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the empty array that all records share; most arrays are empty."""
    return np.empty(0, dtype=kind.newbyteorder("="))


def _array(payload: bytes, kind: np.dtype[Any], size: int, at: int) -> NDArray[Any]:
    if not size:
        return _empty(kind)
    return np.frombuffer(payload, dtype=kind, count=size, offset=at).astype(kind.newbyteorder("="))


def _plain(name: str, kind: type, value: object) -> object:
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < _MAX_INT else value
    if type(value) is not kind or (kind is int and not 0 <= value < _MAX_INT):  # type: ignore[operator]
        raise PayloadError(f"{name} is not what it must be")
    return value
