"""Digests of subjects, by which a recorded request is found again.

A digest depends on what a subject holds, not on where it lies in memory: on numbers,
texts, arrays and the fields of records. Of functions and other objects only the name
counts. So requests that differ in a callback alone have one digest. That can make a
replayed task ask for other rows than were recorded, but never gives it a wrong value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np

from selectrie.core.tracked_text import TrackedText, spans_of
from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar import Grammar

_DIGEST_BYTES = 16
_MAX_DEPTH = 32
_FEW = 8
"""Number of texts up to which they are taken one by one."""


def subject_digest(subject: object) -> str:
    """Return the hexadecimal digest of a subject."""
    state = blake2b(digest_size=_DIGEST_BYTES)
    for part in _parts(subject, 0):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


def name_of(subject: object) -> str:
    """Return the name of a subject's kind, for readers."""
    first = subject[0] if isinstance(subject, tuple) and subject else subject
    if isinstance(first, str):
        return first
    return type(first).__name__.removeprefix("Prepared")


def _parts(value: object, depth: int) -> Iterable[bytes]:
    """Yield bytes that are equal, in order, for equal values and no others."""
    if value is None or isinstance(value, bool | int | float | complex):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, str):
        yield b"str"
        yield str.encode(value, "utf-8", "surrogatepass")
        if isinstance(value, TrackedText):
            yield repr([(len(text), origin) for text, origin in spans_of(value)]).encode()
    elif isinstance(value, bytes | bytearray):
        yield b"bytes"
        yield bytes(value)
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, np.generic):
        yield f"{value.dtype.str} {value!r}".encode()
    elif depth > _MAX_DEPTH:
        yield b"deep"
    else:
        yield from _parts_of_structure(value, depth + 1)


def _parts_of_structure(value: Any, depth: int) -> Iterable[bytes]:
    name = f"{type(value).__module__}.{type(value).__qualname__}".encode()
    if isinstance(value, Vocabulary | Grammar):
        yield name
        yield value.digest.encode()
    elif isinstance(value, Enum):
        yield name
        yield value.name.encode()
    elif isinstance(value, Mapping):
        yield b"mapping %d" % len(value)
        for key, item in value.items():
            yield from _parts(key, depth)
            yield from _parts(item, depth)
    elif isinstance(value, AbstractSet):
        yield b"set %d" % len(value)
        yield from sorted(b"".join(_parts(item, depth)) for item in value)
    elif isinstance(value, Sequence) and len(value) > _FEW and all(type(item) is str for item in value):
        yield b"texts %d" % len(value)
        yield np.fromiter(map(len, value), dtype=np.int64, count=len(value)).tobytes()
        yield "".join(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, Sequence):
        yield b"sequence %d" % len(value)
        for item in value:
            yield from _parts(item, depth)
    else:
        yield name
        yield from _parts_of_object(value, depth)


def _parts_of_object(value: Any, depth: int) -> Iterable[bytes]:
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            if one.init:  # others are computed, and some of them later
                yield one.name.encode()
                yield from _parts(getattr(value, one.name), depth)
    else:
        yield getattr(value, "__qualname__", "").encode()
