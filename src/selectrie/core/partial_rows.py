"""Rows that hold only some values: the requested ones, or some tokens with bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import Indices, KnownRows, Reads, Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import UnreadRowError

Key = TypeVar("Key")
Value = TypeVar("Value")
RowsT = TypeVar("RowsT", bound="_CopiedRows")


class _CopiedRows(ABC):
    """Base class of rows whose values were checked and copied from the model."""

    __slots__ = ()

    @abstractmethod
    def take(self: RowsT, order: ArrayLike) -> RowsT: ...

    def slice(self: RowsT, start: int, stop: int) -> RowsT:  # noqa: PYI019 - as above
        return self.take(np.arange(start, stop))

    def copy(self: RowsT) -> RowsT:  # noqa: PYI019 - as above
        return self

    def fetch(self: RowsT, reads: Callable[[], Reads]) -> RowsT:  # noqa: ARG002, PYI019 - nothing more can be read
        return self


class SelectedRows(_CopiedRows, KnownRows):
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
    def of(rows: Rows, reads: Reads) -> SelectedRows:
        """Return the values that `reads` names, taken from `rows`.

        Raises `NonFiniteLogitsError` unless every row is finite.
        """
        rows.check()
        return SelectedRows(
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
        result, is_known = _look_up(tables.pairs, tables.logp, pair_keys(rows, ids))
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

    def take(self, order: ArrayLike) -> SelectedRows:
        part = copy(self)
        part._index = self._index[np.asarray(order, dtype=np.int64)]
        return part

    def stacked(self, others: Sequence[SelectedRows]) -> SelectedRows:
        parts = [self, *others]
        stacked = SelectedRows(
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

    def _known(self) -> _Tables:
        """Return the tables for looking up values, built on first use."""
        if self._tables is None:
            self._tables = _Tables.of(self._reads, self._logp, self._masses, self._rests, self._tops)
        return self._tables


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """Tables in which `SelectedRows` looks up its values.

    Attributes:
        pairs: int64[m], the pairs of row and token, ascending.
        logp: float64[m], the log-probability of each pair.
        masses, rests: Values by row and bytes of the ids.
        tops: The number of tokens read, and the tokens with their log-probabilities, by
            row and allowed set.
        whole: The position of each row of `Reads.whole`.
    """

    pairs: Indices
    logp: FloatArray
    masses: dict[tuple[int, bytes], float]
    rests: dict[tuple[int, bytes], float]
    tops: dict[tuple[int, bytes], tuple[float, tuple[IntArray, FloatArray]]]
    whole: dict[int, int]

    @staticmethod
    def of(
        reads: Reads,
        logp: FloatArray,
        masses: Sequence[float],
        rests: Sequence[float],
        tops: Sequence[tuple[IntArray, FloatArray]],
    ) -> _Tables:
        """Build the tables for values in the order of `reads`."""
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
            logp[order],
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


ROUNDING = 1e-6
"""Nats by which a bound that was summed here is widened.

Dense rows sum exponentials of float32 numbers, whose rounding moves a sum by less than
5e-7 nats in either of two sums.
"""

Bounds = tuple[float, float]


class BoundedRows(_CopiedRows):
    """Some tokens' log-probabilities in n rows, with bounds on the sum of all others.

    The log-probability of a known token and the mass of known tokens have the bits
    of the rows from which they were taken. So has the mass of all tokens except the
    known ones, if both bounds on it are equal. Any other mass or rest raises
    `UnreadRowError`, and has bounds that contain the true value. `top` returns only
    tokens that are certainly more probable than every unknown one. There are no logits.

    Args:
        rows: The known values and bounds of each row.
        n_tokens: Number of tokens of the vocabulary.
    """

    __slots__ = ("_n_tokens", "_rows", "_table")

    def __init__(self, rows: Sequence[RowBounds], n_tokens: int) -> None:
        self._rows, self._n_tokens = tuple(rows), n_tokens
        self._table: tuple[Indices, FloatArray] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return sum(row.ids.nbytes + row.logp.nbytes for row in self._rows)

    def check(self) -> None:
        """Do nothing: there are no logits to check."""

    def known(self, i: int) -> RowBounds:
        """Return the known values and the bounds of row i."""
        return self._rows[i]

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.broadcast_arrays(np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64))
        pairs, logp = self._known()
        result, is_known = _look_up(pairs, logp, pair_keys(rows, ids))
        for row, token in zip(rows[~is_known].tolist(), ids[~is_known].tolist(), strict=True):
            if _unknown_max(self._rows[row]) > -np.inf:
                raise UnreadRowError(row, f"the log-probability of token {token}")
        return result

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        return self._exact_value(i, self.log_mass_bounds(i, token_ids), f"the mass of {np.size(token_ids)} tokens")

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        return self._exact_value(i, self.log_rest_bounds(i, token_ids), f"the mass beyond {np.size(token_ids)} tokens")

    def _exact_value(self, i: int, bounds: Bounds, what: str) -> float:
        """Return the value on which both bounds agree, or raise `UnreadRowError`."""
        if bounds[0] != bounds[1]:
            raise UnreadRowError(i, what)
        return bounds[0]

    def log_mass_bounds(self, i: int, token_ids: ArrayLike) -> Bounds:
        row, ids = self._rows[i], np.asarray(token_ids, dtype=np.int64)
        logp, is_known = _look_up(row.ids, row.logp, ids)
        if is_known.all() or _unknown_max(row) == -np.inf:
            return (numerics.logsumexp(logp),) * 2
        n_unknown = len(ids) - int(np.count_nonzero(is_known))
        return _bound_with_unknown(numerics.logsumexp(logp), row, n_unknown, self._n_tokens)

    def log_rest_bounds(self, i: int, token_ids: ArrayLike) -> Bounds:
        row, ids = self._rows[i], np.asarray(token_ids, dtype=np.int64)
        is_other = ~np.isin(row.ids, ids)
        n_known = len(row.ids) - int(np.count_nonzero(is_other))
        others = numerics.logsumexp(row.logp[is_other])
        n_unknown = self._n_tokens - len(row.ids) - (len(ids) - n_known)
        if others == -np.inf and (n_unknown == 0 or _unknown_max(row) == -np.inf):
            return -np.inf, -np.inf
        if others == -np.inf and n_known == len(ids):
            return row.log_rest
        return _bound_with_unknown(others, row, n_unknown, self._n_tokens)

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        ids, logp, unknown_max = self._order_known(i, allowed)
        n_certain = min(max(k, 0), int(np.count_nonzero(logp > unknown_max)))
        return ids[:n_certain], logp[:n_certain]

    def unseen_max(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> float:
        _, logp, unknown_max = self._order_known(i, allowed)
        n_certain = min(max(k, 0), int(np.count_nonzero(logp > unknown_max)))
        return max(unknown_max, float(logp[n_certain]) if n_certain < len(logp) else -np.inf)

    def _order_known(self, i: int, allowed: BoolArray | IntArray | None) -> tuple[IntArray, FloatArray, float]:
        """Return the known tokens that are allowed and possible, most probable first.

        Returns their ids and log-probabilities, and an upper bound on the
        log-probability of each other token that is allowed.
        """
        row = self._rows[i]
        if allowed is None:
            is_allowed, n_allowed = np.ones(len(row.ids), dtype=np.bool_), self._n_tokens
        elif allowed.dtype == np.bool_:
            is_allowed, n_allowed = np.asarray(allowed[row.ids]), int(np.count_nonzero(allowed))
        else:
            is_allowed, n_allowed = np.isin(row.ids, allowed), len(np.unique(allowed))
        unknown_max = _unknown_max(row) if n_allowed > np.count_nonzero(is_allowed) else -np.inf
        is_allowed &= row.logp > -np.inf
        ids, logp = row.ids[is_allowed], row.logp[is_allowed]
        order = np.argsort(-logp, kind="stable")  # the ids ascend
        return ids[order], logp[order], unknown_max

    def best(self) -> IntArray:
        tops = [self.top(i, 1)[0] for i in range(len(self))]
        for i, ids in enumerate(tops):
            if not len(ids):
                raise UnreadRowError(i, "the most probable token")
        return np.array([ids[0] for ids in tops], dtype=np.int32)

    def logits(self, i: int) -> LogitArray:
        raise UnreadRowError(i, "the logits")

    def take(self, order: ArrayLike) -> BoundedRows:
        return BoundedRows([self._rows[i] for i in np.asarray(order, dtype=np.int64).tolist()], self._n_tokens)

    def stacked(self, others: Sequence[BoundedRows]) -> BoundedRows:
        return BoundedRows([row for part in (self, *others) for row in part._rows], self._n_tokens)

    def _known(self) -> tuple[Indices, FloatArray]:
        """Return the known pairs of row and token, ascending, and their values."""
        if self._table is None:
            pairs = [pair_keys(np.int64(i), row.ids) for i, row in enumerate(self._rows)]
            self._table = (
                np.concatenate([np.empty(0, dtype=np.int64), *pairs]),
                np.concatenate([np.empty(0), *(row.logp for row in self._rows)]),
            )
        return self._table


def merge_bounds(rows: Sequence[RowBounds], n_tokens: int, tolerance: float = 0.0) -> RowBounds:
    """Combine several answers about the same row into one.

    A token that several of them hold has the value of the first. The bounds are the
    tightest of all answers, or the widest if the tightest contradict each other.

    Args:
        rows: At least one answer.
        n_tokens: Number of tokens of the vocabulary.
        tolerance: Nats by which a log-probability may differ from one answer to the
            next.
    """
    if len(rows) == 1:
        return rows[0]
    ids, first = np.unique(np.concatenate([row.ids for row in rows]), return_index=True)
    logp = np.concatenate([row.logp for row in rows])[first]
    if len(ids) == n_tokens:
        return RowBounds(ids, logp, (-np.inf, -np.inf), -np.inf)
    bounds = [_bound_without(row, ids, logp, ROUNDING + tolerance) for row in rows]
    lows, highs = zip(*bounds, strict=True)
    ceilings = [_unknown_max(row) for row in rows]
    if max(lows) > min(highs):  # the answers differ by more than the tolerance
        return RowBounds(ids, logp, (min(lows), max(highs)), max(ceilings))
    return RowBounds(ids, logp, (max(lows), min(highs)), min(ceilings))


def _bound_without(row: RowBounds, ids: IntArray, logp: FloatArray, margin: float) -> Bounds:
    """Return bounds on the log mass of tokens neither in `row.ids` nor in `ids`.

    `logp` belongs to `ids`. `margin` is the number of nats by which answers may
    differ.
    """
    more = numerics.logsumexp(logp[~np.isin(ids, row.ids)])
    if more == -np.inf:
        return row.log_rest
    low, high = row.log_rest
    return numerics.logdiffexp(low - margin, more + margin), numerics.logdiffexp(high + margin, more - margin)


def _look_up(keys: NDArray[np.integer], values: FloatArray, wanted: NDArray[np.int64]) -> tuple[FloatArray, BoolArray]:
    """Return the values of the wanted keys, -inf for others, and which are known.

    `keys` ascend.
    """
    result: FloatArray = np.full(wanted.shape, -np.inf)
    if not len(keys):
        return result, np.zeros(wanted.shape, dtype=np.bool_)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    is_known: BoolArray = keys[at] == wanted
    result[is_known] = values[at[is_known]]
    return result, is_known


def _unknown_max(row: RowBounds) -> float:
    """Return an upper bound on the log-probability of each token that is not known."""
    return min(row.rest_max, row.log_rest[1])


def _bound_with_unknown(known: float, row: RowBounds, n: int, n_tokens: int) -> Bounds:
    """Return bounds on the log of a known mass and that of n unknown tokens together.

    Args:
        known: Log of the known mass.
        row: The row.
        n: Number of tokens in the sum that are not known.
        n_tokens: Number of tokens of the vocabulary.
    """
    low, high = row.log_rest
    n_others = n_tokens - len(row.ids) - n
    if n == 0:
        low = high = -np.inf
    else:
        high = min(high, float(np.log(n)) + row.rest_max)
    if n and n_others:
        low = numerics.logdiffexp(low - ROUNDING, float(np.log(n_others)) + row.rest_max + ROUNDING)
    low, high = float(np.logaddexp(known, low)), float(np.logaddexp(known, high))
    return low - ROUNDING, high + ROUNDING
