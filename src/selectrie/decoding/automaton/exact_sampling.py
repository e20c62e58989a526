"""Exact samples from the model's joint distribution over the paths of an automaton."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from selectrie.core.automaton import Automaton
from selectrie.core.numerics import Interval, uniform
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, Capacity, FloatArray, IntArray
from selectrie.decoding.automaton.automaton_task import AutomatonSpec, AutomatonTask, FinishedPath
from selectrie.decoding.task import Ask
from selectrie.options import at_least, natural

MAX_KEPT = 2048
"""Tokens of a row that are kept; drawing one beyond them reads the row again."""
END, REST = -1, -2
"""What `pick` returns instead of a token's index.

With `END` the text ends; with `REST` it goes on with a token that was not kept.
"""


@dataclass(slots=True, eq=False)
class KnownRow:
    """The probabilities that a node's row gives to the allowed tokens.

    Attributes:
        ids: int32[m], the tokens that are kept in memory, ascending.
        p: float64[m], their probabilities, above 0.
        end: Probability of ending at the node, 0 if that is not allowed.
        rest: Summed probability of all allowed tokens that are not kept.
        doubtful: Summed probability of the tokens for which a small change of the row
            could change whether they are kept.
        weights: p(t) left(n t) by the token's index, where it differs from p(t) (see
            `RemainingMass`).
    """

    ids: IntArray
    p: FloatArray
    end: float
    rest: float
    doubtful: float
    weights: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, ids: IntArray, p: FloatArray, end: float, *, max_kept: int | None = None, tolerance: float = 0.0
    ) -> KnownRow:
        """Make the row of the allowed tokens `ids` with probabilities `p`.

        Args:
            ids: int32[n], ascending.
            p: float64[n], their probabilities.
            end: Probability of ending at the node, 0 if that is not allowed.
            max_kept: Number of most probable tokens to keep; None keeps all.
            tolerance: Nats by which each log-probability may be off.
        """
        n = len(ids) if max_kept is None else max_kept
        order = np.lexsort((ids, -p))
        kept, rest = order[:n], order[n:]
        doubtful = 0.0
        if len(rest) and tolerance and p[kept[-1]] > 0:
            near = np.abs(np.log(np.maximum(p, np.finfo(np.float64).tiny) / p[kept[-1]])) <= 2 * tolerance
            doubtful = float(p[near].sum())
        kept = np.sort(kept[p[kept] > 0])
        return cls(ids[kept], p[kept], end, float(p[rest].sum()), doubtful)

    def weight(self) -> FloatArray:
        """Return p(t) left(n t) of each kept token, float64[m]."""
        if not self.weights:
            return self.p
        weight: FloatArray = self.p.copy()
        weight[list(self.weights)] = list(self.weights.values())
        return weight

    def left(self) -> float:
        """Return the part of the probability that was not removed, 0 to 1.

        It is a sum of positive terms. Subtracting the removed part from 1 would lose
        precision.
        """
        return self.end + float(self.weight().sum()) + self.rest


class RemainingMass:
    """Tracks how much of each node's probability has not been removed: left(n).

    The nodes form a tree of token paths. The caller numbers them, calls `set_parent` to
    place each one, and removes nodes below which no text lies in the language. left(n)
    is therefore never below the part of n's probability that lies inside the language.

    left(n) = 1 until the node's row is known. Then it is p(end) + the sum over allowed
    tokens t of p(t) left(n t). Each change is carried up to the root.
    """

    def __init__(self) -> None:
        self._left: dict[int, float] = {}
        self._height: dict[int, int] = {}
        self._above: dict[int, tuple[int, int]] = {}  # Parent, index in its row.
        self._rows: dict[int, KnownRow] = {}

    def left(self, node: int) -> float:
        """Return the part of the node's probability that was not removed, 0 to 1."""
        return self._left.get(node, 1.0)

    def height(self, node: int) -> int:
        """Return the number of rows on the longest path on which `left` depends."""
        return self._height.get(node, 0)

    def knows(self, node: int) -> bool:
        """Return whether the node's row is known."""
        return node in self._rows

    def n_kept(self, node: int) -> int:
        """Return the number of tokens that the node's row holds so far.

        The others of the row are known only by their summed probability.
        """
        return len(self._rows[node].ids)

    def token(self, node: int, index: int) -> tuple[int, float]:
        """Return token `index` of those in a node's row, and its probability."""
        row = self._rows[node]
        return int(row.ids[index]), float(row.p[index])

    def doubtful(self, node: int) -> float:
        """Return `KnownRow.doubtful` of the node's row."""
        return self._rows[node].doubtful

    def set_parent(self, node: int, parent: int, index: int) -> None:
        """Record that `node` is token `index` of those in the row of `parent`."""
        self._above[node] = parent, index

    def read(self, node: int, row: KnownRow) -> None:
        """Record the row of a node; `row` itself is not changed."""
        self._rows[node] = replace(row, weights={})
        self._height[node] = 1
        self._set(node, self._rows[node].left())

    def remove(self, node: int) -> None:
        """Remove all texts at and below a node, because none is in the language."""
        self._set(node, 0.0)

    def remove_end(self, node: int) -> None:
        """Remove the text that ends at a node, because it is not in the language."""
        self._rows[node].end = 0.0
        self._set(node, self._rows[node].left())

    def pick(self, node: int, x: float) -> tuple[int, float, float]:
        """Return the outcome at position `x` in [0, left(node)), and its interval.

        The outcomes at a node lie side by side: the end, the tokens that its row holds,
        all other tokens. The result is (`END`, the index of such a token, or `REST`;
        low; high).
        """
        row = self._rows[node]
        if x < row.end:
            return END, 0.0, row.end
        sums = row.end + np.cumsum(row.weight())
        index = int(np.searchsorted(sums, x, side="right"))
        if index == len(sums):
            inside = np.flatnonzero(row.weight())
            if row.rest > 0:
                return REST, float(sums[-1]) if len(sums) else row.end, self.left(node)
            if not len(inside):  # the sums are rounded
                return END, 0.0, row.end
            index = int(inside[-1])
        return index, float(sums[index - 1]) if index else row.end, float(sums[index])

    def pick_rest(self, node: int, ids: IntArray, p: FloatArray, n_kept: int, u: float) -> tuple[int, float, float]:
        """Draw one of the tokens that a node's row does not hold, and add it there.

        Args:
            ids, p: The whole row, as for `KnownRow.of`.
            n_kept: Number of tokens that the row held when `pick` returned `REST`.
            u: The random number, in [0, 1).

        Returns the token's index in the row, and the interval of [0, 1] that u fell in.
        """
        row = self._rows[node]
        beyond = ~np.isin(ids, row.ids[:n_kept])
        sums = np.cumsum(p[beyond])
        at = min(int(np.searchsorted(sums, u * sums[-1], side="right")), len(sums) - 1)
        low, high = float(sums[at - 1] / sums[-1]) if at else 0.0, float(sums[at] / sums[-1])
        token = int(ids[beyond][at])
        known = np.flatnonzero(row.ids == token)
        if len(known):
            return int(known[0]), low, high
        row.ids = np.append(row.ids, np.int32(token))
        row.p = np.append(row.p, float(p[ids == token][0]))
        row.rest = float(p[~np.isin(ids, row.ids)].sum())
        return len(row.ids) - 1, low, high

    def _set(self, node: int, left: float) -> None:
        """Set left(node), and update the nodes above it."""
        self._left[node] = left
        parent, index = self._above.get(node, (NO_NODE, 0))
        while parent != NO_NODE:
            row = self._rows[parent]
            row.weights[index] = float(row.p[index]) * self._left[node]
            self._height[parent] = max(self._height[parent], self._height.get(node, 0) + 1)
            node = parent
            self._left[node] = row.left()
            parent, index = self._above.get(node, (NO_NODE, 0))


WALKS_A_NODE = 32
"""Walks of a stream that each node of the budget allows.

The limit exists because a walk that needs no row costs none of the budget.
"""
_SLACK = 1e-9
"""Generous bound on how far rounding of sums moves an edge, as a share of the edge."""


@dataclass(slots=True)
class _Stream:
    """The state of one text while it is drawn, as the module's docstring describes.

    Attributes:
        mass: left(n), the probability that the stream has not removed.
        claim: c, the value of left(n) of the current node when it was chosen.
        claim_height: Number of rows on one path on which that value depends.
        start: left(root) when the walk began.
        n_kept: Number of tokens that the node's row held when a token beyond them was
            drawn, so that the row must be read again; None otherwise.
        draws: Number of random numbers used.
        close: Numbers of the draws that the tolerance could have decided otherwise.
        n_attempts: Number of walks that have ended.
        text: The text, once it is drawn.
    """

    seed: int
    mass: RemainingMass = field(default_factory=RemainingMass)
    node: int = ROOT
    claim: float = 1.0
    claim_height: int = 0
    start: float = 1.0
    n_kept: int | None = None
    draws: int = 0
    close: list[int] = field(default_factory=list)
    n_attempts: int = 0
    text: FinishedPath | None = None

    def uniform(self) -> float:
        """Return the next random number."""
        self.draws += 1
        return uniform(self.seed, self.draws - 1)

    def begin(self) -> None:
        """Start a walk at the root."""
        self.node = ROOT
        self.claim = self.start = self.mass.left(ROOT)
        self.claim_height = self.mass.height(ROOT)

    def note(self, x: float, low: float, high: float, *, moves: float, doubtful: float = 0.0) -> None:
        """Record the last draw as close if `x` may lie outside [low, high).

        Args:
            x: The random position that decided the draw.
            moves: Nats by which each edge may be off.
            doubtful: Amount by which each edge may be off in addition.
            low, high: The interval of the outcome that was drawn; inf if nothing comes
                after it.
        """
        if moves > 0:
            low = (low * (1 + _SLACK) + doubtful) * float(np.exp(moves)) if low > 0 else 0.0
            high = (high * (1 - _SLACK) - doubtful) * float(np.exp(-moves))
            if not low <= x < high:
                self.close.append(self.draws - 1)


@dataclass(frozen=True, slots=True, eq=False)
class ExactOutcome:
    """The texts that an `ExactSampleTask` drew, with bounds on the total probability.

    Attributes:
        texts: One per stream, in order of their seeds; None if the budget was used up
            or nothing is left.
        close_steps: For each stream, the indices of its random numbers with which the
            tolerance could have changed the draw.
        is_complete: Whether all texts were drawn. If not, those that were drawn are not
            a sample, because short texts come first.
        is_empty: Whether no text of at most `max_tokens` tokens has any probability.
        mass: Bounds on the probability of all such texts together, given the healed
            bytes. The lower one counts the texts found, the upper one all that was not
            removed.
        estimate: Estimate of the same probability: the mean over all attempts of
            left(root) if the attempt was accepted, and 0 otherwise, clipped to these
            bounds.
        n_attempts, n_accepted: Number of walks from the root, and of those that became
            texts.
        strings: Whether each text counts only with the tokenizer's own encoding.
        heal: Log-probability of the healed bytes (`HealedMass.log_heal`), on which all
            numbers are already conditional.
    """

    texts: tuple[FinishedPath | None, ...]
    close_steps: tuple[tuple[int, ...], ...]
    is_complete: bool
    is_empty: bool
    mass: Interval[float]
    estimate: float
    n_attempts: int
    n_accepted: int
    strings: bool
    heal: Interval[float]
    n_evaluated: int
    n_repeated: int


class ExactSampleTask(AutomatonTask[ExactOutcome]):
    """Draws n texts side by side; the module's docstring explains why this is exact.

    Text i is drawn by a stream with the seed `seed` + i. It depends only on that and on
    the rows, neither on the other streams nor on the capacity. All streams go as far as
    they can without a row; then the rows that they need are asked for together. A text
    ends as `spec.terminator` says: with "none", as soon as it may.
    `spec.search` only gives the budget.

    Args:
        tolerance: Nats by which layout may have moved a log-probability. Draws that
            this could change are noted; with 0 none is.
    """

    def __init__(
        self,
        prompt: IntArray,
        automaton: Automaton,
        spec: AutomatonSpec,
        *,
        n: int,
        seed: int,
        tolerance: float = 0.0,
        max_kept: int = MAX_KEPT,
    ) -> None:
        super().__init__(prompt, automaton, spec)
        at_least("n", n, 1, optional=False)
        natural("seed", seed, "a whole number of at least 0")
        uniform(seed + n - 1, 0)
        self._tolerance, self._max_kept = tolerance, max_kept
        self._known: dict[int, KnownRow] = {}
        self._end_logps: dict[int, float] = {}
        # Nodes at and below which nothing lies in the language.
        self._dead: set[int] = set()
        # Nodes where the text that ends there is outside the language.
        self._no_end: set[int] = set()
        self._is_canonical: dict[int, bool] = {}
        self._streams = [_Stream(seed + i) for i in range(n)]
        # Nodes of this round, including those that stand in for a row to be read again.
        self._required: list[int] = []
        # A node that replaces another one, from whose rest a token is drawn.
        self._again: dict[int, int] = {}
        self._rests: dict[int, tuple[IntArray, FloatArray]] = {}
        # Log-probability of each text found, by its last node.
        self._leaves: dict[int, float] = {}
        self._estimate = 0.0

    @property
    def n_drawn(self) -> int:
        """Return how many texts have been drawn so far."""
        return sum(stream.text is not None for stream in self._streams)

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, list[int]] | None:
        """Return the ask for the nodes that all streams need next; None at the end."""
        if self._healing.waiting != NO_NODE:
            return self._live.plan([self._healing.waiting], self._tree.evaluated, capacity)
        self._required = [node for node in self._required if not self._tree.evaluated[node]]
        if not self._required:
            self._advance()
        budget = self._spec.search.budget_nodes
        left = len(self._required) if budget is None else budget - self.n_evaluated
        if self._required and left > 0:
            return self._live.plan(self._required[:left], self._tree.evaluated, capacity)
        return None

    def _goes_on(self, stream: _Stream) -> bool:
        """Return whether the stream still has to draw its text.

        False if it has drawn it, if no text is left, or if it has used up its walks.
        """
        budget = self._spec.search.budget_nodes
        is_spent = budget is not None and stream.n_attempts >= WALKS_A_NODE * budget
        return stream.text is None and stream.mass.left(ROOT) > 0 and not is_spent

    def _result(self) -> ExactOutcome:
        """Return the texts drawn, and bounds on the probability of the language."""
        heal = self._healing.log_heal()
        texts = tuple(None if one.text is None else self._conditional(one.text, heal.low) for one in self._streams)
        low = float(np.exp(np.array(list(self._leaves.values())) - heal.low - heal.width).sum())
        high = min(1.0, float(self._not_removed() * np.exp(-heal.low)))
        if high and not self._healing.is_known:
            high = 1.0  # of the healed bytes' probability, which may be as small
        low = min(low, high)  # both are rounded sums
        n_attempts = sum(stream.n_attempts for stream in self._streams)
        estimate = self._estimate * float(np.exp(-heal.low)) / max(1, n_attempts)
        return ExactOutcome(
            texts=texts,
            close_steps=tuple(tuple(stream.close) for stream in self._streams),
            is_complete=None not in texts,
            is_empty=any(stream.mass.left(ROOT) <= 0 for stream in self._streams),
            mass=Interval(low, high),
            estimate=min(max(estimate, low), high),
            n_attempts=n_attempts,
            n_accepted=sum(text is not None for text in texts),
            strings=self._spec.canonical is not None,
            heal=heal,
            n_evaluated=self.n_evaluated,
            n_repeated=self._live.n_repeated,
        )

    def _not_removed(self) -> float:
        """Return left(root) after removing everything that any stream removed."""
        tree = self._tree
        left: dict[int, float] = {}
        # By node: what is left of its children, by token.
        below: dict[int, dict[int, float]] = {}
        # From the leaves up, as `RemainingMass` defines left(n).
        for node in range(len(tree) - 1, -1, -1):
            left[node] = 0.0 if node in self._dead else 1.0
            if node in self._known and node not in self._dead:
                row, known = self._known[node], below.pop(node, {})
                weight = row.p.copy()
                tokens = np.array(list(known), dtype=np.int32)
                indices = np.minimum(np.searchsorted(row.ids, tokens), max(0, len(row.ids) - 1))
                is_kept = row.ids[indices] == tokens if len(row.ids) else np.zeros(len(tokens), dtype=np.bool_)
                weight[indices[is_kept]] *= np.array(list(known.values()))[is_kept]
                left[node] = (0.0 if node in self._no_end else row.end) + float(weight.sum()) + row.rest
            parent, token = tree.parent[node], tree.token[node]
            if tree.find(parent, token) == node:
                below.setdefault(parent, {})[token] = left[node]
        return left[ROOT]

    def _conditional(self, text: FinishedPath, log_heal: float) -> FinishedPath:
        """Return the text with a log-probability conditional on the healed bytes."""
        logp = text.logp - log_heal
        return replace(text, logp=logp, logp_path=logp, score=text.score - log_heal)

    def _row_reads(self, node: int) -> Reads:
        """Return the `Reads` that the streams need from a node's row."""
        is_healing = node == self._healing.waiting
        if is_healing and node != ROOT:
            return self._healing.reads()
        reads = Reads.of_row(self._ids_after(self._again.get(node, node)))
        if node not in self._again:
            reads = reads.joined(self._end_reads(node))
        return reads.joined(self._healing.reads()) if is_healing else reads

    def _read_row(self, node: int, rows: Rows, i: int) -> None:
        """Read row `i` of `rows`, which is the row of `node`."""
        if node == self._healing.waiting:
            self._heal(rows, i)
            if node != ROOT:
                return
        source = self._again.get(node, node)
        ids = self._ids_after(source)
        p = np.exp(np.minimum(rows.logp(i, ids), 0.0))
        if node in self._again:
            self._rests[source] = ids, p
            return
        self._end_logps[node] = self._end_logp(node, rows, i)
        self._known[node] = KnownRow.of(
            ids,
            p,
            float(np.exp(self._end_logps[node])) if self._ends_by_row(node) else 0.0,
            # Row 0 cannot be read again.
            max_kept=None if node == ROOT else self._max_kept,
            tolerance=self._tolerance,
        )
        if node == ROOT:
            for stream in self._streams:
                stream.mass.read(ROOT, self._known[ROOT])
                stream.begin()

    def _heal(self, rows: Rows, i: int) -> None:
        """Read a row for the mass of the healed bytes, and add the node to read next.

        That node is not part of the tree that the streams walk.
        """
        more = self._healing.read(rows, i, self._tree.logp[self._healing.waiting])
        if more is not None:
            self._healing.wait_for(self._tree.add_beside(*more))

    def _advance(self) -> None:
        """Let every stream go as far as it can; collect the nodes then needed."""
        again: dict[int, int] = {}
        required: dict[int, None] = {}
        for stream in self._streams:
            while self._goes_on(stream) and self._can_step(stream):
                self._step(stream)
            if self._goes_on(stream):
                node = stream.node
                if stream.n_kept is not None:
                    if node not in again:
                        tree = self._tree
                        # The row was read and not kept whole, so it is read again under
                        # another number.
                        again[node] = tree.add_beside(tree.parent[node], tree.token[node], tree.edge[node])
                    node = again[node]
                required[node] = None
        self._again = {twin: node for node, twin in again.items()}
        self._rests.clear()
        self._required = list(required)

    def _can_step(self, stream: _Stream) -> bool:
        """Return whether the row for the stream's next step was read."""
        if stream.n_kept is not None:
            return stream.node in self._rests
        return self._tree.evaluated[stream.node]

    def _step(self, stream: _Stream) -> None:
        """Let the stream go to a token, end its text, or reject its walk."""
        node, mass = stream.node, stream.mass
        if stream.n_kept is not None:
            # A token beyond those kept was drawn; the whole row, read again, says
            # which.
            ids, p = self._rests[node]
            u = stream.uniform()
            index, low, high = mass.pick_rest(node, ids, p, stream.n_kept, u)
            stream.note(u, low, high, moves=2 * self._tolerance, doubtful=mass.doubtful(node))
            stream.n_kept = None
            self._enter(stream, index, 1.0, 0)
            return
        if not mass.knows(node):
            mass.read(node, self._known[node])
        x = stream.uniform() * stream.claim
        moves, doubtful = self._tolerance * (mass.height(node) + stream.claim_height), mass.doubtful(node)
        # The probability was removed since the node was chosen.
        if x >= mass.left(node):
            stream.note(x, mass.left(node), np.inf, moves=moves)
            self._reject(stream)
            return
        index, low, high = mass.pick(node, x)
        stream.note(x, low, high, moves=moves, doubtful=doubtful)
        if index == REST:
            stream.n_kept = mass.n_kept(node)
        elif index != END:
            child = self._tree.find(node, mass.token(node, index)[0])
            self._enter(stream, index, mass.left(child), mass.height(child))
        elif not self._accept(stream, node, self._end_logps[node]):
            self._no_end.add(node)
            mass.remove_end(node)
            self._reject(stream)

    def _enter(self, stream: _Stream, index: int, claim: float, claim_height: int) -> None:
        """Move the stream to the kept token with this index in its node's row.

        `claim` and `claim_height` are those of the stream at that token (see
        `_Stream`).
        """
        mass, tree = stream.mass, self._tree
        token, p = mass.token(stream.node, index)
        child = tree.find(stream.node, token)
        if child == NO_NODE:
            child = self._child(stream.node, token, p)
        mass.set_parent(child, stream.node, index)
        stream.node, stream.claim, stream.claim_height = child, claim, claim_height
        if self._ends_at_once(child) and child not in self._dead:
            if self._accept(stream, child, 0.0):
                return
            self._dead.add(child)
        if child in self._dead:
            mass.remove(child)
        if mass.left(child) <= 0:
            self._reject(stream)

    def _child(self, parent: int, token: int, p: float) -> int:
        """Return a new node, marked as dead if no text can go through it.

        A node is dead if it can neither end nor go on, or if the tokenizer never writes
        its last two tokens side by side.
        """
        node = self._add_child(parent, token, float(np.log(p)))
        leads_on = self._tree.can_end[node] or self._may_go_on(node)
        if not leads_on or not self._spec.may_follow(self._tree, parent, token):
            self._dead.add(node)
        return node

    def _accept(self, stream: _Stream, node: int, terminator: float) -> bool:
        """End the stream's text at the node, unless its path is not canonical.

        Returns:
            Whether the text was accepted.
        """
        spec, tree = self._spec, self._tree
        if node not in self._is_canonical:
            self._is_canonical[node] = spec.canonical is None or spec.canonical(list(tree.tokens(node)))
        if not self._is_canonical[node]:
            return False
        logp = tree.logp[node] + terminator
        stream.text = spec.finished_path(tree, node, terminator, logp, logp)
        self._leaves[node] = logp
        stream.n_attempts += 1
        self._estimate += stream.start
        stream.mass = RemainingMass()  # no longer needed
        return True

    def _reject(self, stream: _Stream) -> None:
        """Count the attempt and return to the root."""
        stream.n_attempts += 1
        stream.begin()
