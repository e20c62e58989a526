"""The scores that a best-first search knows, exactly or within an interval."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, FloatArray, IntArray
from selectrie.decoding.scoring import RESOLVED, Objective, TrieReader


@dataclass(frozen=True, slots=True)
class Candidate:
    """An end whose path is evaluated but whose terminator is known only within bounds.

    Attributes:
        node, path: The end's node and its path.
        lower, upper: Bounds on its score.
        logp_lower, logp_upper: Bounds on its log-probability, from which that of the
            healed bytes was not subtracted.
        is_final: Whether all rows that narrow the bounds were evaluated. They differ if
            a row was not read in full.
    """

    node: int
    path: int
    lower: float
    upper: float
    logp_lower: float
    logp_upper: float
    is_final: bool = False

    @property
    def is_exact(self) -> bool:
        return self.lower == self.upper


class Incumbents:
    """The k best lower bounds on scores, and the candidates.

    Only the terminator "unless-continued" has candidates. The terminator's probability
    at an end is then a sum over the inner nodes that the end owns (at or below it, with
    no other end between). A node whose row is known adds the mass of its tokens that
    are not children, or bounds on it; an open node adds up to its whole mass.

    Attributes:
        log_finished: Log of the summed exp(score) of the finished paths.
        candidates: The candidates by the node of the end.
        log_heal: Log-probability of the healed bytes where it changes the order of
            scores, else 0. It is subtracted from every log-probability before scoring.
    """

    def __init__(self, trie: TokenTrie, objective: Objective, reader: TrieReader, k: int) -> None:
        self._trie, self._objective, self._reader = trie, objective, reader
        self._k = min(k, len(trie.path_node))
        # Heap of (score, tolerance) of the k best finished paths.
        self._top: list[tuple[float, float]] = []
        self.log_finished = -np.inf
        self.candidates: dict[int, Candidate] = {}
        self._dirty: set[int] = set()
        self._certain: set[int] = set()  # ends that were finished once their own nodes were read
        self.log_heal = 0.0

    def finish(self, paths: IntArray, logp: FloatArray) -> None:
        """Record paths whose log-probabilities are certain."""
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
        """Mark ends that own nodes whose rows have just been read.

        An end that was finished stays so: what is read below it afterwards has
        probability 0.
        """
        self._dirty.update(end for end in ends.tolist() if end not in self._certain)

    def refresh(self, owner: IntArray, prefix: FloatArray) -> None:
        """Update the intervals of the ends marked by `touch`.

        Args:
            owner: int32[N], the end that owns each node.
            prefix: float64[N], log-probabilities of prefixes, NaN where unknown.
        """
        for end in self._dirty:
            stop = end + int(self._trie.n_nodes_below[end]) + 1
            own = np.flatnonzero((owner[end:stop] == end) & self._trie.inner[end:stop]) + end
            known = own[self._reader.evaluated[own]]
            waiting = own[~self._reader.evaluated[own] & (prefix[own] > -np.inf)]
            low = numerics.logsumexp(prefix[known] + self._reader.rest_logp[known])
            high = self._high(known, low, prefix)
            is_final, is_bounded = len(waiting) == 0, high != low
            high = min(float(np.logaddexp(high, numerics.logsumexp(prefix[waiting]))), float(prefix[end]))
            path = int(self._trie.end_path[end])
            if is_final:
                self._certain.add(end)
            if is_final and not is_bounded:
                self.candidates.pop(end, None)
                self.finish(np.array([path], dtype=np.int32), np.array([min(low, float(prefix[end]))]))
                continue
            self._add(end, min(low, high), high, is_final=is_final)
        self._dirty.clear()

    def _high(self, nodes: NDArray[np.integer], low: float, prefix: FloatArray) -> float:
        """Return an upper bound on the mass whose lower bound is `low`.

        It is that of the tokens after `nodes` that are not children.
        """
        high, rest = self._reader.rest_high[nodes], self._reader.rest_logp[nodes]
        return low if (high == rest).all() else numerics.logsumexp(prefix[nodes] + high)

    def add_final(self, ends: IntArray, prefix: FloatArray) -> None:
        """Add ends whose own row decides everything and was not read in full."""
        for end in ends.tolist():
            low, high = prefix[end] + self._reader.rest_logp[end], prefix[end] + self._reader.rest_high[end]
            self._add(end, float(low), float(high), is_final=True)

    def _add(self, end: int, low: float, high: float, *, is_final: bool) -> None:
        """Keep an end as a candidate with these bounds on its log-probability."""
        path = int(self._trie.end_path[end])
        lower, upper = self._objective.score(np.array([path, path]), np.array([low, high]) - self.log_heal).tolist()
        self.candidates[end] = Candidate(end, path, lower, upper, low, high, is_final)

    def threshold(self) -> tuple[float, float]:
        """Return the k-th best lower bound and the tolerance of its path.

        (-inf, 0) while fewer than k paths have a lower bound.
        """
        lowers = list(self._top)
        lowers += [(c.lower, float(self._objective.tolerance[c.path])) for c in self.candidates.values()]
        if len(lowers) < self._k:
            return -np.inf, 0.0
        return heapq.nlargest(self._k, lowers)[-1] if self.candidates else self._top[0]

    def unsettled(self, threshold: float, margin: float) -> list[Candidate]:
        """Return the candidates whose intervals must still narrow, best first.

        A candidate may count if its score can be `threshold` or more. Its interval must
        narrow until the candidate is resolved and overlaps no other path that may
        count.

        Args:
            margin: Allowance for rounding.
        """
        tolerance = self._objective.tolerance
        counting = [c for c in self.candidates.values() if c.upper + tolerance[c.path] + margin >= threshold]
        counting.sort(key=lambda c: (-c.upper, c.node))
        spans = [(c.lower, c.upper) for c in counting] + [(score, score) for score, _ in self._top]
        spans.sort()
        return [c for c in counting if not c.is_exact and (not _is_resolved(c) or _overlaps(c, spans, margin))]

    def proves(self, best_open: float, margin: float) -> tuple[bool, float]:
        """Return whether the first k paths are proven, and the gap to all others.

        They are proven if no other path can be among them and their order cannot
        change. The second value is the k-th best score minus the best bound on all
        others. A candidate that is not resolved has no score to rank it by, so it
        counts among the others.

        Args:
            best_open: Upper bound on the scores of all paths below open nodes.
            margin: Allowance for rounding.
        """
        kth, _ = self.threshold()
        ranked = sorted(self.candidates.values(), key=lambda c: -c.lower)
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
        """Return the log of the summed exp(score) of all finished or resolved paths."""
        lowers = [c.lower for c in self.candidates.values() if _is_resolved(c)]
        return numerics.logsumexp(np.array([self.log_finished, *lowers]))

    @property
    def has_value(self) -> bool:
        """Return whether a path of a probability above zero has a score."""
        is_final = any(c.is_final and c.upper > -np.inf for c in self.candidates.values())
        return is_final or self.log_resolved() > -np.inf

    def unresolved(self) -> list[Candidate]:
        """Return the candidates whose interval is too wide to count as one score."""
        return [c for c in self.candidates.values() if not _is_resolved(c)]


def _is_resolved(candidate: Candidate) -> bool:
    """Return whether the candidate's interval counts as one score.

    It does if nothing can narrow it, or if it is narrow enough. The limit lies a little
    below `RESOLVED`, so that `path_scores` agrees, which adds the same terms up in
    another order (1e-13 nats).
    """
    return candidate.is_final or candidate.logp_upper - candidate.logp_lower <= RESOLVED * (1 - 1e-6)


def _overlaps(candidate: Candidate, spans: list[tuple[float, float]], margin: float) -> bool:
    """Return whether a span other than its own touches the candidate's interval.

    `spans` are (low, high) and include the candidate's own.
    """
    touching = sum(low - margin <= candidate.upper and candidate.lower <= high + margin for low, high in spans)
    return touching > 1


def no_owner(n: int) -> IntArray:
    """Return int32[n] of NO_NODE, for terminators that read no continuation."""
    return np.full(n, NO_NODE, dtype=np.int32)
