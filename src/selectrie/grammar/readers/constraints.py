"""Translates the metadata of `Annotated` into keywords of JSON Schema.

Objects of annotated_types and pydantic are recognised by the module of their class;
neither package is imported.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from selectrie.errors import GrammarError, clipped

_PACKAGES = frozenset({"annotated_types", "pydantic"})
_NUMBERS = MappingProxyType(
    {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf"}
)
_KEYWORDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "integer": _NUMBERS,
        "number": _NUMBERS,
        "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
        "array": {"min_length": "minItems", "max_length": "maxItems"},
        "object": {"min_length": "minProperties", "max_length": "maxProperties"},
    }
)
"""Maps each schema type to the keyword of every constraint that applies to it."""
_CONSTRAINTS = frozenset(name for names in _KEYWORDS.values() for name in names)
_NOTHING = frozenset(
    {
        *("strict", "union_mode", "fail_fast", "allow_inf_nan", "coerce_numbers_to_str"),
        *("to_lower", "to_upper", "documentation", "discriminator", "tag"),
    }
)
"""Settings that do not change which texts are allowed.

They say how a value is read, how it is changed afterwards, or how it is documented. A
discriminator and tags say which part of a union a value belongs to.
"""
_NAMES = ("alias", "validation_alias")
"""Attributes that rename a pydantic field in JSON.

The name is up to the class around the field.
"""
TRIMMED = r"^(?:\S(?:[\S ]*\S)?)?$"
"""A pattern for strings without white space at either end.

Stripping white space from these strings changes nothing.
"""


def constraints_of(metadata: object) -> dict[str, Any] | None:
    """Return the constraints in one metadata item of `Annotated`.

    Keys are the names in annotated_types. Returns None for an unknown item, and {} for
    documentation and for items that only affect how a value is parsed.
    """
    if metadata is None or isinstance(metadata, str):
        return {}
    if type(metadata).__module__.partition(".")[0] not in _PACKAGES:
        return None
    if isinstance(pieces := getattr(metadata, "metadata", None), list):  # a `Field`
        if any(getattr(metadata, name, None) is not None for name in _NAMES):
            return None
        return _together([constraints_of(one) for one in pieces])
    if dataclasses.is_dataclass(metadata):
        fields = {field.name: getattr(metadata, field.name) for field in dataclasses.fields(metadata)}
    else:
        fields = dict(getattr(metadata, "__dict__", {"": metadata}))
    constraints = {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and name not in _NOTHING
    }
    if constraints.pop("strip_whitespace", False):
        constraints["trimmed"] = True
    if type(metadata).__name__ in ("MinLen", "Len") and constraints.get("min_length") == 0:
        del constraints["min_length"]
    return constraints if constraints.keys() <= _CONSTRAINTS | {"trimmed"} else None


def _together(pieces: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Merge constraints into one mapping.

    Returns None if one of them is unknown or if two contradict each other.
    """
    every: dict[str, Any] = {}
    for one in pieces:
        if one is None or any(every.get(name, value) != value for name, value in one.items()):
            return None
        every |= one
    return every


def constrained(
    schema: dict[str, Any], constraints: Mapping[str, Any], unknown: Callable[[], GrammarError]
) -> dict[str, Any]:
    """Return the schema with the keywords for these constraints.

    Raises `unknown()` for a constraint that does not apply to the schema's type. Every
    part of a union receives all constraints; the null type ignores them.
    """
    if "anyOf" in schema:
        return {**schema, "anyOf": [constrained(part, constraints, unknown) for part in schema["anyOf"]]}
    kind = schema.get("type")
    if kind == "null" or not constraints:
        return schema
    keywords = _KEYWORDS.get(kind, {}) if isinstance(kind, str) else {}
    made = dict(schema)
    patterns = [TRIMMED] if constraints.get("trimmed") and kind == "string" else []
    for name, value in constraints.items():
        if name == "trimmed" and kind == "string":
            continue
        if name not in keywords:
            raise unknown()
        if name == "pattern":
            patterns.append(pattern_text(value))
        else:
            _narrow(made, keywords[name], _number(value, unknown), unknown)
    parts = [{"type": "string", "pattern": pattern} for pattern in [made.pop("pattern", None), *patterns] if pattern]
    if len(parts) == 1:
        return made | parts[0]
    return {"allOf": [made, *parts]} if parts else made


def pattern_text(pattern: object) -> str:
    """Return the expression of a pattern, whether compiled or not.

    Raises `GrammarError` for a compiled pattern of bytes, or with flags that the
    expression does not contain.
    """
    if not isinstance(pattern, re.Pattern):
        return str(pattern)
    flags = re.RegexFlag(pattern.flags) & ~re.UNICODE
    if not isinstance(pattern.pattern, str) or flags:
        what = f"has the flags {flags!r}" if flags else "is a pattern of bytes"
        remedy = "write out what they mean, as in [Aa]" if flags else "use a pattern of str"
        raise GrammarError(f"the pattern {clipped(str(pattern.pattern))} {what}, which is not supported; {remedy}")
    return pattern.pattern


def _narrow(schema: dict[str, Any], keyword: str, value: float, unknown: Callable[[], GrammarError]) -> None:
    """Set a keyword; of two bounds, keep the tighter one."""
    known = schema.get(keyword, value)
    if keyword == "multipleOf" and known != value:
        raise unknown()
    schema[keyword] = max(known, value) if "inimum" in keyword or keyword.startswith("min") else min(known, value)


def _number(value: Any, unknown: Callable[[], GrammarError]) -> int | float:
    """Return a bound as a JSON number; raise `unknown()` for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # exact: it may exceed every float
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise unknown() from None
    if not math.isfinite(number):
        raise unknown()
    return int(value) if number.is_integer() else number


def unknown_constraint(shown: str, metadata: object) -> GrammarError:
    """Return the error for an `Annotated` type with unsupported metadata."""
    reason = f"{shown} has metadata that is not supported, {clipped(repr(metadata))}; give a JSON Schema instead"
    return GrammarError(reason)
