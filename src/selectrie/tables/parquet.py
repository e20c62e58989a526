"""Tables in Parquet (extra `tables`). Columns of the input keep their types.

Row groups are read a part at a time. How the file is cut into row groups has no
influence on the units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from selectrie.decide.columns import Cell, Column
from selectrie.errors import InputFileError, MissingExtraError
from selectrie.tables.rows import InputColumn, Rows, Scan

SUFFIX = ".parquet"
_BATCH_ROWS = 4096
_GROUP_ROWS = 1 << 14
"""Rows of a row group of the output."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows:
    """Rows of Parquet.

    Attributes:
        digest: Digest of the file and of the position in it.
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
        arrow = _pyarrow()
        digest, at, rest = self._digest(), 0, None
        with self._opened() as file:
            for batch in file.iter_batches(batch_size=max(1, _BATCH_ROWS // n_rows) * n_rows):
                table = arrow.Table.from_batches([batch])
                rest = table if rest is None else arrow.concat_tables([rest, table])
                n_whole = rest.num_rows - rest.num_rows % n_rows
                for begins in range(0, n_whole, n_rows):
                    yield self._rows(digest, at + begins, rest.slice(begins, n_rows))
                at, rest = at + n_whole, rest.slice(n_whole)
            if rest is not None and rest.num_rows:
                yield self._rows(digest, at, rest)

    def columns(self, units: Iterator[Rows]) -> tuple[InputColumn, ...]:
        for _ in units:
            pass
        schema = self.schema()
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise InputFileError(str(self.path), f"two columns are called {twice!r}")
        return tuple(InputColumn(field.name, "arrow", field.type) for field in schema)

    def schema(self) -> Any:
        """Return the Arrow schema of the file, with its metadata."""
        with self._opened() as file:
            return file.schema_arrow

    def _rows(self, digest: str, at: int, batch: Any) -> ArrowRows:
        own = blake2b(f"{digest} {at} {batch.num_rows}".encode(), digest_size=8)
        return ArrowRows(own.hexdigest(), batch)

    def _digest(self) -> str:
        digest = blake2b(digest_size=16)
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        arrow = _pyarrow()
        try:
            from pyarrow.parquet import ParquetFile

            with ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
                yield file
        # ValueError: text that is not UTF-8, or an invalid time.
        except (arrow.ArrowException, ValueError, OverflowError) as error:
            raise InputFileError(str(self.path), f"not Parquet that can be read: {error}") from None


class ParquetWriter:
    """Writes rows of any table as Parquet; a `TableWriter`.

    Labels are dictionaries, which data frames read as categories. Columns of JSON Lines
    whose values have no type in common are text with JSON.

    Args:
        file: Where to write.
        source: The table that is read.
        scan: What is known of it.
        added: The new columns.
    """

    def __init__(self, file: BinaryIO, source: object, scan: Scan, added: Sequence[Column]) -> None:
        from pyarrow.parquet import ParquetWriter as Writer

        arrow = _pyarrow()
        self._arrow, self._scan, self._added = arrow, scan, added
        own = [arrow.field(one.name, one.type or _type_of(arrow, one.kind)) for one in scan.columns]
        new = [arrow.field(one.name, _type_of(arrow, one.kind)) for one in added]
        metadata = source.schema().metadata if isinstance(source, ParquetTable) else None
        self._schema = arrow.schema([*own, *new], metadata=metadata)
        self._writer = Writer(file, self._schema)
        self._held: list[Any] = []
        self._n_held = 0

    def write(self, rows: Rows, cells: Sequence[Sequence[Cell]]) -> None:
        own = self._own(rows)
        new = [self._new(one, [row[at] for row in cells]) for at, one in enumerate(self._added)]
        self._held.append(self._arrow.Table.from_arrays([*own, *new], schema=self._schema))
        self._n_held += len(rows)
        if self._n_held >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(self._arrow.concat_tables(self._held).combine_chunks(), row_group_size=_GROUP_ROWS)
        self._held, self._n_held = [], 0

    def _own(self, rows: Rows) -> list[Any]:
        """Return the columns of the input as arrays."""
        if isinstance(rows, ArrowRows):
            return list(rows.batch.columns)
        lists = list(zip(*rows.values(self._scan.names), strict=True))
        fields = zip(self._scan.columns, lists, strict=True)
        return [
            self._arrow.array(_as_kind(one.kind, values), _type_of(self._arrow, one.kind)) for one, values in fields
        ]

    def _new(self, column: Column, cells: list[Cell]) -> Any:
        arrow = self._arrow
        if column.kind != "label":
            return arrow.array(cells, _type_of(arrow, column.kind))
        index = {label: at for at, label in enumerate(column.labels)}
        at = arrow.array([None if cell is None else index[str(cell)] for cell in cells], arrow.int32())
        return arrow.DictionaryArray.from_arrays(at, arrow.array(column.labels, arrow.string()))


def _as_kind(kind: str, values: Sequence[Any]) -> list[Any]:
    """Return values as Arrow takes them; None for NaN, but in a column of floats."""
    if kind == "json":
        return [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    if kind == "float":
        return [None if value is None else float(value) for value in values]
    return [None if isinstance(value, float) else value for value in values]


def _type_of(arrow: Any, kind: str) -> Any:
    types: dict[str, Callable[[], Any]] = {"float": arrow.float64, "int": arrow.int64, "bool": arrow.bool_}
    if kind == "label":
        return arrow.dictionary(arrow.int32(), arrow.string())
    return types.get(kind, arrow.string)()


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise MissingExtraError("a Parquet file", "tables") from error
    return pa
