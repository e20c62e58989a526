"""Asks a server for text: OpenAI's `/v1/completions`, which every kind has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.remote.partial import check_length
from selectrie.backends.remote.transport import Transport
from selectrie.core.completion import ServedText

_PATH = "/v1/completions"
_BYTES_OF_TOKEN = 1024
"""Maximum size of the text of a token in an answer."""


async def draw(
    transport: Transport, model: str, ids: Sequence[int], prompt: list[int] | str, fields: Mapping[str, Any]
) -> ServedText:
    """Return one text of a server.

    Args:
        transport: The connection.
        model: Name of the model.
        ids: The tokens before the text.
        prompt: These tokens as the server takes them.
        fields: The other fields of the request, `max_tokens` among them.
    """
    began, most = time.perf_counter(), fields["max_tokens"]
    body = {"model": model, "prompt": prompt, **fields}
    answer = await transport.post(_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_TOKEN * most)
    usage = answer["usage"]
    check_length(usage["prompt_tokens"].whole(), ids, usage["prompt_tokens"])
    (choice,) = answer["choices"].sequence(1)
    text, finish, n_tokens = choice["text"].text(), choice["finish_reason"].text(), usage["completion_tokens"].whole()
    if finish not in {"stop", "length"}:
        choice["finish_reason"].wrong(f"is {finish[:40]!r}: the text has no end")
    if n_tokens > most:
        usage["completion_tokens"].wrong(f"is {n_tokens}: {most} was the maximum that was asked for")
    if any("\ud800" <= c <= "\udfff" for c in text):
        choice["text"].wrong("has a lone surrogate, which is no character")
    return ServedText(text, n_tokens, finish, time.perf_counter() - began)
