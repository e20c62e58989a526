"""Ctrl-C at a chosen instruction of Python code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupter:
    """Raises `KeyboardInterrupt` before the n-th instruction of the files it looks at.

    Python runs a signal's handler between two instructions of the main thread, so this
    is what Ctrl-C does, at an instruction that a test chooses.

    Attributes:
        has_raised: Whether there were that many instructions.
    """

    def __init__(self, n: int, is_looked_at: Callable[[str], bool] = lambda _file: True) -> None:
        self.has_raised = False
        self._n_left = n
        self._is_looked_at = is_looked_at

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Interrupter | None:
        if self.has_raised or not self._is_looked_at(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._n_left -= 1
            if self._n_left < 0:
                self.has_raised = True
                raise KeyboardInterrupt
        return self

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Trace this thread in the block."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)
