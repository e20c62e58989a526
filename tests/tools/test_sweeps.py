"""The suite's own reports: sweeps that are recorded and not run again, and skips that
are summed up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skip_summary import WITHOUT_DATA

CONFTEST = """
from tests.support.skip_summary import pytest_terminal_summary
from tests.support.sweep_plugin import pytest_addoption, pytest_configure, pytest_pycollect_makeitem
"""
LONG = """
import os, signal
from pathlib import Path
import pytest

def ran(what):
    with Path("ran").open("a") as file:
        file.write(what + " ")

def test_short():
    ran("short")

@pytest.mark.long
@pytest.mark.parametrize("i", range(3))
def test_many_things(i, record_property):
    ran(f"many{i}")
    record_property("things", 10 * (i + 1))
    if Path(f"kill{i}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    assert not Path(f"fail{i}").exists()

@pytest.mark.long
def test_one_thing():
    ran("one")
    if Path("skip").exists():
        pytest.skip("there is no moon")
"""


@pytest.fixture
def project(tmp_path):
    """A project with a short test and two sweeps."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -m 'not long'\nmarkers = long: as here\n short: as here\ntestpaths = tests\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_things.py").write_text(LONG)
    return tmp_path


def outcome(project: Path, *args: str, code: int = 0) -> tuple[list[str], str]:
    """Which tests ran, and what was printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    (project / "ran").write_text("")
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return (project / "ran").read_text().split(), done.stdout + done.stderr


def test_a_sweep_that_was_killed_goes_on_and_runs_once(project):
    """What passed is recorded at once; what was killed, failed or skipped runs again;
    what is finished does not."""
    (project / "kill1").touch()
    assert outcome(project, "--sweeps", code=-9)[0] == ["many0", "many1"]
    (project / "kill1").rename(project / "fail1")
    (project / "skip").touch()
    ran, said = outcome(project, "--sweeps", code=1)
    assert ran == ["many1", "many2", "one"]
    assert "many_things: 2 of 3 passed in 0 s, 1 before, 1 failed, things 40" in said
    assert "one_thing: 0 of 1 passed in 0 s, 1 skipped" in said
    (project / "fail1").unlink()
    (project / "skip").unlink()
    assert outcome(project, "--sweeps")[0] == ["many1", "one"]
    ran, said = outcome(project, "--sweeps")
    assert ran == []
    assert "many_things: 3 of 3 passed in 0 s, 3 before, things 60" in said


def test_a_torn_record_loses_one_test(project):
    """A process killed while it wrote: its last line is not read, and what is written
    behind it is."""
    outcome(project, "--sweeps")
    (record,) = (project / "build" / "sweeps").iterdir()
    record.write_bytes(record.read_bytes()[:-9])
    assert outcome(project, "--sweeps")[0] == ["one"]
    assert outcome(project, "--sweeps")[0] == []


def test_one_sweep_is_run_by_its_name(project):
    """Others stay as they are; a name that no sweep has is refused with those there
    are."""
    assert outcome(project, "--sweep", "one_thing")[0] == ["one"]
    assert outcome(project, "--sweep", "one_thing")[0] == []
    assert outcome(project, "--sweeps")[0] == ["many0", "many1", "many2"]
    ran, said = outcome(project, "--sweep", "no_thing", code=4)
    assert (ran, "there is no sweep 'no_thing'; there are: many_things, one_thing" in said) == ([], True)


def test_a_change_of_the_sources_makes_sweeps_run_again(project):
    """Of any file that is hashed; back at the old sources the old record holds."""
    outcome(project, "--sweep", "one_thing")
    (project / "src").mkdir()
    (project / "src" / "new.py").write_text("")
    assert outcome(project, "--sweep", "one_thing")[0] == ["one"]
    (project / "src" / "new.py").unlink()
    assert outcome(project, "--sweep", "one_thing")[0] == []


def test_without_sweeps_the_marker_is_all_there_is(project):
    """`-m long` runs every long test each time, and writes no record."""
    assert outcome(project)[0] == ["short"]
    for _ in range(2):
        assert outcome(project, "-m", "long")[0] == ["many0", "many1", "many2", "one"]
    assert not (project / "build").exists()


CASES = """
import pytest
from test_things import ran

@pytest.mark.short("a-*", "*-2")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_each(name, n):
    ran(f"{name}{n}")
"""


def test_cases_that_are_not_short_are_long(project):
    """A case is short if its id fits a pattern of each marker; every case runs in one of the two runs."""
    path = project / "tests" / "test_cases.py"
    path.write_text(CASES)
    assert outcome(project, str(path))[0] == ["a1", "a2", "b2", "c2"]
    assert outcome(project, "--sweep", "each")[0] == ["b1", "c1"]
    path.write_text(CASES.replace("@pytest.mark.short", '@pytest.mark.short("a-*", "c-*")\n@pytest.mark.short', 1))
    assert outcome(project, str(path))[0] == ["a1", "a2", "c2"]
    assert outcome(project, "--sweep", "each")[0] == ["b1", "b2", "c1"]
    path.write_text(CASES.replace('"a-*", "*-2"', '"!a-*", "!*-2"'))
    assert outcome(project, str(path))[0] == ["b1", "c1"]


def test_a_pattern_that_fits_no_case_is_refused(project):
    """A renamed case does not leave the short run unseen."""
    path = project / "tests" / "test_cases.py"
    path.write_text(CASES.replace('"*-2"', '"*-3"'))
    ran, said = outcome(project, str(path), code=2)
    assert (ran, "test_each: no case is called '*-3'; there are: a-1, a-2" in said) == ([], True), said


def test_skips_are_summed_by_reason(project):
    """One line for a reason, however many places it comes from."""
    (project / "skip").touch()
    text = LONG.replace("def test_one_thing", "def test_another_thing")
    (project / "tests" / "test_others.py").write_text(text)
    said = outcome(project, "-m", "long")[1]
    assert said.count("there is no moon") == 1
    assert "    2 skipped: there is no moon" in said


def test_what_the_test_data_would_add_is_one_line(project, monkeypatch):
    """Without them, whatever files are missed; with them each file that is missing is
    named."""
    (project / "tests" / "test_things.py").write_text(
        "import pytest\nfrom tests.support.real_data import real_file\n"
        "@pytest.mark.parametrize('name', ['a', 'b', 'c'])\ndef test_it(name):\n    real_file(name)\n"
    )
    monkeypatch.setenv("SELECTRIE_TEST_DATA", "")
    said = outcome(project)[1]
    assert (said.count("SELECTRIE_TEST_DATA"), f"    3 skipped: {WITHOUT_DATA}" in said) == (1, True)
    monkeypatch.setenv("SELECTRIE_TEST_DATA", str(project))
    said = outcome(project)[1]
    assert said.count("    1 skipped: ") == 3
    assert "b is not in the folder of SELECTRIE_TEST_DATA" in said


def test_every_test_is_collected_without_test_data():
    """What a mark names must be there on a machine that has neither labels nor weights."""
    root = Path(__file__).resolve().parents[2]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("SELECTRIE_")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=root, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
