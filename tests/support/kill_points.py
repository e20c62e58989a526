"""Runs that are killed: `python kill_points.py FOLDER POINT…`, each point in a process of its own by `kill -9`.

A point is a number of bytes: the process dies when it has written so many, in the middle of a line or of a file, or just
before a file is put in its place (`-1`, `-2`, …: the first, the second, … time). What is left is taken up again, twice killed
where two points are joined by a comma, and must end with the bytes of a run that nobody disturbed. Prints one line a point.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from selectrie.engine.engine import Engine
from selectrie.evaluation import Item
from selectrie.evaluation.runner import ITEMS, SUMMARY, run
from selectrie.evaluation.work_units import TaskItems
from selectrie.runs.folder import LOG, RUN
from selectrie.testing import HashModel
from selectrie.testing.fakes import WIDE

write, replace = os.write, Path.replace


def tasks():
    """Seven units of two tasks; one item does not fit."""
    small = [
        Item("ab" * (1 + i % 3), ("a", "ba", "cab"), (i % 3,), subset="xy"[i % 2], shared="c" * (i % 2))
        for i in range(9)
    ]
    long = [Item("abc" * 400, ("a", "b"), (0,)), *(Item("", ("ab", "ba"), (1,)) for _ in range(3))]
    return [
        TaskItems("small", tuple(small), ("acc", "acc_norm", "acc_mutual_info"), unit_rows=30),
        TaskItems("long", tuple(long), ("acc", "brier"), unit_rows=8),
    ]


def engine(seed: int = 4) -> Engine:
    """A fake with room for 300 tokens."""
    return Engine(HashModel(seed, limits=dataclasses.replace(WIDE, nodes=300)))


def whole(out: Path) -> None:
    """A run to its end."""
    with engine() as llm:
        run(llm, tasks(), out)


def die_at(point: int) -> None:
    """From now on this process dies at a point."""
    written = replaced = 0

    def writing(file: int, data: bytes) -> int:
        nonlocal written
        if 0 <= point < written + len(data):
            write(file, data[: point - written])
            os.kill(os.getpid(), signal.SIGKILL)
        written += len(data)
        return write(file, data)

    def replacing(self: Path, target: Path) -> Path:
        nonlocal replaced
        replaced += 1
        if replaced == -point:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    os.write, Path.replace = writing, replacing


def in_child(whole: Callable[[], object], point: int | None) -> int:
    """Run a function in a child that dies at a point; the signal it died of, 0 where it came to its end."""
    child = os.fork()
    if not child:
        try:
            if point is not None:
                die_at(point)
            whole()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def main(folder: Path, points: list[str]) -> None:
    """Print `POINT signals same` for each point."""
    in_child(lambda: whole(folder / "undisturbed"), None)
    expected = {name: (folder / "undisturbed" / name).read_bytes() for name in (ITEMS, SUMMARY, LOG, RUN)}
    sys.stdout.write(f"bytes {len(expected[LOG])}\n")
    for point in points:
        out = folder / f"run{point}"
        signals = [in_child(partial(whole, out), int(part)) for part in point.split(",")]
        ended = in_child(partial(whole, out), None)
        same = all((out / name).read_bytes() == expected[name] for name in (ITEMS, SUMMARY, LOG))
        sys.stdout.write(f"{point} {signals} {ended} {same}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
