"""Best-first search for the exact k best texts of an automaton, with a certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from selectrie.core.automaton import Automaton, allows
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, Capacity, FloatArray, IntArray
from selectrie.decoding.automaton.automaton_task import (
    AutomatonOutcome,
    AutomatonSpec,
    AutomatonTask,
    FinishedPath,
    FinishedPaths,
    canonical_paths,
)
from selectrie.decoding.scoring.tolerance import ROUNDING
from selectrie.decoding.search_state import (
    FILL_ROWS,
    MAX_KEPT,
    MIN_BOUND,
    NO_STATE,
    Open,
    OpenList,
    PathTree,
    RowChildren,
)
from selectrie.decoding.task import Ask
from selectrie.errors import OptionError

Grow = Callable[[int, int, float], int]
"""Adds a token after a node: maps (parent, token, logp) to the token's node."""
LogpOf = Callable[[int, int], float | None]
"""Maps (evaluated node, next token) to its log-probability; None if not kept."""


class RowEnds(NamedTuple):
    """How a row lets masked greedy decoding (the best allowed token) end or go on.

    Attributes:
        end_logp: Log-probability that the text ends: by an end-of-generation token, or
            because no token continues it.
        token, logp: The most probable allowed token, and its log-probability. NO_TOKEN
            if there is none, or if none was read; `logp` is then a bound.
    """

    end_logp: float
    token: int
    logp: float


class FirstPath:
    """Follows masked greedy decoding through evaluated nodes, to find a text early.

    The path ends where no allowed token is more probable than the end of the text. If
    `canonical_path` returns other tokens for its text, those are followed next.

    Args:
        tree: The paths of the search.
        rows: What each evaluated row says about greedy decoding.
        logp_of: Returns a token's log-probability after an evaluated node.
        grow: Adds a token after a node.
        canonical_path: As in `AutomatonSpec`.

    Attributes:
        greedy: The last node of the greedy path so far.
        greedy_ended: Whether the greedy path has become a text.
        at: The last node of the path that is followed now.
    """

    def __init__(
        self,
        tree: PathTree,
        rows: Mapping[int, RowEnds],
        logp_of: LogpOf,
        grow: Grow,
        canonical_path: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        self._tree, self._rows, self._logp_of, self._grow = tree, rows, logp_of, grow
        self._canonical_path = canonical_path
        self.greedy, self.greedy_ended = ROOT, False
        self._others: Sequence[int] | None = None
        self.at = ROOT

    def follow(self, *, ends_by_token: bool) -> int:
        """Go on through evaluated nodes; return the last node of the path.

        Its row is needed to go on if it is not evaluated. `NO_NODE` if the path leads
        nowhere.

        Args:
            ends_by_token: Whether a text ends only with a token (terminator "eog").
        """
        if not self.greedy_ended and self._others is None:
            self.at = self._follow_greedy(ends_by_token=ends_by_token)
            if not self.greedy_ended:
                return self.at
        if self._others is None:
            path = list(self._tree.tokens(self.greedy))
            canonical = path if self._canonical_path is None else list(self._canonical_path(path))
            self._others, self.at = (canonical, ROOT) if canonical != path else ((), self.greedy)
        return self._follow_others(self._others)

    def turn_to(self, tokens: Sequence[int]) -> None:
        """Follow these tokens from now on, starting at the root."""
        self._others, self.at = tokens, ROOT

    def _follow_greedy(self, *, ends_by_token: bool) -> int:
        """Extend the greedy path through evaluated nodes; return its last node.

        NO_NODE if it can neither end nor go on.
        """
        tree = self._tree
        while not self.greedy_ended and tree.evaluated[self.greedy]:
            node, row = self.greedy, self._rows[self.greedy]
            if tree.can_end[node] and row.end_logp >= row.logp:
                self.greedy_ended = True
            elif row.token == NO_TOKEN:
                return NO_NODE
            else:
                self.greedy = self._grow(node, row.token, row.logp)
                if tree.can_end[self.greedy] and not tree.goes_on[self.greedy] and not ends_by_token:
                    self.greedy_ended = True
        return self.greedy

    def _follow_others(self, tokens: Sequence[int]) -> int:
        """Follow given tokens through evaluated nodes; return the last node.

        NO_NODE if a token's log-probability is not kept.
        """
        tree = self._tree
        while tree.evaluated[self.at] and tree.depth[self.at] < len(tokens):
            token = tokens[tree.depth[self.at]]
            logp = self._logp_of(self.at, token)
            if logp is None:  # too improbable to be remembered
                return NO_NODE
            self.at = self._grow(self.at, token, logp)
        return self.at


NEAR = 1.0
"""Nats below the best bound within which a call takes more nodes than `fill_rows`.

Without this limit, the number of nodes grows by a quarter with each token of a text.
"""
N_TOP_TOKENS = 10
"""Number of most probable tokens after the prompt in `AutomatonOutcome.top_tokens`."""


class AutomatonSearch(AutomatonTask[AutomatonOutcome]):
    """Finds the k best texts of an automaton below a prompt.

    An open path cannot score more than its sum of log-probabilities (over `max_tokens`,
    for means), since each further token can only lower it. Open paths are evaluated in
    the order of that bound. A call takes `fill_rows` of them, and then those within
    `NEAR` nats of the best bound, up to `search.width` in all. This limit grows as the
    search goes on. The search ends when no open path can reach the k-th best.

    The path of masked greedy decoding is followed at the same time, and then the
    canonical path of its text. These (the "first path") give an early text, which lets
    the search drop open paths. Of `search.budget_nodes`, as many rows are reserved as a
    path of `max_tokens` may still need.

    Rows that only the probability of the healed bytes needs are read first and do not
    count towards the budget. If the budget is used up before a text was found, at most
    `max_tokens` further rows are spent on the canonical paths of texts whose finished
    paths were not canonical.

    Args:
        prompt: int32[T], the tokens before the texts.
        spec: The limits and the kind of texts.
        on_found: Called with each finished text that is the best so far.
        fill_rows: The number of rows of an ask is a multiple of this, at least 1.
    """

    def __init__(
        self,
        prompt: IntArray,
        automaton: Automaton,
        spec: AutomatonSpec,
        *,
        on_found: Callable[[FinishedPath], None] | None = None,
        fill_rows: int = FILL_ROWS,
    ) -> None:
        super().__init__(prompt, automaton, spec)
        self._on_found, self._fill_rows = on_found, fill_rows
        if self._ends_at_once(ROOT):
            raise OptionError(
                "terminator", "none", "'eog': the empty text is accepted, and its probability is 1 without one"
            )
        self._is_eog = spec.terminator == "eog"
        self._row_ends: dict[int, RowEnds] = {}
        self._open = OpenList()
        self._finished = FinishedPaths(spec.search.k, merges=spec.merge_equal_text)
        self._log_heal = 0.0
        self._is_ready = not spec.healed
        # Nodes and children read before the probability of the healed bytes is known.
        self._unread: list[tuple[int, IntArray, FloatArray]] = []
        # Of these nodes, bounds on each token that was not read, and on all of them.
        self._beyond: dict[int, tuple[float, float]] = {}
        self._best_unread = -np.inf
        self._first = FirstPath(self._tree, self._row_ends, self._known_logp, self._child, spec.canonical_path)
        # A node that replaces another one whose remaining children are to be read.
        self._again: dict[int, tuple[int, range | None]] = {}
        self._top_tokens: tuple[IntArray, FloatArray] = np.empty(0, dtype=np.int32), np.empty(0)
        self._cut_logp = -np.inf  # of the best prefix that was left out
        # Of texts that came too late to matter.
        self._refused_mass, self._refused_best = 0.0, -np.inf
        self._n_dead_ends = 0
        # Minus score and last node of texts in tokens that do not count.
        self._other: list[tuple[float, int]] = []
        self._last = self._last_nodes()

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, list[int]] | None:
        """Return the next ask and the nodes whose rows it wants; None at the end."""
        if self._healing.waiting != NO_NODE:
            return self._make_ask([self._healing.waiting], {}, capacity)
        budget = self._spec.search.budget_nodes
        left = capacity.rows if budget is None else budget - self.n_evaluated
        if left > 0:
            targets, bounds = self._choose_targets(
                min(left, self._width, capacity.rows), left if budget is not None else None
            )
            if targets:
                return self._make_ask(targets, bounds, replace(capacity, rows=min(capacity.rows, left)))
        # With what was read last, the path may have become a text.
        self._next_of_first_path()
        node = next(self._last, NO_NODE) if left <= 0 else NO_NODE
        if node != NO_NODE:
            return self._make_ask([node], {}, capacity)
        return None

    def _result(self) -> AutomatonOutcome:
        """Return the texts found so far, with the certificate."""
        kth, best = self._finished.kth(), max(self._open.best(), self._open.dropped_best, self._refused_best)
        return AutomatonOutcome(
            paths=self._finished.ranked(),
            proved=best == -np.inf or best < kth - ROUNDING,
            bound_gap=np.inf if best == -np.inf else kth - best,
            best_open=best,
            best_unread=self._best_unread,
            open_mass=self._open_mass(),
            cut_bound=self._cut_bound(),
            greedy=np.array(self._tree.tokens(self._first.greedy), dtype=np.int32),
            greedy_ended=self._first.greedy_ended,
            strings=self._spec.canonical is not None,
            heal=self._healing.log_heal(),
            top_tokens=self._top_tokens,
            n_evaluated=self.n_evaluated,
            n_steps=max(self._tree.depth),
            n_repeated=self._live.n_repeated,
            n_dead_ends=self._n_dead_ends,
            n_other=len(self._other),
        )

    @property
    def _width(self) -> int:
        """Return the maximum number of nodes of the next call.

        It is a multiple of `fill_rows`, and grows with the search. Until there is a
        text it grows slowly, since each call takes the first path one token further.
        """
        grown = self.n_evaluated // (4 if len(self._finished) else 16)
        return -(-max(self._spec.search.width, grown) // self._fill_rows) * self._fill_rows

    def _threshold(self) -> float:
        """Return the score below which open paths cannot be among the results."""
        if self._spec.search.stop != "best":
            return -np.inf
        return max(self._finished.kth(), self._spec.min_score) - ROUNDING - self._spec.tolerance

    def _choose_targets(self, max_targets: int, left: int | None) -> tuple[list[int], dict[int, float]]:
        """Return the nodes to evaluate, and the bounds of those taken from the queue.

        The node that the first path needs next is among them.

        Args:
            max_targets: Maximum number of nodes.
            left: The rest of the budget; None if there is no budget.
        """
        targets: dict[int, None] = {}
        bounds: dict[int, float] = {}
        if not self._is_enough():
            first = self._next_of_first_path()
            if first != NO_NODE:
                targets[first] = None
                if left is not None:
                    max_targets = min(max_targets, left - self._rows_for_first_path())
            near = self._open.best() - NEAR
            while len(targets) < max_targets and self._open.best() >= max(self._threshold(), MIN_BOUND):
                if len(targets) >= self._fill_rows and self._open.best() < near:
                    break
                entry = self._open.pop()
                node = self._node_of_entry(entry)
                if node != NO_NODE:
                    targets[node], bounds[node] = None, entry.bound
        # Children of held nodes go first, because they cost one row each.
        ordered = sorted(targets, key=lambda node: node in bounds and self._tree.parent[node] not in self._live)
        return ordered, bounds

    def _rows_for_first_path(self) -> int:
        """Return how many rows the first path may still need."""
        at = self._first.at
        return self._spec.max_tokens - self._tree.n_text[at] + self._tree.n_healed[at]

    def _is_enough(self) -> bool:
        """Return whether the search can stop with the texts found so far."""
        search = self._spec.search
        if self._open.best() < max(self._threshold(), MIN_BOUND):
            return True
        if search.stop != "mass":
            return False
        mass = self._finished.mass()
        return mass > 0 and mass >= search.mass * (mass + self._open_mass())

    def _open_mass(self) -> float:
        """Return a bound on the probability of all texts that are not returned."""
        mass = self._open.open_mass() + self._refused_mass
        if mass and self._is_ready and not self._healing.is_known:
            return 1.0  # of the healed bytes' probability, which may be as small
        return min(1.0, mass)

    def _make_ask(self, targets: list[int], bounds: dict[int, float], capacity: Capacity) -> tuple[Ask, list[int]]:
        """Return the ask for these nodes, and the nodes whose rows it returns.

        Nodes that do not fit go back into the queue, with their bounds.
        """
        ask, expected = self._live.plan(targets, self._tree.evaluated, capacity)
        planned = set(expected)
        for node in targets:
            if node in planned and node not in bounds:
                self._open.discount(node, self._tree.parent[node], self._tree.token[node])
        for node in reversed(bounds):  # the next to be taken out is the last to be put back
            if node not in planned:
                self._open.put_back(node, bounds[node], self._tree.logp[node] - self._log_heal)
        return ask, expected

    def _row_reads(self, node: int) -> Reads:
        """Return the `Reads` that the search needs from a node's row."""
        source, ranks = self._again.get(node, (node, None))
        ids = self._ids_after(source)
        if ranks is not None:
            return Reads.of_row(ids)
        eog = self._spec.vocabulary.eog
        tops: list[tuple[int, IntArray | None]] = [(N_TOP_TOKENS, None)] if node == ROOT else []
        if self._has_too_many(ids):
            tops.append((MAX_KEPT, ids))
            ids = eog
        elif self._spec.max_children is not None:
            ids = np.union1d(ids, eog)  # a mass that takes a further query would have bounds
        reads = Reads.of_row(ids, tops=tops).joined(self._end_reads(node))
        return reads if self._is_ready else reads.joined(self._healing.reads())

    def _has_too_many(self, ids: IntArray) -> bool:
        """Return whether a node has so many children that only the best are read."""
        return self._spec.max_children is not None and len(ids) > self._spec.max_children

    def _read_children(self, node: int, rows: Rows, i: int) -> tuple[IntArray, FloatArray]:
        """Return the children of a node that row i shows, and their log-probabilities.

        These are all children, or the best if there are too many. Bounds on the others
        are then kept in `_beyond`.
        """
        ids = self._ids_after(node)
        if not self._has_too_many(ids):
            return ids, rows.logp(i, ids)
        known, logp = rows.top(i, MAX_KEPT, ids)
        most = rows.unseen_max(i, MAX_KEPT, ids)
        if most > -np.inf:
            left = np.setdiff1d(ids, known, assume_unique=True)
            self._beyond[node] = most, rows.log_mass_bounds(i, left)[1]
        return known, logp

    def _read_row(self, node: int, rows: Rows, i: int) -> None:
        """Read a node's row: its end, its children and the mass of the healed bytes."""
        if node == ROOT:
            self._top_tokens = rows.top(i, N_TOP_TOKENS)
        source, ranks = self._again.pop(node, (node, None))
        ids, logp = self._read_children(source, rows, i)
        if ranks is not None:
            # The row was read before; this reading only gives children that were not
            # kept.
            self._open.add(self._children(source, ids, logp, ranks), self._threshold())
            return
        best = int(np.argmax(logp)) if len(ids) else NO_NODE
        best_logp = float(logp[best]) if len(ids) else self._beyond.get(node, (-np.inf, -np.inf))[0]
        best_token = int(ids[best]) if len(ids) and best_logp > -np.inf else NO_TOKEN
        self._row_ends[node] = RowEnds(self._end_logp(node, rows, i), best_token, best_logp)
        self._unread.append((node, ids, logp))
        if not self._is_ready:
            self._is_ready = not self._heal(rows, i)
        if self._is_ready:
            self._queue_children()

    def _heal(self, rows: Rows, i: int) -> bool:
        """Read row i for the probability of the healed bytes.

        Returns whether that probability needs another row.
        """
        node = self._healing.waiting
        more = self._healing.read(rows, i, self._tree.logp[node])
        if more is None:
            self._log_heal = self._healing.log_heal().low
            return False
        self._healing.wait_for(self._child(*more))
        return True

    def _queue_children(self) -> None:
        """Queue the children of all nodes read, and finish paths that end there."""
        for node, ids, logp in self._unread:
            if self._ends_by_row(node):
                self._finish(node, self._row_ends[node].end_logp)
            self._open.add(self._children(node, ids, logp), self._threshold())
            if node in self._beyond:
                self._count_unread(node, *self._beyond.pop(node))
        self._unread.clear()

    def _count_unread(self, node: int, most: float, log_mass: float) -> None:
        """Count the children of a node that were not read, by their bounds.

        Args:
            node: The node.
            most: Bound on the log-probability of each of them.
            log_mass: Bound on the log of their summed probability.
        """
        prefix = self._tree.logp[node] - self._log_heal
        bound = float(self._bound(np.array([prefix + most]))[0])
        self._best_unread = max(self._best_unread, bound)
        self._open.drop(bound, prefix + log_mass)

    def _children(self, node: int, ids: IntArray, logp: FloatArray, ranks: range | None = None) -> RowChildren:
        """Return a node's children for the queue, with bounds on their scores.

        Args:
            node: The node.
            ids, logp: Its children and their log-probabilities after it.
            ranks: Ranks of the children to use, best first; None for all.
        """
        prefix = self._tree.logp[node] - self._log_heal
        return RowChildren(node, prefix, ids, logp, self._bound(prefix + logp), ranks)

    def _bound(self, logp: FloatArray) -> FloatArray:
        """Return upper bounds on the scores of texts that begin with prefixes.

        `logp` are the prefixes' log-probabilities given the healed bytes. They may come
        out above 0, because the log-probability of the healed bytes is a lower bound.
        """
        if self._spec.rule == "joint":
            return logp
        return np.where(logp > 0, logp, logp / self._spec.max_tokens)

    def _node_of_entry(self, entry: Open) -> int:
        """Return the node to evaluate for a queue entry; NO_NODE if none is needed."""
        tree = self._tree
        if entry.rest is not None:
            source = entry.node
            twin = tree.add_beside(tree.parent[source], tree.token[source], tree.edge[source])
            self._again[twin] = source, entry.rest
            return twin
        node = entry.node
        if entry.token != NO_TOKEN:
            if not self._spec.may_follow(tree, entry.node, entry.token):
                return NO_NODE
            node = self._child(entry.node, entry.token, entry.logp)
        return node if self._needs_row(node) else NO_NODE

    def _child(self, parent: int, token: int, logp: float) -> int:
        """Return the node of a token after its parent; add it if it is new.

        A path that ends there whatever comes next is finished at once.
        """
        tree = self._tree
        node = tree.find(parent, token)
        if node != NO_NODE:
            return node
        if not self._is_ready:  # the healed bytes may be spelt by tokens that the automaton does not allow
            state = tree.state[parent]
            if state == NO_STATE or not allows(self._automaton.allowed(state), token):
                return tree.add(parent, token, logp, NO_STATE)
        node = self._add_child(parent, token, logp)
        self._n_dead_ends += not (tree.can_end[node] or tree.goes_on[node])
        if self._ends_at_once(node):
            self._finish(node, 0.0)
        if tree.goes_on[node] and not self._may_go_on(node):
            self._cut_logp = max(self._cut_logp, tree.logp[node])
        return node

    def _cut_bound(self) -> float:
        """Return a bound on the scores of paths longer than `max_tokens`."""
        bound = self._cut_logp - self._log_heal
        # More tokens may raise a mean over tokens, up to 0.
        return bound if self._spec.rule == "joint" or bound == -np.inf else max(bound, 0.0)

    def _needs_row(self, node: int) -> bool:
        """Return whether the row of a node is still needed to go on or to end there."""
        ends = self._ends_by_row(node)
        return not self._tree.evaluated[node] and (self._may_go_on(node) or ends or node in self._again)

    def _finish(self, node: int, terminator: float) -> None:
        """Record the text that ends at a node.

        Nothing is recorded if its score is below the threshold or its path is not
        canonical.

        Args:
            terminator: Log-probability of the terminator.
        """
        spec, tree = self._spec, self._tree
        logp = tree.logp[node] - self._log_heal + terminator
        score = logp if spec.rule == "joint" else logp / max(1, tree.n_text[node])
        # Too improbable to be a result, but its probability belongs to the open mass.
        if score < self._threshold():
            self._refused_mass += float(np.exp(logp))
            self._refused_best = max(self._refused_best, score)
            return
        if logp == -np.inf:
            return
        if spec.canonical is not None and not spec.canonical(list(tree.tokens(node))):
            self._other.append((-score, node))
            return
        path = spec.finished_path(tree, node, terminator, logp, score)
        before = self._finished.kth()
        is_best = self._finished.add(path)
        if self._finished.kth() > before and spec.search.stop == "best":
            self._open.drop_below(self._threshold())
        if is_best and self._on_found is not None:
            self._on_found(path)

    def _last_nodes(self) -> Iterator[int]:
        """Yield nodes to evaluate after the budget was used up without a text.

        They lie on canonical paths, one path after the other, until a text is finished.
        """
        max_evaluated = self.n_evaluated + self._spec.max_tokens
        if len(self._finished):
            return
        for tokens in canonical_paths(self._spec, self._automaton, self._paths_in_other_tokens()):
            path = FirstPath(self._tree, self._row_ends, self._known_logp, self._child)
            path.turn_to(tokens)
            while (node := path.follow(ends_by_token=self._is_eog)) != NO_NODE and self._needs_row(node):
                if self.n_evaluated >= max_evaluated:
                    return
                yield node
            if len(self._finished):
                return

    def _paths_in_other_tokens(self) -> Iterator[tuple[int, ...]]:
        """Yield the finished paths that are not canonical, best first."""
        return (self._tree.tokens(node) for _, node in sorted(self._other))

    def _known_logp(self, parent: int, token: int) -> float | None:
        """Return a token's log-probability after an evaluated node; None if unknown.

        It is known if the token has a node or waits in the queue.
        """
        node = self._tree.find(parent, token)
        return self._open.logp_of(parent, token) if node == NO_NODE else self._tree.edge[node]

    def _next_of_first_path(self) -> int:
        """Return the node that the first path needs next.

        `NO_NODE` if the path has ended or can no longer matter.
        """
        node = self._first.follow(ends_by_token=self._is_eog)
        if node == NO_NODE or not self._needs_row(node):
            return NO_NODE
        prefix = self._tree.logp[node] - self._log_heal
        return node if self._bound(np.array([prefix]))[0] >= self._threshold() else NO_NODE
