"""Writes responses of `/v1/completions`, as OpenAI and vLLM do; no model is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Any

from selectrie.results import Chunk, Completion, PromptLogprobs
from selectrie.results.generation import finish_reason, json_logprob
from selectrie.server.completion_wire import CompletionRequest
from selectrie.server.exchange import Exchange
from selectrie.server.token_texts import BegunCharacter, Label, Places, PromptSpelling

Choice = dict[str, Any]
Logprob = tuple[int, float]
"""A token and its log-probability."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A token with its log-probability and those of others in its place.

    Attributes:
        token: Id of the token.
        logp: Its log-probability; None if nothing predicts it.
        others: Tokens in its place, best first; it may be one of them.
        place: Its place in the text, in characters.
    """

    token: int
    logp: float | None
    others: Sequence[Logprob]
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptTokens:
    """A prompt as its tokens.

    Attributes:
        ids: Its tokens.
        spelling: Its text, and the places of its tokens.
        scored: The log-probabilities of its tokens, if they are wanted.
    """

    ids: Sequence[int]
    spelling: PromptSpelling
    scored: PromptLogprobs | None = None


class CompletionWriter:
    """Writes the objects of one answer around its choices.

    Args:
        request: The request.
        exchange: Its id and the name of the model.
    """

    def __init__(self, request: CompletionRequest, exchange: Exchange) -> None:
        self._includes_usage = request.generation.includes_usage
        self._head = {
            "id": f"cmpl-{exchange.id}",
            "object": "text_completion",
            "created": int(time()),
            "model": exchange.model,
        }
        self._warned = {"warnings": list(request.generation.warnings)} if request.generation.warnings else {}

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, int]) -> Choice:
        """Return the completion object."""
        return {**self._head, "choices": choices, "usage": usage, **self._warned}

    def chunks(self, choices: Sequence[Choice | None]) -> list[Choice]:
        """Return a chunk object for each choice; the first of all has the warnings."""
        chunks = [{**self._head, "choices": [choice]} for choice in choices if choice is not None]
        if self._includes_usage:
            chunks = [{**chunk, "usage": None} for chunk in chunks]
        if chunks:
            chunks[0] |= self._warned
            self._warned = {}
        return chunks

    def last(self, usage: Mapping[str, int]) -> list[Choice]:
        """Return the chunk object with the usage, if the request wants one."""
        return [{**self._head, "choices": [], "usage": usage}] if self._includes_usage else []


class ChoiceWriter:
    """Writes one choice of a response, whole or as it grows.

    Args:
        request: The request.
        prompt: The choice's prompt.
        index: Number of the choice in the response.
        label: How tokens are shown.
    """

    def __init__(self, request: CompletionRequest, prompt: PromptTokens, index: int, label: Label) -> None:
        self._request, self._prompt, self._index, self._label = request, prompt, index, label
        spelling = prompt.spelling
        self._begun = BegunCharacter(spelling.tail if request.body.echo else b"")
        self._echo = spelling.text if request.body.echo else ""
        if request.max_tokens and spelling.tail:
            self._echo = self._echo[:-1]  # what is drawn may complete the last character
        self._n_sent = len(self._echo)
        self._places = Places(self._n_sent, spelling.tail, shows_broken=bool(request.body.echo))
        self._waiting: list[Entry] = []

    def before(self) -> Choice:
        """Return the choice before anything is drawn: the prompt, if it is echoed.

        If nothing will be drawn, it has ended.
        """
        request, prompt = self._request, self._prompt
        choice = self._choice(self._echo, self._prompt_entries())
        if not request.max_tokens:
            choice["finish_reason"] = "length"
        if request.body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self._prompt_logprobs(request.body.prompt_logprobs)
        if request.body.return_token_ids:
            choice |= {"prompt_token_ids": list(prompt.ids), "token_ids": []}
        return choice

    def after(self, chunk: Chunk) -> Choice | None:
        """Return the choice of what its sequence has gained, None for nothing to send.

        The log-probabilities of a token wait for the text at its place. So places do
        not depend on a stop string that is found later.
        """
        broken = self._begun.broken((one.piece for one in chunk.tokens), is_last=chunk.completion is not None)
        text = broken + chunk.text
        self._n_sent += len(text)
        for index, one in enumerate(chunk.tokens):
            others = [(other.id, other.logp) for other in chunk.alternatives[index]] if chunk.alternatives else []
            others += zip(self._request.named, chunk.named[index], strict=True) if chunk.named else []
            self._waiting.append(Entry(one.id, one.logp, others, self._places.add(one.piece)))
        ready = self._ready(is_last=chunk.completion is not None)
        if not text and chunk.completion is None and not self._request.body.return_token_ids:
            return None
        choice = self._choice(text, ready)
        if self._request.body.return_token_ids:
            choice["token_ids"] = [one.id for one in chunk.tokens]
        return choice if chunk.completion is None else choice | _ended(chunk.completion)

    def whole(self, completion: Completion) -> Choice:
        """Return the whole choice of a finished sequence."""
        text, tokens = completion.text, completion.tokens
        chunk = Chunk(completion.prompt_index, completion.index, text, tokens, completion)
        before = self.before()
        after = self.after(replace(chunk, alternatives=completion.alternatives, named=completion.named)) or {}
        whole = {**before, **after, "text": before["text"] + after["text"]}
        if before["logprobs"] is not None:
            whole["logprobs"] = {
                name: before["logprobs"][name] + after["logprobs"][name] for name in before["logprobs"]
            }
        return whole

    def _ready(self, *, is_last: bool) -> list[Entry]:
        """Return the entries that may be sent, and no longer wait."""
        n = len(self._waiting)
        if not is_last:
            n = next((i for i, one in enumerate(self._waiting) if one.place >= self._n_sent), n)
        ready, self._waiting = self._waiting[:n], self._waiting[n:]
        return [replace(one, place=min(one.place, self._n_sent)) for one in ready]

    def _choice(self, text: str, entries: Iterable[Entry]) -> Choice:
        logprobs = None if self._request.body.logprobs is None else logprobs_of(entries, self._label)
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": None, "stop_reason": None}

    def _prompt_entries(self) -> list[Entry]:
        """Return the entries of the echoed prompt."""
        request, scored = self._request, self._prompt.scored
        if not request.body.echo or request.body.logprobs is None or scored is None:
            return []
        entries = []
        for index, (token, place) in enumerate(zip(self._prompt.ids, self._prompt.spelling.offsets, strict=True)):
            others = [*(scored.top[index] or ())[: request.body.logprobs]]
            others += zip(request.named, scored.named[index] or (), strict=False)
            entries.append(Entry(token, scored.logp[index], others, place))
        return entries

    def _prompt_logprobs(self, k: int) -> list[dict[str, Any] | None]:
        """Return vLLM's list: None, or the prompt token and the top k there, by id.

        The token itself comes first. Its rank is known if it is among those asked for.
        """
        scored = self._prompt.scored
        entries: list[dict[str, Any] | None] = []
        for index, token in enumerate(self._prompt.ids):
            logp = None if scored is None else scored.logp[index]
            if scored is None or logp is None:
                entries.append(None)
                continue
            top = (scored.top[index] or ())[:k]
            ranks = {one: rank for rank, (one, _) in enumerate(scored.top[index] or (), 1)}
            if scored.is_greedy[index]:
                ranks[token] = 1
            entries.append(
                {
                    str(one): {
                        "logprob": json_logprob(value),
                        "rank": ranks.get(one),
                        "decoded_token": self._label(one),
                    }
                    for one, value in dict([(token, logp), *top]).items()
                }
            )
        return entries


def logprobs_of(entries: Iterable[Entry], label: Label) -> dict[str, list[Any]]:
    """Return OpenAI's lists over tokens.

    In `top_logprobs`, where two tokens are shown by one text, the larger value stays.
    The token itself is always in it.
    """
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in entries:
        top: dict[str, float] | None = None
        if one.logp is not None:
            top = {}
            for token, logp in (*one.others, (one.token, one.logp)):
                shown, value = label(token), json_logprob(logp)
                if value is not None and value > top.get(shown, float("-inf")):
                    top[shown] = value
        lists["tokens"].append(label(one.token))
        lists["token_logprobs"].append(json_logprob(one.logp))
        lists["top_logprobs"].append(top)
        lists["text_offset"].append(one.place)
    return lists


def _ended(completion: Completion) -> Choice:
    """Return how a sequence ended, and by which text or token of the request."""
    is_token = completion.finish == "stop" and completion.stop is None
    cause = completion.ended_by if is_token else completion.stop
    return {"finish_reason": finish_reason(completion.finish), "stop_reason": cause}
