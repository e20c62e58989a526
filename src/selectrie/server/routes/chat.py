"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import time

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.aio import Arrivals, in_thread
from selectrie.errors import PromptTooLongError
from selectrie.server.chat_wire import ChatRequest, ChatWriter, read_chat
from selectrie.server.drawing import drawn, joined, lent_to, streamed
from selectrie.server.event_stream import Events, EventStream
from selectrie.server.exchange import Exchange, exchange_of, json_response
from selectrie.server.generation_wire import note_generation, take_id
from selectrie.server.http_errors import HttpError
from selectrie.server.messages import with_roles_of
from selectrie.server.models import Lent
from selectrie.server.schemas import body_of
from selectrie.server.state import ServerState, state_of

router = APIRouter()


@router.post("/v1/chat/completions", openapi_extra=body_of("chat"))
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, as OpenAI's API does."""
    state, exchange = state_of(request), exchange_of(request)
    asked = read_chat(exchange.body, state.options)
    take_id(exchange.body, exchange)
    if asked.generation.is_stream:
        exchange.warnings += asked.generation.warnings
        return EventStream(_events(state, exchange, asked))
    async with lent_to(state, exchange) as lent:
        messages = await _messages(lent, asked)
        with _naming():
            generation = await drawn(lent.engine, messages, asked.generation, asked.prompting)
        writer = _writer(asked, exchange)
    return json_response(writer.whole(generation, note_generation(generation, exchange)))


async def _events(state: ServerState, exchange: Exchange, asked: ChatRequest) -> Events:
    """Yield the chunk objects of an answer while it is drawn."""
    async with lent_to(state, exchange) as lent:
        writer = _writer(asked, exchange)
        messages = await _messages(lent, asked)
        with _naming():
            async with streamed(lent.engine, messages, asked.generation, asked.prompting) as stream:
                async for arrived in Arrivals(stream):
                    events = [event for chunk in joined(arrived) for event in writer.chunks(chunk)]
                    if events:
                        yield events
                usage = note_generation(stream.generation(), exchange)
    yield writer.last(usage)


@contextmanager
def _naming() -> Iterator[None]:
    """Name the field of the request in the error about a chat that does not fit."""
    try:
        yield
    except PromptTooLongError as error:
        message = str(error).replace("shorten the prompt, set truncate='left'", "shorten the messages")
        raise HttpError(400, error.code, message, None if message == str(error) else "messages") from error


async def _messages(lent: Lent, asked: ChatRequest) -> list[dict[str, str]]:
    return await in_thread(lambda: with_roles_of(lent.engine.vocabulary, asked.messages))


def _writer(asked: ChatRequest, exchange: Exchange) -> ChatWriter:
    return ChatWriter(asked, id=exchange.id, created=int(time()), model=exchange.model)
