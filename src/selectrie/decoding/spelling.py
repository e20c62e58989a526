"""Bounds the probability of a text, summed over all token sequences that spell it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, BoolArray, Capacity, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.search_state import HeldNodes, PathTree
from selectrie.decoding.task import Ask, TaskBase
from selectrie.errors import ProtocolError

NO_EVENT = -1


@dataclass(frozen=True, slots=True, order=True)
class ByteEvent:
    """An event: the drawn tokens spell certain bytes.

    Attributes:
        text: The bytes.
        ends: True if the tokens spell exactly these bytes and an end-of-generation
            token follows. False if the spelled bytes begin with `text`; the last token
            may extend beyond it.
    """

    text: bytes
    ends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The tokens that may follow a prefix in one state, and the states after them.

    An event is alive in a state if the prefix can still lead to it.

    Attributes:
        alive: The events that are alive, as a slice of `Lattice.events`.
        tokens: int32[n], the tokens after which some event is still alive, ascending.
            Each spells a proper prefix of the remaining text of an event, or all of it
            if the event `ends`.
        states: int64[n], the state after each of these tokens.
        covering: Pairs (event, int32[] tokens) for events that do not end: after these
            tokens the event has happened. They begin with all of its remaining text.
        ended: The event whose text is spelled, so that it happens with an
            end-of-generation token; `NO_EVENT` if there is none.
    """

    alive: slice
    tokens: IntArray
    states: IntArray
    covering: tuple[tuple[int, IntArray], ...]
    ended: int


class Lattice:
    """All ways to spell some events token by token, as states and steps between them.

    A state is a number of spelled bytes, and the events that begin with these bytes.
    State 0 is the beginning. The steps of a state are computed on first use. There are
    at most as many states as distinct prefixes of the texts.

    Tokens without bytes, control tokens and end-of-generation tokens spell nothing.

    Args:
        vocabulary: The vocabulary.
        events: At least one event; equal events are merged.

    Attributes:
        events: The distinct events, in order.
        index_of: The position in `events` of each event that was passed.
        eog: int32[], the end-of-generation tokens.
    """

    def __init__(self, vocabulary: Vocabulary, events: Sequence[ByteEvent]) -> None:
        if not events:
            raise ProtocolError("a lattice needs at least one event")
        if ByteEvent(b"", ends=False) in events:
            raise ProtocolError("every text begins with b''; an event needs bytes, or an end")
        self._vocabulary = vocabulary
        self.events = tuple(sorted(set(events)))
        self.index_of = tuple(self.events.index(event) for event in events)
        self.eog = vocabulary.eog
        spelling_nothing = np.union1d(vocabulary.eog, vocabulary.control)
        self._excluded = spelling_nothing[vocabulary.lengths[spelling_nothing] > 0]
        self._texts = [event.text for event in self.events]
        self._states: list[tuple[int, int, int]] = []  # position, first and last alive event
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._steps: dict[int, Step] = {}
        self._state_after(b"")

    @property
    def n_states(self) -> int:
        """Return the number of states reached so far."""
        return len(self._states)

    @property
    def max_tokens(self) -> int:
        """Return the maximum number of tokens of a prefix whose row may be read."""
        return max(len(event.text) - (not event.ends) for event in self.events)

    def alive(self, state: int) -> slice:
        """Return the events that are alive in a state, as a slice of `events`."""
        _, first, stop = self._states[state]
        return slice(first, stop)

    def step(self, state: int) -> Step:
        """Return the step from a state."""
        if state not in self._steps:
            self._steps[state] = self._compute_step(state)
        return self._steps[state]

    def _state_after(self, spelled: bytes) -> int:
        """Return the state after some bytes; some event must begin with them."""
        first = bisect_left(self._texts, spelled)
        stop = first
        while stop < len(self._texts) and self._texts[stop].startswith(spelled):
            stop += 1
        # An event that does not end has happened once its bytes are spelled.
        first += first < stop and self.events[first] == ByteEvent(spelled, ends=False)
        key = len(spelled), first, stop
        if key not in self._numbers:
            self._numbers[key] = len(self._states)
            self._states.append(key)
        return self._numbers[key]

    def _compute_step(self, state: int) -> Step:
        """Compute the step from a state."""
        position, first, stop = self._states[state]
        spelled = self._texts[first][:position]
        ended = first if len(self._texts[first]) == position else NO_EVENT
        tokens: list[IntArray] = []
        covering = []
        for event in range(first + (ended != NO_EVENT), stop):
            left = self._texts[event][position:]
            tokens.append(self._vocabulary.prefixes_of(left))
            if self.events[event].ends:
                tokens.append(self._vocabulary.with_bytes(left))
            else:
                covering.append((event, self._exclude_silent(self._vocabulary.with_prefix(left))))
        fitting = self._exclude_silent(np.unique(np.concatenate(tokens)) if tokens else self._vocabulary.eog[:0])
        pieces = self._vocabulary.pieces
        after = [self._state_after(spelled + pieces[token]) for token in fitting.tolist()]
        return Step(
            slice(first, stop),
            fitting,
            np.array(after, dtype=np.int64),
            tuple(covering),
            ended,
        )

    def _exclude_silent(self, tokens: IntArray) -> IntArray:
        """Return the tokens among `tokens` that spell their bytes."""
        return tokens if not len(self._excluded) else np.setdiff1d(tokens, self._excluded)


@dataclass(frozen=True, slots=True, eq=False)
class OpenPrefixes:
    """Prefixes of spellings: each is a node whose row was read, plus one token.

    Attributes:
        parent: int32[n], the node before the token.
        token: int32[n], the token.
        state: int32[n], the state of the lattice after the token.
        depth: int32[n], the number of tokens of the prefix.
        logp: float64[n], the log-probability of the prefix.
    """

    parent: IntArray
    token: IntArray
    state: IntArray
    depth: IntArray
    logp: FloatArray

    @classmethod
    def none(cls) -> OpenPrefixes:
        """Return an empty set of prefixes."""
        nothing = np.empty(0, dtype=np.int32)
        return cls(nothing, nothing, nothing, nothing, np.empty(0, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.logp)

    def take(self, index: BoolArray | NDArray[np.integer]) -> OpenPrefixes:
        """Return the prefixes at an index or mask."""
        return OpenPrefixes(*(getattr(self, one.name)[index] for one in fields(self)))

    @staticmethod
    def concatenated(parts: list[OpenPrefixes]) -> OpenPrefixes:
        """Return all prefixes of `parts`, in order."""
        return OpenPrefixes(
            *(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(OpenPrefixes))
        )

    def log_mass(self, lattice: Lattice, error: float) -> FloatArray:
        """Return the log of the total probability of each event's prefixes, float64[E].

        It is an upper bound if each row of a prefix may be wrong by `error` nats. It is
        -inf for an event without a prefix.
        """
        result: FloatArray = np.full(len(lattice.events), -np.inf)
        if not len(self):
            return result
        upper = self.logp + error * self.depth
        order = np.argsort(self.state, kind="stable")
        states, first = np.unique(self.state[order], return_index=True)
        for state, part in zip(states.tolist(), np.split(upper[order], first[1:]), strict=True):
            alive = lattice.alive(state)
            result[alive] = np.logaddexp(result[alive], numerics.logsumexp(part))
        return result

    def urgency(self, lattice: Lattice, log_weight: FloatArray) -> FloatArray:
        """Return the log of each prefix's weighted probability, float64[n].

        A prefix counts once for each event that is alive after it, times the event's
        weight.

        Args:
            lattice: The lattice of the states.
            log_weight: float64[E], the log of the weight of each event.
        """
        if not len(self):
            return np.empty(0)
        states, of = np.unique(self.state, return_inverse=True)
        weights = np.array([numerics.logsumexp(log_weight[lattice.alive(one)]) for one in states.tolist()])
        return np.asarray(self.logp + weights[of], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class StepValues:
    """The values of a step, read from the row of one node.

    Attributes:
        logp: float64[n], the log-probability of each of `Step.tokens`.
        events: int64[m], events that can happen with the next token.
        low, high: float64[m], bounds on the log-probability that they do. They differ
            only if the row was given in part.
        named: The log-probability of each token passed to `SpellingTree.read_also`.
    """

    logp: FloatArray
    events: IntArray
    low: FloatArray
    high: FloatArray
    named: Mapping[int, float]


class SpellingTree(PathTree):
    """The prefixes whose rows are read, in flat columns, with parents before children.

    Node 0 is the end of the prompt, in state 0 of the lattice.

    Attributes:
        state: State of the lattice after the prefix.
        logp: Log-probability of the prefix; NaN until the row of the parent was read.
        evaluated: Whether the row was read.
        values: The values read from the row; None before.
    """

    def __init__(self, lattice: Lattice) -> None:
        super().__init__(0)
        self._lattice = lattice
        self.values: list[StepValues | None] = [None]
        self._named: dict[int, list[int]] = {}

    def child(self, parent: int, token: int, logp: float = np.nan) -> int:
        """Return the child of a node by its token; add it if there is none.

        Args:
            parent: The node before the token.
            token: One of the tokens of the parent's step.
            logp: Log-probability of the prefix, if known.

        Raises:
            ProtocolError: If no event is alive after the token.
        """
        node = self.find(parent, token)
        if node != NO_NODE:
            return node
        step = self.step(parent)
        index = int(np.searchsorted(step.tokens, token))
        if index == len(step.tokens) or step.tokens[index] != token:
            raise ProtocolError(f"token {token} after node {parent} spells none of the events")
        node = self.add(parent, token, np.nan, int(step.states[index]))
        self.logp[node] = logp
        self.values.append(None)
        return node

    def step(self, node: int) -> Step:
        """Return the step from a node's state."""
        return self._lattice.step(self.state[node])

    def may_have_children(self, node: int) -> bool:
        """Return whether a node may have children."""
        return len(self.step(node).tokens) > 0

    def read_also(self, node: int, token: int) -> None:
        """Mark one more token whose log-probability is read from the row of a node."""
        self._named.setdefault(node, []).append(token)

    def reads(self, node: int) -> Reads:
        """Return the `Reads` that `read` needs from the row of a node."""
        step = self.step(node)
        masses = [tokens for _, tokens in step.covering]
        masses += [self._lattice.eog] if step.ended != NO_EVENT else []
        named = np.array(self._named.get(node, ()), dtype=np.int32)
        return Reads.of_row(np.append(step.tokens, named), masses=masses)

    def read(self, node: int, rows: Rows, i: int) -> None:
        """Store the values that a node needs of its row, which is row `i` of `rows`.

        They are the log-probability of each token of the node's step, and bounds on
        that of each event which the next token may complete. The node then counts as
        evaluated.
        """
        step = self.step(node)
        events = [event for event, _ in step.covering]
        bounds = [rows.log_mass_bounds(i, tokens) for _, tokens in step.covering]
        if step.ended != NO_EVENT:
            events.append(step.ended)
            bounds.append(rows.log_mass_bounds(i, self._lattice.eog))
        low, high = np.array(bounds, dtype=np.float64).reshape(len(bounds), 2).T
        named = self._named.get(node, [])
        pairs = zip(named, rows.logp(i, np.array(named, dtype=np.int32)).tolist(), strict=True)
        self.values[node] = StepValues(
            rows.logp(i, step.tokens), np.array(events, dtype=np.int32), low, high, dict(pairs)
        )
        self.evaluated[node] = True

    def read_values(self, node: int) -> StepValues:
        """Return the values read from the row of a node."""
        values = self.values[node]
        if values is None:
            raise ProtocolError(f"the row of node {node} was not read")
        return values

    def prefixes_below(self, node: int) -> OpenPrefixes:
        """Return the possible children of a node that are not in the tree.

        The log-probabilities of children in the tree are set. The row of the node was
        read.
        """
        step, logp = self.step(node), self.logp[node] + self.read_values(node).logp
        is_open = logp > -np.inf
        for index, token in enumerate(step.tokens.tolist()):
            child = self.find(node, token)
            if child != NO_NODE:
                self.logp[child] = float(logp[index])
                is_open[index] = False
        n = int(np.count_nonzero(is_open))
        return OpenPrefixes(
            np.full(n, node, dtype=np.int32),
            step.tokens[is_open],
            step.states[is_open].astype(np.int32),
            np.full(n, self.depth[node] + 1, dtype=np.int32),
            logp[is_open],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds on the log-probability of E events.

    Attributes:
        as_read: float64[E], by the rows as they were read.
        safe: float64[E], widened by the tolerance of each row.
    """

    as_read: Interval[FloatArray]
    safe: Interval[FloatArray]


class Goal(Protocol):
    """Decides how a search spends its rows, and when its bounds are close enough."""

    def weights(self, bounds: Bounds) -> FloatArray | None:
        """Return the log of the weight of each event's open probability, float64[E].

        Return None if no more rows are wanted.
        """
        ...

    @property
    def enough(self) -> float:
        """Return the weighted open probability at which `weights` returns None.

        A round reads no more rows than seem needed to reach it. It is 0 if unknown.
        """
        ...


@dataclass(frozen=True, slots=True)
class CloseBounds:
    """The goal that the bounds of all events together are close.

    Attributes:
        max_ratio: The search stops when the ratio of upper to lower bound, multiplied
            over the events, is at most this.
    """

    max_ratio: float

    @property
    def enough(self) -> float:
        """Return the open share of an event at which its bounds reach `max_ratio`."""
        return 1.0 - 1.0 / self.max_ratio

    def weights(self, bounds: Bounds) -> FloatArray | None:
        """Return the log of each event's weight 1/p, where p is its upper bound.

        So open probability counts in relation to that of the event. An impossible event
        gets -inf. The result is None once the bounds are close enough.
        """
        high = bounds.as_read.high
        if total_gap(bounds.as_read) <= float(np.log(self.max_ratio)):
            return None
        result: FloatArray = np.full(len(high), -np.inf)
        is_possible = high > -np.inf
        result[is_possible] = -high[is_possible]
        return result


@dataclass(frozen=True, slots=True)
class OneWinner:
    """The goal that one choice's lower bound exceeds the upper bounds of all others.

    Attributes:
        choices: The event of each choice, an index of the search's events. Choices of
            equal texts have the same event.
        log_prior: The log of each choice's prior, which is added to its bounds.
        given: The event that all of these include, or None. Once the winner is certain,
            its bounds are narrowed to `max_ratio`.
        max_ratio: Upper bound divided by the lower one.
    """

    choices: tuple[int, ...]
    log_prior: tuple[float, ...]
    given: int | None
    max_ratio: float

    @property
    def enough(self) -> float:
        """Return 0: the open probability at which the winner is certain is unknown."""
        return 0.0

    def weights(self, bounds: Bounds) -> FloatArray | None:
        """Weight the winner and its rivals, and once the winner is certain, `given`.

        Weights are log priors. None is returned when nothing is left to be narrowed, or
        no row can help (`find_inseparable`).
        """
        events, prior = np.array(self.choices), np.array(self.log_prior)
        winner, rivals = self.find_rivals(bounds)
        result: FloatArray = np.full(len(bounds.safe.high), -np.inf)
        if rivals.any():
            if self.find_inseparable(bounds).any():
                return None
            undecided = rivals | (np.arange(len(events)) == winner)
            np.maximum.at(result, events[undecided], prior[undecided])
            return result
        if self.given is None:
            return None
        if bounds.as_read.width[self.given] <= float(np.log(self.max_ratio)):
            return None
        result[self.given] = 0.0
        return result

    def find_rivals(self, bounds: Bounds) -> tuple[int, BoolArray]:
        """Return the choice with the best lower bound, and those that may be better.

        Of equal lower bounds the lowest index is taken. bool[C] marks the choices whose
        upper bound reaches it, except choices with the winner's own event. The bounds
        are `safe`.
        """
        events, prior = np.array(self.choices), np.array(self.log_prior)
        safe = bounds.safe.map(lambda logp: logp[events] + prior)
        winner = int(np.argmax(safe.low))
        return winner, np.asarray(~(safe.high < safe.low[winner]) & (events != events[winner]))

    def find_inseparable(self, bounds: Bounds) -> BoolArray:
        """Return bool[C], the rivals that no further row can separate from the winner.

        Even if all open probability belonged to the winner, and none to the rival, the
        tolerance of the rows that were read would exceed their distance.
        """
        events, prior = np.array(self.choices), np.array(self.log_prior)
        winner, rivals = self.find_rivals(bounds)
        with np.errstate(invalid="ignore"):  # of probability 0
            below = np.nan_to_num(bounds.as_read.low - bounds.safe.low, nan=0.0)[events]
            above = np.nan_to_num(bounds.safe.high - bounds.as_read.high, nan=0.0)[events]
        read = bounds.as_read.map(lambda logp: logp[events] + prior)
        at_best = (read.high - below)[winner]
        return np.asarray(rivals & (below[winner] + above > 0) & (at_best <= read.low + above))


def total_gap(logp: Interval[FloatArray]) -> float:
    """Return the summed widths of intervals in nats; 0 for probability 0."""
    return float(logp.width.sum())


def share(one: float, of: float) -> float:
    """Return exp(one - of), at most 1; 0 if `one` is -inf."""
    return 0.0 if one == -np.inf else float(numerics.exp(np.array(min(0.0, one - of))))


ROW_ERROR = 1e-6
"""Nats by which rounding may move a log-probability that is read from a row.

A log-sum-exp is usually within 1e-7. In the worst case all its terms are rounded in one
direction when the largest logit is subtracted in float32: by up to 5e-7 where they are
16 below it. Terms further below hardly count. Float64 sums add less than 1e-9.
"""
FIRST_WIDTH = 8
"""Maximum number of rows of the first round."""
GROWTH = 4
"""A later round has at most one row for each `GROWTH` rows read before."""


@dataclass(frozen=True, slots=True, eq=False)
class SpellingSpec:
    """The specification of a `SpellingSearch`.

    Attributes:
        vocabulary: The vocabulary.
        events: E events.
        canonical: The tokens of the canonical spelling of some events, by index.
        goal: Decides which rows are read next, and when to stop.
        budget_nodes: Number of rows after which no new round begins; None for no limit.
            The rows of the canonical spellings count, but are always read.
        max_depth: Maximum number of tokens of a prefix whose row is read.
        tolerance: Nats by which the batch layout may move a log-probability that is
            read from a row. The bounds `safe` are widened by it.
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
    """The result of a `SpellingSearch` for E events.

    Attributes:
        bounds: Proven bounds on the log-probability of each event.
        log_open: float64[E], the log of the probability that open prefixes may still
            add.
        is_exact: bool[E], whether all probabilities in the bounds were known exactly,
            so that only rounding and open prefixes keep the bounds apart.
        canonical: float64[E], bounds on the log-probability of the canonical spelling,
            which differ by rounding; NaN where none was given.
        is_enough: Whether the goal wanted no more rows.
        n_evaluated: Number of rows read.
        n_repeated: Number of nodes that were evaluated again.
    """

    bounds: Bounds
    log_open: FloatArray
    is_exact: BoolArray
    canonical: Interval[FloatArray]
    is_enough: bool
    n_evaluated: int
    n_repeated: int


class SpellingSearch(TaskBase[list[int], SpellingOutcome]):
    """Bounds the probability of each of some events over all token sequences.

    A row gives the probability of all children of a prefix at once. Spellings that are
    complete add to the lower bound of an event. The upper bound adds the probability of
    all open prefixes after which the event may still happen. The canonical spellings
    are read first, because best first alone may complete no spelling for a long time.
    Then the open prefixes with the largest weighted probability are read, in rounds. A
    round depends only on the rows of earlier rounds, so the result does not depend on
    the capacity.

    The bounds hold for the rows as they are read, rounding included (`ROW_ERROR`), and
    never widen.

    Raises `ProtocolError` for an empty prompt, and for a canonical spelling that spells
    other bytes.
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
        self._live = HeldNodes(self._tree, self._tree.may_have_children)
        self._canonical = [(event, self._add_canonical(event, tokens)) for event, tokens in spec.canonical]
        self._open = OpenPrefixes.none()
        # Of these arrays, row 0 is for `Bounds.as_read` and row 1 for `Bounds.safe`.
        self._errors = ROW_ERROR, ROW_ERROR + spec.tolerance
        shape = 2, len(self._lattice.events)
        self._found = Interval(np.full(shape, -np.inf), np.full(shape, -np.inf))
        self._bounds = Interval(np.full(shape, -np.inf), np.zeros(shape))
        self._log_open: FloatArray = np.zeros(shape[1])
        self._is_exact: BoolArray = np.ones(shape[1], dtype=np.bool_)
        self._round = list(range(len(self._tree)))
        self._n_searched = 0

    def bounds(self) -> Bounds:
        """Return the bounds on each event's log-probability so far."""
        index = list(self._lattice.index_of)
        low, high = self._bounds.low[:, index], self._bounds.high[:, index]
        return Bounds(Interval(low[0], high[0]), Interval(low[1], high[1]))

    def _add_canonical(self, event: int, tokens: IntArray) -> int:
        """Add the nodes of a canonical spelling; return the last one to be read."""
        node, path = ROOT, tokens.tolist()
        is_whole = self._spec.events[event].ends
        for token in path if is_whole else path[:-1]:
            node = self._tree.child(node, token)
        if b"".join(self._spec.vocabulary.pieces[token] for token in path) != self._spec.events[event].text:
            raise ProtocolError(f"the canonical spelling of event {event} spells something else")
        if not is_whole:
            self._tree.read_also(node, path[-1])
        return node

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, list[int]] | None:
        """Return the next ask and the nodes whose rows it wants, or None at the end."""
        targets = [node for node in self._round if not self._tree.evaluated[node]]
        if not targets:
            self._round = targets = self._next_round()
        if not targets:
            return None
        return self._live.plan(targets, self._tree.evaluated, capacity)

    def _reads(self, nodes: list[int]) -> Reads:
        """Return the `Reads` for the rows of `nodes`."""
        return Reads.concatenated([self._tree.reads(node) for node in nodes])

    def _read(self, nodes: list[int], rows: Rows) -> None:
        """Read the rows of `nodes`, and update the bounds at the end of a round."""
        for i, node in enumerate(nodes):
            self._tree.read(node, rows, i)
        if all(self._tree.evaluated[node] for node in self._round):
            self._update_bounds()

    def _update_bounds(self) -> None:
        """Update the bounds with the rows of a round."""
        parts = [self._open]
        for node in self._round:
            parts.append(self._tree.prefixes_below(node))
            values, logp = self._tree.read_values(node), self._tree.logp[node]
            events = values.events
            self._is_exact[events] &= values.low == values.high
            # Once without and once with the tolerance: `Bounds.as_read` and
            # `Bounds.safe`.
            for which, row_error in enumerate(self._errors):
                error = row_error * (self._tree.depth[node] + 1)
                low, high = self._found.low[which], self._found.high[which]
                low[events] = np.logaddexp(low[events], logp + values.low - error)
                high[events] = np.logaddexp(high[events], logp + values.high + error)
        self._open = OpenPrefixes.concatenated(parts)
        self._n_searched += len(self._round)
        log_open = np.array([self._open.log_mass(self._lattice, error) for error in self._errors])
        self._log_open = log_open[0]
        self._bounds = Interval(
            np.maximum(self._bounds.low, self._found.low),
            np.minimum(self._bounds.high, np.logaddexp(self._found.high, log_open)),
        )

    def _next_round(self) -> list[int]:
        """Add nodes for the most urgent open prefixes and return them; [] to finish."""
        spec = self._spec
        weights = spec.goal.weights(self.bounds())
        budget = len(self._open) if spec.budget_nodes is None else spec.budget_nodes - self._n_searched
        if weights is None or budget <= 0:
            return []
        by_event = np.full(len(self._lattice.events), -np.inf)
        np.logaddexp.at(by_event, list(self._lattice.index_of), weights)
        urgency = self._open.urgency(self._lattice, by_event)
        urgency[self._open.depth > self._max_depth] = -np.inf
        order = np.argsort(-urgency, kind="stable")
        order = order[urgency[order] > -np.inf]
        # What stays open after the first prefix, the first two, …; no more prefixes are
        # read than bring it below `enough`.
        left_after = np.cumsum(numerics.exp(urgency[order][::-1]))[::-1] - numerics.exp(urgency[order])
        n_enough = 1 + int(np.count_nonzero(left_after > spec.goal.enough))
        picked = order[: min(budget, n_enough, max(FIRST_WIDTH, self._n_searched // GROWTH))]
        taken = self._open.take(picked)
        self._open = self._open.take(np.setdiff1d(np.arange(len(self._open)), picked))
        columns = zip(taken.parent.tolist(), taken.token.tolist(), taken.logp.tolist(), strict=True)
        return [self._tree.child(*one) for one in columns]

    def _result(self) -> SpellingOutcome:
        """Return the bounds found."""
        bounds = self.bounds()
        canonical = np.full((2, len(self._spec.events)), np.nan)
        for event, node in self._canonical:
            canonical[:, event] = self._canonical_bounds(event, node)
        return SpellingOutcome(
            bounds,
            self._log_open[list(self._lattice.index_of)],
            self._is_exact[list(self._lattice.index_of)],
            Interval(canonical[0], canonical[1]),
            self._spec.goal.weights(bounds) is None,
            self._n_searched,
            self._live.n_repeated,
        )

    def _canonical_bounds(self, event: int, node: int) -> tuple[float, float]:
        """Return bounds on the log-probability of the canonical spelling of an event.

        An event is a text, or a text with its end. The last factor of a text alone is
        the probability of its last token, which is read exactly; that of an end is
        known between bounds. `node` is the last node whose row is needed.
        """
        values, logp = self._tree.read_values(node), self._tree.logp[node]
        if not self._spec.events[event].ends:
            low = high = values.named[int(dict(self._spec.canonical)[event][-1])]
        else:
            at = int(np.flatnonzero(values.events == self._lattice.index_of[event])[0])
            low, high = float(values.low[at]), float(values.high[at])
        error = ROW_ERROR * (self._tree.depth[node] + 1)
        return logp + low - error, logp + high + error
