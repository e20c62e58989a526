"""Reads what the model makes of given texts: the token of every edge of a trie."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

import numpy as np

from selectrie.core.rows import Reads, Rows, TopTokens
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Capacity, IntArray, OffsetArray
from selectrie.decoding.scoring import TrieReader, row_needs
from selectrie.decoding.task import Ask, TaskBase
from selectrie.decoding.trie.exhaustive import DepthFirstOrder, DepthFirstWindows


@dataclass(frozen=True, slots=True, eq=False)
class ScoredNodes:
    """The nodes of a trie of N nodes at which tokens of C sequences are scored.

    Attributes:
        end: int32[C], node of each sequence's last token.
        n_scored: int64[C], number of last tokens of each sequence that are scored.
        wanted: bool[N], nodes whose row scores a token.
        marked: bool[N], wanted nodes and all their ancestors but the root.
    """

    end: IntArray
    n_scored: OffsetArray
    wanted: BoolArray
    marked: BoolArray

    @staticmethod
    def of(trie: TokenTrie, n_scored: OffsetArray) -> ScoredNodes:
        """Return the nodes that score the last `n_scored` tokens of each sequence.

        `n_scored` is int64[C], each at most the number of tokens of the sequence. There
        is one step in Python for each depth, whatever the number of sequences.
        """
        end: IntArray = trie.path_node[trie.path_of]
        wanted = np.zeros(len(trie), dtype=np.bool_)
        node, left = end.copy(), n_scored.copy()
        while len(node):
            going = left > 0
            node, left = trie.parent[node[going]], left[going] - 1
            wanted[node] = True
        return ScoredNodes(end, n_scored, wanted, leading_to(trie, wanted))


def leading_to(trie: TokenTrie, wanted: BoolArray) -> BoolArray:
    """Return bool[N], the wanted nodes and all their ancestors but the root."""
    before = np.concatenate(([0], np.cumsum(wanted)))
    numbers = np.arange(len(trie))
    marked: BoolArray = before[numbers + trie.n_nodes_below + 1] > before[numbers]
    marked[ROOT] = False
    return marked


READ_ROWS_BYTES = 32 << 20
"""Bytes of values kept for later requests, about 40 000 rows with few values each."""

_ENTRY_BYTES, _VALUE_BYTES = 500, 150
"""Bytes that an entry of the cache takes, and each log-probability in it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """Values of one row, all from the same evaluation.

    No log-probability is above 0: float32 rounding beyond probability 1 is cut off.

    Attributes:
        best: The most probable token (ties: the smaller id).
        logp: Log-probabilities by token.
        n_top: Number of most probable tokens that were read.
        top: Ids and log-probabilities of these, best first (ties: the smaller id
            first). Impossible tokens are left out.
    """

    best: int
    logp: dict[int, float]
    n_top: int
    top: tuple[tuple[int, float], ...]

    def has(self, tokens: Iterable[int], n_top: int) -> bool:
        """Return whether the values of `tokens` and the `n_top` best are known."""
        return n_top <= self.n_top and all(token in self.logp for token in tokens)

    @property
    def nbytes(self) -> int:
        """Return roughly how many bytes the values take."""
        return _ENTRY_BYTES + _VALUE_BYTES * (len(self.logp) + len(self.top))


class KnownValues(Protocol):
    """Values of rows by the key of their path, as of `ReadRows`."""

    def get(self, key: bytes) -> RowValues | None:
        """Return the values of a path, or None if they are not known."""
        ...

    def put(self, key: bytes, values: RowValues) -> None:
        """Keep the values of a path."""
        ...


class ReadRows:
    """The values of rows that were read lately, by the path of their node.

    Any thread may look values up; only the model's thread puts them in. What was not
    used for the longest time is dropped first.

    Attributes:
        nbytes: Bytes that the values take, roughly.
    """

    def __init__(self, max_bytes: int = READ_ROWS_BYTES) -> None:
        """Create an empty cache of at most `max_bytes` bytes."""
        self._max_bytes = max_bytes
        self._rows: OrderedDict[bytes, RowValues] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes) -> RowValues | None:
        """Return the values of a path by its key (`path_keys`), or None."""
        values = self._rows.get(key)
        if values is not None:
            with suppress(KeyError):  # dropped by the model's thread meanwhile
                self._rows.move_to_end(key)
        return values

    def put(self, key: bytes, values: RowValues) -> None:
        """Keep the values of a path, in place of those of an earlier evaluation."""
        before = self._rows.pop(key, None)
        self.nbytes += values.nbytes - (0 if before is None else before.nbytes)
        self._rows[key] = values
        while self.nbytes > self._max_bytes:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Drop all values."""
        self._rows.clear()
        self.nbytes = 0


def path_keys(trie: TokenTrie) -> list[bytes]:
    """Return a key of the path to each node of a trie; equal paths have equal keys.

    Each key is a digest of the parent's key and the token.
    """
    tokens, parents = trie.token.astype(np.int32).tobytes(), trie.parent.tolist()
    keys = [b""] * len(trie)
    for node in range(ROOT + 1, len(trie)):
        keys[node] = blake2b(keys[parents[node]] + tokens[4 * node : 4 * node + 4], digest_size=16).digest()
    return keys


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
