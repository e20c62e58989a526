"""Logs of a stream of units: a second kind of run, without benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from contextlib import suppress
from hashlib import blake2b
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import InputFileError, InternalError, OptionError
from selectrie.runs.folder import LOG, RUN
from tests.support import summed_rows
from tests.support.n_examples import n_examples
from tests.support.summed_rows import resume, run, summed, twin, units_of, write_table

POINTS = [*(str(i * 4_400 // 12) for i in range(12)), "-1", "-2", "900,2500", "3000,0"]
"""Bytes of the log, renamings, and pairs of bytes."""


def test_killed_runs_of_a_stream_end_with_the_same_bytes(tmp_path):
    """Wherever it is killed, the folder alone is enough to go on, and log and results are
    those of a run that nobody disturbed and of the slow twin."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.support.summed_rows", str(tmp_path), *POINTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    first, *lines = done.stdout.splitlines()
    assert first.endswith(" True")
    assert int(first.split()[1]) > 4_400
    assert lines == [f"{point} {[9] * (1 + point.count(','))} 0 True" for point in POINTS]


def permuted(order, window):
    """Work that finishes units in a drawn order within the window."""

    def work(units):
        held = []
        for unit in units:
            held.append(unit)
            while held and unit.number - held[0].number >= window - 1:
                chosen = held[0] if next(order) or held[-1].number - held[0].number >= window else held[-1]
                held.remove(chosen)
                yield chosen, summed(chosen)
        while held:
            chosen = held.pop(-next(order))
            yield chosen, summed(chosen)

    return work


class StoppedError(Exception):
    """Raised in the middle of a run."""


def stopped(work, n):
    """Work that ends with an error after n units."""

    def stopping(units):
        for i, done in enumerate(work(units)):
            if i == n:
                raise StoppedError
            yield done

    return stopping


@settings(max_examples=n_examples(40), deadline=None)
@given(data=st.data())
def test_any_order_within_the_window_gives_the_results_of_the_twin(data, tmp_path_factory):
    """However long the input, wide the window, often the run stops, and torn the log."""
    folder = tmp_path_factory.mktemp("sums")
    table = write_table(folder / "table", data.draw(st.integers(0, 64 * 12)))
    window = data.draw(st.integers(1, 6))
    bits = data.draw(st.lists(st.booleans(), min_size=64, max_size=64))
    work = permuted((bits[i % 64] for i in range(10_000)), window)
    for n in data.draw(st.lists(st.integers(0, 5), max_size=3)):
        with suppress(StoppedError):
            run(table, folder / "out", stopped(work, n), window=window)
        log = folder / "out.run" / LOG
        whole = log.read_bytes()
        log.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    run(table, folder / "out", work, window=window)
    assert (folder / "out").read_bytes() == twin(table)


def signed(body: dict[str, object]) -> str:
    """A line with a right digest."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"digest":"{blake2b(text.encode(), digest_size=16).hexdigest()}","body":{text}}}\n'


@pytest.fixture
def begun(tmp_path):
    """A table of six units, and the lines of its finished run."""
    table = write_table(tmp_path / "table", 64 * 6)
    run(table, tmp_path / "out")
    return table, tmp_path / "out", (tmp_path / "out.run" / LOG).read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([4, 0, 1, 2], "log.jsonl:1: .*unit 4 is in it, and no line before it has unit 0; delete this line and those"),
        ([0, 5], "log.jsonl:2: .*unit 5 is in it, and no line before it has unit 1"),
        ([0, 1, 0], "log.jsonl:3: .*unit 0 is already in line 1"),
        ([2, 1, 1], "log.jsonl:3: .*unit 1 is already in line 2"),
    ],
)
def test_lines_in_an_order_that_no_run_writes_are_refused(begun, order, said):
    """A window of four units is kept; nothing is cut off from the log."""
    table, out, lines = begun
    log = out.with_name("out.run") / LOG
    log.write_text("".join(lines[i] for i in order) + "torn")
    before = log.read_bytes()
    with pytest.raises(InputFileError, match=said):
        run(table, out)
    assert log.read_bytes() == before


@pytest.mark.parametrize("order", [[2], [3, 0, 1], [1, 0, 3], [3, 2, 1], [0, 4, 2, 1, 3]])
def test_a_run_goes_on_where_units_are_missing_between_others(begun, order):
    """The missing units are done in their order, those before the last line included."""
    table, out, lines = begun
    log = out.with_name("out.run") / LOG
    log.write_text("".join(lines[i] for i in order))
    out.unlink()
    run(table, out)
    missing = [i for i in range(6) if i not in order]
    assert log.read_text() == "".join(lines[i] for i in [*order, *missing])
    assert out.read_bytes() == twin(table)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rows": "0" * 16}, "unit 0 of the input has other rows"),
        ({"values": [1.0]}, "unit 0 of the input has other rows"),
        ({"values": [1]}, "wrong type"),
        ({"plan": "0" * 32}, "its plan is"),
        ({"unit": -1}, "the plan has no unit -1"),
        ({"unit": True}, "plan or unit has the wrong type"),
        ({"more": 1}, "not written as a run writes it"),
    ],
)
def test_a_line_that_does_not_fit_its_unit_is_refused(begun, values, said):
    """Although its digest is right."""
    table, out, lines = begun
    (out.with_name("out.run") / LOG).write_text(signed({**json.loads(lines[0])["body"], **values}))
    with pytest.raises(InputFileError, match=said):
        run(table, out)


def test_a_changed_input_is_refused(begun):
    """In any row, before anything is written."""
    table, out, _ = begun
    before = out.read_bytes()
    for n in (64 * 6 + 1, 64 * 6 - 1, 64 * 7):
        write_table(table, n)
        with pytest.raises(OptionError, match=r"a folder of the same run: plan\."):
            run(table, out)
    assert out.read_bytes() == before


@pytest.mark.parametrize("n_rows", [64 * 5, 64 * 7, 64 * 5 + 1])
def test_an_input_that_changes_during_the_run_is_said(begun, n_rows):
    """Before the results are written, which stay as they were."""
    table, out, _ = begun
    out.write_text("earlier")

    def changing(units):
        assert list(units) == []
        write_table(table, n_rows)
        return iter(())

    with pytest.raises(InputFileError, match=r"log\.jsonl.*(input has changed|has other rows)"):
        run(table, out, changing)
    assert out.read_text() == "earlier"
    assert sorted(path.name for path in out.parent.iterdir()) == ["out", "out.run", "table"]


def test_work_that_runs_ahead_or_repeats_is_an_error_of_ours(tmp_path):
    """The window of four units bounds what is held and the order of the log, and no unit
    is logged twice."""
    table = write_table(tmp_path / "table", 64 * 6)
    with pytest.raises(InternalError, match="unit 5 was asked for while unit 0 is not logged"):
        run(table, tmp_path / "a", lambda units: ((unit, summed(unit)) for unit in list(units)))
    with pytest.raises(InternalError, match="unit 4 was finished while unit 0 is not logged"):
        run(table, tmp_path / "c", lambda units: ((unit, summed(unit)) for unit in list(islice(units, 5))[::-1]))
    with pytest.raises(InternalError, match="unit 0 is not one that the run still has to do"):
        run(table, tmp_path / "b", lambda units: ((unit, summed(unit)) for unit in [next(units)] * 2))


def test_of_two_runs_at_once_one_has_the_folder(tmp_path):
    """A second process is refused while the first works, and goes on when it has ended."""
    table = write_table(tmp_path / "table", 64 * 3)
    code = (
        "import sys; from pathlib import Path; from selectrie.errors import OptionError\n"
        "from tests.support.summed_rows import run\n"
        "try: run(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except OptionError as error: sys.exit(str(error))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = []

    def second():
        command = [sys.executable, "-c", code, str(table), str(tmp_path / "out")]
        ended.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))

    def work(units):
        for unit in units:
            if unit.number == 1:
                thread = threading.Thread(target=second)
                thread.start()
                thread.join()
            yield unit, summed(unit)

    run(table, tmp_path / "out", work)
    second()
    assert ended[0].returncode == 1
    assert "no other run is writing now" in ended[0].stderr
    assert ended[1].returncode == 0, ended[1].stderr
    assert (tmp_path / "out").read_bytes() == twin(table)


def test_memory_does_not_grow_with_the_input(tmp_path):
    """Ten times the units need no more memory: neither units nor lines are collected."""
    peaks = []
    for n_units in (20, 200):
        table = write_table(tmp_path / f"table{n_units}", 64 * n_units)
        run(table, tmp_path / f"warm{n_units}")
        (tmp_path / f"warm{n_units}").unlink()
        tracemalloc.start()
        run(table, tmp_path / f"out{n_units}")
        run(table, tmp_path / f"out{n_units}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    one_unit = 64 * 200  # bytes of a unit's lines and values, at least
    assert peaks[1] < peaks[0] + 20 * one_unit


def test_a_folder_of_another_kind_is_refused(begun):
    """A run of one kind does not go on as another."""
    table, out, _ = begun
    path = out.with_name("out.run") / RUN
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": "run"}))
    for going_on in (lambda: run(table, out), lambda: resume(path.parent)):
        with pytest.raises(InputFileError, match="a run of format 1; this version reads 1"):
            going_on()


def test_units_are_cut_by_the_order_of_rows(tmp_path):
    """The last unit of 150 rows has 22 of them."""
    table = write_table(tmp_path / "table", 150)
    assert [len(unit.lines) for unit in units_of(table)] == [64, 64, 22]
    assert summed_rows.UNIT_ROWS == 64
