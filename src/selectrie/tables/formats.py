"""Reads and writes tables in files of delimited text, JSON Lines and Parquet."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from selectrie.core.files import DELIMITERS, PARQUET, TABLE_SUFFIXES
from selectrie.decide.answers import Cell, Column
from selectrie.decide.columns import AnswerColumns
from selectrie.decide.states import UNIT_ROWS
from selectrie.errors import OptionError
from selectrie.runs.data_files import (
    data_file_status,
    delimited_records,
    digest_of_bytes,
    import_pyarrow,
    json_objects,
    parquet_file,
)

INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of the input table.

    Attributes:
        name: Name of the column.
        kind: "text", "bool", "int" or "float"; "json" for other JSON values; "arrow"
            for a column of Parquet.
        type: The `pyarrow.DataType` of a column of Parquet, else None.
    """

    name: str
    kind: str = "text"
    type: Any = None


TableRows: TypeAlias = "DelimitedRows | JsonRows | ArrowRows"
"""Consecutive rows of a table, in the representation of its format.

`digest` has 16 hexadecimal digits. `values` yields the values of some columns for each
row, None for a missing value.
"""
Table: TypeAlias = "DelimitedTable | JsonTable | ParquetTable"
"""A table in a file, which can be read several times.

`units(n)` yields all rows, n at a time; it raises `InputFileError`, with file and line,
if a row cannot be read. `columns` returns the columns, and reads all of what `units`
returned.
"""
TableWriter: TypeAlias = "DelimitedWriter | JsonWriter | ParquetWriter"
"""Writes rows, each followed by its new cells; `close` writes what follows the last."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The columns and the size of a table, found by reading it once.

    Attributes:
        columns: The columns in their order.
        n_rows: Number of rows.
        n_units: Number of units.
        unit_rows: Number of rows of a unit.
        digest: Digest of all rows and of their division into units.
    """

    columns: tuple[InputColumn, ...]
    n_rows: int
    n_units: int
    unit_rows: int
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class TableUnit:
    """A unit of work: consecutive rows.

    Attributes:
        number: Number of the unit in the table, from 0.
        rows: The rows.
    """

    number: int
    rows: TableRows


def units_of(table: Table, unit_rows: int) -> Iterator[TableUnit]:
    """Yield the units of a table: `unit_rows` consecutive rows each, in order."""
    units: Iterator[TableRows] = table.units(unit_rows)
    for number, rows in enumerate(units):
        yield TableUnit(number, rows)


def scan(table: Table, unit_rows: int = UNIT_ROWS) -> Scan:
    """Read a table once; raise `InputFileError` if a row cannot be read."""
    digest, n_rows, n_units = blake2b(digest_size=16), 0, 0

    def read_units() -> Iterator[TableRows]:
        nonlocal n_rows, n_units
        for rows in table.units(unit_rows):
            digest.update(rows.digest.encode())
            n_rows, n_units = n_rows + len(rows), n_units + 1
            yield rows

    columns = table.columns(read_units())
    for column in columns:
        digest.update(f"\0{column.name}\0{column.kind}\0{column.type}".encode("utf-8", "surrogatepass"))
    return Scan(columns, n_rows, n_units, unit_rows, digest.hexdigest())


def text_of_cell(value: object) -> str:
    """Return the text of a value: "" for None, JSON for mappings and lists."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def json_of_cell(value: object) -> str:
    """Return a value as JSON; null for None, NaN and infinities."""
    if isinstance(value, float) and not (-float("inf") < value < float("inf")):
        return "null"
    return json.dumps(value, ensure_ascii=False, default=str)


_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, eq=False)
class DelimitedRows:
    """Rows of delimited text.

    Attributes:
        delimiter: The character between fields.
        header: Names of the columns.
        texts: The text of each row in the file, with its line end.
        fields: The fields of each row.
    """

    delimiter: str
    header: Sequence[str]
    texts: tuple[str, ...]
    fields: tuple[list[str], ...]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def digest(self) -> str:
        return blake2b("".join(self.texts).encode(), digest_size=8).hexdigest()

    def values(self, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        at = [self.header.index(name) for name in columns]
        for row in self.fields:
            yield tuple(row[index] for index in at)


@dataclass(frozen=True, slots=True)
class DelimitedTable:
    """A file of delimited text in UTF-8.

    Fields are quoted as in RFC 4180. Empty lines are not rows.

    Attributes:
        path: The file.
        delimiter: The character between fields.
    """

    path: Path
    delimiter: str

    def units(self, n_rows: int) -> Iterator[DelimitedRows]:
        records = delimited_records(self.path, self.delimiter)
        try:
            _, _, header = next(records)
            while block := list(islice(records, n_rows)):
                yield DelimitedRows(self.delimiter, header, tuple(x for _, x, _ in block), tuple(x for *_, x in block))
        finally:
            records.close()  # closes the file

    def columns(self, units: Iterator[TableRows]) -> tuple[InputColumn, ...]:
        for _ in units:
            pass
        return tuple(InputColumn(name) for name in self.header()[0])

    def header(self) -> tuple[list[str], str]:
        """Return the names of the columns, and the text of the header.

        The text begins with a byte order mark if the file does.
        """
        records = delimited_records(self.path, self.delimiter)
        _, text, names = next(records)
        records.close()
        with self.path.open("rb") as file:
            has_mark = file.read(len(_BOM)) == _BOM
        return names, "\ufeff" * has_mark + text


class DelimitedWriter:
    """Writes rows of any table as delimited text; a `TableWriter`.

    None becomes an empty field; mappings and lists become JSON.

    Args:
        file: The file to write.
        delimiter: The character between fields.
        source: The input table.
        scan: The columns and size of the input table.
        added: Names of the new columns.
    """

    def __init__(self, file: BinaryIO, delimiter: str, source: object, scan: Scan, added: Sequence[str]) -> None:
        self._file, self._delimiter, self._names = file, delimiter, scan.names
        self._special = re.compile(f'["\\r\\n{delimiter}]')
        self._text = io.StringIO()
        self._line_end = "\n"
        self._is_copy = isinstance(source, DelimitedTable) and source.delimiter == delimiter
        if isinstance(source, DelimitedTable) and self._is_copy:
            _, header = source.header()
            self._line_end = _find_line_end(header) or "\n"
            self._write_copy(header, added)
        else:
            self._write_fields([*scan.names, *added], self._line_end)
        self._flush()

    def write(self, rows: TableRows, cells: Sequence[Sequence[Cell]]) -> None:
        if self._is_copy and isinstance(rows, DelimitedRows):
            for text, added in zip(rows.texts, cells, strict=True):
                self._write_copy(text, [text_of_cell(cell) for cell in added])
        else:
            for values, added in zip(rows.values(self._names), cells, strict=True):
                self._write_fields([text_of_cell(value) for value in (*values, *added)], self._line_end)
        self._flush()

    def close(self) -> None:
        """There is nothing after the last row."""

    def _write_copy(self, text: str, added: Sequence[str]) -> None:
        """Write the unchanged text of a row, then its new fields."""
        end = _find_line_end(text)
        self._text.write(text[: len(text) - len(end)] + self._delimiter)
        self._write_fields(added, end or self._line_end)

    def _write_fields(self, fields: Sequence[str], end: str) -> None:
        """Write fields, separated by the delimiter, and a line end."""
        self._text.write(self._delimiter.join(map(self._quote, fields)) + end)

    def _quote(self, field: str) -> str:
        """Return a field, in quotes if it has any special character.

        It replaces `csv.writer`, which does not quote a CR if rows end with LF.
        """
        return '"' + field.replace('"', '""') + '"' if self._special.search(field) else field

    def _flush(self) -> None:
        """Write the buffered text to the file."""
        self._file.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def _find_line_end(text: str) -> str:
    """Return the line end of a row's text, "" if it has none."""
    for end in ("\r\n", "\n", "\r"):
        if text.endswith(end):
            return end
    return ""


_EXACT_FLOATS = range(-(1 << 53), (1 << 53) + 1)
"""Integers that a float64 represents exactly."""
_KINDS = {bool: "bool", float: "float", str: "text"}


@dataclass(frozen=True, slots=True, eq=False)
class JsonRows:
    """Rows of JSON Lines.

    Attributes:
        texts: The text of each object in the file, without white space around it.
        objects: The parsed objects.
    """

    texts: tuple[str, ...]
    objects: tuple[dict[str, Any], ...]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def digest(self) -> str:
        return blake2b("\n".join(self.texts).encode(), digest_size=8).hexdigest()

    def values(self, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        for one in self.objects:
            yield tuple(one.get(name) for name in columns)


@dataclass(frozen=True, slots=True)
class JsonTable:
    """A file of JSON Lines in UTF-8. Lines of white space are not rows.

    Attributes:
        path: The file.
    """

    path: Path

    def units(self, n_rows: int) -> Iterator[JsonRows]:
        rows = json_objects(self.path, finite=False)
        while block := list(islice(rows, n_rows)):
            yield JsonRows(tuple(text for _, text, _ in block), tuple(one for *_, one in block))

    def columns(self, units: Iterator[TableRows]) -> tuple[InputColumn, ...]:
        """Return a column for each key of any object, in order of first occurrence."""
        kinds: dict[str, set[str]] = {}
        for rows in units:
            for one in rows.objects if isinstance(rows, JsonRows) else ():
                for name, value in one.items():
                    kinds.setdefault(name, set()).add(_find_kind(value))
        return tuple(InputColumn(name, _merge_kinds(seen)) for name, seen in kinds.items())


def _find_kind(value: object) -> str:
    """Return the kind of a value: as of a column, or "null", or "long" (large int)."""
    if value is None or (type(value) is float and math.isnan(value)):
        return "null"
    if type(value) is int:
        return "int" if value in _EXACT_FLOATS else "long" if value in INT64 else "json"
    return _KINDS.get(type(value), "json")


def _merge_kinds(kinds: set[str]) -> str:
    """Return the kind of a column whose values have these kinds."""
    kinds = kinds - {"null"}
    if not kinds:
        return "text"
    if kinds <= {"int", "long"}:
        return "int"
    if kinds <= {"int", "float"}:
        return "float"
    return next(iter(kinds)) if len(kinds) == 1 else "json"


class JsonWriter:
    """Writes rows of any table as JSON Lines; a `TableWriter`.

    Args:
        file: The file to write.
        scan: The columns and size of the input table.
        added: Names of the new columns.
    """

    def __init__(self, file: BinaryIO, scan: Scan, added: Sequence[str]) -> None:
        self._file, self._names = file, scan.names
        self._keys = [json_of_cell(name) for name in scan.names]
        self._added = [json_of_cell(name) for name in added]

    def write(self, rows: TableRows, cells: Sequence[Sequence[Cell]]) -> None:
        objects = rows.texts if isinstance(rows, JsonRows) else self._write_objects(rows)
        lines = []
        for text, row in zip(objects, cells, strict=True):
            prefix = text[:-1].rstrip()  # the object without its closing brace
            new = ", ".join(f"{key}: {json_of_cell(cell)}" for key, cell in zip(self._added, row, strict=True))
            lines.append(f"{prefix}{', ' if len(prefix) > 1 else ''}{new}}}\n")
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """There is nothing after the last row."""

    def _write_objects(self, rows: TableRows) -> Iterator[str]:
        """Yield each row of another format as a JSON object."""
        for values in rows.values(self._names):
            pairs = zip(self._keys, values, strict=True)
            yield "{" + ", ".join(f"{key}: {json_of_cell(value)}" for key, value in pairs) + "}"


_BATCH_ROWS = 4096
_GROUP_ROWS = 1 << 14
"""Rows of a row group of the output."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows:
    """Rows of Parquet.

    Attributes:
        digest: Digest of the file and of the rows' position in it.
        batch: The rows, a `pyarrow.Table`.
    """

    digest: str
    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def values(self, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        lists = [self.batch.column(name).to_pylist() for name in columns]
        return zip(*lists, strict=True) if lists else iter([()] * len(self))


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A Parquet file.

    Attributes:
        path: The file.
    """

    path: Path

    def units(self, n_rows: int) -> Iterator[ArrowRows]:
        arrow = import_pyarrow()
        digest, at, rest = digest_of_bytes(self.path), 0, None
        with parquet_file(self.path) as file:
            for batch in file.iter_batches(batch_size=max(1, _BATCH_ROWS // n_rows) * n_rows):
                table = arrow.Table.from_batches([batch])
                rest = table if rest is None else arrow.concat_tables([rest, table])
                n_whole = rest.num_rows - rest.num_rows % n_rows
                for begins in range(0, n_whole, n_rows):
                    yield self._make_rows(digest, at + begins, rest.slice(begins, n_rows))
                at, rest = at + n_whole, rest.slice(n_whole)
            if rest is not None and rest.num_rows:
                yield self._make_rows(digest, at, rest)

    def columns(self, units: Iterator[TableRows]) -> tuple[InputColumn, ...]:
        for _ in units:
            pass
        return tuple(InputColumn(field.name, "arrow", field.type) for field in self.schema())

    def schema(self) -> Any:
        """Return the Arrow schema of the file, with its metadata."""
        with parquet_file(self.path) as file:
            return file.schema_arrow

    def _make_rows(self, digest: str, at: int, batch: Any) -> ArrowRows:
        """Return the rows of a batch; `digest` is the file's, `at` the first row."""
        rows_digest = blake2b(f"{digest} {at} {batch.num_rows}".encode(), digest_size=8)
        return ArrowRows(rows_digest.hexdigest(), batch)


class ParquetWriter:
    """Writes rows of any table as Parquet; a `TableWriter`.

    A column of labels is an Arrow dictionary, which data frames read as categories. A
    column of JSON Lines whose values have several types is written as JSON text.

    Args:
        file: The file to write.
        source: The input table.
        scan: The columns and size of the input table.
        added: The new columns.
    """

    def __init__(self, file: BinaryIO, source: object, scan: Scan, added: Sequence[Column]) -> None:
        from pyarrow.parquet import ParquetWriter as Writer

        arrow = import_pyarrow()
        self._arrow, self._scan, self._added = arrow, scan, added
        existing = [arrow.field(one.name, one.type or _find_arrow_type(arrow, one.kind)) for one in scan.columns]
        new = [arrow.field(one.name, _find_arrow_type(arrow, one.kind)) for one in added]
        metadata = source.schema().metadata if isinstance(source, ParquetTable) else None
        self._schema = arrow.schema([*existing, *new], metadata=metadata)
        self._writer = Writer(file, self._schema)
        self._pending: list[Any] = []
        self._n_pending = 0

    def write(self, rows: TableRows, cells: Sequence[Sequence[Cell]]) -> None:
        existing = self._make_source_arrays(rows)
        new = [self._make_array(one, [row[at] for row in cells]) for at, one in enumerate(self._added)]
        self._pending.append(self._arrow.Table.from_arrays([*existing, *new], schema=self._schema))
        self._n_pending += len(rows)
        if self._n_pending >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        """Write the pending rows as a row group."""
        if self._pending:
            self._writer.write_table(
                self._arrow.concat_tables(self._pending).combine_chunks(), row_group_size=_GROUP_ROWS
            )
        self._pending, self._n_pending = [], 0

    def _make_source_arrays(self, rows: TableRows) -> list[Any]:
        """Return the input table's columns of some rows, as Arrow arrays."""
        if isinstance(rows, ArrowRows):
            return list(rows.batch.columns)
        lists = list(zip(*rows.values(self._scan.names), strict=True))
        fields = zip(self._scan.columns, lists, strict=True)
        return [
            self._arrow.array(_convert_values(one.kind, values), _find_arrow_type(self._arrow, one.kind))
            for one, values in fields
        ]

    def _make_array(self, column: Column, cells: list[Cell]) -> Any:
        """Return the Arrow array of a new column."""
        arrow = self._arrow
        if column.kind != "label":
            return arrow.array(cells, _find_arrow_type(arrow, column.kind))
        index = {label: at for at, label in enumerate(column.labels)}
        at = arrow.array([None if cell is None else index[str(cell)] for cell in cells], arrow.int32())
        return arrow.DictionaryArray.from_arrays(at, arrow.array(column.labels, arrow.string()))


def _convert_values(kind: str, values: Sequence[Any]) -> list[Any]:
    """Return the values of a column of this kind for `pyarrow.array`.

    NaN becomes None, except in a column of floats.
    """
    if kind == "json":
        return [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    if kind == "float":
        return [None if value is None else float(value) for value in values]
    return [None if isinstance(value, float) else value for value in values]


def _find_arrow_type(arrow: Any, kind: str) -> Any:
    """Return the Arrow type of a column of this kind."""
    types: dict[str, Callable[[], Any]] = {"float": arrow.float64, "int": arrow.int64, "bool": arrow.bool_}
    if kind == "label":
        return arrow.dictionary(arrow.int32(), arrow.string())
    return types.get(kind, arrow.string)()


def open_table(path: Path) -> Table:
    """Return the table in a file, whose suffix decides the format.

    Raises:
        InputFileError: If `path` is not a regular file, or has an unknown suffix.
        MissingExtraError: For Parquet if pyarrow is not installed.
    """
    data_file_status(path, TABLE_SUFFIXES, "table")
    suffix = path.suffix.lower()
    if suffix in DELIMITERS:
        return DelimitedTable(path, DELIMITERS[suffix])
    if suffix == PARQUET:
        import_pyarrow()
        return ParquetTable(path)
    return JsonTable(path)


def check_output(out: Path, source: Path, scan: Scan | None = None) -> None:
    """Raise `OptionError` if a table cannot be written to the file `out`.

    Args:
        out: The file to write.
        source: The file of the input table.
        scan: The columns of the input table; None checks only the paths.
    """
    suffix = out.suffix.lower()
    if str(out) == "-" or suffix not in TABLE_SUFFIXES:
        allowed = f"a file whose name ends in one of {', '.join(TABLE_SUFFIXES)}; a run has a folder beside it"
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
    if suffix == PARQUET:
        import_pyarrow()
    elif scan is not None:
        binary = [one.name for one in scan.columns if one.type is not None and "binary" in str(one.type)]
        if binary:
            allowed = f"a file that ends in {PARQUET}: the column {binary[0]!r} holds bytes, not text"
            raise OptionError("out", str(out), allowed)


def writer_of(file: BinaryIO, out: Path, source: Table, scan: Scan, added: AnswerColumns) -> TableWriter:
    """Return the writer of a table with new columns, in the format of `out`.

    Args:
        file: The open file to write.
        out: The path of the results, whose suffix decides the format.
        source: The input table.
        scan: The columns and size of the input table.
        added: The new columns.
    """
    suffix = out.suffix.lower()
    if suffix in DELIMITERS:
        return DelimitedWriter(file, DELIMITERS[suffix], source, scan, added.names)
    if suffix == PARQUET:
        return ParquetWriter(file, source, scan, added.columns)
    return JsonWriter(file, scan, added.names)
