"""Computes the probability of a prompt's healed bytes, and draws tokens for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import FloatArray, IntArray
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
