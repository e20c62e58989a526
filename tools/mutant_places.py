"""Run mutants: each place is a copy of the sources, and one process at a time imports
it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TOOLS = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of a mutant. limit_s: CPU seconds that it may use; wall_s: seconds that it
    may wait.
    """

    root: Path
    jobs: int
    limit_s: float
    wall_s: float

    @property
    def build(self) -> Path:
        return self.root / "build" / "mutants"


class Place:
    """A copy of the sources, in which one worker runs one process at a time."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self.sources = folder / "src"
        self._temporary = folder / "tmp"
        shutil.copytree(options.root / "src", self.sources, symlinks=True)
        if (options.root / "grammars").is_dir():  # found beside `pyproject.toml`, as in a checkout
            shutil.copytree(options.root / "grammars", folder / "grammars")
            shutil.copy(options.root / "pyproject.toml", folder)

    def write(self, path: str, content: bytes) -> None:
        """Write a file of the copy and remove its compiled form, because modification
        times are whole seconds there.
        """
        file = self.sources / path
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            compiled.unlink()
        file.write_bytes(content)

    def run(self, what: str, request: dict[str, Any], limit_s: float | None, wall_s: float | None) -> int | None:
        """Run `reached` with a request; return its exit code, or None if it waited too
        long.
        """
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(exist_ok=True)
        told, log = self._folder / "request.json", self._folder / "log"
        told.write_text(json.dumps({**request, "limit_s": limit_s}), encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(self._path()),
            "TMPDIR": str(self._temporary),
            "OMP_NUM_THREADS": "1",
            "COVERAGE_CORE": "ctrace",  # the one that supports contexts
        }
        command = [sys.executable, str(_TOOLS / "reached.py"), what, str(told)]
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                cwd=self._options.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return _ended(child, wall_s)
            finally:
                _end(child)

    def pytest_arguments(self) -> list[str]:
        """Return the arguments that make pytest import the copy."""
        path = shlex.join(self._path())
        return ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={path}", f"--basetemp={self._temporary}/pytest"]

    def _path(self) -> list[str]:
        return [str(self.sources), str(self._options.root / "tools"), str(_TOOLS)]

    def last_words(self) -> str:
        """Return the end of what the last process printed."""
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:]


def _ended(child: subprocess.Popen[bytes], wall_s: float | None) -> int | None:
    """Return the exit code, or None if the process has waited for this many seconds.

    Time in which the process is stopped, or another one uses its processor, does not
    count.
    """
    waited = 0
    while wall_s is None or waited < wall_s:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(1.0)
        waited += _waits(child.pid)
    return None


def _waits(pid: int) -> bool:
    """Tell whether no thread of a process could run now; return True if the system does
    not say.
    """
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return not states & {"R", "D", "T"}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process and everything it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
