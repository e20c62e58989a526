"""A trie's nodes in depth-first windows as large as the room allows: the order of exhaustive scoring."""

from __future__ import annotations

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, IntArray, Room
from selectrie.decoding.task import Ask


class DepthFirstWindows:
    """Cuts marked nodes of a trie into asks, each a contiguous stretch of their depth-first order.

    Depth-first, so what must stay alive between two asks is one path, and every other subtree is finished or untouched.
    A few numpy calls an ask, whatever its size.

    marked: bool[N], nodes to ask for, closed under ancestors; the root, which is local row 0, is not asked for.
    wanted: bool[N], those whose rows are wanted (the others carry them). first_local: local row of the first one asked.
    """

    def __init__(self, trie: TokenTrie, marked: BoolArray, wanted: BoolArray, first_local: int = 1) -> None:
        marked = marked.copy()
        marked[ROOT] = True
        self.nodes: IntArray = np.flatnonzero(marked).astype(np.int32)  # [0] is the root; place = 1 + number of the ask
        place = np.cumsum(marked) - 1
        last = self.nodes + trie.n_nodes_below[self.nodes]
        self._up = place[np.maximum(trie.parent[self.nodes], 0)].astype(np.int32)
        self._last = place[last].astype(np.int32)  # last marked descendant, or the node itself
        self._last_child = np.zeros(len(self.nodes), dtype=np.int32)
        np.maximum.at(self._last_child, self._up[1:], np.arange(1, len(self.nodes), dtype=np.int32))
        self._token, self._depth, self._wanted = trie.token[self.nodes], trie.depth[self.nodes], wanted[self.nodes]
        n = len(self.nodes)
        turns = np.ones(n, dtype=np.int64)  # 1 where the next node is no child: a leaf of what is asked up to there
        turns[:-1] = self._up[1:] != np.arange(n - 1)
        self._leaves_before = np.concatenate(([0], np.cumsum(turns)))
        self._shift = first_local - 1
        self._held: IntArray = np.empty(0, dtype=np.int32)
        self.at = 1

    @property
    def floor(self) -> Room:
        """The least room that lets it go on: its longest path, one branch, one row."""
        return Room(rows=1, nodes=int(self._depth.max()), branches=1)

    @property
    def next_local(self) -> int:
        """The local row after the last one asked for."""
        return self.at + self._shift

    @property
    def held(self) -> IntArray:
        """int32[]: local rows asked for and not released."""
        return np.asarray(self._held + self._shift, dtype=np.int32)

    @property
    def spent(self) -> IntArray:
        """int32[]: local rows of `held` that nothing asked from now on hangs from directly: a forking model needs no state of theirs."""
        return np.asarray(self._held[self._last_child[self._held] < self.at] + self._shift, dtype=np.int32)

    def next_window(self, room: Room) -> tuple[Ask, IntArray] | None:
        """The next ask and the trie nodes whose rows it wants, int32[]; None when all were asked for."""
        start = self.at
        if start == len(self.nodes):
            return None
        carried = int(self._depth[start]) - 1  # all ancestors of the first node are alive, and nothing else is kept
        stop = min(start + min(room.rows, room.nodes - carried), len(self.nodes))
        leaves = self._leaves_before[start] + room.branches - 1
        stop = min(stop, int(np.searchsorted(self._leaves_before[: len(self.nodes)], leaves, side="right")))
        window = np.arange(start, stop, dtype=np.int32)
        up = self._up[start:stop]
        stays = self._last[self._held] >= start
        ask = Ask(
            parents=np.where(up >= start, ~(up - start), np.where(up == 0, 0, up + self._shift)).astype(np.int32),
            tokens=self._token[start:stop],
            wanted=self._wanted[start:stop],
            keep=self._last_child[start:stop] >= stop,  # who only carries a kept child needs no state of its own
            release=self._held[~stays] + np.int32(self._shift),
        )
        self._held = np.concatenate([self._held[stays], window])
        self.at = stop
        return ask, self.nodes[start:stop][ask.wanted]
