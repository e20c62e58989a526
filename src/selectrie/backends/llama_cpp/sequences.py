"""Define what `LlamaModel` needs from the bookkeeping of sequence ids.

The bookkeeping differs by how a model remembers its context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.batch import BatchRows
from selectrie.backends.prefix_tree import CallPlan
from selectrie.core.types import IntArray

Evaluate: TypeAlias = Callable[[int, IntArray, int], float]
"""Evaluates a run of tokens under one sequence, without logits.

(sequence, tokens, first position) -> seconds.
"""


class RowPlan(Protocol):
    """What a call evaluates, before rows have positions and ids."""

    @property
    def n_rows(self) -> int: ...


class RowLayout(Protocol):
    """The rows of a call in the order of the decode.

    `entry` is int64[R], the entry of the plan that each row evaluates.
    """

    @property
    def rows(self) -> BatchRows: ...

    @property
    def entry(self) -> NDArray[np.int64]: ...


class Sequences(Protocol):
    """Assigns sequence ids, and records the node at which each one ends.

    Row plans and layouts are passed back to the object that made them.

    A call goes through `plan_rows`, `make_room`, `recover`, `lay_out`, `prepare`, the
    decode, `PrefixTree.commit` and `finish`. After an exception from `recover` on,
    `restore` is called.
    """

    sequences: int
    padding_id: int

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free if all unheld nodes were dropped."""

    def can_extend(self, node: int) -> bool:
        """Return whether a live node can be a parent."""

    def plan_rows(self, plan: CallPlan) -> RowPlan:
        """Return what a plan evaluates. Changes nothing.

        That is all new entries, and existing ones that are needed again.
        """

    def make_room(self, plan: CallPlan, row_plan: Any, nodes: int) -> None:
        """Drop unheld nodes until the call fits.

        Raises `CapacityError` before anything has changed.
        """

    def recover(self, row_plan: Any, evaluate: Evaluate) -> tuple[int, float]:
        """Re-evaluate what an earlier failure lost and the call needs.

        Returns the number of rows and the seconds that it took.
        """

    def lay_out(self, plan: CallPlan, row_plan: Any) -> RowLayout:
        """Assign positions and ids to the rows. Changes nothing."""

    def prepare(self, layout: Any) -> None:
        """Change llama.cpp's memory as the decode needs it."""

    def finish(self, layout: Any, nodes: list[int]) -> None:
        """Clean up after the commit.

        Removes what only this call needed and records which sequence ends at which
        node. `nodes` has the node of each entry.
        """

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""

    def restore(self) -> bool:
        """Make memory match the bookkeeping after a failure.

        Returns whether it does.
        """

    def forget(self) -> None:
        """Forget all sequences, because the tree was cleared."""
