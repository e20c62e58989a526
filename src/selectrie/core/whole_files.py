"""Replaces files as a whole."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_MAX_NAME = 32
"""Maximum characters of a file's name in that of its temporary file."""
_TEMPORARY = re.compile(r"\.(?P<name>.+)-[0-9a-f]{16}\.tmp", re.DOTALL)


def check_plain(path: Path) -> None:
    """Raise `OSError` if a path names a link, a FIFO, a device or a folder.

    Such a thing is neither read, nor written to, nor replaced.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(errno.EINVAL, f"{path.name} is not a plain file; remove it")


def is_temporary(name: str, names: Collection[str]) -> bool:
    """Return whether `replaced` may have made `name` while it wrote one of `names`.

    That is a temporary file, which stays behind if the process is killed.
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match["name"] in {one[:_MAX_NAME] for one in names}


def write_whole(path: Path, text: str) -> None:
    """Replace a plain file as a whole by a text, as `replaced` does."""
    check_plain(path)
    data = text.encode()
    with replaced(path) as file:
        file.write(data)


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """Replace a plain file as a whole by what the block writes to the yielded file.

    A reader sees the old content or the new one, and the new one is on the disk when
    the block has ended. An error in the block leaves the old file. The content is first
    written to a file that no other process can have (`.NAME-<16 hex digits>.tmp`, NAME
    cut at 32 characters); if two processes write one file at once, the last one
    therefore decides. A process that is killed leaves that file behind. The mode of the
    old file is kept; a new file gets the mode of any new file.

    Raises `OSError`, also where `check_plain` does.
    """
    check_plain(path)
    temporary = path.with_name(f".{path.name[:_MAX_NAME]}-{secrets.token_hex(8)}.tmp")
    file = temporary.open("xb")
    try:
        with file:
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(path.lstat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # Windows opens no folder
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
