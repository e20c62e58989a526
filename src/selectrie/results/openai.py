"""Converts sequences to completion and chat completion objects of OpenAI's API.

The fields are those of the API reference,
https://platform.openai.com/docs/api-reference/completions/object and
https://platform.openai.com/docs/api-reference/chat/object.
"""

from __future__ import annotations

import math
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from selectrie.results.records import TokenScore

_OUT_OF_ROOM = ("length", "deadline")
LEAST_LOGP = -9999.0
"""Log-probability of an impossible token, as the API has it: JSON has no infinity."""


class Drawn(Protocol):
    """The part of a `Completion` that is read here."""

    @property
    def text(self) -> str: ...
    @property
    def healed(self) -> bytes: ...
    @property
    def tokens(self) -> tuple[TokenScore, ...]: ...
    @property
    def alternatives(self) -> tuple[tuple[TokenScore, ...], ...]: ...
    @property
    def finish(self) -> str: ...


def finish_reason(finish: str) -> str:
    """Return "length" if tokens or time ran out, else "stop".

    These are the API's values of `finish_reason`.
    """
    return "length" if finish in _OUT_OF_ROOM else "stop"


def text_completion(completions: Iterable[Drawn]) -> dict[str, object]:
    """Return the fields `object` and `choices` of a completion object."""
    return {
        "object": "text_completion",
        "choices": [
            {
                "text": one.text,
                "index": index,
                "logprobs": _logprobs(one),
                "finish_reason": finish_reason(one.finish),
            }
            for index, one in enumerate(completions)
        ],
    }


def chat_completion(completions: Iterable[Drawn], *, logprobs: bool = True) -> dict[str, object]:
    """Return the fields `object` and `choices` of a chat completion object.

    Without `logprobs`, that field is None.
    """
    return {
        "object": "chat.completion",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": one.text, "refusal": None},
                "logprobs": chat_logprobs(one.tokens, one.alternatives) if logprobs else None,
                "finish_reason": finish_reason(one.finish),
            }
            for index, one in enumerate(completions)
        ],
    }


def _logprobs(one: Drawn) -> dict[str, object] | None:
    """Return the field `logprobs` of a completion object, lists over the tokens.

    None if a server does not tell the tokens of a text.
    """
    if one.text and not one.tokens:
        return None
    top = [_top(token, others) for token, others in zip(one.tokens, one.alternatives, strict=False)]
    return {
        "tokens": [token.label for token in one.tokens],
        "token_logprobs": [json_logprob(token.logp) for token in one.tokens],
        "top_logprobs": top or None,
        "text_offset": _offsets(one),
    }


def _top(drawn: TokenScore, alternatives: Sequence[TokenScore]) -> dict[str, float | None]:
    """Return an entry of `top_logprobs`: log-probabilities by spelling, best first.

    The drawn token is included, because the API always lists it. If several
    alternatives have one spelling, the most probable one is listed.
    """
    top: dict[str, float | None] = {}
    for token in (*alternatives, drawn):
        top.setdefault(token.label, json_logprob(token.logp))
    return top


def _offsets(one: Drawn) -> list[int]:
    """Return the number of characters of the text before each token.

    Healed bytes are not part of the text. The offsets of a stop string are those of the
    end of the text.
    """
    decoder = getincrementaldecoder("utf-8")("replace")
    left, lengths = len(one.healed), []
    for token in one.tokens:
        lengths.append(len(decoder.decode(token.piece[left:])))
        left = max(0, left - len(token.piece))
    return [min(before, len(one.text)) for before in accumulate(lengths[:-1], initial=0)] if lengths else []


def chat_logprobs(
    tokens: Sequence[TokenScore], alternatives: Sequence[Sequence[TokenScore]]
) -> dict[str, list[dict[str, object]] | None]:
    """Return the field `logprobs` of a choice of a chat completion object.

    Each token has its id beside the fields of the API, because several tokens may have
    one text.
    """
    others = alternatives or ((),) * len(tokens)
    content = [
        {**_token(token), "top_logprobs": [_token(other) for other in top]}
        for token, top in zip(tokens, others, strict=True)
    ]
    return {"content": content, "refusal": None}


def _token(token: TokenScore) -> dict[str, object]:
    return {"id": token.id, "token": token.label, "logprob": json_logprob(token.logp), "bytes": list(token.piece)}


def json_logprob(logp: float | None) -> float | None:
    """Return a log-probability for JSON: at least `LEAST_LOGP`, and None for NaN."""
    return None if logp is None or math.isnan(logp) else max(logp, LEAST_LOGP)
