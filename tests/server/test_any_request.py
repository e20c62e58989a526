"""Requests that nobody would write: the server answers all of them, and never fails."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.results import advice
from selectrie.server import ServerOptions, app
from selectrie.server.application import BODIES as MODELS
from selectrie.server.calls.tokenizer import TokenizeChatBody
from selectrie.server.decisions.decisions import DecisionsBody, SystemoneBody
from selectrie.server.fields.reading import read
from tests.support.calling import FULL, LEAST
from tests.support.deciding import fake
from tests.support.n_examples import n_examples
from tests.support.serving import ask

pytestmark = pytest.mark.filterwarnings("error")  # also advice: requests and answers are no matter of Python's warnings
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["a\ud800", "yes"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
QUESTION = st.fixed_dictionaries(
    {"type": st.sampled_from(["choice", "predicate", "score", "noul", "box"]) | JSON},
    optional={
        "instructions": st.text(max_size=9) | JSON,
        "choices": st.lists(st.fixed_dictionaries({"value": JSON}), max_size=3) | JSON,
        "levels": st.lists(st.fixed_dictionaries({"label": st.text(max_size=5)}), max_size=3) | JSON,
        "criteria": st.dictionaries(st.text(max_size=5), JSON, max_size=3) | st.lists(JSON, max_size=3) | JSON,
        "name": JSON,
        "examples": st.lists(
            st.fixed_dictionaries({"state": st.just("s"), "answer": st.sampled_from(["a", True]) | JSON})
        ),
    },
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "input": st.text(max_size=9) | JSON,
        "state": st.text(max_size=9) | JSON,
        "questions": st.lists(QUESTION, max_size=3) | st.dictionaries(st.text(max_size=5), QUESTION, max_size=3) | JSON,
        "model": JSON,
        "scoring": JSON | st.sampled_from(["text", "letters"]),
        "rule": JSON | st.sampled_from(["joint", "pmi"]),
        "permutations": JSON | st.integers(0, 4),
        "min_confidence": JSON,
        "min_label_mass": JSON,
        "confidence": JSON,
    },
)

OPTIONS = st.integers(-2, 3) | st.floats(-2, 2) | JSON
STRUCTURED = JSON | st.fixed_dictionaries(
    {},
    optional={
        "choice": JSON | st.lists(st.text(max_size=3), max_size=3),
        "regex": JSON | st.sampled_from(["[ab]{2,}", "(", "\ud800"]),
        "json": JSON | st.sampled_from(['{"type": "object"}', "{", {"enum": [1, "a"]}, {"$ref": "#/a"}]),
        "grammar": JSON | st.sampled_from(['root ::= "a" root | ""', 'root ::= "a" root', "root ::= <[9999]>"]),
        "json_object": st.booleans() | JSON,
    },
)
SCHEMAS = st.sampled_from([{"enum": [1, "a"]}, {"type": "object"}, {"contains": {}}, {"$ref": "#/a"}, "{}", "{"]) | JSON
FORMAT = JSON | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "json_object", "json_schema"]) | JSON},
    optional={"schema": SCHEMAS, "json_schema": JSON | st.fixed_dictionaries({"schema": SCHEMAS, "strict": JSON})},
)
OTHERS = {"guided_json": SCHEMAS, "json_schema": SCHEMAS, "grammar": JSON, "guided_whitespace_pattern": JSON}
CHAT = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "system", "assistant", "developer", "tool", "x"]) | JSON},
                optional={
                    "content": st.text(max_size=9)
                    | JSON
                    | st.lists(st.fixed_dictionaries({"type": JSON | st.just("text"), "text": JSON | st.just("a")})),
                    "name": JSON,
                    "tool_calls": JSON,
                },
            ),
            max_size=3,
        )
        | JSON,
        "max_tokens": st.integers(1, 4),
    },
    optional={
        **dict.fromkeys(["n", "best_of", "top_k", "seed", "priority", "top_logprobs", "penalty_last_n"], OPTIONS),
        **dict.fromkeys(["temperature", "top_p", "min_p", "typical_p", "repetition_penalty"], OPTIONS),
        **dict.fromkeys(["presence_penalty", "frequency_penalty", "min_tokens", "max_completion_tokens"], OPTIONS),
        **dict.fromkeys(["logprobs", "ignore_eos", "stream"], st.booleans() | JSON),
        "logit_bias": st.dictionaries(st.sampled_from(["1", "257", "258", "x"]), OPTIONS, max_size=2) | JSON,
        "stop": st.text(max_size=3) | st.lists(st.text(max_size=2), max_size=3) | JSON,
        "stop_token_ids": st.lists(st.integers(-1, 300), max_size=2) | JSON,
        "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans() | JSON}) | JSON,
        "chat_template_kwargs": st.dictionaries(st.text(max_size=3), JSON, max_size=2) | JSON,
        "response_format": FORMAT,
        "structured_outputs": STRUCTURED,
        **OTHERS,
        "model": JSON,
    },
)

COMPLETION = st.fixed_dictionaries(
    {"max_tokens": st.integers(0, 4)},
    optional={
        "prompt": st.text(max_size=5)
        | st.lists(st.integers(-1, 300), max_size=4)
        | st.lists(st.text(max_size=4) | st.lists(st.integers(0, 257), max_size=3), max_size=3)
        | JSON,
        **dict.fromkeys(
            ["logprobs", "prompt_logprobs", "n", "best_of", "truncate_prompt_tokens", "min_tokens"], OPTIONS
        ),
        **dict.fromkeys(["echo", "stream", "return_token_ids", "add_special_tokens"], st.booleans() | JSON),
        "return_tokens_as_token_ids": st.booleans() | JSON,
        "logprob_token_ids": st.lists(st.integers(-1, 300), max_size=3) | JSON,
        "suffix": JSON,
        "structured_outputs": STRUCTURED,
        "stop": st.text(max_size=3) | JSON,
        "logit_bias": st.dictionaries(st.sampled_from(["1", "257", "258"]), OPTIONS, max_size=2),
    },
)

ITEM = JSON | st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "developer", "x"]) | JSON},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output"]) | JSON,
        **dict.fromkeys(["call_id", "name", "output"], st.just("a") | JSON),
        "arguments": st.sampled_from(["{}", "["]) | JSON,
        "content": st.text(max_size=9) | JSON | st.just([{"type": "input_text", "text": "a"}]),
    },
)
RESPONSES = st.fixed_dictionaries(
    {"input": st.text(max_size=5) | st.lists(ITEM, max_size=3) | JSON, "max_output_tokens": st.integers(1, 4)},
    optional={
        **dict.fromkeys(["top_logprobs", "temperature", "n"], OPTIONS),
        **dict.fromkeys(["stream", "store", "background", "parallel_tool_calls"], st.booleans() | JSON),
        **dict.fromkeys(["instructions", "truncation", "reasoning", "metadata", "previous_response_id"], JSON),
        "tools": st.just([{"type": "function", "name": "f"}]) | JSON,
        "tool_choice": st.sampled_from(["none", "auto", "required", {"type": "function", "name": "f"}]) | JSON,
        "include": st.just(["message.output_text.logprobs"]) | JSON,
        "text": st.fixed_dictionaries({}, optional={"format": FORMAT, "verbosity": JSON}) | JSON,
        "structured_outputs": STRUCTURED,
    },
)


def mixed(body):
    """Each field of a body as it is, or of any shape; few of them are left out."""
    return st.fixed_dictionaries({name: st.just(value) | st.just(value) | JSON for name, value in body.items()})


CALL = st.one_of(
    *(
        st.tuples(st.just(path), st.builds(lambda one, more: {**one, **more}, mixed(body), st.fixed_dictionaries({}, optional=more)))
        for path, whole in FULL.items()
        for body in (whole, LEAST[path])
        for more in [
            {
                "stream": st.booleans(),
                "search": st.fixed_dictionaries({}, optional=dict.fromkeys(["k", "width", "mass", "budget_nodes", "max_tokens"], OPTIONS)),
                "beam": st.fixed_dictionaries({}, optional=dict.fromkeys(["n", "width", "groups", "diversity", "length_penalty"], OPTIONS)),
                "prompting": st.fixed_dictionaries({}, optional={"truncate": JSON | st.just("left"), "delimiter": st.text(max_size=3)}),
                **dict.fromkeys(["k", "n", "width", "seed", "max_tokens"], OPTIONS),
            }
        ]
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def application():
    """The application on a fake."""
    with fake() as llm:
        yield app(llm, ServerOptions(default_max_tokens=4, max_n=3))


@settings(max_examples=n_examples(150), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(path=st.sampled_from(["/v1/decisions", "/v1/systemone"]), body=BODY)
def test_bodies_of_any_shape(application, path, body):
    """200 with probabilities, or an error in the shape of the endpoint; nothing else, whatever the fields hold."""
    reply = ask(application, "POST", path, body)
    refused = 422 if path == "/v1/systemone" else 400
    assert reply.status in {200, refused}, reply.data
    if reply.status == refused:
        assert reply.error["message"]
        assert refused == 400 or reply.json["detail"][0]["loc"][0] == "body"
    else:
        assert reply.json["answers"]


@settings(max_examples=n_examples(250), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    asked=CHAT.map(lambda body: ("/v1/chat/completions", body)) | COMPLETION.map(lambda body: ("/v1/completions", body))
)
def test_texts_of_any_shape(application, asked):
    """200 with choices, whole or as a stream, or 400 in OpenAI's shape."""
    path, body = asked
    reply = ask(application, "POST", path, body)
    assert reply.status in {200, 400}, reply.data
    if reply.status == 400:
        assert reply.error["message"]
    else:
        choices = (
            [one for event in reply.events for one in event["choices"]] if body.get("stream") else reply.json["choices"]
        )
        assert choices[-1]["finish_reason"] in {"stop", "length"}


@settings(max_examples=n_examples(250), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(asked=CALL)
def test_calls_of_any_shape(application, asked):
    """200 with a result, whole or as the last event of a stream, or 400 in OpenAI's shape."""
    path, body = asked
    reply = ask(application, "POST", path, body)
    assert reply.status in {200, 400}, reply.data
    if reply.status == 400:
        assert reply.error["message"]
    elif body.get("stream"):
        last = reply.events[-1]
        assert last.get("type") == "result" or last["error"]["type"] == "invalid_request_error"
    else:
        assert reply.json["kind"]


@settings(max_examples=n_examples(100), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(body=RESPONSES)
def test_responses_of_any_shape(application, body):
    """200 with a response that is at its end, whole or as a stream, or 400 in OpenAI's shape."""
    reply = ask(application, "POST", "/v1/responses", body)
    assert reply.status in {200, 400}, reply.data
    if reply.status == 400:
        assert reply.error["message"]
    else:
        answer = reply.events[-1]["response"] if body.get("stream") else reply.json
        assert answer["status"] in {"completed", "incomplete"}


BODIES = [
    *FULL.items(),
    (
        "/v1/decisions",
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ],
            "questions": [
                {"type": "choice", "name": "n", "instructions": "i", "choices": [{"value": "v", "description": "d"}]},
                {"type": "score", "instructions": [{"type": "input_text", "text": "t"}], "levels": [{"label": "l"}]},
                {
                    "type": "choice",
                    "choices": [{"value": "a", "texts": ["a", "c"]}, {"value": "b", "texts": ["b", "c"]}, "d", "e"],
                    "examples": [{"state": "s", "answer": "a"}],
                },
            ],
            "scoring": "text",
            "permutations": 1,
        },
    ),
    (
        "/v1/systemone",
        {
            "state": {"a": ["b"]},
            "instructions": "i",
            "questions": {
                "a": {"type": "noul", "instructions": "i", "criteria": {"true": "t"}},
                "b": {"type": "choice", "criteria": {"x": None, "y": {"z": 1}}},
                "c": {"type": "score", "criteria": ["l"]},
            },
        },
    ),
    ("/tokenize", {"prompt": "a", "add_special_tokens": True}),
    ("/tokenize", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
    ("/detokenize", {"tokens": [3]}),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "a", "name": "n"}],
            "max_tokens": 1,
            "stop": ["a"],
            "logprobs": True,
            "top_logprobs": 2,
            "logit_bias": {"5": 1},
            "stream_options": None,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["a"]}}},
            "guided_whitespace_pattern": " ?",
            "chat_template_kwargs": {"a": "b"},
        },
    ),
    (
        "/v1/responses",
        {
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "reasoning"}],
            "instructions": "b",
            "max_output_tokens": 1,
            "include": ["message.output_text.logprobs"],
            "text": {"format": {"type": "json_object"}},
            "reasoning": {"effort": "low"},
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": "auto",
            "metadata": {"a": "b"},
        },
    ),
    (
        "/v1/completions",
        {
            "prompt": ["a"],
            "max_tokens": 1,
            "stop": ["a"],
            "logprobs": 1,
            "logprob_token_ids": [3],
            "logit_bias": {"5": 1},
            "structured_outputs": {"choice": ["a"]},
            "suffix": None,
        },
    ),
]
"""A request of each endpoint, with most of its fields."""


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda one: one if isinstance(one, str) else "")
def test_nothing_is_a_warning_of_python(application, monkeypatch, path, body):
    """One would keep what a client sent, and write it to the log; here it is an error, and so a status of 500."""
    monkeypatch.setattr(advice, "_warned", set())
    assert ask(application, "POST", path, body).status == 200


LONG = "Q" * 300


def spoilt(value):
    """The value with a long text, object or list in each place, with a long key in the place of each key, and beside them."""
    yield from (LONG, {LONG: LONG}, [LONG] * 3)
    if isinstance(value, dict):
        yield value | {LONG: LONG}
        for key in value:
            yield {LONG if name == key else name: inner for name, inner in value.items()}
            yield from (value | {key: inner} for inner in spoilt(value[key]))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from ([*value[:index], inner, *value[index + 1 :]] for inner in spoilt(one))


def warnings_of(reply, body):
    """The warnings about the request itself, of an answer or of the result in a stream."""
    answer = reply.events[-1] if body.get("stream") is True else reply.json
    warnings = answer.get("warnings", ())
    return [
        one["text"] if isinstance(one, dict) else one
        for one in warnings
        if not isinstance(one, dict) or one["code"] == "ignored"
    ]


@pytest.mark.short("/v1/systemone-*", "/v1/c*", "*tokenize*", "/v1/[lrs]*")
@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda one: one if isinstance(one, str) else "")
def test_little_is_quoted(application, path, body):
    """Whatever is wrong where, an error quotes at most 80 characters of a value and of a path; the server never fails."""
    for one in spoilt(body):
        if not isinstance(one, dict):
            continue
        reply = ask(application, "POST", path, one)
        assert reply.status in {200, 422 if path == "/v1/systemone" else 400}, (one, reply.data)
        if reply.status != 200:
            said = [reply.error["message"], reply.error["param"] or ""]
        else:
            said = [*map(str, warnings_of(reply, one)), reply.headers.get("x-selectrie-warning", "")]
        assert max(map(len, re.findall("Q+", " ".join(said))), default=0) <= 80, said


def whole(value):
    """The value with whole numbers as such: JSON Schema takes 1.0 for one, and the server does not."""
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(whole, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


OF_FORM = {DecisionsBody: "input", SystemoneBody: "state", TokenizeChatBody: "messages"}
"""A field that tells a body from others of the same path."""


def test_requests_made_from_the_schema(application):
    """Schemathesis draws requests from OpenAPI's page of the server, right and wrong ones; none makes it fail, and models take right ones."""
    schemathesis = pytest.importorskip("schemathesis", reason="needs the extra 'test-clients'")
    schema = schemathesis.openapi.from_dict(ask(application, "GET", "/openapi.json").json)
    seen, options = set(), application.state.options

    def asked(case):
        data = json.dumps(case.body).encode() if isinstance(case.body, dict | list) else b""
        query = urlencode(case.query or {}, errors="backslashreplace")
        reply = ask(application, case.method.upper(), case.path, data=data, query=query)
        assert reply.status < 500, (case.path, data, reply.data)
        assert reply.status < 400 or reply.error["code"]
        is_named = isinstance(case.body, dict) and case.body.get("request_id")
        assert is_named or len(reply.headers["x-request-id"]) == 32
        seen.add((case.method.lower(), case.path))

    def taken(case):
        asked(case)
        kinds = MODELS.get(case.path, ())
        if not kinds:
            return
        body = whole(case.body) | {"priority": None}  # which an option of the server allows
        read(next((kind for kind in kinds if body.get(OF_FORM.get(kind)) is not None), kinds[0]), body, options)

    few = settings(max_examples=n_examples(5), suppress_health_check=list(HealthCheck), deadline=None)
    for found in schema.get_all_operations():
        for mode in schemathesis.GenerationMode:
            with suppress(Unsatisfiable):  # nothing is wrong for an endpoint without parameters
                right = mode is schemathesis.GenerationMode.POSITIVE
                few(given(case=found.ok().as_strategy(generation_mode=mode))(taken if right else asked))()
    paths = schema.raw_schema["paths"]
    assert seen == {(method, path) for path, methods in paths.items() for method in methods}
    assert {"/tokenizer_info", "/tokenize", "/detokenize", "/v1/decisions", "/v1/systemone"} <= set(paths)
