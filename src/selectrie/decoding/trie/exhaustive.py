"""Exhaustive scoring evaluates every needed row of a trie once."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, Capacity, IntArray
from selectrie.decoding.scoring import Readings, RowNeeds, TrieEvaluation, TrieReader
from selectrie.decoding.task import Ask, TaskBase
from selectrie.decoding.trie.batches import DepthFirstOrder, DepthFirstWindows


class ScorePlan:
    """What scoring a trie after any prompt has in common, made on first use.

    Args:
        trie: The trie.
        needs: The rows to evaluate.
    """

    def __init__(self, trie: TokenTrie, needs: RowNeeds) -> None:
        self._trie, self._needs = trie, needs

    @cached_property
    def n_rows(self) -> int:
        """Return `RowNeeds.n_rows`."""
        return self._needs.n_rows

    @cached_property
    def depth(self) -> int:
        """Return the number of tokens of the longest path."""
        return int(self._trie.depth.max())

    @cached_property
    def order(self) -> DepthFirstOrder:
        """Return the nodes to evaluate in their order."""
        return DepthFirstOrder(self._trie, self._needs.row, self._needs.row)

    @cached_property
    def readings(self) -> Readings:
        """Return what is read from their rows."""
        return Readings(self._trie, self._needs)


class ScoreTask(TaskBase[IntArray, TrieEvaluation]):
    """Evaluates all needed nodes of a trie below a prompt.

    The result holds the numbers read from their rows. In any capacity not below the
    floor, the task evaluates `needs.n_rows` - 1 rows below the prompt and no node
    twice.

    Args:
        prompt: int32[T], the prompt.
        trie: The trie.
        needs: The rows to evaluate.
        plan: What tasks of this trie with these needs share; None to make it.
    """

    def __init__(self, prompt: IntArray, trie: TokenTrie, needs: RowNeeds, plan: ScorePlan | None = None) -> None:
        plan = ScorePlan(trie, needs) if plan is None else plan
        self._reader = TrieReader(trie, needs, plan.readings)
        self._windows = DepthFirstWindows(plan.order)
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32))

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        return self._windows.next_window(capacity)

    def _reads(self, nodes: IntArray) -> Reads:
        return self._reader.reads(nodes)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        self._reader.read(nodes, rows)

    def _result(self) -> TrieEvaluation:
        return self._reader.evaluation()
