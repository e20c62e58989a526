"""Reads what the model makes of given texts: the token of every edge of a trie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.reads import Reads, TopTokens
from selectrie.core.rows import Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_TOKEN, ROOT, Capacity, FloatArray, IntArray
from selectrie.decoding.scoring import TrieReader, row_needs
from selectrie.decoding.task import Ask, TaskBase
from selectrie.decoding.trie.batches import DepthFirstWindows
from selectrie.decoding.trie.scored_nodes import ScoredNodes

WANTED_BYTES = 64 << 20
"""Maximum size of the logits that one ask wants, in bytes: 110 rows of 152k tokens.

A model may hold the logits of a whole call. 512 rows of 152k tokens would be 311 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PromptRows:
    """The values that were read for the edges of a trie of N nodes.

    No log-probability is above 0: float32 rounding beyond probability 1 is cut off.

    Attributes:
        edge_logp: float64[N], log p(token | parent); NaN where the parent's row was not
            read.
        best: int32[N], the most probable token after each node (ties: the smaller id);
            NO_TOKEN where the row was not read.
        top: By node, the ids and log-probabilities of its most probable tokens, best
            first (ties: the smaller id first).
        named: By node, the log-probabilities of the named tokens.
    """

    edge_logp: FloatArray
    best: IntArray
    top: dict[int, tuple[tuple[int, float], ...]]
    named: dict[int, tuple[float, ...]]

    @staticmethod
    def none() -> PromptRows:
        """Return the values of no rows."""
        return PromptRows(np.empty(0), np.empty(0, dtype=np.int32), {}, {})


class PromptRowsTask(TaskBase[IntArray, PromptRows]):
    """Evaluates the rows of a trie that predict its edges, and reads them.

    In any capacity not below the floor, each wanted row is evaluated once, and so is
    each node that only leads to one. Of a row the task keeps the values that were asked
    for and nothing else.

    Args:
        prompt: int32[T], T >= 1, the tokens before the trie.
        trie: The trie of the rest of all sequences.
        scored: The nodes whose rows are read.
        top: Number of most probable tokens to read of each row.
        named: int32[], tokens whose log-probabilities to read of each row.
        n_vocabulary: Number of tokens of the vocabulary, from which the maximum number
            of rows in one ask follows.
    """

    def __init__(
        self, prompt: IntArray, trie: TokenTrie, scored: ScoredNodes, *, top: int, named: IntArray, n_vocabulary: int
    ) -> None:
        self._wanted, self._top, self._named, self._token = scored.wanted, top, named, trie.token
        self._reader = TrieReader(trie, row_needs(trie, "none"))
        self._windows = DepthFirstWindows(trie, scored.marked, scored.wanted)
        self._max_rows = max(1, WANTED_BYTES // (4 * n_vocabulary))
        self._edge_logp: FloatArray = np.full(len(trie), np.nan)
        self._best: IntArray = np.full(len(trie), NO_TOKEN, dtype=np.int32)
        self._tops: dict[int, tuple[tuple[int, float], ...]] = {}
        self._of_named: dict[int, tuple[float, ...]] = {}
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32))

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        step = self._windows.next_window(replace(capacity, rows=min(capacity.rows, self._max_rows)))
        if step is None:
            return None
        ask, nodes = step
        return replace(ask, spent=self._windows.spent), nodes

    def _reads(self, nodes: IntArray) -> Reads:
        if not self._wanted[nodes].all():  # the prompt's row comes although nothing is read of it
            return Reads(len(nodes))
        children, owner = self._reader.children(nodes)
        n = len(nodes)
        return Reads(
            n,
            np.concatenate([owner, np.repeat(np.arange(n), len(self._named))]),
            np.concatenate([self._token[children], np.tile(self._named, n)]),
            tops=tuple(TopTokens(i, self._top) for i in range(n if self._top else 0)),
            best=True,
        )

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        if not len(nodes) or not self._wanted[nodes].all():
            return
        rows.check()  # before anything changes
        children, owner = self._reader.children(nodes)
        self._edge_logp[children] = np.minimum(rows.logp(owner, self._token[children]), 0.0)
        self._best[nodes] = rows.best()
        keys: Sequence[int] = nodes.tolist()
        if len(self._named):
            of_named = np.minimum(rows.logp(np.arange(len(nodes))[:, None], self._named[None, :]), 0.0)
            self._of_named.update(zip(keys, map(tuple, of_named.tolist()), strict=True))
        for index, node in enumerate(keys if self._top else ()):
            ids, logp = rows.top(index, self._top)
            self._tops[node] = tuple(zip(ids.tolist(), np.minimum(logp, 0.0).tolist(), strict=True))

    def _result(self) -> PromptRows:
        return PromptRows(self._edge_logp, self._best, self._tops, self._of_named)
