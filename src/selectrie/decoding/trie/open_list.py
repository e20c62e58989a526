"""The open nodes of a best-first search, best bound first."""

from __future__ import annotations

import heapq

import numpy as np

from selectrie.core.types import BoolArray, FloatArray, IntArray


class OpenNodes:
    """A priority queue of trie nodes by bound, filled a batch at a time.

    Each batch is sorted once in numpy, and only its best node is in the heap. 20 000
    children of one node thus cost one sort and a few heap operations. Equal bounds are
    ordered by node number, so the order does not depend on how the queue was filled.

    Args:
        closed: bool[N], a live view; nodes marked there are skipped.
    """

    def __init__(self, closed: BoolArray) -> None:
        self._closed = closed
        # Minus bound, node, batch, position in the batch.
        self._heap: list[tuple[float, int, int, int]] = []
        self._nodes: list[IntArray] = []
        self._bounds: list[FloatArray] = []

    def add(self, nodes: IntArray, bounds: FloatArray) -> None:
        """Add nodes with their bounds; those with a bound of -inf are left out."""
        possible = bounds > -np.inf
        nodes, bounds = nodes[possible], bounds[possible]
        if len(nodes) == 0:
            return
        order = np.lexsort((nodes, -bounds))
        self._nodes.append(nodes[order])
        self._bounds.append(bounds[order])
        self._push(len(self._nodes) - 1, 0)

    def best(self) -> float:
        """Return the best bound of an open node, -inf if there is none."""
        while self._heap:
            bound, node, batch, place = self._heap[0]
            if not self._closed[node]:
                return -bound
            heapq.heappop(self._heap)
            self._push(batch, place + 1)
        return -np.inf

    def pop(self) -> tuple[int, float]:
        """Remove and return the open node with the best bound; one must exist."""
        self.best()
        bound, node, batch, place = heapq.heappop(self._heap)
        self._push(batch, place + 1)
        return node, -bound

    def put_back(self, nodes: list[tuple[int, float]]) -> None:
        """Return nodes to the queue that were taken out and not evaluated."""
        if nodes:
            self.add(np.array([n for n, _ in nodes], dtype=np.int32), np.array([b for _, b in nodes]))

    def _push(self, batch: int, place: int) -> None:
        nodes = self._nodes[batch]
        while place < len(nodes) and self._closed[nodes[place]]:
            place += 1
        if place < len(nodes):
            heapq.heappush(self._heap, (-float(self._bounds[batch][place]), int(nodes[place]), batch, place))
        else:  # no entry of this batch will be read again
            self._nodes[batch], self._bounds[batch] = nodes[:0], self._bounds[batch][:0]
