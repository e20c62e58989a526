"""`POST /v1/responses`: conversations in the form of OpenAI's Responses API.

A request becomes that of a chat, and `chat.answer` answers it, so prompts, texts and
numbers are those of `/v1/chat/completions`. Nothing is stored: each request brings its
whole conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from selectrie.server.fields.messages import MAX_MESSAGES, Message, Part, text_of
from selectrie.server.fields.reading import read, unknown_fields
from selectrie.server.fields.structured import Constraint, ResponseFormat, constraining_field
from selectrie.server.fields.tools import (
    MAX_CALLS,
    MAX_TOOLS,
    MODES,
    Function,
    FunctionCall,
    FunctionDefinition,
    FunctionName,
    ToolSet,
    check_with_tools,
    parse_arguments,
    reject_other_types,
)
from selectrie.server.fields.wire import (
    BY_TYPE,
    TAG,
    EncodableText,
    Ignored,
    Items,
    NotOffered,
    TemplateArgs,
    UnsupportedError,
    UpTo,
    WireModel,
    one_of,
)
from selectrie.server.generation.call_syntax import EFFORTS, VERBOSITIES
from selectrie.server.generation.chat import ChatRequest, answer
from selectrie.server.generation.generation import GenerationBody, GenerationRequest, options_of, read_generation
from selectrie.server.generation.tool_turn import Piece, ToolAnswer
from selectrie.server.options import ServerOptions
from selectrie.server.transport.request_context import Exchange, exchange_of, read_request
from selectrie.server.transport.state import state_of


class ResponseWriter:
    """Writes the response object of one answer, or the events of a stream.

    An answer has items: a message with its text, and the calls of functions. One item
    at a time is open; its text grows until the next one begins.

    Args:
        fields: The fields of the response that repeat the request.
        generation: The options of the answer.
        exchange: The request on its way through the server.
        has_logprobs: Whether texts have log-probabilities.
    """

    def __init__(
        self, fields: Mapping[str, Any], generation: GenerationRequest, exchange: Exchange, *, has_logprobs: bool
    ) -> None:
        self._fields, self._generation, self._exchange = fields, generation, exchange
        self._has_logprobs, self._created = has_logprobs, int(time())
        self._n_events = 0
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._decisions: list[dict[str, Any]] = []
        self._status = "completed"

    def whole(self, generation: Generation, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the response object of an answer that is not streamed."""
        (one,) = generation
        self.chunks(Chunk(0, 0, one.text, one.tokens, one, one.alternatives))
        return self._whole(usage)

    def whole_answers(self, answers: Sequence[ToolAnswer], usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the response object of an answer that may call functions."""
        (one,) = answers
        for piece in one.pieces:
            self.pieces(piece)
        return self._whole(usage)

    def _whole(self, usage: Mapping[str, int]) -> dict[str, Any]:
        response: dict[str, Any] = self.last(usage)[-1]["response"]
        return response

    def chunks(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the events for a chunk of a text."""
        finish = None if chunk.completion is None else finish_reason(chunk.completion.finish)
        return self.pieces(Piece(0, chunk.text, tokens=chunk.tokens, alternatives=chunk.alternatives, finish=finish))

    def pieces(self, piece: Piece) -> list[dict[str, Any]]:
        """Return the events for a piece; the very first ones open the response."""
        events: list[dict[str, Any]] = []
        if not self._n_events:
            events += [self._event(f"response.{one}", response=self._response()) for one in ("created", "in_progress")]
        if piece.id:
            events += self._close() + self._open_call(piece)
        if piece.arguments:
            self._texts.append(piece.arguments)
            events.append(self._item_event("response.function_call_arguments.delta", delta=piece.arguments))
        logprobs: list[dict[str, Any]] = []
        if piece.call is None and self._has_logprobs:
            logprobs = chat_logprobs(piece.tokens, piece.alternatives)["content"] or []
        if piece.text or logprobs:
            events += [] if self._open else self._open_message()
            self._texts.append(piece.text)
            self._logprobs += logprobs
            events.append(self._part_event("response.output_text.delta", delta=piece.text, logprobs=logprobs))
        if piece.decision is not None:
            self._decisions.append(piece.decision.to_dict())
        if piece.finish == "length":
            self._status = "incomplete"
        return events

    def last(self, usage: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the events that close the open item and the response."""
        events = [] if self._open or self._items else self._open_message()
        events += self._close(self._status)
        return [*events, self._event(f"response.{self._status}", response=self._response(usage))]

    def _event(self, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the API's name
        self._n_events += 1
        return {"type": type, "sequence_number": self._n_events - 1, **fields}

    def _item_event(self, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the API's name
        """Return an event about the open item."""
        assert self._open is not None  # noqa: S101 - for mypy
        return self._event(type, item_id=self._open["id"], output_index=len(self._items), **fields)

    def _part_event(self, type: str, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the API's name
        """Return an event about the only part of the open message, its text."""
        return self._item_event(type, content_index=0, **fields)

    def _open_item(self, item: dict[str, Any], **empty: Any) -> list[dict[str, Any]]:
        """Begin an item; `empty` is its content so far."""
        self._open, self._texts, self._logprobs = item, [], []
        shown = {**item, **empty, "status": "in_progress"}
        return [self._event("response.output_item.added", output_index=len(self._items), item=shown)]

    def _open_message(self) -> list[dict[str, Any]]:
        item = {"id": f"msg_{self._exchange.id}", "type": "message", "role": "assistant"}
        events = self._open_item(item, content=[])
        return [*events, self._part_event("response.content_part.added", part=self._part())]

    def _open_call(self, piece: Piece) -> list[dict[str, Any]]:
        item = {"id": f"fc_{piece.id}", "type": "function_call", "call_id": piece.id, "name": piece.name}
        return self._open_item(item, arguments="")

    def _part(self) -> dict[str, Any]:
        """Return the text of the open message as its part."""
        text = "".join(self._texts)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(self._logprobs)}

    def _close(self, status: str = "completed") -> list[dict[str, Any]]:
        """Return the events that close the open item, if there is one."""
        if self._open is None:
            return []
        if self._open["type"] == "message":
            part = self._part()
            item = {**self._open, "content": [part], "status": status}
            events = [
                self._part_event("response.output_text.done", text=part["text"], logprobs=part["logprobs"]),
                self._part_event("response.content_part.done", part=part),
            ]
        else:
            item = {**self._open, "arguments": "".join(self._texts), "status": status}
            done = {"name": item["name"], "arguments": item["arguments"]}
            events = [self._item_event("response.function_call_arguments.done", **done)]
        events.append(self._event("response.output_item.done", output_index=len(self._items), item=item))
        self._items.append(item)
        self._open = None
        return events

    def _response(self, usage: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return the response object; without `usage` it is in progress."""
        status = "in_progress" if usage is None else self._status
        ended = {
            "completed_at": int(time()) if status == "completed" else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "usage": None if usage is None else _usage(usage, self._exchange),
        }
        warnings = {"warnings": list(self._generation.warnings)} if self._generation.warnings else {}
        decisions = {"tool_decisions": self._decisions} if self._decisions and usage is not None else {}
        return {
            "id": f"resp_{self._exchange.id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "model": self._exchange.model,
            "output": [] if usage is None else self._items,
            "previous_response_id": None,
            "store": False,
            "temperature": self._generation.sampling.temperature,
            "top_p": self._generation.sampling.top_p,
            "truncation": "disabled",
            **self._fields,
            **ended,
            **decisions,
            **warnings,
        }


def _usage(usage: Mapping[str, int], exchange: Exchange) -> dict[str, Any]:
    """Return the numbers of tokens in the form of the Responses API.

    Tokens of the prompt are cached if they needed no row for the whole request, which
    reads its own prompt again for each function that it chooses.
    """
    n_prompt, n_drawn = usage["prompt_tokens"], usage["completion_tokens"]
    n_cached = max(0, min(n_prompt, exchange.n_reused, n_prompt + n_drawn - exchange.cost.rows))
    return {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": 0},
        "output_tokens": n_drawn,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


_ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning")
_EMPTY: tuple[object, ...] = ("", [])
_LOGPROBS = "message.output_text.logprobs"
_STATELESS = "nothing is stored here; send the whole conversation in `input`"
_LIMIT = "use `max_output_tokens`"


class InputMessage(Message):
    """A message of a conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    """The speaker."""
    type: Literal["message"] | None = None
    """What the item is."""
    tool_calls: Annotated[Any, NotOffered(_EMPTY, "use items of the type 'function_call'")] = None
    tool_call_id: Annotated[Any, NotOffered(_EMPTY, "use items of the type 'function_call_output'")] = None
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None


class ReasoningItem(WireModel):
    """Reasoning of an earlier answer, which is left out of the prompt."""

    type: Literal["reasoning"]
    """What the item is."""


class FunctionCallItem(FunctionCall):
    """A call of a function in an earlier answer."""

    type: Literal["function_call"]
    """What the item is."""
    call_id: EncodableText
    """The id, which the item with the result names."""
    id: Ignored = None
    status: Ignored = None

    def data(self, path: str) -> dict[str, Any]:
        """Return the call as chat templates read it; `path` is that of the item.

        Raises `OptionError` if its arguments are no object.
        """
        arguments = parse_arguments(self.arguments, f"{path}.arguments")
        return {"id": self.call_id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


class FunctionOutputItem(WireModel):
    """The result of a call."""

    type: Literal["function_call_output"]
    """What the item is."""
    call_id: EncodableText
    """The id of the call."""
    output: Annotated[EncodableText | Items[Part], BY_TYPE] = Field(title="a text, or a list of parts")
    """The result."""
    id: Ignored = None
    status: Ignored = None


def _check_item(item: object) -> object:
    """Return an item of a conversation; raise an error for one that is not read."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    if isinstance(kind, str) and kind not in _ITEM_TYPES:
        raise UnsupportedError(f"items of the type {kind[:40]!r} are not read", "unsupported_input", ".type")
    return item


def _tag_item(item: object) -> str:
    """Return the tag of the model that reads an item: its type, if it has one."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    return TAG + (kind if isinstance(kind, str) else "message")


_Item = Annotated[
    Annotated[InputMessage, Tag(f"{TAG}message")]
    | Annotated[FunctionCallItem, Tag(f"{TAG}function_call")]
    | Annotated[FunctionOutputItem, Tag(f"{TAG}function_call_output")]
    | Annotated[ReasoningItem, Tag(f"{TAG}reasoning")],
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


class FunctionTool(FunctionDefinition):
    """A function that the model may call."""

    model_config = ConfigDict(title="an object with the type 'function' and a `name`")

    type: Literal["function"]
    """What the tool is."""


class NamedFunction(FunctionName):
    """A function by its name."""

    type: Literal["function"]
    """What the tool is."""


class AllowedFunctions(WireModel):
    """A choice among some of the functions."""

    type: Literal["allowed_tools"]
    """What the choice is."""
    mode: Literal["auto", "required"]
    """Whether one of them must be called."""
    tools: Items[Annotated[NamedFunction, BeforeValidator(reject_other_types)]] = Field(
        min_length=1, title="a list of tools, each {'type': 'function', 'name': …}"
    )
    """The functions."""


_Tools = Annotated[Items[Annotated[FunctionTool, BeforeValidator(reject_other_types)]], Field(max_length=MAX_TOOLS)]
_ChosenTool = Annotated[
    NamedFunction | AllowedFunctions, Discriminator("type"), BeforeValidator(reject_other_types), Field(title="a tool")
]


class ResponsesBody(GenerationBody):
    """A conversation to answer, in the form of OpenAI's Responses API."""

    background: Annotated[Any, NotOffered((False,), "an answer is sent when it is drawn; leave the field out")] = None
    background_options: Annotated[Any, NotOffered()] = None
    previous_response_id: Annotated[Any, NotOffered((), _STATELESS)] = None
    conversation: Annotated[Any, NotOffered((), _STATELESS)] = None
    prompt: Annotated[Any, NotOffered((), _STATELESS)] = None
    context_management: Annotated[Any, NotOffered(([],))] = None
    truncation: Annotated[Any, NotOffered(("disabled",), "send what fits the context")] = None
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
    tools: _Tools | None = Field(None, title=f"a list of at most {MAX_TOOLS} tools of the type 'function'")
    """The functions that the model may call."""
    tool_choice: Annotated[Annotated[str, one_of(MODES)] | _ChosenTool, BY_TYPE] | None = Field(
        None, title="'none', 'auto', 'required', a tool of type 'function', or 'allowed_tools'"
    )
    """Whether a function is called, and which."""
    parallel_tool_calls: bool | None = None
    """Whether an answer may have more than one call; by default it may."""
    chat_template_kwargs: TemplateArgs | None = None
    """Arguments of the chat template."""
    metadata: dict[str, EncodableText] | None = Field(None, title="an object of texts")
    """Texts that the answer repeats."""
    store: bool | None = None
    """Whether to store the answer, which this server never does."""

    def constraints(self) -> Iterator[Constraint]:
        """Yield the constraint of each field that states one."""
        if self.text is not None and self.text.format is not None:
            yield from self.text.format.constraints("text.format")
        yield from super().constraints()

    def wishes(self) -> dict[str, str]:
        """Return the arguments for the chat template, if it reads them."""
        effort = None if self.reasoning is None else self.reasoning.effort
        verbosity = None if self.text is None else self.text.verbosity
        wishes = {"reasoning_effort": effort, "verbosity": verbosity}
        return {name: wish for name, wish in wishes.items() if wish is not None}

    def tool_set(self) -> ToolSet | None:
        """Return the functions that may be called, or None.

        Raises:
            RequestError, HttpError: For a wrong declaration or choice, with its path.
        """
        functions = [Function.of(f"tools[{i}]", one) for i, one in enumerate(self.tools or ())]
        choice, max_calls = self.tool_choice, 1 if self.parallel_tool_calls is False else MAX_CALLS
        if isinstance(choice, NamedFunction):
            return ToolSet.of(functions, mode="required", allowed=[("tool_choice.name", choice.name)], max_calls=1)
        if isinstance(choice, AllowedFunctions):
            named = [(f"tool_choice.tools[{i}].name", one.name) for i, one in enumerate(choice.tools)]
            return ToolSet.of(functions, mode=choice.mode, allowed=named, max_calls=max_calls)
        return ToolSet.of(functions, mode=choice or "auto", max_calls=max_calls)

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation as the messages of a chat.

        A call is part of the assistant's message before it.

        Raises `OptionError` if there is no message, and for the result of no call.
        """
        messages: list[dict[str, Any]] = []
        ids: set[str] = set()
        for index, item in enumerate(self.input if not isinstance(self.input, str) else ()):
            if isinstance(item, InputMessage):
                messages.append(item.data(f"input[{index}]"))
            elif isinstance(item, FunctionCallItem):
                ids.add(item.call_id)
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": ""})
                messages[-1].setdefault("tool_calls", []).append(item.data(f"input[{index}]"))
            elif isinstance(item, FunctionOutputItem):
                if item.call_id not in ids:
                    raise OptionError(f"input[{index}].call_id", item.call_id, "the id of a call before it")
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)})
        if isinstance(self.input, str):
            messages = [{"role": "user", "content": self.input}]
        if not messages:
            raise OptionError("input", [], "at least one message")
        return [{"role": "system", "content": self.instructions}, *messages] if self.instructions else messages


FIELDS = {
    THE_PROMPT.name: "input",
    "n_alternatives": "top_logprobs",
    "parse_special": "/v1/completions",
    "template_args": "chat_template_kwargs",
}
"""Names shown in errors for options that have another name here or no field."""


def read_responses(data: Mapping[str, Any], options: ServerOptions) -> tuple[ChatRequest, dict[str, Any]]:
    """Return the request as one of a chat, and fields of the response that repeat it.

    Raises:
        HttpError, RequestError: For errors that can be found without a model.
    """
    body = read(ResponsesBody, data, options)
    generation = read_generation(
        body, data, options, max_tokens=body.max_output_tokens, n_alternatives=body.top_logprobs or 0
    )
    warnings = list(generation.warnings)
    if not isinstance(body.input, str):
        sent = zip(data["input"], body.input, strict=True)
        unknown = dict.fromkeys(
            name for item, read_item in sent if isinstance(read_item, InputMessage) for name in item
        )
        warnings += unknown_fields(unknown, InputMessage.model_fields, " of messages")
    if body.store:
        warnings.append("store: nothing is stored here")
    tools = body.tool_set()
    if tools is not None:
        check_with_tools(data)
        warnings += tools.warnings()
    chat = ChatRequest(
        messages=body.messages(),
        generation=replace(generation, warnings=warnings),
        prompting=PromptParams(template_args=body.chat_template_kwargs or {}),
        has_logprobs=bool(body.top_logprobs) or _LOGPROBS in (body.include or ()),
        wishes=body.wishes(),
        tools=tools,
    )
    echoed = {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": None, "summary": None, **(data.get("reasoning") or {})},
        "text": {"format": {"type": "text"}, **(data.get("text") or {})},
        "tool_choice": data.get("tool_choice") or "auto",
        "tools": [one.model_dump() for one in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
    }
    return chat, echoed


router = APIRouter()


@router.post("/v1/responses")
async def responses(request: Request) -> Response:
    """Answer a conversation, as OpenAI's Responses API does."""
    state, exchange = state_of(request), exchange_of(request)
    body = exchange.body
    field = constraining_field(body) or ("text.format" if body.get("text") else None)
    exchange.fields = FIELDS | options_of(ResponsesBody, body) | ({"grammar": field} if field else {})
    has_grammar = field is not None or bool(body.get("tools"))
    chat_request, echoed = await read_request(exchange, read_responses, state.options, has_grammar=has_grammar)

    def make_writer(chat: ChatRequest, exchange: Exchange) -> ResponseWriter:
        return ResponseWriter(echoed, chat.generation, exchange, has_logprobs=chat.has_logprobs)

    return await answer(state, exchange, chat_request, make_writer)
