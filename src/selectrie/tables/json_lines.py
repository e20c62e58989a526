"""Tables as JSON Lines: an object on each line, whose keys are columns.

An object of the input is copied as it is written; the new keys are put behind its own.
Objects need not have the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from selectrie.decide.columns import Cell
from selectrie.runs.data_lines import json_object, numbered_lines, parsed_json
from selectrie.tables.rows import INT64, InputColumn, Rows, Scan, json_of_cell

SUFFIXES = (".jsonl", ".ndjson")
_EXACT = range(-(1 << 53), (1 << 53) + 1)
"""Whole numbers that are floats without a loss."""
_KINDS = {bool: "bool", float: "float", str: "text"}


@dataclass(frozen=True, slots=True, eq=False)
class JsonRows:
    """Rows of JSON Lines.

    Attributes:
        texts: Each object as it is written, without white space around it.
        objects: The objects.
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
        rows = self._rows()
        while block := list(islice(rows, n_rows)):
            yield JsonRows(tuple(text for text, _ in block), tuple(one for _, one in block))

    def columns(self, units: Iterator[Rows]) -> tuple[InputColumn, ...]:
        """Return the keys of all objects, in the order in which they first occur."""
        kinds: dict[str, set[str]] = {}
        for rows in units:
            for one in rows.objects if isinstance(rows, JsonRows) else ():
                for name, value in one.items():
                    kinds.setdefault(name, set()).add(_kind_of(value))
        return tuple(InputColumn(name, _common(seen)) for name, seen in kinds.items())

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in numbered_lines(self.path):
            text = line.strip()
            if text:
                yield text, json_object(self.path, parsed_json(self.path, text, number, finite=False), number)


def _kind_of(value: object) -> str:
    if value is None or (type(value) is float and math.isnan(value)):
        return "null"
    if type(value) is int:
        return "int" if value in _EXACT else "long" if value in INT64 else "json"
    return _KINDS.get(type(value), "json")


def _common(kinds: set[str]) -> str:
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
        file: Where to write.
        scan: What is known of the table that is read.
        added: Names of the new columns.
    """

    def __init__(self, file: BinaryIO, scan: Scan, added: Sequence[str]) -> None:
        self._file, self._names = file, scan.names
        self._keys = [json_of_cell(name) for name in scan.names]
        self._added = [json_of_cell(name) for name in added]

    def write(self, rows: Rows, cells: Sequence[Sequence[Cell]]) -> None:
        own = rows.texts if isinstance(rows, JsonRows) else self._objects(rows)
        lines = []
        for text, row in zip(own, cells, strict=True):
            begun = text[:-1].rstrip()
            new = ", ".join(f"{key}: {json_of_cell(cell)}" for key, cell in zip(self._added, row, strict=True))
            lines.append(f"{begun}{', ' if len(begun) > 1 else ''}{new}}}\n")
        self._file.write("".join(lines).encode())

    def close(self) -> None:
        """There is nothing after the last row."""

    def _objects(self, rows: Rows) -> Iterator[str]:
        for values in rows.values(self._names):
            pairs = zip(self._keys, values, strict=True)
            yield "{" + ", ".join(f"{key}: {json_of_cell(value)}" for key, value in pairs) + "}"
