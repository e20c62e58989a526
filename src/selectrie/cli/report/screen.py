"""A console for reports that no text in them can control."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from selectrie.core.output import is_terminal, put, visible


class Screen(Console):
    """A console on which control characters in texts have no effect.

    Only the colours and cursor movements that rich itself writes take effect. If
    NO_COLOR is set, there is no style at all, not even bold.
    """

    def __init__(self, stream: TextIO, *, width: int | None = None) -> None:
        super().__init__(
            file=cast("IO[str]", _Written(stream)),
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)


class _Written:
    """A stream that is written by `put`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        put(text, self._stream)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return is_terminal(self._stream)

    def fileno(self) -> int:
        return self._stream.fileno()
