"""Compares two runs of the same items, item by item.

It finds the items that only one run gets right, and whether the difference is more than
chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from selectrie.errors import OptionError
from selectrie.evaluation import metrics
from selectrie.evaluation.items import ItemRecord
from selectrie.evaluation.metrics import METRICS
from selectrie.evaluation.results import Evaluation, TaskResult
from selectrie.evaluation.statistics import Interval, bootstrap, finite_or_none, mcnemar
from selectrie.results.records import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Flip:
    """An item that only one run gets right.

    Attributes:
        first, second: Index of the choice that each run picked.
        margin_first, margin_second: Nats between each run's two most probable choices.
    """

    index: int
    id: str
    subset: str
    gold: tuple[int, ...]
    first: int
    second: int
    margin_first: float
    margin_second: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The values of a metric of two runs, over the items that both measured.

    Attributes:
        first, second: The value of the metric in each run.
        difference: Second minus first.
        interval: 95 % interval of the difference, from paired bootstrap samples.
        p: p-value of McNemar's exact test for equal proportions; None for other
            metrics.
    """

    metric: str
    first: float
    second: float
    difference: float
    interval: Interval
    p: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs on one task.

    Attributes:
        n: Number of items that both runs measured.
        n_left_out: Number of items that only one run has, or that one could not
            measure.
        gained, lost: Items that only the second, or only the first, gets right by
            summed log-probability.
    """

    task: str
    n: int
    n_left_out: int
    differences: tuple[Difference, ...]
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]

    def to_dict(self) -> Any:
        """Return the comparison ready for JSON, with None for non-finite numbers."""
        return finite_or_none(asdict(self))


def compare(first: Evaluation, second: Evaluation) -> tuple[Comparison, ...]:
    """Compare every task that both runs have.

    Raises `OptionError` if they have none in common, or if an item of a task differs in
    the second run.
    """
    names = {task.task for task in second.tasks}
    both = [task for task in first.tasks if task.task in names]
    if not both:
        raise OptionError("runs", [task.task for task in first.tasks], f"a task in common with {sorted(names)}")
    return tuple(_compare(task, second[task.task]) for task in both)


def comparison_dict(comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return comparisons ready for JSON, with `format` and kind "comparison"."""
    return {"format": FORMAT_VERSION, "kind": "comparison", "tasks": [one.to_dict() for one in comparisons]}


def _compare(first: TaskResult, second: TaskResult) -> Comparison:
    pairs = _pairs(first, second)
    mine, others = [one for one, _ in pairs], [other for _, other in pairs]
    shared = [name for name in first.figures.metrics if name in second.figures.metrics]
    if not shared:
        names = [*first.figures.metrics, *second.figures.metrics]
        raise OptionError("runs", first.task, f"a metric in common; there are {', '.join(names)}")
    gained, lost = _flips(pairs)
    left_out = len({record.index for record in (*first.records, *second.records)}) - len(pairs)
    differences = tuple(_difference(name, mine, others) for name in shared)
    return Comparison(first.task, len(pairs), left_out, differences, gained, lost)


def _pairs(first: TaskResult, second: TaskResult) -> list[tuple[ItemRecord, ItemRecord]]:
    """Return pairs of records of one item, for the items that both runs measured."""
    theirs = {record.index: record for record in second.records}
    pairs = []
    for one in first.records:
        other = theirs.get(one.index)
        if other is None:
            continue
        if (one.id, one.gold) != (other.id, other.gold):
            raise OptionError(
                "runs", first.task, f"the same items in both: item {one.index} is {one.id!r} and {other.id!r}"
            )
        if one.problem is None and other.problem is None:
            pairs.append((one, other))
    if not pairs:
        raise OptionError("runs", first.task, "items that both measured; there are none")
    return pairs


def _difference(name: str, first: list[ItemRecord], second: list[ItemRecord]) -> Difference:
    metric = METRICS[name]
    a, b = metric.of_items(first), metric.of_items(second)

    of_a, of_b = metrics.weights_of(metric, first), metrics.weights_of(metric, second)

    def difference(indices: np.ndarray) -> float:
        return metric.value(b[indices], of_b[indices]) - metric.value(a[indices], of_a[indices])

    p = None
    if metric.is_proportion:
        p = mcnemar(int(np.count_nonzero((a > 0) & (b == 0))), int(np.count_nonzero((a == 0) & (b > 0))))
    _, interval = bootstrap(len(a), difference)
    one, other = metric.value(a, of_a), metric.value(b, of_b)
    return Difference(name, one, other, other - one, interval, p)


def _flips(pairs: Sequence[tuple[ItemRecord, ItemRecord]]) -> tuple[tuple[Flip, ...], tuple[Flip, ...]]:
    gained: list[Flip] = []
    lost: list[Flip] = []
    for one, other in pairs:
        if len(one.choices) < 2 or len(other.choices) != len(one.choices):
            continue
        a, b = metrics.predicted(one), metrics.predicted(other)
        if (a in one.gold) == (b in one.gold):
            continue
        flip = Flip(one.index, one.id, one.subset, one.gold, a, b, metrics.margin(one), metrics.margin(other))
        (gained if b in one.gold else lost).append(flip)
    return tuple(gained), tuple(lost)
