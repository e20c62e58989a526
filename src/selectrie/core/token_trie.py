"""Token paths -> prefix trie as flat arrays in depth-first order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from selectrie.core.types import NO_PATH, NO_TOKEN, BoolArray, FloatArray, IntArray, OffsetArray
from selectrie.errors import OptionError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TokenTrie:
    """Prefix trie of C token sequences; node 0 is the root (the shared context), parents stand before children.

    Nodes are numbered depth-first, siblings by token id, so the nodes below a node, and the paths at or below it, are
    contiguous ranges. At most 64 bytes a node.

    token: int32[N], edge from the parent; root NO_TOKEN.      parent: int32[N]; root NO_NODE.     depth: int32[N]; root 0.
    end_path: int32[N], the path that ends here, or NO_PATH.   n_nodes_below: int32[N], descendants (0 = leaf).
    first_path, n_paths: int32[N], paths at or below the node: first_path[n] .. first_path[n] + n_paths[n].
    child_start: int32[N+1], child: int32[N-1]: children of n are child[child_start[n]:child_start[n+1]], by token id.
    path_node: int32[P], node where each distinct path ends; paths are in lexicographic order of their tokens.
    path_of: int32[C], the path of each sequence given; equal sequences share one.
    """

    token: IntArray
    parent: IntArray
    depth: IntArray
    end_path: IntArray
    n_nodes_below: IntArray
    first_path: IntArray
    n_paths: IntArray
    child_start: IntArray
    child: IntArray
    path_node: IntArray
    path_of: IntArray

    @classmethod
    def from_flat(cls, tokens: IntArray, offsets: OffsetArray) -> TokenTrie:
        """The trie of C sequences given as tokens[offsets[c]:offsets[c+1]]. Empty sequences end at the root.

        No Python loop per token or per sequence: one per depth that two sequences share. Memory is linear in tokens and
        sequences, whatever the longest sequence. Raises `OptionError` for offsets that do not cut up `tokens`, or a
        negative token.
        """
        tokens, offsets = np.asarray(tokens, dtype=np.int32), np.asarray(offsets, dtype=np.int64)
        _check_flat(tokens, offsets)
        order, shared = _sort_sequences(tokens, offsets)
        lengths = np.diff(offsets)[order]
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = shared[1:] < lengths[1:]
        path_of = np.empty(len(order), dtype=np.int32)
        path_of[order] = np.cumsum(is_new) - 1

        # Each path adds the nodes after what it shares with the path before it: a chain, numbered on.
        shared, lengths, first_token = shared[is_new], lengths[is_new], offsets[:-1][order[is_new]]
        chain_end: OffsetArray = np.cumsum(lengths - shared, dtype=np.int64) + 1
        chain_start = chain_end - lengths + shared
        n_nodes = int(chain_end[-1]) if len(chain_end) else 1
        chain = np.repeat(np.arange(len(lengths)), lengths - shared)
        depth = np.zeros(n_nodes, dtype=np.int32)
        depth[1:] = np.arange(1, n_nodes) + (shared + 1 - chain_start)[chain]
        token = np.full(n_nodes, NO_TOKEN, dtype=np.int32)
        token[1:] = tokens[first_token[chain] + depth[1:] - 1]
        parent = np.arange(-1, n_nodes - 1, dtype=np.int32)
        heads = chain_start[lengths > shared]
        parent[heads] = _latest_at_depth(depth, depth[heads] - 1, heads)
        return _complete(token, parent, depth, (chain_end - 1).astype(np.int32), path_of)

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> TokenTrie:
        """The trie of sequences given one by one; `from_flat` is the fast way for many."""
        given = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        offsets = np.cumsum([0, *(len(sequence) for sequence in given)], dtype=np.int64)
        return cls.from_flat(np.concatenate([np.empty(0, dtype=np.int32), *given]), offsets)

    def __repr__(self) -> str:
        return f"TokenTrie({len(self)} nodes, {len(self.path_node)} paths, {len(self.path_of)} sequences)"

    def __len__(self) -> int:
        """N, the number of nodes, root included."""
        return len(self.token)

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)

    @property
    def inner(self) -> BoolArray:
        """bool[N]: nodes with children (their rows score the edges below)."""
        return self.n_nodes_below > 0

    def children(self, node: int) -> IntArray:
        """int32[]: children of the node by token id; a view."""
        return self.child[self.child_start[node] : self.child_start[node + 1]]

    def path(self, node: int) -> IntArray:
        """int32[depth]: tokens from the root to the node."""
        result = np.empty(self.depth[node], dtype=np.int32)
        for i in range(len(result) - 1, -1, -1):
            result[i] = self.token[node]
            node = int(self.parent[node])
        return result

    def accumulate(self, edge: FloatArray) -> FloatArray:
        """float64[N]: sum of `edge` from the root to each node (edge[0] is the root's own term).

        Added root first, so equal edges give equal bits on every path; -inf stays -inf below.
        """
        total = np.array(edge, dtype=np.float64)
        by_depth = np.argsort(self.depth, kind="stable")
        bounds = np.cumsum(np.bincount(self.depth))
        for start, stop in pairwise(bounds):
            level = by_depth[start:stop]
            total[level] += total[self.parent[level]]
        return total

    def restrict(self, nodes: BoolArray) -> tuple[TokenTrie, IntArray]:
        """The sub-trie of the marked nodes (ancestors are added) and, int32[N'], the old number of each new node.

        Paths that end outside are dropped; `path_of` of the result is the identity over the paths that remain.
        """
        n_marked_before = _counts_before(np.asarray(nodes, dtype=np.bool_))
        numbers = np.arange(len(self))
        kept = n_marked_before[numbers + self.n_nodes_below + 1] > n_marked_before[numbers]
        kept[0] = True
        old = np.flatnonzero(kept).astype(np.int32)
        renumbered = (np.cumsum(kept) - 1).astype(np.int32)
        parent = self.parent[old]
        parent[1:] = renumbered[parent[1:]]
        path_node = renumbered[self.path_node[kept[self.path_node]]]
        path_of = np.arange(len(path_node), dtype=np.int32)
        return _complete(self.token[old], parent, self.depth[old], path_node, path_of), old


def _complete(token: IntArray, parent: IntArray, depth: IntArray, path_node: IntArray, path_of: IntArray) -> TokenTrie:
    """The trie of nodes in depth-first order: what follows from parents and path ends is worked out."""
    n_nodes = len(token)
    child = (np.argsort(parent[1:], kind="stable") + 1).astype(np.int32)
    child_start = np.zeros(n_nodes + 1, dtype=np.int32)
    np.cumsum(np.bincount(parent[1:], minlength=n_nodes), out=child_start[1:])
    stop = _subtree_stops(parent, child)
    end_path = np.full(n_nodes, NO_PATH, dtype=np.int32)
    end_path[path_node] = np.arange(len(path_node), dtype=np.int32)
    ends_before = _counts_before(end_path != NO_PATH)
    return TokenTrie(
        token=token,
        parent=parent,
        depth=depth,
        end_path=end_path,
        n_nodes_below=(stop - np.arange(1, n_nodes + 1)).astype(np.int32),
        first_path=ends_before[:-1],
        n_paths=ends_before[stop] - ends_before[:-1],
        child_start=child_start,
        child=child,
        path_node=path_node,
        path_of=path_of,
    )


def _check_flat(tokens: IntArray, offsets: OffsetArray) -> None:
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
        raise OptionError("offsets", offsets, f"rising numbers from 0 to the number of tokens, {len(tokens)}")
    if (tokens < 0).any():
        raise OptionError("tokens", int(tokens.min()), "token ids of at least 0")


def _sort_sequences(tokens: IntArray, offsets: OffsetArray) -> tuple[OffsetArray, OffsetArray]:
    """Order of the sequences by their tokens (stable, a prefix first), and how many each shares with the one before it.

    Radix sort from the first token on: at each depth only groups of sequences that are still equal are sorted, so a long
    sequence costs its length once it stands alone. Returns int64[C], int64[C].
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    order = np.arange(len(starts))
    shared = np.zeros(len(starts), dtype=np.int64)
    slots, group = order.copy(), np.zeros(len(starts), dtype=np.int64)
    depth = 0
    while len(slots):
        members = order[slots]
        going_on = lengths[members] > depth
        key = group << 32
        key[going_on] += tokens[starts[members[going_on]] + depth].astype(np.int64) + 1
        rank = np.argsort(key, kind="stable")
        key = key[rank]
        order[slots] = members[rank]
        differs = np.ones(len(slots), dtype=np.bool_)
        differs[1:] = key[1:] != key[:-1]
        ended = (key & 0xFFFFFFFF) == 0
        same_group = np.zeros(len(slots), dtype=np.bool_)
        same_group[1:] = (key[1:] >> 32) == (key[:-1] >> 32)
        settled = same_group & (differs | ended)
        shared[slots[settled]] = depth
        group = np.cumsum(differs) - 1
        stay = ~ended & (np.bincount(group)[group] > 1)
        slots, group = slots[stay], group[stay]
        depth += 1
    return order, shared


def _latest_at_depth(depth: IntArray, wanted: IntArray, before: OffsetArray) -> OffsetArray:
    """int64[]: the last node of depth `wanted` that stands before node `before`: its ancestor in depth-first order."""
    key = depth.astype(np.int64) * len(depth) + np.arange(len(depth))
    key.sort()
    at = np.searchsorted(key, wanted.astype(np.int64) * len(depth) + before) - 1
    found: OffsetArray = key[at] % len(depth)
    return found


def _subtree_stops(parent: IntArray, child: IntArray) -> OffsetArray:
    """int64[N]: first node after each node's subtree: its next sibling, or else where its parent's subtree stops.

    The climb to the first ancestor with a next sibling is done for all nodes at once by doubling.
    """
    stop = np.full(len(parent), len(parent), dtype=np.int64)
    climb = parent.copy()
    climb[0] = 0
    siblings = parent[child[1:]] == parent[child[:-1]]
    stop[child[:-1][siblings]] = child[1:][siblings]
    climb[child[:-1][siblings]] = child[:-1][siblings]
    while True:
        further = climb[climb]
        if np.array_equal(further, climb):
            break
        climb = further
    result: OffsetArray = stop[climb]
    return result


def _counts_before(marked: BoolArray) -> IntArray:
    """int32[n+1]: how many are marked before each place."""
    counts = np.zeros(len(marked) + 1, dtype=np.int32)
    np.cumsum(marked, out=counts[1:])
    return counts
