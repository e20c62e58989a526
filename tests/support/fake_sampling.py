"""The samplers of the servers in `fake_servers`: what they draw, and how they say it.

Tokens are drawn by the seed from the softmax at the temperature, or come from `plans`. Filters are not applied: tests of
what is drawn leave them out, and others look at what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.support.fake_servers import FakeServer


@dataclass(frozen=True)
class Drawn:
    """A sequence: tokens with the one that ended it, rows, text without a stop string, and the end."""

    tokens: list[int]
    rows: list[np.ndarray]
    text: bytes
    finish: str
    matched: int | str | None


def drawn(
    server: FakeServer,
    ids: Sequence[int],
    n_most: int,
    *,
    seed: int | None = None,
    temperature: float = 1.0,
    stop: Sequence[str] = (),
    stop_tokens: Sequence[int] = (),
) -> Drawn:
    """Draw until a stop string, a stop token, the end of the text, or the maximum."""
    plan = list(server.plans.popleft()) if server.plans else None
    rng = np.random.default_rng(seed)
    tokens: list[int] = []
    rows: list[np.ndarray] = []
    text = b""
    while len(tokens) < n_most:
        row = server.logp([*ids, *tokens])
        if plan is not None:
            token = plan.pop(0)
        elif temperature == 0:
            token = int(row.argmax())
        else:
            p = np.exp(row / temperature)
            token = int(rng.choice(len(row), p=p / p.sum()))
        tokens.append(token)
        rows.append(row)
        if token in server.vocabulary.eog.tolist() and token not in stop_tokens:
            return Drawn(tokens, rows, text, "eog", token)
        if token in stop_tokens:
            return Drawn(tokens, rows, text, "stop", token)
        text += server.vocabulary.pieces[token]
        found = next((one for one in stop if one.encode() in text), None)
        if found is not None:
            return Drawn(tokens, rows, text[: text.index(found.encode())], "stop", found)
    return Drawn(tokens, rows, text, "length", None)


def _top(row: np.ndarray, n: int) -> list[int]:
    return np.argsort(-row, kind="stable")[:n].tolist()


def vllm(server: FakeServer, body: Any) -> Any:
    """`/v1/completions` of vLLM: child i of a request has `seed` + i; a string or a token is the stop reason."""
    choices, n_drawn = [], 0
    for index in range(body["n"]):
        one = drawn(
            server,
            body["prompt"],
            body["max_tokens"],
            seed=None if body.get("seed") is None else body["seed"] + index,
            temperature=body["temperature"],
            stop=body.get("stop", ()),
            stop_tokens=body.get("stop_token_ids", ()),
        )
        n_drawn += len(one.tokens)
        named = [f"token_id:{token}" for token in one.tokens]
        tops = [
            {f"token_id:{token}": float(row[token]) for token in (*_top(row, body["logprobs"]), last)}
            for row, last in zip(one.rows, one.tokens, strict=True)
        ]
        choices.append(
            {
                "index": index,
                "text": one.text.decode("utf-8", "replace"),
                "logprobs": {
                    "text_offset": [0] * len(named),
                    "token_logprobs": [float(row[token]) for row, token in zip(one.rows, one.tokens, strict=True)],
                    "tokens": named,
                    "top_logprobs": tops,
                },
                "finish_reason": "length" if one.finish == "length" else "stop",
                "stop_reason": None if one.finish == "eog" else one.matched,
            }
        )
    n_prompt = len(body["prompt"])
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n_drawn, "total_tokens": n_prompt + n_drawn}
    return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": choices, "usage": usage}


def sglang(server: FakeServer, body: Any) -> Any:
    """`/generate` of SGLang: a list of parameters for a list of prompts; values are those at the temperature."""
    items = []
    for ids, params in zip(body["input_ids"], body["sampling_params"], strict=True):
        seed = params.get("sampling_seed") if "deterministic" in server.quirks else None
        one = drawn(
            server,
            ids,
            params["max_new_tokens"],
            seed=seed,
            temperature=params["temperature"],
            stop=params.get("stop", ()),
            stop_tokens=params.get("stop_token_ids", ()),
        )
        ended = {"type": "length", "length": len(one.tokens)}
        if one.finish != "length":
            ended = {"type": "stop", "matched": one.matched}
        divided = [row / (params["temperature"] or 1) for row in one.rows]
        values = [float(row[token] - np.logaddexp.reduce(row)) for row, token in zip(divided, one.tokens, strict=True)]
        items.append(
            {
                "text": one.text.decode("utf-8", "replace"),
                "output_ids": one.tokens,
                "meta_info": {
                    "id": "1",
                    "finish_reason": ended,
                    "prompt_tokens": len(ids),
                    "completion_tokens": len(one.tokens),
                    "output_token_logprobs": [[v, token, None] for v, token in zip(values, one.tokens, strict=True)],
                },
            }
        )
    return items


def llama(server: FakeServer, body: Any) -> Any:
    """`/completion` of llama-server: no values of tokens that end within a character, nor of as many at the end as a
    stop word has.
    """
    ids, pieces = body["prompt"], server.vocabulary.pieces
    one = drawn(
        server, ids, body["n_predict"], seed=body["seed"], temperature=body["temperature"], stop=body.get("stop", ())
    )
    told = []
    text = b""
    for row, token in zip(one.rows, one.tokens, strict=True):
        text += pieces[token]
        if text.decode("utf-8", "ignore").encode() != text:
            continue
        best = {"id": _top(row, 1)[0], "token": "", "bytes": [], "logprob": float(row.max())}
        told.append({"id": token, "token": "", "bytes": [], "logprob": float(row[token]), "top_logprobs": [best]})
    if isinstance(one.matched, str):
        told = told[: max(0, len(told) - len(server._tokens(one.matched)))]
    kind = {"eog": "eos", "stop": "word", "length": "limit"}[one.finish]
    return {
        "index": 0,
        "content": one.text.decode("utf-8", "replace"),
        "tokens": one.tokens,
        "tokens_predicted": len(one.tokens),
        "tokens_evaluated": len(ids),
        "stop_type": kind,
        "stopping_word": one.matched if isinstance(one.matched, str) else "",
        **({"completion_probabilities": told} if told else {}),
    }


def echo(server: FakeServer, ids: Sequence[int], body: Any) -> Any:
    """`/v1/completions` of OpenAI: a text, and "stop" for the end of the text and for a stop string."""
    stop = body.get("stop", ())
    one = drawn(server, ids, body["max_tokens"], seed=body.get("seed"), temperature=body["temperature"], stop=stop)
    finish = "length" if one.finish == "length" else "stop"
    usage = {
        "prompt_tokens": len(ids),
        "completion_tokens": len(one.tokens),
        "total_tokens": len(ids) + len(one.tokens),
    }
    choice = {"index": 0, "text": one.text.decode("utf-8", "replace"), "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}
