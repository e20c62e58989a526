"""Bounds the probability of events by reading the rows of prefixes that spell them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import ROOT, BoolArray, Capacity, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.held_nodes import HeldNodes
from selectrie.decoding.spelling.goals import Bounds, Goal
from selectrie.decoding.spelling.lattice import ByteEvent, Lattice
from selectrie.decoding.spelling.open_prefixes import OpenPrefixes
from selectrie.decoding.spelling.tree import SpellingTree
from selectrie.decoding.task import Ask, TaskBase
from selectrie.errors import ProtocolError

ROW_ERROR = 1e-6
"""Nats by which rounding may move a log-probability that is read from a row.

A log-sum-exp is usually within 1e-7. In the worst case all its terms are rounded in one
direction when the largest logit is subtracted in float32, by up to 5e-7 where they are
16 below it; terms further below hardly count. Float64 sums add less than 1e-9.
"""
FIRST_WIDTH = 8
"""Maximum number of rows of the first round."""
GROWTH = 4
"""A round has at most one row for each `GROWTH` rows that were read before."""


@dataclass(frozen=True, slots=True, eq=False)
class SpellingSpec:
    """What a `SpellingSearch` looks for.

    Attributes:
        vocabulary: The vocabulary.
        events: E events.
        canonical: The tokens of the canonical spelling of some events, by index.
        goal: What is read next, and when it is enough.
        budget_nodes: Number of rows after which no new round begins, those of the
            canonical spellings included; None for no limit. These are always read.
        max_depth: Maximum number of tokens of a prefix whose row is read.
        tolerance: Nats by which the layout of calls may move a log-probability that is
            read from a row. The bounds that `goal` sees allow for it.
    """

    vocabulary: Vocabulary
    events: tuple[ByteEvent, ...]
    canonical: tuple[tuple[int, IntArray], ...]
    goal: Goal
    budget_nodes: int | None = None
    max_depth: int = 1 << 30
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SpellingOutcome:
    """What a `SpellingSearch` found, for E events.

    Attributes:
        bounds: Proved bounds on the log-probability of each event.
        log_open: float64[E], the log of the probability that is left open.
        is_told: bool[E], whether the model told all that the bounds sum. Then rounding
            and what is left open are all that keeps the bounds apart.
        canonical_low, canonical_high: float64[E], the log-probability of the canonical
            spelling, with the bounds of its rounding; NaN where none was given.
        is_enough: Whether the goal wanted no more rows.
        n_evaluated: Number of rows read.
        n_repeated: Number of nodes that were evaluated again.
    """

    bounds: Bounds
    log_open: FloatArray
    is_told: BoolArray
    canonical_low: FloatArray
    canonical_high: FloatArray
    is_enough: bool
    n_evaluated: int
    n_repeated: int


class SpellingSearch(TaskBase[list[int], SpellingOutcome]):
    """Bounds the probability of each of some events over all token sequences.

    A row gives the probability of all children of a prefix at once. What has happened
    with certainty is a lower bound on the probability of an event. Together with the
    probability of all open prefixes after which it may still happen, it is an upper
    bound. The canonical spellings are read first, because best first alone may finish
    no spelling for a long time. Then come the open prefixes of largest weighted
    probability, in rounds. A round is decided by the rows of the rounds before it, so
    the result does not depend on the capacity.

    The bounds hold for the rows as they are read, rounding included (`ROW_ERROR`), and
    never widen.

    Raises `ProtocolError` for an empty prompt, and for a canonical spelling that spells
    something else.
    """

    def __init__(self, prompt: IntArray, spec: SpellingSpec) -> None:
        if len(prompt) == 0:
            raise ProtocolError("a search needs a prompt of at least one token")
        spec.vocabulary.check_tokens(prompt)
        self._lattice = Lattice(spec.vocabulary, spec.events)
        self._max_depth = min(spec.max_depth, self._lattice.max_tokens)
        super().__init__(prompt, Capacity(1, max(1, self._max_depth), 1), [ROOT])
        self._spec = spec
        self._tree = SpellingTree(self._lattice)
        self._live = HeldNodes(self._tree, self._tree.may_carry)
        self._canonical = [(event, self._add_canonical(event, tokens)) for event, tokens in spec.canonical]
        self._open = OpenPrefixes.none()
        # The first row of these is for rows as they are read, the second for the goal.
        self._errors = ROW_ERROR, ROW_ERROR + spec.tolerance
        shape = 2, len(self._lattice.events)
        self._found_low, self._found_high = np.full(shape, -np.inf), np.full(shape, -np.inf)
        self._low, self._high = np.full(shape, -np.inf), np.zeros(shape)
        self._log_open: FloatArray = np.zeros(shape[1])
        self._is_told: BoolArray = np.ones(shape[1], dtype=np.bool_)
        self._round = list(range(len(self._tree)))
        self._n_searched = 0

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Return the bounds on each event's log-probability so far, float64[E] each."""
        bounds = self._bounds()
        return bounds.low, bounds.high

    def _bounds(self) -> Bounds:
        index = list(self._lattice.index_of)
        return Bounds(self._low[0, index], self._high[0, index], self._low[1, index], self._high[1, index])

    def _add_canonical(self, event: int, tokens: IntArray) -> int:
        """Add the nodes of a canonical spelling and return the last one."""
        node, path = ROOT, tokens.tolist()
        is_whole = self._spec.events[event].ends
        for token in path if is_whole else path[:-1]:
            node = self._tree.child(node, token)
        if b"".join(self._spec.vocabulary.pieces[token] for token in path) != self._spec.events[event].text:
            raise ProtocolError(f"the canonical spelling of event {event} spells something else")
        if not is_whole:
            self._tree.name(node, path[-1])
        return node

    def _plan(self, capacity: Capacity) -> tuple[Ask, list[int]] | None:
        targets = [node for node in self._round if not self._tree.evaluated[node]]
        if not targets:
            self._round = targets = self._next_round()
        if not targets:
            return None
        return self._live.plan(targets, self._tree.evaluated, capacity)

    def _reads(self, nodes: list[int]) -> Reads:
        return Reads.concatenated([self._tree.reads(node) for node in nodes])

    def _read(self, nodes: list[int], rows: Rows) -> None:
        for i, node in enumerate(nodes):
            self._tree.read(node, rows, i)
        if all(self._tree.evaluated[node] for node in self._round):
            self._take_in()

    def _take_in(self) -> None:
        """Add what the rows of a round say to the bounds."""
        parts = [self._open]
        for node in self._round:
            parts.append(self._tree.prefixes_below(node))
            values, logp = self._tree.read_values(node), self._tree.logp[node]
            events = values.events
            self._is_told[events] &= values.low == values.high
            for which, row_error in enumerate(self._errors):
                error = row_error * (self._tree.depth[node] + 1)
                low, high = self._found_low[which], self._found_high[which]
                low[events] = np.logaddexp(low[events], logp + values.low - error)
                high[events] = np.logaddexp(high[events], logp + values.high + error)
        self._open = OpenPrefixes.concatenated(parts)
        self._n_searched += len(self._round)
        log_open = np.array([self._open.log_mass(self._lattice, error) for error in self._errors])
        self._log_open = log_open[0]
        self._low = np.maximum(self._low, self._found_low)
        self._high = np.minimum(self._high, np.logaddexp(self._found_high, log_open))

    def _next_round(self) -> list[int]:
        """Return new nodes for the most urgent open prefixes; none to finish."""
        spec = self._spec
        weights = spec.goal.weights(self._bounds())
        budget = len(self._open) if spec.budget_nodes is None else spec.budget_nodes - self._n_searched
        if weights is None or budget <= 0:
            return []
        by_event = np.full(len(self._lattice.events), -np.inf)
        np.logaddexp.at(by_event, list(self._lattice.index_of), weights)
        urgency = self._open.urgency(self._lattice, by_event)
        urgency[self._open.depth > self._max_depth] = -np.inf
        order = np.argsort(-urgency, kind="stable")
        order = order[urgency[order] > -np.inf]
        left_after = np.cumsum(numerics.exp(urgency[order][::-1]))[::-1] - numerics.exp(urgency[order])
        n_enough = 1 + int(np.count_nonzero(left_after > spec.goal.enough))
        picked = order[: min(budget, n_enough, max(FIRST_WIDTH, self._n_searched // GROWTH))]
        taken = self._open.take(picked)
        self._open = self._open.take(np.setdiff1d(np.arange(len(self._open)), picked))
        columns = zip(taken.parent.tolist(), taken.token.tolist(), taken.logp.tolist(), strict=True)
        return [self._tree.child(*one) for one in columns]

    def _result(self) -> SpellingOutcome:
        bounds = self._bounds()
        canonical = np.full((2, len(self._spec.events)), np.nan)
        for event, node in self._canonical:
            canonical[:, event] = self._canonical_bounds(event, node)
        return SpellingOutcome(
            bounds,
            self._log_open[list(self._lattice.index_of)],
            self._is_told[list(self._lattice.index_of)],
            canonical[0],
            canonical[1],
            self._spec.goal.weights(bounds) is None,
            self._n_searched,
            self._live.n_repeated,
        )

    def _canonical_bounds(self, event: int, node: int) -> tuple[float, float]:
        """Return bounds on the log-probability of a canonical spelling.

        `node` is the last one whose row it needs.
        """
        values, logp = self._tree.read_values(node), self._tree.logp[node]
        if not self._spec.events[event].ends:
            low = high = values.named[int(dict(self._spec.canonical)[event][-1])]
        else:
            at = int(np.flatnonzero(values.events == self._lattice.index_of[event])[0])
            low, high = float(values.low[at]), float(values.high[at])
        error = ROW_ERROR * (self._tree.depth[node] + 1)
        return logp + low - error, logp + high + error
