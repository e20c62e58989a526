"""`POST /v1/decisions` and `POST /v1/systemone`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import Decision
from selectrie.engine.aio import in_thread
from selectrie.server.decision_wire import (
    DecisionRequest,
    decisions_response,
    errors_about,
    read_decisions,
    read_systemone,
    systemone_response,
    usage_of,
)
from selectrie.server.drawing import lent_to
from selectrie.server.exchange import exchange_of, json_response
from selectrie.server.options import ServerOptions
from selectrie.server.schemas import body_of
from selectrie.server.state import state_of

router = APIRouter()

Read = Callable[[Mapping[str, Any], ServerOptions], DecisionRequest]
Write = Callable[[DecisionRequest, Decision, str], dict[str, Any]]


@router.post("/v1/decisions", openapi_extra=body_of("decisions"))
async def decisions(request: Request) -> Response:
    """Answer typed questions about an input, as OpenAI's API does."""
    return await _decided(request, read_decisions, decisions_response)


@router.post("/v1/systemone", openapi_extra=body_of("systemone"))
async def systemone(request: Request) -> Response:
    """Answer typed questions about a state, as TypeSafe's API does."""
    return await _decided(request, read_systemone, systemone_response)


async def _decided(request: Request, read: Read, write: Write) -> Response:
    state, exchange = state_of(request), exchange_of(request)

    def asked_of() -> DecisionRequest:
        return read(exchange.body, state.options)

    asked = await in_thread(asked_of) if exchange.is_large else asked_of()
    async with lent_to(state, exchange) as lent:
        questions, max_rows = asked.questions, state.options.max_rows
        with errors_about(asked.field):
            decision = await lent.engine.adecide(asked.state, questions, params=asked.params, max_rows=max_rows)
    usage = usage_of(decision)
    exchange.tokens, exchange.cost = usage.input_tokens, usage.cost

    def answer() -> Response:
        return json_response(write(asked, decision, lent.name))

    return await in_thread(answer) if exchange.is_large else answer()
