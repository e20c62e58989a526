"""Writes files as a whole, keeps files between runs, and computes their digests."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from selectrie.errors import OptionError, SelectrieError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET = ".parquet"
TEXT_SUFFIXES = (*DELIMITERS, *JSON_SUFFIXES)
"""Suffixes of tables that are text, which can be written to standard output."""
TABLE_SUFFIXES = (*TEXT_SUFFIXES, PARQUET)
ITEM_SUFFIXES = (*JSON_SUFFIXES, ".json", *DELIMITERS, PARQUET)
SHOWN_SUFFIXES, SHOWN_ITEM_SUFFIXES = (
    " ".join(one for one in suffixes if one != ".ndjson") for suffixes in (TABLE_SUFFIXES, ITEM_SUFFIXES)
)
"""Suffixes of files in help texts; ".ndjson" is another name for ".jsonl"."""
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
    """Return whether `name` is a temporary file of `replaced` for one of `names`.

    Such a file stays behind if the process is killed.
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
    """Replace a plain file as a whole by the bytes written to the yielded file.

    A reader sees the old content or the new one, and the new one is on the disk when
    the `with` block has ended. An error in it leaves the old file. The content is first
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


logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return `~/.cache/selectrie`, which may not exist."""
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and a user without an account, as in some containers
        home = Path(os.devnull)  # nothing can be read or written below it
    return home / ".cache" / "selectrie"


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    The result is empty if the file is missing, cannot be read, or holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Replace a file by the JSON object `value`.

    A reader sees the old object or the new one. If the new one cannot be written, the
    old one stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, indent=1))
    except OSError as error:
        logger.debug("cannot write %s: %s", path, error)


_FOLDER_REFUSES = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Errors of a folder in which no file can be made, or none be replaced."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert system errors in the `with` block into `OptionError` about a folder.

    Examples are a full disk, no permission, a folder that has disappeared, and a
    name that no folder can have.
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
    """Write a text to a file named by the user, which may be a device.

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


_MIB = 1 << 20
_WHOLE_BYTES = 16 * _MIB
"""Files up to this size are read whole: 16 MiB take 20 ms."""
_BLOCKS = 128
_BLOCK_BYTES = 64 << 10
"""Number and size of the blocks that are read of a larger file."""


def file_digest(path: Path) -> str:
    """Return a digest of a file, sampled if the file is larger than 16 MiB.

    It is `blake2b:…`, or `blake2b-sampled:…` for a larger file. A sampled digest
    covers the file's size, its first MiB (metadata and vocabulary), and 128 blocks
    of 64 KiB, evenly spaced up to the end: 9 MiB are read of any file. It tells
    models and quantisations apart, but does not protect against tampering.
    """
    size = path.stat().st_size
    state = blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            state.update(file.read())
            return f"blake2b:{state.hexdigest()}"
        state.update(file.read(_MIB))
        for i in range(_BLOCKS):
            file.seek(_MIB + i * (size - _MIB - _BLOCK_BYTES) // (_BLOCKS - 1))
            state.update(file.read(_BLOCK_BYTES))
    return f"blake2b-sampled:{state.hexdigest()}"
