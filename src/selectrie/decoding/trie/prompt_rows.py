"""Reads values of the rows of given texts, and caches them across requests."""

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
from selectrie.core.types import ROOT, BoolArray, IntArray
from selectrie.decoding.scoring import TrieReader

READ_ROWS_BYTES = 32 << 20
"""Maximum size of the cached values in bytes, about 40 000 rows of few values each."""

_ENTRY_BYTES, _VALUE_BYTES = 500, 150
"""Approximate bytes of a cache entry, and of each log-probability in it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """Values of one row, all from the same evaluation.

    No log-probability is above 0: float32 rounding beyond probability 1 is cut off.

    Attributes:
        best: The most probable token (ties: the smaller id).
        logp: Log-probabilities by token.
        n_top: Number of most probable tokens that were read.
        top: Ids and log-probabilities of these tokens, best first (ties: the smaller id
            first). Impossible tokens are left out.
    """

    best: int
    logp: dict[int, float]
    n_top: int
    top: tuple[tuple[int, float], ...]

    def has(self, tokens: Iterable[int], n_top: int) -> bool:
        """Return whether the values include `tokens` and the `n_top` best tokens."""
        return n_top <= self.n_top and all(token in self.logp for token in tokens)

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the values in bytes."""
        return _ENTRY_BYTES + _VALUE_BYTES * (len(self.logp) + len(self.top))


class ValueCache(Protocol):
    """A cache of row values by path key, such as `ReadRows`."""

    def get(self, key: bytes) -> RowValues | None:
        """Return the values of a path, or None if they are not cached."""
        ...

    def put(self, key: bytes, values: RowValues) -> None:
        """Add the values of a path."""
        ...


class ReadRows:
    """A cache of row values by the path of their node.

    Any thread may look values up; only the model's thread adds values. The least
    recently used ones are dropped first.

    Attributes:
        nbytes: Approximate size of the values in bytes.
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
        """Add the values of a path; they replace those of an earlier evaluation."""
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
    """Return the cache key of the path to each node; equal paths have equal keys.

    Each key is a digest of the parent's key and the token.
    """
    tokens, parents = trie.token.astype(np.int32).tobytes(), trie.parent.tolist()
    keys = [b""] * len(trie)
    for node in range(ROOT + 1, len(trie)):
        keys[node] = blake2b(keys[parents[node]] + tokens[4 * node : 4 * node + 4], digest_size=16).digest()
    return keys


WANTED_BYTES = 64 << 20
"""Maximum size of the logits that one ask wants, in bytes: 110 rows of 152k tokens.

A model may hold the logits of a whole call in memory; 512 rows of 152k tokens would be
311 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PromptReads:
    """The values to read of each row, and the cache that may hold them.

    Attributes:
        top: Number of most probable tokens.
        named: Ids of tokens whose log-probabilities are read.
        n_vocabulary: Number of tokens of the vocabulary.
        known: The cache. Other tasks of the model may add values meanwhile.
    """

    top: int
    named: tuple[int, ...]
    n_vocabulary: int
    known: ValueCache

    def known_values(self, key: bytes, tokens: Sequence[int]) -> RowValues | None:
        """Return the cached values of a path if they include everything to read.

        Args:
            key: Key of the path.
            tokens: Tokens after it whose log-probabilities are read.
        """
        values = self.known.get(key)
        return values if values is not None and values.has((*tokens, *self.named), self.top) else None


class PromptValues:
    """Collects values of the rows of a trie, from rows or from a cache (`ValueCache`).

    Only the values to read are kept, not the whole row.

    Args:
        trie: The trie of texts below a prompt.
        keys: Key of the path to each node (`path_keys`), the prompt included.
        reads: The values to read of each row, and the cache.

    Attributes:
        of_node: The values by node.
    """

    def __init__(self, trie: TokenTrie, keys: Sequence[bytes], reads: PromptReads) -> None:
        self._trie, self._keys, self._of_row = trie, keys, reads
        self._named = np.array(reads.named, dtype=np.int32)
        self.of_node: dict[int, RowValues] = {}

    def max_rows(self, _first: int) -> int:
        """Return the maximum number of rows of an ask, whatever node it begins with."""
        return max(1, WANTED_BYTES // (4 * self._of_row.n_vocabulary))

    def take_cached(self, nodes: IntArray) -> BoolArray:
        """Take values from the cache; return bool[n], whether a node's were there."""
        return np.array([self._take_cached_node(node) for node in nodes.tolist()], dtype=np.bool_)

    def _take_cached_node(self, node: int) -> bool:
        """Take the values of one node from the cache, if all are there."""
        tokens = self._trie.token[self._trie.children(node)].tolist()
        values = self._of_row.known_values(self._keys[node], tokens)
        if values is None:
            return False
        self.of_node[node] = values
        return True

    def reads(self, reads: Reads) -> Reads:
        """Return `reads`, extended by the values to read of each row."""
        n, named, top = reads.n_rows, self._named, self._of_row.top
        return replace(
            reads,
            owner=np.concatenate([reads.owner, np.repeat(np.arange(n), len(named))]),
            ids=np.concatenate([reads.ids, np.tile(named, n)]),
            tops=tuple(TopTokens(i, top) for i in range(n if top else 0)),
        )

    def read(self, nodes: IntArray, rows: Rows, reader: TrieReader) -> None:
        """Store the values of the rows of `nodes`, which `reader` has read."""
        of_named = np.minimum(rows.logp(np.arange(len(nodes))[:, None], self._named[None, :]), 0.0).tolist()
        n_top = self._of_row.top
        for index, node in enumerate(nodes.tolist()):
            children = self._trie.children(node)
            logp = dict(zip(self._of_row.named, of_named[index], strict=True))
            logp.update(zip(self._trie.token[children].tolist(), reader.edge_logp[children].tolist(), strict=True))
            top: tuple[tuple[int, float], ...] = ()
            if n_top:
                ids, best_logp = rows.top(index, n_top)
                top = tuple(zip(ids.tolist(), np.minimum(best_logp, 0.0).tolist(), strict=True))
            values = RowValues(int(reader.best_token[node]), logp, n_top, top)
            self.of_node[node] = values
            self._of_row.known.put(self._keys[node], values)
