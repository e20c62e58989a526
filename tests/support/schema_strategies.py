"""Schemas made by hypothesis: of keywords that grammars carry over, side by side as nobody would write them."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "ab", "x-a", "é", 'q"', "a/b", "1", ""])
STRINGS = st.sampled_from(["", "a", "b", "ab", "é", "1", 'q"', "\n", "aa"])
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 10, 1.0, 0.5, -2.5, 100, 1e-3])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=3,
)
PATTERNS = st.sampled_from(
    ["^a", "a$", "^a$", "^[ab]+$", "b", "^x-", r"^\w*$", r"\d", "^.$", "a|b", "(^a|b)c?$", r"^\S+$", ".*"]
)
FORMATS = st.sampled_from(["date", "ipv4", "uuid", "email", "json-pointer", "uri", "date-time", "own"])
NAMED = st.booleans() | st.fixed_dictionaries({"pattern": PATTERNS})
NAMED |= st.fixed_dictionaries({"enum": st.lists(NAMES, max_size=2)}) | st.fixed_dictionaries(
    {"maxLength": st.integers(0, 3)}
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNTS = st.integers(0, 3)


def keywords(inner):
    """One dictionary of keywords, any of which may be missing."""
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 3, 10, 0.1, 0.25, 1.5, 0.01]),
            "minLength": COUNTS,
            "maxLength": COUNTS,
            "pattern": PATTERNS,
            "format": FORMATS,
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": COUNTS,
            "maxItems": COUNTS,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": inner,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "minProperties": st.integers(0, 2),
            "maxProperties": COUNTS,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "uniqueItems": st.booleans(),
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
            "propertyNames": NAMED,
            "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two", "#"]),
        },
    )


@st.composite
def few(draw, inner):
    """At most five keywords, in any order: the more there are, the less is left to produce."""
    made = draw(keywords(inner))
    kept = draw(st.permutations(sorted(made)))[: draw(st.integers(1, 5))]
    return {key: made[key] for key in kept}


SCHEMAS = st.recursive(st.booleans() | few(st.booleans()), few, max_leaves=6)


@st.composite
def whole_schemas(draw):
    """A schema with two definitions that it may refer to."""
    root = draw(few(SCHEMAS))
    return {**root, "$defs": {"one": draw(SCHEMAS), "two": draw(SCHEMAS)}}
