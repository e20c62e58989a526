"""What a best-first search knows about its paths: scores that are certain, and intervals of those that are not."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, FloatArray, IntArray
from selectrie.decoding.scoring import RESOLVED, Objective, TrieReader


@dataclass(frozen=True, slots=True)
class Contender:
    """An end whose row is known but whose terminator is not: bounds on its score, and on its log-probability with the
    healed bytes in it."""

    node: int
    path: int
    lower: float
    upper: float
    logp_lower: float
    logp_upper: float

    @property
    def is_exact(self) -> bool:
        return self.lower == self.upper


class Standings:
    """The k best lower bounds on scores, and the contenders (only "unless-continued" has any).

    q of an end, the probability that it is not continued to a longer one, is a sum over the inner nodes it owns (those
    below it with no end between): each adds its rest when its row is known, and up to its whole mass while it is open.
    prefix: float64[N], live view of the log-probabilities of prefixes, NaN where unknown. owner: int32[N].
    log_heal: log-probability of the healed bytes where it moves the order of scores, else 0; every score is without it.
    """

    def __init__(self, trie: TokenTrie, objective: Objective, reader: TrieReader, k: int) -> None:
        self._trie, self._objective, self._reader = trie, objective, reader
        self._k = min(k, len(trie.path_node))
        self._top: list[tuple[float, float]] = []  # heap of (score, tolerance) of the k best finished paths
        self.log_finished = -np.inf
        self.contenders: dict[int, Contender] = {}
        self._dirty: set[int] = set()
        self.log_heal = 0.0

    def finish(self, paths: IntArray, logp: FloatArray) -> None:
        """Paths whose log-probabilities are certain."""
        if len(paths) == 0:
            return
        scores = self._objective.score(paths, logp - self.log_heal)
        self.log_finished = float(np.logaddexp(self.log_finished, numerics.logsumexp(scores)))
        best = np.argsort(-scores, kind="stable")[: self._k]
        for score, tolerance in zip(
            scores[best].tolist(), self._objective.tolerance[paths[best]].tolist(), strict=True
        ):
            if len(self._top) < self._k:
                heapq.heappush(self._top, (score, tolerance))
            elif score > self._top[0][0]:
                heapq.heapreplace(self._top, (score, tolerance))
            else:
                return

    def touch(self, ends: IntArray) -> None:
        """These ends own nodes whose rows have just been read."""
        self._dirty.update(ends.tolist())

    def refresh(self, owner: IntArray, prefix: FloatArray) -> None:
        """Bring the intervals of touched ends up to date."""
        for end in self._dirty:
            stop = end + int(self._trie.n_nodes_below[end]) + 1
            own = np.flatnonzero((owner[end:stop] == end) & self._trie.inner[end:stop]) + end
            known = own[self._reader.evaluated[own]]
            waiting = own[~self._reader.evaluated[own] & (prefix[own] > -np.inf)]
            low = numerics.logsumexp(prefix[known] + self._reader.rest_logp[known])
            high = min(float(np.logaddexp(low, numerics.logsumexp(prefix[waiting]))), float(prefix[end]))
            path = int(self._trie.end_path[end])
            if len(waiting) == 0:
                self.contenders.pop(end, None)
                self.finish(np.array([path], dtype=np.int32), np.array([min(low, float(prefix[end]))]))
                continue
            low = min(low, high)
            lower, upper = self._objective.score(np.array([path, path]), np.array([low, high]) - self.log_heal).tolist()
            self.contenders[end] = Contender(end, path, lower, upper, low, high)
        self._dirty.clear()

    def threshold(self) -> tuple[float, float]:
        """The k-th best lower bound and that path's tolerance; (-inf, 0) while fewer than k have one."""
        lowers = list(self._top)
        lowers += [(c.lower, float(self._objective.tolerance[c.path])) for c in self.contenders.values()]
        if len(lowers) < self._k:
            return -np.inf, 0.0
        return heapq.nlargest(self._k, lowers)[-1] if self.contenders else self._top[0]

    def unsettled(self, at_least: float, margin: float) -> list[Contender]:
        """Contenders whose intervals must still narrow, best first, if every score of `at_least` or more counts.

        One that may count narrows until it is resolved and overlaps no other that may count. margin: rounding.
        """
        tolerance = self._objective.tolerance
        counting = [c for c in self.contenders.values() if c.upper + tolerance[c.path] + margin >= at_least]
        counting.sort(key=lambda c: (-c.upper, c.node))
        spans = [(c.lower, c.upper) for c in counting] + [(score, score) for score, _ in self._top]
        spans.sort()
        return [c for c in counting if not c.is_exact and (not _is_resolved(c) or _overlaps(c, spans, margin))]

    def proves(self, best_open: float, margin: float) -> tuple[bool, float]:
        """Whether no path outside the first k can be among them, nor their order change; and the k-th less the best open.

        An end that is not resolved has no value to be ranked by: it counts as open, wherever it stands.
        best_open: bound on every path not seen yet.
        """
        kth, _ = self.threshold()
        ranked = sorted(self.contenders.values(), key=lambda c: -c.lower)
        n_exact_above = sum(score >= kth for score, _ in self._top)
        inside = [c for c in ranked if c.lower >= kth and (c.is_exact or _is_resolved(c))]
        inside = inside[: max(0, self._k - n_exact_above)]
        outside = [c.upper for c in ranked if c not in inside]
        best_open = max([best_open, *outside])
        spans = sorted([(c.lower, c.upper) for c in inside] + [(score, score) for score, _ in self._top])
        ordered = not any(_overlaps(c, spans, margin) for c in inside if not c.is_exact)
        gap = np.inf if best_open == -np.inf else kth - best_open
        return ordered and (best_open == -np.inf or best_open + margin < kth), float(gap)

    def log_resolved(self) -> float:
        """Log of the summed exp(score) of all paths that are finished or resolved."""
        lowers = [c.lower for c in self.contenders.values() if _is_resolved(c)]
        return numerics.logsumexp(np.array([self.log_finished, *lowers]))

    def unresolved(self) -> list[Contender]:
        """Contenders that no single value can stand for yet."""
        return [c for c in self.contenders.values() if not _is_resolved(c)]


def _is_resolved(contender: Contender) -> bool:
    """Its value can be told, by `path_scores` too, which adds the same terms up in another order (1e-13 nats)."""
    return contender.logp_upper - contender.logp_lower <= RESOLVED * (1 - 1e-6)


def _overlaps(contender: Contender, spans: list[tuple[float, float]], margin: float) -> bool:
    """Some other span touches this one; spans holds the contender's own as well."""
    touching = sum(low - margin <= contender.upper and contender.lower <= high + margin for low, high in spans)
    return touching > 1


def no_owner(n: int) -> IntArray:
    """int32[n] of NO_NODE, for terminators that look at no continuation."""
    return np.full(n, NO_NODE, dtype=np.int32)
