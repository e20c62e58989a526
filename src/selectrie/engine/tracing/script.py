"""Tells a task what it was told when it was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from selectrie.core.path_model import Answer, Cancellation
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import Capacity, Cost, IntArray, Limits
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.task import Ask, Task
from selectrie.engine.path_driver.job_paths import JobPaths
from selectrie.engine.scheduler.job import SupportsDeadline
from selectrie.engine.tracing.recorded_rows import RecordedRows
from selectrie.errors import DeadlineError, MissingRowError, SelectrieError
from selectrie.traces.reader import RecordedTask
from selectrie.traces.records import Context, Ending, Step
from selectrie.traces.values import NotRecordedError, Source, rebuilt

R = TypeVar("R")

_SHOWN_TOKENS = 100
"""Number of tokens at the end of a path that an error shows."""


class HasPrompt(Protocol):
    """A task, or what else has a prompt."""

    @property
    def prompt(self) -> IntArray: ...


class ImmediateReader:
    """The methods of a `RowReader` that needs no time and keeps nothing."""

    def answer(self, paths: Sequence[IntArray], reads: Reads) -> Answer:
        """Return the rows after some paths. A subclass defines it."""
        raise NotImplementedError

    def start(
        self,
        paths: Sequence[IntArray],
        reads: Reads,
        done: Callable[[Answer | BaseException], None],
        cancellation: Cancellation,
        *,
        priority: int = 0,
    ) -> None:
        del cancellation, priority
        try:
            answer = self.answer(paths, reads)
        except SelectrieError as error:
            done(error)
        else:
            done(answer)

    def flush(self) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Script(ImmediateReader):
    """What a task asks and is told: a `RowReader` for one task, and its `TaskObserver`.

    As long as the task asks what it asked when it was recorded, it is offered the same
    capacities, and told the same values; in the end it has cost the same. If it asks
    for something else, or was not recorded, its rows are looked up by their paths.

    Args:
        task: The task.
        recorded: The same task as it was recorded, or None.
        context: The context of its rows.
        rows: The rows of the trace.
        vocabulary: Spells the paths of rows that are missing.
        limits: Limits of the model that was recorded.
    """

    def __init__(
        self,
        task: HasPrompt,
        recorded: RecordedTask | None,
        *,
        context: Context,
        rows: RecordedRows,
        vocabulary: Vocabulary,
        limits: Limits,
    ) -> None:
        self._task, self._recorded, self._context = task, recorded, context
        self._rows, self._vocabulary, self._limits = rows, vocabulary, limits
        self._number = 0
        self._ask: Ask | None = None

    @property
    def is_followed(self) -> bool:
        """Return whether the task was recorded, and asks what it asked then."""
        return self._recorded is not None

    # As an observer.

    def told(self, reads: Reads, rows: Rows) -> None:
        """Do nothing."""

    def asked(self, capacity: Capacity, ask: Ask) -> None:
        """Note what the task asks, which decides whether it is still followed."""
        del capacity
        self._ask = ask

    def ended(self, cost: Cost, error: BaseException | None, *, is_expired: bool) -> None:
        """Do nothing."""

    # As a reader.

    def capacity(self, floor: Capacity) -> Capacity:
        """Return the capacity that the task was offered, or else that of the model."""
        step = self._next()
        if step is not None and len(step.capacity):
            rows, nodes, sequences = step.capacity.tolist()
            return Capacity(max(rows, floor.rows), max(nodes, floor.nodes), max(sequences, floor.sequences))
        self._expire()
        limits = self._limits
        return Capacity(
            max(limits.rows_per_call, floor.rows),
            max(limits.nodes, floor.nodes),
            max(limits.sequences, floor.sequences),
        )

    def _next(self) -> Step | None:
        """Return the recorded step that comes next, if the task is being followed."""
        recorded = self._recorded
        return None if recorded is None or self._number >= len(recorded.steps) else recorded.steps[self._number].step

    def _expire(self) -> bool:
        """End the task if its deadline passed here when it was recorded.

        Returns whether it did. Raises `DeadlineError` if there is no partial result.
        """
        recorded = self._recorded
        if recorded is None or recorded.ending is not Ending.EXPIRED:
            return False
        if not isinstance(self._task, SupportsDeadline):
            raise DeadlineError(0.0)  # how late it was is the clock's, and is not recorded
        self._task.expire()
        return True

    def answer(self, paths: Sequence[IntArray], reads: Reads) -> Answer:
        """Return the rows after some paths.

        Raises `MissingRowError` if a row, or a value of it, was not recorded, and
        `DeadlineError` if the deadline passed here without a result.
        """
        step = self._next()
        if step is None and self._expire():
            return Answer(rebuilt(Reads(len(paths)), [[]] * len(paths), self._rows.n_tokens), Cost())
        if step is not None and not self._is_asked(step, reads):
            self._recorded = step = None
        number, self._number = self._number, self._number + 1
        cost = self._cost(number, len(paths))
        own = None if step is None or self._recorded is None else self._recorded.steps[number]
        sources: list[Sequence[Source]] = [[] if own is None else [(own, row)] for row in range(len(paths))]
        try:
            return Answer(rebuilt(reads, sources, self._rows.n_tokens), cost)
        except NotRecordedError:
            pass
        prompt = np.asarray(self._task.prompt)
        sources = [
            [*known, *self._rows.sources(self._context, prompt, path)]
            for known, path in zip(sources, paths, strict=True)
        ]
        try:
            return Answer(rebuilt(reads, sources, self._rows.n_tokens), cost)
        except NotRecordedError as error:
            raise self._missing(paths[error.row], error.what, has_row=bool(sources[error.row])) from None

    def _is_asked(self, step: Step, reads: Reads) -> bool:
        """Return whether the task asks what it asked in this step."""
        if step.n_rows != reads.n_rows:
            return False
        ask = self._ask
        if ask is None:
            return not len(step.tokens)
        return (
            np.array_equal(step.parents, ask.parents)
            and np.array_equal(step.tokens, ask.tokens)
            and np.array_equal(step.wanted, ask.wanted)
        )

    def _cost(self, number: int, n_rows: int) -> Cost:
        recorded = self._recorded
        if recorded is None or number >= len(recorded.steps):
            return Cost(model_calls=1, rows=n_rows)
        return recorded.cost if number == len(recorded.steps) - 1 else Cost()

    def _missing(self, path: IntArray, what: str, *, has_row: bool) -> MissingRowError:
        shown = "".join(map(self._vocabulary.show, path[-_SHOWN_TOKENS:].tolist()))
        trace = self._rows.trace
        is_torn = "" if trace.tail.is_complete else ", whose end is missing,"
        return MissingRowError(shown, what if has_row else "the row", f"{trace.path}{is_torn}")


def run_alone(task: Task[R], script: Script) -> tuple[R, Cost]:
    """Run a task by its script; return its result and cost.

    Raises `MissingRowError` if something that it reads was not recorded.
    """
    rows, cost = JobPaths(np.ascontiguousarray(task.prompt, dtype=np.int32)), Cost()
    paths = rows.of_prompt()
    while True:
        answer = script.answer(paths, task.reads())
        cost += answer.cost
        task.tell(answer.rows)
        offer = script.capacity(task.floor)
        ask = task.ask(offer)
        if ask is None:
            return task.result(), cost
        script.asked(offer, ask)
        paths = rows.add(ask)
