"""JSON Schema as a grammar: every text valid, and what cannot be carried over refused by name."""

from __future__ import annotations

import ipaddress
import json
import pickle
import random
import re
from datetime import date, datetime, time
from itertools import combinations, product
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import json_schemas
from json_schemas import (
    Case,
    Tally,
    accepts,
    automaton_of,
    examine,
    is_valid,
    piece_vocabulary,
    real_cases,
    suite_cases,
    validator_of,
    walk,
)
from selectrie.errors import GrammarError, OptionError
from selectrie.grammar import Grammar
from selectrie.grammar.llguidance import check_guidance
from selectrie.grammar.readers.model_schemas import FORMATS
from selectrie.grammar.schema import finite, normalize, schema
from selectrie.grammar.schema.patterns import PatternError, rewrite_name, rewrite_pattern
from selectrie.grammar.schema.schema import read_schema
from tests.support.n_examples import n_examples
from tests.support.schema_strategies import whole_schemas
from tests.support.vocabularies import vocabulary_of

BYTES = piece_vocabulary()
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "likes": {"type": "array", "items": {"enum": ["a", 2]}},
    },
    "required": ["name"],
    "additionalProperties": False,
}

HOLES = [
    ({"properties": {"a": {"type": "integer"}}}, '{"\\u0061":"x"}'),
    ({"patternProperties": {"^a": {"type": "integer"}}}, '{"\\u0061":"x"}'),
    ({"minProperties": 2, "type": "object"}, '{"a":1,"a":1}'),
    ({"const": 9007199254740993}, "9007199254740992"),
    ({"const": "a\u0000b"}, '"ab"'),
    ({"type": "string", "pattern": "^a\\u0001b$"}, '"ab"'),
    ({"type": "string", "format": "date"}, '"2023-02-29"'),
    ({"type": "number", "minimum": -0.9999999999999999}, "-1"),
    ({"type": "number", "exclusiveMaximum": 10}, "9.99999999999999999999"),
    ({"type": "string", "pattern": "^.$"}, '"\u2028"'),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"type": "integer"}],
            "allOf": [{}],
            "additionalItems": {"type": "integer"},
        },
        '[1,"x"]',
    ),
]
"""Schemas, and texts that llguidance accepts for them as they stand: invalid ones, the last but one to ECMA-262."""


def automaton(any_schema):
    return automaton_of(any_schema, BYTES)


def _named(name, schema):
    return {"properties": {name: schema}}


def verdicts(any_schema, texts):
    machine = automaton(any_schema)
    return [text for text in texts if accepts(machine, text.encode())]


def test_a_schema_by_hand():
    """Properties in order, those that are not required may miss, and nothing else."""
    texts = [
        *(
            '{"name":"x"}',
            '{"name":"é","age":-3}',
            '{"name": "", "age": 0, "likes": ["a", 2]}',
            '{"name":"x","likes":[]}',
        ),
        *(
            "{}",
            '{"age":1}',
            '{"age":1,"name":"x"}',
            '{"name":1}',
            '{"name":"x","more":1}',
            '{"name":"x","likes":["b"]}',
        ),
        *('{"name":"x","age":1.5}', '{"name":"\n"}', '{"name":"x"', ""),
    ]
    assert verdicts(PERSON, texts) == texts[:4]


@pytest.mark.parametrize(
    ("spacing", "taken"),
    [
        ("json", ['{"a": [1, 2]}']),
        ("optional", ['{"a":[1,2]}', '{"a": [1, 2]}', '{"a": [1,2]}']),
        ("none", ['{"a":[1,2]}']),
        ("any", ['{"a":[1,2]}', '{"a": [1, 2]}', '{"a": [1,2]}', '{ "a" :\n\t[1 ,2]}']),
    ],
)
def test_white_space_is_as_asked(spacing, taken):
    """The layout of `json.dumps`, the compact one, both, or any."""
    found = read_schema({"type": "object", "properties": {"a": {"type": "array"}}}, spacing=spacing).automaton(BYTES)
    texts = ['{"a":[1,2]}', '{"a": [1, 2]}', '{"a": [1,2]}', '{ "a" :\n\t[1 ,2]}', ' {"a":[1,2]}']
    assert [text for text in texts if accepts(found, text.encode())] == taken


def test_a_schema_is_a_mapping_or_text_or_a_bool():
    """True allows any JSON."""
    assert read_schema(PERSON).digest == read_schema(json.dumps(PERSON)).digest
    texts = ["1", "-0.5", '"a"', "null", "[[]]", '{"a":{"b":[true]}}', "[", "01"]
    assert verdicts(True, texts) == verdicts({}, texts) == verdicts("{}", texts) == texts[:6]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ("[" * 200_000, "nested too deeply"),
        ("3", "#: a schema must be an object or a bool, not 3"),
        ({"type": "strnig"}, "type at #: 'strnig'; expected one or several of null"),
        ({"type": []}, "type at #"),
        ({"properties": []}, "properties at #"),
        ({"properties": {"a/b": {"items": 3}}}, "#/properties/a~1b/items: a schema must be"),
        ({"minimum": "1"}, "minimum at #: '1'; expected a number"),
        ({"minimum": float("nan")}, "minimum at #"),
        ({"minLength": -1}, "minLength at #: -1; expected a whole number"),
        ({"minItems": 10**9}, "minItems at #: 1000000000 is more than"),
        ({"required": "a"}, "required at #"),
        ({"required": ["\ud800"]}, "lone surrogate"),
        ({"$ref": "other.json"}, r"\$ref at #: 'other.json': only references into the same schema"),
        ({"$ref": "#/nowhere"}, r"\$ref at #: '#/nowhere' does not exist"),
        ({"$schema": "https://example.com/own"}, r"\$schema at #"),
        ({"anyOf": []}, "anyOf at #"),
        ({"const": object()}, "not JSON"),
        (False, "chema is false"),
        ({"$ref": "#"}, "cannot spell any text"),
        ({"enum": [1], "type": "string"}, "nsatisfiable"),
    ],
)
def test_what_is_no_schema_is_refused(bad, message):
    """With keyword, pointer and value."""
    with pytest.raises(GrammarError, match=message):
        automaton(bad)


@pytest.mark.parametrize("option", ["spacing", "route"])
def test_options_are_checked(option):
    """An unknown one is named with those there are."""
    with pytest.raises(OptionError, match=f"{option}='nope'"):
        read_schema(True, **{option: "nope"})


def test_depth_is_bounded():
    """By a message, not by the interpreter's stack."""
    deep: object = True
    for _ in range(300):
        deep = {"items": deep}
    with pytest.raises(GrammarError, match="more than 64 levels deep"):
        read_schema(deep)
    chain = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(400)}
    assert accepts(automaton({"$ref": "#/$defs/d0", "$defs": {**chain, "d400": {"type": "null"}}}), b"[[]]")


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("not", {"pattern": "a"}),
        ("if", {"type": "integer"}),
        ("contains", {}),
        ("uniqueItems", True),
        ("dependentRequired", {name: ["x"] for name in "abcdefg"}),
        ("dependentSchemas", {name: {"required": ["b"]} for name in "abcdefg"}),
        ("propertyNames", {"pattern": "a", "minLength": 2}),
        ("$dynamicRef", "#a"),
        ("divisibleBy", 3),
        ("multipleOf", 0.123456789),
        ("minProperties", 2),
        ("format", "regex"),
        ("format", "uri-template"),
        ("pattern", "a(?=b)"),
        ("pattern", "(a)\\1"),
        ("x-guidance", {"lenient": True}),
    ],
)
def test_a_keyword_that_is_not_carried_over_is_named(keyword, value):
    """With the place it stands at: nothing is dropped."""
    nested = {"properties": {"a": {"items": {keyword: value, **({"then": False} if keyword == "if" else {})}}}}
    with pytest.raises(GrammarError, match=re.escape(f"{keyword} at #/properties/a/items: ")):
        read_schema(nested, route="llguidance")


@pytest.mark.parametrize(
    ("keyword", "nothing"),
    [
        ("not", False),
        ("uniqueItems", False),
        ("if", {"type": "string"}),
        ("propertyNames", True),
        ("title", "x"),
        ("x-own", 3),
    ],
)
def test_keywords_that_come_to_nothing_are_passed_over(keyword, nothing):
    """They decide on no text."""
    assert verdicts({"type": "integer", keyword: nothing}, ["1", "x"]) == ["1"]


def test_one_of_that_may_overlap_is_refused_with_its_place():
    """Disjoint ones are carried over."""
    kinds = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    assert verdicts(kinds, ["1", '"a"', "null"]) == ["1", '"a"']
    none = {"anyOf": [True], "oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"enum": ["x", 1]}}}
    assert verdicts(none, ["1", '"x"', "null", "2"]) == ["1", '"x"', "null"]
    with pytest.raises(GrammarError, match="oneOf at #/properties/a: two of its schemas may accept the same text"):
        read_schema({"properties": {"a": {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}}})


@pytest.mark.parametrize("base", [{}, {"$id": "https://example.org/other"}])
def test_comparisons_are_bounded_in_all_places_together(base, monkeypatch):
    """Below an `$id` too; a pair costs three looks, and two types that differ cost none."""
    monkeypatch.setattr(normalize, "MAX_LOOKS", 30)
    pair = {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}]}
    types = {"oneOf": [{"type": "string"}, {"type": "null"}]}

    def schema_of(*schemas):
        return {"properties": {"p": {**base, "properties": {f"a{i}": one for i, one in enumerate(schemas)}}}}

    read_schema({**schema_of(*[types] * 20, *[pair] * 5), "items": pair})
    read_schema({"items": pair, **schema_of(*[types] * 20, *[pair] * 5)})
    with pytest.raises(GrammarError, match="oneOf at #/properties/p/properties/a10"):
        read_schema(schema_of(*[pair] * 20))


DISCRIMINATED = {
    "$defs": {
        kind: {
            "type": "object",
            "properties": {"kind": {"const": kind}, "n": {"type": "integer"}},
            "required": ["kind"],
        }
        for kind in ("cat", "dog")
    },
    "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
}


@pytest.mark.parametrize(
    ("schema_", "valid", "invalid"),
    [
        (DISCRIMINATED, ['{"kind":"cat"}', '{"kind":"dog","n":1}'], ['{"kind":"cow"}', "{}"]),
        ({"oneOf": [{"type": "integer", "maximum": 4}, {"type": "integer", "minimum": 5}]}, ["4", "5"], ["4.5"]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}', "{}", "1"]),
        ({"oneOf": [{"type": "number"}, {"enum": [1, "a"]}]}, ["2", '"a"', "0.5"], ["1", "1.0", '"b"']),
        (
            {"patternProperties": {"f.*o": {"type": "integer"}}},
            ['{"foo":1}', '{"x":"y"}'],
            ['{"foo":"x"}', '{"xfoy":"z"}'],
        ),
        (
            {"patternProperties": {"^[^/]+$": {"type": "integer"}}},
            ['{"a":1}', '{"a/b":"x"}', '{"":"x"}'],
            ['{"a":"x"}', '{"a\\n":"x"}', '{"a\\n":1}'],
        ),
        (
            {"patternProperties": {"^[a-z_-]{1,255}$": {"type": "integer"}}, "additionalProperties": False},
            ['{"a":1}'],
            ['{"a\\n":1}', '{"A":1}'],
        ),
        ({"type": "string", "format": "topic"}, ['"a"', '""'], ["1"]),
        (
            {"propertyNames": {"pattern": "^[a-z]+$"}, "properties": {"a": {"type": "integer"}, "B": True}},
            ['{"a":1}', '{"x":"y"}', "{}", "1"],
            ['{"B":1}', '{"X":1}', '{"a":"x"}', '{"a1":1}'],
        ),
        ({"propertyNames": {"enum": ["a", "b"]}}, ['{"a":1}', '{"a":1,"b":2}'], ['{"c":1}']),
        ({"propertyNames": {"maxLength": 2}}, ['{"ab":1}', '{"é€":1}'], ['{"abc":1}']),
        ({"propertyNames": False}, ["{}", "[]"], ['{"a":1}']),
        (
            {"dependentRequired": {"b": ["a"]}, "properties": {"a": True, "b": True, "c": True}},
            ["{}", '{"a":1}', '{"a":1,"b":1}', '{"c":1}', "3"],
            ['{"b":1}', '{"b":1,"c":1}'],
        ),
        (
            {
                "dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}},
                "properties": {"a": True, "b": True},
            },
            ['{"b":"x"}', '{"a":1,"b":1}', '{"a":1}'],
            ['{"a":1,"b":"x"}'],
        ),
        ({"not": {"enum": ["a", "bc", 1, None]}}, ['"b"', '"abc"', '""', "2", "true"], ['"a"', '"bc"', "1", "null"]),
        ({"not": {"required": ["a"]}, "properties": {"b": True}}, ['{"b":1}', "{}"], ['{"a":1}', '{"b":1,"a":1}']),
        ({"type": "integer", "not": {"const": 3}}, ["2", "33"], ["3"]),
        (
            {
                "properties": {"a": True, "b": True},
                "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
                "then": {"required": ["b"]},
                "else": {"not": {"required": ["b"]}},
            },
            ['{"a":1,"b":2}', '{"a":2}', "{}", "5"],
            ['{"a":1}', '{"a":2,"b":1}', '{"b":1}'],
        ),
        ({"type": "number", "multipleOf": 0.01}, ["0.07", "3", "0.1", "3.00", "-1.25"], ["0.001", "1e-2"]),
        ({"type": "number", "multipleOf": 0.25, "minimum": 0}, ["0.5", "0.50", "0.25", "3"], ["0.1", "-0.25"]),
        ({"type": "integer", "multipleOf": 1.5}, ["3", "0"], ["1", "4"]),
        (
            {"$defs": {"c": {"enum": ["a", 1]}}, "items": {"$ref": "#/$defs/c"}, "uniqueItems": True},
            ["[]", '["a"]', '[1,"a"]', '["a",1]', '"x"'],
            ['["a","a"]', '["b"]', "[1,1]"],
        ),
        ({"items": {"type": "string"}, "maxItems": 1, "uniqueItems": True}, ["[]", '["a"]'], ["[1]", '["a","b"]']),
    ],
)
def test_what_once_was_refused(schema_, valid, invalid):
    """Said by other keywords; with the spelling of `json.dumps` where it has spaces."""
    assert verdicts(schema_, valid + invalid) == valid


def test_a_format_that_is_not_known_is_noted():
    """As the standard has it, it decides nothing."""
    grammar = Grammar.from_json_schema({"properties": {"a": {"format": "topic"}, "b": {"format": "date"}}})
    assert grammar.notes == ("format at #/properties/a: 'topic' is unknown and has no effect",)
    listed = Grammar.from_json_schema({"enum": ["x", "y"], "format": "topic"})
    assert listed.notes == ("format at #: 'topic' is unknown and has no effect",)
    assert pickle.loads(pickle.dumps(listed)).notes == listed.followed_by(".").notes == listed.notes  # noqa: S301 - ours
    assert Grammar.from_regex("a").notes == ()


def test_properties_come_in_the_order_of_the_schema():
    """Those of `allOf` behind those that stand before it."""
    schema_ = {"properties": {"a": True}, "required": ["a"], "allOf": [{"properties": {"b": True}, "required": ["b"]}]}
    assert verdicts(schema_, ['{"a":1,"b":2}', '{"b":2,"a":1}']) == ['{"a":1,"b":2}']


@pytest.mark.parametrize(("schema_", "text"), HOLES)
def test_where_llguidance_is_not_sound_we_are(schema_, text):
    """It accepts the text, the text is invalid, and what we make of the schema refuses it or is refused."""
    raw = [
        check_guidance([{"json_schema": {**schema_, **options}}], "as it stands").automaton(BYTES)
        for options in ({}, {"x-guidance": {"json_allowed_escapes": schema.ESCAPES}})
    ]
    assert any(accepts(one, text.encode()) for one in raw)
    assert text == '"\u2028"' or not is_valid(validator_of(schema_), text.encode())
    try:
        ours = automaton(schema_)
    except GrammarError:
        return
    assert not accepts(ours, text.encode())


def test_the_route_taken_can_be_seen():
    """In what was read."""
    assert read_schema(PERSON).route.startswith("llguidance ")


def is_host(text):
    labels = text.split(".")
    return len(text) <= 253 and all(0 < len(x) <= 63 and x.strip("-") == x and "--" not in x for x in labels)


def is_mail(text):
    local, _, host = text.rpartition("@")
    return 0 < len(local) <= 64 and all(local.split(".")) and is_host(host)


def is_reference(text):
    parts = urlsplit(text)
    return parts.port is None or parts.port < 65536


READERS = {
    "date": date.fromisoformat,
    "time": lambda text: time.fromisoformat(text[:8]) is not None and re.search(r"(Z|[+-]\d\d:\d\d)$", text),
    "date-time": lambda text: datetime.fromisoformat(text[:19]),
    "duration": lambda text: re.fullmatch(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+S)?)?)", text),
    "email": is_mail,
    "idn-email": is_mail,
    "hostname": is_host,
    "idn-hostname": is_host,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": UUID,
    "uri": lambda text: is_reference(text) and urlsplit(text).scheme,
    "iri": lambda text: is_reference(text) and urlsplit(text).scheme,
    "uri-reference": is_reference,
    "iri-reference": is_reference,
    "json-pointer": lambda text: text[:1] in ("", "/") and all(part[:1] in ("0", "1") for part in text.split("~")[1:]),
    "relative-json-pointer": lambda text: text[0].isdigit(),
}
"""Readers that are not ours; they raise or say no."""


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_allows_is_of_that_format(name):
    """To a reader of Python's, and to the checker of jsonschema where it has one."""
    found = automaton({"type": "string", "format": name})
    rng = random.Random(name)
    validator = validator_of({"type": "string", "format": name})
    texts = {text for text in (walk(found, BYTES, rng) for _ in range(25)) if text is not None}
    assert len(texts) > 5
    for text in texts:
        assert is_valid(validator, text)
        assert READERS[name](json.loads(text))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", ["2024-02-29", "2000-02-29", "0001-01-01"], ["2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01"]),
        ("time", ["23:59:59Z", "00:00:00.25+01:00"], ["24:00:00Z", "12:00:00", "12:60:00Z"]),
        ("date-time", ["2024-02-29T12:00:00Z"], ["2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z"]),
        (
            "ipv6",
            ["::", "1::", "::1", "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:8"],
            ["1", "1:2:3:4:5:6:7:8:9", "1::2::3", ":::"],
        ),
        ("email", ["a.b@example.org", "a.b.c.d.e.f@x.y"], ["a@", "@b", ".a@b", "a..b@c", f"{'a' * 65}@b.c"]),
        (
            "hostname",
            ["a", "a-b.c1", "a.b.c.d.e.f.g.h.org", f"{'a' * 15}.{'b' * 15}.x.y.z.org"],
            ["", ".", "a.", "-a", "a-", "a..b", "xn--a", "a_b", "1", f"{'a' * 64}.org", ".".join(["a" * 50] * 5)],
        ),
        (
            "ipv6",
            ["::", "1::2", "::1.2.3.4", "::ffff:1.2.3.4", "1:2:3:4:5:6:7.8.9.10", "1:2:3:4:5::7.8.9.10"],
            ["1.2.3.4", ":1.2.3.4", "::1.2.3", "::1.2.3.256", "1:2:3:4:5:6:7:8.9.10.11", "1:2:3:4:5:6::8.9.10.11"],
        ),
        (
            "uri",
            [
                "https://a.b/c?d#e",
                "mailto:a@b",
                "urn:x:y",
                "mongodb://localhost:27017/x",
                "http://[::1]:80/",
                "file:///etc/x",
            ],
            ["a b", "//a", "http://a b", "http://a:65536/", "http://[::1/", "http://[1]/"],
        ),
        ("duration", ["P1Y2M", "PT5S", "P3W"], ["P", "PT", "P1Y2D", "1Y"]),
    ],
)
def test_formats_by_hand(name, good, bad):
    """Yes and no."""
    texts = [json.dumps(text) for text in (*good, *bad)]
    assert verdicts({"type": "string", "format": name}, texts) == texts[: len(good)]


def is_ipv6(text):
    try:
        return ipaddress.IPv6Address(text) is not None
    except ValueError:
        return False


def test_ipv6_is_what_the_standard_library_reads():
    """Neither more nor less, whatever stands before and behind `::`, with an IPv4 address at the end or without."""
    sides = [[*["1f"] * n, *last] for n in range(9) for last in ([], ["12345"], ["1.2.3.4"], ["1.2.3.256"])]
    texts = [":".join(side) for side in sides]
    texts += [f"{one}{middle}{other}" for one in texts for middle in (":", "::", ":::") for other in texts]
    found = [text for text in texts if re.fullmatch(FORMATS["ipv6"], text)]
    assert found == [text for text in texts if is_ipv6(text)]
    assert len(found) > 60


ATOMS = [
    "a",
    "b",
    "é",
    r"\d",
    r"\w",
    r"\s",
    r"\S",
    r"\W",
    ".",
    "[ab]",
    r"[^a\s]",
    "[^b]",
    "[a-c]",
    r"\.",
    "(?:a|b)",
    "(ab)",
    "^",
    "$",
]
PIECES = st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "", "*", "+?", "{1,2}", "?"]))
TEXTS = st.text(
    ["a", "b", "c", ".", " ", "1", "\n", "\r", "é", "\u0661", "\x1c", "\u2028", "\ufeff", "\x85"], max_size=4
)


def ecma(pattern):
    """Python's reading of a pattern of ECMA-262, for the syntax above."""
    spaces = "\\t-\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
    pattern = pattern.replace(r"[^a\s]", f"[^a{spaces}]").replace(r"\s", f"[{spaces}]").replace(r"\S", f"[^{spaces}]")
    pattern = re.sub(r"(?<!\\)\.", "[^\\\\n\\\\r\\\\u2028\\\\u2029]", pattern)
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


@settings(max_examples=n_examples(300))
@given(pieces=st.lists(PIECES, max_size=5), texts=st.lists(TEXTS, min_size=4, max_size=8))
def test_a_rewritten_pattern_matches_what_all_match(pieces, texts):
    """Never more than ECMA-262 and Python, and the same on texts without doubtful characters."""
    pattern = "".join(atom + ("" if atom in "^$" else quantifier) for atom, quantifier in pieces)
    rewritten = rewrite_pattern(pattern)
    ours = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", rewritten.pattern)
    for text in texts:
        both = [bool(re.search(pattern, text)), bool(ecma(pattern).search(text))]
        found = bool(re.search(ours.replace("$", r"\Z"), text))
        doubtful = any(first <= ord(c) <= last for c in text for first, last in rewritten.doubtful)
        unspelled = any(ord(c) < 32 and c not in "\b\t\n\f\r" for c in text)
        assert found <= all(both)
        if not doubtful and not unspelled and not (rewritten.line_end and text.endswith("\n")):
            assert both == [found, found]


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a**",
        "*a",
        "[",
        "[]",
        "[^]",
        "[b-a]",
        r"[+-\d]",
        r"\1",
        r"\p{L}",
        "(?i)a",
        "(?=a)",
        "a{,3}",
        "a{3,2}",
        "a{4294967296}",
        "\\",
        r"\ud800",
        r"\cA",
    ],
)
def test_a_pattern_that_readers_differ_on_is_refused(pattern):
    """Or that none reads."""
    with pytest.raises(PatternError):
        rewrite_pattern(pattern)


@pytest.mark.parametrize("pattern", ["[[a-z]--[b]]", "[a||b]", "[a&&b]", "[a~~b]"])
def test_python_does_not_warn_of_a_pattern(pattern):
    """Its own `re` would, of classes that it may read otherwise one day."""
    re.purge()
    rewrite_pattern(pattern)  # a warning is an error here


def test_a_name_that_readers_match_differently_is_nobodys():
    r"""`\d` is ASCII to ECMA-262, not to Python; `$` matches before a last line feed in Python."""
    allowed = {"patternProperties": {r"^\d+$": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    texts = ['{"1":1}', '{"a":"x"}', '{"1":"x"}', '{"\u0661":1}', '{"\u0661":"x"}', '{"1\\n":"x"}']
    assert verdicts(allowed, texts) == texts[:2]


ANCHORS_WITHIN = ["x$|^.y", "(^a|b).", "^$|^.$", "^f|.o", ".f|o$"]
NAME_PATTERNS = ["^[^/]+$", "f.*o", r"^\d+$", r"\w$", ".", "^.$", "a|b.", "(a|.b)+", "a", r"\S\s", *ANCHORS_WITHIN]
ODD_NAMES = [(0x0A, 0x0A), (0x61, 0x61), (0x661, 0x661), (0x2028, 0x2029)]
"""Names that hold one of these characters nobody is to have."""
SOME_NAMES = [
    "".join(name) for n in range(5) for name in product("bfo1/ ay\n\u0661\u2028", repeat=n) if n < 4 or "o" in name
]


@pytest.mark.short("f.*o", "a|b.", "^.$", "x$|^.y", "^[[]^/]+$")
@pytest.mark.parametrize("pattern", NAME_PATTERNS)
def test_a_pattern_of_names_without_some_characters(pattern):
    """It matches the names without them that the pattern is found in, and no name with one; or it is as it was."""
    plain = rewrite_pattern(pattern)
    without = tuple((low, high) for low, high in ODD_NAMES if low != 0x61 or "a" not in pattern)
    found = rewrite_name(pattern, without)
    assert (found == plain.pattern) == (pattern in ANCHORS_WITHIN)
    if pattern in ANCHORS_WITHIN:
        return
    odd = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in without) + "]")
    wrong = [
        name
        for name in SOME_NAMES
        if finite._contains(name, found) != (odd.search(name) is None and finite._contains(name, plain.pattern))
    ]
    assert wrong == []


KINDS_OF_OBJECTS = [
    {"type": ["object", "null"], **named, **required, **others, **patterns, **least, **most}
    for named in ({}, *({"properties": {name: {"type": "null"} for name in names}} for names in ("a", "ab", "abc")))
    for required in ({}, {"required": ["a"]}, {"required": ["d"]})
    for others in ({}, {"additionalProperties": False}, {"additionalProperties": {"type": "null"}})
    for patterns in ({}, {"patternProperties": {"^e": {"type": "null"}}})
    for least in ({}, *({"minProperties": n} for n in range(5)))
    for most in ({}, *({"maxProperties": n} for n in range(4)))
]
"""Objects by how many properties they have, beside what says which."""
REPEATED = ("aa", "dd", "eee", "add", "da")
NULL = {"type": "null"}


def miscounted(schema_):
    """Objects of up to four nulls on which the grammar and jsonschema disagree; None where it is refused by name."""
    try:
        machine = automaton(schema_)
    except GrammarError as error:
        if not re.match(r"(min|max)Properties.* at #: ", error.reason):
            raise
        return None
    order = "".join(dict.fromkeys([*schema_.get("properties", {}), *schema_.get("required", []), *"abcde"]))
    values = [dict.fromkeys(names) for n in range(5) for names in combinations(order, n)]
    texts = [json.dumps(value) for value in [None, *values]]
    validator = validator_of(schema_)
    wrong = [text for text in texts if accepts(machine, text.encode()) != is_valid(validator, text.encode())]
    twice = ["{" + ", ".join(json.dumps(name) + ": null" for name in names) + "}" for names in REPEATED]
    return wrong + [t for t in twice if accepts(machine, t.encode()) and not is_valid(validator, t.encode())]


def test_properties_are_counted():
    """Whatever is required, named or allowed beside; a name that comes twice is one property."""
    found = [miscounted(one) for one in KINDS_OF_OBJECTS[::43]]
    assert not any(found)
    assert sum(one is not None for one in found) > 25


@pytest.mark.long
@pytest.mark.parametrize("part", range(11))
def test_properties_are_counted_in_every_way(part, record_property):
    """As above, and all of them."""
    found = [miscounted(one) for one in KINDS_OF_OBJECTS[part::11]]
    record_property("schemas", sum(one is not None for one in found))
    assert not any(found)


def test_a_miscount_is_found(monkeypatch):
    """The comparison can fail: a count that is left out is seen."""
    monkeypatch.setattr(normalize, "count_alternatives", lambda *_, **__: [])
    assert miscounted({**PERSON, "required": [], "properties": {"a": NULL, "b": NULL}, "minProperties": 1})


WIDE = {f"p{i}": {"type": "integer"} for i in range(300)}


@pytest.mark.parametrize(
    ("schema_", "message"),
    [
        (
            _named("o", {"properties": dict.fromkeys("ab", True), "minProperties": 3}),
            "minProperties at #/properties/o: 3",
        ),
        (
            {"properties": dict.fromkeys(map(str, range(20)), True), "maxProperties": 9, "additionalProperties": False},
            "maxProperties at #: 20 properties are optional",
        ),
        (
            {"allOf": [_named("a", True), {"minProperties": 1}], "type": "object"},
            "minProperties at #/allOf/1: another schema",
        ),
        (
            {"properties": {"a": True}, "required": [], "minProperties": 1, "maxProperties": 0},
            "minProperties or maxProperties at #: at least 1 and at most 0",
        ),
        (
            {"$defs": {"d": {"patternProperties": {"^a": True, "b$": {"type": "null"}}}}, "$ref": "#/$defs/d"},
            r"patternProperties at #/\$defs/d: two of the patterns may match one name",
        ),
        (
            {"anyOf": [{"properties": WIDE, "required": [f"q{i}"]} for i in range(60)]},
            "anyOf at #: the schema is too large",
        ),
        (
            _named("a/b", {"anyOf": [{"properties": {f"{i}{k}": v for k, v in WIDE.items()}} for i in range(60)]}),
            "anyOf at #/properties/a~1b: the schema is too large",
        ),
        (
            _named("x", {"properties": {str(i): True for i in range(4_001)}}),
            "properties at #/properties/x: 4001 properties",
        ),
        (
            {"allOf": [{"type": "object", "required": [f"{i}{j}" for j in range(5_001)]} for i in "ab"]},
            "required at #/allOf/1: the schema requires 10002 names so far; the maximum is 10000",
        ),
        (
            _named("x", {"patternProperties": {f"^p{i}_": True for i in range(201)}}),
            "patternProperties at #/properties/x: the schema has 201 patterns",
        ),
        (
            {"allOf": [{"type": "object", "patternProperties": {f"^p{i}_": True}} for i in range(110)]},
            "patternProperties at #/allOf/0: 110 patterns .* up to 659450 pairs",
        ),
        (
            {"$defs": {"d": {"type": "object", "allOf": [{"$ref": "#/$defs/d"}]}}, "$ref": "#/$defs/d"},
            r"\$ref at #/\$defs/d: the reference leads back to itself",
        ),
    ],
)
def test_what_llguidance_refuses_is_told_by_keyword_and_place(schema_, message):
    """In the words of the schema, and with what to do."""
    with pytest.raises(GrammarError, match=message):
        automaton(schema_)


def test_a_schema_of_one_value_may_require_any_number_of_names():
    """Since its text is listed, llguidance's limit does not apply."""
    value = {f"p{i}": i for i in range(10_001)}
    named = {name: {"const": i} for name, i in value.items()}
    texts = read_schema(
        {"type": "object", "properties": named, "required": [*named], "additionalProperties": False}
    ).texts
    assert texts == (json.dumps(value),)


def examined(cases, **options):
    tally = Tally()
    for case in cases:
        examine(case, tally, **options)
    return tally


def test_texts_are_valid_on_a_part_of_the_suite(test_data):
    """JSON-Schema-Test-Suite, every ninth group."""
    cases = suite_cases(test_data("grammar/json_schema_test_suite"))[::9]
    tally = examined(cases, walks=3)
    assert tally.invalid == []
    assert tally.carried > 8
    assert tally.produced + tally.twists > 250


def test_texts_are_valid_on_a_part_of_the_schemas_in_use(test_data):
    """Every forty-fifth."""
    tally = examined(real_cases(test_data("grammar/real_schemas.jsonl"))[::45], walks=2)
    assert tally.invalid == []
    assert tally.produced > 2


@settings(max_examples=n_examples(12))  # a sweep draws 4 000
@given(made=whole_schemas())
def test_texts_are_valid_for_any_schema(made):
    """Schemas made of what is carried over, side by side."""
    assert examined([Case("made", made)], walks=3).invalid == []


def test_an_invalid_text_is_found(monkeypatch):
    """The search can fail: with escapes by number an additional property passes for another."""
    monkeypatch.setattr(schema, "ESCAPES", 'nrbtf\\"u')
    case = Case(
        "planted", {"type": "object", "properties": {"a": {"type": "integer"}}}, (({"a": 1}, True), ({"a": "x"}, False))
    )
    assert examined([case], walks=10).invalid


def test_texts_of_real_tokens_are_valid(test_data):
    """Walks over the 32 000 tokens of a SentencePiece vocabulary."""
    vocabulary = vocabulary_of(test_data("weights/random_real_vocab/random-llama-spm.gguf"))
    rng = random.Random(1)
    for one in (
        PERSON,
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,4}$"}},
        {"type": "number", "minimum": -2},
    ):
        found = automaton_of(one, vocabulary)
        texts = [walk(found, vocabulary, rng) for _ in range(4)]
        assert all(is_valid(validator_of(one), text) for text in texts if text is not None)
        assert any(texts)


def llama_cases(path):
    """Schemas that llama.cpp tests its converter with: texts to accept and to reject are instances of neither verdict."""
    for case in json.loads(path.read_text()):
        if case["kind"] == "json_schema":
            yield case["name"], json.loads(case["grammar"]), [*case["accept"], *case["reject"]]


def test_no_invalid_text_of_llama_cpps_cases_is_accepted(test_data):
    """Texts that llama.cpp accepts or rejects: what we accept is valid."""
    wrong, accepted = [], 0
    for name, one, texts in llama_cases(test_data("grammar/accept_reject.json")):
        try:
            found = automaton(one)
        except GrammarError:
            continue
        taken = [text for text in texts if accepts(found, text.encode())]
        accepted += len(taken)
        wrong += [(name, text) for text in taken if not is_valid(validator_of(one), text.encode())]
    assert wrong == []
    assert accepted > 30


@pytest.mark.long
def test_texts_are_valid_on_the_whole_suite(test_data, capsys):
    """Prints the share that is carried over, with reasons."""
    tally = examined(suite_cases(test_data("grammar/json_schema_test_suite")), walks=40)
    with capsys.disabled():
        print("", *json_schemas.report("suite", tally), sep="\n")  # noqa: T201
    assert tally.invalid == []


@pytest.mark.long
def test_texts_are_valid_on_all_schemas_in_use(test_data, capsys):
    """Prints the share that is carried over, with reasons."""
    tally = examined(real_cases(test_data("grammar/real_schemas.jsonl")), walks=20)
    with capsys.disabled():
        print("", *json_schemas.report("schemas in use", tally), sep="\n")  # noqa: T201
    assert tally.invalid == []
    assert tally.carried >= 320


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_texts_are_valid_for_very_many_schemas(part, record_property):
    """As above, and more of them; each part draws others."""

    @seed(part)
    @settings(max_examples=n_examples(200))
    @given(made=whole_schemas())
    def hold(made):
        assert examined([Case("made", made)], walks=5).invalid == []

    hold()
    record_property("schemas", 200)


def wild_cases(test_data):
    return real_cases(test_data("grammar/wild_schemas.jsonl"))


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of patterns that jsonschema gives to re
def test_texts_are_valid_on_a_part_of_the_wild_schemas(test_data):
    """Every two hundredth."""
    tally = examined(wild_cases(test_data)[::200], walks=2)
    assert tally.invalid == []
    assert tally.produced > 2


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of patterns that jsonschema gives to re
@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_texts_are_valid_on_all_wild_schemas(part, test_data, record_property):
    """Fifty at a time."""
    tally = examined(wild_cases(test_data)[part::20], walks=8)
    for name in ("schemas", "carried", "walks", "produced", "twists"):
        record_property(name, getattr(tally, name))
    assert tally.invalid == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{" + ",".join(f'"a{i}":1' for i in range(60_000)) + ',"a59999":2}', "'a59999' occurs twice"),
        ({"anyOf": [{"const": 10**400}, {"type": "string"}]}, "beyond 2"),
        ({"minimum": 10**400}, "beyond 2"),
        ({"pattern": "a" * 20_001}, "20001 characters; the maximum is 20000"),
        (
            {"oneOf": [{"$ref": "#/$defs/e"}] * 5_000, "$defs": {"e": {"enum": [*range(5_000)]}}, "contains": {}},
            "contains",
        ),
        (_named("k" * 100_000, {"anyOf": [{"oneOf": [{"pattern": "a"}] * 2}] * 2_000}), "…/anyOf/0 or #/properties/k"),
    ],
    ids=["names", "constant", "bound", "pattern", "kinds", "pointers"],
)
def test_large_schemas_are_read_in_linear_time(schema, message):
    """By what they are refused for; each of them once took minutes or gigabytes, or an error of Python's."""
    with pytest.raises(GrammarError, match=message):
        Grammar.from_json_schema(schema)
