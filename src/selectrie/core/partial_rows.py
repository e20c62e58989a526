"""Rows that hold only the values that a `Reads` names.

A back end whose logits are elsewhere computes these values there and hands over nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core.reads import Indices, Reads
from selectrie.core.rows import KnownRows, Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import UnreadRowError

Key = TypeVar("Key")
Value = TypeVar("Value")


class PartialRows(KnownRows):
    """The values of n rows that a `Reads` names, and nothing else.

    Reading any other value raises `UnreadRowError`. The values have the bits of the
    rows from which they were taken.

    Args:
        reads: The values that can be read.
        logp: float64[m], the log-probability of each pair of `reads`.
        masses, rests: The log of each summed probability.
        tops: int32[] ids and float64[] log-probabilities of each of `reads.tops`.
        whole: The rows of `reads.whole`, in that order.
        best: int32[n], the most probable token of each row; None if `reads` does not
            ask for it.
    """

    __slots__ = ("_best", "_index", "_logp", "_masses", "_reads", "_rests", "_tables", "_tops", "_whole")

    def __init__(
        self,
        reads: Reads,
        *,
        logp: FloatArray,
        masses: Sequence[float],
        rests: Sequence[float],
        tops: Sequence[tuple[IntArray, FloatArray]],
        whole: Rows,
        best: IntArray | None,
    ) -> None:
        self._reads = reads
        self._logp, self._masses, self._rests = logp, tuple(masses), tuple(rests)
        self._tops, self._whole, self._best = tuple(tops), whole, best
        self._index: Indices = np.arange(reads.n_rows)
        self._tables: _Tables | None = None

    @staticmethod
    def of(rows: Rows, reads: Reads) -> PartialRows:
        """Return the values that `reads` names, taken from `rows`.

        Raises `NonFiniteLogitsError` unless every row is finite.
        """
        rows.check()
        return PartialRows(
            reads,
            logp=rows.logp(reads.owner, reads.ids),
            masses=[rows.log_mass(one.row, one.ids) for one in reads.masses],
            rests=[rows.log_rest(one.row, one.ids) for one in reads.rests],
            tops=[rows.top(one.row, one.k, one.allowed) for one in reads.tops],
            whole=rows.take(reads.whole).copy(),
            best=rows.best() if reads.best else None,
        )

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        n_top = sum(len(ids) for ids, _ in self._tops)
        return self._logp.nbytes + 12 * n_top + self._whole.nbytes

    def check(self) -> None:
        """Do nothing: the rows were checked before their values were taken."""

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.broadcast_arrays(self._index[np.asarray(i, dtype=np.int64)], np.asarray(token_ids))
        tables = self._known()
        result: FloatArray = np.empty(rows.shape, dtype=np.float64)
        wanted = pair_keys(rows, ids)
        at = np.minimum(np.searchsorted(tables.pairs, wanted), max(0, len(tables.pairs) - 1))
        is_known = tables.pairs[at] == wanted if len(tables.pairs) else np.zeros(rows.shape, dtype=np.bool_)
        result[is_known] = self._logp[tables.order[at[is_known]]]
        for row in np.unique(rows[~is_known]).tolist():
            here = ~is_known & (rows == row)
            if row not in tables.whole:
                raise UnreadRowError(row, f"the log-probability of token {int(ids[here][0])}")
            result[here] = self._whole.logp(tables.whole[row], ids[here])
        return result

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        ids = np.asarray(token_ids, dtype=np.int32)
        row = int(self._index[i])
        if len(ids) == 0:
            return -np.inf
        known = self._known()
        if row in known.whole:
            return self._whole.log_mass(known.whole[row], ids)
        return _value_of(known.masses, (row, ids.tobytes()), row, f"the mass of {len(ids)} tokens")

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        ids = np.asarray(token_ids, dtype=np.int32)
        row = int(self._index[i])
        known = self._known()
        if row in known.whole:
            return self._whole.log_rest(known.whole[row], ids)
        return _value_of(known.rests, (row, ids.tobytes()), row, f"the mass beyond {len(ids)} tokens")

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        row = int(self._index[i])
        known = self._known()
        if row in known.whole:
            return self._whole.top(known.whole[row], k, allowed)
        what = f"the {k} most probable tokens"
        n_read, (ids, logp) = _value_of(known.tops, (row, _set_key(allowed)), row, what)
        if k > n_read:
            raise UnreadRowError(row, what)
        return ids[:k], logp[:k]

    def best(self) -> IntArray:
        if self._best is None:
            raise UnreadRowError(0, "the most probable token")
        return self._best[self._index]

    def logits(self, i: int) -> LogitArray:
        row = int(self._index[i])
        return self._whole.logits(_value_of(self._known().whole, row, row, "the logits"))

    def slice(self, start: int, stop: int) -> PartialRows:
        return self.take(np.arange(start, stop))

    def take(self, order: ArrayLike) -> PartialRows:
        part = PartialRows(
            self._reads,
            logp=self._logp,
            masses=self._masses,
            rests=self._rests,
            tops=self._tops,
            whole=self._whole,
            best=self._best,
        )
        part._index, part._tables = self._index[np.asarray(order, dtype=np.int64)], self._tables
        return part

    def copy(self) -> PartialRows:
        return self  # the values are in memory of their own

    def stacked(self, others: Sequence[PartialRows]) -> PartialRows:
        parts = [self, *others]
        stacked = PartialRows(
            Reads.concatenated([part._reads for part in parts]),
            logp=np.concatenate([part._logp for part in parts]),
            masses=[value for part in parts for value in part._masses],
            rests=[value for part in parts for value in part._rests],
            tops=[value for part in parts for value in part._tops],
            whole=self._whole.stacked([part._whole for part in others]),
            best=None if any(part._best is None for part in parts) else np.concatenate([part._best for part in parts]),
        )
        starts = np.cumsum([0, *(part._reads.n_rows for part in parts)])
        stacked._index = np.concatenate([part._index + start for start, part in zip(starts, parts, strict=False)])
        return stacked

    def fetch(self, reads: Callable[[], Reads]) -> PartialRows:  # noqa: ARG002 - nothing more can be read
        return self

    def _known(self) -> _Tables:
        if self._tables is None:
            self._tables = _Tables.of(self._reads, self._masses, self._rests, self._tops)
        return self._tables


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """Tables in which `PartialRows` looks up its values.

    Attributes:
        pairs: int64[m], the pairs of row and token, ascending.
        order: int64[m], the position of each of them in `Reads.ids`.
        masses, rests: Values by row and bytes of the ids.
        tops: The number of tokens read, and the tokens with their log-probabilities, by
            row and allowed set.
        whole: The position of each row of `Reads.whole`.
    """

    pairs: Indices
    order: Indices
    masses: dict[tuple[int, bytes], float]
    rests: dict[tuple[int, bytes], float]
    tops: dict[tuple[int, bytes], tuple[float, tuple[IntArray, FloatArray]]]
    whole: dict[int, int]

    @staticmethod
    def of(
        reads: Reads,
        masses: Sequence[float],
        rests: Sequence[float],
        tops: Sequence[tuple[IntArray, FloatArray]],
    ) -> _Tables:
        pairs = pair_keys(reads.owner, reads.ids)
        order = np.argsort(pairs, kind="stable")
        longest: dict[tuple[int, bytes], tuple[float, tuple[IntArray, FloatArray]]] = {}
        for one, values in zip(reads.tops, tops, strict=True):
            key = one.row, _set_key(one.allowed)
            # Fewer than k tokens are all there are.
            n_read = one.k if len(values[0]) == one.k else np.inf
            if key not in longest or longest[key][0] < n_read:
                longest[key] = n_read, values
        return _Tables(
            pairs[order],
            order,
            {(one.row, one.ids.tobytes()): value for one, value in zip(reads.masses, masses, strict=True)},
            {(one.row, one.ids.tobytes()): value for one, value in zip(reads.rests, rests, strict=True)},
            longest,
            {row: position for position, row in enumerate(reads.whole.tolist())},
        )


def pair_keys(rows: Indices | np.int64, ids: NDArray[np.integer]) -> Indices:
    """Return one number for each pair of row and token, ordered by row, then token."""
    return np.asarray((rows.astype(np.int64) << 32) | ids.astype(np.int64))


def _set_key(allowed: BoolArray | IntArray | None) -> bytes:
    """Return bytes that are equal for equal values of `allowed` of the same kind."""
    if allowed is None:
        return b""
    if allowed.dtype == np.bool_:
        return b"b" + np.packbits(allowed).tobytes()
    return b"i" + np.unique(allowed).astype(np.int32).tobytes()


def _value_of(table: dict[Key, Value], key: Key, row: int, what: str) -> Value:
    """Return the value of a key; raise `UnreadRowError` about `what` if it has none."""
    if key not in table:
        raise UnreadRowError(row, what)
    return table[key]
