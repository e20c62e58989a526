"""How probable the healed bytes are after a prompt, from as few rows as that needs."""

from __future__ import annotations

import heapq

import numpy as np

from selectrie.core import numerics
from selectrie.core.model import Rows
from selectrie.core.types import NO_NODE, ROOT
from selectrie.core.vocabulary import Vocabulary

MOST_ROWS = 16
"""Rows read for it, row 0 included."""
ENOUGH = 1e-6
"""Part of the probability that may stay open: nats of error in every log-probability."""


MOST_GAP = 2 * ENOUGH
"""Nats that the log-probability of the healed bytes may be too low by where it counts
as known."""


class HealedMass:
    """The probability that text begins with the healed bytes, which every score is conditional on.

    Of each node whose bytes are a proper prefix of the healed ones, the row says how probable the tokens are that begin with
    what is left of them (covered), and those that are a proper prefix of it (open: they may go on with it or not). The
    probability lies between the sum N of all that is covered and N + O, with O all that is open (`boundary.healing` has the
    same for choices). The heaviest open token is read next until O is at most `ENOUGH` N, or `MOST_ROWS` rows are read.
    """

    def __init__(self, vocabulary: Vocabulary, healed: bytes) -> None:
        self._vocabulary = vocabulary
        self._left = {ROOT: healed}  # bytes left at each node that is read here
        self._waiting = ROOT if healed else NO_NODE
        self._covered = -np.inf
        self._open: list[
            tuple[float, int, int, float]
        ] = []  # minus log-probability of both, node, token, logp of the token
        self._n_read = 0

    @property
    def waiting(self) -> int:
        """The node whose row is to be read next, NO_NODE for none."""
        return self._waiting

    def read(self, rows: Rows, i: int, prefix: float) -> tuple[int, int, float] | None:
        """Read the row of the node waited for, which stands `prefix` below the root.

        Returns (node, token, logp of the token) of the next one, whose number `wait_for` is to be told, or None where it is enough.
        """
        node, self._waiting = self._waiting, NO_NODE
        left = self._left[node]
        covering, short = self._vocabulary.with_prefix(left), self._vocabulary.prefixes_of(left)
        self._covered = float(np.logaddexp(self._covered, prefix + rows.log_mass(i, covering)))
        for token, logp in zip(short.tolist(), rows.logp(i, short).tolist(), strict=True):
            if logp > -np.inf:
                heapq.heappush(self._open, (-prefix - logp, node, token, logp))
        self._n_read += 1
        if self._n_read >= MOST_ROWS or self._log_open() <= self._covered + np.log(ENOUGH):
            return None
        return self._open[0][1:]

    def wait_for(self, node: int) -> None:
        """The number of the node that `read` named."""
        _, parent, token, _ = heapq.heappop(self._open)
        self._left[node] = self._left[parent][len(self._vocabulary.pieces[token]) :]
        self._waiting = node

    def log_heal(self) -> tuple[float, float]:
        """Log of N, and log((N + O) / N) by which the true value may lie above it.

        (0.0, 0.0) where nothing was healed; (0.0, inf) where nothing covers the bytes, so that no condition can be put.
        """
        if not self._n_read:
            return 0.0, 0.0
        if self._covered == -np.inf:
            return 0.0, np.inf
        return self._covered, float(np.logaddexp(0.0, self._log_open() - self._covered))

    def _log_open(self) -> float:
        return numerics.logsumexp(np.array([-minus for minus, *_ in self._open], dtype=np.float64))
