"""The values that were read from rows of given texts, and a cache of them.

A value takes some bytes where its row takes half a megabyte. So the rows of a text that
is read again and again, such as the context of several continuations, need not be
evaluated again when only their values are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT

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
