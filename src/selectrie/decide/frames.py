"""Data frames of pandas, polars and pyarrow: read by rows, and given new columns.

What they have in common is read through narwhals. New columns are made with the types
of each library, because those of its missing values differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from selectrie.decide.columns import Cell, Column
from selectrie.errors import MissingExtraError, OptionError

_ALLOWED = "a data frame of pandas, polars or pyarrow, in memory"
_PANDAS = {"text": "string", "float": "float64", "int": "Int64", "bool": "boolean"}
"""Types with missing values: a type does not depend on whether a row has an error."""


class Frame:
    """A data frame whose rows are decided about.

    Args:
        table: A data frame of pandas, polars or pyarrow.

    Raises:
        OptionError: For anything else, such as a lazy frame, and for a frame with two
            columns of one name.
        MissingExtraError: Without narwhals.
    """

    def __init__(self, table: object) -> None:
        try:
            import narwhals
        except ImportError as error:
            raise MissingExtraError("a data frame", "tables") from error
        self._narwhals = narwhals
        try:
            frame = narwhals.from_native(table, eager_only=True)
            names = frame.columns
        except narwhals.exceptions.DuplicateError as error:
            raise OptionError("table", table, "a data frame whose columns have different names") from error
        except TypeError as error:
            lazy = "; collect() a lazy one first" if hasattr(table, "collect") else ""
            raise OptionError("table", table, _ALLOWED + lazy) from error
        self._frame: Any = frame
        self.columns = tuple(name for name in names if isinstance(name, str))  # pandas has others too

    def __len__(self) -> int:
        return len(self._frame)

    def units(self, columns: Sequence[str], n_rows: int) -> Iterator[list[tuple[object, ...]]]:
        """Yield the values of some columns, row by row, `n_rows` rows at a time."""
        rows = self._frame.select(*columns).iter_rows(buffer_size=n_rows)
        while unit := list(islice(rows, n_rows)):
            yield unit

    def with_columns(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Any:
        """Return a frame of the same library with new columns behind its own.

        An index of pandas stays. Columns of labels are categorical, in the order of
        `Column.labels`. Missing cells are missing values of the library.

        Args:
            columns: The new columns.
            rows: The cells of each row, in the order of `columns`.
        """
        cells = list(zip(*rows, strict=True)) or [()] * len(columns)
        added = [self._series(column, own) for column, own in zip(columns, cells, strict=True)]
        return self._frame.with_columns(*added).to_native()

    def _series(self, column: Column, cells: Sequence[Cell]) -> Any:
        nw, kind = self._narwhals, self._frame.implementation
        native = kind.to_native_namespace()
        labels = list(dict.fromkeys(column.labels))
        if kind.is_pandas_like():
            dtype = native.CategoricalDtype(labels) if column.kind == "label" else _PANDAS[column.kind]
            series = native.Series(list(cells), dtype=dtype, index=self._frame.to_native().index)
            return nw.from_native(series, series_only=True).alias(column.name)
        if kind.is_pyarrow() and column.kind == "label":
            at = {label: i for i, label in enumerate(labels)}
            indices = native.array([None if cell is None else at[str(cell)] for cell in cells], native.int32())
            own = native.DictionaryArray.from_arrays(indices, native.array(labels, native.string()))
            return nw.from_native(native.chunked_array([own]), series_only=True).alias(column.name)
        dtypes = {"text": nw.String, "float": nw.Float64, "int": nw.Int64, "bool": nw.Boolean}
        dtype = nw.Enum(labels) if column.kind == "label" else dtypes[column.kind]
        return nw.new_series(column.name, list(cells), dtype, backend=kind)
