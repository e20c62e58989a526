"""Imports point down or sideways, never up, and there are no cycles: function-level and type-only imports included."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "selectrie"
DESIGN = SOURCE.parent.parent / "docs" / "design.md"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "types", "options", "output", "version"),  # 0: what everybody may know
    (
        "numerics",
        "vocabulary",
        "tracked_text",
        "boundary",
        "prompts",
        "turns",
        "pages",
        "trie",
        "automaton",
        "context_tree",
        "model",
    ),  # 1: text, tokens, trees, the ports
    ("grammar", "template", "results"),  # 2: compiled inputs; the records users hold
    (
        "chain",
        "closeness",
        "sampling",
        "scoring",
        "stopping",
        "tasks",
        "report",
    ),  # 3: rules, searches, samplers, and how records are shown
    (
        "draft",
        "local_rows",
        "jobs",
        "parts",
        "prefill",
        "calls",
        "scheduler",
        "owner",
        "unproved",
        "selecting",
        "layouts",
        "selfcheck",
        "settle",
        "errand",
        "answering",
        "measuring",
        "constraining",
        "beaming",
        "grammatical",
        "drawing",
        "product_search",
        "joint_search",
        "jointly",
        "generating",
        "string_body",
        "endings",
        "lots",
        "slots",
        "filling",
        "streaming",
        "asynchronous",
        "writing",
        "rendering",
        "render",
        "engine",
    ),  # 4: who calls the model
    ("backends", "schema", "testing", "evaluation"),  # 5: models, fakes, what is built on the engine
    (
        "cache",
        "embedded",
        "history",
        "trial",
        "trial_child",
        "loading",
        "registry",
        "inputs",
        "harness",
        "cluster",
        "cli",
        "server",
    ),  # 6: arguments and files
    ("__init__", "__main__"),  # 7: the promised names, the command
)
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}
HIGHEST_FOR = {"backends": 1}
"""Stricter than their layer: a back end is an adapter and knows the port, nothing that runs on it."""

THIRD_PARTY = {
    "numpy": frozenset(LAYER_OF) - {"errors", "options", "output", "version", "__init__"},
    "lark": frozenset({"grammar", "template"}),
    "rich": frozenset({"report", "cli"}),
    "typer": frozenset({"cli"}),
    "llama_cpp": frozenset({"backends", "grammar", "loading"}),
    "llguidance": frozenset({"grammar"}),
    "jinja2": frozenset({"backends"}),
    "huggingface_hub": frozenset({"loading"}),
    "regex": frozenset({"evaluation"}),
    "tomli": frozenset({"evaluation"}),
    "pyarrow": frozenset({"evaluation"}),
    "pandas": frozenset({"evaluation"}),
    "lm_eval": frozenset({"harness"}),
    "tqdm": frozenset({"harness"}),
    "ray": frozenset({"cluster"}),
}
"""Who may import what; a package that is not named here may be imported by nobody."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import as written: in which module, on which line, of what."""

    module: str
    line: int
    target: str


def part(module: str) -> str:
    """The entry of the layer table that a module belongs to: "selectrie.tasks.score" -> "tasks"."""
    return (*module.split("."), "__init__")[1]


def module_names(source: Path) -> dict[str, Path]:
    """Dotted name of every module below a package folder, `__init__` left out."""
    names = {}
    for path in sorted(source.rglob("*.py")):
        steps = path.relative_to(source.parent).with_suffix("").parts
        names[".".join(steps[:-1] if steps[-1] == "__init__" else steps)] = path
    return names


def imports_of(module: str, text: str, is_package: bool, known: frozenset[str]) -> Iterator[Import]:
    """Every import of a module, wherever it stands. `from a import b` counts as a.b where that is a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(module, node.lineno, name.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                steps = module.split(".")
                steps = steps[: len(steps) - node.level + is_package]
                base = ".".join([*steps, base] if base else steps)
            for name in node.names:
                inner = f"{base}.{name.name}"
                yield Import(module, node.lineno, inner if inner in known else base)


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
        own = part(found.module)
        root = found.target.split(".")[0]
        if own not in LAYER_OF:
            problems.append(f"{found.module} has no layer: name {own!r} in LAYERS")
        elif root == "selectrie":
            other = part(found.target)
            if LAYER_OF.get(other, 99) > min(LAYER_OF[own], HIGHEST_FOR.get(own, 99)) and other != own:
                problems.append(
                    f"{_short(found.module)} (layer {LAYER_OF[own]}) imports {_short(found.target)} "
                    f"(layer {LAYER_OF.get(other, '?')}), line {found.line}"
                )
        elif root not in sys.stdlib_module_names and own not in THIRD_PARTY.get(root, ()):
            problems.append(f"{_short(found.module)} imports {root}, which its layer may not, line {found.line}")
    return problems


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
    """Imports of modules given as {"tasks/beam.py": text}."""
    paths = {Path("selectrie", name): text for name, text in files.items()}
    modules = {".".join(p.with_suffix("").parts).removesuffix(".__init__"): p for p in paths}
    known = frozenset({*modules, *(f"selectrie.{name}" for name in LAYER_OF if name != "__init__")})
    return [
        found
        for module, path in modules.items()
        for found in imports_of(module, paths[path], path.name == "__init__.py", known)
    ]


def test_every_import_points_down_or_sideways():
    """No module imports from a higher layer, nor a package that is not its business."""
    assert violations(all_imports(SOURCE)) == []


def test_there_is_no_import_cycle():
    """Not even through imports inside functions."""
    assert cycle(all_imports(SOURCE)) == []


def test_every_module_has_a_layer():
    """A new module is placed in the table before it is merged."""
    assert {part(module) for module in module_names(SOURCE)} <= set(LAYER_OF)


def test_the_documented_table_is_this_one():
    """`docs/design.md` names every module that there is, in its layer."""
    there_are = {part(module) for module in module_names(SOURCE)}
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", DESIGN.read_text(), flags=re.MULTILINE)
    documented = {name: int(layer) for layer, names in rows for name in re.findall("`([^`]+)`", names)}
    assert documented == {name: layer for name, layer in LAYER_OF.items() if name in there_are}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from selectrie.engine import Engine", "tasks.beam (layer 3) imports engine (layer 4), line 1"),
        ("import selectrie.engine", "tasks.beam (layer 3) imports engine (layer 4), line 1"),
        ("from selectrie import engine", "tasks.beam (layer 3) imports engine (layer 4), line 1"),
        ("from ..engine import Engine", "tasks.beam (layer 3) imports engine (layer 4), line 1"),
        ("def f():\n    from selectrie import engine", "tasks.beam (layer 3) imports engine (layer 4), line 2"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from selectrie.engine import Engine",
            "tasks.beam (layer 3) imports engine (layer 4), line 3",
        ),
        ("import selectrie", "tasks.beam (layer 3) imports selectrie (layer 7), line 1"),
        ("import llama_cpp", "tasks.beam imports llama_cpp, which its layer may not, line 1"),
        ("import torch", "tasks.beam imports torch, which its layer may not, line 1"),
    ],
)
def test_a_planted_import_is_found(text, expected):
    """Each way of writing an upward import is reported with both layers and the line."""
    assert violations(written({"tasks/beam.py": text})) == [expected]


def test_a_back_end_knows_nothing_above_the_port():
    """A back end in layer 5 may still import layers 0 and 1 only."""
    allowed = "from selectrie import numerics\nfrom selectrie.backends import padding"
    assert violations(written({"backends/llama_cpp.py": allowed})) == []
    assert violations(written({"backends/llama_cpp.py": "from selectrie import scoring"})) == [
        "backends.llama_cpp (layer 5) imports scoring (layer 3), line 1"
    ]


def test_a_planted_cycle_is_found():
    """Two modules of one layer that know each other are a cycle, even where one import hides in a function."""
    files = {
        "tasks/score.py": "from selectrie.tasks import greedy",
        "tasks/greedy.py": "def late():\n    import selectrie.tasks.score",
    }
    assert set(cycle(written(files))) == {"selectrie.tasks.score", "selectrie.tasks.greedy"}


def test_a_module_without_a_layer_is_found():
    """A module that nobody placed is an error, not layer 0."""
    assert violations(written({"helpers.py": "import math"})) == [
        "selectrie.helpers has no layer: name 'helpers' in LAYERS"
    ]
