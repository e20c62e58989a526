"""Draws text for requests, as a whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from itertools import chain

from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import opened
from selectrie.engine.engine import Engine
from selectrie.engine.requests.generate import Prompts, Stream
from selectrie.engine.requests.session import at_one_time
from selectrie.engine.scheduler.job import charge_to
from selectrie.errors import PromptTooLongError
from selectrie.options import DEFAULT_PROMPTING, PromptParams
from selectrie.results import Chunk, Generation
from selectrie.server.exchange import Exchange
from selectrie.server.generation_wire import GenerationRequest
from selectrie.server.http_errors import errors_at
from selectrie.server.models import ModelLease
from selectrie.server.state import ServerState


@asynccontextmanager
async def lease_model(
    state: ServerState, exchange: Exchange, name: str | None = None
) -> AsyncGenerator[ModelLease, None]:
    """Lease the model that a request names, and keep its name and how long it waited.

    `name` is that of a request without a body.
    """
    exchange.waits_for = "model"
    async with state.models.lease(exchange.body.get("model", name)) as lease:
        exchange.waits_for, exchange.model = "engine", lease.name
        charge_to(exchange)
        if lease.warning:
            exchange.warnings.append(lease.warning)
        yield lease


async def generate(
    exchange: Exchange,
    engine: Engine,
    prompts: Prompts,
    request: GenerationRequest,
    prompting: PromptParams = DEFAULT_PROMPTING,
) -> Generation:
    """Return the generation that a request asks for."""
    _check_tokens(engine.vocabulary, request)
    prompting = at_one_time(engine.vocabulary, prompting, prompts)  # for both tries

    async def generation(one: GenerationRequest) -> Generation:
        return await engine.agenerate(prompts, prompting=prompting, **one.arguments(engine.identity))

    with _naming(request):
        try:
            return await exchange.hold(lambda: generation(request))
        except PromptTooLongError as error:
            shorter = request.shortened(error)
        return await exchange.hold(lambda: generation(shorter))


@asynccontextmanager
async def open_stream(
    exchange: Exchange,
    engine: Engine,
    prompts: Prompts,
    request: GenerationRequest,
    prompting: PromptParams = DEFAULT_PROMPTING,
) -> AsyncGenerator[Stream, None]:
    """Yield the stream that a request asks for; its work ends with the block."""
    _check_tokens(engine.vocabulary, request)

    def start() -> Stream:
        arguments = {"prompting": prompting, **request.arguments(engine.identity)}
        try:
            return engine.stream(prompts, **arguments)
        except PromptTooLongError as error:
            shorter = request.shortened(error)
        return engine.stream(prompts, **{**arguments, **shorter.arguments(engine.identity)})

    with _naming(request):
        async with opened(start, exchange.in_thread) as stream:
            yield stream


def _naming(request: GenerationRequest) -> AbstractContextManager[None]:
    """Return a context that raises errors of a grammar under its path."""
    return nullcontext() if request.structured is None else request.structured.grammar_errors()


def _check_tokens(vocabulary: Vocabulary, request: GenerationRequest) -> None:
    """Raise `HttpError` for a token that does not exist, with the field it is in."""
    with errors_at("stop_token_ids"):
        vocabulary.check_tokens(request.stopping.stop_tokens)
    with errors_at("logit_bias"):
        vocabulary.check_tokens(tuple(request.sampling.logit_bias))


def join_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return one chunk for each sequence that has any, in the order of their first."""
    parts: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        parts.setdefault((chunk.prompt_index, chunk.index), []).append(chunk)
    return [_together(one) for one in parts.values()]


def _together(parts: Sequence[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        text="".join(part.text for part in parts),
        tokens=tuple(chain.from_iterable(part.tokens for part in parts)),
        alternatives=tuple(chain.from_iterable(part.alternatives for part in parts)),
        named=tuple(chain.from_iterable(part.named for part in parts)),
        completion=parts[-1].completion,
    )
