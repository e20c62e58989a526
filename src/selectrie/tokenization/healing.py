"""Computes the probability of healed bytes by a trie or along paths, and draws them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, ROOT, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError


@dataclass(frozen=True, slots=True, eq=False)
class HealPlan:
    """The probabilities to read in order to bound the probability of the healed bytes.

    The healed bytes are the end of the prompt whose tokens were removed. Take a trie
    node n whose bytes are a proper prefix of them, and let `rest` be the bytes that
    follow there.

    - Covering tokens begin with all of `rest`.
    - Inner children of n spell a proper prefix of `rest`.
    - Open tokens spell a proper prefix of `rest` too, but are not children in the trie.

    With sums over the inner children m of n:

        N(n) = p(covering tokens) + sum of p(m) N(m)
        O(n) = p(open tokens) + sum of p(m) O(m)

    After an open token the text may or may not continue with the rest, so the
    probability of the healed bytes lies in [N(root), N(root) + O(root)].

    Attributes:
        nodes: int32[H], these trie nodes, parents first, beginning with the root; empty
            if nothing was healed.
        parent_index: int32[H], index in `nodes` of each node's parent; -1 for the root.
        observations: Pairs (trie node, int32[] token ids), two for each node: first its
            covering tokens, then its open tokens.
    """

    nodes: IntArray
    parent_index: IntArray
    observations: tuple[tuple[int, IntArray], ...]

    def log_heal(self, edge_logp: FloatArray, observed: Interval[FloatArray]) -> Interval[float]:
        """Return bounds on the log-probability of the healed bytes; 0.0 without any.

        The lower bound is log N(root), computed from the lower bounds of `observed`.
        The upper bound is log(N(root) + O(root)), computed from the upper bounds.

        Args:
            edge_logp: float64[N], log-probability of each trie node's token after its
                parent; only the entries of `nodes` are read.
            observed: float64[2H], for each of `observations` the log of the summed
                probability of its tokens (-inf for no tokens).
        """
        if len(observed.low) != len(self.observations):
            raise ProtocolError(f"got {len(observed.low)} observed values, expected {len(self.observations)}")
        if not len(self.nodes):
            return Interval.point(0.0)
        low, opened = self._sums(edge_logp, observed.low)
        if observed.is_known and low > -np.inf:
            return Interval.above(low, float(np.logaddexp(0.0, opened - low)))
        high = float(np.logaddexp(*self._sums(edge_logp, observed.high)))
        return Interval(low, high) if high > low else Interval.point(low)

    def is_low_exact(self, edge_logp: FloatArray, observed: Interval[FloatArray]) -> bool:
        """Return whether the lower bound of `log_heal` is exactly log N(root)."""
        return observed.is_known or len({self._sums(edge_logp, one)[0] for one in (observed.low, observed.high)}) == 1

    def _sums(self, edge_logp: FloatArray, observed: FloatArray) -> tuple[float, float]:
        """Return log N(root) and log O(root), summed from the deepest nodes upwards."""
        covered, opened = observed[0::2].copy(), observed[1::2].copy()
        for i in range(len(self.nodes) - 1, 0, -1):
            parent, edge = self.parent_index[i], edge_logp[self.nodes[i]]
            covered[parent] = np.logaddexp(covered[parent], edge + covered[i])
            opened[parent] = np.logaddexp(opened[parent], edge + opened[i])
        return float(covered[0]), float(opened[0])


def heal_plan(vocabulary: Vocabulary, trie: TokenTrie, healed: bytes) -> HealPlan:
    """Return the plan for making scores conditional on the bytes `healed`.

    The paths of `trie` begin at its root with these bytes (`EncodedChoices.healed`). If
    the bytes reach back to the beginning of a text, they include the space that the
    tokenizer adds there. If every path spells all of them, the nodes of the plan are
    inner nodes, and their rows are evaluated anyway.
    """
    nodes: list[int] = []
    parent_index: list[int] = []
    observations: list[tuple[int, IntArray]] = []
    waiting = [(0, -1, healed)] if healed else []
    while waiting:
        node, parent, left = waiting.pop()
        index = len(nodes)
        nodes.append(node)
        parent_index.append(parent)
        children = trie.child[trie.child_start[node] : trie.child_start[node + 1]]
        short = vocabulary.prefixes_of(left)
        is_child = np.isin(short, trie.token[children])
        observations += [(node, vocabulary.with_prefix(left)), (node, short[~is_child])]
        planned = children[np.isin(trie.token[children], short)]
        waiting += [
            (child, index, left[len(vocabulary.pieces[trie.token[child]]) :]) for child in planned[::-1].tolist()
        ]
    return HealPlan(np.array(nodes, dtype=np.int32), np.array(parent_index, dtype=np.int32), tuple(observations))


class HealedBytes:
    """An automaton that lets drawn tokens spell the healed bytes of a prompt first.

    A state is the number of bytes spelled. Once all are spelled (`is_spelt`), any token
    may come, and the automaton is no longer needed.

    Attributes:
        data: The bytes, at least one.
    """

    def __init__(self, vocabulary: Vocabulary, data: bytes) -> None:
        if not data:
            raise ProtocolError("there are no healed bytes")
        self.data = data
        self._vocabulary = vocabulary
        self._kept: dict[int, IntArray] = {}

    def start(self) -> int:
        """Return the state before the first token."""
        return 0

    def is_spelt(self, state: int) -> bool:
        """Return whether the tokens so far spell all healed bytes."""
        return state >= len(self.data)

    def allowed(self, state: int) -> IntArray:
        """Return the tokens that agree with the remaining bytes, int32[], ascending.

        A token agrees if its bytes are a prefix of the remaining bytes, or these are a
        prefix of its bytes. Tokens that end a generation are excluded.
        """
        tokens = self._kept.get(state)
        if tokens is None:
            left = self.data[state:]
            agreeing = np.union1d(self._vocabulary.prefixes_of(left), self._vocabulary.with_prefix(left))
            tokens = np.setdiff1d(agreeing, self._vocabulary.eog).astype(np.int32)
            tokens.setflags(write=False)
            self._kept[state] = tokens
        return tokens

    def advance(self, state: int, token: int) -> int:
        """Return the state after one more token.

        Raises `ProtocolError` for a token whose bytes do not agree with the remaining
        ones.
        """
        left, piece = self.data[state:], self._vocabulary.piece(token)
        if not piece or not (left.startswith(piece) or piece.startswith(left)):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return min(len(self.data), state + len(piece))

    def can_end(self, state: int) -> bool:
        """Return whether a text may end here: all healed bytes are spelled."""
        return self.is_spelt(state)


@dataclass(frozen=True, slots=True, eq=False)
class Healed:
    """The number of healed bytes, which every path spells first, and token lengths.

    Attributes:
        n_bytes: The number of healed bytes.
        lengths: int32[V], the number of bytes of each token.
    """

    n_bytes: int
    lengths: IntArray

    def after(self, left: int, token: int) -> tuple[int, bool]:
        """Return the number of healed bytes left after `token`, and whether it is text.

        `left` are left before it. A token counts as text unless it spells only such
        bytes.
        """
        if not left:
            return 0, True
        length = int(self.lengths[token])
        return max(0, left - length), not 0 < length <= left

    def n_text(self, tokens: Iterable[int]) -> int:
        """Return how many tokens of a path spell more than healed bytes.

        This is the number that `max_tokens` bounds.
        """
        left, n = self.n_bytes, 0
        for token in tokens:
            left, counts = self.after(left, token)
            n += counts
        return n


NOTHING_HEALED = Healed(0, np.empty(0, dtype=np.int32))

MAX_ROWS = 16
"""Maximum number of rows read for it, row 0 included.

If no token is known to cover the bytes by then, at most as many more are read as there
are bytes.
"""
ENOUGH = 1e-6
"""Share of the probability that may stay open.

It is also the error of every log-probability, in nats.
"""


MAX_GAP = 2 * ENOUGH + 1e-9
"""Largest error, in nats, at which the log-probability counts as known.

The value computed for the healed bytes may be too low by this much. Bounds on it are
rounded outward, which does not count.
"""


class _Open(NamedTuple):
    """A token that is a proper prefix of the bytes left at its parent.

    Attributes:
        cost: Minus the log-probability of parent and token together.
        parent: Node whose row it was read from.
        token: Its id.
        logp: Its log-probability given the parent.
    """

    cost: float
    parent: int
    token: int
    logp: float


class HealedMass:
    """The probability that text begins with the healed bytes.

    Every score is conditional on it. Consider a node whose path spells a proper prefix
    of the healed bytes. Its row gives the probability of the tokens that begin with the
    remaining bytes (covered), and of the tokens that are a proper prefix of them (open:
    the text after such a token may or may not go on with the rest). With N the sum of
    all that is covered and O the sum of all that is open, the probability lies between
    N and N + O. Where a row was not read in full, N has the lower bound on what is
    covered, and O also has what is missing to the upper one. `tokenization.healing`
    does the same for choices. The row of the most probable open token is read next,
    until O is at most `ENOUGH` N or `MAX_ROWS` rows are read. If N is still 0, as may
    be if the bytes are long and unexpected, the row with the fewest bytes left is read
    next, until a token covers them.
    """

    def __init__(self, vocabulary: Vocabulary, healed: bytes) -> None:
        self._vocabulary = vocabulary
        self._left = {ROOT: healed}  # bytes left at each node that is read here
        self._waiting = ROOT if healed else NO_NODE
        self._covered = -np.inf
        self._unread = -np.inf  # what the rows that were read may cover beyond that
        self._open: list[_Open] = []  # the one that is read next is the first
        self._n_read = 0

    @property
    def waiting(self) -> int:
        """Return the node whose row is to be read next, NO_NODE for none."""
        return self._waiting

    def reads(self) -> Reads:
        """Return the `Reads` that `read` needs from the row of the waiting node."""
        covering, short = self._tokens(self._left[self._waiting])
        return Reads.of_row(short, masses=[covering])

    def _tokens(self, left: bytes) -> tuple[IntArray, IntArray]:
        """Return the tokens that begin with `left`, and those that `left` begins with.

        Both are int32[], ascending. The second are proper prefixes.
        """
        return self._vocabulary.with_prefix(left), self._vocabulary.prefixes_of(left)

    def read(self, rows: Rows, i: int, prefix: float) -> tuple[int, int, float] | None:
        """Read the row of the node `waiting`, whose path has log-probability `prefix`.

        Returns:
            The node to read next as (parent, token, logp of the token), or None when no
            more rows are needed. The caller adds that node and passes its number to
            `wait_for`.
        """
        node, self._waiting = self._waiting, NO_NODE
        left = self._left[node]
        if self._n_read:
            self._open.pop(0)
        covering, short = self._tokens(left)
        low, high = rows.log_mass_bounds(i, covering)
        self._covered = float(np.logaddexp(self._covered, prefix + low))
        if low != high:
            self._unread = float(np.logaddexp(self._unread, prefix + numerics.logdiffexp(high, low)))
        for token, logp in zip(short.tolist(), rows.logp(i, short).tolist(), strict=True):
            if logp > -np.inf:
                self._open.append(_Open(-prefix - logp, node, token, logp))
        self._n_read += 1
        limit = MAX_ROWS if self.is_known else MAX_ROWS + len(self._left[ROOT])
        if self._n_read >= limit or self._log_open() <= self._covered + np.log(ENOUGH):
            return None
        is_late = self._n_read >= MAX_ROWS
        self._open.sort(key=lambda one: (len(self._left_after(one)) if is_late else 0, one))
        return self._open[0][1:]

    def wait_for(self, node: int) -> None:
        """Set the number of the node that `read` described."""
        self._left[node] = self._left_after(self._open[0])
        self._waiting = node

    def _left_after(self, one: _Open) -> bytes:
        """Return the bytes left after an open token."""
        return self._left[one.parent][len(self._vocabulary.pieces[one.token]) :]

    @property
    def is_known(self) -> bool:
        """Return whether a lower bound above 0 is known, or nothing was healed."""
        return not self._n_read or self._covered > -np.inf

    def log_heal(self) -> Interval[float]:
        """Return log N and log(N + O), between which the true value lies.

        Returns 0.0 if nothing was healed, and 0.0 and inf if no token is known to cover
        the bytes (not `is_known`). Scores then cannot be made conditional on them: they
        stay those of the whole paths, which are lower bounds, and nothing is proved.
        Upper bounds on conditional probabilities are 1.
        """
        if not self.is_known:
            return Interval(0.0, np.inf)
        if not self._n_read:
            return Interval.point(0.0)
        log_open = self._log_open()
        if self._unread > -np.inf:
            log_open = float(np.logaddexp(log_open, self._unread))
        return Interval.above(self._covered, float(np.logaddexp(0.0, log_open - self._covered)))

    def _log_open(self) -> float:
        return numerics.logsumexp(np.array([-one.cost for one in self._open], dtype=np.float64))
