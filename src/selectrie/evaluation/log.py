"""The log of a run: one line for each unit that was measured, with a digest, on the disk before anybody hears of it.

A process may be killed at any byte. Lines up to the first one that is torn or damaged count; the rest is cut off and measured
again. One process at a time holds a log.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType

from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.items import ItemRecord
from selectrie.evaluation.results import record_of, record_to_json

_LONGEST_LINE = 64 << 20
"""Bytes: more are nobody's unit, and are not read."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """What the system says of a folder as an error of ours: a full disk, no permission, a folder that has gone."""
    try:
        yield
    except OSError as error:
        expected = (
            f"a folder that can be written ({error.strerror}); what it holds is whole, and a run goes on from there"
        )
        raise OptionError("out", str(folder), expected) from error


@dataclass(frozen=True, slots=True)
class Line:
    """A unit as it was logged."""

    unit: int
    rows_evaluated: int
    rows_naive: int
    records: tuple[ItemRecord, ...]

    def to_json(self) -> str:
        """One line without its end: digest and body."""
        records = ",".join(record_to_json(record) for record in self.records)
        body = (
            f'{{"unit":{self.unit},"rows_evaluated":{self.rows_evaluated},"rows_naive":{self.rows_naive},'
            f'"records":[{records}]}}'
        )
        return f'{{"digest":"{_digest(body)}","body":{body}}}'

    @staticmethod
    def from_json(text: str) -> Line:
        """The line that `to_json` wrote; `InputFileError` for anything else."""
        start, end = text.find('"body":') + len('"body":'), len(text) - 1
        body = text[start:end]
        if not text.startswith('{"digest":"') or not text.endswith("}") or text[11:43] != _digest(body):
            raise InputFileError("log", "a torn or damaged line")
        try:
            value = json.loads(body)
            records = tuple(record_of(record) for record in value["records"])
            return Line(value["unit"], value["rows_evaluated"], value["rows_naive"], records)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputFileError("log", f"not a unit: {error}") from error


def _digest(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()


class Log:
    """The log of one run, open for adding to. A context manager; raises `OptionError` where another process holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path.parent):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise OptionError("out", str(path.parent), "a folder that no other run is writing now") from error

    def __enter__(self) -> Log:  # noqa: PYI034 - Self is not in typing before Python 3.11, and the class is final
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def recover(self, units: Sequence[int]) -> dict[int, Line]:
        """What was logged of these units, by number; whatever follows the last whole line is cut off."""
        known, lines, end = set(units), {}, 0
        with writing(self._path.parent):
            for line, stop in _whole_lines(self._path):
                if line.unit not in known or line.unit in lines:
                    break
                lines[line.unit] = line
                end = stop
            if end < self._path.stat().st_size:
                os.ftruncate(self._file, end)
                os.fsync(self._file)
        return lines

    def add(self, line: Line) -> None:
        """Append a line; it is on the disk when this returns."""
        data = (line.to_json() + "\n").encode()
        with writing(self._path.parent):
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)


def _whole_lines(path: Path) -> Iterator[tuple[Line, int]]:
    """Lines up to the first that is not whole, each with the byte after it."""
    stop = 0
    with path.open("rb") as file:
        while data := file.readline(_LONGEST_LINE):
            stop += len(data)
            try:
                if not data.endswith(b"\n"):
                    return
                yield Line.from_json(data[:-1].decode()), stop
            except (ValueError, InputFileError):
                return


def write_whole(path: Path, text: str) -> None:
    """Put a text in a file's place as a whole, on the disk when this returns: who reads sees the old one or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
