"""Runs on disk: the same bytes however often they were killed, and one error for what does not belong together."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError, OptionError, RequestError
from selectrie.evaluation import Item
from selectrie.evaluation.evaluator import evaluate_tasks, measure_units
from selectrie.evaluation.runner import ITEMS, SUMMARY, UNIT_LINES, RunOptions, began_with, read_run, run
from selectrie.evaluation.work_units import TaskItems, plan
from selectrie.runs import folder
from selectrie.runs.folder import LOG, RUN, LogLine, TornLineError, open_log, plan_digest
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE
from tests.support import kill_points
from tests.support.n_examples import n_examples

DRIVER = Path(kill_points.__file__)


def killed(folder: Path, points: list[str]) -> list[str]:
    """Lines of the driver for these points."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(DRIVER), str(folder), *points]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()[1:]


LOG_BYTES = 3_000
"""Of the log of the run that is killed, at least."""


def spread(n: int) -> list[str]:
    """So many points: bytes of the log, one after another over all its length, renamings, and pairs of bytes."""
    single = [str(i * LOG_BYTES // n) for i in range(n - 5)]
    return [*single, "-1", "-2", "-3", "300,900", "2000,10"]


@pytest.mark.parametrize("n", [6, pytest.param(500, marks=pytest.mark.long)])
def test_killed_runs_end_with_the_same_bytes(n, tmp_path):
    """At every point by `kill -9`; taken up again, nothing scored is lost and nothing differs."""
    points = spread(n)
    lines = killed(tmp_path, points)
    assert len(lines) == len(points)
    for point, line in zip(points, lines, strict=True):
        signals = [9] * (1 + point.count(","))
        assert line == f"{point} {signals} 0 True"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("run") / "out"
    kill_points.whole(out)
    return out


def test_the_points_lie_within_the_log(finished):
    """Behind its end nothing would be killed."""
    assert LOG_BYTES <= (finished / LOG).stat().st_size < LOG_BYTES + 200


@settings(max_examples=n_examples(25))
@given(data=st.data())
def test_whatever_stands_at_the_end_of_a_log_is_measured_again(finished, data, tmp_path_factory):
    """A log cut anywhere, with anything after it, or with a byte changed: the same results."""
    whole = (finished / LOG).read_bytes()
    kept = data.draw(st.integers(0, len(whole)))
    tail = data.draw(st.sampled_from([b"", b"{", b"\xff\n", b'{"digest":"0"}\n', whole[:400], b"\n"]))
    log = bytearray(whole[:kept] + tail)
    if log and data.draw(st.booleans()):
        log[data.draw(st.integers(0, len(log) - 1))] ^= 1
    out = tmp_path_factory.mktemp("torn")
    (out / RUN).write_bytes((finished / RUN).read_bytes())
    (out / LOG).write_bytes(bytes(log))
    kill_points.whole(out)
    assert (out / ITEMS).read_bytes() == (finished / ITEMS).read_bytes()
    assert (out / SUMMARY).read_bytes() == (finished / SUMMARY).read_bytes()


def test_nothing_logged_is_measured_again(finished, tmp_path):
    """Of a log with three units only the others are asked for."""
    (tmp_path / RUN).write_bytes((finished / RUN).read_bytes())
    lines = (finished / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / LOG).write_bytes(b"".join(lines[:3]))
    asked = []

    def measuring(units):
        asked.extend(unit.number for unit in units)
        yield from measure_units(llm, units)

    with kill_points.engine() as llm:
        run(llm, kill_points.tasks(), tmp_path, measure=measuring)
    assert asked == list(range(3, len(lines)))


def test_units_may_come_in_any_order(finished, tmp_path):
    """The log has another order then, the results have not."""
    with kill_points.engine() as llm:
        run(llm, kill_points.tasks(), tmp_path / "out", measure=lambda units: measure_units(llm, units[::-1]))
    assert (tmp_path / "out" / ITEMS).read_bytes() == (finished / ITEMS).read_bytes()
    assert (tmp_path / "out" / SUMMARY).read_bytes() == (finished / SUMMARY).read_bytes()
    assert (tmp_path / "out" / LOG).read_bytes() != (finished / LOG).read_bytes()


def test_a_finished_run_is_read_back(finished):
    """Figures and records as they were; the item that did not fit is named."""
    found = read_run(finished)
    assert json.loads((finished / SUMMARY).read_text()) == json.loads(json.dumps(found.to_dict()))
    assert found["long"].figures.n_failed == 1
    assert found["long"].to_dict()["problems"] == [
        {"index": 0, "id": "", "problem": "too long: 803 tokens, room for 301"}
    ]
    with pytest.raises(KeyError):
        found["other"]


def test_another_run_is_not_mixed_in(finished):
    """Other data, another model, another configuration, metrics that need more: the error says what, and nothing is written."""
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    tasks = kill_points.tasks()
    with kill_points.engine() as llm:
        with pytest.raises(OptionError, match="'long', and not the log-probability without a context; begin a run"):
            run(llm, [tasks[0], replace(tasks[1], metrics=("acc", "acc_mutual_info"))], finished)
        with pytest.raises(OptionError, match="plan"):
            run(llm, [replace(tasks[0], items=tasks[0].items[::-1]), tasks[1]], finished)
        with pytest.raises(OptionError, match=r"configuration\.shots was null, now 5"):
            run(llm, tasks, finished, RunOptions({"shots": 5}))
    with kill_points.engine(5) as llm, pytest.raises(OptionError, match="model was 'hash-4', now 'hash-5'"):
        run(llm, tasks, finished)
    limits = replace(WIDE, nodes=300, rows_per_call=64)
    with Engine(HashModel(4, limits=limits)) as llm, pytest.raises(OptionError, match="rows_per_call was 512, now 64"):
        run(llm, tasks, finished)
    assert before == {path.name: path.read_bytes() for path in finished.iterdir()}


def test_other_metrics_are_another_view_of_a_run(finished):
    """They are worked out from what was measured, and the folder stays as it is; what `read_run` is asked for, likewise."""
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    first, second = kill_points.tasks()
    asked = [replace(first, metrics=("brier", "acc")), replace(second, metrics=("log_likelihood",))]
    with kill_points.engine() as llm:
        asked_units = []
        found = run(llm, asked, finished, measure=lambda units: iter(asked_units.extend(units) or ()))
        alone = evaluate_tasks(llm, asked)
    assert (asked_units, before) == ([], {path.name: path.read_bytes() for path in finished.iterdir()})
    assert [list(task.figures.metrics) for task in found.tasks] == [["brier", "acc"], ["log_likelihood"]]
    assert [task.figures for task in found.tasks] == [task.figures for task in alone.tasks]
    assert [task.subsets for task in found.tasks] == [task.subsets for task in alone.tasks]
    shown = read_run(finished, ["brier"])
    assert shown["small"].figures.metrics["brier"] == found["small"].figures.metrics["brier"]
    assert read_run(finished, ()).to_dict() == json.loads((finished / SUMMARY).read_text())


def test_other_metrics_go_on_with_a_run_that_was_killed(finished, tmp_path):
    """What is left is measured for the metrics it was begun with; the results have the bytes of a run never disturbed."""
    (tmp_path / RUN).write_bytes((finished / RUN).read_bytes())
    (tmp_path / LOG).write_bytes(b"".join((finished / LOG).read_bytes().splitlines(keepends=True)[:3]))
    with kill_points.engine() as llm:
        run(llm, [replace(task, metrics=("acc_token_mean",)) for task in kill_points.tasks()], tmp_path)
    for name in (RUN, LOG, ITEMS, SUMMARY):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("accc", "did you mean 'acc'"),
        ("acc_mutual_info", "what this run measured of 'long', and not the log-probability without a context"),
        ("pmi_dc", "what this run measured of 'small', and not the log-probability after the premise"),
        ("calibrated", "what this run measured of 'small', and not the log-probability after content-free contexts"),
    ],
)
def test_what_was_not_measured_is_not_shown(metric, said, finished):
    """The error says what is missing."""
    with pytest.raises(OptionError, match=said):
        read_run(finished, [metric])


@pytest.mark.parametrize(
    ("item", "rolling", "metric", "said"),
    [
        (Item("a", ("b",), (0,)), False, "brier", "its item 0 has one choice"),
        (Item("", ("ab",)), True, "acc", "whole texts, which have bits_per_byte"),
    ],
)
def test_what_a_kind_of_item_cannot_have_is_not_shown(item, rolling, metric, said, tmp_path):
    """As before a run, so after it."""
    with kill_points.engine() as llm:
        run(llm, [TaskItems("one", (item,), ("log_likelihood",), is_rolling=rolling)], tmp_path)
    with pytest.raises(OptionError, match=said):
        read_run(tmp_path, [metric])


def test_another_machine_needs_a_word(finished, tmp_path):
    """A run begun on another processor goes on only where that is allowed."""
    begun = json.loads((finished / RUN).read_text())
    begun["signature"]["processor"] = "another"
    (tmp_path / RUN).write_text(json.dumps(begun))
    with kill_points.engine() as llm:
        with pytest.raises(OptionError, match=r"processor was 'another'.*--other-machine"):
            run(llm, kill_points.tasks(), tmp_path)
        found = run(llm, kill_points.tasks(), tmp_path, RunOptions(other_machine=True))
    assert found.signature["processor"] == "another"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    """A folder with other files, and a file in its place."""
    (tmp_path / "notes.txt").write_text("mine")
    with kill_points.engine() as llm:
        for out in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(OptionError, match="a new folder, an empty one"):
                run(llm, kill_points.tasks(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_process_at_a_time_writes_a_run(finished):
    """A log that is held is refused."""
    with (
        open_log(finished, UNIT_LINES),
        pytest.raises(OptionError, match="no other run is writing"),
        open_log(finished, UNIT_LINES),
    ):
        pass


def test_what_is_no_run_is_said(finished, tmp_path):
    """A missing folder, an unfinished run, a damaged beginning, a strange record."""
    with pytest.raises(InputFileError, match="no run"):
        read_run(tmp_path / "nowhere")
    (tmp_path / RUN).write_bytes((finished / RUN).read_bytes())
    with pytest.raises(InputFileError, match="not finished: selectrie eval --resume"):
        read_run(tmp_path)
    assert began_with(tmp_path) == ({}, {})
    for name in (SUMMARY, ITEMS):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    (tmp_path / ITEMS).write_text('{"task":"small"}\n')
    with pytest.raises(InputFileError, match=r"items.jsonl:1: not a record"):
        read_run(tmp_path)
    (tmp_path / RUN).write_text("{")
    with pytest.raises(InputFileError, match="not the description of a run"):
        read_run(tmp_path)


def test_a_line_is_read_as_it_was_written(finished):
    """Each line of the log, to the byte; a changed digit is found."""
    for text in (finished / LOG).read_text().splitlines():
        line = LogLine.from_json(text, UNIT_LINES)
        assert line.to_json(UNIT_LINES) == text
        with pytest.raises(TornLineError):
            LogLine.from_json(text.replace("1", "2", 1) if "1" in text else text[:-1], UNIT_LINES)


def test_a_full_disk_is_said_and_loses_nothing(finished, tmp_path, monkeypatch):
    """A write that fails after half a line, a results file that cannot be put there, a folder that cannot be made: one error
    each; what was logged stays, nothing half-written is left, and the run goes on to the same bytes."""
    out, room = tmp_path / "out", [3_000]

    def write(file, data, whole=os.write):
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n = whole(file, data[: room[0]])
        room[0] -= n
        return n

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(OptionError, match=r"a folder that can be written \(No space left on device\)"):
            kill_points.whole(out)
    assert (out / LOG).stat().st_size == 3_000

    def replacing(path, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replacing)
        with pytest.raises(OptionError, match="No space left"):
            kill_points.whole(out)
    assert sorted(path.name for path in out.iterdir()) == [LOG, RUN]
    kill_points.whole(out)
    for name in (ITEMS, SUMMARY, LOG):
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    with pytest.raises(OptionError, match="Not a directory"):
        kill_points.whole(tmp_path / "out" / LOG / "below")


def test_a_line_without_end_is_not_read_whole(finished, tmp_path, monkeypatch):
    """What is longer than any unit is torn, however long it is."""
    monkeypatch.setattr(folder, "_LONGEST_LINE", 1 << 16)
    whole = (finished / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(whole + b"x" * (1 << 20) + b"\n" + whole)
    with kill_points.engine() as llm, open_log(tmp_path, UNIT_LINES) as held:
        units = plan(llm.vocabulary, llm.limits, kill_points.tasks())
        logged = []
        missing = held.recover(
            plan_digest(json.loads((finished / RUN).read_text())), units, lambda unit, values: logged.append(unit)
        )
        assert (len(logged), list(missing)) == (whole.count(b"\n"), [])
    assert (tmp_path / LOG).read_bytes() == whole


@pytest.mark.parametrize("name", ["日本", "a\nb", "a\u2028b", "\x85", "\x00", '"'])
def test_any_text_may_name_an_item(name, tmp_path):
    """Line ends of every kind included: read back, and gone on with, as they were."""
    tasks = [TaskItems(name, (Item("ab", ("a", "b"), (0,), id=name, subset=name),), ("acc",))]
    with kill_points.engine() as llm:
        first, again = run(llm, tasks, tmp_path / "out"), run(llm, tasks, tmp_path / "out")
    assert first[name].records == again[name].records == read_run(tmp_path / "out")[name].records


def test_what_is_wrong_with_items_is_said_before_anything_is_written(tmp_path):
    """Half a character, a right choice that does not exist, too few contexts, one name twice."""
    good = Item("ab", ("a", "b"), (0,))
    one = [TaskItems("t", (good,), ("acc",))]
    wrong = {
        r"t\[0\].id": [replace(one[0], items=(replace(good, id="\ud800"),))],
        r"t\[0\].gold=\(2,\)": [replace(one[0], items=(replace(good, gold=(2,)),))],
        r"t\[0\].gold=\(-1,\)": [replace(one[0], items=(replace(good, gold=(-1,)),))],
        r"t\[0\].gold=0: expected a tuple of indices of choices, from 0 to 1, such as \(0,\)": [
            replace(one[0], items=(replace(good, gold=0),))
        ],
        r"t\[0\].gold='0'": [replace(one[0], items=(replace(good, gold="0"),))],
        r"t\[0\].choices='ab': expected a tuple of texts": [replace(one[0], items=(replace(good, choices="ab"),))],
        r"t\[0\].choices\[1\]=1: expected a str": [replace(one[0], items=(replace(good, choices=("a", 1)),))],
        r"t\[0\].context=1: expected a str": [replace(one[0], items=(replace(good, context=1),))],
        r"t\[0\].contexts=1": [replace(one[0], items=(replace(good, contexts=("a",)),))],
        "a different name": one * 2,
    }
    for message, tasks in wrong.items():
        with kill_points.engine() as llm, pytest.raises(RequestError, match=message):
            run(llm, tasks, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tasks_without_items_and_with_none_that_fit(tmp_path):
    """Figures of nothing, read back; a unit in which nothing is measured."""
    long = Item("abc" * 400, ("a", "b"), (0,))
    tasks = [
        TaskItems("none", (), ("acc",)),
        TaskItems("long", (long, Item("ab", ("a", "b"), (0,)), long), ("acc",), unit_rows=1),
    ]
    for asked in (tasks, tasks[:1], [replace(tasks[1], items=(long,))]):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        with kill_points.engine() as llm:
            found = run(llm, asked, out)
        assert read_run(out).to_dict() == found.to_dict()


def test_a_run_that_lacks_a_part_is_said(finished, tmp_path):
    """A beginning that somebody has edited."""
    begun = json.loads((finished / RUN).read_text())
    del begun["plan"]
    (tmp_path / RUN).write_text(json.dumps(begun))
    with pytest.raises(InputFileError, match="has no 'plan'"):
        began_with(tmp_path)
