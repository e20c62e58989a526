"""Runs over tables with decisions that no model makes, killed and measured.

As a program, `python -m tests.support.decided_tables FOLDER POINT…` kills a run at each point (see `kill_points`) and goes
on by the folder alone, and `python -m tests.support.decided_tables --rows N FOLDER` measures reader, log and writer over N
rows.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from selectrie import Choice, Predicate
from selectrie.tables.formats import TableUnit
from selectrie.tables.table_questions import TableQuestions
from selectrie.tables.table_run import RowResults, TableRunOptions, plan_table, read_run_start, run_table
from tests.support.deciding import fake
from tests.support.kill_points import in_child

QUESTIONS = {
    "intent": Choice("What is wanted?", ["track order", "refund", "reset password"]),
    "angry": Predicate("They are angry."),
}
ASKED = TableQuestions(state="{subject}: {body}", questions=QUESTIONS)


def stubbed(plan: Any, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, RowResults]]:
    """Work whose numbers come from a digest of each row's state; a row without one has its error."""
    names = [column.name for column in ASKED.columns().columns]

    def row(state: Any) -> Any:
        if not isinstance(state, str):
            return f"{state.code}: {state}"
        digest = blake2b(state.encode(), digest_size=8).digest()
        p = digest[0] / 256
        value = QUESTIONS["intent"].options[digest[1] % 3].value
        return (value, p, p, p / 3, 1.5 * p, "", p > 0.5, p, p / 7, p, float("inf"), "")

    assert len(names) == 13

    for unit in units:
        yield unit, RowResults(unit.rows.digest, tuple(map(row, plan.states_of(unit))))


def run(table: Path, out: Path) -> None:
    """A run to its end."""
    plan = plan_table(table, ASKED, out)
    run_table(fake(), plan, TableRunOptions(model={"seed": 1}), work=stubbed)


def resume(folder: Path) -> None:
    """Go on with a folder alone."""
    table, asked, out, model = read_run_start(folder)
    plan = plan_table(table, asked, out)
    run_table(fake(), plan, TableRunOptions(model=model), work=stubbed)


def write_table(path: Path, n_rows: int, n_body: int = 3) -> Path:
    """A table of so many rows, some of which cannot be asked or are awkward to quote."""
    bodies = ["Where is it?", 'My "new" lamp, broken', "two\r\nlines", "", "שלום 🙂", "<eos>", "x" * 40]
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("id,subject,body\n")
        for i in range(n_rows):
            body = bodies[i % 7].replace('"', '""')
            file.write(f'{i:07},subject {i},"{body * n_body}"\n')
    return path


def main(folder: Path, points: list[str]) -> None:
    """Print `POINT signals ended same` for each point; a point ends with the suffix of its results."""
    table = write_table(folder / "table.csv", 64 * 5 + 9)
    expected = {}
    for suffix in sorted({point.rpartition(".")[2] for point in points}):
        out = folder / f"undisturbed.{suffix}"
        run(table, out)
        log = (folder / f"{out.name}.run" / "log.jsonl").read_bytes()
        expected[suffix] = out.read_bytes(), log
        sys.stdout.write(f"bytes {len(log)}\n")
    for point in points:
        where, _, suffix = point.rpartition(".")
        out = folder / f"out{point}"
        began = out.with_name(f"{out.name}.run")
        signals = [in_child(partial(run, table, out), int(part)) for part in where.split(",")]
        is_begun = (began / "run.json").exists()
        ended = in_child(partial(resume, began) if is_begun else partial(run, table, out), None)
        same = (out.read_bytes(), (began / "log.jsonl").read_bytes()) == expected[suffix]
        left = [path.name for path in (*folder.iterdir(), *began.iterdir()) if path.name.endswith(".tmp")]
        sys.stdout.write(f"{point} {signals} {ended} {same} {left}\n")


def measure(n_rows: int, folder: Path, suffix: str) -> None:
    """Print rows a second of reader, log and writer, in time and in processor time, and the peak of the process's memory.

    What the disk takes is the difference of the two.
    """
    table = write_table(folder / f"table{n_rows}.csv", n_rows)
    began, began_cpu = time.perf_counter(), time.process_time()
    run(table, folder / f"out{n_rows}.{suffix}")
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    paces = {"rows_per_s": round(n_rows / seconds), "rows_per_cpu_s": round(n_rows / cpu_s)}
    sys.stdout.write(json.dumps({"rows": n_rows, **paces, "peak_kb": peak}) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.argv[1] == "--rows":
        measure(int(sys.argv[2]), Path(sys.argv[3]), (sys.argv[4:] or ["csv"])[0])
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
