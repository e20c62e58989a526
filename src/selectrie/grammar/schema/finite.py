"""Lists the values of a finite schema, and decides whether a schema allows one."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

from selectrie.grammar.schema.keywords import key_of, kind_of, types_of
from selectrie.grammar.schema.normalize import MAX_DEPTH, Schema, SchemaCopy

MAX_LOOKS = 5_000_000
"""Maximum number of schemas visited for all values of one check, some seconds."""
_HEXADECIMAL = re.compile(r"\\x\{([0-9a-f]+)\}")


class UnknownKeywordError(Exception):
    """A keyword is not supported, so it is not known whether it allows a value."""


class SchemaValidator:
    """Decides whether values are valid against a normalized schema.

    The schema's numbers are those of JSON, and its patterns have been rewritten.
    """

    def __init__(self, copy: SchemaCopy) -> None:
        self._definitions = copy.definitions
        self._n_looks = 0
        self._keys_of: dict[int, tuple[Sequence[Any], frozenset[Hashable]]] = {}  # by identity of the constants

    def allows(self, schema: Schema, value: Any) -> bool:
        """Return whether a schema allows a value.

        Raises `UnknownKeywordError` if an unsupported keyword applies to the value's
        type, and after `MAX_LOOKS` visits of schemas.
        """
        self._n_looks += 1
        if self._n_looks > MAX_LOOKS:
            raise UnknownKeywordError("checking the values takes too many steps")
        if isinstance(schema, bool):
            return schema
        return all(self._allows_by(key, schema, value) for key in schema)

    def _allows_by(self, key: str, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether one keyword of a schema allows a value."""
        argument = schema[key]
        if key in ("anyOf", "oneOf", "allOf"):
            n_allowed = sum(self.allows(one, value) for one in argument)
            return {"anyOf": n_allowed > 0, "oneOf": n_allowed == 1, "allOf": n_allowed == len(argument)}[key]
        if key == "$ref":
            return self.allows(self._definitions[argument.rpartition("/")[2]], value)
        if key in ("const", "enum"):
            return key_of(value) in self._keys([argument] if key == "const" else argument)
        if key == "type":
            return any(_is_of_type(value, name) for name in ([argument] if isinstance(argument, str) else argument))
        kind = kind_of(value)
        if key in _PLAIN:
            about, decide = _PLAIN[key]
            return kind != about or decide(value, argument)
        if key not in _INSIDE:
            raise UnknownKeywordError(key)
        return kind != _INSIDE[key] or self._allows_parts(key, schema, value)

    def _keys(self, constants: Sequence[Any]) -> frozenset[Hashable]:
        """Return the keys of `constants` (see `key_of`), which are cached."""
        if len(constants) == 1:
            return frozenset([key_of(constants[0])])
        if id(constants) not in self._keys_of:
            self._keys_of[id(constants)] = constants, frozenset(map(key_of, constants))
        return self._keys_of[id(constants)][1]

    def _allows_parts(self, key: str, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether a keyword with schemas for items or members allows a value."""
        argument = schema[key]
        if key == "prefixItems":
            return all(map(self.allows, argument, value))
        if key == "items":
            return all(self.allows(argument, one) for one in value[len(schema.get("prefixItems", [])) :])
        if key == "properties":
            return all(self.allows(one, value[name]) for name, one in argument.items() if name in value)
        if key == "patternProperties":
            return all(
                self.allows(one, value[name])
                for pattern, one in argument.items()
                for name in value
                if _contains(name, pattern)
            )
        patterns = schema.get("patternProperties", {})
        others = [name for name in value if name not in schema.get("properties", {})]
        return all(
            self.allows(argument, value[name]) for name in others if not any(_contains(name, one) for one in patterns)
        )


_INSIDE = {
    **dict.fromkeys(("prefixItems", "items"), "array"),
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), "object"),
}


def _is_of_type(value: Any, name: str) -> bool:
    """Return whether a value has a JSON type; a whole number is an integer."""
    kind = kind_of(value)
    return kind == name or (name == "integer" and kind == "number" and value == value // 1)


def _contains(text: str, pattern: str) -> bool:
    """Return whether a rewritten pattern is found in the text.

    Its only anchors are those of the whole text.
    """
    spelled = _HEXADECIMAL.sub(lambda one: f"\\U{int(one[1], 16):08x}", pattern).replace("$", r"\Z")
    return re.search(spelled, text) is not None


def _is_multiple(value: float, step: float) -> bool:
    return Decimal(repr(value)) % Decimal(repr(step)) == 0


_PLAIN: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", lambda value, limit: value >= limit),
    "maximum": ("number", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("number", lambda value, limit: value > limit),
    "exclusiveMaximum": ("number", lambda value, limit: value < limit),
    "multipleOf": ("number", _is_multiple),
    "minLength": ("string", lambda value, limit: len(value) >= limit),
    "maxLength": ("string", lambda value, limit: len(value) <= limit),
    "pattern": ("string", _contains),
    "minItems": ("array", lambda value, limit: len(value) >= limit),
    "maxItems": ("array", lambda value, limit: len(value) <= limit),
    "minProperties": ("object", lambda value, limit: len(value) >= limit),
    "maxProperties": ("object", lambda value, limit: len(value) <= limit),
    "required": ("object", lambda value, names: all(name in value for name in names)),
}
"""Keywords that contain no schemas: the type that each applies to, and its test."""

MAX_VALUES = 100_000
"""Maximum number of listed values; a larger schema is treated like an infinite one."""
MAX_CHARACTERS = 20_000_000
"""Maximum number of characters of texts, and of values they are chosen from."""

MAX_LISTED = 5_000_000
"""Maximum number of values made of definitions, counted for each reference."""

_ABSENT = object()
"""Represents a property that is absent."""
_KEYWORDS = {
    "null": frozenset[str](),
    "boolean": frozenset[str](),
    "integer": frozenset(("minimum", "maximum", "multipleOf")),
    "array": frozenset(("prefixItems", "items", "minItems", "maxItems")),
    "object": frozenset(("properties", "required", "additionalProperties", "minProperties", "maxProperties")),
}
"""Supported keywords of a normalized schema by type; other types are not listed."""


def finite_texts(copy: SchemaCopy, separators: tuple[str, str]) -> tuple[str, ...] | None:
    """Return the JSON texts of a schema's values, or None if they may be too many.

    The texts are in the order in which the schema names the values. A text is what
    `json.dumps(value, ensure_ascii=False)` writes with these (item, key)
    separators. Keys are in the order of `properties` or of the constant, and a
    number without a fraction has no decimal point. Equal values, such as objects
    with their keys in another order, have the text of the first one.
    """
    try:
        values = _iterate_distinct(_Reader(copy).values(copy.root, 0).each())
        return tuple(json.dumps(value, ensure_ascii=False, separators=separators) for value in values) or None
    except (_UnlistedError, UnknownKeywordError, RecursionError):
        return None


class _UnlistedError(Exception):
    """Raised if values are too many or depend on an unsupported keyword."""


@dataclass(frozen=True, slots=True)
class _Values:
    """A finite collection of values, generated on demand; duplicates are possible.

    Attributes:
        max_values: Upper bound on the number of values.
        size: Approximate number of characters of their texts together.
        each: Makes the values.
    """

    max_values: int
    size: int
    each: Callable[[], Iterable[Any]]

    def __post_init__(self) -> None:
        if self.max_values > MAX_VALUES or self.size > MAX_CHARACTERS:
            raise _UnlistedError


class _Reader:
    """Finds the values of normalized schemas.

    Nothing is listed before it is known to be finite.
    """

    def __init__(self, copy: SchemaCopy) -> None:
        self._definitions = copy.definitions
        self._known: dict[str, _Values | None] = {}
        self._validator = SchemaValidator(copy)
        self._n_listed = 0

    def values(self, schema: Schema, depth: int) -> _Values:
        """Return the values that every keyword of the schema allows.

        Each part of the schema allows a set of values. The result is the smallest of
        these sets, filtered by the other parts.
        """
        if isinstance(schema, bool) or depth > MAX_DEPTH:
            if schema is not False:
                raise _UnlistedError
            return _constants([])
        ways: list[tuple[Callable[[], _Values], Schema]] = [
            (partial(self._applicator_values, key, schema[key], depth), {key: schema[key]})
            for key in _APPLICATORS
            if key in schema
        ]
        ways += [(partial(self.values, one, depth + 1), one) for one in schema.get("allOf", [])]
        rest = {key: one for key, one in schema.items() if key not in (*_APPLICATORS, "allOf")}
        ways += [(partial(self._typed_values, rest, depth), rest)] if rest else []
        return self._intersect(ways)

    def _intersect(self, ways: Sequence[tuple[Callable[[], _Values], Schema]]) -> _Values:
        """Return the values that all schemas allow.

        `ways` are pairs of a function that lists the values of a schema, and that
        schema. The smallest list is filtered by the other schemas.
        """
        candidates: list[tuple[int, _Values]] = []
        for index, (listed, _) in enumerate(ways):
            with suppress(_UnlistedError):
                candidates.append((index, listed()))
        if not candidates:
            raise _UnlistedError
        index, fewest = min(candidates, key=lambda one: one[1].max_values)
        known = dict(candidates)
        others = [(known.get(i), test) for i, (_, test) in enumerate(ways) if i != index]

        def each() -> Iterator[Any]:
            tests = [self._make_test(values, schema) for values, schema in others]
            return (value for value in fewest.each() if all(allows(value) for allows in tests))

        return _Values(fewest.max_values, fewest.size, each)

    def _make_test(self, values: _Values | None, schema: Schema) -> Callable[[Any], bool]:
        """Return a function that tells whether a schema allows a value.

        If `values`, the values of the schema, are known and the schema chooses among
        schemas or constants, the function looks up the value's key. Otherwise it would
        check these choices one by one.
        """
        if values is not None and isinstance(schema, dict) and not schema.keys().isdisjoint(_APPLICATORS):
            with suppress(UnknownKeywordError):
                keys = set(map(key_of, values.each()))
                return lambda value: key_of(value) in keys
        return partial(self._validator.allows, schema)

    def _applicator_values(self, key: str, value: Any, depth: int) -> _Values:
        """Return the values that a keyword of `_APPLICATORS` allows."""
        if key in ("const", "enum"):
            return _constants([value] if key == "const" else value)
        if key == "$ref":
            return self._definition_values(value.rpartition("/")[2], depth)
        parts = [self.values(one, depth + 1) for one in value]
        return (
            _unite(parts, _iterate_distinct)
            if key == "anyOf"
            else _unite([_unite([one], _iterate_distinct) for one in parts], _iterate_single)
        )

    def _definition_values(self, name: str, depth: int) -> _Values:
        """Return the values of a definition.

        While a definition is read, its values count as unknown, so one that refers to
        itself is not listed.
        """
        if name not in self._known:
            self._known[name] = None
            self._known[name] = self.values(self._definitions[name], depth + 1)
        values = self._known[name]
        if values is None:
            raise _UnlistedError

        def each() -> Iterable[Any]:
            self._n_listed += 1 + values.max_values
            if self._n_listed > MAX_LISTED:
                raise _UnlistedError
            return values.each()

        return _Values(values.max_values, values.size, each)

    def _typed_values(self, schema: dict[str, Any], depth: int) -> _Values:
        """Return the values that a schema's types and their keywords allow."""
        types = types_of(schema, "#")
        if not all(name in _KEYWORDS for name in types):
            raise _UnlistedError
        if schema.keys() - {"type"} - frozenset[str]().union(*(_KEYWORDS[name] for name in types)):
            raise _UnlistedError
        return _unite([self._values_of_type(name, schema, depth) for name in types], _iterate_distinct)

    def _values_of_type(self, name: str, schema: dict[str, Any], depth: int) -> _Values:
        """Return the values of one JSON type that the schema's keywords allow."""
        if name == "array":
            return self._arrays(schema, depth)
        if name == "object":
            return self._objects(schema, depth)
        if name == "integer":
            return _whole_numbers(schema)
        return _constants([None] if name == "null" else [True, False])

    def _arrays(self, schema: dict[str, Any], depth: int) -> _Values:
        """Return the arrays that the schema's item and count keywords allow."""
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        min_items, max_items = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        max_items = min(max_items, len(first)) if rest is False else max_items
        if max_items > MAX_VALUES:
            raise _UnlistedError
        items = [self.values(one, depth + 1) for one in first[:max_items]]
        if max_items > len(items):
            items += [self.values(rest, depth + 1)] * (max_items - len(items))
        columns: list[list[Any]] = []

        def arrays(n: int) -> Iterator[list[Any]]:
            for index in range(len(columns), n):
                is_repeated = index > 0 and items[index] is items[index - 1]
                columns.append(columns[-1] if is_repeated else list(items[index].each()))
            return map(list, product(*columns[:n]))

        sizes = list(_running_sizes(items, ["  "] * len(items)))[min_items:]
        return _unite(
            [_Values(*size, partial(arrays, n) if size[0] else tuple) for n, size in enumerate(sizes, min_items)], iter
        )

    def _objects(self, schema: dict[str, Any], depth: int) -> _Values:
        """Return the objects that the schema's property keywords allow."""
        properties, required = schema.get("properties", {}), frozenset(schema.get("required", ()))
        if schema.get("additionalProperties", True) is not False:
            raise _UnlistedError
        if any(name not in properties for name in required):
            return _constants([])
        members = [self.values(one, depth + 1) for one in properties.values()]
        members = [
            one if name in required else _unite([one, _constants([_ABSENT])], iter)
            for name, one in zip(properties, members, strict=True)
        ]
        min_properties, max_properties = schema.get("minProperties", 0), schema.get("maxProperties", math.inf)

        def named(values: Sequence[Any]) -> dict[str, Any]:
            pairs = zip(properties, values, strict=True)
            return {name: value for name, value in pairs if value is not _ABSENT}

        objects = _products(members, [f'"{name}": , ' for name in properties], named)
        return _Values(
            objects.max_values,
            objects.size,
            lambda: (one for one in objects.each() if min_properties <= len(one) <= max_properties),
        )


_APPLICATORS = ("const", "enum", "$ref", "anyOf", "oneOf")


def _constants(values: Sequence[Any]) -> _Values:
    """Return the collection of these values, with whole numbers as integers."""
    values = [_use_integers(value) for value in values]
    size = sum(len(json.dumps(value, ensure_ascii=False)) for value in values if value is not _ABSENT)
    return _Values(len(values), size, lambda: values)


def _use_integers(value: Any) -> Any:
    """Return the value with whole numbers as integers, at any depth.

    All drafts of JSON Schema and all JSON parsers treat them as integers.
    """
    if isinstance(value, dict):
        return {name: _use_integers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_use_integers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_numbers(schema: dict[str, Any]) -> _Values:
    """Return the integers from `minimum` to `maximum`, or multiples of `multipleOf`."""
    if "minimum" not in schema or "maximum" not in schema:
        raise _UnlistedError
    step = schema.get("multipleOf", 1)
    first = -(-math.ceil(schema["minimum"]) // step) * step
    numbers = range(first, math.floor(schema["maximum"]) + 1, step)
    n_numbers = max(0, (numbers.stop - first + step - 1) // step)  # `len` fails beyond 2**63
    longest = max(len(str(first)), len(str(schema["maximum"])))
    return _Values(n_numbers, longest * n_numbers, lambda: numbers)


def _products(parts: Sequence[_Values], around: Sequence[str], make: Callable[[Sequence[Any]], Any]) -> _Values:
    """Return the combinations of one value from each part.

    Args:
        parts: The values of each part.
        around: The text that is written beside the value of each part.
        make: Combines one value of each part.
    """
    *_, (max_values, size) = _running_sizes(parts, around)

    def each() -> Iterator[Any]:
        return map(make, product(*(list(part.each()) for part in parts))) if max_values else iter(())

    return _Values(max_values, size, each)


def _running_sizes(parts: Sequence[_Values], around: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (number, size of the texts) of the products of the first 0, 1, … parts."""
    max_values, size = 1, 0
    yield max_values, 2 * max_values
    for part, text in zip(parts, around, strict=True):
        size = size * part.max_values + max_values * part.size + max_values * part.max_values * len(text)
        max_values *= part.max_values
        yield max_values, size + 2 * max_values


def _unite(parts: Sequence[_Values], chosen: Callable[[Iterable[Any]], Iterable[Any]]) -> _Values:
    """Return the values of all parts, filtered by the function `chosen`."""
    return _Values(
        sum(part.max_values for part in parts),
        sum(part.size for part in parts),
        lambda: chosen(value for part in parts for value in part.each()),
    )


def _iterate_distinct(values: Iterable[Any]) -> Iterator[Any]:
    """Yield each value once, at its first occurrence."""
    seen: set[Hashable] = set()
    for value in values:
        key = key_of(value)
        if key not in seen:
            seen.add(key)
            yield value


def _iterate_single(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values that exactly one part of a `oneOf` allows.

    `values` are those of all parts, distinct within each part.
    """
    every = list(values)
    times = Counter(map(key_of, every))
    return (value for value in every if times[key_of(value)] == 1)
