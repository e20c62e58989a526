"""pydantic-ai: agents with typed output by its three ways, tools, streams, and the Responses API."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from cases import MODEL, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

SETTINGS = {"max_tokens": 64, "temperature": 0.0, "seed": 1}


class Ticket(BaseModel):
    """What a customer wants."""

    intent: Literal["refund", "track order"]
    urgent: bool


def agent(url: str, kind: type = OpenAIChatModel, **named: Any) -> Agent:
    return Agent(
        kind(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")),
        model_settings=SETTINGS,
        retries=0,
        **named,
    )


def case_text(url: str) -> None:
    assert agent(url).run_sync("Say hello.").output


def case_stream(url: str) -> None:
    async def streamed() -> str:
        async with agent(url).run_stream("Say hello.") as result:
            return await result.get_output()

    assert asyncio.run(streamed()) == agent(url).run_sync("Say hello.").output


def typed(url: str, output: Any, kind: type = OpenAIChatModel) -> None:
    found = agent(url, kind, output_type=output).run_sync("My parcel is late.").output
    assert isinstance(found, Ticket), found


def case_tool_output(url: str) -> None:
    typed(url, ToolOutput(Ticket))


def case_native_output(url: str) -> None:
    typed(url, NativeOutput(Ticket))


def case_prompted_output_reaches_the_model(url: str) -> None:
    """It asks for any JSON object, in which the small model seldom finds the fields by itself."""
    with suppress(UnexpectedModelBehavior):  # it is tried no second time
        typed(url, PromptedOutput(Ticket))


def case_tools(url: str) -> None:
    asked = agent(url)
    called = []

    @asked.tool_plain
    def look_up(number: Literal["A1", "B2"]) -> str:
        """Look up an order."""
        called.append(number)
        return f"Order {number} is in Paris."

    result = asked.run_sync("Where is order A1?")
    assert result.output
    assert set(called) <= {"A1", "B2"}


def case_responses(url: str) -> None:
    assert agent(url, OpenAIResponsesModel).run_sync("Say hello.").output


def case_responses_native_output(url: str) -> None:
    typed(url, NativeOutput(Ticket), OpenAIResponsesModel)


def case_responses_tool_output(url: str) -> None:
    typed(url, ToolOutput(Ticket), OpenAIResponsesModel)


if __name__ == "__main__":
    run(globals())
