"""Reads what the model makes of given texts: the token of every edge of a trie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.reads import Reads, TopTokens
from selectrie.core.rows import Rows
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Capacity, IntArray
from selectrie.decoding.scoring import TrieReader, row_needs
from selectrie.decoding.task import Ask, TaskBase
from selectrie.decoding.trie.batches import DepthFirstOrder, DepthFirstWindows
from selectrie.decoding.trie.row_values import KnownValues, RowValues
from selectrie.decoding.trie.scored_nodes import leading_to

WANTED_BYTES = 64 << 20
"""Maximum size of the logits that one ask wants, in bytes: 110 rows of 152k tokens.

A model may hold the logits of a whole call. 512 rows of 152k tokens would be 311 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PromptReads:
    """The values to read of each row, and where those of other tasks are found.

    Attributes:
        top: Number of most probable tokens.
        named: Ids of tokens whose log-probabilities are read.
        n_vocabulary: Number of tokens of the vocabulary.
        known: Values that were read before. Those that other tasks of the model read
            while this one runs are used too.
    """

    top: int
    named: tuple[int, ...]
    n_vocabulary: int
    known: KnownValues

    def known_values(self, key: bytes, tokens: Sequence[int]) -> RowValues | None:
        """Return the values of a path if all that is read of it is known.

        Args:
            key: Key of the path.
            tokens: Tokens after it whose log-probabilities are read.
        """
        values = self.known.get(key)
        return values if values is not None and values.has((*tokens, *self.named), self.top) else None


class PromptRowsTask(TaskBase[IntArray, dict[int, RowValues]]):
    """Evaluates the rows of a trie that predict its edges, and reads them.

    In any capacity not below the floor, each wanted row is evaluated once, and so is
    each node that only leads to one. A row whose values another task has read in the
    meantime is not evaluated. Of a row the task keeps the values that were asked for
    and nothing else.

    The result has the values of each wanted node.

    Args:
        prompt: int32[T], T >= 1, the tokens before the trie.
        trie: The trie of the rest of all sequences.
        wanted: bool[N], nodes whose rows are read; each has children.
        keys: Key of the path to each node (`path_keys`), the prompt included.
        reads: The values to read of each row.
    """

    def __init__(
        self, prompt: IntArray, trie: TokenTrie, wanted: BoolArray, keys: Sequence[bytes], reads: PromptReads
    ) -> None:
        self._trie, self._keys, self._of_row = trie, keys, reads
        self._named = np.array(reads.named, dtype=np.int32)
        self._reads_root = bool(wanted[ROOT])
        self._reader = TrieReader(trie, row_needs(trie, "none"))
        self._windows = DepthFirstWindows(DepthFirstOrder(trie, leading_to(trie, wanted), wanted))
        self._max_rows = max(1, WANTED_BYTES // (4 * reads.n_vocabulary))
        self._values: dict[int, RowValues] = {}
        is_branch = np.diff(trie.child_start) > 1
        self._n_branches = int(trie.accumulate(is_branch.astype(np.float64)).max())
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32))

    @property
    def states(self) -> int:
        """Return the maximum number of states that the task needs at once.

        They are those of the nodes of one path that several go on from, of its end and
        of the run that is evaluated.
        """
        return self._n_branches + 2

    @property
    def asks_runs(self) -> bool:
        """Return True: texts are long runs, which take one state each."""
        return True

    def _plan(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        step = self._windows.next_window(replace(capacity, rows=min(capacity.rows, self._max_rows)))
        if step is None:
            return None
        ask, nodes = step
        is_known = np.array([self._find(node) for node in nodes.tolist()], dtype=np.bool_)
        wanted = ask.wanted.copy()
        wanted[wanted] = ~is_known
        return replace(ask, wanted=wanted, spent=self._windows.spent), nodes[~is_known]

    def _find(self, node: int) -> bool:
        """Return whether the values of a node are known; take them over if they are."""
        tokens = self._trie.token[self._trie.children(node)].tolist()
        values = self._of_row.known_values(self._keys[node], tokens)
        if values is None:
            return False
        self._values[node] = values
        return True

    def _is_unread(self, nodes: IntArray) -> bool:
        """Return whether nothing is read of the rows of `nodes`.

        The prompt's row comes also where it is not wanted.
        """
        return not len(nodes) or (nodes[0] == ROOT and not self._reads_root)

    def _reads(self, nodes: IntArray) -> Reads:
        n = len(nodes)
        if self._is_unread(nodes):
            return Reads(n)
        children, owner = self._reader.children(nodes)
        return Reads(
            n,
            np.concatenate([owner, np.repeat(np.arange(n), len(self._named))]),
            np.concatenate([self._trie.token[children], np.tile(self._named, n)]),
            tops=tuple(TopTokens(i, self._of_row.top) for i in range(n if self._of_row.top else 0)),
            best=True,
        )

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        if self._is_unread(nodes):
            return
        rows.check()  # before anything changes
        children, owner = self._reader.children(nodes)
        tokens = self._trie.token[children]
        logp = np.minimum(rows.logp(owner, tokens), 0.0).tolist()
        of_named = np.minimum(rows.logp(np.arange(len(nodes))[:, None], self._named[None, :]), 0.0).tolist()
        by_token = [dict(zip(self._of_row.named, values, strict=True)) for values in of_named]
        for index, token, value in zip(owner.tolist(), tokens.tolist(), logp, strict=True):
            by_token[index][token] = value
        n_top = self._of_row.top
        for index, (node, best) in enumerate(zip(nodes.tolist(), rows.best().tolist(), strict=True)):
            top: tuple[tuple[int, float], ...] = ()
            if n_top:
                ids, best_logp = rows.top(index, n_top)
                top = tuple(zip(ids.tolist(), np.minimum(best_logp, 0.0).tolist(), strict=True))
            values = RowValues(best, by_token[index], n_top, top)
            self._values[node] = values
            self._of_row.known.put(self._keys[node], values)

    def _result(self) -> dict[int, RowValues]:
        return self._values
