"""The values that a task was told, from the fields of a `Step` back to rows.

Log-probabilities of rows with logits are kept as float32 logits and a float64
normaliser, whose difference they are; so half of the bytes are needed. Others are kept
as float64. Sums over sets, which no few numbers give back, are kept as they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from selectrie.core.partial_rows import BoundedRows, SelectedRows, merged, pair_keys
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import DenseRows, Reads
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.traces.records import NO_SET, Step, WholeRow
from selectrie.traces.sets import EVERY_TOKEN, allowed_key, digest_of, ordered


class NotRecordedError(LookupError):
    """A value of a row is not in the trace.

    Attributes:
        row: The number of the row among those that were asked for.
        what: The value, in words.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


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

    def known(self, row: int) -> RowBounds | None:
        """Return what is known of a row of which not all is known, or None."""
        step = self.step
        if not len(step.rest_max):
            return None
        end = int(step.known_lengths[: row + 1].sum(dtype=np.int64))
        part = slice(end - int(step.known_lengths[row]), end)
        bounds = float(step.rest_low[row]), float(step.rest_high[row])
        return RowBounds(step.known_ids[part], step.known_logp[part], bounds, float(step.rest_max[row]))

    def best(self, row: int) -> int | None:
        """Return the most probable token of a row, or None if it was not read."""
        return int(self.step.best[row]) if self.step.has_best else None


Source = tuple[StepValues, int]
"""A step and the number of a row in it."""


def rebuilt(reads: Reads, sources: Sequence[Sequence[Source]], n_tokens: int) -> SelectedRows | BoundedRows:
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


def _bounded(reads: Reads, known: Sequence[Sequence[RowBounds]], n_tokens: int) -> BoundedRows:
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

    def rows(self) -> SelectedRows:
        reads = self._reads
        whole = [self._whole_row(row, "all of its values") for row in reads.whole.tolist()]
        return SelectedRows(
            reads,
            logp=self._logp(),
            masses=[self._sum(one.row, one.ids, "masses") for one in reads.masses],
            rests=[self._sum(one.row, one.ids, "rests") for one in reads.rests],
            tops=[self._top(one.row, one.k, one.allowed) for one in reads.tops],
            whole=whole[0].stacked(whole[1:]) if whole else DenseRows(np.empty((0, 0), dtype=np.float32)),
            best=np.array([self._best(row) for row in range(reads.n_rows)], dtype=np.int32) if reads.best else None,
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
