"""Reads requests of `/v1/chat/completions` and writes responses, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from selectrie.errors import THE_PROMPT, IncompatibleOptionsError, OptionError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Generation
from selectrie.results.generation import chat_completion, chat_logprobs, finish_reason
from selectrie.server.generation_wire import GenerationBody, GenerationRequest, read_generation
from selectrie.server.messages import Conversation, Message
from selectrie.server.options import ServerOptions
from selectrie.server.wire import Ignored, NotOffered, UpTo, read, unknown_fields


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
    reasoning_effort: Annotated[Any, NotOffered()] = None
    verbosity: Annotated[Any, NotOffered(("medium",))] = None
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
    max_completion_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens drawn."""
    max_tokens: int | None = Field(None, ge=1)
    """The same under its older name."""
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
"""What stands for options that no field is."""


@dataclass(frozen=True, slots=True, eq=False)
class ChatRequest:
    """A request of `/v1/chat/completions`.

    Attributes:
        messages: The messages, each with texts alone.
        generation: How the answer is drawn.
        prompting: Arguments of the chat template.
        has_logprobs: Whether the answer has log-probabilities.
    """

    messages: Sequence[Mapping[str, str]]
    generation: GenerationRequest
    prompting: PromptParams
    has_logprobs: bool


def read_chat(data: Mapping[str, Any], options: ServerOptions) -> ChatRequest:
    """Return a request of `/v1/chat/completions`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
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
    return ChatRequest(messages, replace(generation, warnings=warnings), prompting, bool(body.logprobs))


class ChatWriter:
    """Writes the objects of one answer.

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
        """Return the chat completion object."""
        answer = chat_completion(generation, logprobs=self._request.has_logprobs)
        return {**self._head, **answer, "usage": dict(usage), **self._warned}

    def chunks(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the chunk objects for what a choice has gained.

        The first of a choice has the role, and the last the reason for its end. The
        first of all has the warnings.
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
        """Return the chunk object with the usage, if the request wants one."""
        if not self._request.generation.includes_usage:
            return []
        return [{**self._head, "object": "chat.completion.chunk", "choices": [], "usage": dict(usage)}]
