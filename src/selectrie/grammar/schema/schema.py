"""Reads JSON Schema as a grammar.

A schema that allows few values becomes a list of texts; llguidance converts all others.
In both cases, every text of the grammar is valid against the schema, and a keyword that
cannot be converted raises an error. Not every valid text is a text of the grammar:
properties are in the schema's order, strings have no unnecessary escapes, and white
space is as requested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from selectrie.core.strict_json import object_of_unique_keys
from selectrie.errors import GrammarError, OptionError
from selectrie.grammar.llguidance import GuidanceGrammar, check_guidance, guidance_version
from selectrie.grammar.machine.compiling import rings
from selectrie.grammar.schema.finite import finite_texts
from selectrie.grammar.schema.keywords import keyword_error, schema_error
from selectrie.grammar.schema.normalize import MAX_NAMED, Schema, SchemaCopy, clipped_step, copy_schema

Spacing = Literal["json", "none", "optional", "any"]
Route = Literal["auto", "llguidance"]

ESCAPES = 'nrbtf\\"'
"""Allowed letters after a backslash.

Without `u`, every string has one spelling. With it, llguidance allows an additional
property `\\u0061` beside the property `a`, and the schema of `a` does not apply to it.
"""

MAX_VALUES = 1_000_000
"""Maximum number of values in a schema, including those in objects and lists."""
MAX_CHAINED = 1_000
"""Maximum number of nested schemas along references.

llguidance overflows 8 MiB of stack between 2 000 and 3 000 (1.9.1).
"""
_DEFINITION = re.compile(r"\n\s*while processing json-schema:///#/\$defs/(d\d+)")
_NAMED = re.compile(r"circular references .*json-schema:///#/\$defs/(d\d+)")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""Keywords that hold lists of schemas, and schemas by name."""
_REMEDIES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("oneOf", ("oneOf",), "two of its schemas may accept the same text; make them exclude each other, or write anyOf"),
    (
        "patternProperty",
        ("patternProperties",),
        "two of the patterns may match one name, or dialects read them differently; make each name match only one",
    ),
    (
        "can't determine if patternProperty",
        ("patternProperties",),
        "deciding whether two of the patterns match one name takes too long; make them begin with different characters",
    ),
    (
        "min/maxProperties",
        ("minProperties", "maxProperties"),
        "another schema (through allOf, anyOf or $ref) names properties that are counted; write the count beside these",
    ),
    (
        "Schema intersection",
        ("allOf", "$ref"),
        "too many schemas that must hold together are nested; merge them into one schema",
    ),
    (
        "Unable to determine if regex is empty",
        ("pattern", "format", "patternProperties"),
        "deciding whether a text matches all patterns that must hold together takes too long; merge them into one",
    ),
)
"""Beginnings of llguidance's messages, the keywords they are about, and remedies."""

SPACINGS: Mapping[str, Mapping[str, object]] = {
    "json": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
    "optional": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
    "none": {"whitespace_flexible": False},
    "any": {"whitespace_flexible": True},
}
SEPARATORS: Mapping[str, tuple[str, str]] = MappingProxyType({"json": (", ", ": "), "none": (",", ":")})
"""The item and key separators of spacings with one layout, as for `json.dumps`."""


@dataclass(frozen=True, slots=True)
class ListedSchema:
    """All texts of a schema that has few values.

    Attributes:
        texts: The texts, in the order in which the schema names the values.
        notes: See `SchemaCopy`.
    """

    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_schema(
    schema: Mapping[str, Any] | str | bool,  # noqa: FBT001 - a bool is a schema
    *,
    route: Route = "auto",
    spacing: Spacing = "json",
) -> GuidanceGrammar | ListedSchema:
    """Return the grammar of the texts that a JSON Schema allows.

    The schema is read as the draft that `$schema` names, by default 2020-12. Formats
    are enforced. Raises `GrammarError` with the keyword and its JSON pointer if a
    grammar cannot express it.

    Args:
        schema: An object, its JSON text, or a bool.
        route: With "auto", a schema that allows few values becomes a list of their
            texts if each value has one layout (see `finite_texts`); llguidance converts
            all others. With "llguidance", it converts every schema.
        spacing: "json" is the layout of `json.dumps`, with one space after each comma
            and colon between the parts of a value. "none" has no spaces. "optional"
            allows both at each position. "any" allows any white space between JSON
            tokens.
    """
    if spacing not in SPACINGS:
        raise OptionError("spacing", spacing, "one of " + ", ".join(map(repr, SPACINGS)))
    if route not in ("auto", "llguidance"):
        raise OptionError("route", route, "'auto' or 'llguidance'")
    source = parse_schema(schema)
    try:
        return _convert(source, route=route, spacing=spacing)
    except RecursionError as error:  # constants may be nested more deeply than schemas
        raise GrammarError("the schema is nested too deeply") from error


def _convert(source: object, *, route: Route, spacing: Spacing) -> GuidanceGrammar | ListedSchema:
    """Return the grammar of a parsed schema (see `read_schema`)."""
    copy = copy_schema(source)
    if route == "auto" and spacing in SEPARATORS:
        texts = finite_texts(copy, SEPARATORS[spacing])
        if texts is not None:
            return ListedSchema(texts, copy.notes)
    if copy.listed_only:
        raise copy.listed_only[0]
    return _convert_by_llguidance(copy, source, SPACINGS[spacing])


def parse_schema(schema: Mapping[str, Any] | str | bool) -> object:  # noqa: FBT001 - as above
    """Return a schema, given as JSON text or as a Python value, as plain JSON values.

    Raises `GrammarError` if it is not JSON.
    """
    text = schema if isinstance(schema, str) else None
    try:
        if text is None:
            _check_size(schema)
            text = json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
        return json.loads(text, object_pairs_hook=object_of_unique_keys)
    except RecursionError as error:
        raise GrammarError("the schema is nested too deeply") from error
    except json.JSONDecodeError as error:
        line = (text or "").split("\n")[error.lineno - 1]
        raise GrammarError(
            f"the schema is not JSON: {error.msg}", line=error.lineno, column=error.colno, excerpt=line
        ) from error
    except GrammarError:
        raise
    except (TypeError, ValueError) as error:
        raise GrammarError(f"the schema is not JSON: {error}") from error


def _check_size(schema: object) -> None:
    """Raise `GrammarError` for a schema that would take too long to write as JSON.

    One Python object may occur in many places of a schema.
    """
    n = _n_values(schema, {})
    if n > MAX_VALUES:
        raise GrammarError(
            f"the schema has more than {MAX_VALUES} values, counting each occurrence; define a "
            "schema that occurs several times once under $defs, and refer to it by $ref"
        )


def _n_values(value: object, known: dict[int, int]) -> int:
    """Return the number of values that JSON would write for a value.

    Objects that occur in several places are visited once. `known` maps the identity of
    each object visited to its number.
    """
    if not isinstance(value, Mapping | list | tuple):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(_n_values(one, known) for one in parts)
    return known[id(value)]


def _check_chains(copy: SchemaCopy) -> None:
    """Raise `GrammarError` for references that llguidance would follow too deep.

    llguidance (1.9.1) follows references by recursion, and aborts the process if its
    stack overflows. So the longest path along references is bounded. Definitions that
    lead to each other all count as part of that path.
    """
    uses: dict[str, list[str]] = {}
    own: dict[str, int] = {}
    for name, schema in copy.definitions.items():
        uses[name], own[name] = _find_references(schema)
    longest: dict[str, int] = {}
    for ring in rings(uses):
        inside = set(ring)
        behind = max((longest[to] for name in ring for to in uses[name] if to not in inside), default=0)
        length = behind + sum(own[name] for name in ring)
        longest.update(dict.fromkeys(ring, length))
        if length > MAX_CHAINED:
            raise keyword_error(
                copy.pointers[ring[0]],
                "$ref",
                f"the references lead through {length} nested schemas, but at most {MAX_CHAINED} are supported; "
                "reduce the definitions that refer to each other",
            )


def _find_references(schema: Schema) -> tuple[list[str], int]:
    """Return the definitions that a normalized schema names, and its depth."""
    names: dict[str, None] = {}
    deepest = 1
    waiting: list[tuple[object, int]] = [(schema, 1)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                names[reference.rpartition("/")[2]] = None
            waiting += [(value, depth + 1) for value in part.values() if isinstance(value, dict | list)]
        elif isinstance(part, list):
            waiting += [(value, depth) for value in part if isinstance(value, dict)]
    return list(names), deepest


def _convert_by_llguidance(copy: SchemaCopy, source: object, options: Mapping[str, object]) -> GuidanceGrammar:
    """Convert a copied schema; `source` is the original, for errors."""
    _check_chains(copy)
    guidance = {**options, "json_allowed_escapes": ESCAPES, "lenient": False, "coerce_one_of": False}
    try:
        # options last: llguidance removes them by moving the last keyword there
        schema = {**copy.schema(), "x-guidance": guidance}
        grammar = check_guidance([{"json_schema": schema}], f"llguidance {guidance_version()} json-schema")
        return replace(grammar, notes=copy.notes)
    except GrammarError as error:
        reason = error.reason
    raise _explain_error(reason, copy, source)


def _explain_error(reason: str, copy: SchemaCopy, source: object) -> GrammarError:
    """Convert llguidance's error on a normalized schema to one about the original."""
    definition, named = _DEFINITION.search(reason), _NAMED.match(reason)
    where = copy.pointers[definition[1]] if definition else "#"
    reason = _DEFINITION.sub("", reason)
    if named:
        reason = "the reference leads back to itself beside other keywords; write out what it refers to"
        return keyword_error(copy.pointers[named[1]], "$ref", reason)
    if reason.startswith("schema too large"):
        keyword, where = _find_largest(source)
        return keyword_error(
            where, keyword, "the schema is too large for llguidance; reduce this part, which is its largest"
        )
    for beginning, keywords, remedy in _REMEDIES:
        if reason.startswith(beginning):
            present = [key for key in keywords if copy.keyword_pointers.get(key)] or keywords[:1]
            pointers = [one for key in present for one in copy.keyword_pointers.get(key, ())]
            inside = [one for one in pointers if definition and one.startswith(where)]
            return keyword_error(
                _join_pointers(list(dict.fromkeys(inside or pointers)) or [where]), " or ".join(present), remedy
            )
    return schema_error(where, reason)


def _find_largest(schema: object) -> tuple[str, str]:
    """Return a keyword that makes a schema large, and the pointer of its schema.

    The search goes down to the largest part, as long as that part holds more than half
    of the schema around it.
    """
    pointer, keyword, where = "#", "type", "#"
    while isinstance(schema, dict) and schema:
        sizes = {key: _size(value) for key, value in schema.items()}
        largest = max(sizes, key=sizes.__getitem__)
        keyword, where = largest, pointer
        inner, pointer = schema[largest], f"{pointer}/{largest}"
        if isinstance(inner, list if largest in _LISTS else dict) and largest in (*_LISTS, *_NAMES):
            parts = inner.items() if isinstance(inner, dict) else enumerate(inner)
            step, inner = max(parts, key=lambda part: _size(part[1]), default=("", None))
            pointer = f"{pointer}/{clipped_step(str(step)).replace('~', '~0').replace('/', '~1')}"
        if 2 * _size(inner) <= sizes[largest]:
            break
        schema = inner
    return keyword, where


def _size(value: object) -> int:
    """Return the number of values in a JSON value."""
    n, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        n += 1
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return n


def _join_pointers(pointers: Sequence[str], max_pointers: int = MAX_NAMED) -> str:
    """Return the first `max_pointers` pointers as text for a message."""
    return " or ".join(pointers[:max_pointers]) + (" or another" if len(pointers) > max_pointers else "")
