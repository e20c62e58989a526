"""Rows of which some tokens are known, and bounds on all others.

They are what a server says about rows (`path_model.PartialRow`), read as any rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.partial_rows import pair_keys
from selectrie.core.path_model import PartialRow
from selectrie.core.reads import Indices, Reads
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.errors import UnreadRowError

ROUNDING = 1e-6
"""Nats by which a bound that was summed here is widened.

Dense rows sum exponentials of float32 numbers, whose rounding moves a sum by less than
5e-7 nats in either of two sums.
"""

Bounds = tuple[float, float]


class BoundedRows:
    """n rows of which some tokens are known, with bounds on the sum of all others.

    The log-probability of a known token, the mass of known tokens and the rest of
    exactly the known ones, if the row says it, have the bits of the rows from which
    they were taken. Other masses and rests raise `UnreadRowError`, and have bounds that
    contain the true values. `top` returns only the tokens that are certain: those more
    probable than any token can be that is not known. There are no logits.

    Args:
        rows: What is known of each row.
        n_tokens: Number of tokens of the vocabulary.
    """

    __slots__ = ("_n_tokens", "_rows", "_table")

    def __init__(self, rows: Sequence[PartialRow], n_tokens: int) -> None:
        self._rows, self._n_tokens = tuple(rows), n_tokens
        self._table: tuple[Indices, FloatArray] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return sum(row.ids.nbytes + row.logp.nbytes for row in self._rows)

    def known(self, i: int) -> PartialRow:
        """Return what is known of row i."""
        return self._rows[i]

    def check(self) -> None:
        """Do nothing: there are no logits to check."""

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        rows, ids = np.broadcast_arrays(np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64))
        pairs, logp = self._known()
        result, is_known = _looked_up(pairs, logp, pair_keys(rows, ids))
        for row, token in zip(rows[~is_known].tolist(), ids[~is_known].tolist(), strict=True):
            if _ceiling(self._rows[row]) > -np.inf:
                raise UnreadRowError(row, f"the log-probability of token {token}")
        return result

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        return self._exactly(i, self.log_mass_bounds(i, token_ids), f"the mass of {np.size(token_ids)} tokens")

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        return self._exactly(i, self.log_rest_bounds(i, token_ids), f"the mass beyond {np.size(token_ids)} tokens")

    def _exactly(self, i: int, bounds: Bounds, what: str) -> float:
        if bounds[0] != bounds[1]:
            raise UnreadRowError(i, what)
        return bounds[0]

    def log_mass_bounds(self, i: int, token_ids: ArrayLike) -> Bounds:
        row, ids = self._rows[i], np.asarray(token_ids, dtype=np.int64)
        logp, is_known = _looked_up(row.ids, row.logp, ids)
        if is_known.all() or _ceiling(row) == -np.inf:
            return (numerics.logsumexp(logp),) * 2
        n_unknown = len(ids) - int(np.count_nonzero(is_known))
        return _with_unknown(numerics.logsumexp(logp), row, n_unknown, self._n_tokens)

    def log_rest_bounds(self, i: int, token_ids: ArrayLike) -> Bounds:
        row, ids = self._rows[i], np.asarray(token_ids, dtype=np.int64)
        is_other = ~np.isin(row.ids, ids)
        n_known = len(row.ids) - int(np.count_nonzero(is_other))
        others = numerics.logsumexp(row.logp[is_other])
        n_unknown = self._n_tokens - len(row.ids) - (len(ids) - n_known)
        if others == -np.inf and (n_unknown == 0 or _ceiling(row) == -np.inf):
            return -np.inf, -np.inf
        if others == -np.inf and n_known == len(ids):
            return row.log_rest
        return _with_unknown(others, row, n_unknown, self._n_tokens)

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        ids, logp, unknown_max = self._ordered(i, allowed)
        n_certain = min(max(k, 0), int(np.count_nonzero(logp > unknown_max)))
        return ids[:n_certain], logp[:n_certain]

    def unseen_max(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> float:
        _, logp, unknown_max = self._ordered(i, allowed)
        n_certain = min(max(k, 0), int(np.count_nonzero(logp > unknown_max)))
        return max(unknown_max, float(logp[n_certain]) if n_certain < len(logp) else -np.inf)

    def _ordered(self, i: int, allowed: BoolArray | IntArray | None) -> tuple[IntArray, FloatArray, float]:
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
        unknown_max = _ceiling(row) if n_allowed > np.count_nonzero(is_allowed) else -np.inf
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

    def slice(self, start: int, stop: int) -> BoundedRows:
        return BoundedRows(self._rows[start:stop], self._n_tokens)

    def take(self, order: ArrayLike) -> BoundedRows:
        return BoundedRows([self._rows[i] for i in np.asarray(order, dtype=np.int64).tolist()], self._n_tokens)

    def copy(self) -> BoundedRows:
        return self  # the values are in memory of their own

    def stacked(self, others: Sequence[BoundedRows]) -> BoundedRows:
        return BoundedRows([row for part in (self, *others) for row in part._rows], self._n_tokens)

    def fetch(self, reads: Callable[[], Reads]) -> BoundedRows:  # noqa: ARG002 - nothing more can be read
        return self

    def _known(self) -> tuple[Indices, FloatArray]:
        """Return the known pairs of row and token, ascending, and their values."""
        if self._table is None:
            pairs = [pair_keys(np.int64(i), row.ids) for i, row in enumerate(self._rows)]
            self._table = (
                np.concatenate([np.empty(0, dtype=np.int64), *pairs]),
                np.concatenate([np.empty(0), *(row.logp for row in self._rows)]),
            )
        return self._table


def merged(rows: Sequence[PartialRow], n_tokens: int, tolerance: float = 0.0) -> PartialRow:
    """Return what several answers about the same row say together.

    A token that several of them hold has the value of the first.

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
        return PartialRow(ids, logp, (-np.inf, -np.inf), -np.inf)
    bounds = [_without(row, ids, logp, ROUNDING + tolerance) for row in rows]
    lows, highs = zip(*bounds, strict=True)
    ceilings = [_ceiling(row) for row in rows]
    if max(lows) > min(highs):  # the answers differ by more than the tolerance
        return PartialRow(ids, logp, (min(lows), max(highs)), max(ceilings))
    return PartialRow(ids, logp, (max(lows), min(highs)), min(ceilings))


def _without(row: PartialRow, ids: IntArray, logp: FloatArray, margin: float) -> Bounds:
    """Return bounds on the log of the rest of a row without `ids` that it has not."""
    more = numerics.logsumexp(logp[~np.isin(ids, row.ids)])
    if more == -np.inf:
        return row.log_rest
    low, high = row.log_rest
    return numerics.logdiffexp(low - margin, more + margin), numerics.logdiffexp(high + margin, more - margin)


def _looked_up(
    keys: NDArray[np.integer], values: FloatArray, wanted: NDArray[np.int64]
) -> tuple[FloatArray, BoolArray]:
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


def _ceiling(row: PartialRow) -> float:
    """Return an upper bound on the log-probability of each token that is not known."""
    return min(row.rest_max, row.log_rest[1])


def _with_unknown(known: float, row: PartialRow, n: int, n_tokens: int) -> Bounds:
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
