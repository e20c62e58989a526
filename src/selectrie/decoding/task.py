"""Ask/tell tasks: they decide what to evaluate next, without a model, clock or I/O.

A task sees local rows. Row 0 is the last node of its prompt. Every node that the task
asks for follows, numbered in the order of asking; the number of a released node is not
used again. The driver turns local rows into nodes of a context tree:
`testing.oracles.run` for one task, `scheduler.Scheduler` for many at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import BoolArray, Capacity, IntArray
from selectrie.errors import ProtocolError

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
PendingT = TypeVar("PendingT", bound=Sized)

NOTHING: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Ask:
    """Nodes to evaluate, and nodes to release before that.

    Attributes:
        parents: int32[n], the local row of the parent, or `~j` for element j < i of
            this ask.
        tokens: int32[n], the token of each node.
        wanted: bool[n], the nodes whose rows the task wants.
        keep: bool[n], the nodes that may be parents in a later ask.
        release: int32[m], local rows no longer needed; leaves come before or together
            with their ancestors. They are freed first.
        spent: int32[m], local rows that no later ask extends, although they carry other
            nodes. A recurrent-state model may drop their state once this ask is
            evaluated. Row 0 is never among them.
        again: bool[n], nodes that were evaluated for this task before and released
            since; an empty array means none.
    """

    parents: IntArray
    tokens: IntArray
    wanted: BoolArray
    keep: BoolArray
    release: IntArray = field(default_factory=NOTHING.copy)
    spent: IntArray = field(default_factory=NOTHING.copy)
    again: BoolArray = field(default_factory=lambda: np.empty(0, dtype=np.bool_))


class Task(Protocol[R_co]):
    """One piece of work that asks for nodes and receives their rows.

    Attributes:
        prompt: int32[T], tokens of the shared context; local row 0 is its last node. If
            it is empty, local row 0 is the empty context, which has no row.
        floor: The least capacity that the task can work with, the prompt not counted:
            its longest path, one branch, one row.
    """

    @property
    def prompt(self) -> IntArray: ...

    @property
    def floor(self) -> Capacity: ...

    def ask(self, capacity: Capacity) -> Ask | None:
        """Return the nodes to evaluate next within `capacity`, or None when finished.

        `capacity.nodes` and `capacity.sequences` count what the task may **hold** after
        this ask, without row 0. `capacity.rows` counts what this ask may evaluate.

        Raises:
            ProtocolError: If called again before `tell`, or if `capacity` is below
                `floor`.
        """
        ...

    def reads(self) -> Reads:
        """Return the `Reads` that the next `tell` needs from its rows.

        The rows that `tell` gets may have no other values
        (`core.partial_rows.SelectedRows`).

        Raises:
            ProtocolError: If no row is expected.
        """
        ...

    def tell(self, rows: Rows) -> None:
        """Receive one row for each wanted node of the last ask, in order.

        The first call comes before any ask and delivers row 0 alone, if it has one.
        `rows` is valid only during the call.

        Raises:
            ProtocolError: If the number of rows is wrong; nothing has changed then.
        """
        ...

    def result(self) -> R_co:
        """Return the result; raises `ProtocolError` before `ask` returned None."""
        ...


class TaskBase(ABC, Generic[PendingT, R]):
    """The part of the `Task` protocol that all tasks share.

    It raises `ProtocolError` for calls out of order, for a wrong number of rows and for
    a capacity below `floor`, before anything changes. In a subclass, `_next_ask`
    returns the nodes to evaluate next, and `_read` reads their rows. A record of type
    `PendingT` is passed from one to the other; its length is the number of wanted rows.

    Args:
        first: The record that `_reads` and `_read` get together with row 0; None if row
            0 is the empty context.

    Attributes:
        n_evaluated: Number of rows that have been read so far.
    """

    def __init__(self, prompt: IntArray, floor: Capacity, first: PendingT | None) -> None:
        self.prompt, self.floor, self._pending = prompt, floor, first
        self.n_evaluated = 0
        self._is_finished = False

    def ask(self, capacity: Capacity) -> Ask | None:
        if self._is_finished:
            return None
        if self._pending is not None:
            raise ProtocolError("`ask` was called again before `tell`")
        check_capacity(capacity, self.floor)
        step = self._next_ask(capacity)
        if step is None:
            self._is_finished = True
            return None
        ask, self._pending = step
        return ask

    def reads(self) -> Reads:
        if self._pending is None:
            raise ProtocolError("`reads` was called, but no row is expected")
        # A task that ended early still gets the rows of its last ask, and reads none.
        return Reads(len(self._pending)) if self._is_finished else self._reads(self._pending)

    def tell(self, rows: Rows) -> None:
        if self._pending is None:
            raise ProtocolError("`tell` was called, but no row is expected")
        check_count(rows, len(self._pending))
        if not self._is_finished:
            self._read(self._pending, rows)
            self.n_evaluated += len(rows)
        self._pending = None

    def result(self) -> R:
        if not self._is_finished:
            raise ProtocolError("there is no result before `ask` returns None")
        return self._result()

    @abstractmethod
    def _next_ask(self, capacity: Capacity) -> tuple[Ask, PendingT] | None:
        """Return the next ask and the record for `_read`, or None when finished."""

    @abstractmethod
    def _reads(self, pending: PendingT) -> Reads:
        """Return the `Reads` that `_read` needs from the rows of the last ask."""

    @abstractmethod
    def _read(self, pending: PendingT, rows: Rows) -> None:
        """Read the rows of the last ask, for which `_next_ask` returned `pending`.

        This is not called once the task has ended.
        """

    @abstractmethod
    def _result(self) -> R:
        """Return the result of a finished task."""


def check_count(rows: Rows, expected: int) -> None:
    """Raise `ProtocolError` unless there are `expected` rows."""
    if len(rows) != expected:
        raise ProtocolError(f"`tell` got {len(rows)} rows, expected {expected}")


def check_capacity(capacity: Capacity, floor: Capacity) -> None:
    """Raise `ProtocolError` if `capacity` is below `floor`."""
    if capacity.rows < floor.rows or capacity.nodes < floor.nodes or capacity.sequences < floor.sequences:
        raise ProtocolError(f"the capacity {capacity} is below the floor {floor}")
