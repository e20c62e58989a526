"""What every benchmark does the same way: its arguments, the machine it ran on, its report with what of its targets was
reached, and when it refuses to run.

A script begins with these lines, before any other import, since `benchmarks/select.py` would else be taken for the
standard library's `select` by whatever imports that:

```
import os, sys
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from benchmarks._common import NO_TARGETS, Targets, arguments, refuse_under_load, report
```

and ends with `sys.exit(report(...))`: 0 where every target is met, 1 where one is missed or the benchmark did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from selectrie.version import __version__

_REPOSITORY = Path(__file__).resolve().parent.parent
_BUSY_SHARE = 0.2
"""Share of all cores that others may use; a spinning ggml thread is a whole core."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Bounds of figures, by the figure's name. A figure that equals its bound meets it;
    NaN never does; True counts as 1.
    """

    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)

    def joined(self, other: Targets) -> Targets:
        """Return these bounds and those of other figures."""
        return Targets({**self.at_most, **other.at_most}, {**self.at_least, **other.at_least})

    def without(self, word: str) -> Targets:
        """Return these bounds without those of figures whose names contain a word: what
        could not be measured here.
        """
        return Targets(
            {name: bound for name, bound in self.at_most.items() if word not in name},
            {name: bound for name, bound in self.at_least.items() if word not in name},
        )

    def verdicts(self, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return name, relation, bound, figure, and whether it is met, for each bound.
        Raises `KeyError` for a missing figure.
        """
        signed = [("<=", name, bound) for name, bound in self.at_most.items()]
        signed += [(">=", name, bound) for name, bound in self.at_least.items()]
        return [
            {
                "name": name,
                "relation": relation,
                "bound": bound,
                "figure": figures[name],
                "met": bool(figures[name] <= bound if relation == "<=" else figures[name] >= bound),
            }
            for relation, name, bound in signed
        ]


NO_TARGETS = Targets()


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each way, one value a repeat."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, *seconds: float) -> None:
        """Add one more repeat of a way."""
        self.seconds.setdefault(name, []).append(sum(seconds))

    def median(self, name: str) -> float:
        """Return the median seconds of a way."""
        return median(self.seconds[name])


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options every benchmark takes: `--json`, `--under-load`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object of all figures as the last line")
    parser.add_argument("--under-load", action="store_true", help="run although the machine is busy")
    return parser


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, memory, versions and commit. Figures mean
    nothing without them.
    """
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": _commit(),
        "selectrie": __version__,
        "numpy": version("numpy"),
        "llama-cpp-python": version("llama-cpp-python"),
    }


def refuse_under_load(*, allowed: bool = False) -> None:
    """End the program if other work keeps the cores busy, because the figures would
    measure that work.

    allowed: continue nevertheless, after a shorter look, and say so.
    """
    busy = _busy_share(0.1 if allowed else 1.0)
    if busy <= _BUSY_SHARE:
        return
    message = f"{busy:.0%} of the cores are busy with other work; at most {_BUSY_SHARE:.0%} is accepted"
    if not allowed:
        raise SystemExit(f"{message} (--under-load runs all the same)")
    sys.stderr.write(f"warning: {message}\n")


def report(name: str, figures: Mapping[str, Any], targets: Targets, *, as_json: bool) -> int:
    """Print machine, figures and a line for each target; with `as_json` all of it as one JSON object on the last line.

    figures: plain numbers and strings by a name that carries the unit (`build_s`, `cold_over_floor`).
    Returns the exit code: 0, or 1 where a target is missed.
    """
    facts = machine()
    write = sys.stdout.write
    write(f"{name}\n")
    for key, value in facts.items():
        write(f"  {key:<17} {value}\n")
    width = max(map(len, figures), default=0)
    for key, value in figures.items():
        write(f"  {key:<{width}} {value:.5g}\n" if isinstance(value, float) else f"  {key:<{width}} {value}\n")
    verdicts = targets.verdicts(figures)
    for verdict in verdicts:
        word = "met   " if verdict["met"] else "MISSED"
        write(f"  {word} {verdict['name']} {verdict['figure']:.5g} {verdict['relation']} {verdict['bound']:g}\n")
    if not verdicts:
        write("  no targets for what was measured\n")
    if as_json:
        write(json.dumps({"benchmark": name, "machine": facts, "figures": dict(figures), "targets": verdicts}) + "\n")
    return int(not all(verdict["met"] for verdict in verdicts))


def _field(path: str, name: str) -> str | None:
    if not Path(path).exists():
        return None
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def _commit() -> str:
    def git(*words: str) -> str:
        command = ["git", "-C", str(_REPOSITORY), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _busy_share(watch_s: float) -> float:
    """Return the share of all cores' time not idle during `watch_s`, or take it from
    the load average if /proc/stat is missing.
    """
    if not Path("/proc/stat").exists():
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    before = _processor_times()
    time.sleep(watch_s)
    spent = [after - earlier for after, earlier in zip(_processor_times(), before, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / max(1, sum(spent))


def _processor_times() -> list[int]:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    return [int(word) for word in first.split()[1:9]]
