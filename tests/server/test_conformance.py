"""The tables of CONFORMANCE.md compare servers: every row has its test, and every field and endpoint a row."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.server import app
from selectrie.server.application import BODIES
from selectrie.server.calls.tokenizer import EncodeBody
from tests.support.serving import ask

HERE = Path(__file__).parent
PAGE = HERE / "CONFORMANCE.md"
_TEST = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_BAR = re.compile(r"(?<!\\)\|")


def conformance() -> str:
    """The page with the tables."""
    return PAGE.read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of the tables, without heads."""
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return [[cell.strip() for cell in _BAR.split(line)[1:-1]] for table in tables for line in table.splitlines()[2:]]


def unbacked(rows: list[list[str]]) -> list[str]:
    """The first cells of rows whose last cell does not name a test that exists."""
    found = []
    for row in rows:
        named = _TEST.fullmatch(row[-1])
        path = HERE / named[1] if named else HERE / "none"
        if named is None or not path.exists() or named[2] not in names_in(path):
            found.append(row[0])
    return found


@functools.cache
def names_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_row_has_a_test():
    """The last cell of each row names a test of this folder, and says something about each server beside."""
    text = conformance()
    rows = rows_of(text)
    assert unbacked(rows) == []
    assert {len(row) for row in rows} == {5, 7}
    assert all(row[0] and row[1] for row in rows)
    assert len({(row[0], row[1]) for row in rows}) == len(rows) == text.count(".py::")


def test_a_row_without_its_test_is_noticed():
    """No test, one that does not exist, a file that does not exist, or words beside it."""
    head = "| a | b |\n|---|---|\n"
    right = f"| right | `{Path(__file__).name}::test_every_row_has_a_test` |\n"
    wrong = [
        "",
        "`test_conformance.py::test_none`",
        "`test_none.py::test_every_row_has_a_test`",
        "see `test_middleware.py`",
    ]
    text = head + right + "".join(f"| {index} | {cell} |\n" for index, cell in enumerate(wrong))
    assert unbacked(rows_of(text)) == ["0", "1", "2", "3"]


def test_every_known_field_has_a_row():
    """What is read, refused or ignored by name: a new field of a model needs a row."""
    known = {
        name
        for path, kinds in BODIES.items()
        if path.startswith("/v1/")
        for kind in kinds
        for name in (field.alias or name for name, field in kind.model_fields.items())
    }
    known -= {*EncodeBody.model_fields} - {"model"}
    named = {name for row in rows_of(conformance()) for name in re.findall(r"`(\w+)(?:: [^`]*)?`", row[0])}
    assert sorted(known - named) == []


def test_every_endpoint_has_a_row_or_a_table():
    """Each path of OpenAPI's page."""
    paths = ask(app(None), "GET", "/openapi.json").json["paths"]
    assert [path for path in paths if f"`{path}`" not in conformance()] == []
