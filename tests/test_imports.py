"""What `import selectrie` loads, and that imports and declared dependencies are the same set."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = (
    "llama_cpp",
    "lark",
    "torch",
    "transformers",
    "jax",
    "rich",
    "typer",
    "fastapi",
    "huggingface_hub",
    "httpx",
    "requests",
    "aiohttp",
    "jinja2",
)
NOT_YET_IMPORTED = {"lark"}
"""Core dependencies that are declared ahead of their use: grammars and templates are parsed with lark."""

IMPORT_NAME = {"llama-cpp-python": "llama_cpp"}
"""Where the name of a distribution and of what it installs differ by more than a dash."""


def declared(text: str) -> dict[str, set[str]]:
    """Import names of a pyproject's dependencies, by extra; core ones under "".

    Read by pattern, a dependency a line: Python 3.10 has no TOML reader.
    """
    section, groups, open_group = "", {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif section in ("[project]", "[project.optional-dependencies]"):
            if start := re.match(r"(\w+) = \[", line):
                is_core = section == "[project]" and start[1] == "dependencies"
                open_group = "" if is_core else start[1] if "optional" in section else None
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
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - own - {"selectrie"} - sys.stdlib_module_names


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after a statement."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in run.stdout.split()}


def test_importing_selectrie_loads_nothing_heavy():
    """A script that only names selectrie does not pay for back ends, parsers or terminals."""
    loaded = loaded_by("import selectrie")
    assert "selectrie" in loaded
    assert not loaded & set(HEAVY)


def test_a_heavy_import_would_be_seen():
    """The probe of the test above sees what was loaded."""
    assert "lark" in loaded_by("import selectrie, lark")


def test_promised_names_exist():
    """Every name in `__all__` can be had, and `dir` shows it."""
    import selectrie

    missing = [name for name in selectrie.__all__ if getattr(selectrie, name, None) is None]
    assert missing == []
    assert set(selectrie.__all__) <= set(dir(selectrie))


def test_everything_imported_is_declared_and_everything_declared_is_imported():
    """The library's third-party imports are its dependencies and extras; nothing more, nothing less."""
    groups = declared((ROOT / "pyproject.toml").read_text())
    may_import = groups[""] | groups["hf"]
    assert imported(ROOT / "src") - may_import == set()
    assert may_import - imported(ROOT / "src") == NOT_YET_IMPORTED


def test_tests_import_only_what_the_test_extra_declares():
    """`pip install selectrie[test]` is enough to run the suite, the tools and the benchmarks."""
    groups = declared((ROOT / "pyproject.toml").read_text())
    allowed = groups[""] | groups["hf"] | groups["test"]
    tools = {path.stem for path in (ROOT / "tools").glob("*.py")}
    for folder in (ROOT / name for name in ("tests", "tools", "benchmarks", "examples")):
        own = tools | {path.stem for path in folder.rglob("*")} | {folder.name}
        assert imported(folder, own) - allowed == set()


def test_each_dependency_has_a_lower_bound_and_a_reason():
    """Beside each dependency stands since when it works and why it is needed."""
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if re.match(r'\s*"[A-Za-z0-9_-]+[>~]', line) or re.match(r"hf = ", line):
            assert re.search(r'"[A-Za-z0-9_-]+[>~]=[0-9.]+"\]?,?\s+# \S+', line), line


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
