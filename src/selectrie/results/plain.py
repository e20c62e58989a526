"""Values as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from selectrie.core.types import FloatArray

_DEEPEST = 64
"""Lists and mappings within each other that JSON gets."""


def number(x: float | None) -> float | None:
    """A finite number, or None: JSON has no infinity and no NaN."""
    return None if x is None or not math.isfinite(x) else x


def numbers(x: FloatArray) -> list[float | None]:
    """`number` of each element."""
    values = x.astype(object)
    values[~np.isfinite(x)] = None
    result: list[float | None] = values.tolist()
    return result


def bytes_fields(name: str, value: bytes) -> dict[str, object]:
    """`{name: text}`, with bytes that are no UTF-8 replaced and then listed under "bytes" (`name_bytes` unless a piece)."""
    text = value.decode("utf-8", "replace")
    if text.encode() == value:
        return {name: text}
    return {name: text, "bytes" if name == "piece" else f"{name}_bytes": list(value)}


def plain(record: Any) -> dict[str, object]:
    """Fields of a flat record."""
    if not is_dataclass(record):
        raise TypeError(f"{type(record).__name__} is no record")
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: number(value) if isinstance(value, float) else value for name, value in values.items()}


def jsonable(value: object, depth: int = _DEEPEST) -> object:
    """A value as JSON can hold it: what is nested deeper than `depth` as its `repr`."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return number(value)
    if depth and isinstance(value, Mapping):
        return {str(jsonable(key, 0)): jsonable(one, depth - 1) for key, one in value.items()}
    if depth and isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [jsonable(one, depth - 1) for one in value]
    return repr(value)
