"""What is to be run, written down and read again: the same items, or one error that names what is another now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.runner import Configuration, Loaded, absolute_path, reload
from selectrie.evaluation.tasks import load_task

OWN = """name = "own"
version = 3
kind = "multiple_choice"
source = "here"
description = "Now:\\n"
metrics = ["acc"]

[[format]]
needs = ["context", "choices", "gold"]
context = "<<context>>?"
"""


def lines(path, questions):
    """A file of one record a question."""
    records = [{"context": one, "choices": ["a", "b"], "gold": i % 2} for i, one in enumerate(questions)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder to stand in: two files of questions, examples, a task."""
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "one.jsonl", "abcd")
    lines(tmp_path / "two.jsonl", "ef")
    lines(tmp_path / "shots.jsonl", "gh")
    (tmp_path / "own.toml").write_text(OWN, encoding="utf-8")
    return tmp_path


def written(described: dict[str, Any]) -> dict[str, Any]:
    """What a configuration says, as a file holds it."""
    return json.loads(json.dumps(described))


def contexts(loaded: Loaded) -> dict[str, list[str]]:
    """Task -> text before the choices of each item."""
    return {one.task: [item.context_of(0) for item in one.items] for one in loaded.tasks}


def test_files_are_read_with_their_tasks(files):
    """A task for all, one for a file, or what the file's name and fields say; a limit for each file."""
    assert contexts(Configuration(("one.jsonl",), limit=2).read()) == {"generic": ["a", "b"]}
    assert contexts(Configuration(("one.jsonl",), task="own.toml", limit=1).read()) == {"own": ["Now:\na?"]}
    found = Configuration(("own.toml=two.jsonl", "hellaswag=one.jsonl", "two.jsonl"), limit=2).read()
    assert contexts(found) == {"own": ["Now:\ne?", "Now:\nf?"], "hellaswag": ["a", "b"], "generic": ["e", "f"]}
    assert [one.version for one in found.tasks] == [3, 1, 1]
    mixed = Configuration(("own.toml=two.jsonl", "one.jsonl"), task="sst2", limit=1).read()
    assert list(contexts(mixed)) == ["own", "sst2"]


def test_a_file_whose_name_has_an_equals_sign(files):
    """What exists is a file, whatever its name looks like."""
    lines(files / "own.toml=x.jsonl", "z")
    assert contexts(Configuration(("own.toml=x.jsonl",)).read()) == {"generic": ["z"]}


def test_metrics_are_those_said_or_those_of_the_task(files):
    """Of each task its own where none are said."""
    assert Configuration(("one.jsonl",)).read().tasks[0].metrics == ("acc", "acc_norm")
    assert Configuration(("one.jsonl",), metrics=("brier",)).read().tasks[0].metrics == ("brier",)


def test_examples_from_a_file_and_from_the_data(files):
    """The first ones, or drawn."""
    shown = Configuration(("one.jsonl",), n_shots=1, shots_file="shots.jsonl", limit=1).read()
    assert contexts(shown) == {"generic": ["g a\n\na"]}
    assert shown.tasks[0].n_shots == 1
    own = Configuration(("one.jsonl",), n_shots=1, limit=2).read()
    assert contexts(own) == {"generic": ["b b\n\na", "a a\n\nb"]}
    drawn = [Configuration(("one.jsonl",), n_shots=2, shots_seed=5, limit=n).read() for n in (1, 4)]
    assert contexts(drawn[0])["generic"] == contexts(drawn[1])["generic"][:1]


def test_files_of_one_task_are_told_apart(files):
    """By the file's name, by the whole path where two are called the same."""
    assert list(contexts(Configuration(("one.jsonl", "two.jsonl")).read())) == ["generic:one", "generic:two"]
    other = lines(files / "more" / "one.jsonl", "x")
    found = contexts(Configuration(("one.jsonl", other, "two.jsonl")).read())
    assert list(found) == [f"generic:{files / 'one.jsonl'}", f"generic:{other}", "generic:two"]
    found = contexts(Configuration(("one.jsonl", "own.toml=one.jsonl")).read())
    assert list(found) == ["generic", "own"]


def test_a_file_twice_is_refused(files):
    """However it is written; figures would count its items twice."""
    for again in ("one.jsonl", "./one.jsonl", str(files / "one.jsonl"), "more/../one.jsonl"):
        (files / "more").mkdir(exist_ok=True)
        with pytest.raises(OptionError, match="each file once"):
            Configuration(("one.jsonl", again)).read()


def test_two_tasks_of_one_name_are_refused(files):
    """Their items could not be told apart in the results."""
    (files / "other.toml").write_text(OWN.replace("?", "!"), encoding="utf-8")
    with pytest.raises(OptionError, match="one task of this name"):
        Configuration(("own.toml=one.jsonl", "other.toml=two.jsonl")).read()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"data": ()}, "data"),
        ({"data": ("a",), "limit": 0}, "limit"),
        ({"data": ("a",), "n_shots": -1}, "shots"),
        ({"data": ("a",), "metrics": ("akk",)}, "metric"),
        ({"data": ("a",), "shots_file": "b"}, "--shots"),
    ],
)
def test_options_that_say_nothing_are_refused(given, reason):
    """Before any file is read."""
    with pytest.raises(OptionError, match=reason):
        Configuration(**given)


def test_files_that_are_not_there_are_told(files):
    """Data, task, examples; a name too long for one; the task before the equals sign."""
    wrong = {
        Configuration(("none.jsonl",)): r"none\.jsonl: No such file",
        Configuration(("none=one.jsonl",)): "none: there is no task of this name",
        Configuration(("=one.jsonl",)): "no task of this name",
        Configuration(("own.toml=none.jsonl",)): r"^none\.jsonl: No such file",
        Configuration(("x" * 5000 + "=y.jsonl",)): r"^y\.jsonl: No such file",
        Configuration(("one.jsonl",), task="none.toml"): "none.toml: No such file",
        Configuration(("one.jsonl",), n_shots=1, shots_file="none.csv"): "none.csv: No such file",
    }
    for configuration, reason in wrong.items():
        with pytest.raises(InputFileError, match=reason):
            configuration.read()


CONFIGURATIONS = [
    Configuration(("one.jsonl",)),
    Configuration(("one.jsonl", "own.toml=two.jsonl"), metrics=("acc", "brier"), n_shots=1, shots_seed=3, limit=2),
    Configuration(("one.jsonl", "two.jsonl"), task="own.toml", n_shots=2, shots_file="shots.jsonl"),
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_what_was_written_is_read_again(configuration, files, tmp_path, monkeypatch):
    """Through JSON, from another folder, whatever has become of the task's file: equal items, and written again the same."""
    loaded = configuration.read()
    described = json.loads(json.dumps(loaded.to_dict()))
    (files / "own.toml").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = reload(described, "run")
    assert again.tasks == loaded.tasks
    assert json.loads(json.dumps(again.to_dict())) == described
    assert all(Path(one["path"]).is_absolute() and one["digest"] for one in described["data"])


def test_a_shipped_task_that_is_another_one_now_is_the_old_one(files):
    """The text of the task is kept with the run."""
    described = written(Configuration(("one.jsonl",)).read().to_dict())
    described["tasks"]["generic"] = load_task("generic").text.replace('"<<context>>"', '"<<context>>:"')
    assert contexts(reload(described, "run")) == {"generic": ["a:", "b:", "c:", "d:"]}


@pytest.mark.parametrize("name", ["one.jsonl", "shots.jsonl"])
def test_a_data_file_that_changed_since_is_told(name, files):
    """Its path, and that a new run is needed; so for examples; and where it is gone."""
    described = written(Configuration(("two.jsonl", "one.jsonl"), n_shots=1, shots_file="shots.jsonl").read().to_dict())
    with (files / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(InputFileError, match="the file has changed since the run began") as caught:
        reload(described, "run")
    assert caught.value.path == str(files / name)
    (files / name).unlink()
    with pytest.raises(InputFileError, match="No such file"):
        reload(described, "run")


@pytest.mark.parametrize("lost", ["data", "tasks", "metrics", "shots_digest", "data[0].path", "data[0].digest", "tasks.generic", "n_shots as text", "data as text"])  # fmt: skip
def test_what_is_no_configuration_is_told(lost, files):
    """Fields gone, or of another kind: one error that names the run."""
    described = written(Configuration(("one.jsonl",)).read().to_dict())
    if lost.startswith("data[0]"):
        del described["data"][0][lost.split(".")[1]]
    elif lost == "tasks.generic":
        del described["tasks"]["generic"]
    elif lost.endswith("as text"):
        described[lost.split()[0]] = "x"
    else:
        del described[lost]
    with pytest.raises((InputFileError, OptionError), match=r"not the (configuration|description) of a run|shots"):
        reload(described, "run")


def test_a_path_from_the_root_keeps_links(tmp_path, monkeypatch):
    """`..` is worked out, a link stays one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    assert absolute_path(Path("link/../a")) == str(tmp_path / "a")
    assert absolute_path(Path("link/a")) == str(tmp_path / "link" / "a")
