"""Best-first search of a trie for the exact k best paths, with a certificate."""

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

MAX_AHEAD = 0.15
"""Share of all rows that best-first search may spend on rows that may be repeated.

Above it, depth-first waves take over. Waves evaluate each of the other rows once, so a
search that learns nothing stays within 1.2 x exhaustive scoring.
"""


class DepthFirstFallback:
    """Depth-first evaluation in waves, which alternates with a best-first search.

    Only one of the two asks at a time. When they change places, the nodes that are held
    are released.

    Args:
        carries: bool[N], nodes with a needed child, which may have to be evaluated
            again.
        depth: Depth of the deepest needed node.

    Attributes:
        n_repeated: How many dropped nodes the waves have asked for again so far.
    """

    def __init__(
        self, trie: TokenTrie, needs: RowNeeds, reader: TrieReader, live: HeldNodes, *, carries: BoolArray, depth: int
    ) -> None:
        self._trie, self._needs, self._reader, self._live = trie, needs, reader, live
        self._carries, self._depth = carries, depth
        self._n_required = needs.n_rows
        self._n_required_leaves = int(np.count_nonzero(needs.row & ~carries))
        self._windows: DepthFirstWindows | None = None
        self._laid_out_at = 0
        self._leaving: IntArray = NOTHING
        self.n_repeated = 0

    @property
    def active(self) -> bool:
        """Return whether waves are under way."""
        return self._windows is not None

    def pay(self, capacity: Capacity, width: int) -> bool:
        """Return whether waves should take over from the best-first search.

        They should if the capacity cannot hold all nodes and too many rows could be
        evaluated twice: those that were, and those that may have to be after one more
        best-first call of `width` nodes, exceed the share `MAX_AHEAD` of all rows.
        """
        if self._n_required - 1 <= capacity.nodes and self._n_required_leaves <= capacity.sequences:
            return False  # nothing will be dropped, so no row is evaluated twice
        n_carrying = int(np.count_nonzero(self._carries & self._reader.evaluated))
        ahead = self._live.n_repeated + self.n_repeated + n_carrying + width * self._depth
        return ahead > MAX_AHEAD * self._n_required

    @property
    def are_stale(self) -> bool:
        """Return whether enough rows were read since `lay_out` to lay out anew.

        The new rows may rule out some of the nodes that are left.
        """
        # Laying out again repeats one path, 3 % at most.
        pause = max(self._n_required // 8, 32 * self._depth)
        return self._reader.n_evaluated - self._laid_out_at > pause

    def lay_out(self, matters: BoolArray) -> None:
        """Begin waves over the nodes of `matters` whose rows are needed, or begin anew.

        Their ancestors are asked for too, because a node is evaluated below its parent.

        Args:
            matters: bool[N], the nodes that the search may still need.
        """
        wanted = matters & self._needs.row & ~self._reader.evaluated
        if self._windows is None:
            self._leaving = np.concatenate([self._leaving, self._live.drop_all()])
        self.end()
        self._windows = DepthFirstWindows(DepthFirstOrder(self._trie, wanted), self._live.next_local)
        self._laid_out_at = self._reader.n_evaluated

    def end(self) -> None:
        """End the waves; the next ask releases the nodes that they hold.

        The best-first search starts again from the root.
        """
        if self._windows is not None:
            self._leaving = np.concatenate([self._leaving, self._windows.held])
            self._windows = None

    def next(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next wave and the nodes whose rows it wants, int32[].

        None means that no wave is left; `active` is then false.
        """
        window = None if self._windows is None else self._windows.next_window(capacity)
        if self._windows is not None:
            self._live.next_local = self._windows.next_local
        if window is None:
            self.end()
            return None
        ask, wanted = window
        self.n_repeated += len(ask.tokens) - len(wanted)
        return self.releasing(replace(ask, again=~ask.wanted)), wanted

    def releasing(self, ask: Ask) -> Ask:
        """Return `ask`, extended to release the nodes that the other side held."""
        leaving, self._leaving = self._leaving, NOTHING
        return replace(ask, release=np.concatenate([ask.release, leaving])) if len(leaving) else ask


@dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """The rows that a search of a trie evaluated, and the certificate that they give.

    The log-probabilities are conditional on the healed bytes.

    Attributes:
        evaluation: The numbers that were read from the trie's rows.
        proved: Whether no unresolved path can be among the first k.
        bound_gap: Score of the k-th minus the best open bound; inf where nothing is
            open.
        open_mass: Bound on the probability of all unresolved paths.
        log_open: Log of a bound on the summed exp(score) of all unresolved paths, for
            `posterior`.
        n_evaluated: How many rows were read, the root's included.
        n_required: How many rows exhaustive scoring reads, the root's included.
        n_repeated: How many rows were asked for again after they were dropped.
    """

    evaluation: TrieEvaluation
    proved: bool
    bound_gap: float
    open_mass: float
    log_open: float
    n_evaluated: int
    n_required: int
    n_repeated: int


class BestFirst(TaskBase[IntArray, SearchOutcome]):
    """Finds the k best paths of a trie below a prompt.

    A node is open if its row is needed and was not evaluated, but its parent's row was.
    Open nodes are evaluated best bound first, until none can come within tolerance of
    the k-th best. A call evaluates `search.width` nodes, and more as the search goes
    on. The path of masked greedy decoding is always evaluated if the budget lasts. The
    nodes of `needs.observe`, whose rows give the probability of the healed bytes, are
    evaluated even beyond the budget: without them no log-probability is known.

    If bytes were healed and the objective divides by lengths, `heal` is required,
    because the order of the scores depends on the probability of the healed bytes.
    These nodes are then evaluated first.

    If the capacity cannot hold the whole trie, rows may have to be evaluated again.
    Once these could exceed the share `depth_first.MAX_AHEAD` of all rows, depth-first
    waves evaluate the nodes that still matter.

    Args:
        fill_rows: Asks are filled up to a multiple of this number of rows, at least 1.
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
        self._fill_rows = fill_rows
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
        return self._reader.reads(nodes)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        if len(nodes) == 0:
            return
        bounded = self._frontier.read(nodes, rows)
        waiting = self._frontier.waiting(bounded)
        self._add_open(waiting, self._frontier.upper(waiting, cautious=True))
        if self._frontier.ready:
            self._follow_greedy()

    def _add_open(self, nodes: IntArray, bounds: FloatArray) -> None:
        self._open.add(RowChildren(ROOT, 0.0, nodes, bounds, bounds))

    def _follow_greedy(self) -> None:
        stop = self._reader.rest.low if self._frontier.continues else self._reader.eog_logp
        while self._greedy != NO_NODE and self._reader.evaluated[self._greedy]:
            if not self._trie.n_nodes_below[self._greedy]:
                self._greedy = NO_NODE
                return
            self._greedy = greedy_child(self._trie, self._reader.edge_logp, stop, self._greedy)
        if self._greedy != NO_NODE and not self._needs.row[self._greedy]:
            self._greedy = NO_NODE

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        # Also before the last ask: `result` reads the refreshed state.
        self._frontier.refresh()
        budget = self._search.budget_nodes
        left = self._n_required if budget is None else budget - self._reader.n_evaluated
        if left <= 0 and (required := self._required() or self._towards_a_value()):
            self._waves.end()
            return self._ask_best(required, np.inf, replace(capacity, rows=min(capacity.rows, len(required))))
        capacity = replace(capacity, rows=min(capacity.rows, max(left, 1)))
        while left > 0:
            threshold = self._threshold()
            required, refining = self._required(), self._refining(threshold)
            goes_on = self._goes_on(threshold) or bool(refining)
            if not required and not goes_on:
                break
            if goes_on and not self._waves.active and self._turns_to_waves(capacity):
                self._waves.lay_out(self._what_matters(threshold))
            if not self._waves.active:
                return self._ask_best([*required, *refining], threshold if goes_on else np.inf, capacity)
            wave = self._next_wave(threshold, capacity)
            if wave is not None:
                return wave
        return None

    def _threshold(self) -> float:
        """Return the score below which open nodes need not be evaluated.

        No lower score can come within tolerance of the k-th best.
        """
        if self._search.stop != "best":
            return -np.inf
        kth, tolerance = self._incumbents.threshold()
        return kth - tolerance - self._frontier.margin

    def _goes_on(self, threshold: float) -> bool:
        """Return whether the search must evaluate further open nodes.

        It must if a bound reaches `threshold`, or if the search evaluates all.
        """
        if not self._frontier.ready:
            return False
        if self._search.stop == "all":
            return self._reader.n_evaluated < self._n_required
        best = self._open.best()
        if best < max(threshold, MIN_BOUND):
            return False
        return self._search.stop != "mass" or not self._frontier.holds_mass(self._search.mass)

    def _required(self) -> list[int]:
        """Return the nodes to evaluate regardless of their bounds.

        Those are the nodes of `needs.observe` and the next node of the greedy path.
        """
        nodes = self._frontier.unobserved()
        if self._frontier.ready and self._greedy != NO_NODE:
            nodes.append(self._greedy)
        return nodes

    def _refining(self, threshold: float) -> list[int]:
        """Return open nodes whose rows narrow the intervals of candidates.

        They decide how likely a candidate's choice is to be continued. For each
        candidate, the most probable nodes are returned, until the others are too
        improbable to matter, so that one call narrows most of its interval.
        """
        if not self._frontier.ready or not self._frontier.continues:
            return []
        nodes: list[int] = []
        for candidate in self._incumbents.unsettled(threshold, self._frontier.margin):
            nodes += self._frontier.deciding(candidate, self._fill_rows)
        return nodes[: 4 * self._width]

    def _towards_a_value(self) -> list[int]:
        """Return the nodes to evaluate beyond the budget until some path has a score.

        None are needed once a path of a probability above zero has one. The result is
        the deepest open node, or else the nodes on which the exact score of the best
        candidate still depends. Following masked greedy decoding would not be enough: a
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
        return self._frontier.deciding(max(candidates, key=lambda c: (c.lower, c.upper, -c.node)), self._fill_rows)

    @property
    def _width(self) -> int:
        """Return how many nodes a call takes.

        The number grows as the search goes on, so that a long search needs few calls.
        """
        return max(self._search.width, self._reader.n_evaluated // 4)

    def _ask_best(self, first: list[int], threshold: float, capacity: Capacity) -> tuple[Ask, IntArray]:
        """Return an ask for the nodes `first` and then for the best open nodes.

        Args:
            first: Nodes that are asked for regardless of their bounds: those of
                `_required` and `_refining`.
            threshold: The least bound of an open node that is asked for. Lower ones
                only fill the call up to a multiple of `fill_rows` rows.
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
                self._ahead(list(targets), min(-len(targets) % self._fill_rows, capacity.rows - len(targets)))
            )
        )
        while len(targets) % self._fill_rows and self._frontier.ready and self._open.best() >= MIN_BOUND:
            taken.append(self._open.pop())
            targets[taken[-1].token] = None
        ask, nodes = self._live.plan(list(targets), self._reader.evaluated, capacity)
        planned = set(nodes)
        left = [entry for entry in taken if entry.token not in planned]
        self._add_open(np.array([e.token for e in left], dtype=np.int32), np.array([e.bound for e in left]))
        return self._waves.releasing(ask), np.array(nodes, dtype=np.int32)

    def _ahead(self, targets: list[int], spare: int) -> list[int]:
        """Return nodes below targets that are the only child of their parent.

        They are certain to be needed next, so evaluating them now saves a call. At most
        `spare` nodes are returned.
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

    def _turns_to_waves(self, capacity: Capacity) -> bool:
        return self._search.stop == "all" or self._waves.pay(capacity, self._width)

    def _what_matters(self, threshold: float) -> BoolArray:
        """Return bool[N], the nodes that the search may still need.

        All nodes below them are included.

        Those are open nodes with bounds of at least `threshold`, and the nodes of
        `_refining`.
        """
        if self._search.stop == "all":
            return np.ones(len(self._trie.token), dtype=np.bool_)
        nodes = self._frontier.open_nodes()
        nodes = nodes[self._frontier.upper(nodes, cautious=True) >= max(threshold, MIN_BOUND)]
        nodes = np.concatenate([nodes, np.array(self._refining(threshold), dtype=np.int32)]).astype(np.int32)
        marks = np.zeros(len(self._trie.token) + 1, dtype=np.int64)
        np.add.at(marks, nodes, 1)
        np.add.at(marks, nodes + self._trie.n_nodes_below[nodes] + 1, -1)
        return np.asarray(np.cumsum(marks[:-1]) > 0)

    def _next_wave(self, threshold: float, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next ask of a depth-first wave with its nodes, or None at the end.

        The best-first search then goes on with nothing held.
        """
        if self._search.stop == "best" and self._waves.are_stale:
            self._waves.lay_out(self._what_matters(threshold))
        return self._waves.next(capacity)

    def _result(self) -> SearchOutcome:
        proved, gap = self._frontier.proves()
        open_mass, log_open = self._frontier.left_open()
        return SearchOutcome(
            evaluation=self._reader.evaluation(),
            proved=proved,
            bound_gap=gap,
            open_mass=open_mass,
            log_open=log_open,
            n_evaluated=self._reader.n_evaluated,
            n_required=self._n_required,
            n_repeated=self._live.n_repeated + self._waves.n_repeated,
        )
