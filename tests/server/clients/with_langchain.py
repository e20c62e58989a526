"""langchain-openai: chats, streams, structured output by its three methods, tools."""

from __future__ import annotations

from typing import Any, Literal

from cases import MODEL, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel


class Ticket(BaseModel):
    """What a customer wants."""

    intent: Literal["refund", "track order", "complaint"]
    urgent: bool


@tool
def look_up_order(number: Literal["A1", "B2"]) -> str:
    """Look up where an order is."""
    return f"Order {number} is in Paris."


def model(url: str, **named: Any) -> ChatOpenAI:
    return ChatOpenAI(
        **{"base_url": f"{url}/v1", "model": MODEL, "max_completion_tokens": 64, "temperature": 0, "max_retries": 0}
        | named
    )


def case_invoke(url: str) -> None:
    answer = model(url).invoke("Say hello.")
    assert answer.content
    assert answer.usage_metadata["output_tokens"] > 0


def case_stream(url: str) -> None:
    parts = [part.content for part in model(url).stream("Say hello.")]
    assert "".join(parts) == model(url).invoke("Say hello.").content


def case_batch(url: str) -> None:
    assert len(model(url).batch(["One?", "Two?", "Three?"])) == 3


def case_completion(url: str) -> None:
    assert OpenAI(base_url=f"{url}/v1", model=MODEL, max_tokens=8).invoke("Once upon a time")


def structured(url: str, method: str, **named: Any) -> None:
    found = (
        model(url).with_structured_output(Ticket, method=method, **named).invoke("My parcel is late! Answer in JSON.")
    )
    assert isinstance(found, Ticket), found


def case_structured_by_schema(url: str) -> None:
    structured(url, "json_schema")


def case_structured_by_strict_schema(url: str) -> None:
    structured(url, "json_schema", strict=True)


def case_structured_by_tools(url: str) -> None:
    structured(url, "function_calling")


def case_structured_by_json_mode(url: str) -> None:
    found = (
        model(url, max_completion_tokens=400)
        .with_structured_output(None, method="json_mode")
        .invoke("Answer with a JSON object.")
    )
    assert isinstance(found, dict)


def case_tools_loop(url: str) -> None:
    bound = model(url).bind_tools([look_up_order], tool_choice="look_up_order")
    messages: list[Any] = [HumanMessage("Where is order A1?")]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert call["name"] == "look_up_order"
    assert call["args"]["number"] in {"A1", "B2"}
    messages += [answer, ToolMessage(look_up_order.invoke(call["args"]), tool_call_id=call["id"])]
    assert model(url).bind_tools([look_up_order], tool_choice="none").invoke(messages).content


def case_tools_auto(url: str) -> None:
    answer = model(url).bind_tools([look_up_order]).invoke("Where is order A1?")
    assert answer.tool_calls or answer.content


def case_tools_any(url: str) -> None:
    answer = model(url).bind_tools([look_up_order], tool_choice="any").invoke("Where is order A1?")
    assert len(answer.tool_calls) >= 1


def case_tools_streamed(url: str) -> None:
    bound = model(url).bind_tools([look_up_order], tool_choice="required")
    whole: Any = None
    for part in bound.stream("Where is order A1?"):
        whole = part if whole is None else whole + part
    assert whole.tool_calls[0]["name"] == "look_up_order"
    assert whole.tool_calls[0]["args"]["number"] in {"A1", "B2"}


RESPONSES = {"use_responses_api": True, "output_version": "responses/v1"}


def case_responses(url: str) -> None:
    text = model(url, **RESPONSES).invoke("Say hello.").text
    assert "".join(part.text for part in model(url, **RESPONSES).stream("Say hello.")) == text != ""


def case_responses_structured(url: str) -> None:
    for method in ("json_schema", "function_calling"):
        asked = model(url, **RESPONSES).with_structured_output(Ticket, method=method)
        assert isinstance(asked.invoke("My parcel is late!"), Ticket)


def case_responses_tools_loop(url: str) -> None:
    question = HumanMessage("Where is order A1?")
    answer = model(url, **RESPONSES).bind_tools([look_up_order], tool_choice="required").invoke([question])
    call = answer.tool_calls[0]
    results = [ToolMessage(look_up_order.invoke(one["args"]), tool_call_id=one["id"]) for one in answer.tool_calls]
    assert call["args"]["number"] in {"A1", "B2"}
    bound = model(url, **RESPONSES).bind_tools([look_up_order], tool_choice="none")
    assert bound.invoke([question, answer, *results]).text


if __name__ == "__main__":
    run(globals())
