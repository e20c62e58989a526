"""Estimates the probability that bounds leave open, from spellings that are drawn.

This is the importance sampling of Chirkova, Kruszewski, Rozen and Dymetman, "Should you
marginalize over possible tokenizations?" (ACL 2023, arXiv:2306.17757), with tokens in
place of their blocks, and applied to what the bounds leave open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decoding.rng import uniform
from selectrie.decoding.spelling.goals import share
from selectrie.decoding.spelling.lattice import Lattice
from selectrie.decoding.spelling.open_prefixes import OpenPrefixes
from selectrie.decoding.spelling.tree import SpellingTree


@dataclass(frozen=True, slots=True)
class SampledMass:
    """An estimate of the probability of an event.

    Attributes:
        logp: Natural log of the estimate.
        relative_error: Standard error of the probability, divided by the estimate.
        n_draws: Number of spellings drawn.
        n_rows: Number of rows that were read for them alone.
    """

    logp: float
    relative_error: float
    n_draws: int
    n_rows: int


class Draws:
    """Spellings of an event that are drawn below what a search left open.

    A draw begins with one of the open prefixes. It goes on token by token, among those
    that still spell the event, until the event happens. Prefixes and tokens are drawn
    by their probability times a guess of how probable the rest of the text is from
    there on. Without one, nearly all draws would begin with probable prefixes that
    hardly any spelling continues. There are several guesses, and draws take turns with
    them.

    The weight of a draw is the probability of what was drawn, divided by the mean
    probability, over the guesses, of drawing it. Whatever the guesses, the mean weight
    estimates without bias what the search left open of the event.

    Args:
        tree: The tree of the search; rows that it has read are used again.
        lattice: The lattice of its states.
        event: The event, an index of `lattice.events`.
        left_open: What the search left open.
        log_rest: float64[G, n + 1], G guesses for each of the n + 1 positions in the
            text: the log-probability of the bytes after it.
        n_draws: Number of draws, at least 2. There are none if nothing is open.
        seed: Draw i takes its random numbers from `seed` + i.
    """

    def __init__(
        self,
        tree: SpellingTree,
        lattice: Lattice,
        event: int,
        left_open: OpenPrefixes,
        *,
        log_rest: FloatArray,
        n_draws: int,
        seed: int,
    ) -> None:
        self._tree, self._lattice, self._event = tree, lattice, event
        self._log_rest, self._seed = log_rest, seed
        prefixes = left_open.take(self._is_alive(left_open.state))
        n = n_draws if len(prefixes) else 0
        self._at = np.zeros(n, dtype=np.int32)
        self._logp: FloatArray = np.zeros(n)
        self._log_chance: FloatArray = np.zeros((n, len(log_rest)))
        self._is_running = np.ones(n, dtype=np.bool_)
        self._is_exact = True
        self._n_rows = 0
        guess = self._guess(prefixes.state)
        for draw in range(n):
            at = self._pick(draw, 0, prefixes.logp, guess)
            self._at[draw] = tree.child(int(prefixes.parent[at]), int(prefixes.token[at]), float(prefixes.logp[at]))

    def advance(self) -> list[int]:
        """Move every draw as far as the rows that were read lead.

        Returns the nodes whose rows the draws need next, none if all have ended.
        """
        waiting: dict[int, None] = {}
        for draw in range(len(self._at)):
            while self._is_running[draw] and self._tree.evaluated[self._at[draw]]:
                self._move(draw)
            if self._is_running[draw]:
                waiting[int(self._at[draw])] = None
        self._n_rows += len(waiting)
        return list(waiting)

    def result(self, log_found: float) -> SampledMass | None:
        """Return the estimate; None if some probability was known only by bounds.

        Args:
            log_found: Log of the probability that the search found.
        """
        n = len(self._at)
        if not n:
            return SampledMass(log_found, 0.0, 0, 0)
        if not self._is_exact:
            return None
        log_chance = np.logaddexp.reduce(self._log_chance, axis=1) - math.log(self._log_chance.shape[1])
        log_weight = self._logp - log_chance
        scale = max(log_found, float(log_weight.max()))
        if scale == -np.inf:
            return SampledMass(scale, np.nan, n, self._n_rows)
        weights = numerics.exp(log_weight - scale)
        estimate = share(log_found, scale) + float(weights.mean())
        error = float(weights.std(ddof=1)) / math.sqrt(n)
        return SampledMass(scale + math.log(estimate), error / estimate, n, self._n_rows)

    def _is_alive(self, states: IntArray) -> BoolArray:
        alive = map(self._lattice.alive, states.tolist())
        return np.array([one.start <= self._event < one.stop for one in alive], dtype=np.bool_)

    def _guess(self, states: IntArray) -> FloatArray:
        """Return the guesses of the log-probability of the rest, float64[G, n]."""
        return self._log_rest[:, np.array([self._lattice.position(one) for one in states.tolist()], dtype=np.int64)]

    def _move(self, draw: int) -> None:
        """Draw the next token, or the event itself, from the row of a draw's node."""
        tree, node = self._tree, int(self._at[draw])
        step, values = tree.step(node), tree.read_values(node)
        fits = self._is_alive(step.states)
        here = np.flatnonzero(values.events == self._event)
        self._is_exact &= bool((values.low[here] == values.high[here]).all())
        logp = np.concatenate([values.low[here], values.logp[fits]])
        if not (logp > -np.inf).any():
            self._logp[draw], self._is_running[draw] = -np.inf, False
            return
        guess = np.pad(self._guess(step.states[fits]), ((0, 0), (len(here), 0)))
        at = self._pick(draw, 1 + tree.depth[node], logp, guess) - len(here)
        if at < 0:
            self._is_running[draw] = False
            return
        self._at[draw] = tree.child(node, int(step.tokens[fits][at]), tree.logp[node] + float(values.logp[fits][at]))

    def _pick(self, draw: int, step: int, logp: FloatArray, guess: FloatArray) -> int:
        """Draw an index by `logp` and a guess, and record its probabilities.

        Args:
            draw: The draw.
            step: The number of its step.
            logp: float64[n], of which one is above -inf.
            guess: float64[G, n], finite.
        """
        chances = np.array([numerics.softmax(logp + one) for one in guess])
        own = chances[draw % len(guess)]
        upto = np.cumsum(own)
        u = uniform(self._seed + draw, step) * float(upto[-1])
        last = int(np.flatnonzero(own)[-1])  # u may be rounded up to the sum
        at = min(last, int(np.searchsorted(upto, u, side="right")))
        self._logp[draw] += float(logp[at])
        with np.errstate(divide="ignore"):
            self._log_chance[draw] += np.log(chances[:, at])
        return at


MAX_BYTE_COSTS = (2.0, 4.0, 100.0)
"""Nats that each guess takes for a byte at most.

Rare tokens are often spelled by likelier shorter ones, and how likely these are differs
from text to text.
"""


def guessed_rest(lengths: IntArray, logp: FloatArray) -> FloatArray:
    """Return guesses of the log-probability of what follows each position of a text.

    The log-probability of each token of the canonical spelling is spread evenly over
    its bytes, at most one of `MAX_BYTE_COSTS` nats each.

    Args:
        lengths: int32[n], the number of bytes of each token.
        logp: float64[n], the log-probability of each token; NaN or -inf count as the
            most.

    Returns:
        float64[G, sum of lengths + 1].
    """
    cost = np.repeat(np.where(np.isfinite(logp), -logp, np.inf) / lengths, lengths)
    by_byte = np.minimum(cost, np.array(MAX_BYTE_COSTS)[:, None])
    return np.pad(-np.cumsum(by_byte[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
