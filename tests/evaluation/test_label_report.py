"""Reports on answers with right values: figures by hand, cross-validation, and curves."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.decide.calibration import LabelCalibration
from selectrie.errors import OptionError
from selectrie.evaluation import label_reports
from selectrie.evaluation.label_report import _report, ece_quantile, label_figures, rescaled, risk_coverage
from tests.decide.test_label_calibration import drawn, labelled
from tests.support.deciding import QUESTIONS, STATE, fake


def test_figures_by_hand():
    """Four answers with 0.8, of which three are right, and one with 0.6 that is wrong."""
    p = [[0.8, 0.2, 0.0]] * 4 + [[0.6, 0.4, 0.0]]
    found = label_figures(labelled(p, [0, 0, 0, 1, 1]))
    assert (found.n, found.accuracy) == (5, 0.6)
    assert found.log_loss == pytest.approx(-(3 * math.log(0.8) + math.log(0.2) + math.log(0.4)) / 5)
    assert found.brier == pytest.approx((3 * 2 * 0.2**2 + 2 * 0.8**2 + 2 * 0.6**2) / 5)
    assert found.ece == pytest.approx((4 * 0.05 + 0.6) / 5)
    assert found.risk.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25, 0.4])
    assert found.aurc == pytest.approx(0.28)
    assert (found.risk_at(0.5), found.risk_at(1)) == (0.25, 0.4)
    data = found.to_dict()
    assert [one["n"] for one in data["reliability"] if one["n"]] == [1, 4]
    assert data["coverage"] == [0.2, 0.4, 0.6, 0.8, 1.0]
    json.dumps(data, allow_nan=True)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=7))
def test_equal_confidences_have_the_risk_of_a_random_order(rows):
    """The mean over both orders in which an answer and its equals may stand, for each coverage."""
    confidence, right = np.array([c for c, _ in rows], float), np.array([r for _, r in rows])
    rng = np.random.default_rng(0)
    curves = []
    for _ in range(300):
        order = sorted(range(len(rows)), key=lambda i: (-confidence[i], rng.random()))
        curves.append(np.cumsum(~right[order]) / np.arange(1, len(rows) + 1))
    coverage, risk = risk_coverage(confidence, right)
    assert coverage[-1] == 1
    np.testing.assert_allclose(risk, np.mean(curves, axis=0), atol=0.12)


@settings(max_examples=3)
@given(seed=st.integers(0, 10**6))
def test_each_part_is_calibrated_by_the_others(seed):
    """The report has the figures of answers whose calibration did not see them."""
    p, gold = drawn(seed, 20)
    answers = labelled(p, gold)
    made = _report(answers, "bias", 1.0, 4)
    calibrated = p.copy()
    for i in range(20):
        rest = [j for j in range(20) if j % 4 != i % 4]
        calibrated[i] = LabelCalibration.fit(labelled(p[rest], gold[rest]), "bias", 1.0).apply(p[i])
    wanted = label_figures(rescaled(answers, calibrated))
    assert (made.after.log_loss, made.after.accuracy) == pytest.approx((wanted.log_loss, wanted.accuracy))
    change, interval = made.differences["log_loss"]
    assert change == pytest.approx(wanted.log_loss - made.before.log_loss)
    assert interval.low <= change <= interval.high
    assert made.to_dict()["folds"] == 4


def test_a_calibrated_model_is_mostly_below_its_quantile():
    """95 % of simulated sets, but not of a model that is too sure."""
    rng = np.random.default_rng(1)
    top = rng.uniform(0.3, 1, 200)
    bound = ece_quantile(top)
    few = np.array([0.9, 0.9])
    assert ece_quantile(few) == pytest.approx(0.4)  # one of two is wrong in 18 % of sets, both in 1 %
    p = np.stack([top, 1 - top, np.zeros(200)], axis=1)
    errors = [label_figures(labelled(p, (rng.random(200) > top).astype(int))).ece for _ in range(30)]
    assert 0.85 <= np.mean(np.array(errors) <= bound) <= 1
    assert label_figures(labelled(p, (rng.random(200) > top - 0.2).astype(int))).ece > bound


def test_reports_of_several_questions():
    """By name; a predicate above its threshold counts as true; errors name the value."""
    with fake() as llm:
        decisions = llm.decide_many([f"{STATE} {n}" for n in range(8)], QUESTIONS)
    gold = {"angry": [True, False] * 4, "urgency": [0, 1, 2, None] * 2}
    reports = label_reports(decisions, gold, method="vector", folds=3)
    assert [(name, one.before.n) for name, one in reports.items()] == [("angry", 8), ("urgency", 6)]
    right = [one["angry"].value == value for one, value in zip(decisions, gold["angry"], strict=True)]
    assert reports["angry"].before.accuracy == np.mean(right)
    for options in ({"folds": 1}, {"method": "x"}, {"method": "bias", "folds": 9}, {"method": "bias", "ridge": 0}):
        with pytest.raises(OptionError, match=next(name for name in options if name != "method" or len(options) == 1)):
            label_reports(decisions, gold, **options)
