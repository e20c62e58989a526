"""Calibrations: their arithmetic, the states that they are fitted to, and what they hold for."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Calibration, DecisionParams
from selectrie.decide.calibration import QuestionCalibration, question_calibration, sample_of
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError

BOUND = {"question": ["choice", "q", ["a", ""], ["b", ""]], "layout": "questions first", "rule": "joint"}


@given(st.lists(st.lists(st.floats(1e-300, 1), min_size=2, max_size=2), min_size=1, max_size=40))
def test_a_weight_is_the_prior_over_the_shrunk_mean(rows):
    """The mean is of normalised probabilities, and counts 16 states more that are equal for all options."""
    samples = [[p / sum(row) for p in row] for row in rows]
    weights = question_calibration(BOUND, samples).weights([1.0, 3.0])
    n = len(samples)
    for at, prior in enumerate([1.0, 3.0]):
        mean = (sum(row[at] for row in samples) + 16 / 2) / (n + 16)
        assert weights[at] == pytest.approx(prior / mean, rel=1e-12)


def test_data_of_json_gives_the_same_bits(tmp_path):
    """Through a file too, and for an option that never had a probability."""
    made = Calibration(
        (
            question_calibration(BOUND, [[0.1, 0.9], [1 / 3, 2 / 3]]),
            question_calibration(BOUND | {"rule": "char_mean"}, [[0.0, 1.0]]),
        )
    )
    assert Calibration.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    made.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == made
    assert made.questions[1].log_means == (-math.inf, 0.0)
    (tmp_path / "run.json").write_text(json.dumps({"signature": {"calibration": made.to_dict()}}))
    assert Calibration.load(tmp_path / "run.json") == made


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"questions": [{}]}', '{"questions": 1}'])
def test_a_file_without_a_calibration_is_refused(text, tmp_path):
    """The error names the file."""
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputFileError, match=r"c\.json: holds no calibration"):
        Calibration.load(tmp_path / "c.json")
    with pytest.raises(InputFileError, match="No such file"):
        Calibration.load(tmp_path / "d.json")


@pytest.mark.parametrize(
    "changes", [{"n": 0}, {"n": 1.5}, {"log_means": [0.0]}, {"log_means": [1.0, 0.0]}, {"log_means": ["0", 0]}]
)
def test_numbers_that_no_fit_makes_are_refused(changes):
    """A count below one, a mean above one, and a mean too few."""
    data = Calibration((question_calibration(BOUND, [[0.5, 0.5]]),)).to_dict()
    data["questions"][0] |= changes
    with pytest.raises(OptionError, match="Calibration"):
        Calibration.from_dict(data)


def test_it_holds_for_what_it_was_fitted_to():
    """Another question, layout or rule is refused by name."""
    made = Calibration((QuestionCalibration(BOUND, 20, (-1.0, -1.0)),))
    assert made.of(dict(BOUND)) == made.questions[0]
    with pytest.raises(OptionError, match="same layout: it has 'questions first', now it is 'state first'"):
        made.of(BOUND | {"layout": "state first"})
    with pytest.raises(OptionError, match="of this question"):
        made.of(BOUND | {"question": ["choice", "q", ["b", ""], ["a", ""]]})


def test_the_sample_depends_on_the_set_of_states_alone():
    """64 distinct texts, whatever their order and however often each occurs."""
    texts = [f"text {n}" for n in range(500)]
    chosen = sample_of(texts)
    assert len(set(chosen)) == 64
    for seed in range(3):
        shuffled = texts * 2
        random.Random(seed).shuffle(shuffled)
        assert sample_of(shuffled) == chosen
    assert set(sample_of(chosen[:3] + ["text x"] * 9)) == {*chosen[:3], "text x"}


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"calibration": "auto"}, OptionError),
        ({"calibration": 1}, OptionError),
        ({"calibration": "batch", "rule": "pmi"}, IncompatibleOptionsError),
        ({"calibration": "content_free", "rule": "calibrated"}, IncompatibleOptionsError),
        ({"calibration": "content_free", "rule": "char_mean"}, IncompatibleOptionsError),
    ],
)
def test_calibrations_that_there_are_not(params, error):
    """Other words, and rules that compare with a baseline already."""
    with pytest.raises(error):
        DecisionParams(**params)
