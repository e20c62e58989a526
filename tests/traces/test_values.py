"""Values of rows: what a trace gives back is what the rows said, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from selectrie.core.partial_rows import BoundedRows, SelectedRows
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import DenseRows, Reads, TokenSet, TopTokens
from selectrie.errors import NonFiniteLogitsError, UnreadRowError
from selectrie.traces.records import NO_SET, ReadStep
from selectrie.traces.values import AllowedSets, NotRecordedError, StepValues, copy_step, rebuild_rows, signatures

N_TOKENS, N_ROWS = 9, 3
ROWS = st.integers(0, N_ROWS - 1)
LOGITS = arrays.arrays(np.float32, (N_ROWS, N_TOKENS), elements=st.floats(-30, 30, width=32) | st.just(-np.inf)).map(
    lambda matrix: np.concatenate([matrix[:, :-1], np.zeros((N_ROWS, 1), dtype=np.float32)], axis=1)
)
IDS = st.lists(st.integers(0, N_TOKENS - 1), unique=True).map(lambda ids: np.array(ids, dtype=np.int32))
ALLOWED = st.none() | IDS | arrays.arrays(np.bool_, N_TOKENS)


@st.composite
def reads_of_rows(draw):
    """Anything that may be read of three rows."""
    pairs = draw(st.lists(st.tuples(ROWS, st.integers(0, N_TOKENS - 1)), max_size=8))
    return Reads(
        N_ROWS,
        np.array([row for row, _ in pairs], dtype=np.int64),
        np.array([token for _, token in pairs], dtype=np.int32),
        masses=tuple(TokenSet(*one) for one in draw(st.lists(st.tuples(ROWS, IDS), max_size=3))),
        rests=tuple(TokenSet(*one) for one in draw(st.lists(st.tuples(ROWS, IDS), max_size=3))),
        tops=tuple(TopTokens(*one) for one in draw(st.lists(st.tuples(ROWS, st.integers(0, 10), ALLOWED), max_size=3))),
        whole=np.array(draw(st.lists(ROWS, unique=True)), dtype=np.int64),
        best=draw(st.booleans()),
    )


NONE = np.empty(0, dtype=np.int32)
ROW_0 = {"parents": NONE, "tokens": NONE, "offered": NONE, "wanted": NONE.astype(np.uint8)}


def copied(rows, reads, allowed=None):
    """The values of rows, copied."""
    return copy_step(ROW_0, rows, reads, AllowedSets() if allowed is None else allowed)


def step_of(rows, reads) -> StepValues:
    """The values of rows as one step of a trace."""
    made, digests = copied(rows, reads), []
    for name, sets in made.sets.items():
        made.fields[name] = np.array([NO_SET if one is None else len(digests) + at for at, one in enumerate(sets)])
        digests += [b"" if one is None else one.record.digest.tobytes() for one in sets]
    return StepValues(ReadStep(0, **made.fields), digests, made.whole.__getitem__)


def given_back(rows, reads):
    """The rows that a trace gives back for the same reads."""
    step = step_of(rows, reads)
    return rebuild_rows(reads, [[(step, row)] for row in range(reads.n_rows)], N_TOKENS)


def values(rows, reads):
    """Every value that `reads` names, as bytes and numbers."""
    return (
        rows.logp(reads.owner, reads.ids).tobytes(),
        [rows.log_mass(one.row, one.ids) for one in reads.masses],
        [rows.log_rest(one.row, one.ids) for one in reads.rests],
        [[part.tobytes() for part in rows.top(one.row, one.k, one.allowed)] for one in reads.tops],
        [rows.logits(row).tobytes() for row in reads.whole.tolist()],
        [rows.log_rest(row, np.array([1, 2], dtype=np.int32)) for row in reads.whole.tolist()],
        rows.best().tolist() if reads.best else None,
    )


@given(LOGITS, reads_of_rows())
def test_values_come_back_to_the_last_bit(matrix, reads):
    """From dense rows (logits and normalisers) and from partial rows (float64)."""
    dense = DenseRows(matrix)
    expected = values(dense, reads)
    assert values(given_back(dense, reads), reads) == expected
    assert values(given_back(SelectedRows.of(dense, reads), reads), reads) == expected


@given(LOGITS, reads_of_rows(), reads_of_rows())
def test_other_reads_get_the_same_bits_or_nothing(matrix, recorded, reads):
    """What is asked otherwise is what the rows say, or is missing; it is never wrong."""
    dense, step = DenseRows(matrix), step_of(DenseRows(matrix), recorded)
    try:
        rows = rebuild_rows(reads, [[(step, row)] for row in range(N_ROWS)], N_TOKENS)
    except NotRecordedError:
        return
    assert values(rows, reads) == values(dense, reads)


@given(LOGITS, reads_of_rows(), reads_of_rows())
def test_a_row_may_have_several_sources(matrix, first, second):
    """A row that was told twice has the values of both times."""
    dense = DenseRows(matrix)
    both = replace(first.joined(second), best=first.best or second.best)
    sources = [step_of(dense, first), step_of(dense, second)]
    rows = rebuild_rows(both, [[(step, row) for step in sources] for row in range(N_ROWS)], N_TOKENS)
    assert values(rows, both) == values(dense, both)


def test_a_missing_value_is_named():
    """Each kind of value that was not read is named in words, with the row."""
    dense = DenseRows(np.zeros((N_ROWS, N_TOKENS), dtype=np.float32))
    ids = np.array([1, 2], dtype=np.int32)
    step = step_of(dense, Reads(N_ROWS))
    for reads, row, what in (
        (Reads(3, np.array([1]), np.array([4], dtype=np.int32)), 1, "the log-probability of token 4"),
        (Reads(3, masses=(TokenSet(2, ids),)), 2, "the summed probability of 2 tokens"),
        (Reads(3, rests=(TokenSet(2, ids),)), 2, "the summed probability of 2 tokens that it is not"),
        (Reads(3, tops=(TopTokens(1, 5),)), 1, "the 5 most probable tokens"),
        (Reads(3, whole=np.array([2])), 2, "all of its values"),
        (Reads(3, best=True), 0, "the most probable token"),
    ):
        with pytest.raises(NotRecordedError) as caught:
            rebuild_rows(reads, [[(step, one)] for one in range(N_ROWS)], N_TOKENS)
        assert (caught.value.row, caught.value.what) == (row, what)


def test_fewer_tokens_than_asked_for_are_all_there_are():
    """A shorter list of most probable tokens answers a longer question, a full one does not."""
    matrix = np.full((1, N_TOKENS), -np.inf, dtype=np.float32)
    matrix[0, [2, 5]] = [1.0, 0.0]
    step = step_of(DenseRows(matrix), Reads(1, tops=(TopTokens(0, 4),)))
    assert rebuild_rows(Reads(1, tops=(TopTokens(0, 7),)), [[(step, 0)]], N_TOKENS).top(0, 7)[0].tolist() == [2, 5]
    step = step_of(DenseRows(matrix), Reads(1, tops=(TopTokens(0, 2),)))
    with pytest.raises(NotRecordedError):
        rebuild_rows(Reads(1, tops=(TopTokens(0, 3),)), [[(step, 0)]], N_TOKENS)


def test_a_set_is_known_by_its_digest():
    """The order of a sum is part of the set."""
    dense, ids = DenseRows(np.arange(100, dtype=np.float32)[None]), np.arange(65, dtype=np.int32)
    reads = Reads(1, masses=(TokenSet(0, ids),))
    assert [one.record.size for one in copied(dense, reads).sets["mass_sets"]] == [65]
    step = step_of(dense, reads)
    assert rebuild_rows(reads, [[(step, 0)]], N_TOKENS).log_mass(0, ids) == dense.log_mass(0, ids)
    for other in (ids[::-1].copy(), ids[1:]):
        with pytest.raises(NotRecordedError):
            rebuild_rows(Reads(1, masses=(TokenSet(0, other),)), [[(step, 0)]], N_TOKENS)


@given(LOGITS, reads_of_rows(), reads_of_rows())
def test_a_signature_tells_what_was_read_of_a_row(matrix, first, second):
    """That of a step is that of its reads, and other reads have another one."""
    step = step_of(DenseRows(matrix), first)
    assert [step.signature(row) for row in range(N_ROWS)] == signatures(first)
    bounded = step_of(BOUNDED, first)
    assert not len(bounded.step.known_reads) or [bounded.signature(row) for row in range(N_ROWS)] == signatures(first)
    for row, (one, other) in enumerate(zip(signatures(first), signatures(second), strict=True)):
        pairs = [sorted(reads.ids[reads.owner == row].tolist()) for reads in (first, second)]
        if pairs[0] != pairs[1] or first.best != second.best or (row in first.whole) != (row in second.whole):
            assert one != other


def test_an_allowed_set_is_the_same_as_a_mask_and_as_ids():
    """Which of the two forms a request has does not matter."""
    dense = DenseRows(np.arange(N_TOKENS, dtype=np.float32)[None])
    mask = np.arange(N_TOKENS) < 4
    step = step_of(dense, Reads(1, tops=(TopTokens(0, 2, mask),)))
    rows = rebuild_rows(Reads(1, tops=(TopTokens(0, 2, np.array([3, 0, 1, 2])),)), [[(step, 0)]], N_TOKENS)
    assert rows.top(0, 2, np.array([3, 0, 1, 2]))[0].tolist() == [3, 2]


def test_an_array_that_changes_is_copied_again():
    """A task may fill one mask anew for each row, and change what it has read."""
    dense, mask, sets = DenseRows(np.arange(N_TOKENS, dtype=np.float32)[None]), np.arange(N_TOKENS) < 4, AllowedSets()
    ids, reads = np.array([1, 2], dtype=np.int32), lambda: Reads(1, masses=(TokenSet(0, ids),), tops=(tops,))
    copies, expected = [], []
    for n in (4, 4, 6, 4):
        mask[:] = np.arange(N_TOKENS) < n
        ids[0], tops = n, TopTokens(0, 2, mask)
        copies.append(copied(dense, reads(), sets))
        expected.append([n - 1, n - 2])
        for one in dense.top(0, 2, mask):
            one[:] = 0
    assert [copy.fields["top_ids"].tolist() for copy in copies] == expected
    sums, tops = ([copy.sets[name][0].record for copy in copies] for name in ("mass_sets", "top_sets"))
    assert [(one.size, other.size) for one, other in zip(sums, tops, strict=True)] == [(2, n) for n in (4, 4, 6, 4)]
    for first, second, third, fourth in ([one.digest.tobytes() for one in records] for records in (sums, tops)):
        assert first == second == fourth != third


def test_rows_that_are_not_finite_are_not_recorded():
    """They raise, unless nothing is read of them."""
    bad = DenseRows(np.full((1, 3), np.nan, dtype=np.float32))
    assert copied(bad, Reads(1)).fields["n_rows"] == 1
    with pytest.raises(NonFiniteLogitsError):
        copied(bad, Reads(1, best=True))


def test_given_rows_hold_nothing_but_what_was_asked():
    """A task that reads more than it named is found out in a replay too."""
    rows = given_back(DenseRows(np.zeros((1, 3), dtype=np.float32)), Reads(1, best=True))
    with pytest.raises(UnreadRowError):
        rows.logp(0, 1)


BOUNDED = BoundedRows(
    [
        RowBounds(np.array([1, 4], dtype=np.int32), np.array([-0.5, -2.0]), (-3.0, -2.5), -2.75),
        RowBounds(np.array([], dtype=np.int32), np.array([]), (-1.0, 0.0), 0.0),
        RowBounds(np.array([2], dtype=np.int32), np.array([0.0]), (-np.inf, -np.inf), -np.inf),
    ],
    N_TOKENS,
)
"""What a server said about three rows: two tokens, nothing, and everything."""


def test_rows_with_bounds_come_back_with_their_bounds():
    """What is not known of a row stays as unknown as it was."""
    reads = Reads(3, np.array([0, 2]), np.array([4, 5], dtype=np.int32))
    rows = given_back(BOUNDED, reads)
    for i in range(3):
        one, other = rows.known(i), BOUNDED.known(i)
        assert (one.ids.tolist(), one.logp.tolist()) == (other.ids.tolist(), other.logp.tolist())
        assert (one.log_rest, one.rest_max) == (other.log_rest, other.rest_max)
    assert rows.logp([0, 2], [4, 5]).tolist() == [-2.0, -np.inf]


def test_a_token_that_a_server_did_not_say_is_missing():
    """It is named as missing, and so are a whole row and a row that is not there."""
    step = step_of(BOUNDED, Reads(3, best=True))
    for reads, what in (
        (Reads(1, np.array([0]), np.array([5], dtype=np.int32)), "the log-probability of token 5"),
        (Reads(1, whole=np.array([0])), "all of its values"),
    ):
        with pytest.raises(NotRecordedError, match=what):
            rebuild_rows(reads, [[(step, 0)]], N_TOKENS)
    with pytest.raises(NotRecordedError, match="anything"):
        rebuild_rows(Reads(2), [[(step, 0)], []], N_TOKENS)
