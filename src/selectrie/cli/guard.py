"""A guard around commands that turns exceptions into exit codes and lines on stderr."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping

import typer

from selectrie.cli.flags import message_of
from selectrie.cli.signals import code_of, stoppable
from selectrie.core import output
from selectrie.errors import GrammarError, SelectrieError, TemplateError

OF_THE_SYSTEM = 2
OURS = 70
_REPORT = "this is a fault of selectrie; please report it with the command and the output of --verbose"


def guarded(work: Callable[[], int], *, verbose: bool, flags: Mapping[str, str] | None = None) -> None:
    """Run the command `work`, and end the process with its exit code.

    An error becomes one line `error[code]: message` on stderr. For a grammar or a
    template, the line in question and a caret follow. A closed pipe ends silently with
    0, because there is no reader left.

    Args:
        verbose: Whether the traceback is written as well.
        flags: Maps the name of each option of the command to its flag.
    """
    try:
        with stoppable():
            code = work()
            output.flush()
    except SelectrieError as error:
        code = report(error, verbose=verbose, flags=flags)
    except KeyboardInterrupt as stopped:
        code = code_of(stopped)
        tell("interrupted", "stopped")
    except BrokenPipeError:
        code = 0
    except MemoryError:
        tell("memory", "there is not enough memory; ask for less at once", verbose=verbose)
        code = OF_THE_SYSTEM
    except OSError as error:
        tell("system", str(error), verbose=verbose)
        code = OF_THE_SYSTEM
    except Exception as error:  # noqa: BLE001 - the last line of defence: a fault of ours must not look like a result
        tell("internal", f"{type(error).__name__}: {error}; {_REPORT}", verbose=verbose)
        code = OURS
    raise typer.Exit(code)


def report(error: SelectrieError, *, verbose: bool = False, flags: Mapping[str, str] | None = None) -> int:
    """Write an error of selectrie to stderr, and return its exit code.

    Args:
        flags: As for `guarded`.
    """
    message, marked = _taken_apart(error, flags or {})
    tell(error.code, message if error.exit_code != OURS else f"{message}; {_REPORT}", verbose=verbose)
    if marked:
        output.write(output.visible(marked), sys.stderr)
    return error.exit_code


def tell(code: str, message: str, *, verbose: bool = False) -> None:
    """Write the line `error[code]: message` to stderr.

    With `verbose`, the traceback of the error that is being handled comes first.
    """
    if verbose:
        output.write(traceback.format_exc(), sys.stderr, end="")
    output.write(output.visible(f"error[{code}]: {' '.join(message.split())}"), sys.stderr)


def _taken_apart(error: SelectrieError, flags: Mapping[str, str]) -> tuple[str, str]:
    """Return the message of `error`, and the source line with its caret or "".

    Only errors about a grammar or a template have such a line.
    """
    text = message_of(error, flags)
    if not isinstance(error, GrammarError | TemplateError) or not error.excerpt or text.count("\n") < 2:
        return text, ""
    message, line, caret = text.rsplit("\n", 2)
    return message, f"{line}\n{caret}"
