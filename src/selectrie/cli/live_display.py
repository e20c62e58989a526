"""A live display of many sequences that grow side by side on a terminal."""

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
    """The last characters of each unfinished sequence, one line for each.

    At most as many lines are shown as the terminal has.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: dict[tuple[int, int], str] = {}

    def add(self, chunk: Chunk) -> None:
        """Add a chunk to its sequence, which is hidden when it has ended."""
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
        """Return the end of `text` on one line, cut at its beginning to fit."""
        begin = tag(*key) + "  "
        free = max(8, self._console.size.width - cell_len(begin) - 1)
        line = visible(" ".join(text[-4 * free :].split()))
        if cell_len(line) > free:
            line = "…" + set_cell_size(line[::-1], free - 1)[::-1]
        return begin + line


def watch(chunks: Iterable[Chunk], whole: Callable[[Completion], str], console: Console | None = None) -> None:
    """Show sequences on a terminal while they grow.

    A sequence that has ended is written permanently above the rest, as the text that
    `whole` returns for it.

    Args:
        console: The console to write to; a `Screen` on standard output by default.
    """
    console = console or Screen(sys.stdout)
    growing = Growing(console)
    with Live(growing, console=console, transient=True, refresh_per_second=8):
        for chunk in chunks:
            growing.add(chunk)
            if chunk.completion is not None:
                console.print(Text(whole(chunk.completion)), soft_wrap=True)
