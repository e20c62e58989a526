"""What the tests of chats share: a request, what the engine itself draws for it, and what chunks add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selectrie import GenerationParams, SamplingParams, StopParams
from selectrie.engine.engine import Engine

PATH = "/v1/chat/completions"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it late?"}]
BODY = {"messages": MESSAGES, "seed": 7, "max_tokens": 12}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty_last_n": -1}
"""The sampling options of a request that gives none."""


def generated(llm: Engine, body: Mapping[str, Any], messages: Sequence[Mapping[str, str]] = MESSAGES) -> Any:
    """What the engine itself draws for a request of `ASKED`."""
    names = ("temperature", "frequency_penalty", "presence_penalty")
    sampling = {name: body[name] for name in names if name in body}
    bias = {int(token): value for token, value in body.get("logit_bias", {}).items()}
    llm.trim()
    found = llm.generate(
        messages,
        n=body.get("n", 1),
        seed=7,
        sampling=SamplingParams(**{**NEUTRAL, **sampling}, logit_bias=bias),
        stopping=StopParams(max_tokens=12, stop=body.get("stop", ()), ignore_eog=body.get("ignore_eos", False)),
        options=GenerationParams(n_alternatives=body.get("top_logprobs", 0)),
    )
    llm.trim()
    return found


def put_together(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The choices that the chunks of a stream add up to, in the shape of a whole answer."""
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            index, delta = choice["index"], choice["delta"]
            if index not in found:
                assert delta == {"role": "assistant", "content": "", "refusal": None}, "the role comes first"
                found[index] = {"index": index, "message": dict(delta), "logprobs": None, "finish_reason": None}
                continue
            made = found[index]
            assert made["finish_reason"] is None, "a chunk after the last one"
            made["message"]["content"] += delta.get("content", "")
            made["finish_reason"] = choice["finish_reason"]
            if choice["logprobs"] is not None:
                before = made["logprobs"]["content"] if made["logprobs"] else []
                made["logprobs"] = {"content": before + choice["logprobs"]["content"], "refusal": None}
    return [found[index] for index in sorted(found)]
