"""`BoundedRows`: what is known has the bits of dense rows, and every bound contains their values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.core.partial_rows import ROUNDING, BoundedRows, merge_bounds
from selectrie.core.path_model import RowBounds
from selectrie.core.rows import DenseRows, Reads
from selectrie.errors import UnreadRowError
from tests.support.n_examples import n_examples

V = 40
INF = math.inf
seeds = st.integers(0, 2**32 - 1)


def dense_of(rng, n=1, width=V):
    """Rows with equal logits, impossible tokens and, now and then, one token that nearly all mass is on."""
    matrix = (rng.standard_normal((n, width)) * rng.choice([1, 4])).round(1).astype(np.float32)
    matrix[:, 1:][rng.random((n, width - 1)) < rng.choice([0, 0.3])] = -np.inf
    matrix[rng.random(n) < 0.2, 0] = 60
    return DenseRows(matrix)


def ids_of(rng, n, width=V):
    return rng.choice(width, size=n, replace=False).astype(np.int32)


def partial_of(rng, dense, i, ids, *, exact=None):
    """What a model may say about row i: some tokens, a rest that is exact or not, and a bound on each other token."""
    ids = np.sort(ids).astype(np.int32)
    width = len(dense.logits(i))
    others = np.setdiff1d(np.arange(width), ids)
    rest, most = dense.log_rest(i, ids), dense.logp(i, others).max(initial=-np.inf)
    if rest == -np.inf or (rng.random() < 0.5 if exact is None else exact):
        return RowBounds(ids, dense.logp(i, ids), (rest, rest), float(most))
    low, high = rest - rng.choice([1e-9, 0.1, 3, INF]), rest + rng.choice([1e-9, 0.1, 3])
    return RowBounds(ids, dense.logp(i, ids), (float(low), float(high)), float(most + rng.choice([0, 0.5, INF])))


def of_seed(seed, n=1):
    """Dense rows, and what is known of each."""
    rng = np.random.default_rng(seed)
    dense = dense_of(rng, n)
    rows = [partial_of(rng, dense, i, ids_of(rng, int(rng.integers(0, V + 1)))) for i in range(n)]
    return rng, dense, BoundedRows(rows, V), rows


def assert_contains(bounds, value):
    low, high = bounds
    assert low <= value <= high


def read_all(rng, rows, dense, known):
    """Every way to read row i: the value of the dense row, bounds that contain it, or an error and no value."""
    for i, row in enumerate(known):
        assert rows.logp(i, row.ids).tolist() == dense.logp(i, row.ids).tolist()
        for ids in (ids_of(rng, int(rng.integers(0, V))), rng.permutation(row.ids), row.ids[: len(row.ids) // 2]):
            for bounds_of, read, expected in (
                (rows.log_mass_bounds, rows.log_mass, dense.log_mass(i, ids)),
                (rows.log_rest_bounds, rows.log_rest, dense.log_rest(i, ids)),
            ):
                low, high = bounds_of(i, ids)
                assert_contains((low, high), expected)
                if low == high:
                    assert read(i, ids) == expected
                else:
                    with pytest.raises(UnreadRowError, match=f"row {i}"):
                        read(i, ids)
        for allowed in (None, ids_of(rng, 9), rng.random(V) < 0.5):
            read_top(rows, dense, i, int(rng.integers(1, 12)), allowed)


def read_top(rows, dense, i, k, allowed):
    """What `top` returns is the beginning of the true list, and `unseen_max` bounds what follows."""
    ids, logp = rows.top(i, k, allowed)
    expected, values = dense.top(i, V, allowed)
    assert len(ids) <= k
    assert ids.tolist() == expected[: len(ids)].tolist()
    assert logp.tolist() == values[: len(ids)].tolist()
    assert rows.unseen_max(i, k, allowed) >= values[len(ids) :].max(initial=-np.inf)


@given(seeds)
@settings(max_examples=n_examples(24))
def test_every_value_is_that_of_the_dense_rows_or_within_its_bounds(seed):
    """Also after every way to cut, reorder and stack them."""
    rng, dense, rows, known = of_seed(seed, n=4)
    read_all(rng, rows, dense, known)
    order = rng.permutation(4)[: int(rng.integers(1, 5))]
    read_all(rng, rows.take(order), dense.take(order), [known[i] for i in order])
    read_all(rng, rows.slice(1, 3), dense.slice(1, 3), known[1:3])
    _, other, more, known_more = of_seed(seed + 1, n=2)
    stacked = rows.take(order).stacked([more])
    assert len(stacked) == len(order) + 2
    assert stacked.copy() is stacked
    assert stacked.fetch(lambda: Reads(len(stacked))) is stacked
    read_all(rng, stacked, dense.take(order).stacked([other]), [*(known[i] for i in order), *known_more])


@given(seeds)
def test_many_pairs_are_read_at_once(seed):
    """Pairs of several rows, in any order and shape, as `TrieReader` reads them."""
    rng, dense, rows, known = of_seed(seed, n=5)
    pairs = [(i, token) for i, row in enumerate(known) for token in row.ids.tolist()]
    if pairs:
        owner, ids = np.array(pairs)[rng.integers(len(pairs), size=30)].T
        assert rows.logp(owner, ids).tolist() == dense.logp(owner, ids).tolist()
    both = np.intersect1d(known[0].ids, known[1].ids)
    assert rows.logp([[0], [1]], both[None, :]).tolist() == dense.logp([[0], [1]], both[None, :]).tolist()


def test_the_rest_of_the_known_tokens_is_as_the_row_says():
    """The exact rest has its bits, whatever the order of the tokens; another set has bounds that hold it tightly."""
    rng = np.random.default_rng(1)
    dense = dense_of(rng)
    row = partial_of(rng, dense, 0, np.arange(10), exact=True)
    rows = BoundedRows([row], V)
    assert rows.log_rest(0, row.ids[::-1]) == dense.log_rest(0, row.ids)
    low, high = rows.log_rest_bounds(0, row.ids[:4])
    assert high - low == pytest.approx(2 * ROUNDING)
    assert_contains((low, high), dense.log_rest(0, row.ids[:4]))


def test_a_small_rest_is_never_one_minus_the_others():
    """One token holds nearly all mass: the rest of it is bounded to a millionth, not lost in 1 - 1."""
    logits = np.full(V, -40, dtype=np.float32)
    logits[0] = 0
    dense = DenseRows(logits[None])
    row = partial_of(np.random.default_rng(0), dense, 0, np.arange(3), exact=True)
    low, high = BoundedRows([row], V).log_rest_bounds(0, [0])
    assert -40 + math.log(39) - 2e-6 < low < dense.log_rest(0, [0]) < high < -40 + math.log(39) + 2e-6


def twin(row, ids, n_tokens, *, rest):
    """The least and the greatest mass that `ids`, or all others, can have: unknown tokens are filled one by one."""
    known = dict(zip(row.ids.tolist(), np.exp(row.logp).tolist(), strict=True))
    inside = set(range(n_tokens)) - set(ids.tolist()) if rest else set(ids.tolist())
    most = min(math.exp(row.rest_max), 1e300)
    low, high = math.exp(row.log_rest[0]), math.exp(row.log_rest[1])
    n_inside = len(inside - set(known))
    n_outside = n_tokens - len(known) - n_inside
    sums = []
    for total, n_first in ((low, n_outside), (high, n_inside)):
        left, first = total, 0.0
        for _ in range(n_first):
            first += min(most, left)
            left = max(total - first, 0.0)
        sums.append(left if total is low else first)
    base = math.fsum(known[token] for token in inside & set(known))
    return base + (sums[0] if n_inside else 0.0), base + (sums[1] if n_inside else 0.0)


@given(seeds)
def test_no_bound_could_be_tighter(seed):
    """The bounds are the least and the greatest sum that fits what is known, widened by the rounding."""
    rng, _, rows, (row,) = of_seed(seed)
    ids = ids_of(rng, int(rng.integers(0, V + 1)))
    for bounds, rest in ((rows.log_mass_bounds(0, ids), False), (rows.log_rest_bounds(0, ids), True)):
        expected = twin(row, ids, V, rest=rest)
        for bound, value in zip(bounds, expected, strict=True):
            # What is subtracted is as large as the rest, and so is the rounding.
            assert abs(math.exp(bound) - value) <= 4 * ROUNDING * (value + math.exp(row.log_rest[1]))


def row_of(known, rest=(-INF, 0.0), rest_max=0.0):
    """A row by hand: {token: logp}."""
    return RowBounds(
        np.array(list(known), dtype=np.int32), np.array(list(known.values()), dtype=np.float64), rest, rest_max
    )


def test_top_returns_what_beats_every_unknown_token():
    """A token as probable as one that is not known is not certain, for the unknown one may have a smaller id."""
    rows = BoundedRows([row_of({2: -1.0, 5: -0.5, 7: -2.0, 8: -3.0}, (-2.5, -1.5), -2.0)], 10)
    assert rows.top(0, 1)[0].tolist() == [5]
    assert rows.unseen_max(0, 1) == -1.0
    assert rows.top(0, 9)[0].tolist() == [5, 2]
    assert rows.unseen_max(0, 9) == -2.0
    everything = np.array([8, 7, 2], dtype=np.int32)  # all known: nothing is uncertain
    assert rows.top(0, 9, everything)[0].tolist() == [2, 7, 8]
    assert rows.unseen_max(0, 9, everything) == -INF
    assert rows.unseen_max(0, 2, everything) == -3.0
    assert rows.best().tolist() == [5]


def test_no_unknown_token_is_more_probable_than_all_of_them():
    """A rest of e^-9 bounds each of its tokens, even if the row has no bound on one."""
    rows = BoundedRows([row_of({0: -1.0, 1: -8.0}, (-INF, -9.0), INF)], 10)
    assert rows.top(0, 3)[0].tolist() == [0, 1]
    assert rows.unseen_max(0, 3) == -9.0
    assert rows.log_mass_bounds(0, [2, 3])[1] == pytest.approx(-9.0)


def test_tokens_without_probability_are_known():
    """A rest of nothing: every other token is impossible, and has that value."""
    rows = BoundedRows([row_of({3: -1.0, 4: -0.45867514538708193}, (-INF, -INF), -INF)], 10)
    assert rows.logp(0, [3, 7]).tolist() == [-1.0, -INF]
    assert rows.log_mass(0, [4, 9]) == -0.45867514538708193
    assert rows.log_rest(0, [3, 4]) == -INF
    assert rows.top(0, 5)[0].tolist() == [4, 3]


def test_nothing_else_can_be_read():
    """Each way to read a value that is not certain."""
    rows = BoundedRows([row_of({0: -1.0}), row_of({0: -0.1, 1: -9.0}, (-3.0, -2.0), -2.0)], 10)
    for read in (
        lambda: rows.logp(0, 3),
        lambda: rows.logp([1, 0], [0, 1]),
        lambda: rows.log_mass(0, [0, 3]),
        lambda: rows.log_rest(0, [0]),
        rows.best,
        lambda: rows.logits(0),
    ):
        with pytest.raises(UnreadRowError, match="row 0"):
            read()
    assert rows.take([1]).best().tolist() == [0]
    assert rows.nbytes == 3 * (4 + 8)
    rows.check()


@given(seeds)
@example(0)
def test_answers_about_one_row_are_merged(seed):
    """The merged row holds all tokens, and its rest is at least as tight as subtracting says, and contains the truth."""
    rng = np.random.default_rng(seed)
    dense = dense_of(rng)
    answers = [partial_of(rng, dense, 0, ids_of(rng, int(rng.integers(0, V // 2)))) for _ in range(3)]
    row = merge_bounds(answers, V)
    ids = np.unique(np.concatenate([answer.ids for answer in answers]))
    assert row.ids.tolist() == ids.tolist()
    assert row.logp.tolist() == dense.logp(0, ids).tolist()
    assert_contains(row.log_rest, dense.log_rest(0, ids))
    others = np.setdiff1d(np.arange(V), ids)
    assert dense.logp(0, others).max(initial=-np.inf) <= row.rest_max
    assert row.rest_max <= min(answer.rest_max for answer in answers)
    read_all(rng, BoundedRows([row], V), dense, [row])
    for answer in answers:
        if len(answer.ids) == len(ids):
            assert answer.log_rest[0] <= row.log_rest[0] <= row.log_rest[1] <= answer.log_rest[1]
            assert answer.log_rest[0] != answer.log_rest[1] or row.log_rest == answer.log_rest


def test_a_token_of_two_answers_has_the_first_value():
    """Answers may differ by the model's tolerance; bounds that contradict each other hold all of both."""
    first, second = row_of({0: -1.0, 1: -2.0}, (-1.0, -0.9), -1.5), row_of({1: -2.1, 2: -3.0}, (-5.0, -4.0), -1.2)
    row = merge_bounds([first, second], 9, tolerance=0.1)
    assert row.ids.tolist() == [0, 1, 2]
    assert row.logp.tolist() == [-1.0, -2.0, -3.0]
    assert row.log_rest[1] == pytest.approx(math.log(math.exp(-0.8) - math.exp(-3.1)), abs=1e-5)
    assert row.log_rest[0] == -INF  # e^-4 is less than the e^-1 of token 0
    assert row.rest_max == -1.5
    assert merge_bounds([first], 9) is first


def test_what_answers_may_differ_by_widens_the_merged_rest():
    """Of two answers, each may be that much too large or too small, the rest and what is taken from it."""
    half = math.log(0.5)
    first, second = row_of({0: half}, (half, half), half), row_of({1: math.log(0.4)}, (math.log(0.6),) * 2, half)
    low, high = merge_bounds([first, second], 9, tolerance=0.01).log_rest
    assert math.exp(low) == pytest.approx(0.5 * math.exp(-0.01) - 0.4 * math.exp(0.01), abs=1e-5)
    assert math.exp(high) == pytest.approx(0.5 * math.exp(0.01) - 0.4 * math.exp(-0.01), abs=1e-5)


def test_all_tokens_leave_no_rest():
    """The pieces of a whole row."""
    pieces = [row_of({i: -math.log(4)}, (-1.0, -0.1), 0.0) for i in range(4)]
    row = merge_bounds(pieces, 4)
    assert row.log_rest == (-INF, -INF)
    assert row.rest_max == -INF


def test_the_twin_can_fail():
    """A bound that forgets that no unknown token exceeds `rest_max` is seen."""
    row = row_of({0: -0.2}, (-2.0, -1.9), -3.0)
    loose, tight = BoundedRows([row_of({0: -0.2}, (-2.0, -1.9), 0.0)], 9), BoundedRows([row], 9)
    ids = np.array([4, 5], dtype=np.int32)
    expected = twin(row, ids, 9, rest=False)
    assert math.exp(tight.log_mass_bounds(0, ids)[1]) == pytest.approx(expected[1], rel=1e-5)
    assert math.exp(loose.log_mass_bounds(0, ids)[1]) != pytest.approx(expected[1], rel=1e-2)
    assert list(itertools.islice(expected, 2)) == sorted(expected)
