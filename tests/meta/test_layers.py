"""Layers are folders: imports between rooms point down, never up or sideways, and there are no cycles; function-level and
type-only imports included."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.import_statements import import_statements

SOURCE = Path(__file__).resolve().parents[2] / "src" / "selectrie"
DESIGN = SOURCE.parent.parent / "docs" / "design.md"

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "version",
    ),
    (
        "options",
        "core",
    ),
    (
        "results",
        "tokenization",
        "grammar",
        "backends",
        "traces",
    ),
    (
        "template",
        "decoding",
    ),
    ("decide",),
    (
        "testing",
        "engine",
    ),
    ("runs",),
    (
        "evaluation",
        "sklearn",
        "tables",
    ),
    ("server",),
    ("cli",),
    (
        "__init__",
        "__main__",
    ),
)
"""Rooms by floor, from 1 on. A room is a folder, or one of the five modules at the top."""
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS, 1) for room in rooms}

INNER: dict[str, tuple[tuple[str, ...], ...]] = {
    "engine": (
        (
            "scheduler",
            "sources",
        ),
        ("aio",),
        (
            "path_driver",
            "precision_check",
            "requests",
            "trial",
        ),
        (
            "rendering",
            "chat_child",
            "trial_child",
        ),
        ("thinking",),
        ("decision_prompts",),
        ("decisions",),
        ("extraction",),
        ("runtimes",),
        ("deciding",),
        ("engine",),
        ("cascade", "connect", "tracing"),
        ("load",),
        ("pool",),
    ),
    "decoding": (
        (
            "scoring",
            "task",
        ),
        ("search_state",),
        (
            "beam",
            "sampling",
            "spelling",
        ),
        (
            "automaton",
            "trie",
        ),
    ),
    "template": (
        ("syntax",),
        ("values",),
        ("analysis",),
        ("interpreter",),
    ),
    "grammar": (
        ("rules",),
        ("source_positions",),
        (
            "machine",
            "readers",
        ),
        (
            "acceptance",
            "token_mask",
        ),
        ("token_automaton",),
        (
            "enumeration",
            "llguidance",
        ),
        (
            "analysis",
            "schema",
        ),
        ("grammar",),
    ),
    "server": (
        ("options",),
        ("transport",),
        ("fields",),
        (
            "decisions",
            "generation",
        ),
        ("calls",),
        ("browser_page",),
        ("application",),
        ("serve",),
    ),
}
"""Folders and modules of a room, lowest first; those of one row do not import each other."""

ONLY = {
    "backends": frozenset({"core", "options", "errors"}),
    "decoding": frozenset({"core", "options", "errors", "results", "tokenization"}),
    "template": frozenset({"core", "options", "errors", "grammar"}),
    "decide": frozenset({"core", "options", "errors", "results", "grammar", "template", "decoding"}),
}
"""Stricter than the floor: a back end is an adapter and knows the port; searches know neither grammars nor back ends;
decisions know neither tokenizers nor back ends."""

THIRD_PARTY = {
    "numpy": frozenset(FLOOR_OF) - {"errors", "options", "version", "__init__", "__main__"},
    "lark": frozenset({"grammar", "template"}),
    "rich": frozenset({"cli", "backends.xla"}),
    "typer": frozenset({"cli"}),
    "llama_cpp": frozenset({"backends"}),
    "llguidance": frozenset({"grammar"}),
    "jinja2": frozenset({"backends.chat", "evaluation", "server.application"}),
    "safetensors": frozenset({"backends.transformers"}),
    "tokenizers": frozenset({"backends.transformers"}),
    "torch": frozenset({"backends.transformers", "backends.xla"}),
    "transformers": frozenset({"backends.transformers", "backends.xla"}),
    "jax": frozenset({"backends.xla"}),
    "fastapi": frozenset({"server"}),
    "pydantic": frozenset({"server"}),
    "starlette": frozenset({"server"}),
    "uvicorn": frozenset({"server.serve"}),
    "h11": frozenset({"server.serve"}),
    "prometheus_client": frozenset({"server.transport.state"}),
    "zstandard": frozenset({"server.transport.body"}),
    "compression": frozenset({"server.transport.body"}),
    "torchax": frozenset({"backends.xla"}),
    "httpx2": frozenset({"backends.remote"}),
    "huggingface_hub": frozenset({"engine.sources"}),
    "regex": frozenset({"evaluation"}),
    "tomli": frozenset({"runs.data_files"}),
    "pyarrow": frozenset({"runs.data_files", "tables.formats"}),
    "pandas": frozenset({"evaluation", "results", "decide.answers", "decide.classification"}),
    "sklearn": frozenset({"sklearn"}),
    "matplotlib": frozenset({"results", "decide.answers", "evaluation"}),
    "narwhals": frozenset({"decide.columns"}),
    "lm_eval": frozenset({"evaluation.lm_eval_model"}),
    "tqdm": frozenset({"evaluation.lm_eval_model"}),
    "typing_extensions": frozenset(
        {"decide.answers", "engine.cascade", "engine.deciding", "engine.engine"}
    ),  # for types only
    "ray": frozenset({"runs.actors"}),
}
"""Who may import what, by room or by module; a package that is not named here may be imported by nobody."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import as written: in which module, on which line, of what."""

    module: str
    line: int
    target: str


def room_of(module: str) -> str:
    """The room that a module belongs to: "selectrie.decoding.task" -> "decoding"."""
    return (*module.split("."), "__init__")[1]


def unit_of(module: str) -> str:
    """The folder or module below its room: "selectrie.decoding.beam.search" -> "beam"; "" for the room itself."""
    return (*module.split("."), "", "")[2]


def floor_in(room: str, unit: str) -> int:
    """The row of a unit within its room, from 0 on; -1 where the room's table does not name it."""
    return next((floor for floor, units in enumerate(INNER[room]) if unit in units), -1)


def module_names(source: Path) -> dict[str, Path]:
    """Dotted name of every module below a package folder, `__init__` left out."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        steps = path.relative_to(source.parent).with_suffix("").parts
        names[".".join(steps[:-1] if steps[-1] == "__init__" else steps)] = path
    return names


def imports_of(module: str, text: str, is_package: bool, known: frozenset[str]) -> Iterator[Import]:
    """Every import of a module, wherever it stands. `from a import b` counts as a.b where that is a module."""
    for node in import_statements(text):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(module, node.lineno, name.name)
        else:
            base = node.module or ""
            if node.level:
                steps = module.split(".")
                steps = steps[: len(steps) - node.level + is_package]
                base = ".".join([*steps, base] if base else steps)
            for name in node.names:
                inner = f"{base}.{name.name}"
                yield Import(module, node.lineno, inner if inner in known else base)


@functools.cache
def all_imports(source: Path) -> list[Import]:
    """Every import of every module of a package."""
    names = module_names(source)
    return [
        found
        for module, path in names.items()
        for found in imports_of(module, path.read_text(), path.name == "__init__.py", frozenset(names))
    ]


def violations(imports: list[Import]) -> list[str]:
    """Sentences about imports that the tables do not allow."""
    problems = []
    for found in imports:
        own = room_of(found.module)
        root = found.target.split(".")[0]
        if own not in FLOOR_OF:
            problems.append(f"{found.module} has no floor: name the room {own!r} in FLOORS")
        elif root == "selectrie":
            problems += _between_rooms(found) if room_of(found.target) != own else _within_a_room(found)
        elif root not in sys.stdlib_module_names and not _is_allowed(found.module, THIRD_PARTY.get(root, frozenset())):
            problems.append(f"{_short(found.module)} imports {root}, which its room may not, line {found.line}")
    return problems


def _between_rooms(found: Import) -> list[str]:
    own, other = room_of(found.module), room_of(found.target)
    floor = FLOOR_OF.get(other, 99)
    if floor < FLOOR_OF[own] and other in ONLY.get(own, FLOOR_OF):
        return []
    upper, lower = (
        f"{_short(name)} (floor {FLOOR_OF.get(room_of(name), '?')})" for name in (found.module, found.target)
    )
    return [f"{upper} imports {lower}, line {found.line}"]


def _within_a_room(found: Import) -> list[str]:
    room, own, other = room_of(found.module), unit_of(found.module), unit_of(found.target)
    if room not in INNER or own in ("", other):
        return []
    if floor_in(room, own) < 0:
        return [f"{_short(found.module)} has no row: name {own!r} in INNER"]
    if 0 <= floor_in(room, other) < floor_in(room, own):
        return []
    return [f"{_short(found.module)} imports {_short(found.target)}, which is not below it, line {found.line}"]


def _is_allowed(module: str, places: frozenset[str]) -> bool:
    """Does a module lie at or below one of these rooms, folders or modules?"""
    return room_of(module) in places or any(f"{_short(module)}.".startswith(f"{place}.") for place in places)


def cycle(imports: list[Import]) -> list[str]:
    """The modules of one import cycle, or nothing."""
    graph: dict[str, set[str]] = {}
    for found in imports:
        graph.setdefault(found.module, set())
        if found.target.split(".")[0] == "selectrie" and found.target != found.module:
            graph[found.module].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _short(module: str) -> str:
    return module.removeprefix("selectrie.")


def written(files: Mapping[str, str]) -> list[Import]:
    """Imports of modules given as {"decoding/beam/search.py": text}."""
    paths = {Path("selectrie", name): text for name, text in files.items()}
    modules = {".".join(p.with_suffix("").parts).removesuffix(".__init__"): p for p in paths}
    known = frozenset({*modules, *(f"selectrie.{name}" for name in FLOOR_OF if name != "__init__")})
    return [
        found
        for module, path in modules.items()
        for found in imports_of(module, paths[path], path.name == "__init__.py", known)
    ]


def test_every_import_points_down_or_sideways():
    """No module imports from a higher room or one beside its own, nor a package that is not its business; within the
    rooms of the inner tables the same holds for folders."""
    assert violations(all_imports(SOURCE)) == []


def test_there_is_no_import_cycle():
    """Not even through imports inside functions."""
    assert cycle(all_imports(SOURCE)) == []


def test_every_module_has_a_layer():
    """Every folder is a room with a floor, and the inner tables name every folder and module of theirs, and no other."""
    names = set(module_names(SOURCE))
    assert {room_of(module) for module in names} <= set(FLOOR_OF)
    assert {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"assets", "__pycache__"} <= set(FLOOR_OF)
    for room, rows in INNER.items():
        there_are = {unit_of(module) for module in names if room_of(module) == room} - {""}
        assert sorted(unit for row in rows for unit in row) == sorted(there_are)


def test_the_documented_table_is_this_one():
    """`docs/design.md` names every room that there is, on its floor."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", DESIGN.read_text(), flags=re.MULTILINE)
    documented = {name: int(floor) for floor, names in rows for name in re.findall("`([^`]+)`", names)}
    assert documented == FLOOR_OF


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from selectrie.engine import Engine", "decoding.beam.search (floor 4) imports engine (floor 6), line 1"),
        ("import selectrie.engine", "decoding.beam.search (floor 4) imports engine (floor 6), line 1"),
        ("from selectrie import engine", "decoding.beam.search (floor 4) imports engine (floor 6), line 1"),
        ("from ...engine import Engine", "decoding.beam.search (floor 4) imports engine (floor 6), line 1"),
        (
            "def f():\n    from selectrie import engine",
            "decoding.beam.search (floor 4) imports engine (floor 6), line 2",
        ),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from selectrie.engine import Engine",
            "decoding.beam.search (floor 4) imports engine (floor 6), line 3",
        ),
        ("from selectrie import template", "decoding.beam.search (floor 4) imports template (floor 4), line 1"),
        ("import selectrie.grammar", "decoding.beam.search (floor 4) imports grammar (floor 3), line 1"),
        (
            "import selectrie.decoding.trie",
            "decoding.beam.search imports decoding.trie, which is not below it, line 1",
        ),
        ("import selectrie", "decoding.beam.search (floor 4) imports selectrie (floor 11), line 1"),
        ("import llama_cpp", "decoding.beam.search imports llama_cpp, which its room may not, line 1"),
        ("import torch", "decoding.beam.search imports torch, which its room may not, line 1"),
    ],
)
def test_a_planted_import_is_found(text, expected):
    """Each way of writing an upward import, or one to the side, is reported with both floors and the line."""
    assert violations(written({"decoding/beam/search.py": text})) == [expected]


def test_a_back_end_knows_nothing_above_the_port():
    """A back end may import the rooms of floors 1 and 2 only."""
    allowed = "from selectrie import core\nfrom selectrie.backends import padding"
    assert violations(written({"backends/llama_cpp.py": allowed})) == []
    above = {"backends/llama_cpp.py": "from selectrie import decoding\nfrom selectrie import results"}
    assert violations(written(above)) == [
        "backends.llama_cpp (floor 3) imports decoding (floor 4), line 1",
        "backends.llama_cpp (floor 3) imports results (floor 3), line 2",
    ]


def test_a_planted_cycle_is_found():
    """Two modules of one folder that know each other are a cycle, even where one import hides in a function."""
    files = {
        "decoding/trie/exhaustive.py": "from selectrie.decoding.trie import greedy",
        "decoding/trie/greedy.py": "def late():\n    import selectrie.decoding.trie.exhaustive",
    }
    assert set(cycle(written(files))) == {"selectrie.decoding.trie.exhaustive", "selectrie.decoding.trie.greedy"}


def test_a_module_without_a_layer_is_found():
    """A module that nobody placed is an error, not floor 1."""
    assert violations(written({"helpers.py": "import math"})) == [
        "selectrie.helpers has no floor: name the room 'helpers' in FLOORS"
    ]
    assert violations(written({"decoding/helpers.py": "import selectrie.decoding.task"})) == [
        "decoding.helpers has no row: name 'helpers' in INNER"
    ]
