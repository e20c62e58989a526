"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.aio import Arrivals
from selectrie.engine.engine import Engine
from selectrie.results import Generation
from selectrie.server.completion_prompts import exact_prompts, prompt_errors, score_prompts
from selectrie.server.completion_response import ChoiceWriter, CompletionWriter, PromptTokens
from selectrie.server.completion_wire import FIELDS, CompletionBody, CompletionRequest, read_completion
from selectrie.server.event_stream import Events, EventStream
from selectrie.server.exchange import Exchange, exchange_of, json_response, read_request
from selectrie.server.generation import generate, join_chunks, lease_model, open_stream
from selectrie.server.generation_wire import note_generation, options_of
from selectrie.server.state import ServerState, state_of
from selectrie.server.token_texts import labels_of

router = APIRouter()

WRITTEN_IN_PLACE = 1_000
"""Scored prompt tokens up to which an answer is written on the event loop."""


@router.post("/v1/completions")
async def completions(request: Request) -> Response:
    """Continue prompts, and return log-probabilities of prompt and text."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(CompletionBody, exchange.body)
    completion_request = await read_request(exchange, read_completion, state.options)
    if completion_request.generation.is_stream:
        exchange.warnings += completion_request.generation.warnings
        return EventStream(_events(state, exchange, completion_request))
    generation = None
    async with lease_model(state, exchange) as lease:
        completion_request, prompts = await score_prompts(exchange, lease.engine, completion_request, state.options)
        if completion_request.max_tokens:
            with prompt_errors(completion_request):
                generation = await generate(
                    exchange, lease.engine, exact_prompts(prompts), completion_request.generation
                )
        choices = _choices(lease.engine, completion_request, prompts)
    usage, answer = _usage(exchange, prompts, generation), CompletionWriter(completion_request, exchange)

    def response() -> Response:
        if generation is None:
            return json_response(answer.whole([writer.before() for writer in choices], usage))
        return json_response(answer.whole([w.whole(one) for w, one in zip(choices, generation, strict=True)], usage))

    exchange.is_large |= _is_large(prompts)
    return await exchange.run(response)


async def _events(state: ServerState, exchange: Exchange, request: CompletionRequest) -> Events:
    """Yield the objects of an answer while it is drawn."""
    generation = None
    async with lease_model(state, exchange) as lease:
        request, prompts = await score_prompts(exchange, lease.engine, request, state.options)
        choices, answer = _choices(lease.engine, request, prompts), CompletionWriter(request, exchange)
        exchange.is_large |= _is_large(prompts)
        if request.body.echo or request.body.return_token_ids or not request.max_tokens:
            for writer in choices:
                yield answer.chunks([await exchange.run(writer.before)])
        if request.max_tokens:
            with prompt_errors(request):
                async with open_stream(exchange, lease.engine, exact_prompts(prompts), request.generation) as stream:
                    async for arrived in Arrivals(stream):
                        exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                        more = [choices[request.number_of(one)].after(one) for one in join_chunks(arrived)]
                        if any(more):
                            yield answer.chunks(more)
                    generation = stream.generation()
        usage = _usage(exchange, prompts, generation)
    yield answer.last(usage)


def _is_large(prompts: Sequence[PromptTokens]) -> bool:
    """Return whether writing the answer would hold up other requests."""
    return sum(len(one.ids) for one in prompts if one.scored is not None) > WRITTEN_IN_PLACE


def _choices(engine: Engine, request: CompletionRequest, prompts: Sequence[PromptTokens]) -> list[ChoiceWriter]:
    """Return a writer for each choice; choice i of prompt p is number p·n + i."""
    label, n = labels_of(engine.vocabulary, as_ids=bool(request.body.return_tokens_as_token_ids)), request.generation.n
    return [ChoiceWriter(request, prompt, p * n + i, label) for p, prompt in enumerate(prompts) for i in range(n)]


def _usage(exchange: Exchange, prompts: Sequence[PromptTokens], generation: Generation | None) -> dict[str, int]:
    """Return the usage of an answer, and keep what it took for log and metrics."""
    if generation is not None:
        return note_generation(generation, exchange)
    exchange.n_prompt = n_prompt = sum(len(one.ids) for one in prompts)
    exchange.rows_naive = sum(one.scored.cost.rows_naive for one in prompts if one.scored is not None)
    return {"prompt_tokens": n_prompt, "completion_tokens": 0, "total_tokens": n_prompt}
