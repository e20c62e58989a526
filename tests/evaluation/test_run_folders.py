"""Folders of runs: two runs that begin at once, lines that no run of the folder wrote,
earlier formats, files that are no plain ones."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.files import write_file, write_whole
from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation import runner
from selectrie.evaluation.comparison import compare
from selectrie.evaluation.evaluator import measure_units
from selectrie.evaluation.runner import ITEMS, SUMMARY, UNIT_LINES, RunOptions, began_with, check_folder, read_run, run
from selectrie.results import FORMAT_VERSION
from selectrie.runs import folder
from selectrie.runs.folder import LOG, RUN, LogLine, TornLineError, signature_of
from selectrie.testing import HashModel
from tests.support import kill_points, racing_runs, toy_backend

SOURCE = Path(__file__).resolve().parents[2] / "src"
FIRST_FORMAT = Path(__file__).parent.parent / "data" / "run_format_1"
"""A finished run as selectrie 0.1.0 left it before run folders had a format of their own."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("run") / "out"
    kill_points.whole(out)
    return out


def races(place: Path, which: list[str]) -> list[str]:
    """What the driver says of each of these races."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, racing_runs.__file__, str(place), *which]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


BEGINNING = range(0, 11, 2)
"""Steps in which a run takes its folder, and the first lines of its log; the sweep has
all of them."""


def test_of_two_runs_that_begin_at_once_one_has_the_folder(tmp_path):
    """Wherever the other one comes between, and wherever the first one dies: the folder
    is that of one run, byte for byte, and the other is told who has it."""
    which = [*map(str, BEGINNING), *(f"{step}!" for step in BEGINNING), *(f"r{seed}" for seed in range(2))]
    lines = races(tmp_path, which)
    assert [line.split()[0] for line in lines] == which
    assert [line for line in lines if not line.endswith(" whole")] == []
    assert any("no other run is writing now" in line for line in lines)
    assert any("a folder of the same run: model was" in line for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_races_of_two_runs(part, tmp_path, record_property):
    """The same at every step of a run and in 300 drawn orders."""
    which = [*map(str, range(45)), *(f"{step}!" for step in range(45)), *(f"r{seed}" for seed in range(300))][part::10]
    lines = races(tmp_path, which)
    assert len(lines) == len(which)
    assert [line for line in lines if not line.endswith(" whole")] == []
    record_property("races", len(lines))


def resumed(finished: Path, out: Path, lines: list[str]) -> None:
    """Go on with the finished run where its log has these lines."""
    out.mkdir()
    shutil.copy(finished / RUN, out)
    (out / LOG).write_text("".join(line + "\n" for line in lines))
    kill_points.whole(out)


def signed(body: str) -> str:
    """A line with this body and a right digest."""
    return f'{{"digest":"{blake2b(body.encode(), digest_size=16).hexdigest()}","body":{body}}}'


def changed(line: str, **values: object) -> str:
    """A line with other values and a right digest, written as a run writes it."""
    return signed(json.dumps({**json.loads(line)["body"], **values}, separators=(",", ":")))


FORGED = {
    "another plan": ({"plan": "0" * 32}, "its plan is 0+, this run's is"),
    "a unit beyond the plan": ({"unit": 99}, "the plan has no unit 99"),
    "a unit below": ({"unit": -1}, "the plan has no unit -1"),
    "no number": ({"unit": False}, "has the wrong type"),
    "a number as text": ({"unit": "0"}, "has the wrong type"),
    "a plan as number": ({"plan": 0}, "has the wrong type"),
    "rows as text": ({"rows_evaluated": "7"}, "has the wrong type"),
    "too many rows": ({"rows_evaluated": 1 << 40}, "rows_evaluated is 1099511627776"),
    "fewer rows than none": ({"rows_evaluated": -1}, "rows_evaluated is -1"),
    "nothing measured": ({"logp": []}, "logp has 0 values for the 6 sequences of unit 0"),
    "nothing greedy": ({"is_greedy": []}, "is_greedy has 0 values"),
    "no probability": ({"logp": [0.5] * 6}, "has the wrong type"),
    "not a number": ({"logp": ["nan"] * 6}, "has the wrong type"),
    "a number that is none": ({"logp": [float("nan")] * 6}, "has the wrong type"),
    "whole numbers": ({"logp": [-1] * 6}, "has the wrong type"),
    "numbers for truths": ({"is_greedy": [0] * 6}, "neither true nor false"),
    "no list": ({"logp": None}, "it holds no unit"),
    "a further key": ({"records": []}, "not written as a run writes it"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_line_that_no_run_of_the_folder_wrote_is_refused(forged, finished, tmp_path):
    """Although its digest is right: the error names file, line and remedy, and nothing
    is cut off."""
    lines = (finished / LOG).read_text().splitlines()
    values, said = FORGED[forged]
    bad = [lines[1], changed(lines[0], **values), lines[2]]
    with pytest.raises(InputFileError, match=rf"log\.jsonl:2: not a line of this run: .*{said}.*; delete the line"):
        resumed(finished, tmp_path / "out", bad)
    assert (tmp_path / "out" / LOG).read_text().splitlines() == bad
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [LOG, RUN]


@pytest.mark.parametrize(
    "body", ["[]", "{}", "7", "{", '{"plan":"a"}', "[" * 100_000, '{"unit":' + "9" * 5_000 + "}"], ids=range(7)
)
def test_a_line_that_is_no_unit_is_refused(body, finished, tmp_path):
    """Whatever JSON, or none, stands behind a right digest."""
    with pytest.raises(InputFileError, match=r"log\.jsonl:1: not a line of this run"):
        resumed(finished, tmp_path / "out", [signed(body)])


def test_the_line_of_another_model_is_refused(finished, tmp_path):
    """Same data and tokens, other weights: the plan of a line includes the model's
    signature."""
    with kill_points.engine(5) as other:
        run(other, kill_points.tasks(), tmp_path / "other")
    theirs = (tmp_path / "other" / LOG).read_text().splitlines()
    assert [json.loads(line)["body"]["unit"] for line in theirs] == list(range(len(theirs)))
    with pytest.raises(InputFileError, match=r"log\.jsonl:3: .* its plan is"):
        resumed(finished, tmp_path / "out", [*(finished / LOG).read_text().splitlines()[:2], theirs[2]])


def test_lines_of_another_machine_count_where_they_may(tmp_path, monkeypatch):
    """A run that begins on another processor and goes on here is of one plan, so
    nothing it logged is measured again."""
    out, asked = tmp_path / "out", []

    def stopping(units):
        for unit, done in zip(units[:2], measure_units(llm, units), strict=False):
            assert done.unit is unit
            yield done
        raise KeyboardInterrupt

    def measuring(units):
        asked.extend(unit.number for unit in units)
        yield from measure_units(llm, units)

    with kill_points.engine() as llm:
        with monkeypatch.context() as there:
            there.setattr(runner, "signature_of", lambda engine: {**signature_of(engine), "processor": "another"})
            with pytest.raises(KeyboardInterrupt):
                run(llm, kill_points.tasks(), out, measure=stopping)
        with pytest.raises(OptionError, match="processor was 'another'"):
            run(llm, kill_points.tasks(), out)
        run(llm, kill_points.tasks(), out, RunOptions(other_machine=True), measure=measuring)
    assert asked == list(range(2, 2 + len(asked)))
    assert len({json.loads(line)["body"]["plan"] for line in (out / LOG).read_text().splitlines()}) == 1


def test_a_unit_stands_in_a_log_once(finished, tmp_path):
    """A copy of a line, or a second opinion about a unit: which line has it already;
    without it the run ends as it should."""
    lines = (finished / LOG).read_text().splitlines()
    for n, second in enumerate((lines[0], changed(lines[0], logp=[-1.0] * 6))):
        with pytest.raises(InputFileError, match=r"log\.jsonl:4: .* unit 0 is already in line 1"):
            resumed(finished, tmp_path / str(n), [*lines[:3], second, *lines[3:]])
    resumed(finished, tmp_path / "out", lines[:3])
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        path.name: path.read_bytes() for path in finished.iterdir()
    }


@given(data=st.data())
def test_a_line_is_read_back_or_not_at_all(finished, data):
    """Whatever is changed, taken out or put in, with a right digest or without: what is
    read is written as it stood."""
    text = data.draw(st.sampled_from((finished / LOG).read_text().splitlines()))
    body = text.split('"body":', 1)[1][:-1]
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    put_in = data.draw(st.sampled_from(["", "0", "-", "1e999", "true", ",", '"unit":0,', " "]))
    other = body[:start] + put_in + body[end:]
    for line in (signed(other), text.replace(body, other)):
        try:
            read = LogLine.from_json(line, UNIT_LINES)
        except (TornLineError, ValueError):
            continue
        assert read.to_json(UNIT_LINES) == line


def test_two_writers_of_one_file_do_not_meet(tmp_path, monkeypatch):
    """The second begins and ends while the first is about to put its file in place:
    both end, and the last one decides."""
    replace = Path.replace

    def replacing(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        write_whole(tmp_path / "page", "second")
        assert (tmp_path / "page").read_text() == "second"
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replacing)
    (tmp_path / "page.tmp").write_text("mine")
    write_whole(tmp_path / "page", "first")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"page": "first", "page.tmp": "mine"}


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    """Half a character, and a folder in the file's place."""
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "page", "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder is not a plain file"):
        write_whole(tmp_path / "folder", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_file_keeps_its_mode_and_a_new_one_has_that_of_any(tmp_path):
    """One that only its owner may read stays so; the umask decides about a new one."""
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o600)
    (tmp_path / "link").symlink_to("old")
    before = os.umask(0o027)
    try:
        for name in ("link", "new"):
            write_file(tmp_path / name, "text")
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == {"old": "0o600", "link": "0o600", "new": "0o640"}
    (tmp_path / "old").chmod(0o604)
    write_file(tmp_path / "old", "text")
    assert oct((tmp_path / "old").stat().st_mode & 0o777) == "0o604"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_in_a_folder_that_takes_no_other_is_written_in_place(tmp_path, monkeypatch, kind):
    """It stays the file that it was, through a link too; a new file is refused."""
    folder, page = tmp_path / "folder", tmp_path / "folder" / "page"
    folder.mkdir()
    page.write_text("a longer text")
    (tmp_path / "link").symlink_to(page)
    before, plain = page.stat().st_ino, Path.open

    def refusing(path: Path, mode: str = "r", *args, **kwargs):
        """As the system does for anyone but root."""
        if "x" in mode and path.parent == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refusing)
    folder.chmod(0o500)
    try:
        write_file({"file": page, "link": tmp_path / "link"}[kind], "text")
        with pytest.raises(PermissionError):
            write_file(folder / "new", "text")
    finally:
        folder.chmod(0o700)
    assert (page.read_text(), page.stat().st_ino) == ("text", before)
    assert [path.name for path in folder.iterdir()] == ["page"]


@pytest.mark.parametrize("target", ["/dev/stdout", "out"])
def test_a_page_for_standard_output_follows_what_stands_there(tmp_path, target):
    """Redirected to a file, which is neither replaced nor emptied; a device takes it as it is."""
    code = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from selectrie.core.files import write_file, Path\n"
    code += f"print('report', flush=True); write_file(Path({target!r}), 'page'); write_file(Path('/dev/null'), 'page')"
    with (tmp_path / "out").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file, cwd=tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "report\npage")]


@pytest.mark.parametrize("name", [RUN, LOG, ITEMS, SUMMARY])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_is_not_replaced(name, kind, finished, tmp_path):
    """In the place of any file of a run: it is named before anything is measured, and
    stays what it was."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    shutil.copytree(finished, out)
    elsewhere.write_bytes((out / name).read_bytes())
    (out / name).unlink()
    {
        "link": lambda: (out / name).symlink_to(elsewhere),
        "fifo": lambda: os.mkfifo(out / name),
        "folder": (out / name).mkdir,
    }[kind]()
    mode, before = (out / name).lstat().st_mode, elsewhere.read_bytes()
    with pytest.raises((OptionError, InputFileError), match=f"{name} is not a plain file"):
        kill_points.whole(out)
    assert (out / name).lstat().st_mode == mode
    assert elsewhere.read_bytes() == before


def test_what_a_killed_process_left_is_cleared(finished, tmp_path):
    """Its temporary files and no others."""
    left = [f".{name}-{'0' * 16}.tmp" for name in (RUN, ITEMS, SUMMARY)]
    kept = [f".page.html-{'0' * 16}.tmp", f".{RUN}-0.tmp", "notes.txt"]
    shutil.copytree(finished, tmp_path / "out")
    for name in left + kept:
        (tmp_path / "out" / name).write_text("")
    kill_points.whole(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*kept, RUN, LOG, ITEMS, SUMMARY])


def test_the_lock_is_that_of_the_process_and_not_the_file(finished, tmp_path):
    """A log that stays behind stops no run, and one that another open file holds is
    not written."""
    shutil.copytree(finished, tmp_path / "out")
    kill_points.whole(tmp_path / "out")
    before = (tmp_path / "out" / SUMMARY).stat().st_mtime_ns
    with (tmp_path / "out" / LOG).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OptionError, match="no other run is writing now"):
            kill_points.whole(tmp_path / "out")
    assert (tmp_path / "out" / SUMMARY).stat().st_mtime_ns == before
    kill_points.whole(tmp_path / "out")


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    """Some network file systems have none: the error says so, and not that another run
    writes."""

    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OptionError, match=r"a file system with locks \(No locks available\)"):
        kill_points.whole(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LOG]


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_taken_away_meanwhile_is_not_written(again, tmp_path):
    """Another run may have begun in its place: the first ends with an error after its
    next unit, and leaves that one alone."""
    out = tmp_path / "out"

    def measure(units):
        for n, done in enumerate(measure_units(llm, units)):
            if n == 2:
                out.rename(tmp_path / "away")
                if again:
                    kill_points.whole(out)
            yield done

    with kill_points.engine() as llm, pytest.raises(OptionError, match=r"log\.jsonl is not taken away"):
        run(llm, kill_points.tasks(), out, measure=measure)
    assert len((tmp_path / "away" / LOG).read_bytes().splitlines()) == 2
    assert out.exists() == again


def test_threads_of_one_process_are_two_runs(tmp_path):
    """While one measures, the other is refused."""
    begun, over = threading.Event(), threading.Event()

    def measure(units):
        begun.set()
        assert over.wait(60)
        yield from measure_units(llm, units)

    with kill_points.engine() as llm:
        first = threading.Thread(target=run, args=(llm, kill_points.tasks(), tmp_path), kwargs={"measure": measure})
        first.start()
        assert begun.wait(60)
        with pytest.raises(OptionError, match="no other run is writing now"):
            run(llm, kill_points.tasks(), tmp_path)
        over.set()
        first.join()
    assert read_run(tmp_path)["small"].figures.n == 9


def test_a_log_without_a_beginning_is_left_alone(finished, tmp_path):
    """Its lines could be of any run; an empty log is what a process leaves that died
    at once."""
    (tmp_path / LOG).write_bytes((finished / LOG).read_bytes())
    with pytest.raises(OptionError, match=r"a new folder.*there is a log\.jsonl but no run\.json"):
        kill_points.whole(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOG]
    (tmp_path / LOG).write_bytes(b"")
    kill_points.whole(tmp_path)


@pytest.mark.parametrize(
    ("model", "packages"),
    [(toy_backend.ToyModel, {"pytest"}), (HashModel, set())],
    ids=["in the table", "the caller's"],
)
def test_the_environment_has_the_versions_of_the_back_end_in_use(tmp_path, monkeypatch, model, packages):
    """Those of another one in the table are left out, and a model of the caller's own adds none."""
    monkeypatch.setattr(folder, "BACKENDS", toy_backend.TABLE)
    with Engine(model(4, limits=kill_points.engine().limits)) as llm:
        run(llm, kill_points.tasks(), tmp_path / "out")
    said = json.loads((tmp_path / "out" / RUN).read_text())["environment"]
    assert set(said) == {"python", "system", "cores", "selectrie", "numpy"} | packages
    assert all(said[package] == version(package) for package in packages)
    assert read_run(tmp_path / "out").tasks


def test_llama_cpp_names_its_package():
    """As run folders of before have it."""
    assert folder.environment("llama.cpp")["llama-cpp-python"] == version("llama-cpp-python")


def test_a_run_of_the_first_format_is_shown_and_does_not_go_on(tmp_path):
    """Its figures are read and compared; going on is refused by name, for its log
    cannot say what was measured."""
    found = read_run(FIRST_FORMAT)
    written = json.loads((FIRST_FORMAT / SUMMARY).read_text())
    assert written["format"] == 1
    assert compare(str(FIRST_FORMAT), FIRST_FORMAT) == compare(found, found)
    assert {**written, "format": FORMAT_VERSION} == json.loads(json.dumps(found.to_dict()))
    assert [one.n for one in compare(found, found)] == [4]
    out = tmp_path / "out"
    shutil.copytree(FIRST_FORMAT, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for going_on in (lambda: kill_points.whole(out), lambda: began_with(out), lambda: check_folder(out, {})):
        with pytest.raises(InputFileError, match=r"run\.json: a run of format 1, .* cannot go on; begin it again"):
            going_on()
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("source", ["first format", "this format"])
def test_figures_of_another_run_than_began_are_not_shown(source, finished, tmp_path):
    """What two runs that began at once left behind in the first format: the beginning
    names the other model, or other metrics."""
    out = tmp_path / "out"
    shutil.copytree(FIRST_FORMAT if source == "first format" else finished, out)
    begun = json.loads((out / RUN).read_text())
    (out / RUN).write_text(json.dumps({**begun, "signature": {**begun["signature"], "model": "hash-5"}}))
    with pytest.raises(
        InputFileError, match=r"summary\.json: figures of another run .* model was 'hash-5', here it is 'hash-4'"
    ):
        read_run(out)
    begun["tasks"][0]["metrics"] = ["acc_norm"]
    (out / RUN).write_text(json.dumps(begun))
    with pytest.raises(InputFileError, match="figures of another run than"):
        read_run(out)


@pytest.mark.parametrize(
    ("name", "value"), [("model", []), ("signature", []), ("tasks", {}), ("configuration", None), ("plan", 1)]
)
def test_a_part_of_another_kind_is_said(name, value, finished, tmp_path):
    """Of the beginning of a run, which file and which part."""
    begun = json.loads((finished / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps({**begun, name: value}))
    with pytest.raises(InputFileError, match=rf"run\.json: not the description of a run: '{name}' has the wrong type"):
        began_with(tmp_path)


def test_later_formats_and_deep_ones_are_refused(finished, tmp_path):
    """A version that this one does not know, and JSON that nests without end."""
    begun = json.loads((finished / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps({**begun, "format": 3}))
    with pytest.raises(InputFileError, match="a run of format 3; this version reads 1 and 2"):
        read_run(tmp_path)
    (tmp_path / RUN).write_text("[" * 100_000)
    with pytest.raises(InputFileError, match="not the description of a run"):
        read_run(tmp_path)
