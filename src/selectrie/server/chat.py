"""`POST /v1/chat/completions`: messages, requests, responses, and the endpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field
from starlette.requests import Request
from starlette.responses import Response

from selectrie.core.vocabulary import Vocabulary
from selectrie.engine.aio import Arrivals
from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Generation
from selectrie.results.generation import chat_completion, chat_logprobs, finish_reason
from selectrie.server.generation import (
    GenerationBody,
    GenerationRequest,
    generate,
    join_chunks,
    note_generation,
    open_stream,
    options_of,
    read_generation,
)
from selectrie.server.models import ModelLease
from selectrie.server.options import ServerOptions
from selectrie.server.request_context import Events, EventStream, Exchange, exchange_of, json_response, read_request
from selectrie.server.state import ServerState, state_of
from selectrie.server.structured import constraining_field
from selectrie.server.wire import (
    BY_TYPE,
    MEDIA,
    EncodableText,
    Ignored,
    Items,
    JsonTexts,
    NotOffered,
    TemplateArgs,
    UnsupportedError,
    UpTo,
    WireModel,
    read,
    unknown_fields,
)
from selectrie.tokenization.roles import ROLE, adapt_roles

_TEXTS = ("name", "reasoning", "reasoning_content")
"""Fields of a message, besides role and content, that a template may read."""
_TOOL_ROLES = ("tool", "function")
MAX_MESSAGES = 4_096
"""Maximum number of messages of a chat, each of which a template renders."""
_EMPTY: tuple[object, ...] = ("", [], {})
_THINKING = "enable_thinking"
"""Argument by which chat templates are told not to have the model reason."""
HintValue = Annotated[str, Field(pattern=r"^[a-z]{1,16}$", title="a word such as 'low', 'medium' or 'high'")]


class TextPart(WireModel):
    """A text part of a message's content."""

    type: Literal["text", "input_text", "output_text"]
    """What the part is."""
    text: EncodableText
    """The text."""


class RefusalPart(WireModel):
    """A part of a message's content with the text of a refusal."""

    type: Literal["refusal"]
    """What the part is."""
    refusal: EncodableText
    """The text."""


def _reject_media(part: object) -> object:
    """Return a part of a message; raise an error for an image, audio or file."""
    if isinstance(part, Mapping) and part.get("type") in MEDIA:
        raise UnsupportedError(f"{part['type']} is not read; give text", "unsupported_input")
    return part


def _check_role(role: str) -> str:
    """Return a role; raise an error for roles of tools and for other words."""
    if role in _TOOL_ROLES:
        raise UnsupportedError(f"messages of a {role} are not read")
    if not ROLE.fullmatch(role):
        raise ValueError
    return role


Part = Annotated[
    TextPart | RefusalPart,
    Discriminator("type"),
    BeforeValidator(_reject_media),
    Field(title="a part {'type': 'text', 'text': …}"),
]


class Message(WireModel):
    """A message of a chat."""

    model_config = ConfigDict(title="an object with `role` and `content`")

    role: Annotated[str, AfterValidator(_check_role)] = Field(
        title="a word such as 'user', 'assistant' or 'system'",
        json_schema_extra={"pattern": f"^{ROLE.pattern}$", "not": {"enum": [*_TOOL_ROLES]}},
    )
    """The speaker: a role that the model's chat template writes, or `developer`."""
    content: Annotated[EncodableText | Items[Part], BY_TYPE] | None = Field(
        None, title="a text, null, or a list of parts"
    )
    """The message's text; parts are joined by line ends."""
    name: EncodableText | None = None
    """A name that a template may write."""
    reasoning: EncodableText | None = None
    """The assistant's reasoning, which a template may write."""
    reasoning_content: EncodableText | None = None
    """The assistant's reasoning, under the name that other servers use."""
    refusal: Annotated[Any, JsonTexts] = None
    """The message's text if `content` is null; ignored if it is no text."""
    annotations: Ignored = None
    tool_calls: Annotated[Any, NotOffered(_EMPTY)] = None
    function_call: Annotated[Any, NotOffered(_EMPTY)] = None
    tool_call_id: Annotated[Any, NotOffered(_EMPTY)] = None
    audio: Annotated[Any, NotOffered(_EMPTY)] = None

    def texts(self) -> dict[str, str]:
        """Return role, content and the extra fields that a template may read.

        Content that is null is empty. Empty extra fields are left out: clients send
        back the fields that an answer had.
        """
        content = self.content
        if content is None:
            content = self.refusal if isinstance(self.refusal, str) else ""
        elif not isinstance(content, str):
            content = "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)
        extras = {name: getattr(self, name) for name in _TEXTS}
        return {"role": self.role, "content": content, **{name: text for name, text in extras.items() if text}}


class Conversation(WireModel):
    """The fields from which a chat's prompt is made."""

    messages: Items[Message] = Field(
        title=f"a list of 1 to {MAX_MESSAGES} messages, each with `role` and `content`",
        min_length=1,
        max_length=MAX_MESSAGES,
    )
    """The messages."""
    chat_template_kwargs: TemplateArgs | None = None
    """Arguments of the chat template."""
    add_generation_prompt: bool | None = None
    """Whether a turn of the assistant begins after the messages; by default it does."""
    continue_final_message: bool | None = None
    """Whether the answer continues the last message."""

    def conversation(self) -> tuple[list[dict[str, str]], PromptParams]:
        """Return the messages as texts, and the options of the chat template.

        With `continue_final_message` the last message becomes the beginning of the
        answer. Raises `OptionError` if it cannot.
        """
        messages = [message.texts() for message in self.messages]
        args, prefix = self.chat_template_kwargs or {}, ""
        if self.continue_final_message:
            if self.add_generation_prompt or messages[-1]["role"] != "assistant" or len(messages) == 1:
                allowed = "a last message of the assistant after others, and no add_generation_prompt"
                raise OptionError("continue_final_message", self.continue_final_message, allowed)
            prefix = messages.pop()["content"]
        elif self.add_generation_prompt is False:
            args = {**args, "add_generation_prompt": False}
        return messages, PromptParams(assistant_prefix=prefix, template_args=args)


class ChatBody(Conversation, GenerationBody):
    """A conversation to answer."""

    tools: Annotated[Any, NotOffered(([],))] = None
    tool_choice: Annotated[Any, NotOffered(("none",))] = None
    functions: Annotated[Any, NotOffered(([],))] = None
    function_call: Annotated[Any, NotOffered(("none",))] = None
    modalities: Annotated[Any, NotOffered((["text"],))] = None
    audio: Annotated[Any, NotOffered()] = None
    moderation: Annotated[Any, NotOffered()] = None
    prediction: Annotated[Any, NotOffered()] = None
    reasoning: Annotated[Any, NotOffered()] = None
    web_search_options: Annotated[Any, NotOffered()] = None
    chat_template: Annotated[Any, NotOffered()] = None
    documents: Annotated[Any, NotOffered(([],))] = None
    echo: Annotated[Any, NotOffered((False,))] = None
    prompt_logprobs: Annotated[Any, NotOffered()] = None
    truncate_prompt_tokens: Annotated[Any, NotOffered()] = None
    logprob_token_ids: Annotated[Any, NotOffered(([],))] = None
    return_token_ids: Annotated[Any, NotOffered((False,))] = None
    return_tokens_as_token_ids: Annotated[Any, NotOffered((False,))] = None
    parallel_tool_calls: Ignored = None
    reasoning_effort: HintValue | None = None
    """How much the model reasons, where its chat template reads this."""
    verbosity: HintValue | None = None
    """How long the answer is, where the model's chat template reads this."""
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


@dataclass(frozen=True, slots=True)
class TemplateHint:
    """A field that becomes an argument of the chat template if the template reads it.

    Attributes:
        path: Path to the field in the request.
        argument: Name of the argument.
        value: Its value.
    """

    path: str
    argument: str
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class ChatRequest:
    """A request of `/v1/chat/completions`.

    Attributes:
        messages: The messages, as mappings from field to text.
        generation: The options for drawing the answer.
        prompting: The options of the chat template.
        has_logprobs: Whether the answer has log-probabilities.
        hints: Arguments for chat templates that read them.
    """

    messages: Sequence[Mapping[str, str]]
    generation: GenerationRequest
    prompting: PromptParams
    has_logprobs: bool
    hints: Sequence[TemplateHint] = ()

    def with_hints(self, vocabulary: Vocabulary) -> ChatRequest:
        """Return the request with the hints that the chat template reads as arguments.

        The others are named in warnings, unless they ask for what is usual.
        """
        args: dict[str, Any] = {}
        warnings = list(self.generation.warnings)
        for hint in self.hints:
            if _reads(vocabulary, hint.argument):
                args[hint.argument] = hint.value
            elif hint.value == "none" and _reads(vocabulary, _THINKING):
                args[_THINKING] = False
            elif hint.value not in ("none", "medium"):
                warnings.append(f"{hint.path}: the chat template of the model does not read it")
        return replace(
            self,
            generation=replace(self.generation, warnings=warnings),
            prompting=replace(self.prompting, template_args={**args, **self.prompting.template_args}),
        )


def _reads(vocabulary: Vocabulary, argument: str) -> bool:
    """Return whether the chat template of a model names an argument."""
    return re.search(rf"\b{argument}\b", vocabulary.chat_source) is not None


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
    hints = [
        TemplateHint(name, name, value)
        for name, value in (("reasoning_effort", body.reasoning_effort), ("verbosity", body.verbosity))
        if value is not None
    ]
    return ChatRequest(messages, replace(generation, warnings=warnings), prompting, bool(body.logprobs), hints)


class AnswerWriter(Protocol):
    """Writes the objects of one answer in the shape of an API."""

    def whole(self, generation: Generation, usage: Mapping[str, int], /) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""

    def chunks(self, chunk: Chunk, /) -> list[dict[str, Any]]:
        """Return the objects of a stream for a chunk of one sequence."""

    def last(self, usage: Mapping[str, int], /) -> list[dict[str, Any]]:
        """Return the objects that end a stream."""


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


router = APIRouter()


@router.post("/v1/chat/completions")
async def chat_completions(request: Request) -> Response:
    """Answer a conversation, as OpenAI's API does."""
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = FIELDS | options_of(ChatBody, exchange.body)
    has_grammar = constraining_field(exchange.body) is not None
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
    if request.generation.is_stream:
        return EventStream(_stream_events(state, exchange, request, make_writer), state.options.ping_interval_s)
    async with state.lease_model(exchange) as lease:
        request = request.with_hints(lease.engine.vocabulary)
        messages = await _adapt_messages(exchange, lease, request)
        generation = await generate(exchange, lease.engine, messages, request.generation, request.prompting)
        writer = make_writer(request, exchange)
    return json_response(writer.whole(generation, note_generation(generation, exchange)))


async def _stream_events(
    state: ServerState, exchange: Exchange, request: ChatRequest, make_writer: MakeWriter
) -> Events:
    """Yield the objects of a streamed answer while its text is drawn."""
    async with state.lease_model(exchange) as lease:
        request = request.with_hints(lease.engine.vocabulary)
        exchange.warnings += request.generation.warnings
        writer = make_writer(request, exchange)
        messages = await _adapt_messages(exchange, lease, request)
        async with open_stream(exchange, lease.engine, messages, request.generation, request.prompting) as stream:
            async for arrived in Arrivals(stream):
                exchange.n_drawn += sum(len(one.tokens) for one in arrived)
                events = [event for chunk in join_chunks(arrived) for event in writer.chunks(chunk)]
                if events:
                    yield events
            usage = note_generation(stream.generation(), exchange)
    yield writer.last(usage)


async def _adapt_messages(exchange: Exchange, lease: ModelLease, request: ChatRequest) -> list[dict[str, str]]:
    return await exchange.in_thread(lambda: adapt_roles(lease.engine.vocabulary, request.messages))


def _make_writer(request: ChatRequest, exchange: Exchange) -> ChatWriter:
    return ChatWriter(request, id=exchange.id, created=int(time()), model=exchange.model)
