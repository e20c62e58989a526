"""Reads requests of `/v1/chat/completions` and writes responses, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from selectrie.errors import OptionError
from selectrie.options import PromptParams
from selectrie.results import Chunk, Generation
from selectrie.results.openai import chat_completion, chat_logprobs, finish_reason
from selectrie.server.body import flag_of
from selectrie.server.fields import unknown_fields
from selectrie.server.generation_wire import (
    GenerationRequest,
    count_of_tokens,
    read_generation,
    refuse_unsupported,
)
from selectrie.server.messages import FIELDS, FIELDS_OF_CHATS, read_conversation
from selectrie.server.options import ServerOptions

_LIMITS = ("max_completion_tokens", "max_tokens")
_KNOWN = (*FIELDS_OF_CHATS, *_LIMITS, "logprobs", "top_logprobs", "parallel_tool_calls")
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "audio": (),
    "moderation": (),
    "prediction": (),
    "reasoning": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "logprob_token_ids": ([],),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
}
"""Known fields of chats that are not offered, as `generation_wire.UNSUPPORTED`."""


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


def read_chat(body: Mapping[str, Any], options: ServerOptions) -> ChatRequest:
    """Return a request of `/v1/chat/completions`.

    Raises:
        HttpError, RequestError: For whatever can be found wrong without a model.
    """
    refuse_unsupported(body, _UNSUPPORTED)
    has_logprobs, top = flag_of(body, "logprobs"), body.get("top_logprobs")
    if top is not None and (type(top) is not int or not 0 <= top <= options.max_logprobs):
        raise OptionError("top_logprobs", top, f"a whole number from 0 to {options.max_logprobs}")
    if top and not has_logprobs:
        raise OptionError("top_logprobs", top, "nothing, or `logprobs` set to true")
    generation = read_generation(
        body,
        options,
        max_tokens=count_of_tokens(body, _LIMITS),
        n_alternatives=top or 0,
        known=(*_KNOWN, *_UNSUPPORTED),
    )
    messages, prompting = read_conversation(body)
    unknown = dict.fromkeys(name for message in body["messages"] for name in message)
    warnings = [*generation.warnings, *unknown_fields(unknown, FIELDS, " of messages")]
    return ChatRequest(messages, replace(generation, warnings=warnings), prompting, has_logprobs)


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
