"""Thresholds: the exact test, the guarantee by enumeration, and what cannot be shown."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import DecisionParams, Threshold
from selectrie.decide.calibration import LabelledAnswers
from selectrie.decide.threshold import QuestionThreshold, binomial_tail, least_answered
from selectrie.errors import InputFileError, OptionError
from tests.decide.test_label_calibration import CONDITIONS


def labelled(confidence, is_right, min_label_mass=0.0, label_mass=1.0):
    """Answers of these confidences, right or wrong."""
    n = len(confidence)
    return LabelledAnswers(
        CONDITIONS | {"min_label_mass": min_label_mass},
        ("a", "b", "c"),
        np.ones((n, 3)) / 3,
        np.zeros(n, np.int32),
        1 - np.array(is_right, np.int32),
        np.array(confidence, float),
        np.full(n, label_mass),
    )


@given(n=st.integers(1, 40), share=st.fractions(Fraction(1, 50), Fraction(49, 50)), data=st.data())
def test_the_tail_is_that_of_fractions(n, share, data):
    """The sum of all terms, exactly."""
    k = data.draw(st.integers(0, n))
    wanted = sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k + 1))
    assert binomial_tail(k, n, float(share)) == pytest.approx(float(wanted), rel=1e-10)


def test_a_tail_of_many_does_not_vanish():
    """0.95 ** 20 000 is no float, but half of so many answers have at most 5 % errors."""
    assert binomial_tail(1000, 20_000, 0.05) == pytest.approx(0.5, abs=0.01)


def test_45_answers_carry_5_percent_at_90():
    """0.95 ** 44 is above 0.1 and 0.95 ** 45 is not; with one error, 77 do."""
    assert least_answered(0.05, 0.9) == 45
    for n, holds in ((44, False), (45, True)):
        found = QuestionThreshold.fit(labelled([0.9] * n, [True] * n), 0.05, 0.9)
        assert (found.min_confidence < 1) is holds
        assert (found.n_answered, found.n_wrong) == ((n, 0) if holds else (0, 0))
        assert ("All answers abstain" in found.describe()) is not holds
    for n, holds in ((76, False), (77, True)):
        found = QuestionThreshold.fit(labelled([0.9] * n, [False] + [True] * (n - 1)), 0.05, 0.9)
        assert (found.min_confidence < 1) is holds


def test_the_laxest_threshold_before_the_first_failure():
    """100 answers at 0.9 are right; of 100 at 0.5 half are wrong, so these abstain."""
    answers = labelled([0.9] * 100 + [0.5] * 100, [True] * 100 + [True, False] * 50)
    found = QuestionThreshold.fit(answers, 0.05, 0.9)
    assert 0.5 < found.min_confidence <= 0.9
    assert (found.n, found.n_answered, found.n_wrong) == (200, 100, 0)
    assert QuestionThreshold.fit(answers, 0.4, 0.9).min_confidence == 0


def test_answers_below_the_label_mass_count_as_abstained():
    """They abstain later too, so they carry nothing."""
    assert QuestionThreshold.fit(labelled([0.9] * 60, [True] * 60, 0.5, 0.4), 0.05, 0.9).min_confidence == math.inf


LEVELS = (0.75, 0.5, 0.0)
"""Confidences of three kinds of answers, all of them thresholds that are tested."""


def chance_of_failure(shares, wrong, n, error, confidence):
    """The exact probability that the found threshold has more errors than promised.

    Of each kind there are `shares`, of which `wrong` are wrong. All numbers of answers and of errors of n are enumerated.
    """
    risk = {
        level: sum(s * w for s, w in zip(shares[: at + 1], wrong, strict=False)) / max(sum(shares[: at + 1]), 1e-300)
        for at, level in enumerate(LEVELS)
    }
    total = 0.0
    for counts in itertools.product(range(n + 1), repeat=2):
        third = n - sum(counts)
        if third < 0:
            continue
        each = (*counts, third)
        chance = math.factorial(n) * math.prod(s**c / math.factorial(c) for s, c in zip(shares, each, strict=True))
        for errors in itertools.product(*(range(c + 1) for c in each)) if chance > 0 else ():
            odds = math.prod(
                math.comb(c, e) * w**e * (1 - w) ** (c - e) for c, e, w in zip(each, errors, wrong, strict=True)
            )
            if odds == 0:
                continue
            rows = [(level, at >= e) for level, c, e in zip(LEVELS, each, errors, strict=True) for at in range(c)]
            answers = labelled([level for level, _ in rows], [right for _, right in rows])
            least = QuestionThreshold.fit(answers, error, confidence).min_confidence
            if least < math.inf and risk[min(level for level in LEVELS if level >= least)] > error + 1e-12:
                total += chance * odds
    return total


@settings(max_examples=3, deadline=None)
@given(
    shares=st.lists(st.floats(0.05, 1), min_size=3, max_size=3),
    wrong=st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted),
    goal=st.sampled_from([(0.3, 0.5), (0.5, 0.7), (0.2, 0.3)]),
)
def test_the_guarantee_holds_at_the_stated_confidence(shares, wrong, goal):
    """Over all data sets of six answers, with their exact probabilities."""
    error, confidence = goal
    shares = [one / sum(shares) for one in shares]
    assert chance_of_failure(shares, wrong, 6, error, confidence) <= 1 - confidence + 1e-9


@pytest.mark.parametrize(("error", "confidence"), [(0.6, 0.8), (0.3, 0.5), (0.2, 0.3)])
def test_the_guarantee_holds_where_every_threshold_has_one_error_too_many(error, confidence):
    """Each test may fail there, and without the stop at the first failure, more than allowed do (1.15 of it)."""
    used = chance_of_failure((0.34, 0.33, 0.33), (error + 1e-6,) * 3, 6, error, confidence)
    assert 0.5 * (1 - confidence) < used <= 1 - confidence


def test_a_file_gives_the_same_bits(tmp_path):
    """A threshold of nothing too; other files are refused, and the hash is that of the numbers."""
    made = Threshold(
        tuple(QuestionThreshold.fit(labelled([0.9] * n, [True] * n), 0.05, 0.9) for n in (10, 50)),
    )
    made.save(tmp_path / "t.json")
    assert Threshold.load(tmp_path / "t.json") == made
    hash(DecisionParams(min_confidence=made))
    assert "at most 5 % of the answers wrong, at a confidence of 90 %" in repr(made)
    (tmp_path / "c.json").write_text('{"kind": "calibration", "questions": [{}]}')
    with pytest.raises(InputFileError, match="holds no threshold"):
        Threshold.load(tmp_path / "c.json")


def test_the_value_of_a_threshold_is_a_probability():
    """That of the most probable of three options; just above 1 if all answers abstain."""
    found = Threshold((QuestionThreshold.fit(labelled([0.9] * 50, [True] * 50), 0.05, 0.9),))
    least = found.questions[0].min_confidence
    assert found.value == pytest.approx(1 / 3 + least * 2 / 3)
    nothing = Threshold((QuestionThreshold.fit(labelled([0.9] * 10, [True] * 10), 0.05, 0.9),))
    assert 1 < nothing.value < 1 + 1e-15
    with pytest.raises(OptionError, match="expected one question, a Choice"):
        _ = Threshold((*found.questions, *nothing.questions)).value


@pytest.mark.parametrize(
    "options", [{"error": 0.0}, {"precision": 1.0}, {"error": 1}, {"confidence": 1.0}, {"confidence": "x"}]
)
def test_errors_and_confidences_are_between_0_and_1(options):
    """Neither bound can be promised."""
    with pytest.raises(OptionError, match="between 0 and 1"):
        Threshold.fit([], [], **options)
