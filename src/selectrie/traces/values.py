"""The values of rows that tasks read: from rows to a `ReadStep`, and back.

The thread that runs tasks copies the values (`copy_step`). The thread that writes the
trace makes the records of token sets later.

A log-probability of a row with logits is stored as a float32 logit; it is the
difference of that and the row's float64 normaliser. This takes half of the bytes. Other
log-probabilities, and sums over sets, are stored as float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selectrie.core.partial_rows import BoundedRows, SelectedRows, merge_bounds, pair_keys
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import DenseRows, Reads, Rows
from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.traces.records import NO_SET, ReadStep, TokenIds, WholeRow

EVERY_TOKEN = b""
"""Stands for the digest of an allowed set that is None, which allows every token."""

DIGEST_BYTES = 16
"""Number of bytes of the digest that stands for a set of tokens."""
SIGNATURE_BYTES = 8
"""Number of bytes of a row's signature, which names the values that were read of it."""
_MAX_KEPT = 16
"""Number of kept copies of allowed sets at which all are dropped."""
_STEP_BYTES = 1 << 10
"""Approximate size of a copied step without its arrays, in bytes."""
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)
_NO_VALUES: FloatArray = np.empty(0)
_NOTHING: dict[str, Any] = {
    "owner": _NO_IDS,
    "ids": _NO_IDS,
    "normaliser": _NO_VALUES,
    "logits": np.empty(0, dtype=np.float32),
    "logp": _NO_VALUES,
}


def set_key(tokens: BoolArray | IntArray, *, is_sum: bool) -> bytes:
    """Return bytes that identify a set of tokens.

    Args:
        tokens: bool[V] or int32[] ids. If `is_sum`, ids, whose order counts because it
            changes the last bits of the sum.
        is_sum: Whether it is a set whose probability is summed. Otherwise it is an
            allowed set of `Rows.top`, for which equal sets have equal keys.
    """
    if is_sum:
        return b"s" + np.ascontiguousarray(tokens, dtype=np.int32).tobytes()
    mask = tokens
    if mask.dtype != np.bool_:
        mask = np.zeros(int(tokens.max(initial=-1)) + 1, dtype=np.bool_)
        mask[tokens] = True
    # Without trailing zeros, masks of any length have equal bytes for equal sets.
    return b"a" + np.packbits(mask).tobytes().rstrip(b"\0")


def digest_of(key: bytes) -> bytes:
    """Return the 16-byte digest of a set of tokens from its `set_key`."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class CopiedSet:
    """A copy of a set of tokens, whose record is made on first use.

    Args:
        tokens: bool[V], or int32[] ids.
        is_sum: As for `set_key`.
    """

    def __init__(self, tokens: BoolArray | IntArray, *, is_sum: bool) -> None:
        self.dtype, self.data, self._is_sum = tokens.dtype, tokens.tobytes(), is_sum

    @cached_property
    def record(self) -> TokenIds:
        """Return the set as a record."""
        tokens: Any = np.frombuffer(self.data, dtype=self.dtype)
        size = int(np.count_nonzero(tokens)) if tokens.dtype == np.bool_ else len(tokens)
        digest = digest_of(set_key(tokens, is_sum=self._is_sum))
        return TokenIds(size, np.frombuffer(digest, dtype=np.uint8))


class AllowedSets:
    """Keeps copies of recently used allowed sets, so that few are copied again.

    Successive steps mostly pass the same array. It is compared with its copy each time,
    because a task may change it. Any thread may call `copy_of`.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, CopiedSet]] = {}

    def copy_of(self, allowed: BoolArray | IntArray) -> CopiedSet:
        """Return a copy of an allowed set, which may be shared with earlier calls."""
        known = self._kept.get(id(allowed))
        if known is not None and known[0] is allowed and known[1].data == allowed.tobytes():
            return known[1]
        if len(self._kept) >= _MAX_KEPT:
            self._kept = {}
        copy = CopiedSet(allowed, is_sum=False)
        self._kept[id(allowed)] = allowed, copy  # with the array, so that no other gets its id
        return copy


class CopiedStep:
    """A copy of the values that a task reads in one step, not yet a `ReadStep`.

    Attributes:
        fields: The finished fields of `ReadStep`.
        sets: The sets of the fields that will hold numbers of sets, by the name of the
            field; None stands for every token.
        whole: The rows that were read whole.
        nbytes: Number of bytes that the values take, roughly.
    """

    __slots__ = ("fields", "nbytes", "sets", "whole")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.sets: dict[str, list[CopiedSet | None]] = {}
        self.whole: tuple[WholeRow, ...] = ()
        self.nbytes = _STEP_BYTES

    def add(self, **fields: Any) -> None:
        """Add finished fields that hold arrays."""
        self.fields |= fields
        self.nbytes += sum([value.nbytes for value in fields.values()])


def copy_step(path: dict[str, Any], rows: Rows, reads: Reads, allowed: AllowedSets) -> CopiedStep:
    """Return a copy of the values of `rows` that `reads` names.

    Args:
        path: The fields of the `ReadStep` that place its rows.
        rows: The rows.
        reads: The values that the task will read.
        allowed: Copies of allowed sets to use again.

    Raises `NonFiniteLogitsError` if a row is not finite and anything is read.
    """
    step = CopiedStep({**path, "n_rows": len(rows), **_NOTHING})
    if not (len(reads.ids) or reads.masses or reads.rests or reads.tops or len(reads.whole) or reads.best):
        return step
    if isinstance(rows, BoundedRows):  # all known values are copied; few were asked for
        step.add(**_bounded_fields([rows.known(i) for i in range(len(rows))]))
        step.add(known_reads=np.frombuffer(b"".join(signatures(reads)), dtype=np.uint8))
        return step
    # Logits and normalisers of dense rows are copied, log-probabilities of others.
    dense = rows if isinstance(rows, DenseRows) else None
    if dense is not None:
        dense.keep_values()  # the task reads them next
        step.add(normaliser=dense.normalisers())
    else:
        rows.check()
    if len(reads.ids):
        values = (
            {"logp": rows.logp(reads.owner, reads.ids)}
            if dense is None
            else {"logits": dense.logit(reads.owner, reads.ids)}
        )
        step.add(owner=_ids(reads.owner), ids=_ids(reads.ids), **values)
    for name, values_name, sums, read in (
        ("mass", "masses", reads.masses, rows.log_mass),
        ("rest", "rests", reads.rests, rows.log_rest),
    ):
        if sums:
            step.sets[f"{name}_sets"] = [
                CopiedSet(np.ascontiguousarray(one.ids, dtype=np.int32), is_sum=True) for one in sums
            ]
            read_values = np.array([read(one.row, one.ids) for one in sums], dtype=np.float64)
            step.add(**{f"{name}_rows": _ids([one.row for one in sums]), values_name: read_values})
    if reads.tops:
        _add_tops(step, rows, reads, allowed)
    if len(reads.whole):
        step.whole = tuple(_copy_whole_row(rows, row) for row in reads.whole.tolist())
        step.add(whole_rows=_ids(reads.whole), whole=np.arange(len(step.whole), dtype=np.int32))
        step.nbytes += sum([one.logits.nbytes for one in step.whole])
    if reads.best:
        step.fields["has_best"] = True
        step.add(best=rows.best().copy())
    return step


def _add_tops(step: CopiedStep, rows: Rows, reads: Reads, allowed: AllowedSets) -> None:
    """Add the lists of most probable tokens that `reads` names to a step."""
    tops = reads.tops
    found = [rows.top(one.row, one.k, one.allowed) for one in tops]
    if isinstance(rows, DenseRows):
        values: Any = [rows.logits(one.row)[ids] for one, (ids, _) in zip(tops, found, strict=True)]
    else:
        values = [logp for _, logp in found]
    step.sets["top_sets"] = [None if one.allowed is None else allowed.copy_of(one.allowed) for one in tops]
    step.add(
        top_rows=_ids([one.row for one in tops]),
        top_counts=_ids([one.k for one in tops]),
        top_lengths=_ids([len(ids) for ids, _ in found]),
        top_ids=np.concatenate([ids for ids, _ in found]),
        **{"top_logits" if isinstance(rows, DenseRows) else "top_logp": np.concatenate(values)},
    )


def _copy_whole_row(rows: Rows, row: int) -> WholeRow:
    """Return a copy of all values of a row."""
    logits = rows.logits(row).copy()
    dense = rows if isinstance(rows, DenseRows) else None
    return WholeRow(DenseRows(logits[None, :]).logsumexp(0) if dense is None else dense.logsumexp(row), logits)


def _bounded_fields(known: Sequence[RowBounds]) -> dict[str, Any]:
    """Return the fields of `ReadStep` for rows with unknown values."""
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


def signatures(reads: Reads) -> list[bytes]:
    """Return 8 bytes for each row, equal for rows of which the same values are read."""
    sums = [
        (one.row, name + digest_of(set_key(one.ids, is_sum=True)))
        for name, several in ((b"mass", reads.masses), (b"rest", reads.rests))
        for one in several
    ]
    tops = [(one.row, b"top %d " % one.k + _allowed_digest(one.allowed)) for one in reads.tops]
    whole = [(row, b"whole") for row in reads.whole.tolist()]
    return _signatures(reads.n_rows, reads.owner, reads.ids, [*sums, *tops, *whole], has_best=reads.best)


def _signatures(
    n_rows: int, owner: NDArray[Any], ids: IntArray, others: Iterable[tuple[int, bytes]], *, has_best: bool
) -> list[bytes]:
    """Return the signature of each row: a digest of the names of the values read.

    Args:
        n_rows: Number of rows.
        owner, ids: Row and token of each log-probability that is read.
        others: Row and name of each other value.
        has_best: Whether the most probable token of each row is read.
    """
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(n_rows + 1)).tolist()
    tokens = ids[order].astype(np.int32)
    parts = [[b"best" if has_best else b"", tokens[start:stop].tobytes()] for start, stop in pairwise(bounds)]
    for row, key in others:
        parts[row].append(key)
    return [blake2b(b"|".join(several), digest_size=SIGNATURE_BYTES).digest() for several in parts]


def _allowed_digest(allowed: BoolArray | IntArray | None) -> bytes:
    return EVERY_TOKEN if allowed is None else digest_of(set_key(allowed, is_sum=False))


class NotRecordedError(LookupError):
    """A value of a row is not in the trace.

    Attributes:
        row: Index of the row in the request.
        what: The name of the value, in words.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


class StepValues:
    """Access to the values of one step by row and token or set.

    Args:
        step: The step.
        sets: The digest of each set of the trace, by its number.
        whole: Returns the whole row with a number.
    """

    def __init__(self, step: ReadStep, sets: Sequence[bytes], whole: Callable[[int], WholeRow]) -> None:
        self.step, self._sets, self._whole_row = step, sets, whole

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
        """Return the pairs of row and token for a binary search.

        The parts are the keys of the pairs in order, the index of each among the pairs
        of the step, and the log-probability of each pair of the step.
        """
        step = self.step
        pairs = pair_keys(step.owner.astype(np.int64), step.ids)
        order = np.argsort(pairs, kind="stable")
        logp = step.logp
        if len(step.normaliser):
            logp = step.logits.astype(np.float64) - step.normaliser[step.owner]
        return pairs[order], order, logp

    def logp(self, owner: NDArray[np.int64], ids: IntArray) -> tuple[FloatArray, BoolArray]:
        """Return float64[] log-probabilities of pairs, and bool[] which are known.

        Unknown ones are NaN.
        """
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
        """Return log-probabilities of sets of tokens, by row and digest of the set."""
        step = self.step
        return self._sums(step.mass_rows, step.mass_sets, step.masses)

    @cached_property
    def rests(self) -> Mapping[tuple[int, bytes], float]:
        """Return log-probabilities of all tokens outside a set, as `masses` does."""
        step = self.step
        return self._sums(step.rest_rows, step.rest_sets, step.rests)

    def _sums(self, rows: IntArray, sets: IntArray, values: FloatArray) -> Mapping[tuple[int, bytes], float]:
        """Return log-probabilities of sets, by row and digest of the set."""
        keys = zip(rows.tolist(), (self._sets[number] for number in sets.tolist()), strict=True)
        return dict(zip(keys, values.tolist(), strict=True))

    @cached_property
    def tops(self) -> Mapping[tuple[int, bytes], tuple[int, IntArray, FloatArray]]:
        """Return the most probable tokens by row and digest of the allowed set.

        A value is the requested number, the ids and their log-probabilities. If a list
        was requested several times, it is the longest one.
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
        """Return the known values and bounds of a row with unknown values.

        None if the rows of the step are not of this kind.
        """
        step = self.step
        if not len(step.rest_max):
            return None
        end = int(step.known_lengths[: row + 1].sum(dtype=np.int64))
        part = slice(end - int(step.known_lengths[row]), end)
        bounds = float(step.rest_low[row]), float(step.rest_high[row])
        return RowBounds(step.known_ids[part], step.known_logp[part], bounds, float(step.rest_max[row]))

    def signature(self, row: int) -> bytes:
        """Return the 8 bytes of `signatures` for the values read of a row."""
        return self._signatures[row]

    @cached_property
    def _signatures(self) -> list[bytes]:
        """Return the signature of each row of the step."""
        step, sets = self.step, self._sets
        if len(step.known_reads):
            data = step.known_reads.tobytes()
            return [data[at : at + SIGNATURE_BYTES] for at in range(0, len(data), SIGNATURE_BYTES)]
        sums = [
            (row, name + sets[number])
            for name, rows, numbers in (
                (b"mass", step.mass_rows, step.mass_sets),
                (b"rest", step.rest_rows, step.rest_sets),
            )
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
        ]
        columns = (step.top_rows, step.top_counts, step.top_sets)
        tops = [
            (row, b"top %d " % k + (EVERY_TOKEN if number == NO_SET else sets[number]))
            for row, k, number in zip(*(column.tolist() for column in columns), strict=True)
        ]
        whole = [(row, b"whole") for row in step.whole_rows.tolist()]
        return _signatures(step.n_rows, step.owner, step.ids, [*sums, *tops, *whole], has_best=step.has_best)

    def best(self, row: int) -> int | None:
        """Return the most probable token of a row; None if it was not read."""
        return int(self.step.best[row]) if self.step.has_best else None


RowSource = tuple[StepValues, int]
"""A place where a row was recorded: a step, and the index of the row in it."""


def rebuild_rows(reads: Reads, sources: Sequence[Sequence[RowSource]], n_tokens: int) -> SelectedRows | BoundedRows:
    """Return rows with the recorded values that `reads` names.

    A value comes from the first source of its row that has it. Rows with unknown values
    come back with their bounds: from the first source, if that has every value that
    `reads` names, else from all sources together.

    Args:
        reads: The values to return.
        sources: For each row, the places where it was recorded.
        n_tokens: Number of tokens of the vocabulary.

    Raises:
        NotRecordedError: If no source has a value.
    """
    known = [[one for one in (step.known(row) for step, row in several) if one is not None] for several in sources]
    if any(known):
        try:
            return _merge_bounds(reads, [several[:1] for several in known], n_tokens)
        except NotRecordedError:
            return _merge_bounds(reads, known, n_tokens)
    return _Rebuilder(reads, sources).rows()


def _merge_bounds(reads: Reads, known: Sequence[Sequence[RowBounds]], n_tokens: int) -> BoundedRows:
    """Return rows with unknown values, each merged from its recordings in `known`.

    Raises `NotRecordedError` if they lack a value that `reads` names.
    """
    for row, several in enumerate(known):
        if not several:
            raise NotRecordedError(row, "anything")
    rows = [merge_bounds(several, n_tokens) for several in known]
    if len(reads.whole):
        raise NotRecordedError(int(reads.whole[0]), "all of its values")
    for row, token in zip(reads.owner.tolist(), reads.ids.tolist(), strict=True):
        ids = rows[row].ids
        at = int(np.searchsorted(ids, token))
        if rows[row].log_rest[1] > -np.inf and (at == len(ids) or ids[at] != token):
            raise NotRecordedError(row, f"the log-probability of token {token}")
    return BoundedRows(rows, n_tokens)


class _Rebuilder:
    """Finds the values that `reads` names in the sources of each row."""

    def __init__(self, reads: Reads, sources: Sequence[Sequence[RowSource]]) -> None:
        self._reads, self._sources = reads, sources
        self._dense: dict[int, DenseRows] = {}

    def rows(self) -> SelectedRows:
        """Return the values; raise `NotRecordedError` if no source has one of them."""
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
        """Return the log-probabilities of the pairs of `reads`."""
        reads = self._reads
        result = np.full(len(reads.ids), np.nan)
        left = np.ones(len(reads.ids), dtype=np.bool_)
        for step, rows in self._by_step():
            here = np.flatnonzero(left & np.isin(reads.owner, list(rows)))
            step_rows = np.array([rows[row] for row in reads.owner[here].tolist()], dtype=np.int64)
            values, is_known = step.logp(step_rows, reads.ids[here])
            result[here[is_known]] = values[is_known]
            left[here[is_known]] = False
            if not left.any():
                return result
        # No source has these pairs, but one may have the whole row.
        for at in np.flatnonzero(left).tolist():
            row, token = int(reads.owner[at]), int(reads.ids[at])
            result[at] = self._whole_row(row, f"the log-probability of token {token}").logp(0, token)
        return result

    def _by_step(self) -> list[tuple[StepValues, dict[int, int]]]:
        """Return each source step, with a dict from rows of `reads` to its rows."""
        found: dict[int, tuple[StepValues, dict[int, int]]] = {}
        for row, several in enumerate(self._sources):
            for step, step_row in several:
                found.setdefault(id(step), (step, {}))[1].setdefault(row, step_row)
        return list(found.values())

    def _sum(self, row: int, ids: IntArray, kind: str) -> float:
        """Return the log-probability of a set (kind "masses") or of all but it."""
        key = digest_of(set_key(ids, is_sum=True))
        for step, step_row in self._sources[row]:
            value = getattr(step, kind).get((step_row, key))
            if value is not None:
                return float(value)
        what = f"the summed probability of {len(ids)} tokens"
        dense = self._whole_row(row, what if kind == "masses" else f"{what} that it is not")
        return dense.log_mass(0, ids) if kind == "masses" else dense.log_rest(0, ids)

    def _top(self, row: int, k: int, allowed: BoolArray | IntArray | None) -> tuple[IntArray, FloatArray]:
        """Return the k most probable allowed tokens and their log-probabilities."""
        key = _allowed_digest(allowed)
        for step, step_row in self._sources[row]:
            found = step.tops.get((step_row, key))
            # Fewer tokens than were asked for are all there are.
            if found is not None and (k <= found[0] or len(found[1]) < found[0]):
                return found[1][:k], found[2][:k]
        return self._whole_row(row, f"the {k} most probable tokens").top(0, k, allowed)

    def _best(self, row: int) -> int:
        """Return the most probable token of a row."""
        for step, step_row in self._sources[row]:
            value = step.best(step_row)
            if value is not None:
                return value
        return int(self._whole_row(row, "the most probable token").best()[0])

    def _whole_row(self, row: int, what: str) -> DenseRows:
        """Return all values of a row, or raise `NotRecordedError` about `what`."""
        if row not in self._dense:
            found = (step.whole(step_row) for step, step_row in self._sources[row])
            whole = next((one for one in found if one is not None), None)
            if whole is None:
                raise NotRecordedError(row, what)
            self._dense[row] = DenseRows(whole.logits[None, :], None, np.array([whole.normaliser]))
        return self._dense[row]
