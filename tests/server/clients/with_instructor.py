"""instructor: each of its modes for structured output."""

from __future__ import annotations

from typing import Any, Literal

import instructor
import openai
from cases import MODEL, run
from pydantic import BaseModel


class Ticket(BaseModel):
    """What a customer wants."""

    intent: Literal["refund", "track order"]
    urgent: bool


def extract(url: str, mode: instructor.Mode, **named: Any) -> None:
    client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode)
    found = client.chat.completions.create(
        model=MODEL,
        response_model=Ticket,
        max_retries=0,
        messages=[{"role": "user", "content": "My parcel is late."}],
        **named,
    )
    assert isinstance(found, Ticket)


def case_tools(url: str) -> None:
    extract(url, instructor.Mode.TOOLS, max_tokens=48, temperature=0)


def case_tools_strict(url: str) -> None:
    extract(url, instructor.Mode.TOOLS_STRICT, max_tokens=48, temperature=0)


def case_json_schema(url: str) -> None:
    extract(url, instructor.Mode.JSON_SCHEMA, max_tokens=48, temperature=0)


def case_json_reaches_the_model(url: str) -> None:
    """JSON mode asks for any object; the small model seldom finds the fields of the schema by itself."""
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=instructor.Mode.JSON
    )
    found = client.chat.completions.create(
        model=MODEL,
        response_model=Anything,
        max_retries=0,
        max_tokens=200,
        messages=[{"role": "user", "content": "My parcel is late."}],
    )
    assert isinstance(found, Anything)


class Anything(BaseModel):
    """Any object."""

    model_config = {"extra": "allow"}


def case_iterable(url: str) -> None:
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=instructor.Mode.JSON_SCHEMA
    )
    found = client.chat.completions.create_partial(
        model=MODEL, response_model=Ticket, max_tokens=48, messages=[{"role": "user", "content": "My parcel is late."}]
    )
    assert Ticket.model_validate(list(found)[-1].model_dump())


def case_responses_tools(url: str) -> None:
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=instructor.Mode.RESPONSES_TOOLS
    )
    found = client.responses.create(
        model=MODEL, response_model=Ticket, max_retries=0, input="My parcel is late.", max_output_tokens=64
    )
    assert isinstance(found, Ticket)


if __name__ == "__main__":
    run(globals())
