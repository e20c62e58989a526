"""llama-server: `/completion` with the most probable tokens of a row.

A request names no tokens, but gives the k most probable ones and the value of the token
that is drawn, whichever that is. So 64 are asked for, and a named token is drawn by
force. Others that are not among the 64 are drawn one after another; where that cannot
be, 1 024 are asked for, then all.

Paths are asked one after another in the order of a walk depth first, so that a slot has
all of a path but its last token in its cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from selectrie.backends.remote.dialect import DEFAULT_CONTEXT, ServedModel, check_length, partial_row
from selectrie.backends.remote.transport import Answer, Transport, refuse_duplicates
from selectrie.core.path_model import PathLimits, RowBounds, RowQuery

_PATH = "/completion"
_STEPS = (64, 1024)
_WALK = 256
"""Number of rows of a walk."""
_BYTES_OF_TOKEN = 2048
"""Maximum size of what an answer says about one token; its bytes are listed."""
_FORCED = 1e6
"""What is added to the logit of the token that is drawn.

Probabilities are those before it. Of a token that ends within a character llama-server
gives no probabilities, so such a token is never drawn.
"""
_DRAWN_ALONE = 32
"""Number of named tokens that are drawn one after another, each for its value."""

Values = dict[int, float]


class LlamaServerDialect:
    """A llama-server.

    Args:
        transport: The connection.
        model: The model.
        n_slots: Number of requests that it works on at once.
        pieces: Bytes of each token.
    """

    def __init__(self, transport: Transport, model: ServedModel, *, n_slots: int, pieces: Sequence[bytes]) -> None:
        self._transport, self._model = transport, model
        self._is_whole = list(map(_is_text, pieces))
        self._letter = next((token for token, piece in enumerate(pieces) if len(piece) == 1 and piece.isalpha()), None)
        # Its softmax sums float32 numbers one after another.
        self._rounding = max(1e-6, model.n_tokens * 2.0**-24)
        self._places = asyncio.Semaphore(max(1, min(n_slots, transport.server.concurrency)))
        self.limits = PathLimits(
            named_ids=model.n_tokens,
            top_ids=model.n_tokens,
            queries_per_request=_WALK,  # one request each, in the order of a walk
            requests_in_flight=max(1, min(n_slots, transport.server.concurrency)),
            path_tokens=max(1, (model.n_context or DEFAULT_CONTEXT) - 1),
        )

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        order = sorted(range(len(queries)), key=lambda index: tuple(queries[index].path.tolist()))
        found: dict[int, RowBounds] = {}
        async with self._places:
            for index in order:
                found[index] = await self._row(queries[index])
        return [found[index] for index in range(len(queries))]

    async def _row(self, query: RowQuery) -> RowBounds:
        n_tokens, path, named = self._model.n_tokens, query.path.tolist(), query.named.tolist()
        sizes = sorted({*(size for size in _STEPS if max(query.top, 1) <= size < n_tokens), n_tokens})
        drawn = next((token for token in reversed(named) if self._is_whole[token]), self._letter)
        answer, listed, values = await self._asked(path, sizes[0], drawn)
        missing = [token for token in named if token not in listed and token not in values]
        if len(missing) <= _DRAWN_ALONE and all(self._is_whole[token] for token in missing):
            for token in missing:
                values |= (await self._asked(path, 1, token))[2]
        for size in sizes[1:]:
            if all(token in listed or token in values for token in named):
                break
            answer, listed, _ = await self._asked(path, size, drawn)
        top = sorted(listed.values(), reverse=True)[: query.top]
        row = partial_row(query, {**values, **listed}, top, n_tokens=n_tokens, rounding=self._rounding, answer=answer)
        least = min(listed.values(), default=0.0)  # every token that was not listed is less probable
        return RowBounds(row.ids, row.logp, row.log_rest, min(row.rest_max, least))

    async def _asked(
        self, path: Sequence[int], n: int, drawn: int | None, *, is_cached: bool = True
    ) -> tuple[Answer, Values, Values]:
        """Return the n most probable tokens after a path, and what was drawn."""
        n_tokens = self._model.n_tokens
        body = {
            "prompt": list(path),
            "n_predict": 1,
            "temperature": 0,
            "n_probs": n,
            "post_sampling_probs": False,
            "cache_prompt": is_cached,
            **({} if drawn is None else {"logit_bias": [[drawn, _FORCED]]}),
        }
        answer = await self._transport.post(_PATH, body, max_bytes=(1 << 20) + _BYTES_OF_TOKEN * n)
        evaluated = answer.get("tokens_evaluated")
        if evaluated is not None:
            check_length(evaluated.whole(), path, evaluated)
        (row,) = answer["completion_probabilities"].sequence(1)
        entries = row["top_logprobs"].sequence(min(n, n_tokens))
        ids = [entry["id"].token(n_tokens) for entry in entries]
        refuse_duplicates(ids, row["top_logprobs"])
        listed = {token: entry["logprob"].logp() for token, entry in zip(ids, entries, strict=True)}
        return answer, listed, {row["id"].token(n_tokens): row["logprob"].logp()}

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:  # noqa: ARG002 - all
        """Read a path token by token; `rows` reads a new one in one batch."""
        async with self._places:
            for n in range(1, len(path)):
                await self._asked(path[:n], 1, self._letter, is_cached=n > 1)
            _, values, _ = await self._asked(path, self._model.n_tokens, self._letter)
            # Otherwise `rows` would find the path in the cache.
            await self._asked(path[:1], 1, self._letter, is_cached=False)
        return values

    async def encode(self, text: str) -> list[int] | None:
        body = {"content": text, "add_special": False, "parse_special": True}
        answer = await self._transport.post("/tokenize", body)
        return answer["tokens"].whole_numbers()


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
