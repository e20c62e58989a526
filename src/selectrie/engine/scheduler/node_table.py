"""Maps the local rows of a task to nodes, and finds unbranched runs in an ask."""

from __future__ import annotations

from collections import Counter

import numpy as np

from selectrie.core.model import rounds
from selectrie.core.types import NO_NODE, NO_TOKEN, IntArray
from selectrie.decoding.task import Ask
from selectrie.errors import ProtocolError

_GONE = -2
"""Value of `up` for a row that was released."""


class NodeTable:
    """The local rows of one task as flat columns, indexed by the task's own numbers.

    Row 0 is the end of the prompt. The columns are plain lists: most asks have one row,
    for which numpy is slower. No step visits more rows than it changes, so a task that
    holds five hundred rows is as fast as one that holds none. Only two methods visit
    all rows: `release`, when the task ends or is evicted, and `rows_with_node`, for a
    task that runs alone.

    Attributes:
        up: Number of the parent row.
        token: Token of the row.
        keep: Whether the row may be a parent in a later ask.
        done: Whether the row was evaluated.
        node: Node of the row. NO_NODE if it is not evaluated yet or lost. In a
            recurrent-state model, where holding a node means holding its state, also
            NO_NODE if the row is no longer needed as a parent.
        pending: Numbers of the unevaluated rows of the last ask, ascending.
        first_row: Number of the first row of the last ask.
        n_held: Number of rows below row 0, pending ones included.
        n_leaves: Number of these rows that have no children.
        n_nodes: Number of these rows that have a node.
        n_lost: Number of rows whose nodes were taken away for other tasks.
        n_lost_leaves: Number of lost rows that have no children.
    """

    def __init__(self) -> None:
        self.up, self.token, self.node = [NO_NODE], [NO_TOKEN], [NO_NODE]
        self.keep, self.done = [True], [True]
        self._lost, self._n_children = [False], [0]
        self.pending: list[int] = []
        self.first_row = 1
        self.n_held = self.n_leaves = self.n_nodes = self.n_lost = self.n_lost_leaves = 0

    def apply_ask(self, ask: Ask) -> list[int]:
        """Remove the rows that an ask releases and append those that it asks for.

        Returns the nodes of the removed rows, to be released. Raises `ProtocolError` if
        a released row has children that stay or is not held, or if a parent is not
        held.
        """
        released, parents = ask.release.tolist(), ask.parents.tolist()
        leaving = self._check_released(released)
        first = len(self.up)
        for i, parent in enumerate(parents):
            if not (~parent < i if parent < 0 else self._is_held(parent) and parent not in leaving):
                raise ProtocolError("asked for a child of a row that was released or never asked for")
        gone = self._remove_rows(released, leaving)
        for parent, token, keep in zip(parents, ask.tokens.tolist(), ask.keep.tolist(), strict=True):
            up = parent if parent >= 0 else first + ~parent
            if up and not self._n_children[up]:
                self._count_leaf(up, -1)
            self._n_children[up] += 1
            self._append(up, token, keep=keep)
        self.first_row, self.pending = first, list(range(first, len(self.up)))
        self.n_held += len(parents)
        self.n_leaves += len(parents)
        return gone

    def _append(self, up: int, token: int, *, keep: bool) -> None:
        """Add a row without a node."""
        self.up.append(up)
        self.token.append(token)
        self.keep.append(keep)
        self.done.append(False)
        self.node.append(NO_NODE)
        self._lost.append(False)
        self._n_children.append(0)

    def _is_held(self, row: int) -> bool:
        """Return whether a row exists and was not released."""
        return row < len(self.up) and self.up[row] != _GONE

    def _check_released(self, released: list[int]) -> set[int]:
        """Return the rows to release as a set; raise if one cannot be released.

        Nothing has changed if it raises.
        """
        leaving = set(released)
        if len(leaving) < len(released) or any(row <= 0 or not self._is_held(row) for row in released):
            raise ProtocolError("an ask released a row that is not held")
        carried = Counter(self.up[row] for row in released)
        if any(self._n_children[row] > carried[row] for row in released):
            raise ProtocolError("an ask released a row that has children")
        return leaving

    def _remove_rows(self, released: list[int], leaving: set[int]) -> list[int]:
        """Remove the rows `released` and return their nodes."""
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
        """Add `change` to `n_leaves`, and to `n_lost_leaves` if the row is lost.

        The row is becoming a leaf (+1) or no longer one (-1). It is lost if its node
        was taken away for another task.
        """
        self.n_leaves += change
        if self._lost[row]:
            self.n_lost_leaves += change

    def assign_nodes(self, rows: list[int], nodes: list[int]) -> None:
        """Assign nodes to pending rows that were evaluated."""
        for row, node in zip(rows, nodes, strict=True):
            self.done[row], self.node[row] = True, node
        self.n_nodes += len(nodes)
        self.pending = [row for row in self.pending if not self.done[row]] if len(rows) < len(self.pending) else []

    def restore(self, row: int, node: int) -> None:
        """Assign a new node to a row whose previous node was lost."""
        self.node[row] = node
        self.n_nodes += 1
        if self._lost[row]:
            self._set_lost(row, lost=False)

    def take_away(self, row: int) -> int:
        """Remove a row's node and return it, to make room for other tasks.

        The row counts as lost until `restore` gives it a new node.
        """
        node, self.node[row] = self.node[row], NO_NODE
        self.n_nodes -= 1
        self._set_lost(row, lost=True)
        return node

    def _set_lost(self, row: int, *, lost: bool) -> None:
        """Mark a row as lost or not, and adjust the counts."""
        change = 1 if lost else -1
        self._lost[row] = lost
        self.n_lost += change
        if not self._n_children[row]:
            self.n_lost_leaves += change

    def release(self) -> list[int]:
        """Remove the nodes of all rows below row 0 and return them."""
        return [self.take_away(row) for row in self.rows_with_node()]

    def rows_with_node(self) -> list[int]:
        """Return the rows below row 0 that have a node."""
        return [row for row, node in enumerate(self.node) if row and node != NO_NODE] if self.n_nodes else []

    def drop_states(self, rows: list[int]) -> list[int]:
        """Forget the nodes of `rows` that have no pending children; return the nodes.

        Rows marked `keep` keep their nodes.
        """
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

    def lost_ancestors(self) -> list[int]:
        """Return the lost ancestors of pending rows, at any distance, ascending.

        A row with a node has no lost ancestors, except in a recurrent-state model.
        """
        if not self.n_lost:
            return []
        lost: set[int] = set()
        for row in self.pending:
            above = self.up[row]
            while self._lost[above] and above not in lost:
                lost.add(above)
                above = self.up[above]
        return sorted(lost)

    def path_to(self, row: int, max_rows: int) -> list[int]:
        """Return the rows on the path to `row` below its nearest ancestor with a node.

        At most the first `max_rows` of them are returned.
        """
        way = [row]
        while self.up[way[-1]] > 0 and self.node[self.up[way[-1]]] == NO_NODE:
            way.append(self.up[way[-1]])
        return way[::-1][:max_rows]

    def parents_of(self, rows: list[int]) -> list[int]:
        """Return the parent of each row: a node, or `~j` for the j-th of `rows`."""
        index, ups, nodes = {row: i for i, row in enumerate(rows)}, self.up, self.node
        return [~index[up] if (up := ups[row]) in index else nodes[up] for row in rows]


class LinearRuns:
    """The unbranched runs of rows in an ask, for a recurrent-state model.

    Such a model evaluates a run from the state of its base row to the state of its last
    row, the tip. A run starts wherever `model.rounds` starts a later round. Only the
    state at the tip can be kept.
    """

    def __init__(self, rows: NodeTable, ask: Ask) -> None:
        in_round = rounds(ask.parents, ask.keep)
        run_of: list[int] = []
        self._members: list[list[int]] = []
        for i, parent in enumerate(ask.parents.tolist()):
            if parent < 0 and in_round[i] == in_round[~parent]:
                run_of.append(run_of[~parent])
            else:
                run_of.append(len(self._members))
                self._members.append([])
            self._members[run_of[i]].append(rows.first_row + i)
        self._base = [rows.up[run[0]] for run in self._members]
        self._tip = [run[-1] for run in self._members]
        self._carriers = frozenset(self._base)
        self._keeps = [rows.keep[tip] or tip in self._carriers for tip in self._tip]

    def _find_ready(self, rows: NodeTable) -> list[int]:
        """Return the unevaluated runs whose base row is evaluated."""
        return [
            run
            for run, (base, tip) in enumerate(zip(self._base, self._tip, strict=True))
            if rows.done[base] and not rows.done[tip]
        ]

    def choose(self, rows: NodeTable, max_rows: int, states: int) -> list[int]:
        """Return the rows of the runs to evaluate now, ascending.

        Runs whose state is not kept go first, then the last runs of the ask. This is
        depth-first, so that few states are held at a time. `states` runs are chosen,
        and one more if the first run keeps no state; at least one if any can start. The
        result is empty if every state that a run could start from is lost.
        """
        ready = [run for run in self._find_ready(rows) if rows.node[self._base[run]] != NO_NODE]
        ready.sort(key=lambda run: (self._keeps[run], -self._tip[run]))
        spare = int(bool(ready) and not self._keeps[ready[0]])
        chosen: list[int] = []
        for run in ready[: max(1, states + spare)]:
            if chosen and len(chosen) + len(self._members[run]) > max_rows:
                break
            chosen += self._members[run]
        return sorted(chosen)

    def base_to_restore(self, rows: NodeTable) -> int:
        """Return the base row of the last ready run, whose state was lost."""
        return self._base[max(self._find_ready(rows), key=self._tip.__getitem__)]

    def starts_run(self, row: int) -> bool:
        """Return whether a run of the ask starts from this row."""
        return row in self._carriers


def as_ids(values: list[int]) -> IntArray:
    """Return node or token ids as int32[n]."""
    return np.array(values, dtype=np.int32)
