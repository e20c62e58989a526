"""The queue of a best-first search: nodes that it has still to look at, by bound."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, BoolArray, FloatArray, IntArray

MAX_KEPT = 4096
"""Children of a row that are kept at once.

Reading the row again opens the others, which is almost never needed.
"""


MIN_BOUND = float(np.finfo(np.float64).min)
"""The smallest bound above -inf."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open entry: a node, a child without a node, or the rest of a row's children.

    Attributes:
        bound: Upper bound on the score of everything below.
        node: The parent of the child, or the node itself if `token` is NO_TOKEN.
        token: The child's id, or NO_TOKEN.
        logp: Log-probability of the token after its parent. For the rest of a row, that
            of its best token. For a node, that of its whole path.
        rest: Ranks, by probability, of the children that the entry stands for if it is
            the rest of a row, else None.
    """

    bound: float
    node: int
    token: int
    logp: float
    rest: range | None = None


_NO_REST = Open(-np.inf, NO_NODE, NO_TOKEN, -np.inf)


@dataclass(slots=True)
class _Batch:
    """Children of one node, best first.

    Attributes:
        prefix: Log-probability of the parent's prefix.
        ids: int32[n]; those before `at` were taken out.
        logp, bounds: float64[n].
        rest: The entry that stands for the children after the last one in `ids`.
        rest_mass: Log of their summed probability, -inf for none.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    rest: Open
    rest_mass: float
    at: int = 0

    def cut(self, n: int) -> None:
        """Keep the first n children, and free the memory of the others."""
        self.ids, self.logp, self.bounds = self.ids[:n].copy(), self.logp[:n].copy(), self.bounds[:n].copy()


@dataclass(frozen=True, slots=True, eq=False)
class RowChildren:
    """The children of a node with the log-probabilities that its row gives.

    Attributes:
        prefix: Log-probability of the node's path.
        ids: int32[n], distinct.
        logp: float64[n], log-probability of each child after the node.
        bounds: float64[n], upper bound on the scores at and below each child.
        ranks: Ranks of the children to use, best first; None for all.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    ranks: range | None = None


class OpenList:
    """A priority queue of children and nodes by bound, filled a row at a time.

    The children of one node are sorted once, and only the best remaining one is in the
    heap. 20 000 children thus cost one sort and a few heap operations, and the heap
    never holds a vocabulary.

    Equal bounds come in the order in which they were added, after nodes that were put
    back. In a trie, whose nodes all have numbers, they come by number, so the order
    does not depend on how the list was filled.

    Args:
        closed: bool[N], a live view of a trie's nodes. Ids are nodes of that trie, and
            those marked there are skipped. None if there is no trie.

    Attributes:
        dropped_best, dropped_mass: Best bound and summed probability of the children
            that were dropped.
    """

    def __init__(self, closed: BoolArray | None = None, *, max_kept: int = MAX_KEPT) -> None:
        self._closed, self._max_kept = closed, max_kept
        # Minus bound, id or order, batch or ~key in _nodes.
        self._heap: list[tuple[float, int, int]] = []
        self._batches: list[_Batch] = []
        self._batch_of: dict[int, int] = {}  # node -> the first batch of its children
        self._nodes: dict[int, Open] = {}
        self._order = 0
        self._n_put_back = 0
        self.dropped_best = -np.inf
        self.dropped_mass = 0.0

    def add(self, children: RowChildren, threshold: float = -np.inf) -> None:
        """Add a node's children; drop and count those with bounds below `threshold`."""
        ranks = range(len(children.ids)) if children.ranks is None else children.ranks
        order = np.lexsort((children.ids, -children.logp))[ranks.start : ranks.stop]
        ids, logp, bounds = children.ids[order], children.logp[order], children.bounds[order]
        possible = int(np.count_nonzero(logp > -np.inf))
        n = min(possible, int(np.searchsorted(-bounds[:possible], -threshold, side="right")))
        if n < possible:
            self.drop(float(bounds[n]), children.prefix + numerics.logsumexp(logp[n:possible]))
        if n == 0:
            return
        # Row 0 cannot be read again.
        kept = n if children.node == ROOT else min(n, max(self._max_kept, ranks.start))
        rest, beyond = _NO_REST, range(ranks.start + kept, ranks.start + n)
        if beyond:
            rest = Open(float(bounds[kept]), children.node, NO_TOKEN, float(logp[kept]), beyond)
        batch = _Batch(children.node, children.prefix, ids, logp, bounds, rest, numerics.logsumexp(logp[kept:n]))
        batch.cut(kept)
        self._batches.append(batch)
        self._batch_of.setdefault(children.node, len(self._batches) - 1)
        self._push(len(self._batches) - 1)

    def logp_of(self, node: int, token: int) -> float | None:
        """Return the log-probability of `token` after `node`, None if not kept."""
        if node not in self._batch_of:
            return None
        batch = self._batches[self._batch_of[node]]
        index = np.flatnonzero(batch.ids == token)
        return float(batch.logp[index[0]]) if len(index) else None

    def put_back(self, node: int, bound: float, prefix: float) -> None:
        """Add a node that has a number; it comes before everything of the same bound.

        A node that is taken out and put back thus keeps its turn. Otherwise two nodes
        of one bound could take turns for ever, each giving up the part of its path that
        the other has no room beside.

        Args:
            prefix: Log-probability of the node's path.
        """
        self._n_put_back += 1
        self._nodes[self._n_put_back] = Open(bound, node, NO_TOKEN, prefix)
        heapq.heappush(self._heap, (-bound, -self._n_put_back, ~self._n_put_back))

    def discount(self, node: int, parent: int, token: int) -> None:
        """Leave a node that is still in the list out of `open_mass` from now on.

        It is for a node whose row is read before its turn: its children count what may
        lie below it. No effect if the node is not in the list.
        """
        for key, entry in self._nodes.items():
            if entry.node == node:
                self._nodes[key] = replace(entry, logp=-np.inf)
        if parent in self._batch_of:
            batch = self._batches[self._batch_of[parent]]
            batch.logp[batch.at :][batch.ids[batch.at :] == token] = -np.inf

    def best(self) -> float:
        """Return the best bound, -inf if nothing is open."""
        while self._heap:
            bound, number, which = self._heap[0]
            if self._closed is None or not self._closed[number]:
                return -bound
            heapq.heappop(self._heap)
            self._batches[which].at += 1
            self._push(which)
        return -np.inf

    def pop(self) -> Open:
        """Remove and return the entry with the best bound; one must exist."""
        self.best()
        _, _, which = heapq.heappop(self._heap)
        if which < 0:
            return self._nodes.pop(~which)
        batch, at = self._batches[which], self._batches[which].at
        entry = batch.rest
        if at == len(batch.ids):
            self._end(batch)
            return entry
        entry = Open(float(batch.bounds[at]), batch.node, int(batch.ids[at]), float(batch.logp[at]))
        batch.at += 1
        self._push(which)
        return entry

    def drop_below(self, threshold: float) -> None:
        """Drop all children with bounds below `threshold`, to free memory."""
        for batch in self._batches:
            n = max(batch.at, int(np.searchsorted(-batch.bounds, -threshold, side="right")))
            if n < len(batch.ids):
                self.drop(float(batch.bounds[n]), batch.prefix + numerics.logsumexp(batch.logp[n:]))
                batch.cut(n)
            if -np.inf < batch.rest.bound < threshold:
                self.drop(batch.rest.bound, batch.prefix + batch.rest_mass)
                batch.rest, batch.rest_mass = _NO_REST, -np.inf
        self._heap = [entry for entry in self._heap if -entry[0] >= threshold or entry[2] < 0]
        heapq.heapify(self._heap)

    def drop(self, best: float, log_mass: float) -> None:
        """Count children that were not added, by their best bound and summed mass."""
        self.dropped_best = max(self.dropped_best, best)
        self.dropped_mass += float(np.exp(log_mass))

    def open_mass(self) -> float:
        """Return the summed probability of all entries and of all dropped children."""
        masses = [self.dropped_mass, *np.exp([node.logp for node in self._nodes.values()])]
        for batch in self._batches:
            inside = np.logaddexp(numerics.logsumexp(batch.logp[batch.at :]), batch.rest_mass)
            masses.append(np.exp(batch.prefix + inside))
        return float(np.sum(masses))

    def _push(self, which: int) -> None:
        batch = self._batches[which]
        if batch.at < len(batch.ids):
            self._heap_push(float(batch.bounds[batch.at]), which)
        elif batch.rest.bound > -np.inf:
            self._heap_push(batch.rest.bound, which)
        else:
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Free a batch that will not be read again."""
        batch.cut(0)
        batch.rest, batch.rest_mass, batch.at = _NO_REST, -np.inf, 0

    def _heap_push(self, bound: float, which: int) -> None:
        number = self._order
        if self._closed is not None:
            number = int(self._batches[which].ids[self._batches[which].at])
        heapq.heappush(self._heap, (-bound, number, which))
        self._order += 1
