"""`/v1/responses`: the answers of chats in other objects, asked by OpenAI's client as released, which validates each of them."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")
pytest.importorskip("openai", reason="needs the extra 'test-clients'")

import openai
import pydantic

import selectrie
from selectrie.results.records import TokenScore
from selectrie.server import ServerOptions, app
from selectrie.server.generation.responses import ResponseWriter, read_responses
from selectrie.server.generation.tool_turn import Piece
from selectrie.server.transport.request_context import Exchange
from tests.support.deciding import fake
from tests.support.serving import ask, running

PATH = "/v1/responses"
ASKED: dict[str, Any] = {"model": "embedded", "input": "Once upon a time there was a", "extra_body": {"seed": 3}}


class Visit(pydantic.BaseModel):
    """What is asked of the model."""

    name: Literal["Ann", "Bo"]
    late: bool


@pytest.fixture(scope="module")
def served():
    """The engine of a server with the embedded model, and a client of it."""
    with selectrie.load(n_threads=1) as llm, running(app(llm)) as url:
        yield llm, openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, _strict_response_validation=True)


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with fake() as made:
        yield made


def chat(served, **fields):
    """What the endpoint of chats answers, on an empty cache before and after."""
    llm, client = served
    llm.trim()
    messages = [{"role": "user", "content": ASKED["input"]}]
    found = client.chat.completions.create(model="embedded", seed=3, **{"messages": messages, **fields})
    llm.trim()
    return found


def test_an_answer_is_that_of_a_chat(served):
    """Text, log-probabilities and usage, to the last bit; what the request says comes back."""
    _, client = served
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED["input"]}]
    wanted = chat(served, messages=messages, max_tokens=8, logprobs=True, top_logprobs=2, temperature=0.5)
    found = client.responses.create(
        **ASKED,
        instructions="Be brief.",
        max_output_tokens=8,
        temperature=0.5,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=2,
        metadata={"a": "b"},
        store=False,
    )
    (item,), (choice,) = found.output, wanted.choices
    assert found.output_text == choice.message.content
    shown = [
        (one.token, one.logprob, [other.logprob for other in one.top_logprobs]) for one in item.content[0].logprobs
    ]
    assert shown == [
        (one.token, one.logprob, [other.logprob for other in one.top_logprobs]) for one in choice.logprobs.content
    ]
    assert (found.usage.input_tokens, found.usage.output_tokens) == (
        wanted.usage.prompt_tokens,
        wanted.usage.completion_tokens,
    )
    assert (found.instructions, found.temperature, found.metadata, found.store) == ("Be brief.", 0.5, {"a": "b"}, False)
    assert (found.status, item.status) == ("incomplete", "incomplete")
    assert found.incomplete_details.reason == "max_output_tokens"
    assert not (found.model_extra or {}).get("warnings")


def test_cached_tokens_of_prompts(served):
    """None on an empty cache, whatever the answer reads of its own prompt, and then all."""
    llm, client = served
    llm.trim()
    usages = [client.responses.create(**ASKED, max_output_tokens=4).usage for _ in range(2)]
    llm.trim()
    assert [one.input_tokens_details.cached_tokens for one in usages] == [0, usages[0].input_tokens]


def test_a_stream_is_the_whole_answer_in_events(served):
    """In the order of OpenAI's, with numbers in sequence; deltas add up to the text, and to the log-probabilities."""
    llm, client = served
    wanted = chat(served, max_tokens=8, logprobs=True).choices[0]
    include = ["message.output_text.logprobs"]
    events = list(client.responses.create(**ASKED, max_output_tokens=8, include=include, stream=True))
    llm.trim()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    kinds = [event.type.removeprefix("response.") for event in events if event not in deltas]
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added",
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    assert "".join(event.delta for event in deltas) == events[-1].response.output_text == wanted.message.content
    logprobs = [one.logprob for event in deltas for one in event.logprobs]
    assert logprobs == [one.logprob for one in wanted.logprobs.content]
    assert events[0].response.output == []
    assert events[0].response.id == events[-1].response.id
    assert events[-1].response.usage.output_tokens == 8


def test_an_answer_of_a_given_form(served):
    """`parse`, the helper for streams and the asynchronous client return the client's own class."""
    llm, client = served
    schema = {"type": "json_schema", "json_schema": {"schema": openai.lib._pydantic.to_strict_json_schema(Visit)}}
    wanted = chat(served, response_format=schema).choices[0].message.content
    found = client.responses.parse(**ASKED, text_format=Visit)
    llm.trim()
    assert found.output_text == wanted
    assert found.status == "completed"
    assert isinstance(found.output_parsed, Visit)
    with client.responses.stream(**ASKED, text_format=Visit) as stream:
        assert [event.type for event in stream].count("response.output_text.done") == 1
        assert stream.get_final_response().output_parsed == found.output_parsed

    async def parse() -> Any:
        async with openai.AsyncOpenAI(
            base_url=client.base_url, api_key="-", max_retries=0, _strict_response_validation=True
        ) as other:
            return (await other.responses.parse(**ASKED, text_format=Visit)).output_parsed

    assert isinstance(asyncio.run(parse()), Visit)


def test_an_answer_goes_back_as_an_item(served):
    """With all its fields, beside reasoning, which is left out; the prompt is that of the same chat."""
    _, client = served
    first = client.responses.create(**ASKED, max_output_tokens=5)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    question = {"role": "user", "content": ASKED["input"]}
    again = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And then?"}]}
    for said in (first.output, [one.to_dict() for one in first.output]):
        items = [question, reasoning, *said, again]
        found = client.responses.create(model="embedded", input=items, max_output_tokens=5, extra_body={"seed": 3})
        messages = [question, {"role": "assistant", "content": first.output_text}, {**question, "content": "And then?"}]
        wanted = chat(served, messages=messages, max_tokens=5)
        assert found.output_text == wanted.choices[0].message.content
        assert found.usage.input_tokens == wanted.usage.prompt_tokens
        assert not (found.model_extra or {}).get("warnings")


class GetWeather(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]
    metric: bool


CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
FUNCTIONS = [{"name": "get_weather", "description": "Weather.", "parameters": CITY}, {"name": "get_time"}]
TOOLS = [{"type": "function", **one} for one in FUNCTIONS]
CHAT_TOOLS = [{"type": "function", "function": one} for one in FUNCTIONS]


@pytest.mark.parametrize("choice", ["required", "get_weather", ["get_time"]], ids=str)
def test_calls_are_those_of_a_chat(served, choice):
    """Functions, arguments, usage and diagnostics; the choice comes back in the form of this endpoint."""
    llm, client = served
    asked, chosen = choice, choice
    if choice == "get_weather":
        asked, chosen = {"type": "function", "name": choice}, {"type": "function", "function": {"name": choice}}
    elif choice != "required":
        allowed = {"type": "allowed_tools", "mode": "required"}
        asked = {**allowed, "tools": [{"type": "function", "name": name} for name in choice]}
        named = [{"type": "function", "function": {"name": name}} for name in choice]
        chosen = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
    wanted = chat(served, tools=CHAT_TOOLS, tool_choice=chosen)
    found = client.responses.create(**ASKED, tools=TOOLS, tool_choice=asked)
    llm.trim()
    calls = [(one.function.name, one.function.arguments) for one in wanted.choices[0].message.tool_calls]
    assert [(one.name, one.arguments) for one in found.output] == calls
    assert {(one.type, one.status) for one in found.output} == {("function_call", "completed")}
    assert found.usage.output_tokens == wanted.usage.completion_tokens
    assert found.usage.input_tokens_details.cached_tokens == 0
    assert found.to_dict()["tool_choice"] == asked
    diagnostics = wanted.choices[0].model_extra["tool_choice"]
    assert found.model_extra["tool_decisions"][0]["probabilities"] == diagnostics["probabilities"]
    assert [one.name for one in found.tools] == ["get_weather", "get_time"]


def test_calls_in_a_stream(served):
    """Each is an item that is added, grows by its arguments, and is done; the helper parses them."""
    llm, client = served
    asked = {**ASKED, "tools": TOOLS, "tool_choice": {"type": "function", "name": "get_weather"}}
    wanted = client.responses.create(**asked).output[0].arguments
    llm.trim()
    events = list(client.responses.create(**asked, stream=True))
    llm.trim()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    kinds = [event.type.removeprefix("response.") for event in events if not event.type.endswith(".delta")]
    assert kinds == [
        "created", "in_progress", "output_item.added", "function_call_arguments.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert "".join(deltas) == wanted == events[-1].response.output[0].arguments
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1
    tool = openai.pydantic_function_tool(GetWeather)
    with client.responses.stream(**ASKED, tools=[tool], tool_choice="required", parallel_tool_calls=False) as stream:
        (call,) = stream.get_final_response().output
    assert isinstance(call.parsed_arguments, GetWeather)


def test_text_beside_tools(served):
    """A message, with log-probabilities, of which the decision against a call says why there is none."""
    _, client = served
    include = ["message.output_text.logprobs"]
    wanted = chat(served, tools=CHAT_TOOLS, max_tokens=8, logprobs=True).choices[0]
    found = client.responses.create(**ASKED, tools=TOOLS, tool_choice="auto", max_output_tokens=8, include=include)
    assert found.output_text == wanted.message.content
    shown = found.output[0].content[0].logprobs
    assert [one.logprob for one in shown] == [one.logprob for one in wanted.logprobs.content]
    assert found.model_extra["tool_decisions"][0]["no_call"] > 0.5


def test_calls_and_results_go_back_as_items(served):
    """The prompt is that of a chat in which the calls are in the message before them."""
    _, client = served
    question = {"role": "user", "content": ASKED["input"]}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
    }
    calls = [{"type": "function_call", "call_id": f"c{i}", "name": "get_time", "arguments": "{}"} for i in (1, 2)]
    results = [{"type": "function_call_output", "call_id": f"c{i}", "output": "noon"} for i in (1, 2)]
    results[1]["output"] = [{"type": "input_text", "text": "noon"}]
    items = [question, said, *calls, *results]
    found = client.responses.create(
        model="embedded", input=items, tools=TOOLS, max_output_tokens=4, extra_body={"seed": 3}
    )
    tool_calls = [
        {"id": one["call_id"], "type": "function", "function": {"name": one["name"], "arguments": "{}"}}
        for one in calls
    ]
    messages = [
        question,
        {"role": "assistant", "content": "Wait.", "tool_calls": tool_calls},
        *({"role": "tool", "tool_call_id": f"c{i}", "content": "noon"} for i in (1, 2)),
    ]
    wanted = chat(served, messages=messages, tools=CHAT_TOOLS, max_tokens=4)
    assert found.usage.input_tokens == wanted.usage.prompt_tokens
    assert found.output_text == (wanted.choices[0].message.content or "")


def test_text_and_calls_are_items_one_after_the_other():
    """Each is done before the next is added, under its own index; the response has them in this order."""
    request, _ = read_responses({"input": "a", "include": ["message.output_text.logprobs"]}, ServerOptions())
    writer = ResponseWriter({}, request.generation, Exchange("1", PATH), has_logprobs=True)
    token = TokenScore(5, b"Wait", -1.0, "Wait")
    pieces = [
        Piece(0, "Wait", tokens=(token,), alternatives=((),)),
        Piece(0, call=0, id="c0", name="f"),
        Piece(0, call=0, arguments='{"a": 1', tokens=(token,), alternatives=((),)),
        Piece(0, call=0, arguments="}"),
        Piece(0, call=1, id="c1", name="g"),
        Piece(0, call=1, arguments="{", finish="length"),
    ]
    events = [event for piece in pieces for event in writer.pieces(piece)]
    events += writer.last({"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12})
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    shown = [(event["type"].removeprefix("response."), event.get("output_index")) for event in events]
    assert shown == [
        ("created", None), ("in_progress", None),
        ("output_item.added", 0), ("content_part.added", 0), ("output_text.delta", 0),
        ("output_text.done", 0), ("content_part.done", 0), ("output_item.done", 0),
        ("output_item.added", 1), ("function_call_arguments.delta", 1), ("function_call_arguments.delta", 1),
        ("function_call_arguments.done", 1), ("output_item.done", 1),
        ("output_item.added", 2), ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2), ("output_item.done", 2),
        ("incomplete", None),
    ]  # fmt: skip
    message, first, second = events[-1]["response"]["output"]
    assert (message["content"][0]["text"], len(message["content"][0]["logprobs"])) == ("Wait", 1)
    assert (first["call_id"], first["name"], first["arguments"], first["status"]) == (
        "c0",
        "f",
        '{"a": 1}',
        "completed",
    )
    assert (second["arguments"], second["status"]) == ("{", "incomplete")


def test_a_call_that_the_limit_cuts(llm):
    """It is incomplete, as its response is."""
    tools = [
        {
            "type": "function",
            "name": "f",
            "parameters": {"properties": {"a": {"minLength": 20, "type": "string"}}, "required": ["a"]},
        }
    ]
    body = {"input": "a", "tools": tools, "tool_choice": "required", "max_output_tokens": 3, "seed": 1}
    found = ask(app(llm), "POST", PATH, body).json
    assert (found["status"], found["output"][-1]["status"]) == ("incomplete", "incomplete")
    events = ask(app(llm), "POST", PATH, {**body, "stream": True}).events
    assert events[-1]["response"]["output"][-1]["arguments"] == found["output"][-1]["arguments"]


WRONG = [
    ({"input": None}, "input", "is not given"),
    ({"input": []}, "input", "a text, or a list of 1 to 4096 items"),
    ({"input": [{"type": "reasoning"}]}, "input", "at least one message"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type", "'computer_call' are not read"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "'item_reference' are not read"),
    ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role", "one of 'user', 'assistant', 'system', 'developer'"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]", "is not read; give text"),
    ({"input": [{"role": "user", "content": "a", "tool_calls": [{}]}]}, "input[0].tool_calls", "type 'function_call'"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]}, "input[0].call_id", "the id of a call"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "["}]}, "input[0].arguments", "an object"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "the type 'function' is offered"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "letters, digits"),
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name", "each name once"),
    ({"tools": [{**TOOLS[0], "strict": True, "parameters": {"contains": {}}}]}, "tools[0].parameters.contains", "a grammar cannot"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name", "one of the declared tools"),
    ({"tools": [{**TOOLS[0], "name": f"f{i}", "parameters": {"description": "a" * 60_000}} for i in range(20)]}, "tools", "at most 1000000 characters of parameters"),
    ({"tools": TOOLS, "min_tokens": 2}, "min_tokens", "cannot be combined with `tools`"),
    ({"tool_choice": "required"}, "tool_choice", "'none' or 'auto'"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation in `input`"),
    ({"conversation": "conv_1"}, "conversation", "send the whole conversation in `input`"),
    ({"background": True}, "background", "not offered"),
    ({"truncation": "auto"}, "truncation", "send what fits the context"),
    ({"n": 2}, "n", "not offered"),
    ({"max_tokens": 5}, "max_tokens", "use `max_output_tokens`"),
    ({"max_output_tokens": 10**6}, "max_output_tokens", "may draw 1 x 1000000 tokens"),
    ({"metadata": {"a": 1}}, "metadata.a", "a text"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "is not given; give a JSON Schema"),
    ({"text": {"format": {"type": "json_schema", "schema": {"contains": {}}}}}, "text.format.schema.contains", "a grammar cannot"),
    ({"text": {"format": {"type": "json_object"}}, "min_tokens": 2}, "min_tokens", "a grammar"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(llm, fields, param, message):
    """400 with the path in the words of this endpoint, before any call of the model."""
    before = llm._model.calls
    for stream in (False, True):
        error = ask(app(llm), "POST", PATH, {"input": "a", "stream": stream, **fields}).error
        assert error["param"] == param, error
        assert message in error["message"]
    assert llm._model.calls == before


def test_what_has_no_effect_is_a_warning(llm):
    """An answer that is to be stored, effort, and unknown fields of items; in a stream in its first event."""
    body = {
        "input": [{"role": "user", "content": "a", "colour": "red"}],
        "max_output_tokens": 2,
        "store": True,
        "reasoning": {"effort": "low", "summary": "auto"},
        "truncation": "disabled",
        "parallel_tool_calls": False,
        "tools": [],
    }
    whole = ask(app(llm), "POST", PATH, body).json
    assert whole["store"] is False
    assert whole["parallel_tool_calls"] is False
    assert whole["reasoning"] == body["reasoning"]
    assert len(whole["warnings"]) == 3
    streamed = ask(app(llm), "POST", PATH, {**body, "stream": True})
    assert streamed.events[0]["response"]["warnings"] == whole["warnings"]
    assert streamed.headers["x-selectrie-warning"].startswith("the field 'colour' of messages is unknown")


def test_an_error_in_a_stream_is_the_clients_own(served):
    """One that comes before the first event has its status."""
    _, client = served
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**ASKED, max_output_tokens=10**5, stream=True)
    assert caught.value.param == "max_output_tokens"
