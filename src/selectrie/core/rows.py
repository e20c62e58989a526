"""The rows of a model call, and the values that a task reads from them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import NonFiniteLogitsError

Indices = NDArray[np.int64]

_NO_INDICES: Indices = np.empty(0, dtype=np.int64)
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class TokenSet:
    """A row and some tokens, whose summed probability in that row is read.

    `ids` are int32[], distinct.
    """

    row: int
    ids: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TopTokens:
    """A row and the number of its most probable tokens that are read.

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
        rests: Iterable[IntArray] = (),
        tops: Iterable[tuple[int, BoolArray | IntArray | None]] = (),
    ) -> Reads:
        """Return the `Reads` of a single row.

        Args:
            ids: Tokens whose log-probability is read.
            masses: Sets of tokens whose summed probability is read.
            rests: Sets of tokens; the summed probability of all others is read.
            tops: Pairs of `k` and `allowed` of the most probable tokens that are read.
        """
        return Reads(
            1,
            np.zeros(len(ids), dtype=np.int64),
            ids,
            masses=tuple(TokenSet(0, np.asarray(one, dtype=np.int32)) for one in masses),
            rests=tuple(TokenSet(0, np.asarray(one, dtype=np.int32)) for one in rests),
            tops=tuple(TopTokens(0, k, allowed) for k, allowed in tops),
        )

    @staticmethod
    def everything(n: int) -> Reads:
        """Return `Reads` that allow any value of n rows to be read."""
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
        """Return the `Reads` of some distinct rows, int[k], in the given order."""
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


RowsT = TypeVar("RowsT", bound="Rows")
ValueT = TypeVar("ValueT")

_AHEAD = 4
"""Factor on k: the `_AHEAD * k` most probable tokens of all are looked at first.

If k of them are allowed, the allowed tokens need not be gathered.
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
        """Return the approximate number of bytes of a copy."""
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

    def log_mass_bounds(self, i: int, token_ids: ArrayLike) -> tuple[float, float]:
        """Return a lower and an upper bound on `log_mass`.

        They are equal, and the value of `log_mass`, unless some of the tokens were not
        read. `log_mass` then raises `UnreadRowError`.
        """
        ...

    def log_rest_bounds(self, i: int, token_ids: ArrayLike) -> tuple[float, float]:
        """Return a lower and an upper bound on `log_rest`, as `log_mass_bounds`."""
        ...

    def unseen_max(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> float:
        """Return an upper bound on the log-probability of tokens that `top` leaves out.

        No allowed token that is missing from `top(i, k, allowed)` is more
        probable. The bound is -inf if none is missing.
        """
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
        """Return the same rows in separate memory."""
        ...

    def stacked(self: RowsT, others: Sequence[RowsT]) -> RowsT:  # noqa: PYI019 - as above
        """Return a copy of these rows, followed by the rows `others` of other calls."""
        ...

    def fetch(self, reads: Callable[[], Reads]) -> Rows:
        """Return rows that hold the values of `reads()`, ready to be read.

        Rows whose logits are elsewhere compute all of them there and return
        `SelectedRows`. Rows that can be read where they are return themselves, and do
        not call `reads`. It can be called more than once.
        """
        ...


class KnownRows(ABC):
    """Base class of rows in which a mass has its exact value or cannot be read.

    Both bounds of a mass are then that value.
    """

    __slots__ = ()

    @abstractmethod
    def log_mass(self, i: int, token_ids: ArrayLike) -> float: ...

    @abstractmethod
    def log_rest(self, i: int, token_ids: ArrayLike) -> float: ...

    @abstractmethod
    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]: ...

    def log_mass_bounds(self, i: int, token_ids: ArrayLike) -> tuple[float, float]:
        return (self.log_mass(i, token_ids),) * 2

    def log_rest_bounds(self, i: int, token_ids: ArrayLike) -> tuple[float, float]:
        return (self.log_rest(i, token_ids),) * 2

    def unseen_max(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> float:
        logp = self.top(i, k, allowed)[1]
        return float(logp[-1]) if len(logp) == k else -np.inf


class DenseRows(KnownRows):
    """Rows whose logits are in the host's memory.

    The n x V matrix of log-probabilities is never built. The normaliser of a row is
    computed when it is first needed, and kept.

    Args:
        matrix: float32[M, V], the logits.
        index: int64[n], the row of `matrix` for each wanted node (default: 0..M-1).
        normalisers: float64[n], the log-sum-exp of each row, if known. Not copied.
    """

    __slots__ = ("_are_known", "_call", "_index", "_kept", "_matrix", "_normaliser")

    def __init__(
        self, matrix: LogitArray, index: ArrayLike | None = None, normalisers: FloatArray | None = None
    ) -> None:
        self._matrix = matrix
        self._index = np.arange(len(matrix)) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser: FloatArray = np.full(len(self._index), np.nan) if normalisers is None else normalisers
        self._call: DenseRows | None = None
        """The rows of the whole call, whose normalisers are computed together."""
        self._kept: dict[tuple[str, int, int, int], tuple[object, Any]] | None = None
        self._are_known = False
        """Whether all normalisers are known, and none is NaN."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        return int(len(self._index) * self._matrix.shape[1] * self._matrix.itemsize)

    def check(self) -> None:
        if not self._are_known and not self._read_ahead():
            unread = np.flatnonzero(np.isnan(self._normaliser))
            if len(unread):
                self._normaliser[unread] = numerics.logsumexp_rows(self._matrix, self._index[unread])
            self._are_known = True

    def _normalisers(self, rows: NDArray[np.int64]) -> FloatArray:
        """Return the log-sum-exp of these rows, float64 shaped like `rows`.

        Values computed before are reused.
        """
        if self._are_known or self._read_ahead():
            return np.asarray(self._normaliser[rows])
        values: FloatArray = self._normaliser[rows]
        unread = np.isnan(values)
        if unread.any():
            todo = np.unique(rows[unread])
            self._normaliser[todo] = numerics.logsumexp_rows(self._matrix, self._index[todo])
            values = self._normaliser[rows]
        return values

    def _read_ahead(self) -> bool:
        """Compute the normalisers of the whole call; return whether they are known.

        If a row of the call is not finite, the result is False, and the normalisers of
        all finite rows are set.
        """
        call, self._call = self._call, None
        if call is None:
            return False
        try:
            call.check()
        except NonFiniteLogitsError:
            for i in np.flatnonzero(np.isnan(call._normaliser)):
                with suppress(NonFiniteLogitsError):
                    call._normaliser[i] = numerics.logsumexp_rows(call._matrix, call._index[i : i + 1])[0]
            return False
        self._are_known = True
        return True

    def logsumexp(self, i: int) -> float:
        """Return the log of the sum of exponentials of row i's logits."""
        value = self._normaliser.item(i)
        return float(self._normalisers(np.array([i]))[0]) if math.isnan(value) else value

    def normalisers(self) -> FloatArray:
        """Return the log-sum-exp of each row's logits, float64[n]."""
        self.check()
        return np.array(self._normaliser)

    def logit(self, i: ArrayLike, token_ids: ArrayLike) -> LogitArray:
        """Return the float32 logits of `token_ids` after wanted nodes `i`, unchecked.

        The two arguments broadcast against each other.
        """
        rows, ids = np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64)
        return np.asarray(self._matrix[self._index[rows], ids])

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows = np.asarray(i, dtype=np.int64)
        return np.asarray(self.logit(rows, token_ids).astype(np.float64) - self._normalisers(rows))

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        if self._kept is None:
            return numerics.logsumexp(self.logp(i, token_ids))
        return self._compute_once("mass", i, 0, token_ids, lambda: numerics.logsumexp(self.logp(i, token_ids)))

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        return self._compute_once("rest", i, 0, token_ids, lambda: self._rest(i, token_ids))

    def _rest(self, i: int, token_ids: ArrayLike) -> float:
        """Compute the log of the summed probability of all tokens but `token_ids`."""
        # Summed from positive terms, because 1 - sum rounds badly.
        normaliser = self.logsumexp(i)
        return numerics.logsumexp_without(self.logits(i), np.asarray(token_ids, dtype=np.int64)) - normaliser

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        return self._compute_once("top", i, k, allowed, lambda: self._top(i, k, allowed))

    def _top(self, i: int, k: int, allowed: BoolArray | IntArray | None) -> tuple[IntArray, FloatArray]:
        """Compute the ids and log-probabilities of the k most probable tokens."""
        normaliser = self.logsumexp(i)
        logits = self.logits(i)
        ids = _top_allowed(logits, k, allowed)
        return ids, logits[ids].astype(np.float64) - normaliser

    def best(self) -> IntArray:
        return self._compute_once("best", 0, 0, None, self._best)

    def _best(self) -> IntArray:
        """Compute the most probable token of each row, after checking the rows."""
        self._normalisers(np.arange(len(self._index)))
        return numerics.argmax_rows(self._matrix, self._index)

    def keep_values(self) -> None:
        """Cache every value that is read from now on, for rows that are read twice.

        A set of tokens is identified by the object that holds it, which must
        not change.
        """
        self._kept = {}

    def _compute_once(self, name: str, i: int, k: int, ids: object, compute: Callable[[], ValueT]) -> ValueT:
        """Return `compute()`, or its earlier result if values are cached."""
        kept = self._kept
        if kept is None:
            return compute()
        key = name, i, k, id(ids)
        if key not in kept:
            kept[key] = ids, compute()  # with the object, so that no other gets its id
        value: ValueT = kept[key][1]
        return value

    def logits(self, i: int) -> LogitArray:
        """Return the raw, unchecked float32[V] logits of wanted node i, as a view."""
        row: LogitArray = self._matrix[self._index[i]]
        return row

    def slice(self, start: int, stop: int) -> DenseRows:
        """Return the rows of the wanted nodes start..stop as a view.

        The view shares this one's buffer. A normaliser that either of them computes is
        known to both, and the view computes those of all rows together.
        """
        part = DenseRows.__new__(DenseRows)  # `__init__` would make another array
        part._matrix, part._index = self._matrix, self._index[start:stop]
        part._normaliser = self._normaliser[start:stop]
        part._call, part._are_known, part._kept = self, self._are_known, None
        return part

    def take(self, order: ArrayLike) -> DenseRows:
        """Return the rows of the wanted nodes `order`, int[n], as a view.

        The view shares this one's buffer and copies the normalisers known so far.
        """
        picked = np.asarray(order, dtype=np.int64)
        part = DenseRows(self._matrix, self._index[picked])
        part._normaliser, part._are_known = self._normaliser[picked], self._are_known
        return part

    def copy(self) -> DenseRows:
        return self.stacked([])

    def stacked(self, others: Sequence[DenseRows]) -> DenseRows:
        parts = [self, *others]
        copies = [part._matrix[part._index] for part in parts]
        stacked = DenseRows(np.concatenate(copies) if others else copies[0])
        stacked._normaliser = np.concatenate([part._normaliser for part in parts])
        stacked._are_known = all(part._are_known for part in parts)
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
