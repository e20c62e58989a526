"""Reads data files strictly: lines, JSON, JSON Lines, CSV, Parquet and TOML."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from os import stat_result
from pathlib import Path
from stat import S_ISREG
from typing import Any

from selectrie.core.strict_json import object_of_unique_keys, refuse_constant
from selectrie.errors import InputFileError, MissingExtraError

MAX_LINE_BYTES = 16 << 20
"""Maximum size of one record; the longest published ones have some kilobytes."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an `OSError` in the `with` block into an `InputFileError` about a file."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:  # the latter: half a character in the name
        raise InputFileError(str(path), getattr(error, "strerror", None) or str(error)) from error


def data_file_status(path: Path, suffixes: Collection[str], kind: str) -> stat_result:
    """Return the `os.stat` result of a data file.

    Args:
        path: The file.
        suffixes: The suffixes that files of this kind may have, in lower case.
        kind: The name of such a file in errors, such as "table".

    Raises `InputFileError` if it has none of the suffixes or is not a plain file.
    """
    if path.suffix.lower() not in suffixes:
        raise InputFileError(str(path), f"not a {kind}: its name must end in one of {', '.join(suffixes)}")
    if "\0" in str(path):
        raise InputFileError(repr(str(path)), "a file name cannot hold a null character")
    with reading(path):
        status = path.stat()
    if not S_ISREG(status.st_mode):
        reason = "not a file" if path.is_dir() else "not a plain file; it is read several times: copy it to one"
        raise InputFileError(str(path), reason)
    return status


def digest_of_bytes(path: Path) -> str:
    """Return the blake2b digest of a file's bytes, as 32 hexadecimal digits."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def delimited_records(path: Path, delimiter: str) -> Generator[tuple[int, str, list[str]], None, None]:
    """Yield (line number, text, fields) of the header and of every row of a CSV file.

    The number is that of the row's first line. Fields are quoted as in RFC 4180. Empty
    lines are not rows. Raises `InputFileError` if the file is empty, two columns have
    the same name, a row has more or fewer fields than the header, or the header has one
    name that contains another delimiter.
    """
    row_lines: list[str] = []

    def lines() -> Iterator[str]:
        for _, line in numbered_lines(path):
            row_lines.append(line)
            yield line

    begins, header = 1, None
    try:
        for row in csv.reader(lines(), delimiter=delimiter, strict=True):
            if header is None:
                _check_names(path, row, begins)
                _check_delimiter(path, row, row_lines[0], delimiter)
                header = row
            if row and len(row) != len(header):
                raise InputFileError(str(path), f"{len(row)} fields, and the header has {len(header)}", line=begins)
            if row:
                yield begins, "".join(row_lines), row
            begins += len(row_lines)
            row_lines.clear()
    except csv.Error as error:
        reason = f"not CSV: {error}, in the row that begins here"
        if "field limit" in str(error):
            reason += "; raise it with csv.field_size_limit(N)"
        raise InputFileError(str(path), reason, line=begins) from None
    if header is None:
        raise InputFileError(str(path), "it is empty; its first line must name the columns")


def _check_names(path: Path, names: list[str], line: int | None) -> None:
    """Raise `InputFileError` if there are no columns, or two have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if not names or twice is not None:
        reason = f"two columns are called {twice!r}" if names else "it names no columns"
        raise InputFileError(str(path), reason, line=line)


def _check_delimiter(path: Path, names: list[str], line: str, delimiter: str) -> None:
    """Raise `InputFileError` if a header of one name contains another delimiter.

    A name in quotes may contain any.
    """
    if len(names) != 1 or line.startswith('"'):
        return
    remedies = {",": "name the file .csv", "\t": "name the file .tsv", ";": "save it with commas, as .csv"}
    for mark, remedy in remedies.items():
        if mark != delimiter and mark in names[0]:
            reason = f"the header has one column, {names[0]!r}: if {mark!r} separates columns, {remedy}; else quote it"
            raise InputFileError(str(path), reason, line=1)


def json_objects(path: Path, *, finite: bool = True) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (line number, text, object) of each line that is not blank.

    `finite` is as for `parse_json`. Raises `InputFileError` for a line that is not a
    JSON object.
    """
    for number, line in numbered_lines(path):
        if line.strip():
            value = parse_json(path, line.rstrip("\r\n"), number, finite=finite)
            yield number, line.strip(), require_object(path, value, number)


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file for the `with` block, as a `pyarrow.parquet.ParquetFile`.

    Raises `MissingExtraError` without pyarrow, and `InputFileError` if two columns have
    the same name or the file cannot be read in the `with` block.
    """
    arrow = import_pyarrow()
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            _check_names(path, file.schema_arrow.names, None)
            yield file
    # ValueError: text that is not UTF-8, or an invalid time.
    except (arrow.ArrowException, ValueError, OverflowError) as error:
        raise InputFileError(str(path), f"not Parquet that can be read: {error}") from None


def import_pyarrow() -> Any:
    """Return the package pyarrow; raise `MissingExtraError` if it is not installed."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise MissingExtraError("a Parquet file", "parquet") from error
    return pa


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text with its line end) of each line of a UTF-8 file.

    Raises `InputFileError` for a line of more than `MAX_LINE_BYTES`, which could fill
    the memory, and for invalid UTF-8.
    """
    with path.open("rb") as file:
        number = 0
        while data := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(data) > MAX_LINE_BYTES:
                raise InputFileError(str(path), f"the line has more than {MAX_LINE_BYTES >> 20} MiB", line=number)
            yield number, decode_text(path, data, number)


def decode_text(path: Path | str, data: bytes, line: int) -> str:
    """Return UTF-8 data as text, without a byte order mark in line 1.

    Args:
        path: The file, for errors.
        data: The bytes.
        line: Number of the line at which they begin.

    Raises `InputFileError` for invalid UTF-8.
    """
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise InputFileError(str(path), f"not UTF-8: byte {data[error.start]:#04x}", line=line) from None


def parse_json(path: Path, text: str, line: int | None, *, finite: bool = True) -> Any:
    """Parse a text as JSON, and return the value.

    Args:
        path: The file, for errors.
        text: The text.
        line: Number of the line, if the text is one; None for a text of several lines.
        finite: Whether numbers must be finite. Otherwise NaN and infinities are read,
            which Python writes.

    Raises `InputFileError` if it is not JSON, or if a key occurs twice in an object.
    """
    special: dict[str, Any] = {"parse_constant": refuse_constant, "parse_float": _parse_finite} if finite else {}
    try:
        value = json.loads(text, object_pairs_hook=object_of_unique_keys, **special)
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


def _parse_finite(text: str) -> float:
    """Return the float that a JSON number is; raise `ValueError` if it overflows."""
    value = float(text)
    return value if math.isfinite(value) else refuse_constant(text)


def require_object(path: Path, value: Any, line: int) -> dict[str, Any]:
    """Return a parsed JSON value if it is an object, else raise `InputFileError`.

    `path` and `line` say where the value was read.
    """
    if not isinstance(value, dict):
        raise InputFileError(str(path), f"expected an object, not {kind_of(value)}", line=line)
    return value


def kind_of(value: Any) -> str:
    """Return the JSON type of a value with an article, such as "an object"."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_KEY_PARTS = 64
"""Maximum number of parts of a key, `a.b.c`."""
_STRINGS = re.compile(r'''"""(?:\\.|[^\\])*?"""|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*''', flags=re.DOTALL)
"""Matches texts and comments of TOML, which may contain anything."""
_BESIDE_KEYS = re.compile(r"[^\w\-. \t]+")


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse a text as TOML, and return the table.

    Raises `InputFileError` with the file's `name` and, if known, the line.
    """
    _check_key_lengths(text, name)
    try:
        table: dict[str, Any] = tomllib.loads(text)
    # ValueError: also for a number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise InputFileError(name, f"not TOML: {error}", line=getattr(error, "lineno", None)) from None
    return table


def _check_key_lengths(text: str, name: str) -> None:
    """Raise `InputFileError` for a key of more than `MAX_KEY_PARTS` parts.

    The time and memory that `tomllib` takes grow with the square of the number of
    parts.
    """
    bare = _STRINGS.sub(lambda result: "k" + "\n" * result[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if any(part.count(".") > MAX_KEY_PARTS for part in _BESIDE_KEYS.split(line)):
            raise InputFileError(name, f"a key has more than {MAX_KEY_PARTS} parts", line=number)
