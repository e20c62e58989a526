"""The imports of Python sources, wherever they stand."""

from __future__ import annotations

import ast
from functools import cache

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements; expressions hold none, and are most of a tree."""


@cache
def import_statements(text: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import of a source, also in functions, classes and branches."""
    found: list[ast.Import | ast.ImportFrom] = []
    statements: list[ast.AST] = [*ast.parse(text).body]
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append(statement)
        for block in _BLOCKS:
            statements += getattr(statement, block, ())
    return tuple(found)
