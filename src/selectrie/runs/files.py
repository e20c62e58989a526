"""Writes files that the caller names, and turns system errors into `OptionError`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from selectrie.core.whole_files import write_whole
from selectrie.errors import OptionError, SelectrieError

_FOLDER_REFUSES = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Errors of a folder in which no file can be made, or none be replaced."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn system errors of the block, about a folder, into `OptionError`.

    Examples are a full disk, no permission, a folder that has disappeared, and a name
    that no folder can have.
    """
    try:
        yield
    except SelectrieError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        expected = f"a folder that can be written ({reason}); what it holds is whole, and a run goes on from there"
        raise OptionError("out", str(folder), expected) from error


def write_file(path: Path, text: str) -> None:
    """Write a file that the caller has named.

    A plain file is replaced as by `write_whole`, or written to in place if its folder
    does not allow that; links to it are followed. Anything else, such as a FIFO or a
    terminal, is written to. To the file that standard output or error goes to
    (`/dev/stdout`), the text is appended. Raises `OSError`.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    mode = os.O_APPEND
    if status is None or (stat.S_ISREG(status.st_mode) and not _is_standard(status)):
        try:
            write_whole(path.resolve(), text)
        except OSError as error:
            if status is None or error.errno not in _FOLDER_REFUSES:
                raise
            mode = os.O_TRUNC
        else:
            return
    with os.fdopen(os.open(path, os.O_WRONLY | mode), "wb") as file:
        file.write(text.encode())


def _is_standard(status: os.stat_result) -> bool:
    """Return whether standard output or standard error goes to this file."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(number)):
                return True
    return False
