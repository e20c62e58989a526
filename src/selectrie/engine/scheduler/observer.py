"""What may watch the tasks of an engine, such as the recording of a trace.

An observer sees what a task asked for and what it was told. It changes nothing, and its
methods raise nothing. Those of a task are called on the thread that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, Cost, IntArray
from selectrie.decoding.task import Ask, Task
from selectrie.decoding.trie.prompt_rows import KnownValues


def reads_whole_rows(task: object) -> bool:
    """Return whether a task may read all values of a row, by its `reads_whole_rows`.

    A task without this property never does. (`isinstance` of a protocol takes a
    hundred times longer, and a batch of decisions begins many tasks.)
    """
    return bool(getattr(task, "reads_whole_rows", False))


class TaskObserver(Protocol):
    """Watches one task."""

    def told(self, reads: Reads, rows: Rows) -> None:
        """Note the rows that the task is about to be told, and what it reads of them.

        `rows` are valid only during the call.
        """
        ...

    def asked(self, capacity: Capacity, ask: Ask) -> None:
        """Note an ask of the task, and the capacity that it was offered."""
        ...

    def ended(self, cost: Cost, error: BaseException | None, *, is_expired: bool) -> None:
        """Note that the task has ended, with a result or an error.

        `is_expired` tells whether its deadline passed.
        """
        ...


class Observer(Protocol):
    """Watches the tasks of an engine.

    A `subject` is what decides, with the prompt, what a task asks: the prepared request
    or a part of it, made of frozen records, arrays and plain values. If it is a tuple
    that begins with a text, the text names the kind of request.
    """

    def begin(self, task: Task[object], subject: object, *, is_canonical: bool = False) -> TaskObserver | None:
        """Return what watches a task that begins; None if nothing does.

        Args:
            task: The task.
            subject: Its subject.
            is_canonical: Whether it scores near ties again, in a memory for that.

        Raises:
            RequestError: If the task must not run while it is watched.
        """
        ...

    def begin_sequences(self, subject: object) -> TaskObserver | None:
        """Return what watches the evaluation of token sequences from an empty memory.

        Its asks hang from the empty context, local row 0, whose row is not told.
        """
        ...

    def known_values(self, subject: object, known: KnownValues) -> KnownValues:
        """Return the same values, with a note of each that is looked up."""
        ...

    def context_cost(self, subject: object, context: IntArray, cost: Cost) -> None:
        """Note what it cost to evaluate a context before near ties are scored."""
        ...


NO_SUBJECT: Mapping[str, object] = {}
