"""Runs over tables: what a row becomes, what a killed run leaves, and what another run is refused."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie import Calibration, Choice, DecisionParams, Option, Predicate, Score, Template
from selectrie.engine.load import load
from selectrie.errors import InputFileError, OptionError
from selectrie.grammar import Grammar
from selectrie.runs.folder import LogLine, signature_of
from selectrie.tables import table_run
from selectrie.tables.table_questions import TableQuestions, table_questions_of_data
from selectrie.tables.table_run import (
    RowLines,
    RowResults,
    TableProgress,
    TableRunOptions,
    decide_on_engine,
    plan_table,
    read_run_start,
    run_table,
    with_run_params,
)
from tests.support import decided_tables
from tests.support.decided_tables import write_table
from tests.support.deciding import QUESTIONS, fake

POINTS = ["0.csv", "12500.jsonl", "31300.csv", "-1.csv", "-2.jsonl", "900,2500.csv", "100,-1.jsonl"]
"""Bytes of the log, renamings, and pairs of them; a sweep has 200."""
ASKED = TableQuestions(state="body", questions=QUESTIONS)


def killed(tmp_path, points):
    """Check what the program prints about each point."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.support.decided_tables", str(tmp_path), *points]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    heads = [line for line in lines if line.startswith("bytes ")]
    assert all(int(head.split()[1]) > 37_600 for head in heads)
    assert lines[len(heads) :] == [f"{point} {[9] * (1 + point.count(','))} 0 True []" for point in points]


def test_killed_runs_end_with_the_same_bytes(tmp_path):
    """The folder alone is enough to go on; log and results are those of an undisturbed run, and no other file is left."""
    killed(tmp_path, POINTS)


@pytest.mark.long
def test_runs_killed_at_200_points_end_with_the_same_bytes(tmp_path):
    """The same over 200 points and every format."""
    pytest.importorskip("pyarrow")
    killed(tmp_path, [f"{i * 188}.{['csv', 'tsv', 'jsonl', 'parquet'][i % 4]}" for i in range(200)])


def test_memory_does_not_grow_with_the_table(tmp_path):
    """Four times the rows take no more memory: nothing is held but a few units."""
    peaks = []
    for n_rows in (64 * 4, 64 * 16):
        table = write_table(tmp_path / f"{n_rows}.csv", n_rows)
        tracemalloc.start()
        decided_tables.run(table, tmp_path / f"out{n_rows}.csv")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_million_rows_take_no_more_memory_than_a_tenth(suffix, tmp_path):
    """The peak of the process is at most 32 MB higher."""
    pytest.importorskip("pyarrow")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    peaks = []
    for n_rows in (100_000, 1_000_000):
        command = [sys.executable, "-m", "tests.support.decided_tables", "--rows", str(n_rows), str(tmp_path), suffix]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        peaks.append(json.loads(done.stdout)["peak_kb"])
    assert peaks[1] <= peaks[0] + 32 * 1024


def test_tables_without_rows(tmp_path):
    """A header alone gives a header with the new columns; an empty file of JSON Lines has no column to ask about."""
    (tmp_path / "t.csv").write_text("id,body\n")
    done = run_table(fake(), plan_table(tmp_path / "t.csv", ASKED, tmp_path / "o.csv"))
    assert (done.rows, done.n_rows) == (0, 0)
    assert (tmp_path / "o.csv").read_text() == "id,body," + ",".join(ASKED.columns().names) + "\n"
    (tmp_path / "t.jsonl").write_text("\n")
    with pytest.raises(OptionError, match="the table has none"):
        plan_table(tmp_path / "t.jsonl", ASKED, tmp_path / "o.jsonl")


class StoppedError(Exception):
    """Raised in the middle of a run."""


def test_a_stopped_run_on_real_weights_ends_with_the_same_bytes(tmp_path):
    """Other work of the engine in between, and another engine, change no bit; a row alone is within the tolerance."""
    table = write_table(tmp_path / "t.csv", 30, 1)
    asked = replace(ASKED, questions={"intent": QUESTIONS["intent"]}, unit_rows=8)
    with load(n_threads=1) as llm:
        run_table(llm, plan_table(table, asked, tmp_path / "whole.csv"))

    def stopping(work):
        for n, (unit, values) in enumerate(work):
            if n == 2:
                raise StoppedError
            yield unit, values

    with load(n_threads=1) as llm:
        plan = with_run_params(llm, plan_table(table, asked, tmp_path / "parts.csv"))
        llm.select("My parcel has", [" come", " not come"])
        with pytest.raises(StoppedError):
            run_table(llm, plan, work=lambda plan, units: stopping(decide_on_engine(llm)(plan, units)))
        llm.decide("Where is it?", QUESTIONS)
        assert run_table(llm, plan).rows_logged == 16
        assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
        with (tmp_path / "whole.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if not row["error"]]
        assert len(rows) == 26
        for row in rows[:4]:
            alone = llm.decide(row["body"], asked.questions, params=plan.params).choices["intent"]
            assert row["intent"] == alone.value
            assert math.log(float(row["intent_probability"])) == pytest.approx(
                math.log(alone.probability), abs=2 * alone.signature.selection.tolerance
            )


def test_cells_are_those_of_the_rows_alone(tmp_path):
    """Emoji, right-to-left text, control tokens, 100 kB, blank and missing rows: each has its own answer or error."""
    states = ["🙂 שלום مرحبا", "<eos> <|im_end|>", "x" * 100_000, "", " \n", None, "plain", {"k": [1]}, float("nan")]
    table = tmp_path / "in.jsonl"
    table.write_text("".join(json.dumps({"body": state}) + "\n" for state in states))
    params = DecisionParams(layout="state first")
    plan = plan_table(table, replace(ASKED, unit_rows=4, params=params), tmp_path / "out.jsonl")
    llm = fake()
    done = run_table(llm, plan)
    assert (done.rows, done.n_rows, done.errors) == (9, 9, 5)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    columns = ASKED.columns()
    for state, row in zip(states, rows, strict=True):
        if row["error"] is None:
            alone = dict(zip(columns.names, columns.row(llm.decide(state, QUESTIONS, params=params)), strict=True))
            assert {name: row[name] for name in columns.names} == alone
        else:
            assert all(row[name] is None for name in columns.names[:-1])
    assert [row["error"] and row["error"].split(":")[0] for row in rows] == [
        *[None, None, "prompt_too_long", "option", "option", "option"],
        *[None, None, "option"],
    ]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder with a table whose run has ended, and what its files hold."""
    folder = tmp_path_factory.mktemp("ended")
    run_table(fake(), plan_table(write_table(folder / "table.csv", 10), ASKED, folder / "out.csv"))
    return folder, {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def begun(ended):
    """A table whose run has ended; its folder is as it was left."""
    folder, files = ended
    shutil.rmtree(folder)
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / "table.csv", folder / "out.csv"


def test_the_same_command_again_does_nothing_again(begun):
    """A finished run asks the model for nothing, and writes the same bytes."""
    table, out = begun
    before = out.read_bytes()
    out.unlink()
    seen = []
    done = run_table(
        fake(),
        plan_table(table, ASKED, out),
        TableRunOptions(on_progress=seen.append),
        work=lambda _plan, units: iter([*units]),
    )
    assert out.read_bytes() == before
    assert (done.rows, done.rows_logged) == (10, 10)
    assert seen == [TableProgress(0, 10), done]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "subject"}, "configuration.state was 'body'|configuration.state was \"body\""),
        ({"questions": {"intent": Predicate("x")}}, "configuration.questions.intent"),
        ({"params": DecisionParams(rule="pmi")}, "configuration.params.rule"),
        ({"prefix": "new_"}, "configuration.prefix"),
        ({"unit_rows": 3}, "configuration.unit_rows"),
    ],
)
def test_another_run_is_refused(change, message, begun):
    """The folder of a run takes no other one; the error names the difference, and nothing changes."""
    table, out = begun
    before = out.read_bytes()
    with pytest.raises(OptionError, match=message):
        run_table(fake(), plan_table(table, replace(ASKED, **change), out))
    assert out.read_bytes() == before


def test_another_model_or_table_is_refused(begun):
    """Another digest of the model, and a table with other rows, are named."""
    table, out = begun
    with pytest.raises(OptionError, match="a folder of the same run: "):
        run_table(fake(2), plan_table(table, ASKED, out))
    table.write_text(table.read_text().replace("0000003", "0000004"))
    with pytest.raises(OptionError, match=r"a folder of the same run: plan.digest"):
        run_table(fake(), plan_table(table, ASKED, out))


def test_another_processor_is_refused_unless_it_is_wanted(begun, monkeypatch):
    """The error names the flag with which the run goes on all the same."""
    table, out = begun
    there = {**signature_of(fake()), "processor": "another"}
    monkeypatch.setattr(table_run, "signature_of", lambda _llm: there)
    with pytest.raises(OptionError, match=r"processor was .*; --other-machine goes on all the same"):
        run_table(fake(), plan_table(table, ASKED, out))
    done = run_table(fake(), plan_table(table, ASKED, out), TableRunOptions(other_machine=True))
    assert done.rows_logged == 10


def test_a_table_that_goes_away(begun):
    """A table that is gone before the run, or whose name no file has, is one error of the file."""
    table, _ = begun
    plan = plan_table(table, ASKED, table.with_name("other.csv"))
    table.unlink()
    with pytest.raises(InputFileError, match=r"table\.csv: No such file"):
        run_table(fake(), plan)
    for name in ("table.csv", "a\0b.csv", "\ud800.csv", "x" * 300 + ".csv"):
        with pytest.raises(InputFileError):
            plan_table(table.with_name(name), ASKED, table.with_name("new.csv"))


FLOATS = st.floats() | st.sampled_from([float("inf"), -float("inf"), float("nan"), 5e-324, 0.1 + 0.2])
TRUST = (*[FLOATS] * 4, st.text(max_size=3))
LOGGED = st.tuples(st.sampled_from(["re", "refund"]), *TRUST, st.booleans(), *TRUST)


@given(rows=st.lists(LOGGED | st.text(max_size=5), max_size=4))
def test_a_line_of_the_log_reads_back_bit_for_bit(rows):
    """Floats of any kind, texts of any character, and errors."""
    lines = RowLines(decided_tables.ASKED.columns().columns)
    line = LogLine("plan", 3, RowResults("0" * 16, tuple(rows)))
    text = line.to_json(lines)
    again = LogLine.from_json(text, lines)
    assert repr(again) == repr(line)
    assert again.to_json(lines) == text


def test_a_table_that_changes_while_it_is_read(begun):
    """Rows that change between the plan and the results are an error, and no results are written."""
    table, _ = begun
    out = table.with_name("other.csv")
    plan = plan_table(table, ASKED, out)
    text = table.read_text()

    def work(plan, units):
        for unit in units:
            yield next(decided_tables.stubbed(plan, iter([unit])))
            table.write_text(text.replace("0000003", "0000004"))

    asked = replace(ASKED, questions=decided_tables.QUESTIONS)
    plan = plan_table(table, asked, out)
    with pytest.raises(InputFileError, match="unit 0 of the table has other rows"):
        run_table(fake(), plan, work=work)
    assert not out.exists()


def test_mistakes_before_anything_is_written(begun):
    """A file that is there, a column that is missing or there already: one error each, and no folder."""
    table, _ = begun
    for change, out, message in (
        ({}, table.with_name("table2.csv"), "it exists, and there is no run in table2.csv.run"),
        ({"state": "bdy"}, None, "the table has 'id', 'subject', 'body'"),
        ({"state": "{bdy}"}, None, "it has 'id', 'subject', 'body'"),
        ({"questions": {"subject": Predicate("x")}}, None, "prefix='subject'"),
        ({"questions": {"x": Predicate("x")}, "prefix": "subject"}, table.with_name("ok.csv"), None),
    ):
        if out is not None and message is not None:
            out.write_text("mine")
        target = out or table.with_name("new.csv")
        if message is None:
            plan_table(table, replace(ASKED, **change), target)
        else:
            with pytest.raises(OptionError, match=message):
                plan_table(table, replace(ASKED, **change), target)
        assert not target.with_name(f"{target.name}.run").exists()


def test_a_folder_alone_says_what_was_asked(begun):
    """Table, questions, options and the file of the results come from the folder; a renamed one is refused."""
    table, out = begun
    where, asked, results, _ = read_run_start(out.with_name("out.csv.run"))
    assert (where, results) == (table, out)
    assert asked.to_dict() == ASKED.to_dict()
    out.with_name("out.csv.run").rename(out.with_name("out.run"))
    with pytest.raises(InputFileError, match=r"as in decided.csv.run; name it so again"):
        read_run_start(out.with_name("out.run"))


def test_everything_that_is_asked_is_data(tmp_path):
    """Questions and options read back from JSON, but for those that only Python has."""
    (tmp_path / "page.tmpl").write_text("<<state>> <<select 'answer' options=answers>>\n")
    questions = {
        "a": Choice("A?", [Option("x", "ex", "about"), True, 3]),
        "b": Predicate("B.", yes="ja", no="nein", no_when="never"),
        "c": Score("C?", {0.5: "low", 3: "high"}),
        "d": Score("D?", [Option(0, "low", "at first"), Option(1, "high")]),
    }
    params = DecisionParams(
        template=Template.from_file(tmp_path / "page.tmpl"),
        layout="questions first",
        prior={"x": 2.0, True: 1.0, 3: 1.0},
    )
    asked = TableQuestions(
        state="x", questions=questions, params=params, probabilities="json", prefix="p_", unit_rows=7
    )
    data = json.loads(json.dumps(asked.to_dict()))
    again = table_questions_of_data(data, "x.run")
    assert again.questions == questions
    assert (again.params.prior, again.params.layout) == (params.prior, params.layout)
    assert json.loads(json.dumps(again.to_dict())) == data
    (tmp_path / "page.tmpl").write_text("<<state>>: <<select 'answer' options=answers>>\n")
    with pytest.raises(InputFileError, match=r"the template has changed since x\.run began"):
        table_questions_of_data(data, "x.run")
    alone = replace(params, template=Template("<<state>> <<select 'answer' options=answers>>\n"))
    with pytest.raises(InputFileError, match="its template was made in Python"):
        table_questions_of_data(json.loads(json.dumps(replace(asked, params=alone).to_dict())), "x.run")
    only = TableQuestions(state="x", questions={"g": Choice("", Grammar.from_regex("a|b"))})
    with pytest.raises(InputFileError, match="made in Python"):
        table_questions_of_data(json.loads(json.dumps(only.to_dict())), "x.run")
    with pytest.raises(InputFileError, match="not the configuration of a run"):
        table_questions_of_data({"questions": 3}, "x.run")


def _cells(path):
    """The cells of each row by its text."""
    return {row["body"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_a_run_keeps_its_calibration(tmp_path):
    """It is fitted to the table's rows, in any order, and kept: a run goes on with it, and `decide` with it gives the cells."""
    states = [f"message {n}" for n in range(20)] + ["", "message 3"]
    question = {"intent": QUESTIONS["intent"]}
    asked = TableQuestions(state="body", questions=question, params=DecisionParams(calibration="batch"), unit_rows=4)
    for name, rows in (("a", states), ("b", states[::-1])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"body": one}) + "\n" for one in rows))
        run_table(fake(), plan_table(tmp_path / f"{name}.jsonl", asked, tmp_path / f"{name}.out.jsonl"))
    out, folder = tmp_path / "a.out.jsonl", tmp_path / "a.out.jsonl.run"
    cells, whole = _cells(out), out.read_bytes()
    assert cells == _cells(tmp_path / "b.out.jsonl")
    params = DecisionParams(calibration=Calibration.load(folder / "run.json"))
    llm, columns = fake(), asked.columns()
    for state in filter(None, states):
        alone = columns.row(llm.decide(state, question, params=params))
        assert [cells[state][name] for name in columns.names] == list(alone)
    log = (folder / "log.jsonl").read_bytes()
    (folder / "log.jsonl").write_bytes(log[: len(log) // 2])
    out.unlink()
    _, again, _, _ = read_run_start(folder)
    run_table(fake(), plan_table(tmp_path / "a.jsonl", again, out))
    assert out.read_bytes() == whole
    given = replace(asked, params=params)
    run_table(fake(), plan_table(tmp_path / "a.jsonl", given, tmp_path / "c.out.jsonl"))
    assert (tmp_path / "c.out.jsonl").read_bytes() == whole
    assert table_questions_of_data(given.to_dict(), "here").params == params
    with pytest.raises(OptionError, match="calibration"):
        run_table(fake(), plan_table(tmp_path / "a.jsonl", given, out))
