"""Replaces files as a whole, and turns system errors about a folder into our errors."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from selectrie.errors import OptionError, SelectrieError

_TEMPORARY = re.compile(r"\.(?P<name>.+)-[0-9a-f]{16}\.tmp", re.DOTALL)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise system errors about a folder as `OptionError`.

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


def check_plain(path: Path) -> None:
    """Raise `OSError` if a path names a link, a FIFO, a device or a folder.

    Such a thing is neither read, nor written to, nor replaced.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(errno.EINVAL, f"{path.name} is not a plain file; remove it")


def is_temporary(name: str, names: Collection[str]) -> bool:
    """Return whether `write_whole` makes a file of this name for one of these names."""
    found = _TEMPORARY.fullmatch(name)
    return found is not None and found["name"] in names


def write_whole(path: Path, text: str) -> None:
    """Replace a plain file as a whole.

    A reader sees the old text or the new one, and the new one is on the disk when this
    returns. The text is first written to a file that no other process can have
    (`.NAME-<16 hex digits>.tmp`, NAME cut at 32 characters); if two processes write one
    file at once, the last one therefore decides. A process that is killed leaves that
    file behind. The mode of the old file is kept; a new file gets the mode of any new
    file.

    Raises `OSError`, also where `check_plain` does.
    """
    check_plain(path)
    data = text.encode()
    temporary = path.with_name(f".{path.name[:32]}-{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(handle, stat.S_IMODE(path.lstat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_file(path: Path, text: str) -> None:
    """Write a file that the caller has named.

    A plain file is replaced as by `write_whole`; links to it are followed. Anything
    else, such as a FIFO or a terminal, is written to. So is the file that standard
    output or error goes to (`/dev/stdout`), which keeps what it already holds. Raises
    `OSError`.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        found = None
    if found is None or (stat.S_ISREG(found.st_mode) and not _is_standard(found)):
        write_whole(path.resolve(), text)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
        file.write(text.encode())


def _is_standard(found: os.stat_result) -> bool:
    """Return whether standard output or error is this file."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(number)):
                return True
    return False
