"""Scores conditional on the healed bytes: the probability that text begins with them, from rows that are there anyway."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError


@dataclass(frozen=True, slots=True, eq=False)
class HealPlan:
    """What to read off the rows of a trie to know the probability of the healed bytes.

    For a trie node n whose bytes so far are a proper prefix of the healed bytes, and the bytes left there:
    N(n) = p(tokens that begin with what is left) + sum over such children m of p(m) N(m), a lower bound of the
    probability that text goes on with what is left; and O(n), the same with the open tokens: those with bytes that are
    a proper prefix of what is left and that are no such child. They may go on with the rest or not, so the probability
    lies in [N, N + O].

    nodes: int32[H], these trie nodes, parents first, the root first of all; empty where nothing was healed.
    parent_place: int32[H], place of each one's parent in `nodes`; -1 for the root.
    observations: (trie node, int32[] token ids), two for each node and in that order: its covering tokens, its open tokens.
    """

    nodes: IntArray
    parent_place: IntArray
    observations: tuple[tuple[int, IntArray], ...]

    def log_heal(self, edge_logp: FloatArray, observed: FloatArray) -> tuple[float, float]:
        """Log of N(root), and log((N + O) / N) by which the true value may lie above it (0.0 = exact).

        edge_logp: float64[N], log-probability of each trie node's token after its parent; only the planned nodes are read.
        observed: float64[2H], log of the summed probability of the tokens of each of `observations` (-inf for none).
        (0.0, 0.0) where nothing was healed; (-inf, inf) where only open tokens are possible; (-inf, 0.0) where none is.
        """
        if len(observed) != len(self.observations):
            raise ProtocolError(f"got {len(observed)} observed log-probabilities, expected {len(self.observations)}")
        if not len(self.nodes):
            return 0.0, 0.0
        covered, opened = observed[0::2].copy(), observed[1::2].copy()
        for i in range(len(self.nodes) - 1, 0, -1):
            parent, edge = self.parent_place[i], edge_logp[self.nodes[i]]
            covered[parent] = np.logaddexp(covered[parent], edge + covered[i])
            opened[parent] = np.logaddexp(opened[parent], edge + opened[i])
        log_covered, log_opened = float(covered[0]), float(opened[0])
        if log_opened == -np.inf:
            return log_covered, 0.0
        return log_covered, float(np.logaddexp(0.0, log_opened - log_covered)) if log_covered > -np.inf else np.inf


def heal_plan(vocabulary: Vocabulary, trie: TokenTrie, healed: bytes) -> HealPlan:
    """What to observe so that scores can be made conditional on `healed` (`EncodedChoices.healed`, which has the space
    that a tokenizer puts before a text where it reaches back to there) at the root of `trie`.

    The planned nodes are inner nodes whenever every path spells the healed bytes, so their rows are evaluated anyway.
    """
    nodes: list[int] = []
    parent_place: list[int] = []
    observations: list[tuple[int, IntArray]] = []
    waiting = [(0, -1, healed)] if healed else []
    while waiting:
        node, parent, left = waiting.pop()
        place = len(nodes)
        nodes.append(node)
        parent_place.append(parent)
        children = trie.child[trie.child_start[node] : trie.child_start[node + 1]]
        short = vocabulary.prefixes_of(left)
        is_child = np.isin(short, trie.token[children])
        observations += [(node, vocabulary.with_prefix(left)), (node, short[~is_child])]
        planned = children[np.isin(trie.token[children], short)]
        waiting += [
            (child, place, left[len(vocabulary.pieces[trie.token[child]]) :]) for child in planned[::-1].tolist()
        ]
    return HealPlan(np.array(nodes, dtype=np.int32), np.array(parent_place, dtype=np.int32), tuple(observations))
