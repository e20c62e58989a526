"""The comparison of runs on the same items, as plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selectrie.core import numerics
from selectrie.core.notation import UNKNOWN
from selectrie.core.types import FloatArray
from selectrie.errors import OptionError
from selectrie.evaluation import metrics
from selectrie.evaluation.metrics import METRICS, ConfidenceInterval, Item, ItemRecord, bootstrap, mcnemar
from selectrie.evaluation.report.charts import draw_differences, draw_estimates, draw_pairs
from selectrie.evaluation.results import Evaluation, TaskResult, position
from selectrie.results.drawing.plot import plot_picture
from selectrie.results.drawing.shapes import Drawing
from selectrie.results.plain import JsonRecord, fields_of
from selectrie.results.records import FORMAT_VERSION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KL_DIVERGENCE = "kl_divergence"
"""Name of the mean Kullback-Leibler divergence among the differences of two runs."""


@dataclass(frozen=True, slots=True)
class Flip:
    """An item that only one run gets right.

    Attributes:
        index, id, subset, gold: The item's position, id, subset and right choices.
        first, second: Index of the choice that each run picked.
        margin_first, margin_second: Nats between each run's two most probable choices.
        context, choices: The texts of the item, without the examples before it; None
            and () until `with_texts` adds them.
    """

    index: int
    id: str
    subset: str
    gold: tuple[int, ...]
    first: int
    second: int
    margin_first: float
    margin_second: float
    context: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """The values of a metric in two runs, over the items that both measured.

    Attributes:
        metric: Name of the metric; or `KL_DIVERGENCE`, the mean divergence in nats of
            each run's probabilities of the choices from those of the first run.
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
    interval: ConfidenceInterval
    p: float | None


@dataclass(frozen=True, slots=True)
class Comparison(JsonRecord):
    """The comparison of two runs on one task.

    Attributes:
        task: Name of the task.
        run: Position of the second run among the runs, from 1; the first one is 0.
        n: Number of items that both runs measured.
        n_left_out: Number of items that only one run has, or that one could not
            measure.
        differences: The difference of each metric that both runs have, and the
            divergence if there are items with several choices.
        gained, lost: Items that only the second, or only the first, gets right by
            summed log-probability.
        pairs: The records of the items that both runs measured; not in `to_dict`.
        tolerance: By how many nats probabilities in these runs may move; as `pairs`.
    """

    task: str
    run: int
    n: int
    n_left_out: int
    differences: tuple[Difference, ...]
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]
    pairs: tuple[tuple[ItemRecord, ItemRecord], ...] = field(default=(), repr=False, compare=False)
    tolerance: float = field(default=UNKNOWN, repr=False, compare=False)

    def draw(self, picture: str) -> Drawing | None:
        """Return a picture as `plot` names it; None if there is nothing to draw."""
        other = position(self.run)
        if picture == "differences":
            return draw_differences(f"{self.task}: {other} run less first", [self.to_dict()])
        if picture == "probabilities":
            return draw_pairs(f"Probability of the right choice in {self.task}", self.pairs, other, self.tolerance)
        estimates = [
            (f"{one.metric}, {name}", one.metric, metrics.estimate(METRICS[one.metric], records))
            for one in self.differences
            if one.p is not None and self.pairs
            for name, records in zip(("first", other), zip(*self.pairs, strict=True), strict=True)
        ]
        return draw_estimates(f"Both runs of {self.task}", estimates)

    def plot(self, picture: str = "differences", *, ax: Axes | None = None) -> Axes:
        """Draw the comparison with matplotlib (extra `plot`), as its page shows it.

        Args:
            picture: "differences" of accuracies, or "accuracies" of both runs, with
                their intervals; or "probabilities", each item at the probability of the
                right choice in both.
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: For another picture, or one that the items do not have.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture(picture, ("differences", "accuracies", "probabilities"), self.draw, ax)

    def to_dict(self) -> dict[str, object]:
        """Return the comparison ready for JSON, with None for non-finite numbers."""
        return fields_of(self, "task run n n_left_out differences gained lost")


def compare(
    first: Evaluation | str | os.PathLike[str], *others: Evaluation | str | os.PathLike[str]
) -> tuple[Comparison, ...]:
    """Compare each other run with the first one, task by task.

    A run is an `Evaluation`, or the path of the folder of a finished run. Only tasks
    that both have are compared.

    Raises:
        OptionError: For anything that is no run, if there is only one, if a run has
            none of the first one's tasks, or if an item of a task differs.
        InputFileError: For a folder without the results of a run.
    """
    if not others:
        raise OptionError("runs", "one run", "two runs or more")
    base, *rest = map(_run_of, (first, *others))
    found = []
    for run, other in enumerate(rest, start=1):
        names = {task.task for task in other.tasks}
        both = [task for task in base.tasks if task.task in names]
        if not both:
            raise OptionError("runs", [task.task for task in base.tasks], f"a task in common with {sorted(names)}")
        tolerance = max(_tolerance_of(base), _tolerance_of(other))
        found += [replace(_compare(run, task, other[task.task]), tolerance=tolerance) for task in both]
    order = [task.task for task in base.tasks]
    return tuple(sorted(found, key=lambda one: (order.index(one.task), one.run)))


def _tolerance_of(run: Evaluation) -> float:
    """Return the tolerance, in nats, by which probabilities of a run are written."""
    tolerance = run.signature.get("tolerance")
    return tolerance if isinstance(tolerance, float) and tolerance else UNKNOWN


def _run_of(given: Evaluation | str | os.PathLike[str]) -> Evaluation:
    """Return a run, read from its folder if a path is given."""
    if isinstance(given, Evaluation):
        return given
    if not isinstance(given, str | os.PathLike):
        raise OptionError("runs", given, "what `evaluate` returned, or the folder of a finished run")
    from selectrie.evaluation.runner import read_run  # what runs needs more than what compares

    return read_run(Path(given))


def with_texts(comparisons: Sequence[Comparison], items: Mapping[str, Sequence[Item]]) -> tuple[Comparison, ...]:
    """Return comparisons whose flips have the texts of their items.

    Args:
        comparisons: The comparisons.
        items: The items of each task, by its name; tasks may be missing.
    """

    def of_flip(task: str, flip: Flip) -> Flip:
        if task not in items:
            return flip
        item = items[task][flip.index]
        context = item.context if item.contexts is None else item.contexts[flip.gold[0]]
        return replace(flip, context=context, choices=item.choices)

    return tuple(
        replace(
            one,
            gained=tuple(of_flip(one.task, flip) for flip in one.gained),
            lost=tuple(of_flip(one.task, flip) for flip in one.lost),
        )
        for one in comparisons
    )


def comparison_dict(comparisons: Sequence[Comparison], names: Sequence[str] = ()) -> dict[str, object]:
    """Return comparisons ready for JSON, with `format`, kind "comparison" and `runs`.

    Args:
        comparisons: The comparisons.
        names: Names of the runs, from the first one on.
    """
    tasks = [one.to_dict() for one in comparisons]
    return {"format": FORMAT_VERSION, "kind": "comparison", "runs": list(names), "tasks": tasks}


def _compare(run: int, first: TaskResult, second: TaskResult) -> Comparison:
    """Compare the results of the first run and of another one on one task."""
    pairs = pair_records(first, second)
    mine, others = [one for one, _ in pairs], [other for _, other in pairs]
    shared = [name for name in first.figures.metrics if name in second.figures.metrics]
    if not shared:
        names = [*first.figures.metrics, *second.figures.metrics]
        raise OptionError("runs", first.task, f"a metric in common; there are {', '.join(names)}")
    gained, lost = _find_flips(pairs)
    left_out = len({record.index for record in (*first.records, *second.records)}) - len(pairs)
    differences = (*(_difference(name, mine, others) for name in shared), *_divergence(pairs))
    return Comparison(first.task, run, len(pairs), left_out, differences, gained, lost, tuple(pairs))


def pair_records(first: TaskResult, second: TaskResult) -> list[tuple[ItemRecord, ItemRecord]]:
    """Return the records of each item that both runs measured, as pairs.

    Raises `OptionError` if there are none, or if an item differs.
    """
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
    """Return a metric's value in both runs, with the interval of its difference."""
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


def kl_divergence(first: FloatArray, second: FloatArray) -> float:
    """Return the divergence of one distribution from another, D(first ‖ second), nats.

    It is infinite if the second excludes a choice that the first does not.

    Args:
        first, second: float64[C], log-probabilities of the choices; they need not be
            normalised.
    """
    p, q = (
        one - total if (total := numerics.logsumexp(one)) > -np.inf else np.full(len(one), -np.log(len(one)))
        for one in (first, second)
    )
    is_possible = p > -np.inf
    return max(0.0, float((np.exp(p[is_possible]) * (p[is_possible] - q[is_possible])).sum()))


def _divergence(pairs: Sequence[tuple[ItemRecord, ItemRecord]]) -> list[Difference]:
    """Return the mean divergence of the items that have the same choices, if any."""
    sums = [
        tuple(np.array([choice.logp for choice in one.choices]) for one in pair)
        for pair in pairs
        if len(pair[0].choices) == len(pair[1].choices) > 1
    ]
    if not sums:
        return []
    values = np.array([kl_divergence(p, q) for p, q in sums])
    mean = float(values.mean())
    _, interval = bootstrap(len(values), lambda indices: float(values[indices].mean()))
    return [Difference(KL_DIVERGENCE, 0.0, mean, mean, interval, None)]


def _find_flips(pairs: Sequence[tuple[ItemRecord, ItemRecord]]) -> tuple[tuple[Flip, ...], tuple[Flip, ...]]:
    """Return the items that only the second run gets right, and only the first."""
    gained: list[Flip] = []
    lost: list[Flip] = []
    for one, other in pairs:
        if len(one.choices) < 2 or len(other.choices) != len(one.choices):
            continue
        a, b = metrics.predicted_choice(one), metrics.predicted_choice(other)
        if (a in one.gold) == (b in one.gold):
            continue
        flip = Flip(one.index, one.id, one.subset, one.gold, a, b, metrics.margin(one), metrics.margin(other))
        (gained if b in one.gold else lost).append(flip)
    return tuple(gained), tuple(lost)
