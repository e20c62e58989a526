"""The states of recurrent and hybrid models, each of which belongs to a node.

Such a model has a state only at the end of what it has evaluated. A node that may
become a parent therefore owns a state, and new rows are evaluated in runs: each starts
from a copy of a state, and the state after it is kept for the run's last node or
discarded. What a state is, and how it is copied and freed, is up to the back end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from selectrie.backends.prefix_tree import CallPlan, PrefixTree
from selectrie.core.types import NO_NODE, ROOT, IntArray
from selectrie.errors import NodeError

S = TypeVar("S")

_NO_ENTRY = -1
_UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class Run:
    """Entries that are evaluated one after the other.

    Attributes:
        base: The node from whose state the run starts.
        entries: The entries of the call's plan.
        keeps: Whether the state after the last entry is kept.
    """

    base: int
    entries: list[int]
    keeps: bool


class NodeStates(Generic[S]):
    """The states of type S that are kept for nodes of a tree.

    A back end derives from this class. It adds states to `_state`, and overrides
    `_drop_state` if a dropped state has to be freed.

    Attributes:
        sequences: Maximum number of states.
    """

    def __init__(self, tree: PrefixTree, sequences: int) -> None:
        self._tree, self.sequences = tree, sequences
        self._state: dict[int, S] = {}

    @property
    def free_sequences(self) -> int:
        """Return how many states would be free if all unheld nodes were dropped."""
        references = self._tree.references
        return self.sequences - sum(1 for node in self._state if references[node])

    def can_extend(self, node: int) -> bool:
        """Return whether the node owns a state; the empty context needs none."""
        return node == ROOT or node in self._state

    # A call

    def plan_runs(self, plan: CallPlan) -> list[Run]:
        """Return the fewest runs that evaluate all entries that are due.

        Due are new entries, entries wanted again, and entries that need a state. A run
        ends at every entry that needs a state, and at every due entry that no other run
        passes through. Existing nodes without a state on the way are evaluated again.

        Raises `NodeError` for a parent whose state was not kept.
        """
        n = len(plan.node)
        entry_of = {node: e for e, node in enumerate(plan.node) if node != NO_NODE}
        above, base = [_NO_ENTRY] * n, [ROOT] * n
        for e, parent in enumerate(plan.parent):
            if parent < 0:
                above[e], base[e] = ~parent, base[~parent]
            elif self.can_extend(parent):
                base[e] = parent
            elif parent in entry_of:
                above[e], base[e] = entry_of[parent], base[entry_of[parent]]
            else:
                raise NodeError(parent, "cannot be extended: it was made without keep, so its state is gone")
        passed = [False] * n
        runs = []
        for e in range(n - 1, -1, -1):
            needs_state = plan.keep[e] and not (plan.node[e] != NO_NODE and plan.node[e] in self._state)
            is_due = plan.node[e] == NO_NODE or plan.wanted[e] or needs_state
            if not is_due or (passed[e] and not needs_state):
                continue
            entries = []
            at = e
            while at != _NO_ENTRY:
                passed[at] = True
                entries.append(at)
                at = above[at]
            runs.append(Run(base[e], entries[::-1], needs_state))
        return runs[::-1]

    def _nodes_to_drop(self, plan: CallPlan, nodes: int) -> list[int]:
        """Return the cached nodes to drop so that the tree has at most `nodes` nodes.

        Raises `CapacityError` if that is not possible. Branches are not counted, since
        only states are limited.
        """
        return self._tree.make_room(plan, nodes=nodes, sequences=_UNLIMITED)

    def _droppable(self, protected: Collection[int]) -> list[int]:
        """Return the unheld nodes whose states may be dropped.

        They come in the order in which their states were kept. The nodes themselves may
        stay in the tree.
        """
        references = self._tree.references
        return [node for node in self._state if not references[node] and node not in protected]

    def _eviction_key(self, node: int) -> tuple[int, int]:
        """Return the key by which states are dropped: the smallest goes first.

        The least recently used goes first, and of several the deepest.
        """
        return self._tree.used[node], -self._tree.depth[node]

    # Dropping

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does, and drop forgotten nodes.

        A forgotten node loses its state now, even if the node has to stay for others.
        """
        gone = self._tree.release(nodes, forget=forget)
        if forget:
            for node in set(np.asarray(nodes).tolist()):
                if node in self._state and not self._tree.references[node]:
                    self._drop_state(node)
        self._drop(gone)

    def trim(self, idle_rows: int) -> int:
        """Drop nodes and states unused for `idle_rows` rows, and return how many.

        A node that stays for others loses only its state.
        """
        tree = self._tree
        nodes = tree.idle(idle_rows)
        dropped = set(nodes)
        states = [n for n in self._state if not tree.references[n] and tree.clock - tree.used[n] >= idle_rows]
        states = [n for n in states if n not in dropped]
        for node in states:
            self._drop_state(node)
        self._drop(nodes)
        return len(nodes) + len(states)

    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes, leaf first, with their states."""
        for node in nodes:
            if node in self._state:
                self._drop_state(node)
        self._tree.drop(nodes)

    def _drop_state(self, node: int) -> None:
        """Drop the state of a node that has one."""
        del self._state[node]
