"""The tokens that may follow a path, most probable first, as far as they are looked at."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from selectrie.core.model import Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray

_AHEAD = 4
"""Times as many tokens of the whole vocabulary are looked at before the allowed ones are sought out."""


Follower = tuple[int, float, float]
"""A token, its log-probability, and the same less its penalty."""


class Candidates:
    """The tokens that may follow one path, with their log-probabilities under the full softmax, best first, ties by id.

    Looked up as they are read, twice as many each time: no step looks at the vocabulary in Python, and what is read of it costs a partition.
    penalty: nats taken off some tokens' places in the order. Tokens of probability 0 do not appear.
    """

    def __init__(
        self,
        rows: Rows,
        i: int,
        allowed: BoolArray | IntArray,
        at_first: int,
        penalty: Mapping[int, float] | None = None,
    ) -> None:
        self._rows, self._i, self._allowed = rows, i, allowed
        self._n, self._penalty = max(1, at_first), penalty or {}

    def __iter__(self) -> Iterator[Follower]:
        n, n_read = self._n, 0
        while True:
            tokens, logp, value, is_all = self._best(n)
            yield from zip(tokens[n_read:].tolist(), logp[n_read:].tolist(), value[n_read:].tolist(), strict=True)
            if is_all:
                return
            n_read, n = len(tokens), 2 * n

    def _best(self, n: int) -> tuple[IntArray, FloatArray, FloatArray, bool]:
        """The best n with log-probability and value, and whether these are all."""
        n_looked = n + len(self._penalty)  # so many are enough: a penalty moves its own token back and no other
        tokens, logp = best_allowed(self._rows, self._i, n_looked, self._allowed)
        is_all = len(tokens) < n_looked
        if not self._penalty:
            return tokens, logp, logp, is_all
        value = logp - np.array([self._penalty.get(token, 0.0) for token in tokens.tolist()])
        order = np.lexsort((tokens, -value))
        order = order if is_all else order[:n]
        return tokens[order], logp[order], value[order], is_all


def best_allowed(rows: Rows, i: int, n: int, allowed: BoolArray | IntArray) -> tuple[IntArray, FloatArray]:
    """The n most probable allowed tokens of a row and their log-probabilities, as `Rows.top` gives them.

    A few times as many of the whole vocabulary are looked at first: where enough of them are allowed, these are the ones,
    and the allowed need not be gathered.
    """
    if allowed.dtype == np.bool_:
        tokens, logp = rows.top(i, _AHEAD * n)
        may = allowed[tokens]
        if np.count_nonzero(may) >= n:
            return tokens[may][:n], logp[may][:n]
    return rows.top(i, n, allowed)


class Merged:
    """What may follow several paths, as one list: best first by sum of log-probabilities less penalty, ties by the order of tokens."""

    def __init__(self, paths: Iterable[tuple[float, int, int, Iterator[Follower]]]) -> None:
        """paths: (sum of log-probabilities, rank in the order of tokens, node, what may follow)."""
        self._heap: list[tuple[float, int, int, int, float, float, Iterator[Follower]]] = []
        for logp, rank, node, followers in paths:
            self._push(logp, rank, node, followers)

    def _push(self, logp: float, rank: int, node: int, followers: Iterator[Follower]) -> None:
        for token, edge, value in followers:
            heapq.heappush(self._heap, (-(logp + value), rank, token, node, edge, logp, followers))
            return

    @property
    def value(self) -> float:
        """By which the next one stands where it does; -inf where there is none."""
        return -self._heap[0][0] if self._heap else -np.inf

    @property
    def logp(self) -> float:
        """The largest sum of log-probabilities of what is next after each path; -inf where nothing is."""
        return max((logp + edge for *_, edge, logp, _ in self._heap), default=-np.inf)

    @property
    def nodes(self) -> set[int]:
        """The paths that something may still follow."""
        return {node for _, _, _, node, *_ in self._heap}

    def pop(self) -> tuple[int, int, float]:
        """The next one: node, token, log-probability of the token."""
        _, rank, token, node, edge, logp, followers = heapq.heappop(self._heap)
        self._push(logp, rank, node, followers)
        return node, token, edge
