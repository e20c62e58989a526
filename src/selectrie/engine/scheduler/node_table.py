"""The local rows that a task holds on a model: which of them are evaluated, lost or waited for, and the runs between them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from selectrie.core.model import rounds
from selectrie.core.types import NO_NODE, NO_TOKEN, IntArray
from selectrie.decoding.task import Ask
from selectrie.errors import ProtocolError

_GONE = -2
"""Value of `up` for a row that was released."""


class LocalRows:
    """The local rows of one task as flat columns indexed by the task's own numbers; row 0 is the end of its prompt.

    Plain lists: most asks are of one row, where numpy is slower. No step looks at more rows than it moves, so a task that
    holds five hundred is as fast as one that holds none; `let_go`, which ends or evicts it, looks at all.

    up: number of the parent. token. keep: may be a parent in a later ask. done: evaluated.
    node: NO_NODE where a row has none: not evaluated yet, lost, or (in a forking model, where holding a node is holding its
    state) no parent of anything to come.
    pending: numbers of what is left of the last ask, ascending; asked_from: the number of its first row.
    n_held: rows below row 0, pending ones included. n_leaves: of these, without children. n_nodes: of these, with a node.
    n_lost: rows whose nodes were taken away for others. n_lost_leaves: of these, without children.
    """

    def __init__(self) -> None:
        self.up, self.token, self.node = [NO_NODE], [NO_TOKEN], [NO_NODE]
        self.keep, self.done = [True], [True]
        self._lost, self._n_children = [False], [0]
        self.pending: list[int] = []
        self.asked_from = 1
        self.n_held = self.n_leaves = self.n_nodes = self.n_lost = self.n_lost_leaves = 0

    def turn_over(self, ask: Ask) -> list[int]:
        """Take out what an ask releases and append what it asks for; nodes to be given back.

        Raises `ProtocolError` where a row is released that carries others or is not held, or a parent is not held.
        """
        released, parents = ask.release.tolist(), ask.parents.tolist()
        leaving = self._check_released(released)
        first = len(self.up)
        for i, parent in enumerate(parents):
            if not (~parent < i if parent < 0 else self._is_held(parent) and parent not in leaving):
                raise ProtocolError("asked for a child of a row that was released or never asked for")
        gone = self._take_out(released, leaving)
        for parent, token, keep in zip(parents, ask.tokens.tolist(), ask.keep.tolist(), strict=True):
            up = parent if parent >= 0 else first + ~parent
            if up and not self._n_children[up]:
                self._count_leaf(up, -1)
            self._n_children[up] += 1
            self._append(up, token, keep=keep)
        self.asked_from, self.pending = first, list(range(first, len(self.up)))
        self.n_held += len(parents)
        self.n_leaves += len(parents)
        return gone

    def _append(self, up: int, token: int, *, keep: bool) -> None:
        self.up.append(up)
        self.token.append(token)
        self.keep.append(keep)
        self.done.append(False)
        self.node.append(NO_NODE)
        self._lost.append(False)
        self._n_children.append(0)

    def _is_held(self, row: int) -> bool:
        return row < len(self.up) and self.up[row] != _GONE

    def _check_released(self, released: list[int]) -> set[int]:
        """The rows to release; raises before anything changed."""
        leaving = set(released)
        if len(leaving) < len(released) or any(row <= 0 or not self._is_held(row) for row in released):
            raise ProtocolError("an ask released a row that is not held")
        carried = Counter(self.up[row] for row in released)
        if any(self._n_children[row] > carried[row] for row in released):
            raise ProtocolError("an ask released a row that others hang from")
        return leaving

    def _take_out(self, released: list[int], leaving: set[int]) -> list[int]:
        """Release rows; the nodes they had."""
        for row in released:
            if not self._n_children[row]:
                self._count_leaf(row, -1)
            self.n_lost -= self._lost[row]
        for row in released:
            up = self.up[row]
            self._n_children[up] -= 1
            if up and not self._n_children[up] and up not in leaving:
                self._count_leaf(up, 1)
        gone = [self.node[row] for row in released if self.node[row] != NO_NODE]
        for row in released:
            self.up[row], self.node[row], self._lost[row] = _GONE, NO_NODE, False
        self.n_held -= len(released)
        self.n_nodes -= len(gone)
        return gone

    def _count_leaf(self, row: int, change: int) -> None:
        self.n_leaves += change
        if self._lost[row]:
            self.n_lost_leaves += change

    def evaluated(self, rows: list[int], nodes: list[int]) -> None:
        """Some of what is pending has nodes now."""
        for row, node in zip(rows, nodes, strict=True):
            self.done[row], self.node[row] = True, node
        self.n_nodes += len(nodes)
        self.pending = [row for row in self.pending if not self.done[row]] if len(rows) < len(self.pending) else []

    def restored(self, row: int, node: int) -> None:
        """A row that had lost its node has one again."""
        self.node[row] = node
        self.n_nodes += 1
        if self._lost[row]:
            self._set_lost(row, lost=False)

    def take_away(self, row: int) -> int:
        """Take a row's node for others; it is lost until it is `restored`."""
        node, self.node[row] = self.node[row], NO_NODE
        self.n_nodes -= 1
        self._set_lost(row, lost=True)
        return node

    def _set_lost(self, row: int, *, lost: bool) -> None:
        change = 1 if lost else -1
        self._lost[row] = lost
        self.n_lost += change
        if not self._n_children[row]:
            self.n_lost_leaves += change

    def let_go(self) -> list[int]:
        """Take every node below row 0 away; what they were."""
        return [self.take_away(row) for row in range(1, len(self.node)) if self.node[row] != NO_NODE]

    def holding(self) -> list[int]:
        """Rows below row 0 that have a node."""
        return [row for row in range(1, len(self.node)) if self.node[row] != NO_NODE]

    def drop_states(self, rows: list[int]) -> list[int]:
        """Of these rows, forget the nodes of those that nothing to come hangs from; what they were."""
        waited_for = {self.up[row] for row in self.pending}
        gone = []
        for row in rows:
            if self.keep[row] or row in waited_for:
                continue
            if self._lost[row]:
                self._set_lost(row, lost=False)
            elif self.node[row] != NO_NODE:
                gone.append(self.node[row])
                self.node[row] = NO_NODE
        self.n_nodes -= len(gone)
        return gone

    def lost_above(self) -> list[int]:
        """Lost rows that pending ones hang from, at whatever distance, ascending. What is above a row with a node has one
        too, unless the model forks."""
        if not self.n_lost:
            return []
        found: set[int] = set()
        for row in self.pending:
            above = self.up[row]
            while self._lost[above] and above not in found:
                found.add(above)
                above = self.up[above]
        return sorted(found)

    def way_to(self, row: int, most: int) -> list[int]:
        """Rows on the way to one from below the nearest above it that has a node, `most` of them at most."""
        way = [row]
        while self.up[way[-1]] > 0 and self.node[self.up[way[-1]]] == NO_NODE:
            way.append(self.up[way[-1]])
        return way[::-1][:most]

    def parents_of(self, rows: list[int]) -> list[int]:
        """The parents of some rows as nodes, `~j` where that is the j-th of these rows."""
        place = {row: i for i, row in enumerate(rows)}
        return [~place[up] if (up := self.up[row]) in place else self.node[up] for row in rows]


class Runs:
    """The unbranched runs of an ask: what a forking model evaluates from the state of one row to that of another.

    A run starts wherever `model.rounds` starts a later round. At most one state is kept of it, at its tip.
    """

    def __init__(self, rows: LocalRows, ask: Ask) -> None:
        in_round = rounds(ask.parents, ask.keep)
        run_of: list[int] = []
        self._members: list[list[int]] = []
        for i, parent in enumerate(ask.parents.tolist()):
            if parent < 0 and in_round[i] == in_round[~parent]:
                run_of.append(run_of[~parent])
            else:
                run_of.append(len(self._members))
                self._members.append([])
            self._members[run_of[i]].append(rows.asked_from + i)
        self._base = [rows.up[run[0]] for run in self._members]
        self._tip = [run[-1] for run in self._members]
        self._carriers = frozenset(self._base)
        self._keeps = [rows.keep[tip] or tip in self._carriers for tip in self._tip]

    def _ready(self, rows: LocalRows) -> list[int]:
        """Runs to come that start from an evaluated row."""
        return [
            run
            for run, (base, tip) in enumerate(zip(self._base, self._tip, strict=True))
            if rows.done[base] and not rows.done[tip]
        ]

    def choose(self, rows: LocalRows, most_rows: int, states: int) -> list[int]:
        """The rows of the runs to evaluate now, ascending; none where every state that one could start from is gone.

        Runs that keep no state go first, then the last ones: depth first, so that few states wait at a time. Each run
        takes a sequence; one of those that keep nothing is spare. At least one run is chosen where there is any.
        """
        ready = [run for run in self._ready(rows) if rows.node[self._base[run]] != NO_NODE]
        ready.sort(key=lambda run: (self._keeps[run], -self._tip[run]))
        spare = int(bool(ready) and not self._keeps[ready[0]])
        chosen: list[int] = []
        for run in ready[: max(1, states + spare)]:
            if chosen and len(chosen) + len(self._members[run]) > most_rows:
                break
            chosen += self._members[run]
        return sorted(chosen)

    def to_restore(self, rows: LocalRows) -> int:
        """The row that the last run starts from whose base has lost its state."""
        return self._base[max(self._ready(rows), key=self._tip.__getitem__)]

    def carries(self, row: int) -> bool:
        """Whether other runs start from this row."""
        return row in self._carriers


def as_ids(values: list[int]) -> IntArray:
    """int32[n]."""
    return np.array(values, dtype=np.int32)
