"""Which file holds a table in which format, and which formats can be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from selectrie.decide.columns import AnswerColumns
from selectrie.errors import InputFileError, MissingExtraError, OptionError
from selectrie.tables.delimited import DELIMITERS, DelimitedTable, DelimitedWriter
from selectrie.tables.json_lines import SUFFIXES as JSON_SUFFIXES
from selectrie.tables.json_lines import JsonTable, JsonWriter
from selectrie.tables.parquet import SUFFIX as PARQUET_SUFFIX
from selectrie.tables.parquet import ParquetTable, ParquetWriter
from selectrie.tables.rows import Scan, Table, TableWriter

SUFFIXES = (*DELIMITERS, *JSON_SUFFIXES, PARQUET_SUFFIX)


def open_table(path: Path) -> Table:
    """Return the table in a file, whose suffix decides the format.

    Raises:
        InputFileError: If it is not a plain file, or has another suffix.
        MissingExtraError: For Parquet without pyarrow.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputFileError(str(path), f"not a table: its name must end in one of {', '.join(SUFFIXES)}")
    if "\0" in str(path):
        raise InputFileError(repr(str(path)), "a file name cannot hold a null character")
    with reading(path):
        if not S_ISREG(path.stat().st_mode):
            reason = "not a file" if path.is_dir() else "not a plain file; a table is read several times: copy it"
            raise InputFileError(str(path), reason)
    if suffix in DELIMITERS:
        return DelimitedTable(path, DELIMITERS[suffix])
    if suffix == PARQUET_SUFFIX:
        _check_parquet()
        return ParquetTable(path)
    return JsonTable(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system in the block, about a file, into `InputFileError`."""
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:  # the latter: half a character in the name
        raise InputFileError(str(path), getattr(error, "strerror", None) or str(error)) from error


def check_output(out: Path, source: Path, scan: Scan | None = None) -> None:
    """Raise `OptionError` if a table cannot be written to a file.

    Args:
        out: The file.
        source: The file that is read.
        scan: What is known of it; None checks the names alone.
    """
    suffix = out.suffix.lower()
    if str(out) == "-" or suffix not in SUFFIXES:
        allowed = f"a file whose name ends in one of {', '.join(SUFFIXES)}; a run has a folder beside it"
        raise OptionError("out", str(out), allowed)
    try:
        is_there, is_folder = out.parent.is_dir(), out.is_dir()
        is_same = out.exists() and out.samefile(source)
    except (OSError, ValueError) as error:
        raise OptionError("out", str(out), f"a file that can be written ({error})") from error
    if not is_there or is_folder:
        raise OptionError("out", str(out), "a file in a folder that exists")
    if is_same:
        raise OptionError("out", str(out), "another file than the table itself, which is read to the end of the run")
    if suffix == PARQUET_SUFFIX:
        _check_parquet()
    elif scan is not None:
        binary = [one.name for one in scan.columns if one.type is not None and "binary" in str(one.type)]
        if binary:
            allowed = f"a file that ends in {PARQUET_SUFFIX}: the column {binary[0]!r} holds bytes, not text"
            raise OptionError("out", str(out), allowed)


def writer_of(file: BinaryIO, out: Path, source: Table, scan: Scan, added: AnswerColumns) -> TableWriter:
    """Return what writes a table with new columns, in the format of `out`."""
    suffix = out.suffix.lower()
    if suffix in DELIMITERS:
        return DelimitedWriter(file, DELIMITERS[suffix], source, scan, added.names)
    if suffix == PARQUET_SUFFIX:
        return ParquetWriter(file, source, scan, added.columns)
    return JsonWriter(file, scan, added.names)


def _check_parquet() -> None:
    """Raise `MissingExtraError` if pyarrow is not installed."""
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise MissingExtraError("a Parquet file", "tables")
