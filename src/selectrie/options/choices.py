"""Reads choices: any iterable of texts or values, or a type with finitely many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, EnumMeta
from typing import Any, Literal, get_args, get_origin

_ITERABLES = "several texts, such as a list, a column of a data frame, an Enum class or a Literal type"


def text_of(value: object) -> str | None:
    """Return the text by which a value is scored, or None if its type has no text.

    A str is returned as it is, a bool gives "true" or "false", an int its digits, and
    an Enum member the text of its value.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int):
        return None
    try:
        return str(value)
    except ValueError:  # more digits than Python writes
        return None


def listed(given: Any, refuse: Callable[[str], Exception]) -> tuple[Any, ...]:
    """Return the values of an iterable, an Enum class, a `Literal` or `bool`, in order.

    Values of numpy and pyarrow become Python's own.

    Args:
        given: The values. A set is refused, because it has no order, and so is a single
            text.
        refuse: Returns the error to raise, by what is expected instead.
    """
    if isinstance(given, EnumMeta):
        return tuple(given)
    if given is bool:
        return True, False
    if get_origin(given) is Literal:
        return get_args(given)
    if isinstance(given, set | frozenset):
        raise refuse("several texts in an order, such as `sorted(…)` of the set")
    if hasattr(given, "columns") or hasattr(given, "column_names"):  # iterating yields names or columns
        raise refuse("one column of the data frame")
    is_one = isinstance(given, str | bytes | bytearray | Mapping | type)
    if is_one or not isinstance(given, Iterable) or getattr(given, "ndim", 1) != 1:
        raise refuse(_ITERABLES)
    if isinstance(given, list | tuple):
        return tuple(given) if {*map(type, given)} <= {str} else tuple(map(_own, given))
    return tuple(map(_own, given))


def _own(value: Any) -> Any:
    """Return a scalar of numpy or pyarrow as a value of Python, others as they are."""
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    return value.as_py() if hasattr(value, "as_py") else value
