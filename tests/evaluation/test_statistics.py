"""Errors, intervals and paired tests: known values, and laws against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.evaluation.metrics import (
    bootstrap,
    calibration_table,
    expected_calibration_error,
    mcnemar,
    standard_error,
    wilson,
)


def test_known_intervals():
    """Wilson's interval of 8 in 10 is (0.490, 0.943); of nothing everything."""
    found = wilson(8, 10)
    assert (round(found.low, 3), round(found.high, 3)) == (0.490, 0.943)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_an_interval_holds_its_proportion():
    """None and all of n are its ends, to the last bit."""
    assert {wilson(0, n).low for n in range(1, 300)} == {0.0}
    assert {wilson(n, n).high for n in range(1, 300)} == {1.0}


def test_standard_error_is_that_of_the_harness():
    """Sample standard deviation over √n: 0, 0, 1, 1 gives 0.2887; of one value none."""
    assert standard_error(np.array([0.0, 0.0, 1.0, 1.0])) == pytest.approx(0.28867513459481287)
    assert math.isnan(standard_error(np.array([1.0])))


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_is_the_doubled_binomial_tail(a, b):
    """Against a sum over all outcomes at least as far from even."""
    n = a + b
    far = abs(a - b)
    twin = sum(math.comb(n, i) for i in range(n + 1) if abs(2 * i - n) >= far) / 2**n
    assert mcnemar(a, b) == pytest.approx(min(1.0, twin))
    assert mcnemar(a, b) == mcnemar(b, a)


def test_bootstrap_repeats_itself_and_covers_the_mean():
    """The same seed gives the same figures; the error is near the closed form."""
    values = np.random.default_rng(0).normal(size=400)
    error, interval = bootstrap(400, lambda places: float(values[places].mean()))
    assert (error, interval) == bootstrap(400, lambda places: float(values[places].mean()))
    assert interval.low < values.mean() < interval.high
    assert error == pytest.approx(standard_error(values), rel=0.15)


def test_calibration_by_hand():
    """Two items at .95, one right: the gap is .45 in the last bin; one at .55 that is right: .45 in the sixth."""
    table = calibration_table(np.array([0.95, 0.95, 0.55]), np.array([True, False, True]))
    assert [one.n for one in table] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert expected_calibration_error(table) == pytest.approx(0.45)
