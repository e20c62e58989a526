"""Makes rows of the values that servers give."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from selectrie.backends.remote.answers import Answer
from selectrie.core import numerics
from selectrie.core.path_model import PartialRow, RowQuery

T = TypeVar("T")


def partial_row(
    query: RowQuery,
    values: Mapping[int, float],
    top: Sequence[float],
    *,
    n_tokens: int,
    rounding: float,
    answer: Answer,
) -> PartialRow:
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
        return PartialRow(ids, logp, (-math.inf, -math.inf), -math.inf)
    low, high = (math.log(p) if p > 0 else -math.inf for p in (1.0 - known - slack, 1.0 - known + slack))
    least = sorted(top, reverse=True)[n_top - 1] if n_top else math.inf
    return PartialRow(ids, logp, (low, high), min(high, least))


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
