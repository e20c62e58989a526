"""Finds the exact k best paths of a trie by best-first search, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, ROOT, BoolArray, Capacity, FloatArray, IntArray
from selectrie.decoding.scoring import Objective, RowNeeds, TrieEvaluation, TrieReader, greedy_child
from selectrie.decoding.search_state import FILL_ROWS, MIN_BOUND, HeldNodes, Open, OpenList, RowChildren
from selectrie.decoding.task import NOTHING, Ask, TaskBase
from selectrie.decoding.trie.exhaustive import DepthFirstOrder, DepthFirstWindows
from selectrie.decoding.trie.frontier import Frontier, Heal
from selectrie.options import SearchParams

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
