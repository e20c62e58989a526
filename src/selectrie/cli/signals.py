"""Handlers for Ctrl-C and SIGTERM, which end the process with 130 and 143.

This module imports next to nothing, because it must be ready before anything slow is
imported.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143
_IMPORTING = "<frozen importlib"
"""Beginning of the file names of frames that import a module."""
_LOG = "selectrie.backends.", "_receive"
"""Module prefix and name of the function that C calls with its log.

ctypes drops exceptions that are raised there.
"""


class Terminated(KeyboardInterrupt):
    """Raised for SIGTERM during a command, which it stops as Ctrl-C does."""


class _Listener:
    """The handler of SIGINT and SIGTERM.

    Attributes:
        is_working: Whether a command runs, which a signal stops with an exception.
    """

    def __init__(self) -> None:
        self.is_working = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Stop the command, or end the process at once.

        The first signal during a command raises an exception. The process ends at once
        on a second signal, outside a command, during an import, and while llama.cpp
        writes to its log, as it does when a model is loaded. In the last two cases an
        exception might be lost.
        """
        if not self.is_working or _is_lost_in(frame):
            if "rich.live" in sys.modules:
                from selectrie.core.output import show_cursor

                show_cursor()
            os._exit(128 + number)
        self.is_working = False
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


_listener = _Listener()


def listen() -> None:
    """Install handlers for SIGINT and SIGTERM.

    A signal that the parent process has set to be ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _listener.handle)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let the first signal raise `KeyboardInterrupt` in the `with` block."""
    _listener.is_working = True
    try:
        yield
    finally:
        _listener.is_working = False


def exit_code_of(stopped: KeyboardInterrupt) -> int:
    """Return the exit code of a command that a signal has stopped."""
    return TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


def _is_lost_in(frame: FrameType | None) -> bool:
    """Return whether an exception raised in this frame might be lost in a caller."""
    module, function = _LOG
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        if frame.f_code.co_name == function and str(frame.f_globals.get("__name__")).startswith(module):
            return True
        frame = frame.f_back
    return False
