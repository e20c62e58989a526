"""What `LlamaModel` needs of the bookkeeping of sequence ids, which differs by how a model remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.backends.llama_cpp.batch import BatchRows
from selectrie.backends.prefix_tree import CallPlan
from selectrie.core.types import IntArray

Evaluate: TypeAlias = Callable[[int, IntArray, int], float]
"""(sequence, tokens, first position) -> seconds: evaluates a run under one sequence, no logits."""


class Outline(Protocol):
    """What a call evaluates, before rows have places. n_rows: how many."""

    @property
    def n_rows(self) -> int: ...


class Layout(Protocol):
    """The rows of a call in the order of the decode. entry: int64[R], the entry of the plan that each row evaluates."""

    @property
    def rows(self) -> BatchRows: ...

    @property
    def entry(self) -> NDArray[np.int64]: ...


class Sequences(Protocol):
    """Which sequence id ends at which node. Outlines and layouts are passed back to the object that made them.

    A call goes `outline`, `make_room`, `recover`, `lay_out`, `prepare`, the decode,
    `ContextTree.commit`, `settle`; after an exception from `recover` on, `restore`.
    """

    branches: int
    padding_id: int

    @property
    def free_branches(self) -> int:
        """Branches left if everything that nobody holds were dropped."""
        ...

    def can_extend(self, node: int) -> bool:
        """Whether a live node can be a parent."""
        ...

    def outline(self, plan: CallPlan) -> Outline:
        """What a plan evaluates: what is new, and what exists and is needed again. Changes nothing."""
        ...

    def make_room(self, plan: CallPlan, outline: Any, nodes: int) -> None:
        """Drop what nobody holds until the call fits. Raises `CapacityError` before anything changed."""
        ...

    def recover(self, outline: Any, evaluate: Evaluate) -> tuple[int, float]:
        """Evaluate again what an earlier failure took and the call needs; rows and seconds that it took."""
        ...

    def lay_out(self, plan: CallPlan, outline: Any) -> Layout:
        """Give rows their places and ids. Changes nothing."""
        ...

    def prepare(self, layout: Any) -> None:
        """Change memory as the decode needs it."""
        ...

    def settle(self, layout: Any, nodes: list[int]) -> None:
        """After the commit: remove what was for this call alone, note who ends where. nodes: of each entry."""
        ...

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """As `Model.release`."""
        ...

    def trim(self, idle_rows: int) -> int:
        """As `Model.trim`."""
        ...

    def restore(self) -> bool:
        """After a failure, make memory what the bookkeeping says; returns whether it is."""
        ...

    def forget(self) -> None:
        """Nobody owns anything any more: the tree was cleared."""
        ...
