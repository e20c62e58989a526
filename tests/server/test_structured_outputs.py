"""The field `structured_outputs`: each kind is a grammar of the engine, and what is wrong is named."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import GenerationParams, Grammar, SamplingParams, StopParams
from selectrie.server import ServerOptions, app
from selectrie.server.generation import MAX_CHARACTERS
from tests.support.chatting import MESSAGES, PATH, put_together
from tests.support.deciding import fake
from tests.support.serving import ask

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
KINDS = [
    ({"choice": ["left", "right", "é"]}, Grammar.from_choices(["left", "right", "é"])),
    ({"regex": "[a-c]{3,5}"}, Grammar.from_regex("[a-c]{3,5}")),
    ({"json": SCHEMA}, Grammar.from_json_schema(SCHEMA)),
    ({"json": json.dumps(SCHEMA), "regex": None, "json_object": False}, Grammar.from_json_schema(SCHEMA)),
    ({"grammar": 'root ::= word "."\nword ::= [a-z]'}, Grammar.from_regex(r"[a-z]\.")),
    ({"json_object": True, "disable_any_whitespace": True}, Grammar.from_json_schema({"type": "object"})),
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
    ({"regex": "a", "whitespace_pattern": " "}, "structured_outputs.whitespace_pattern", "not offered"),
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
    ({"json": True}, "structured_outputs.json", "a JSON Schema"),
    ({"json": ""}, "structured_outputs.json", "not JSON"),
    ({"json": {"type": "strange"}}, "structured_outputs.json", "strange"),
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


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("guided_json", {}, "json"),
        ("guided_regex", "a", "regex"),
        ("guided_choice", ["a"], "choice"),
        ("guided_grammar", "root ::= a", "grammar"),
        ("guided_json_object", True, "json_object"),
        ("grammar", "root ::= a", "grammar"),
        ("response_format", {"type": "json_object"}, "json"),
    ],
)
def test_other_names_say_what_to_use(llm, name, value, kind):
    """The older and foreign names are refused with the kind that stands for them."""
    for path, asked in ENDPOINTS.items():
        error = ask(app(llm), "POST", path, {**asked, name: value}).error
        assert (error["code"], error["param"]) == ("unsupported", name)
        assert f"use `structured_outputs` with `{kind}`" in error["message"]
