"""`selectrie classify`: labels on the command line, one text, standard input and output, and names of columns that are taken."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from selectrie import Choice, Predicate
from selectrie.cli import app, requests
from tests.support.deciding import fake

LABELS = ["track order", "refund"]
NONE = "none of these"
TABLE = "text,label\nWhere is it?,x\nPay me back!,y\n"
CLASSIFY = ("classify", "t.csv", "--labels", "track order, refund")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a table; every engine that is opened is the same fake."""
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path


def run(*arguments, code=0, **how):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)], **how)
    assert result.exit_code == code, result.output
    return result


def rows_of(text):
    """The rows of a CSV as dictionaries."""
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_go_to_stdout():
    """Labels have commas between them; a table's own column `label` is kept beside the new ones."""
    result = run(*CLASSIFY, "--none", NONE)
    answers = [fake().decide(row["text"], Choice("", [*LABELS, NONE])) for row in rows_of(TABLE)]
    rows = rows_of(result.stdout)
    assert [row["label"] for row in rows] == ["x", "y"]
    assert [row["predicted_label"] for row in rows] == [one.value for one in answers]
    assert [float(row["predicted_probability"]) for row in rows] == [one.probability for one in answers]
    assert "has a column 'label', so the new ones begin with predicted_" in result.stderr
    assert run(*CLASSIFY, "--none", NONE, "--out", "-").stdout == result.stdout
    run(*CLASSIFY, "--none", NONE, "--out", "o.csv")
    with open("o.csv", encoding="utf-8", newline="") as file:  # noqa: PTH123 - line ends as they are
        assert file.read() == result.stdout
    run(*CLASSIFY, "--none", NONE, "--out", "o.csv")
    assert "prefix='my_'" not in run(*CLASSIFY, "--prefix", "my_").stderr


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (TABLE, rows_of),
        (TABLE.replace(",", "\t"), lambda text: list(csv.DictReader(io.StringIO(text), delimiter="\t"))),
        ('{"text": "Where is it?"}\n', lambda text: [json.loads(line) for line in text.splitlines()]),
    ],
)
def test_stdin_is_a_table(data, read):
    """Its format is that of its first line, and the results have the same."""
    result = run("classify", "-", "--column", "text", *CLASSIFY[2:], input=data)
    own = "predicted_label" if "label" in data else "label"
    assert read(result.stdout)[0][own] == fake().decide("Where is it?", Choice("", LABELS)).value


def test_each_line_of_stdin_is_a_text():
    """Without a column, no line is a header; JSON Lines are a table in any case. What looks like a table is reported."""
    texts = ["Pay me, please!", '"Where" is it?', ""]
    wanted = [fake().decide(text, Choice("", LABELS)).value for text in texts[:2]]
    rows = rows_of((result := run("classify", "-", *CLASSIFY[2:], input="\r\n".join(texts[:2]) + "\n")).stdout)
    assert [(row["text"], row["label"]) for row in rows] == [*zip(texts[:2], wanted, strict=True)]
    assert "each line" not in result.stderr
    rows = run("classify", "-", *CLASSIFY[2:], input='{"text": "Pay me, please!"}\n').stdout
    assert json.loads(rows)["label"] == wanted[0]
    assert "each line is one text; for a table" in run("classify", "-", *CLASSIFY[2:], input="id,body\n1,x\n").stderr
    assert [row["text"] for row in rows_of(run("classify", "-", *CLASSIFY[2:], input="a\n\nb").stdout)] == [
        "a",
        "",
        "b",
    ]
    assert "holds no texts" in run("classify", "-", *CLASSIFY[2:], code=2, input="").stderr


def test_one_text_of_a_file():
    """Its lines are one text, as in `decide`, also on standard input; the options have short names."""
    Path("mail.txt").write_text("Hello.\nPay me!\n")
    Path("talk.json").write_text(json.dumps([{"role": "user", "content": "Pay me!"}]))
    wanted = fake().decide("Hello.\nPay me!", Choice("", LABELS))
    made = json.loads(run("classify", "--state-file", "mail.txt", "-l", "track order,refund", "--json").stdout)
    assert made["answers"]["label"]["probability"] == wanted.probability
    piped = run("classify", "--state-file", "-", *CLASSIFY[2:], "--json", input="Hello.\nPay me!\n")
    assert json.loads(piped.stdout)["answers"]["label"]["probability"] == wanted.probability
    talk = json.loads(run("classify", "--state-file", "talk.json", *CLASSIFY[2:], "--json").stdout)
    wanted = fake().decide([{"role": "user", "content": "Pay me!"}], Choice("", LABELS))
    assert talk["answers"]["label"]["probability"] == wanted.probability
    for other in (["t.csv"], ["--text", "x"], ["--state", "text"]):
        assert (
            "--state-file cannot be combined"
            in run("classify", *other, "--state-file", "mail.txt", "-l", "a,b", code=2).stderr
        )
    for flag in ("-o", "--output", "--out"):
        assert run(*CLASSIFY, flag, "-").stdout == run(*CLASSIFY).stdout


def test_one_text():
    """It is shown as the answer to a question is, and may be the argument; `value` is the label, or all of them."""
    made = json.loads(run("classify", "Pay!", *CLASSIFY[2:], "--json").stdout)
    assert made["value"] == made["answers"]["label"]["value"] in LABELS
    piped = json.loads(run("classify", "-", *CLASSIFY[2:], "--json", input="Pay!\n").stdout)
    assert piped["answers"]["label"]["probabilities"] == made["answers"]["label"]["probabilities"]
    assert "--out is not given" in run("classify", "-", *CLASSIFY[2:], "--json", code=2, input="Pay!\nGo!\n").stderr
    made = json.loads(run("classify", "Pay!", *CLASSIFY[2:], "--json", "--multi-label").stdout)
    assert made["value"] == {name: one["value"] for name, one in made["answers"].items()}
    asked = {"label": Choice("What?", LABELS)}
    shown = run("classify", "--text", "Pay!", *CLASSIFY[2:], "--question", "What?", "--json").stdout
    wanted = fake().decide("Pay!", asked).to_dict()["answers"]["label"]
    assert json.loads(shown)["answers"]["label"]["probabilities"] == wanted["probabilities"]
    assert "'refund'" in run("classify", "--text", "Pay!", *CLASSIFY[2:]).stdout


def test_several_labels(folder):
    """Each label has its own columns; the prior is that of yes and no."""
    rows = rows_of(run(*CLASSIFY, "--multi-label", "--question", "It is about {label}.").stdout)
    for row in rows:
        for label in LABELS:
            answer = fake().decide(row["text"], Predicate(f"It is about {label}."))
            assert float(row[f"{label}_probability"]) == answer.probability
            assert row[label] == str(answer.value).lower()
    (folder / "prior.json").write_text('{"yes": 1e-300, "no": 1}')
    rows = rows_of(run(*CLASSIFY, "--multi-label", "--prior", "prior.json").stdout)
    assert {row["refund"] for row in rows} == {"false"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), r"TABLE\|TEXT is not given; .* also missing: --labels, --state"),
        (("t.csv",), "--labels is not given"),
        (("two.csv",), "--labels is not given; .* also missing: --state"),
        (("two.csv", "--labels", "a,b"), "--state is not given; give the column to label; the table has 'id', 'body'"),
        (("t.csv", "--labels", "a"), "a: No such file, and no texts with commas"),
        (("t.csv", "--labels", "a,,b"), "a text between any two commas"),
        (("Pay me back!",), "--labels is not given"),
        (("Pay me back!", "--state", "body", "--labels", "a,b"), "--text cannot be combined with --state"),
        (("Pay me back!", "--labels", "a,b", "--out", "o.csv"), "give a table, or no --out"),
        (("gone.csv", "--labels", "a,b"), "gone.csv: No such file"),
        (
            ("mails.txt", "--labels", "a,b"),
            "'mails.txt': expected a text, or the name of a file that exists; a table is",
        ),
        (("gone.xlsx", "--labels", "a,b"), "file .csv .tsv .jsonl .parquet, and such a text is given as --text"),
        (("t.csv.gz", "--labels", "a,b"), "'t.csv.gz': expected a text, or the name of a file that exists"),
        (("mails/today", "--labels", "a,b"), "'mails/today': expected a text, or the name of a file"),
        (("t.csv", "--text", "x", "--labels", "a,b"), r"--text cannot be combined with TABLE\|TEXT"),
        (("-", "--labels", "a,b"), "-:1: the first line names a column 'text'; give --state text for a table"),
        (("--text", "x"), "--labels is not given"),
        (("--text", "x", "--labels", "a,b", "--out", "o.csv"), r"TABLE\|TEXT is not given; give a table, or no --out"),
        (("t.csv", "--labels", "a,b", "--json"), "--out is not given; give a file, with --json"),
        (("t.csv", "--labels", "a,b", "--none", "c", "--multi-label"), "--none cannot be combined with --multi-label"),
        (("t.csv", "--labels", "a,b", "--multi-label", "--examples", "t.csv"), "--examples cannot be combined with"),
        (("t.csv", "--labels", "a,b", "--multi-label", "--question", "What?"), "a statement about each"),
        (("t.csv", "--labels", "a,b", "--multi-label", "--calibrate", "batch"), "--prior is not given"),
        (("-", "--state", "b", "--labels", "a,b"), "-:2: 3 fields, and the header has 2"),
    ],
)
def test_mistakes(folder, arguments, message):
    """All that is missing is named at once, and nothing is written."""
    (folder / "two.csv").write_text("id,body\n1,x\n")
    result = run("classify", *arguments, code=2, input="text,b\n1,2,3\n")
    assert re.search(message, result.stderr), result.stderr
    assert result.stdout == ""
    assert not list(folder.glob("*.run"))
