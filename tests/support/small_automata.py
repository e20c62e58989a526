"""Automata written as tables, and everything they accept with its probability, token by token: for tests of searches."""

from __future__ import annotations

from functools import lru_cache
from math import exp, fsum, inf, log

import numpy as np

from selectrie.errors import ProtocolError
from selectrie.testing import make_vocabulary
from selectrie.testing.oracles import probabilities

TINY = make_vocabulary()
PROMPT = np.array([0, 3], dtype=np.int32)


class TableAutomaton:
    """`edges[state]`: {token: state}; `ends`: states in which a text may end. Rows are given as ids, or as flags."""

    def __init__(self, edges, ends, *, flags=False):
        self.edges, self.ends, self.flags = edges, ends, flags

    def start(self):
        return 0

    def allowed(self, state):
        ids = np.array(sorted(self.edges[state]), dtype=np.int32)
        if not self.flags:
            return ids
        row = np.zeros(TINY.n_tokens, dtype=np.bool_)
        row[ids] = True
        return row

    def advance(self, state, token):
        if token not in self.edges[state]:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return self.edges[state][token]

    def can_end(self, state):
        return state in self.ends


def accepted(automaton, most):
    """Every accepted path of at most `most` tokens."""
    found, level = [], [((), automaton.start())]
    for _ in range(most + 1):
        found += [path for path, state in level if automaton.can_end(state)]
        level = [
            ((*path, int(token)), automaton.advance(state, int(token)))
            for path, state in level
            for token in np.flatnonzero(as_flags(automaton.allowed(state)))
            if len(path) < most
        ]
    return found


def as_flags(allowed):
    """bool[V] of either form of an allowed set."""
    if allowed.dtype == np.bool_:
        return allowed
    row = np.zeros(TINY.n_tokens, dtype=np.bool_)
    row[allowed] = True
    return row


@lru_cache(maxsize=1 << 14)
def row_of(model, path):
    """Probabilities after the prompt and a path."""
    return tuple(probabilities(model, [*PROMPT.tolist(), *path]))


def joint(model, path, *, eog=True):
    """Log-probability of a path and, with `eog`, of the end after it, each row on its own."""
    path = tuple(path)
    steps = [row_of(model, path[:i])[token] for i, token in enumerate(path)]
    if eog:
        steps.append(fsum(row_of(model, path)[int(e)] for e in TINY.eog))
    return fsum(log(p) if p > 0 else -inf for p in steps)


def mass(logps):
    """Summed probability."""
    return fsum(exp(x) for x in logps)
