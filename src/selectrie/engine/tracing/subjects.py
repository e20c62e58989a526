"""Digests of subjects, by which a recorded request is found again.

A digest depends on what a subject holds, not on where it lies in memory: on numbers,
texts, arrays and the fields of records. Of functions and other objects only the name
counts. So requests that differ in a callback alone have one digest. That can make a
replayed task ask for other rows than were recorded, but never gives it a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from selectrie.core.tracked_text import TrackedText, spans_of
from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar import Grammar

_DIGEST_BYTES = 16
_MAX_DEPTH = 32
_FEW = 8
"""Number of texts up to which they are taken one by one."""

_Parts: TypeAlias = list[bytes]
_Adder: TypeAlias = Callable[[_Parts, Any, int], None]
"""Appends bytes that are equal, in order, for equal values and no others."""


def subject_digest(subject: object) -> str:
    """Return the hexadecimal digest of a subject."""
    parts: _Parts = []
    _add(parts, subject, 0)
    state = blake2b(len(parts).to_bytes(8, "little"), digest_size=_DIGEST_BYTES)
    state.update(np.fromiter(map(len, parts), dtype="<i8", count=len(parts)).tobytes())
    state.update(b"".join(parts))
    return state.hexdigest()


def name_of(subject: object) -> str:
    """Return the name of a subject's kind, for readers."""
    first = subject[0] if isinstance(subject, tuple) and subject else subject
    if isinstance(first, str):
        return first
    return type(first).__name__.removeprefix("Prepared")


def _add(parts: _Parts, value: object, depth: int) -> None:
    kind = type(value)
    adder = _ADDERS.get(kind)
    if adder is None:
        adder = _ADDERS[kind] = _adder_of(kind)
    adder(parts, value, depth)


_ADDERS: dict[type, _Adder] = {}
"""What appends values, by their type; subjects have many values of a few types."""


def _adder_of(kind: type) -> _Adder:
    if kind is type(None) or issubclass(kind, bool | int | float | complex):
        return _add_number
    if issubclass(kind, str):
        return _add_tracked_text if issubclass(kind, TrackedText) else _add_text
    for kinds, adder in _LEAVES.items():
        if issubclass(kind, kinds):
            return adder
    for kinds, adder in _STRUCTURES.items():
        if issubclass(kind, kinds):
            return _within_depth(adder)
    return _within_depth(_record_adder(kind) if is_dataclass(kind) else _add_object)


def _within_depth(adder: _Adder) -> _Adder:
    def add(parts: _Parts, value: object, depth: int) -> None:
        if depth > _MAX_DEPTH:
            parts.append(b"deep")
        else:
            adder(parts, value, depth + 1)

    return add


def _add_number(parts: _Parts, value: object, depth: int) -> None:
    del depth
    parts.append(f"{type(value).__name__} {value!r}".encode())


def _add_text(parts: _Parts, value: str, depth: int) -> None:
    del depth
    parts += (b"str", value.encode("utf-8", "surrogatepass"))


def _add_tracked_text(parts: _Parts, value: TrackedText, depth: int) -> None:
    del depth
    parts += (b"str", str.encode(value, "utf-8", "surrogatepass"))
    parts.append(repr([(len(text), origin) for text, origin in spans_of(value)]).encode())


def _add_bytes(parts: _Parts, value: bytes, depth: int) -> None:
    del depth
    parts += (b"bytes", bytes(value))


def _add_array(parts: _Parts, value: np.ndarray[Any, Any], depth: int) -> None:
    del depth
    parts += (f"array {value.dtype.str} {value.shape}".encode(), value.tobytes())


def _add_scalar(parts: _Parts, value: np.generic, depth: int) -> None:
    del depth
    parts.append(f"{value.dtype.str} {value!r}".encode())


def _add_digested(parts: _Parts, value: Vocabulary | Grammar, depth: int) -> None:
    del depth
    parts += (_name(type(value)), value.digest.encode())


def _add_enum(parts: _Parts, value: Enum, depth: int) -> None:
    del depth
    parts += (_name(type(value)), value.name.encode())


def _add_mapping(parts: _Parts, value: Mapping[Any, Any], depth: int) -> None:
    parts.append(b"mapping %d" % len(value))
    for key, item in value.items():
        _add(parts, key, depth)
        _add(parts, item, depth)


def _add_set(parts: _Parts, value: AbstractSet[Any], depth: int) -> None:
    parts.append(b"set %d" % len(value))
    parts += sorted(b"".join(_parts_of(item, depth)) for item in value)


def _add_sequence(parts: _Parts, value: Sequence[Any], depth: int) -> None:
    if len(value) > _FEW and all(type(item) is str for item in value):
        parts.append(b"texts %d" % len(value))
        parts.append(np.fromiter(map(len, value), dtype=np.int64, count=len(value)).tobytes())
        parts.append("".join(value).encode("utf-8", "surrogatepass"))
        return
    parts.append(b"sequence %d" % len(value))
    for item in value:
        _add(parts, item, depth)


def _record_adder(kind: type) -> _Adder:
    """Return what appends records of a type: names of fields, then values."""
    # Others are computed, and some of them later.
    names = [one.name for one in fields(kind) if one.init]
    start = _name(kind) + b" " + " ".join(names).encode()
    values_of = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]

    def add(parts: _Parts, value: object, depth: int) -> None:
        parts.append(start)
        for item in values_of(value):
            _add(parts, item, depth)

    return add


def _add_object(parts: _Parts, value: object, depth: int) -> None:
    del depth
    parts += (_name(type(value)), getattr(value, "__qualname__", "").encode())


def _parts_of(value: object, depth: int) -> Iterable[bytes]:
    parts: _Parts = []
    _add(parts, value, depth)
    return parts


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


_LEAVES: dict[type | tuple[type, ...], _Adder] = {
    (bytes, bytearray): _add_bytes,
    np.ndarray: _add_array,
    np.generic: _add_scalar,
}
_STRUCTURES: dict[type | tuple[type, ...], _Adder] = {
    (Vocabulary, Grammar): _add_digested,
    Enum: _add_enum,
    Mapping: _add_mapping,
    AbstractSet: _add_set,
    Sequence: _add_sequence,
}
