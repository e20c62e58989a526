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
    them. The last turn tempers the probabilities, which finds spellings that begin with
    an improbable token and are probable from there on.

    Draws are made in waves, so that few branches are held at once. A wave begins if the
    rows that earlier draws took on average leave room for it in `max_rows`. The first
    wave, a draw for each turn, is made in any case.

    The weight of a draw is the probability of what was drawn, divided by the mean
    probability, over the guesses, of drawing it. Whatever the guesses, the mean weight
    estimates what the search left open of the event. It has no bias if `max_rows` does
    not end the draws, and next to none if it does.

    Args:
        tree: The tree of the search; rows that it has read are used again.
        lattice: The lattice of its states.
        event: The event, an index of `lattice.events`.
        left_open: What the search left open.
        log_rest: float64[G, n + 1], G guesses for each of the n + 1 positions in the
            text: the log-probability of the bytes after it.
        n_draws: Number of draws, rounded up to a multiple of the G + 1 turns. There are
            none if nothing is open.
        max_rows: Number of rows that may be read for them; None for no limit.
        seed: From 0 to 2**128 - 1. Each draw has random numbers of another part of the
            generator's sequence, and so has each seed.
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
        max_rows: int | None,
        seed: int,
    ) -> None:
        self._tree, self._lattice, self._event = tree, lattice, event
        self._seed, self._max_rows = seed, max_rows
        # Each turn has a guess and a power of the probabilities.
        self._log_rest = np.concatenate([log_rest, TEMPERED * log_rest[-1:]])
        self._powers = np.append(np.ones(len(log_rest)), TEMPERED)
        self._open = left_open.take(self._is_alive(left_open.state))
        turns = len(self._powers)
        n = -(-n_draws // turns) * turns if len(self._open) else 0
        self._at = np.zeros(n, dtype=np.int32)
        self._logp: FloatArray = np.zeros(n)
        self._log_chance: FloatArray = np.zeros((n, turns))
        self._running: list[int] = []
        self._n_begun = self._n_rows = 0
        self._is_exact = True
        self._width = max(turns, min(MAX_WAVE, HELD_NODES // max(1, *tree.depth)) // turns * turns)
        self._start = self._guess(self._open.state)

    def advance(self) -> list[int]:
        """Move every draw as far as the rows that were read lead.

        Returns the nodes whose rows the draws need next, none if all have ended.
        """
        waiting: dict[int, None] = {}
        while not waiting:
            self._running = self._running or self._begin()
            if not self._running:
                break
            self._running = [draw for draw in self._running if self._goes_on(draw)]
            waiting = dict.fromkeys(self._at[self._running].tolist())
        self._n_rows += len(waiting)
        return list(waiting)

    def _begin(self) -> list[int]:
        """Begin the next wave and return its draws; none if there is no room for it."""
        begun, turns = self._n_begun, len(self._powers)
        width = min(len(self._at) - begun, self._width) if begun else min(len(self._at), turns)
        if begun and self._max_rows is not None and self._n_rows:
            room = max(0, self._max_rows - self._n_rows) * begun // self._n_rows
            width = min(width, room // turns * turns)
        wave = list(range(begun, begun + width))
        for draw in wave:
            at = self._pick(draw, 0, self._open.logp, self._start)
            parent, token = int(self._open.parent[at]), int(self._open.token[at])
            self._at[draw] = self._tree.child(parent, token, float(self._open.logp[at]))
        self._n_begun += width
        return wave

    def _goes_on(self, draw: int) -> bool:
        """Move a draw on; return whether it waits for a row."""
        while self._tree.evaluated[self._at[draw]]:
            if not self._move(draw):
                return False
        return True

    def result(self, log_found: float) -> SampledMass | None:
        """Return the estimate; None if some probability was known only by bounds.

        Args:
            log_found: Log of the probability that the search found.
        """
        n = self._n_begun
        if not n:
            return SampledMass(log_found, 0.0, 0, 0)
        if not self._is_exact:
            return None
        log_chance = np.logaddexp.reduce(self._log_chance[:n], axis=1) - math.log(len(self._powers))
        log_weight = self._logp[:n] - log_chance
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

    def _move(self, draw: int) -> bool:
        """Draw the next token, or the event itself, from the row of a draw's node.

        Returns whether it was a token.
        """
        tree, node = self._tree, int(self._at[draw])
        step, values = tree.step(node), tree.read_values(node)
        fits = self._is_alive(step.states)
        here = np.flatnonzero(values.events == self._event)
        self._is_exact &= bool((values.low[here] == values.high[here]).all())
        logp = np.concatenate([values.low[here], values.logp[fits]])
        if not (logp > -np.inf).any():
            self._logp[draw] = -np.inf
            return False
        guess = np.pad(self._guess(step.states[fits]), ((0, 0), (len(here), 0)))
        at = self._pick(draw, 1 + tree.depth[node], logp, guess) - len(here)
        if at < 0:
            return False
        self._at[draw] = tree.child(node, int(step.tokens[fits][at]), tree.logp[node] + float(values.logp[fits][at]))
        return True

    def _pick(self, draw: int, step: int, logp: FloatArray, guess: FloatArray) -> int:
        """Draw an index by `logp` and a guess, and record its probabilities.

        Args:
            draw: The draw.
            step: The number of its step.
            logp: float64[n], of which one is above -inf.
            guess: float64[G, n], finite.
        """
        is_possible = logp > -np.inf
        logits = np.full(guess.shape, -np.inf)
        logits[:, is_possible] = self._powers[:, None] * logp[is_possible] + guess[:, is_possible]
        chances = numerics.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        own = chances[draw % len(guess)]
        upto = np.cumsum(own)
        u = uniform(self._seed, (draw << 64) + step) * float(upto[-1])
        last = int(np.flatnonzero(own)[-1])  # u may be rounded up to the sum
        at = min(last, int(np.searchsorted(upto, u, side="right")))
        self._logp[draw] += float(logp[at])
        with np.errstate(divide="ignore"):
            self._log_chance[draw] += np.log(chances[:, at])
        return at


TEMPERED = 0.25
"""Power of the probabilities, and of the last guess, of one turn in each wave."""
MAX_WAVE = 32
"""Maximum number of draws that are made together."""
HELD_NODES = 2048
"""Number of nodes that a wave may hold, roughly, if it has more than a draw a turn.

Where memory is short, branches are evaluated again from the first token that was given
up. All 256 draws of a text of 80 words together took 22 rows for each that they read.
"""

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
