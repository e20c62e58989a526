"""`tools/out_of_scope.py`: its scores by hand, its draws, and its table on the model that comes with selectrie."""

from __future__ import annotations

import json

import numpy as np
import pytest

import out_of_scope

MESSAGES = [(f"message {i} about {label}", f"intent {label}") for label in range(77) for i in range(8)]


def test_scores_by_hand():
    """The chance is over pairs, ties count half; the option is compared with the best label."""
    is_out = np.array([True, True, False, False])
    assert out_of_scope.auroc(np.array([3.0, 1.0, 1.0, 0.0]), is_out) == (1 + 1 + 0.5 + 1) / 4
    without = {name: np.log([[0.75, 0.25]]) for name in out_of_scope.CALIBRATIONS}
    beside = {name: np.log([[0.5, 0.25, 0.25]]) for name in out_of_scope.CALIBRATIONS}
    scores = out_of_scope.scores_of(without, beside)
    assert scores["largest p, batch"] == pytest.approx(-np.log(0.75))
    assert scores["p(none), batch"] == pytest.approx(np.log(0.25))
    assert scores["none against best label, batch"] == pytest.approx(np.log(0.5))
    assert scores["best label beside none, batch"] == pytest.approx(-np.log(0.5))


def test_draws(monkeypatch):
    """Half of a draw's texts have one of its labels; the intents of the two halves are others."""
    monkeypatch.setattr(out_of_scope, "banking", lambda: MESSAGES)
    seen = {}
    for half in ("dev", "judge"):
        drawn = list(out_of_scope.draws(half, 5, 2))
        assert len(drawn) == out_of_scope.N_DRAWS[half]
        for draw in drawn:
            inside = [label in draw.labels for _, label in draw.texts]
            assert inside == [True] * 5 + [False] * 5
            assert sorted(label for _, label in draw.examples if label) == sorted(draw.labels)
            assert sum(label is None for _, label in draw.examples) == 2
            assert not {text for text, _ in draw.examples} & {text for text, _ in draw.texts}
        seen[half] = {label for draw in drawn for label in [*draw.labels, *(one for _, one in draw.texts)]}
    assert not seen["dev"] & seen["judge"]


def test_the_table(tmp_path, monkeypatch, capsys):
    """A line for each score; thresholds are kept."""
    monkeypatch.setattr(out_of_scope, "banking", lambda: MESSAGES)
    monkeypatch.setattr(out_of_scope, "N_DRAWS", {"dev": 1, "judge": 1})
    monkeypatch.setattr(out_of_scope, "N_BOOTSTRAPS", 5)
    arguments = ["embedded", "--items", "2", "--threads", "1"]
    out_of_scope.main([*arguments, "--save", str(tmp_path / "t.json")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "embedded, dev: 2 texts in scope, 2 out of it"
    assert [line.split("  ")[0] for line in lines[2:14]] == list(json.loads((tmp_path / "t.json").read_text()))
