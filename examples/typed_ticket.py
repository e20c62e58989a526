"""Ask what a class says: each field of a pydantic model is a question, and the answers make an object of it.

    python examples/typed_ticket.py [model.gguf]

Descriptions, docstrings and names are the words of the questions. The object has the value of each answer, and every field its
own probabilities. Data classes, `TypedDict` and `NamedTuple` are asked alike.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Literal

from pydantic import BaseModel, Field

import selectrie


class Intent(Enum):
    """What does the customer want?"""

    TRACK = "track order"
    REFUND = "refund"
    RESET = "reset password"


class Ticket(BaseModel):
    intent: Intent
    mood: Literal["positive", "negative"] = Field(description="What is the sentiment of this review?")
    angry: bool = Field(description="The customer is angry.")


TICKETS = ["Where is the lamp that I ordered last week?", "My shoes are terrible, I want my money back!"]


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        for text, decision in zip(TICKETS, llm.decide_many(TICKETS, Ticket), strict=True):
            ticket = decision.value
            print(text)
            print(f"  {ticket!r}")
            print(
                f"  {ticket.intent.name}: {decision['intent'].probability:.3f}, angry: {decision['angry'].probability:.3f}"
            )


if __name__ == "__main__":
    main()
