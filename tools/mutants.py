"""Do the tests notice when the code is wrong? `make mutants`, or `python tools/mutants.py`.

Draws single changes of the sources (`mutations`) with a seed, and runs each against the
tests that reach its line (`coverage_map`), cheapest first, until one fails. What no test
notices is shown at the end, to be judged by hand: a gap in the tests, or a change that
makes no other program.

A change is made in a copy of the sources and runs in a process of its own, which may use
`--limit` CPU seconds, whatever else the machine does, and wait for `--wall` seconds.
Every verdict is written to `build/mutants/results.jsonl` at once, and holds as long as
the changed file does not change, that of a survivor as long as no test does either; so
what was interrupted goes on with the next mutant.
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
"""Of the CPU limit: no test is begun after it, so that one which does not end is told
from one which came late."""
KILLED, SURVIVED, UNREACHED, TIMEOUT = "killed", "survived", "no test reaches it", "timeout"


def make_part(part: Part, place: Place) -> str | None:
    """Make the map of one test file; a sentence where that failed."""
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
    """Run a mutant against its tests. by: the test that noticed; left_out: how many tests
    that reach it there was no time for."""
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
    """What a process's progress and its end (None: it waited too long) mean.

    usual: CPU seconds of each test without the change. A process that the CPU limit ended
    hangs where its last test took three times as long, and a second more; else it is one
    that all tests before let live."""
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
    """The file of verdicts, a line each."""

    def __init__(self, file: Path, tests: str, limit_s: float) -> None:
        self._file, self._tests, self._limit_s = file, tests, limit_s
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_bytes().splitlines() if file.exists() else []
        self._known = {said["key"]: said for line in lines if (said := _said(line))}

    def known(self, key: str) -> dict[str, Any] | None:
        """What was found before and holds still."""
        said = self._known.get(key)
        if said is None or said["verdict"] in (KILLED, TIMEOUT):
            return said
        left_out = said.get("reaching", 0) > said.get("run", 0)
        return said if said["tests"] == self._tests and (not left_out or said["limit_s"] >= self._limit_s) else None

    def add(self, key: str, mutant: Mutant, found: dict[str, Any]) -> dict[str, Any]:
        """Write a verdict down. The first line end ends a line that a killed process left torn."""
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
    """Of the file it changes and of the change."""
    change = f"{mutant.path} {mutant.start} {mutant.end} {mutant.text}"
    return digest_of((root / "src" / mutant.path).read_bytes(), change.encode())


def work(
    tasks: Iterable[Any], do: Callable[[Any, Place], Any], options: Options, done: Callable[[Any, Any], None]
) -> None:
    """Do each task in one of the places; `done` is told in this thread."""
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
    """Make the map, judge the mutants, print what survived."""
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
    """How many met which end, and each that no test noticed."""
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
