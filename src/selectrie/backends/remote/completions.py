"""This project's server and vLLM: `/v1/completions` with named tokens.

A row is a request that draws one token and names the tokens whose log-probabilities are
wanted. The prefix cache of the server holds what paths share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.remote.answers import Answer
from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel
from selectrie.backends.remote.partial import check_length, partial_row, together
from selectrie.backends.remote.transport import Transport
from selectrie.core.path_model import PartialRow, PathLimits, RowQuery

_PATH = "/v1/completions"
NAMED_IDS, TOP_IDS = 128, 20
"""How many tokens vLLM takes in `logprob_token_ids`, and in `logprobs` by default."""
_KEY = re.compile(r"token_id:(0|[1-9][0-9]{0,9})")
_NEUTRAL: Mapping[str, Any] = {
    "temperature": 0,
    "top_p": 1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""vLLM takes what is not given from the model's generation configuration."""
OWN_ROUNDING, VLLM_ROUNDING = 1e-6, 1e-5
"""Nats by which the values of a row may be off against each other.

Here rows are normalised in float64 by sums of float32 exponentials; vLLM's log-softmax
is in float32.
"""


def token_of_key(answer: Answer, n_tokens: int, name: str | None = None) -> int:
    """Return the token that is named as "token_id:123".

    Args:
        answer: The name, or what it is the name of.
        n_tokens: Number of tokens of the vocabulary.
        name: The name, if `answer` is something else.
    """
    found = _KEY.fullmatch(answer.text() if name is None else name)
    if found is None:
        answer.wrong("is not named by a token id (`return_tokens_as_token_ids`)")
    token = int(found[1])
    if token >= n_tokens:
        answer.wrong(f"is of token {token}: ids run from 0 to {n_tokens - 1}")
    return token


class CompletionsDialect:
    """Servers with the fields of vLLM's `/v1/completions`.

    Args:
        transport: The connection.
        model: The model.
        rounding: Nats by which the values of a row may be off against each other.
    """

    def __init__(self, transport: Transport, model: ServedModel, rounding: float) -> None:
        self._transport, self._model, self._rounding = transport, model, rounding
        n_context = model.n_context or DEFAULT_CONTEXT
        self.limits = PathLimits(
            named_ids=NAMED_IDS,
            top_ids=TOP_IDS,
            queries_per_request=1,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, n_context - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[PartialRow]:
        return await together(map(self._row, queries))

    async def _row(self, query: RowQuery) -> PartialRow:
        path, named = query.path.tolist(), query.named.tolist()
        values: dict[int, float] = {}
        top: list[float] = []
        answer = None
        if query.top or not named:
            answer, found = await self._last(path, {"logprobs": max(1, query.top)})
            values, top = found, sorted(found.values(), reverse=True)[: query.top]
        if named:
            answer, found = await self._last(path, {"logprobs": 0, "logprob_token_ids": named})
            values = {**values, **found}
        assert answer is not None  # noqa: S101 - one of the two was asked
        return partial_row(query, values, top, n_tokens=self._model.n_tokens, rounding=self._rounding, answer=answer)

    async def _last(self, path: Sequence[int], fields: Mapping[str, Any]) -> tuple[Answer, dict[int, float]]:
        """Return the log-probabilities that are told of the row after a path."""
        lists = await self._asked(path, {"max_tokens": 1, **fields})
        (row,) = lists["top_logprobs"].sequence(1)
        return row, self._values(row)

    async def _asked(self, ids: Sequence[int], fields: Mapping[str, Any]) -> Answer:
        """Return the lists of log-probabilities of one completion."""
        body = {
            "model": self._model.name,
            "prompt": list(ids),
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
            **_NEUTRAL,
            **fields,
        }
        answer = await self._transport.post(_PATH, body)
        usage = answer.get("usage")
        if usage is not None:
            check_length(usage["prompt_tokens"].whole(), ids, usage["prompt_tokens"])
        (choice,) = answer["choices"].sequence(1)
        return choice["logprobs"]

    def _values(self, row: Answer) -> dict[int, float]:
        return {token_of_key(value, self._model.n_tokens, name): value.logp() for name, value in row.items()}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        async def echoed(token: int) -> tuple[int, float]:
            ids = [*path, token]
            lists = await self._asked(ids, {"max_tokens": 1, "logprobs": 1, "echo": True})
            values = lists["token_logprobs"].sequence(len(ids) + 1)
            return token, values[len(path)].logp()

        return dict(await together(map(echoed, named)))

    async def encode(self, text: str) -> list[int] | None:
        body = {"model": self._model.name, "prompt": text, "add_special_tokens": False}
        answer = await self._transport.try_post("/tokenize", body)
        return None if answer is None else answer["tokens"].whole_numbers()
