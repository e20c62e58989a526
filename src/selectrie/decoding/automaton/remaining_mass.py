"""Tracks the probability that may still lie in a language, below each node of a tree.

A node is a token path.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from selectrie.core.types import NO_NODE, FloatArray, IntArray

MAX_KEPT = 2048
"""Tokens of a row that are kept; drawing one beyond them reads the row again."""
END, REST = -1, -2
"""What `pick` returns instead of a token's index.

With `END` the text ends; with `REST` it goes on with a token that was not kept.
"""


@dataclass(slots=True, eq=False)
class KnownRow:
    """The probabilities that a node's row gives to the allowed tokens.

    Attributes:
        ids: int32[m], the kept tokens, ascending.
        p: float64[m], their probabilities, above 0.
        end: Probability of ending at the node, 0 if that is not allowed.
        rest: Summed probability of all allowed tokens that are not kept.
        doubtful: Summed probability of the tokens for which a small change of the row
            could change whether they are kept.
        weights: p(t) left(n t) by the token's index, where it differs from p(t) (see
            `RemainingMass`).
    """

    ids: IntArray
    p: FloatArray
    end: float
    rest: float
    doubtful: float
    weights: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ids: IntArray, p: FloatArray, end: float, *, max_kept: int | None = None, tolerance: float = 0.0
    ) -> KnownRow:
        """Make the row of the allowed tokens `ids` with probabilities `p`.

        Args:
            ids: int32[n], ascending.
            p: float64[n], their probabilities.
            end: Probability of ending at the node, 0 if that is not allowed.
            max_kept: How many tokens to keep; None keeps all.
            tolerance: Nats by which each log-probability may be off.
        """
        n = len(ids) if max_kept is None else max_kept
        order = np.lexsort((ids, -p))
        kept, rest = order[:n], order[n:]
        doubtful = 0.0
        if len(rest) and tolerance and p[kept[-1]] > 0:
            near = np.abs(np.log(np.maximum(p, np.finfo(np.float64).tiny) / p[kept[-1]])) <= 2 * tolerance
            doubtful = float(p[near].sum())
        kept = np.sort(kept[p[kept] > 0])
        return cls(ids[kept], p[kept], end, float(p[rest].sum()), doubtful)

    def weight(self) -> FloatArray:
        """Return p(t) left(n t) of each kept token, float64[m]."""
        if not self.weights:
            return self.p
        weight: FloatArray = self.p.copy()
        weight[list(self.weights)] = list(self.weights.values())
        return weight

    def left(self) -> float:
        """Return the part of the probability that was not removed, 0 to 1.

        It is a sum of positive terms. Subtracting the removed part from 1 would lose
        precision.
        """
        return self.end + float(self.weight().sum()) + self.rest


class RemainingMass:
    """Tracks the part left(n) of the probability of each node n that was not removed.

    The nodes form a tree of token paths. The caller numbers them, calls `set_parent` to
    say where each one is, and removes nodes below which no text lies in its language.
    left(n) is therefore never below the part of n's probability that lies inside the
    language.

    left(n) = 1 until the node's row is known. Then it is p(end) + the sum over allowed
    tokens t of p(t) left(n t). Each change is carried up to the root.
    """

    def __init__(self) -> None:
        self._left: dict[int, float] = {}
        self._height: dict[int, int] = {}
        self._above: dict[int, tuple[int, int]] = {}  # Parent, index in its row.
        self._rows: dict[int, KnownRow] = {}

    def left(self, node: int) -> float:
        """Return the part of the node's probability that was not removed, 0 to 1."""
        return self._left.get(node, 1.0)

    def height(self, node: int) -> int:
        """Return how many rows `left` depends on, on one downward path at most."""
        return self._height.get(node, 0)

    def knows(self, node: int) -> bool:
        """Return whether the node's row is known."""
        return node in self._rows

    def n_kept(self, node: int) -> int:
        """Return how many tokens the node's row keeps so far."""
        return len(self._rows[node].ids)

    def token(self, node: int, index: int) -> tuple[int, float]:
        """Return the kept token `index` of the node's row, and its probability."""
        row = self._rows[node]
        return int(row.ids[index]), float(row.p[index])

    def doubtful(self, node: int) -> float:
        """Return `KnownRow.doubtful` of the node's row."""
        return self._rows[node].doubtful

    def set_parent(self, node: int, parent: int, index: int) -> None:
        """Record that `node` is the kept token `index` of the row of `parent`."""
        self._above[node] = parent, index

    def read(self, node: int, row: KnownRow) -> None:
        """Record the row of a node; `row` itself is not changed."""
        self._rows[node] = replace(row, weights={})
        self._height[node] = 1
        self._set(node, self._rows[node].left())

    def remove(self, node: int) -> None:
        """Remove a node with all paths below it, which lie outside the language."""
        self._set(node, 0.0)

    def remove_end(self, node: int) -> None:
        """Remove the text that ends at the node, which lies outside the language."""
        self._rows[node].end = 0.0
        self._set(node, self._rows[node].left())

    def pick(self, node: int, x: float) -> tuple[int, float, float]:
        """Return the outcome at position `x` in [0, left(node)), and its interval.

        The outcomes at a node lie side by side: the end, the kept tokens, the other
        tokens. The result is (`END`, the index of a kept token, or `REST`; low; high).
        """
        row = self._rows[node]
        if x < row.end:
            return END, 0.0, row.end
        sums = row.end + np.cumsum(row.weight())
        index = int(np.searchsorted(sums, x, side="right"))
        if index == len(sums):
            inside = np.flatnonzero(row.weight())
            if row.rest > 0:
                return REST, float(sums[-1]) if len(sums) else row.end, self.left(node)
            if not len(inside):  # the sums are rounded
                return END, 0.0, row.end
            index = int(inside[-1])
        return index, float(sums[index - 1]) if index else row.end, float(sums[index])

    def pick_rest(self, node: int, ids: IntArray, p: FloatArray, n_kept: int, u: float) -> tuple[int, float, float]:
        """Draw one of the tokens that were not kept, and keep it from now on.

        Args:
            ids, p: The whole row, as for `KnownRow.of`.
            n_kept: Number of tokens that were kept when `pick` returned `REST`.
            u: The random number, in [0, 1).

        Returns:
            The index of the token among the kept ones, and the interval of [0, 1] that
            u fell
            in.
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
        parent, index = self._above.get(node, (NO_NODE, 0))
        while parent != NO_NODE:
            row = self._rows[parent]
            row.weights[index] = float(row.p[index]) * self._left[node]
            self._height[parent] = max(self._height[parent], self._height.get(node, 0) + 1)
            node = parent
            self._left[node] = row.left()
            parent, index = self._above.get(node, (NO_NODE, 0))
