"""The nodes of a trie whose rows score the last tokens of its sequences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, IntArray, OffsetArray


@dataclass(frozen=True, slots=True, eq=False)
class ScoredNodes:
    """The nodes of a trie of N nodes at which tokens of C sequences are scored.

    Attributes:
        end: int32[C], node of each sequence's last token.
        n_scored: int64[C], number of last tokens of each sequence that are scored.
        wanted: bool[N], nodes whose row scores a token.
        marked: bool[N], wanted nodes and all their ancestors but the root.
    """

    end: IntArray
    n_scored: OffsetArray
    wanted: BoolArray
    marked: BoolArray

    @staticmethod
    def of(trie: TokenTrie, n_scored: OffsetArray) -> ScoredNodes:
        """Return the nodes that score the last `n_scored` tokens of each sequence.

        `n_scored` is int64[C], each at most the number of tokens of the sequence. There
        is one step in Python for each depth, whatever the number of sequences.
        """
        end: IntArray = trie.path_node[trie.path_of]
        wanted = np.zeros(len(trie), dtype=np.bool_)
        node, left = end.copy(), n_scored.copy()
        while len(node):
            going = left > 0
            node, left = trie.parent[node[going]], left[going] - 1
            wanted[node] = True
        return ScoredNodes(end, n_scored, wanted, leading_to(trie, wanted))


def leading_to(trie: TokenTrie, wanted: BoolArray) -> BoolArray:
    """Return bool[N], the wanted nodes and all their ancestors but the root."""
    before = np.concatenate(([0], np.cumsum(wanted)))
    numbers = np.arange(len(trie))
    marked: BoolArray = before[numbers + trie.n_nodes_below + 1] > before[numbers]
    marked[ROOT] = False
    return marked
