"""Writes a trace from any thread, without making it wait for the disk.

Threads put records into a queue. A thread of the writer takes them every half second,
numbers them, collects them into blocks and appends these to the file. The file is
therefore valid up to its last block, whenever the process is killed. The thread sleeps
in between, because it would otherwise wake at every row, and wait for the same lock as
the thread of the model each time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from selectrie.core.files import check_plain
from selectrie.errors import OptionError
from selectrie.traces.blocks import MAGIC, BlockWriter
from selectrie.traces.records import NO_SET, Begin, ReadStep, TokenIds, TraceRecord, encode, size_of
from selectrie.traces.values import CopiedStep

BLOCK_BYTES = 1 << 20
"""Size of the payload from which a block is written at once."""
BLOCK_S = 0.5
"""Maximum seconds from the first record of a block until it is written."""
MAX_WAITING_BYTES = 256 << 20
"""Size of the unwritten records from which a thread that adds rows has to wait."""

_ALIVE_S = 1.0
"""Seconds between checks by a waiting thread that the writer's thread is alive."""


class TaskHandle:
    """A task of a trace that is being written.

    Attributes:
        number: Number of the task; only the writer's thread sets and reads it.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = -1


_Item = Callable[[], None]


class TraceWriter:
    """A trace that is being written.

    Any thread may call the methods that add records; they raise nothing. After an
    error nothing more is written, and `close` raises it.

    Args:
        path: The file. An existing trace is replaced; any other file is an error.
        first: The first records of the trace.

    Raises:
        OptionError: If the file cannot be written, is not a trace, or is being written
            by another writer.
    """

    def __init__(self, path: Path, first: list[TraceRecord]) -> None:
        self.path = path
        self._file = _open_trace(path)
        self._error: BaseException | None = None
        self._queue: deque[_Item] = deque()
        # Set when there is something to write, and when it is to be written at once.
        self._begun, self._due = threading.Event(), threading.Event()
        self._is_closing = False
        self._room = threading.Event()
        self._room.set()
        self._n_put = self._n_done = 0  # bytes of all steps that were queued, and of those taken
        self._waiting: list[TraceRecord] = []
        self._n_waiting_bytes = 0
        self._n_tasks = self._n_whole = 0
        self._sets: dict[bytes, int] = {}
        self._thread = threading.Thread(target=self._loop, name="selectrie-trace", daemon=True)
        for record in first:
            self.add(record)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Return whether an error has ended the writing."""
        return self._error is not None

    def add(self, record: TraceRecord) -> None:
        """Add a record that refers to no other record."""
        self._put(lambda: self._add(record))

    def _put(self, item: _Item) -> None:
        """Queue a function that the writer's thread will call."""
        self._queue.append(item)
        if not self._begun.is_set():
            self._begun.set()

    def begin(self, record: Begin) -> TaskHandle:
        """Add the beginning of a task, and return the handle for adding its steps."""
        task = TaskHandle()

        def write() -> None:
            task.number = self._n_tasks
            self._n_tasks += 1
            self._add(record)

        self._put(write)
        return task

    def step(self, task: TaskHandle, copied: CopiedStep) -> None:
        """Add a step of a task.

        Waits while more than `MAX_WAITING_BYTES` are not written yet.
        """
        n_bytes = copied.nbytes
        self._n_put += n_bytes
        n_waiting = self._n_put - self._n_done
        if n_waiting > MAX_WAITING_BYTES and not self.has_failed:
            self._room.clear()
            self._put(self._room.set)
            self._due.set()
            while not self._room.wait(_ALIVE_S) and self._thread.is_alive():
                pass

        def write() -> None:
            self._n_done += n_bytes
            self._add_step(task.number, copied)

        self._put(write)
        if n_waiting > BLOCK_BYTES:
            self._due.set()

    def close(self) -> None:
        """Write the remaining records and the end block, and close the file.

        Raises:
            OptionError: If the trace could not be written in full, or the path now
                names another file.
        """
        self._is_closing = True
        self._due.set()
        self._begun.set()
        self._thread.join()
        if self._error is not None:
            reason = getattr(self._error, "strerror", None) or str(self._error)
            expected = f"a file that can be written ({reason}); the trace ends where that happened"
            raise OptionError("trace", str(self.path), expected) from self._error

    # The methods below run on the writer's thread.

    def _loop(self) -> None:
        """Run the writer's thread: write until `close`, or keep the error."""
        try:
            with self._file:
                self._write(BlockWriter(self._file))
                self._file.flush()
                os.fsync(self._file.fileno())
                self._check_name()
                fcntl.flock(self._file, fcntl.LOCK_UN)  # which a forked process would keep
        except BaseException as error:  # noqa: BLE001 - raised by `close`
            self._error = error
            self._drop_all()

    def _check_name(self) -> None:
        """Raise `OSError` if the path does not name this file any more."""
        try:
            is_same = os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise OSError(errno.ESTALE, "it was removed or replaced while it was written")

    def _drop_all(self) -> None:
        """Discard queued records until `close`, so that no thread waits."""
        while True:
            self._begun.clear()
            self._queue.clear()
            self._room.set()
            if self._is_closing:
                return
            self._begun.wait()

    def _write(self, blocks: BlockWriter) -> None:
        """Write the queued records in blocks until `close`, then the end block."""
        is_last = False
        while not is_last:
            self._begun.wait()
            self._due.wait(BLOCK_S)
            # Cleared first: what comes from now on is seen now, or in the next turn.
            self._begun.clear()
            self._due.clear()
            is_last = self._is_closing
            while self._queue:
                self._queue.popleft()()
                if self._n_waiting_bytes >= BLOCK_BYTES:
                    self._write_block(blocks)
            self._write_block(blocks)
        blocks.end()

    def _write_block(self, blocks: BlockWriter) -> None:
        """Write all waiting records as one block."""
        records, self._waiting, self._n_waiting_bytes = self._waiting, [], 0
        if records:
            blocks.write(encode(records), len(records))
            self._file.flush()

    def _add(self, record: TraceRecord, n_bytes: int | None = None) -> None:
        """Add a record to the next block, and count its bytes."""
        self._waiting.append(record)
        self._n_waiting_bytes += size_of(record) if n_bytes is None else n_bytes

    def _add_step(self, task: int, copied: CopiedStep) -> None:
        """Add a step of a task, after the new sets and whole rows it refers to."""
        fields = copied.fields
        for name, sets in copied.sets.items():
            numbers = [NO_SET if one is None else self._set_number(one.record) for one in sets]
            fields[name] = np.array(numbers, dtype=np.int32)
        for row in copied.whole:
            self._add(row)
        if copied.whole:
            fields["whole"] = (fields["whole"] + self._n_whole).astype(np.int32)
            self._n_whole += len(copied.whole)
        self._add(ReadStep(task=task, **fields), copied.nbytes)

    def _set_number(self, one: TokenIds) -> int:
        """Return the number of a set, after adding its record if it is new."""
        digest = one.digest.tobytes()
        if digest not in self._sets:
            self._sets[digest] = len(self._sets)
            self._add(one)
        return self._sets[digest]


def _open_trace(path: Path) -> BinaryIO:
    """Create or empty the file of a trace, and return it open and locked.

    Only its owner may read it. A file that holds nothing, or only the first bytes of a
    trace, may be replaced like a trace.

    Raises `OptionError` if it cannot be written, is being written by another writer, or
    holds anything but a trace.
    """
    try:
        check_plain(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.fdopen(os.open(path, flags, 0o600), "r+b")
    except (OSError, ValueError) as error:
        raise _cannot_write(path, getattr(error, "strerror", None) or str(error)) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _cannot_write(path, "it is being recorded") from error
        if not MAGIC.startswith(file.read(len(MAGIC))):
            raise _cannot_write(path, "it is there and is not a trace")  # noqa: TRY301 - the file is closed below
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        file.seek(0)
        file.truncate()
    except OSError as error:
        file.close()
        raise _cannot_write(path, error.strerror or str(error)) from error
    except BaseException:
        file.close()
        raise
    return file


def _cannot_write(path: Path, reason: str) -> OptionError:
    return OptionError("trace", str(path), f"a new file, or a trace to replace ({reason})")
