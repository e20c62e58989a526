"""Standard library types whose values are written as one word.

These are dates, times, durations, UUIDs, decimals and paths.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import MappingProxyType
from typing import Any
from uuid import UUID

from selectrie.grammar.readers.formats import FORMATS

_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{6}})?(?:Z|[+\-]{_CLOCK})?"
_COUNT = "(?:0|[1-9][0-9]{0,5})"
_SECONDS = rf"{_COUNT}(?:\.[0-9]{{1,6}})?S"
_HOURS = f"T(?:{_COUNT}H(?:{_COUNT}M)?(?:{_SECONDS})?|{_COUNT}M(?:{_SECONDS})?|{_SECONDS})"

PATTERNS = MappingProxyType(
    {
        date: FORMATS["date"],
        time: _TIME,
        datetime: f"{FORMATS['date']}T{_TIME}",
        timedelta: f"-?P(?:{_COUNT}D(?:{_HOURS})?|{_HOURS})",
        UUID: "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)),
    }
)
"""Patterns of the whole text that `isoformat` and `str` write.

For durations, this is the ISO 8601 form that pydantic writes. Zones are optional, as
Python has times without one.
"""
MAX_DECIMAL = 10**15
"""Decimals are between minus this number and this number.

The bounds exclude exponents, which a reader might turn into infinity.
"""


def schema_of_written(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of one of these types, or None for any other type."""
    pattern = PATTERNS.get(kind)
    if pattern is not None:
        return {"type": "string", "pattern": f"^(?:{pattern})$"}
    if kind is Decimal:
        return {"type": "number", "minimum": -MAX_DECIMAL, "maximum": MAX_DECIMAL}
    return {"type": "string"} if is_text(kind) else None


def is_text(kind: Any) -> bool:
    """Return whether every text is a value of a type.

    That holds for paths, and for bytes, which are the text in UTF-8.
    """
    return kind is bytes or (isinstance(kind, type) and issubclass(kind, PurePath))
