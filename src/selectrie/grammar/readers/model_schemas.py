"""Post-processes JSON Schemas of types, and adapts pydantic's schema generator.

Schemas of models are closed (no additional properties), and a set type with few
possible members becomes an enumeration of its values. pydantic is never imported: the
generator is found through the model's own methods.
"""

from __future__ import annotations

import inspect
import re
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
_UUID_FORMAT = re.compile("uuid([1-8])")
_UUID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-V[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_LABEL = "[a-z0-9]+(?:-[a-z0-9]+)*"
_URL_PART = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*"
_AFTER_SCHEME = rf"(?:{_LABEL}\.)*[a-z][a-z0-9]*(?::[0-9]{{1,4}})?(?:/{_URL_PART})?(?:#{_URL_PART})?"
"""Host, port and path of a URL that every reader takes; the host is a name."""


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
    version = _UUID_FORMAT.fullmatch(str(made.get("format")))
    if version is not None:
        made = {**made, "pattern": _UUID_PATTERN.replace("V", version[1])}
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


def with_open_sets(schema: Any) -> Any:
    """Let the members of set types be repeated, as they are read as one member.

    Sets that need more than one member stay as they are.
    """
    if not isinstance(schema, dict):
        return schema
    if schema.get("uniqueItems") is True and schema.get("minItems", 0) <= 1:
        schema = {key: value for key, value in schema.items() if key != "uniqueItems"}
    return _with_parts(schema, lambda one, _: with_open_sets(one))


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
    instead of a format or any string, and that of URLs has their schemes. Patterns with
    flags, which pydantic would drop, raise an error. Returns {} for a class that only
    resembles a pydantic model.
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

    def with_schemes(made: dict[str, Any], schema: Any) -> dict[str, Any]:
        schemes = schema.get("allowed_schemes")
        if not schemes:
            return made
        pattern = f"^(?:{'|'.join(map(re.escape, schemes))})://{_AFTER_SCHEME}$"
        return {**{key: value for key, value in made.items() if key != "format"}, "pattern": pattern}

    more = {
        "decimal_schema": decimal_schema,
        "str_schema": str_schema,
        "url_schema": lambda self, schema: with_schemes(base.url_schema(self, schema), schema),
        "multi_host_url_schema": lambda self, schema: with_schemes(base.multi_host_url_schema(self, schema), schema),
    }
    return {"schema_generator": type("Written", (base,), methods | more)}


def _decimal(json_schema: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return pydantic's schema of a decimal, restricted to numbers.

    pydantic also allows any string, of which it reads only few.
    """
    number: dict[str, Any] = next((part for part in json_schema.get("anyOf", []) if part.get("type") == "number"), {})
    made = {**(schema_of_written(Decimal) or {}), **number}
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if digits is not None and (places is None or places > digits):
        raise GrammarError("a Decimal with max_digits needs decimal_places, and no more of them; give both, or bounds")
    if places is not None:
        step = Decimal(1).scaleb(-places)
        made["multipleOf"] = float(step) if places else 1
        if digits is not None:
            largest = float(10 ** (digits - places) - step)
            made |= {"minimum": max(made["minimum"], -largest), "maximum": min(made["maximum"], largest)}
    return made
