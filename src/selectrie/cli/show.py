"""Functions that write the result of a command to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from selectrie.core.output import flush, write

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_json(fields: Mapping[str, object]) -> int:
    """Write one JSON object on one line, and return the exit code 0."""
    from selectrie.cli.report.formats import to_json

    write(to_json(fields), sys.stdout)
    return 0


def show_stream(parts: Iterable[Any]) -> str:
    """Write texts as they come, and then end the last line in any case.

    Returns the last character; "" if there was no text.
    """
    last = ""
    try:
        for part in parts:
            if part.text:
                write(part.text, sys.stdout, end="")
                flush()
                last = part.text[-1]
    finally:
        if last not in ("", "\n"):
            write("", sys.stdout)
    return last


def show_report(report: RenderableType) -> int:
    """Write a report for people, and return the exit code 0."""
    from selectrie.cli.report import terminal  # rich: not needed for --help

    terminal.show(report, sys.stdout)
    return 0
