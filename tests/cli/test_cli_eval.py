"""`selectrie eval`: data files in, figures, folders and pages out, mistakes told before a model is loaded, and how it ends."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import selectrie
from selectrie import Engine
from selectrie.cli import app, requests
from selectrie.cli import evaluation as command
from selectrie.cli.show import count_progress
from selectrie.errors import OptionError
from selectrie.evaluation import Evaluation, Item, evaluate
from selectrie.evaluation.evaluator import Progress
from selectrie.evaluation.metrics import METRICS, find_metrics
from selectrie.evaluation.runner import ITEMS, SUMMARY, read_run
from selectrie.runs.folder import LOG, RUN

QUESTIONS = [
    ("Q: What is the capital of France? A:", ["Paris", "a car", "Berlin"], 0),
    ("Q: What is the capital of Italy? A:", ["Tokyo", "Rome", "green"], 1),
    ("Q: What colour is grass? A:", ["green", "blue", "a dog"], 0),
    ("Q: How many legs does a dog have? A:", ["three", "four", "Rome"], 1),
]


@pytest.fixture(scope="module")
def llm() -> Iterator[Engine]:
    """The model that comes with selectrie."""
    with selectrie.load(n_threads=1) as engine:
        yield engine


@pytest.fixture
def opened(llm: Engine, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What commands ask to be opened; they get `llm`, which stays open."""
    groups: list[object] = []

    @contextmanager
    def open_engine(group: object) -> Iterator[Engine]:
        groups.append(group)
        yield llm

    monkeypatch.setattr(requests, "open_engine", open_engine)
    return groups


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data files."""
    monkeypatch.chdir(tmp_path)
    write("questions.jsonl", QUESTIONS)
    write("two.jsonl", QUESTIONS[:2])
    write("uneven.jsonl", [QUESTIONS[0], ("Q: What colour is snow? A:", ["white", "black"], 0)])
    write("single.jsonl", [("Grass is", ["green"], 0)])
    return tmp_path


def write(name: str, questions: list[tuple[str, list[str], int]]) -> None:
    """A data file of the generic format."""
    lines = [
        json.dumps({"context": c, "choices": o, "gold": g, "id": f"q{i}"}) for i, (c, o, g) in enumerate(questions)
    ]
    Path(name).write_text("\n".join(lines) + "\n")


def run(*args: str, code: int = 0) -> Result:
    """The result of the command, which ends with this exit code."""
    result = CliRunner().invoke(app, ["eval", *args], prog_name="selectrie")
    assert result.exit_code == code, result.output
    return result


def refused(*args: str) -> str:
    """What is said on standard error of a command that ends with exit code 2 and prints nothing."""
    result = run(*args, code=2)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_data_files_are_scored(opened, llm):
    """Figures of every metric asked for, in a table; nothing on standard error where nobody watches."""
    result = run("questions.jsonl", "--metric", "acc,acc_norm", "--metric", "brier")
    assert "questions" in result.stdout or "generic" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[2:5]] == ["acc", "acc_norm", "brier"]
    assert "rows evaluated" in result.stdout
    assert result.stderr == ""
    assert len(opened) == 1


def test_json_is_one_object(opened, llm):
    """With every figure, equal to those of the library."""
    shown = json.loads(run("run", "questions.jsonl", "--json", "--limit", "3").stdout)
    assert shown["kind"] == "evaluation"
    (task,) = shown["tasks"]
    assert (task["n"], list(task["metrics"])) == (3, ["acc", "acc_norm"])
    items = [
        Item(context, tuple(choices), (gold,), f"q{i}") for i, (context, choices, gold) in enumerate(QUESTIONS[:3])
    ]
    mine = evaluate(llm, items)
    assert task["metrics"] == mine.to_dict()["tasks"][0]["metrics"]


def test_a_pattern_has_line_ends(opened):
    r"""`\n` is one in a pattern, as a real one is; the name of a column keeps its backslash, and others are refused."""
    Path("quiz.csv").write_text("question,back\\nslash,x,y,answer\n" + "Grass is,Snow is,green,white,A\n" * 2)
    rest = ("--choices", "x,y", "--gold", "answer", "--json")
    assert (
        run("quiz.csv", "--context", r"Q: {question}\nA:\t", *rest).stdout
        == run("quiz.csv", "--context", "Q: {question}\nA:\t", *rest).stdout
        != run("quiz.csv", "--context", r"Q: {question}\\nA:\t", *rest).stdout
    )
    assert run("quiz.csv", "--context", r"back\nslash", *rest).exit_code == 0
    assert r"whose backslashes begin \n, \r, \t or \\" in refused("quiz.csv", "--context", r"{question} \boxed", *rest)


def test_a_table_needs_no_task_file(opened):
    """The names of its columns do, in a run that goes on from its folder; the figures are those of the same questions."""
    Path("quiz.csv").write_text(
        "question,x,y,z,answer\n"
        + "".join(f"{context},{','.join(choices)},{'ABC'[gold]}\n" for context, choices, gold in QUESTIONS)
    )
    words = ("quiz.csv", "--context", "question", "--choices", "x,y,z", "--gold", "answer")
    shown = json.loads(run(*words, "--out", "a", "--json").stdout)
    same = json.loads(run("questions.jsonl", "--json").stdout)
    assert shown["tasks"][0]["task"] == "quiz"
    assert shown["tasks"][0]["metrics"] == same["tasks"][0]["metrics"]
    assert json.loads(run("--resume", "a", "--json").stdout) == shown
    Path("kinds.tsv").write_text("text\tkind\nSnow is\twhite\nGrass is\tgreen\n")
    named = run("kinds.tsv", "--text", "{text}", "--labels", "white,green", "--gold", "kind", "--json").stdout
    assert json.loads(named) == json.loads(run("kinds.tsv", "--context", "text", "--labels", "kind", "--json").stdout)
    said = refused("quiz.csv", "--choices", "x,y")
    assert said.endswith("--context is not given; give the column of the questions, because --choices is given\n")
    assert "--gold-as" in refused(
        "quiz.csv", "--context", "question", "--choices", "x,y,z", "--gold", "answer", "--gold-as", "w"
    )
    assert "name their columns (--context" in refused("quiz.csv")


def test_columns_of_usual_names_need_no_option(opened: list[object]):
    """They are named on stderr; `accuracy` is that of the only task. Labels alone are those of text and label."""
    Path("kinds.tsv").write_text("text\tlabel\nSnow is\twhite\nGrass is\tgreen\nCoal is\tgreen\n")
    wanted = json.loads(run("kinds.tsv", "--text", "text", "--labels", "label", "--json").stdout)
    found = run("kinds.tsv", "--json", "--out", "a")
    assert json.loads(found.stdout) == wanted
    assert "kinds.tsv: no task reads it, so it is scored as with --text text --labels label\n" in found.stderr
    for how in ([], ["--labels", "green,white"], ["--labels", "label"]):
        assert "`selectrie classify --gold` asks which label fits, and its accuracy" in run("kinds.tsv", *how).stderr
    assert json.loads(run("--resume", "a", "--json").stdout) == wanted
    assert wanted["accuracy"] == wanted["tasks"][0]["metrics"]["acc"]["value"]
    assert f"accuracy {100 * wanted['accuracy']:.1f} % (acc)" in run("kinds.tsv").stdout
    assert json.loads(run("kinds.tsv", "--labels", "green,white", "--json").stdout) == wanted
    assert json.loads(run("kinds.tsv", "--labels", "label", "--json").stdout) == wanted
    assert "accuracy" not in json.loads(run("kinds.tsv", "questions.jsonl", "--json").stdout)
    rows = [{"question": text, "choices": choices, "answer": gold} for text, choices, gold in QUESTIONS]
    Path("own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = run("own.jsonl", "--json")
    assert "as with --text question --choices choices --gold answer" in made.stderr
    assert "labels are scored" not in made.stderr
    metrics = json.loads(run("questions.jsonl", "--json").stdout)["tasks"][0]["metrics"]
    assert json.loads(made.stdout)["tasks"][0]["metrics"] == metrics


def test_names_are_whole_in_files(opened, llm):
    """A report that goes elsewhere than to a terminal cuts no name, and a single item has no error that is no number."""
    names = [f"{'a long name of a subset ' * 5}{i}" for i in range(2)]
    records = [{"q": "Snow is", "l": ["white", "green"], "gold": "white", "group": name, "id": name} for name in names]
    Path("own.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    task = 'name = "own"\nversion = 1\nkind = "multiple_choice"\nsource = "here"\nmetrics = ["acc"]\n[[format]]\n'
    Path("own.toml").write_text(task + 'context = "<<q>>"\nchoices = "l"\ngold_as = "text"\nsubset = "<<group>>"\n')
    text = run("own.jsonl", "--task", "own.toml").stdout
    assert all(re.search(rf"^{name} +1  acc +1\.0000 +0\.2", text, re.MULTILINE) for name in names), text
    one = evaluate(llm, [Item("Snow is", ("white", "green"), (0,))])
    assert "nan" not in repr(one) + one._repr_html_()
    assert "acc 1.0000  acc_norm 1.0000" in repr(one)


def test_a_folder_holds_the_run(opened):
    """Configuration, log, records and figures; `report` shows them again, and the same command measures nothing anew."""
    first = run("questions.jsonl", "--out", "runs/a", "--json").stdout
    folder = Path("runs/a")
    assert {path.name for path in folder.iterdir()} == {RUN, LOG, ITEMS, SUMMARY}
    assert run("report", "runs/a", "--json").stdout == first
    before = (folder / LOG).stat().st_mtime_ns
    assert run("questions.jsonl", "--out", "runs/a", "--json").stdout == first
    assert (folder / LOG).stat().st_mtime_ns == before


def test_a_run_is_shown_by_other_metrics(opened):
    """Of the same folder by the same command, and by `report`: nothing is measured, no file changes."""
    run("questions.jsonl", "--metric", "acc,acc_mutual_info", "--out", "a")
    before = {path.name: path.read_bytes() for path in Path("a").iterdir()}
    again = json.loads(run("questions.jsonl", "--out", "a", "--json").stdout)
    shown = json.loads(run("report", "a", "--metric", "brier", "--metric", "acc,mc2", "--json").stdout)
    assert list(again["tasks"][0]["metrics"]) == ["acc", "acc_norm"]
    assert list(shown["tasks"][0]["metrics"]) == ["brier", "acc", "mc2"]
    assert before == {path.name: path.read_bytes() for path in Path("a").iterdir()}


def test_a_run_goes_on_where_it_was(opened, monkeypatch):
    """Ctrl-C says how; the run taken up again has the bytes of one that was never interrupted."""
    tasks = [f"{name}=two.jsonl" for name in ("generic",)]
    whole, cut = [*tasks, "questions.jsonl", "--out", "whole"], [*tasks, "questions.jsonl", "--out", "cut"]
    run(*whole)

    def interrupt(progress: Progress) -> None:
        if progress.units == 1:  # not at the start, where none is done
            raise KeyboardInterrupt

    @contextmanager
    def told() -> Iterator[object]:
        yield interrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "_progress_bar", told)
        stopped = run(*cut, code=130)
    assert "go on with: selectrie eval --resume cut" in stopped.stderr
    assert stopped.stdout == ""
    assert len(Path("cut", LOG).read_text().splitlines()) == 1
    assert "not finished: selectrie eval --resume cut" in refused("report", "cut")
    run("--resume", "cut")
    assert opened[-1] == opened[0]
    for name in (LOG, ITEMS, SUMMARY):
        assert Path("cut", name).read_bytes() == Path("whole", name).read_bytes()


def test_shots_come_before_each_question(opened):
    """From the data or from a file; the number is part of the result."""
    asked = run("questions.jsonl", "--shots", "2", "--json")
    own = json.loads(asked.stdout)
    assert "examples: the first 2 items of the data; for those items themselves, the next 2" in asked.stderr
    other = json.loads(run("questions.jsonl", "--shots", "2", "--shots-file", "two.jsonl", "--json").stdout)
    assert [one["tasks"][0]["shots"] for one in (own, other)] == [2, 2]
    assert own["rows_naive"] > json.loads(run("questions.jsonl", "--json").stdout)["rows_naive"]
    assert other["rows_evaluated"] < other["rows_naive"]


def test_two_runs_are_compared(opened):
    """As a table, as JSON, as a page; items that one run alone has right are listed."""
    run("questions.jsonl", "--out", "a")
    run("questions.jsonl", "--out", "b", "--shots", "1")
    shown = run("compare", "a", "b", "--html", "c.html").stdout
    assert "4 items in both" in shown
    fields = json.loads(run("compare", "a", "b", "--json").stdout)
    assert (fields["kind"], fields["tasks"][0]["n"]) == ("comparison", 4)
    assert "Two runs of the same items" in Path("c.html").read_text()
    flips = fields["tasks"][0]["gained"] + fields["tasks"][0]["lost"]
    assert all(flip["id"] in shown for flip in flips)
    assert all(flip["id"] not in run("compare", "a", "b", "--flips", "0").stdout for flip in flips)


def test_runs_are_compared_with_the_first(opened):
    """As many as there are, in every format; the texts of flips are read from the data, while these are what they were."""
    write("other.jsonl", [(context, choices[1:] + choices[:1], gold) for context, choices, gold in QUESTIONS])
    for name, data in (("a", "questions"), ("b", "questions"), ("c", "other")):
        run(f"{data}.jsonl", "--out", name)
    fields = json.loads(run("compare", "a", "b", "c", "--json").stdout)
    assert (fields["runs"], [one["run"] for one in fields["tasks"]]) == (["a", "b", "c"], [1, 2])
    flips = [flip for one in fields["tasks"] for flip in one["gained"] + one["lost"]]
    assert [(flip["context"], flip["choices"]) for flip in flips] == [QUESTIONS[flip["index"]][:2] for flip in flips]
    assert len(flips) > 1
    shown = run("compare", "a", "b", "c").stdout
    assert "4 items in first and third" in shown
    assert all(f"{flip['id']}  {flip['context']}\n" in shown for flip in flips)
    for name, begin in (
        ("markdown", "first: a\n"),
        ("latex", "% first: a\n"),
        ("csv", "task,metric"),
        ("svg", "<svg "),
    ):
        assert run("compare", "a", "b", "c", "--format", name).stdout.startswith(begin)
    page = run("compare", "a", "b", "c", "--format", "html").stdout
    assert "3 runs of the same items" in page
    assert page == run("compare", "a", "b", "c", "--html", "-").stdout
    assert run("report", "a", "--html", "-").stdout.startswith("<!doctype html>")
    assert "one of markdown, latex, csv, svg, html" in refused("compare", "a", "b", "--format", "png")
    for other in ("--json", "--html -"):
        assert f"cannot be combined with {other}" in refused("compare", "a", "b", "--format", "csv", *other.split())
    assert "two folders of runs or more" in refused("compare", "a")
    write("questions.jsonl", QUESTIONS[:2])
    changed = run("compare", "a", "b", "c")
    assert re.fullmatch(r"texts of items are not shown: .*questions\.jsonl: the file has changed .*\n", changed.stderr)
    assert QUESTIONS[0][0] not in changed.stdout


def test_a_page_is_written(opened):
    """Of a run, and of a finished one; what was there is replaced as a whole."""
    Path("p.html").write_text("old")
    run("questions.jsonl", "--out", "a", "--html", "p.html")
    page = Path("p.html").read_text()
    assert page.startswith("<!doctype html>")
    run("report", "a", "--html", "q.html")
    assert Path("q.html").read_text() == page
    assert not list(Path().glob("*.tmp"))
    assert run("report", "a", "--html", "-").stdout == page
    assert "--json cannot be combined with --html -" in refused("report", "a", "--html", "-", "--json")
    assert not Path("-").exists()


def test_data_comes_from_stdin(opened):
    """The same figures; a run that is kept needs a file, which it reads again."""
    figures = [
        json.loads(CliRunner().invoke(app, ["eval", *args, "--json"], input=stdin).stdout)["tasks"][0]["metrics"]
        for args, stdin in ((["questions.jsonl"], None), (["-"], Path("questions.jsonl").read_bytes()))
    ]
    assert figures[0] == figures[1]
    for out in (("-", "--out", "a"), ("questions.jsonl", "--out", "-")):
        assert "a folder, and files as data" in refused(*out)


def test_a_page_goes_where_it_is_sent(opened):
    """A link stays one and its file is replaced; what stands in a FIFO's place is written into; a user's `.tmp` is kept."""
    run("questions.jsonl", "--out", "a", "--html", "p.html")
    page = Path("p.html").read_text()
    Path("q.html.tmp").write_text("mine")
    Path("link.html").symlink_to("q.html")
    for _ in range(2):
        run("report", "a", "--html", "link.html")
        assert (Path("link.html").is_symlink(), Path("q.html").read_text()) == (True, page)
    os.mkfifo("pipe.html")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe.html").read_text()), daemon=True)
    reader.start()
    run("report", "a", "--html", "pipe.html")
    reader.join(60)
    assert read == [page]
    assert Path("pipe.html").is_fifo()
    assert Path("q.html.tmp").read_text() == "mine"


MISTAKES = {
    "no data": (("run",), "at least one data file"),
    "no file": (("missing.jsonl",), "missing.jsonl"),
    "no kind of file": (("comapre", "a", "b"), "comapre"),
    "no metric": (("questions.jsonl", "--metric", "accc"), "did you mean 'acc'"),
    "no task": (("questions.jsonl", "--task", "nonsense"), "generic, hellaswag"),
    "resume with data": (("--resume", "a", "questions.jsonl"), "no DATA"),
    "resume of nothing": (("--resume", "nothing"), "no run"),
    "resume of something else": (("--resume", "."), "no run"),
    "a folder of something else": (("questions.jsonl", "--out", "."), "a new folder"),
    "a file as folder": (("questions.jsonl", "--out", "two.jsonl"), "a new folder"),
    "another run": (("questions.jsonl", "--out", "done", "--limit", "1"), "configuration.limit was null, now 1"),
    "more than a run measured": (
        ("questions.jsonl", "--out", "done", "--metric", "acc_mutual_info"),
        "not the log-probability without a context; begin a run with this metric in a new folder",
    ),
    "a report of more": (("report", "done", "--metric", "acc_mutual_info"), "begin a run with this metric"),
    "a report of no metric": (("report", "done", "--metric", "accc"), "did you mean 'acc'"),
    "a page nowhere": (("questions.jsonl", "--html", "no/where.html"), "a folder that exists"),
    "a page in a circle": (("questions.jsonl", "--html", "circle.html"), "a file in a folder that exists"),
    "a page behind a link to nowhere": (("questions.jsonl", "--html", "astray.html"), "a file in a folder that exists"),
    "a page with a NUL": (("questions.jsonl", "--html", "a\0b.html"), "a file in a folder that exists"),
    "a page of a long name": (("questions.jsonl", "--html", "a" * 300), "a file in a folder that exists"),
    "actors without ray": (("questions.jsonl", "--actors", "2"), "--ray"),
    "no items": (("questions.jsonl", "--limit", "0"), "--limit 0"),
    "too many shots": (("two.jsonl", "--shots", "5"), "at most 1"),
    "shots from nowhere": (("two.jsonl", "--shots-file", "questions.jsonl"), "--shots"),
    "one file twice": (("two.jsonl", "two.jsonl"), "each file once"),
    "no premise": (("questions.jsonl", "--metric", "pmi_dc"), "'generic' can have: it has no `premise`"),
    "no content-free": (("questions.jsonl", "--metric", "calibrated"), "'generic' can have: it has no `content_free`"),
    "uneven": (("uneven.jsonl", "--metric", "batch_calibrated"), "'generic' can have: its items have 2 and 3 choices"),
    "one choice": (("single.jsonl", "--metric", "mc2"), "'generic' can have: its item 0 has one choice"),
    "whole texts": (("text=text.jsonl", "--metric", "acc"), "'text' can have: it has whole texts"),
    "report of nothing": (("report", "nothing"), "no run"),
    "compare with nothing": (("compare", "done", "nothing"), "no run"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_before_the_model_is_loaded(mistake, monkeypatch, llm, opened):
    """One line, exit code 2, no folder begun, no model read."""
    arguments, said = MISTAKES[mistake]
    Path("text.jsonl").write_text('{"text": "Grass is green."}\n')
    Path("circle.html").symlink_to("circle.html")
    Path("astray.html").symlink_to("no/where.html")
    if "done" in arguments:
        run("questions.jsonl", "--out", "done")
    opened.clear()
    before = sorted(Path().rglob("*"))
    assert said in refused(*arguments)
    assert opened == []
    assert sorted(Path().rglob("*")) == before


def test_runs_of_other_items_are_not_compared(opened):
    """Neither of other tasks nor of other questions under the same number."""
    run("questions.jsonl", "--out", "a")
    write("other.jsonl", QUESTIONS[::-1])
    run("other.jsonl", "--out", "b")
    Path("text.jsonl").write_text('{"text": "Grass is green."}\n')
    run("text=text.jsonl", "--out", "c")
    assert "the same items in both" in refused("compare", "a", "b")
    assert "a task in common" in refused("compare", "a", "c")


@pytest.mark.parametrize(
    "line",
    ["{", '{"context": "a", "choices": [], "gold": 0}', '{"context": "a", "choices": ["b", "c"], "gold": 5}', "[]"],
)
def test_a_bad_record_is_told_with_its_line(line, opened):
    """File and line, before a model is read, and no folder is begun."""
    with Path("questions.jsonl").open("a") as file:
        file.write(line + "\n")
    assert "questions.jsonl:5" in refused("generic=questions.jsonl", "--out", "a")
    assert opened == []
    assert not Path("a").exists()


def test_ids_are_only_texts(opened):
    """Line separators, markup of terminals and of pages pass through a run unharmed; what is no text is refused."""
    ids = ["\u2028\x85", "[/bold]", "<b>", "\x1b[2J"]
    lines = [
        json.dumps({"context": c, "choices": o, "gold": g, "id": i})
        for i, (c, o, g) in zip(ids, QUESTIONS, strict=True)
    ]
    Path("generic.jsonl").write_text("\n".join(lines))
    run("generic.jsonl", "--out", "a")
    run("generic.jsonl", "--out", "b", "--shots", "2")
    assert [record.id for record in read_run(Path("a")).tasks[0].records] == ids
    shown = run("compare", "a", "b", "--html", "c.html").stdout
    assert "\x1b" not in shown
    Path("lone.jsonl").write_text(lines[0].replace("\\u2028", "\\ud800"))
    assert "lone.jsonl" in refused("generic=lone.jsonl")


def test_a_damaged_folder_is_progress_bar(opened):
    """A record, the figures or the beginning that cannot be read: which file, and its line."""
    run("questions.jsonl", "--out", "a")
    for name, said in ((SUMMARY, "a/summary.json"), (ITEMS, "a/items.jsonl:2"), (RUN, "a/run.json")):
        path = Path("a", name)
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b'"logp"', b'"lopg"') if name == ITEMS else b"{")
        if name == ITEMS:
            path.write_bytes(whole.splitlines(keepends=True)[0] + b"{}\n")
        assert said in refused("report", "a")
        path.write_bytes(whole)
    run("report", "a")


def test_tasks_are_listed():
    """Each with its metrics and the fields that it reads."""
    from selectrie.evaluation.tasks import load_task, shipped

    shown = run("tasks").stdout
    lines = {line.split()[0]: line for line in shown.splitlines() if not line.startswith(" ")}
    assert set(lines) == {"task", *shipped()}
    assert load_task("hellaswag").metrics[0] in lines["hellaswag"]


def test_a_cluster_is_asked_where_one_is_named(opened, llm, monkeypatch):
    """`--ray local` is a cluster of this machine, any other name an address; the model goes as a path that holds elsewhere."""
    from selectrie.evaluation import evaluator
    from selectrie.evaluation.evaluator import measure_units
    from selectrie.runs.actors import Cluster

    asked = []

    def measure_on(of: Cluster, signature: object) -> object:
        asked.append(of)
        return lambda units: measure_units(llm, units)

    monkeypatch.setattr(evaluator, "measure_on", measure_on)
    Path("model.gguf").write_bytes(b"")
    plain = run("two.jsonl", "--json").stdout
    assert run("two.jsonl", "--json", "--ray", "local", "--actors", "2").stdout == plain
    run("two.jsonl", "--ray", "10.0.0.1:6379", "-m", "model.gguf", "--n-ctx", "128")
    assert [(one.address, one.n_actors) for one in asked] == [(None, 2), ("10.0.0.1:6379", None)]
    assert asked[0].source is None
    assert asked[1].source == str(Path("model.gguf").resolve())
    assert asked[1].options["n_ctx"] == 128


class Tty(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch):
    """Items of all from the start, their pace, and rows saved; what a log had does not count for the pace."""
    start = Progress(items=0, n_items=40, units=0, n_units=4, rows_evaluated=0, rows_naive=0)
    later = Progress(items=30, n_items=40, units=3, n_units=4, rows_evaluated=25, rows_naive=100, items_logged=10)
    monkeypatch.setenv("COLUMNS", "100")
    for stream in (Tty(), io.StringIO()):
        seconds = itertools.chain([100.0], itertools.repeat(110.0))
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(command, "count_progress", partial(count_progress, clock=seconds.__next__))
        with command._progress_bar() as tell:
            tell(start)
            tell(later)
            tell(later)
        told = stream.getvalue()
        if stream.isatty():
            assert "0/40" in told
            assert "30/40" in told
            assert "items, 2 a second, 75 % of rows saved" in told
        else:  # the first is due; the next ones would come within the same second
            assert told == "0 of 40 items, 0 a second, 0 % of rows saved\n"


@pytest.mark.short("words0", "words1")
@pytest.mark.parametrize("words", [("eval", "--help"), ("eval", "run", "--help"), ("eval", "compare", "--help")])
def test_help_imports_nothing_heavy(words):
    """Neither numpy nor rich nor lark, so that help comes at once."""
    code = f"import sys; from selectrie.cli import app; app({list(words)!r}, standalone_mode=False)"
    code += (
        "\nassert not {'numpy', 'lark', 'rich', 'llama_cpp', 'ray', 'lm_eval'} & set(sys.modules), sorted(sys.modules)"
    )
    source = Path(selectrie.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(source)}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "selectrie eval" in done.stdout


def test_help_shows_lines_to_copy():
    """Unbroken, at 80 columns, and `eval` alone shows the help of the group."""
    for words, line in [
        (("--help",), "selectrie eval --resume runs/q8"),
        (("run", "--help"), "selectrie eval piqa.jsonl -m model.gguf --metric acc,acc_bytes,brier --json"),
        (("compare", "--help"), "selectrie eval compare runs/q8 runs/q4 --flips 20"),
    ]:
        shown = run(*words).stdout
        assert f"  {line}\n" in shown
        assert max(map(len, shown.splitlines())) <= 80
    assert "Usage: selectrie eval" in CliRunner().invoke(app, ["eval"], prog_name="selectrie").output


def test_a_real_interrupt_ends_with_130(tmp_path):
    """SIGINT in the middle of a run: exit code 130, nothing on standard output, and the folder can be taken up again."""
    import signal

    write("many.jsonl", [(f"{i} {c}", o, g) for i in range(120) for c, o, g in QUESTIONS])
    task = Path("small.toml")
    task.write_text(
        'name = "small"\nversion = 1\nkind = "multiple_choice"\nsource = "here"\nmetrics = ["acc"]\nunit_rows = 64\n'
        '[[format]]\nneeds = ["context"]\ncontext = "<<context>>"\n'
    )
    words = ["eval", "many.jsonl", "--task", "small.toml", "--threads", "1", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(Path(selectrie.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "selectrie.cli", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        log = Path("out", LOG)
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    assert process.returncode == 130, error
    assert out == ""
    assert "go on with: selectrie eval --resume out" in error
    assert not Path("out", SUMMARY).exists()


def lines_of(report: object, columns: int) -> list[str]:
    """What a terminal of this width shows."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=columns)
    console.print(report)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_tables_fit_the_terminal_and_take_names_as_they_are(columns):
    """Long names are shortened, numbers never; what looks like markup or steers a terminal is shown as text."""
    from rich.cells import cell_len

    from selectrie.cli.report.evaluation import comparison_report, evaluation_report
    from selectrie.evaluation.comparison import compare, comparison_dict
    from selectrie.evaluation.metrics import ChoiceLoglikelihood, ItemRecord
    from selectrie.evaluation.results import TaskResult

    def task(logps: tuple[float, float]) -> Evaluation:
        choices = tuple(ChoiceLoglikelihood(logp, 1, 1, 1, is_greedy=False) for logp in logps)
        long = "[/red]\x1b" + "a_long_name_" * 9
        records = [ItemRecord("t[/b]", i, f"{long}{i}", f"{long}{i % 2}", (0,), choices, 0) for i in range(4)]
        records.append(ItemRecord("t[/b]", 4, "\x1b[2J", "", (0,), (), 0, "too long"))
        return Evaluation(
            (TaskResult.of("t[/b]", records, find_metrics(["acc", "brier"])),), 1, 2, {"model": "[/i]\x1b"}
        )

    first, second = task((-1.0, -2.0)), task((-2.0, -1.0))
    fields = comparison_dict(compare(first, second), ("[/a]", "b"))
    for report in (evaluation_report(first.to_dict()), comparison_report(fields, flips=3)):
        lines = lines_of(report, columns)
        assert max(map(cell_len, lines)) <= columns
        assert "\x1b" not in "".join(lines)
        assert any("t[/b]" in line for line in lines)
    shown = lines_of(comparison_report(fields, flips=3), 80)
    assert [line[0] for line in shown[-5:]] == [" ", "-", "-", "-", "…"]
    assert all(line.endswith("1.0000 1.0000") for line in shown[-4:-1])
    assert shown[-1] == "… and 1 more (--flips N)"


def test_flips_of_both_kinds_are_shown_where_there_are_many():
    """Half of the lines each; what one kind does not need is the other's."""
    from selectrie.cli.report.evaluation import comparison_report

    def flips(n: int) -> list[dict[str, object]]:
        one = {"id": "x", "index": 0, "subset": "", "gold": [0], "first": 0, "second": 1, "context": None}
        return [{**one, "margin_first": 1.0, "margin_second": None} for _ in range(n)]

    for gained, lost, most, expected in [
        (9, 9, 4, "++--"),
        (1, 9, 4, "+---"),
        (9, 1, 4, "+++-"),
        (2, 1, 9, "++-"),
        (9, 9, 3, "++-"),
    ]:
        task = {"task": "t", "run": 1, "n": 20, "n_left_out": 0, "differences": []}
        task |= {"gained": flips(gained), "lost": flips(lost)}
        lines = lines_of(comparison_report({"runs": ["a", "b"], "tasks": [task]}, flips=most), 80)
        assert "".join(line[0] for line in lines if line[:1] in ("+", "-")) == expected


def test_items_without_an_answer_are_refused(llm):
    """Before anything is measured: nothing could be right. A single text needs none."""
    with pytest.raises(OptionError, match=r"items\[1\].gold"):
        evaluate(llm, [Item("a", ("b", "c"), (0,)), Item("a", ("b", "c"))])
    assert evaluate(llm, [Item("Grass is", ("green",))], ["log_likelihood"])["items"].figures.n == 1


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_every_metric_is_documented():
    """The page has a row for each, in the order of the list."""
    table = PAGE.split("| metric | what | source |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| .{10,} \| .{5,} \|$", table, re.MULTILINE) == list(METRICS)


def test_every_key_and_step_of_tasks_is_documented():
    """Those of a task, of its formats, and what `prepare` can do."""
    from dataclasses import fields

    from selectrie.evaluation.tasks import GOLDS, KINDS, STEPS, Format, Task

    keys = {one.name for kind in (Task, Format) for one in fields(kind)} - {"formats", "digest", "text"}
    assert sorted(key for key in {*keys, *STEPS, *GOLDS, *KINDS} if f"`{key}`" not in PAGE) == []


def test_the_task_of_the_page_is_that_of_the_file():
    """A reader can copy either."""
    shown = re.search(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "examples" / "data" / "shop.toml").read_text(encoding="utf-8")


def test_every_subcommand_is_documented():
    """The page on benchmarks shows each command below `eval` at work."""
    from typer.main import get_command

    names = get_command(app).commands["eval"].commands
    assert sorted(name for name in set(names) - {"run"} if f"selectrie eval {name}" not in PAGE) == []
    options = {flag for one in names.values() for option in one.params for flag in option.opts if flag.startswith("--")}
    text = PAGE + (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert sorted(option for option in options if not re.search(rf"{option}\b", text)) == []


ANOTHER_KIND = ([], {"a": 1}, 1.5, True)


def test_a_beginning_of_other_kinds_is_refused(opened):
    """Each field of `run.json` that decides how a run goes on, with values of another kind, and one that a newer version
    might write: exit 2 and one sentence."""
    run("questions.jsonl", "--shots", "1", "--metric", "acc", "--out", "a")
    begun = json.loads(Path("a", RUN).read_text())
    n_tried = 0
    for part in (begun["model"], begun["configuration"], begun["configuration"]["data"][0]):
        for name, was in [*part.items(), ("newer_option", 1)]:
            for value in ANOTHER_KIND:
                if type(value) is type(was) or (name, value) == ("untrusted", True):
                    continue
                part[name] = value
                Path("a", RUN).write_text(json.dumps(begun))
                assert refused("--resume", "a").startswith(("error[input_file]: a: ", "error[option]: ")), (name, value)
                n_tried += 1
            part[name] = was
        part.pop("newer_option")
    assert n_tried > 60
    Path("a", RUN).write_text(json.dumps(begun))
    run("--resume", "a")


@pytest.mark.parametrize("flag", ["--untrusted", "--trusted"])
def test_a_run_goes_on_with_what_it_was_begun_with(opened, flag: str):
    """An option that is true, false or not given is none of another kind where it is given."""
    run("two.jsonl", "--metric", "acc", "--out", "a", flag)
    run("--resume", "a")
    assert [group.untrusted for group in opened] == [flag == "--untrusted"] * 2
