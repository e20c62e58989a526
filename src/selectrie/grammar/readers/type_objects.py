"""Makes objects of Python types from values of JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from selectrie.errors import GrammarError
from selectrie.grammar.readers.type_parts import (
    fields_of,
    is_class,
    is_hashable,
    is_named_tuple,
    is_pydantic,
    parts_of_union,
    type_name,
    type_of_variable,
)
from selectrie.grammar.readers.types import ARRAYS, MAPPINGS, SETS

Make = Callable[[Any], Any]
"""Makes an object from a value of JSON, or raises `ValueError` or `TypeError`."""

_DURATION = re.compile(r"(-?)P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?", re.ASCII)


def object_maker(kind: Any) -> Make:
    """Return a function that makes objects of a type from values of JSON.

    The values are those that `json.loads` returns for a text of the type's schema
    (`schema_of_type`). The function raises `ValueError` or `TypeError` for a value that
    the type refuses, such as one that a validator of pydantic rejects.

    >>> from datetime import date
    >>> object_maker(tuple[date, int])(["2024-02-29", 3])
    (datetime.date(2024, 2, 29), 3)
    """
    return _Makers().of(kind)


class _Makers:
    """Makers of types. Each type has one, so that classes may contain each other."""

    def __init__(self) -> None:
        self._known: dict[Any, Make] = {}

    def of(self, kind: Any) -> Make:
        """Return the maker of a type."""
        parts = parts_of_union(kind)
        if len(parts) == 1:
            return self._of_part(parts[0])
        return _first_of([self._of_part(part) for part in parts])

    def _of_part(self, part: Any) -> Make:
        """Return the maker of a type that is no union."""
        if get_origin(part) is Annotated:
            return self.of(part.__origin__)
        if isinstance(part, TypeVar):
            return self.of(type_of_variable(part))
        if not is_hashable(part):
            return _by_pydantic(part)
        simple = _maker_of_simple(part)
        if simple is not None:
            return simple
        if not is_class(get_origin(part) or part):
            return self._of_container(part)
        if part not in self._known:
            self._known[part] = lambda value: self._known[part](value)  # noqa: PLW0108 - the class may contain itself
            self._known[part] = self._of_class(part)
        return self._known[part]

    def _of_class(self, kind: Any) -> Make:
        """Return the maker of a class with fields."""
        if is_pydantic(kind):
            return _by_pydantic(kind)
        origin = get_origin(kind) or kind
        makers = {one.argument: self.of(one.kind) for one in fields_of(kind) or ()}
        if is_named_tuple(origin):
            items = list(makers.values())
            return lambda value: origin(*(make(one) for make, one in zip(items, value, strict=False)))
        return lambda value: origin(**{name: makers[name](one) for name, one in value.items()})

    def _of_container(self, kind: Any) -> Make:
        """Return the maker of a list, set, tuple, mapping, or type of pydantic."""
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if origin in ARRAYS or origin in SETS:
            item = self.of(arguments[0]) if arguments else _as_it_is
            collect: Callable[[Any], Any] = list if origin in ARRAYS else frozenset if origin is frozenset else set
            return lambda value: collect(map(item, value))
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                item = self.of(arguments[0])
                return lambda value: tuple(map(item, value))
            items = [self.of(one) for one in arguments if one != ()]
            return lambda value: (
                tuple(make(one) for make, one in zip(items, value, strict=True)) if items else tuple(value)
            )
        if origin in MAPPINGS:
            key, item = map(self.of, arguments or (str, Any))
            return lambda value: {key(name): item(one) for name, one in value.items()}
        return _by_pydantic(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _first_of(makers: list[Make]) -> Make:
    """Return a maker of a union: the first of its parts that takes the value."""

    def make(value: Any) -> Any:
        refused: Exception | None = None
        for one in makers:
            try:
                return one(value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:  # noqa: PERF203 - each part may refuse
                refused = refused or error
        raise ValueError(str(refused)) from refused

    return make


def _maker_of_simple(part: Any) -> Make | None:
    """Return the maker of a type without parts, or None for any other type."""
    if part is Any or part is object:
        return _as_it_is
    if isinstance(part, type) and issubclass(part, Enum):
        return _one_of({_key(member.value): member for member in part})
    if get_origin(part) is Literal:
        return _one_of({_key(one.value if isinstance(one, Enum) else one): one for one in get_args(part)})
    if part in _WRITTEN:
        return _WRITTEN[part]
    if isinstance(part, type) and issubclass(part, PurePath):
        return lambda value: part(_text(value))
    return None


def _key(value: Any) -> tuple[bool, Any]:
    """Return a key of a value of JSON: true is not 1, but 1.0 is."""
    return isinstance(value, bool), value


def _one_of(values: Mapping[tuple[bool, Any], Any]) -> Make:
    """Return a maker that maps a value of JSON to one of the listed values."""

    def make(value: Any) -> Any:
        try:
            return values[_key(value)]
        except (KeyError, TypeError):
            raise ValueError(f"{value!r} is not a member") from None

    return make


def _checked(kinds: tuple[type, ...], make: Make) -> Make:
    """Return a maker that takes values of some types only; a bool is no number."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{value!r} is not {' or '.join(one.__name__ for one in kinds)}")
        return make(value)

    return checked


_text = _checked((str,), _as_it_is)


def _instant(kind: type[time | datetime]) -> Make:
    """Return a maker from what `isoformat` writes; Python 3.10 does not read `Z`."""
    return lambda value: kind.fromisoformat(re.sub("Z$", "+00:00", value))


def _duration(text: str) -> timedelta:
    """Return the duration that a text of ISO 8601 in days, hours … stands for."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    sign, days, hours, minutes, seconds = match.groups(default="0")
    length = timedelta(int(days), hours=int(hours), minutes=int(minutes)) + timedelta(
        microseconds=int(Decimal(seconds) * 1_000_000)
    )
    return -length if sign == "-" else length


_WRITTEN: dict[Any, Make] = {
    str: _text,
    bool: _checked((bool,), _as_it_is),
    int: _checked((int,), _as_it_is),
    float: _checked((int, float), float),
    None: _one_of({(False, None): None}),
    type(None): _one_of({(False, None): None}),
    date: _checked((str,), date.fromisoformat),
    time: _checked((str,), _instant(time)),
    datetime: _checked((str,), _instant(datetime)),
    timedelta: _checked((str,), _duration),
    UUID: _checked((str,), UUID),
    Decimal: _checked((int, float), lambda value: Decimal(str(value))),
    bytes: _checked((str,), str.encode),
}


def _by_pydantic(kind: Any) -> Make:
    """Return a maker that leaves the type to pydantic, or to the model itself."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        pydantic = sys.modules.get("pydantic")
        if pydantic is None:
            raise GrammarError(f"objects of the type {type_name(kind)} cannot be made without pydantic; import it")
        validate = pydantic.TypeAdapter(kind).validate_json
    return lambda value: validate(json.dumps(value))
