"""How much of the model's probability may still lie in a language, below each path that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from selectrie.core.types import NO_NODE, FloatArray, IntArray

MOST_KEPT = 2048
"""Tokens of a row that are kept. One that is drawn beyond them has the row read again."""
END, REST = -1, -2
"""What `pick` returns beside the place of a token: the text ends; it goes on with a token that was not kept."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownRow:
    """What a row says of the allowed tokens. ids: int32[m], those that are kept,
    ascending; p: float64[m], above 0.

    end: probability of ending here, as far as that is allowed; rest: of all allowed
    tokens that are not kept; doubtful: of the tokens of which a small change of the row
    could change whether they are kept.
    """

    ids: IntArray
    p: FloatArray
    end: float
    rest: float
    doubtful: float

    @classmethod
    def of(
        cls, ids: IntArray, p: FloatArray, end: float, *, most_kept: int | None = None, tolerance: float = 0.0
    ) -> KnownRow:
        """Allowed tokens, int32[n] ascending, with probabilities, float64[n].
        most_kept: None keeps all.

        tolerance: nats by which each log-probability may be off.
        """
        n = len(ids) if most_kept is None else most_kept
        order = np.lexsort((ids, -p))
        kept, rest = order[:n], order[n:]
        doubtful = 0.0
        if len(rest) and tolerance and p[kept[-1]] > 0:
            near = np.abs(np.log(np.maximum(p, np.finfo(np.float64).tiny) / p[kept[-1]])) <= 2 * tolerance
            doubtful = float(p[near].sum())
        kept = np.sort(kept[p[kept] > 0])
        return cls(ids[kept], p[kept], end, float(p[rest].sum()), doubtful)


@dataclass(slots=True, eq=False)
class _Row:
    """A known row less what was removed. weights: p times what is left below, where
    that is not p itself, by place."""

    ids: IntArray
    p: FloatArray
    end: float
    rest: float
    doubtful: float
    weights: dict[int, float] = field(default_factory=dict)

    def weight(self) -> FloatArray:
        """float64[m]."""
        if not self.weights:
            return self.p
        weight: FloatArray = self.p.copy()
        weight[list(self.weights)] = list(self.weights.values())
        return weight

    def left(self) -> float:
        """Sum of positive terms: 1 - what was removed rounds badly."""
        return self.end + float(self.weight().sum()) + self.rest


class RemainingMass:
    """For each node n of a tree of token paths: left(n), the part of its probability that was not removed. What is removed
    lies outside the language for certain, so left(n) is never below the part that lies inside.

    left(n) = 1 until its row is known; then p(end) + sum over allowed tokens t of p(t) left(n t). Each change goes up to the
    root. Nodes are numbered by the caller, who says by `hang` where they are.
    """

    def __init__(self) -> None:
        self._left: dict[int, float] = {}
        self._height: dict[int, int] = {}
        self._above: dict[int, tuple[int, int]] = {}  # parent, place in its row
        self._rows: dict[int, _Row] = {}

    def left(self, node: int) -> float:
        """Part of the node's probability that is left, 0 to 1."""
        return self._left.get(node, 1.0)

    def height(self, node: int) -> int:
        """Rows, one below the other, that `left` depends on."""
        return self._height.get(node, 0)

    def knows(self, node: int) -> bool:
        """Is its row known?"""
        return node in self._rows

    def n_kept(self, node: int) -> int:
        """Tokens kept of its row so far."""
        return len(self._rows[node].ids)

    def token(self, node: int, place: int) -> tuple[int, float]:
        """A kept token of its row, and its probability."""
        row = self._rows[node]
        return int(row.ids[place]), float(row.p[place])

    def doubtful(self, node: int) -> float:
        """As of its `KnownRow`."""
        return self._rows[node].doubtful

    def hang(self, node: int, parent: int, place: int) -> None:
        """Say which token of which row a node stands for."""
        self._above[node] = parent, place

    def read(self, node: int, row: KnownRow) -> None:
        """The row of a node is known."""
        self._rows[node] = _Row(row.ids, row.p, row.end, row.rest, row.doubtful)
        self._height[node] = 1
        self._set(node, self._rows[node].left())

    def remove(self, node: int) -> None:
        """Nothing at or below the node lies in the language."""
        self._set(node, 0.0)

    def remove_end(self, node: int) -> None:
        """The text that ends here does not lie in the language."""
        self._rows[node].end = 0.0
        self._set(node, self._rows[node].left())

    def pick(self, node: int, x: float) -> tuple[int, float, float]:
        """What x in [0, left(node)) falls on, `END`, the place of a kept token, or
        `REST`; and from where to where it goes."""
        row = self._rows[node]
        if x < row.end:
            return END, 0.0, row.end
        sums = row.end + np.cumsum(row.weight())
        place = int(np.searchsorted(sums, x, side="right"))
        if place == len(sums):
            inside = np.flatnonzero(row.weight())
            if row.rest > 0:
                return REST, float(sums[-1]) if len(sums) else row.end, self.left(node)
            if not len(inside):  # the sums are rounded
                return END, 0.0, row.end
            place = int(inside[-1])
        return place, float(sums[place - 1]) if place else row.end, float(sums[place])

    def pick_rest(self, node: int, ids: IntArray, p: FloatArray, n_kept: int, u: float) -> tuple[int, float, float]:
        """The place of a token among those that were not kept when `n_kept` were; u in
        [0, 1). And from where to where it goes in [0, 1].

        ids, p: the whole row, as for `KnownRow.of`. A token that is drawn is kept from
        now on.
        """
        row = self._rows[node]
        beyond = ~np.isin(ids, row.ids[:n_kept])
        sums = np.cumsum(p[beyond])
        at = min(int(np.searchsorted(sums, u * sums[-1], side="right")), len(sums) - 1)
        low, high = float(sums[at - 1] / sums[-1]) if at else 0.0, float(sums[at] / sums[-1])
        token = int(ids[beyond][at])
        known = np.flatnonzero(row.ids == token)
        if len(known):
            return int(known[0]), low, high
        row.ids = np.append(row.ids, np.int32(token))
        row.p = np.append(row.p, float(p[ids == token][0]))
        row.rest = float(p[~np.isin(ids, row.ids)].sum())
        return len(row.ids) - 1, low, high

    def _set(self, node: int, left: float) -> None:
        self._left[node] = left
        parent, place = self._above.get(node, (NO_NODE, 0))
        while parent != NO_NODE:
            row = self._rows[parent]
            row.weights[place] = float(row.p[place]) * self._left[node]
            self._height[parent] = max(self._height[parent], self._height.get(node, 0) + 1)
            node = parent
            self._left[node] = row.left()
            parent, place = self._above.get(node, (NO_NODE, 0))
