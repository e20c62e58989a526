"""Beam search for the most probable texts of any automaton."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from selectrie.core.automaton import Automaton
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, Capacity, IntArray
from selectrie.decoding.beam.expansion import (
    BeamExpander,
    BeamOutcome,
    BeamPath,
    BeamSpec,
    CandidateQueue,
    FinishedHypotheses,
    FinishedText,
    Follower,
    Key,
    add_up,
)
from selectrie.decoding.search_state import HeldNodes
from selectrie.decoding.task import Ask, TaskBase
from selectrie.tokenization.healing import HealedMass


@dataclass(frozen=True, slots=True, eq=False)
class BeamResults:
    """Builds the `BeamPath` records of a beam search that has ended.

    Attributes:
        _spec: The specification of the search.
        _expander: Its paths.
        _finished: All finished texts.
        _log_heal: Log-probability of the healed bytes, subtracted from every sum.
    """

    _spec: BeamSpec
    _expander: BeamExpander
    _finished: FinishedHypotheses
    _log_heal: float

    def _joint(self, node: int) -> float:
        """Return the log-probability of a path given the healed bytes."""
        return self._expander.tree.logp[node] - self._log_heal

    def best_texts(self, pools: list[FinishedHypotheses]) -> list[tuple[FinishedText, int]]:
        """Return the n best texts, each with the number of the group that found it.

        With several groups, the n texts are each group's best, then each group's
        second, and so on.

        Args:
            pools: The finished texts of each group.
        """
        n = self._spec.beam.n
        ranked = [pool.ranked() for pool in pools]
        group_of: dict[Key, int] = {}
        for rank in range(max(map(len, ranked), default=0)):
            for number, texts in enumerate(ranked):
                if rank < len(texts) and len(group_of) < n:
                    group_of.setdefault(texts[rank].key, number)
        return [(text, group_of[text.key]) for text in self._finished.ranked() if text.key in group_of]

    def path_of(self, text: FinishedText, group: int) -> BeamPath:
        """Return the `BeamPath` of a text that the group with this number found."""
        joint = text.paths[text.best]
        alone = self.path_alone(text.best, joint - self._joint(text.best), complete=True)
        return replace(alone, logp=text.logp, logp_path=joint, score=text.score, n_paths=len(text.paths), group=group)

    def path_alone(self, node: int, end: float, *, complete: bool) -> BeamPath:
        """Return the `BeamPath` of one path, without other paths of its text.

        Args:
            node: The path's last node.
            end: Log-probability of the terminator.
            complete: Whether the path is a text.
        """
        path = self._expander.tree.path(node)
        joint = self._joint(node) + end
        return BeamPath(
            tokens=np.array([self._expander.tree.token[step] for step in path], dtype=np.int32),
            token_logp=np.array([self._expander.tree.edge[step] for step in path], dtype=np.float64),
            data=self._expander.data(node),
            logp_end=end,
            logp=joint,
            logp_path=joint,
            score=self._finished.score(joint, len(path)),
            n_paths=1,
            complete=complete,
            group=0,
        )

    def unfinished_paths(self, broken: set[int]) -> tuple[BeamPath, ...]:
        """Return the n best of the unfinished paths, one for each text.

        Args:
            broken: The paths' last nodes.
        """
        nodes = [node for node in broken if self._expander.tree.logp[node] > -np.inf]
        paths = [(self._expander.key(node), self.path_alone(node, 0.0, complete=False)) for node in nodes]
        paths.sort(key=lambda entry: (-entry[1].score, entry[1].tokens.tolist()))
        distinct: dict[Key, BeamPath] = {}
        for key, path in paths:
            distinct.setdefault(key, path)
        return tuple(distinct.values())[: self._spec.beam.n]


_MAX_LOOKED_AT = 64
"""Maximum number of extensions considered in a step for each one that may be kept.

Beyond it, a step gives up on extensions that keep being refused.
"""
_MAX_GREEDY = 1024
"""Maximum number of tokens after a path that greedy decoding tries in a row."""
_MAX_OTHERS = 4
"""Number of alternative tokens after a path that greedy decoding looks up at once."""
_MORE = -2
"""In place of a token: further tokens, for which the node's row is read again."""


@dataclass(slots=True, eq=False)
class _Group:
    """A group of paths of a beam search, which are extended together.

    Attributes:
        number: The group's number.
        width: Maximum number of paths.
        pool: The texts that the group finished.
        beam: Nodes of the paths, whose rows are awaited or have arrived.
    """

    number: int
    width: int
    pool: FinishedHypotheses
    beam: list[int] = field(default_factory=lambda: [ROOT])


class BeamTask(TaskBase[list[int], BeamOutcome]):
    """A beam search.

    A step reads at most `width` + 1 rows. In a small capacity, paths are evaluated one
    after the other, and again if they had to be given up; the result does not depend on
    the capacity. An exception of the automaton or of a callback is raised by `tell`,
    and the task cannot be used afterwards.

    Args:
        prompt: int32[T], the tokens before the texts.
        spec: The options.
        on_found: Called with the bytes and the log-probability of each finished text
            whose path has a better score than all paths that finished before it.
    """

    def __init__(
        self,
        prompt: IntArray,
        automaton: Automaton,
        spec: BeamSpec,
        *,
        on_found: Callable[[bytes, float], None] | None = None,
    ) -> None:
        super().__init__(prompt, spec.floor(prompt, spec.beam.max_tokens), [ROOT])
        self._spec, self._beam = spec, spec.beam
        self._on_found, self._best_score = on_found, -np.inf
        self._expander = BeamExpander(automaton, spec)
        self._tree = self._expander.tree
        self._held = HeldNodes(self._tree, self._may_carry, self._tree.logp.__getitem__)
        self._finished = self._make_pool(spec.beam.n)
        self._groups = self._make_groups()
        self._greedy, self._greedy_end, self._greedy_end_logp = ROOT, NO_NODE, 0.0
        self._is_greedy_known = True
        # (node, token, its log-probability), the next one last. NO_TOKEN is the end,
        # and _MORE the tokens of the node beyond those that were looked up.
        self._greedy_options: list[tuple[int, int, float]] = []
        self._n_looked_up: Counter[int] = Counter()
        self._n_turns = 0
        # A node that replaces another one, whose row is read again.
        self._again: dict[int, int] = {}
        self._waiting: list[int] = [ROOT]
        self._rows: dict[int, tuple[Rows, int]] = {}
        self._broken: set[int] = set()
        self._lost = self._unread = -np.inf
        self._healing, self._log_heal = HealedMass(spec.vocabulary, spec.healed), 0.0
        self._early: dict[int, tuple[Rows, int]] = {}
        self._n_left = np.inf if spec.beam.budget_nodes is None else spec.beam.budget_nodes
        self._close_steps: list[int] = []
        self._stopped = "done"

    def _make_pool(self, n: int) -> FinishedHypotheses:
        # Otherwise a text has one path.
        """Return an empty collection of finished texts."""
        merges = self._beam.merge_equal_text and self._spec.canonical is None
        return FinishedHypotheses(self._tree, n, self._beam.length_penalty, merges=merges)

    def _make_groups(self) -> list[_Group]:
        """Return the groups of the beam; a single one collects all texts itself."""
        beam = self._beam
        if beam.groups == 1:
            return [_Group(0, beam.width, self._finished)]
        n, width = -(-beam.n // beam.groups), beam.width // beam.groups
        return [_Group(number, width, self._make_pool(n)) for number in range(beam.groups)]

    @property
    def states(self) -> int:
        """Return how many states a recurrent model holds for this task at once.

        Each kept path takes one, and its extension another.
        """
        return 2 * (self._beam.width + 1)

    def expire(self) -> None:
        """End the search now with the texts found so far.

        Rows that arrive later are ignored. No effect if the search has ended.
        """
        if not self._is_finished:
            self._break_off("deadline")

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, list[int]]:
        """Return the next ask, and the nodes whose rows it wants."""
        # The next row for the healed bytes may be below any of those before it.
        is_healing = self._healing.waiting != NO_NODE
        resting = list(self._early) if is_healing else [node for node in self._rows if node in self._expander.carries]
        return self._held.plan(self._waiting, self._tree.evaluated, capacity, resting)

    def _reads(self, nodes: list[int]) -> Reads:
        return Reads.concatenated([self._row_reads(node) for node in nodes])

    def _row_reads(self, node: int) -> Reads:
        """Return the `Reads` that the search needs from a node's row."""
        node = self._again.get(node, node)
        reads = self._expander.end_reads(node)
        if node == self._healing.waiting:
            reads = reads.joined(self._healing.reads())
        if node == self._greedy and not self._expander.joins_all and not self._spec.reads_only_best:
            return reads.joined(Reads.everything(1))
        n_most = max(self._n_most(group.width) for group in self._groups)
        n_penalties = len(self._groups) * n_most if self._beam.diversity else 0
        return reads.joined(self._expander.reads(node, n_most + n_penalties))

    def _n_ends(self, width: int) -> int:
        """Return the maximum number of paths that a group finishes in a step.

        Args:
            width: Width of the group.
        """
        return max(width, self._beam.n)

    def _n_most(self, width: int) -> int:
        """Return how many tokens after one path a step may look up.

        One more is looked up for each token that is taken out of the queue.

        Args:
            width: Width of the group that takes the step.
        """
        return _MAX_LOOKED_AT * (width + self._n_ends(width)) + 1

    def _may_carry(self, node: int) -> bool:
        """Return whether a node may be extended later, so that it has to be kept."""
        return node in self._expander.carries or node == self._healing.waiting

    def _read(self, nodes: list[int], rows: Rows) -> None:
        """Read rows, and take steps once all rows of a step have arrived."""
        self._n_left -= len(nodes)
        for node in nodes:
            self._tree.evaluated[node] = True
        if nodes and nodes[0] == self._healing.waiting:
            self._heal(rows, nodes[0])
            return
        self._waiting = [node for node in self._waiting if not self._tree.evaluated[node]]
        # Rows are a view of the model's buffer, so those that wait for others are
        # copied.
        kept = rows.copy() if self._waiting and nodes else rows
        self._rows.update((self._again.get(node, node), (kept, i)) for i, node in enumerate(nodes))
        self._take_steps()

    def _heal(self, rows: Rows, node: int) -> None:
        """Read a row for the probability of the healed bytes.

        Such rows are read before all others.
        """
        tree = self._tree
        self._early[node] = rows.copy(), 0
        more = self._healing.read(rows, 0, tree.logp[node])
        if more is not None:
            below = self._expander.reach_unchecked(*more)
            self._healing.wait_for(below)
            self._waiting = [below]
            return
        self._log_heal = self._healing.log_heal().low
        self._waiting = []
        self._rows = {ROOT: self._early[ROOT]}
        self._take_steps()

    def _take_steps(self) -> None:
        """Take steps until rows are awaited or the search ends."""
        while not self._waiting and not self._is_finished:
            self._step()

    def _step(self) -> None:
        """Extend all paths by one token, after all rows of the step have arrived."""
        self._finish_evaluated()
        if ROOT in self._rows and not self._expander.ends_by_row(ROOT):
            for group in self._groups:
                self._finish(ROOT, 0.0, group)
        chosen: Counter[int] = Counter()
        for group in self._groups:
            taken = self._extend(group, {token: self._beam.diversity * n for token, n in chosen.items()})
            if self._beam.diversity:
                chosen.update(self._tree.token[node] for node in taken)
        self._follow_greedy()
        self._rows = {}
        for group in self._groups:
            self._end_if_decided(group)
        self._await_rows()

    def _finish_evaluated(self) -> None:
        """Finish each evaluated path with an end probability in its row."""
        for node, (rows, i) in sorted(self._rows.items()):
            if self._expander.ends_by_row(node):
                end = self._expander.end_logp(node, rows, i)
                for group in [group for group in self._groups if node in group.beam] or self._groups[:1]:
                    self._finish(node, end, group)

    def _finish(self, node: int, end: float, group: _Group) -> None:
        """Record the text that ends at a node for the group, if one may end there.

        Args:
            end: Log-probability of the terminator.
        """
        joint = self._joint(node) + end
        if node not in self._expander.ends or joint == -np.inf:
            return
        key = self._expander.key(node)
        group.pool.add(node, joint, key)
        if group.pool is not self._finished:
            self._finished.add(node, joint, key)
        if self._on_found is not None:
            score = self._finished.score(joint, self._tree.n_text[node])
            if score > self._best_score:
                self._best_score = score
                self._on_found(self._expander.data(node), joint)

    def _joint(self, node: int) -> float:
        return self._tree.logp[node] - self._log_heal

    def _bound(self, logp: float, n_text: int) -> float:
        """Return the best score that a path can still reach.

        Args:
            logp: Its sum of log-probabilities.
            n_text: Its number of tokens.
        """
        return self._finished.bound(logp - self._log_heal, n_text, self._beam.max_tokens)

    def _extend(self, group: _Group, penalty: Mapping[int, float]) -> list[int]:
        """Reach the best extensions of a group's paths, and return their nodes.

        The group's beam becomes those that still need rows.

        Args:
            penalty: Nats by token, for tokens that other groups have taken.
        """
        if not group.beam:
            return []
        tree, grown, width = self._tree, self._expander, group.width
        depth = tree.depth[group.beam[0]] + 1
        n_text = min(tree.n_text[node] for node in group.beam)
        next_best = CandidateQueue(
            (tree.logp[node], tree.rank[node], node, self._followers(node, (width, self._n_most(width)), penalty))
            for node in group.beam
        )
        max_penalty = max(penalty.values(), default=0.0)
        max_ends = self._n_ends(width)
        taken: list[int] = []
        kept: list[int] = []
        for _ in range(_MAX_LOOKED_AT * (width + max_ends)):
            value = next_best.value
            # No extension from here on can reach the group's n-th best text.
            is_hopeless = not self._finished.merges and self._bound(value + max_penalty, n_text) <= group.pool.kth
            if value == -np.inf or is_hopeless or len(kept) == width or len(taken) - len(kept) == max_ends:
                break
            node = grown.reach(*next_best.pop())
            if node != NO_NODE:
                taken.append(node)
                if not grown.ends_by_row(node):
                    self._finish(node, 0.0, group)
                if grown.needs_row(node) or node not in grown.ends:
                    kept.append(node)
        # What tokens that were not read could have reached.
        unread = {node: tree.logp[node] + self._unread_max(node) for node in group.beam}
        for node in set(group.beam) - next_best.nodes - {tree.parent[node] for node in taken}:
            if unread[node] == -np.inf:
                grown.mark_stuck(node)
        most_unread = max(unread.values())
        self._unread = max(self._unread, self._bound(most_unread, n_text))
        self._lost = max(self._lost, self._unread, self._bound(max(next_best.logp, grown.refused_logp), n_text))
        left = max(next_best.logp, most_unread)
        # A change within the tolerance could have kept another path.
        is_full = len(kept) == width or most_unread == -np.inf
        if (kept and tree.logp[kept[-1]] - left <= 2 * self._spec.tolerance * depth) or not is_full:
            self._close_steps.append(depth)
        self._broken.update(node for node in kept if not grown.needs_row(node))
        group.beam = [node for node in kept if grown.needs_row(node)]
        return taken

    def _unread_max(self, node: int) -> float:
        rows, i = self._rows[node]
        return self._expander.unread_max(node, rows, i, self._spec.vocabulary.n_tokens)

    def _followers(self, node: int, n_looked: tuple[int, int], penalty: Mapping[int, float]) -> Iterator[Follower]:
        rows, i = self._rows[node]
        return self._expander.followers(node, rows, i, n_looked, penalty)

    def _follow_greedy(self) -> None:
        """Extend the path of masked greedy decoding by one token, or end it.

        It ends where the end of the text is more probable than every token that may
        follow.
        """
        node, self._greedy = self._greedy, NO_NODE
        if node == NO_NODE:
            return
        rows, i = self._rows[node]
        end = self._expander.end_logp(node, rows, i) if node in self._expander.ends else -np.inf
        options: list[tuple[int, int, float]] = []
        # The same number for every width.
        n_most = self._n_most(1) if self._expander.joins_all else _MAX_GREEDY
        n_before = self._n_looked_up[node]
        for token, logp, _ in islice(self._followers(node, (1, n_most), {}), n_before, None):
            if logp < end:
                break
            if len(options) > _MAX_OTHERS:
                options.append((node, _MORE, logp))
                if node == ROOT:  # which cannot be evaluated again
                    self._early.setdefault(ROOT, (rows.copy(), i))
                break
            self._n_looked_up[node] += 1
            if options or self._expander.reach(node, token, logp) != NO_NODE:
                options.append((node, token, logp))
        if not options and self._unread_max(node) > end:
            self._is_greedy_known = False
            return
        if node in self._expander.ends and not n_before:
            options.append((node, NO_TOKEN, end))
        self._n_turns += not options or bool(n_before)
        self._greedy_options += reversed(options)
        if self._n_turns <= self._beam.max_tokens:
            self._take_greedy_option()
        else:
            self._is_greedy_known = False

    def _take_greedy_option(self) -> None:
        """Extend the greedy path by the best token not tried yet, or end it.

        That token follows the last node that has one, so a path that leads nowhere is
        left.
        """
        while self._greedy_options:
            node, token, logp = self._greedy_options.pop()
            # The row has further tokens, which are looked up when it is read again.
            if token == _MORE:
                self._greedy = node
                return
            if token == NO_TOKEN:
                self._greedy_end, self._greedy_end_logp = node, logp if self._expander.ends_by_row(node) else 0.0
                return
            child = self._expander.reach(node, token, logp)
            if child == NO_NODE:
                continue
            if not self._expander.ends_by_row(child):
                self._finish(child, 0.0, self._groups[0])
            if self._expander.needs_row(child):
                self._greedy = child
            elif child in self._expander.ends:
                self._greedy_end = child
            else:
                self._broken.add(child)
            return

    def _end_if_decided(self, group: _Group) -> None:
        """End a group whose unfinished paths can no longer change the result."""
        logp = sorted(self._tree.logp[node] for node in group.beam)
        if logp:
            bound = self._bound(logp[-1], min(self._tree.n_text[node] for node in group.beam))
            if group.pool.is_decided(bound, add_up(logp) - self._log_heal, self._beam.max_tokens):
                self._lost = max(self._lost, bound)
                group.beam = []

    def _await_rows(self) -> None:
        """Wait for the rows of all kept paths, or end the search.

        The search ends if no path is kept or if the budget does not cover the rows.
        """
        nodes = {node for group in self._groups for node in group.beam}
        # Then only greedy decoding still needs a row.
        is_settled = not nodes
        if self._greedy != NO_NODE:
            nodes.add(self._greedy)
        if not nodes:
            self._stop()
            return
        ordered = self._tree.order(nodes)
        self._rows = {node: self._early[node] for node in ordered if node in self._early}
        self._waiting = [self._node_to_evaluate(node) for node in ordered if node not in self._early]
        if len(self._waiting) <= self._n_left:
            return
        greedy = self._greedy
        if is_settled and self._bound(self._tree.logp[greedy], self._tree.n_text[greedy]) <= self._finished.kth:
            self._is_greedy_known = False
            self._waiting = []
            self._stop()
        else:
            self._break_off("budget")

    def _node_to_evaluate(self, node: int) -> int:
        """Return the node to evaluate for the row of `node`.

        If the row was read before, it is a second node of the same path, which
        `tree.find` does not return. Only greedy decoding returns to a node.
        """
        tree = self._tree
        if not tree.evaluated[node]:
            return node
        twin = tree.add_beside(tree.parent[node], tree.token[node], tree.edge[node])
        self._again[twin] = node
        return twin

    def _break_off(self, why: str) -> None:
        """Stop early for the reason `why`; paths that await rows stay unfinished."""
        left = {self._greedy, *(node for group in self._groups for node in group.beam)}
        self._broken |= left - {ROOT, NO_NODE}
        self._waiting = []
        self._stop()
        self._stopped = why

    def _stop(self) -> None:
        """End the search, and note what the unfinished paths could have reached."""
        open_bounds = [self._bound(self._tree.logp[node], self._tree.n_text[node]) for node in self._broken]
        bound = max(open_bounds, default=-np.inf)
        self._lost = max(self._lost, bound)
        self._stopped = "length" if bound > self._finished.kth else "done"
        self._is_finished = True

    def _result(self) -> BeamOutcome:
        """Return the texts found, with the counts of the search."""
        results = BeamResults(self._spec, self._expander, self._finished, self._log_heal)
        best = results.best_texts([group.pool for group in self._groups])
        greedy = self._greedy_end
        return BeamOutcome(
            finished=tuple(results.path_of(text, group) for text, group in best),
            broken=results.unfinished_paths(self._broken),
            greedy=None if greedy == NO_NODE else results.path_alone(greedy, self._greedy_end_logp, complete=True),
            agrees_with_greedy=(greedy != NO_NODE and self._expander.key(greedy) == best[0][0].key)
            if best and self._is_greedy_known
            else None,
            stopped=self._stopped,
            lost=self._lost,
            unread=self._unread,
            n_merged=self._finished.n_paths - len(self._finished.texts),
            n_dead_ends=self._expander.n_dead_ends,
            n_refused=self._expander.n_refused,
            n_evaluated=self.n_evaluated,
            n_repeated=self._held.n_repeated,
            n_steps=max(self._tree.depth),
            close_steps=tuple(sorted(set(self._close_steps))),
            heal=self._healing.log_heal(),
        )
