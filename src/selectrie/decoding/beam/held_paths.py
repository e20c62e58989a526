"""Tracks which paths of a growing tree are held, and plans asks that fit the room."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np

from selectrie.core.types import ROOT, Capacity, IntArray
from selectrie.decoding.path_tree import PathTree
from selectrie.decoding.task import Ask

_ANY = 1 << 62
"""A room large enough for everything."""


class HeldPaths:
    """The local rows of the nodes of a `PathTree` that are held.

    Everything that is waited for is asked for at once if the room allows it. Otherwise
    paths that were evaluated and may go on later are given up. Those that need the
    fewest rows to be evaluated again go first, and of these the least probable ones.

    Attributes:
        n_repeated: How many nodes have been asked for again so far.
    """

    def __init__(self, tree: PathTree) -> None:
        self._tree = tree
        self._local: dict[int, int] = {ROOT: 0}
        self._n_children: dict[int, int] = {ROOT: 0}
        self._spent: set[int] = set()
        self._seen: set[int] = {ROOT}
        self._next_local = 1
        self._is_narrow = False
        self.n_repeated = 0

    def plan(self, waiting: list[int], resting: list[int], carries: set[int], room: Capacity) -> tuple[Ask, list[int]]:
        """Return an ask for the waiting nodes that fit, and those whose rows it wants.

        The latter are in the order of the ask. Ancestors of waiting nodes are asked for
        without their rows. If the path to the first waiting node needs more rows than
        there are, its upper part is asked for and no row is wanted.

        Args:
            resting: Nodes evaluated before that may be parents later.
            carries: Waiting nodes that may be parents later.
        """
        needed = self._with_all_above(self._tree.parent[node] for node in waiting)
        gone = self._drop_all_but(needed | self._with_all_above(resting))
        asked, served = self._fit(waiting, room)
        if not asked:  # what is held for the others takes up the room
            self._is_narrow = True
            gone += self._make_room(needed, waiting, room)
            asked, served = self._fit(waiting, room)
        if not asked:
            waiting = sorted(waiting, key=lambda node: len(self._missing(node)[1]))
            asked, served = self._fit(waiting, room)
        if not asked:
            gone += self._drop_all_but(self._with_all_above([self._tree.parent[waiting[0]]]))
            asked, served = self._fit(waiting[:1], room)
        if not asked:  # it is below a node that was given up for good
            gone += self._drop_all_but({ROOT})
            asked, served = self._fit(waiting[:1], room)
        wanted = set(served)
        spent = (
            [] if self._is_narrow else self._now_spent([*resting, *(node for node in waiting if node not in wanted)])
        )
        return self._ask(asked, wanted, carries, spent, gone), served

    def _once_all_are_held(self, waiting: list[int]) -> tuple[int, int]:
        """Return how many nodes and leaves would be held with all of the waiting."""
        asked, _ = self._fit(waiting, Capacity(rows=_ANY, nodes=_ANY, sequences=_ANY))
        parents = {self._tree.parent[node] for node in asked}
        kept = sum(1 for node, n in self._n_children.items() if not n and node != ROOT and node not in parents)
        return len(self._local) - 1 + len(asked), kept + sum(node not in parents for node in asked)

    def _make_room(self, needed: set[int], waiting: list[int], room: Capacity) -> list[int]:
        """Give up leaves until all of the waiting fit; return the rows to release.

        A leaf goes together with the ancestors that carry only that leaf.

        Args:
            needed: Nodes that stay.
        """
        n_nodes, n_leaves = self._once_all_are_held(waiting)
        n_nodes, n_leaves = n_nodes - room.nodes, n_leaves - room.sequences
        gone: list[int] = []
        queue = [self._price(leaf, needed) for leaf, n in self._n_children.items() if not n and leaf not in needed]
        heapify(queue)
        while queue and (n_nodes > 0 or n_leaves > 0):
            price = heappop(queue)
            leaf = price[-1]
            now = self._price(leaf, needed)
            if now != price:  # a branch beside it was given up
                heappush(queue, now)
                continue
            if price[0] == np.inf:
                break
            for node in self._alone(leaf, needed):
                gone.append(self._local.pop(node))
                del self._n_children[node]
                self._n_children[self._tree.parent[node]] -= 1
                n_nodes -= 1
            n_leaves -= 1
        return gone

    def _alone(self, leaf: int, needed: set[int]) -> list[int]:
        """Return a leaf and the ancestors that only carry it and are not needed.

        The order is from the leaf upwards.
        """
        way = [leaf]
        while (up := self._tree.parent[way[-1]]) != ROOT and self._n_children[up] == 1 and up not in needed:
            way.append(up)
        return way

    def _price(self, leaf: int, needed: set[int]) -> tuple[float, float, int]:
        """Return the sort key by which leaves are given up, the smallest first."""
        way = self._alone(leaf, needed)
        n_rows = np.inf if self._tree.parent[way[-1]] in self._spent else float(len(way))
        return n_rows, self._tree.logp[leaf], leaf

    def _missing(self, node: int) -> tuple[int, list[int]]:
        """Return the nearest held ancestor, and the nodes from below it to this one."""
        way: list[int] = []
        while node not in self._local:
            way.append(node)
            node = self._tree.parent[node]
        return node, way[::-1]

    def _fit(self, waiting: list[int], room: Capacity) -> tuple[list[int], list[int]]:
        """Return the nodes to ask for, parents first, and the waiting nodes among them.

        Nothing changes.
        """
        asked: dict[int, None] = {}
        served: list[int] = []
        children: dict[int, int] = {}
        n_leaves = sum(1 for node, n in self._n_children.items() if not n and node != ROOT)
        for node in waiting:
            base, way = self._missing(node)
            way = [step for step in way if step not in asked]
            top = self._tree.parent[way[0]]
            if base in self._spent:
                continue
            cut = way[: max(0, room.rows - len(asked))] if not asked else way
            n_own = self._n_children.get(top, 0) + children.get(top, 0)
            new_leaf = int(top == ROOT or n_own > 0)
            fits = len(self._local) - 1 + len(asked) + len(cut) <= room.nodes and n_leaves + new_leaf <= room.sequences
            if not fits or len(asked) + len(cut) > room.rows:
                break
            for step in cut:
                asked[step] = None
                up = self._tree.parent[step]
                children[up] = children.get(up, 0) + 1
            n_leaves += new_leaf
            if len(cut) < len(way):
                break
            served.append(node)
        return list(asked), served

    def _with_all_above(self, nodes: Iterable[int]) -> set[int]:
        """Return these nodes and all their ancestors."""
        found = {ROOT}
        for node in nodes:
            above = node
            while above not in found:
                found.add(above)
                above = self._tree.parent[above]
        return found

    def _drop_all_but(self, stays: set[int]) -> list[int]:
        """Forget all other nodes and return the local rows to release.

        Args:
            stays: Closed under ancestors.
        """
        leaving = [node for node in self._local if node not in stays]
        rows = [self._local.pop(node) for node in leaving]
        for node in leaving:
            del self._n_children[node]
            self._spent.discard(node)
        for node in leaving:
            up = self._tree.parent[node]
            if up in self._n_children:
                self._n_children[up] -= 1
        return rows

    def _ask(self, asked: list[int], wanted: set[int], carries: set[int], spent: list[int], gone: list[int]) -> Ask:
        place = {node: i for i, node in enumerate(asked)}
        ups = [self._tree.parent[node] for node in asked]
        parents = [~place[up] if up in place else self._local[up] for up in ups]
        # Repeated ancestors are kept where further nodes may be evaluated below them.
        keep = [node in carries or (node not in wanted and (self._is_narrow or node == asked[-1])) for node in asked]
        ask = Ask(
            parents=_ids(parents),
            tokens=_ids([self._tree.token[node] for node in asked]),
            wanted=np.array([node in wanted for node in asked], dtype=np.bool_),
            keep=np.array(keep, dtype=np.bool_),
            release=_ids(gone),
            spent=_ids([self._local[node] for node in spent]),
            again=np.array([node in self._seen for node in asked], dtype=np.bool_),
        )
        for node, up in zip(asked, ups, strict=True):
            self._local[node] = self._next_local
            self._next_local += 1
            self._n_children[node] = 0
            self._n_children[up] += 1
            self.n_repeated += node in self._seen
        self._seen.update(asked)
        self._spent.update(spent)
        return ask

    def _now_spent(self, needed: list[int]) -> list[int]:
        """Return the held nodes that no needed node directly extends.

        Everything after this ask extends the needed nodes or what this ask evaluates.
        """
        bases = {self._missing(node)[0] for node in needed}
        return [node for node in self._local if node != ROOT and node not in self._spent and node not in bases]


def _ids(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)
