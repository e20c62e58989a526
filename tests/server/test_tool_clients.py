"""Tools asked for by OpenAI's client as released: parsed arguments, its helper for streams, and a loop of calls and results."""

from __future__ import annotations

import json
from enum import Enum
from typing import Literal

import pytest

pytest.importorskip("uvicorn", reason="needs the extra 'server'")
pytest.importorskip("openai", reason="needs the extra 'test-clients'")

import openai
from pydantic import BaseModel

import selectrie
from selectrie import PromptParams
from selectrie.server import app
from selectrie.server.generation.call_syntax import PLAIN, write_chat
from tests.support.serving import running

MESSAGES = [{"role": "user", "content": "What is the weather in Oslo?"}]


class Unit(Enum):
    """The scale of a temperature."""

    celsius = "celsius"
    fahrenheit = "fahrenheit"


class GetWeather(BaseModel):
    """Get the weather."""

    day: Literal["today", "tomorrow"]
    unit: Unit


class SetAlarm(BaseModel):
    """Set an alarm."""

    hour: Literal[6, 7, 8]


TOOLS = [openai.pydantic_function_tool(GetWeather), openai.pydantic_function_tool(SetAlarm)]
REQUIRED = {
    "model": "embedded",
    "messages": MESSAGES,
    "tools": TOOLS,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "seed": 3,
}


@pytest.fixture(scope="module")
def served():
    """A server with the embedded model, its engine, and a client of it."""
    with selectrie.load(n_threads=1) as llm, running(app(llm)) as url:
        yield llm, openai.OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, _strict_response_validation=True)


def test_arguments_are_parsed_and_the_tool_is_the_engines_select(served):
    """`.parse()` gives a record of the tool, which is `Engine.select` behind the opening, to the bit."""
    llm, client = served
    llm.trim()
    found = client.chat.completions.parse(**REQUIRED)
    (call,) = found.choices[0].message.tool_calls
    kind = {"GetWeather": GetWeather, "SetAlarm": SetAlarm}[call.function.name]
    assert isinstance(call.function.parsed_arguments, kind)
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.choices[0].message.content is None
    shown = ("name", "description", "parameters")
    tools = [{"type": "function", "function": {name: one["function"][name] for name in shown}} for one in TOOLS]
    messages, prompting = write_chat(llm.vocabulary, MESSAGES, PromptParams(assistant_prefix=PLAIN.opening), tools)
    llm.trim()
    wanted = llm.rank(
        messages, list(found.choices[0].tool_choice["probabilities"]), following=PLAIN.middle, prompting=prompting
    )
    assert found.choices[0].tool_choice["probabilities"] == dict(wanted.probabilities)
    assert call.function.name == wanted.text


def test_the_helper_for_streams(served):
    """`client.chat.completions.stream` adds up to the answer as a whole, with arguments that come in pieces."""
    _, client = served
    whole = client.chat.completions.create(**REQUIRED)
    deltas = []
    with client.chat.completions.stream(**REQUIRED) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                deltas.append(event.arguments_delta)
            if event.type == "tool_calls.function.arguments.done":
                done = event.arguments
        found = stream.get_final_completion()
    (call,), (other,) = found.choices[0].message.tool_calls, whole.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == (other.function.name, other.function.arguments)
    assert "".join(deltas) == done == call.function.arguments
    assert len(deltas) > 2
    assert found.choices[0].finish_reason == "tool_calls"
    assert found.to_dict()["choices"][0]["tool_choice"] == whole.choices[0].tool_choice


def test_the_helper_for_streams_of_text(served):
    """Where no tool is called, its text is that of the whole answer, and the decision is kept."""
    _, client = served
    asked = {**REQUIRED, "tool_choice": "auto", "stop": " "}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked) as stream:
        found = stream.get_final_completion()
    assert found.choices[0].message.content == whole.choices[0].message.content
    assert found.choices[0].message.tool_calls is None
    assert found.to_dict()["choices"][0]["tool_choice"] == whole.choices[0].tool_choice


def test_a_loop_of_calls_and_results(served):
    """The client's record of a call goes back with its result, and the next answer is a text."""
    _, client = served
    messages = list(MESSAGES)
    first = client.chat.completions.create(**REQUIRED).choices[0].message
    messages.append(first)
    for call in first.tool_calls:
        assert json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "It rains."})
    for choice in ("none", "auto"):
        found = client.chat.completions.create(
            model="embedded", messages=messages, tools=TOOLS, tool_choice=choice, seed=3, max_tokens=8
        )
        assert found.choices[0].message.content
        assert not found.choices[0].message.tool_calls
        assert not (found.model_extra or {}).get("warnings")
    again = [*messages[:1], first.model_dump(), *messages[2:]]
    found = client.chat.completions.create(model="embedded", messages=again, tools=TOOLS, seed=3, max_tokens=8)
    assert found.choices[0].message.content
