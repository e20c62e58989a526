"""Whether metrics can be had of items: told before anything is measured, not after hours of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from selectrie.errors import OptionError
from selectrie.evaluation.items import Item
from selectrie.evaluation.planning import TaskItems
from selectrie.vocabulary import to_bytes

OF_TEXTS = frozenset(
    {"log_likelihood", "is_greedy", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"}
)
"""Metrics of one text; the others compare choices."""
OF_SETS = frozenset({"mc2", "brier", "batch_calibrated"})
"""Metrics that one choice alone does not have: it would always have all of the probability."""


def check(tasks: Iterable[TaskItems]) -> None:
    """Raise `OptionError` naming metric, task and item for the first that cannot be had, `TextError` for what is no text."""
    names: set[str] = set()
    for task in tasks:
        if task.task in names:
            raise OptionError("task", task.task, "a name of its own for each task")
        names.add(task.task)
        _check_items(task)
        for metric in task.metrics:
            wanted = _missing(metric, task)
            if wanted is not None:
                raise OptionError("metric", metric, f"a metric that {task.task!r} can have: {wanted}")


def _check_items(task: TaskItems) -> None:
    for index, item in enumerate(task.items):
        _check_item(f"{task.task}[{index}]", item)
    if task.is_rolling:
        return
    place = _first(task, lambda item: len(item.choices) > 1 and not item.gold)
    if place is not None:
        raise OptionError(f"{task.task}[{place}].gold", (), "the places of the right choices")


def _check_item(name: str, item: Item) -> None:
    n = len(item.choices)
    if any(not 0 <= place < n for place in item.gold):
        raise OptionError(f"{name}.gold", item.gold, f"places of choices, from 0 to {n - 1}")
    if item.contexts is not None and len(item.contexts) != n:
        raise OptionError(f"{name}.contexts", len(item.contexts), f"one for each of {n} choices")
    for what, text in (("id", item.id), ("subset", item.subset)):
        to_bytes(text, f"{name}.{what}")


def _first(task: TaskItems, is_wrong: Callable[[Item], bool]) -> int | None:
    """Place of the first item of which this holds."""
    return next((place for place, item in enumerate(task.items) if is_wrong(item)), None)


def _missing(metric: str, task: TaskItems) -> str | None:
    """What this task has not got for a metric, None where it has it."""
    if task.is_rolling and metric not in OF_TEXTS:
        return f"it has whole texts, which have {', '.join(sorted(OF_TEXTS))}"
    if metric == "pmi_dc" and (place := _first(task, lambda item: item.premise is None)) is not None:
        return f"it has no `premise` (item {place})"
    if metric == "calibrated" and (place := _first(task, lambda item: not item.content_free)) is not None:
        return f"it has no `content_free` contexts (item {place})"
    if metric in OF_SETS and (place := _first(task, lambda item: len(item.choices) < 2)) is not None:
        return f"its item {place} has one choice"
    if metric == "batch_calibrated":
        sizes = sorted({len(item.choices) for item in task.items})
        if len(sizes) > 1:
            return (
                f"its items have {', '.join(map(str, sizes[:-1]))} and {sizes[-1]} choices, and as many each are wanted"
            )
    return None
