"""Extraction over HTTP: what `Engine.extract` answers for a JSON Schema, and errors with the path to the value."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie import BeamSearchParams, DecisionParams
from selectrie.server import ServerOptions, app
from tests.support.deciding import STATE, fake
from tests.support.serving import ask

SCHEMA = {
    "type": "object",
    "properties": {"team": {"enum": ["post", "shop"]}, "urgent": {"type": "boolean"}},
    "required": ["team", "urgent"],
    "additionalProperties": False,
}
OPEN = {
    "type": "object",
    "properties": {"code": {"type": "string", "pattern": "^[ab]{1,2}$"}},
    "required": ["code"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm():
    """A fake with a chat template."""
    with fake() as engine:
        yield engine


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"marginals": False}, {"marginals": False}),
        (
            {"instructions": "Who?", "layout": "state first"},
            {"instructions": "Who?", "params": DecisionParams(layout="state first")},
        ),
        ({"schema": OPEN, "max_tokens": 60}, {"beam": BeamSearchParams(width=4, n=4, max_tokens=60)}),
    ],
    ids=["plain", "value", "prompt", "open"],
)
def test_a_value_is_that_of_extract(llm, fields, options):
    """To the last bit: JSON gives floats back as they were."""
    body = {"model": "m", "input": STATE, "schema": SCHEMA, **fields}
    reply = ask(app(llm), "POST", "/v1/extract", body)
    wanted = llm.extract(STATE, body["schema"], **options).to_dict()
    assert reply.status == 200
    for name in ("value", "text", "probability", "probability_low", "probability_high", "marginals", "is_listed"):
        assert reply.json[name] == wanted[name]


def test_data_and_messages_may_be_asked_about(llm):
    """The input is a state as `decide` takes it, and fields that are not known are named."""
    talk = [{"role": "user", "content": "Where is it?"}]
    reply = ask(app(llm), "POST", "/v1/extract", {"input": talk, "schema": SCHEMA, "temprature": 1})
    assert reply.json["value"] == llm.extract(talk, SCHEMA).value
    assert "temprature" in reply.json["warnings"][0]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"schema": {"type": "array", "uniqueItems": True}}, "schema"),
        ({"schema": {"type": "integer", "minimum": 0, "maximum": 99}}, "schema"),
        ({"schema": None}, "schema"),
        ({"schema": "Ticket"}, "schema"),
        ({"schema": {"team": "string"}}, "schema"),
        ({"input": " "}, "input"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"layout": "upside down"}, "layout"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_mistakes_name_the_field(llm, changes, param):
    """Each is a 400 before any model call, with the path to the value."""
    body = {"input": STATE, "schema": SCHEMA, **changes}
    reply = ask(app(llm, ServerOptions(max_options_in_all=50)), "POST", "/v1/extract", body)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


def test_an_open_schema_without_a_text_is_an_error(llm):
    """A search that finishes nothing within the tokens is told as such."""
    reply = ask(app(llm), "POST", "/v1/extract", {"input": STATE, "schema": OPEN, "max_tokens": 2})
    assert (reply.status, reply.json["error"]["code"]) == (400, "nothing_found")
    assert reply.json["error"]["message"].endswith("no text was finished; raise `max_tokens`")


def test_all_searches_of_an_open_schema_share_the_rows():
    """`max_rows` limits the searches of alternatives as well; its error is about the budget."""
    schema = {
        "type": "object",
        "properties": {"code": OPEN["properties"]["code"], "kind": {"enum": list("abcdefgh")}},
        "required": ["code", "kind"],
        "additionalProperties": False,
    }
    replies = {}
    for max_rows in (20, 100, 1000):
        with fake(3, sharpness=3.0) as llm:
            server = app(llm, ServerOptions(max_rows=max_rows))
            replies[max_rows] = ask(server, "POST", "/v1/extract", {"input": STATE, "schema": schema}).json
    few, some, many = replies.values()
    assert some["value"] == many["value"]
    n_kinds = [len(one["marginals"]["kind"]["values"]) for one in (some, many)]
    assert (n_kinds[0] < 8, n_kinds[1]) == (True, 8)
    n_first = 76  # nodes of the first search, which takes 247 rows with those of the prompt
    assert 247 < some["rows"] <= 247 + 100 - n_first < many["rows"]
    assert few["error"]["code"] == "nothing_found"
    assert few["error"]["message"].endswith("the budget ended after 17 nodes; the operator can raise --max-rows")
