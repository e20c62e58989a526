"""Rows that were read before, by their path."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from selectrie.core.bounded_rows import merged
from selectrie.core.path_model import PartialRow
from selectrie.core.types import IntArray
from selectrie.engine.path_driver.row_wants import RowWants

_ENTRY_BYTES = 500
"""Bytes that an entry takes beside its arrays."""
NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class KnownRow:
    """What is known of a row.

    Attributes:
        row: What all answers say together.
        top: How many of the most probable tokens are certainly in it.
    """

    row: PartialRow
    top: int

    def missing(self, wants: RowWants) -> tuple[IntArray, int]:
        """Return the tokens that are to be named, and the most probable ones, if any.

        Nothing is missing if every other token has probability 0.
        """
        if self.row.log_rest[1] == -np.inf:
            return NO_IDS, 0
        named = np.setdiff1d(wants.named, self.row.ids, assume_unique=True).astype(np.int32)
        return named, wants.top if wants.top > self.top else 0


UNKNOWN = KnownRow(PartialRow(NO_IDS, np.empty(0), (-np.inf, 0.0), 0.0), 0)
"""A row of which nothing is known."""


class RowStore:
    """Keeps what is known of rows, and drops what was not used for the longest time.

    Args:
        max_bytes: Bytes that the rows may take, roughly.
        n_tokens: Number of tokens of the vocabulary.
        tolerance: Nats by which answers about a row may differ.

    Attributes:
        nbytes: Bytes that they take.
    """

    def __init__(self, max_bytes: int, n_tokens: int, tolerance: float) -> None:
        self._max_bytes, self._n_tokens, self._tolerance = max_bytes, n_tokens, tolerance
        self._rows: OrderedDict[bytes, KnownRow] = OrderedDict()
        self.nbytes = 0

    def get(self, key: bytes) -> KnownRow:
        """Return what is known of the row after a path, by its key."""
        known = self._rows.get(key)
        if known is None:
            return UNKNOWN
        self._rows.move_to_end(key)
        return known

    def joined(self, known: KnownRow, row: PartialRow, top: int) -> KnownRow:
        """Return what is known with a further answer, which has the `top` best."""
        if known is UNKNOWN:
            return KnownRow(row, top)
        return KnownRow(merged([known.row, row], self._n_tokens, self._tolerance), max(known.top, top))

    def put(self, key: bytes, known: KnownRow) -> None:
        """Keep what is known of a row, in place of what was known before."""
        before = self._rows.pop(key, None)
        self.nbytes += _nbytes(known) - (0 if before is None else _nbytes(before))
        self._rows[key] = known
        while self.nbytes > self._max_bytes:
            self.nbytes -= _nbytes(self._rows.popitem(last=False)[1])

    def clear(self) -> None:
        """Drop all rows."""
        self._rows.clear()
        self.nbytes = 0


def _nbytes(known: KnownRow) -> int:
    return _ENTRY_BYTES + known.row.ids.nbytes + known.row.logp.nbytes


def path_key(path: IntArray) -> bytes:
    """Return a key of a path; equal paths have equal keys."""
    return blake2b(path.tobytes(), digest_size=16).digest()
