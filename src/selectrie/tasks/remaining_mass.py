"""How much of the model's probability may still lie in a language, below each path that was looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.types import NO_NODE, ROOT, FloatArray, IntArray

MOST_KEPT = 2048
"""Tokens of a row that are kept. One that is drawn beyond them has the row read again."""
END, REST = -1, -2
"""What `pick` returns beside the place of a token: the text ends; it goes on with a token that was not kept."""


@dataclass(slots=True)
class _Row:
    """Tokens that may follow, most probable first. ids: int32[m]; p: float64[m]; weight: float64[m], p times what is left
    below. end: probability of ending here, as far as that is allowed; rest: of all allowed tokens that were not kept."""

    ids: IntArray
    p: FloatArray
    weight: FloatArray
    end: float
    rest: float

    def left(self) -> float:
        """Sum of positive terms: 1 - what was removed rounds badly."""
        return self.end + float(self.weight.sum()) + self.rest


class RemainingMass:
    """For each node n of a tree of token paths: left(n), the part of its probability that was not removed. What is removed
    lies outside the language for certain, so left(n) is never below the part that lies inside.

    left(n) = 1 until its row is known; then p(end) + sum over allowed tokens t of p(t) left(n t). Each change goes up to the
    root. Nodes are numbered by the caller, in the order of `add`.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._left = [1.0]
        self._above: list[tuple[int, int]] = [(NO_NODE, 0)]  # parent, place in its row
        self._rows: dict[int, _Row] = {}
        self._child: dict[tuple[int, int], int] = {}

    def left(self, node: int) -> float:
        """Part of the node's probability that is left, 0 to 1."""
        return self._left[node]

    def n_kept(self, node: int) -> int:
        """Tokens kept of its row so far."""
        return len(self._rows[node].ids)

    def token(self, node: int, place: int) -> tuple[int, float]:
        """A kept token of its row, and its probability."""
        row = self._rows[node]
        return int(row.ids[place]), float(row.p[place])

    def child(self, node: int, place: int) -> int:
        """The node of a kept token, NO_NODE while there is none."""
        return self._child.get((node, place), NO_NODE)

    def add(self, parent: int, place: int) -> None:
        """The next node's parent, and the place of its token there; NO_NODE: it stands for itself."""
        if parent != NO_NODE:
            self._child[parent, place] = len(self._left)
        self._above.append((parent, place))
        self._left.append(1.0)

    def set_row(self, node: int, ids: IntArray, p: FloatArray, end: float) -> None:
        """The row of a node is known: allowed tokens, int32[n], with probabilities, float64[n], and that of the end."""
        order = np.lexsort((ids, -p))
        kept, rest = order[: self._most_kept], order[self._most_kept :]
        if node == ROOT:  # row 0 cannot be read again
            kept, rest = order, order[:0]
        kept = kept[p[kept] > 0]
        row = _Row(ids[kept], p[kept], p[kept].copy(), end, float(p[rest].sum()))
        self._rows[node] = row
        self._set(node, row.left())

    def remove(self, node: int) -> None:
        """Nothing at or below the node lies in the language."""
        self._set(node, 0.0)

    def remove_end(self, node: int) -> None:
        """The text that ends here does not lie in the language."""
        self._rows[node].end = 0.0
        self._set(node, self._rows[node].left())

    def pick(self, node: int, x: float) -> int:
        """What x in [0, left(node)) falls on: `END`, the place of a kept token, or `REST`."""
        row = self._rows[node]
        if x < row.end:
            return END
        sums = np.cumsum(row.weight)
        place = int(np.searchsorted(sums, x - row.end, side="right"))
        if place < len(sums):
            return place
        if row.rest > 0:
            return REST
        inside = np.flatnonzero(row.weight)
        return int(inside[-1]) if len(inside) else END  # the sums are rounded

    def pick_rest(self, node: int, ids: IntArray, p: FloatArray, n_kept: int, u: float) -> int:
        """The place of a token among those that were not kept when `n_kept` were; u in [0, 1).

        ids, p: the whole row, as for `set_row`. A token that is drawn is kept from now on.
        """
        row = self._rows[node]
        beyond = ~np.isin(ids, row.ids[:n_kept])
        sums = np.cumsum(p[beyond])
        token = int(ids[beyond][min(int(np.searchsorted(sums, u * sums[-1], side="right")), len(sums) - 1)])
        known = np.flatnonzero(row.ids == token)
        if len(known):
            return int(known[0])
        probability = float(p[ids == token][0])
        row.ids = np.append(row.ids, np.int32(token))
        row.p, row.weight = np.append(row.p, probability), np.append(row.weight, probability)
        row.rest = float(p[~np.isin(ids, row.ids)].sum())
        return len(row.ids) - 1

    def _set(self, node: int, left: float) -> None:
        self._left[node] = left
        parent, place = self._above[node]
        while parent != NO_NODE:
            row = self._rows[parent]
            row.weight[place] = row.p[place] * self._left[node]
            node = parent
            self._left[node] = row.left()
            parent, place = self._above[node]
