"""A progress bar, and a line, for long work, on stderr if it is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from selectrie.core.output import is_terminal, write

PATIENCE_S = 1.0
"""Seconds before a bar or a line appears; shorter work shows nothing."""

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
