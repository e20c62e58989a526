"""The texts that the servers in `fake_servers` draw behind OpenAI's `/v1/completions`.

Tokens are drawn by the seed from the softmax at the temperature, or come from `plans`. Filters and penalties are not
applied: tests look at what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.support.fake_servers import FakeServer


def completion(server: FakeServer, ids: Sequence[int], body: Any) -> Any:
    """A text, and "stop" for the end of the text and for a stop string."""
    text, n_tokens, finish = _drawn(server, ids, body)
    usage = {"prompt_tokens": len(ids), "completion_tokens": n_tokens, "total_tokens": len(ids) + n_tokens}
    choice = {"index": 0, "text": text.decode("utf-8", "replace"), "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}


def _drawn(server: FakeServer, ids: Sequence[int], body: Any) -> tuple[bytes, int, str]:
    """Draw until a stop string, the end of the text, or the maximum."""
    plan = list(server.plans.popleft()) if server.plans else None
    rng = np.random.default_rng(body.get("seed"))
    temperature = body.get("temperature", 1.0)
    tokens: list[int] = []
    text = b""
    while len(tokens) < body["max_tokens"]:
        row = server.logp([*ids, *tokens])
        if plan is not None:
            token = plan.pop(0)
        elif temperature == 0:
            token = int(row.argmax())
        else:
            p = np.exp(row / temperature)
            token = int(rng.choice(len(row), p=p / p.sum()))
        tokens.append(token)
        if token in server.vocabulary.eog.tolist():
            return text, len(tokens), "stop"
        text += server.vocabulary.pieces[token]
        for stop in body.get("stop", ()):
            if stop.encode() in text:
                return text[: text.index(stop.encode())], len(tokens), "stop"
    return text, len(tokens), "length"
