"""Best-first search of a trie: the exact k best paths with a certificate, from as few rows as their bounds allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from selectrie import numerics
from selectrie.errors import ProtocolError
from selectrie.model import Rows
from selectrie.options import Search
from selectrie.scoring import (
    RESOLVED,
    Bounds,
    Objective,
    RowNeeds,
    TrieEvaluation,
    TrieReader,
    greedy_child,
    owners,
)
from selectrie.tasks import Ask, check_count
from selectrie.tasks.live_nodes import LiveNodes
from selectrie.tasks.open_nodes import OpenNodes
from selectrie.tasks.score import check_room
from selectrie.tasks.standings import Contender, Standings, no_owner
from selectrie.tasks.waves import Waves
from selectrie.trie import TokenTrie
from selectrie.types import NO_NODE, NO_PATH, ROOT, BoolArray, FloatArray, IntArray, Room

ROUNDING = 1e-6
"""Nats by which a bound may be undercut by rounding: a row's log-sum-exp is within 1e-7, paths add up a few of them."""

GRANULE = 8
"""Rows that a call is filled up to: a call of 8k + 1 rows costs what 8k + 8 do where it is padded."""

LEAST = float(np.finfo(np.float64).min)
"""The least bound above -inf."""

Heal = Callable[[FloatArray, FloatArray], float]
"""(edge_logp, observed) of a `TrieEvaluation` -> log-probability of the healed bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """What a search evaluated, and what that proves.

    proved: no path that is not resolved can be among the first k. bound_gap: score of the k-th less the best bound left
    open, inf where nothing is open. open_mass: bound on the probability of all paths not resolved. log_open: log of a bound
    on their summed exp(score), for `posterior`. Healed bytes are taken off in all of them.
    n_evaluated of n_needed: rows read, of those exhaustive scoring reads (the root's in both). n_repeated: rows asked for
    again after they were dropped.
    """

    evaluation: TrieEvaluation
    proved: bool
    bound_gap: float
    open_mass: float
    log_open: float
    n_evaluated: int
    n_needed: int
    n_repeated: int


class BestFirst:
    """Finds the k best paths of a trie below a prompt.

    Open nodes are evaluated by bound, `search.width` a call and more as the search goes on, until nothing open can come
    within tolerance of the k-th best. Masked greedy decoding's path is always evaluated where the budget lasts, the observed
    nodes even where it does not: without them no log-probability is known.
    An objective of means needs `heal` where bytes were healed, for their order depends on it: the observed nodes then come
    first. Where the room does not hold the trie and the search has spent as much as `waves.MOST_AHEAD` allows, depth-first
    waves over what still matters take over.
    """

    def __init__(
        self,
        prompt: IntArray,
        trie: TokenTrie,
        needs: RowNeeds,
        terminator: str,
        *,
        objective: Objective,
        search: Search,
        heal: Heal | None = None,
    ) -> None:
        self._prompt, self._trie, self._needs = prompt, trie, needs
        self._terminator, self._objective, self._search, self._heal = terminator, objective, search, heal
        self._reader = TrieReader(trie, needs)
        self._continues = terminator == "unless-continued"
        self._bounds = Bounds(trie, objective, inclusive=self._continues or terminator == "eog")
        self._owner = owners(trie) if self._continues else no_owner(len(trie.token))
        self._n_owned = np.bincount(self._owner[trie.inner & (self._owner != NO_NODE)], minlength=len(trie.token))
        self._prefix: FloatArray = np.full(len(trie.token), np.nan)
        self._prefix[ROOT] = 0.0
        self._open = OpenNodes(self._reader.evaluated)
        self._standings = Standings(trie, objective, self._reader, search.k)
        carries = np.zeros(len(trie.token), dtype=np.bool_)
        carries[trie.parent[1:][needs.row[1:]]] = True
        self._live = LiveNodes(trie, carries)
        self._n_needed = needs.n_rows
        self._floor = Room(rows=1, nodes=int(trie.depth[needs.row].max()), branches=1)
        self._waves = Waves(trie, needs, self._reader, self._live, carries=carries, depth=self._floor.nodes)
        self._greedy = ROOT
        self._unhealed: list[IntArray] | None = [] if heal is not None and objective.divides else None
        self._chain = longest_chain(trie) if terminator in ("none", "text") else 1
        self._expected: IntArray | None = np.array([ROOT], dtype=np.int32)
        self._finished = False

    @property
    def prompt(self) -> IntArray:
        return self._prompt

    @property
    def floor(self) -> Room:
        return self._floor

    @property
    def n_evaluated(self) -> int:
        """Rows read so far."""
        return self._reader.n_evaluated

    def tell(self, rows: Rows) -> None:
        if self._expected is None:
            raise ProtocolError("told rows that were not asked for")
        check_count(rows, len(self._expected))
        nodes, self._expected = self._expected, None
        if len(nodes) == 0:
            return
        self._reader.read(nodes, rows)
        self._extend_prefixes(nodes)
        if self._unhealed is not None:
            self._unhealed.append(nodes)
            if not all(self._reader.evaluated[node] for node, _ in self._needs.observe):
                return
            nodes, self._unhealed = np.concatenate(self._unhealed), None
            self._standings.log_heal = self._log_heal()
        self._open_children(nodes)
        self._finish_paths(nodes)
        self._follow_greedy()

    def _log_heal(self) -> float:
        """Log-probability of the healed bytes; 0 where they have none, for then no path below has any to be raised."""
        log_heal = 0.0 if self._heal is None else self._heal(self._reader.edge_logp, self._reader.observed)
        return log_heal if log_heal > -np.inf else 0.0

    def _extend_prefixes(self, nodes: IntArray) -> None:
        """Log-probabilities of the children's prefixes, parents first: a call may hold a node and its child."""
        depths = self._trie.depth[nodes]
        for depth in np.unique(depths):
            children, owner = self._reader.children(nodes[depths == depth])
            above = self._prefix[nodes[depths == depth]][owner]
            counts = self._trie.depth[children] > self._objective.first_scored
            self._prefix[children] = above + np.where(counts, self._reader.edge_logp[children], 0.0)

    def _open_children(self, nodes: IntArray) -> None:
        children, _ = self._reader.children(nodes)
        waiting = children[self._needs.row[children] & ~self._reader.evaluated[children]]
        self._open.add(waiting, self._upper(waiting, cautious=True))

    def _upper(self, nodes: IntArray, *, cautious: bool = False) -> FloatArray:
        return self._bounds.upper(nodes, self._prefix[nodes] - self._standings.log_heal, cautious=cautious)

    def _finish_paths(self, nodes: IntArray) -> None:
        """Paths that the rows of `nodes` make certain, and ends whose intervals they narrow."""
        trie, standings = self._trie, self._standings
        if self._terminator == "eog":
            ends = nodes[trie.end_path[nodes] != NO_PATH]
            standings.finish(trie.end_path[ends], self._prefix[ends] + self._reader.eog_logp[ends])
            return
        children, _ = self._reader.children(nodes)
        is_end = trie.end_path[children] != NO_PATH
        if self._continues:
            is_end &= ~trie.inner[children]
            touched = self._owner[nodes[trie.inner[nodes]]]
            touched = touched[touched != NO_NODE]
            alone = touched[self._n_owned[touched] == 1]  # its own row says everything: no interval to keep
            standings.finish(trie.end_path[alone], self._prefix[alone] + self._reader.rest_logp[alone])
            standings.touch(touched[self._n_owned[touched] > 1])
        ends = children[is_end]
        standings.finish(trie.end_path[ends], self._prefix[ends])
        if ROOT in nodes and trie.end_path[ROOT] != NO_PATH and not (self._continues and trie.inner[ROOT]):
            standings.finish(trie.end_path[:1], np.zeros(1))

    def _follow_greedy(self) -> None:
        stop = self._reader.rest_logp if self._continues else self._reader.eog_logp
        while self._greedy != NO_NODE and self._reader.evaluated[self._greedy]:
            if not self._trie.n_nodes_below[self._greedy]:
                self._greedy = NO_NODE
                return
            self._greedy = greedy_child(self._trie, self._reader.edge_logp, stop, self._greedy)
        if self._greedy != NO_NODE and not self._needs.row[self._greedy]:
            self._greedy = NO_NODE

    def ask(self, room: Room) -> Ask | None:
        if self._expected is not None:
            raise ProtocolError("asked again before the rows of the last ask were told")
        check_room(room, self._floor)
        self._standings.refresh(self._owner, self._prefix)  # also before the last ask: `result` reads what it leaves
        budget = self._search.budget_nodes
        left = self._n_needed if budget is None else budget - self._reader.n_evaluated
        if left <= 0 and (required := self._required() or self._towards_a_value()):
            self._waves.end()
            return self._ask_best(required, np.inf, replace(room, rows=min(room.rows, len(required))))
        room = replace(room, rows=min(room.rows, max(left, 1)))
        while left > 0:
            at_least = self._at_least()
            required, refining = self._required(), self._refining(at_least)
            goes_on = self._goes_on(at_least) or bool(refining)
            if not required and not goes_on:
                break
            if goes_on and not self._waves.active and self._turns_to_waves(room):
                self._waves.lay_out(self._what_matters(at_least))
            if not self._waves.active:
                return self._ask_best([*required, *refining], at_least if goes_on else np.inf, room)
            ask = self._ask_wave(at_least, room)
            if ask is not None:
                return ask
        self._finished = True
        return None

    def _at_least(self) -> float:
        """Bounds below this do not matter any more: no score there can come within tolerance of the k-th best."""
        if self._search.stop != "best":
            return -np.inf
        kth, tolerance = self._standings.threshold()
        return kth - tolerance - ROUNDING

    def _goes_on(self, at_least: float) -> bool:
        """Some open node still matters."""
        if self._unhealed is not None:
            return False
        if self._search.stop == "all":
            return self._reader.n_evaluated < self._n_needed
        best = self._open.best()
        if best < max(at_least, LEAST):
            return False
        return self._search.stop != "mass" or not self._holds_mass()

    def _required(self) -> list[int]:
        """Nodes to evaluate whatever their bounds: the observed ones, and the next one of the greedy path."""
        nodes = self._unobserved()
        if self._unhealed is None and self._greedy != NO_NODE:
            nodes.append(self._greedy)
        return nodes

    def _unobserved(self) -> list[int]:
        return [node for node, _ in self._needs.observe if not self._reader.evaluated[node]]

    def _refining(self, at_least: float) -> list[int]:
        """Open nodes that decide how likely a contender is continued: for each as many of the heaviest as
        leave too little mass to matter, so that one call settles most of it."""
        if self._unhealed is not None or not self._continues:
            return []
        nodes: list[int] = []
        for contender in self._standings.unsettled(at_least, ROUNDING):
            nodes += self._deciding(contender)
        return nodes[: 4 * self._width]

    def _deciding(self, contender: Contender) -> list[int]:
        """Open nodes that this end owns, heaviest first, without those too light to matter."""
        start, stop = contender.node, contender.node + int(self._trie.n_nodes_below[contender.node]) + 1
        waits = (self._owner[start:stop] == start) & self._needs.row[start:stop]
        waits &= ~self._reader.evaluated[start:stop] & (self._prefix[start:stop] > -np.inf)
        own = np.flatnonzero(waits) + start
        own = own[np.argsort(-self._prefix[own], kind="stable")]
        lighter = np.logaddexp.accumulate(self._prefix[own][::-1])[::-1]  # each with all lighter ones
        enough = contender.logp_lower + np.log(RESOLVED / 2)
        matter: list[int] = own[: max(GRANULE, int(np.count_nonzero(lighter > enough)))].tolist()
        return matter

    def _towards_a_value(self) -> list[int]:
        """What to evaluate beyond the budget while no path with any probability has a value: straight down to an end,
        else what settles the best contender. Masked greedy decoding's path may be excluded, or end at a contender."""
        if self._standings.log_resolved() > -np.inf:
            return []
        nodes = self._open_nodes()
        bounds = self._upper(nodes)
        if len(nodes) and bounds.max() > -np.inf:
            down = np.where(bounds > -np.inf, self._trie.depth[nodes], 0)
            return [int(nodes[np.lexsort((-bounds, -down))[0]])]
        contenders = [c for c in self._standings.unresolved() if c.upper > -np.inf]
        return self._deciding(max(contenders, key=lambda c: (c.lower, c.upper, -c.node))) if contenders else []

    @property
    def _width(self) -> int:
        """Nodes a call: more as the search goes on, so that a long one takes few calls."""
        return max(self._search.width, self._reader.n_evaluated // 4)

    def _ask_best(self, first: list[int], at_least: float, room: Room) -> Ask:
        """Evaluate `first` (what is required or settles contenders), then open nodes, best bound first."""
        targets = dict.fromkeys(first)  # a set that keeps its order
        taken: list[tuple[int, float]] = []
        while len(targets) + len(taken) < self._width and self._open.best() >= max(at_least, LEAST):
            taken.append(self._open.pop())
        taken.sort(key=lambda entry: int(self._trie.parent[entry[0]]) not in self._live)
        targets.update(dict.fromkeys(node for node, _ in taken))
        targets.update(
            dict.fromkeys(self._ahead(list(targets), min(-len(targets) % GRANULE, room.rows - len(targets))))
        )
        while len(targets) % GRANULE and self._unhealed is None and self._open.best() >= LEAST:
            taken.append(self._open.pop())
            targets[taken[-1][0]] = None
        ask, self._expected = self._live.plan(list(targets), self._reader.evaluated, room)
        asked = set(self._expected.tolist())
        self._open.put_back([entry for entry in taken if entry[0] not in asked])
        return self._waves.releasing(ask)

    def _ahead(self, targets: list[int], spare: int) -> list[int]:
        """Only children of targets, as far down as they are alone: they follow for certain, so they save a call."""
        nodes: list[int] = []
        for target in targets:
            node = target
            while len(nodes) < spare and self._trie.child_start[node + 1] - self._trie.child_start[node] == 1:
                node = int(self._trie.children(node)[0])
                if not self._needs.row[node]:
                    break
                nodes.append(node)
        return nodes

    def _turns_to_waves(self, room: Room) -> bool:
        return self._search.stop == "all" or self._waves.pay(room, self._width)

    def _what_matters(self, at_least: float) -> BoolArray:
        """bool[N]: open nodes with bounds of `at_least` and those that settle contenders, with all below them."""
        if self._search.stop == "all":
            return np.ones(len(self._trie.token), dtype=np.bool_)
        nodes = self._open_nodes()
        nodes = nodes[self._upper(nodes, cautious=True) >= max(at_least, LEAST)]
        nodes = np.concatenate([nodes, np.array(self._refining(at_least), dtype=np.int32)]).astype(np.int32)
        marks = np.zeros(len(self._trie.token) + 1, dtype=np.int64)
        np.add.at(marks, nodes, 1)
        np.add.at(marks, nodes + self._trie.n_nodes_below[nodes] + 1, -1)
        return np.asarray(np.cumsum(marks[:-1]) > 0)

    def _ask_wave(self, at_least: float, room: Room) -> Ask | None:
        """The next wave; None when they are through, and best first goes on with nothing held."""
        if self._search.stop == "best" and self._waves.are_stale:
            self._waves.lay_out(self._what_matters(at_least))
        window = self._waves.next(room)
        if window is None:
            return None
        ask, self._expected = window
        return ask

    def _open_nodes(self) -> IntArray:
        """Nodes that are needed and not evaluated, below evaluated ones, with any probability."""
        children, _ = self._reader.children(np.flatnonzero(self._reader.evaluated).astype(np.int32))
        waits = self._needs.row[children] & ~self._reader.evaluated[children] & (self._prefix[children] > -np.inf)
        return children[waits]

    def _log_open(self) -> float:
        """Log of a bound on the summed exp(score) of all paths that are not resolved.

        Disjoint events cannot weigh more than the mass they share, times the longest chain of paths that contain one
        another (1 but for terminators none and text); where the score is no joint, each may weigh as much as the bound.
        """
        nodes = self._open_nodes()
        is_joint = not self._objective.divides and not self._objective.first_scored
        count = np.full(len(nodes), self._chain) if is_joint else self._bounds.n_paths[nodes]
        with np.errstate(divide="ignore"):
            weights = self._upper(nodes) + np.log(count)
        return numerics.logsumexp(np.append(weights, [c.upper for c in self._standings.unresolved()]))

    def _holds_mass(self) -> bool:
        """The resolved paths hold `search.mass` of the set's probability."""
        finished = self._standings.log_resolved()
        return bool(finished - np.logaddexp(finished, self._log_open()) >= np.log(self._search.mass))

    def result(self) -> SearchOutcome:
        if not self._finished:
            raise ProtocolError("no result before ask returned None")
        nodes = self._open_nodes()
        proved, gap = self._standings.proves(float(self._upper(nodes).max(initial=-np.inf)), ROUNDING)
        count = self._bounds.n_paths[nodes] if self._objective.first_scored else np.full(len(nodes), self._chain)
        mass = self._prefix[nodes] + np.log(np.maximum(count, 1))
        mass = np.append(mass, [c.logp_upper for c in self._standings.unresolved()])
        log_heal = self._log_heal()
        return SearchOutcome(
            evaluation=self._reader.evaluation(),
            proved=proved,
            bound_gap=gap,
            open_mass=float(numerics.exp(np.array(numerics.logsumexp(mass) - log_heal))),
            log_open=self._log_open() - (log_heal - self._standings.log_heal),  # what no bound is without yet
            n_evaluated=self._reader.n_evaluated,
            n_needed=self._n_needed,
            n_repeated=self._live.repeated + self._waves.n_repeated,
        )


def longest_chain(trie: TokenTrie) -> int:
    """Most paths that end on one way from the root: how many events can share the same mass."""
    return int(trie.accumulate((trie.end_path != NO_PATH).astype(np.float64)).max())
