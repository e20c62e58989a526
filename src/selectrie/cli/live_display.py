"""Shows many sequences growing side by side on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from selectrie.cli.report.screen import Screen
from selectrie.cli.text import tag
from selectrie.core.output import visible

if TYPE_CHECKING:
    from selectrie.results import Chunk, Completion

_SPARE_LINES = 2
"""Lines of a terminal left free, so that earlier output can be seen."""


class Growing:
    """The ends of unfinished sequences, a line each, up to the terminal's height."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: dict[tuple[int, int], str] = {}

    def add(self, chunk: Chunk) -> None:
        """Add a chunk; a sequence that has ended is no longer shown."""
        key = chunk.prompt_index, chunk.index
        self._texts[key] = self._texts.get(key, "") + chunk.text
        if chunk.completion is not None:
            del self._texts[key]

    def __rich__(self) -> Group:
        max_lines = max(1, self._console.size.height - _SPARE_LINES)
        shown = sorted(self._texts.items())[:max_lines]
        lines = [Text(self._line(*item), no_wrap=True) for item in shown]
        rest = len(self._texts) - len(shown)
        return Group(*lines, *([Text(f"… {rest} more")] if rest else []))

    def _line(self, key: tuple[int, int], text: str) -> str:
        """Return the end of a text on one line; its beginning is cut to fit."""
        begin = tag(*key) + "  "
        free = max(8, self._console.size.width - cell_len(begin) - 1)
        line = visible(" ".join(text[-4 * free :].split()))
        if cell_len(line) > free:
            line = "…" + set_cell_size(line[::-1], free - 1)[::-1]
        return begin + line


def watch(chunks: Iterable[Chunk], whole: Callable[[Completion], str], console: Console | None = None) -> None:
    """Show sequences as they grow.

    Each one that has ended is written permanently above the rest, as `whole` gives it.

    Args:
        console: Where to show them; a `Screen` on standard output by default.
    """
    console = console or Screen(sys.stdout)
    growing = Growing(console)
    with Live(growing, console=console, transient=True, refresh_per_second=8):
        for chunk in chunks:
            growing.add(chunk)
            if chunk.completion is not None:
                console.print(Text(whole(chunk.completion)), soft_wrap=True)
