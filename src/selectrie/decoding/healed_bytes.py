"""Which tokens of a path spell healed bytes, and how probable these bytes are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, ROOT, IntArray
from selectrie.core.vocabulary import Vocabulary


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
