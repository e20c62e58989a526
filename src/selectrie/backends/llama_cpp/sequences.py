"""The protocol through which `LlamaModel` assigns llama.cpp's sequence ids.

Attention models and recurrent models implement it differently, because they remember
their context differently.
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
    """The rows that a call evaluates, before they have positions and sequence ids."""

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
    """The sequence ids of a model, and the node at which each of them ends.

    Row plans and layouts are passed back to the object that made them.

    A call goes through `plan_rows`, `make_room`, `recover`, `lay_out`, `prepare`, the
    decode, `PrefixTree.commit` and `finish`. After an exception from `recover` on,
    `restore` is called.
    """

    sequences: int
    padding_id: int

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free without the unreferenced nodes."""

    def can_extend(self, node: int) -> bool:
        """Return whether a live node can be a parent."""

    def plan_rows(self, plan: CallPlan) -> RowPlan:
        """Return the rows that a call evaluates. Changes nothing.

        They are all new entries of `plan`, and existing ones that are needed again.
        """

    def make_room(self, plan: CallPlan, row_plan: Any, nodes: int) -> None:
        """Drop nodes without references until the call fits.

        Raises `CapacityError` before anything has changed.
        """

    def recover(self, row_plan: Any, evaluate: Evaluate) -> tuple[int, float]:
        """Evaluate states again that an earlier failure lost and that the call needs.

        Returns the number of rows and the seconds that it took.
        """

    def lay_out(self, plan: CallPlan, row_plan: Any) -> RowLayout:
        """Return the rows with their positions and sequence ids. Changes nothing."""

    def prepare(self, layout: Any) -> None:
        """Change llama.cpp's memory so that `layout` can be decoded."""

    def finish(self, layout: Any, nodes: list[int]) -> None:
        """Clean up after the commit of the call.

        Removes the sequences that only this call needed, and records which sequence
        ends at which node. `nodes` has the node of each entry.
        """

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does."""

    def trim(self, idle_rows: int) -> int:
        """Drop unused nodes as `Model.trim` does."""

    def restore(self) -> bool:
        """Make llama.cpp's memory match the records of this object after a failure.

        Returns whether they match.
        """

    def forget(self) -> None:
        """Forget all sequences, because the tree was cleared."""
