"""Post-processes JSON Schemas of types, and adapts pydantic's schema generator.

Schemas of models are closed (no additional properties), and a set type with few
possible members becomes an enumeration of its values. pydantic is never imported: the
generator is found through the model's own methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import combinations
from typing import Any

from selectrie.errors import GrammarError
from selectrie.grammar.readers.constraints import pattern_text
from selectrie.grammar.readers.scalar_types import PATTERNS, schema_of_written

REFERENCE = "#/$defs/"
MAX_MEMBERS = 10
"""Maximum number of members of a set type that is listed, giving 1 024 sets.

The members of each set are in the order of their type.
"""
_SCHEMAS = frozenset({"properties", "patternProperties", "$defs"})
_ONE_SCHEMA = frozenset({"items", "additionalProperties"})
_LISTS = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
"""Keywords of JSON Schema that hold schemas by name, one schema, or a list of them."""
_ANY_STRING = frozenset({"path", "binary", "password"})
"""Formats by which pydantic names types that accept any string."""


def closed(schema: Any, *, is_part: bool = False) -> Any:
    """Return a model's schema that forbids properties it does not name.

    JSON Schema allows further properties, but a type consists of its fields. A tagged
    union becomes `anyOf`: because of its tags, no value belongs to two of its parts.

    Args:
        schema: The schema.
        is_part: Whether this is a part of an `allOf`. It then stays open, since the
            other parts name more of its properties.
    """
    if not isinstance(schema, dict):
        return schema
    made = _with_parts(schema, lambda one, keyword: closed(one, is_part=keyword == "allOf"))
    if "oneOf" in made and "discriminator" in made and "anyOf" not in made:
        made["anyOf"] = made.pop("oneOf")
    if made.get("format") in _ANY_STRING:
        del made["format"]
    if "properties" in made and not is_part:
        made["additionalProperties"] = False
    return made


def with_listed_sets(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Replace small set types by a list of all their values.

    The members of each set are in the order of their type.
    """
    if not isinstance(schema, dict):
        return schema
    items = schema.get("items")
    if schema.get("uniqueItems") is True and isinstance(items, dict):
        items = definitions.get(str(items.get("$ref", "")).removeprefix(REFERENCE), items)
        every = [items["const"]] if "const" in items else [True, False] if items.get("type") == "boolean" else []
        members = items.get("enum", every)
        if 0 < len(members) <= MAX_MEMBERS:
            sizes = range(schema.get("minItems", 0), min(schema.get("maxItems", MAX_MEMBERS), len(members)) + 1)
            return {"enum": [list(chosen) for size in sizes for chosen in combinations(members, size)]}
    return _with_parts(schema, lambda one, _: with_listed_sets(one, definitions))


def _with_parts(schema: Mapping[str, Any], change: Callable[[Any, str], Any]) -> dict[str, Any]:
    """Replace each direct subschema by `change(subschema, keyword)`."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMAS and isinstance(value, dict):
            made[key] = {name: change(one, key) for name, one in value.items()}
        elif key in _ONE_SCHEMA:
            made[key] = change(value, key)
        elif key in _LISTS and isinstance(value, list):
            made[key] = [change(one, key) for one in value]
        else:
            made[key] = value
    return made


def generator(says: Any) -> dict[str, Any]:
    """Return the `schema_generator` argument for pydantic.

    With it, the schema of dates and decimals allows only what pydantic can parse,
    instead of a format or any string. Patterns with flags, which pydantic would drop,
    raise an error. Returns {} for a class that only resembles a pydantic model.
    """
    parameter = inspect.signature(says).parameters.get("schema_generator")
    if parameter is None:
        return {}
    base = parameter.default
    methods = {
        f"{kind.__name__}_schema": lambda _self, _schema, kind=kind: schema_of_written(kind)
        for kind in PATTERNS
        if kind.__name__ in ("time", "datetime", "timedelta")
    }

    def decimal_schema(self: Any, schema: Any) -> Any:
        return _decimal(base.decimal_schema(self, schema), schema)

    def str_schema(self: Any, schema: Any) -> Any:
        pattern_text(schema.get("pattern"))
        return base.str_schema(self, schema)

    more = {"decimal_schema": decimal_schema, "str_schema": str_schema}
    return {"schema_generator": type("Written", (base,), methods | more)}


def _decimal(json_schema: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return pydantic's schema of a decimal, restricted to numbers.

    pydantic also allows any string, of which it reads only few.
    """
    digits = [name for name in ("max_digits", "decimal_places") if schema.get(name) is not None]
    if digits:
        raise GrammarError(f"a Decimal with {digits[0]} is not supported; use bounds, or a float")
    number: dict[str, Any] = next((part for part in json_schema.get("anyOf", []) if part.get("type") == "number"), {})
    return {**(schema_of_written(Decimal) or {}), **number}
