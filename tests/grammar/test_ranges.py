"""Bounds of numbers: every short decimal inside them is a text, and none is outside."""

from __future__ import annotations

import json
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_schemas import accepts, automaton_of, piece_vocabulary
from selectrie import Grammar
from selectrie.errors import GrammarError
from selectrie.grammar.schema.keywords import RANGE_DECIMALS, range_schemas
from tests.support.n_examples import n_examples

BYTES = piece_vocabulary()
LIMITS = st.one_of(
    st.sampled_from([0, 1, -1, 5, 10, 0.5, 0.95, -0.95, 0.105, -0.105, 10.25, 99.9, 110, 2.5e-05, 1e-12, 0.999999999]),
    st.decimals(-120, 120, places=3).map(float),
)


def verdicts(schema, texts):
    """Those of the texts that are of the schema."""
    automaton = automaton_of(schema, BYTES)
    return [text for text in texts if accepts(automaton, text.encode())]


@st.composite
def bounds(draw):
    """Keywords of a lower bound, an upper one, or both in order."""
    low, high = sorted((draw(LIMITS), draw(LIMITS)))
    made = {}
    if draw(st.booleans()) or draw(st.booleans()):
        made[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()) or not made:
        made[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high
    return made


@st.composite
def decimals_near(draw, limits):
    """The spelling of a decimal with at most six places, close to one of the limits, or anywhere."""
    step = Decimal(1).scaleb(-draw(st.integers(0, RANGE_DECIMALS)))
    near = Decimal(repr(draw(st.sampled_from([*limits, 0]))))
    found = near.quantize(step, rounding=draw(st.sampled_from([ROUND_FLOOR, ROUND_CEILING])))
    found += step * draw(st.sampled_from([0, 0, 1, -1, 2, -2]) | st.integers(-(10**6), 10**6))
    spelled = f"{found:f}"
    return spelled.removeprefix("-") if found == 0 else spelled  # zero is spelled without a sign


def is_inside(number, made):
    """Is a number inside the bounds? By comparing."""
    return (
        number >= made.get("minimum", -1e300)
        and number > made.get("exclusiveMinimum", -1e300)
        and number <= made.get("maximum", 1e300)
        and number < made.get("exclusiveMaximum", 1e300)
    )


def check_bounds(made, texts):
    schema = {"type": "number", **made}
    exact = {key: Decimal(repr(value)) for key, value in made.items()}
    inside = [text for text in texts if is_inside(Decimal(text), exact)]
    try:
        taken = verdicts(schema, texts)
    except GrammarError:
        assert not inside  # the bounds hold no number
        return
    assert taken == inside
    assert all(is_inside(float(text), made) for text in taken)


@settings(max_examples=n_examples(32))  # a sweep draws 3 000
@given(data=st.data(), made=bounds())
def test_short_decimals_are_texts_where_they_are_inside(data, made):
    """Trailing zeros included; what is outside, read as a double or exactly, is none."""
    check_bounds(made, data.draw(st.lists(decimals_near([*made.values()]), min_size=10, max_size=30)))


@pytest.mark.long
@settings(max_examples=3_000)
@given(data=st.data(), made=bounds())
def test_short_decimals_are_texts_where_they_are_inside_very_often(data, made):
    """As above, and more of them."""
    check_bounds(made, data.draw(st.lists(decimals_near([*made.values()]), min_size=10, max_size=30)))


@pytest.mark.parametrize(
    ("made", "inside", "outside"),
    [
        (
            {"minimum": 0, "exclusiveMaximum": 1},
            ["0.8", "0.9", "0.90", "0.99", "0.999", "0.99999999"],
            ["1", "1.0", "0.99999999999999999999"],
        ),
        ({"exclusiveMaximum": 5}, ["4.9", "4.99", "-4.10", "-0.50"], ["5", "5.0", "4.99999999999999999999"]),
        ({"exclusiveMaximum": 110}, ["109.9"], ["110", "110.0"]),
        ({"exclusiveMinimum": -1}, ["-0.99", "-0.990", "0", "0.0"], ["-1", "-1.0"]),
        ({"maximum": 0.95, "minimum": 0}, ["0.9", "0.95", "0.950"], ["0.951", "0.9501"]),
        ({"minimum": 0.1, "maximum": 0.105}, ["0.1", "0.10", "0.105", "0.1050"], ["0.11", "0.09", "0.106"]),
        ({"minimum": 5, "maximum": 5}, ["5", "5.0", "5.00"], ["5.1", "4.9"]),
        ({"maximum": 0}, ["0", "0.0", "-0.10"], ["0.1", "0.01"]),
        ({"exclusiveMinimum": 0}, ["0.000000000001", "1"], ["0", "0.0", "-1"]),
        ({"exclusiveMaximum": 0}, ["-0.000000000001", "-1"], ["0", "0.0", "1"]),
    ],
)
def test_bounds_by_hand(made, inside, outside):
    """What llguidance 1.9 loses is there, and nothing else is."""
    assert verdicts({"type": "number", **made}, inside + outside) == inside


def test_whole_numbers_start_inside_a_bound_with_a_fraction():
    """At 2 above 1.5, and at -2 below it."""
    assert verdicts({"type": "integer", "minimum": 1.5}, ["1", "2", "1.5"]) == ["2"]
    assert verdicts({"type": "integer", "maximum": -1.5}, ["-1", "-2", "-1.5"]) == ["-2"]


def test_other_types_beside_bounds_stay():
    """Bounds are about numbers alone."""
    texts = ["0.9", '"a"', "null", "[1]", "7"]
    assert verdicts({"exclusiveMaximum": 1}, texts) == texts[:4]
    assert verdicts({"type": ["string", "number"], "exclusiveMaximum": 1, "pattern": "a"}, texts) == texts[:2]


def test_multiples_that_llguidance_would_multiply_beyond_32_bits_are_refused():
    """Products run over: it takes the integers that are multiples of 641 and of 6700417 for all integers."""
    schema = {"allOf": [{"type": "integer", "multipleOf": 64_100}, {"multipleOf": 67_001}]}
    with pytest.raises(GrammarError, match="multipleOf at #: 64100, 67001: these are too large"):
        verdicts(schema, ["1"])
    assert verdicts({"type": "integer", "multipleOf": 99_999}, ["1", "99999"]) == ["99999"]


def test_a_multiple_whose_grammar_would_take_minutes_is_refused():
    """A state for each remainder: 6700417 took llguidance 270 s."""
    with pytest.raises(GrammarError, match="multipleOf at #: 6700417 is more than a grammar can spell out"):
        verdicts({"type": "integer", "multipleOf": 6700417}, ["1"])


def test_ranges_beside_a_large_multiple_have_fewer_places():
    """Their steps are multiples, too, and must not run over 32 bits with those of the schema."""
    schema = {"allOf": [{"maximum": 0.95}, {"type": "number", "minimum": -100_000, "multipleOf": 20_000}]}
    texts = ["0", "20000", "-20000", "-40000", "-1", "-30000", "0.5", "-100000"]
    assert verdicts(schema, texts) == ["0", "-20000", "-40000", "-100000"]


def test_a_range_has_few_pieces():
    """A piece for each count of places, or less."""
    assert range_schemas(0, 1) == [{"type": "number", "minimum": 0, "maximum": 1}]
    assert len(range_schemas(-1, 1)) == 2
    assert len(range_schemas(-0.123456, 0.123456)) < 2 * RANGE_DECIMALS + 3
    assert len(json.dumps(range_schemas(-0.999999999999999, 0.999999999999999))) < 2_000


@pytest.mark.parametrize("low", [10**14 - 7, 10**15 - 2, 10**15 + 4, 2**53 - 12, 2**53 - 7, -(10**15) - 9])
@pytest.mark.parametrize("but", [0, 2, 5])
def test_whole_numbers_of_many_digits_but_one_are_listed(low, but):
    """What is left out of a range of integers parts it into ranges of numbers, whose bounds of 16 digits are whole too."""
    high, left_out = low + 12, low + but
    grammar = Grammar.from_json_schema({"type": "integer", "minimum": low, "maximum": high, "not": {"const": left_out}})
    assert sorted(map(int, grammar.expand(20))) == [one for one in range(low, high + 1) if one != left_out]
