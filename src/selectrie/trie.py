"""Token paths -> prefix trie as flat arrays in depth-first order."""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.types import BoolArray, FloatArray, IntArray, OffsetArray


@dataclass(frozen=True, slots=True, eq=False)
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

        Linear in tokens after one sort; no Python loop per token or per sequence.
        """
        raise NotImplementedError

    @property
    def inner(self) -> BoolArray:
        """bool[N]: nodes with children (their rows score the edges below)."""
        raise NotImplementedError

    def path(self, node: int) -> IntArray:
        """int32[depth]: tokens from the root to the node."""
        raise NotImplementedError

    def accumulate(self, edge: FloatArray) -> FloatArray:
        """float64[N]: sum of `edge` from the root to each node (edge[0] is the root's own term)."""
        raise NotImplementedError

    def restrict(self, nodes: BoolArray) -> tuple[TokenTrie, IntArray]:
        """The sub-trie of the marked nodes (ancestors are added) and, int32[N'], the old number of each new node.

        Paths that end outside are dropped; `path_of` of the result is the identity over the paths that remain.
        """
        raise NotImplementedError
