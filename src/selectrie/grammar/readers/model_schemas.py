"""JSON Schemas of Python types: formats, scalars, `Annotated`, and pydantic."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import combinations
from pathlib import PurePath
from typing import Any
from uuid import UUID

from selectrie.errors import GrammarError, clipped

_PACKAGES = frozenset({"annotated_types", "pydantic"})
_NUMBERS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}
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
        return _merge_constraints([constraints_of(one) for one in pieces])
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


def _merge_constraints(pieces: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Merge the constraints of several metadata items into one mapping.

    Returns None if one of them is unknown or if two contradict each other.
    """
    every: dict[str, Any] = {}
    for one in pieces:
        if one is None or any(every.get(name, value) != value for name, value in one.items()):
            return None
        every |= one
    return every


def add_constraints(
    schema: dict[str, Any], constraints: Mapping[str, Any], unknown: Callable[[], GrammarError]
) -> dict[str, Any]:
    """Return the schema with the keywords for these constraints.

    Raises `unknown()` for a constraint that does not apply to the schema's type. Every
    part of a union receives all constraints; the null type ignores them.
    """
    if "anyOf" in schema:
        return {**schema, "anyOf": [add_constraints(part, constraints, unknown) for part in schema["anyOf"]]}
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
    """Set a keyword; of two bounds, keep the tighter one. `unknown` makes an error."""
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


def unknown_constraint_error(shown: str, metadata: object) -> GrammarError:
    """Return the error for metadata of `Annotated` that is not supported.

    `shown` is the type in messages.
    """
    reason = f"{shown} has metadata that is not supported, {clipped(repr(metadata))}; give a JSON Schema instead"
    return GrammarError(reason)


def _host_pattern(n_labels: int, n_more: int) -> str:
    """Return a pattern for host names of at most `n_labels` labels.

    A label is a letter or digit and up to `n_more` more, any of which may have a hyphen
    before it. The last label begins with a letter.
    """
    rest = f"(?:-?[A-Za-z0-9]){{0,{n_more}}}"
    return rf"(?:[A-Za-z0-9]{rest}\.){{0,{n_labels - 1}}}[A-Za-z]{rest}"


_HOST = f"(?:{_host_pattern(4, 30)}|{_host_pattern(8, 14)}|{_host_pattern(15, 7)})"
"""Host names of at most 253 characters in labels of at most 63.

No label begins with `xn--`.
"""
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]"

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_PAIR = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_LEAP_PAIR}|{_LEAP_PAIR}00)-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+\-]{_HOUR})"

_N = "[0-9]{1,9}"
_CLOCK = f"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_DAYS = f"(?:{_N}Y(?:{_N}M(?:{_N}D)?)?|{_N}M(?:{_N}D)?|{_N}D)"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_GROUP = "[0-9a-fA-F]{1,4}"


def _ipv6() -> str:
    """Return a pattern for IPv6 addresses (RFC 4291, section 2.2).

    An address has eight groups, or `::` in place of one or more of them. The last two
    groups may be an IPv4 address.
    """
    ways = [f"(?:{_GROUP}:){{7}}{_GROUP}", f"(?:{_GROUP}:){{6}}{_IPV4}"]
    for left in range(8):
        before = f"{_GROUP}(?::{_GROUP}){{{left - 1}}}" if left else ""
        after = f"(?:{_GROUP}(?::{_GROUP}){{0,{6 - left}}})?" if left < 7 else ""
        ways.append(f"{before}::{after}")
        if left < 6:
            ways.append(f"{before}::(?:{_GROUP}:){{0,{5 - left}}}{_IPV4}")
    return "|".join(ways)


_PATH_CHARACTER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_PATH = f"(?:/{_PATH_CHARACTER}*)*"
_PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_USER = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{2})*@"
_AUTHORITY = (
    rf"//(?:(?:{_USER})?(?:{_HOST}|{_IPV4}|\[(?:{_ipv6()})\])(?::{_PORT})?{_PATH}|/(?:{_PATH_CHARACTER}+{_PATH})?)"
)
_ABSOLUTE = f"/(?:{_PATH_CHARACTER}+{_PATH})?"
_TAIL = rf"(?:\?(?:{_PATH_CHARACTER}|[/?])*)?(?:#(?:{_PATH_CHARACTER}|[/?])*)?"
_SEGMENT = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})+"
_URI = rf"[A-Za-z][A-Za-z0-9+\-.]*:(?:{_AUTHORITY}|{_ABSOLUTE}|{_PATH_CHARACTER}+{_PATH}){_TAIL}"
_REFERENCE = f"{_URI}|(?:{_AUTHORITY}|{_ABSOLUTE}|{_SEGMENT}{_PATH})?{_TAIL}"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_LOCAL = "|".join(
    rf"(?:{_ATOM}{{1,{length}}}\.){{0,{n - 1}}}{_ATOM}{{1,{length}}}" for n, length in ((3, 20), (6, 9), (16, 3))
)
"""The local part of a mail address: atoms of at most 64 characters together."""
_MAIL = f"(?:{_LOCAL})@{_HOST}"

FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_N}W|{_DAYS}(?:{_CLOCK})?|{_CLOCK})",
    "email": _MAIL,
    "idn-email": _MAIL,
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uuid": "-".join(f"[0-9a-fA-F]{{{n}}}" for n in (8, 4, 4, 4, 12)),
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _REFERENCE,
    "iri-reference": _REFERENCE,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]{{0,8}})(?:#|{_POINTER})",
}
"""Patterns of the whole text by format name.

Dates begin with the year 0001. Times have no leap seconds. The host of a URI is a name,
an address or nothing (`file:///`). A port is at most 65535.
"""

UNSUPPORTED_FORMATS = frozenset(("regex", "uri-template"))
"""Standard formats without a pattern here."""


def format_pattern(name: str) -> str | None:
    """Return an anchored pattern of the format, or None if the format is unknown."""
    pattern = FORMATS.get(name)
    return None if pattern is None else f"^(?:{pattern})$"


_PYTHON_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]{{6}})?(?:Z|[+\-]{_HOUR})?"
_COUNT = "(?:0|[1-9][0-9]{0,5})"
_SECONDS = rf"{_COUNT}(?:\.[0-9]{{1,6}})?S"
_HOURS = f"T(?:{_COUNT}H(?:{_COUNT}M)?(?:{_SECONDS})?|{_COUNT}M(?:{_SECONDS})?|{_SECONDS})"

PATTERNS: Mapping[Any, str] = {
    date: FORMATS["date"],
    time: _PYTHON_TIME,
    datetime: f"{FORMATS['date']}T{_PYTHON_TIME}",
    timedelta: f"-?P(?:{_COUNT}D(?:{_HOURS})?|{_HOURS})",
    UUID: "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)),
}
"""Patterns of the whole text that `isoformat` and `str` write.

For durations, this is the ISO 8601 form that pydantic writes. Zones are optional, as
Python has times without one.
"""
MAX_DECIMAL = 10**15
"""Decimals are between minus this number and this number.

The bounds exclude exponents, which a reader might turn into infinity.
"""


def schema_of_written(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type whose values are written as text or numbers.

    Returns None if the type is not in `PATTERNS`, a decimal, a path or bytes.
    """
    pattern = PATTERNS.get(kind)
    if pattern is not None:
        return {"type": "string", "pattern": f"^(?:{pattern})$"}
    if kind is Decimal:
        return {"type": "number", "minimum": -MAX_DECIMAL, "maximum": MAX_DECIMAL}
    return {"type": "string"} if is_text(kind) else None


def is_text(kind: Any) -> bool:
    """Return whether every text is a value of a type.

    That holds for paths, and for bytes, which are the text in UTF-8.
    """
    return kind is bytes or (isinstance(kind, type) and issubclass(kind, PurePath))


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
"""Host, port and path of a URL that all types of pydantic take; the host is a name."""


def close_schema(schema: Any, *, is_part: bool = False) -> Any:
    """Return a model's schema that forbids properties which it does not name.

    JSON Schema allows further properties, but a type consists of its fields. A tagged
    union becomes `anyOf`: because of its tags, no value belongs to two of its parts.

    Args:
        schema: The schema.
        is_part: Whether this is a part of an `allOf`. It then stays open, since the
            other parts name more of its properties.
    """
    if not isinstance(schema, dict):
        return schema
    made = _map_parts(schema, lambda one, keyword: close_schema(one, is_part=keyword == "allOf"))
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


def require_all(schema: Any) -> Any:
    """Return a schema whose objects have all the properties that it names."""
    if not isinstance(schema, dict):
        return schema
    made = _map_parts(schema, lambda one, _: require_all(one))
    return {**made, "required": list(made["properties"])} if made.get("properties") else made


def list_sets(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema in which small set types list all their values.

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
    return _map_parts(schema, lambda one, _: list_sets(one, definitions))


def open_sets(schema: Any) -> Any:
    """Return a schema in which the members of set types may be repeated.

    A reader keeps one of the repeated members. Sets that need more than one member
    stay as they are.
    """
    if not isinstance(schema, dict):
        return schema
    if schema.get("uniqueItems") is True and schema.get("minItems", 0) <= 1:
        schema = {key: value for key, value in schema.items() if key != "uniqueItems"}
    return _map_parts(schema, lambda one, _: open_sets(one))


def _map_parts(schema: Mapping[str, Any], change: Callable[[Any, str], Any]) -> dict[str, Any]:
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


def generator_argument(says: Any) -> dict[str, Any]:
    """Return the `schema_generator` argument for pydantic.

    With it, the schema of dates and decimals allows only what pydantic can parse,
    instead of a format or any string, and that of URLs has their schemes. Patterns with
    flags, which pydantic would drop, raise an error. Returns {} for a class that only
    resembles a pydantic model.

    `says` is the function of pydantic that gets the argument.
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
        return _restrict_decimal(base.decimal_schema(self, schema), schema)

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


def _restrict_decimal(json_schema: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
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
