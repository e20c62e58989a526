"""Measures items and computes their metrics, here or in actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from selectrie.core.vocabulary import to_bytes
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.engine.requests.loglikelihood import LogLikelihoods, Sequences, SequenceScorer
from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.evaluation.columns import Table, build_task, columns_with_defaults, data_of, names_of
from selectrie.evaluation.dataset import items_of
from selectrie.evaluation.metrics import METRICS, Item, ItemRecord, Metric, find_metrics
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.evaluation.work_units import TaskItems, WorkUnit, plan
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import text, texts
from selectrie.runs.actors import ActorJob, Cluster, work_on
from selectrie.runs.folder import signature_of

_NEEDED_FIELDS: Mapping[str, tuple[str, str]] = {
    "unconditional": ("logp_unconditional", "without a context"),
    "premise": ("logp_premise", "after the premise"),
    "content_free": ("logp_content_free", "after content-free contexts"),
}
"""Maps each need of a metric (`Metric.needs`) to a field and a phrase.

The field is one of `ChoiceLoglikelihood`. The phrase names it in errors.
"""


def check(tasks: Iterable[TaskItems]) -> None:
    """Raise `OptionError` for the first metric that cannot be computed from its items.

    The error names metric, task and item. Raises `TextError` for invalid text.

    Args:
        tasks: The tasks, with items and metrics.
    """
    names: set[str] = set()
    for task in tasks:
        if task.task in names:
            raise OptionError("task", task.task, "a different name for each task")
        names.add(task.task)
        _check_items(task)
        for metric in find_metrics(task.metrics):
            missing = _reason_for_task(metric, task)
            if missing is not None:
                raise OptionError("metric", metric.name, f"a metric that {task.task!r} can have: {missing}")


def check_view(task: TaskItems, own: Sequence[str]) -> None:
    """Raise `OptionError` for a metric that needs more than the task's run measured.

    Args:
        task: The task, with the metrics to check.
        own: Names of the metrics that the run began with.
    """
    measure_units = frozenset().union(*(metric.needs for metric in find_metrics(own)))
    for metric in find_metrics(task.metrics):
        for need in sorted(metric.needs - measure_units):
            raise _not_measured_error(metric, task.task, need)


def check_records(task: str, metrics: Iterable[str], records: Iterable[ItemRecord]) -> None:
    """Raise `OptionError` for the first metric that cannot be computed from records.

    Args:
        task: Name of the task, for the error.
        metrics: Names of the metrics.
        records: The records of the task's items.
    """
    good = [record for record in records if record.problem is None]
    for metric in find_metrics(metrics):
        for need in sorted(metric.needs):
            field, _ = _NEEDED_FIELDS[need]
            if any(getattr(choice, field) in (None, ()) for record in good for choice in record.choices):
                raise _not_measured_error(metric, task, need)
        reason = _reason_for_texts(metric) if not all(record.gold for record in good) else None
        reason = reason or _reason_for_choices(metric, {record.index: record.choices for record in good})
        if reason is not None:
            raise OptionError("metric", metric.name, f"a metric that {task!r} can have: {reason}")


def _not_measured_error(metric: Metric, task: str, need: str) -> OptionError:
    """Return the error for a metric whose log-likelihoods a run has not measured."""
    which = _NEEDED_FIELDS[need][1]
    expected = f"a metric of what this run measured of {task!r}, and not the log-probability {which}"
    return OptionError("metric", metric.name, f"{expected}; begin a run with this metric in a new folder")


def _reason_for_texts(metric: Metric) -> str | None:
    """Return the reason why a metric cannot be computed for whole texts, or None."""
    names = sorted(one.name for one in METRICS.values() if one.over == "texts")
    return None if metric.name in names else f"it has whole texts, which have {', '.join(names)}"


def _reason_for_choices(metric: Metric, choices: Mapping[int, Sequence[object]]) -> str | None:
    """Return the reason why a metric cannot be computed from choices, or None.

    Args:
        metric: The metric.
        choices: The choices of each item, by its index.
    """
    sizes = sorted({len(one) for one in choices.values()})
    if metric.over in ("sets", "equal sets") and sizes and sizes[0] < 2:
        return f"its item {next(index for index, one in choices.items() if len(one) < 2)} has one choice"
    if metric.over == "equal sets" and len(sizes) > 1:
        numbers = f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
        return f"its items have {numbers} choices, and the metric needs the same number in all"
    return None


def _check_items(task: TaskItems) -> None:
    """Raise an error for an item with wrong indices, texts or contexts."""
    for index, item in enumerate(task.items):
        _check_item(f"{task.task}[{index}]", item)
    if task.is_rolling:
        return
    without_gold = _find_item(task, lambda item: len(item.choices) > 1 and not item.gold)
    if without_gold is not None:
        raise OptionError(f"{task.task}[{without_gold}].gold", (), "the indices of the right choices")


def _check_item(name: str, item: Item) -> None:
    """Raise an error for texts, choices, gold or contexts of an item that are wrong."""
    text(f"{name}.context", item.context)
    n = len(texts(f"{name}.choices", item.choices, allowed="a tuple of texts, such as ('a', 'b')"))
    gold: object = item.gold
    if not isinstance(gold, tuple | list) or not all(isinstance(one, int) and 0 <= one < n for one in gold):
        raise OptionError(f"{name}.gold", item.gold, f"a tuple of indices of choices, from 0 to {n - 1}, such as (0,)")
    if item.contexts is not None and len(item.contexts) != n:
        raise OptionError(f"{name}.contexts", len(item.contexts), f"one for each of {n} choices")
    for what, value in (("id", item.id), ("subset", item.subset)):
        to_bytes(value, f"{name}.{what}")


def _find_item(task: TaskItems, is_wrong: Callable[[Item], bool]) -> int | None:
    """Return the index of the first item for which `is_wrong` holds, or None."""
    return next((index for index, item in enumerate(task.items) if is_wrong(item)), None)


def _reason_for_task(metric: Metric, task: TaskItems) -> str | None:
    """Return the reason why a metric cannot be computed for a task, or None."""
    if task.is_rolling and (reason := _reason_for_texts(metric)) is not None:
        return reason
    if "premise" in metric.needs and (index := _find_item(task, lambda item: item.premise is None)) is not None:
        return f"it has no `premise` (item {index})"
    if "content_free" in metric.needs and (index := _find_item(task, lambda item: not item.content_free)) is not None:
        return f"it has no `content_free` contexts (item {index})"
    return _reason_for_choices(metric, dict(enumerate(item.choices for item in task.items)))


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
class MeasuredUnit:
    """A unit of items with the log-likelihoods of its sequences."""

    unit: WorkUnit
    loglikelihoods: LogLikelihoods

    @property
    def records(self) -> tuple[ItemRecord, ...]:
        """Return the records of the unit's items."""
        return self.unit.records(self.loglikelihoods)


Measure = Callable[[Sequence[WorkUnit]], Iterator[MeasuredUnit]]


def measure_units(llm: Engine, units: Sequence[WorkUnit]) -> Iterator[MeasuredUnit]:
    """Yield each unit with its log-likelihoods, computed one after the other.

    Each starts from an empty memory, in a layout of calls that depends only on the
    unit.
    """
    longest = max((unit.longest for unit in units), default=0)
    if not longest:
        nothing = LogLikelihoods.none()
        yield from (MeasuredUnit(unit, nothing) for unit in units)
        return
    with llm.loglikelihood_scorer(longest) as scorer:
        for unit in units:
            yield MeasuredUnit(unit, scorer.loglikelihoods(unit.sequences))


def results_of(tasks: Sequence[TaskItems], records: Iterable[ItemRecord]) -> tuple[TaskResult, ...]:
    """Return the result of each task.

    Args:
        tasks: The tasks, with their metrics.
        records: The records of all tasks' items, in any order.
    """
    by_task: dict[str, list[ItemRecord]] = {task.task: [] for task in tasks}
    for record in records:
        by_task[record.task].append(record)
    return tuple(
        TaskResult.of(
            task.task,
            sorted(by_task[task.task], key=lambda record: record.index),
            find_metrics(task.metrics),
            version=task.version,
            n_shots=task.n_shots,
        )
        for task in tasks
    )


@named_arguments
def evaluate(  # noqa: PLR0913 - the columns of a table
    llm: Engine,
    items: Sequence[Item] | Table,
    metrics: Sequence[str] = ("acc", "acc_norm"),
    *,
    context: str | None = None,
    choices: str | Sequence[str] = (),
    labels: str | Sequence[str] = (),
    gold: str | None = None,
    gold_as: str | None = None,
    task: str = "items",
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Compute metrics of a model on items, or on the rows of a table.

    Each item is measured once for all metrics. Items that do not fit into the model are
    counted and named, not cut.

    Args:
        llm: The engine.
        items: The items, at least one; or a table: a list of objects, the path of a
            data file, or a data frame of pandas, polars or pyarrow.
        metrics: Names of metrics (`metrics.METRICS`).
        context, choices, labels, gold, gold_as: The columns of a table that become
            questions (`Columns`). Without `context`, the column "text" is read, and
            without `gold`, the right choices are in "label".
        task: Name of the task in the result.
        on_progress: Called at the start and after each unit of items.

    Raises:
        RequestError: If items or metrics are invalid, before any model call.
        ModelError: If the model fails.
    """
    if not isinstance(llm, Engine):
        raise OptionError("llm", llm, "an engine of `load` or `connect`")
    if not isinstance(items, Sequence) or isinstance(items, str) or not any(isinstance(one, Item) for one in items):
        data = data_of(items)
        columns = columns_with_defaults(
            names_of(data), context=context, choices=choices, labels=labels, gold=gold, gold_as=gold_as
        )
        read = items_of(build_task(task, columns, data), data)
        return evaluate_tasks(llm, [replace(read, metrics=tuple(metrics))], on_progress=on_progress)
    if not all(isinstance(one, Item) for one in items):
        raise OptionError("items", items, "items alone, or the rows of a table")
    if context is not None or gold is not None or len(choices) or len(labels):
        name = "context" if context is not None else "gold" if gold is not None else "choices" if choices else "labels"
        raise IncompatibleOptionsError(name, "items", "it is for tables; an item has a context, choices and gold")
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
    counter = ProgressCounter(tasks, units, on_progress)
    records: list[ItemRecord] = []
    for done in (measure or partial(measure_units, llm))(units):
        counter.count(done)
        records += done.records
    rows = counter.progress
    return Evaluation(results_of(tasks, records), rows.rows_evaluated, rows.rows_naive, signature_of(llm))


class ProgressCounter:
    """Counts the finished units of a run, and reports at the start and after each.

    Args:
        units: All units of the run.
        on_progress: Called with each report, or None.

    Attributes:
        progress: The progress so far.
    """

    def __init__(self, tasks: Sequence[TaskItems], units: Sequence[WorkUnit], on_progress: OnProgress | None) -> None:
        self.progress = Progress(0, sum(len(task.items) for task in tasks), 0, len(units), 0, 0)
        self._on_progress = on_progress
        self._report()

    def count(self, done: MeasuredUnit, *, is_logged: bool = False) -> None:
        """Count a finished unit; with `is_logged` it was read from an earlier log."""
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


class ScorerActor:
    """A Ray actor with a model that measures sequences.

    Args:
        source: The model, as for `load`.
        options: Further arguments of `load`.
        longest: Maximum number of tokens of a sequence.
    """

    def __init__(self, source: str | None, options: Mapping[str, Any], longest: int) -> None:
        self._engine = load(source, **options)
        self._scorer: SequenceScorer = self._engine.loglikelihood_scorer(longest)

    def signature(self) -> dict[str, object]:
        """Return the facts that the model's log-probabilities depend on."""
        return signature_of(self._engine)

    def measure(self, work: Sequences) -> LogLikelihoods:
        """Return the log-likelihoods of a unit's sequences."""
        return self._scorer.loglikelihoods(work)


def measure_on(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Measure:
    """Return a function that measures units on a cluster's actors.

    It is a `measure` of `runner.run`, and yields units in the order in which they
    finish.

    Args:
        cluster: The cluster.
        signature: `signature_of` the engine that planned the run. Each actor must have
            an equal one.
        on_actor: Called with each actor when it is made.
    """

    def measure(units: Sequence[WorkUnit]) -> Iterator[MeasuredUnit]:
        if not units:
            return
        longest = max(1, *(unit.longest for unit in units))
        job: ActorJob[WorkUnit] = ActorJob(
            ScorerActor, (longest,), lambda unit: unit.sequences, signature, on_actor=on_actor
        )
        for unit, loglikelihoods in work_on(cluster, job, units):
            yield MeasuredUnit(unit, loglikelihoods)

    return measure
