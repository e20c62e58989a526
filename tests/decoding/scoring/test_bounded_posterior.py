"""Decisions by bounds on scores: whatever scores lie within them, what is said of them holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.numerics import Interval
from selectrie.decoding.scoring.rules import has_near_tie, is_certain, posterior

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
    found = posterior(Interval(low, high), path_of)
    exact = posterior(Interval.point(scores), path_of)
    if scores.max() > -INF:
        assert (found.bounds.low <= exact.probability).all()
        assert (exact.probability <= found.bounds.high).all()
    own = scores[path_of == path_of[found.winner]].max()
    others = scores[path_of != path_of[found.winner]].max(initial=-INF)
    if own > -INF and others > -INF:
        assert found.margin <= own - others


def test_a_choice_that_may_be_the_first_of_its_path_leaves_a_tie_open():
    """Both paths have -1, but the first choice decides whether the lowest index is its own."""
    scores = Interval(np.array([-2.0, -1.0, -1.0]), np.array([-1.0, -1.0, -1.0]))
    assert not is_certain(scores, np.array([0, 1, 0]), np.zeros(3), 1)
    assert is_certain(scores, np.array([0, 1, 2]), np.zeros(3), 3) is False
    assert is_certain(Interval.point(scores.high), np.array([0, 1, 0]), np.zeros(3), 1)


@given(drawn=bounds(), k=st.integers(1, 7))
def test_a_certain_order_is_that_of_all_scores_within_bounds_and_tolerance(drawn, k):
    """Also after each score has moved by up to its tolerance; exact ties go to the lowest index."""
    low, high, path_of, tolerance, scores, moved = drawn
    if not is_certain(Interval(low, high), path_of, tolerance, k):
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
    scores = Interval(np.array(low, dtype=float), np.array(high, dtype=float))
    path_of, tolerances = np.array([0, 1], dtype=np.int32), np.full(2, tolerance)
    assert is_certain(scores, path_of, tolerances, 1) == is_certain_of_one
    assert has_near_tie(scores, path_of, tolerances, 0) == is_tie


@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_search_left_open_counts_against_every_probability(is_known):
    """Two finished choices and an open one: e^-1, e^-2 and up to e^-2."""
    scores = Interval(np.array([-1.0, -2.0, np.nan]), np.array([-1.0, -2.0, -2.0]), is_known=is_known)
    found = posterior(scores, np.arange(3, dtype=np.int32), log_open=-2.0)
    a, b = np.exp(-1.0), np.exp(-2.0)
    np.testing.assert_allclose(found.bounds.low, [a / (a + 2 * b), b / (a + 2 * b), 0], rtol=1e-10)
    np.testing.assert_allclose(found.bounds.high, [a / (a + b), b / (a + b), b / (a + 2 * b)], rtol=1e-10)
    assert np.isnan(found.probability[2])
    assert (found.winner, found.margin, found.is_tie) == (0, 1.0, False)
