"""Reads data files of benchmarks strictly: JSON Lines, JSON, CSV and Parquet.

Every error has the file and the line.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any

from selectrie.errors import InputFileError, MissingExtraError
from selectrie.runs.data_lines import decoded, json_object, kind_of, numbered_lines, parsed_json

MAX_WHOLE_BYTES = 256 << 20
"""Maximum size of a file that is read as a whole (JSON, Parquet)."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a data file.

    Attributes:
        number: Line of the record, from 1, or its number in a file without lines.
        fields: The fields by name.
    """

    number: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """A data file that was read.

    Attributes:
        path: Path of the file.
        records: The records.
        digest: blake2b digest of the file's bytes.
    """

    path: Path
    records: tuple[Record, ...]
    digest: str


def read_data(path: Path) -> Data:
    """Return every record of a file.

    The suffix decides the format: .jsonl, .ndjson, .json (a list of objects), .csv
    (with a header), .tsv or .parquet.

    Raises:
        InputFileError: With file and line, if the file cannot be read, is empty, is not
            UTF-8 or ends too early, or if it has a duplicate key, an invalid number, a
            lone surrogate, a row of another width, or a field beyond
            `csv.field_size_limit`.
        MissingExtraError: For Parquet without pyarrow.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputFileError(str(path), f"not a data file: its name must end in one of {', '.join(_READERS)}")
    if "\0" in str(path):
        raise InputFileError(repr(str(path)), "a file name cannot hold a null character")
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise InputFileError(str(path), "not a file" if path.is_dir() else "not a plain file; copy it to one")
        if reader in (_json, _parquet) and status.st_size > MAX_WHOLE_BYTES:
            raise InputFileError(str(path), f"larger than {MAX_WHOLE_BYTES >> 20} MiB; cut it up, or make it .jsonl")
        records = tuple(reader(path))
        digest = _digest(path)
        later = path.stat()
    # UnicodeEncodeError: the name has half a character.
    except (OSError, UnicodeEncodeError) as error:
        raise InputFileError(str(path), getattr(error, "strerror", None) or str(error)) from error
    if (later.st_size, later.st_mtime_ns, later.st_ino) != (status.st_size, status.st_mtime_ns, status.st_ino):
        raise InputFileError(str(path), "it changed while it was read; try again when it is whole")
    if not records:
        raise InputFileError(str(path), "it has no records")
    return Data(path, records, digest)


def _digest(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _json_lines(path: Path) -> Iterator[Record]:
    for number, text in numbered_lines(path):
        if text.strip():
            yield Record(number, json_object(path, parsed_json(path, text.rstrip("\r\n"), number), number))


def _json(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    value = parsed_json(path, decoded(path, data, 1), None)
    if not isinstance(value, list):
        raise InputFileError(str(path), f"expected a list of objects, not {kind_of(value)}")
    for number, one in enumerate(value, start=1):
        yield Record(number, json_object(path, one, number))


def _table(path: Path, delimiter: str) -> Iterator[Record]:
    rows = csv.reader((line for _, line in numbered_lines(path)), delimiter=delimiter, strict=True)
    line = 1
    try:
        header = next(rows, None)
        if header is None:
            return
        if not header or len(set(header)) < len(header) or not all(header):
            raise InputFileError(str(path), f"expected a header of different names, not {header}", line=1)
        line = rows.line_num + 1
        for row in rows:
            if row and len(row) != len(header):
                raise InputFileError(str(path), f"{len(row)} columns, the header has {len(header)}", line=line)
            if row:
                yield Record(line, dict(zip(header, row, strict=True)))
            line = rows.line_num + 1
    except csv.Error as error:
        raise InputFileError(str(path), f"not CSV: {error}, in the row that begins here", line=line) from None


def _parquet(path: Path) -> Iterator[Record]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise MissingExtraError("a Parquet file", "parquet") from error
    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InputFileError(str(path), f"the column {twice!r} occurs twice")
            rows = file.read().to_pylist()
    except (
        ArrowException,
        ValueError,
        OverflowError,
    ) as error:  # ValueError: text that is not UTF-8, or an invalid time.
        raise InputFileError(str(path), f"not Parquet that can be read: {error}") from None
    for number, row in enumerate(rows, start=1):
        yield Record(number, row)


_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": partial(_table, delimiter=","),
    ".tsv": partial(_table, delimiter="\t"),
    ".parquet": _parquet,
}
