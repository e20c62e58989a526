"""Count lines of code by room: `python tools/code_lines.py [ROOT]`.

A line counts if it holds a token other than a comment or a part of a docstring. Blank
lines, comments and docstrings do not count, so that prose costs nothing.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path
from statistics import median

SOURCE = Path("src") / "selectrie"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Return the number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(text))


def _docstring_lines(text: str) -> set[int]:
    """Return the lines of expressions that are strings alone."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def main(root: Path) -> None:
    """Print the lines of each room, the total, and the largest and the median module."""
    rooms: Counter[str] = Counter()
    modules: list[tuple[int, str]] = []
    for path in sorted((root / SOURCE).rglob("*.py")):
        name = path.relative_to(root / SOURCE)
        n_lines = code_lines(path.read_text(encoding="utf-8"))
        rooms[name.parts[0] if len(name.parts) > 1 else "."] += n_lines
        modules.append((n_lines, str(name)))
    for room, n_lines in sorted(rooms.items(), key=lambda one: -one[1]):
        print(f"{n_lines:7,} {room}")
    n_largest, largest = max(modules)
    print(f"{sum(rooms.values()):7,} in {len(modules)} modules, median {median(n for n, _ in modules):.0f}")
    print(f"{n_largest:7,} in the largest, {largest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
