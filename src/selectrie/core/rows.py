"""The rows of a model call, and the values that a task reads from them.

`Rows` is the protocol. `DenseRows` holds the logits in the host's memory. `PartialRows`
holds only the values that a `Reads` names; a back end whose logits are elsewhere
computes these there and hands over nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import UnreadRowError

RowsT = TypeVar("RowsT", bound="Rows")
Key = TypeVar("Key")
Value = TypeVar("Value")
Indices = NDArray[np.int64]

_NO_INDICES: Indices = np.empty(0, dtype=np.int64)
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_AHEAD = 4
"""How many times more tokens of the whole vocabulary are looked at first.

Only if too few of them are allowed are the allowed tokens gathered.
"""


class Rows(Protocol):
    """The distributions over the next token that one model call computed.

    Row *i* predicts the token **after** wanted node *i*. Rows are a view: they may read
    the back end's own buffer, and they are valid until the model's next `extend`. Use
    `copy` to keep rows for longer.

    Call `fetch` before reading: rows whose logits are elsewhere need not be readable as
    they are, or cost a transfer for each value.

    NaN, +inf or a row that is all -inf raises `NonFiniteLogitsError` when that row is
    first read; the other rows stay readable. A single -inf is probability 0. The bits
    of the values of a row do not depend on the other rows.
    """

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Return roughly how many bytes a copy takes."""
        ...

    def check(self) -> None:
        """Raise `NonFiniteLogitsError` unless every row is finite."""
        ...

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        """Return the float64 log-probabilities of `token_ids` after wanted nodes `i`.

        The two arguments broadcast against each other.
        """
        ...

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        """Return the log of the summed probability of `token_ids` after wanted node i.

        The ids must be distinct. The result is -inf if there are none.
        """
        ...

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        """Return the log of the summed probability of all tokens except `token_ids`."""
        ...

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        """Return the k most probable tokens after wanted node i.

        Returns their ids and their log-probabilities. Ties are ordered by id, smaller
        first. `allowed` is bool[V] (true = may follow) or an array of ids; None allows
        every token. Fewer than k tokens are returned if fewer are allowed and possible.
        """
        ...

    def best(self) -> IntArray:
        """Return the most probable token after each wanted node as int32[n].

        Ties go to the smaller id.
        """
        ...

    def logits(self, i: int) -> LogitArray:
        """Return the raw, unchecked float32[V] logits of wanted node i."""
        ...

    def slice(self: RowsT, start: int, stop: int) -> RowsT:  # noqa: PYI019 - Self is not in typing before Python 3.11
        """Return the rows of the wanted nodes start..stop as a view."""
        ...

    def take(self: RowsT, order: ArrayLike) -> RowsT:  # noqa: PYI019 - as above
        """Return the rows of the wanted nodes `order`, int[n], as a view."""
        ...

    def copy(self: RowsT) -> RowsT:  # noqa: PYI019 - as above
        """Return the same rows in memory of their own."""
        ...

    def stacked(self: RowsT, others: Sequence[RowsT]) -> RowsT:  # noqa: PYI019 - as above
        """Return a copy of these rows, followed by the rows `others` of other calls."""
        ...

    def fetch(self, reads: Callable[[], Reads]) -> Rows:
        """Return rows that hold the values of `reads()`, ready to be read.

        Rows whose logits are elsewhere compute all of them there and return
        `PartialRows`. Rows that can be read where they are return themselves, and do
        not call `reads`. It can be called more than once.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TokenSet:
    """A row and some tokens, whose summed probability in that row is read.

    `ids` are int32[], distinct.
    """

    row: int
    ids: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TopTokens:
    """A row, and the number of its most probable tokens that are read.

    Attributes:
        row: The row.
        k: Number of tokens.
        allowed: bool[V], int32[] ids, or None for all, as in `Rows.top`.
    """

    row: int
    k: int
    allowed: BoolArray | IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The values that a task reads from each of n rows.

    Attributes:
        n_rows: n.
        owner, ids: int64[m] rows and int32[m] tokens; the log-probability of each pair
            is read.
        masses: Sets of tokens whose summed probability is read.
        rests: Sets of tokens; the summed probability of all others is read.
        tops: Most probable tokens that are read.
        whole: int64[w], rows of which anything may be read.
        best: Whether the most probable token of every row is read.
    """

    n_rows: int
    owner: Indices = field(default_factory=_NO_INDICES.copy)
    ids: IntArray = field(default_factory=_NO_IDS.copy)
    masses: tuple[TokenSet, ...] = ()
    rests: tuple[TokenSet, ...] = ()
    tops: tuple[TopTokens, ...] = ()
    whole: Indices = field(default_factory=_NO_INDICES.copy)
    best: bool = False

    @staticmethod
    def of_row(
        ids: IntArray = _NO_IDS,
        *,
        masses: Iterable[IntArray] = (),
        tops: Iterable[tuple[int, BoolArray | IntArray | None]] = (),
    ) -> Reads:
        """Return the `Reads` of a single row.

        Args:
            ids: Tokens whose log-probability is read.
            masses: Sets of tokens whose summed probability is read.
            tops: Pairs of `k` and `allowed` of the most probable tokens that are read.
        """
        return Reads(
            1,
            np.zeros(len(ids), dtype=np.int64),
            ids,
            masses=tuple(TokenSet(0, np.asarray(one, dtype=np.int32)) for one in masses),
            tops=tuple(TopTokens(0, k, allowed) for k, allowed in tops),
        )

    @staticmethod
    def everything(n: int) -> Reads:
        """Return the `Reads` of n rows from which any value may be read."""
        return Reads(n, whole=np.arange(n), best=True)

    @staticmethod
    def concatenated(parts: Sequence[Reads]) -> Reads:
        """Return the `Reads` of the rows of all `parts`, one part after the other.

        The most probable token of every row is read if all parts read it.
        """
        starts = np.cumsum([0, *(part.n_rows for part in parts)]).tolist()
        pairs = list(zip(starts, parts, strict=False))
        return Reads(
            starts[-1],
            np.concatenate([_NO_INDICES, *(part.owner + start for start, part in pairs)]),
            np.concatenate([_NO_IDS, *(part.ids for part in parts)]).astype(np.int32),
            tuple(TokenSet(one.row + start, one.ids) for start, part in pairs for one in part.masses),
            tuple(TokenSet(one.row + start, one.ids) for start, part in pairs for one in part.rests),
            tuple(TopTokens(one.row + start, one.k, one.allowed) for start, part in pairs for one in part.tops),
            np.concatenate([_NO_INDICES, *(part.whole + start for start, part in pairs)]),
            best=bool(parts) and all(part.best for part in parts),
        )

    def joined(self, other: Reads) -> Reads:
        """Return the `Reads` that name the values of this one and of `other`.

        Both are for the same rows.
        """
        return Reads(
            self.n_rows,
            np.concatenate([self.owner, other.owner]),
            np.concatenate([self.ids, other.ids]),
            self.masses + other.masses,
            self.rests + other.rests,
            self.tops + other.tops,
            np.unique(np.concatenate([self.whole, other.whole])),
            best=self.best or other.best,
        )

    def take(self, rows: ArrayLike) -> Reads:
        """Return the `Reads` of the given rows, int[k], which are distinct."""
        order = np.asarray(rows, dtype=np.int64)
        number = np.full(self.n_rows, -1, dtype=np.int64)
        number[order] = np.arange(len(order))
        owner, whole = number[self.owner], number[self.whole]
        to = number.tolist()
        return Reads(
            len(order),
            owner[owner >= 0],
            self.ids[owner >= 0],
            tuple(TokenSet(to[one.row], one.ids) for one in self.masses if to[one.row] >= 0),
            tuple(TokenSet(to[one.row], one.ids) for one in self.rests if to[one.row] >= 0),
            tuple(TopTokens(to[one.row], one.k, one.allowed) for one in self.tops if to[one.row] >= 0),
            whole[whole >= 0],
            best=self.best,
        )


class DenseRows:
    """Rows whose logits are in the host's memory.

    The n x V matrix of log-probabilities is never built. The normaliser of a row is
    computed when it is first needed, and kept.

    Args:
        matrix: float32[M, V], the logits.
        index: int64[n], the row of `matrix` for each wanted node (default: 0..M-1).
    """

    __slots__ = ("_index", "_matrix", "_normaliser")

    def __init__(self, matrix: LogitArray, index: ArrayLike | None = None) -> None:
        self._matrix = matrix
        self._index = np.arange(len(matrix)) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser: FloatArray = np.full(len(self._index), np.nan)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        return int(len(self._index) * self._matrix.shape[1] * self._matrix.itemsize)

    def check(self) -> None:
        self._normalisers(np.arange(len(self._index)))

    def _normalisers(self, rows: NDArray[np.int64]) -> FloatArray:
        """Return the log-sum-exp of these rows, float64 shaped like `rows`.

        Values computed before are reused.
        """
        values: FloatArray = self._normaliser[rows]
        unread = np.isnan(values)
        if unread.any():
            todo = np.unique(rows[unread])
            self._normaliser[todo] = numerics.logsumexp_rows(self._matrix, self._index[todo])
            values = self._normaliser[rows]
        return values

    def logsumexp(self, i: int) -> float:
        """Return the log of the sum of exponentials of row i's logits."""
        return float(self._normalisers(np.array([i]))[0])

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64)
        return np.asarray(self._matrix[self._index[rows], ids].astype(np.float64) - self._normalisers(rows))

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        return numerics.logsumexp(self.logp(i, token_ids))

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        # Summed from positive terms, because 1 - sum rounds badly.
        normaliser = self.logsumexp(i)
        return numerics.logsumexp_without(self.logits(i), np.asarray(token_ids, dtype=np.int64)) - normaliser

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        normaliser = self.logsumexp(i)
        logits = self.logits(i)
        ids = _top_allowed(logits, k, allowed)
        return ids, logits[ids].astype(np.float64) - normaliser

    def best(self) -> IntArray:
        self._normalisers(np.arange(len(self._index)))
        return numerics.argmax_rows(self._matrix, self._index)

    def logits(self, i: int) -> LogitArray:
        """Return the raw, unchecked float32[V] logits of wanted node i, as a view."""
        row: LogitArray = self._matrix[self._index[i]]
        return row

    def slice(self, start: int, stop: int) -> DenseRows:
        """Return the rows of the wanted nodes start..stop as a view.

        The view shares this one's buffer. A normaliser that either of them computes is
        known to both.
        """
        part = DenseRows(self._matrix, self._index[start:stop])
        part._normaliser = self._normaliser[start:stop]
        return part

    def take(self, order: ArrayLike) -> DenseRows:
        """Return the rows of the wanted nodes `order`, int[n], as a view.

        The view shares this one's buffer and copies the normalisers known so far.
        """
        picked = np.asarray(order, dtype=np.int64)
        part = DenseRows(self._matrix, self._index[picked])
        part._normaliser = self._normaliser[picked]
        return part

    def copy(self) -> DenseRows:
        return self.stacked([])

    def stacked(self, others: Sequence[DenseRows]) -> DenseRows:
        parts = [self, *others]
        stacked = DenseRows(np.concatenate([part._matrix[part._index] for part in parts]))
        stacked._normaliser = np.concatenate([part._normaliser for part in parts])
        return stacked

    def fetch(self, reads: Callable[[], Reads]) -> DenseRows:  # noqa: ARG002 - everything can be read
        return self


def _top_allowed(logits: LogitArray, k: int, allowed: BoolArray | IntArray | None) -> IntArray:
    """Return the ids of the k largest finite logits of allowed tokens, largest first.

    The `_AHEAD * k` largest of the whole vocabulary are looked at first. If k of them
    are allowed, they are the result, and the allowed tokens need not be gathered.
    """
    if allowed is not None and allowed.dtype == np.bool_:
        ids = numerics.top_k(logits, _AHEAD * k)
        ids = ids[allowed[ids]]
        if len(ids) >= k:
            return ids[:k]
    return numerics.top_k(logits, k, allowed)


class PartialRows:
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
        wanted = _pair(rows, ids)
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
        pairs = _pair(reads.owner, reads.ids)
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


def _pair(rows: Indices, ids: NDArray[np.integer]) -> Indices:
    """Return one number for each pair of row and token, ordered by row, then token."""
    return (rows.astype(np.int64) << 32) | ids.astype(np.int64)


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
