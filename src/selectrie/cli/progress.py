"""What long work says on stderr: a bar on a terminal, and lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from selectrie.core.output import is_terminal, write

PATIENCE_S = 1.0
"""Seconds before a bar or a line appears; shorter work shows nothing."""

LINE_S = 10.0
"""Seconds between two lines about counted work where stderr is no terminal."""

OnProgress = Callable[[int, int], None]


@contextmanager
def announced(text: str) -> Iterator[None]:
    """Write a line about the block, once it has taken `PATIENCE_S`."""
    timer = threading.Timer(PATIENCE_S, write, (text, sys.stderr))
    if is_terminal(sys.stderr):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Tell(Protocol):
    """Is called with what is done of how much, and what of it an earlier run did."""

    def __call__(self, done: int, total: int, *, resumed: int, about: str) -> None: ...


@contextmanager
def count_progress(noun: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """Yield a callback that shows how many are done, their pace, and `about`.

    On a terminal this is a bar, and elsewhere a line every `LINE_S` seconds.
    """
    began = told = clock()

    def text(done: int, resumed: int, about: str) -> str:
        return f"{(done - resumed) / max(1e-9, clock() - began):.3g} a second, {about}"

    def line(done: int, total: int, *, resumed: int, about: str) -> None:
        nonlocal told
        if clock() - told >= LINE_S:
            told = clock()
            write(f"{done} of {total} {noun}, {text(done, resumed, about)}", sys.stderr)

    if not is_terminal(sys.stderr):
        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from selectrie.cli.report.screen import Screen

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Screen(sys.stderr), transient=True) as bar:
        task = bar.add_task(noun, total=None)

        def draw(done: int, total: int, *, resumed: int, about: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{noun}, {text(done, resumed, about)}")

        yield draw


@contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress | None]:
    """Yield a callback (done, total) that draws a bar after `PATIENCE_S`.

    Yields None if stderr is not a terminal.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from selectrie.cli.report.screen import Screen

    columns = (TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Screen(sys.stderr), transient=True)
    task = bar.add_task("nodes", total=None)
    began, shown = clock(), False

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if not shown and clock() - began > PATIENCE_S:
            shown = True
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()
