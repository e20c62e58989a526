"""Evaluates, depth-first, the nodes that a best-first search still needs.

The nodes are evaluated in waves.

Waves are used in capacities so small that best-first search would evaluate rows again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import BoolArray, Capacity, IntArray
from selectrie.decoding.held_nodes import HeldNodes
from selectrie.decoding.scoring import RowNeeds, TrieReader
from selectrie.decoding.task import NOTHING, Ask
from selectrie.decoding.trie.batches import DepthFirstOrder, DepthFirstWindows

MAX_AHEAD = 0.15
"""Share of all rows that best-first search may spend on rows that may be repeated.

Above it, depth-first waves take over. Waves evaluate each of the other rows once, so a
search that learns nothing stays within 1.2 x exhaustive scoring.
"""


class DepthFirstFallback:
    """Depth-first evaluation in waves, which alternates with a best-first search.

    Only one of the two asks at a time. When they change places, the nodes that are held
    are released.

    Args:
        carries: bool[N], nodes with a needed child, which may have to be evaluated
            again.
        depth: Depth of the deepest needed node.

    Attributes:
        n_repeated: How many dropped nodes the waves have asked for again so far.
    """

    def __init__(
        self, trie: TokenTrie, needs: RowNeeds, reader: TrieReader, live: HeldNodes, *, carries: BoolArray, depth: int
    ) -> None:
        self._trie, self._needs, self._reader, self._live = trie, needs, reader, live
        self._carries, self._depth = carries, depth
        self._n_required = needs.n_rows
        self._n_required_leaves = int(np.count_nonzero(needs.row & ~carries))
        self._windows: DepthFirstWindows | None = None
        self._laid_out_at = 0
        self._leaving: IntArray = NOTHING
        self.n_repeated = 0

    @property
    def active(self) -> bool:
        """Return whether waves are under way."""
        return self._windows is not None

    def pay(self, capacity: Capacity, width: int) -> bool:
        """Return whether waves should take over from the best-first search.

        They should if the capacity cannot hold all nodes and too many rows could be
        evaluated twice: those that were, and those that may have to be after one more
        best-first call of `width` nodes, exceed the share `MAX_AHEAD` of all rows.
        """
        if self._n_required - 1 <= capacity.nodes and self._n_required_leaves <= capacity.sequences:
            return False  # nothing will be dropped, so no row is evaluated twice
        n_carrying = int(np.count_nonzero(self._carries & self._reader.evaluated))
        ahead = self._live.n_repeated + self.n_repeated + n_carrying + width * self._depth
        return ahead > MAX_AHEAD * self._n_required

    @property
    def are_stale(self) -> bool:
        """Return whether enough rows were read since `lay_out` to lay out anew.

        The new rows may rule out some of the nodes that are left.
        """
        # Laying out again repeats one path, 3 % at most.
        pause = max(self._n_required // 8, 32 * self._depth)
        return self._reader.n_evaluated - self._laid_out_at > pause

    def lay_out(self, matters: BoolArray) -> None:
        """Begin waves over the nodes of `matters` whose rows are needed, or begin anew.

        Their ancestors are asked for too, because a node is evaluated below its parent.

        Args:
            matters: bool[N], the nodes that the search may still need.
        """
        wanted = matters & self._needs.row & ~self._reader.evaluated
        before = np.concatenate(([0], np.cumsum(wanted)))
        numbers = np.arange(len(wanted))
        marked = before[numbers + self._trie.n_nodes_below + 1] > before[numbers]
        if self._windows is None:
            self._leaving = np.concatenate([self._leaving, self._live.drop_all()])
        self.end()
        self._windows = DepthFirstWindows(DepthFirstOrder(self._trie, marked, wanted), self._live.next_local)
        self._laid_out_at = self._reader.n_evaluated

    def end(self) -> None:
        """End the waves; the next ask releases the nodes that they hold.

        The best-first search starts again from the root.
        """
        if self._windows is not None:
            self._leaving = np.concatenate([self._leaving, self._windows.held])
            self._windows = None

    def next(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next wave and the nodes whose rows it wants, int32[].

        None means that no wave is left; `active` is then false.
        """
        window = None if self._windows is None else self._windows.next_window(capacity)
        if self._windows is not None:
            self._live.next_local = self._windows.next_local
        if window is None:
            self.end()
            return None
        ask, wanted = window
        self.n_repeated += len(ask.tokens) - len(wanted)
        return self.releasing(replace(ask, again=~ask.wanted)), wanted

    def releasing(self, ask: Ask) -> Ask:
        """Return `ask`, extended to release the nodes that the other side held."""
        leaving, self._leaving = self._leaving, NOTHING
        return replace(ask, release=np.concatenate([ask.release, leaving])) if len(leaving) else ask
