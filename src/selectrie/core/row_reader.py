"""Rows that are read by their token path, in the background.

A model that runs here is asked for nodes of its tree (`core.model.Model`). Where rows
come from elsewhere, the paths of the nodes are enough: a server is asked for them
(`core.path_model.PathModel`), or a recording is searched for them. `RowReader` is what
a driver of tasks needs of either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from selectrie.core.path_model import Cancellation
from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.types import Capacity, Cost, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The rows that were read after some paths.

    Attributes:
        rows: One row for each path, in their order, ready to be read. They stay valid,
            and need hold nothing but what was to be read.
        cost: What they took.
    """

    rows: Rows
    cost: Cost


class RowStarter(Protocol):
    """Takes up what a task asks for in the background. One thread calls the methods."""

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the capacity that a task of this floor is offered for its next ask.

        It is called once before each ask, and is at least `floor`.
        """
        ...

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Callable[[Answer | BaseException], None],
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        """Take up the rows after the paths, and return without waiting for them.

        Args:
            paths: int32[T_i], T_i >= 1, each a whole path from the first token of the
                context. A path is made when the sequence is indexed: index it when it
                is needed, and keep it no longer than that.
            reads: The values that will be read, of `len(paths)` rows.
            done: Called exactly once, in any thread, possibly before `start` returns:
                with the rows, or with the error that made reading them impossible. It
                returns at once and does not raise.
            cancellation: When it is cancelled, the rows are no longer wanted: work that
                serves nothing else ends, and `done` gets `CancelledError`, unless it
                was called before.
            priority: Rows of a higher priority go first.
        """
        ...


class RowReader(RowStarter, Protocol):
    """Reads the rows after token paths.

    A row depends only on its path, so reading it twice gives the same values.
    """

    def flush(self) -> None:
        """Begin to read: nothing more will be taken up for now.

        What was taken up before can share requests.
        """
        ...

    def clear(self) -> None:
        """Drop all rows that are kept for later."""
        ...

    def close(self) -> None:
        """Free everything; what is being read ends with `ClosedError`.

        May be called twice.
        """
        ...
