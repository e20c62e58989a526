"""Checks of option values: what does not fit is an `OptionError` that names it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral
from types import MappingProxyType
from typing import Any

from selectrie.errors import OptionError

MOST_NUMBER = sys.float_info.max
"""Greater whole numbers are no float."""

MOST_TEXTS = 65_536
"""Texts that one request may draw: each is a task of its own."""


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `OptionError` unless value is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise OptionError(name, value, "one of " + ", ".join(repr(a) for a in allowed))


def at_least(name: str, value: object, least: int, *, most: int = sys.maxsize, optional: bool = True) -> None:
    """Raise `OptionError` unless value is an integer from `least` to `most`, or None
    where it is optional."""
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(name, value, f"a whole number of at least {least}")
    if value > most:
        raise OptionError(name, value, f"a whole number from {least} to {most}")


def record(name: str, value: object, kind: type) -> None:
    """Raise `OptionError` unless value is a record of this kind."""
    if not isinstance(value, kind):
        raise OptionError(name, value, f"a {kind.__name__} record")


def flag(name: str, value: object) -> None:
    """Raise `OptionError` unless value is True or False."""
    if type(value) is not bool:
        raise OptionError(name, value, "True or False")


def callback(name: str, value: object, of: str) -> None:
    """Raise `OptionError` unless value can be called, or is None; of: what it is called with."""
    if value is not None and not callable(value):
        raise OptionError(name, value, f"a callable of {of}, or None")


def text(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `OptionError` unless value is a str, or None where it is optional."""
    if not isinstance(value, str) and not (optional and value is None):
        raise OptionError(name, value, "a str or None" if optional else "a str")


def probability(name: str, value: object) -> None:
    """Raise `OptionError` unless value is a number above 0 and not above 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise OptionError(name, value, "a probability in (0, 1]")


def number(name: str, value: object, *, least: float, most: float = math.inf, remedy: str) -> None:
    """Raise `OptionError` unless value is a finite number from `least` to `most`; remedy: what to give instead."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not max(least, -MOST_NUMBER) <= value <= min(most, MOST_NUMBER):  # type: ignore[operator]
        raise OptionError(name, value, remedy)


def texts(name: str, value: object, *, allowed: str = "a list or tuple of texts, each a str") -> tuple[str, ...]:
    """The texts of a list, a tuple or another sequence; `OptionError` where it is none, or one text itself."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise OptionError(name, value, allowed)
    for place, one in enumerate(value):
        text(f"{name}[{place}]", one)
    return tuple(value)


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """The ids of a list, a tuple, an array (`Vocabulary.eog`); `OptionError` where it is none, or one is no id."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping | AbstractSet | Iterator):
        raise OptionError(name, value, "a list, tuple or array of token ids")
    try:
        given = tuple(value)
    except TypeError:  # an array without axes
        raise OptionError(name, value, "a list, tuple or array of token ids") from None
    return tuple(natural(f"{name}[{place}]", token, _TOKEN_ID) for place, token in enumerate(given))


_TOKEN_ID = "a whole number of at least 0, the id of a token"  # noqa: S105 - of a vocabulary


def seed(name: str, value: object) -> int | None:
    """A seed as an int, or None; `OptionError` for what is neither."""
    return None if value is None else natural(name, value, "a whole number of at least 0; leave it out for any")


def natural(name: str, value: object, allowed: str) -> int:
    """A whole number of at least 0 as an int, numpy's integers included."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise OptionError(name, value, allowed)
    return int(value)


def named(name: str, value: object) -> Mapping[str, Any]:
    """A read-only copy of a mapping from names to values; `OptionError` where it is none."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(name, value, "a mapping from names to values")
    return MappingProxyType(dict(value))
