"""`POST /v1/responses`: conversations in the form of OpenAI's Responses API.

A request becomes that of a chat, and `chat.answer` answers it, so prompts, texts and
numbers are those of `/v1/chat/completions`. Nothing is stored: each request brings its
whole conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from time import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag
from starlette.requests import Request
from starlette.responses import Response

from selectrie.errors import THE_PROMPT, OptionError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Generation
from selectrie.results.generation import chat_logprobs, finish_reason
from selectrie.server.call_syntax import EFFORTS, VERBOSITIES
from selectrie.server.chat import ChatRequest, answer
from selectrie.server.generation import GenerationBody, options_of, read_generation
from selectrie.server.messages import MAX_MESSAGES, Message
from selectrie.server.options import ServerOptions
from selectrie.server.request_context import Exchange, exchange_of, read_request
from selectrie.server.state import state_of
from selectrie.server.structured import Constraint, ResponseFormat, constraining_field
from selectrie.server.wire import (
    BY_TYPE,
    TAG,
    EncodableText,
    Ignored,
    Items,
    NotOffered,
    UnsupportedError,
    UpTo,
    WireModel,
    one_of,
    read,
    unknown_fields,
)

_ITEM_TYPES = ("message", "reasoning")
_LOGPROBS = "message.output_text.logprobs"
_STATELESS = "nothing is stored here; send the whole conversation in `input`"
_LIMIT = "use `max_output_tokens`"


class InputMessage(Message):
    """A message of a conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    """The speaker."""
    type: Literal["message"] | None = None
    """What the item is."""
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None


class ReasoningItem(WireModel):
    """Reasoning of an earlier answer, which is left out of the prompt."""

    type: Literal["reasoning"]
    """What the item is."""


def _check_item(item: object) -> object:
    """Return an item of a conversation; raise an error for one that is not read."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    if isinstance(kind, str) and kind not in _ITEM_TYPES:
        raise UnsupportedError(f"items of the type {kind[:40]!r} are not read", below=".type")
    return item


def _tag_item(item: object) -> str:
    """Return the tag of the model that reads an item."""
    is_reasoning = isinstance(item, Mapping) and item.get("type") == "reasoning"
    return f"{TAG}reasoning" if is_reasoning else f"{TAG}message"


_Item = Annotated[
    Annotated[InputMessage, Tag(f"{TAG}message")] | Annotated[ReasoningItem, Tag(f"{TAG}reasoning")],
    Discriminator(_tag_item),
    BeforeValidator(_check_item),
]


class TextConfig(WireModel):
    """What the text of an answer is like."""

    model_config = ConfigDict(title="an object with a `format`")

    format: ResponseFormat | None = None
    """The format of the text."""
    verbosity: Annotated[str, one_of(VERBOSITIES)] | None = None
    """How long the text is, where the model's chat template reads this."""


class ReasoningConfig(WireModel):
    """Whether and how the model reasons."""

    model_config = ConfigDict(title="an object with an `effort`")

    effort: Annotated[str, one_of(EFFORTS)] | None = None
    """How much the model reasons, where its chat template reads this."""
    summary: Ignored = None
    generate_summary: Ignored = None
    context: Ignored = None
    mode: Ignored = None


class ResponsesBody(GenerationBody):
    """A conversation to answer, in the form of OpenAI's Responses API."""

    background: Annotated[Any, NotOffered((False,), _STATELESS)] = None
    background_options: Annotated[Any, NotOffered()] = None
    previous_response_id: Annotated[Any, NotOffered((), _STATELESS)] = None
    conversation: Annotated[Any, NotOffered((), _STATELESS)] = None
    prompt: Annotated[Any, NotOffered((), _STATELESS)] = None
    context_management: Annotated[Any, NotOffered(([],))] = None
    truncation: Annotated[Any, NotOffered(("disabled",), "send what fits the context")] = None
    tools: Annotated[Any, NotOffered(([],))] = None
    tool_choice: Annotated[Any, NotOffered(("none", "auto"))] = None
    max_tool_calls: Ignored = None
    moderation: Annotated[Any, NotOffered()] = None
    image: Annotated[Any, NotOffered()] = None
    access_programs: Annotated[Any, NotOffered()] = None
    max_tokens: Annotated[Any, NotOffered((), _LIMIT)] = None
    max_completion_tokens: Annotated[Any, NotOffered((), _LIMIT)] = None
    n: Annotated[Any, NotOffered((1,))] = None
    best_of: Annotated[Any, NotOffered((1,))] = None
    input: Annotated[EncodableText | Annotated[Items[_Item], Field(min_length=1, max_length=MAX_MESSAGES)], BY_TYPE] = (
        Field(title=f"a text, or a list of 1 to {MAX_MESSAGES} items")
    )
    """The conversation: a text of the user, or a list of messages and other items."""
    instructions: EncodableText | None = None
    """A message of the system before the conversation."""
    max_output_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens drawn."""
    text: TextConfig | None = None
    """The format of the text."""
    include: Items[str] | None = Field(None, title="a list of texts")
    """Further output; only `message.output_text.logprobs` has an effect."""
    top_logprobs: Annotated[int, Field(ge=0), UpTo("max_logprobs")] | None = None
    """Number of most probable tokens at each position, with log-probabilities."""
    reasoning: ReasoningConfig | None = None
    """Options of reasoning."""
    parallel_tool_calls: bool | None = None
    """Whether several functions may be called."""
    metadata: dict[str, EncodableText] | None = Field(None, title="an object of texts")
    """Texts that the answer repeats."""
    store: bool | None = None
    """Whether to store the answer, which this server never does."""

    @property
    def has_logprobs(self) -> bool:
        """Return whether the answer has log-probabilities."""
        return bool(self.top_logprobs) or _LOGPROBS in (self.include or ())

    def constraints(self) -> Iterator[Constraint]:
        """Yield the constraint of each field that states one."""
        if self.text is not None and self.text.format is not None:
            yield from self.text.format.constraints("text.format")
        yield from super().constraints()

    def wishes(self) -> dict[str, str]:
        """Return what the chat template is told if it reads that."""
        effort = None if self.reasoning is None else self.reasoning.effort
        verbosity = None if self.text is None else self.text.verbosity
        wishes = {"reasoning_effort": effort, "verbosity": verbosity}
        return {name: wish for name, wish in wishes.items() if wish is not None}

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation as the messages of a chat.

        Raises `OptionError` if it has no message.
        """
        if isinstance(self.input, str):
            messages = [{"role": "user", "content": self.input}]
        else:
            messages = [item.data(f"input[{i}]") for i, item in enumerate(self.input) if isinstance(item, InputMessage)]
        if not messages:
            raise OptionError("input", [], "at least one message")
        return [{"role": "system", "content": self.instructions}, *messages] if self.instructions else messages


FIELDS = {
    THE_PROMPT.name: "input",
    "n_alternatives": "top_logprobs",
    "parse_special": "/v1/completions",
    "template_args": "/v1/chat/completions",
}
"""Names shown in errors for options that have another name here or no field."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponsesRequest:
    """A request of `/v1/responses`.

    Attributes:
        body: The parsed body.
        chat: The same request as one of a chat.
        text, reasoning: These fields as they were sent; the answer repeats them.
    """

    body: ResponsesBody
    chat: ChatRequest
    text: Mapping[str, Any]
    reasoning: Mapping[str, Any]


def read_responses(data: Mapping[str, Any], options: ServerOptions) -> ResponsesRequest:
    """Parse and check the body of `/v1/responses`.

    Raises:
        HttpError, RequestError: For errors that can be found without a model.
    """
    body = read(ResponsesBody, data, options)
    generation = read_generation(
        body, data, options, max_tokens=body.max_output_tokens, n_alternatives=body.top_logprobs or 0
    )
    warnings = list(generation.warnings)
    if not isinstance(body.input, str):
        unknown = dict.fromkeys(name for item in data["input"] if item.get("type") != "reasoning" for name in item)
        warnings += unknown_fields(unknown, InputMessage.model_fields, " of messages")
    if body.store:
        warnings.append("store: nothing is stored here")
    generation = replace(generation, warnings=warnings)
    chat = ChatRequest(body.messages(), generation, PromptParams(), body.has_logprobs, wishes=body.wishes())
    return ResponsesRequest(body, chat, data.get("text") or {}, data.get("reasoning") or {})


class ResponseWriter:
    """Writes the response object of one answer, or the events of a stream.

    Args:
        request: The request.
        exchange: The same request on its way through the server.
    """

    def __init__(self, request: ResponsesRequest, exchange: Exchange) -> None:
        self._request, self._exchange, self._created = request, exchange, int(time())
        self._item_id = f"msg_{exchange.id}"
        self._n_events = 0
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._is_cut = False

    def whole(self, generation: Generation, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the response object of an answer that is not streamed."""
        (one,) = generation
        self._add(Chunk(0, 0, one.text, one.tokens, one, one.alternatives))
        return self._response(usage)

    def chunks(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the events for a chunk; the very first ones open response and text."""
        events = [] if self._n_events else self._begin()
        logprobs = self._add(chunk)
        if chunk.text or logprobs:
            events.append(self._part_event("response.output_text.delta", delta=chunk.text, logprobs=logprobs))
        return events

    def last(self, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the events that close the text and the response."""
        part = self._part()
        return [
            self._part_event("response.output_text.done", text=part["text"], logprobs=part["logprobs"]),
            self._part_event("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=0, item=self._item(part)),
            self._event(f"response.{self._status}", response=self._response(usage)),
        ]

    @property
    def _status(self) -> str:
        return "incomplete" if self._is_cut else "completed"

    def _begin(self) -> list[dict[str, Any]]:
        """Return the events that open the response, its message and its text."""
        item, part = self._item(), self._part()
        return [
            self._event("response.created", response=self._response()),
            self._event("response.in_progress", response=self._response()),
            self._event("response.output_item.added", output_index=0, item=item),
            self._part_event("response.content_part.added", part=part),
        ]

    def _add(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Add a chunk to the text; return its log-probabilities if they are wanted."""
        logprobs = []
        if self._request.chat.has_logprobs:
            logprobs = chat_logprobs(chunk.tokens, chunk.alternatives)["content"] or []
        self._text.append(chunk.text)
        self._logprobs += logprobs
        if chunk.completion is not None:
            self._is_cut = finish_reason(chunk.completion.finish) == "length"
        return logprobs

    def _event(self, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the API's name
        self._n_events += 1
        return {"type": type, "sequence_number": self._n_events - 1, **fields}

    def _part_event(self, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the API's name
        """Return an event about the text, the only part of the only message."""
        return self._event(type, item_id=self._item_id, output_index=0, content_index=0, **fields)

    def _part(self) -> dict[str, Any]:
        """Return the text so far as a part of a message."""
        text = "".join(self._text)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(self._logprobs)}

    def _item(self, part: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the message with its part; without one it is in progress."""
        status, content = ("in_progress", []) if part is None else (self._status, [part])
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(self, usage: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return the response object; without `usage` it is in progress."""
        body, generation, warnings = (
            self._request.body,
            self._request.chat.generation,
            self._request.chat.generation.warnings,
        )
        is_done = usage is not None
        return {
            "id": f"resp_{self._exchange.id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time()) if is_done and not self._is_cut else None,
            "status": self._status if is_done else "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_done and self._is_cut else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._exchange.model,
            "output": [self._item(self._part())] if is_done else [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **self._request.reasoning},
            "store": False,
            "temperature": generation.sampling.temperature,
            "text": {"format": {"type": "text"}, **self._request.text},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": generation.sampling.top_p,
            "truncation": "disabled",
            "usage": None if usage is None else _response_usage(usage, self._exchange),
            **({"warnings": list(warnings)} if warnings else {}),
        }


def _response_usage(usage: Mapping[str, int], exchange: Exchange) -> dict[str, Any]:
    """Return the numbers of tokens in the form of the Responses API."""
    n_prompt = usage["prompt_tokens"]
    return {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": min(n_prompt, exchange.n_reused), "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


router = APIRouter()


@router.post("/v1/responses")
async def responses(request: Request) -> Response:
    """Answer a conversation, as OpenAI's Responses API does."""
    state, exchange = state_of(request), exchange_of(request)
    field = constraining_field(exchange.body) or ("text.format" if exchange.body.get("text") else None)
    exchange.fields = FIELDS | options_of(ResponsesBody, exchange.body) | ({"grammar": field} if field else {})
    read_body = await read_request(exchange, read_responses, state.options, has_grammar=field is not None)

    def make_writer(chat: ChatRequest, exchange: Exchange) -> ResponseWriter:
        return ResponseWriter(replace(read_body, chat=chat), exchange)

    return await answer(state, exchange, read_body.chat, make_writer)
