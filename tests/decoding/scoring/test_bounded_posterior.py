"""Decisions by bounds on scores: whatever scores lie within them, what is said of them holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.decoding.scoring import bounded_posterior, has_near_tie, is_certain, posterior

INF = np.inf
widths = st.sampled_from([0.0, 0.0, 1e-6, 0.3, 2.0, INF])
levels = st.sampled_from([-INF, -3.0, -1.0, -0.5, 0.0])


@st.composite
def bounds(draw):
    """Bounds on the scores of a few choices, some of them on one path; tolerances; and scores within both."""
    n = draw(st.integers(1, 6))
    high = np.array(draw(st.lists(levels, min_size=n, max_size=n)))
    with np.errstate(invalid="ignore"):
        low = np.where(np.isneginf(high), -INF, high - np.array(draw(st.lists(widths, min_size=n, max_size=n))))
    path_of = np.unique(np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))), return_inverse=True)[1]
    tolerance = np.full(n, draw(st.sampled_from([0.0, 0.1, 1.0])))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    share = rng.choice([0.0, 1.0, 0.5, rng.random()], n)
    bottom, top = np.maximum(low, -99), np.maximum(high, -99)
    within = np.where(np.isneginf(low), np.where(share > 0.5, high, -INF), bottom + share * (top - bottom))
    moved = within + tolerance * rng.uniform(-1, 1, n)
    return low, high, path_of.astype(np.int32), tolerance, np.clip(within, low, high), moved


@given(drawn=bounds())
def test_every_score_within_the_bounds_gives_probabilities_within_theirs(drawn):
    """The margin of a winner is a lower bound too."""
    low, high, path_of, _, scores, _ = drawn
    found = bounded_posterior(low, high, path_of, np.zeros(len(low)), ranking=low)
    exact = posterior(scores, path_of)
    if scores.max() > -INF:
        assert (found.probability_low <= exact.probability).all()
        assert (exact.probability <= found.probability_high).all()
    own = scores[path_of == path_of[found.winner]].max()
    others = scores[path_of != path_of[found.winner]].max(initial=-INF)
    if own > -INF and others > -INF:
        assert found.margin <= own - others


@given(drawn=bounds(), k=st.integers(1, 7))
def test_a_certain_order_is_that_of_all_scores_within_bounds_and_tolerance(drawn, k):
    """Also after each score has moved by up to its tolerance; exact ties go to the lowest index."""
    low, high, path_of, tolerance, scores, moved = drawn
    if not is_certain(low, high, path_of, tolerance, k):
        return
    expected = ranked(low, path_of)[:k]
    assert ranked(scores, path_of)[:k] == expected
    assert ranked(moved, path_of)[:k] == expected


def ranked(scores, path_of):
    """The paths by their best scores, ties by index."""
    return list(dict.fromkeys(path_of[np.argsort(-scores, kind="stable")].tolist()))


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "is_certain_of_one", "is_tie"),
    [
        ([-1, -3], [-1, -3], 0.0, True, False),
        ([-1, -1], [-1, -1], 0.0, True, True),  # known, so that the index decides
        ([-1, -1], [-1, -1], 0.1, False, True),
        ([-1, -3], [-1, -3], 1.1, False, True),
        ([-1, -3], [-1, -3], 0.9, True, False),
        ([-1, -3], [0, -1.5], 0.0, True, False),
        ([-1, -3], [0, -1], 0.0, False, True),  # the second may reach the first, which may be at its low end
        ([-1, -INF], [-1, -INF], 0.5, True, False),
        ([-INF, -INF], [-2, -INF], 0.0, False, True),
    ],
)
def test_what_bounds_and_tolerance_leave_open(low, high, tolerance, is_certain_of_one, is_tie):
    """Cases of two choices that can be checked by hand."""
    low, high, path_of = np.array(low, dtype=float), np.array(high, dtype=float), np.array([0, 1], dtype=np.int32)
    tolerances = np.full(2, tolerance)
    assert is_certain(low, high, path_of, tolerances, 1) == is_certain_of_one
    assert has_near_tie(low, high, path_of, tolerances, 0) == is_tie


def test_what_a_search_left_open_counts_against_every_probability():
    """Two finished choices and an open one: e^-1, e^-2 and up to e^-2."""
    low, high = np.array([-1.0, -2.0, np.nan]), np.array([-1.0, -2.0, -2.0])
    path_of, none = np.arange(3, dtype=np.int32), np.zeros(3)
    found = bounded_posterior(low, high, path_of, none, ranking=low, log_open=-2.0)
    a, b = np.exp(-1.0), np.exp(-2.0)
    np.testing.assert_allclose(found.probability_low, [a / (a + 2 * b), b / (a + 2 * b), 0], rtol=1e-10)
    np.testing.assert_allclose(found.probability_high, [a / (a + b), b / (a + b), b / (a + 2 * b)], rtol=1e-10)
    assert np.isnan(found.probability[2])
    assert (found.winner, found.margin, found.is_tie) == (0, 1.0, False)
