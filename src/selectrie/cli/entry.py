"""The entry point of the process, which prepares the streams and sets the exit code."""

from __future__ import annotations

import errno
import io
import os
import sys

from typer.main import get_command

from selectrie.cli.arguments import UsageError, report
from selectrie.cli.commands import app
from selectrie.core import output
from selectrie.errors import OutputError

_COMPLETION, _SOURCE = "_SELECTRIE_COMPLETE", "_source"
"""Variable that asks for shell completion, and the end of its value as click has it.

Typer has `source_bash` in place of `bash_source`.
"""


def run() -> None:
    """Run the command given by the process's arguments, and exit with its code.

    Output is UTF-8 in every locale.
    """
    # Else the model's file could get the number of a standard stream that is closed.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    code = _run_command() if sys.stdout is not None else report(OutputError("it is closed"))
    try:
        output.flush()
    except BrokenPipeError:
        pass
    except OutputError as error:
        code = code or report(error)
    sys.exit(code)


def _run_command() -> int:
    """Run the command and return its exit code."""
    completion = os.environ.get(_COMPLETION, "")
    if completion.endswith(_SOURCE):
        os.environ[_COMPLETION] = f"source_{completion.removesuffix(_SOURCE)}"
    try:
        # A choice "*" is a choice, not the files of the folder.
        return int(get_command(app)(prog_name="selectrie", windows_expand_args=False, standalone_mode=False) or 0)
    except UsageError as error:
        shown = io.StringIO()
        error.show(file=shown)
        output.write(shown.getvalue(), sys.stderr, end="")
        return int(error.exit_code)
    except OutputError as error:
        return report(error)
    except OSError as error:  # standard output, while a help text was written
        return report(OutputError(error.strerror or str(error)))
    except SystemExit as left:
        if isinstance(left.__context__, OSError) and left.__context__.errno == errno.EPIPE:
            return 0  # typer returns 1 if the reader of the help text stops early.
        raise
