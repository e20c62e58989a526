"""Requests of `benchmarks/serving.py` that score, draw and tokenize texts, each with the
check of its response; `serving_requests.py` has those that decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.http_client import Reply
from benchmarks.serving_requests import CHAT, COMPLETIONS, OPTIONS, Asked, Verdict, state, worst
from selectrie import SamplingParams, StopParams
from selectrie.engine.engine import Engine
from selectrie.engine.requests.generate import GenerationParams
from selectrie.options import PromptParams
from selectrie.results import Completion, PromptLogprobs

LEAST_LOGP = -9999.0
"""What the wire has for -inf."""
_NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty_last_n": -1}
"""OpenAI's defaults: no filter."""
_FINISHES = {"length": "length", "deadline": "length"}

Drawn = tuple[str, str, Sequence[tuple[int, float]]]
"""A drawn text as the wire has it: the text, why it ended, ids and log-probabilities."""


def echo(engine: Engine, number: int) -> Asked:
    """Return a request that scores options after a message, as texts or as ids."""
    texts = [f"{state(number)}\nThe customer wants to {one}" for one in OPTIONS[: 2 + number % 3]]
    as_ids = number % 2 == 1
    prompts: Any = [engine.encode(text).tolist() for text in texts] if as_ids else texts
    scored = engine.prompt_logprobs(prompts, top=1)
    own = {"max_tokens": 1, "temperature": 0} if as_ids else {"max_tokens": 0}
    body = {"prompt": prompts, "echo": True, "logprobs": 1, "return_tokens_as_token_ids": True, **own}

    def check(reply: Reply) -> Verdict:
        choices = [choice for (choice,) in _choices(reply, is_stream=False)]
        if len(choices) != len(scored):
            return Verdict(f"{len(choices)} choices of {len(scored)} prompts")
        return worst(
            _scored(choice["logprobs"], one, own["max_tokens"]) for choice, one in zip(choices, scored, strict=True)
        )

    return Asked("echo", COMPLETIONS, _encoded(body), check)


def _scored(found: Mapping[str, Any], own: PromptLogprobs, n_drawn: int) -> Verdict:
    """Compare the log-probabilities of an echoed prompt with the engine's."""
    tokens, logprobs = _ids(found["tokens"]), found["token_logprobs"]
    if len(tokens) != len(own) + n_drawn or tokens[: len(own)] != list(own.tokens):
        return Verdict(f"tokens {tokens} instead of {own.tokens}")
    if logprobs[0] is not None or any(one is None for one in logprobs[1:]):
        return Verdict("a log-probability is missing, or the first token has one")
    return _shares(logprobs[1 : len(own)], [one or 0.0 for one in own.logp[1:]], own.tolerance)


def _shares(found: Iterable[float], own: Iterable[float], tolerance: float | None) -> Verdict:
    """Compare log-probabilities of one row each, both of which may have moved by the tolerance."""
    pairs = zip(found, own, strict=True)
    share = max((abs(theirs - max(ours, LEAST_LOGP)) for theirs, ours in pairs), default=0.0) / (2 * (tolerance or 0.5))
    return Verdict("" if share <= 1 else f"a log-probability differs by {share:.3g} times what is allowed", share)


def sampled(engine: Engine, number: int, *, is_stream: bool = False) -> Asked:
    """Return a request that continues a text, with one or two choices."""
    n, temperature, n_tokens = 1 + number % 2, (0.0, 0.8, 1.0)[number % 3], 4 + number % 12
    drawn = engine.generate(
        state(number),
        n=n,
        seed=number,
        sampling=SamplingParams(temperature=temperature, **_NEUTRAL),
        stopping=StopParams(max_tokens=n_tokens, stop=["\n\n"]),
        options=GenerationParams(n_alternatives=2),
        prompting=PromptParams(parse_special=True),
    )
    body = {"prompt": state(number), "n": n, "temperature": temperature, "max_tokens": n_tokens, "logprobs": 2}
    body |= {"seed": number, "stop": "\n\n", "return_tokens_as_token_ids": True, "stream": is_stream}

    def check(reply: Reply) -> Verdict:
        found = [_of_completion(parts) for parts in _choices(reply, is_stream=is_stream)]
        return _compared(found, drawn.completions, drawn.tolerance)

    return Asked("completion_stream" if is_stream else "completion", COMPLETIONS, _encoded(body), check)


def chat(engine: Engine, number: int, *, is_stream: bool = False) -> Asked:
    """Return a request that answers a message."""
    temperature, n_tokens = (0.0, 0.7)[number % 2], 4 + number % 16
    messages = [{"role": "system", "content": "Answer shortly."}, {"role": "user", "content": state(number)}]
    drawn = engine.generate(
        messages,
        seed=number,
        sampling=SamplingParams(temperature=temperature, **_NEUTRAL),
        stopping=StopParams(max_tokens=n_tokens),
        options=GenerationParams(n_alternatives=1),
    )
    body = {"messages": messages, "temperature": temperature, "max_tokens": n_tokens, "seed": number}
    body |= {"logprobs": True, "top_logprobs": 1, "stream": is_stream}

    def check(reply: Reply) -> Verdict:
        found = [_of_chat(parts, is_stream=is_stream) for parts in _choices(reply, is_stream=is_stream)]
        return _compared(found, drawn.completions, drawn.tolerance)

    return Asked("chat_stream" if is_stream else "chat", CHAT, _encoded(body), check)


def completion_stream(engine: Engine, number: int) -> Asked:
    """Return a request as `sampled` makes it, answered as a stream."""
    return sampled(engine, number, is_stream=True)


def chat_stream(engine: Engine, number: int) -> Asked:
    """Return a request as `chat` makes it, answered as a stream."""
    return chat(engine, number, is_stream=True)


def tokenize(engine: Engine, number: int) -> Asked:
    """Return a request for the tokens of a text."""
    text = f"{state(number)}\né – 日本"
    own = engine.encode(text, prompting=PromptParams(parse_special=True)).tolist()

    def check(reply: Reply) -> Verdict:
        found = reply.json()
        right = found["tokens"] == own and found["count"] == len(own)
        return Verdict("" if right else f"tokens {found['tokens']} instead of {own}")

    return Asked("tokenize", "/tokenize", _encoded({"prompt": text}), check)


KINDS: Sequence[Callable[[Engine, int], Asked]] = (echo, sampled, completion_stream, chat, chat_stream, tokenize)


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps({"model": "embedded", **body}).encode()


def _ids(labels: Iterable[str]) -> list[int]:
    return [int(label.removeprefix("token_id:")) for label in labels]


def _choices(reply: Reply, *, is_stream: bool) -> list[list[Mapping[str, Any]]]:
    """Return the parts of each choice: one, or those of all events of a stream.

    Raises `ValueError` for a stream without its end, and for choices that are not
    numbered from 0.
    """
    objects = [reply.json()] if not is_stream else [json.loads(event) for event in _events(reply)]
    parts: dict[int, list[Mapping[str, Any]]] = {}
    for one in objects:
        for choice in one["choices"]:
            parts.setdefault(choice["index"], []).append(choice)
    if sorted(parts) != list(range(len(parts))):
        raise ValueError(f"choices are numbered {sorted(parts)}")
    return [parts[index] for index in range(len(parts))]


def _events(reply: Reply) -> list[str]:
    """Return the events of a stream but for its end."""
    *events, last = reply.events()
    if last != "[DONE]":
        raise ValueError(f"a stream ends with {last[:80]}")
    return events


def _of_completion(parts: Sequence[Mapping[str, Any]]) -> Drawn:
    logprobs = [part["logprobs"] for part in parts if part["logprobs"]]
    tokens = [token for one in logprobs for token in _ids(one["tokens"])]
    values = [value for one in logprobs for value in one["token_logprobs"]]
    return "".join(part["text"] for part in parts), parts[-1]["finish_reason"], list(zip(tokens, values, strict=True))


def _of_chat(parts: Sequence[Mapping[str, Any]], *, is_stream: bool) -> Drawn:
    messages = [part["delta" if is_stream else "message"] for part in parts]
    content = [token for part in parts if part["logprobs"] for token in part["logprobs"]["content"]]
    text = "".join(message.get("content") or "" for message in messages)
    return text, parts[-1]["finish_reason"], [(token["id"], token["logprob"]) for token in content]


def _compared(found: Sequence[Drawn], own: Sequence[Completion], tolerance: float | None) -> Verdict:
    """Compare drawn texts with the engine's, up to where rounding can change a draw."""
    if len(found) != len(own):
        return Verdict(f"{len(found)} choices instead of {len(own)}")
    return worst(_same_text(theirs, ours, tolerance) for theirs, ours in zip(found, own, strict=True))


def _same_text(found: Drawn, own: Completion, tolerance: float | None) -> Verdict:
    text, finish, tokens = found
    n = min(own.close_steps or (len(own.tokens),))
    theirs, ours = [token for token, _ in tokens[:n]], [token.id for token in own.tokens[:n]]
    if theirs != ours:
        return Verdict(f"tokens {theirs} instead of {ours}")
    if not own.close_steps:
        if len(tokens) != len(own.tokens) or text != own.text:
            return Verdict(f"{text!r} instead of {own.text!r}")
        if finish != _FINISHES.get(own.finish, "stop"):
            return Verdict(f"it ended by {finish!r} instead of {own.finish!r}")
    return _shares([logp for _, logp in tokens[:n]], [token.logp for token in own.tokens[:n]], tolerance)
