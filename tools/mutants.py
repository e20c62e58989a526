"""Check that the tests notice wrong code: `make mutants`, or `python tools/mutants.py`.

The script draws single changes of the sources (`mutations`) with a seed, and runs each
against the tests that reach its line (`coverage_map`), cheapest first, until one fails.
The changes that no test notices are shown at the end, to be judged by hand: they are a
gap in the tests, or they do not change what the program does.

Each change is made in a copy of the sources and runs in a separate process, which may
use `--limit` CPU seconds, whatever else the machine does, and wait for `--wall`
seconds. Every verdict is written to `build/mutants/results.jsonl` at once. It stays
valid until the changed file changes, and the verdict of a survivor also until a test
changes, so an interrupted run continues with the next mutant.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from coverage_map import CoverageMap, Part, digest_of, in_order, parts_of
from mutant_places import Options, Place
from mutations import Mutant, drawn

ROOT = Path(__file__).resolve().parent.parent
SHARE_OF_TESTS = 0.85
"""Share of the CPU limit after which no further test begins. This distinguishes a test
that does not end from one that began late.
"""
KILLED, SURVIVED, UNREACHED, TIMEOUT = "killed", "survived", "no test reaches it", "timeout"


def make_part(part: Part, place: Place) -> str | None:
    """Make the map of one test file; return a sentence about the failure if there is
    one.
    """
    part.data.parent.mkdir(parents=True, exist_ok=True)
    raw, answer = (file.with_name(f"{file.name}.new") for file in (part.data, part.answer))
    raw.unlink(missing_ok=True)
    request = {
        "data": str(raw),
        "include": [f"{place.sources}/*"],
        "answer": str(answer),
        "pytest": [*place.pytest_arguments(), part.file],
    }
    status = place.run("map", request, None, None)
    if status != 0:
        return f"{part.file}: the process ended with {status}\n{place.last_words()}"
    for old in part.data.parent.glob(f"{part.data.name.split('-')[0]}-*.*"):
        if not old.name.endswith(".new"):
            old.unlink()
    raw.replace(part.data)
    answer.replace(part.answer)
    if left_out := part.said["left_out"]:
        print(f"# {part.file}: {len(left_out)} tests that fail or are skipped are left out", flush=True)
    return None


def judged(mutant: Mutant, options: Options, reach: CoverageMap, place: Place) -> dict[str, Any]:
    """Run a mutant against its tests.

    by: the test that noticed the change; left_out: how many tests that reach it did not
    fit into the time.
    """
    reaching = reach.tests_of(mutant.path, (mutant.line, mutant.statement))
    if not reaching:
        return {"verdict": UNREACHED}
    soft_s = options.limit_s * SHARE_OF_TESTS
    tests = in_order(reaching, soft_s)
    progress = options.build / f"progress-{place.sources.parent.name}.jsonl"
    progress.unlink(missing_ok=True)
    original = (options.root / "src" / mutant.path).read_bytes()
    place.write(mutant.path, mutant.applied(original))
    try:
        files = list(dict.fromkeys(test.file for test in tests))
        request = {
            "tests": [test.name for test in tests],
            "soft_s": soft_s,
            "progress": str(progress),
            "pytest": [*place.pytest_arguments(), *files],
        }
        status = place.run("run", request, options.limit_s, options.wall_s)
    finally:
        place.write(mutant.path, original)
    said = [json.loads(line) for line in progress.read_text().splitlines()] if progress.exists() else []
    usual = {test.name: test.alone_s for test in tests}
    return verdict(said, status, usual, options.limit_s) | {"reaching": len(reaching)}


def verdict(
    said: Sequence[dict[str, Any]], status: int | None, usual: dict[str, float], limit_s: float
) -> dict[str, Any]:
    """Return what a process's progress and its end (None: it waited too long) mean.

    usual: CPU seconds of each test without the change. If the CPU limit ended a
    process, it counts as hanging if its last test took three times as long as usual,
    and a second more; otherwise it counts as a survivor of all tests before.
    """
    begun = [line["test"] for line in said if "test" in line]
    if failed := next((line for line in said if "failed" in line), None):
        return {"verdict": KILLED, "by": failed["failed"], "why": failed["why"], "run": len(begun)}
    if said and "finished" in said[-1]:
        return {"verdict": SURVIVED, "run": len(begun)}
    last = begun[-1] if begun else "collecting"
    if status is not None and status not in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"verdict": KILLED, "by": last, "why": f"the process ended with {status}", "run": len(begun)}
    start_s = next((line["cpu_s"] for line in reversed(said) if "test" in line), 0.0)
    if status is not None and begun and limit_s - start_s < 3 * usual[last] + 1:
        return {"verdict": SURVIVED, "run": len(begun) - 1}
    return {"verdict": TIMEOUT, "by": last, "run": len(begun)}


class Results:
    """The file of verdicts, one a line."""

    def __init__(self, file: Path, tests: str, limit_s: float) -> None:
        self._file, self._tests, self._limit_s = file, tests, limit_s
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_bytes().splitlines() if file.exists() else []
        self._known = {said["key"]: said for line in lines if (said := _said(line))}

    def known(self, key: str) -> dict[str, Any] | None:
        """Return an earlier verdict that is still valid."""
        said = self._known.get(key)
        if said is None or said["verdict"] in (KILLED, TIMEOUT):
            return said
        left_out = said.get("reaching", 0) > said.get("run", 0)
        return said if said["tests"] == self._tests and (not left_out or said["limit_s"] >= self._limit_s) else None

    def add(self, key: str, mutant: Mutant, found: dict[str, Any]) -> dict[str, Any]:
        """Write a verdict down. The first line break ends a line that a killed process
        left unfinished.
        """
        what = {
            "file": mutant.path,
            "line": mutant.line,
            "kind": mutant.kind,
            "before": mutant.before,
            "after": mutant.after,
        }
        said = {"key": key, **what, **found, "tests": self._tests, "limit_s": self._limit_s}
        with self._file.open("ab", buffering=0) as file:
            file.write(b"\n" + json.dumps(said, ensure_ascii=False).encode() + b"\n")
        self._known[key] = said
        return said


def _said(line: bytes) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return said


def key_of(mutant: Mutant, root: Path) -> str:
    """Return the key of a mutant: the digest of the file it changes and of the change."""
    change = f"{mutant.path} {mutant.start} {mutant.end} {mutant.text}"
    return digest_of((root / "src" / mutant.path).read_bytes(), change.encode())


def work(
    tasks: Iterable[Any], do: Callable[[Any, Place], Any], options: Options, done: Callable[[Any, Any], None]
) -> None:
    """Do each task in one of the places; call `done` in this thread."""
    tasks = list(tasks)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        places: SimpleQueue[Place] = SimpleQueue()
        for i in range(min(options.jobs, len(tasks))):
            places.put(Place(options, Path(folder, str(i))))

        def in_a_place(task: Any) -> Any:
            place = places.get()
            try:
                return do(task, place)
            finally:
                places.put(place)

        futures = {pool.submit(in_a_place, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                done(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the map, judge the mutants, and print the survivors."""
    chosen = _parser().parse_args(arguments)
    options = Options(chosen.root.resolve(), chosen.jobs, chosen.limit, chosen.wall)
    mutants = drawn(options.root / "src", chosen.without, chosen.count, chosen.seed, chosen.only)
    if chosen.list:
        print(*(_shown(mutant) for mutant in mutants), sep="\n")
        return 0
    parts = parts_of(options.root, options.build / "map")
    parts = [part for part in parts if not chosen.tests or part.file in chosen.tests]
    missing = [part for part in parts if not part.is_made]
    print(f"# {len(mutants)} mutants; {len(missing)} of {len(parts)} test files have no map yet", flush=True)
    failures: list[str] = []

    def mapped(part: Part, failure: str | None) -> None:
        print(f"# {failure or f'{part.file}: mapped'}", flush=True)
        failures.extend([failure] if failure else [])

    work(missing, make_part, options, mapped)
    if chosen.map:
        return int(bool(failures))
    reach = CoverageMap([part for part in parts if part.is_made])
    results = Results(options.build / "results.jsonl", reach.digest, options.limit_s)
    keys = {mutant: key_of(mutant, options.root) for mutant in mutants}
    found = {mutant: said for mutant in mutants if (said := results.known(keys[mutant]))}

    def told(mutant: Mutant, said: dict[str, Any]) -> None:
        found[mutant] = results.add(keys[mutant], mutant, said)
        print(f"{len(found)}/{len(mutants)} {said['verdict']}: {_shown(mutant)}", flush=True)

    rest = [mutant for mutant in mutants if mutant not in found]
    work(rest, lambda mutant, place: judged(mutant, options, reach, place), options, told)
    print(*summary(mutants, found), sep="\n")
    return 0


def summary(mutants: Sequence[Mutant], found: dict[Mutant, dict[str, Any]]) -> list[str]:
    """Return how many mutants met which end, and each that no test noticed."""
    counts = Counter(found[mutant]["verdict"] for mutant in mutants)
    lines = [f"# {len(mutants)} mutants: " + ", ".join(f"{n} {what}" for what, n in counts.most_common())]
    if counts[TIMEOUT]:
        lines.append(f"# {TIMEOUT}: no test ended within its limit; these count as killed")
    for mutant in mutants:
        said = found[mutant]
        if said["verdict"] == UNREACHED:
            lines.append(f"{_shown(mutant)}  [{UNREACHED}]")
        elif said["verdict"] == SURVIVED:
            lines.append(f"{_shown(mutant)}  [{said['run']} of {said['reaching']} tests]")
    return lines


def _shown(mutant: Mutant) -> str:
    return f"src/{mutant.path}:{mutant.line} {mutant.kind}: {mutant.before[:200]} → {mutant.after[:200]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=300, help="how many mutants are drawn (300)")
    parser.add_argument("--seed", type=int, default=15, help="which ones (15)")
    parser.add_argument("--only", default="", metavar="PATH", help="those below a path in src")
    parser.add_argument(
        "--without",
        nargs="*",
        default=["selectrie/cli/", "selectrie/__main__.py"],
        metavar="PATH",
        help="none below these",
    )
    parser.add_argument("--tests", nargs="*", metavar="FILE", help="with these test files alone")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time (2)")
    parser.add_argument("--limit", type=float, default=30.0, metavar="SECONDS", help="of CPU time a mutant (30)")
    parser.add_argument("--wall", type=float, default=300.0, metavar="SECONDS", help="of waiting, a mutant (300)")
    parser.add_argument("--root", type=Path, default=ROOT, help="a project with src and tests (this one)")
    parser.add_argument("--map", action="store_true", help="only find out which tests reach what")
    parser.add_argument("--list", action="store_true", help="only show what is drawn")
    return parser


if __name__ == "__main__":
    sys.exit(main())
