"""Measures items and computes their metrics, in one call and in memory.

`runner` does the same with a log on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import LogLikelihoods
from selectrie.errors import OptionError
from selectrie.evaluation.checks import check
from selectrie.evaluation.items import Item, ItemRecord
from selectrie.evaluation.metrics import named
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.evaluation.work_units import TaskItems, WorkUnit, plan
from selectrie.runs.model_signature import signature_of


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        items, n_items: Number of items done, and of all items.
        units, n_units: Number of units done, and of all units.
        rows_evaluated, rows_naive: Rows of the units that are done (see
            `LogLikelihoods`).
        items_logged: Number of done items that were read from the log of an earlier
            process.
    """

    items: int
    n_items: int
    units: int
    n_units: int
    rows_evaluated: int
    rows_naive: int
    items_logged: int = 0


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """A unit of items with its log-likelihoods."""

    unit: WorkUnit
    loglikelihoods: LogLikelihoods

    @property
    def records(self) -> tuple[ItemRecord, ...]:
        """Return the records of the unit's items."""
        return self.unit.records(self.loglikelihoods)


Measure = Callable[[Sequence[WorkUnit]], Iterator[Done]]


def measured(llm: Engine, units: Sequence[WorkUnit]) -> Iterator[Done]:
    """Yield each unit with its log-likelihoods, computed one after the other.

    Each starts from an empty memory, in a layout of calls that depends only on the
    unit.
    """
    longest = max((unit.longest for unit in units), default=0)
    if not longest:
        nothing = LogLikelihoods.none()
        yield from (Done(unit, nothing) for unit in units)
        return
    with llm.loglikelihood_scorer(longest) as scorer:
        for unit in units:
            yield Done(unit, scorer.loglikelihoods(unit.sequences))


def results_of(tasks: Sequence[TaskItems], records: Iterable[ItemRecord]) -> tuple[TaskResult, ...]:
    """Return the result of each task from the records of all tasks, in any order."""
    by_task: dict[str, list[ItemRecord]] = {task.task: [] for task in tasks}
    for record in records:
        by_task[record.task].append(record)
    return tuple(
        TaskResult.of(
            task.task,
            sorted(by_task[task.task], key=lambda record: record.index),
            named(task.metrics),
            version=task.version,
            n_shots=task.n_shots,
        )
        for task in tasks
    )


def evaluate(
    llm: Engine,
    items: Sequence[Item],
    metrics: Sequence[str] = ("acc", "acc_norm"),
    *,
    task: str = "items",
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Compute metrics of a model on items.

    Each item is measured once for all metrics. Items that do not fit into the model are
    counted and named, not cut.

    Args:
        llm: The engine.
        items: The items, at least one.
        metrics: Names of metrics (`metrics.METRICS`).
        task: Name of the task in the result.
        on_progress: Called at the start and after each unit of items.

    Raises:
        RequestError: If items or metrics are invalid, before any model call.
        ModelError: If the model fails.
    """
    if not items:
        raise OptionError("items", items, "at least one item")
    tasks = [TaskItems(task, tuple(items), tuple(metrics))]
    return evaluate_tasks(llm, tasks, on_progress=on_progress)


def evaluate_tasks(
    llm: Engine, tasks: Sequence[TaskItems], *, on_progress: OnProgress | None = None, measure: Measure | None = None
) -> Evaluation:
    """Compute metrics as `evaluate` does, for the items of several tasks.

    Args:
        llm: The engine.
        tasks: The tasks, with their items and metrics.
        on_progress: Called at the start and after each unit of items.
        measure: Computes the log-likelihoods of units of items, and yields the units in
            any order. None means that `llm` does this.
    """
    check(tasks)
    units = plan(llm.vocabulary, llm.limits, tasks)
    counter = Counter(tasks, units, on_progress)
    records: list[ItemRecord] = []
    for done in (measure or partial(measured, llm))(units):
        counter.count(done)
        records += done.records
    rows = counter.progress
    return Evaluation(results_of(tasks, records), rows.rows_evaluated, rows.rows_naive, signature_of(llm))


class Counter:
    """Counts the units of a run that are done; reports at the start and after each.

    Attributes:
        progress: The progress so far.
    """

    def __init__(self, tasks: Sequence[TaskItems], units: Sequence[WorkUnit], on_progress: OnProgress | None) -> None:
        self.progress = Progress(0, sum(len(task.items) for task in tasks), 0, len(units), 0, 0)
        self._on_progress = on_progress
        self._report()

    def count(self, done: Done, *, is_logged: bool = False) -> None:
        """Count a unit that was measured now or, if `is_logged`, read from the log."""
        n, rows, before = len(done.unit.entries), done.loglikelihoods, self.progress
        self.progress = replace(
            before,
            items=before.items + n,
            units=before.units + 1,
            rows_evaluated=before.rows_evaluated + rows.rows_evaluated,
            rows_naive=before.rows_naive + rows.rows_naive,
            items_logged=before.items_logged + n * is_logged,
        )
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)
