"""What the kinds of servers have in common: rows of their values, and their texts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from selectrie.backends.remote.transport import Answer, Transport
from selectrie.core import numerics
from selectrie.core.path_model import PathLimits, RowBounds, RowQuery, ServedText


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as its server describes it.

    Attributes:
        name: The name under which it is asked for.
        server: What the server calls itself: its kind and version.
        n_tokens: Number of tokens of the vocabulary.
        n_context: Number of tokens that its context holds; None if it does not say.
    """

    name: str
    server: str
    n_tokens: int
    n_context: int | None = None


class Dialect(Protocol):
    """A way in which servers are asked for rows.

    All methods but `limits` run on the event loop of the transport.
    """

    @property
    def limits(self) -> PathLimits:
        """Return what may be asked."""
        ...

    async def rows(self, queries: Sequence[RowQuery]) -> list[RowBounds]:
        """Return the rows that valid queries ask about, in their order."""
        ...

    async def read_again(self, path: Sequence[int], named: Sequence[int]) -> Mapping[int, float]:
        """Return log-probabilities after a path, read in another way than `rows` does.

        Where there is one way only, they are read with another layout of the work. The
        result may have other tokens than the named ones; it has one at least.
        """
        ...

    async def encode(self, text: str) -> list[int] | None:
        """Return the tokens of a text, control tokens included and without BOS.

        None if the server does not say.
        """
        ...


DEFAULT_CONTEXT = 1 << 20
"""Number of tokens of a path where a server does not say how many it takes."""

T = TypeVar("T")


def partial_row(
    query: RowQuery,
    values: Mapping[int, float],
    top: Sequence[float],
    *,
    n_tokens: int,
    rounding: float,
    answer: Answer,
) -> RowBounds:
    """Return the row that a query asks about.

    The rest is 1 minus the sum of what is known, widened by what rounding may have
    moved. No other token is more probable than the rest, or than the last of the most
    probable ones.

    Args:
        query: The query.
        values: Log-probabilities by token, the named ones among them.
        top: Log-probabilities of the most probable tokens, which are in `values`.
        n_tokens: Number of tokens of the vocabulary.
        rounding: Nats by which a value may be off against the others of its row.
        answer: The answer, for errors.

    Raises `ServerError` if a token is missing, or if the probabilities sum to more
    than 1.
    """
    missing = [token for token in query.named.tolist() if token not in values]
    if missing:
        answer.wrong(f"has no log-probability of token {missing[0]}, which was asked for")
    n_top = min(query.top, n_tokens)
    if len(top) < n_top:
        answer.wrong(f"has {len(top)} of the most probable tokens: {n_top} were asked for")
    ids = np.array(sorted(values), dtype=np.int32)
    logp = np.array([values[token] for token in ids.tolist()], dtype=np.float64)
    known = float(numerics.exp(logp).sum())
    slack = math.expm1(rounding) + 1e-12
    if known > 1.0 + slack:
        answer.wrong(f"has probabilities that sum to {known:.6g}")
    if len(ids) == n_tokens:
        return RowBounds(ids, logp, (-math.inf, -math.inf), -math.inf)
    low, high = (math.log(p) if p > 0 else -math.inf for p in (1.0 - known - slack, 1.0 - known + slack))
    least = sorted(top, reverse=True)[n_top - 1] if n_top else math.inf
    return RowBounds(ids, logp, (low, high), min(high, least))


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that run at once.

    The first that fails ends the others.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def check_length(n_read: int, path: Sequence[int], answer: Answer) -> None:
    """Raise `ServerError` if a server read other than the tokens of a path."""
    if n_read == len(path) + 1:
        answer.wrong(
            f"says that {n_read} tokens were read, {len(path)} were sent: the server puts one, such as BOS, first"
        )
    if n_read != len(path):
        answer.wrong(f"says that {n_read} tokens were read, {len(path)} were sent")


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
