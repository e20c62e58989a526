"""The opposite of a schema, and schemas that are apart: what jsonschema says of values."""

from __future__ import annotations

import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.grammar.schema.logic import MAX_LOOKS, MAX_STEPS, InexpressibleError, Logic, other_strings
from tests.support.n_examples import n_examples
from tests.support.schema_strategies import NUMBERS, STRINGS

READERS = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}
NAMES = st.sampled_from(["a", "b"])
LEAVES = st.none() | st.booleans() | NUMBERS | STRINGS | st.just([]) | st.just({})
VALUES = LEAVES | st.dictionaries(NAMES, LEAVES | st.dictionaries(NAMES, LEAVES, max_size=1), max_size=2)
VALUES |= st.lists(LEAVES, max_size=3)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNTS = st.integers(0, 3)


def keywords(inner):
    """Up to three keywords whose opposites may be said, in any order."""
    each = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(LEAVES, min_size=1, max_size=3),
        "const": LEAVES,
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMinimum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "additionalProperties": st.booleans(),
        "not": inner,
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "$ref": st.sampled_from(["#/$defs/one", "#/$defs/two"]),
        "title": st.just("x"),
    }
    return st.lists(st.sampled_from(sorted(each)), min_size=1, max_size=3, unique=True).flatmap(
        lambda keys: st.fixed_dictionaries({key: each[key] for key in keys})
    )


SCHEMAS = st.recursive(keywords(st.booleans()), keywords, max_leaves=5)
DEFINITIONS = st.fixed_dictionaries({"one": SCHEMAS, "two": SCHEMAS})


def for_draft(schema, draft):
    """Exclusive bounds are booleans in draft 4."""
    if isinstance(schema, list):
        return [for_draft(one, draft) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: for_draft(value, draft) for key, value in schema.items()}
    if draft == 4:
        for exclusive in ("exclusiveMinimum", "exclusiveMaximum"):
            if exclusive in made and not isinstance(made[exclusive], dict):
                made[exclusive] = bool(made[exclusive])
                made.setdefault(exclusive.replace("exclusiveM", "m"), 1)
    return made


def without_bools(schema):
    """Booleans are no schemas in draft 4."""
    if isinstance(schema, list):
        return [without_bools(one) for one in schema]
    if not isinstance(schema, dict):
        return {} if schema is True else {"not": {}} if schema is False else schema
    plain = ("const", "enum", "exclusiveMinimum", "exclusiveMaximum", "additionalProperties", "required", "title")
    return {key: value if key in plain else without_bools(value) for key, value in schema.items()}


def reader(schema, definitions, draft):
    """Is a value valid? None where jsonschema goes round in circles."""
    whole = {"allOf": [schema], "$defs": definitions}
    validator = READERS[draft](without_bools(whole) if draft == 4 else whole)

    def is_valid(value):
        try:
            return validator.is_valid(value)
        except RecursionError:
            return None

    return is_valid


def logic_of(definitions, draft):
    return Logic(lambda reference: definitions[reference.rpartition("/")[2]], draft)


@st.composite
def cases(draw):
    draft = draw(st.sampled_from(sorted(READERS)))
    parts = draw(SCHEMAS), draw(SCHEMAS), draw(DEFINITIONS)
    return draft, *(for_draft(part, draft) for part in parts), draw(st.lists(VALUES, min_size=5, max_size=15))


def check_opposite(case):
    draft, schema, _, definitions, values = case
    try:
        opposite = logic_of(definitions, draft).negate(schema)
    except InexpressibleError:
        return
    before, after = reader(schema, definitions, draft), reader(opposite, definitions, draft)
    for value in values:
        if before(value) is not None and after(value) is not None:
            assert after(value) is not before(value), value


def check_apart(case):
    draft, one, other, definitions, values = case
    if logic_of(definitions, draft).are_disjoint(one, other):
        readers = [reader(each, definitions, draft) for each in (one, other)]
        assert not [value for value in values if all(each(value) for each in readers)]


@settings(max_examples=n_examples(64))  # a sweep draws 5 000
@given(case=cases())
def test_an_opposite_refuses_what_the_schema_allows_and_nothing_else(case):
    """By jsonschema, in every draft."""
    check_opposite(case)


@settings(max_examples=n_examples(64))  # a sweep draws 5 000
@given(case=cases())
def test_no_value_is_of_two_schemas_that_are_apart(case):
    """By jsonschema, in every draft."""
    check_apart(case)


@pytest.mark.long
@settings(max_examples=5_000)
@given(case=cases())
def test_opposites_and_schemas_apart_very_often(case):
    """As above, and more of them."""
    check_opposite(case)
    check_apart(case)


KIND = {kind: {"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in ("a", "b")}


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (KIND["a"], KIND["b"], False),  # no object at all is of both
        ({"type": "object", **KIND["a"]}, KIND["b"], True),
        (
            {"type": "object", "required": ["a"]},
            {"type": "object", "properties": {}, "additionalProperties": False},
            True,
        ),
        ({"maximum": 4, "type": "number"}, {"minimum": 5}, True),
        ({"exclusiveMaximum": 5, "type": "number"}, {"minimum": 5}, True),
        ({"maximum": 5, "type": "number"}, {"minimum": 5}, False),
        ({"enum": [1, "a"]}, {"const": 1.0}, False),
        ({"enum": [1, "a"]}, {"enum": [True, "b"]}, True),
        ({"type": "string", "maxLength": 2}, {"minLength": 3}, True),
        ({"$ref": "#/$defs/a"}, {"type": "string"}, True),
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, {"type": "string"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        (
            {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
            {"properties": {"a": {"minimum": 3}}},
            False,
        ),
    ],
)
def test_schemas_apart_by_hand(one, other, apart):
    """Either way round."""
    logic = logic_of({"a": {"type": "integer"}}, 2020)
    assert logic.are_disjoint(one, other) is logic.are_disjoint(other, one) is apart


@pytest.mark.parametrize(("draft", "apart"), [(4, True), (6, False)])
def test_a_bound_that_is_exclusive_by_a_boolean_is_one_in_draft_4_alone(draft, apart):
    """Below 5, and 5 or more; later drafts say the bound itself."""
    below, above = {"type": "number", "maximum": 5, "exclusiveMaximum": True}, {"minimum": 5}
    assert logic_of({}, draft).are_disjoint(below, above) is apart


def test_nothing_is_proved_once_the_looks_are_used_up():
    """The last pair that is looked at may still be told apart."""
    for left, apart in ((1, True), (0, False)):
        logic = logic_of({}, 2020)
        logic.looks = MAX_LOOKS - left
        assert logic.are_disjoint({"type": "null"}, {"type": "string"}) is apart


NESTED = {
    "allOf": lambda inner: {"allOf": [inner]},
    "anyOf": lambda inner: {"anyOf": [inner]},
    "properties": lambda inner: {"properties": {"a": inner}},
}


@pytest.mark.parametrize("keyword", NESTED)
def test_an_opposite_goes_down_a_number_of_levels(keyword):
    """One more is refused, so that schemas that refer to themselves come to an end."""
    schema = {"type": "null"}
    for _ in range(MAX_STEPS - 1):
        schema = NESTED[keyword](schema)
    assert logic_of({}, 2020).negate(schema)
    with pytest.raises(InexpressibleError, match="nested too deeply"):
        logic_of({}, 2020).negate(NESTED[keyword](schema))


@pytest.mark.parametrize("draft", READERS)
@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [None, False]},
        {"const": 1},
        {"enum": ["a", 1, []]},
        {"required": ["a"]},
        {"properties": {"a": {"const": 1}}},
    ],
)
def test_opposites_by_hand(schema, draft):
    """`const` means nothing in draft 4, and is not used to say an opposite there."""
    check_opposite((draft, schema, True, {}, [None, True, False, 1, 1.0, 2, "a", "", [], [1], {}, {"a": 1}, {"a": 2}]))


@given(
    texts=st.lists(st.text("ab\u00e9\\]^-\n", max_size=3), min_size=1, max_size=5),
    tried=st.text("ab\u00e9\\]^-\n", max_size=4),
)
def test_a_pattern_of_all_other_texts(texts, tried):
    """It matches what is none of them, whatever they hold."""
    pattern = other_strings(texts)
    for text in (*texts, tried, *(text + "a" for text in texts), *(text[:-1] for text in texts)):
        assert bool(re.search(pattern.replace("$", r"\Z"), text)) is (text not in texts)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "a"},
        {"type": "integer"},
        {"format": "date"},
        {"items": {}},
        {"const": {"a": 1}},
        {"oneOf": [{}]},
        {"contains": {}},
    ],
)
def test_what_has_no_opposite_is_refused(schema):
    """Rather than said in part."""
    with pytest.raises(InexpressibleError):
        logic_of({}, 2020).negate(schema)
