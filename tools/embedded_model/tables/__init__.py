"""The tables of the corpus: text files that a person can edit; README.md describes their format."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_BRACKETS_AND_BARS = re.compile(r"[\[\]|]")


class Section(list[str]):
    """The entries of one section of a file, in order. blocks: the same entries, divided at blank lines."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.places: list[str] = []
        self.blocks: list[list[str]] = [[]]

    def add(self, line: str, place: str) -> None:
        """Add the entry of a line; a blank line begins a block, and a comment is left
        out.
        """
        if line != line.strip():
            raise ValueError(f"{place}: remove the blank at the beginning or the end of the line")
        if not line:
            self.blocks.append([])
        elif not line.startswith("#"):
            if line.count("[") != line.count("]"):
                raise ValueError(f"{place}: a bracket is not closed or not opened: {line}")
            self.append(line.replace("\\n", "\n"))
            self.places.append(place)
            self.blocks[-1].append(self[-1])

    def rows(self, n: int) -> list[list[str]]:
        """Split every entry into n cells, at the bars outside brackets."""
        rows = [cells(entry) for entry in self]
        for place, row in zip(self.places, rows, strict=True):
            if len(row) != n:
                raise ValueError(f"{place}: found {len(row)} cells between bars, expected {n}")
        return rows

    def words(self) -> list[str]:
        """Return the words of all entries."""
        return " ".join(self).split()


def cells(entry: str) -> list[str]:
    """Split an entry at the bars outside brackets: the bars inside separate
    alternatives.
    """
    depth, start, found = 0, 0, []
    for match in _BRACKETS_AND_BARS.finditer(entry):
        depth += {"[": 1, "]": -1, "|": 0}[match[0]]
        if match[0] == "|" and depth == 0:
            found.append(entry[start : match.start()])
            start = match.end()
    return [*found, entry[start:]]


@cache
def read(name: str, folder: Path = Path(__file__).parent) -> dict[str, Section]:
    """Read the sections of a file, by title, in their order."""
    sections: dict[str, Section] = {}
    section = None
    for number, line in enumerate((folder / f"{name}.txt").read_text(encoding="utf-8").split("\n"), start=1):
        place = f"{name}.txt:{number}"
        if line.startswith("== "):
            title = line.removeprefix("== ")
            if title in sections:
                raise ValueError(f"{place}: there is a section {title!r} already")
            section = sections[title] = Section(place)
        elif section is not None:
            section.add(line, place)
        elif line and not line.startswith("#"):
            raise ValueError(f"{place}: write a line `== title` before the first entry")
    for found in sections.values():
        if not found:
            raise ValueError(f"{found.place}: the section has no entry")
    return sections


def patterns(name: str, of: str) -> dict[str, tuple[str, ...]]:
    """Return the patterns of one relation: its sections `of: field`, by field."""
    own = {title: section for title, section in read(name).items() if title.startswith(f"{of}: ")}
    return {title.removeprefix(f"{of}: ").replace(" ", "_"): tuple(section) for title, section in own.items()}
