"""Tracks which trie nodes a task holds evaluated, and plans asks that fit the room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from selectrie.core.types import ROOT, BoolArray, Capacity, IntArray
from selectrie.decoding.task import Ask

GRANULE = 8
"""Calls are filled up to a multiple of this many rows.

Where rows are padded, a call of 8k + 1 rows costs as much as one of 8k + 8.
"""


class Tree(Protocol):
    """A tree with parents before their children, which may grow.

    Attributes:
        parent, token: As in `TokenTrie`, as arrays or lists.
    """

    @property
    def parent(self) -> IntArray | list[int]: ...

    @property
    def token(self) -> IntArray | list[int]: ...


@dataclass(slots=True)
class _Fit:
    """An ask under construction.

    Attributes:
        held: The nodes to hold after the ask, each with its number of held children.
        asked: Nodes to evaluate, parents first.
        served: The number of targets added to `held`, whether asked for or alive
            already.
        n_leaves: The number of leaves among `held`.
    """

    held: dict[int, int]
    asked: list[int] = field(default_factory=list)
    served: int = 0
    n_leaves: int = 0


class LiveNodes:
    """The local rows of the trie nodes that are alive.

    A node whose ancestors were dropped has them evaluated again.

    Args:
        carries: bool[N], the nodes that may be parents in a later ask. None means all
            nodes, for a tree that grows.

    Attributes:
        repeated: How many nodes have been asked for again so far.
    """

    def __init__(self, tree: Tree, carries: BoolArray | None) -> None:
        self._tree = tree
        self._carries = carries
        self._local: dict[int, int] = {ROOT: 0}
        self._n_children: dict[int, int] = {ROOT: 0}
        self._n_leaves = 0
        self.next_local = 1
        self.repeated = 0

    def __contains__(self, node: int) -> bool:
        return node in self._local

    def drop_all(self) -> IntArray:
        """Forget every node but the root and return the local rows to release."""
        rows = np.array([row for row in self._local.values() if row], dtype=np.int32)
        self._local, self._n_children, self._n_leaves = {ROOT: 0}, {ROOT: 0}, 0
        return rows

    def plan(self, targets: list[int], evaluated: BoolArray | list[bool], room: Capacity) -> tuple[Ask, IntArray]:
        """Return an ask for as many targets as fit, and the nodes whose rows it wants.

        Targets are taken in order. Ancestors that were never evaluated are wanted too;
        ancestors that were evaluated are asked for again without their rows. All nodes
        that are alive stay, if that leaves room for half of the targets. Otherwise all
        are dropped except the ancestors of what is asked for. If even the path to the
        first target is too long for one ask, its upper part is asked for.
        """
        fit = self._fit(targets, room, _Fit(dict(self._n_children), n_leaves=self._n_leaves))
        if 2 * fit.served < len(targets):
            narrow = self._fit(targets, room, _Fit({ROOT: 0}))
            if narrow.served > fit.served or not fit.asked:
                fit = narrow
        return self._ask(fit, evaluated)

    def _fit(self, targets: Iterable[int], room: Capacity, fit: _Fit) -> _Fit:
        n_rows = 0
        for target in targets:
            way: list[int] = []
            node = target
            while node not in fit.held:
                way.append(node)
                node = int(self._tree.parent[node])
            new_leaf = int(bool(way) and (node == ROOT or fit.held[node] > 0))
            n_missing = sum(step not in self._local for step in way)
            if len(fit.held) - 1 + len(way) > room.nodes or fit.n_leaves + new_leaf > room.sequences:
                continue
            if n_rows + n_missing > room.rows:
                if fit.asked:
                    break
                way = self._beginning(way, room.rows)
                n_missing = room.rows
            fit.n_leaves += new_leaf
            fit.served += bool(way) and way[0] == target
            n_rows += n_missing
            for step in reversed(way):
                fit.held[node] += 1
                fit.held[step] = 0
                if step not in self._local:
                    fit.asked.append(step)
                node = step
        return fit

    def _beginning(self, way: list[int], n_rows: int) -> list[int]:
        """Return the upper part of a path that needs no more rows than there are.

        `way` begins with its lowest node; `n_rows` bounds the missing nodes.
        """
        for n in range(1, len(way) + 1):
            if sum(step not in self._local for step in way[-n:]) > n_rows:
                return way[-n + 1 :]
        return way

    def _ask(self, fit: _Fit, evaluated: BoolArray | list[bool]) -> tuple[Ask, IntArray]:
        gone: list[int] = []
        if len(fit.held) - len(fit.asked) < len(self._local):
            gone = [row for node, row in self._local.items() if node not in fit.held]
            self._local = {node: row for node, row in self._local.items() if node in fit.held}
        place = {node: i for i, node in enumerate(fit.asked)}
        parents = [int(self._tree.parent[node]) for node in fit.asked]
        asked = np.array(fit.asked, dtype=np.int32)
        wanted = np.array([not evaluated[node] for node in fit.asked], dtype=np.bool_)
        ask = Ask(
            parents=np.array([~place[p] if p in place else self._local[p] for p in parents], dtype=np.int32),
            tokens=np.array([self._tree.token[node] for node in fit.asked], dtype=np.int32),
            wanted=wanted,
            keep=np.ones(len(asked), dtype=np.bool_) if self._carries is None else self._carries[asked],
            release=np.array(gone, dtype=np.int32),
            again=~wanted,
        )
        self._local.update((node, self.next_local + i) for i, node in enumerate(fit.asked))
        self.next_local += len(asked)
        self._n_children, self._n_leaves = fit.held, fit.n_leaves
        self.repeated += len(asked) - int(np.count_nonzero(wanted))
        return ask, asked[wanted]
