"""What a loss of power can take from a log, and that a run goes on from what is left."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import OptionError
from selectrie.runs import folder
from selectrie.runs.folder import LOG, RUN
from tests.support import kill_points
from tests.support.n_examples import n_examples
from tests.support.summed_rows import one_after_another, run, summed, twin, write_table

BLOCK = 64
"""Bytes that come to the disk together, or do not. Smaller than on any disk, and than a line."""


class StoppedError(Exception):
    """Raised in the middle of a run."""


class Disk:
    """The length of a log when it was last put on the disk, and the order of what was done to the folder."""

    def __init__(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.synced, self.done, self.now = log, 0, [], 100.0
        self.synced_at: list[float] = []
        fsync, replace = os.fsync, Path.replace

        def syncing(file: int) -> None:
            if log.exists() and os.path.samestat(os.fstat(file), log.stat()):
                self.synced = log.stat().st_size
                self.synced_at.append(self.now)
                self.done.append("log")
            fsync(file)

        def replacing(path: Path, target: Path) -> Path:
            self.done.append(target.name)
            return replace(path, target)

        monkeypatch.setattr(os, "fsync", syncing)
        monkeypatch.setattr(Path, "replace", replacing)
        monkeypatch.setattr(folder, "monotonic", lambda: self.now)

    @property
    def is_whole(self) -> bool:
        """Whether a loss of power would take no line now."""
        return self.synced == self.log.stat().st_size


@settings(max_examples=n_examples(30), deadline=None)
@given(seconds=st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.5]), min_size=1, max_size=12), stops=st.booleans())
def test_what_is_not_on_the_disk_was_finished_within_a_second_of_what_is(seconds, stops, tmp_path_factory):
    """Whatever units take; and nothing is missing when the results are written, or the run ends with an error."""
    folder = tmp_path_factory.mktemp("sums")
    table = write_table(folder / "table", 64 * len(seconds))
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk = Disk(folder / "out.run" / LOG, monkeypatch)

        def work(units):
            for unit, took in zip(units, seconds, strict=True):
                disk.now += took
                yield unit, summed(unit)
                assert disk.is_whole or disk.now < disk.synced_at[-1] + 1.0
            if stops:
                raise StoppedError

        with suppress(StoppedError):
            run(table, folder / "out", work)
        assert disk.is_whole
        assert all(later >= earlier + 1.0 for earlier, later in pairwise(disk.synced_at[:-1]))
        assert disk.done[0] == RUN
        assert stops or disk.done[-1] == "out"
        assert ("out" in disk.done) != stops


def after_power_loss(log: bytes, synced: int, has_come: list[bool], length: int) -> bytes:
    """A log of which the first bytes are on the disk, of the rest some blocks, and zeros in place of the others."""
    left = bytearray(log[: max(synced, length)])
    for start, came in zip(range(0, len(left), BLOCK), has_come, strict=False):
        if not came:
            for i in range(max(start, synced), min(start + BLOCK, len(left))):
                left[i] = 0
    return bytes(left)


@settings(max_examples=n_examples(60), deadline=None)
@given(data=st.data())
def test_a_run_goes_on_from_what_a_loss_of_power_leaves(data, tmp_path_factory):
    """Blocks of a log come to the disk in any order. Whatever is left, lines that were put on the disk count, and log
    and results are those of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("sums")
    table = write_table(folder / "table", 64 * data.draw(st.integers(1, 6)))
    run(table, folder / "out")
    log = folder / "out.run" / LOG
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    n_synced = data.draw(st.integers(0, len(lines)))
    synced = sum(map(len, lines[:n_synced]))
    n_blocks = -(-len(whole) // BLOCK)
    has_come = data.draw(st.lists(st.booleans(), min_size=n_blocks, max_size=n_blocks))
    log.write_bytes(after_power_loss(whole, synced, has_come, data.draw(st.integers(0, len(whole)))))
    (folder / "out").unlink()
    again = []

    def work(units):
        for unit, values in one_after_another(units):
            again.append(unit.number)
            yield unit, values

    run(table, folder / "out", work)
    assert log.read_bytes() == whole
    assert (folder / "out").read_bytes() == twin(table)
    assert again == list(range(len(lines) - len(again), len(lines)))
    assert len(again) <= len(lines) - n_synced


def test_an_evaluation_has_its_log_on_the_disk_before_its_results(tmp_path, monkeypatch):
    """Seven units within a second: the first line is put on the disk, the others before the results."""
    disk = Disk(tmp_path / "out" / LOG, monkeypatch)
    kill_points.whole(tmp_path / "out")
    assert disk.done == [RUN, "log", "log", "items.jsonl", "summary.json"]
    assert disk.is_whole


def test_lines_that_a_killed_process_left_are_put_on_the_disk(tmp_path, monkeypatch):
    """The next process does not know whether the one before did."""
    table = write_table(tmp_path / "table", 64 * 3)
    run(table, tmp_path / "out")
    (tmp_path / "out").unlink()
    disk = Disk(tmp_path / "out.run" / LOG, monkeypatch)
    run(table, tmp_path / "out")
    assert disk.done == ["log", "out"]


def test_a_disk_that_fails_at_the_end_is_an_error(tmp_path, monkeypatch):
    """No results are written from a log that is not on the disk, and an error of the work is not hidden."""
    table = write_table(tmp_path / "table", 64 * 3)
    fsync, disk = os.fsync, Disk(tmp_path / "out.run" / LOG, monkeypatch)
    synced = os.fsync

    def failing(file):
        if disk.synced_at:
            raise OSError(5, "Input/output error")
        synced(file)

    def stopping(units):
        yield from ((unit, summed(unit)) for unit in [next(units), next(units)])
        raise StoppedError

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoppedError):
        run(table, tmp_path / "out", stopping)
    with pytest.raises(OptionError, match="Input/output error"):
        run(table, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(os, "fsync", fsync)
    run(table, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == twin(table)
