"""Tables as delimited text: `.csv` and `.tsv`, with a header.

A row of the input is copied as it is written, with its quotes and line end; the new
cells are put behind it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from selectrie.decide.columns import Cell
from selectrie.errors import InputFileError
from selectrie.runs.data_lines import numbered_lines
from selectrie.tables.rows import InputColumn, Rows, Scan, text_of_cell

_BOM = b"\xef\xbb\xbf"
DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, slots=True, eq=False)
class DelimitedRows:
    """Rows of delimited text.

    Attributes:
        delimiter: What separates fields.
        header: Names of the columns.
        texts: Each row as it is written, with its line end.
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
        delimiter: What separates fields.
    """

    path: Path
    delimiter: str

    def units(self, n_rows: int) -> Iterator[DelimitedRows]:
        records = self._records()
        try:
            _, _, header = next(records)
            while block := list(islice(records, n_rows)):
                texts, fields = tuple(one for _, one, _ in block), tuple(one for _, _, one in block)
                for line, _, row in block:
                    if len(row) != len(header):
                        reason = f"{len(row)} fields, and the header has {len(header)}"
                        raise InputFileError(str(self.path), reason, line=line)
                yield DelimitedRows(self.delimiter, header, texts, fields)
        finally:
            records.close()  # closes the file

    def columns(self, units: Iterator[Rows]) -> tuple[InputColumn, ...]:
        for _ in units:
            pass
        return tuple(InputColumn(name) for name in self.header()[0])

    def header(self) -> tuple[list[str], str]:
        """Return the names of the columns, and the header as it is written.

        The text begins with a byte order mark if the file does.
        """
        records = self._records()
        _, text, names = next(records)
        records.close()
        with self.path.open("rb") as file:
            has_mark = file.read(len(_BOM)) == _BOM
        return names, "\ufeff" * has_mark + text

    def _records(self) -> Generator[tuple[int, str, list[str]], None, None]:
        """Yield the header and every row: its first line, its text and its fields."""
        taken: list[str] = []
        lines = numbered_lines(self.path)

        def one_by_one() -> Iterator[str]:
            for _, line in lines:
                taken.append(line)
                yield line

        rows = csv.reader(one_by_one(), delimiter=self.delimiter, strict=True)
        begins, is_header = 1, True
        try:
            for row in rows:
                text = "".join(taken)
                if is_header:
                    self._check_header(row, begins)
                if row:
                    yield begins, text, row
                    is_header = False
                begins += len(taken)
                taken.clear()
        except csv.Error as error:
            reason = f"{error}, in the row that begins here"
            if "field limit" in str(error):
                reason += "; raise it with csv.field_size_limit(N)"
            raise InputFileError(str(self.path), reason, line=begins) from None
        if is_header:
            raise InputFileError(str(self.path), "it is empty; its first line must name the columns")

    def _check_header(self, names: list[str], line: int) -> None:
        twice = next((name for name in names if names.count(name) > 1), None)
        if not names or twice is not None:
            reason = "the line is empty" if not names else f"two columns are called {twice!r}"
            raise InputFileError(str(self.path), f"{reason}; the first line must name the columns", line=line)


class DelimitedWriter:
    """Writes rows of any table as delimited text; a `TableWriter`.

    None is an empty field, and what is nested is JSON.

    Args:
        file: Where to write.
        delimiter: What separates fields.
        source: The table that is read.
        scan: What is known of it.
        added: Names of the new columns.
    """

    def __init__(self, file: BinaryIO, delimiter: str, source: object, scan: Scan, added: Sequence[str]) -> None:
        self._file, self._delimiter, self._names = file, delimiter, scan.names
        self._special = re.compile(f'["\\r\\n{delimiter}]')
        self._text = io.StringIO()
        self._end = "\n"
        self._is_copy = isinstance(source, DelimitedTable) and source.delimiter == delimiter
        if isinstance(source, DelimitedTable) and self._is_copy:
            _, header = source.header()
            self._end = _end_of(header) or "\n"
            self._copy(header, added)
        else:
            self._fields([*scan.names, *added], self._end)
        self._flush()

    def write(self, rows: Rows, cells: Sequence[Sequence[Cell]]) -> None:
        if self._is_copy and isinstance(rows, DelimitedRows):
            for text, added in zip(rows.texts, cells, strict=True):
                self._copy(text, [text_of_cell(cell) for cell in added])
        else:
            for values, added in zip(rows.values(self._names), cells, strict=True):
                self._fields([text_of_cell(value) for value in (*values, *added)], self._end)
        self._flush()

    def close(self) -> None:
        """There is nothing after the last row."""

    def _copy(self, text: str, added: Sequence[str]) -> None:
        """Write a row as it is, then its new fields."""
        end = _end_of(text)
        self._text.write(text[: len(text) - len(end)] + self._delimiter)
        self._fields(added, end or self._end)

    def _fields(self, fields: Sequence[str], end: str) -> None:
        self._text.write(self._delimiter.join(map(self._quoted, fields)) + end)

    def _quoted(self, field: str) -> str:
        """Return a field, in quotes if it has any special character.

        `csv.writer` does not quote a lone CR where rows end with LF.
        """
        return '"' + field.replace('"', '""') + '"' if self._special.search(field) else field

    def _flush(self) -> None:
        self._file.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def _end_of(text: str) -> str:
    """Return the line end of a row, "" if it has none."""
    for end in ("\r\n", "\n", "\r"):
        if text.endswith(end):
            return end
    return ""
