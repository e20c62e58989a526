"""The last of the second version of OpenAI's client: `.parse()`, tools, streams, the Responses API."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
from cases import MODEL, run
from pydantic import BaseModel

MESSAGES: Any = [{"role": "user", "content": "Where is order A1?"}]


class Ticket(BaseModel):
    """What a customer wants."""

    intent: Literal["refund", "track order"]
    urgent: bool


class LookUp(BaseModel):
    """Look up an order."""

    number: Literal["A1", "B2"]


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def case_chat(url: str) -> None:
    assert client(url).chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=9).choices[0].message.content


def case_parse(url: str) -> None:
    answer = client(url).chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Ticket, max_tokens=64)
    assert isinstance(answer.choices[0].message.parsed, Ticket)


def case_parse_streamed(url: str) -> None:
    with client(url).chat.completions.stream(
        model=MODEL, messages=MESSAGES, response_format=Ticket, max_tokens=64
    ) as stream:
        stream.until_done()
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Ticket)


def case_tools(url: str) -> None:
    tools: Any = [openai.pydantic_function_tool(LookUp)]
    answer = client(url).chat.completions.parse(
        model=MODEL, messages=MESSAGES, tools=tools, tool_choice="required", max_tokens=64
    )
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, LookUp)
    messages = [*MESSAGES, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "In Paris."}]
    assert client(url).chat.completions.create(
        model=MODEL, messages=messages, tools=tools, tool_choice="none", max_tokens=9
    )


def case_tools_streamed(url: str) -> None:
    tools: Any = [openai.pydantic_function_tool(LookUp)]
    with client(url).chat.completions.stream(
        model=MODEL, messages=MESSAGES, tools=tools, tool_choice="required", max_tokens=64
    ) as stream:
        stream.until_done()
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["number"] in {"A1", "B2"}


def case_responses(url: str) -> None:
    assert client(url).responses.create(model=MODEL, input="Say hello.", max_output_tokens=16).output_text


def case_responses_streamed(url: str) -> None:
    with client(url).responses.stream(model=MODEL, input="Say hello.", max_output_tokens=16) as stream:
        stream.until_done()
        assert stream.get_final_response().output_text


def case_responses_parse(url: str) -> None:
    answer = client(url).responses.parse(
        model=MODEL, input="My parcel is late.", text_format=Ticket, max_output_tokens=64
    )
    assert isinstance(answer.output_parsed, Ticket)


def case_responses_tools(url: str) -> None:
    tools: Any = [openai.pydantic_function_tool(LookUp)["function"] | {"type": "function"}]
    answer = client(url).responses.create(
        model=MODEL, input="Where is order A1?", tools=tools, tool_choice="required", max_output_tokens=64
    )
    (call,) = [one for one in answer.output if one.type == "function_call"]
    assert json.loads(call.arguments)["number"] in {"A1", "B2"}


if __name__ == "__main__":
    run(globals())
