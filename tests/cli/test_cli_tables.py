"""`selectrie classify` and `selectrie decide --table`: files in and out, going on, and mistakes before anything is written."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from selectrie import Choice, DecisionParams, Predicate, SamplingParams, Thinking, cascade
from selectrie.cli import app, requests
from selectrie.cli.groups import CascadeGroup
from selectrie.decide.columns import columns_of
from selectrie.decide.questions import balanced
from selectrie.errors import OptionError
from selectrie.tables.table_questions import TableQuestions, table_questions_of_data
from tests.support.deciding import fake

LABELS = "track order\nrefund\nreset password\n"
QUESTIONS = '[intent]\ntype = "choice"\ninstructions = "What is wanted?"\n\n[angry]\ntype = "predicate"\n'
ROWS = [("1", "Parcel", "Where is it?"), ("2", "Coat", 'too "small", sorry'), ("3", "", " "), ("4", "שלום", "🙂")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a table, labels and questions; every engine that is opened is the same fake."""
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "subject", "body"), *ROWS])
    (tmp_path / "labels.txt").write_text(LABELS)
    (tmp_path / "q.toml").write_text(QUESTIONS + 'instructions = "They are angry."\n')
    return tmp_path


def run(*arguments, code=0, stdin=None):
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
    assert result.exit_code == code, result.output
    return result


def read(path):
    """The rows of a CSV as dictionaries."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


CLASSIFY = ("classify", "t.csv", "--state", "body", "--labels", "labels.txt")
TABLE = ("decide", "q.toml", "--options", "intent=labels.txt", "--table", "t.csv")


def test_classify_adds_a_label_to_every_row(folder):
    """The columns are kept, and the new ones hold the answer of `decide` to the same question."""
    result = run(*CLASSIFY, "--question", "What is wanted?", "--out", "out.csv")
    assert result.stdout == "out.csv: 4 rows, 1 with an error\n"
    question = {"label": Choice("What is wanted?", LABELS.splitlines())}
    low = sum(fake().decide(body, question)["label"].label_mass < 0.01 for _, _, body in ROWS if body.strip())
    assert result.stderr.startswith(f"! in {low} of 3 rows the options hold less than 1 %")
    columns = columns_of(question, bare=True)
    assert columns.names == ("label", "probability", "confidence", "label_mass", "margin", "abstained", "error")
    for (number, subject, body), row in zip(ROWS, read(folder / "out.csv"), strict=True):
        assert (row["id"], row["subject"], row["body"]) == (number, subject, body)
        if body.strip():
            cells = columns.row(fake().decide(body, question))
            assert [row[name] for name in columns.names] == ["" if cell is None else str(cell) for cell in cells]
        else:
            assert row["error"].startswith("option: body=' '")


def test_examples_of_a_table_stand_in_the_prompt(folder):
    """As many of each label as asked for, drawn by their texts; the run's folder keeps them with the cue."""
    known = [(f"{label} {i}", label) for label in LABELS.splitlines() for i in range(5)]
    lines = ["body,label", *(f"{text},{label}" for text, label in known)]
    (folder / "known.csv").write_text("\n".join(lines) + "\n")
    run(*CLASSIFY, "--cue", "Intent:", "--examples", "known.csv", "--shots", "2", "--out", "out.csv")
    question = Choice("", LABELS.splitlines(), cue="Intent:", examples=balanced(known, 2))
    assert len(question.examples) == 2 * len(LABELS.splitlines())
    found = {row["body"]: row["label"] for row in read(folder / "out.csv") if row["body"].strip()}
    assert found == {body: fake().decide(body, question).value for body in found}
    described = json.loads((folder / "out.csv.run" / "run.json").read_text())
    assert described["configuration"]["questions"]["label"]["cue"] == "Intent:"
    (folder / "other.csv").write_text("body,label\nx,elsewhere\n")
    told = run(*CLASSIFY, "--examples", "other.csv", "--out", "new.csv", code=2).stderr
    assert "row 1 has the label 'elsewhere', which is none of the labels" in told
    assert (
        "--shots 0: expected a whole number"
        in run(*CLASSIFY, "--examples", "known.csv", "--shots", "0", "--out", "new.csv", code=2).stderr
    )
    assert "--examples too" in run(*CLASSIFY, "--shots", "2", "--out", "new.csv", code=2).stderr
    (folder / "bare.csv").write_text("body\nx\n")
    told = run(*CLASSIFY, "--examples", "bare.csv", "--out", "other.csv", code=2).stderr
    assert "has no column 'label' with the answers; it has 'body'" in told


def test_decide_asks_questions_of_a_file(folder):
    """A pattern of columns is the state; options of a choice may come from a file; probabilities and prefix are kept."""
    flags = (
        "--state",
        "{subject}: {body}",
        "--probabilities",
        "json",
        "--prefix",
        "my_",
        "--out",
        "out.jsonl",
        "--json",
    )
    shown = json.loads(run(*TABLE, *flags).stdout)
    assert [one["code"] for one in shown.pop("warnings")] == ["label_mass"]
    assert shown == {
        "format": 2,
        "kind": "decided_table",
        "out": "out.jsonl",
        "run": "out.jsonl.run",
        "rows": 4,
        "errors": 1,
    }
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    questions = {"intent": Choice("What is wanted?", LABELS.splitlines()), "angry": Predicate("They are angry.")}
    first = fake().decide("Parcel: Where is it?", questions)
    assert rows[0]["my_intent"] == first["intent"].value
    assert json.loads(rows[0]["my_intent_probabilities"]) == dict(first.choices["intent"].probabilities)
    assert rows[0]["my_angry"] is first["angry"].value
    assert [row["my_error"] is None for row in rows] == [True, True, False, True]


def test_a_run_goes_on_from_its_folder_alone(folder):
    """`--resume` needs nothing else, writes the same bytes, and takes no other question."""
    run(*TABLE, "--state", "body", "--layout", "questions first", "--out", "out.csv")
    before = (folder / "out.csv").read_bytes()
    log = folder / "out.csv.run" / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-9])
    (folder / "out.csv").unlink()
    run("decide", "--resume", "out.csv.run")
    assert (folder / "out.csv").read_bytes() == before
    (folder / "out.csv").unlink()
    run("classify", "--resume", folder / "out.csv.run")
    assert (folder / "out.csv").read_bytes() == before
    for more in (("--state", "body"), ("--choice", "a=b"), ("--layout", "auto", "--top", "1"), ("--out", "x.csv")):
        assert "--resume" in run("decide", "--resume", "out.csv.run", *more, code=2).stderr
    assert "--resume" in run("classify", "t.csv", "--resume", "out.csv.run", code=2).stderr


def test_a_prior_weighs_the_labels(folder):
    """A file of weights reaches the decision."""
    (folder / "prior.json").write_text(json.dumps({"track order": 1e-300, "refund": 1.0, "reset password": 1e-300}))
    run(*CLASSIFY, "--prior", "prior.json", "--out", "out.csv")
    assert {row["label"] for row in read(folder / "out.csv") if not row["error"]} == {"refund"}


@pytest.mark.parametrize("out", [(), ("--out", "-")])
def test_a_table_comes_from_stdin_and_goes_to_stdout(out, folder):
    """`decide` writes the rows that it writes to a file; an error names stdin and its line."""
    run(*TABLE, "--state", "body", "--out", "o.csv")
    piped = (*TABLE[:-1], "-", "--state", "body", *out)
    assert run(*piped, stdin=(folder / "t.csv").read_bytes()).stdout_bytes == (folder / "o.csv").read_bytes()
    assert run(*piped, stdin="a,body\n1\n", code=2).stderr == "error[input_file]: -:2: 1 fields, and the header has 2\n"
    assert not list(folder.glob("-*"))


@pytest.mark.parametrize("questions", ["q.toml", "q.json"])
def test_questions_come_from_stdin(questions, folder):
    """TOML or JSON, by how they begin; stdin is read for one option."""
    (folder / "q.json").write_text('[{"type": "predicate", "name": "a", "instructions": "Is it?"}]')
    asked = ("--options", "intent=labels.txt") if questions == "q.toml" else ()
    read = (folder / questions).read_bytes()
    expected = run("decide", questions, *asked, "--state", "x", "--json").stdout
    assert (
        json.loads(run("decide", "-", *asked, "--state", "x", "--json", stdin=read).stdout)["answers"]
        == (json.loads(expected)["answers"])
    )
    twice = run("decide", "-", *asked, "--state-file", "-", stdin=read, code=2)
    assert "standard input was read for another option" in twice.stderr


def test_a_field_may_be_long(folder):
    """A field of CSV beyond the limit of Python's reader is asked, or has its error in its row."""
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "body"), ("1", "x" * 200_000), ("2", "short")])
    run(*CLASSIFY, "--out", "out.jsonl")
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["error"] and row["error"].split(":")[0] for row in rows] == ["prompt_too_long", None]
    assert csv.field_size_limit() == 131_072
    assert rows[0]["body"] == "x" * 200_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*CLASSIFY[:2], *CLASSIFY[4:], "--out", "o.csv"), "--state is not given"),
        ((*CLASSIFY[:4], "--out", "o.csv"), "--labels is not given"),
        ((*TABLE, "--state", "body", "--out", "o"), "--out 'o': expected a file whose name ends in"),
        ((*TABLE, "--state", "body", "--out", "-", "--json"), "--out '-': expected a file, with --json"),
        ((*CLASSIFY, "--out", "t.csv"), "another file than the table itself"),
        ((*CLASSIFY, "--out", "labels.csv"), "it exists, and there is no run in labels.csv.run"),
        ((*CLASSIFY, "--out", "o.csv", "--actors", "2"), "--actors 2: expected --ray too"),
        ((*CLASSIFY, "--out", "o.csv", "--top", "0"), "--top 0"),
        ((*TABLE, "--out", "o.csv"), "--state is not given"),
        (("decide", "--table", "t.csv"), "--state is not given.*; --choice is not given"),
        ((*TABLE, "--state", "bdy", "--out", "o.csv"), "--state 'bdy': .* the table has 'id', 'subject', 'body'"),
        (
            (*TABLE, "--state", "body", "--out", "o.csv", "--show-prompt"),
            "--show-prompt cannot be combined with --table",
        ),
        ((*TABLE[:2], "--table", "t.csv", "--state", "body", "--out", "o.csv"), r"q.toml: intent.choices is not given"),
        ((*TABLE, "--options", "angry=labels.txt", "--state", "body", "--out", "o.csv"), "--choices 'angry'"),
        ((*TABLE, "--probabilities", "all", "--state", "body", "--out", "o.csv"), "--probabilities 'all'"),
        (("decide", "--state", "x", "--predicate", "a=b", "--out", "o.csv"), "--table is not given"),
        (("decide", "--state", "x", "--predicate", "a=b", "--prefix", "o"), "--table is not given"),
        (("decide", "--resume", "none.run"), "it holds no run"),
    ],
)
def test_mistakes_come_before_anything_is_written(arguments, message, folder):
    """One line that names the flag, and no folder of a run."""
    (folder / "labels.csv").write_text("mine")
    result = run(*arguments, code=2)
    assert result.stderr.startswith("error[")
    assert re.search(message, result.stderr), result.stderr
    assert result.stdout == ""
    assert not list(folder.glob("*.run"))


def test_a_stopped_run_says_how_to_go_on(folder, monkeypatch):
    """Ctrl-C leaves a folder, and names the command that goes on with it."""
    from selectrie.tables import table_run

    def stopped(*_arguments):
        def work(plan, units):
            raise KeyboardInterrupt
            yield from units

        return work

    monkeypatch.setattr(table_run, "decide_on_engine", stopped)
    result = run(*CLASSIFY, "--out", "out.csv", code=130)
    assert "interrupted; go on with: selectrie classify --resume out.csv.run" in result.stderr
    assert not (folder / "out.csv").exists()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    run("decide", "--resume", "out.csv.run")
    assert len(read(folder / "out.csv")) == 4


def test_the_model_of_a_run_is_loaded_again(folder, monkeypatch):
    """`--resume` opens the model that the run began with, unless another one is named."""
    seen = []

    def opened(group):
        seen.append(group)
        return fake()

    monkeypatch.setattr(requests, "open_engine", opened)
    run(*CLASSIFY, "-m", "a.gguf", "--threads", "2", "--out", "out.csv")
    run("decide", "--resume", "out.csv.run")
    run("decide", "--resume", "out.csv.run", "-m", "b.gguf")
    assert seen == [CascadeGroup(model="a.gguf", threads=2)] * 2 + [CascadeGroup(model="b.gguf")]


def test_a_cascade_labels_a_table(folder, monkeypatch):
    """A column names the model of each answer. The run goes on with the same models and confidence alone."""
    monkeypatch.setattr(requests, "open_engine", lambda group: fake({None: 1, "big": 2}[group.model], sharpness=0.1))
    flags = (*CLASSIFY, "--cascade", "big", "--out", "out.csv")
    run(*flags, "--cascade-confidence", "0.5")
    rows = [row for row in read(folder / "out.csv") if not row["error"]]
    with fake(1, sharpness=0.1) as small, fake(2, sharpness=0.1) as big:
        llm = cascade([small, big], min_confidence=0.5)
        found = [llm.decide(row["body"], Choice("", LABELS.splitlines())) for row in rows]
    assert [(row["label"], row["model"]) for row in rows] == [(one.value, one.decided_by.model) for one in found]
    assert [float(row["probability"]) for row in rows] == [one.probability for one in found]
    (folder / "out.csv").unlink()
    run("classify", "--resume", "out.csv.run")
    assert [row for row in read(folder / "out.csv") if not row["error"]] == rows
    told = run(*flags, code=2).stderr
    assert "cascade_confidence was 0.5, now 0.8" in " ".join(told.split())
    told = run(*flags, "--ray", "local", code=2).stderr
    assert "--ray cannot be combined with --cascade" in told


def test_a_run_thinks_and_goes_on(folder):
    """The folder keeps the options of the rationales; the answers are those of the table in Python."""
    think = Thinking(n=2, max_tokens=6, stop="|", seed=3, sampling=SamplingParams(logit_bias={5: -1.0}))
    questions = TableQuestions(state="body", questions={"late": Predicate("Late?")}, params=DecisionParams(think=think))
    data = json.loads(json.dumps(questions.to_dict()))
    assert table_questions_of_data(data, "here").params.think == think
    with pytest.raises(OptionError, match="may go on in another process"):
        replace(questions, params=DecisionParams(think=replace(think, seed=None)))
    flags = ("--think", "2", "--think-tokens", "6", "--think-stop", "|", "--out", "out.csv")
    run(*CLASSIFY, *flags)
    before = read(folder / "out.csv")
    think = replace(think, seed=0, sampling=SamplingParams())
    found = {row["body"]: row["label"] for row in before if not row["error"]}
    question = Choice("", LABELS.splitlines())
    assert found == {body: fake().decide(body, question, think=think).value for body in found}
    (folder / "out.csv").unlink()
    run("classify", "--resume", "out.csv.run")
    assert read(folder / "out.csv") == before
