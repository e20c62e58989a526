"""Find which tests of a file reach which lines, or whether chosen tests pass: a process
of `tools/mutants.py`.

`python -m reached map REQUEST` runs one test file under coverage; `python -m reached
run REQUEST` runs chosen tests until one fails. The request is a JSON file.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MOST_BYTES = 6 << 30
"""Limit of a process's data: a change may cause a loop that collects data forever."""
LONGEST_FILE_BYTES = 1 << 30
AT_IMPORT = ""
"""The context of lines that run while test files are collected."""


def cpu_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def limit(cpu_limit_s: float | None) -> None:
    """Limit what this process, and each process that it starts, may use.

    SIGXCPU ends it after these CPU seconds.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST_FILE_BYTES, LONGEST_FILE_BYTES))
    if cpu_limit_s is not None:
        seconds = max(1, round(cpu_limit_s))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def shared(name: str) -> str:
    """Return the context of lines that a fixture for more than one test runs."""
    return f"fixture {name}"


class Mapping:
    """Plugin that gives each test, and each fixture that tests share, a context, and
    measures what each costs in CPU seconds.

    The lines of a shared fixture do not count for the test that happens to come first.
    """

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self._contexts = [AT_IMPORT]
        self._shared_s = 0.0
        self._passed: dict[str, bool] = {}
        self.tests: dict[str, Any] = {}
        self.fixtures: dict[str, float] = {}
        self.collecting_s = 0.0

    def pytest_collection_finish(self) -> None:
        self.collecting_s = cpu_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, self._shared_s = cpu_s(), 0.0
        self._enter(item.nodeid)
        try:
            return (yield)
        finally:
            self._leave()
            seconds = cpu_s() - before - self._shared_s
            self.tests[item.nodeid] = {"s": round(seconds, 4), "fixtures": list(getattr(item, "fixturenames", ()))}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, inner = cpu_s(), self._shared_s
        self._enter(shared(fixturedef.argname))
        try:
            return (yield)
        finally:
            self._leave()
            seconds = cpu_s() - before
            self._shared_s = inner + seconds
            self.fixtures[fixturedef.argname] = round(self.fixtures.get(fixturedef.argname, 0.0) + seconds, 4)

    def _enter(self, context: str) -> None:
        self._contexts.append(context)
        self._coverage.switch_context(context)

    def _leave(self) -> None:
        self._contexts.pop()
        self._coverage.switch_context(self._contexts[-1])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed[report.nodeid] = report.passed and self._passed.get(report.nodeid, True)

    def found(self) -> dict[str, Any]:
        """Return the tests that passed, what they cost, and the shared fixtures that
        they use.
        """
        tests = {name: said for name, said in self.tests.items() if self._passed.get(name)}
        for said in tests.values():
            said["fixtures"] = [name for name in said["fixtures"] if name in self.fixtures]
        left_out = sorted(set(self.tests) - set(tests))
        return {
            "tests": tests,
            "fixtures": self.fixtures,
            "collecting_s": round(self.collecting_s, 3),
            "left_out": left_out,
        }


class Chosen:
    """Plugin that runs the chosen tests in their order and writes down its progress, so
    that it is known after the process is killed.
    """

    def __init__(self, tests: list[str], soft_s: float, progress: Path) -> None:
        self._place = {name: i for i, name in enumerate(tests)}
        self._soft_s = soft_s
        self._progress = progress.open("a", encoding="utf-8", buffering=1)

    def _say(self, **said: object) -> None:
        self._progress.write(json.dumps({**said, "cpu_s": round(cpu_s(), 3)}) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Turn shrinking off: it is enough that a property fails."""
        from hypothesis import Phase, settings

        settings.register_profile("until_it_fails", phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
        settings.load_profile("until_it_fails")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._place]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._place])
        items[:] = sorted(kept, key=lambda item: self._place[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(failed=report.nodeid, why=_last_line(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(failed=report.nodeid, why=_last_line(report))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        result = yield
        if cpu_s() > self._soft_s:
            item.session.shouldstop = "the time of this mutant is up"
        return result

    def pytest_sessionfinish(self) -> None:
        self._say(finished=True)


def _last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return next((line[:200] for line in text.splitlines() if line.strip()), "")


def main(arguments: list[str]) -> int:
    """Do what a request says, and write the answer to the file or the progress that it
    names.
    """
    what, request = arguments[0], json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    limit(request["limit_s"])
    if what == "run":
        chosen = Chosen(request["tests"], request["soft_s"], Path(request["progress"]))
        return int(pytest.main(["-x", *request["pytest"]], plugins=[chosen]))
    from coverage import Coverage

    coverage = Coverage(data_file=request["data"], include=request["include"], config_file=False, messages=False)
    mapping = Mapping(coverage)
    coverage.start()
    status = pytest.main(request["pytest"], plugins=[mapping])
    coverage.stop()
    coverage.save()
    Path(request["answer"]).write_text(json.dumps(mapping.found()), encoding="utf-8")
    is_run = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return 0 if is_run else int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
