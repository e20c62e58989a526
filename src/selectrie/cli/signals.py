"""Ctrl-C and SIGTERM: the process ends with 130 and 143, whatever it is doing.

This module imports next to nothing, because it is in charge before anything slow is
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
"""How the files of the frames that import a module are named."""
_LOG = "selectrie.backends.", "_receive"
"""Module, as it begins, and name of the function that C calls with its log: ctypes drops
what is raised there."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, where a command is at work: it is stopped as by Ctrl-C."""


class _Listener:
    """What a signal does. is_working: a command is at work that ends in good order."""

    def __init__(self) -> None:
        self.is_working = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Stop the command; the second signal, and one outside of a command, in the
        middle of an import or of loading a model, ends the process at once: an exception
        might be lost there, and nothing has been begun."""
        if not self.is_working or _is_lost_in(frame):
            _show_cursor()
            os._exit(128 + number)
        self.is_working = False
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


_listener = _Listener()


def listen() -> None:
    """Take charge of both signals, but for one that whoever started the process has
    told it to ignore."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _listener.hear)


@contextmanager
def stoppable() -> Iterator[None]:
    """A command at work: the first signal is raised in it as `KeyboardInterrupt`."""
    _listener.is_working = True
    try:
        yield
    finally:
        _listener.is_working = False


def code_of(stopped: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped."""
    return TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


def _is_lost_in(frame: FrameType | None) -> bool:
    """Whether an exception raised in this frame may go no further than a caller of it."""
    module, function = _LOG
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        if frame.f_code.co_name == function and str(frame.f_globals.get("__name__")).startswith(module):
            return True
        frame = frame.f_back
    return False


def _show_cursor() -> None:
    """Where a view that is drawn again and again may have hidden it."""
    if "rich.live" in sys.modules:
        from selectrie.core.output import show_cursor

        show_cursor()
