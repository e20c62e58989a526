"""Reads data files of benchmarks strictly: JSON Lines, JSON, CSV and Parquet.

Every error has the file and the line.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from typing import Any

from selectrie.errors import InputFileError, MissingExtraError

MAX_LINE_BYTES = 16 << 20
"""Maximum size of one record; the longest published ones have some kilobytes."""
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


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines with their ends.

    Their length is bounded, so that one line cannot fill the memory.
    """
    with path.open("rb") as file:
        number = 0
        while data := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(data) > MAX_LINE_BYTES:
                raise InputFileError(str(path), f"the line has more than {MAX_LINE_BYTES >> 20} MiB", line=number)
            yield number, decoded(path, data, number)


def decoded(path: Path | str, data: bytes, line: int) -> str:
    """Return UTF-8 data as text without a byte order mark.

    Raises `InputFileError` for invalid data; `line` is the line at which it begins.
    """
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise InputFileError(str(path), f"not UTF-8: byte {data[error.start]:#04x}", line=line) from None


def _json_lines(path: Path) -> Iterator[Record]:
    for number, text in _lines(path):
        if text.strip():
            yield Record(number, _object(path, _parsed(path, text.rstrip("\r\n"), number), number))


def _json(path: Path) -> Iterator[Record]:
    data = path.read_bytes()
    value = _parsed(path, decoded(path, data, 1), None)
    if not isinstance(value, list):
        raise InputFileError(str(path), f"expected a list of objects, not {_kind(value)}")
    for number, one in enumerate(value, start=1):
        yield Record(number, _object(path, one, number))


def _parsed(path: Path, text: str, line: int | None) -> Any:
    """Parse a text as JSON.

    Args:
        line: Number of the line, if the text is one; None for a text of several lines.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        where = f"not JSON: {error.msg} at column {error.colno}"
        raise InputFileError(str(path), where, line=error.lineno if line is None else line) from None
    except RecursionError:
        raise InputFileError(str(path), "not JSON that can be read: too deeply nested", line=line) from None
    except ValueError as error:
        raise InputFileError(str(path), f"not JSON: {error}", line=line) from None
    if _HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            raise InputFileError(str(path), f"not text: {half} is half a character", line=line) from None
    return value


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches the escape of a high surrogate, which is only half a character."""


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return result


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def _object(path: Path, value: Any, line: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputFileError(str(path), f"expected an object, not {_kind(value)}", line=line)
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _table(path: Path, delimiter: str) -> Iterator[Record]:
    rows = csv.reader((line for _, line in _lines(path)), delimiter=delimiter, strict=True)
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
