"""Convert JSON Schema to GBNF with llama-cpp-python's converter where it is correct.

Generating and validating texts with version 0.3.36 showed the converter's errors. It
drops bounds of numbers, `patternProperties`, `minProperties`, and what is beside
`$ref`, `anyOf`, `const` or a list of types. It treats `oneOf` as `anyOf`, lets an
additional property repeat a named one, misreads many patterns and days of the month,
and allows line feeds in strings. Therefore it only receives schemas without these, and
its rules for characters and spaces are replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from selectrie.errors import GrammarError
from selectrie.grammar.schema.keywords import TYPES, shown, types_of
from selectrie.grammar.schema.normalize import LISTED, NAMED, NUMERIC, TEXTUAL, Schema, SchemaCopy, clipped_step

MOST_LENGTH = 64
"""Maximum of `maxLength` and `maxItems`: the converter nests one group for each."""
MOST_PROPERTIES = 256
"""Maximum number of properties: the converter recurses for each optional one."""
MOST_SPELLED = 1_000
"""Maximum length of a name or value: the converter repeats names in rule names."""
REFERRED = "referred-to-"
"""Prefix of the names of rules for referenced schemas."""

_ALL = ("object", "array", "string", "number", "boolean", "null")
_KEYWORDS = {"number": NUMERIC, "integer": NUMERIC, "string": TEXTUAL, "array": LISTED, "object": NAMED}
_CHARACTER = (
    r'char ::= [^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] '
    r'| "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))'
)
"""The rule for a character of a string.

It excludes raw control characters (RFC 8259, section 7), and halves of surrogate pairs,
which would count as two.
"""
_DUMPED_CHARACTER = r'char ::= [^"\\\x00-\x1F] | "\\" (["\\bfnrt] | "u00" ("0" [0-7bef] | "1" [0-9a-f]))'
"""The same, with each character as `json.dumps(…, ensure_ascii=False)` writes it."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')
"""Matches a literal or a class of GBNF, so that neither is found inside another."""
_DUMPED_SEPARATORS = {'","': '", "', '":"': '": "'}


def schema_to_gbnf(copy: SchemaCopy, *, spacing: str) -> str:
    """Return a normalized schema as GBNF.

    Raises `GrammarError` with keyword and JSON pointer for everything that the
    converter would get wrong.

    Args:
        copy: The schema.
        spacing: "json", "none", or "optional", which allows one space after every JSON
            token.
    """
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    known = _Known(copy)
    root = known.schema(copy.root, "#")
    if "$ref" in root:
        root = {"anyOf": [root]}  # the converter ignores everything beside a reference, even definitions
    definitions = {_rule(name): known.schema(schema, copy.pointers[name]) for name, schema in copy.definitions.items()}
    try:
        text = json_schema_to_gbnf(json.dumps({**root, "$defs": definitions} if definitions else root))
    except RecursionError as error:
        raise GrammarError(f"the schema's references are nested too deep; {_REMEDY}") from error
    is_dumped = spacing == "json"
    space = 'space ::= " "?' if spacing == "optional" else 'space ::= ""'
    replaced = {"char": _DUMPED_CHARACTER if is_dumped else _CHARACTER, "space": space}
    text = "\n".join(replaced.get(line.partition(" ::= ")[0], line) for line in text.split("\n")) + "\n"
    return _TOKEN.sub(lambda found: _DUMPED_SEPARATORS.get(found[0], found[0]), text) if is_dumped else text


_REMEDY = "install llguidance for that: pip install 'selectrie[schema]'"


@dataclass(frozen=True, slots=True)
class _Known:
    """Rewrites schemas into what the converter gets right."""

    copy: SchemaCopy

    def schema(self, schema: Schema, pointer: str) -> dict[str, Any]:
        if isinstance(schema, bool):
            if not schema:
                raise _refused("false", pointer, "it has no texts")
            return {"type": list(_ALL)}
        for key in ("allOf", "oneOf"):
            if key in schema:
                raise _refused(key, pointer)
        for key in ("$ref", "anyOf", "const", "enum"):
            if key in schema:
                beside = schema.keys() - {key, *(("type",) if key in ("const", "enum") else ())}
                if beside:
                    raise _refused(key, pointer, f"beside {', '.join(sorted(beside))}")
                return self._applied(key, schema, pointer)
        types = types_of(schema, pointer)
        types = tuple(name for name in TYPES if name in types and name != "integer") if "type" not in schema else types
        ways = [self._typed(name, schema, pointer) for name in types]
        return ways[0] if len(ways) == 1 else {"anyOf": ways}

    def _applied(self, key: str, schema: dict[str, Any], pointer: str) -> dict[str, Any]:
        value = schema[key]
        if key == "$ref":
            return {"$ref": f"#/$defs/{_rule(value.rpartition('/')[2])}"}
        if key == "anyOf":
            return {"anyOf": [self.schema(one, f"{pointer}/anyOf/{i}") for i, one in enumerate(value)]}
        values = [value] if key == "const" else value
        types = types_of(schema, pointer)
        kept = [one for one in values if _type_of(one) in types or (_type_of(one) == "integer" and "number" in types)]
        if not kept:
            raise _refused(key, pointer, "none of the values is of the type, so it has no texts")
        _check_spelling(kept, key, pointer)
        return {"enum": kept}

    def _typed(self, name: str, schema: dict[str, Any], pointer: str) -> dict[str, Any]:
        """Return a schema of one type."""
        found = {key: schema[key] for key in _KEYWORDS.get(name, ()) if key in schema}
        if name == "string":
            return {"type": name} | _checked(found, ("minLength", "maxLength"), pointer)
        if name == "array":
            return self._array(found, pointer)
        if name == "object":
            return self._object(found, pointer)
        return {"type": name} | _checked(found, (), pointer)

    def _array(self, found: dict[str, Any], pointer: str) -> dict[str, Any]:
        if not found:
            return {"type": "array"}
        items = self.schema(found.pop("items", True), f"{pointer}/items")
        return {"type": "array", "items": items} | _checked(found, ("minItems", "maxItems"), pointer)

    def _object(self, found: dict[str, Any], pointer: str) -> dict[str, Any]:
        """Return an object schema with only named properties, or with only others.

        If properties are named, all others are excluded, even if the schema allows
        them.
        """
        properties = found.pop("properties", {})
        required = found.pop("required", [])
        others = found.pop("additionalProperties", True)
        _checked(found, (), pointer)
        missing = [name for name in required if name not in properties]
        if missing:
            raise _refused("required", pointer, f"{missing[0]!r} is not among the properties")
        if len(properties) > MOST_PROPERTIES:
            raise _refused("properties", pointer, f"more than {MOST_PROPERTIES}")
        if not properties:
            if others is True or others == {}:
                return {"type": "object"}
            closed = others is False
            rest = False if closed else self.schema(others, f"{pointer}/additionalProperties")
            return {"type": "object", "additionalProperties": rest}
        _check_spelling(properties, "properties", pointer)
        odd = next((name for name in properties if name in ("", "*", "$ref") or name.startswith(REFERRED)), None)
        if odd is not None:
            raise _refused("properties", pointer, f"the name {odd!r}")
        copied = {
            name: self.schema(one, f"{pointer}/properties/{clipped_step(name).replace('~', '~0').replace('/', '~1')}")
            for name, one in properties.items()
            if one is not False or name in required
        }
        return {"type": "object", "properties": copied, "required": required, "additionalProperties": False}


def _checked(found: dict[str, Any], known: tuple[str, ...], pointer: str) -> dict[str, Any]:
    """Return the keywords, or raise an error.

    Errors are unsupported keywords, and bounds that contradict each other or are too
    large.
    """
    for key, value in found.items():
        if key not in known:
            raise _refused("pattern or format" if key == "pattern" else key, pointer)
        if value > MOST_LENGTH:
            raise _refused(key, pointer, f"{value} is more than {MOST_LENGTH}")
    if len(found) == 2 and found[known[0]] > found[known[1]]:
        raise _refused(known[0], pointer, f"more than {known[1]}, so it has no texts")
    return found


def _check_spelling(values: Iterable[object], keyword: str, pointer: str) -> None:
    """Refuse values that the converter would spell wrongly.

    It writes JSON into a GBNF literal, where escapes mean something else.
    """
    for value in values:
        spelled = json.dumps(value, ensure_ascii=False)
        if (
            isinstance(value, (dict, list))
            or len(spelled) > MOST_SPELLED
            or "\\" in spelled
            or any("\x7f" <= c <= "\x9f" or c > "\uffff" for c in spelled)
        ):
            raise _refused(keyword, pointer, f"the spelling of {shown(value)}")


def _type_of(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _rule(name: str) -> str:
    return f"{REFERRED}{name}"


def _refused(keyword: str, pointer: str, reason: str = "") -> GrammarError:
    detail = f" ({reason})" if reason else ""
    return GrammarError(
        f"{keyword} at {pointer}{detail}: the converter of llama-cpp-python is not right about it; {_REMEDY}"
    )
