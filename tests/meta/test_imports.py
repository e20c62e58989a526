"""What `import selectrie` loads, and that imports and declared dependencies are the same set."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.import_statements import import_statements

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "llama_cpp",
    "llguidance",
    "lark",
    "torch",
    "transformers",
    "jax",
    "torchax",
    "rich",
    "typer",
    "fastapi",
    "huggingface_hub",
    "httpx",
    "httpx2",
    "requests",
    "aiohttp",
    "jinja2",
)
MOST_MODULES_OF_IMPORT = 60
"""Beyond a bare interpreter's: 31 on Python 3.11, which `typing` and `re` bring. Time grows with them, and is measured by
`benchmarks/startup.py`."""
MOST_MODULES_OF_HELP = 200
"""Beyond a bare interpreter's: 129 on Python 3.11, most of them typer's."""
NOT_YET_IMPORTED: set[str] = set()
"""Core dependencies that are declared ahead of their use."""

EXTRAS = (
    "transformers",
    "xla",
    "hf",
    "lm-eval",
    "ray",
    "parquet",
    "tables",
    "pandas",
    "sklearn",
    "plot",
    "server",
    "remote",
)
"""Of the library."""
SKIPPED_WITHOUT = (
    *(name for name in EXTRAS if name != "hf"),
    "parity",
    "frames",
    "test-clients",
    "clients",
    "page",
    "docs",
)
"""Extras and groups without which tests and benchmarks skip by name."""

LATER = ("compression", "typing_extensions")
"""Modules of the standard library of a later Python; every type checker has the second, which is imported for types only."""
IMPORT_NAME = {
    "llama-cpp-python": "llama_cpp",
    "scikit-learn": "sklearn",
    "pydantic-ai-slim": "pydantic_ai",
    "pyyaml": "yaml",
    "llama-index-llms-openai-like": "llama_index",
}
"""Where the name of a distribution and of what it installs differ by more than a dash."""


def declared(text: str) -> dict[str, set[str]]:
    """Import names of a pyproject's dependencies, by extra or group; core ones under "".

    Read by pattern, a dependency a line: Python 3.10 has no TOML reader.
    """
    section, groups, open_group = "", {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif section in ("[project]", "[project.optional-dependencies]", "[dependency-groups]"):
            if start := re.match(r"([\w-]+) = \[", line):
                is_core = section == "[project]" and start[1] == "dependencies"
                open_group = "" if is_core else None if section == "[project]" else start[1]
            if open_group is not None:
                names = re.findall(r'"([A-Za-z0-9_-]+)[^"]*"', line.split("#")[0])
                groups.setdefault(open_group, set()).update(IMPORT_NAME.get(n, n.replace("-", "_")) for n in names)
            if line.split("#")[0].rstrip().endswith("]"):
                open_group = None
    return groups


def imported(folder: Path, own: set[str] = frozenset()) -> set[str]:
    """Third-party packages that the Python files of a folder import, at any level of nesting; `own` names are not."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in import_statements(path.read_text()):
            if isinstance(node, ast.Import):
                names |= {name.name.split(".")[0] for name in node.names}
            elif not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - own - {"selectrie", *LATER} - sys.stdlib_module_names


def modules_after(statements: str) -> set[str]:
    """Modules in a fresh interpreter after these statements; what they print is passed over."""
    code = f"import sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n{statements}\nprint()\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())


def loaded_by(statements: str) -> set[str]:
    """Top-level modules in a fresh interpreter after these statements."""
    return {name.split(".")[0] for name in modules_after(statements)}


def command(*arguments: str) -> str:
    """Statements that run the command line with these arguments."""
    lines = (
        f"sys.argv[1:] = {list(arguments)!r}",
        "from selectrie.cli import main",
        "try:",
        "    main()",
        "except SystemExit as end:",
        "    assert not end.code, end.code",
    )
    return "\n".join(lines)


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """Modules of an interpreter that was asked for nothing."""
    return modules_after("pass")


def test_importing_selectrie_loads_nothing_heavy():
    """A script that only names selectrie does not pay for back ends, parsers or terminals."""
    loaded = loaded_by("import selectrie")
    assert "selectrie" in loaded
    assert not loaded & set(HEAVY)


def test_importing_selectrie_loads_two_modules_of_its_own(bare):
    """Its front page and its version; what it takes from the standard library is little, and NumPy is not in it."""
    added = modules_after("import selectrie") - bare
    assert {name for name in added if name.startswith("selectrie")} == {"selectrie", "selectrie.version"}
    assert len(added) <= MOST_MODULES_OF_IMPORT


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["select", "--help"]], ids=" ".join)
def test_help_loads_only_the_command_line(bare, arguments):
    """Who asks for help does not wait for arrays, back ends, reports or the engine."""
    added = modules_after(command(*arguments)) - bare
    own = {name.split(".")[1] for name in added if name.startswith("selectrie.")}
    assert own <= {"cli", "core", "errors", "options", "version"}
    assert "selectrie.cli.commands" in added
    assert not {name.split(".")[0] for name in added} & (set(HEAVY) - {"typer"} | {"numpy"})
    assert len(added) <= MOST_MODULES_OF_HELP or "select" in arguments  # a command's help is laid out: 242


def test_the_first_selection_loads_no_other_request():
    """Who selects does not wait for grammars, templates, sampling, servers, traces, an event loop or the command line."""
    added = modules_after("import selectrie\nwith selectrie.load() as llm: llm.select('It is', [' so', ' not'])")
    own = {name for name in added if name.startswith("selectrie.")}
    for room in (
        *("cli", "decide", "evaluation", "grammar", "runs", "server", "tables", "template", "testing"),
        *("decoding.automaton", "decoding.beam", "decoding.sampling", "decoding.spelling"),
        *("engine.rendering", "engine.tracing", "engine.path_driver", "engine.trial", "engine.requests.generate"),
        *("backends.remote", "backends.transformers", "backends.xla", "backends.chat.environment", "traces.reader"),
    ):
        assert not [name for name in own if f"{name}.".startswith(f"selectrie.{room}.")], room
    assert not added & {"asyncio", "typer", "rich", "lark", "llguidance"}


def test_a_heavy_import_would_be_seen(bare):
    """The probe of the tests above sees what was loaded, and the counts are exceeded by it."""
    assert "lark" in loaded_by("import selectrie, lark")
    assert len(modules_after("import selectrie, lark") - bare) > MOST_MODULES_OF_IMPORT
    assert len(modules_after(command("--help") + "\nimport selectrie.engine.engine") - bare) > MOST_MODULES_OF_HELP


def test_promised_names_exist():
    """Every name in `__all__` can be had, and `dir` shows it."""
    import selectrie

    missing = [name for name in selectrie.__all__ if getattr(selectrie, name, None) is None]
    assert missing == []
    assert set(selectrie.__all__) <= set(dir(selectrie))


def test_everything_imported_is_declared_and_everything_declared_is_imported():
    """The library's third-party imports are its dependencies and extras; nothing more, nothing less."""
    groups = declared((ROOT / "pyproject.toml").read_text())
    may_import = groups[""].union(*(groups[extra] for extra in EXTRAS))
    assert imported(ROOT / "src") - may_import == set()
    assert may_import - imported(ROOT / "src") == NOT_YET_IMPORTED


def test_tests_import_only_what_the_test_extra_declares():
    """`pip install selectrie[test]` is enough to run the suite, the tools and the benchmarks, but for the training of the
    embedded model and what benchmarks compare with, which have groups of their own; and what
    `make mutants` measures coverage with in `dev`. What tests skip by name without is in other extras and in the group `parity`."""
    groups = declared((ROOT / "pyproject.toml").read_text())
    allowed = groups[""] | groups["hf"] | groups["test"]
    tools = {path.stem for path in (ROOT / "tools").iterdir()}
    for folder in (ROOT / name for name in ("tests", "tools", "benchmarks", "examples")):
        own = tools | {path.stem for path in folder.rglob("*")} | {folder.name}
        of_tools = groups["train"] | (groups["dev"] & {"coverage"})
        beyond = {"tools": of_tools, "benchmarks": groups["bench"] - allowed}.get(folder.name, set())
        optional = (
            groups["page"] | groups["server"] | groups["remote"]
            if folder.name == "tools"
            else set().union(*(groups[name] for name in SKIPPED_WITHOUT))
        )
        assert imported(folder, own) - allowed - (optional - beyond) == beyond


def test_each_dependency_has_a_lower_bound_and_a_reason():
    """Beside each dependency stands since when it works and why it is needed."""
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if re.match(r'\s*"[A-Za-z0-9_-]+[>~=]=', line) or re.match(rf"({'|'.join(EXTRAS)}) = .*\"", line):
            assert re.search(r'"[A-Za-z0-9_-]+[>~=]=[0-9.*]+(; [^"]+)?"\]?,?\s+# \S+', line), line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[project]\ndependencies = [\n  "llama-cpp-python>=1",  # "x" y\n  "a-b>=2", # z\n]',
            {"": {"llama_cpp", "a_b"}},
        ),
        ('[project]\nkeywords = ["x"]\n[project.optional-dependencies]\nhf = ["h>=1"]', {"hf": {"h"}}),
    ],
)
def test_dependencies_are_read(text, expected):
    """Comments, keywords and classifiers are no dependencies."""
    assert declared(text) == expected
