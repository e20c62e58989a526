"""What stands in many places of a schema or a type is not followed for ever: a grammar or an error, in bounded steps."""

from __future__ import annotations

import pytest

from selectrie.errors import GrammarError
from selectrie.grammar import Grammar
from selectrie.grammar.readers import types
from selectrie.grammar.schema import finite, normalize
from selectrie.grammar.schema.logic import MAX_LOOKS, Logic

DEPTH = 40


def shared(make):
    """A schema in which one object stands in 2**40 places."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for _ in range(DEPTH):
        schema = make(schema)
    return schema


def chained(make, last):
    """Forty definitions, each of which refers to the next one twice."""
    definitions = {f"d{i}": make({"$ref": f"#/$defs/d{i + 1}"}) for i in range(DEPTH)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{DEPTH}": last}}


@pytest.mark.parametrize(
    "make",
    [
        lambda one: {"anyOf": [one, one]},
        lambda one: {"allOf": [one, one]},
        lambda one: {"oneOf": [one, one]},
        lambda one: {"type": "object", "properties": {"a": one, "b": one}},
        lambda one: {"type": "array", "prefixItems": [one, one]},
        lambda one: {"if": one, "then": one},
    ],
)
def test_a_shared_object_is_counted_as_often_as_it_stands_there(make):
    """Forty levels of two are refused before they are written out, with what to do."""
    with pytest.raises(GrammarError, match=r"more than 1000000 values.*once under \$defs"):
        Grammar.from_json_schema(shared(make))


@pytest.mark.parametrize(
    ("make", "last", "text"),
    [
        (lambda one: {"anyOf": [one, one]}, {"const": 1}, "1"),
        (lambda one: {"allOf": [one, one]}, {"const": 1}, "1"),
        (lambda one: {"anyOf": [one, one]}, {"type": "string"}, '"a"'),
    ],
)
def test_definitions_that_refer_twice_are_read_once(make, last, text):
    """2**40 ways to the same value are one grammar."""
    assert Grammar.from_json_schema(chained(make, last)).accepts(text)


def test_values_that_are_listed_over_and_over_are_not_listed(monkeypatch):
    """Three values through 2**40 ways are given up after so many, as an infinite schema is."""
    monkeypatch.setattr(finite, "MAX_LISTED", 10_000)
    copy = normalize.copy_schema(chained(lambda one: {"allOf": [one, one]}, {"enum": [1, 2, 3]}))
    assert finite.finite_texts(copy, (", ", ": ")) is None


@pytest.mark.parametrize("key", ["oneOf", "allOf"])
def test_logic_looks_at_so_many_pairs_and_no_more(key, monkeypatch):
    """What it has not looked at it claims nothing of."""
    monkeypatch.setattr(normalize, "MAX_LOOKS", 2_000)
    monkeypatch.setattr(normalize, "MAX_LOOKS_PER_POSITION", 500)
    monkeypatch.setattr("selectrie.grammar.schema.logic.MAX_LOOKS", 500)
    made = chained(lambda one: {key: [one] * 10}, {"type": "string", "minLength": 3})
    schema = {"oneOf": [made.pop("$ref") and {"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}], **made}
    with pytest.raises(GrammarError):
        Grammar.from_json_schema(schema)


def test_parts_of_all_of_are_bounded():
    """Sixteen levels of ten are not 10**16 parts."""
    definitions = {f"d{i}": {"allOf": [{"$ref": f"d{i + 1}"}] * 10} for i in range(20)}
    logic = Logic(lambda name: definitions.get(name, {"type": "string"}), 2020)
    assert len(logic.parts({"$ref": "d0"}, 16)) <= 12 * MAX_LOOKS
    assert logic.are_disjoint({"$ref": "d0"}, {"type": "number"}) is False


def test_a_schema_that_grows_when_it_is_written_out_is_refused(monkeypatch):
    """`oneOf` that is written as choices of opposites copies what is inside it again at each level."""
    monkeypatch.setattr(normalize, "MAX_SCHEMAS", 1_000)
    with pytest.raises(GrammarError, match="more than 1000 schemas"):
        Grammar.from_json_schema({"anyOf": [{"type": "string"}] * 1_001})


def test_a_type_in_many_places_of_another_is_refused():
    """Forty tuples of two, of one type, are more than can be hashed."""
    kind = int
    for _ in range(DEPTH):
        kind = tuple[kind, kind]
    with pytest.raises(GrammarError, match="more than 100000 types"):
        Grammar.from_type(kind)
    with pytest.raises(GrammarError, match="more than 100000 types"):
        types.check_size(dict[str, list[kind] | None])
    types.check_size(tuple[tuple[int, ...], dict[str, list[int]]])
