"""Writes answers as objects and events of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from selectrie.results import Chunk, Generation
from selectrie.results.generation import chat_logprobs, finish_reason
from selectrie.server.generation.generation import GenerationRequest
from selectrie.server.generation.tool_turn import Piece, ToolAnswer
from selectrie.server.transport.request_context import Exchange


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
