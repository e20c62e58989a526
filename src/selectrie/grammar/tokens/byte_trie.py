"""The bytes of a vocabulary's tokens as one trie of flat arrays, level by level.

Each node records where in a UTF-8 character its bytes end, which distinguishes whole
characters from incomplete and broken ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary

ByteArray = NDArray[np.uint8]

BOUNDARY, BROKEN = 0, 8
"""UTF-8 phases: between characters, and after a byte that is invalid at its position.

The phases in between are inside a character.
"""
LEADS: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = (
    (0xC2, 0xDF, ((0x80, 0xBF),)),
    (0xE0, 0xE0, ((0xA0, 0xBF), (0x80, 0xBF))),
    (0xE1, 0xEC, ((0x80, 0xBF), (0x80, 0xBF))),
    (0xED, 0xED, ((0x80, 0x9F), (0x80, 0xBF))),
    (0xEE, 0xEF, ((0x80, 0xBF), (0x80, 0xBF))),
    (0xF0, 0xF0, ((0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0xF1, 0xF3, ((0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0xF4, 0xF4, ((0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF))),
)
"""UTF-8 sequences of more than one byte (RFC 3629, section 4).

Each entry holds the first and last lead byte and the ranges of the following bytes.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ByteTrie:
    """A trie of N nodes in breadth-first order over R tokens.

    Node 0 is the root, which has no bytes. The R tokens are those that have bytes,
    without the end-of-generation tokens. The children of node n are `first_child[n]` to
    `first_child[n + 1]` (exclusive), ordered by byte. Tokens are numbered ("ranked") by
    their bytes, and by id where bytes are equal. Therefore the tokens at or below a
    node form a range of ranks, and those that end at the node come first in it.

    Attributes:
        byte: uint8[N], the last byte of each node; 0 for the root.
        parent: int32[N], the parent of each node; 0 for the root.
        first_child: int32[N+1], the first child of each node.
        phase: uint8[N], where in a character the node's bytes end, counted from the
            token's start (`BOUNDARY`, `BROKEN` or inside).
        first_rank: int32[N], the first rank of the tokens with exactly these bytes.
        own_stop: int32[N], the end (exclusive) of the tokens with exactly these bytes,
            and the start of the longer tokens below the node.
        last_rank: int32[N], the end (exclusive) of the tokens below the node.
        own_rank: int32[N], the first rank with exactly these bytes, or R if there is
            none.
        token: int32[R], the id of each rank.
        rank: int32[V], the rank of each id; R for tokens not in the trie.
        repeats: int32[], ascending ranks whose bytes equal those of the rank before.
        levels: First node of each depth, and finally N.
    """

    byte: ByteArray
    parent: IntArray
    first_child: IntArray
    phase: ByteArray
    first_rank: IntArray
    own_stop: IntArray
    last_rank: IntArray
    own_rank: IntArray
    token: IntArray
    rank: IntArray
    repeats: IntArray
    levels: tuple[int, ...]

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes, N."""
        return len(self.byte)

    @property
    def n_bytes(self) -> int:
        """Return the memory held by the arrays, in bytes."""
        arrays = (self.byte, self.parent, self.first_child, self.phase, self.first_rank, self.own_stop, self.last_rank)
        return sum(array.nbytes for array in (*arrays, self.own_rank, self.token, self.rank, self.repeats))

    def find(self, text: bytes) -> int:
        """Return the node of these bytes, or -1 if no token starts with them."""
        node = 0
        for byte in text:
            first, stop = int(self.first_child[node]), int(self.first_child[node + 1])
            child = first + int(np.searchsorted(self.byte[first:stop], byte))
            if child == stop or self.byte[child] != byte:
                return -1
            node = child
        return node


def byte_trie(vocabulary: Vocabulary) -> ByteTrie:
    """Return a vocabulary's trie, built on first use and kept with the vocabulary.

    Building it takes 0.2 s for 151 936 tokens.
    """
    return vocabulary.derived(_build)


def _build(vocabulary: Vocabulary) -> ByteTrie:
    """Build the trie without a loop over tokens.

    The sorted tokens are grouped by one more byte at each level: a node is a run of
    tokens with equal prefixes.
    """
    token, flat, lengths = _sorted_tokens(vocabulary)
    n_ranks = len(token)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    root = np.zeros(1, dtype=np.int32)
    columns = [[root.astype(np.uint8), root, root, root, np.array([n_ranks], dtype=np.int32), root]]
    active, node, levels, n_nodes = np.arange(n_ranks), np.zeros(n_ranks, dtype=np.int64), [0], 1
    for depth in range(int(lengths.max(initial=0))):
        goes_on = lengths[active] > depth
        active, node = active[goes_on], node[goes_on]
        byte = flat[starts[active] + depth]
        is_new = np.ones(len(active), dtype=np.bool_)
        is_new[1:] = (node[1:] != node[:-1]) | (byte[1:] != byte[:-1])
        heads = np.flatnonzero(is_new)
        tails = np.append(heads[1:], len(active)) - 1
        n_own = np.add.reduceat(lengths[active] == depth + 1, heads, dtype=np.int64)
        first = active[heads]
        parent = node[heads]
        columns.append([byte[heads], parent, first, first + n_own, active[tails] + 1, n_own])
        levels.append(n_nodes)
        node = np.cumsum(is_new) - 1 + n_nodes
        n_nodes += len(heads)
    return _complete(
        vocabulary, token, (*levels, n_nodes), [np.concatenate(column) for column in zip(*columns, strict=True)]
    )


def _complete(
    vocabulary: Vocabulary, token: IntArray, levels: tuple[int, ...], columns: list[NDArray[np.generic]]
) -> ByteTrie:
    """Build a trie from the columns of its nodes and derive the other arrays.

    The columns are byte, parent, first_rank, own_stop, last_rank and the number of
    tokens that end at each node.
    """
    byte, parent, n_own = columns[0].astype(np.uint8), columns[1].astype(np.int64), columns[5].astype(np.int64)
    first_rank, own_stop, last_rank = (column.astype(np.int32) for column in columns[2:5])
    n_nodes, n_ranks = len(byte), len(token)
    first_child = np.ones(n_nodes + 1, dtype=np.int32)
    first_child[1:] += np.cumsum(np.bincount(parent[1:], minlength=n_nodes)).astype(np.int32)
    phase = np.full(n_nodes, BOUNDARY, dtype=np.uint8)
    table = utf8_phases()
    for start, stop in pairwise(levels[1:]):
        phase[start:stop] = table[phase[parent[start:stop]], byte[start:stop]]
    rank = np.full(vocabulary.n_tokens, n_ranks, dtype=np.int32)
    rank[token] = np.arange(n_ranks, dtype=np.int32)
    is_repeat = np.ones(n_ranks, dtype=np.bool_)
    is_repeat[first_rank[n_own > 0]] = False
    return ByteTrie(
        byte=byte,
        parent=parent.astype(np.int32),
        first_child=first_child,
        phase=phase,
        first_rank=first_rank,
        own_stop=own_stop,
        last_rank=last_rank,
        own_rank=np.where(n_own > 0, first_rank, n_ranks).astype(np.int32),
        token=token,
        rank=rank,
        repeats=np.flatnonzero(is_repeat).astype(np.int32),
        levels=levels,
    )


def _sorted_tokens(vocabulary: Vocabulary) -> tuple[IntArray, ByteArray, NDArray[np.int64]]:
    """Return ids sorted by bytes, their bytes concatenated, and their lengths.

    End-of-generation tokens are left out.
    """
    texts, ids = vocabulary.by_bytes()
    kept = ~np.isin(ids, vocabulary.eog)
    if not kept.all():
        texts = [text for text, is_kept in zip(texts, kept.tolist(), strict=True) if is_kept]
    token = ids[kept].astype(np.int32)
    return token, np.frombuffer(b"".join(texts), dtype=np.uint8), vocabulary.lengths[token].astype(np.int64)


@cache
def utf8_phases() -> ByteArray:
    """Return uint8[9, 256]: the phase after one more byte.

    In phases 1 to 3, that many bytes of 80..BF are due. Phases 4 to 7 follow the lead
    bytes E0, ED, F0 and F4, which restrict the first of the bytes due.
    """
    table = np.full((BROKEN + 1, 256), BROKEN, dtype=np.uint8)
    table[BOUNDARY, :0x80] = BOUNDARY
    for due in (1, 2, 3):
        table[due, 0x80:0xC0] = due - 1
    narrow = iter(range(4, BROKEN))
    for first, last, following in LEADS:
        (low, high), due = following[0], len(following)
        phase = due if (low, high) == (0x80, 0xBF) else next(narrow)
        table[BOUNDARY, first : last + 1] = phase
        table[phase, low : high + 1] = due - 1
    table.setflags(write=False)
    return table
