"""`POST /v1/chat/completions`: messages, requests, responses, and the endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import Annotated, Any, Protocol

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from selectrie.engine.aio import Arrivals
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.task_group import set_priority
from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Generation
from selectrie.results.generation import chat_completion, chat_logprobs, finish_reason
from selectrie.server.fields.messages import Conversation, Message
from selectrie.server.fields.reading import read, unknown_fields
from selectrie.server.fields.structured import constraining_field
from selectrie.server.fields.tools import ToolFields, ToolSet, check_with_tools
from selectrie.server.fields.wire import UpTo, fields_without_effect, one_of
from selectrie.server.generation.call_syntax import EFFORTS, VERBOSITIES, WISHES, grant_wishes, write_chat
from selectrie.server.generation.generation import (
    GenerationBody,
    GenerationRequest,
    generate,
    join_chunks,
    note_generation,
    open_stream,
    options_of,
    read_generation,
)
from selectrie.server.generation.tool_turn import (
    Piece,
    ToolAnswer,
    ToolChooser,
    ToolUsage,
    draw_answers,
    gather_answers,
)
from selectrie.server.options import ServerOptions
from selectrie.server.transport.models import ModelLease
from selectrie.server.transport.request_context import (
    Events,
    EventStream,
    Exchange,
    exchange_of,
    json_response,
    read_request,
)
from selectrie.server.transport.state import ServerState, state_of

_NOT_OFFERED = """
modalities=["text"] audio moderation prediction reasoning web_search_options chat_template documents=[] echo=false
prompt_logprobs truncate_prompt_tokens logprob_token_ids=[] return_token_ids=false return_tokens_as_token_ids=false
"""


class ChatBody(fields_without_effect(_NOT_OFFERED), ToolFields, Conversation, GenerationBody):  # type: ignore[misc]
    """A conversation to answer."""

    reasoning_effort: Annotated[str, one_of(EFFORTS)] | None = None
    """How much the model thinks, if its chat template reads that."""
    verbosity: Annotated[str, one_of(VERBOSITIES)] | None = None
    """How long the answer is, if the model's chat template reads that."""
    max_completion_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens drawn."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens drawn, under its older name."""
    logprobs: bool | None = None
    """Whether the answer has log-probabilities."""
    top_logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """Number of most probable tokens at each position, with `logprobs`."""


FIELDS = {
    THE_PROMPT.name: "messages",
    "template_args": "chat_template_kwargs",
    "n_alternatives": "top_logprobs",
    "parse_special": "/v1/completions",  # which takes the text of a chat
}
"""Names shown in errors for options that have another name here or no field."""


@dataclass(frozen=True, slots=True, eq=False)
class ChatRequest:
    """A request of `/v1/chat/completions`.

    Attributes:
        messages: The messages, as mappings from field to text, and to calls of tools.
        generation: The options for drawing the answer.
        prompting: The options of the chat template.
        has_logprobs: Whether the answer has log-probabilities.
        tools: The tools that the answer may call, or None.
        wishes: Arguments for the chat template, if it reads them: "reasoning_effort"
            and "verbosity".
    """

    messages: Sequence[Mapping[str, Any]]
    generation: GenerationRequest
    prompting: PromptParams
    has_logprobs: bool
    tools: ToolSet | None = None
    wishes: Mapping[str, str] = field(default_factory=dict)

    def for_model(self, engine: Engine) -> ChatRequest:
        """Return the request as the chat template of a model reads it.

        Its sampling has what is stored with the model.

        Raises `OptionError` for a role whose messages the template leaves out.
        """
        vocabulary, sampling = engine.vocabulary, self.generation.sampling_on(engine)
        args, warnings = grant_wishes(vocabulary, self.wishes, self.prompting.template_args)
        prompting = replace(self.prompting, template_args=args)
        definitions = () if self.tools is None else self.tools.definitions()
        messages, prompting = write_chat(vocabulary, self.messages, prompting, definitions)
        warnings = [*self.generation.warnings, *warnings]
        generation = replace(self.generation, sampling=sampling, warnings=warnings)
        return replace(self, messages=messages, prompting=prompting, generation=generation)


def read_chat(data: Mapping[str, Any], options: ServerOptions) -> ChatRequest:
    """Parse and check the body of `/v1/chat/completions`.

    Raises:
        HttpError, RequestError: For errors that can be found without a model.
    """
    body = read(ChatBody, data, options)
    if body.top_logprobs and not body.logprobs:
        raise OptionError("top_logprobs", body.top_logprobs, "nothing, or `logprobs` set to true")
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
    if len(set(limits)) > 1:
        raise IncompatibleOptionsError("max_tokens", "max_completion_tokens", "give one of the two")
    generation = read_generation(
        body, data, options, max_tokens=limits[0] if limits else None, n_alternatives=body.top_logprobs or 0
    )
    messages, prompting = body.conversation()
    unknown = dict.fromkeys(name for message in data["messages"] for name in message)
    warnings = [*generation.warnings, *unknown_fields(unknown, Message.model_fields, " of messages")]
    tools = body.tool_set()
    if tools is not None:
        check_with_tools(data)
        warnings += tools.warnings()
    wishes = {name: wish for name in WISHES if (wish := getattr(body, name)) is not None}
    generation = replace(generation, warnings=warnings)
    return ChatRequest(messages, generation, prompting, bool(body.logprobs), tools, wishes)


class AnswerWriter(Protocol):
    """Writes the objects of one answer in the shape of an API."""

    def whole(self, generation: Generation, usage: Mapping[str, int], /) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""

    def chunks(self, chunk: Chunk, /) -> list[dict[str, Any]]:
        """Return the objects of a stream for a chunk of one sequence."""

    def last(self, usage: Mapping[str, int], /) -> list[dict[str, Any]]:
        """Return the objects that end a stream."""

    def whole_answers(self, answers: Sequence[ToolAnswer], usage: Mapping[str, int], /) -> dict[str, Any]:
        """Return the object of answers that may call tools."""

    def pieces(self, piece: Piece, /) -> list[dict[str, Any]]:
        """Return the objects of a stream for a piece of such an answer."""


MakeWriter = Callable[[ChatRequest, Exchange], AnswerWriter]


class ChatWriter:
    """Writes the response objects of one answer, whole or streamed.

    Args:
        request: The request.
        id: Id of the answer without its prefix.
        created: Seconds since 1970.
        model: Name of the model.
    """

    def __init__(self, request: ChatRequest, *, id: str, created: int, model: str) -> None:  # noqa: A002 - the API's name
        self._request = request
        self._head = {"id": f"chatcmpl-{id}", "created": created, "model": model}
        self._usage = {"usage": None} if request.generation.includes_usage else {}
        self._warned = {"warnings": list(request.generation.warnings)} if request.generation.warnings else {}
        self._begun: set[int] = set()

    def whole(self, generation: Generation, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the completion object of a response that is not streamed."""
        answer = chat_completion(generation, logprobs=self._request.has_logprobs)
        return {**self._head, **answer, "usage": dict(usage), **self._warned}

    def chunks(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the chunk objects for a chunk of one sequence.

        A choice's first object has the role, its last the finish reason. The very first
        object has the warnings.
        """
        chunks = []
        if chunk.index not in self._begun:
            warned = {} if self._begun else self._warned
            self._begun.add(chunk.index)
            chunks.append(self._chunk(chunk.index, {"role": "assistant", "content": "", "refusal": None}) | warned)
        has_logprobs = self._request.has_logprobs and bool(chunk.tokens)
        if chunk.text or has_logprobs:
            logprobs = chat_logprobs(chunk.tokens, chunk.alternatives) if has_logprobs else None
            chunks.append(self._chunk(chunk.index, {"content": chunk.text}, logprobs))
        if chunk.completion is not None:
            chunks.append(self._chunk(chunk.index, {}, finish=finish_reason(chunk.completion.finish)))
        return chunks

    def whole_answers(self, answers: Sequence[ToolAnswer], usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the completion object of answers that may call tools."""
        choices = []
        for index, answer in enumerate(answers):
            logprobs = chat_logprobs(answer.tokens, answer.alternatives) if self._request.has_logprobs else None
            message = {"role": "assistant", "content": answer.text or (None if answer.calls else ""), "refusal": None}
            calls = [_call(call_id, name, arguments) for call_id, name, arguments in answer.calls]
            first, *then = [decision.to_dict() for decision in answer.decisions]
            choices.append(
                {
                    "index": index,
                    "message": {**message, **({"tool_calls": calls} if calls else {})},
                    "logprobs": logprobs,
                    "finish_reason": answer.finish,
                    "tool_choice": {**first, **({"then": then} if then else {})},
                }
            )
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": dict(usage), **self._warned}

    def pieces(self, piece: Piece) -> list[dict[str, Any]]:
        """Return the chunk objects for a piece of an answer that may call tools."""
        delta: dict[str, object] = {}
        warned = {} if self._begun else self._warned
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            delta = {"role": "assistant", "content": None, "refusal": None}
        if piece.text:
            delta["content"] = piece.text
        if piece.call is not None:
            call = _call(piece.id, piece.name, "") if piece.id else {"function": {"arguments": piece.arguments}}
            delta["tool_calls"] = [{"index": piece.call, **call}]
        has_logprobs = self._request.has_logprobs and bool(piece.tokens)
        logprobs = chat_logprobs(piece.tokens, piece.alternatives) if has_logprobs else None
        if not (delta or logprobs or piece.decision or piece.finish):
            return []
        chunk = self._chunk(piece.index, delta, logprobs, piece.finish)
        if piece.decision is not None:
            chunk["choices"][0]["tool_choice"] = piece.decision.to_dict()
        return [chunk | warned]

    def _chunk(
        self, index: int, delta: Mapping[str, object], logprobs: object = None, finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **self._usage}

    def last(self, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the final chunk object, with the usage, if the request wants one."""
        if not self._request.generation.includes_usage:
            return []
        return [{**self._head, "object": "chat.completion.chunk", "choices": [], "usage": dict(usage)}]


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a call of a tool as an object of the API."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, as OpenAI's API does."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(ChatBody, exchange.body)
    has_grammar = constraining_field(exchange.body) is not None or bool(exchange.body.get("tools"))
    chat_request = await read_request(exchange, read_chat, state.options, has_grammar=has_grammar)
    return await answer(state, exchange, chat_request, _make_writer)


async def answer(state: ServerState, exchange: Exchange, request: ChatRequest, make_writer: MakeWriter) -> Response:
    """Return the response to a conversation, whole or as a stream.

    Args:
        state: What all requests share.
        exchange: The request on its way through the server.
        request: The conversation, and how it is answered.
        make_writer: Makes the writer of the objects of the answer.
    """
    set_priority(request.generation.options.priority)  # also for the choice of a tool
    if request.generation.is_stream:
        return EventStream(_stream_events(state, exchange, request, make_writer), state.options.ping_interval_s)
    async with state.lease_model(exchange) as lease:
        request = await exchange.in_thread(partial(request.for_model, lease.engine))
        writer = make_writer(request, exchange)
        if request.tools is not None:
            chooser = _make_chooser(state, exchange, lease, request, request.tools)
            answers, usage = await gather_answers(chooser, request.generation)
            return json_response(writer.whole_answers(answers, usage.to_dict()))
        generation = await generate(exchange, lease.engine, request.messages, request.generation, request.prompting)
    return json_response(writer.whole(generation, note_generation(generation, exchange)))


async def _stream_events(
    state: ServerState, exchange: Exchange, request: ChatRequest, make_writer: MakeWriter
) -> Events:
    """Yield the objects of a streamed answer while its text is drawn."""
    async with state.lease_model(exchange) as lease:
        request = await exchange.in_thread(partial(request.for_model, lease.engine))
        exchange.warnings += request.generation.warnings
        writer = make_writer(request, exchange)
        if request.tools is not None:
            used = ToolUsage()
            chooser = _make_chooser(state, exchange, lease, request, request.tools)
            async with aclosing(draw_answers(chooser, request.generation, used)) as pieces:
                async for piece in pieces:
                    yield writer.pieces(piece)
            yield writer.last(used.to_dict())
            return
        async with open_stream(
            exchange, lease.engine, request.messages, request.generation, request.prompting
        ) as stream:
            async for arrived in Arrivals(stream):
                exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                events = [event for chunk in join_chunks(arrived) for event in writer.chunks(chunk)]
                if events:
                    yield events
            usage = note_generation(stream.generation(), exchange)
    yield writer.last(usage)


def _make_chooser(
    state: ServerState, exchange: Exchange, lease: ModelLease, request: ChatRequest, tools: ToolSet
) -> ToolChooser:
    max_rows = state.options.max_rows
    return ToolChooser(exchange, lease.engine, request.messages, request.prompting, tools, max_rows=max_rows)


def _make_writer(request: ChatRequest, exchange: Exchange) -> ChatWriter:
    return ChatWriter(request, id=exchange.id, created=int(time()), model=exchange.model)
