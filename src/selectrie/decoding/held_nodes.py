"""Which trie nodes a task holds evaluated, and asks that fit the room there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from selectrie.core.types import ROOT, BoolArray, IntArray, Room
from selectrie.decoding.task import Ask

GRANULE = 8
"""Rows that a call is filled up to: a call of 8k + 1 rows costs what 8k + 8 do where it is padded."""


class Tree(Protocol):
    """Nodes with parents before children; it may grow. parent, token: int32[N], as in `TokenTrie`."""

    @property
    def parent(self) -> IntArray: ...

    @property
    def token(self) -> IntArray: ...


@dataclass(slots=True)
class _Fit:
    """An ask in the making. held: alive nodes that stay (and then those asked for), with their number of alive children.
    asked: nodes to evaluate, parents first. served: targets among them, or alive already. n_leaves: of `held`."""

    held: dict[int, int]
    asked: list[int] = field(default_factory=list)
    served: int = 0
    n_leaves: int = 0


class LiveNodes:
    """Local rows of the trie nodes that are alive. A node whose ancestors were dropped has them asked for again.

    carries: bool[N], nodes that may be parents in a later ask; None: all, of a tree that grows. repeated: nodes asked for
    again so far.
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
        """Forget every node but the root; their local rows, to be released."""
        rows = np.array([row for row in self._local.values() if row], dtype=np.int32)
        self._local, self._n_children, self._n_leaves = {ROOT: 0}, {ROOT: 0}, 0
        return rows

    def plan(self, targets: list[int], evaluated: BoolArray, room: Room) -> tuple[Ask, IntArray]:
        """An ask for as many of the targets, in order, as the room takes, and int32[]: the nodes whose rows it wants.

        Nodes on the way that were never evaluated are wanted too; those that were are asked for again without their rows.
        Everything alive stays where that leaves room for half of the targets; else all is dropped but the ancestors of
        what is asked for. Where even the way to the first target is too long for one ask, its beginning is asked for.
        """
        fit = self._fit(targets, room, _Fit(dict(self._n_children), n_leaves=self._n_leaves))
        if 2 * fit.served < len(targets):
            narrow = self._fit(targets, room, _Fit({ROOT: 0}))
            if narrow.served > fit.served or not fit.asked:
                fit = narrow
        return self._ask(fit, evaluated)

    def _fit(self, targets: Iterable[int], room: Room, fit: _Fit) -> _Fit:
        n_rows = 0
        for target in targets:
            way: list[int] = []
            node = target
            while node not in fit.held:
                way.append(node)
                node = int(self._tree.parent[node])
            new_leaf = int(bool(way) and (node == ROOT or fit.held[node] > 0))
            n_missing = sum(step not in self._local for step in way)
            if len(fit.held) - 1 + len(way) > room.nodes or fit.n_leaves + new_leaf > room.branches:
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
        """The upper part of a way (its end stands first) with as many missing nodes as there are rows."""
        for n in range(1, len(way) + 1):
            if sum(step not in self._local for step in way[-n:]) > n_rows:
                return way[-n + 1 :]
        return way

    def _ask(self, fit: _Fit, evaluated: BoolArray) -> tuple[Ask, IntArray]:
        gone: list[int] = []
        if len(fit.held) - len(fit.asked) < len(self._local):
            gone = [row for node, row in self._local.items() if node not in fit.held]
            self._local = {node: row for node, row in self._local.items() if node in fit.held}
        place = {node: i for i, node in enumerate(fit.asked)}
        parents = [self._tree.parent[node].item() for node in fit.asked]
        asked = np.array(fit.asked, dtype=np.int32)
        wanted = ~evaluated[asked]
        ask = Ask(
            parents=np.array([~place[p] if p in place else self._local[p] for p in parents], dtype=np.int32),
            tokens=self._tree.token[asked],
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
