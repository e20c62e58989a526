"""Constraints on texts, by every name that clients have: each is a grammar of the engine, and what is wrong is named."""

from __future__ import annotations

import contextlib
import json
import re
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import GenerationParams, Grammar, SamplingParams, StopParams
from selectrie.server import ServerOptions, app
from selectrie.server.fields import structured
from selectrie.server.fields.structured import MAX_CHARACTERS, Constraint
from selectrie.server.transport.http_errors import HttpError
from tests.support.chatting import BODY, MESSAGES, PATH, put_together
from tests.support.deciding import fake
from tests.support.serving import ask

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
KINDS = [
    ({"choice": ["left", "right", "é"]}, Grammar.from_choices(["left", "right", "é"])),
    ({"regex": "[a-c]{3,5}"}, Grammar.from_regex("[a-c]{3,5}")),
    ({"json": SCHEMA}, Grammar.from_json_schema(SCHEMA)),
    ({"json": json.dumps(SCHEMA), "regex": None, "json_object": False}, Grammar.from_json_schema(SCHEMA)),
    ({"grammar": 'root ::= word "."\nword ::= [a-z]'}, Grammar.from_regex(r"[a-z]\.")),
    ({"json": True}, Grammar.from_json_schema(True)),
    ({"json_object": True, "disable_any_whitespace": True}, Grammar.from_json_schema({"type": "object"})),
]
OBJECT = {"type": "object", "properties": {"a": {"type": "boolean"}}}
CLOSED = [
    (OBJECT, ['{"a": true}', "{}"], ['{"a": true, "b": 1}', '{"b": 1}']),
    ({"type": "array", "items": OBJECT}, ['[{"a": true}]'], ['[{"b": 1}]']),
    ({"$defs": {"D": OBJECT}, "$ref": "#/$defs/D"}, ['{"a": true}'], ['{"b": 1}']),
    ({"anyOf": [OBJECT, {"type": "null"}]}, ["null", "{}"], ['{"b": 1}']),
    (OBJECT | {"additionalProperties": True}, ['{"a": true, "b": 1}'], []),
    (OBJECT | {"required": ["b"]}, ['{"b": 1}'], ["{}"]),
    ({"allOf": [OBJECT, {"type": "object", "properties": {"b": {"type": "null"}}}]}, ['{"a": true, "b": null}'], []),
    ({"properties": {"allOf": {"type": "null"}}, "type": "object"}, ['{"allOf": null}'], ['{"b": 1}']),
]
ENDPOINTS = {"/v1/completions": {"prompt": "Go "}, PATH: {"messages": MESSAGES}}
DRAWN = {"seed": 3, "max_tokens": 12, "n": 2}


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


def texts_of(choices):
    """The texts of choices of either endpoint, with how they ended."""
    texts = [one["text"] if "text" in one else one["message"]["content"] for one in choices]
    return [*zip(texts, (one["finish_reason"] for one in choices), strict=True)]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("structured", "grammar"), KINDS, ids=lambda one: "-".join(one) if isinstance(one, dict) else ""
)
def test_each_kind_is_what_the_engine_draws_with_the_grammar(llm, path, structured, grammar):
    """The same texts as a whole and as a stream; each is one of the grammar, or the beginning of one."""
    asked = ENDPOINTS[path]
    here = llm.generate(
        asked.get("prompt", MESSAGES),
        seed=3,
        n=2,
        sampling=SamplingParams(1.0, 0, 1.0, 0.0),
        stopping=StopParams(max_tokens=12),
        options=GenerationParams(grammar=grammar),
    )
    expected = [(one.text, "length" if one.finish == "length" else "stop") for one in here]
    body = {**asked, **DRAWN, "structured_outputs": structured}
    whole = ask(app(llm), "POST", path, body)
    assert whole.status == 200, whole.data
    assert "warnings" not in whole.json
    assert texts_of(whole.json["choices"]) == expected
    for text, finish in expected:
        verdict = grammar.accepts(text)
        assert verdict if finish == "stop" else verdict.verdict != "no"
    events = ask(app(llm), "POST", path, {**body, "stream": True}).events
    if path == PATH:
        assert texts_of(put_together(events)) == expected
    else:
        pieces = [one for event in events for one in event["choices"]]
        joined = ["".join(one["text"] for one in pieces if one["index"] == index) for index in range(2)]
        assert joined == [text for text, _ in expected]


WRONG = [
    ([], "structured_outputs", "exactly one of `choice`, `regex`"),
    ({}, "structured_outputs", "has none: expected exactly one"),
    ({"json_object": False, "regex": None}, "structured_outputs", "has none"),
    ({"regex": "a", "choice": ["a"]}, "structured_outputs", "has `choice` and `regex`: expected exactly one"),
    ({"regex": "a", "lark": "a"}, "structured_outputs.lark", "one of the fields choice, regex, json, grammar, json_object"),
    ({"json_object": True, "whitespace_pattern": " "}, "structured_outputs.whitespace_pattern", "must not be empty"),
    ({"json_object": True, "whitespace_pattern": "("}, "structured_outputs.whitespace_pattern", "line 1, column"),
    ({"structural_tag": "{}"}, "structured_outputs.structural_tag", "not offered"),
    ({"choice": []}, "structured_outputs.choice", "a list of texts"),
    ({"choice": "ab"}, "structured_outputs.choice", "a list of texts"),
    ({"choice": ["a", 1]}, "structured_outputs.choice[1]", "a text"),
    ({"choice": ["a", "b", "c"]}, "structured_outputs.choice", "at most 2 texts"),
    ({"choice": ["\ud800"]}, "structured_outputs.choice", "surrogate"),
    ({"regex": False}, "structured_outputs.regex", "a text"),
    ({"regex": "a("}, "structured_outputs.regex", "line 1, column"),
    ({"regex": "(a{1000}b?){200}"}, "structured_outputs.regex", "150000 states"),
    ({"regex": "a" * (MAX_CHARACTERS + 1)}, "structured_outputs.regex", f"at most {MAX_CHARACTERS} characters"),
    ({"grammar": 'root ::= "a" oops'}, "structured_outputs.grammar", "line 1, column 14"),
    ({"grammar": 'top ::= "a"'}, "structured_outputs.grammar", "no rule 'root'"),
    ({"grammar": "root ::= " + "(" * 101 + '"a"' + ")" * 101}, "structured_outputs.grammar", "100 levels"),
    ({"grammar": 'root ::= "a" root'}, "structured_outputs.grammar", "no text"),
    ({"grammar": "root ::= <[9999]>"}, "structured_outputs.grammar", "9999"),
    ({"json": 1}, "structured_outputs.json", "a JSON Schema"),
    ({"json": False}, "structured_outputs.json", "schema is false"),
    ({"json": ""}, "structured_outputs.json", "not JSON"),
    ({"json": {"type": "strange"}}, "structured_outputs.json.type", "strange"),
    ({"json": '{"type": "strange"}'}, "structured_outputs.json.type", "type at #: 'strange'"),
    ({"json_object": 1}, "structured_outputs.json_object", "true"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "param", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(llm, value, param, message):
    """400 with the path to it at both endpoints and in streams, before any call of the model."""
    before = llm._model.calls
    application = app(llm, ServerOptions(max_options=2))
    for path, asked in ENDPOINTS.items():
        reply = ask(application, "POST", path, {**asked, **DRAWN, "stream": path == PATH, "structured_outputs": value})
        assert reply.status == 400, reply.data
        assert reply.error["param"] == param
        assert message in reply.error["message"]
    assert llm._model.calls == before


def test_a_schema_as_a_grammar_is_not_given_pythons_advice(llm):
    """A request has no functions of ours and no files."""
    error = ask(
        app(llm), "POST", PATH, {"messages": MESSAGES, "structured_outputs": {"grammar": '{"type": "object"}'}}
    ).error
    assert error["message"] == "structured_outputs.grammar: line 1, column 1: this looks like JSON"


def test_options_that_a_grammar_decides(llm):
    """`min_tokens` is refused beside a grammar, under its name."""
    body = {"prompt": "a", "min_tokens": 2, "structured_outputs": {"regex": "a+"}}
    assert ask(app(llm), "POST", "/v1/completions", body).error["param"] == "min_tokens"


def test_what_a_schema_says_without_effect_is_a_warning(llm):
    """An annotation that no grammar can enforce is named in the answer."""
    schema = {"type": "string", "format": "strange-format", "maxLength": 2}
    answer = ask(app(llm), "POST", "/v1/completions", {"prompt": "a", "structured_outputs": {"json": schema}})
    assert answer.status == 200
    assert any(re.match("structured_outputs.json: .*strange-format", one) for one in answer.json["warnings"])


PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bo"]}, "late": {"type": "boolean"}},
    "required": ["name", "late"],
    "additionalProperties": False,
}
COMPACT = Grammar.from_json_schema(PERSON, spacing="none")
LARK = 'start: WORD "."\nWORD: /[a-z]/'
NAMES = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": True}}}, "json"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON, "strict": False}}}, "json"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": json.dumps(PERSON)}}}, "json"),
    ({"response_format": {"type": "json_schema", "name": "p", "schema": PERSON}}, "json"),
    ({"response_format": {"type": "json_object", "schema": PERSON}}, "json"),
    ({"json_schema": PERSON, "grammar": "", "guided_decoding_backend": "outlines"}, "json"),
    ({"guided_json": json.dumps(PERSON), "guided_json_object": False, "response_format": {"type": "text"}}, "json"),
    ({"guided_json": PERSON, "json_schema": PERSON, "structured_outputs": {"json": PERSON}}, "json"),
    ({"guided_json": PERSON, "guided_whitespace_pattern": r"[\n ]?"}, "json"),
    ({"guided_json": PERSON, "guided_whitespace_pattern": ""}, "compact"),
    ({"structured_outputs": {"json": PERSON, "whitespace_pattern": r"\n*"}}, "compact"),
    ({"guided_choice": ["left", "right", "é"]}, "choice"),
    ({"guided_regex": "[a-c]{3,5}"}, "regex"),
    ({"guided_regex": "[a-c]{3,5}", "structured_outputs": {"regex": "[a-c]{3,5}"}}, "regex"),
    ({"guided_grammar": 'root ::= [a-z] "."'}, "grammar"),
    ({"grammar": 'root ::= [a-z] "."'}, "grammar"),
    ({"grammar": LARK}, "grammar"),
    ({"structured_outputs": {"grammar": LARK}}, "grammar"),
    ({"grammar": 'root ::= [a-z] "."\n# in Lark\'s notation:\nstart ::= root', "grammar_lazy": False}, "grammar"),
]  # fmt: skip
MEANINGS = {
    "json": {"json": PERSON},
    "choice": {"choice": ["left", "right", "é"]},
    "regex": {"regex": "[a-c]{3,5}"},
    "grammar": {"grammar": 'root ::= [a-z] "."'},
    "compact": {"choice": list(COMPACT.expand())},
}
"""The same constraints as `structured_outputs`."""
LONG_ENOUGH = {"seed": 3, "max_tokens": 60, "n": 2}


@pytest.mark.parametrize(("fields", "meaning"), NAMES, ids=range(len(NAMES)))
def test_other_names_mean_the_same(llm, fields, meaning):
    """The older and foreign names, in chats, completions and streams, and the same constraint under two names."""
    for path, asked in ENDPOINTS.items():
        wanted = ask(app(llm), "POST", path, {**asked, **LONG_ENOUGH, "structured_outputs": MEANINGS[meaning]}).json
        found = ask(app(llm), "POST", path, {**asked, **LONG_ENOUGH, **fields})
        assert found.status == 200, found.data
        assert found.json["choices"] == wanted["choices"]
        assert "warnings" not in found.json
    events = ask(app(llm), "POST", PATH, {**ENDPOINTS[PATH], **LONG_ENOUGH, **fields, "stream": True}).events
    assert texts_of(put_together(events)) == texts_of(found.json["choices"])


def test_any_object(llm):
    """`json_object` gives an object, and one that the limit cuts says so."""
    answer = ask(app(llm), "POST", PATH, {**BODY, "n": 4, "response_format": {"type": "json_object"}}).json
    assert (
        ask(app(llm), "POST", PATH, {**BODY, "n": 4, "guided_json_object": True}).json["choices"] == answer["choices"]
    )
    for text, finish in texts_of(answer["choices"]):
        assert text.startswith("{")
        if finish == "stop":
            assert isinstance(json.loads(text), dict)
    assert {finish for _, finish in texts_of(answer["choices"])} >= {"length"}


def test_compiled_grammars_are_kept_within_a_budget(llm, monkeypatch):
    """Of number and bytes, in which what a grammar took since it was compiled counts; the last one always stays."""
    cache = structured._GrammarCache()
    kept = [cache.get("regex", f"a{i}", has_spaces=True) for i in range(structured._MAX_KEPT)]
    assert cache.get("regex", "a0", has_spaces=True) is kept[0]
    cache.get("regex", "more", has_spaces=True)
    assert cache.get("regex", "a0", has_spaces=True) is kept[0]
    assert cache.get("regex", "a1", has_spaces=True) is not kept[1]
    before = kept[0].n_bytes
    llm.generate("a", seed=1, stopping=StopParams(max_tokens=2), options=GenerationParams(grammar=kept[0]))
    assert kept[0].n_bytes > before
    monkeypatch.setattr(structured, "_MAX_KEPT_BYTES", 1)
    last = cache.get("regex", "last", has_spaces=True)
    assert cache.get("regex", "last", has_spaces=True) is last
    assert cache.get("regex", "a0", has_spaces=True) is not kept[0]


def schema_at(schema):
    """A format with a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}}}


AT = "response_format.json_schema.schema"
NOT_POSSIBLE = [
    ({"response_format": {"type": "xml"}}, "response_format.type", "one of 'text', 'json_object', 'json_schema'"),
    ({"response_format": {}}, "response_format.type", "is not given"),
    ({"response_format": "json"}, "response_format", "an object with a `type`"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is not given; give an object with a `schema`"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "p"}}}, AT, "is not given; give a JSON Schema"),
    ({"response_format": {"type": "text", "schema": PERSON}}, "response_format.schema", "the type 'text'"),
    (schema_at([]), AT, "a JSON Schema"),
    (schema_at({"type": "array", "uniqueItems": True}), f"{AT}.uniqueItems", "uniqueItems at #: a grammar can"),
    (schema_at({"properties": {"a": {"type": "string", "pattern": "(?=a)"}}}), f"{AT}.properties.a.pattern", "(?=a at character 0"),
    (schema_at({"anyOf": [{}, {"contains": {}}]}), f"{AT}.anyOf[1].contains", "cannot express this keyword"),
    (schema_at({"properties": {"a/b": {"type": "date"}}}), f"{AT}.properties.a/b.type", "type at #/properties/a~1b: 'date'"),
    (schema_at({"properties": {"Q" * 90: {"type": "date"}}}), f"{AT}.properties[0].type", "'date'"),
    (schema_at({"$defs": {"d": {"contains": {}}}, "$ref": "#/$defs/d"}), f"{AT}.$defs.d.contains", "cannot express"),
    (schema_at({"properties": {"a": {"allOf": 5}}}), f"{AT}.properties.a.allOf", "expected a list"),
    (schema_at({"properties": {"a": 5}}), f"{AT}.properties.a", "a schema must be an object or a bool"),
    (schema_at({"$ref": "http://example.com"}), f"{AT}.$ref", "only references into the same schema"),
    ({"json_schema": {"required": 5}}, "json_schema.required", "a list of names"),
    ({"guided_json": "{"}, "guided_json", "not JSON"),
    ({"guided_json": False}, "guided_json", "schema is false"),
    ({"json_schema": False}, "json_schema", "schema is false"),
    ({"guided_regex": "a("}, "guided_regex", "line 1, column"),
    ({"guided_choice": []}, "guided_choice", "a list of texts"),
    ({"guided_grammar": 'root ::= "a" oops'}, "guided_grammar", "line 1, column 14"),
    ({"grammar": "start: /a"}, "grammar", "line 1, column 8"),
    ({"grammar": 'start: "a"\n%import .secret (x)'}, "grammar", "line 2"),
    ({"guided_json": {}, "guided_whitespace_pattern": " +"}, "guided_whitespace_pattern", "must not be empty"),
    ({"grammar": 'root ::= "a"', "grammar_lazy": True}, "grammar_lazy", "not offered"),
    ({"guided_json": {}, "guided_regex": "a"}, "guided_regex", "cannot be combined with `guided_json`"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema", "cannot be combined with `grammar`"),
    ({**schema_at(PERSON), "structured_outputs": {"json_object": True}}, "structured_outputs.json_object", f"cannot be combined with `{AT}`"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "message"), NOT_POSSIBLE, ids=range(len(NOT_POSSIBLE)))
def test_errors_name_the_field_that_the_client_used(llm, fields, param, message):
    """With the path to the keyword of a schema that a grammar cannot express."""
    before = llm._model.calls
    for path, asked in ENDPOINTS.items():
        error = ask(app(llm), "POST", path, {**asked, **fields}).error
        assert error["param"] == param, error
        assert message in error["message"]
    assert llm._model.calls == before


def test_an_option_that_a_grammar_decides_has_the_names_of_the_client(llm):
    """`min_tokens` beside `response_format`."""
    error = ask(app(llm), "POST", PATH, {**BODY, "min_tokens": 2, **schema_at(PERSON)}).error
    assert error["param"] == "min_tokens"
    assert "structured_outputs" not in error["message"]


@pytest.mark.parametrize(("schema", "allowed", "refused"), CLOSED, ids=lambda one: json.dumps(one)[:40])
def test_objects_have_their_declared_properties_alone(schema, allowed, refused):
    """Unless the schema is open by its own words, or has parts that would exclude each other."""
    grammar = Constraint.of("schema", "json", schema).compile().grammar
    whole = Grammar.from_json_schema(schema)
    assert all(grammar.accepts(text) and whole.accepts(text) for text in allowed)
    assert not any(grammar.accepts(text) for text in refused)


def test_a_long_pattern_of_white_space_is_refused_even_without_json(llm):
    """As the description of the endpoint says."""
    body = {"prompt": "a", "max_tokens": 1, "guided_whitespace_pattern": " " * (MAX_CHARACTERS + 1)}
    assert ask(app(llm), "POST", "/v1/completions", body).error["param"] == "guided_whitespace_pattern"


@pytest.mark.parametrize("schema", [*(schema for schema, _, _ in CLOSED), {}], ids=lambda one: json.dumps(one)[:40])
def test_a_schema_and_its_text_say_the_same(schema):
    """However the text is laid out."""
    one, text = (Constraint.of("guided_json", "json", form) for form in (schema, json.dumps(schema, indent=2)))
    assert one.says_same(text)
    assert one.source == text.source


def test_deep_constants_are_read_or_refused():
    """At each depth, also where only one of the steps recurses too deeply."""
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 20, 3):
        with contextlib.suppress(HttpError):
            Constraint.of("guided_json", "json", f'{{"enum": [{"[" * depth}{"]" * depth}]}}').compile()


@pytest.mark.parametrize(
    ("text", "param", "message"),
    [
        ('{"type":\n oops}', "guided_json", "line 2, column 2"),
        ('{"type": "null", "type": "null"}', "guided_json", "the key 'type' occurs twice"),
        ('{"properties": {"a": {"contains": {}}}}', "guided_json.properties.a.contains", "cannot express"),
        ("[]", "guided_json", "a schema must be an object or a bool"),
    ],
)
def test_errors_in_the_text_of_a_schema(llm, text, param, message):
    """A line and column if it is not JSON, else the path to the keyword."""
    error = ask(app(llm), "POST", PATH, {**BODY, "guided_json": text}).error
    assert error["param"] == param
    assert message in error["message"]
