"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.aio import Arrivals, in_thread
from selectrie.engine.engine import Engine
from selectrie.results import Generation
from selectrie.server.completion_prompts import answered_prompts, fixed, naming
from selectrie.server.completion_response import AnsweredPrompt, ChoiceWriter, CompletionWriter
from selectrie.server.completion_wire import CompletionRequest, read_completion
from selectrie.server.drawing import drawn, joined, lent_to, streamed
from selectrie.server.event_stream import Events, EventStream
from selectrie.server.exchange import Exchange, exchange_of, json_response
from selectrie.server.generation_wire import note_generation, take_id
from selectrie.server.schemas import body_of
from selectrie.server.state import ServerState, state_of
from selectrie.server.token_texts import labels_of

router = APIRouter()

WRITTEN_IN_PLACE = 1_000
"""Scored prompt tokens up to which an answer is written on the event loop."""


@router.post("/v1/completions", openapi_extra=body_of("completions"))
async def completions(request: Request) -> Response:
    """Continue prompts, and return log-probabilities of prompt and text."""
    state, exchange = state_of(request), exchange_of(request)

    def asked_of() -> CompletionRequest:
        return read_completion(exchange.body, state.options)

    asked = await in_thread(asked_of) if exchange.is_large else asked_of()
    take_id(exchange.body, exchange)
    if asked.generation.is_stream:
        exchange.warnings += asked.generation.warnings
        return EventStream(_events(state, exchange, asked))
    generation = None
    async with lent_to(state, exchange) as lent:
        prompts = await answered_prompts(lent.engine, asked, state.options)
        if asked.max_tokens:
            with naming(asked):
                generation = await drawn(lent.engine, fixed(prompts), asked.generation)
        choices = _choices(lent.engine, asked, prompts)
    usage, answer = _noted(exchange, prompts, generation), CompletionWriter(asked, exchange)

    def response() -> Response:
        if generation is None:
            return json_response(answer.whole([writer.echoed() for writer in choices], usage))
        return json_response(answer.whole([w.whole(one) for w, one in zip(choices, generation, strict=True)], usage))

    return await in_thread(response) if _is_large(prompts) else response()


async def _events(state: ServerState, exchange: Exchange, asked: CompletionRequest) -> Events:
    """Yield the objects of an answer while it is drawn."""
    generation = None
    async with lent_to(state, exchange) as lent:
        prompts = await answered_prompts(lent.engine, asked, state.options)
        choices, answer = _choices(lent.engine, asked, prompts), CompletionWriter(asked, exchange)
        if asked.echo or asked.returns_ids or not asked.max_tokens:
            for writer in choices:
                yield answer.chunks([await in_thread(writer.echoed) if _is_large(prompts) else writer.echoed()])
        if asked.max_tokens:
            with naming(asked):
                async with streamed(lent.engine, fixed(prompts), asked.generation) as stream:
                    async for arrived in Arrivals(stream):
                        grown = [choices[asked.number_of(one)].grown(one) for one in joined(arrived)]
                        if any(grown):
                            yield answer.chunks(grown)
                    generation = stream.generation()
        usage = _noted(exchange, prompts, generation)
    yield answer.last(usage)


def _is_large(prompts: Sequence[AnsweredPrompt]) -> bool:
    """Return whether writing the answer would hold up other requests."""
    return sum(len(one.ids) for one in prompts if one.scored is not None) > WRITTEN_IN_PLACE


def _choices(engine: Engine, asked: CompletionRequest, prompts: Sequence[AnsweredPrompt]) -> list[ChoiceWriter]:
    """Return a writer for each choice; choice i of prompt p is number p·n + i."""
    label, n = labels_of(engine.vocabulary, as_ids=asked.as_ids), asked.generation.n
    return [ChoiceWriter(asked, prompt, p * n + i, label) for p, prompt in enumerate(prompts) for i in range(n)]


def _noted(exchange: Exchange, prompts: Sequence[AnsweredPrompt], generation: Generation | None) -> dict[str, int]:
    """Return the usage of an answer, and keep what it took for log and metrics."""
    if generation is None:
        n_prompt = sum(len(one.ids) for one in prompts)
        usage = {"prompt_tokens": n_prompt, "completion_tokens": 0, "total_tokens": n_prompt}
        exchange.tokens = n_prompt
    else:
        usage = note_generation(generation, exchange)
    for one in prompts:
        if one.scored is not None:
            cost = one.scored.cost
            # The rows one by one of a generation have the prompts already.
            exchange.cost += cost if generation is None else replace(cost, rows_naive=0)
    return usage
