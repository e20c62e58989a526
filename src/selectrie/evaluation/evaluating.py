"""Measuring items and turning them into figures, in one call and in memory; `runner` does it with a log on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from selectrie.engine import Engine
from selectrie.errors import OptionError
from selectrie.evaluation import metrics as metrics_of
from selectrie.evaluation.items import Item, ItemRecord, Wanted
from selectrie.evaluation.planning import TaskItems, Unit, plan
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.measuring import LogLikelihoods
from selectrie.results import Signature


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. items, units: done, of how many. rows_evaluated, rows_naive: of what is done."""

    items: int
    n_items: int
    units: int
    n_units: int
    rows_evaluated: int
    rows_naive: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """A unit, measured."""

    unit: Unit
    found: LogLikelihoods

    @property
    def records(self) -> tuple[ItemRecord, ...]:
        """Of its items."""
        return self.unit.records(self.found)


def measured(llm: Engine, units: Sequence[Unit]) -> Iterator[Done]:
    """Measure units one after the other, each from an empty memory in a layout that it alone decides."""
    longest = max((unit.longest for unit in units), default=0)
    if not longest:
        nothing = LogLikelihoods.none()
        yield from (Done(unit, nothing) for unit in units)
        return
    with llm.measurer(longest) as measurer:
        for unit in units:
            yield Done(unit, measurer.measure(unit.sequences))


def signature_of(llm: Engine) -> dict[str, object]:
    """What log-probabilities of an engine depend on, JSON-ready."""
    signature = Signature.of(llm.identity, llm.tolerance, rule="joint", terminator="none", boundary="harness")
    return {name: value for name, value in asdict(signature).items() if name not in _NOT_OURS}


_NOT_OURS = ("rule", "premise", "terminator", "following_bytes")


def measure_items(
    llm: Engine, tasks: Sequence[TaskItems], wanted: Wanted, *, on_progress: OnProgress | None = None
) -> tuple[list[list[ItemRecord]], int, int]:
    """Records of each task in input order, rows evaluated, and rows of evaluating every context and choice alone."""
    units = plan(llm.vocabulary, llm.limits, tasks, wanted)
    n_items = sum(len(task.items) for task in tasks)
    records: dict[str, list[ItemRecord]] = {task.task: [] for task in tasks}
    items = rows = naive = 0
    for n_units, done in enumerate(measured(llm, units), start=1):
        records[done.unit.task] += done.records
        items, rows, naive = (
            items + len(done.unit.entries),
            rows + done.found.rows_evaluated,
            naive + done.found.rows_naive,
        )
        if on_progress is not None:
            on_progress(Progress(items, n_items, n_units, len(units), rows, naive))
    return [sorted(group, key=lambda record: record.index) for group in records.values()], rows, naive


def evaluate(
    llm: Engine,
    items: Sequence[Item],
    metrics: Sequence[str] = ("acc", "acc_norm"),
    *,
    task: str = "items",
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Measure items once and work out every metric of them.

    items: at least one. metrics: names (`metrics.METRICS`). Items that do not fit are counted and named, not cut.
    Raises errors of `RequestError` before any model call for what the caller can mend, and of `ModelError`.
    """
    if not items:
        raise OptionError("items", items, "at least one item")
    chosen = metrics_of.named(metrics)
    wanted = metrics_of.wanted(chosen)
    [records], rows, naive = measure_items(llm, [TaskItems(task, tuple(items))], wanted, on_progress=on_progress)
    return Evaluation((TaskResult.of(task, records, chosen),), rows, naive, signature_of(llm))
