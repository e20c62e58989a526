"""This project's server, vLLM and SGLang: the values of named tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel, check_length, partial_row, together
from selectrie.backends.remote.transport import Answer, Transport, refuse_duplicates
from selectrie.core.path_model import PathLimits, RowBounds, RowQuery

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

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        return await together(map(self._row, queries))

    async def _row(self, query: RowQuery) -> RowBounds:
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


_GENERATE = "/generate"
_QUERIES = 256
"""Number of rows of one request."""
_NAMED, _TOP = 1024, 64
_BYTES_OF_TOKEN = 64
"""Size of a value, its id and null in an answer, at most."""
_ROUNDING = 1e-5
"""Nats by which the values of a row may be off: its log-softmax is in float32."""


class SglangDialect:
    """A server of SGLang."""

    def __init__(self, transport: Transport, model: ServedModel) -> None:
        self._transport, self._model = transport, model
        self.limits = PathLimits(
            named_ids=_NAMED,
            top_ids=_TOP,
            queries_per_request=_QUERIES,
            requests_in_flight=transport.server.concurrency,
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        parts = [queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES)]
        return [row for part in await together(map(self._part, parts)) for row in part]

    async def _part(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        paths = [query.path.tolist() for query in queries]
        named = [query.named.tolist() or [0] for query in queries]
        answers = await self._asked(paths, named, top=max(query.top for query in queries))
        return [self._row(query, one, meta) for query, one, meta in zip(queries, named, answers, strict=True)]

    async def _asked(
        self, paths: Sequence[Sequence[int]], named: Sequence[Sequence[int]], *, top: int, start: int = -1
    ) -> list[Answer]:
        """Return what is said about each of many paths."""
        body: dict[str, Any] = {
            "input_ids": list(paths),
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": [start] * len(paths),
            "top_logprobs_num": [top] * len(paths),
            "token_ids_logprob": list(named),
        }
        n_values = sum(len(ids) + top for ids in named) + (0 if start < 0 else 3 * sum(map(len, paths)))
        max_bytes = (1 << 20) + 4096 * len(paths) + _BYTES_OF_TOKEN * n_values
        answer = await self._transport.post(_GENERATE, body, max_bytes=max_bytes)
        metas = [item["meta_info"] for item in answer.sequence(len(paths))]
        for path, meta in zip(paths, metas, strict=True):
            check_length(meta["prompt_tokens"].whole(), path, meta["prompt_tokens"])
        return metas

    def _row(self, query: RowQuery, named: Sequence[int], meta: Answer) -> RowBounds:
        (first,) = meta["output_token_ids_logprobs"].sequence(1)
        values = self._values(first)
        if sorted(values) != sorted(named):
            first.wrong("is about other tokens than were asked for")
        top: list[float] = []
        if query.top:
            (listed,) = meta["output_top_logprobs"].sequence(1)
            best = self._values(listed)
            top = sorted(best.values(), reverse=True)[: query.top]
            values = {**best, **values}
        return partial_row(query, values, top, n_tokens=self._model.n_tokens, rounding=_ROUNDING, answer=meta)

    def _values(self, entries: Answer) -> dict[int, float]:
        """Return pairs of a log-probability and an id as values by token."""
        pairs = [entry.sequence()[:2] for entry in entries.sequence()]
        if any(len(pair) < 2 for pair in pairs):
            entries.wrong("has an item without a token")
        ids = [token.token(self._model.n_tokens) for _, token in pairs]
        refuse_duplicates(ids, entries)
        return {token: logp.logp() for token, (logp, _) in zip(ids, pairs, strict=True)}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        paths = [[*path, token] for token in named]
        metas = await self._asked(paths, [[0]] * len(paths), top=0, start=0)
        values = {}
        for token, meta in zip(named, metas, strict=True):
            entries = meta["input_token_logprobs"].sequence(len(path) + 1)
            logp, last = entries[-1].sequence()[:2]
            if last.token(self._model.n_tokens) != token:
                last.wrong(f"is another token than {token}, which was sent there")
            values[token] = logp.logp()
        return values

    async def encode(self, text: str) -> list[int] | None:
        answer = await self._transport.try_post("/tokenize", {"prompt": text, "add_special_tokens": False})
        return None if answer is None else answer["tokens"].whole_numbers()
