"""`POST /v1/chat/completions`."""

from __future__ import annotations

from time import time

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.aio import Arrivals
from selectrie.server.chat_wire import FIELDS, ChatBody, ChatRequest, ChatWriter, read_chat
from selectrie.server.event_stream import Events, EventStream
from selectrie.server.exchange import Exchange, exchange_of, json_response, read_request
from selectrie.server.generation import generate, join_chunks, lease_model, open_stream
from selectrie.server.generation_wire import note_generation, options_of
from selectrie.server.messages import with_roles_of
from selectrie.server.models import ModelLease
from selectrie.server.state import ServerState, state_of

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, as OpenAI's API does."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(ChatBody, exchange.body)
    chat_request = await read_request(exchange, read_chat, state.options)
    if chat_request.generation.is_stream:
        exchange.warnings += chat_request.generation.warnings
        return EventStream(_events(state, exchange, chat_request))
    async with lease_model(state, exchange) as lease:
        messages = await _messages(exchange, lease, chat_request)
        generation = await generate(exchange, lease.engine, messages, chat_request.generation, chat_request.prompting)
        writer = _writer(chat_request, exchange)
    return json_response(writer.whole(generation, note_generation(generation, exchange)))


async def _events(state: ServerState, exchange: Exchange, request: ChatRequest) -> Events:
    """Yield the chunk objects of an answer while it is drawn."""
    async with lease_model(state, exchange) as lease:
        writer = _writer(request, exchange)
        messages = await _messages(exchange, lease, request)
        async with open_stream(exchange, lease.engine, messages, request.generation, request.prompting) as stream:
            async for arrived in Arrivals(stream):
                exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                events = [event for chunk in join_chunks(arrived) for event in writer.chunks(chunk)]
                if events:
                    yield events
            usage = note_generation(stream.generation(), exchange)
    yield writer.last(usage)


async def _messages(exchange: Exchange, lease: ModelLease, request: ChatRequest) -> list[dict[str, str]]:
    return await exchange.in_thread(lambda: with_roles_of(lease.engine.vocabulary, request.messages))


def _writer(request: ChatRequest, exchange: Exchange) -> ChatWriter:
    return ChatWriter(request, id=exchange.id, created=int(time()), model=exchange.model)
