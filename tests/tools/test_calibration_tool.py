"""`tools/calibration.py`: its lines on a fake model, answers that it keeps, and when a calibration does what is asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import calibration
from selectrie.evaluation.metrics import ConfidenceInterval
from tests.support.deciding import fake


def test_lines_of_a_draw_and_answers_that_are_kept(tmp_path, monkeypatch, capsys):
    """A line for each way; the second run asks nothing and prints the same."""
    rows = [(f"text {i}", f"label {i % 8}") for i in range(32)]
    monkeypatch.setattr(calibration, "banking", lambda: rows)
    engines = []

    def load(*_, **__):
        engines.append(fake())
        return engines[-1]

    monkeypatch.setattr(calibration.selectrie, "load", load)
    arguments = ["embedded", "--draws", "0", "--fit", "16", "--cache", str(tmp_path)]
    calibration.main(arguments)
    first = capsys.readouterr().out
    assert [one.partition(" right")[0].strip() for one in first.splitlines()[1::2]] == [
        "draw 0, plain",
        *(f"draw 0, {method}, {ridge}" for method, ridge in calibration.WAYS),
    ]
    calibration.main(arguments)
    assert capsys.readouterr().out == first
    assert engines[1]._model.calls == 0


@pytest.mark.parametrize(
    ("high", "ece", "accuracy", "is_met"),
    [(-0.1, 0.05, 0.8, True), (0.1, 0.05, 0.8, False), (-0.1, 0.07, 0.8, False), (-0.1, 0.05, 0.6, False)],
)
def test_a_calibration_that_misses_one_goal_misses_all(high, ece, accuracy, is_met):
    """Better beyond its interval, an error like that of a calibrated model, and no fewer right."""
    report = SimpleNamespace(
        before=SimpleNamespace(accuracy=0.7),
        after=SimpleNamespace(accuracy=accuracy, ece=ece, ece_95=0.06),
        differences={name: (-0.2, ConfidenceInterval(-0.3, high)) for name in ("log_loss", "brier")},
    )
    assert calibration.is_met(report) is is_met
