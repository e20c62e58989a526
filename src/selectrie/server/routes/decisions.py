"""`POST /v1/decisions` and `POST /v1/systemone`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import Decision
from selectrie.server.decision_wire import (
    DECISIONS_FIELDS,
    SYSTEMONE_FIELDS,
    DecisionRequest,
    decisions_response,
    read_decisions,
    read_systemone,
    systemone_response,
    usage_of,
)
from selectrie.server.exchange import exchange_of, json_response, read_request
from selectrie.server.generation import lease_model
from selectrie.server.options import ServerOptions
from selectrie.server.state import state_of

router = APIRouter()

Read = Callable[[Mapping[str, Any], ServerOptions], DecisionRequest]
Write = Callable[[DecisionRequest, Decision, str], dict[str, Any]]


@router.post("/v1/decisions")
async def decisions(request: Request) -> Response:
    """Answer typed questions about an input, as OpenAI's API does."""
    return await _decide(request, DECISIONS_FIELDS, read_decisions, decisions_response)


@router.post("/v1/systemone")
async def systemone(request: Request) -> Response:
    """Answer typed questions about a state, as TypeSafe's API does."""
    return await _decide(request, SYSTEMONE_FIELDS, read_systemone, systemone_response)


async def _decide(request: Request, fields: Mapping[str, str], read: Read, write: Write) -> Response:
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = fields
    decision_request = await read_request(exchange, read, state.options)
    async with lease_model(state, exchange) as lease:
        questions, max_rows = decision_request.questions, state.options.max_rows
        decision = await exchange.hold(
            lambda: lease.engine.adecide(
                decision_request.state, questions, params=decision_request.params, max_rows=max_rows
            )
        )
    decision_request = replace(decision_request, warnings=[*decision_request.warnings, *exchange.notices])
    usage = usage_of(decision)
    exchange.n_prompt, exchange.rows_naive = usage.input_tokens, usage.cost.rows_naive

    return await exchange.run(lambda: json_response(write(decision_request, decision, lease.name)))
