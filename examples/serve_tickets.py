"""Answer over HTTP with FastAPI: a pydantic model is the type of the questions and of the answer.

    python examples/serve_tickets.py [model.gguf]

Needs the extra `server`. The engine is loaded once, with the application; `await` lets many requests share its calls. This script
asks its own endpoint; `uvicorn serve_tickets:app` serves it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from pydantic import BaseModel, Field

import selectrie


class Message(BaseModel):
    text: str


PARAMS = selectrie.DecisionParams(calibration="content_free", min_label_mass=0.2, min_confidence=0.3)


class Ticket(BaseModel):
    intent: Literal["track order", "refund", "reset password"] = Field(description="What does the customer want?")
    angry: bool = Field(description="The customer is angry.")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with selectrie.load(*sys.argv[1:2]) as app.state.llm:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/tickets")
async def read_ticket(message: Message, request: Request) -> Ticket:
    try:
        decision = await request.app.state.llm.adecide(message.text, Ticket, params=PARAMS)
    except selectrie.SelectrieError as error:
        raise HTTPException(400 if error.exit_code == 2 else 500, str(error)) from error
    if any(answer.abstained for answer in decision.values()):
        raise HTTPException(422, "a person should read this")
    return decision.value


def main() -> None:
    with TestClient(app) as client:
        for text in ("I want my money back, the coat is too small.", "The weather is nice today.", ""):
            answer = client.post("/tickets", json={"text": text})
            print(answer.status_code, answer.json())


if __name__ == "__main__":
    main()
