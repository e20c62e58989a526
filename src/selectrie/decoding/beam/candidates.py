"""Lists the tokens that may follow a path, most probable first, read lazily."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray

Follower = tuple[int, float, float]
"""A token, its log-probability, and its log-probability minus its penalty."""


class Candidates:
    """Iterates over the tokens that may follow one path, best first, ties by id.

    Each item is a `Follower`, with log-probabilities under the full softmax. Tokens of
    probability 0 do not appear. The row is sorted only as far as it is read: first
    `n_looked[0]` tokens, then twice as many each time, and at most `n_looked[1]`.

    Args:
        rows, i: The row that predicts the tokens.
        allowed: bool[V] or int32[] ids, the tokens that may follow.
        n_looked: The numbers of tokens that are looked up at first, and at most. Tokens
            of `penalty` are looked up in addition.
        penalty: Nats subtracted from some tokens, for the order only.
    """

    def __init__(
        self,
        rows: Rows,
        i: int,
        allowed: BoolArray | IntArray,
        n_looked: tuple[int, int],
        penalty: Mapping[int, float] | None = None,
    ) -> None:
        self._rows, self._i, self._allowed = rows, i, allowed
        self._n, self._n_max = max(1, n_looked[0]), max(1, n_looked[1])
        self._penalty = penalty or {}

    def __iter__(self) -> Iterator[Follower]:
        n, n_read = min(self._n, self._n_max), 0
        while True:
            tokens, logp, value, is_all = self._best(n)
            yield from zip(tokens[n_read:].tolist(), logp[n_read:].tolist(), value[n_read:].tolist(), strict=True)
            if is_all or n == self._n_max:
                return
            n_read, n = len(tokens), min(2 * n, self._n_max)

    def _best(self, n: int) -> tuple[IntArray, FloatArray, FloatArray, bool]:
        """Return ids, logp and logp minus penalty of the n best.

        The fourth element says whether these are all.
        """
        # That many are enough: a penalty moves only its own token back.
        n_looked = n + len(self._penalty)
        tokens, logp = self._rows.top(self._i, n_looked, self._allowed)
        is_all = len(tokens) < n_looked
        if not self._penalty:
            return tokens, logp, logp, is_all
        value = logp - np.array([self._penalty.get(token, 0.0) for token in tokens.tolist()])
        order = np.lexsort((tokens, -value))
        order = order if is_all else order[:n]
        return tokens[order], logp[order], value[order], is_all


class CandidateQueue:
    """The tokens that may follow several paths, merged into one list, best first.

    The order is by the path's sum of log-probabilities, the token's included, minus the
    token's penalty. Ties go by the order of tokens.
    """

    def __init__(self, paths: Iterable[tuple[float, int, int, Iterator[Follower]]]) -> None:
        """Merge the tokens that may follow each path.

        Args:
            paths: (sum of log-probabilities, rank in the order of tokens, node, the
                tokens that may follow).
        """
        self._heap: list[tuple[float, int, int, int, float, float, Iterator[Follower]]] = []
        for logp, rank, node, followers in paths:
            self._push(logp, rank, node, followers)

    def _push(self, logp: float, rank: int, node: int, followers: Iterator[Follower]) -> None:
        for token, edge, value in followers:
            heapq.heappush(self._heap, (-(logp + value), rank, token, node, edge, logp, followers))
            return

    @property
    def value(self) -> float:
        """Return the value that orders the next entry; -inf if there is none."""
        return -self._heap[0][0] if self._heap else -np.inf

    @property
    def logp(self) -> float:
        """Return the largest sum of log-probabilities among the paths' next entries.

        Penalties are not subtracted. -inf if no entry is left.
        """
        return max((logp + edge for *_, edge, logp, _ in self._heap), default=-np.inf)

    @property
    def nodes(self) -> set[int]:
        """Return the nodes of the paths that still have entries."""
        return {node for _, _, _, node, *_ in self._heap}

    def pop(self) -> tuple[int, int, float]:
        """Remove and return the next entry: node, token, the token's logp."""
        _, rank, token, node, edge, logp, followers = heapq.heappop(self._heap)
        self._push(logp, rank, node, followers)
        return node, token, edge
