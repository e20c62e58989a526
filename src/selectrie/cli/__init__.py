"""The command line: arguments in, a report or JSON out, exit codes. No logic.

Exit codes: 0 done; 2 the caller's mistake (also a tie under `--strict`); 3 the model or its back end; 70 a fault of
selectrie; 130 interrupted. A result goes to stdout, everything else to stderr; after an error stdout is empty.
"""

from __future__ import annotations

import io
import sys

from selectrie.cli.commands import app
from selectrie.cli.guard import INTERRUPTED

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the `selectrie` command. Output is UTF-8 whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        app(prog_name="selectrie", windows_expand_args=False)  # a choice "*" is a choice, not the files of the folder
    except KeyboardInterrupt:  # while the arguments were read; later ones are the command's
        sys.exit(INTERRUPTED)
