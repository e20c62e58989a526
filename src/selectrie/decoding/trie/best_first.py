"""Finds the exact k best paths of a trie by best-first search, with a certificate."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, ROOT, BoolArray, Capacity, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import RowNeeds, TrieEvaluation, TrieReader, row_owner
from selectrie.decoding.scoring.paths import RESOLVED, greedy_child
from selectrie.decoding.scoring.rules import Bounds, Objective
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.decoding.search_state import FILL_ROWS, MIN_BOUND, HeldNodes, Open, OpenList, RowChildren
from selectrie.decoding.task import NOTHING, Ask, TaskBase
from selectrie.decoding.trie.exhaustive import DepthFirstOrder, DepthFirstWindows
from selectrie.options import SearchParams


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path end whose tokens are evaluated, but whose terminator is only bounded.

    Attributes:
        node, path: The end's node and its path.
        lower, upper: Bounds on its score.
        logp: Bounds on its log-probability. The healed bytes' log-probability is not
            subtracted.
        is_final: Whether all rows that narrow the bounds were evaluated. They may still
            differ if a row was given in part.
    """

    node: int
    path: int
    lower: float
    upper: float
    logp: Interval[float]
    is_final: bool = False

    @property
    def is_exact(self) -> bool:
        """Return whether the bounds on the score are equal."""
        return self.lower == self.upper


class Incumbents:
    """The k best lower bounds on scores, and the candidates.

    Only the terminator "unless-continued" has candidates. The terminator's probability
    at an end is then a sum over the inner nodes that the end owns (at or below it, with
    no other end between). A node whose row is known adds the mass of its tokens that
    are not children, or bounds on it. An open node adds up to its whole mass.

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
        self._certain: set[int] = set()  # ends whose owned nodes were all read
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

    def mark_changed(self, ends: IntArray) -> None:
        """Mark ends for `refresh`, because rows of nodes that they own were read.

        A finished end stays finished: nodes read below it afterwards have probability
        0.
        """
        self._dirty.update(end for end in ends.tolist() if end not in self._certain)

    def refresh(self, owner: IntArray, prefix: FloatArray) -> None:
        """Update the intervals of the ends marked by `mark_changed`.

        Args:
            owner: int32[N], the end that owns each node.
            prefix: float64[N], log-probabilities of prefixes, NaN where unknown.
        """
        for end in self._dirty:
            stop = end + int(self._trie.n_nodes_below[end]) + 1
            own = np.flatnonzero((owner[end:stop] == end) & self._trie.inner[end:stop]) + end
            known = own[self._reader.evaluated[own]]
            waiting = own[~self._reader.evaluated[own] & (prefix[own] > -np.inf)]
            rest = self._reader.rest
            low = high = numerics.logsumexp(prefix[known] + rest.low[known])
            if not rest.is_known:
                high = numerics.logsumexp(prefix[known] + rest.high[known])
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

    def add_final(self, ends: IntArray, prefix: FloatArray) -> None:
        """Add ends as candidates that own one row, which was given in part."""
        for end in ends.tolist():
            rest = self._reader.rest
            self._add(end, float(prefix[end] + rest.low[end]), float(prefix[end] + rest.high[end]), is_final=True)

    def _add(self, end: int, low: float, high: float, *, is_final: bool) -> None:
        """Add an end as a candidate with these bounds on its log-probability.

        `low` and `high` include the healed bytes, whose log-probability `log_heal` is
        subtracted before the bounds are scored. `is_final` says that no further row
        narrows the bounds.
        """
        path = int(self._trie.end_path[end])
        lower, upper = self._objective.score(np.array([path, path]), np.array([low, high]) - self.log_heal).tolist()
        self.candidates[end] = Candidate(end, path, lower, upper, Interval(low, high), is_final)

    def threshold(self) -> tuple[float, float]:
        """Return the k-th best lower bound and the tolerance of its path.

        The result is (-inf, 0) while fewer than k paths have a lower bound.
        """
        lowers = list(self._top)
        lowers += [(c.lower, float(self._objective.tolerance[c.path])) for c in self.candidates.values()]
        if len(lowers) < self._k:
            return -np.inf, 0.0
        return heapq.nlargest(self._k, lowers)[-1] if self.candidates else self._top[0]

    def find_unsettled(self, threshold: float, margin: float) -> list[Candidate]:
        """Return the candidates whose intervals must still narrow, best first.

        They are those whose score may reach `threshold`, and which are not resolved or
        overlap another path that may reach it.

        Args:
            threshold: The minimum score that matters.
            margin: Allowance for rounding.
        """
        tolerance = self._objective.tolerance
        counting = [c for c in self.candidates.values() if c.upper + tolerance[c.path] + margin >= threshold]
        counting.sort(key=lambda c: (-c.upper, c.node))
        spans = [(c.lower, c.upper) for c in counting] + [(score, score) for score, _ in self._top]
        spans.sort()
        return [c for c in counting if not c.is_exact and (not _is_resolved(c) or _overlaps(c, spans, margin))]

    def check_proof(self, best_open: float, margin: float) -> bool:
        """Return whether the first k paths are proven.

        They are proven if no other path can be among them and their order cannot
        change. An unresolved candidate has no score to rank it by, so it counts among
        the others.

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
        return ordered and (best_open == -np.inf or best_open + margin < kth)

    def log_resolved(self) -> float:
        """Return the log of the summed exp(score) of all finished or resolved paths."""
        lowers = [c.lower for c in self.candidates.values() if _is_resolved(c)]
        return numerics.logsumexp(np.array([self.log_finished, *lowers]))

    @property
    def has_value(self) -> bool:
        """Return whether a path with positive probability has a score."""
        is_final = any(c.is_final and c.upper > -np.inf for c in self.candidates.values())
        return is_final or self.log_resolved() > -np.inf

    def unresolved(self) -> list[Candidate]:
        """Return the candidates whose interval is too wide to count as one score."""
        return [c for c in self.candidates.values() if not _is_resolved(c)]


def _is_resolved(candidate: Candidate) -> bool:
    """Return whether the candidate's interval is narrow enough to count as one score.

    It also counts if nothing can narrow it. The limit is a little below `RESOLVED`, so
    that `path_scores` agrees, which adds the same terms in another order (1e-13 nats).
    """
    return candidate.is_final or candidate.logp.high - candidate.logp.low <= RESOLVED * (1 - 1e-6)


def _overlaps(candidate: Candidate, spans: list[tuple[float, float]], margin: float) -> bool:
    """Return whether the candidate's interval touches a span other than its own.

    `spans` are (low, high) and include the candidate's own.
    """
    touching = sum(low - margin <= candidate.upper and candidate.lower <= high + margin for low, high in spans)
    return touching > 1


Heal = Callable[[FloatArray, Interval[FloatArray]], Interval[float]]
"""Maps (edge_logp, observed) of a `TrieEvaluation` to bounds on the log-probability of
the healed bytes.
"""

_BEYOND = 1e9
"""A finite stand-in for an infinite distance between two scores, in nats."""


class Frontier:
    """Scores of finished paths, intervals of candidates, and bounds on open nodes.

    A path is finished when its score is certain. A `Candidate` is an end whose score
    lies in a known interval. An open node is an unread node whose row is needed, below
    an evaluated node.

    If the objective divides by lengths, the order of the scores depends on the
    probability of the healed bytes. The argument `heal` computes it, and no bound
    exists before all nodes that it depends on (`needs.observe`) were read.

    Attributes:
        prefix: float64[N], log-probability of each node's prefix, NaN where unknown.
        reader: Collects the numbers read from the rows.
        incumbents: The best scores and the candidates.
        bounds: Computes the bounds on the scores below a node.
        ready: Whether bounds can be computed yet.
        continues: Whether terminators depend on rows below their ends. Only then are
            there candidates.
        margin: Largest error in nats of the difference of two scores: rounding, plus
            the width of the interval of the baseline that is subtracted, plus that of
            the healed bytes' log-probability if scores are divided by lengths.
    """

    def __init__(
        self, trie: TokenTrie, needs: RowNeeds, terminator: str, *, objective: Objective, k: int, heal: Heal | None
    ) -> None:
        self._trie, self._needs, self._terminator = trie, needs, terminator
        self._objective, self._heal = objective, heal
        owner = row_owner(trie, terminator)
        self.continues = owner is not None
        self.reader = TrieReader(trie, needs)
        self.bounds = Bounds(trie, objective, inclusive=self.continues or terminator == "eog")
        self.prefix: FloatArray = np.full(len(trie.token), np.nan)
        self.prefix[ROOT] = 0.0
        self.incumbents = Incumbents(trie, objective, self.reader, k)
        self._owner = np.full(len(trie.token), NO_NODE, dtype=np.int32) if owner is None else owner
        self._n_owned = np.bincount(self._owner[trie.inner & (self._owner != NO_NODE)], minlength=len(trie.token))
        self._chain = longest_chain(trie) if terminator in ("none", "text") else 1
        self._read_before_heal: list[IntArray] = []
        self.ready = heal is None or not objective.divides
        self.margin = ROUNDING + min(objective.moves, _BEYOND)

    def read(self, nodes: IntArray, rows: Rows) -> IntArray:
        """Read the rows of `nodes`; return the nodes whose children have bounds now."""
        self.reader.read(nodes, rows)
        self._extend_prefixes(nodes)
        if not self.ready:
            self._read_before_heal.append(nodes)
            if self.unobserved():
                return nodes[:0]
            nodes = np.concatenate(self._read_before_heal)
            self.ready = True
            self.incumbents.log_heal = self._log_heal()
            self.margin += self._heal_effect()
        self._finish_paths(nodes)
        return nodes

    def unobserved(self) -> list[int]:
        """Return the nodes of `needs.observe` whose rows were not read."""
        return [node for node, _ in self._needs.observe if not self.reader.evaluated[node]]

    def refresh(self) -> None:
        """Update the intervals of all candidates.

        Call it after reading rows and before using `incumbents` or the methods below.
        """
        self.incumbents.refresh(self._owner, self.prefix)

    def _log_heal(self) -> float:
        """Return the log-probability of the healed bytes to subtract.

        It is 0 if they have probability 0, since no path then has a positive
        probability.
        """
        log_heal = self._heal_bounds().low
        return log_heal if log_heal > -np.inf else 0.0

    def _heal_bounds(self) -> Interval[float]:
        """Return bounds on the log-probability of the healed bytes."""
        return Interval.point(0.0) if self._heal is None else self._heal(self.reader.edge_logp, self.reader.observed)

    def _heal_effect(self) -> float:
        """Return by how many nats `heal` may change the difference of two scores.

        Its log-probability is divided by the paths' lengths, and it may be an interval.
        """
        length = self._objective.length
        share = float(1 / length.min() - 1 / length.max())
        return min(self._heal_bounds().width * share, _BEYOND) if share else 0.0

    def _extend_prefixes(self, nodes: IntArray) -> None:
        """Set `prefix` of the children of `nodes`.

        Parents are handled before their children, because `nodes` may hold both.
        """
        depths = self._trie.depth[nodes]
        for depth in np.unique(depths):
            children, owner = self.reader.children(nodes[depths == depth])
            above = self.prefix[nodes[depths == depth]][owner]
            counts = self._trie.depth[children] > self._objective.first_scored
            self.prefix[children] = above + np.where(counts, self.reader.edge_logp[children], 0.0)

    def _finish_paths(self, nodes: IntArray) -> None:
        """Finish the paths whose scores the rows of `nodes` make certain.

        Ends that own such nodes are marked for an update of their intervals.
        """
        trie, incumbents = self._trie, self.incumbents
        if self._terminator == "eog":
            ends = nodes[trie.end_path[nodes] != NO_PATH]
            incumbents.finish(trie.end_path[ends], self.prefix[ends] + self.reader.eog_logp[ends])
            return
        children, _ = self.reader.children(nodes)
        is_end = trie.end_path[children] != NO_PATH
        if self.continues:
            is_end &= ~trie.inner[children]
            touched = self._owner[nodes[trie.inner[nodes]]]
            touched = touched[touched != NO_NODE]
            # An end that owns only its own row needs no interval.
            alone = touched[self._n_owned[touched] == 1]
            rest = self.reader.rest
            if not rest.is_known:
                is_bounded = rest.high[alone] > rest.low[alone]
                incumbents.add_final(alone[is_bounded], self.prefix)
                alone = alone[~is_bounded]
            incumbents.finish(trie.end_path[alone], self.prefix[alone] + rest.low[alone])
            incumbents.mark_changed(touched[self._n_owned[touched] > 1])
        ends = children[is_end]
        incumbents.finish(trie.end_path[ends], self.prefix[ends])
        if ROOT in nodes and trie.end_path[ROOT] != NO_PATH and not (self.continues and trie.inner[ROOT]):
            incumbents.finish(trie.end_path[:1], np.zeros(1))

    def upper(self, nodes: IntArray, *, cautious: bool = False) -> FloatArray:
        """Return upper bounds on the scores below each node, float64[n].

        With `cautious`, each bound includes the tolerance of the scores.
        """
        return self.bounds.upper(nodes, self.prefix[nodes] - self.incumbents.log_heal, cautious=cautious)

    def unread_children(self, nodes: IntArray) -> IntArray:
        """Return the children of `nodes` whose rows are needed and unread, int32[]."""
        children, _ = self.reader.children(nodes)
        return children[self._needs.row[children] & ~self.reader.evaluated[children]]

    def open_nodes(self) -> IntArray:
        """Return the open nodes whose prefix has a positive probability, int32[]."""
        children = self.unread_children(np.flatnonzero(self.reader.evaluated).astype(np.int32))
        return children[self.prefix[children] > -np.inf]

    def nodes_deciding(self, candidate: Candidate, min_nodes: int) -> list[int]:
        """Return the open nodes that the candidate's end owns, most probable first.

        Nodes too improbable to matter are left out, but at least `min_nodes` are
        returned.
        """
        start, stop = candidate.node, candidate.node + int(self._trie.n_nodes_below[candidate.node]) + 1
        waits = (self._owner[start:stop] == start) & self._needs.row[start:stop]
        waits &= ~self.reader.evaluated[start:stop] & (self.prefix[start:stop] > -np.inf)
        own = np.flatnonzero(waits) + start
        own = own[np.argsort(-self.prefix[own], kind="stable")]
        # The mass of each node together with all less probable ones.
        lighter = np.logaddexp.accumulate(self.prefix[own][::-1])[::-1]
        # Half of the width that counts as resolved may stay open.
        enough = candidate.logp.low + np.log(RESOLVED / 2)
        matter: list[int] = own[: max(min_nodes, int(np.count_nonzero(lighter > enough)))].tolist()
        return matter

    def _log_open(self) -> float:
        """Return the log of a bound on the summed exp(score) of all unresolved paths.

        If the score is a joint, all paths below a node together weigh at most the
        node's bound times the maximum number of them that are prefixes of one another
        (1 except for terminators "none" and "text"). Otherwise each path may weigh as
        much as the bound.
        """
        nodes = self.open_nodes()
        is_joint = not self._objective.divides and not self._objective.first_scored
        count = np.full(len(nodes), self._chain) if is_joint else self.bounds.n_paths[nodes]
        with np.errstate(divide="ignore"):
            weights = self.upper(nodes) + np.log(count)
        return numerics.logsumexp(np.append(weights, [c.upper for c in self.incumbents.unresolved()]))

    def holds_mass(self, mass: float) -> bool:
        """Return whether resolved paths hold the share `mass` of the set's mass."""
        finished = self.incumbents.log_resolved()
        return bool(finished - np.logaddexp(finished, self._log_open()) >= np.log(mass))

    def check_proof(self) -> bool:
        """Return `Incumbents.check_proof` for the best bound of all open nodes."""
        return self.incumbents.check_proof(float(self.upper(self.open_nodes()).max(initial=-np.inf)), self.margin)

    def bound_open_mass(self) -> tuple[float, float]:
        """Return bounds on the mass of all unresolved paths, given the healed bytes.

        The first is on their probability; the second is the log of a bound on their
        summed exp(score).
        """
        nodes, log_heal = self.open_nodes(), self._log_heal()
        count = self.bounds.n_paths[nodes] if self._objective.first_scored else np.full(len(nodes), self._chain)
        mass = self.prefix[nodes] + np.log(np.maximum(count, 1))
        mass = np.append(mass, [c.logp.high for c in self.incumbents.unresolved()])
        open_mass = float(numerics.exp(np.array(numerics.logsumexp(mass) - log_heal)))
        heal = self._heal_bounds()
        if heal.low == -np.inf < heal.high:
            open_mass = float(self._chain) if open_mass else 0.0
        # Subtract the part of `log_heal` that the bounds do not include yet.
        return open_mass, self._log_open() - (log_heal - self.incumbents.log_heal)


def longest_chain(trie: TokenTrie) -> int:
    """Return the maximum number of choices that end on one path from the root.

    Each of them is a prefix of the next, so up to this many choices can count the same
    probability mass.
    """
    return int(trie.accumulate((trie.end_path != NO_PATH).astype(np.float64)).max())


WIDE = 16
"""Width from which a call takes a quarter of the nodes so far."""
MAX_AHEAD = 0.15
"""Share of all rows that may be at risk of a second evaluation.

Above it, depth-first waves take over from best-first search. Waves evaluate each of the
other rows once, so even a search that excludes nothing costs at most 1.2 times
exhaustive scoring.
"""
_PLANS = 8
"""Maximum number of times that waves are planned again, in a search of all rows."""
_PATHS_A_PLAN = 32
"""Minimum number of rows between two plans, in lengths of the longest path."""
_NARROWING_CALLS = 4
"""Maximum number of nodes that narrow intervals in one ask, in widths of a call."""


class DepthFirstFallback:
    """Depth-first evaluation of a trie, which alternates with a best-first search.

    A wave is an ask for the next nodes in depth-first order (`DepthFirstWindows`). Only
    one of the two searches asks at a time. When they alternate, held nodes are
    released.

    Args:
        trie: The trie.
        needs: The rows to evaluate.
        reader: The reader of the rows, shared with the best-first search.
        live: The nodes that the best-first search holds.
        carries: bool[N], nodes with a needed child. They may have to be evaluated
            again.
        depth: Depth of the deepest needed node.

    Attributes:
        n_repeated: Number of dropped nodes that the waves have asked for again so far.
    """

    def __init__(
        self, trie: TokenTrie, needs: RowNeeds, reader: TrieReader, live: HeldNodes, *, carries: BoolArray, depth: int
    ) -> None:
        self._trie, self._needs, self._reader, self._live = trie, needs, reader, live
        self._carries, self._depth = carries, depth
        self._n_required = needs.n_rows
        self._n_required_leaves = int(np.count_nonzero(needs.row & ~carries))
        self._windows: DepthFirstWindows | None = None
        self._n_read_at_plan = 0
        self._to_release: IntArray = NOTHING
        self.n_repeated = 0

    @property
    def is_active(self) -> bool:
        """Return whether waves are under way."""
        return self._windows is not None

    def should_take_over(self, capacity: Capacity, width: int) -> bool:
        """Return whether waves should take over from the best-first search.

        They should if the capacity cannot hold all nodes, and the rows at risk of a
        second evaluation exceed the share `MAX_AHEAD` of all rows. At risk are the rows
        that were repeated, and those that may be after one more best-first call of
        `width` nodes.
        """
        if self._n_required - 1 <= capacity.nodes and self._n_required_leaves <= capacity.sequences:
            return False  # nothing will be dropped, so no row is evaluated twice
        n_carrying = int(np.count_nonzero(self._carries & self._reader.evaluated))
        ahead = self._live.n_repeated + self.n_repeated + n_carrying + width * self._depth
        return ahead > MAX_AHEAD * self._n_required

    @property
    def is_stale(self) -> bool:
        """Return whether enough rows were read since `plan_waves` to plan again.

        The new rows may exclude some of the remaining nodes.
        """
        # Planning again repeats one path: at most 1/32 = 3 % of the rows in between.
        pause = max(self._n_required // _PLANS, _PATHS_A_PLAN * self._depth)
        return self._reader.n_evaluated - self._n_read_at_plan > pause

    def plan_waves(self, matters: BoolArray) -> None:
        """Plan waves over the unread nodes of `matters` whose rows are needed.

        Their ancestors are asked for too, because a node is evaluated below its parent.
        Earlier waves end.

        Args:
            matters: bool[N], the nodes that the search may still need.
        """
        wanted = matters & self._needs.row & ~self._reader.evaluated
        if self._windows is None:
            self._to_release = np.concatenate([self._to_release, self._live.drop_all()])
        self.end()
        self._windows = DepthFirstWindows(DepthFirstOrder(self._trie, wanted), self._live.next_local)
        self._n_read_at_plan = self._reader.n_evaluated

    def end(self) -> None:
        """End the waves; the next ask releases the nodes that they hold.

        The best-first search starts again from the root.
        """
        if self._windows is not None:
            self._to_release = np.concatenate([self._to_release, self._windows.held])
            self._windows = None

    def next_wave(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next wave and the nodes whose rows it wants, int32[].

        None means that no wave remains; `is_active` is then false.
        """
        window = None if self._windows is None else self._windows.next_window(capacity)
        if self._windows is not None:
            self._live.next_local = self._windows.next_local
        if window is None:
            self.end()
            return None
        ask, wanted = window
        self.n_repeated += len(ask.tokens) - len(wanted)
        return self.add_releases(replace(ask, again=~ask.wanted)), wanted

    def add_releases(self, ask: Ask) -> Ask:
        """Return `ask`, extended to release the nodes of the other search."""
        leaving, self._to_release = self._to_release, NOTHING
        return replace(ask, release=np.concatenate([ask.release, leaving])) if len(leaving) else ask


@dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """The rows that a search of a trie evaluated, and the certificate that they give.

    The log-probabilities are conditional on the healed bytes. A path is unresolved if
    its score is unknown.

    Attributes:
        evaluation: The numbers that were read from the trie's rows.
        proved: Whether no unresolved path can be among the first k.
        open_mass: Upper bound on the probability of all unresolved paths.
        log_open: Log of an upper bound on the summed exp(score) of all unresolved
            paths, for `posterior`.
        n_evaluated: Number of rows read, including the root's.
        n_required: Number of rows that exhaustive scoring reads, including the root's.
        n_repeated: Number of rows that were asked for again after they were dropped.
    """

    evaluation: TrieEvaluation
    proved: bool
    open_mass: float
    log_open: float
    n_evaluated: int
    n_required: int
    n_repeated: int


class BestFirst(TaskBase[IntArray, SearchOutcome]):
    """Finds the k best paths of a trie below a prompt.

    A node is open if its row is needed and unread, but its parent's row was read. Open
    nodes are evaluated best bound first, until no bound is within tolerance of the k-th
    best score. A call evaluates `search.width` nodes, and more in a long search. Within
    the budget, the path of masked greedy decoding is always evaluated. The nodes of
    `needs.observe`, whose rows give the probability of the healed bytes, are evaluated
    even beyond the budget: without them no log-probability is known.

    If bytes were healed and the objective divides by lengths, `heal` is required,
    because the order of the scores depends on the probability of the healed bytes.
    These nodes are then evaluated first.

    If the capacity cannot hold the whole trie, rows may have to be evaluated again.
    Once these could exceed the share `MAX_AHEAD` of all rows, depth-first waves
    evaluate the nodes that the result still depends on.

    Args:
        prompt, trie, needs, terminator: As for `ScoreTask` and `row_needs`.
        search: The number of results, the width of a call and the budget.
        objective: Turns log-probabilities into scores.
        heal: Computes the probability of healed bytes, or None.
        fill_rows: Asks are filled up to a multiple of this number of rows, at least 1.

    Attributes:
        fills: Whether asks are filled up with nodes that may not be needed. The caller
            may set it to False where other searches share the calls.
    """

    def __init__(
        self,
        prompt: IntArray,
        trie: TokenTrie,
        needs: RowNeeds,
        terminator: str,
        *,
        objective: Objective,
        search: SearchParams,
        heal: Heal | None = None,
        fill_rows: int = FILL_ROWS,
    ) -> None:
        floor = Capacity(rows=1, nodes=int(trie.depth[needs.row].max()), sequences=1)
        super().__init__(prompt, floor, np.array([ROOT], dtype=np.int32))
        self._trie, self._needs, self._search = trie, needs, search
        self._fill_rows, self.fills = fill_rows, True
        self._frontier = Frontier(trie, needs, terminator, objective=objective, k=search.k, heal=heal)
        self._reader, self._incumbents = self._frontier.reader, self._frontier.incumbents
        self._open = OpenList(self._reader.evaluated)
        carries = np.zeros(len(trie.token), dtype=np.bool_)
        carries[trie.parent[1:][needs.row[1:]]] = True
        self._live = HeldNodes(trie, carries.item)
        self._n_required = needs.n_rows
        self._waves = DepthFirstFallback(trie, needs, self._reader, self._live, carries=carries, depth=floor.nodes)
        self._greedy = ROOT

    def _reads(self, nodes: IntArray) -> Reads:
        """Return the `Reads` for the rows of `nodes`."""
        return self._reader.reads(nodes)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        """Read rows, and add the children of their nodes to the open nodes."""
        if len(nodes) == 0:
            return
        bounded = self._frontier.read(nodes, rows)
        waiting = self._frontier.unread_children(bounded)
        self._add_open(waiting, self._frontier.upper(waiting, cautious=True))
        if self._frontier.ready:
            self._follow_greedy()

    def _add_open(self, nodes: IntArray, bounds: FloatArray) -> None:
        """Add open nodes with their bounds."""
        self._open.add(RowChildren(ROOT, 0.0, nodes, bounds, bounds))

    def _follow_greedy(self) -> None:
        """Move `_greedy` to the next unread node of masked greedy decoding."""
        stop = self._reader.rest.low if self._frontier.continues else self._reader.eog_logp
        while self._greedy != NO_NODE and self._reader.evaluated[self._greedy]:
            if not self._trie.n_nodes_below[self._greedy]:
                self._greedy = NO_NODE
                return
            self._greedy = greedy_child(self._trie, self._reader.edge_logp, stop, self._greedy)
        if self._greedy != NO_NODE and not self._needs.row[self._greedy]:
            self._greedy = NO_NODE

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next ask and the nodes whose rows it wants, or None at the end."""
        # Also before the last ask: `result` reads the refreshed state.
        self._frontier.refresh()
        budget = self._search.budget_nodes
        left = self._n_required if budget is None else budget - self._reader.n_evaluated
        if left <= 0 and (required := self._required_nodes() or self._nodes_for_a_score()):
            self._waves.end()
            return self._ask_best(required, np.inf, replace(capacity, rows=min(capacity.rows, len(required))))
        capacity = replace(capacity, rows=min(capacity.rows, max(left, 1)))
        while left > 0:
            threshold = self._threshold()
            required, refining = self._required_nodes(), self._narrowing_nodes(threshold)
            goes_on = self._must_continue(threshold) or bool(refining)
            if not required and not goes_on:
                break
            if goes_on and not self._waves.is_active and self._should_use_waves(capacity):
                self._waves.plan_waves(self._find_relevant(threshold))
            if not self._waves.is_active:
                return self._ask_best([*required, *refining], threshold if goes_on else np.inf, capacity)
            wave = self._next_wave(threshold, capacity)
            if wave is not None:
                return wave
        return None

    def _threshold(self) -> float:
        """Return the score below which open nodes need not be evaluated.

        A lower score cannot come within tolerance of the k-th best.
        """
        if self._search.stop != "best":
            return -np.inf
        kth, tolerance = self._incumbents.threshold()
        return kth - tolerance - self._frontier.margin

    def _must_continue(self, threshold: float) -> bool:
        """Return whether further open nodes must be evaluated.

        They must if a bound reaches `threshold`, or if the search evaluates all. The
        result is False while no bound exists, because healed bytes are not scored yet.
        """
        if not self._frontier.ready:
            return False
        if self._search.stop == "all":
            return self._reader.n_evaluated < self._n_required
        best = self._open.best()
        if best < max(threshold, MIN_BOUND):
            return False
        return self._search.stop != "mass" or not self._frontier.holds_mass(self._search.mass)

    def _required_nodes(self) -> list[int]:
        """Return the nodes to evaluate regardless of their bounds.

        They are the nodes of `needs.observe` and the next node of the greedy path.
        """
        nodes = self._frontier.unobserved()
        if self._frontier.ready and self._greedy != NO_NODE:
            nodes.append(self._greedy)
        return nodes

    def _narrowing_nodes(self, threshold: float) -> list[int]:
        """Return open nodes whose rows narrow the score intervals of candidates.

        Such a row decides how likely a candidate's choice is to be continued. For each
        candidate, the most probable nodes are returned, as far as they matter, so that
        one call narrows most of its interval.
        """
        if not self._frontier.ready or not self._frontier.continues:
            return []
        nodes: list[int] = []
        for candidate in self._incumbents.find_unsettled(threshold, self._frontier.margin):
            nodes += self._frontier.nodes_deciding(candidate, self._fill_rows)
        return nodes[: _NARROWING_CALLS * self._width]

    def _nodes_for_a_score(self) -> list[int]:
        """Return the nodes to evaluate beyond the budget until some path has a score.

        The result is empty once a path with positive probability has a score. Otherwise
        it is the deepest open node, or else the nodes on which the exact score of the
        best candidate still depends. Masked greedy decoding would not do instead: a
        prior may exclude its path, or its end may itself be a candidate without an
        exact score.
        """
        if self._incumbents.has_value:
            return []
        nodes = self._frontier.open_nodes()
        bounds = self._frontier.upper(nodes)
        if len(nodes) and bounds.max() > -np.inf:
            down = np.where(bounds > -np.inf, self._trie.depth[nodes], 0)
            return [int(nodes[np.lexsort((-bounds, -down))[0]])]
        candidates = [c for c in self._incumbents.unresolved() if c.upper > -np.inf]
        if not candidates:
            return []
        return self._frontier.nodes_deciding(
            max(candidates, key=lambda c: (c.lower, c.upper, -c.node)), self._fill_rows
        )

    @property
    def _width(self) -> int:
        """Return the number of nodes in a call.

        It grows during the search, so that a long search needs few calls: a quarter of
        the nodes so far for the default width of 16, and less for a narrower search.
        """
        width = self._search.width
        return max(width, self._reader.n_evaluated * min(width, WIDE) // (4 * WIDE))

    def _ask_best(self, first: list[int], threshold: float, capacity: Capacity) -> tuple[Ask, IntArray]:
        """Return an ask for the nodes `first` and then for the best open nodes.

        Args:
            first: Nodes to ask for regardless of their bounds (`_required_nodes` and
                `_narrowing_nodes`).
            threshold: The minimum bound of an open node to ask for. Nodes with lower
                bounds only fill the call up to a multiple of `fill_rows` rows.
            capacity: The capacity of the call.

        Returns:
            The ask, and the trie nodes whose rows it wants, int32[].
        """
        targets = dict.fromkeys(first)  # a set that keeps its order
        taken: list[Open] = []
        while len(targets) + len(taken) < self._width and self._open.best() >= max(threshold, MIN_BOUND):
            taken.append(self._open.pop())
        taken.sort(key=lambda entry: int(self._trie.parent[entry.token]) not in self._live)
        targets.update(dict.fromkeys(entry.token for entry in taken))
        targets.update(
            dict.fromkeys(
                self._only_descendants(
                    list(targets), min(-len(targets) % self._fill_rows, capacity.rows - len(targets))
                )
            )
        )
        fills = self.fills and self._frontier.ready
        while fills and len(targets) % self._fill_rows and self._open.best() >= MIN_BOUND:
            taken.append(self._open.pop())
            targets[taken[-1].token] = None
        ask, nodes = self._live.plan(list(targets), self._reader.evaluated, capacity)
        planned = set(nodes)
        left = [entry for entry in taken if entry.token not in planned]
        self._add_open(np.array([e.token for e in left], dtype=np.int32), np.array([e.bound for e in left]))
        return self._waves.add_releases(ask), np.array(nodes, dtype=np.int32)

    def _only_descendants(self, targets: list[int], spare: int) -> list[int]:
        """Return up to `spare` nodes below targets that are their parents' only child.

        They are certain to be needed next, so evaluating them now saves a call.
        """
        nodes: list[int] = []
        for target in targets:
            node = target
            while len(nodes) < spare and self._trie.child_start[node + 1] - self._trie.child_start[node] == 1:
                node = int(self._trie.children(node)[0])
                if not self._needs.row[node]:
                    break
                nodes.append(node)
        return nodes

    def _should_use_waves(self, capacity: Capacity) -> bool:
        """Return whether depth-first waves should take over."""
        return self._search.stop == "all" or self._waves.should_take_over(capacity, self._width)

    def _find_relevant(self, threshold: float) -> BoolArray:
        """Return bool[N], the nodes that the search may still need.

        They are the open nodes with bounds of at least `threshold`, the nodes of
        `_narrowing_nodes`, and all nodes below these.
        """
        if self._search.stop == "all":
            return np.ones(len(self._trie.token), dtype=np.bool_)
        nodes = self._frontier.open_nodes()
        nodes = nodes[self._frontier.upper(nodes, cautious=True) >= max(threshold, MIN_BOUND)]
        nodes = np.concatenate([nodes, np.array(self._narrowing_nodes(threshold), dtype=np.int32)]).astype(np.int32)
        marks = np.zeros(len(self._trie.token) + 1, dtype=np.int64)
        np.add.at(marks, nodes, 1)
        np.add.at(marks, nodes + self._trie.n_nodes_below[nodes] + 1, -1)
        return np.asarray(np.cumsum(marks[:-1]) > 0)

    def _next_wave(self, threshold: float, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next ask of a depth-first wave with its nodes, or None at the end.

        After the end, the best-first search continues without held nodes.
        """
        if self._search.stop == "best" and self._waves.is_stale:
            self._waves.plan_waves(self._find_relevant(threshold))
        return self._waves.next_wave(capacity)

    def _result(self) -> SearchOutcome:
        """Return the rows read and the certificate."""
        open_mass, log_open = self._frontier.bound_open_mass()
        return SearchOutcome(
            evaluation=self._reader.evaluation(),
            proved=self._frontier.check_proof(),
            open_mass=open_mass,
            log_open=log_open,
            n_evaluated=self._reader.n_evaluated,
            n_required=self._n_required,
            n_repeated=self._live.n_repeated + self._waves.n_repeated,
        )
