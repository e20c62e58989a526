"""One layout of JSON: that of `json.dumps(value, ensure_ascii=False)`, and schemas whose few values are listed."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
from enum import Enum
from itertools import permutations, product

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from json_schemas import accepts, piece_vocabulary, walk
from selectrie.errors import GrammarError
from selectrie.grammar import Grammar
from selectrie.grammar.schema import finite
from selectrie.grammar.schema.finite import SchemaValidator
from selectrie.grammar.schema.normalize import copy_schema
from selectrie.grammar.schema.schema import ListedSchema, read_schema
from tests.support.n_examples import n_examples


def dumped(value, separators=None):
    return json.dumps(value, ensure_ascii=False, separators=separators)


def closed(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


BYTES = piece_vocabulary()
SIX = closed(["team", "urgent"], team={"enum": ["delivery", "returns", "account"]}, urgent={"type": "boolean"})


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (SIX, [{"team": team, "urgent": urgent} for team in ("delivery", "returns", "account") for urgent in (True, False)]),
        ({"const": {"b": [1, "é"], "a": None}}, [{"b": [1, "é"], "a": None}]),
        ({"enum": [1, "1", True, None, 1.0, 0.25, [], {}]}, [1, "1", True, None, 0.25, [], {}]),
        ({"enum": [1.0, 1, True], "type": "integer"}, [1]),
        ({"enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, [{"a": 1, "b": 2}]),
        ({"type": ["null", "boolean"]}, [None, True, False]),
        ({"type": "integer", "minimum": -1, "exclusiveMaximum": 2}, [-1, 0, 1]),
        ({"type": "integer", "minimum": 1, "maximum": 12, "multipleOf": 5}, [5, 10]),
        ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, [2, 3]),
        ({"type": "array", "items": {"enum": ["x", 2]}, "maxItems": 2}, [[], ["x"], [2], ["x", "x"], ["x", 2], [2, "x"], [2, 2]]),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2]]),
        ({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3}, [[1, 1], [1, 1, 1]]),
        (closed(["b"], a={"const": 1}, b={"const": 2}), [{"a": 1, "b": 2}, {"b": 2}]),
        ({**closed(a={"const": 1}, b={"const": 2}), "minProperties": 1, "maxProperties": 1}, [{"a": 1}, {"b": 2}]),
        ({"anyOf": [{"const": "a"}, {"enum": ["b", "a"]}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "null"}}}, ["a", "b", None]),
        ({"oneOf": [{"enum": [1, 1, 2]}, {"enum": [2, 3]}]}, [1, 3]),
        ({"enum": [1, 2, "x"], "minimum": 2}, [2, "x"]),
        ({"enum": ["a", "é", "bc", "\n", 3], "pattern": "^.$", "maxLength": 1}, ["a", "é", 3]),
        ({**closed(a={"type": "boolean"}, b={"const": 1}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
         [{"a": True, "b": 1}, {"a": True}, {"a": False, "b": 1}, {"a": False}, {"b": 1}]),
        ({"allOf": [{"enum": [3, 2, 1]}, {"type": "integer", "minimum": 2, "maximum": 9}]}, [3, 2]),
        ({"type": "array", "items": closed(["k"], k={"const": "v"}), "minItems": 2, "maxItems": 2}, [[{"k": "v"}, {"k": "v"}]]),
    ],
)  # fmt: skip
def test_finite_schemas_by_hand(schema, values):
    """Each value has one text, in the order in which the schema names them; `is_finite`, `count` and `expand` know them."""
    found = read_schema(schema)
    assert isinstance(found, ListedSchema)
    assert [json.loads(text) for text in found.texts] == values
    assert list(found.texts) == [dumped(value) for value in values]
    assert list(read_schema(schema, spacing="none").texts) == [dumped(value, (",", ":")) for value in values]
    grammar = Grammar.from_json_schema(schema)
    assert (grammar.is_finite, grammar.count()) == (True, len(values))
    assert sorted(grammar.expand()) == sorted(found.texts)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "integer", "minimum": 0},
        {"type": "array", "items": {"const": 1}},
        {"type": "object", "properties": {"a": {"const": 1}}},
        {"type": "object", "additionalProperties": {"const": 1}, "maxProperties": 1},
        {**closed(a={"const": 1}), "patternProperties": {"b": {"const": 1}}},
        closed(a={"anyOf": [{"type": "null"}, {"$ref": "#"}]}),
        closed(["a"], a={"const": 1}, b={"$ref": "#/$defs/deep"}) | {"$defs": {"deep": {"items": {"$ref": "#/$defs/deep"}}}},
        {"type": "integer", "minimum": 0, "maximum": 10**15},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 17, "maxItems": 17},
        closed([str(i) for i in range(17)], **{str(i): {"type": "boolean"} for i in range(17)}),
    ],
)  # fmt: skip
def test_other_schemas_are_not_listed(schema):
    """Infinite ones, those of more values than are listed, and those with a keyword that the listing does not read."""
    with contextlib.suppress(GrammarError):  # not carried over at all, or without texts
        assert not isinstance(read_schema(schema), ListedSchema)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_values_behind_many_references_are_not_listed(keyword):
    """Each of them takes two levels, of 64; the grammar is then llguidance's, of the same texts."""

    def chain(n):
        links = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(n)}
        return read_schema({"$ref": "#/$defs/d0", "$defs": {**links, f"d{n}": {"const": 1}}})

    assert chain(31).texts == ("1",)
    assert not isinstance(chain(33), ListedSchema)
    assert accepts(chain(33).automaton(BYTES), b"1")


WIDE = 2**53


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"type": "integer", "minimum": WIDE - 1, "maximum": WIDE + 1}, [WIDE - 1, WIDE, WIDE + 1]),
        ({"type": "integer", "minimum": -WIDE - 1, "exclusiveMaximum": 1 - WIDE}, [-WIDE - 1, -WIDE]),
        ({"type": "integer", "minimum": 10**400, "maximum": 10**400 + 1}, [10**400, 10**400 + 1]),
        ({"type": "integer", "exclusiveMinimum": WIDE, "maximum": WIDE + 5, "multipleOf": 3}, [WIDE + 1, WIDE + 4]),
        (
            {"type": "array", "items": {"type": "integer", "minimum": WIDE, "maximum": WIDE + 1}, "maxItems": 1},
            [[], [WIDE], [WIDE + 1]],
        ),
        ({"enum": [WIDE + 1, WIDE + 2, 3], "maximum": WIDE + 1}, [WIDE + 1, 3]),
        ({"const": {"id": 10**400}}, [{"id": 10**400}]),
        ({"allOf": [{"type": "integer", "minimum": 0, "maximum": 2**80}, {"enum": [2**80, 2**80 + 1]}]}, [2**80]),
    ],
    ids=str,
)  # fmt: skip
def test_whole_numbers_beyond_doubles_are_listed_exactly(schema, values):
    """A list spells every whole number, so none between the bounds is left out or rounded to its neighbour."""
    found = read_schema(schema)
    assert isinstance(found, ListedSchema)
    assert [json.loads(text) for text in found.texts] == values


@pytest.mark.short("*-9007199254740993", "*-1152921504606847488")
@pytest.mark.parametrize("bound", [WIDE + 1, WIDE + 2, 2**56, 2**56 + 1, 10**17, 2**60 + 2**9, 2**63 - 1, 2**63, 2**64])
@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_bounds_beyond_doubles_are_exact_or_refused(bound, kind, keyword, sign):
    """The grammar of infinitely many numbers ends at the very bound, or an error names keyword and place."""
    schema = {"type": "array", "items": {"type": kind, keyword: sign * bound}}
    try:
        grammar = Grammar.from_json_schema(schema)
    except GrammarError as error:
        message = str(error)
    else:
        message = ""
        validator = jsonschema.Draft202012Validator(schema)
        numbers = [sign * (bound + i) for i in (-1_000, -2, -1, 0, 1, 2, 1_000)]
        assert [bool(grammar.accepts(f"[{n}]")) for n in numbers] == [validator.is_valid([n]) for n in numbers]
    assert re.fullmatch(rf"({keyword} at #/items: .* use at most .*)?", message)


def test_what_is_exact_in_a_list_alone_is_refused_elsewhere():
    """A constant beyond 2**53 beside infinitely many values is an error, and the bound of 64-bit integers is held."""
    with pytest.raises(GrammarError, match=r"const at #/anyOf/0: 9007199254740993 is beyond 2\*\*53"):
        Grammar.from_json_schema({"anyOf": [{"const": WIDE + 1}, {"type": "string"}]})
    grammar = Grammar.from_json_schema({"type": "integer", "minimum": 0, "maximum": 2**63 - 1})
    assert [bool(grammar.accepts(str(n))) for n in (WIDE + 1, 2**63 - 1, 2**63)] == [True, True, False]


def test_the_limit_is_of_values_and_of_characters():
    """One hundred thousand values are listed and one more is not; chains of references that double a value stay cheap."""
    numbers = {"type": "integer", "minimum": 1, "maximum": finite.MAX_VALUES}
    assert len(read_schema(numbers).texts) == finite.MAX_VALUES
    assert not isinstance(read_schema({**numbers, "minimum": 0}), ListedSchema)
    twice = {
        f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, "items": False, "minItems": 2}
        for i in range(40)
    }
    doubled = {"$ref": "#/$defs/d0", "$defs": {**twice, "d40": {"const": 1}}}
    assert not isinstance(read_schema(doubled), ListedSchema)


def calls_of_listing(schema):
    """The texts of a schema, and how many calls of functions the listing took (resumed generators included)."""
    n_calls = 0

    def count(frame, event, _):
        nonlocal n_calls
        n_calls += event == "call" and "grammar/schema/" in frame.f_code.co_filename

    copy = copy_schema(schema)
    sys.setprofile(count)
    try:
        texts = finite.finite_texts(copy, (", ", ": "))
    finally:
        sys.setprofile(None)
    return texts, n_calls


def numbers_from(first, n):
    return list(range(first, first + n))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {"enum": numbers_from(0, n), "anyOf": [{"enum": numbers_from(1, n + 1)}]},
        lambda n: {"enum": numbers_from(0, n), "anyOf": [{"const": i} for i in numbers_from(1, n + 1)]},
        lambda n: {"allOf": [{"enum": [[i] for i in numbers_from(0, n)]}, {"items": {"enum": numbers_from(1, n)}}]},
    ],
    ids=["enum", "constants", "items"],
)
def test_constants_that_meet_are_listed_in_linear_time(make):
    """By calls: four times the constants take no more than about four times as many."""
    (small, few), (large, many) = (calls_of_listing(make(n)) for n in (100, 400))
    assert len(large) >= 4 * len(small) - 4
    assert many < 5 * few


def test_arrays_of_many_lengths_take_a_few_calls_for_each_length():
    """Beside two keys for each item; how many there are is not counted anew for every length."""
    n = 200
    texts, n_calls = calls_of_listing({"type": "array", "items": {"const": 1}, "maxItems": n})
    assert [len(json.loads(text)) for text in texts] == list(range(n + 1))
    assert n_calls < n * (n + 1) + 20 * n


def test_what_is_too_much_to_check_is_not_listed(monkeypatch):
    """Schemas inside arrays are looked at for each value, and after so many looks the listing is given up."""
    n = 50
    schema = {"allOf": [{"enum": [[i] for i in range(n)]}, {"items": {"anyOf": [{"const": i} for i in range(n)]}}]}
    assert len(finite.finite_texts(copy_schema(schema), (", ", ": "))) == n
    monkeypatch.setattr(finite, "MAX_LOOKS", n)
    assert finite.finite_texts(copy_schema(schema), (", ", ": ")) is None


class Half(Enum):
    WHOLE = 1.0
    HALF = 0.5


@pytest.mark.parametrize(
    ("made_of", "texts", "others"),
    [
        ({"const": [1.0]}, ["[1]"], ["[1.0]"]),
        ({"enum": [1.0, 2.5]}, ["1", "2.5"], ["1.0", "2.50"]),
        (list[Half], ["[1]", "[0.5, 1]"], ["[1.0]"]),
        ({"type": "number", "multipleOf": 2}, ["2"], ["2.0", "2e0"]),
        ({"type": "number"}, ["2", "2.0", "2.00", "2e0"], []),
        (dict[str, int], ['{"a": 1}', '{"a": 1, "a": 2}'], []),
    ],
    ids=["const", "enum", "Enum", "multipleOf", "number", "keys"],
)
def test_what_the_documentation_says_of_one_layout(made_of, texts, others):
    """Numbers without a fraction have one text where few values or whole numbers are asked for; free keys may come twice."""
    grammar = Grammar.from_json_schema(made_of) if isinstance(made_of, dict) else Grammar.from_type(made_of)
    assert [text for text in [*texts, *others] if grammar.accepts(text)] == texts


def test_an_explicit_route_is_taken():
    """Only `route="auto"` lists, and only where a value has one layout."""
    assert isinstance(read_schema(SIX), ListedSchema)
    for options in (
        {"route": "llguidance"},
        {"spacing": "optional"},
        {"spacing": "any"},
    ):
        assert not isinstance(read_schema(SIX, **options), ListedSchema)


ATOMS = [None, True, False, 0, 1, 2, "a", 0.5]
NAMES = ["a", "b"]
FLAT = [
    *ATOMS,
    *(list(items) for n in range(3) for items in product(ATOMS, repeat=n)),
    *(dict(zip(names, values, strict=True)) for n in range(3) for names in permutations(NAMES, n) for values in product(ATOMS, repeat=n)),
]  # fmt: skip
"""Every value of these atoms that is not nested twice, arrays of at most two items and objects of two names."""
ATOM_SCHEMAS = st.one_of(
    st.builds(lambda value: {"const": value}, st.sampled_from(ATOMS)),
    st.builds(lambda values: {"enum": values}, st.lists(st.sampled_from([*ATOMS, 1.0]), min_size=1, max_size=4)),
    st.builds(lambda low, n: {"type": "integer", "minimum": low, "maximum": low + n}, st.integers(0, 1), st.integers(-1, 1)),
    st.sampled_from([{"type": "null"}, {"type": ["null", "integer"], "minimum": 0, "maximum": 1}, {"$ref": "#/$defs/one"}, False]),
)  # fmt: skip


TESTS = [
    *({"minimum": 1}, {"exclusiveMaximum": 0.5}, {"multipleOf": 2}, {"maxLength": 0}, {"minLength": 1}, {"pattern": "^a|b$"}),
    *({"type": ["integer", "object"]}, {"items": {"type": "integer"}}, {"items": {"const": "a"}, "prefixItems": [True]}),
    *({"maxItems": 1}, {"minItems": 1}, {"required": ["a"]}, {"maxProperties": 1}, {"properties": {"a": {"enum": [1, "a"]}}}),
    *({"additionalProperties": {"type": "boolean"}}, {"properties": {"b": True}, "additionalProperties": False}),
    {"patternProperties": {"^a$": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
]  # fmt: skip
"""Schemas of infinitely many values."""


MORE = [
    *({"const": value} for value in ([1, True], {"a": 1.0, "b": None}, 2.0)),
    {"oneOf": [{"minimum": 1}, {"type": "integer"}]},
]


@pytest.mark.parametrize("schema", [*TESTS, *MORE], ids=str)
def test_a_value_is_checked_as_jsonschema_checks_it(schema):
    """Every value of these atoms, by a copied schema; a line end behind `$` is no end, as ECMA-262 has it."""
    copy, validator = copy_schema(schema), jsonschema.Draft202012Validator(schema)
    values = [*FLAT, 1.0, -2, "b", "ab", "b\n", [1, 1.0], {"a": 1.0, "b": None}, {"c": None}, {"ca": 1, "b": True}]
    wrong = [value for value in values if SchemaValidator(copy).allows(copy.root, value) != validator.is_valid(value)]
    assert wrong == (["b\n"] if "pattern" in schema else [])


def any_of_them(inner):
    """Schemas of one of these, or of several side by side."""
    lists = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda parts: {"anyOf": parts}, lists),
        st.builds(lambda parts: {"oneOf": parts}, lists),
        st.builds(lambda parts: {"allOf": parts}, lists),
        st.builds(lambda one, test: {"allOf": [test, one]}, inner, st.sampled_from(TESTS)),
        st.builds(lambda one, kind: {**one, "type": kind} if isinstance(one, dict) and "enum" in one else one, inner, st.sampled_from(["integer", "array"])),
    )  # fmt: skip


@st.composite
def structures(draw, inner):
    """Bounded arrays and closed objects of these."""
    if draw(st.booleans()):
        most = draw(st.integers(0, 2))
        array = {"type": "array", "items": draw(inner), "maxItems": most, "minItems": draw(st.integers(0, most))}
        return {**array, "prefixItems": [draw(inner)]} if draw(st.booleans()) else array
    properties = draw(st.permutations([(name, draw(inner)) for name in NAMES]))[: draw(st.integers(0, 2))]
    made = closed(draw(st.lists(st.sampled_from(NAMES), max_size=1)), **dict(properties))
    return {**made, "maxProperties": draw(st.integers(0, 2))} if draw(st.booleans()) else made


FINITE = st.one_of(
    ATOM_SCHEMAS, structures(ATOM_SCHEMAS), any_of_them(ATOM_SCHEMAS), any_of_them(structures(ATOM_SCHEMAS))
)
DEEP = st.recursive(ATOM_SCHEMAS, lambda inner: structures(inner) | any_of_them(inner), max_leaves=5)
ONE = {"enum": ["a", 0, None], "type": ["string", "integer"]}


def key(value):
    """Equal for the same value of JSON."""
    if isinstance(value, dict):
        return frozenset((name, key(one)) for name, one in value.items())
    return tuple(map(key, value)) if isinstance(value, list) else (isinstance(value, bool), value)


def texts_of(schema):
    """The texts that are listed; none where the schema is not, which may only be for want of any."""
    try:
        found = read_schema(schema)
    except GrammarError:
        return ()
    return found.texts if isinstance(found, ListedSchema) else ()


def check_against_every_value(schema):
    """The slow twin: every value there is, asked of `jsonschema` one by one."""
    schema = {**schema, "$defs": {"one": ONE}} if isinstance(schema, dict) else schema
    valid = {key(value) for value in FLAT if jsonschema.Draft202012Validator(schema).is_valid(value)}
    values = [json.loads(text) for text in texts_of(schema)]
    assert len({key(value) for value in values}) == len(values)
    assert {key(value) for value in values} == valid
    assert [dumped(value) for value in values] == list(texts_of(schema))


@settings(max_examples=n_examples(64))  # a sweep draws 3 000
@given(schema=FINITE)
def test_what_is_listed_is_every_valid_value_once(schema):
    """By `jsonschema`, among all values that such schemas can have."""
    check_against_every_value(schema)


@settings(max_examples=n_examples(60))
@given(schema=DEEP)
def test_what_is_listed_is_valid_and_what_llguidance_has(schema):
    """Of schemas nested deeper: no text is invalid, none twice, and whatever llguidance writes is one of them."""
    schema = {**schema, "$defs": {"one": ONE}} if isinstance(schema, dict) else schema
    texts = texts_of(schema)
    values = [json.loads(text) for text in texts]
    assert all(map(jsonschema.Draft202012Validator(schema).is_valid, values))
    known = {key(value) for value in values}
    assert len(known) == len(values)
    try:
        automaton = read_schema(schema, route="llguidance").automaton(BYTES)
    except GrammarError:
        assume(False)  # it has no texts, or llguidance cannot tell the parts of a `oneOf` apart
    rng = random.Random(0)
    drawn = [walk(automaton, BYTES, rng) for _ in range(5)]
    assert {key(json.loads(text)) for text in drawn if text is not None} <= known


LETTERS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t\r\b\f"), max_size=4)
KEYS = ["b", "a", 'q"', "é", "x, y: z"]


@st.composite
def schemas_with_values(draw, texts, numbers, depth=2):
    """A schema, and a strategy of its values, keys in the order declared."""
    kind = draw(
        st.sampled_from(["string", "number", "integer", "enum", "array", "object", "anyOf"][: 7 if depth else 4])
    )
    plain = {"string": texts, "number": numbers, "integer": st.integers(-(10**6), 10**6)}
    if kind in plain:
        return {"type": kind}, plain[kind]
    if kind == "enum":
        values = draw(
            st.lists(st.sampled_from([True, None, 7, -0.5, "a", "x, y: z"]), min_size=1, max_size=3, unique_by=repr)
        )
        return {"enum": values}, st.sampled_from(values)
    inner = [draw(schemas_with_values(texts, numbers, depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if kind == "anyOf":
        return {"anyOf": [schema for schema, _ in inner]}, st.one_of([values for _, values in inner])
    if kind == "array":
        return {"type": "array", "items": inner[0][0]}, st.lists(inner[0][1], max_size=3)
    names = draw(st.permutations(KEYS))[: len(inner)]
    required = [name for name in names if draw(st.booleans())]
    parts = dict(zip(names, inner, strict=True))
    optional = st.sets(st.sampled_from(names))
    values = st.builds(
        lambda made, kept: {name: made[name] for name in names if name in required or name in kept},
        st.fixed_dictionaries({name: one for name, (_, one) in parts.items()}),
        optional,
    )
    return closed(required, **{name: schema for name, (schema, _) in parts.items()}), values


def layouts(value):
    """The same value with other blanks."""
    others = {dumped(value, pair) for pair in [(",", ":"), (", ", ":"), (",", ": "), (" , ", " : ")]}
    others |= {json.dumps(value, ensure_ascii=False, indent=1), " " + dumped(value), dumped(value) + " "}
    return others - {dumped(value)}


def check_the_layout(data, route, texts, numbers):
    """A value's text is what `json.dumps` makes of it, and no text has other blanks."""
    schema, values = data.draw(schemas_with_values(texts, numbers))
    grammar = Grammar.from_json_schema(schema, route=route)
    value = data.draw(values)
    assert grammar.accepts(dumped(value)), (schema, value)
    assert [text for text in layouts(value) if grammar.accepts(text)] == []


@pytest.mark.parametrize("route", ["auto", "llguidance"])
@settings(max_examples=n_examples(32))
@given(data=st.data())
def test_a_value_is_written_as_json_dumps_writes_it(route, data):
    """By llguidance, whose strings hold no character that JSON writes by number alone."""
    check_the_layout(data, route, LETTERS, st.floats(allow_nan=False, allow_infinity=False))


def test_a_character_has_one_spelling():
    """That of `json.dumps`; llguidance has none for those that JSON spells by number alone, nor for U+007F."""
    strings = read_schema({"type": "string"}).automaton(BYTES)
    for code in [*range(0x81), 0xE9, 0x2028, 0x1F600]:
        character = chr(code)
        spellings = {f'"\\u{code:04x}"', f'"\\u{code:04X}"', dumped(character), dumped(character).replace("/", "\\/")}
        has_one = not (character < " " or code == 0x7F) or character in "\n\r\t\b\f"
        assert [text for text in spellings if accepts(strings, text.encode())] == [dumped(character)] * has_one


@pytest.mark.long
@settings(max_examples=3_000)
@given(schema=FINITE)
def test_what_is_listed_is_every_valid_value_of_very_many_schemas(schema):
    """As above, and more of them."""
    check_against_every_value(schema)


@pytest.mark.long
@settings(max_examples=1_500)
@given(data=st.data())
def test_very_many_values_are_written_as_json_dumps_writes_them(data):
    """As above, and more of them."""
    check_the_layout(data, "auto", LETTERS, st.floats(allow_nan=False, allow_infinity=False))


def test_numbers_keep_every_decimal_spelling():
    """What a number is cut into is the model's to say: 0.90 stands beside 0.9."""
    number = Grammar.from_json_schema({"type": "number"})
    assert [text for text in ("0.9", "0.90", "9e-1", "1", "1.0", "01", ".9") if number.accepts(text)] == [
        "0.9",
        "0.90",
        "9e-1",
        "1",
        "1.0",
    ]


def test_json_dumps_is_the_default_layout():
    """Of schemas, by whatever holds them."""
    schema = closed(["a"], a={"type": "array", "items": {"type": "integer"}})
    grammar = Grammar.from_json_schema(schema)
    assert grammar.accepts('{"a": [1, 2]}')
    assert [text for text in layouts({"a": [1, 2]}) if grammar.accepts(text)] == []
