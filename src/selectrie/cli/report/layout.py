"""Text whose lines break between words, but not inside quotes such as `' a b'`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_UNIT = re.compile(r"""(?<!\S)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\S*|\S+""")


class Units:
    """Units of text, each kept on one line if it fits, with one space between them.

    `Units.of(sentence)` splits a sentence at white space outside quotes.

    Args:
        units: (text, style) pairs.
    """

    def __init__(self, units: Sequence[tuple[str, str]]) -> None:
        self._units = units

    @classmethod
    def of(cls, sentence: str) -> Units:
        """Return the units of a plain sentence."""
        return cls([(unit, "") for unit in _UNIT.findall(sentence)])

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [cell_len(unit) for unit, _ in self._units]
        whole = sum(widths) + max(0, len(widths) - 1)
        return Measurement(max(widths, default=0), max(whole, 1)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._lines(max(1, options.max_width))

    def _lines(self, width: int) -> Iterator[Text]:
        line, used = Text(), 0
        for unit, style in self._units:
            for part in chop_cells(unit, width) if cell_len(unit) > width else [unit]:
                if used and used + 1 + cell_len(part) > width:
                    yield line
                    line, used = Text(), 0
                line.append((" " if used else "") + part, style)
                used += bool(used) + cell_len(part)
        yield line
