"""llama-index's `OpenAILike`: completions, chats, streams, structured output, tools."""

from __future__ import annotations

from typing import Any, Literal

from cases import MODEL, run
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


class Ticket(BaseModel):
    """What a customer wants."""

    intent: Literal["refund", "track order"]
    urgent: bool


def look_up(number: str) -> str:
    """Look up an order."""
    return f"Order {number} is in Paris."


def model(url: str, **named: Any) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=f"{url}/v1",
        api_key="none",
        max_tokens=64,
        temperature=0.0,
        max_retries=0,
        context_window=1024,
        **named,
    )


def case_complete(url: str) -> None:
    assert model(url).complete("Once upon a time").text


def case_chat(url: str) -> None:
    assert model(url, is_chat_model=True).chat([ChatMessage("Say hello.")]).message.content


def case_stream(url: str) -> None:
    *_, last = model(url, is_chat_model=True).stream_chat([ChatMessage("Say hello.")])
    assert last.message.content


def case_structured_by_schema(url: str) -> None:
    found = model(url, is_chat_model=True, should_use_structured_outputs=True).structured_predict(
        Ticket, PromptTemplate("My parcel is late.")
    )
    assert isinstance(found, Ticket)


def case_structured_by_tools(url: str) -> None:
    found = model(url, is_chat_model=True, is_function_calling_model=True).structured_predict(
        Ticket, PromptTemplate("My parcel is late.")
    )
    assert isinstance(found, Ticket)


def case_tools(url: str) -> None:
    asked = model(url, is_chat_model=True, is_function_calling_model=True)
    answer = asked.predict_and_call([FunctionTool.from_defaults(look_up)], "Where is order A1?", tool_choice="required")
    assert "is in Paris" in answer.response


if __name__ == "__main__":
    run(globals())
