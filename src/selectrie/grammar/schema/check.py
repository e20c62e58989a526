"""Decides whether a normalized schema allows a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from selectrie.grammar.schema.keywords import key_of, kind_of
from selectrie.grammar.schema.normalize import Schema, SchemaCopy

MAX_LOOKS = 5_000_000
"""Maximum number of schemas visited for all values of one check, some seconds."""
_HEXADECIMAL = re.compile(r"\\x\{([0-9a-f]+)\}")


class UnknownKeywordError(Exception):
    """Raised for an unsupported keyword, whose meaning is not known."""


class Check:
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
        return all(self._keyword(key, schema, value) for key in schema)

    def _keyword(self, key: str, schema: Mapping[str, Any], value: Any) -> bool:
        argument = schema[key]
        if key in ("anyOf", "oneOf", "allOf"):
            n_allowed = sum(self.allows(one, value) for one in argument)
            return {"anyOf": n_allowed > 0, "oneOf": n_allowed == 1, "allOf": n_allowed == len(argument)}[key]
        if key == "$ref":
            return self.allows(self._definitions[argument.rpartition("/")[2]], value)
        if key in ("const", "enum"):
            return key_of(value) in self._keys([argument] if key == "const" else argument)
        if key == "type":
            return any(_is_of(value, name) for name in ([argument] if isinstance(argument, str) else argument))
        kind = kind_of(value)
        if key in _PLAIN:
            about, decide = _PLAIN[key]
            return kind != about or decide(value, argument)
        if key not in _INSIDE:
            raise UnknownKeywordError(key)
        return kind != _INSIDE[key] or self._inside(key, schema, value)

    def _keys(self, constants: Sequence[Any]) -> frozenset[Hashable]:
        """Return the keys of `constants` (see `key_of`), which are cached."""
        if len(constants) == 1:
            return frozenset([key_of(constants[0])])
        if id(constants) not in self._keys_of:
            self._keys_of[id(constants)] = constants, frozenset(map(key_of, constants))
        return self._keys_of[id(constants)][1]

    def _inside(self, key: str, schema: Mapping[str, Any], value: Any) -> bool:
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


_INSIDE = MappingProxyType(
    {
        **dict.fromkeys(("prefixItems", "items"), "array"),
        **dict.fromkeys(("properties", "patternProperties", "additionalProperties"), "object"),
    }
)


def _is_of(value: Any, name: str) -> bool:
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


_PLAIN: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
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
)
"""Keywords that contain no schemas: the type that each applies to, and its test."""
