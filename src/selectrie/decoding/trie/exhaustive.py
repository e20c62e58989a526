"""Exhaustive scoring evaluates every needed row of a trie once."""

from __future__ import annotations

import numpy as np

from selectrie.core.model import Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, Capacity, IntArray
from selectrie.decoding.scoring import RowNeeds, TrieEvaluation, TrieReader
from selectrie.decoding.task import Ask, check_count, check_room
from selectrie.decoding.trie.batches import DepthFirstWindows
from selectrie.errors import ProtocolError


class ScoreTask:
    """Evaluates all needed nodes of a trie below a prompt.

    The result holds what their rows say. In any room not below the floor, it evaluates
    `needs.n_rows` - 1 rows below the prompt and no node twice.
    """

    def __init__(self, prompt: IntArray, trie: TokenTrie, needs: RowNeeds) -> None:
        self._prompt = prompt
        self._reader = TrieReader(trie, needs)
        self._windows = DepthFirstWindows(trie, needs.row, needs.row)
        self._floor = self._windows.floor
        self._expected: IntArray | None = np.array([ROOT], dtype=np.int32)
        self._finished = False

    @property
    def prompt(self) -> IntArray:
        return self._prompt

    @property
    def floor(self) -> Capacity:
        return self._floor

    @property
    def n_evaluated(self) -> int:
        """Return how many rows have been read so far."""
        return self._reader.n_evaluated

    def ask(self, room: Capacity) -> Ask | None:
        if self._expected is not None:
            raise ProtocolError("asked again before the rows of the last ask were told")
        check_room(room, self._floor)
        window = self._windows.next_window(room)
        if window is None:
            self._finished = True
            return None
        ask, self._expected = window
        return ask

    def tell(self, rows: Rows) -> None:
        if self._expected is None:
            raise ProtocolError("told rows that were not asked for")
        check_count(rows, len(self._expected))
        self._reader.read(self._expected, rows)
        self._expected = None

    def result(self) -> TrieEvaluation:
        if not self._finished:
            raise ProtocolError("no result before ask returned None")
        return self._reader.evaluation()
