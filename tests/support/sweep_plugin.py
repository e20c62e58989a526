"""Long tests as sweeps (`make test-long`): named, recorded when they pass, and not run
again on the same sources.

`@pytest.mark.short("gpt-2*", "*llama-spm*")` on a parametrised test leaves the cases
whose ids match one of the patterns to `make test` and marks the others `long`; `"!qwen*"`
marks those that match.

A sweep is all long tests of one function name, without its `test_`. Each test that
passes is recorded at once in `build/sweeps`, in a file named for the digest of
everything the outcome may depend on, so a run that is killed goes on with the next
test. What a test says by `record_property(name, number)` is added up over its sweep.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SOURCES = ("src", "grammars", "tests", "tools", "pyproject.toml")
"""What is hashed, below the root of the project."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the two options."""
    group = parser.getgroup("sweeps")
    group.addoption("--sweeps", action="store_true", help="run the long tests that have not passed on these sources")
    group.addoption("--sweep", metavar="NAME", help="of these, the one that is called so: a test without its `test_`")


def pytest_configure(config: pytest.Config) -> None:
    """Select the long tests where sweeps are asked for."""
    if config.getoption("--sweeps") or config.getoption("--sweep"):
        config.option.markexpr = "long"
        record = config.rootpath / "build" / "sweeps" / f"{digest_of(config.rootpath)}.jsonl"
        config.pluginmanager.register(Sweeps(record, config.getoption("--sweep")), "sweeps")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Mark the cases of a parametrised test that are not among its `short` ones as long.

    A pattern that fits no case is refused: its cases would leave `make test` unseen.
    """
    found = yield
    for item in found if isinstance(found, list) else ():
        for mark in item.iter_markers("short"):
            if not _is_among(item.callspec.id, mark.args):
                item.add_marker("long")
            ids = [one.callspec.id for one in found] if item is found[0] else []
            for pattern in mark.args if ids else ():
                if not any(fnmatchcase(one, pattern.removeprefix("!")) for one in ids):
                    reason = f"{item.originalname}: no case is called {pattern!r}; there are: {', '.join(ids)}"
                    raise pytest.Collector.CollectError(reason)
    return found


def _is_among(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a case is among those that patterns choose or, with `!`, leave out."""
    left_out = [one[1:] for one in patterns if one.startswith("!")]
    chosen = [one for one in patterns if not one.startswith("!")] or ["*"]
    return any(fnmatchcase(name, one) for one in chosen) and not any(fnmatchcase(name, one) for one in left_out)


def digest_of(root: Path) -> str:
    """Of sources, interpreter, installed packages, llama.cpp as it was built, and the
    names and sizes of the test data."""
    digest = blake2b(digest_size=16)
    for path in _files(root / name for name in SOURCES):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode() + path.read_bytes())
    installed = sorted({f"{one.metadata['Name']} {one.version}" for one in metadata.distributions()})
    digest.update("\n".join([sys.version, platform.machine(), *installed]).encode())
    llama = find_spec("llama_cpp")
    for folder in [] if llama is None else llama.submodule_search_locations or []:
        for path in _files([Path(folder, "lib")]):
            digest.update(path.name.encode() + path.read_bytes())
    data = os.environ.get("SELECTRIE_TEST_DATA", "")
    for path in _files([Path(data)] if data else []):
        digest.update(f"{path} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def _files(places: Iterable[Path]) -> Iterator[Path]:
    """Every file at or below places, in one order, but what Python compiles to."""
    for place in places:
        found = [place, *place.rglob("*")]
        yield from sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


@dataclass
class Sweep:
    """One sweep as it stands. tests: how many there are; before: of those that passed,
    by an earlier run. counts: what they said."""

    tests: int = 0
    passed: int = 0
    before: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def line(self, name: str) -> str:
        """All of it in words."""
        done = self.before + self.passed
        said = [f"{name}: {done} of {self.tests} passed in {self.seconds:.0f} s"]
        said += [
            f"{n} {what}"
            for n, what in ((self.before, "before"), (self.failed, "failed"), (self.skipped, "skipped"))
            if n
        ]
        said += [f"{what} {n}" for what, n in self.counts.items()]
        return ", ".join(said)


class Sweeps:
    """The plugin of a run of sweeps."""

    def __init__(self, record: Path, only: str | None) -> None:
        self._record, self._only = record, only
        self._sweeps: dict[str, Sweep] = {}
        self._name_of: dict[str, str] = {}
        self._bad: set[str] = set()
        self._seconds: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out other sweeps, and tests that passed before."""
        names = {item.nodeid: _sweep_of(item) for item in items}
        if self._only is not None and self._only not in names.values():
            known = ", ".join(sorted(set(names.values())))
            raise pytest.UsageError(f"there is no sweep {self._only!r}; there are: {known}")
        kept, left_out = [], []
        finished = self._finished()
        for item in items:
            name = names[item.nodeid]
            if self._only not in (None, name):
                left_out.append(item)
                continue
            sweep = self._sweeps.setdefault(name, Sweep())
            self._name_of[item.nodeid] = name
            sweep.tests += 1
            if item.nodeid in finished:
                sweep.before += 1
                _add(sweep, finished[item.nodeid])
            (left_out if item.nodeid in finished else kept).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)

    def _finished(self) -> dict[str, dict[str, Any]]:
        """What the record says of each test."""
        lines = self._record.read_text(encoding="utf-8").splitlines() if self._record.exists() else []
        return {said["test"]: said for said in map(_said, lines) if said}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test whose set-up, call and tear-down passed."""
        self._seconds[report.nodeid] += report.duration
        if report.outcome != "passed" and report.nodeid not in self._bad:
            self._bad.add(report.nodeid)
            sweep = self._sweeps[self._name_of[report.nodeid]]
            sweep.failed, sweep.skipped = sweep.failed + report.failed, sweep.skipped + report.skipped
        if report.when == "teardown" and report.nodeid not in self._bad:
            self._passed(report)

    def _passed(self, report: pytest.TestReport) -> None:
        sweep = self._sweeps[self._name_of[report.nodeid]]
        sweep.passed += 1
        counts = {name: value for name, value in report.user_properties if type(value) is int}
        said = {"test": report.nodeid, "seconds": round(self._seconds[report.nodeid], 2), "counts": counts}
        _add(sweep, said)
        self._record.parent.mkdir(parents=True, exist_ok=True)
        with self._record.open("ab", buffering=0) as file:
            file.write(b"\n" + json.dumps(said).encode() + b"\n")  # the first line end ends a torn line

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run in which nothing was left to do is a good one."""
        is_done = bool(self._sweeps) and all(sweep.before == sweep.tests for sweep in self._sweeps.values())
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and is_done:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """A line for each sweep."""
        terminalreporter.section("sweeps")
        for name, sweep in sorted(self._sweeps.items()):
            terminalreporter.write_line(sweep.line(name))


def _said(line: str) -> dict[str, Any]:
    """A line of the record; empty where a killed process left it torn, or it is blank."""
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return said


def _add(sweep: Sweep, said: dict[str, Any]) -> None:
    sweep.seconds += said["seconds"]
    sweep.counts.update(said["counts"])


def _sweep_of(item: pytest.Item) -> str:
    name: str = getattr(item, "originalname", None) or item.name
    return name.removeprefix("test_")
