"""The values of a schema that has finitely many, each with one text.

`const`, `enum`, null, booleans, integers between two bounds, arrays of bounded length and objects that name all their
properties are finite, as far as what is inside them is. Where several schemas must hold at once, one that is finite is
enough. Everything else is left to the grammars that hold any schema.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from selectrie.grammar.schema.check import Check, UnknownKeywordError, key_of
from selectrie.grammar.schema.keywords import types_of
from selectrie.grammar.schema.normalize import MOST_DEPTH, Schema, SchemaCopy

MOST_VALUES = 100_000
"""Values of a schema that are listed; a schema of more is held as an infinite one is."""
MOST_CHARACTERS = 20_000_000
"""Characters of their texts together, and of the values that they are chosen from."""

MOST_LISTED = 5_000_000
"""Values of definitions that are made, as often as something refers to these."""

_ABSENT = object()
"""Stands for a property that is not there."""
_KEYWORDS = {
    "null": frozenset[str](),
    "boolean": frozenset[str](),
    "integer": frozenset(("minimum", "maximum", "multipleOf")),
    "array": frozenset(("prefixItems", "items", "minItems", "maxItems")),
    "object": frozenset(("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
}
"""Keywords of a copied schema that are read here, by the type that they are about. Values are not listed by another one."""


def finite_texts(copy: SchemaCopy, separators: tuple[str, str]) -> tuple[str, ...] | None:
    """The texts of all values, in the order in which the schema names them; None where they are not known to be few.

    A text is what `json.dumps(value, ensure_ascii=False)` makes of the value with these separators: keys stand in the order
    of `properties` or of the constant, and a number without a fraction has no point. Equal values (objects whose keys stand
    in another order) have the text of the first one.
    """
    try:
        values = _distinct(_Reader(copy).values(copy.root, 0).each())
        return tuple(json.dumps(value, ensure_ascii=False, separators=separators) for value in values) or None
    except (_UnlistedError, UnknownKeywordError, RecursionError):
        return None


class _UnlistedError(Exception):
    """There are too many values, or a keyword that is not read here decides which there are."""


@dataclass(frozen=True, slots=True)
class _Values:
    """Finitely many values, made when they are asked for. Some may come twice.

    most: how many there are, at most. size: characters of their texts together, about.
    """

    most: int
    size: int
    each: Callable[[], Iterable[Any]]

    def __post_init__(self) -> None:
        if self.most > MOST_VALUES or self.size > MOST_CHARACTERS:
            raise _UnlistedError


class _Reader:
    """Finds the values of copied schemas. Nothing is listed before it is known that there is an end."""

    def __init__(self, copy: SchemaCopy) -> None:
        self._definitions = copy.definitions
        self._known: dict[str, _Values | None] = {}
        self._check = Check(copy)
        self._n_listed = 0

    def values(self, schema: Schema, depth: int) -> _Values:
        """Those that every keyword of the schema allows: the fewest that some of its keywords leave, tried by the others."""
        if isinstance(schema, bool) or depth > MOST_DEPTH:
            if schema is not False:
                raise _UnlistedError
            return _constants([])
        ways: list[tuple[Callable[[], _Values], Schema]] = [
            (partial(self._applied, key, schema[key], depth), {key: schema[key]})
            for key in _APPLICATORS
            if key in schema
        ]
        ways += [(partial(self.values, one, depth + 1), one) for one in schema.get("allOf", [])]
        rest = {key: one for key, one in schema.items() if key not in (*_APPLICATORS, "allOf")}
        ways += [(partial(self._typed, rest, depth), rest)] if rest else []
        return self._common(ways)

    def _common(self, ways: Sequence[tuple[Callable[[], _Values], Schema]]) -> _Values:
        """The values of the schema that has the fewest, as far as all others allow them."""
        found: list[tuple[int, _Values]] = []
        for place, (listed, _) in enumerate(ways):
            with suppress(_UnlistedError):
                found.append((place, listed()))
        if not found:
            raise _UnlistedError
        place, fewest = min(found, key=lambda one: one[1].most)
        known = dict(found)
        others = [(known.get(i), test) for i, (_, test) in enumerate(ways) if i != place]

        def each() -> Iterator[Any]:
            tests = [self._test(values, schema) for values, schema in others]
            return (value for value in fewest.each() if all(allows(value) for allows in tests))

        return _Values(fewest.most, fewest.size, each)

    def _test(self, values: _Values | None, schema: Schema) -> Callable[[Any], bool]:
        """Does a schema allow a value? By the keys of its values where these are known and it chooses among schemas or
        constants, which would be looked at one by one."""
        if values is not None and isinstance(schema, dict) and not schema.keys().isdisjoint(_APPLICATORS):
            with suppress(UnknownKeywordError):
                keys = set(map(key_of, values.each()))
                return lambda value: key_of(value) in keys
        return partial(self._check.allows, schema)

    def _applied(self, key: str, value: Any, depth: int) -> _Values:
        if key in ("const", "enum"):
            return _constants([value] if key == "const" else value)
        if key == "$ref":
            return self._definition(value.rpartition("/")[2], depth)
        parts = [self.values(one, depth + 1) for one in value]
        return (
            _united(parts, _distinct)
            if key == "anyOf"
            else _united([_united([one], _distinct) for one in parts], _single)
        )

    def _definition(self, name: str, depth: int) -> _Values:
        """What a reference leads to. While it is being read it is not known, so a definition that leads to itself is not
        listed."""
        if name not in self._known:
            self._known[name] = None
            self._known[name] = self.values(self._definitions[name], depth + 1)
        found = self._known[name]
        if found is None:
            raise _UnlistedError

        def each() -> Iterable[Any]:
            self._n_listed += 1 + found.most
            if self._n_listed > MOST_LISTED:
                raise _UnlistedError
            return found.each()

        return _Values(found.most, found.size, each)

    def _typed(self, schema: dict[str, Any], depth: int) -> _Values:
        """The values of a schema by its types alone."""
        types = types_of(schema, "#")
        if not all(name in _KEYWORDS for name in types):
            raise _UnlistedError
        if schema.keys() - {"type"} - frozenset[str]().union(*(_KEYWORDS[name] for name in types)):
            raise _UnlistedError
        return _united([self._of_type(name, schema, depth) for name in types], _distinct)

    def _of_type(self, name: str, schema: dict[str, Any], depth: int) -> _Values:
        if name == "array":
            return self._arrays(schema, depth)
        if name == "object":
            return self._objects(schema, depth)
        if name == "integer":
            return _whole_numbers(schema)
        return _constants([None] if name == "null" else [True, False])

    def _arrays(self, schema: dict[str, Any], depth: int) -> _Values:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        most = min(most, len(first)) if rest is False else most
        if most > MOST_VALUES:
            raise _UnlistedError
        items = [self.values(one, depth + 1) for one in first[:most]]
        if most > len(items):
            items += [self.values(rest, depth + 1)] * (most - len(items))
        columns: list[list[Any]] = []

        def arrays(n: int) -> Iterator[list[Any]]:
            for place in range(len(columns), n):
                is_repeated = place > 0 and items[place] is items[place - 1]
                columns.append(columns[-1] if is_repeated else list(items[place].each()))
            return map(list, product(*columns[:n]))

        sizes = list(_running(items, ["  "] * len(items)))[least:]
        return _united(
            [_Values(*size, partial(arrays, n) if size[0] else tuple) for n, size in enumerate(sizes, least)], iter
        )

    def _objects(self, schema: dict[str, Any], depth: int) -> _Values:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("additionalProperties", True) is not False:
            raise _UnlistedError
        if any(name not in properties for name in required):
            return _constants([])
        members = [self.values(one, depth + 1) for one in properties.values()]
        members = [
            one if name in required else _united([one, _constants([_ABSENT])], iter)
            for name, one in zip(properties, members, strict=True)
        ]
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)

        def named(values: Sequence[Any]) -> dict[str, Any]:
            pairs = zip(properties, values, strict=True)
            return {name: value for name, value in pairs if value is not _ABSENT}

        found = _products(members, [f'"{name}": , ' for name in properties], named)
        return _Values(found.most, found.size, lambda: (one for one in found.each() if least <= len(one) <= most))


_APPLICATORS = ("const", "enum", "$ref", "anyOf", "oneOf")


def _constants(values: Sequence[Any]) -> _Values:
    values = [_plain(value) for value in values]
    size = sum(len(json.dumps(value, ensure_ascii=False)) for value in values if value is not _ABSENT)
    return _Values(len(values), size, lambda: values)


def _plain(value: Any) -> Any:
    """The value with whole numbers as integers, which they are in any draft and to any reader."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_numbers(schema: dict[str, Any]) -> _Values:
    """Integers between two bounds."""
    if "minimum" not in schema or "maximum" not in schema:
        raise _UnlistedError
    step = schema.get("multipleOf", 1)
    first = -(-math.ceil(schema["minimum"]) // step) * step
    numbers = range(first, math.floor(schema["maximum"]) + 1, step)
    most = max(0, (numbers.stop - first + step - 1) // step)  # `len` has no numbers beyond 2**63
    longest = max(len(str(first)), len(str(schema["maximum"])))
    return _Values(most, longest * most, lambda: numbers)


def _products(parts: Sequence[_Values], around: Sequence[str], make: Callable[[Sequence[Any]], Any]) -> _Values:
    """One value of each part, put together. around: what stands beside the text of each part."""
    *_, (most, size) = _running(parts, around)

    def each() -> Iterator[Any]:
        return map(make, product(*(list(part.each()) for part in parts))) if most else iter(())

    return _Values(most, size, each)


def _running(parts: Sequence[_Values], around: Sequence[str]) -> Iterator[tuple[int, int]]:
    """How many products the first parts have, and their size: of none of the parts, of one, of two and so on."""
    most, size = 1, 0
    yield most, 2 * most
    for part, text in zip(parts, around, strict=True):
        size = size * part.most + most * part.size + most * part.most * len(text)
        most *= part.most
        yield most, size + 2 * most


def _united(parts: Sequence[_Values], chosen: Callable[[Iterable[Any]], Iterable[Any]]) -> _Values:
    """The values of all parts, or those that are chosen among them."""
    return _Values(
        sum(part.most for part in parts),
        sum(part.size for part in parts),
        lambda: chosen(value for part in parts for value in part.each()),
    )


def _distinct(values: Iterable[Any]) -> Iterator[Any]:
    """Each value once, where it comes first."""
    seen: set[Hashable] = set()
    for value in values:
        key = key_of(value)
        if key not in seen:
            seen.add(key)
            yield value


def _single(values: Iterable[Any]) -> Iterator[Any]:
    """The values that come once; each part of a `oneOf` is distinct, so no other part has them."""
    every = list(values)
    times = Counter(map(key_of, every))
    return (value for value in every if times[key_of(value)] == 1)
