"""SGLang: `/generate` with token ids and the tokens that are named for each of them.

Many rows are one request, so a whole level of a trie is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selectrie.backends.remote.answers import Answer, refuse_duplicates
from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel
from selectrie.backends.remote.partial import check_length, partial_row, together
from selectrie.backends.remote.transport import Transport
from selectrie.core.path_model import PartialRow, PathLimits, RowQuery

_PATH = "/generate"
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

    async def rows(self, queries: Sequence[RowQuery]) -> list[PartialRow]:
        parts = [queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES)]
        return [row for part in await together(map(self._part, parts)) for row in part]

    async def _part(self, queries: Sequence[RowQuery]) -> list[PartialRow]:
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
        answer = await self._transport.post(_PATH, body, max_bytes=max_bytes)
        metas = [item["meta_info"] for item in answer.sequence(len(paths))]
        for path, meta in zip(paths, metas, strict=True):
            check_length(meta["prompt_tokens"].whole(), path, meta["prompt_tokens"])
        return metas

    def _row(self, query: RowQuery, named: Sequence[int], meta: Answer) -> PartialRow:
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
