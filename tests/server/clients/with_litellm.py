"""litellm: chats, streams, completions, `response_format` and tools, as `openai/` and as `hosted_vllm/`."""

from __future__ import annotations

import json
from typing import Any, Literal

import litellm
from cases import MODEL, run
from pydantic import BaseModel

litellm.telemetry = False
MESSAGES = [{"role": "user", "content": "Where is order A1? Answer in JSON."}]
PLAIN = [{"role": "user", "content": "Answer with a JSON object."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up an order.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string", "enum": ["A1", "B2"]}},
            "required": ["number"],
        },
    },
}


class Ticket(BaseModel):
    intent: Literal["refund", "track order"]
    urgent: bool


def ask(url: str, provider: str = "openai", **named: Any) -> Any:
    return litellm.completion(
        **{
            "model": f"{provider}/{MODEL}",
            "messages": MESSAGES,
            "api_base": f"{url}/v1",
            "api_key": "none",
            "max_tokens": 64,
        }
        | {"seed": 1, "temperature": 0, "num_retries": 0}
        | named
    )


def case_chat(url: str) -> None:
    assert ask(url).choices[0].message.content
    assert ask(url, "hosted_vllm").choices[0].message.content


def case_stream(url: str) -> None:
    text = "".join(part.choices[0].delta.content or "" for part in ask(url, stream=True))
    assert text == ask(url).choices[0].message.content


def case_text_completion(url: str) -> None:
    answer = litellm.text_completion(
        prompt="Once", model=f"text-completion-openai/{MODEL}", api_base=f"{url}/v1", api_key="none", max_tokens=5
    )
    assert answer.choices[0].text


def case_response_format(url: str) -> None:
    for provider in ("openai", "hosted_vllm"):
        Ticket.model_validate_json(ask(url, provider, response_format=Ticket).choices[0].message.content)


def case_json_object(url: str) -> None:
    assert isinstance(
        json.loads(
            ask(url, response_format={"type": "json_object"}, messages=PLAIN, max_tokens=400).choices[0].message.content
        ),
        dict,
    )


def check_call(message: Any) -> None:
    (call,) = message.tool_calls
    assert call.function.name == "look_up"
    assert json.loads(call.function.arguments)["number"] in {"A1", "B2"}


def case_tools_required(url: str) -> None:
    check_call(ask(url, tools=[TOOL], tool_choice="required").choices[0].message)
    check_call(ask(url, "hosted_vllm", tools=[TOOL], tool_choice="required").choices[0].message)


def case_tools_named(url: str) -> None:
    check_call(
        ask(url, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "look_up"}}).choices[0].message
    )


def case_tools_auto(url: str) -> None:
    message = ask(url, tools=[TOOL]).choices[0].message
    assert message.tool_calls or message.content


def case_tools_streamed(url: str) -> None:
    parts = list(ask(url, tools=[TOOL], tool_choice="required", stream=True))
    check_call(litellm.stream_chunk_builder(parts, messages=MESSAGES).choices[0].message)


def case_responses(url: str) -> None:
    answer = litellm.responses(
        input="Say hello.", model=f"openai/{MODEL}", api_base=f"{url}/v1", api_key="none", max_output_tokens=16
    )
    assert answer.output[-1].content[0].text


def case_responses_streamed(url: str) -> None:
    events = litellm.responses(
        input="Say hello.",
        model=f"openai/{MODEL}",
        api_base=f"{url}/v1",
        api_key="none",
        max_output_tokens=64,
        temperature=0,
        stream=True,
    )
    kinds = [str(event.type.value) for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in {"response.completed", "response.incomplete"}


if __name__ == "__main__":
    run(globals())
