"""Count lines of code by room: `python tools/code_lines.py [ROOT]`.

A line of Python counts if it holds a token other than a comment or a part of a
docstring. Blank lines, comments and docstrings do not count, so that prose costs
nothing. Lines of templates, grammars, tasks and pages are shown beside those of Python
and are not part of their total.
"""

from __future__ import annotations

import ast
import io
import re
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
COMMENTS = {
    ".css": r"/\*.*?\*/",
    ".html": r"<!--.*?-->",
    ".js": r"/\*.*?\*/|^\s*//[^\n]*",
    ".lark": r"^\s*//[^\n]*",
    ".tmpl": r"<<~?!--.*?--~?>>|<<~?!.*?>>",
    ".toml": r"^\s*#[^\n]*",
}
"""Comments in files that are not Python, by their suffix. Those behind code on a line
are of no interest.
"""


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


def statements(text: str) -> int:
    """Return the number of statements of a module, docstrings included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))


def other_lines(text: str, suffix: str) -> int:
    """Return the number of lines that are neither blank nor a comment.

    Args:
        text: The text of a file that is not Python.
        suffix: One of `COMMENTS`.
    """
    code = re.sub(COMMENTS[suffix], lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return sum(bool(line.strip()) for line in code.splitlines())


def main(root: Path) -> None:
    """Print the lines of each room, the totals, and the largest and the median module."""
    rooms: Counter[str] = Counter()
    n_statements = 0
    modules: list[tuple[int, str]] = []
    for path in sorted((root / SOURCE).rglob("*.py")):
        name, text = path.relative_to(root / SOURCE), path.read_text(encoding="utf-8")
        n_lines = code_lines(text)
        n_statements += statements(text)
        rooms[name.parts[0] if len(name.parts) > 1 else "."] += n_lines
        modules.append((n_lines, str(name)))
    for room, n_lines in sorted(rooms.items(), key=lambda one: -one[1]):
        print(f"{n_lines:7,} {room}")
    n_largest, largest = max(modules)
    print(f"{sum(rooms.values()):7,} in {len(modules)} modules, median {median(n for n, _ in modules):.0f}")
    print(f"{n_largest:7,} in the largest, {largest}")
    print(f"{n_statements:7,} statements")
    others: Counter[str] = Counter()
    for path in (root / SOURCE).rglob("*"):
        if path.suffix in COMMENTS:
            others[path.suffix] += other_lines(path.read_text(encoding="utf-8"), path.suffix)
    shown = ", ".join(f"{n_lines:,} {suffix}" for suffix, n_lines in others.most_common())
    print(f"{others.total():7,} in files that are not Python: {shown}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
