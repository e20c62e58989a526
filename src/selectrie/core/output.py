"""Writes text to terminals, files and pipes; no text can command a terminal."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from selectrie.errors import OutputError

_PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Marks, embeddings, overrides and isolates (Unicode TR 9)."""
_SEPARATORS = (0x2028, 0x2029)
_VISIBLE = _PICTURES | dict.fromkeys((*range(0x7F, 0xA0), *_BIDI, *_SEPARATORS), "\N{REPLACEMENT CHARACTER}")
_ACTIVE = re.compile(f"[\x7f-\x9f{''.join(map(chr, (*_BIDI, *_SEPARATORS)))}]")


def visible(text: str) -> str:
    """Return the text with control characters replaced by visible ones.

    Controls become control pictures (U+2400 and on). DEL, the C1 controls, direction
    marks and the line and paragraph separators become U+FFFD. Line ends and tabs stay.
    The length does not change.
    """
    return text.translate(_VISIBLE)


def json_escaped(text: str) -> str:
    r"""Return JSON text with the characters that a terminal obeys escaped as `\uXXXX`.

    These are DEL, the C1 controls, direction marks and separators; the meaning stays
    the same. JSON itself escapes the other controls.
    """
    return _ACTIVE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it was closed
        return False


def write(text: str, stream: TextIO | None, *, end: str = "\n") -> None:
    """Write `text` and then `end` to the stream.

    On a terminal both are first made `visible`. Raises as `put` does.
    """
    put((visible(text) if is_terminal(stream) else text) + end, stream)


def put(text: str, stream: TextIO | None) -> None:
    """Write a text to a stream as it is.

    Raises `OutputError` if standard output cannot be written, and `BrokenPipeError` if
    its reader is gone. Text that standard error cannot take is dropped, because there
    is nowhere left to report the failure. Text for a closed stream (None) is dropped
    too.
    """
    if stream is None:
        return
    if stream is sys.stderr:
        with suppress(OSError):
            stream.write(text)
            stream.flush()
        return
    try:
        stream.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


def flush() -> None:
    """Flush standard output.

    Raises as `put` does. After an error, later output is dropped, because it would fail
    once more when the process ends.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(error.strerror or str(error)) from error


def _discard_output() -> None:
    """Redirect standard output, with its buffered text, to the null device."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def show_cursor() -> None:
    """Show the cursor again on the terminals of standard output and standard error.

    The escape sequence bypasses the buffers of the streams.
    """
    for number in (1, 2):
        with suppress(OSError):
            if os.isatty(number):
                os.write(number, b"\x1b[?25h")
