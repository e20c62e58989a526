"""From exceptions to exit codes and one line on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import typer

from selectrie.errors import GrammarError, SelectrieError, TemplateError

INTERRUPTED = 130
OURS = 70
_REPORT = "this is a fault of selectrie; please report it with the command and the output of --verbose"


def guarded(work: Callable[[], int], *, verbose: bool) -> None:
    """Run a command and leave with its exit code; an error becomes one line `error[code]: message` on stderr,
    that about a grammar or a template with the line of it and a caret below.

    verbose: the traceback is written as well. A closed pipe ends silently with 0, as nobody is left to read.
    """
    try:
        code = work()
        sys.stdout.flush()
    except SelectrieError as error:
        message, marked = _taken_apart(error)
        _write(error.code, message if error.exit_code != OURS else f"{message}; {_REPORT}", verbose=verbose)
        if marked:
            typer.echo(marked, err=True)
        code = error.exit_code
    except KeyboardInterrupt:
        _write("interrupted", "stopped", verbose=False)
        code = INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        code = 0
    except Exception as error:  # noqa: BLE001 - the last line of defence: a fault of ours must not look like a result
        _write("internal", f"{type(error).__name__}: {error}; {_REPORT}", verbose=verbose)
        code = OURS
    raise typer.Exit(code)


def _taken_apart(error: SelectrieError) -> tuple[str, str]:
    """The message, and the line of a grammar or a template with a caret that may be its end."""
    text = str(error)
    if not isinstance(error, GrammarError | TemplateError) or not error.excerpt or text.count("\n") < 2:
        return text, ""
    message, line, caret = text.rsplit("\n", 2)
    return message, f"{line}\n{caret}"


def _write(code: str, message: str, *, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
    typer.echo(f"error[{code}]: {' '.join(message.split())}", err=True)


def _forget_stdout() -> None:
    """Let the flush at exit go nowhere: it would complain about the pipe once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
