"""Check whether two trees have the same code up to a table of names.

    python tools/same_code.py OLD NEW --names names.txt

OLD and NEW are folders. Each line of the table is `old new`, and may end with patterns
of the files that it applies to: `old new src/a/*.py tests/*.py`; without a pattern, it
applies everywhere. `#` begins a comment.

Every `*.py` of one tree is compared with the file of the same path in the other. The
syntax trees must be equal except for identifiers, and words of strings, that the table
allows to differ. The order of imports, and of the entries of `__all__` and `_HOME`, may
differ, and so may the line breaks of docstrings. Within one function, one class body or
one module, two names must not become one.

Exits with 0 and the number of files compared, or with 1 and every difference.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

SORTED = ("__all__", "_HOME")
_WORDS = re.compile(r"\w+|\W+")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class Table:
    """Which name may become which, by file."""

    def __init__(self, text: str) -> None:
        """Read the lines of a table. Raises `ValueError` for a malformed line."""
        self._patterns: dict[tuple[str, str], list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) < 2:
                raise ValueError(f"line {number}: expected `old new`, maybe with patterns of files: {line!r}")
            self._patterns.setdefault((words[0], words[1]), []).extend(words[2:] or ["*"])

    def allows(self, path: str) -> Callable[[str, str], bool]:
        """Return a function that tells whether in this file the first name may be the
        second.
        """
        pairs = {pair for pair, patterns in self._patterns.items() if any(fnmatch(path, one) for one in patterns)}
        return lambda old, new: old == new or (old, new) in pairs


class Comparison:
    """The differences between two versions of one file."""

    def __init__(self, allows: Callable[[str, str], bool]) -> None:
        self._allows = allows
        self.differences: list[str] = []

    def modules(self, old: str, new: str) -> list[str]:
        """Compare two sources and return their differences, each with a line of the old one."""
        self._scope(ast.parse(old), ast.parse(new), 0)
        return self.differences

    def _scope(self, old: ast.AST, new: ast.AST, line: int) -> None:
        """Compare what has a scope: a function, a class body or a module."""
        names: dict[str, str] = {}
        self._fields(old, new, line, names)

    def _variable(self, old: str, new: str, line: int, names: dict[str, str]) -> None:
        first = names.setdefault(new, old)
        if first != old:
            self.differences.append(f"{line}: {first!r} and {old!r} are both {new!r} here")

    def _fields(self, old: ast.AST, new: ast.AST, line: int, names: dict[str, str]) -> None:
        for name in old._fields:
            self._value(getattr(old, name, None), getattr(new, name, None), line, names)
        if isinstance(old, ast.Name) and isinstance(new, ast.Name):
            self._variable(old.id, new.id, line, names)
        if isinstance(old, ast.arg) and isinstance(new, ast.arg):
            self._variable(old.arg, new.arg, line, names)

    def _value(self, old: object, new: object, line: int, names: dict[str, str]) -> None:
        if isinstance(old, ast.AST) and isinstance(new, ast.AST):
            self._node(old, new, line, names)
        elif isinstance(old, list) and isinstance(new, list):
            self._sequence(_arranged(old, self._renamed(new)), _arranged(new, str), line, names)
        elif isinstance(old, str) and isinstance(new, str):
            if not self._allows(old, new):
                self.differences.append(f"{line}: {old!r} became {new!r}")
        elif type(old) is not type(new) or old != new:
            self.differences.append(f"{line}: {_shown(old)} became {_shown(new)}")

    def _node(self, old: ast.AST, new: ast.AST, line: int, names: dict[str, str]) -> None:
        line = getattr(old, "lineno", line)
        if type(old) is not type(new):
            self.differences.append(f"{line}: {_shown(old)} became {_shown(new)}")
        elif isinstance(old, ast.Expr) and isinstance(new, ast.Expr) and _is_text(old) and _is_text(new):
            texts = [" ".join(ast.literal_eval(one.value).split()) for one in (old, new)]
            self._constant(*texts, line)
        elif isinstance(old, ast.Constant) and isinstance(new, ast.Constant):
            self._constant(old.value, new.value, line)
        elif isinstance(old, ast.Assign) and isinstance(new, ast.Assign) and _is_sorted(old):
            name_now = self._renamed([new])
            entries = sorted(_entries(old), key=lambda one: [name_now(part) for part in one]), sorted(_entries(new))
            self._sequence(*([part for entry in side for part in entry] for side in entries), line, names)
        elif isinstance(old, _SCOPES):
            self._scope(old, new, line)
        else:
            self._fields(old, new, line, names)

    def _constant(self, old: object, new: object, line: int) -> None:
        if isinstance(old, str) and isinstance(new, str):
            parts = _WORDS.findall(old), _WORDS.findall(new)
            if len(parts[0]) == len(parts[1]) and all(map(self._allows, *parts)):
                return
        if type(old) is not type(new) or (old != new and repr(old) != repr(new)):
            self.differences.append(f"{line}: {_shown(old)} became {_shown(new)}")

    def _sequence(self, old: Sequence[object], new: Sequence[object], line: int, names: dict[str, str]) -> None:
        if len(old) != len(new):
            self.differences.append(f"{line}: {len(old)} parts became {len(new)}")
        for one, other in zip(old, new, strict=False):
            self._value(one, other, line, names)

    def _renamed(self, new: Sequence[object]) -> Callable[[str], str]:
        """Return how a name of the old file sorts: as what it is called in the new one."""
        known = {name for node in new if isinstance(node, ast.AST) for name in _names(node)}

        def name_now(old: str) -> str:
            return old if old in known else next((one for one in sorted(known) if self._allows(old, one)), old)

        return name_now


def _shown(value: object) -> str:
    text = ast.unparse(value) if isinstance(value, ast.AST) else repr(value)
    return text if len(text) < 100 else f"{text[:99]}…"


def _is_text(node: ast.Expr) -> bool:
    """Return whether it is a docstring, whose lines may be wrapped elsewhere."""
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_sorted(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id in SORTED


def _entries(node: ast.Assign) -> list[list[str]]:
    """Return the strings of a list, or the pairs of a dict."""
    value = node.value
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return [[ast.literal_eval(one) for one in pair if one is not None] for pair in pairs]
    return [[ast.literal_eval(one)] for one in getattr(value, "elts", [])]


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that imports, and strings of a sorted list, have."""
    for one in ast.walk(node):
        if isinstance(one, ast.alias):
            yield one.name
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _arranged(nodes: list[object], name_now: Callable[[str], str]) -> list[object]:
    """Sort the names of each import, and imports that follow each other."""
    arranged: list[object] = []
    run: list[tuple[str, str, ast.AST]] = []
    for node in [*nodes, None]:
        if isinstance(node, _IMPORTS):
            module = getattr(node, "module", None) or ""
            where = f"{type(node).__name__} {getattr(node, 'level', 0)} {module}"
            run += [(where, name_now(alias.name), alias) for alias in node.names]
            continue
        for where, name, alias in sorted(run, key=lambda one: one[:2]):
            arranged += [where, name_now(name), alias]
        run = []
        arranged.append(node)
    return arranged[:-1]


def compare(old: Path, new: Path, table: Table) -> tuple[int, list[str]]:
    """Compare two folders. Returns how many files were compared, and the differences."""
    sides = [{path.relative_to(root).as_posix(): path for path in _python_files(root)} for root in (old, new)]
    found = [f"{path}: only in {old}" for path in sorted(sides[0].keys() - sides[1].keys())]
    found += [f"{path}: only in {new}" for path in sorted(sides[1].keys() - sides[0].keys())]
    both = sorted(sides[0].keys() & sides[1].keys())
    for path in both:
        sources = [side[path].read_text(encoding="utf-8") for side in sides]
        if sources[0] != sources[1]:
            found += [f"{path}:{one}" for one in Comparison(table.allows(path)).modules(*sources)]
    return len(both), found


def _python_files(root: Path) -> Iterator[Path]:
    """Yield the sources below a folder, except those in hidden folders."""
    for path in root.rglob("*.py"):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Whether two trees hold the same code up to a table of names.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--names", type=Path, help="the table; without it no name may differ")
    options = parser.parse_args()
    table = Table("" if options.names is None else options.names.read_text(encoding="utf-8"))
    n, found = compare(options.old, options.new, table)
    print("\n".join([*found, f"{n} files, {len(found)} differences"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
