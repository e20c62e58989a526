"""Text on its way to a terminal, a file or a pipe: the one place from which the
command and its reports write.

What a terminal obeys (ESC and what begins with it, BEL, the C1 controls, the marks
that turn the direction of text) may stand in any text of the caller's or the model's. A
terminal gets something to look at instead; files and pipes get the text as it is.
"""

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
    """The text with what a terminal would obey as something to look at: control
    pictures (U+2400 and on), U+FFFD for DEL, the C1 controls, direction marks and the
    line and paragraph separators. Line ends and tabs stay, and so does the length."""
    return text.translate(_VISIBLE)


def json_escaped(text: str) -> str:
    r"""A text in JSON with DEL, C1 controls, direction marks and separators as `\uXXXX`,
    which mean the same; the other controls JSON escapes itself."""
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at what is written there, or types what is read."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it was closed
        return False


def write(text: str, stream: TextIO | None, *, end: str = "\n") -> None:
    """Write a text and what ends it: `visible` on a terminal, elsewhere as it is.

    Raises as `put` does.
    """
    put((visible(text) if is_terminal(stream) else text) + end, stream)


def put(text: str, stream: TextIO | None) -> None:
    """Write a text that is safe, without a change.

    Raises `OutputError` where standard output cannot be written, `BrokenPipeError`
    where nobody reads it any more. What standard error cannot take is dropped, for there
    is no place left to say so, and so is what goes to a stream that is closed (None).
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
    """Send on what standard output holds back. Raises as `put` does, and from then on
    drops what is written, because it would fail once more when the process ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _forget()
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(error.strerror or str(error)) from error


def _forget() -> None:
    """Let what standard output still holds go nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def show_cursor() -> None:
    """Let the terminals that standard output and error are show their cursor again,
    past what the streams still hold."""
    for number in (1, 2):
        with suppress(OSError):
            if os.isatty(number):
                os.write(number, b"\x1b[?25h")
