"""Record which tests reach a line of the sources, and what each test costs.

The suite runs once under coverage, one test file at a time. A part of the map is made
again if the sources, the test file or what all tests share has changed, so an
interrupted run continues where it stopped.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from reached import AT_IMPORT, shared

FORMAT = b"1"
"""Version of the map; a map of another version is made again from scratch."""
OWN = ("mutants", "mutations", "mutant_places", "coverage_map", "reached")
"""Tools that make the map; only their own tests depend on them."""
SOURCES = ("*.py", "*.json", "*.toml", "*.lark", "*.gbnf")


@dataclass(frozen=True, slots=True)
class Test:
    """A test that may run.

    file: where the test is. own_s: CPU seconds of the test itself. file_s: CPU seconds
    of importing its file. fixtures: CPU seconds of the fixtures that it shares with
    other tests of the file.
    """

    name: str
    file: str
    own_s: float
    file_s: float
    fixtures: dict[str, float] = field(default_factory=dict)

    @property
    def alone_s(self) -> float:
        """CPU seconds of the test and its fixtures."""
        return self.own_s + sum(self.fixtures.values())


def digest_of(*contents: bytes) -> str:
    """Return the digest of some bytes, one after the other."""
    digest = blake2b(digest_size=12)
    for content in contents:
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def digest_of_files(paths: Iterable[Path], root: Path) -> str:
    """Return the digest of the names and the contents of files."""
    return digest_of(
        *(part for path in sorted(paths) for part in (str(path.relative_to(root)).encode(), path.read_bytes()))
    )


@dataclass
class Part:
    """The map of one test file. data, answer: files that coverage and `reached` write."""

    file: str
    data: Path
    answer: Path

    @property
    def is_made(self) -> bool:
        return self.answer.exists() and self.data.exists()

    @cached_property
    def said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.answer.read_text(encoding="utf-8"))
        return said

    def contexts(self, path: str, line: int) -> set[str]:
        """Return the contexts in which a line was run."""
        from coverage.numbits import num_in_numbits

        with closing(sqlite3.connect(self.data)) as data:
            rows = data.execute(
                "select context.context, line_bits.numbits from line_bits"
                " join context on context.id = line_bits.context_id join file on file.id = line_bits.file_id"
                " where substr(file.path, -length(?1)) = ?1",
                (f"/{path}",),
            )
            return {context for context, bits in rows if num_in_numbits(line, bits)}

    def tests(self, contexts: set[str], *, at_import: bool) -> Iterator[Test]:
        """Yield the tests that run in one of the contexts.

        at_import: whether to yield all tests if one of the contexts is the import of
        the file itself.
        """
        every = at_import and AT_IMPORT in contexts
        for name, said in self.said["tests"].items():
            if every or name in contexts or any(shared(fixture) in contexts for fixture in said["fixtures"]):
                fixtures = {fixture: self.said["fixtures"][fixture] for fixture in said["fixtures"]}
                yield Test(name, self.file, said["s"], self.said["collecting_s"], fixtures)


class CoverageMap:
    """All parts of the map. digest: identifies everything that the map was made from."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.digest = digest_of(*(part.answer.name.encode() for part in parts))

    def tests_of(self, path: str, lines: Iterable[int]) -> list[Test]:
        """Return the tests that reach the first of the lines that any test reaches.

        If that line runs only while test files are imported, these are all tests of
        those files.
        """
        for line in dict.fromkeys(lines):
            contexts = [(part, part.contexts(path, line)) for part in self._parts]
            for at_import in (False, True):
                if found := [test for part, names in contexts for test in part.tests(names, at_import=at_import)]:
                    return found
        return []


def parts_of(root: Path, folder: Path) -> list[Part]:
    """Return a part for each test file below `tests`."""
    common = [
        path for path in (root / "tests").rglob("*") if path.suffix == ".py" and not path.name.startswith("test_")
    ]
    common += [path for pattern in SOURCES for folder in ("src", "grammars") for path in (root / folder).rglob(pattern)]
    common += [path for path in (root / "tools").glob("*.py") if path.stem not in OWN]
    of_all = digest_of(FORMAT, digest_of_files(common, root).encode()).encode()
    parts = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        stem = f"{name.removesuffix('.py').replace('/', '.')}-{digest_of(of_all, path.read_bytes())}"
        parts.append(Part(name, folder / f"{stem}.sqlite", folder / f"{stem}.json"))
    return parts


def in_order(tests: Iterable[Test], limit_s: float) -> list[Test]:
    """Order tests by the time that one needs alone, rounded up to a power of two, so
    that tests of one file stay together where possible.

    Tests that do not fit into the given time are left out.
    """
    ordered = sorted(tests, key=lambda test: (_power(test.alone_s), test.file_s, test.file, test.alone_s))
    kept: list[Test] = []
    left_s, paid = limit_s, set[tuple[str, str]]()
    for test in ordered:
        costs = {(test.file, ""): test.file_s} | {(test.file, name): s for name, s in test.fixtures.items()}
        cost = test.own_s + sum(s for what, s in costs.items() if what not in paid)
        if cost <= left_s or not kept:
            kept.append(test)
            paid.update(costs)
            left_s -= cost
    return kept


def _power(seconds: float) -> int:
    return int(seconds * 8).bit_length()
