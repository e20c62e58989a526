"""Ask/tell tasks: what to evaluate next, decided without a model, a clock or I/O.

A task sees local rows: 0 is the last node of its prompt, then every node it asked for, numbered in the order of asking,
for its whole life (a released number is not used again). Somebody else turns them into nodes of a context tree:
`run` in ten lines for one task, `scheduler.Scheduler` for many at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from selectrie.errors import ProtocolError
from selectrie.model import Model, Rows, rounds
from selectrie.types import BoolArray, IntArray, Room

R_co = TypeVar("R_co", covariant=True)

NOTHING: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Ask:
    """Nodes to evaluate, after giving some back.

    parents: int32[n], local row of the parent, or `~j` for element j < i of this ask. tokens: int32[n].
    wanted: bool[n], rows to be told. keep: bool[n], nodes that may be parents in a later ask.
    release: int32[m], local rows no longer needed, leaves before or together with what they hang from; freed first.
    """

    parents: IntArray
    tokens: IntArray
    wanted: BoolArray
    keep: BoolArray
    release: IntArray = NOTHING


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


R = TypeVar("R")


def run(task: Task[R], model: Model) -> R:
    """Work one task off on a model nobody else uses, and drop its nodes: the short version that tests use."""
    raise NotImplementedError
