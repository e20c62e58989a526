"""`Reads` and `SelectedRows`: what was named is read to the bit, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.partial_rows import SelectedRows
from selectrie.core.rows import DenseRows, Reads, TokenSet, TopTokens
from selectrie.errors import NonFiniteLogitsError, UnreadRowError
from tests.support.n_examples import n_examples

V = 40
seeds = st.integers(0, 2**32 - 1)


def dense_of(rng, n=6):
    return DenseRows((rng.standard_normal((n, V)) * 3).round(1).astype(np.float32))


def reads_of(rng, n=6):
    def ids(k):
        return rng.choice(V, size=k, replace=False).astype(np.int32)

    def allowed():
        return [None, ids(5), rng.random(V) < 0.5][rng.integers(3)]

    def row():
        return int(rng.integers(n))

    m = int(rng.integers(0, 12))
    return Reads(
        n,
        rng.integers(n, size=m),
        rng.integers(V, size=m).astype(np.int32),
        masses=tuple(TokenSet(row(), ids(3)) for _ in range(3)),
        rests=tuple(TokenSet(row(), ids(2)) for _ in range(3)),
        tops=tuple(TopTokens(row(), int(rng.integers(1, 9)), allowed()) for _ in range(4)),
        whole=np.unique(rng.integers(n, size=1)),
        best=bool(rng.integers(2)),
    )


def assert_equal(rows, dense, reads):
    """Everything that `reads` names is the same in both, bit for bit."""
    assert rows.logp(reads.owner, reads.ids).tolist() == dense.logp(reads.owner, reads.ids).tolist()
    for one in reads.masses:
        assert rows.log_mass(one.row, one.ids) == dense.log_mass(one.row, one.ids)
    for one in reads.rests:
        assert rows.log_rest(one.row, one.ids) == dense.log_rest(one.row, one.ids)
    for one in reads.tops:
        for k in range(1, one.k + 1):
            for found, expected in zip(
                rows.top(one.row, k, one.allowed), dense.top(one.row, k, one.allowed), strict=True
            ):
                assert found.tolist() == expected.tolist()
    for row in reads.whole.tolist():
        assert rows.logits(row).tolist() == dense.logits(row).tolist()
        assert rows.logp(row, [0, V - 1]).tolist() == dense.logp(row, [0, V - 1]).tolist()
    if reads.best:
        assert rows.best().tolist() == dense.best().tolist()


@given(seeds)
def test_what_was_named_has_the_same_bits(seed):
    """Taken from the whole rows, and after every way to cut, reorder and stack them."""
    rng = np.random.default_rng(seed)
    dense, reads = dense_of(rng), reads_of(rng)
    rows = SelectedRows.of(dense, reads)
    assert_equal(rows, dense, reads)
    order = rng.permutation(6)[: int(rng.integers(1, 7))]
    assert_equal(rows.take(order), dense.take(order), reads.take(order))
    assert_equal(rows.slice(2, 5), dense.slice(2, 5), reads.take([2, 3, 4]))
    other, more = dense_of(rng), reads_of(rng)
    both = Reads.concatenated([reads.take(order), more])
    stacked = rows.take(order).stacked([SelectedRows.of(other, more)])
    assert_equal(stacked.copy(), dense.take(order).stacked([other]), both)
    assert stacked.fetch(lambda: both) is stacked


@given(seeds)
def test_both_of_two_reads_can_be_read(seed):
    """Joined, they name what either names."""
    rng = np.random.default_rng(seed)
    dense, one, other = dense_of(rng), reads_of(rng), reads_of(rng)
    rows = SelectedRows.of(dense, one.joined(other))
    assert_equal(rows, dense, one)
    assert_equal(rows, dense, other)
    both = one.joined(other).whole.tolist()
    assert len(both) == len(set(both))  # no row is copied twice


@given(seeds)
@settings(max_examples=n_examples(50))
def test_parts_are_the_whole(seed):
    """Rows taken one by one and put together again are read as before."""
    rng = np.random.default_rng(seed)
    dense, reads = dense_of(rng), reads_of(rng)
    parts = [SelectedRows.of(dense.slice(i, i + 1), reads.take([i])) for i in range(6)]
    assert_equal(parts[0].stacked(parts[1:]), dense, Reads.concatenated([reads.take([i]) for i in range(6)]))


def test_nothing_else_can_be_read():
    """Each way to read a row, with something that was not named."""
    dense = dense_of(np.random.default_rng(0))
    ids = np.array([3, 4], dtype=np.int32)
    reads = Reads.of_row(ids, masses=[ids], tops=[(2, None), (3, ids)])
    rows = SelectedRows.of(dense.slice(0, 1), reads)
    few = np.zeros(V, dtype=np.bool_)
    few[ids] = True
    for read in (
        lambda: rows.logp(0, 5),
        lambda: rows.logp([0, 0], [3, 5]),
        lambda: rows.log_mass(0, [3]),
        lambda: rows.log_rest(0, ids),
        lambda: rows.top(0, 3),
        lambda: rows.top(0, 1, few),
        rows.best,
        lambda: rows.logits(0),
    ):
        with pytest.raises(UnreadRowError, match="row 0"):
            read()
    assert rows.top(0, 9, ids)[0].tolist() == dense.top(0, 9, ids)[0].tolist()  # all that are allowed were read
    assert rows.log_mass(0, []) == -np.inf
    assert rows.logp(0, []).shape == (0,)
    SelectedRows.of(dense, Reads(6)).check()


def test_bytes_are_those_of_the_values():
    """Nothing for nothing; for whole rows at least their logits."""
    dense = dense_of(np.random.default_rng(0))
    assert SelectedRows.of(dense, Reads(6)).nbytes == 0
    assert SelectedRows.of(dense, Reads.of_row(np.arange(3, dtype=np.int32))).nbytes == 3 * 8
    assert SelectedRows.of(dense, Reads.of_row(tops=[(2, None)])).nbytes == 2 * (4 + 8)
    assert SelectedRows.of(dense, Reads.everything(6)).nbytes == dense.nbytes


def test_a_broken_row_is_found_when_its_values_are_taken():
    """Nothing is taken from rows that cannot be read."""
    matrix = np.zeros((2, V), dtype=np.float32)
    matrix[1, 3] = np.nan
    with pytest.raises(NonFiniteLogitsError):
        SelectedRows.of(DenseRows(matrix), Reads(2))
