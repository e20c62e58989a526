"""The values that a task was told, from rows to the fields of a `Step` and back.

Log-probabilities of rows with logits are kept as float32 logits and a float64
normaliser, whose difference they are; so half of the bytes are needed. Others are kept
as float64. Sums over sets, which no few numbers give back, are kept as they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.core.bounded_rows import BoundedRows, merged
from selectrie.core.partial_rows import PartialRows, pair_keys
from selectrie.core.path_model import PartialRow
from selectrie.core.reads import Reads, TokenSet
from selectrie.core.rows import DenseRows, Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.traces.records import NO_SET, Step, TokenIds, WholeRow

MAX_LISTED = 64
"""Sets of more tokens are kept as their digest, from which they are recognised."""

_DIGEST_BYTES = 16
_SUMS = {"mass": "masses", "rest": "rests"}
EVERY_TOKEN = b""
"""Digest of the set of all tokens, as of an allowed set that is None."""


class NotRecordedError(LookupError):
    """A value of a row is not in the trace.

    Attributes:
        row: The number of the row among those that were asked for.
        what: The value, in words.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


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


def told_rows(rows: Rows, reads: Reads) -> ToldRows:
    """Return the values of `rows` that `reads` names, in memory of their own.

    Raises `NonFiniteLogitsError` if a row is not finite and anything is read.
    """
    n = len(rows)
    if not (len(reads.ids) or reads.masses or reads.rests or reads.tops or len(reads.whole) or reads.best):
        return ToldRows(_fields(n), (), ())
    if isinstance(rows, BoundedRows):
        return ToldRows(_fields(n) | _bounded_fields(rows), (), ())
    dense = rows if isinstance(rows, DenseRows) else None
    if dense is not None:
        dense.keep_values()  # the task reads them next
    rows.check()
    fields, sets = _fields(n), _Sets()
    whole: tuple[WholeRow, ...] = ()
    if dense is not None:
        fields["normaliser"] = dense.normalisers()
    if len(reads.ids):
        fields |= {"owner": _ids(reads.owner), "ids": _ids(reads.ids)}
        if dense is not None:
            fields["logits"] = dense.logit(reads.owner, reads.ids)
        else:
            fields["logp"] = rows.logp(reads.owner, reads.ids)
    fields |= _sum_fields("mass", reads.masses, rows.log_mass, sets)
    fields |= _sum_fields("rest", reads.rests, rows.log_rest, sets)
    if reads.tops:
        fields |= _top_fields(rows, reads, sets)
    if len(reads.whole):
        whole = tuple(_whole(rows, row) for row in reads.whole.tolist())
        fields |= {"whole_rows": _ids(reads.whole), "whole": _ids(range(len(whole)))}
    if reads.best:
        fields |= {"has_best": True, "best": rows.best().copy()}
    return ToldRows(fields, tuple(sets.found.values()), whole)


def _sum_fields(
    name: str, parts: Sequence[TokenSet], value: Callable[[int, IntArray], float], sets: _Sets
) -> dict[str, Any]:
    if not parts:
        return {}
    return {
        f"{name}_rows": _ids([one.row for one in parts]),
        f"{name}_sets": _ids([sets.number(*ordered(one.ids)) for one in parts]),
        _SUMS[name]: np.array([value(one.row, one.ids) for one in parts], dtype=np.float64),
    }


def _top_fields(rows: Rows, reads: Reads, sets: _Sets) -> dict[str, Any]:
    tops = [rows.top(one.row, one.k, one.allowed) for one in reads.tops]
    of_rows, lengths = _ids([one.row for one in reads.tops]), _ids([len(ids) for ids, _ in tops])
    ids = np.concatenate([ids for ids, _ in tops])
    fields: dict[str, Any] = {
        "top_rows": of_rows,
        "top_counts": _ids([one.k for one in reads.tops]),
        "top_sets": _ids([sets.of_allowed(one.allowed) for one in reads.tops]),
        "top_lengths": lengths,
        "top_ids": ids,
    }
    if isinstance(rows, DenseRows):
        fields["top_logits"] = rows.logit(np.repeat(of_rows, lengths), ids)
    else:
        fields["top_logp"] = np.concatenate([logp for _, logp in tops])
    return fields


_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_NO_LOGITS = np.empty(0, dtype=np.float32)
_NO_VALUES = np.empty(0)


def _fields(n_rows: int) -> dict[str, Any]:
    """Return the fields of a step of which nothing is read."""
    return {
        "n_rows": n_rows,
        "owner": _NO_IDS,
        "ids": _NO_IDS,
        "normaliser": _NO_VALUES,
        "logits": _NO_LOGITS,
        "logp": _NO_VALUES,
    }


def _bounded_fields(rows: BoundedRows) -> dict[str, Any]:
    known = [rows.known(i) for i in range(len(rows))]
    return {
        "known_lengths": _ids([len(one.ids) for one in known]),
        "known_ids": np.concatenate([_ids([]), *(one.ids for one in known)]),
        "known_logp": np.concatenate([np.empty(0), *(one.logp for one in known)]),
        "rest_low": np.array([one.log_rest[0] for one in known], dtype=np.float64),
        "rest_high": np.array([one.log_rest[1] for one in known], dtype=np.float64),
        "rest_max": np.array([one.rest_max for one in known], dtype=np.float64),
    }


def _ids(values: Any) -> IntArray:
    return np.array(values, dtype=np.int32)


def _whole(rows: Rows, row: int) -> WholeRow:
    if isinstance(rows, DenseRows):
        return WholeRow(rows.logsumexp(row), rows.logits(row).copy())
    logits = rows.logits(row).copy()
    return WholeRow(DenseRows(logits[None, :]).logsumexp(0), logits)


def ordered(ids: IntArray) -> tuple[bytes, IntArray]:
    """Return the bytes by which a set whose sum is read is known, and its tokens.

    The order of the tokens is part of it, because a sum has other bits in another.
    """
    tokens = np.ascontiguousarray(ids, dtype=np.int32)
    return b"s" + tokens.tobytes(), tokens


def allowed_key(allowed: BoolArray | IntArray) -> bytes:
    """Return the bytes by which an allowed set of `Rows.top` is known."""
    tokens = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else np.unique(allowed)
    return b"a" + tokens.astype(np.int32).tobytes()


def digest_of(key: bytes) -> bytes:
    """Return the digest of a set, from the bytes by which it is known."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class _Sets:
    """Numbers the sets of one step."""

    def __init__(self) -> None:
        self.found: dict[bytes, TokenIds] = {}
        self._numbers: dict[bytes, int] = {}

    def number(self, key: bytes, tokens: IntArray) -> int:
        digest = digest_of(key)
        if digest not in self.found:
            self._numbers[digest] = len(self.found)
            listed = tokens if len(tokens) <= MAX_LISTED else tokens[:0]
            self.found[digest] = TokenIds(len(tokens), listed.copy(), np.frombuffer(digest, dtype=np.uint8))
        return self._numbers[digest]

    def of_allowed(self, allowed: BoolArray | IntArray | None) -> int:
        if allowed is None:
            return NO_SET
        key = allowed_key(allowed)
        return self.number(key, np.frombuffer(key, dtype=np.int32, offset=1))


class StepValues:
    """The values of the rows of one step, by what was read.

    Args:
        step: The step.
        sets: The digests of the sets that it refers to, by their numbers.
        whole: Returns the whole row of a number.
    """

    def __init__(self, step: Step, sets: Sequence[bytes], whole: Callable[[int], WholeRow]) -> None:
        self.step, self._sets, self._whole_row = step, sets, whole

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
        """Return the sorted pairs, their positions, and the log-probability of each."""
        step = self.step
        pairs = pair_keys(step.owner.astype(np.int64), step.ids)
        order = np.argsort(pairs, kind="stable")
        logp = step.logp
        if len(step.normaliser):
            logp = step.logits.astype(np.float64) - step.normaliser[step.owner]
        return pairs[order], order, logp

    def logp(self, owner: NDArray[np.int64], ids: IntArray) -> tuple[FloatArray, BoolArray]:
        """Return the log-probabilities of pairs, and which of them are known."""
        sorted_pairs, order, logp = self._order
        wanted = pair_keys(owner, ids)
        result = np.full(len(wanted), np.nan)
        if not len(sorted_pairs):
            return result, np.zeros(len(wanted), dtype=np.bool_)
        at = np.minimum(np.searchsorted(sorted_pairs, wanted), len(sorted_pairs) - 1)
        is_known = sorted_pairs[at] == wanted
        result[is_known] = logp[order[at[is_known]]]
        return result, is_known

    @cached_property
    def masses(self) -> Mapping[tuple[int, bytes], float]:
        """Return sums over sets, by row and digest of the set."""
        step = self.step
        return self._sums(step.mass_rows, step.mass_sets, step.masses)

    @cached_property
    def rests(self) -> Mapping[tuple[int, bytes], float]:
        """Return sums over what is outside of sets, by row and digest of the set."""
        step = self.step
        return self._sums(step.rest_rows, step.rest_sets, step.rests)

    def _sums(self, rows: IntArray, sets: IntArray, values: FloatArray) -> Mapping[tuple[int, bytes], float]:
        keys = zip(rows.tolist(), (self._sets[number] for number in sets.tolist()), strict=True)
        return dict(zip(keys, values.tolist(), strict=True))

    @cached_property
    def tops(self) -> Mapping[tuple[int, bytes], tuple[int, IntArray, FloatArray]]:
        """Return most probable tokens by row and digest of the allowed set.

        The values are how many were asked for, their ids and their log-probabilities,
        of the longest of equal ones.
        """
        step = self.step
        ends = np.cumsum(step.top_lengths, dtype=np.int64)
        logp = step.top_logp
        if len(step.normaliser):
            logp = step.top_logits.astype(np.float64) - step.normaliser[np.repeat(step.top_rows, step.top_lengths)]
        found: dict[tuple[int, bytes], tuple[int, IntArray, FloatArray]] = {}
        columns = (step.top_rows, step.top_counts, step.top_sets, ends - step.top_lengths, ends)
        for row, k, number, start, end in zip(*(column.tolist() for column in columns), strict=True):
            key = row, EVERY_TOKEN if number == NO_SET else self._sets[number]
            if key not in found or found[key][0] < k:
                found[key] = k, step.top_ids[start:end], logp[start:end]
        return found

    def whole(self, row: int) -> WholeRow | None:
        """Return all values of a row, or None if it was not read whole."""
        at = np.flatnonzero(self.step.whole_rows == row)
        return self._whole_row(int(self.step.whole[at[0]])) if len(at) else None

    def known(self, row: int) -> PartialRow | None:
        """Return what is known of a row of which not all is known, or None."""
        step = self.step
        if not len(step.rest_max):
            return None
        end = int(step.known_lengths[: row + 1].sum(dtype=np.int64))
        part = slice(end - int(step.known_lengths[row]), end)
        bounds = float(step.rest_low[row]), float(step.rest_high[row])
        return PartialRow(step.known_ids[part], step.known_logp[part], bounds, float(step.rest_max[row]))

    def best(self, row: int) -> int | None:
        """Return the most probable token of a row, or None if it was not read."""
        return int(self.step.best[row]) if self.step.has_best else None


Source = tuple[StepValues, int]
"""A step and the number of a row in it."""


def rebuilt(reads: Reads, sources: Sequence[Sequence[Source]], n_tokens: int) -> PartialRows | BoundedRows:
    """Return the values that `reads` names.

    Rows of which not all is known come back as they were, with their bounds.

    Args:
        reads: What is read.
        n_tokens: Number of tokens of the vocabulary.
        sources: For each row, where it was recorded; a value comes from the first
            source that has it.

    Raises:
        NotRecordedError: If no source has a value.
    """
    known = [[one for one in (step.known(row) for step, row in several) if one is not None] for several in sources]
    if any(known):
        return _bounded(reads, known, n_tokens)
    return _Rebuilding(reads, sources).rows()


def _bounded(reads: Reads, known: Sequence[Sequence[PartialRow]], n_tokens: int) -> BoundedRows:
    """Return rows of which not all is known, from what is known of each."""
    for row, several in enumerate(known):
        if not several:
            raise NotRecordedError(row, "anything")
    rows = [merged(several, n_tokens) for several in known]
    if len(reads.whole):
        raise NotRecordedError(int(reads.whole[0]), "all of its values")
    for row, token in zip(reads.owner.tolist(), reads.ids.tolist(), strict=True):
        ids = rows[row].ids
        at = int(np.searchsorted(ids, token))
        if rows[row].log_rest[1] > -np.inf and (at == len(ids) or ids[at] != token):
            raise NotRecordedError(row, f"the log-probability of token {token}")
    return BoundedRows(rows, n_tokens)


class _Rebuilding:
    def __init__(self, reads: Reads, sources: Sequence[Sequence[Source]]) -> None:
        self._reads, self._sources = reads, sources
        self._dense: dict[int, DenseRows] = {}

    def rows(self) -> PartialRows:
        reads = self._reads
        whole = [self._whole_row(row, "all of its values") for row in reads.whole.tolist()]
        return PartialRows(
            reads,
            logp=self._logp(),
            masses=[self._sum(one.row, one.ids, "masses") for one in reads.masses],
            rests=[self._sum(one.row, one.ids, "rests") for one in reads.rests],
            tops=[self._top(one.row, one.k, one.allowed) for one in reads.tops],
            whole=whole[0].stacked(whole[1:]) if whole else DenseRows(np.empty((0, 0), dtype=np.float32)),
            best=_ids([self._best(row) for row in range(reads.n_rows)]) if reads.best else None,
        )

    def _logp(self) -> FloatArray:
        reads = self._reads
        result = np.full(len(reads.ids), np.nan)
        left = np.ones(len(reads.ids), dtype=np.bool_)
        for step, rows in self._by_step():
            here = np.flatnonzero(left & np.isin(reads.owner, list(rows)))
            own = np.array([rows[row] for row in reads.owner[here].tolist()], dtype=np.int64)
            values, is_known = step.logp(own, reads.ids[here])
            result[here[is_known]] = values[is_known]
            left[here[is_known]] = False
            if not left.any():
                return result
        for at in np.flatnonzero(left).tolist():
            row, token = int(reads.owner[at]), int(reads.ids[at])
            result[at] = self._whole_row(row, f"the log-probability of token {token}").logp(0, token)
        return result

    def _by_step(self) -> list[tuple[StepValues, dict[int, int]]]:
        """Return each step with the rows that it is a source of: row → row in it."""
        found: dict[int, tuple[StepValues, dict[int, int]]] = {}
        for row, several in enumerate(self._sources):
            for step, own in several:
                found.setdefault(id(step), (step, {}))[1].setdefault(row, own)
        return list(found.values())

    def _sum(self, row: int, ids: IntArray, kind: str) -> float:
        key = digest_of(ordered(ids)[0])
        for step, own in self._sources[row]:
            value = getattr(step, kind).get((own, key))
            if value is not None:
                return float(value)
        what = f"the summed probability of {len(ids)} tokens"
        dense = self._whole_row(row, what if kind == "masses" else f"{what} that it is not")
        return dense.log_mass(0, ids) if kind == "masses" else dense.log_rest(0, ids)

    def _top(self, row: int, k: int, allowed: BoolArray | IntArray | None) -> tuple[IntArray, FloatArray]:
        key = EVERY_TOKEN if allowed is None else digest_of(allowed_key(allowed))
        for step, own in self._sources[row]:
            found = step.tops.get((own, key))
            # Fewer tokens than were asked for are all there are.
            if found is not None and (k <= found[0] or len(found[1]) < found[0]):
                return found[1][:k], found[2][:k]
        return self._whole_row(row, f"the {k} most probable tokens").top(0, k, allowed)

    def _best(self, row: int) -> int:
        for step, own in self._sources[row]:
            value = step.best(own)
            if value is not None:
                return value
        return int(self._whole_row(row, "the most probable token").best()[0])

    def _whole_row(self, row: int, what: str) -> DenseRows:
        if row not in self._dense:
            whole = next(
                (one for one in (step.whole(own) for step, own in self._sources[row]) if one is not None), None
            )
            if whole is None:
                raise NotRecordedError(row, what)
            self._dense[row] = DenseRows(whole.logits[None, :], None, np.array([whole.normaliser]))
        return self._dense[row]
