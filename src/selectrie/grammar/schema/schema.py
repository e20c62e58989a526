"""JSON Schema as a grammar: by llguidance, or without it by the converter of llama-cpp-python as far as that is right.

A schema of few values is neither: its texts are listed. In each of these ways every text of the grammar is valid against the
schema, and what cannot be carried over is an error. Not every valid text is one of the grammar: properties come in the
schema's order, strings are spelled with no escape that is not needed, and white space is as asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

from selectrie.errors import GrammarError, MissingExtraError, OptionError
from selectrie.grammar.expressions import RuleSet
from selectrie.grammar.guidance import GuidanceGrammar, check_guidance, guidance_version
from selectrie.grammar.machine.rings import rings
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.schema.converter import schema_to_gbnf
from selectrie.grammar.schema.copying import MOST_NAMED, Schema, SchemaCopy, copy_schema
from selectrie.grammar.schema.finite import finite_texts
from selectrie.grammar.schema.values import refuse, shown

Spacing = Literal["json", "none", "optional", "any"]
Route = Literal["auto", "llguidance", "llama-cpp-python"]

ESCAPES = 'nrbtf\\"'
"""Letters after a backslash. Without `u` every string has one spelling; with it llguidance lets an additional property be
named `\\u0061` beside the property `a`, whose schema it then escapes."""

MOST_CHAINED = 1_000
"""Schemas inside schemas along references: llguidance overflows 8 MiB of stack between 2 000 and 3 000 (1.9.1)."""
_DEFINITION = re.compile(r"\n\s*while processing json-schema:///#/\$defs/(d\d+)")

SPACINGS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "json": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
        "optional": {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"},
        "none": {"whitespace_flexible": False},
        "any": {"whitespace_flexible": True},
    }
)
SEPARATORS: Mapping[str, tuple[str, str]] = MappingProxyType({"json": (", ", ": "), "none": (",", ":")})
"""Of the spacings in which a value has one layout: what stands between items and behind a key, as `json.dumps` takes them."""


@dataclass(frozen=True, slots=True)
class ConvertedSchema:
    """A schema as rules of ours. route: what made them, with its version. notes: as of `SchemaCopy`."""

    rules: RuleSet
    gbnf: str
    route: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedSchema:
    """All texts of a schema that has few values, in the order in which it names them. notes: as of `SchemaCopy`."""

    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_schema(
    schema: Mapping[str, Any] | str | bool,  # noqa: FBT001 - a bool is a schema
    *,
    route: Route = "auto",
    spacing: Spacing = "json",
) -> GuidanceGrammar | ConvertedSchema | ListedSchema:
    """The grammar of the texts that a JSON Schema allows: an object, its JSON text, or a bool.

    Read as the draft that `$schema` names, 2020-12 without it; formats are enforced.

    route: auto lists the texts of a schema of few values (see `finite_texts`) where each value has one layout, and takes
    llguidance for other schemas where it is installed (the extra `schema`).
    spacing: `json` is the layout of `json.dumps`, one space behind each comma and colon between the parts of a value.
    `none` has no spaces, `optional` allows both at each place, and `any` allows any white space between tokens of JSON
    (llguidance alone).
    Raises `GrammarError` with keyword and JSON pointer for what a grammar cannot hold.
    """
    if spacing not in SPACINGS:
        raise OptionError("spacing", spacing, "one of " + ", ".join(map(repr, SPACINGS)))
    if route not in ("auto", "llguidance", "llama-cpp-python"):
        raise OptionError("route", route, "'auto', 'llguidance' or 'llama-cpp-python'")
    copy = copy_schema(_parsed(schema))
    if route == "auto" and spacing in SEPARATORS:
        texts = finite_texts(copy, SEPARATORS[spacing])
        if texts is not None:
            return ListedSchema(texts, copy.notes)
    if route == "llguidance" or (route == "auto" and find_spec("llguidance") is not None):
        return _by_llguidance(copy, SPACINGS[spacing])
    if spacing == "any":
        raise MissingExtraError("white space of any amount in JSON", "schema")
    return _by_converter(copy, spacing)


def _parsed(schema: Mapping[str, Any] | str | bool) -> object:  # noqa: FBT001 - as above
    """The schema as JSON gives it, a copy of its own."""
    text = schema if isinstance(schema, str) else None
    try:
        if text is None:
            text = json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise GrammarError("the schema is nested too deep") from error
    except json.JSONDecodeError as error:
        line = (text or "").split("\n")[error.lineno - 1]
        raise GrammarError(
            f"the schema is no JSON: {error.msg}", line=error.lineno, column=error.colno, excerpt=line
        ) from error
    except (TypeError, ValueError) as error:
        raise GrammarError(f"the schema is no JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise GrammarError(f"the schema names {shown(twice)} twice in one object")
    return found


def _check_chains(copy: SchemaCopy) -> None:
    """Llguidance goes into what is referred to by recursion, and ends the process where its stack does (1.9.1).

    So the longest way along references is bounded, those that lead to each other being all on it.
    """
    uses: dict[str, list[str]] = {}
    own: dict[str, int] = {}
    for name, schema in copy.definitions.items():
        uses[name], own[name] = _references(schema)
    longest: dict[str, int] = {}
    for ring in rings(uses):
        inside = set(ring)
        behind = max((longest[to] for name in ring for to in uses[name] if to not in inside), default=0)
        length = behind + sum(own[name] for name in ring)
        longest.update(dict.fromkeys(ring, length))
        if length > MOST_CHAINED:
            raise GrammarError(
                f"$ref at {copy.pointers[ring[0]]}: what is referred to goes on for {length} schemas inside each other, at most "
                f"{MOST_CHAINED} are followed; let fewer definitions refer to each other"
            )


def _references(schema: Schema) -> tuple[list[str], int]:
    """Definitions that a copied schema names, and how deep it is, one inside the other."""
    found: dict[str, None] = {}
    deepest = 1
    waiting: list[tuple[object, int]] = [(schema, 1)]
    while waiting:
        part, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                found[reference.rpartition("/")[2]] = None
            waiting += [(value, depth + 1) for value in part.values() if isinstance(value, dict | list)]
        elif isinstance(part, list):
            waiting += [(value, depth) for value in part if isinstance(value, dict)]
    return list(found), deepest


def _by_llguidance(copy: SchemaCopy, options: Mapping[str, object]) -> GuidanceGrammar:
    _check_chains(copy)
    guidance = {**options, "json_allowed_escapes": ESCAPES, "lenient": False, "coerce_one_of": False}
    try:
        # the options last: llguidance takes them out by putting the last keyword in their place
        schema = {**copy.schema(), "x-guidance": guidance}
        found = check_guidance([{"json_schema": schema}], f"llguidance {guidance_version()} json-schema")
        return replace(found, notes=copy.notes)
    except GrammarError as error:
        reason = error.reason
    definition = _DEFINITION.search(reason)
    where = copy.pointers[definition[1]] if definition else "#"
    reason = _DEFINITION.sub("", reason)
    if reason.startswith("oneOf"):
        reason = "it is not proved that no text is valid against two of its schemas; write anyOf where that may be"
        raise refuse(_listed(copy.one_of), "oneOf", reason)
    if reason.startswith("patternProperty"):
        raise refuse(where, "patternProperties", "two of the patterns may match one name, or read it differently")
    raise GrammarError(f"{where}: {reason}")


def _listed(pointers: Sequence[str], most: int = MOST_NAMED) -> str:
    """Some of the places, for a message."""
    return " or ".join(pointers[:most]) + (" or another" if len(pointers) > most else "")


def _by_converter(copy: SchemaCopy, spacing: Spacing) -> ConvertedSchema:
    gbnf = schema_to_gbnf(copy, spacing=spacing)
    route = f"llama-cpp-python {version('llama-cpp-python')} json-schema"
    return ConvertedSchema(read_gbnf(gbnf), gbnf, route, copy.notes)
