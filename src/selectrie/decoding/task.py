"""Ask/tell tasks: what to evaluate next, decided without a model, a clock or I/O.

A task sees local rows: 0 is the last node of its prompt, then every node it asked for, numbered in the order of asking,
for its whole life (a released number is not used again). Somebody else turns them into nodes of a context tree:
`testing.driver.run` for one task, `scheduler.Scheduler` for many at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from selectrie.core.model import Model, Rows, rounds
from selectrie.core.types import NO_NODE, BoolArray, IntArray, Room
from selectrie.errors import ProtocolError

R_co = TypeVar("R_co", covariant=True)

NOTHING: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Ask:
    """Nodes to evaluate, after giving some back.

    parents: int32[n], local row of the parent, or `~j` for element j < i of this ask.
    tokens: int32[n].
    wanted: bool[n], rows to be told. keep: bool[n], nodes that may be parents in a
    later ask.
    release: int32[m], local rows no longer needed, leaves before or together with what
    they hang from; freed first.
    again: bool[n], nodes that were evaluated for this task before and given back since;
    empty: none.
    spent: int32[m], local rows that no ask after this one will extend, though they
    carry others: a forking model may drop their state once this ask is evaluated. Row 0
    is never among them.
    """

    parents: IntArray
    tokens: IntArray
    wanted: BoolArray
    keep: BoolArray
    release: IntArray = field(default_factory=NOTHING.copy)
    spent: IntArray = field(default_factory=NOTHING.copy)
    again: BoolArray = field(default_factory=lambda: np.empty(0, dtype=np.bool_))


class Task(Protocol[R_co]):
    """One piece of work that asks for nodes and is told their rows.

    prompt: int32[T], T >= 1, tokens of the shared context; local row 0 is its last node.
    floor: the least room it can work with, prompt not counted: its longest path, one branch, one row.
    """

    @property
    def prompt(self) -> IntArray: ...

    @property
    def floor(self) -> Room: ...

    def ask(self, room: Room) -> Ask | None:
        """What to evaluate next within `room`; None = finished. `room.nodes` and `room.branches` count what the task
        may **hold** after this ask (row 0 not counted), `room.rows` what this ask may evaluate. Asking again before
        `tell` is a `ProtocolError`; so is a room below `floor`."""
        ...

    def tell(self, rows: Rows) -> None:
        """One row for each wanted node of the last ask, in order. The first tell, before any ask, is row 0 alone.
        A wrong count raises `ProtocolError` before anything changed. `rows` is only valid during the call."""
        ...

    def result(self) -> R_co:
        """The answer; `ProtocolError` before `ask` returned None."""
        ...


def check_count(rows: Rows, expected: int) -> None:
    """Raise `ProtocolError` unless exactly the expected rows were told."""
    if len(rows) != expected:
        raise ProtocolError(f"told {len(rows)} rows, asked for {expected}")


def extend_in_rounds(
    model: Model, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray
) -> tuple[IntArray, Rows]:
    """`Model.extend` for a call that a forking model may have to take in several rounds (`model.rounds`).

    Nodes that carry later rounds are kept for them. Returns the nodes and copies of the wanted rows, in order of the call.
    Where a round fails, the nodes of earlier rounds are given back.
    """
    in_round = rounds(parents, keep) if model.limits.kind.forks else np.zeros(len(parents), dtype=np.int32)
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
    return nodes, Rows.stack(parts).take(np.argsort(np.concatenate(order)))


def _carriers(parents: IntArray, keep: BoolArray, in_round: IntArray) -> BoolArray:
    """bool[B]: elements of a call that must be kept: those asked to be, and parents of elements of a later round."""
    inside = np.flatnonzero(parents < 0)
    result: BoolArray = keep.copy()
    result[~parents[inside[in_round[inside] != in_round[~parents[inside]]]]] = True
    return result


def _within_round(parents: IntArray, elements: NDArray[np.int64], nodes: IntArray) -> IntArray:
    """Parents of some elements of a call: nodes where known by now, `~k` for the k-th of these elements otherwise."""
    up: IntArray = parents[elements].copy()
    inside = np.flatnonzero(up < 0)
    targets = ~up[inside]
    known = nodes[targets]
    up[inside] = np.where(known != NO_NODE, known, ~np.searchsorted(elements, targets).astype(np.int32))
    return up


def check_room(room: Room, floor: Room) -> None:
    """Raise `ProtocolError` for a room in which a task with this floor cannot work."""
    if room.rows < floor.rows or room.nodes < floor.nodes or room.branches < floor.branches:
        raise ProtocolError(f"{room} is below the floor {floor}")
