"""llama.cpp's log and version, stopping a decode, and metadata of a model."""

from __future__ import annotations

import ctypes
import logging
import platform
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import llama_cpp

from selectrie.core.output import write
from selectrie.core.types import Precision

_WARN, _ERROR, _CONTINUED = 3, 4, 5
"""Levels of `ggml_log_level` (ggml.h).

llama-cpp-python's own table belongs to an older version.
"""

_FUNCTION = re.compile(r"^\w+: (?:error loading model: )?")
"""Matches the prefix that llama.cpp puts before its messages."""


class LlamaLog:
    """The callback for llama.cpp's log, of which a process has one.

    Within `our_calls`, lines are collected, and shown only if it is verbose. At other
    times they are passed on to the previous callback if llama-cpp-python's verbosity
    has been set (creating a `Llama` does that); otherwise they are dropped.
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=200)
        self._inside = 0
        self._shown = 0
        self._level = 0
        self._lock = threading.Lock()
        # The object must outlive every call into the library, else the next message
        # crashes the process.
        self._callback = llama_cpp.llama_log_callback(self._receive)
        self._previous = llama_cpp.llama_log_callback()
        self._is_forwarding = False

    def install(self) -> None:
        """Make this object the log callback, in place of one that was set meanwhile."""
        with self._lock:
            current, data = llama_cpp.llama_log_callback(), ctypes.c_void_p()
            llama_cpp.llama_log_get(ctypes.byref(current), ctypes.byref(data))
            if _address(current) == _address(self._callback):
                return
            self._previous = current
            llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    @contextmanager
    def our_calls(self, *, verbose: bool = False) -> Iterator[None]:
        """Mark the calls to llama.cpp inside the `with` block as calls by selectrie.

        With `verbose`, the lines that they log are shown.
        """
        with self._lock:
            self._inside += 1
            self._shown += verbose
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._shown -= verbose

    def forget(self) -> None:
        """Discard the collected lines; call it before a call that may fail."""
        self._lines.clear()

    def reason(self, otherwise: str) -> str:
        """Return the first error logged since `forget`, else the first warning.

        The name of the C function is removed. If there is neither, returns `otherwise`.
        """
        lines = list(self._lines)
        for level in (_ERROR, _WARN):
            messages = [
                text.strip() for logged, text in lines if logged == level and "failed to load model" not in text
            ]
            if messages:
                return _FUNCTION.sub("", messages[0])
        return otherwise

    def _receive(self, level: int, text: bytes, data: int | None) -> None:
        """Handle one message; llama.cpp calls this in any thread."""
        self._level = self._level if level == _CONTINUED else level
        if self._inside:
            if not self._shown and self._level not in (_WARN, _ERROR):
                return  # of each of the 6 000 control tokens of Gemma 3 there is a line
            line = text.decode("utf-8", "replace")
            self._lines.append((self._level, line))
            # Lines are not passed to the previous callback: a quiet `Llama` has
            # silenced that one.
            if self._shown:
                write(line, sys.stderr, end="")
            return
        if logging.getLogger("llama-cpp-python").level == logging.NOTSET:
            return
        if self._previous and not self._is_forwarding:
            # Guards against a callback that replaced ours and calls us in turn.
            self._is_forwarding = True
            self._previous(level, text, data)
            self._is_forwarding = False


def _address(callback: Any) -> int | None:
    return ctypes.cast(callback, ctypes.c_void_p).value


log = LlamaLog()
"""The process-wide callback: llama.cpp's logger is global state of the library."""


@contextmanager
def delay_interrupt() -> Iterator[None]:
    """Delay the `KeyboardInterrupt` of Ctrl-C until the `with` block is left.

    Python handles a signal in the middle of a long call when C calls back, as it does
    for logging, and ctypes prints and drops an exception that is raised there. Only the
    `KeyboardInterrupt` of Python's own handler is delayed, in the main thread. A
    program that has set another handler has to do this itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if held:
            signal.default_int_handler(*held[0])


class StopFlag:
    r"""A flag of one byte that stops the running decode when it is set.

    llama.cpp reads it after every graph node without taking the GIL. The abort callback
    is `bool (*)(void *)`. The C library's `strlen` on a buffer that holds "" or "\x01"
    returns 0 or 1 and so is such a function; a Python callback would cost a thread
    switch per graph node.

    Several contexts may share one flag: a model and the models that `new_context` makes
    of it.
    """

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(2)

    def attach(
        self, context: llama_cpp.llama_context_p, python: Callable[[], bool] | None = None
    ) -> Callable[..., bool]:
        """Make `context` check this flag after every graph node.

        A function `python` is called as well, and stops the decode if it returns true.
        Returns the C callback, which the caller must keep alive, together with the
        flag, for as long as the context decodes.
        """

        def read(_data: int | None) -> bool:
            return self.is_set or (python is not None and python())

        callback = (None if python else self._native()) or llama_cpp.ggml_abort_callback(read)
        llama_cpp.llama_set_abort_callback(context, callback, ctypes.cast(self._buffer, ctypes.c_void_p))
        return callback

    def set(self) -> None:
        """Stop the decode that runs now.

        Only one byte is written, so any thread may call this.
        """
        self._buffer[0] = b"\x01"

    def clear(self) -> None:
        """Reset the flag, so that decodes run again."""
        self._buffer[0] = b"\x00"

    @property
    def is_set(self) -> bool:
        """Return whether `set` was called since the last `clear`."""
        return self._buffer[0] != b"\x00"

    @staticmethod
    def _native() -> Callable[..., bool] | None:
        """Return `strlen` as an abort callback; None where it cannot be found."""
        try:
            strlen = ctypes.CDLL(None).strlen
        except (OSError, AttributeError, TypeError):  # TypeError: Windows has no handle for the process itself
            return None
        return ctypes.cast(strlen, llama_cpp.ggml_abort_callback)  # type: ignore[no-any-return]


def build() -> str:
    """Return the versions of llama-cpp-python and, if known, llama.cpp's commit."""
    return f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {_commit() or 'unknown'}"


def _commit() -> str:
    """Return llama.cpp's commit; "" if the library does not state it."""
    library = getattr(getattr(llama_cpp, "llama_cpp", None), "_lib", None)
    function = getattr(library, "ggml_commit", None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return (function() or b"").decode("ascii", "replace")


def processor() -> str:
    """Return the architecture and the processor features that llama.cpp uses.

    They decide which kernels run.
    """
    return f"{platform.machine()}: {', '.join(_features())}"


def repacks_safely() -> bool:
    """Return whether weights may be repacked for the processor.

    False for builds with AMX: its product of quantised weights ends the process with a
    general protection fault on some processors (llama.cpp #20824, open; on a virtual
    Sapphire Rapids with every call of two rows or more).
    """
    return "AMX_INT8" not in _features()


def _features() -> list[str]:
    """Return the processor features that llama.cpp was built to use here."""
    info = llama_cpp.llama_print_system_info().decode("utf-8", "replace").replace("CPU :", "")
    return [part.partition("=")[0].strip() for part in info.split("|") if part.partition("=")[2].strip() == "1"]


_MAX_BYTES = 256
_FLOAT_FILE_TYPES: dict[int | None, str] = {0: "f32", 1: "f16", 32: "f16"}
"""`ModelIdentity.weights` by `general.file_type` (llama_ftype; 32 is bf16)."""


class Metadata(Protocol):
    """The metadata of a model, in a file or in loaded weights."""

    def metadata_int(self, key: str) -> int | None:
        """Return the integer of `key`; None if it is missing.

        `{arch}` in the key is replaced by the architecture.
        """


def weights_type(model: Metadata) -> str:
    """Return the `ModelIdentity.weights` of a model: "f32", "f16" or "quantised"."""
    return _FLOAT_FILE_TYPES.get(model.metadata_int("general.file_type"), "quantised")


def cell_type(model: Metadata, precision: Precision) -> int:
    """Return the ggml type in which the cells of a context hold keys and values.

    It is f32 for the weights of a float type in `exact` precision, and else f16. On
    quantised weights f32 doubles the memory and makes no number more accurate: rounded
    activations move a row by 0.1 nats.
    """
    is_f32 = precision is Precision.EXACT and weights_type(model) != "quantised"
    return int(llama_cpp.GGML_TYPE_F32 if is_f32 else llama_cpp.GGML_TYPE_F16)


def cell_item_bytes(model: Metadata, precision: Precision) -> int:
    """Return the size in bytes of one number of a cell (see `cell_type`)."""
    return 4 if cell_type(model, precision) == llama_cpp.GGML_TYPE_F32 else 2


def metadata_of(model: llama_cpp.llama_model_p, key: str) -> str | None:
    """Return the value of `key` as text, cut to 255 bytes.

    None if it is missing or a list.
    """
    buffer = ctypes.create_string_buffer(_MAX_BYTES)
    length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, _MAX_BYTES)
    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
