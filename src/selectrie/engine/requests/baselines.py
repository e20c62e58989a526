"""Baselines of rules that are kept between calls, as the units of a table need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selectrie.core.types import Cost
from selectrie.decoding.scoring import TrieEvaluation
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.scheduler.task_group import TaskGroup

_MAX_KEPT = 64
"""Number of baselines that are kept; a question has one to three."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """A baseline that was evaluated, with the cost that it had for this call."""

    evaluation: TrieEvaluation
    cost: Cost

    def result(self) -> TrieEvaluation:
        """Return what was evaluated, as the handle of a task does."""
        return self.evaluation


class KeptBaselines:
    """Evaluates each baseline once, alone in a memory that is cleared afterwards.

    So its bits do not depend on what else is asked, or on when it is evaluated.

    Args:
        clear: Drops everything from the memory but what is held. It is called on the
            model's thread.
    """

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear
        self._kept: dict[tuple[bytes, ...], TrieEvaluation] = {}

    def of(self, group: TaskGroup, requests: Sequence[PreparedSelect]) -> dict[tuple[bytes, ...], Baseline]:
        """Return the baselines of requests by their keys; no other task may run."""
        found: dict[tuple[bytes, ...], Baseline] = {}
        for one in requests:
            for premise in one.premises:
                key = one.baseline_key(premise)
                if key not in found:
                    found[key] = self._baseline(group, key, ScoreTask(premise, one.trie, one.plain_needs))
        return found

    def _baseline(self, group: TaskGroup, key: tuple[bytes, ...], task: ScoreTask) -> Baseline:
        if key in self._kept:
            return Baseline(self._kept[key], Cost())
        handle = group.begin(task, subject=("baseline", key))
        evaluation = handle.result()
        group.call(self._clear)
        if len(self._kept) < _MAX_KEPT:
            self._kept[key] = evaluation
        return Baseline(evaluation, handle.cost)
