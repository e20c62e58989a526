"""Token paths as a prefix trie, stored in flat arrays in depth-first order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from selectrie.core.types import NO_PATH, NO_TOKEN, BoolArray, FloatArray, IntArray, OffsetArray
from selectrie.errors import OptionError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TokenTrie:
    """A prefix trie of C token sequences.

    Node 0 is the root (the shared context). Nodes are numbered depth-first, parents
    before children and siblings by token id. The nodes below a node, and the paths at
    or below it, are therefore contiguous ranges. The trie takes at most 64 bytes per
    node.

    Attributes:
        token: int32[N], the token on the edge from the parent; NO_TOKEN at the root.
        parent: int32[N], the parent; NO_NODE at the root.
        depth: int32[N], the depth; 0 at the root.
        end_path: int32[N], the path that ends here, or NO_PATH.
        n_nodes_below: int32[N], the number of descendants (0 = leaf).
        first_path: int32[N], the first path at or below the node.
        n_paths: int32[N], the number of paths at or below the node: they are
            first_path[n] .. first_path[n] + n_paths[n].
        child_start: int32[N+1], offsets into `child`.
        child: int32[N-1], the children by token id: those of n are
            child[child_start[n]:child_start[n+1]].
        path_node: int32[P], the node where each distinct path ends. Paths are in
            lexicographic order of their tokens.
        path_of: int32[C], the path of each sequence; equal sequences share one.
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
        """Build the trie of C sequences, given as tokens[offsets[c]:offsets[c+1]].

        Empty sequences end at the root. There is no Python loop per token or per
        sequence, only one per depth that two sequences share. Memory is linear in
        tokens and sequences, whatever the longest sequence.

        Raises `OptionError` if the offsets do not partition `tokens`, or for a negative
        token.
        """
        tokens, offsets = np.asarray(tokens, dtype=np.int32), np.asarray(offsets, dtype=np.int64)
        _check_flat(tokens, offsets)
        order, shared = _sort_sequences(tokens, offsets)
        lengths = np.diff(offsets)[order]
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = shared[1:] < lengths[1:]
        path_of = np.empty(len(order), dtype=np.int32)
        path_of[order] = np.cumsum(is_new) - 1

        # Each path adds a chain of consecutive nodes after the prefix that it shares
        # with the path before it.
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
        return _complete_trie(token, parent, depth, (chain_end - 1).astype(np.int32), path_of)

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[int]]) -> TokenTrie:
        """Build the trie of sequences given one by one.

        For many sequences, `from_flat` is faster.
        """
        arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        offsets = np.cumsum([0, *(len(sequence) for sequence in arrays)], dtype=np.int64)
        return cls.from_flat(np.concatenate([np.empty(0, dtype=np.int32), *arrays]), offsets)

    def __repr__(self) -> str:
        return f"TokenTrie({len(self)} nodes, {len(self.path_node)} paths, {len(self.path_of)} sequences)"

    def __len__(self) -> int:
        """Return N, the number of nodes, root included."""
        return len(self.token)

    @property
    def n_bytes(self) -> int:
        """Return the number of bytes of all arrays together."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)

    @property
    def inner(self) -> BoolArray:
        """Return bool[N], the nodes with children. Their rows score the edges below."""
        return self.n_nodes_below > 0

    def children(self, node: int) -> IntArray:
        """Return the children of the node by token id, as an int32[] view."""
        return self.child[self.child_start[node] : self.child_start[node + 1]]

    def path(self, node: int) -> IntArray:
        """Return the tokens from the root to the node, as int32[depth]."""
        result = np.empty(self.depth[node], dtype=np.int32)
        for i in range(len(result) - 1, -1, -1):
            result[i] = self.token[node]
            node = int(self.parent[node])
        return result

    def accumulate(self, edge: FloatArray) -> FloatArray:
        """Return the sum of `edge` along the path from the root to each node.

        Both are float64[..., N]; edge[..., 0] is the root's term. The sum starts at
        the root, so equal edges give equal bits on every path. Below -inf every sum
        is -inf.
        """
        total = np.array(edge, dtype=np.float64)
        by_depth = np.argsort(self.depth, kind="stable")
        bounds = np.cumsum(np.bincount(self.depth))
        for start, stop in pairwise(bounds):
            level = by_depth[start:stop]
            total[..., level] += total[..., self.parent[level]]
        return total

    def restrict(self, nodes: BoolArray) -> tuple[TokenTrie, IntArray]:
        """Return the sub-trie of the marked nodes and their ancestors.

        The second value is int32[N'], the old number of each new node. Paths that end
        outside are dropped. `path_of` of the result is the identity over the paths that
        remain.
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
        return _complete_trie(self.token[old], parent, self.depth[old], path_node, path_of), old


def _complete_trie(
    token: IntArray, parent: IntArray, depth: IntArray, path_node: IntArray, path_of: IntArray
) -> TokenTrie:
    """Build the trie of nodes in depth-first order from parents and path ends."""
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
        # Nodes below a node, and paths at or below it, are ranges in depth-first order.
        n_nodes_below=(stop - np.arange(1, n_nodes + 1)).astype(np.int32),
        first_path=ends_before[:-1],
        n_paths=ends_before[stop] - ends_before[:-1],
        child_start=child_start,
        child=child,
        path_node=path_node,
        path_of=path_of,
    )


def _check_flat(tokens: IntArray, offsets: OffsetArray) -> None:
    """Raise `OptionError` for offsets or tokens that `from_flat` cannot use."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
        raise OptionError("offsets", offsets, f"rising numbers from 0 to the number of tokens, {len(tokens)}")
    if (tokens < 0).any():
        raise OptionError("tokens", int(tokens.min()), "token ids of at least 0")


def _sort_sequences(tokens: IntArray, offsets: OffsetArray) -> tuple[OffsetArray, OffsetArray]:
    """Sort the sequences by their tokens, stably, a prefix first.

    This is a radix sort from the first token on. At each depth it sorts only groups of
    sequences that are still equal, so a long sequence costs its length only while it
    equals another.

    Returns:
        order: int64[C], the sequences in order.
        shared: int64[C], the number of tokens each shares with the one before it.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    order = np.arange(len(starts))
    shared = np.zeros(len(starts), dtype=np.int64)
    slots, group = order.copy(), np.zeros(len(starts), dtype=np.int64)
    depth = 0
    while len(slots):
        members = order[slots]
        # Each step orders the groups of sequences that are equal so far by their next
        # token.
        going_on = lengths[members] > depth
        key = group << 32
        key[going_on] += tokens[starts[members[going_on]] + depth].astype(np.int64) + 1
        rank = np.argsort(key, kind="stable")
        key = key[rank]
        order[slots] = members[rank]
        differs = np.ones(len(slots), dtype=np.bool_)
        differs[1:] = key[1:] != key[:-1]
        # A key is the group and the token + 1; 0 in place of a token is the end of a
        # sequence.
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


def _latest_at_depth(depth: IntArray, target_depth: IntArray, before: OffsetArray) -> OffsetArray:
    """Return the last node of depth `target_depth` before node `before`, as int64[].

    In depth-first order that node is its ancestor.
    """
    key = depth.astype(np.int64) * len(depth) + np.arange(len(depth))
    key.sort()
    at = np.searchsorted(key, target_depth.astype(np.int64) * len(depth) + before) - 1
    result: OffsetArray = key[at] % len(depth)
    return result


def _subtree_stops(parent: IntArray, child: IntArray) -> OffsetArray:
    """Return the first node after each node's subtree, as int64[N].

    That is its next sibling, or else the node where its parent's subtree stops. The
    climb to the first ancestor with a next sibling is done for all nodes at once by
    doubling.
    """
    stop = np.full(len(parent), len(parent), dtype=np.int64)
    climb = parent.copy()
    climb[0] = 0
    # Children are listed by parent, so the next one in the list is a sibling if its
    # parent is the same.
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
    """Return the number of marked entries before each position, int32[n+1]."""
    counts = np.zeros(len(marked) + 1, dtype=np.int32)
    np.cumsum(marked, out=counts[1:])
    return counts
