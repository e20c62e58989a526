"""Calibrations from labels: the regression, how it is applied, and what cannot be fitted."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Calibration, Choice
from selectrie.decide.calibration import METHODS, MIN_RIDGE, RIDGES, LabelCalibration, LabelledAnswers, check_ridge
from selectrie.errors import OptionError
from tests.support.deciding import fake

CONDITIONS = {
    "question": ["choice", "q", ["a", ""], ["b", ""], ["c", ""]],
    "rule": "joint",
    "calibration": "",
    "prior": None,
    "threshold": None,
    "min_label_mass": 0.0,
}


def labelled(probabilities, gold, **conditions):
    """Answers with these probabilities and right options."""
    p, right = np.array(probabilities, float), np.array(gold, np.int32)
    confidence = (p.max(axis=1) - 1 / 3) / (1 - 1 / 3)
    predicted = p.argmax(axis=1).astype(np.int32)
    return LabelledAnswers(CONDITIONS | conditions, ("a", "b", "c"), p, right, predicted, confidence, np.ones(len(p)))


def drawn(seed, n=12):
    """Random probabilities of three options, and right options that go with them in part."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.3, 0.5, 1], size=n)
    return p, np.where(rng.random(n) < 0.6, p.argmax(axis=1), rng.integers(0, 3, n))


def objective(answers, scales, offsets, *, method, ridge):
    """The penalised log loss, in plain Python."""
    total = 0.0
    for row, right in zip(*answers, strict=True):
        z = [scale * math.log(max(one, 1e-300)) + add for one, scale, add in zip(row, scales, offsets, strict=True)]
        total += math.log(sum(math.exp(one - max(z)) for one in z)) + max(z) - z[right]
    moved = [scales[0] - 1] if method == "temperature" else [*(one - 1 for one in scales), *offsets]
    if method == "vector":
        common = 1 + sum(one - 1 for one in scales) / (len(scales) + 1)  # where the penalty is least
        moved = [*(one - common for one in scales), common - 1, *offsets]
    return total + ridge / 2 * sum(one * one for one in moved)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), method=st.sampled_from(METHODS), ridge=st.sampled_from([0.01, 1.0, 30.0]))
def test_no_other_parameters_have_a_lower_objective(seed, method, ridge):
    """The slope of the slow objective is 0 for every parameter, or points beyond its lower bound."""
    p, gold = drawn(seed)
    fit = LabelCalibration.fit(labelled(p, gold), method, ridge)
    at = [*fit.scales, *fit.offsets]
    least = objective((p, gold), fit.scales, fit.offsets, method=method, ridge=ridge)
    groups = {"temperature": [[0, 1, 2]], "bias": [[3], [4], [5]], "vector": [[i] for i in range(6)]}[method]
    for group in groups:
        for step in (1e-4, -1e-4, 0.3, -0.3):
            moved = [one + step * (i in group) for i, one in enumerate(at)]
            if min(moved[:3]) < 0.01:
                continue
            assert objective((p, gold), moved[:3], moved[3:], method=method, ridge=ridge) > least - 1e-9


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_the_scale_is_that_of_a_fine_search(seed):
    """Golden section search on the slow objective finds the same temperature."""
    p, gold = drawn(seed)

    def loss(scale):
        return objective((p, gold), [scale] * 3, [0.0] * 3, method="temperature", ridge=1.0)

    low, high = 0.01, 30.0
    for _ in range(120):
        first, second = high - (high - low) * 0.618, low + (high - low) * 0.618
        low, high = (low, second) if loss(first) < loss(second) else (first, high)
    assert LabelCalibration.fit(labelled(p, gold), "temperature", 1.0).scales[0] == pytest.approx(low, abs=1e-5)


def test_the_ridge_is_the_best_of_a_cross_validation():
    """Of sorted answers, i, i + 5, … are predicted by what was fitted to the others; the least loss counts."""
    given, right = drawn(8, 40)
    order = sorted(range(40), key=lambda i: (right[i], list(np.log(given[i]))[::-1]))
    p, gold = given[order], right[order]
    losses = {}
    for ridge in RIDGES:
        loss = 0.0
        for fold in range(5):
            rest, part = [[i for i in range(40) if (i % 5 == fold) is inside] for inside in (False, True)]
            fit = LabelCalibration.fit(labelled(p[rest], gold[rest]), "vector", ridge)
            loss -= sum(math.log(fit.apply(p[i])[gold[i]]) for i in part)
        losses[ridge] = loss
    best = min(losses, key=losses.__getitem__)
    for one, gold_of_one in ((p, gold), (given, right)):
        assert LabelCalibration.fit(labelled(one, gold_of_one), "vector", "auto").ridge == best


def test_a_scale_by_hand():
    """Of answers with 0.9, three in four are right: 9 to 1 becomes 3 to 1, a scale of 1/2, as the penalty vanishes."""
    answers = replace(
        labelled([[0.9, 0.1, 0.0]] * 4, [0, 0, 0, 1]),
        probabilities=np.array([[0.9, 0.1]] * 400),
        gold=np.arange(400) % 4 // 3,
    )
    fit = LabelCalibration.fit(answers, "temperature", 1e-9)
    assert fit.scales == pytest.approx((0.5, 0.5), abs=1e-9)
    assert fit.apply([0.9, 0.1]) == pytest.approx([0.75, 0.25])
    bias = LabelCalibration.fit(answers, "bias", 1e-9)
    assert bias.apply([0.9, 0.1]) == pytest.approx([0.75, 0.25], abs=1e-6)


def test_probabilities_of_zero_and_one_are_finite():
    """An impossible option that is right moves the scale to its lower bound, and nothing is NaN."""
    answers = labelled([[1.0, 0.0, 0.0]] * 20, [1] * 20)
    for method in METHODS:
        fit = LabelCalibration.fit(answers, method, 1.0)
        assert np.isfinite([*fit.scales, *fit.offsets]).all()
        assert min(fit.scales) >= 0.01
        assert fit.apply([1.0, 0.0, 0.0]).sum() == pytest.approx(1)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    scales=st.lists(st.floats(0.01, 4), min_size=3, max_size=3),
    offsets=st.lists(st.floats(-5, 5), min_size=3, max_size=3),
)
def test_bounds_hold_for_all_that_they_bound(seed, scales, offsets):
    """Calibrated, any probabilities within bounds are within the calibrated bounds; the order of options is free."""
    rng = np.random.default_rng(seed)
    fit = LabelCalibration(CONDITIONS, 1, "vector", 1.0, tuple(scales), tuple(offsets))
    p = rng.dirichlet([0.5] * 3)
    bounds = [(one * rng.random(), min(1.0, one + rng.random() / 4)) for one in p]
    for one, (low, high) in zip(fit.apply(p), fit.apply_bounds(bounds), strict=True):
        assert low - 1e-12 <= one <= high + 1e-12
    order = rng.permutation(3).tolist()
    moved = [0.0] * 3
    for index, place in enumerate(order):
        moved[place] = p[index]
    assert [fit.reordered(order).apply(moved)[place] for place in order] == pytest.approx(fit.apply(p).tolist())


def test_bounds_hold_where_one_option_outweighs_the_others():
    """The lesser option keeps its small share, though the other's is 1 but for 1e-18."""
    fit = LabelCalibration({}, 20, "vector", 1e-6, (330.0, 0.01), (229.0, -76.0))
    bounds = fit.apply_bounds([(0.29, 0.65), (0.35, 0.71)])
    for one, (low, high) in zip(fit.apply([0.35, 0.65]), bounds, strict=True):
        assert low <= one * (1 + 1e-12)
        assert one <= high * (1 + 1e-12)
    extreme = LabelCalibration({}, 20, "vector", 1e-6, (4.0,) * 2, (0.0, 0.0))
    assert extreme.apply_bounds([(0.0, 1.0), (0.0, 1.0)]) == [(0.0, 1.0)] * 2
    assert extreme.apply_bounds([(0.0, 0.0), (1.0, 1.0)]) == [(0.0, 0.0), (1.0, 1.0)]


def test_a_file_gives_the_same_bits(tmp_path):
    """Beside a calibration without labels too; other numbers are refused."""
    p, gold = drawn(3)
    made = Calibration(tuple(LabelCalibration.fit(labelled(p, gold), method, 1.0) for method in METHODS))
    made.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == made
    assert "calibration" not in made.questions[0].bound
    data = json.loads((tmp_path / "c.json").read_text())
    for changes in ({"method": "x"}, {"scales": [1.0]}, {"scales": [0.0, 1.0, 1.0]}, {"offsets": [None] * 3}):
        with pytest.raises(OptionError, match="Calibration"):
            Calibration.from_dict({"questions": [data["questions"][0] | changes]})


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 200),
    spread=st.sampled_from([0.001, 0.01, 0.1, 1.0]),
    method=st.sampled_from(METHODS),
    is_right=st.booleans(),
)
def test_a_fit_with_the_least_ridge_converges(seed, n, spread, method, is_right):
    """Also where probabilities are nearly 0 and 1 and all answers are right; a lower ridge is refused."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([spread] * 3, size=n)
    gold = p.argmax(axis=1) if is_right else rng.integers(0, 3, n)
    fit = LabelCalibration.fit(labelled(p, gold), method, MIN_RIDGE)
    assert np.isfinite([*fit.scales, *fit.offsets]).all()
    check_ridge(MIN_RIDGE)
    with pytest.raises(OptionError, match="ridge=1e-12: expected a number of at least 1e-06, or 'auto'"):
        check_ridge(1e-12)


def test_one_answer_is_too_few():
    """A fit to one answer would say only that it is right."""
    with fake() as llm:
        answers = llm.decide_many(["a", "b"], Choice("Which?", ["c", "d"]))
    with pytest.raises(OptionError, match="gold='one right value': expected at least two"):
        Calibration.fit(answers, ["c", None])
    assert Calibration.fit(answers, ["c", "d"], ridge=1.0).questions[0].n == 2


def test_a_fit_that_needs_too_much_memory_is_refused():
    """The error names the method that does not."""
    answers = replace(labelled(*drawn(1)), probabilities=np.broadcast_to(np.full(1, 1e-4), (100, 10_000)))
    with pytest.raises(OptionError, match="'temperature' for 10000 options and 100 answers"):
        LabelCalibration.fit(answers, "bias", 1.0)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"calibration": "abc"}, "made with a calibration"),
        ({"prior": [1.0, 2.0, 3.0]}, "made with a prior"),
        ({"rule": "pmi"}, "a rule that compares with no baseline"),
        ({"thinking": "{}"}, "answers without rationales"),
    ],
)
def test_answers_that_were_corrected_before_are_refused(conditions, message):
    """A calibration is fitted to plain probabilities, which it will get."""
    with pytest.raises(OptionError, match=message):
        LabelCalibration.fit(labelled(*drawn(1), **conditions), "temperature", 1.0)
