"""What the scheduler knows of each task under way: the local rows it holds, what is left of its ask, what it reserves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.errors import ProtocolError
from selectrie.model import Rows, rounds
from selectrie.tasks import Ask, Task
from selectrie.types import NO_NODE, BoolArray, Cost, IntArray, LogitArray, Room

ROW_CACHE_BYTES = 64 << 20
"""Rows of prompt ends kept for the next request: about 100 at a vocabulary of 152k."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One job's share of a call. parents are nodes, or ~j within the part.

    take: given the part's nodes and wanted rows. base: places of the job's rows that it stands on.
    repeats: every row was evaluated before and lost since.
    """

    job: Job
    parents: IntArray
    tokens: IntArray
    wanted: BoolArray
    keep: BoolArray
    take: Callable[[IntArray, Rows], None]
    base: IntArray
    repeats: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for parts that are the same rows."""
        return self.parents.tobytes(), self.tokens.tobytes()


class LocalRows:
    """The local rows that a task holds, as parallel arrays in ascending order; place 0 is row 0, the end of its prompt.

    local: int32[n], the task's number. up: int32[n], place of the parent. token: int32[n].
    keep: bool[n], may be a parent in a later ask. done: bool[n], evaluated; the others are what is left of the last ask,
    which stands at the end, from `asked_from` on.
    node: int32[n], NO_NODE where a row has none: not evaluated yet, taken away for others, or (in a forking model, where
    holding a node is holding its state) no parent of anything to come.
    """

    def __init__(self) -> None:
        self.local, self.up, self.token = (np.array([value], dtype=np.int32) for value in (0, NO_NODE, NO_NODE))
        self.keep: BoolArray = np.ones(1, dtype=np.bool_)
        self.done: BoolArray = np.ones(1, dtype=np.bool_)
        self.node: IntArray = np.full(1, NO_NODE, dtype=np.int32)
        self.asked_from = self._next_local = 1

    def turn_over(self, ask: Ask) -> IntArray:
        """Take out what an ask releases and append what it asks for; int32[]: nodes to be given back.

        Raises `ProtocolError` where a row is released that carries others, or a parent is not held.
        """
        stays = ~np.isin(self.local, ask.release)
        if not stays[0] or not stays[self.up[1:][stays[1:]]].all():
            raise ProtocolError("an ask released a row that others hang from")
        place = (np.cumsum(stays) - 1).astype(np.int32)
        gone = self.node[~stays]
        up = place[self.up[stays]]
        local, n = self.local[stays], len(ask.tokens)
        at = np.minimum(np.searchsorted(local, ask.parents), len(local) - 1)
        inside = ask.parents < 0
        if (local[at][~inside] != ask.parents[~inside]).any():
            raise ProtocolError("asked for a child of a row that was released or never asked for")
        self.asked_from = len(local)
        self.local = np.append(local, np.arange(self._next_local, self._next_local + n)).astype(np.int32)
        self.up = np.append(up, np.where(inside, self.asked_from + ~ask.parents, at)).astype(np.int32)
        self.up[0] = NO_NODE
        self.token = np.append(self.token[stays], ask.tokens).astype(np.int32)
        self.keep = np.append(self.keep[stays], ask.keep)
        self.done = np.append(self.done[stays], np.zeros(n, dtype=np.bool_))
        self.node = np.append(self.node[stays], np.full(n, NO_NODE, dtype=np.int32))
        self._next_local += n
        return np.asarray(gone[gone != NO_NODE], dtype=np.int32)

    @property
    def pending(self) -> IntArray:
        """Places of what is left of the last ask."""
        return np.flatnonzero(~self.done).astype(np.int32)

    @property
    def n_held(self) -> int:
        """Rows the task holds below row 0, those it still waits for included."""
        return len(self.local) - 1

    def _leaves(self) -> BoolArray:
        leaves = np.ones(len(self.local), dtype=np.bool_)
        leaves[self.up[1:]] = False
        leaves[0] = False
        return leaves

    @property
    def n_leaves(self) -> int:
        """Branches that the task holds."""
        return int(np.count_nonzero(self._leaves()))

    @property
    def missing(self) -> BoolArray:
        """bool[n]: evaluated rows below row 0 that have no node."""
        missing: BoolArray = self.done & (self.node == NO_NODE)
        missing[0] = False
        return missing

    @property
    def n_lost_leaves(self) -> int:
        """Of these, evaluated ones that were taken away."""
        return int(np.count_nonzero(self._leaves() & self.missing))

    def waited_for(self) -> BoolArray:
        """bool[n]: rows that something pending hangs from."""
        carries: BoolArray = np.zeros(len(self.local), dtype=np.bool_)
        carries[self.up[self.pending]] = True
        return carries

    def lost(self) -> IntArray:
        """Places of evaluated rows without node that pending ones hang from, at whatever distance."""
        missing = self.missing
        if not missing.any():
            return np.empty(0, dtype=np.int32)
        needed: BoolArray = np.zeros(len(self.local), dtype=np.bool_)
        at = np.unique(self.up[self.pending])
        while len(at := at[(at > 0) & ~needed[at]]):
            needed[at] = True
            at = np.unique(self.up[at])
        return np.flatnonzero(needed & missing).astype(np.int32)

    def way_to(self, place: int, most: int) -> IntArray:
        """Places on the way to a row from below the nearest one above it that has a node, `most` of them at most."""
        way = [place]
        while self.up[way[-1]] > 0 and self.node[self.up[way[-1]]] == NO_NODE:
            way.append(int(self.up[way[-1]]))
        return np.array(way[::-1][:most], dtype=np.int32)

    def parents_of(self, places: IntArray) -> IntArray:
        """The parents of some rows (ascending places) as nodes, `~j` where that is the j-th of these rows."""
        up = self.up[places]
        found = np.minimum(np.searchsorted(places, up), len(places) - 1)
        inside = places[found] == up if len(places) else np.zeros(0, dtype=np.bool_)
        return np.where(inside, ~found, self.node[up]).astype(np.int32)

    def take_away(self, places: NDArray[np.integer[Any]] | BoolArray) -> IntArray:
        """Forget the nodes of some rows; those that were there, to be given back."""
        nodes = self.node[places]
        self.node[places] = NO_NODE
        return np.asarray(nodes[nodes != NO_NODE], dtype=np.int32)


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
        self._base = np.array([rows.up[run[0]] for run in self._members], dtype=np.int32)
        self._tip = np.array([run[-1] for run in self._members], dtype=np.int32)
        self._carries = rows.keep[self._tip] | np.isin(self._tip, self._base)

    def _ready(self, rows: LocalRows) -> NDArray[np.int64]:
        """Runs to come that start from an evaluated row."""
        return np.flatnonzero(~rows.done[self._tip] & rows.done[self._base])

    def choose(self, rows: LocalRows, most_rows: int, states: int) -> IntArray:
        """Places of the runs to evaluate now, ascending; none where every state that one could start from is gone.

        Runs that keep no state go first, then the last ones: depth first, so that few states wait at a time. Each run
        takes a sequence; one of those that keep nothing is spare. At least one run is chosen where there is any.
        """
        ready = self._ready(rows)
        ready = ready[rows.node[self._base[ready]] != NO_NODE]
        ready = ready[np.lexsort((-self._tip[ready], self._carries[ready]))]
        spare = int(bool(len(ready)) and not self._carries[ready[0]])
        chosen: list[int] = []
        for run in ready[: max(1, states + spare)].tolist():
            if chosen and len(chosen) + len(self._members[run]) > most_rows:
                break
            chosen += self._members[run]
        return np.array(sorted(chosen), dtype=np.int32)

    def to_restore(self, rows: LocalRows) -> int:
        """The place that the last run starts from whose base has lost its state."""
        ready = self._ready(rows)
        return int(self._base[ready[np.argmax(self._tip[ready])]])

    def carriers(self, places: IntArray) -> BoolArray:
        """bool[n]: rows that other runs start from."""
        return np.isin(places, self._base)


class Gathered:
    """Rows of an ask that come in several calls, until all are there."""

    def __init__(self, ask: Ask) -> None:
        self._wanted, self._missing = ask.wanted, len(ask.tokens)
        self._parts: list[Rows] = []
        self._order: list[NDArray[np.int64]] = []

    def add(self, elements: IntArray, rows: Rows) -> Rows | None:
        """Note the rows of some elements, ascending; every wanted row in the order of the ask after the last, else None."""
        self._missing -= len(elements)
        if not self._missing and not self._parts:
            return rows
        self._parts.append(rows.copy())
        self._order.append(elements[self._wanted[elements]].astype(np.int64))
        if self._missing:
            return None
        return Rows.stack(self._parts).take(np.argsort(np.concatenate(self._order)))


class Job:
    """A task on its way: its rows, what it has cost, and the future that will hold its result.

    order: when it came. told: it knows the row of its prompt's end. cursor, depth: the node that the prompt is evaluated up
    to, while it is. narrow: its runs go one by one, since several did not fit.
    """

    def __init__(
        self,
        task: Task[Any],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> None:
        self.task, self.on_step = task, on_step
        self.priority, self.deadline = priority, deadline
        self.future: Future[Any] = Future()
        self.cost = Cost()
        self.cancelled = self.told = self.narrow = False
        self.prompt: IntArray = np.ascontiguousarray(task.prompt, dtype=np.int32)
        self.key = self.prompt.tobytes()
        self.floor = task.floor
        self.order = 0
        self.cursor, self.depth = NO_NODE, 0
        self.rows = LocalRows()
        self.part: Part | None = None
        self.ask: Ask | None = None
        self.gathered: Gathered | None = None
        self.runs: Runs | None = None

    @property
    def prompt_node(self) -> int:
        """The node of row 0."""
        return int(self.rows.node[0])

    @property
    def rest(self) -> int:
        """Tokens of the prompt that are not evaluated yet."""
        return 0 if self.prompt_node != NO_NODE else len(self.prompt) - self.depth

    def begin(self, ask: Ask, *, forks: bool) -> IntArray:
        """Take up an ask; int32[]: nodes to be given back for it."""
        gone = self.rows.turn_over(ask)
        self.ask, self.gathered, self.narrow = ask, Gathered(ask), False
        self.runs = Runs(self.rows, ask) if forks else None
        return gone

    def need(self, *, forks: bool) -> Room:
        """What is reserved for it beyond what it holds: the rest of its prompt, what was taken away, what is left of its
        ask, and its floor.

        forks: every row to come may own a state, and a long prompt holds two on its way.
        """
        rows, floor = self.rows, self.floor
        pending = int(np.count_nonzero(~rows.done))
        to_come = max(pending, floor.nodes - (rows.n_held - pending))
        if forks:
            lost = min(int(np.count_nonzero(rows.missing & rows.keep)), floor.nodes)
            return Room(floor.rows, self.rest + lost + to_come, to_come + 2 * (self.rest > 0) + min(lost, 2))
        lost = int(np.count_nonzero(rows.missing))
        branches = max(pending, floor.branches + (not (rows.node[1:] != NO_NODE).any()))
        return Room(floor.rows, self.rest + lost + to_come, branches + rows.n_lost_leaves)

    def room_to_ask(self, room: Room, *, forks: bool) -> Room:
        """What its task may ask for, given what is free for it; never below its floor."""
        held, floor = self.rows.n_held, self.floor
        rows, nodes = room.rows, held + room.nodes - self.rest
        if forks:  # each row asked for may own a state
            states = room.branches - 2 * (self.rest > 0)
            rows, nodes, leaves = min(rows, states), min(nodes, held + states), self.rows.n_leaves + states
        else:
            nodes -= int(np.count_nonzero(self.rows.missing))
            leaves = self.rows.n_leaves - self.rows.n_lost_leaves + room.branches
        return Room(max(floor.rows, rows), max(floor.nodes, nodes), max(floor.branches, leaves))

    def let_go(self) -> tuple[IntArray, IntArray]:
        """Forget every node: (below its prompt, of its prompt). What was told is kept, so it can go on later."""
        ends = np.array([node for node in (self.prompt_node, self.cursor) if node != NO_NODE], dtype=np.int32)
        self.rows.node[0] = self.cursor = NO_NODE
        self.depth, self.part = 0, None
        return self.rows.take_away(np.arange(len(self.rows.node), dtype=np.int32)), ends

    def answer(self, result: object, error: BaseException | None) -> None:
        """Set the future, once."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class RowCache:
    """Rows by token path: what a row predicts depends on nothing else. Least recently used goes first."""

    def __init__(self, most_bytes: int = ROW_CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rows: OrderedDict[bytes, LogitArray] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> LogitArray | None:
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
        return row

    def put(self, key: bytes, row: LogitArray) -> None:
        if key in self._rows or row.nbytes > self._most_bytes:
            return
        self._rows[key] = row.copy()
        self._bytes += row.nbytes
        while self._bytes > self._most_bytes:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        self._rows.clear()
        self._bytes = 0
