"""Tables with right answers on the command line: figures, calibrations, thresholds, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from selectrie import Calibration, DecisionParams, Threshold
from selectrie.cli import app, requests
from selectrie.evaluation import label_reports
from selectrie.tables.table_questions import TableQuestions, read_questions
from selectrie.tables.table_run import decide_labelled
from tests.support.deciding import QUESTIONS, fake

LABELS = ("track order", "refund", "reset password")
TABLE = ("t.csv", "--state", "body")
CLASSIFY = ("classify", *TABLE, "--labels", ",".join(LABELS))
TOML = """
[intent]
type = "choice"
instructions = "What is wanted?"
choices = ["track order", "refund", "reset password"]

[angry]
type = "predicate"
instructions = "They are angry."

[urgency]
type = "score"
levels = ["can wait", "this week", "today"]
"""
DECIDE = (
    "decide",
    "q.toml",
    "--table",
    *TABLE,
    "--gold",
    "intent=kind",
    "--gold",
    "angry=cross",
    "--gold",
    "urgency=when",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a labelled table of 15 rows, one blank and two without a label; the engine is a fake."""
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("body", "kind", "cross", "when"))
        for i in range(15):
            kind = "" if i in (3, 4) else LABELS[i % 3]
            writer.writerow(
                (" " if i == 5 else f"Text {i}", kind, ("yes", "FALSE", "")[i % 3], ("today", "1", "0")[i % 3])
            )
    (tmp_path / "q.toml").write_text(TOML)
    return tmp_path


def run(*arguments, code=0):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_figures_are_those_of_the_report(folder):
    """As JSON the report of the same decisions; as a table its first lines."""
    found = json.loads(run(*DECIDE, "--json").stdout)
    asked = TableQuestions(state="body", questions=_questions())
    gold = {"intent": "kind", "angry": "cross", "urgency": "when"}
    decisions, right, states = decide_labelled(fake(), folder / "t.csv", asked, gold)
    assert right["angry"][:3] == [True, False, None]
    assert states[:2] == ["Text 0", "Text 1"]
    assert right["urgency"][:3] == [2, 1, 0]
    assert str(decisions[5].error).startswith("body=")
    assert found["questions"] == {name: one.to_dict() for name, one in label_reports(decisions, right).items()}
    assert found["questions"]["intent"]["before"]["n"] == 12
    shown = run(*CLASSIFY, "--gold", "kind").stdout
    assert shown.startswith("label: 12 labelled rows")
    assert "log loss" in shown


def _questions():
    """The questions of the file."""
    return read_questions(Path("q.toml"))


def test_what_is_fitted_is_used(folder):
    """A calibration, then a threshold on calibrated answers, then both for rows without labels."""
    shown = run(*CLASSIFY, "--gold", "kind", "--fit-calibration", "c.json", "--calibration-method", "bias").stdout
    assert all(word in shown for word in ("bias,", "5 parts", "surest 90 %"))
    assert "wrote c.json" in shown
    calibration = Calibration.load("c.json")
    assert (calibration.questions[0].method, calibration.questions[0].n) == ("bias", 12)
    shown = run(
        *CLASSIFY, "--gold", "kind", "--calibration", "c.json", "--fit-threshold", "t.json", "--error", 0.2
    ).stdout
    assert "wrote t.json" in shown
    assert "All answers abstain: 12 labelled answers do not show at most 20 %" in " ".join(shown.split())
    assert Threshold.load("t.json").questions[0].bound["calibration"] == calibration.digest
    run(*CLASSIFY, "--calibration", "c.json", "--min-confidence", "t.json", "--out", "out.csv")
    with (folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["abstained"] for row in rows if not row["error"]} == {"no confidence is enough for the threshold"}
    run("classify", "--resume", "out.csv.run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*CLASSIFY, "--gold", "kond"), "--gold 'kond': expected a column of the table"),
        ((*CLASSIFY, "--gold", "kind", "--gold", "when"), "one column for each question; label has kind already"),
        ((*DECIDE, "--gold", "intent=when"), "--gold intent=when: expected one column for each question"),
        ((*CLASSIFY, "--fit-threshold", "x.json"), "--gold is not given"),
        ((*CLASSIFY, "--gold", "kind", "--out", "o.csv"), "--gold cannot be combined with --out"),
        ((*CLASSIFY, "--gold", "when"), "row 1 has the right answer 'today'"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "x.json", "--ridge", "0"), "--ridge '?0"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "x.json", "--ridge", "x"), "--ridge 'x'"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "x.json", "--calibrate", "batch"), "--calibrat"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "x.json", "--rule", "pmi"), "--rule"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "x.json", "--fit-threshold", "y.json"), "--fit-threshold"),
        ((*CLASSIFY, "--gold", "kind", "--fit-calibration", "no/x.json"), "--fit-calibration 'no/x.json'"),
        ((*CLASSIFY, "--gold", "kind", "--min-confidence", "x.json"), "x.json"),
        (("decide", "q.toml", "--table", *TABLE, "--gold", "kind"), "NAME=COLUMN with the name of a question"),
        (("decide", "q.toml", "--state", "x", "--gold", "kind"), "no --gold: one state has no run"),
        (("classify", "--text", "x", "--labels", "a,b", "--gold", "kind"), "--gold"),
    ],
)
def test_what_does_not_go_together_is_one_error(folder, arguments, message):
    """It names the flag and what to do; nothing is written."""
    output = run(*arguments, code=2).output
    assert message.replace("'?", "").replace("'", "") in output.replace("'", ""), output
    assert not [*folder.glob("*.json"), *folder.glob("*.run")]


def test_a_calibration_by_labels_leaves_a_table_of_other_questions_alone(folder):
    """The answers of the run are those of `decide` with the calibration that was fitted."""
    run(*DECIDE, "--fit-calibration", "c.json")
    run("decide", "q.toml", "--table", *TABLE, "--calibration", "c.json", "--out", "out.csv")
    with (folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    params = DecisionParams(calibration=Calibration.load("c.json"))
    wanted = fake().decide("Text 0", _questions(), params=params)
    for name in QUESTIONS:
        if name in wanted:
            assert float(rows[0][f"{name}_confidence"]) == pytest.approx(wanted[name].confidence)
