"""What is open below evaluated nodes, best first.

A row's children come out one by one, so the heap never holds a vocabulary.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import ROOT, FloatArray, IntArray

MOST_KEPT = 4096
"""Children of a row that are kept at once.

Reading the row again opens the others, which is almost never needed.
"""


@dataclass(frozen=True, slots=True)
class Open:
    """An open entry: a node, a child without a node, or the rest of a row's children.

    Attributes:
        bound: Upper bound on the score of everything below.
        node: The node itself if `token` is None, else the parent of the child.
        token: The child's token, or None.
        logp: Log-probability of the token after its parent; for a rest, that of the
            best one.
        rest: Ranks of the siblings if the entry is all children that were not kept,
            else None.
    """

    bound: float
    node: int
    token: int | None
    logp: float
    rest: range | None = None


@dataclass(slots=True)
class _Batch:
    """Children of one node, best first.

    Attributes:
        prefix: Log-probability of the parent's prefix.
        ids: int32[n], tokens; those before `at` were taken out.
        logp, bounds: float64[n].
        rest: Ranks of the children after the last one in `ids`.
        rest_mass: Log of their summed probability, -inf for none.
        rest_logp, rest_bound: Log-probability and bound of the best of them, -inf for
            none.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    rest: range
    rest_mass: float
    rest_logp: float
    rest_bound: float
    at: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RowChildren:
    """Allowed children of a node, as its row gives them.

    Attributes:
        prefix: Log-probability of the node's prefix.
        ids: int32[n], distinct.
        logp: float64[n].
        bounds: float64[n], of the score of anything below each child.
        ranks: Ranks of the children to use, best first; None for all.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    ranks: range | None = None


class BestChildren:
    """A priority queue of children and nodes by bound.

    Equal bounds come in the order in which they were added. The children of one node
    are sorted once, and only the best remaining one is in the heap.

    Attributes:
        dropped_best, dropped_mass: Best bound and summed probability of the children
            that were dropped.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        # Minus bound, order, batch or ~index in _nodes.
        self._heap: list[tuple[float, int, int]] = []
        self._batches: list[_Batch] = []
        self._batch_of: dict[int, int] = {}  # node -> the first batch of its children
        self._nodes: list[Open] = []
        self._waiting: dict[int, float] = {}  # index in _nodes -> prefix
        self._order = 0
        self.dropped_best = -np.inf
        self.dropped_mass = 0.0

    def add(self, children: RowChildren, at_least: float) -> None:
        """Add a node's children; drop and count those with a bound below `at_least`."""
        ranks = range(len(children.ids)) if children.ranks is None else children.ranks
        order = np.lexsort((children.ids, -children.logp))[ranks.start : ranks.stop]
        ids, logp, bounds = children.ids[order], children.logp[order], children.bounds[order]
        possible = int(np.count_nonzero(logp > -np.inf))
        n = min(possible, int(np.searchsorted(-bounds[:possible], -at_least, side="right")))
        if n < possible:
            self._drop(float(bounds[n]), children.prefix + numerics.logsumexp(logp[n:possible]))
        if n == 0:
            return
        # Row 0 cannot be read again.
        kept = n if children.node == ROOT else min(n, max(self._most_kept, ranks.start))
        is_cut = kept < n
        self._batches.append(
            _Batch(
                children.node,
                children.prefix,
                ids[:kept].copy(),
                logp[:kept].copy(),
                bounds[:kept].copy(),
                rest=range(ranks.start + kept, ranks.start + n),
                rest_mass=numerics.logsumexp(logp[kept:n]),
                rest_logp=float(logp[kept]) if is_cut else -np.inf,
                rest_bound=float(bounds[kept]) if is_cut else -np.inf,
            )
        )
        self._batch_of.setdefault(children.node, len(self._batches) - 1)
        self._push(len(self._batches) - 1)

    def logp_of(self, node: int, token: int) -> float | None:
        """Return a token's log-probability after a node, None if not remembered."""
        if node not in self._batch_of:
            return None
        batch = self._batches[self._batch_of[node]]
        place = np.flatnonzero(batch.ids == token)
        return float(batch.logp[place[0]]) if len(place) else None

    def put_back(self, node: int, bound: float, prefix: float) -> None:
        """Add a node that has a number.

        Args:
            prefix: Log of the node's probability.
        """
        place = len(self._nodes)
        self._nodes.append(Open(bound, node, None, prefix))
        self._waiting[place] = prefix
        self._heap_push(bound, ~place)

    def best(self) -> float:
        """Return the best bound, -inf if nothing is open."""
        return -self._heap[0][0] if self._heap else -np.inf

    def pop(self) -> Open:
        """Remove and return the entry with the best bound; one must exist."""
        _, _, which = heapq.heappop(self._heap)
        if which < 0:
            self._waiting.pop(~which)
            return self._nodes[~which]
        batch, at = self._batches[which], self._batches[which].at
        if at == len(batch.ids):
            found = Open(batch.rest_bound, batch.node, None, batch.rest_logp, batch.rest)
            self._end(batch)
            return found
        found = Open(float(batch.bounds[at]), batch.node, int(batch.ids[at]), float(batch.logp[at]))
        batch.at += 1
        self._push(which)
        return found

    def drop_below(self, at_least: float) -> None:
        """Forget children that no longer matter, to free memory of the first rows."""
        for batch in self._batches:
            n = max(batch.at, int(np.searchsorted(-batch.bounds, -at_least, side="right")))
            if n < len(batch.ids):
                self._drop(float(batch.bounds[n]), batch.prefix + numerics.logsumexp(batch.logp[n:]))
            if -np.inf < batch.rest_bound < at_least:
                self._drop(batch.rest_bound, batch.prefix + batch.rest_mass)
                batch.rest_mass = batch.rest_logp = batch.rest_bound = -np.inf
            if n < len(batch.ids):
                batch.ids, batch.logp, batch.bounds = (
                    batch.ids[:n].copy(),
                    batch.logp[:n].copy(),
                    batch.bounds[:n].copy(),
                )
        self._heap = [entry for entry in self._heap if -entry[0] >= at_least or entry[2] < 0]
        heapq.heapify(self._heap)

    def _drop(self, best: float, log_mass: float) -> None:
        self.dropped_best = max(self.dropped_best, best)
        self.dropped_mass += float(np.exp(log_mass))

    def open_mass(self) -> float:
        """Return the summed probability of everything open or dropped."""
        masses = [self.dropped_mass, *np.exp(list(self._waiting.values()))]
        for batch in self._batches:
            inside = np.logaddexp(numerics.logsumexp(batch.logp[batch.at :]), batch.rest_mass)
            masses.append(np.exp(batch.prefix + inside))
        return float(np.sum(masses))

    def _push(self, which: int) -> None:
        batch = self._batches[which]
        if batch.at < len(batch.ids):
            self._heap_push(float(batch.bounds[batch.at]), which)
        elif batch.at == len(batch.ids) and batch.rest_bound > -np.inf:
            self._heap_push(batch.rest_bound, which)
        else:
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Free a batch that will not be read again."""
        batch.ids, batch.logp, batch.bounds, batch.at = batch.ids[:0], batch.logp[:0], batch.bounds[:0], 0
        batch.rest_mass = batch.rest_logp = batch.rest_bound = -np.inf

    def _heap_push(self, bound: float, which: int) -> None:
        heapq.heappush(self._heap, (-bound, self._order, which))
        self._order += 1
