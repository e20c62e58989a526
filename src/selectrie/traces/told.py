"""The values that a task is told, from rows to the fields of a `Step`.

The thread that runs tasks copies the values (`copied_values`). All that can wait is
done later by the thread that writes the trace (`told_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from selectrie.core.partial_rows import BoundedRows
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import DenseRows, Reads, Rows, TokenSet
from selectrie.core.types import BoolArray, FloatArray, IntArray, LogitArray
from selectrie.traces.records import NO_SET, TokenIds, WholeRow
from selectrie.traces.sets import MAX_LISTED, allowed_key, digest_of, ordered

_MAX_KEPT = 16
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_NO_LOGITS: LogitArray = np.empty(0, dtype=np.float32)
_NO_VALUES: FloatArray = np.empty(0)


class CopiedSet:
    """A copy of a set of tokens, and its record, which is made at the first use.

    Args:
        tokens: bool[V], or int32[] ids.
        is_sum: Whether it is a set whose sum is read, so that its order counts.
    """

    def __init__(self, tokens: BoolArray | IntArray, *, is_sum: bool) -> None:
        self.dtype, self.data, self._is_sum = tokens.dtype, tokens.tobytes(), is_sum

    @cached_property
    def record(self) -> TokenIds:
        """Return the set as a record."""
        tokens: Any = np.frombuffer(self.data, dtype=self.dtype)
        key = ordered(tokens)[0] if self._is_sum else allowed_key(tokens)
        size = int(np.count_nonzero(tokens)) if tokens.dtype == np.bool_ else len(tokens)
        listed: Any = _NO_IDS
        if size <= MAX_LISTED:
            listed = np.flatnonzero(tokens) if tokens.dtype == np.bool_ else tokens
        return TokenIds(size, _ids(listed), np.frombuffer(digest_of(key), dtype=np.uint8))


class AllowedSets:
    """Copies of the allowed sets that were used last.

    Steps mostly allow what others did, by the same array. It is compared with its copy
    each time, because a task may change it. Any thread may use them.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, CopiedSet]] = {}

    def copied(self, allowed: BoolArray | IntArray) -> CopiedSet:
        """Return a copy of an allowed set."""
        known = self._kept.get(id(allowed))
        if known is not None and known[0] is allowed and known[1].data == allowed.tobytes():
            return known[1]
        if len(self._kept) >= _MAX_KEPT:
            self._kept = {}
        copy = CopiedSet(allowed, is_sum=False)
        self._kept[id(allowed)] = allowed, copy  # with the array, so that no other gets its id
        return copy


@dataclass(frozen=True, slots=True, eq=False)
class CopiedSum:
    """The log of a summed probability, its row and its set."""

    row: int
    tokens: CopiedSet
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class CopiedTop:
    """Most probable tokens of a row.

    Attributes:
        row: The row.
        k: How many were asked for.
        allowed: The allowed set, or None for all.
        ids: The tokens.
        values: Their logits if the rows have them, else their log-probabilities.
    """

    row: int
    k: int
    allowed: CopiedSet | None
    ids: IntArray
    values: FloatArray | LogitArray


@dataclass(slots=True, eq=False)
class CopiedValues:
    """The values that a task was told, in memory of their own.

    Attributes:
        fields: Fields of `Step` that are ready.
        has_logits: Whether the rows had logits.
        masses, rests, tops, whole: The others.
        known: What is known of each row, if that is not all (`BoundedRows`).
    """

    fields: dict[str, Any]
    has_logits: bool = False
    masses: Sequence[CopiedSum] = ()
    rests: Sequence[CopiedSum] = ()
    tops: Sequence[CopiedTop] = ()
    whole: tuple[WholeRow, ...] = ()
    known: Sequence[RowBounds] = ()

    @property
    def nbytes(self) -> int:
        """Return roughly how many bytes they take."""
        n_bytes = 1 << 10
        if self.masses or self.rests or self.tops or self.whole or self.known:
            n_bytes += 64 * (len(self.masses) + len(self.rests) + len(self.tops))
            n_bytes += 8 * sum([len(one.ids) for one in self.tops])
            n_bytes += sum([one.logits.nbytes for one in self.whole]) + 12 * sum([len(one.ids) for one in self.known])
        return n_bytes + 12 * len(self.fields["ids"])


def copied_values(rows: Rows, reads: Reads, allowed: AllowedSets) -> CopiedValues:
    """Return the values of `rows` that `reads` names.

    Raises `NonFiniteLogitsError` if a row is not finite and anything is read.
    """
    fields: dict[str, Any] = {
        "n_rows": len(rows),
        "owner": _NO_IDS,
        "ids": _NO_IDS,
        "normaliser": _NO_VALUES,
        "logits": _NO_LOGITS,
        "logp": _NO_VALUES,
    }
    copied = CopiedValues(fields)
    if not (len(reads.ids) or reads.masses or reads.rests or reads.tops or len(reads.whole) or reads.best):
        return copied
    if isinstance(rows, BoundedRows):
        copied.known = [rows.known(i) for i in range(len(rows))]
        return copied
    dense = rows if isinstance(rows, DenseRows) else None
    if dense is not None:
        copied.has_logits = True
        dense.keep_values()  # the task reads them next
        fields["normaliser"] = dense.normalisers()
    else:
        rows.check()
    if len(reads.ids):
        fields["owner"], fields["ids"] = _ids(reads.owner), _ids(reads.ids)
        if dense is not None:
            fields["logits"] = dense.logit(reads.owner, reads.ids)
        else:
            fields["logp"] = rows.logp(reads.owner, reads.ids)
    copied.masses = [CopiedSum(one.row, _sum_set(one), rows.log_mass(one.row, one.ids)) for one in reads.masses]
    copied.rests = [CopiedSum(one.row, _sum_set(one), rows.log_rest(one.row, one.ids)) for one in reads.rests]
    copied.tops = _copied_tops(rows, reads, allowed)
    copied.whole = tuple(_whole(rows, row) for row in reads.whole.tolist())
    if copied.whole:
        fields |= {"whole_rows": _ids(reads.whole), "whole": np.arange(len(copied.whole), dtype=np.int32)}
    if reads.best:
        fields |= {"has_best": True, "best": rows.best().copy()}
    return copied


def _sum_set(one: TokenSet) -> CopiedSet:
    return CopiedSet(np.ascontiguousarray(one.ids, dtype=np.int32), is_sum=True)


def _copied_tops(rows: Rows, reads: Reads, allowed: AllowedSets) -> list[CopiedTop]:
    found = []
    for one in reads.tops:
        ids, logp = rows.top(one.row, one.k, one.allowed)
        values = rows.logits(one.row)[ids] if isinstance(rows, DenseRows) else logp.copy()
        copy = None if one.allowed is None else allowed.copied(one.allowed)
        found.append(CopiedTop(one.row, one.k, copy, ids.copy(), values))
    return found


def _whole(rows: Rows, row: int) -> WholeRow:
    logits = rows.logits(row).copy()
    dense = rows if isinstance(rows, DenseRows) else None
    return WholeRow(DenseRows(logits[None, :]).logsumexp(0) if dense is None else dense.logsumexp(row), logits)


@dataclass(frozen=True, slots=True, eq=False)
class ToldRows:
    """The values of rows that a task was told, and the sets that they refer to.

    Attributes:
        fields: The fields of `Step` from `n_rows` on. The elements of `mass_sets`,
            `rest_sets` and `top_sets` are indices of `sets`; those of `whole`, of
            `whole`.
        sets: The sets, each once.
        whole: The rows that were read whole.
    """

    fields: dict[str, Any]
    sets: tuple[TokenIds, ...]
    whole: tuple[WholeRow, ...]


def told_rows(copied: CopiedValues) -> ToldRows:
    """Return the values that were copied, as the fields of a step."""
    fields, sets = copied.fields, _Sets()
    if copied.known:
        fields = fields | _bounded_fields(copied.known)
    if copied.masses:
        fields = fields | _sum_fields("mass", "masses", copied.masses, sets)
    if copied.rests:
        fields = fields | _sum_fields("rest", "rests", copied.rests, sets)
    if copied.tops:
        fields = fields | _top_fields(copied.tops, "top_logits" if copied.has_logits else "top_logp", sets)
    return ToldRows(fields, tuple(sets.records), copied.whole)


def _sum_fields(name: str, values: str, sums: Sequence[CopiedSum], sets: _Sets) -> dict[str, Any]:
    return {
        f"{name}_rows": _ids([one.row for one in sums]),
        f"{name}_sets": _ids([sets.number(one.tokens) for one in sums]),
        values: np.array([one.value for one in sums], dtype=np.float64),
    }


def _top_fields(tops: Sequence[CopiedTop], values: str, sets: _Sets) -> dict[str, Any]:
    return {
        "top_rows": _ids([one.row for one in tops]),
        "top_counts": _ids([one.k for one in tops]),
        "top_sets": _ids([NO_SET if one.allowed is None else sets.number(one.allowed) for one in tops]),
        "top_lengths": _ids([len(one.ids) for one in tops]),
        "top_ids": np.concatenate([one.ids for one in tops]),
        values: np.concatenate([one.values for one in tops]),
    }


def _bounded_fields(known: Sequence[RowBounds]) -> dict[str, Any]:
    return {
        "known_lengths": _ids([len(one.ids) for one in known]),
        "known_ids": np.concatenate([_NO_IDS, *(one.ids for one in known)]),
        "known_logp": np.concatenate([_NO_VALUES, *(one.logp for one in known)]),
        "rest_low": np.array([one.log_rest[0] for one in known], dtype=np.float64),
        "rest_high": np.array([one.log_rest[1] for one in known], dtype=np.float64),
        "rest_max": np.array([one.rest_max for one in known], dtype=np.float64),
    }


def _ids(values: Any) -> IntArray:
    return np.array(values, dtype=np.int32)


class _Sets:
    """Numbers the sets of one step."""

    def __init__(self) -> None:
        self.records: list[TokenIds] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, one: CopiedSet) -> int:
        record = one.record
        number = self._numbers.setdefault(record.digest.tobytes(), len(self.records))
        if number == len(self.records):
            self.records.append(record)
        return number
