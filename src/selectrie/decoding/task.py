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
from numpy.typing import NDArray

from selectrie.core.model import Model, rounds
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import NO_NODE, BoolArray, Capacity, IntArray
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
        prompt: int32[T], T >= 1, tokens of the shared context; local row 0 is its last
            node.
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

        The driver may hand over rows from which nothing else can be read
        (`core.partial_rows.SelectedRows`).

        Raises:
            ProtocolError: If no row is expected.
        """
        ...

    def tell(self, rows: Rows) -> None:
        """Receive one row for each wanted node of the last ask, in order.

        The first call comes before any ask and delivers row 0 alone. `rows` is valid
        only during the call.

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
    a capacity below `floor`, before anything changes. A subclass returns the nodes to
    evaluate next from `_plan`, and reads their rows in `_read`. From one to the other
    it passes a record of type `PendingT`, whose length is the number of wanted rows.

    Args:
        first: The record that `_reads` and `_read` get together with row 0.
    """

    def __init__(self, prompt: IntArray, floor: Capacity, first: PendingT) -> None:
        self._prompt, self._floor = prompt, floor
        self._pending: PendingT | None = first
        self._n_evaluated = 0
        self._is_finished = False

    @property
    def prompt(self) -> IntArray:
        return self._prompt

    @property
    def floor(self) -> Capacity:
        return self._floor

    @property
    def n_evaluated(self) -> int:
        """Return how many rows have been read so far."""
        return self._n_evaluated

    def ask(self, capacity: Capacity) -> Ask | None:
        if self._is_finished:
            return None
        if self._pending is not None:
            raise ProtocolError("`ask` was called again before `tell`")
        check_capacity(capacity, self._floor)
        step = self._plan(capacity)
        if step is None:
            self._is_finished = True
            return None
        ask, self._pending = step
        return ask

    def reads(self) -> Reads:
        if self._pending is None:
            raise ProtocolError("`reads` was called, but no row is expected")
        return Reads(len(self._pending)) if self._is_finished else self._reads(self._pending)

    def tell(self, rows: Rows) -> None:
        if self._pending is None:
            raise ProtocolError("`tell` was called, but no row is expected")
        check_count(rows, len(self._pending))
        if not self._is_finished:
            self._read(self._pending, rows)
            self._n_evaluated += len(rows)
        self._pending = None

    def result(self) -> R:
        if not self._is_finished:
            raise ProtocolError("there is no result before `ask` returns None")
        return self._result()

    @abstractmethod
    def _plan(self, capacity: Capacity) -> tuple[Ask, PendingT] | None:
        """Return the next ask and the record for `_read`, or None when finished."""

    @abstractmethod
    def _reads(self, pending: PendingT) -> Reads:
        """Return the `Reads` that `_read` needs from the rows of the last ask."""

    @abstractmethod
    def _read(self, pending: PendingT, rows: Rows) -> None:
        """Read the rows of the last ask, for which `_plan` returned `pending`.

        This is not called once the task has ended.
        """

    @abstractmethod
    def _result(self) -> R:
        """Return the result of a finished task."""


def check_count(rows: Rows, expected: int) -> None:
    """Raise `ProtocolError` unless there are `expected` rows."""
    if len(rows) != expected:
        raise ProtocolError(f"`tell` got {len(rows)} rows, expected {expected}")


def extend_in_rounds(
    model: Model, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray
) -> tuple[IntArray, Rows]:
    """Evaluate a call of `Model.extend`, in several rounds for a recurrent-state model.

    `model.rounds` splits the call; nodes that carry later rounds are kept for them. If
    a round fails, the nodes of earlier rounds are released.

    Returns:
        The nodes and copies of the wanted rows, both in the order of the call.
    """
    in_round = rounds(parents, keep) if model.limits.kind.is_recurrent else np.zeros(len(parents), dtype=np.int32)
    if not in_round.any():
        extension = model.extend(parents, tokens, wanted, keep)
        return extension.nodes, extension.rows
    carries = _carriers(parents, keep, in_round)
    nodes = np.full(len(parents), NO_NODE, dtype=np.int32)
    parts, order = [], []
    try:
        for turn in range(int(in_round.max()) + 1):
            elements = np.flatnonzero(in_round == turn)
            up = _within_round(parents, elements, nodes)
            extension = model.extend(up, tokens[elements], wanted[elements], carries[elements])
            nodes[elements] = extension.nodes
            parts.append(extension.rows.copy())
            order.append(elements[wanted[elements]])
    except BaseException:
        model.release(nodes[nodes != NO_NODE], forget=True)
        raise
    return nodes, parts[0].stacked(parts[1:]).take(np.argsort(np.concatenate(order)))


def _carriers(parents: IntArray, keep: BoolArray, in_round: IntArray) -> BoolArray:
    """Return bool[B], the elements whose nodes must be kept.

    An element is kept if the caller asks for it, or if it is the parent of an element
    of a later round.
    """
    inside = np.flatnonzero(parents < 0)
    result: BoolArray = keep.copy()
    result[~parents[inside[in_round[inside] != in_round[~parents[inside]]]]] = True
    return result


def _within_round(parents: IntArray, elements: NDArray[np.int64], nodes: IntArray) -> IntArray:
    """Return the parents of some elements of a call, as int32[].

    A parent is its node if that was evaluated in an earlier round, else `~k` for the
    k-th of these elements.
    """
    up: IntArray = parents[elements].copy()
    inside = np.flatnonzero(up < 0)
    targets = ~up[inside]
    known = nodes[targets]
    up[inside] = np.where(known != NO_NODE, known, ~np.searchsorted(elements, targets).astype(np.int32))
    return up


def check_capacity(capacity: Capacity, floor: Capacity) -> None:
    """Raise `ProtocolError` if `capacity` is below `floor`."""
    if capacity.rows < floor.rows or capacity.nodes < floor.nodes or capacity.sequences < floor.sequences:
        raise ProtocolError(f"the capacity {capacity} is below the floor {floor}")
