"""Tries in a child process whether a model file can be opened.

llama.cpp asserts its assumptions about a file, so a damaged file can end the process
that opens it or decodes with it. Damage that the header shows is found without a trial
(`backends/llama_cpp/gguf_header.py`), so only `untrusted=True` asks for one. The back
end's entry in the table says whether and how files are tried (`FileTrial`). The child
(`trial_child`) loads the file and decodes two rows on the CPU. A failure there becomes
a `ModelFileError` here. A file that passed is marked, by its digest and the build of
the back end, and is not tried again.

The digest of a file above 16 MiB covers samples of it. So the trial guards against
damage, and not against a file that was crafted on purpose: run untrusted files in a
sandbox.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from selectrie import errors
from selectrie.backends.entry import Backend
from selectrie.core.files import read_object, write_object
from selectrie.core.types import Precision
from selectrie.errors import MessageText, ModelError, ModelFileError, OptionError, UnsupportedModelError, remedies

logger = logging.getLogger(__name__)

START_LINE = "selectrie: begun"
"""First line that our child writes; another process would not."""
MIN_S, BYTES_PER_S = 120.0, 20e6
"""Time limit of a child: seconds, plus the file's size over a slow disk's speed."""
_MODULE = "selectrie.engine.trial_child"
_FOLDER = Path(__file__).resolve().parents[2]
"""Folder in which the child starts: `-m` looks for modules there first."""
_OPEN_HERE = remedies(operator="open it without a child process (`untrusted=False`)")
_MAX_MESSAGE = 300
"""Maximum number of characters of a child's output that an error quotes."""
_OPENED, _MARK = "|opened in a child process", {"opened": True}


def try_file(path: Path, backend: Backend, precision: Precision, marks: Path) -> None:
    """Open a model file in a child process.

    Nothing is done for a file that is marked, or a back end that needs no trial.

    Args:
        path: The model file.
        backend: The back end's entry in the table.
        precision: The precision with which it will be opened.
        marks: A JSON file that records which model files passed, by digest and build;
            it gets this one. It may be deleted at any time. Failing to write it is not
            an error: a model file is then tried again.

    Raises:
        ModelError: The error that the child reported; `ModelFileError` if the child
            crashed or took too long.
        OptionError: If no child process can be started, as in a program packed into one
            executable.
    """
    if backend.trial is None:
        return
    key, size = backend.trial.identify(path)
    if read_object(marks).get(key + _OPENED) == _MARK:
        return
    if not _opens_in_child(path, backend, precision, MIN_S + size / BYTES_PER_S):
        raise OptionError("untrusted", True, "False: no child process can be started here")  # noqa: FBT003
    write_object(marks, read_object(marks) | {key + _OPENED: _MARK})


def _opens_in_child(path: Path, backend: Backend, precision: Precision, timeout_s: float) -> bool:
    """Return whether a child process opened the file; False if none could be started.

    Raises the child's error, or `ModelFileError` if it crashed or was too slow.
    """
    arguments = [backend.name, str(path.absolute()), precision.value, str(timeout_s)]
    try:
        code, stdout, stderr = _run(arguments, timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ModelFileError(str(path), _timeout_message(timeout_s)) from error
    except OSError as error:
        logger.debug("no child process: %s", error)
        return False
    first_line, _, report = stdout.partition("\n")
    if first_line.rstrip() != START_LINE and code >= 0:
        logger.debug("%s cannot import selectrie: %s", sys.executable, stderr[-_MAX_MESSAGE:])
        return False
    if code == 0:
        _raise_reported(path, report)
        return True
    if code == -getattr(signal, "SIGALRM", 0):
        raise ModelFileError(str(path), _timeout_message(timeout_s))
    raise ModelFileError(str(path), _crash_message(code, stderr, "" if backend.trial is None else backend.trial.remedy))


def _run(arguments: list[str], timeout_s: float) -> tuple[int, str, str]:
    """Run a child; return its exit code, standard output and standard error.

    The child has ended when this function returns or raises.
    """
    child = None
    try:
        # A signal during `Popen` would leave a child that could not be ended.
        with hold_signals():
            child = start_child(
                _MODULE,
                *arguments,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        stdout, stderr = child.communicate(timeout=timeout_s)
    except BaseException:
        if child is not None:
            child.kill()
            child.communicate()  # closes the pipes and waits
        raise
    return child.returncode, stdout, stderr


def start_child(module: str, *arguments: str, **pipes: Any) -> subprocess.Popen[Any]:
    """Start one of our modules in this interpreter, as a process with pipes.

    Raises `OSError` if it cannot be started, as in a program packed into one
    executable.

    Args:
        module: The module, run by `-m`.
        arguments: Its arguments.
        pipes: Further arguments of `subprocess.Popen`; standard output is always a
            pipe.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        raise OSError("this program has no interpreter")
    return subprocess.Popen(  # noqa: S603 - our own module in our own interpreter
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        cwd=_FOLDER,
        env=_environment(),
        **pipes,
    )


@contextmanager
def hold_signals() -> Iterator[None]:
    """Delay the handlers of SIGINT and SIGTERM until the `with` block ends."""
    held: list[tuple[Callable[..., object], int, FrameType | None]] = []
    before: dict[signal.Signals, Callable[..., object]] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number, handler in before.items():
            signal.signal(number, lambda *args, handler=handler: held.append((handler, *args)))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for handler, *args in held[:1]:
            handler(*args)


def _environment() -> dict[str, str]:
    """Return the child's environment: this process's, with its import paths.

    ggml's backtraces are switched off.
    """
    folders = [os.path.abspath(folder) for folder in sys.path if folder]  # noqa: PTH100 - Path.absolute keeps `..`
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "GGML_NO_BACKTRACE": "1"}


def _raise_reported(path: Path, report: str) -> None:
    """Raise the error in a child's report; nothing for an empty report."""
    try:
        reported = json.loads(report)
    except ValueError:
        reported = None
    if not isinstance(reported, Mapping):
        raise ModelFileError(str(path), "the child process that opened it ended without a report; try again")
    if reported == {}:
        return
    kind, reason = getattr(errors, str(reported.get("kind")), ModelError), str(reported.get("reason"))
    if kind is ModelFileError:
        raise ModelFileError(str(path), reason)
    if kind is UnsupportedModelError:
        raise UnsupportedModelError(str(reported.get("name")), reason)
    raise ModelError(reason)


def write_line(line: str) -> None:
    """Write a line to standard output, which the parent process reads."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def report_of(error: errors.SelectrieError) -> dict[str, Any]:
    """Return an error as the JSON object that the child writes."""
    return {
        "kind": type(error).__name__,
        "reason": getattr(error, "reason", str(error)),
        "name": getattr(error, "name", ""),
    }


def _timeout_message(timeout_s: float) -> str:
    """Return the reason of an error about a file that took too long to open."""
    slow = f"a child process could not open it and decode two rows within {timeout_s:.0f} s"
    return MessageText(slow, "; ", remedies("get the file again", _OPEN_HERE))


def _crash_message(code: int, stderr: str, what_helps: str) -> str:
    """Return the message for a child process that crashed or was killed."""
    try:
        by = signal.Signals(-code).name
    except ValueError:
        by = f"exit {code}"
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line]
    said = next((line for line in lines if "GGML_ASSERT" in line or "what():" in line), lines[-1] if lines else "")
    reason = f"opening it ended a child process ({by}{': ' if said else ''}{said[:_MAX_MESSAGE]})"
    return MessageText(reason, "; ", remedies(*(["free memory", _OPEN_HERE] if by == "SIGKILL" else []), what_helps))
