"""Proves schemas disjoint, and negates schemas with supported keywords.

Schemas are read as they are written, and references are followed. The results are
always right: two schemas that are called disjoint have no valid value in common, and a
negation allows exactly the values that the schema does not allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from selectrie.grammar.rules import Characters
from selectrie.grammar.schema.keywords import DECIDING, TYPES, is_number, key_of, kind_of
from selectrie.grammar.schema.patterns import UNSPELLED

KINDS = frozenset(("null", "boolean", "number", "string", "array", "object"))
MAX_STEPS = 16
"""Maximum depth of references and nested schemas that is followed."""
MAX_LOOKS = 20_000
"""Maximum number of pairs of schemas compared for one schema."""
MAX_EXCLUDED = 64
"""Maximum number of texts excluded by a negation, which spells them out."""
_SPANS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_INNER: dict[str, tuple[type, ...]] = {
    "not": (dict, bool),
    "$ref": (str,),
    "properties": (dict,),
    "allOf": (list,),
    "anyOf": (list,),
}
"""Keywords that hold schemas, and the types of their values."""
_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
"""Bounds of numbers, and their negations."""
_NEVER = frozenset(min_key for min_key, _ in _SPANS.values())
"""Keywords of a lower count; a value of 0 refuses nothing."""

Parts = list[dict[str, Any]]
"""Schemas that must all hold."""


class InexpressibleError(ValueError):
    """The keywords of JSON Schema cannot express a keyword or its negation."""


@dataclass(slots=True)
class Logic:
    """Proves that schemas are disjoint, and negates schemas.

    Attributes:
        resolve: Returns the schema that a reference points to; raises an error if it is
            not known.
        draft: The draft that the schema is read as.
    """

    resolve: Callable[[str], object]
    draft: int
    looks: int = 0
    kinds_of: dict[tuple[int, int], tuple[object, frozenset[str]]] = field(default_factory=dict)

    def kinds(self, schema: object, steps: int = MAX_STEPS) -> frozenset[str]:
        """Return a superset of the types of values that a schema allows.

        Integers are "number". References are followed `steps` levels deep.
        """
        if not isinstance(schema, dict) or not steps:
            return KINDS if schema is not False else frozenset()
        known = self.kinds_of.get((id(schema), steps))
        if known is None:
            known = self.kinds_of[id(schema), steps] = schema, self._kinds(schema, steps)
        return known[1]

    def _kinds(self, schema: dict[str, Any], steps: int) -> frozenset[str]:
        """Compute `kinds` for a schema that is an object."""
        kinds = KINDS
        # Up to draft 7, keywords beside `$ref` are ignored.
        if "$ref" in schema:
            kinds = self.kinds(self._known_target(schema), steps - 1)
            if self.draft <= 7:
                return kinds
        if "type" in schema:
            value = schema["type"]
            names = [value] if isinstance(value, str) else value
            if isinstance(names, list) and all(isinstance(name, str) and name in TYPES for name in names):
                kinds &= {"number" if name == "integer" else name for name in names}
        # Draft 4 has no `const`.
        if "const" in schema and self.draft > 4:
            kinds &= {kind_of(schema["const"])}
        if isinstance(schema.get("enum"), list):
            kinds &= {kind_of(value) for value in schema["enum"]}
        return kinds

    def are_disjoint(self, one: object, other: object, steps: int = MAX_STEPS) -> bool:
        """Return whether it is proved that no value is valid against both schemas.

        Schemas are followed `steps` levels deep.
        """
        self.looks += 1
        if one is False or other is False:
            return True
        if not steps or self.looks > MAX_LOOKS or not isinstance(one, dict) or not isinstance(other, dict):
            return False
        ones, others = self.parts(one, steps), self.parts(other, steps)
        if any(is_base(part.get(key)) for part in (*ones, *others) for key in ("$id", "id")):
            return False  # references inside have another base
        common = KINDS
        for part in (*ones, *others):
            common = common & self.kinds(part)
        return (
            self._exclude_by_choices(ones, other, steps)
            or self._exclude_by_choices(others, one, steps)
            or any(_apart_values(a, b, self.draft) for a in ones for b in others)
            or all(self._are_disjoint_as(kind, ones, others, steps) for kind in common)
        )

    def _exclude_by_choices(self, parts: Parts, other: object, steps: int) -> bool:
        """Return whether each choice of an `anyOf` or `oneOf` is disjoint from `other`.

        One such keyword among `parts` is enough.
        """
        choices = [part[key] for part in parts for key in ("anyOf", "oneOf") if isinstance(part.get(key), list)]
        return any(ways and all(self.are_disjoint(way, other, steps - 1) for way in ways) for ways in choices)

    def parts(self, schema: object, steps: int) -> Parts:
        """Return schemas that a value of `schema` must all satisfy.

        They are the schema itself, the schema that it refers to, and each part of
        `allOf`. After `MAX_LOOKS`, only some of them are returned.
        """
        if not isinstance(schema, dict):
            return [] if schema is not False else [{"enum": []}]
        parts: Parts = [schema]
        self.looks += 1
        if self.looks > MAX_LOOKS:
            return parts
        if "$ref" in schema and steps:
            followed = self.parts(self._known_target(schema), steps - 1)
            if self.draft <= 7:
                return followed
            parts += followed
        if steps and isinstance(schema.get("allOf"), list):
            for part in schema["allOf"]:
                parts += self.parts(part, steps - 1)
        return parts

    def _known_target(self, schema: Mapping[str, Any]) -> object:
        """Return the schema that `$ref` points to, or True if it is not known."""
        try:
            return self._target(schema)
        except InexpressibleError:
            return True

    def _target(self, schema: Mapping[str, Any]) -> object:
        """Return the schema that `$ref` points to, or raise `InexpressibleError`."""
        reference = schema["$ref"]
        if not isinstance(reference, str) or is_base(schema.get("$id")) or is_base(schema.get("id")):
            raise InexpressibleError(f"the target of {reference!r} is unknown")
        return self.resolve(reference)

    def _are_disjoint_as(self, kind: str, ones: Parts, others: Parts, steps: int) -> bool:
        """Return whether no value of type `kind` can be valid against both."""
        if kind == "number":
            return self._bounds_cross(ones, others)
        if kind in _SPANS and _spans_cross(_SPANS[kind], [*ones, *others]):
            return True
        if kind == "object":
            return self._exclude_by_property(ones, others, steps) or self._exclude_by_property(others, ones, steps)
        return False

    def _bounds_cross(self, ones: Parts, others: Parts) -> bool:
        """Return whether no number satisfies the bounds of all parts."""
        lows, highs, opens = [-math.inf], [math.inf], set[float]()
        for part in (*ones, *others):
            for key, exclusive, limits in (
                ("minimum", "exclusiveMinimum", lows),
                ("maximum", "exclusiveMaximum", highs),
            ):
                excluded = part.get(exclusive)
                # In draft 4 this is a boolean about the other bound, from draft 6 on a
                # number.
                if excluded is True and self.draft == 4:
                    excluded = part.get(key)
                limit = part.get(key)
                if is_number(limit) and limit >= -math.inf:
                    limits.append(limit)
                if is_number(excluded) and excluded >= -math.inf:
                    limits.append(excluded)
                    opens.add(excluded)
        return max(lows) > min(highs) or (max(lows) == min(highs) and max(lows) in opens)

    def _exclude_by_property(self, ones: Parts, others: Parts, steps: int) -> bool:
        """Return whether `ones` require a property whose values `others` all forbid.

        Only values that `ones` allow are considered.
        """
        required = {
            name
            for part in ones
            if isinstance(part.get("required"), list)
            for name in part["required"]
            if isinstance(name, str)
        }
        for name in required:
            mine = [inner for part in ones if (inner := _property_schema(part, name)) is not None]
            theirs = [inner for part in others if (inner := _property_schema(part, name)) is not None]
            if False in theirs or any(self.are_disjoint(a, b, steps - 1) for a in mine for b in theirs):
                return True
        return False

    def negate(self, schema: object, steps: int = MAX_STEPS) -> object:
        """Return a schema of exactly the values that `schema` does not allow.

        Raises `InexpressibleError` if supported keywords cannot express it.
        """
        if isinstance(schema, bool):
            return not schema
        self.looks += 1
        if not isinstance(schema, dict) or not steps or self.looks > MAX_LOOKS:
            raise InexpressibleError("schemas or references are nested too deeply")
        if is_base(schema.get("$id")) or is_base(schema.get("id")):
            raise InexpressibleError("the schema has an $id, which may change its references")
        if "$ref" in schema and self.draft <= 7:
            return self.negate(self._target(schema), steps - 1)
        ways: list[object] = []
        for key, value in schema.items():
            if key in DECIDING:
                ways += self._negate_keyword(key, value, schema, steps)
        if not ways:
            return False
        return ways[0] if len(ways) == 1 else {"anyOf": ways}

    def _negate_keyword(self, key: str, value: Any, schema: dict[str, Any], steps: int) -> list[object]:
        """Return schemas that together allow the values that a keyword forbids."""
        if isinstance(value, _INNER.get(key, ())):
            return self._negate_inner(key, value, schema, steps)
        if key == "type":
            return _other_types(value)
        if key == "enum" or (key == "const" and self.draft > 4):
            return _other_values([value] if key == "const" else value, self.draft)
        if key == "required" and isinstance(value, list):
            return [{"type": "object", "properties": {name: False}} for name in value]
        opposite = _other_span(key, value) if self.draft != 4 or key not in _BOUNDS else None
        if opposite is not None or (key in _NEVER and value == 0):
            return [opposite] if opposite else []
        raise InexpressibleError(f"a grammar cannot express the negation of {key}")

    def _negate_inner(self, key: str, value: Any, schema: dict[str, Any], steps: int) -> list[object]:
        """Return the result of `_negate_keyword` for a keyword that holds schemas."""
        if key == "not":
            return [value]
        if key == "$ref":
            return [self.negate(self._target(schema), steps - 1)]
        if key == "properties":
            return [
                {"type": "object", "properties": {name: opposite}, "required": [name]}
                for name, one in value.items()
                if (opposite := self.negate(one, steps - 1)) is not False
            ]
        opposites = [self.negate(one, steps - 1) for one in value]
        return opposites if key == "allOf" else [{"allOf": opposites}]


def is_base(identifier: object) -> bool:
    """Return whether an `$id` changes the base URI of the references below it.

    An anchor alone (`#name`) does not.
    """
    return isinstance(identifier, str) and not identifier.startswith("#")


def _apart_values(one: Mapping[str, Any], other: Mapping[str, Any], draft: int) -> bool:
    """Return whether both schemas list their values, without a common one."""
    values: list[list[object]] = []
    for part in (one, other):
        if "const" in part and draft > 4:
            values.append([part["const"]])
        elif isinstance(part.get("enum"), list):
            values.append(part["enum"])
        else:
            return False
    return set(map(key_of, values[0])).isdisjoint(map(key_of, values[1]))


def _spans_cross(keys: tuple[str, str], parts: Parts) -> bool:
    """Return whether the minimum count of some part exceeds the maximum of another."""
    counts: tuple[list[float], list[float]] = ([0], [math.inf])
    for part in parts:
        for bounds, key in zip(counts, keys, strict=True):
            value = part.get(key)
            if is_number(value):
                bounds.append(value)
    return max(counts[0]) > min(counts[1])


def _property_schema(schema: Mapping[str, Any], name: str) -> object:
    """Return the schema that a schema gives for the property `name`.

    It is the entry in `properties`, False if other properties are forbidden, or None if
    unknown.
    """
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        entry: object = properties[name]
        return entry
    return False if schema.get("additionalProperties") is False and not schema.get("patternProperties") else None


def _other_types(value: object) -> list[object]:
    """Return a schema of the types that `type` does not name."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name in TYPES for name in names):
        raise InexpressibleError("the type is unknown")
    if "integer" in names and "number" not in names:
        raise InexpressibleError("a grammar cannot express the numbers that are not whole")
    others = [name for name in TYPES if name != "integer" and name not in names]
    return [{"type": others}] if others else []


def _other_span(key: str, value: object) -> dict[str, Any] | None:
    """Return a schema of the values that a bound or a count does not allow.

    Returns None for another keyword or an invalid value.
    """
    if not is_number(value) or not -math.inf < value < math.inf:
        return None
    if key in _BOUNDS:
        return {"type": "number", _BOUNDS[key]: value}
    for kind, (min_key, max_key) in _SPANS.items():
        if key == min_key and value == int(value):
            return {"type": kind, max_key: int(value) - 1} if value > 0 else None
        if key == max_key and value == int(value):
            return {"type": kind, min_key: int(value) + 1}
    return None


def _other_values(values: object, draft: int) -> list[object]:
    """Return schemas that together allow all values that are not in the list."""
    if not isinstance(values, list):
        raise InexpressibleError("the enum is not a list")
    others: list[object] = []
    of_kind: dict[str, list[Any]] = {}
    for value in values:
        of_kind.setdefault(kind_of(value), []).append(value)
    left = [kind for kind in sorted(KINDS) if kind not in of_kind]
    if left:
        others.append({"type": left})
    for kind, some in of_kind.items():
        if kind == "boolean":
            others += [{"enum": [one]} for one in (True, False) if one not in some]
        elif kind == "string":
            others.append({"type": "string", "pattern": other_strings(some)})
        elif kind == "number":
            others += _other_numbers(sorted(set(some)), draft)
        elif kind in ("array", "object"):
            if any(some_value for some_value in some):
                raise InexpressibleError(f"a grammar cannot exclude only some of the {kind}s that are not empty")
            others.append({"type": kind, _SPANS[kind][0]: 1})
    return others


def _other_numbers(numbers: list[float], draft: int) -> list[object]:
    """Return schemas of the numbers that differ from these ascending ones."""
    above = [{"minimum": one, "exclusiveMinimum": True} if draft == 4 else {"exclusiveMinimum": one} for one in numbers]
    below = [{"maximum": one, "exclusiveMaximum": True} if draft == 4 else {"exclusiveMaximum": one} for one in numbers]
    return [{"type": "number", **low, **high} for low, high in zip([{}, *above], [*below, {}], strict=True)]


def other_strings(texts: list[str]) -> str:
    """Return a pattern that matches every text except these."""
    if len(texts) > MAX_EXCLUDED:
        raise InexpressibleError(f"a negation excludes {len(texts)} texts; the maximum is {MAX_EXCLUDED}")
    return f"^{_other_suffixes(sorted(set(texts)))}$"


def _other_suffixes(texts: list[str]) -> str:
    """Return a pattern of every text except these sorted suffixes."""
    firsts = sorted({text[0] for text in texts if text})
    unlike = Characters.of([(ord(first), ord(first)) for first in firsts], negated=True).ranges
    kept = Characters.of([*Characters.of([*unlike], negated=True).ranges, *UNSPELLED], negated=True).ranges
    ways = [f"{_bracket(kept)}{_bracket(ANY)}*"]
    ways += [
        _bracket([(ord(first), ord(first))]) + _other_suffixes([text[1:] for text in texts if text.startswith(first)])
        for first in firsts
        if not any(a <= ord(first) <= b for a, b in UNSPELLED)
    ]
    return f"(?:{'|'.join(ways)}){'' if '' in texts else '?'}"


ANY = Characters.of([*UNSPELLED], negated=True).ranges


def _bracket(ranges: Iterable[tuple[int, int]]) -> str:
    """Return a bracket expression of these characters, in JSON Schema syntax."""
    return f"[{''.join(f'{_escape(first)}-{_escape(last)}' for first, last in ranges)}]"


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else chr(code)
