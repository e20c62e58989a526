"""llama-server: `/completion` with the most probable tokens of a row.

A row names no tokens, but gives the k most probable ones. 64 are asked for first, then
1 024, then all, and only where a named token is not among them. Paths are asked one
after another in the order of a walk depth first, so that a slot has all of a path but
its last token in its cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from selectrie.backends.remote.answers import Answer, refuse_duplicates
from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel
from selectrie.backends.remote.partial import check_length, partial_row
from selectrie.backends.remote.transport import Transport
from selectrie.core.path_model import PartialRow, PathLimits, RowQuery

_PATH = "/completion"
_STEPS = (64, 1024)
_BYTES_OF_TOKEN = 2048
"""Maximum size of what an answer says about one token; its bytes are listed."""
_FORCED = 1e6
"""What is added to the logit of the token that is drawn.

The probabilities are those before it. The token is one letter: of a token that ends
within a character llama-server gives no probabilities.
"""


class LlamaServerDialect:
    """A llama-server.

    Args:
        transport: The connection.
        model: The model.
        n_slots: Number of requests that it works on at once.
        letter: A token of one ASCII letter, or None if there is none.
    """

    def __init__(self, transport: Transport, model: ServedModel, *, n_slots: int, letter: int | None) -> None:
        self._transport, self._model, self._letter = transport, model, letter
        # Its softmax sums float32 numbers one after another.
        self._rounding = max(1e-6, model.n_tokens * 2.0**-24)
        self._places = asyncio.Semaphore(max(1, min(n_slots, transport.server.concurrency)))
        self.limits = PathLimits(
            named_ids=model.n_tokens,
            top_ids=model.n_tokens,
            queries_per_request=1,
            requests_in_flight=max(1, min(n_slots, transport.server.concurrency)),
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[PartialRow]:
        order = sorted(range(len(queries)), key=lambda index: tuple(queries[index].path.tolist()))
        found: dict[int, PartialRow] = {}
        async with self._places:
            for index in order:
                found[index] = await self._row(queries[index])
        return [found[index] for index in range(len(queries))]

    async def _row(self, query: RowQuery) -> PartialRow:
        n_tokens, named = self._model.n_tokens, query.named.tolist()
        path = query.path.tolist()
        sizes = sorted({*(size for size in _STEPS if max(query.top, 1) <= size < n_tokens), n_tokens})
        answer, values = await self._most_probable(path, sizes[0])
        for size in sizes[1:]:
            if all(token in values for token in named):
                break
            answer, values = await self._most_probable(path, size)
        top = sorted(values.values(), reverse=True)[: query.top]
        row = partial_row(query, values, top, n_tokens=n_tokens, rounding=self._rounding, answer=answer)
        least = min(values.values(), default=0.0)  # every token that was not given is less probable
        return PartialRow(row.ids, row.logp, row.log_rest, min(row.rest_max, least))

    async def _most_probable(
        self, path: Sequence[int], n: int, *, is_cached: bool = True
    ) -> tuple[Answer, dict[int, float]]:
        """Return the n most probable tokens after a path."""
        n_tokens = self._model.n_tokens
        body = {
            "prompt": list(path),
            "n_predict": 1,
            "temperature": 0,
            "n_probs": n,
            "post_sampling_probs": False,
            "cache_prompt": is_cached,
            **({} if self._letter is None else {"logit_bias": [[self._letter, _FORCED]]}),
        }
        answer = await self._transport.post(_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_TOKEN * n)
        evaluated = answer.get("tokens_evaluated")
        if evaluated is not None:
            check_length(evaluated.whole(), path, evaluated)
        (row,) = answer["completion_probabilities"].sequence(1)
        entries = row["top_logprobs"].sequence(min(n, n_tokens))
        ids = [entry["id"].token(n_tokens) for entry in entries]
        refuse_duplicates(ids, row["top_logprobs"])
        return answer, {token: entry["logprob"].logp() for token, entry in zip(ids, entries, strict=True)}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:  # noqa: ARG002 - all
        """Read a path token by token; `rows` reads a new one in one batch."""
        async with self._places:
            for n in range(1, len(path)):
                await self._most_probable(path[:n], 1, is_cached=n > 1)
            _, values = await self._most_probable(path, self._model.n_tokens)
            await self._most_probable(path[:1], 1, is_cached=False)  # or `rows` would find the path in the cache
        return values

    async def encode(self, text: str) -> list[int] | None:
        body = {"content": text, "add_special": False, "parse_special": True}
        answer = await self._transport.post("/tokenize", body)
        return answer["tokens"].whole_numbers()
