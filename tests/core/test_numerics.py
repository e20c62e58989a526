"""Log-sum-exp and top-k against float64 twins. Tolerance: 1e-7 nats, of exponentials in float32."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.errors import NonFiniteLogitsError, OptionError

TOLERANCE_NATS = 1e-7

finite = st.floats(-80, 80, width=32)
maybe_forbidden = st.one_of(finite, st.just(-math.inf))
seeds = st.integers(0, 2**32 - 1)
WIDTHS = (1, 2, 26, 2047, 2049, 16384, 16385, 40000)
"""Around the widths where the way of summing changes."""


def twin(row: np.ndarray) -> float:
    """Log-sum-exp in float64 throughout, by the standard library."""
    peak = float(max(row))
    return peak + math.log(math.fsum(math.exp(float(x) - peak) for x in row)) if peak > -math.inf else -math.inf


def random_matrix(seed: int, n_rows: int, width: int, scale: float = 5.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n_rows, width)) * scale).astype(np.float32)


def all_rows(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_logsumexp_rows_equals_float64(width, scale):
    """Rows of every width agree with a float64 sum to within the stated tolerance."""
    matrix = random_matrix(width, 3, width, scale)
    got = numerics.logsumexp_rows(matrix, all_rows(3))
    assert got.dtype == np.float64
    assert max(abs(got[i] - twin(matrix[i])) for i in range(3)) <= TOLERANCE_NATS


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=maybe_forbidden))
@example(np.array([[-np.inf, 3.0]], dtype=np.float32))
def test_forbidden_tokens_weigh_nothing(matrix):
    """A -inf logit is probability 0; a row of nothing else is an error."""
    if (matrix.max(axis=1) == -np.inf).any():
        with pytest.raises(NonFiniteLogitsError):
            numerics.logsumexp_rows(matrix, all_rows(len(matrix)))
        return
    got = numerics.logsumexp_rows(matrix, all_rows(len(matrix)))
    assert max(abs(got[i] - twin(matrix[i])) for i in range(len(matrix))) <= TOLERANCE_NATS


@pytest.mark.parametrize("width", [26, 700, 5000, 20000])
def test_a_row_has_the_same_bits_in_any_company(width):
    """What stands beside a row, and where the row lies, moves no bit of its normaliser."""
    matrix = random_matrix(1, 64, width)
    together = numerics.logsumexp_rows(matrix, all_rows(64))
    alone = [numerics.logsumexp_rows(matrix[i : i + 1].copy(), all_rows(1))[0] for i in range(64)]
    turned = numerics.logsumexp_rows(matrix, all_rows(64)[::-1])[::-1]
    assert together.tolist() == alone
    assert together.tolist() == turned.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("width", [7, 5000])
def test_broken_rows_are_named(bad, width):
    """NaN and +inf raise, with the row of the matrix and the value; other rows are not asked."""
    matrix = random_matrix(2, 5, width)
    matrix[3, width // 2] = bad
    with pytest.raises(NonFiniteLogitsError) as caught:
        numerics.logsumexp_rows(matrix, all_rows(5))
    assert caught.value.row == 3
    assert math.isnan(caught.value.value) if math.isnan(bad) else caught.value.value == bad
    assert len(numerics.logsumexp_rows(matrix, np.array([0, 4]))) == 2


def test_sums_are_not_kept_in_float32():
    """A million equal tokens: float32 sums would lose them, the tolerance check notices it."""
    row = np.zeros(1_000_001, dtype=np.float32)
    row[0] = 17.0
    exact = math.log(math.exp(17.0) + 1_000_000)
    assert abs(numerics.logsumexp_rows(row[None], all_rows(1))[0] - exact) <= TOLERANCE_NATS
    lossy = np.cumsum(np.exp(row - np.float32(17.0)), dtype=np.float32)[-1]
    assert abs(17.0 + math.log(float(lossy)) - exact) > TOLERANCE_NATS


@given(arrays(np.float64, st.integers(0, 12), elements=st.one_of(st.floats(-700, 700), st.just(-math.inf))))
def test_logsumexp_of_a_vector(x):
    """A float64 vector agrees with exact summation; nothing at all is -inf."""
    got = numerics.logsumexp(x)
    expected = twin(x) if len(x) else -math.inf
    assert got == expected or abs(got - expected) <= 1e-12 * max(1.0, abs(expected))


@given(arrays(np.float32, st.integers(1, 12), elements=maybe_forbidden), st.data())
def test_logsumexp_without_equals_the_rest_alone(row, data):
    """Leaving tokens out is summing over the others; repeated ids leave out no more."""
    ids = data.draw(st.lists(st.integers(0, len(row) - 1), max_size=6))
    rest = np.array([x for i, x in enumerate(row) if i not in ids], dtype=np.float32)
    expected = twin(rest) if len(rest) else -math.inf
    got = numerics.logsumexp_without(row, np.array(ids, dtype=np.int64))
    assert got == expected or abs(got - expected) <= TOLERANCE_NATS


def test_the_rest_survives_where_one_minus_sum_does_not():
    """A rest of e^-40 is found exactly: 1 minus the others is 0 in float64."""
    row = np.array([0.0, -40.0, -41.0], dtype=np.float32)
    got = numerics.logsumexp_without(row, np.array([0])) - numerics.logsumexp_rows(row[None], all_rows(1))[0]
    assert abs(got - (-40.0 + math.log1p(math.exp(-1.0)))) <= TOLERANCE_NATS
    assert float(Fraction(1) - Fraction(math.exp(-numerics.logsumexp_rows(row[None], all_rows(1))[0]))) == 0.0


def naive_top(row: np.ndarray, k: int, ids: list[int]) -> list[int]:
    """Sort by logit, then by id; drop what is impossible."""
    possible = [i for i in ids if row[i] > -math.inf]
    return sorted(possible, key=lambda i: (-float(row[i]), i))[:k]


coarse = st.sampled_from([-math.inf, -1.0, 0.0, 1.0, 2.0])
"""Few values: ties everywhere."""


@given(arrays(np.float32, st.integers(1, 30), elements=coarse), st.integers(0, 32), st.data())
def test_top_k_equals_sorting(row, k, data):
    """The k largest, ties by smaller id, impossible tokens never: as a full sort says, for every way to say `allowed`."""
    allowed = data.draw(arrays(np.bool_, len(row)))
    ids = np.flatnonzero(allowed)
    shuffled = np.random.default_rng(0).permutation(np.concatenate([ids, ids])).astype(np.int32)
    assert numerics.top_k(row, k).tolist() == naive_top(row, k, list(range(len(row))))
    assert numerics.top_k(row, k, allowed).tolist() == naive_top(row, k, ids.tolist())
    assert numerics.top_k(row, k, shuffled).tolist() == naive_top(row, k, ids.tolist())


@pytest.mark.parametrize("width", [16_383, 16_384, 20_001])
@pytest.mark.parametrize("step", [1e-3, 0.5, 20.0])
def test_top_k_of_a_long_row_equals_sorting(width, step):
    """Bounding the k-th largest by groups drops none, with few ties or many, and where fewer than k are finite."""
    row = np.round(np.random.default_rng(width).standard_normal(width) / step).astype(np.float32)
    order = np.lexsort((np.arange(width), -row))
    for k in (1, 2, 40, 2047, 2048, 2049, width, width + 1):
        assert numerics.top_k(row, k).tolist() == order[:k].tolist()
    row[order[30:]] = -np.inf
    assert numerics.top_k(row, 40).tolist() == order[:30].tolist()


def test_top_k_is_int32_and_takes_empty_sets():
    """Nothing allowed gives nothing, as token ids."""
    row = np.zeros(4, dtype=np.float32)
    for allowed in (np.zeros(4, dtype=np.bool_), np.empty(0, dtype=np.int32)):
        got = numerics.top_k(row, 2, allowed)
        assert got.dtype == np.int32
        assert len(got) == 0


@given(arrays(np.float64, st.integers(0, 9), elements=st.one_of(st.floats(-1e3, 1e3), st.just(-math.inf))))
def test_softmax_sums_to_one_or_is_all_zero(scores):
    """Probabilities sum to one, keep the order of the scores, and are zero where nothing is possible."""
    p = numerics.softmax(scores)
    possible = len(scores) > 0 and scores.max() > -math.inf
    assert abs(p.sum() - (1.0 if possible else 0.0)) <= 1e-12
    assert (np.diff(p[np.argsort(scores, kind="stable")]) >= 0).all()
    assert (p[scores == -math.inf] == 0).all()


def test_logdiffexp_by_hand():
    """3/4 less 1/2 is 1/4; nothing is left of equal numbers, of two zeros, and of the smaller less the larger."""
    assert numerics.logdiffexp(math.log(0.75), math.log(0.5)) == pytest.approx(math.log(0.25))
    assert numerics.logdiffexp(-1.0, -math.inf) == -1.0
    for a, b in ((-1.0, -1.0), (-math.inf, -math.inf), (-2.0, -1.0)):
        assert numerics.logdiffexp(a, b) == -math.inf


@pytest.mark.parametrize("width", [1, 3, 40000])
def test_argmax_rows_is_the_argmax_of_each_row(width):
    """Of the rows that are named, in their order, over several blocks; the first of equal numbers."""
    n = min(2 * numerics._BLOCK_ELEMENTS // width + 3, 5_000)
    matrix = np.random.default_rng(width).integers(0, 3, (n, width)).astype(np.float32)
    index = np.random.default_rng(1).permutation(n)
    got = numerics.argmax_rows(matrix, index)
    assert got.dtype == np.int32
    assert got.tolist() == matrix[index].argmax(axis=1).tolist()


def test_widths_of_intervals_are_never_negative():
    """High less low, and 0 where both are -inf, of numbers and of arrays alike."""
    cases = [(1.0, 3.0, 2.0), (-math.inf, -math.inf, 0.0), (-math.inf, 0.0, math.inf), (2.0, 2.0, 0.0)]
    low, high, widths = map(np.array, zip(*cases, strict=True))
    assert Interval(low, high).width.tolist() == widths.tolist()
    assert [Interval(a, b).width for a, b, _ in cases] == widths.tolist()


def test_bounds_are_widened_outward_and_exact_numbers_never():
    """By 1e-12 of their size, at least 1; an impossible end stays impossible."""
    found = Interval(np.array([-100.0, -math.inf]), np.array([-0.5, -math.inf])).widened()
    assert found.low.tolist() == [-100.0 - 1e-10, -math.inf]
    assert found.high.tolist() == [-0.5 + 1e-12, -math.inf]
    exact = Interval.point(-100.0)
    assert exact.widened() is exact
    above = Interval.above(-1.0, 1e-20)
    assert above.low == -1.0 < above.high
    assert Interval.above(-1.0, 0.0).width == 0.0


@pytest.mark.parametrize("seed", [-1, 1 << 128, True])
def test_seeds_are_numbers_of_128_bits(seed):
    """Others are refused by their name."""
    with pytest.raises(OptionError, match="seed="):
        numerics.uniform(seed, 0)
