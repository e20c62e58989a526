"""Exhaustive scoring evaluates every needed row of a trie once."""

from __future__ import annotations

import numpy as np

from selectrie.core.reads import Reads
from selectrie.core.rows import Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, Capacity, IntArray
from selectrie.decoding.scoring import RowNeeds, TrieEvaluation, TrieReader
from selectrie.decoding.task import Ask, TaskBase
from selectrie.decoding.trie.batches import DepthFirstWindows


class ScoreTask(TaskBase[IntArray, TrieEvaluation]):
    """Evaluates all needed nodes of a trie below a prompt.

    The result holds the numbers read from their rows. In any capacity not below the
    floor, the task evaluates `needs.n_rows` - 1 rows below the prompt and no node
    twice.
    """

    def __init__(self, prompt: IntArray, trie: TokenTrie, needs: RowNeeds) -> None:
        self._reader = TrieReader(trie, needs)
        self._windows = DepthFirstWindows(trie, needs.row, needs.row)
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32))

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        return self._windows.next_window(capacity)

    def _reads(self, nodes: IntArray) -> Reads:
        return self._reader.reads(nodes)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        self._reader.read(nodes, rows)

    def _result(self) -> TrieEvaluation:
        return self._reader.evaluation()
