"""What the scheduler knows of each task under way: the local rows it holds, what is left of its ask, what it reserves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Rows
from selectrie.core.types import NO_NODE, BoolArray, Cost, IntArray, LogitArray, Room
from selectrie.decoding.task import Ask, Task
from selectrie.engine.scheduler.node_table import LocalRows, Runs

ROW_CACHE_BYTES = 64 << 20
"""Rows of prompt ends kept for the next request: about 100 at a vocabulary of 152k."""


@runtime_checkable
class Expiring(Protocol):
    """A task that can end with what it has when its deadline passes."""

    def expire(self) -> None:
        """End now: `result` answers from then on, whatever was asked for and not told."""
        ...


@runtime_checkable
class Frugal(Protocol):
    """A task that extends a few rows alone and marks the others as `Ask.spent`; of any other, every row may be extended."""

    @property
    def states(self) -> int:
        """Most states that a forking model holds for it at once, that of row 0 not counted; an evaluation included."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One job's share of a call. Plain lists, which are joined to the arrays of the call.

    parents: nodes, or ~j within the part. take: given the part's nodes and wanted rows. base: rows of the job that it stands
    on. n_again: rows that were evaluated before and lost since.
    """

    job: Job
    parents: list[int]
    tokens: list[int]
    wanted: list[bool]
    keep: list[bool]
    take: Callable[[list[int], Rows], None]
    base: list[int]
    n_again: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Equal for parts that are the same rows."""
        return tuple(self.parents), tuple(self.tokens)


class Gathered:
    """Rows of an ask that come in several calls, until all are there."""

    def __init__(self, wanted: BoolArray) -> None:
        """wanted: bool[n], of the whole ask."""
        self._wanted, self._missing = wanted, len(wanted)
        self._parts: list[Rows] = []
        self._order: list[NDArray[np.int64]] = []

    def add(self, elements: list[int], rows: Rows) -> Rows | None:
        """Note the rows of some elements, ascending; every wanted row in the order of the ask after the last, else None."""
        self._missing -= len(elements)
        if not self._missing and not self._parts:
            return rows
        self._parts.append(rows.copy())
        self._order.append(np.array([element for element in elements if self._wanted[element]], dtype=np.int64))
        if self._missing:
            return None
        return Rows.stack(self._parts).take(np.argsort(np.concatenate(self._order)))


class Job:
    """A task on its way: its rows, what it has cost, and the future that will hold its result.

    priority: higher goes first. deadline: on the scheduler's clock, s. order: when it came. linger: what it has evaluated
    stays as cache when it ends, until room is needed.
    on_queued_no_more: called when it is admitted or ended; it may be called again.
    told: it knows the row of its prompt's end. cursor, depth: the node that the prompt is evaluated up to, while it is.
    narrow: its runs go one by one, since several did not fit. cancelled: set by anybody; answered: the future is, or will be
    at once.
    """

    def __init__(
        self,
        task: Task[Any],
        on_step: Callable[[], None] | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
        linger: bool = False,
    ) -> None:
        self.task, self.on_step = task, on_step
        self.priority, self.deadline, self.linger = priority, deadline, linger
        self.on_queued_no_more: Callable[[], object] | None = None
        self.future: Future[Any] = Future()
        self.cost = Cost()
        self.cancelled = self.answered = self.told = self.narrow = False
        self.prompt: IntArray = np.ascontiguousarray(task.prompt, dtype=np.int32)
        self.key = self.prompt.tobytes()
        self.floor = task.floor
        self._states = task.states if isinstance(task, Frugal) else None
        self.order = 0
        self.cursor, self.depth = NO_NODE, 0
        self.rows = LocalRows()
        self.part: Part | None = None
        self.ask: Ask | None = None
        self.gathered: Gathered | None = None
        self.runs: Runs | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Ascending in the order in which jobs are admitted; the last gives way first."""
        return -self.priority, self.order

    @property
    def prompt_node(self) -> int:
        """The node of row 0."""
        return self.rows.node[0]

    @property
    def rest(self) -> int:
        """Tokens of the prompt that are not evaluated yet."""
        return 0 if self.rows.node[0] != NO_NODE else len(self.prompt) - self.depth

    def begin(self, ask: Ask, *, forks: bool) -> list[int]:
        """Take up an ask; nodes to be given back for it."""
        gone = self.rows.turn_over(ask)
        self.ask, self.gathered, self.narrow = ask, Gathered(ask.wanted), False
        if forks:
            self.runs = Runs(self.rows, ask)
            for row in ask.spent.tolist():
                self.rows.keep[row] = False
        return gone

    def need(self, *, forks: bool) -> Room:
        """What is reserved for it beyond what it holds: the rest of its prompt, what was taken away, what is left of its
        ask, and its floor.

        forks: every row to come may own a state, unless the task is `Frugal`; a long prompt holds two on its way.
        """
        rows, floor, rest = self.rows, self.floor, self.rest
        pending = len(rows.pending)
        to_come = max(pending, floor.nodes - (rows.n_held - pending))
        if forks:
            lost = min(rows.n_lost, floor.nodes)
            states = to_come if self._states is None else min(to_come, max(0, self._states - rows.n_nodes))
            return Room(floor.rows, rest + lost + to_come, states + 2 * (rest > 0) + min(lost, 2))
        holds_none = rows.n_held - pending == rows.n_lost
        branches = max(pending, floor.branches + holds_none)
        return Room(floor.rows, rest + rows.n_lost + to_come, branches + rows.n_lost_leaves)

    def room_to_ask(self, room: Room, *, forks: bool) -> Room:
        """What its task may ask for, given what is free for it; never below its floor."""
        held, floor, rest = self.rows.n_held, self.floor, self.rest
        rows, nodes = room.rows, held + room.nodes - rest
        if forks:  # each row asked for may own a state
            states = room.branches - 2 * (rest > 0)
            rows, nodes, leaves = min(rows, states), min(nodes, held + states), self.rows.n_leaves + states
        else:
            nodes -= self.rows.n_lost
            leaves = self.rows.n_leaves - self.rows.n_lost_leaves + room.branches
        return Room(max(floor.rows, rows), max(floor.nodes, nodes), max(floor.branches, leaves))

    def let_go(self) -> tuple[list[int], list[int]]:
        """Forget every node: (below its prompt, of its prompt). What was told is kept, so it can go on later."""
        ends = [node for node in (self.prompt_node, self.cursor) if node != NO_NODE]
        self.rows.node[0] = self.cursor = NO_NODE
        self.depth, self.part = 0, None
        return self.rows.let_go(), ends

    def leave_queue(self) -> None:
        """It waits no more: admitted, or ended before."""
        if self.on_queued_no_more is not None:
            self.on_queued_no_more()

    def answer(self, result: object, error: BaseException | None) -> None:
        """Set the future, once, unless whoever had it cancelled it.

        `StopIteration` out of a callback becomes a `RuntimeError`, as in a generator (PEP 479): it would end whatever
        loop the answer is waited for in, as if all was well, and an asyncio future refuses it.
        """
        if self.answered:
            return
        self.answered = True
        if not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(result)
            return
        if isinstance(error, StopIteration):
            stopped, error = error, RuntimeError("a callback raised StopIteration")
            error.__cause__ = stopped
        self.future.set_exception(error)


class RowCache:
    """Rows by token path: what a row predicts depends on nothing else. Least recently used goes first."""

    def __init__(self, most_bytes: int = ROW_CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rows: OrderedDict[bytes, LogitArray] = OrderedDict()
        self._bytes = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._rows

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
