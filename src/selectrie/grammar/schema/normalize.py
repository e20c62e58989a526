"""Copies a JSON Schema into the part of draft 2020-12 that a grammar supports."""

from __future__ import annotations

import math
import re
from collections import ChainMap, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from typing import Any
from urllib.parse import unquote

from selectrie.errors import GrammarError, clip
from selectrie.grammar.rules import Characters
from selectrie.grammar.schema.keywords import (
    APPLICATORS,
    LISTED,
    NAMED,
    NUMERIC,
    RANGE_DECIMALS,
    REFUSED,
    REWRITTEN,
    TEXTUAL,
    check_constant,
    clip_repr,
    count_of,
    keyword_error,
    normalize_numbers,
    normalize_strings,
    pattern_of,
    schema_error,
    types_of,
)
from selectrie.grammar.schema.logic import MAX_LOOKS as MAX_LOOKS_PER_POSITION
from selectrie.grammar.schema.logic import InexpressibleError, Logic, is_base
from selectrie.grammar.schema.patterns import class_of, rewrite_name
from selectrie.grammar.schema.rewriting import count_alternatives, rewrite_keyword

Schema = dict[str, Any] | bool

MAX_DEPTH = 64
"""Maximum nesting of schemas; llguidance stops at 128 by its own count."""
MAX_SCHEMAS = 100_000
"""Maximum number of copied schemas.

Includes those that keywords are rewritten into: a schema inside `oneOf`, `if` and the
like is copied once more for each of these around it.
"""
MAX_LOOKS = 200_000
"""Maximum number of pairs of schemas compared, at all positions together."""
MAX_ITEMS = 2_000
"""Maximum of `minItems`, `maxItems` and `minProperties`, which a grammar spells out."""
MAX_OPTIONAL = 4_000
"""Maximum number of optional properties of one schema.

Each of them takes four of llguidance's 20 000 items at one position.
"""

MAX_REQUIRED = 10_000
"""Maximum number of different names that a schema requires, in all its objects.

llguidance (1.9.1) overflows 8 MiB of stack where one object requires 28 000.
"""
MAX_PATTERNS = 200
"""Maximum number of different patterns of property names in a schema.

llguidance compares each two of one object: 200 take it 1.5 s, 500 take 17 s.
"""
MAX_PATTERN_PAIRS = 500_000
"""Maximum number of pairs of such patterns that llguidance may compare for a schema.

It compares the pairs of each object, and again for each schema that it joins with
others by `allOf`, `anyOf`, `oneOf` or `$ref`, where all patterns may meet.
"""

MAX_PRODUCT = 2**32 - 1
"""Largest product that llguidance computes for `multipleOf`."""
MAX_NAMED = 3
"""Maximum number of positions of a keyword that a message names."""
MAX_POINTERS = 100
"""Maximum number of positions of a keyword that are recorded for messages."""
MAX_STEP = 100
"""Maximum number of characters of one step of a pointer in messages."""
MAX_WAYS = 128
"""Maximum number of schemas of `oneOf` that are compared pair by pair."""
MAX_EXCLUDED = 8
"""Maximum number of schemas of `oneOf` that are written so as to exclude each other."""

SIMPLE = frozenset(("type", *NUMERIC, *TEXTUAL, *LISTED, *NAMED))
LEFT = ("allOf", "$ref", "required", "pattern", "format", "patternProperties", "minProperties", "maxProperties")
"""Keywords that llguidance may refuse in combination with others.

It may also refuse any `oneOf` that could not be written as `anyOf`.
"""
_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0([467])|draft/(2019|2020)-\d\d)/schema#?")


@dataclass(frozen=True, slots=True)
class SchemaCopy:
    """A normalized schema.

    Attributes:
        root: The schema.
        definitions: The schemas that references name, as in `{"$ref": "#/$defs/name"}`.
        pointers: JSON pointer of each definition in the original schema.
        keyword_pointers: JSON pointers of the first keywords of `LEFT` in the original
            schema, for messages.
        notes: Keywords that have no effect although the schema's author may expect one.
        listed_only: Errors about what only a list of values can express, such as large
            numbers. The first one is raised if the schema is not listed.
    """

    root: Schema
    definitions: Mapping[str, Schema]
    pointers: Mapping[str, str]
    keyword_pointers: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()
    listed_only: tuple[GrammarError, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the normalized schema with its definitions as one schema."""
        root = self.root if isinstance(self.root, dict) else ({} if self.root else {"allOf": [False]})
        return {**root, "$defs": dict(self.definitions)} if self.definitions else root


def clipped_step(step: str) -> str:
    """Return a step of a JSON pointer, clipped if it is long.

    A pointer is kept for every schema, so its steps must be short.
    """
    return clip(step, MAX_STEP)


def copy_schema(schema: object) -> SchemaCopy:
    """Return a normalized copy of a schema, an object or bool as JSON gives it.

    Raises `GrammarError` with the keyword and its JSON pointer.
    """
    return _Copier(schema).copy_root()


@dataclass(frozen=True, slots=True)
class _Position:
    """A position in the schema.

    Attributes:
        pointer: JSON pointer.
        depth: Number of schemas around it.
        rebased: Whether it is below a nested `$id`, where `#` means another root.
    """

    pointer: str
    depth: int = 0
    rebased: bool = False

    def at(self, *steps: str | int) -> _Position:
        escaped = (clipped_step(str(step)).replace("~", "~0").replace("/", "~1") for step in steps)
        return _Position("/".join([self.pointer, *escaped]), self.depth + 1, self.rebased)


@dataclass(slots=True)
class _Copier:
    """Copies a schema and the schemas that it refers to.

    Referenced schemas wait in a queue, so recursion is only as deep as one schema is
    nested, which is limited.
    """

    schema: object
    draft: int = field(init=False, default=2020)
    names: dict[str, str] = field(init=False, default_factory=dict)
    waiting: deque[tuple[str, object, _Position]] = field(init=False, default_factory=deque)
    keyword_pointers: dict[str, list[str]] = field(init=False, default_factory=dict)
    notes: list[str] = field(init=False, default_factory=list)
    listed_only: list[GrammarError] = field(init=False, default_factory=list)
    logic: Logic = field(init=False)
    last_logic: Logic = field(init=False)
    max_decimals: int = field(init=False, default=RANGE_DECIMALS)
    required: set[str] = field(init=False, default_factory=set)
    name_patterns: set[str] = field(init=False, default_factory=set)
    n_pattern_pairs: int = field(init=False, default=0)
    n_joined: int = field(init=False, default=0)
    n_copied: int = field(init=False, default=0)
    n_looks: int = field(init=False, default=0)

    def copy_root(self) -> SchemaCopy:
        """Copy the schema and all definitions that it refers to."""
        self.max_decimals = _max_decimals_of(self.schema)
        if isinstance(self.schema, dict) and "$schema" in self.schema:
            self.draft = _draft_of(self.schema["$schema"])
        self.logic = self.last_logic = Logic(self._find_target, self.draft)
        root = self.copy_one(self.schema, _Position("#"))
        definitions: dict[str, Schema] = {}
        while self.waiting:
            name, schema, position = self.waiting.popleft()
            definitions[name] = self.copy_one(schema, position)
        self._check_patterns()
        return SchemaCopy(
            root,
            definitions,
            {name: at for at, name in self.names.items()},
            self.keyword_pointers,
            tuple(dict.fromkeys(self.notes)),
            tuple(self.listed_only),
        )

    def copy_one(self, schema: object, position: _Position) -> Schema:
        """Return the copy of one schema.

        Keywords other than applicators are kept together, at the position of the first.
        Otherwise llguidance would apply them separately where an applicator is between
        them, and `additionalItems` without its `items`.
        """
        self._count_one(position)
        if isinstance(schema, bool):
            return schema
        schema, position = self._prepare(schema, position)
        for key in LEFT:
            if key in schema:
                self._note(key, position)
        copy: dict[str, Any] = {}
        both: list[Schema] = []
        is_simple = False
        for key in schema:
            if key in APPLICATORS:
                if key == "oneOf":
                    both.append(self._copy_one_of(schema[key], position))
                else:
                    copy[key] = self._copy_applicator(key, schema[key], position)
            elif key in SIMPLE and not is_simple:
                is_simple = True
                simple = self._copy_simple(schema, position)
                both += simple.pop("allOf", [])
                copy |= simple
        both += [self.copy_one(part, at) for part, at in self._rewrite_keywords(schema, position)]
        first = both[0] if len(both) == 1 else None
        if isinstance(first, dict) and first.keys() <= {"anyOf", "oneOf"} and not copy.keys() & first.keys():
            copy |= first  # does not affect the meaning of other keywords
        elif both:
            copy["allOf"] = [*copy.get("allOf", []), *both]
        return copy

    def _count_one(self, position: _Position) -> None:
        """Count a copied schema, and raise an error if there are too many."""
        self.n_copied += 1
        if self.n_copied > MAX_SCHEMAS:
            reason = f"the schema expands to more than {MAX_SCHEMAS} schemas; use fewer keywords"
            raise schema_error(position.pointer, reason)

    def _note(self, keyword: str, position: _Position) -> None:
        """Record the position of a keyword that llguidance may refuse."""
        pointers = self.keyword_pointers.setdefault(keyword, [])
        if len(pointers) < MAX_POINTERS and position.pointer not in pointers[-1:]:
            pointers.append(position.pointer)

    def _prepare(self, schema: object, position: _Position) -> tuple[dict[str, Any], _Position]:
        """Return a schema without keywords that have no effect, and its position.

        The position records whether a `$id` changes the base of its references.
        """
        if not isinstance(schema, dict) or not all(isinstance(key, str) for key in schema):
            raise schema_error(position.pointer, f"a schema must be an object or a bool, not {clip_repr(schema)}")
        if position.depth > MAX_DEPTH:
            raise schema_error(position.pointer, f"schemas are nested more than {MAX_DEPTH} levels deep")
        if position.depth and any(is_base(schema.get(key)) for key in ("$id", "id")):
            position = _Position(position.pointer, position.depth, rebased=True)
        if "$ref" in schema and self.draft <= 7:
            schema = {"$ref": schema["$ref"]}  # up to draft 7, keywords beside it have no effect
        return self._drop_refused(schema, position), position

    def _drop_refused(self, schema: dict[str, Any], position: _Position) -> dict[str, Any]:
        """Return the schema without keywords of `REFUSED`.

        Raises `GrammarError` if such a keyword has an effect.
        """
        kept = dict(schema)
        for old, new in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")):
            if (
                old in kept
                and self.draft >= 2019
                and new not in kept
                and not any(key in kept for key in (*APPLICATORS[2:], "if", "dependentSchemas"))
            ):
                kept[new] = kept.pop(old)  # nothing else evaluates any
        for key in [key for key in REFUSED if key in kept]:
            value = kept.pop(key)
            if key == "contains" or value not in (True, {}, None):
                raise keyword_error(position.pointer, key, "a grammar cannot express this keyword")
        return kept

    def _copy_one_of(self, schemas: object, position: _Position) -> dict[str, Any]:
        """Return `oneOf` as `anyOf` if possible.

        If the schemas are proved disjoint, `anyOf` holds them as they are. Otherwise
        each gets the negation of the others. If that cannot be expressed, `oneOf` is
        left to llguidance, and its position is noted, because llguidance may refuse it.
        """
        copies = self._copy_applicator("oneOf", schemas, position)
        logic = self._logic_at(position)
        if not isinstance(schemas, list) or self._are_disjoint(schemas, logic):
            return {"anyOf": copies}
        try:
            ways = self._make_disjoint(schemas, logic)
        except InexpressibleError:
            self._note("oneOf", position)
            return {"oneOf": copies}
        return {"anyOf": [self.copy_one(way, position.at("oneOf", i)) for i, way in enumerate(ways)]}

    def _rewrite_keywords(self, schema: dict[str, Any], position: _Position) -> list[tuple[object, _Position]]:
        """Return schemas that replace unsupported keywords, each with its position."""
        parts: list[tuple[object, _Position]] = []
        for key in (key for key in REWRITTEN if key in schema):
            try:
                schemas = rewrite_keyword(key, schema, self._logic_at(position))
            except InexpressibleError as error:
                raise keyword_error(position.pointer, key, str(error)) from error
            parts += [(part, position.at(key)) for part in schemas if part is not True]
        return parts

    def _copy_applicator(self, key: str, value: object, position: _Position) -> object:
        """Return the copied value of `const`, `enum`, `$ref` or a list of schemas."""
        if key == "const":
            return check_constant(value, key, position.pointer, self.listed_only)
        if key == "$ref":
            self.n_joined += 1
            return f"#/$defs/{self._define(value, position)}"
        if not isinstance(value, list) or not value:
            raise keyword_error(position.pointer, key, f"{clip_repr(value)}; expected a list with at least one item")
        if key == "enum":
            return [check_constant(one, key, position.pointer, self.listed_only) for one in value]
        self.n_joined += len(value)
        return [self.copy_one(one, position.at(key, i)) for i, one in enumerate(value)]

    def _find_target(self, reference: str) -> object:
        """Return the schema that a reference relative to the root points to."""
        if reference != "#" and not reference.startswith("#/"):
            raise InexpressibleError(f"{clip_repr(reference)} does not point into this schema")
        target, rebased = self._resolve(reference, _Position("#"))
        if rebased:
            raise InexpressibleError(f"{clip_repr(reference)} is below another $id")
        return target

    def _logic_at(self, position: _Position) -> Logic:
        """Return the `Logic` for a position.

        Below a nested `$id`, the targets of references are not known.
        """
        self.n_looks += self.last_logic.looks
        self.last_logic = Logic(_refuse_reference, self.draft) if position.rebased else self.logic
        self.last_logic.looks = 0 if self.n_looks < MAX_LOOKS else MAX_LOOKS_PER_POSITION
        return self.last_logic

    @staticmethod
    def _are_disjoint(schemas: list[object], logic: Logic) -> bool:
        """Return whether the schemas are proved to be pairwise disjoint."""
        kinds = [logic.kinds(one) for one in schemas]
        if sum(map(len, kinds)) == len(frozenset().union(*kinds)):
            return True
        return len(schemas) <= MAX_WAYS and all(logic.are_disjoint(*pair) for pair in combinations(schemas, 2))

    @staticmethod
    def _make_disjoint(schemas: list[object], logic: Logic) -> list[object]:
        """Return disjoint schemas: each one combined with the negation of the others.

        Raises `InexpressibleError` if a negation cannot be expressed.
        """
        if len(schemas) > MAX_EXCLUDED:
            raise InexpressibleError(f"{len(schemas)} schemas may overlap")
        opposites = [logic.negate(one) for one in schemas]
        ways = []
        for i, one in enumerate(schemas):
            others = [opposites[j] for j, other in enumerate(schemas) if j != i and not logic.are_disjoint(one, other)]
            ways.append({"allOf": [one, *others]} if others else one)
        return ways

    def _define(self, reference: object, position: _Position) -> str:
        """Return the name of a referenced schema's definition; queue it if new."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")) or position.rebased:
            reason = (
                "the reference is below another $id"
                if position.rebased
                else "only references into the same schema, '#/…', are supported"
            )
            raise keyword_error(position.pointer, "$ref", f"{clip_repr(reference)}: {reason}")
        if reference not in self.names:
            target, rebased = self._resolve(reference, position)
            self.names[reference] = f"d{len(self.names)}"
            self.waiting.append((self.names[reference], target, _Position(clipped_step(reference), 1, rebased)))
        return self.names[reference]

    def _resolve(self, reference: str, position: _Position) -> tuple[object, bool]:
        """Return the value at a pointer, and whether a `$id` is on the way to it."""
        value, rebased = self.schema, False
        for step in reference.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(value):
                value = value[int(key)]
            else:
                raise keyword_error(
                    position.pointer, "$ref", f"{clip_repr(reference)} does not exist: there is no {clip_repr(key)}"
                )
            rebased |= isinstance(value, dict) and any(is_base(value.get(name)) for name in ("$id", "id"))
        return value, rebased

    def _copy_simple(self, schema: dict[str, Any], position: _Position) -> dict[str, Any]:
        """Return the copy of `type` and of the keywords for each type.

        Keywords for types that the schema does not allow have no effect and are
        dropped.
        """
        types = types_of(schema, position.pointer)
        parts: list[dict[str, Any]] = []
        if {"number", "integer"} & set(types):
            bounds, types = normalize_numbers(
                schema,
                types,
                position.pointer,
                draft=self.draft,
                max_decimals=self.max_decimals,
                listed_only=self.listed_only,
            )
            parts.append(bounds)
        if "string" in types:
            parts.append(normalize_strings(schema, position.pointer, self.notes))
        if "array" in types:
            parts.append(self._copy_array_keywords(schema, position))
        if "object" in types:
            parts.append(self._copy_object_keywords(schema, position))
        both = [one for part in parts for one in part.pop("allOf", [])]
        copy: dict[str, Any] = dict(ChainMap(*reversed(parts)))
        if "type" in schema or "multipleOf" in copy:
            copy["type"] = types[0] if len(types) == 1 else list(types)
        return copy | ({"allOf": both} if both else {})

    def _copy_array_keywords(self, schema: dict[str, Any], position: _Position) -> dict[str, Any]:
        """Copy the keywords for arrays, under their names of draft 2020-12."""
        copy: dict[str, Any] = {}
        first, rest = ("prefixItems", "items")
        if self.draft < 2020:
            # Before 2020-12, `items` was one schema for all items, or a list for the
            # first ones.
            is_tuple = isinstance(schema.get("items"), list)
            first, rest = ("items", "additionalItems") if is_tuple else ("", "items")
        if first in schema:
            if not isinstance(schema[first], list) or not schema[first]:
                raise keyword_error(position.pointer, first, f"{clip_repr(schema[first])}; expected a list of schemas")
            copy["prefixItems"] = [self.copy_one(one, position.at(first, i)) for i, one in enumerate(schema[first])]
        if rest in schema:
            if isinstance(schema[rest], list):
                raise keyword_error(
                    position.pointer,
                    rest,
                    "a list of schemas is named prefixItems in draft 2020-12; use that name, or name the "
                    "draft in $schema",
                )
            copy["items"] = self.copy_one(schema[rest], position.at(rest))
        for keyword in ("minItems", "maxItems"):
            count = count_of(schema, keyword, position.pointer, MAX_ITEMS)
            if count is not None:
                copy[keyword] = count
        return copy

    def _copy_object_keywords(self, schema: dict[str, Any], position: _Position) -> dict[str, Any]:
        """Copy the keywords for objects, with patterns rewritten."""
        copy: dict[str, Any] = {}
        if "properties" in schema:
            copy["properties"] = self._copy_each(schema, "properties", position)
        if "patternProperties" in schema:
            named = self._copy_each(schema, "patternProperties", position)
            self._count_patterns(named, position)
            spelled = {name: pattern_of(name, "patternProperties", position.pointer) for name in named}
            doubtful = Characters.of([part for one in spelled.values() for part in one.doubtful_in_names()]).ranges
            if schema.get("additionalProperties") is False:
                doubtful = ()  # nothing else takes names that no pattern matches
            copy["patternProperties"] = {
                spelled[name].pattern if not doubtful else rewrite_name(name, doubtful): named[name] for name in named
            }
            if doubtful:  # forbid names that only some readers match
                copy["patternProperties"][class_of(doubtful)] = False
        if "additionalProperties" in schema:
            copy["additionalProperties"] = self.copy_one(
                schema["additionalProperties"], position.at("additionalProperties")
            )
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise keyword_error(position.pointer, "required", f"{clip_repr(required)}; expected a list of names")
        check_constant([*required, *copy.get("properties", {})], "properties", position.pointer, self.listed_only)
        if required:
            copy["required"] = list(dict.fromkeys(required))
            self._count_required(required, position)
        return copy | self._count_keywords(schema, copy, position)

    def _count_patterns(self, patterns: Collection[str], position: _Position) -> None:
        """Count patterns of property names; raise an error if there are too many."""
        self.name_patterns.update(patterns)
        self.n_pattern_pairs += math.comb(len(patterns), 2)
        if len(self.name_patterns) > MAX_PATTERNS:
            reason = f"the schema has {len(self.name_patterns)} patterns of names so far; the maximum is {MAX_PATTERNS}"
            raise keyword_error(position.pointer, "patternProperties", f"{reason}; join some into one pattern")

    def _check_patterns(self) -> None:
        """Raise an error if llguidance may compare too many pairs of patterns."""
        n = len(self.name_patterns)
        n_pairs = self.n_pattern_pairs + self.n_joined * math.comb(n, 2)
        if n_pairs > MAX_PATTERN_PAIRS:
            reason = f"{n} patterns in objects and schemas that are joined make up to {n_pairs} pairs to compare"
            remedy = f"the maximum is {MAX_PATTERN_PAIRS}; join some into one pattern"
            where = self.keyword_pointers["patternProperties"][0]
            raise keyword_error(where, "patternProperties", f"{reason}; {remedy}")

    def _count_required(self, names: Collection[str], position: _Position) -> None:
        """Count required names; too many add an error to `listed_only`."""
        n_before = len(self.required)
        self.required.update(names)
        if n_before <= MAX_REQUIRED < len(self.required):
            reason = f"the schema requires {len(self.required)} names so far; the maximum is {MAX_REQUIRED}"
            self.listed_only.append(keyword_error(position.pointer, "required", reason))

    @staticmethod
    def _count_keywords(schema: dict[str, Any], copy: dict[str, Any], position: _Position) -> dict[str, Any]:
        """Return keywords that bound the number of properties.

        If some of `properties` are optional, these are alternatives of present
        properties.
        """
        min_properties = count_of(schema, "minProperties", position.pointer, MAX_ITEMS) or 0
        max_properties = count_of(schema, "maxProperties", position.pointer, 2**31)
        required = frozenset(copy.get("required", ()))
        optional = [
            name for name, one in copy.get("properties", {}).items() if one is not False and name not in required
        ]
        if len(optional) > MAX_OPTIONAL:
            reason = f"{len(optional)} properties are optional; the maximum is {MAX_OPTIONAL}; require some"
            raise keyword_error(position.pointer, "properties", reason)
        is_open = copy.get("additionalProperties") is not False or bool(copy.get("patternProperties"))
        try:
            ways = count_alternatives(
                optional,
                len(required),
                min_properties,
                math.inf if max_properties is None else max_properties,
                is_open=is_open,
            )
        except InexpressibleError as error:
            keywords = [key for key in ("minProperties", "maxProperties") if key in schema]
            raise keyword_error(position.pointer, " or ".join(keywords), str(error)) from error
        if optional:
            return {"allOf": [{"anyOf": ways}]} if ways else {}
        counts = {"minProperties": min_properties} if min_properties > len(required) else {}
        return counts | ({} if max_properties is None else {"maxProperties": max_properties})

    def _copy_each(self, schema: dict[str, Any], keyword: str, position: _Position) -> dict[str, Schema]:
        """Copy the schemas under a keyword that maps names to schemas."""
        value = schema[keyword]
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise keyword_error(position.pointer, keyword, f"{clip_repr(value)}; expected an object of schemas")
        return {name: self.copy_one(one, position.at(keyword, name)) for name, one in value.items()}


def _max_decimals_of(schema: object) -> int:
    """Return the number of decimal places that `range_schemas` may use.

    Raises an error if the schema's own multiples are too large. llguidance 1.9
    intersects two schemas of numbers in 32 bits, and lets the product overflow: it
    treats all integers as multiples of both 641 and 6700417.
    """
    scales: set[int] = set()
    joins = False
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            joins |= not part.keys().isdisjoint(APPLICATORS[2:])
            value = part.get("multipleOf")
            if isinstance(value, int | float) and value > 0 and math.isfinite(value):
                scales.add(_scale(value))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    product = math.prod(scales) * max(scales, default=1)
    if joins and product > MAX_PRODUCT:
        values = ", ".join(map(str, sorted(scales)[-MAX_NAMED:]))
        raise keyword_error(
            "#", "multipleOf", f"{values}: these are too large to be combined by llguidance; use smaller ones"
        )
    max_decimals = RANGE_DECIMALS
    while max_decimals and product * 5 * 10**max_decimals > MAX_PRODUCT:
        max_decimals -= 1
    return max_decimals


def _scale(number: float) -> int:
    """Return the factor of a step in the product that llguidance computes.

    This is the number that the step's digits spell, times ten for each decimal place.
    """
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    return int("".join(map(str, digits))) * int(10 ** min(abs(int(exponent)), 400))


def _refuse_reference(reference: str) -> object:
    """Raise `InexpressibleError` for a reference below another `$id`."""
    raise InexpressibleError(f"{clip_repr(reference)} is below another $id")


def _draft_of(uri: object) -> int:
    """Return 4, 6, 7, 2019 or 2020 for a value of `$schema`."""
    draft = _DRAFT.fullmatch(uri) if isinstance(uri, str) else None
    if draft is None:
        drafts = "drafts 4, 6, 7, 2019-09 and 2020-12 of json-schema.org"
        raise keyword_error(
            "#", "$schema", f"{clip_repr(uri)} is not one of {drafts}, and other dialects are not supported"
        )
    return int(draft[1] or draft[2])
