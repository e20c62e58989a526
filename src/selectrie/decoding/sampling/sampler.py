"""Draws one token from a row of logits.

The module also counts the recent tokens for penalties, and tells whether a draw is
close.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, IntArray
from selectrie.decoding.sampling.chain import Adjustments, Pool, distribution
from selectrie.decoding.sampling.stability import could_change, is_close_to_best
from selectrie.errors import DeadEndError
from selectrie.options import SamplingParams


@dataclass(frozen=True, slots=True)
class Draw:
    """A token that was drawn.

    Attributes:
        token: The token's id.
        close: Whether a change of every logit by at most the tolerance could change the
            token. It is never False where it could (see `stability`).
        logp: The token's log-probability under the full softmax, if it was read.
    """

    token: int
    close: bool
    logp: float | None = field(default=None, compare=False)


class Sampler:
    """The sampler chain of one sequence, with the recent tokens that penalties count.

    Args:
        history: int[T], the prompt's tokens.
    """

    def __init__(self, sampling: SamplingParams, history: Iterable[int] | IntArray) -> None:
        self._sampling = sampling
        n = sampling.penalty_last_n if sampling.penalises else 0
        self._recent: deque[int] = deque(maxlen=None if n < 0 else n)
        self._counts: Counter[int] = Counter()
        self._adjustments: Adjustments | None = None
        if n:
            tokens = np.asarray(history, dtype=np.int64).tolist()
            for token in tokens if n < 0 else tokens[-n:]:
                self.accept(token)

    @property
    def n_top(self) -> int:
        """Return how many of the most probable allowed tokens a draw reads.

        0 means that it reads the whole row. A greedy draw from unchanged logits reads
        two tokens: the one it draws, and the one that may be close to it.
        """
        options = self._sampling
        is_plain = not options.penalises and not options.logit_bias
        return 2 if options.temperature == 0 and options.typical_p == 1 and is_plain else 0

    def accept(self, token: int) -> None:
        """Record a token that was drawn, for the penalties."""
        if not self._sampling.penalises:
            return
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._recent.append(token)
        self._counts[token] += 1
        self._adjustments = None

    def draw(
        self,
        rows: Rows,
        i: int,
        uniform: float,
        *,
        allowed: BoolArray | IntArray | None = None,
        tolerance: float = 0.0,
    ) -> Draw:
        """Draw the first token, by id, whose cumulative probability exceeds `uniform`.

        Args:
            uniform: A number in [0, 1).
            allowed: bool[V] or ids; None means all.
            tolerance: Nats by which each logit may be off; with 0, `close` is not
                computed.

        Raises:
            DeadEndError: If no allowed token is possible.
            NonFiniteLogitsError: If the largest logit is not finite.
            TokenRangeError: For a bias or count of a token that does not exist.
        """
        if self.n_top:
            return self._best(rows, i, allowed, tolerance)
        if self._adjustments is None:
            self._adjustments = Adjustments.of(self._sampling, self._counts)
        pool = Pool.of(rows.logits(i), self._adjustments, allowed, row=i)
        ids, p = distribution(pool, self._sampling)
        index = 0
        if len(ids) > 1:
            cumulative = np.cumsum(p)
            cumulative /= cumulative[-1]
            index = int(np.searchsorted(cumulative, uniform, side="right"))
        token = int(ids[index])
        return Draw(token, tolerance > 0 and could_change(pool, token, uniform, self._sampling, tolerance))

    def _best(self, rows: Rows, i: int, allowed: BoolArray | IntArray | None, tolerance: float) -> Draw:
        """Draw the most probable token, the first one of several."""
        ids, logp = rows.top(i, self.n_top, allowed)
        if not len(ids):
            n_allowed = 0 if allowed is None else len(np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed)
            raise DeadEndError(n_allowed)
        gap = float(logp[0] - logp[1]) if len(ids) > 1 else np.inf
        return Draw(int(ids[0]), tolerance > 0 and is_close_to_best(gap, tolerance), float(logp[0]))
