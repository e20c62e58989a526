"""`Rows`: log-probabilities read off the logits of one call."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core import numerics
from selectrie.core.rows import DenseRows
from selectrie.errors import NonFiniteLogitsError

TOLERANCE_NATS = 1e-7
"""Of exponentials in float32, as in test_numerics."""

seeds = st.integers(0, 2**32 - 1)


def matrix_of(seed: int, n_rows: int = 5, width: int = 11) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n_rows, width)) * 4).astype(np.float32)


def logp_of(matrix: np.ndarray) -> np.ndarray:
    """Twin: the full matrix of log-probabilities in float64."""
    wide = matrix.astype(np.float64)
    return (
        wide
        - np.log(np.exp(wide - wide.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        - wide.max(axis=1, keepdims=True)
    )


@given(seeds, st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_logp_equals_the_full_matrix(seed, index):
    """Every way to index agrees with the N x V matrix that is never built; the index may repeat and reorder rows."""
    matrix = matrix_of(seed)
    rows, expected = DenseRows(matrix, index), logp_of(matrix)[index]
    every = np.arange(len(index))
    np.testing.assert_allclose(rows.logp(every[:, None], np.arange(11)), expected, rtol=0, atol=TOLERANCE_NATS)
    np.testing.assert_allclose(rows.logp(every, 3), expected[:, 3], rtol=0, atol=TOLERANCE_NATS)
    np.testing.assert_allclose(rows.logp(0, [1, 1, 10]), expected[0, [1, 1, 10]], rtol=0, atol=TOLERANCE_NATS)
    assert abs(float(rows.logp(0, 7)) - expected[0, 7]) <= TOLERANCE_NATS
    assert abs(rows.logsumexp(0) - (matrix[index[0], 0] - expected[0, 0])) <= TOLERANCE_NATS


@given(seeds, st.sets(st.integers(0, 10)))
def test_mass_and_rest_are_parts_of_one(seed, ids):
    """The mass of some tokens and of the others, each from positive terms, sum to one."""
    matrix, some = matrix_of(seed, 1), sorted(ids)
    rows, p = DenseRows(matrix), np.exp(logp_of(matrix)[0])
    mass, rest = math.exp(rows.log_mass(0, some)), math.exp(rows.log_rest(0, some))
    assert abs(mass - p[some].sum()) <= TOLERANCE_NATS
    assert abs(mass + rest - 1) <= 2 * TOLERANCE_NATS


def test_no_tokens_and_all_tokens():
    """No token has no mass, every token leaves no rest, and neither raises."""
    rows = DenseRows(matrix_of(0))
    assert rows.log_mass(0, []) == -math.inf
    assert rows.log_rest(0, range(11)) == -math.inf
    assert abs(rows.log_mass(0, range(11))) <= TOLERANCE_NATS
    assert abs(rows.log_rest(0, [])) <= TOLERANCE_NATS


@given(seeds, st.integers(1, 12))
def test_top_comes_with_its_logp(seed, k):
    """The best tokens carry the same log-probabilities, bit for bit, as when they are asked for by id."""
    rows = DenseRows(matrix_of(seed))
    ids, logp = rows.top(2, k)
    assert logp.dtype == np.float64
    assert logp.tolist() == rows.logp(2, ids).tolist()
    assert ids.tolist() == np.argsort(-rows.logits(2), kind="stable")[:k].tolist()


def test_top_within_what_is_allowed():
    """`allowed` as booleans and as ids is the same; forbidden tokens (-inf) never come."""
    rows = DenseRows(np.array([[1.0, 3.0, 3.0, -np.inf, 2.0]], dtype=np.float32))
    ids = np.array([4, 2, 1, 3], dtype=np.int32)
    allowed = np.array([False, True, True, True, True])
    assert rows.top(0, 4, allowed)[0].tolist() == [1, 2, 4]
    assert rows.top(0, 4, ids)[0].tolist() == [1, 2, 4]
    assert rows.top(0, 1)[0].tolist() == [1]


@given(seeds, st.integers(1, 12), st.sampled_from([0.02, 0.3, 1.0]))
def test_the_best_allowed_tokens_are_those_of_a_full_look(seed, k, share):
    """Looking at the best of all first finds the same tokens as gathering the allowed ones."""
    rng = np.random.default_rng(seed)
    rows = DenseRows(rng.normal(size=(2, 300)).round(1).astype(np.float32))
    allowed = rng.random(300) < share
    assert rows.top(1, k, allowed)[0].tolist() == numerics.top_k(rows.logits(1), k, allowed).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, "all forbidden"])
def test_a_broken_row_raises_when_it_is_read_and_spares_the_others(bad):
    """One damaged row of a merged call fails for whoever reads it, in every reading method, and for nobody else."""
    matrix = matrix_of(0)
    matrix[1, 4 if bad != "all forbidden" else slice(None)] = -np.inf if bad == "all forbidden" else bad
    rows = DenseRows(matrix)
    readers = (
        lambda r: r.logp(1, 0),
        lambda r: r.logsumexp(1),
        lambda r: r.log_mass(1, [0]),
        lambda r: r.log_rest(1, [0]),
        lambda r: r.top(1, 2),
        lambda r: r.logp([0, 1], 0),
    )
    for read in readers:
        with pytest.raises(NonFiniteLogitsError):
            read(rows)
    good = rows.logp([0, 2, 3, 4], 0)
    assert np.isfinite(good).all()
    assert np.isfinite(rows.slice(2, 5).logp([0, 1, 2], 5)).all()
    with pytest.raises(NonFiniteLogitsError):
        rows.slice(0, 2).logp(1, 0)


@given(seeds, st.integers(0, 5), st.integers(0, 5))
def test_slices_are_views(seed, start, stop):
    """A slice reads the same buffer and the same bits, and what it works out the whole knows too."""
    rows = DenseRows(matrix_of(seed), [4, 0, 1, 1, 3])
    part = rows.slice(start, stop)
    assert len(part) == max(0, stop - start)
    for i in range(len(part)):
        assert np.shares_memory(part.logits(i), rows.logits(start + i))
        assert part.logp(i, 2) == rows.logp(start + i, 2)


@given(
    seeds,
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 14), st.sampled_from([np.nan, np.inf]), max_size=3),
    st.permutations(range(5)),
)
def test_parts_of_a_call_have_the_bits_of_rows_alone(seed, sizes, bad, order):
    """Whichever part is read first, although it computes the normalisers of all; rows that are not finite raise in their
    own part alone."""
    starts = np.cumsum([0, *sizes]).tolist()
    matrix = matrix_of(seed, starts[-1])
    for row, value in bad.items():
        if row < starts[-1]:
            matrix[row, row % 11] = value
    call = DenseRows(matrix)
    parts = {i: call.slice(start, start + size) for i, (start, size) in enumerate(zip(starts, sizes, strict=False))}
    for i in (at for at in order if at in parts):
        alone, part = matrix[starts[i] : starts[i + 1]], parts[i]
        if np.isfinite(alone).all():
            part.check()
            expected = [DenseRows(row[None]).logp(0, np.arange(11)) for row in alone]
            assert np.array_equal(part.logp(np.arange(len(alone))[:, None], np.arange(11)), expected)
            assert part.top(0, 3)[1].tolist() == DenseRows(alone[:1]).top(0, 3)[1].tolist()
            assert np.array_equal(part.copy().logp(0, np.arange(11)), expected[0])
        else:
            with pytest.raises(NonFiniteLogitsError):
                part.check()
            with pytest.raises(NonFiniteLogitsError):
                part.logp(np.arange(len(alone)), 0)


def test_the_rows_of_a_call_are_normalised_in_one_step(monkeypatch):
    """Those of ten parts, of which each reads its own row twice."""
    asked = []
    whole = numerics.logsumexp_rows
    monkeypatch.setattr(
        numerics, "logsumexp_rows", lambda matrix, index: asked.append(len(index)) or whole(matrix, index)
    )
    call = DenseRows(matrix_of(3, 10))
    for i in range(10):
        part = call.slice(i, i + 1)
        part.check()
        part.top(0, 2)
    assert asked == [10]


def test_take_stack_and_copy_keep_rows_apart():
    """Reordered, stacked and copied rows say the same; only copies outlive the buffer."""
    matrix = matrix_of(3)
    rows = DenseRows(matrix, [2, 0, 4])
    before = [rows.logp(i, 5) for i in range(3)]
    turned, copied = rows.take([2, 0]), rows.copy()
    stacked = rows.slice(1, 3).stacked([rows.slice(0, 1)])
    unread = DenseRows(matrix, [2, 0, 4]).copy()
    assert np.shares_memory(turned.logits(0), matrix)
    assert [turned.logp(0, 5), turned.logp(1, 5)] == [before[2], before[0]]
    matrix.fill(0)
    assert [copied.logp(i, 5) for i in range(3)] == before
    assert [unread.logp(i, 5) for i in range(3)] == before
    assert [stacked.logp(i, 5) for i in (2, 0, 1)] == before


def test_reading_costs_one_pass_a_row(monkeypatch):
    """A row's normaliser is worked out once, whoever asks and how often."""
    asked = []
    real = numerics.logsumexp_rows
    monkeypatch.setattr(numerics, "logsumexp_rows", lambda m, index: asked.extend(index) or real(m, index))
    rows = DenseRows(matrix_of(5))
    rows.slice(0, 2).logp([0, 1], 3)
    rows.logp(np.arange(5)[:, None], [1, 2])
    rows.top(3, 2)
    rows.copy().log_rest(4, [1])
    assert sorted(asked) == [0, 1, 2, 3, 4]


def test_dense_rows_are_fetched_for_nothing():
    """They are read where they are, and nobody asks what will be read."""
    rows = DenseRows(matrix_of(0))
    assert rows.fetch(lambda: pytest.fail("asked")) is rows


def test_kept_values_are_the_same_and_are_computed_once(monkeypatch):
    """Rows that keep what is read give the same bits, and read them once for each set."""
    matrix = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32)
    plain, kept = DenseRows(matrix), DenseRows(matrix)
    kept.keep_values()
    ids, mask = np.array([3, 5, 9], dtype=np.int32), np.arange(40) % 2 == 0
    n_read = []
    monkeypatch.setattr(DenseRows, "_top", _counted(DenseRows._top, n_read))
    for _ in range(2):
        for row in range(3):
            assert kept.log_mass(row, ids) == plain.log_mass(row, ids)
            assert kept.log_rest(row, ids) == plain.log_rest(row, ids)
            for allowed in (None, mask, ids):
                assert kept.top(row, 4, allowed)[1].tolist() == plain.top(row, 4, allowed)[1].tolist()
                assert kept.top(row, 2, allowed)[0].tolist() == plain.top(row, 2, allowed)[0].tolist()
        assert kept.best().tolist() == plain.best().tolist()
    assert n_read.count(kept) == 18
    assert n_read.count(plain) == 36


def _counted(method, calls):
    """The method, which adds its object to `calls`."""

    def counted(self, *args):
        calls.append(self)
        return method(self, *args)

    return counted
