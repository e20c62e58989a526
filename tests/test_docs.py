"""Documentation is run: snippets execute, commands work, and everything a user can name is described."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS = ["park", "store", "moon", "sword", "shower", "park to play"]


def snippets(text: str, *languages: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks of these languages, each with the line it begins on."""
    for block in FENCE.finditer(text):
        if block[1] in languages:
            yield text.count("\n", 0, block.start()) + 2, block[2]


def commands(text: str) -> Iterator[str]:
    """The command lines of a page's shell blocks that call selectrie, continued lines joined."""
    for _, block in snippets(text, "sh", "console", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ")
            if re.search(r"(^|\| *)selectrie ", command):
                yield command


def pages_with(*languages: str) -> list[Path]:
    """Pages that have a block of these languages."""
    return [page for page in PAGES if page.exists() and any(snippets(page.read_text(), *languages))]


def label(value: object) -> str:
    """A short name of a page or a command for pytest."""
    return value.stem if isinstance(value, Path) else str(value)[:40]


@pytest.fixture
def workplace(tmp_path, monkeypatch, any_model):
    """A folder with the files that the documentation names: a model and some texts."""
    (tmp_path / "model.gguf").symlink_to(any_model)
    (tmp_path / "p.txt").write_text("Once upon a time there was a little girl. She went to the\n")
    for name in ("labels.txt", "choices.txt", "100k.txt"):
        (tmp_path / name).write_text("".join(f" {word}\n" for word in WORDS))
    (tmp_path / "choices.json").write_text(json.dumps([f" {word}" for word in WORDS]))
    (tmp_path / "messages.json").write_text(json.dumps([{"role": "user", "content": "Where to?"}]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("python"), ids=label)
def test_python_snippets_run(page, workplace):
    """The Python blocks of a page run from top to bottom, in one namespace, as a reader would paste them."""
    namespace: dict[str, object] = {"__name__": "snippet"}
    for line, block in snippets(page.read_text(), "python"):
        source = "\n" * (line - 1) + block
        exec(compile(source, str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.parametrize(
    ("page", "command"),
    [(page, command) for page in PAGES if page.exists() for command in commands(page.read_text())],
    ids=label,
)
def test_commands_run(page, command, workplace):
    """The command lines of a page work as printed."""
    shell = f'selectrie() {{ {sys.executable} -m selectrie.cli "$@"; }}\nset -o pipefail\n{command}'
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(["/bin/bash", "-c", shell], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout


def documentation() -> str:
    """All pages as one text."""
    return "\n".join(page.read_text() for page in PAGES if page.exists())


def test_every_command_and_option_is_documented():
    """What `--help` lists stands in the documentation."""
    from typer.main import get_command

    from selectrie.cli import app

    text = documentation()
    group = get_command(app)
    missing = [name for name in group.commands if f"selectrie {name}" not in text]
    for name, command in group.commands.items():
        spelled = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing += [f"{name} {option}" for option in sorted(spelled) if not re.search(rf"{option}\b", text)]
    assert missing == []


def test_every_error_code_is_documented():
    """A code that a program can meet is explained to its author."""
    from selectrie import errors

    def below(kind: type) -> Iterator[type]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    codes = {kind.code for kind in below(errors.SelectrieError) if kind.__module__ == errors.__name__}
    text = documentation()
    assert sorted(code for code in codes if f"`{code}`" not in text) == []


def test_every_error_has_a_code_of_its_own():
    """Two errors that a program cannot tell apart would be one."""
    from selectrie import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.SelectrieError)]
    assert len({kind.code for kind in kinds}) == len(kinds) > 10


def test_every_public_name_is_documented():
    """What `selectrie` promises stands in the documentation."""
    import selectrie

    text = documentation()
    assert [name for name in selectrie.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_every_test_says_what_holds():
    """Each test has one sentence."""
    import ast

    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_snippets_are_found():
    """Blocks are found with the line they begin on; other languages and indented fences are not."""
    text = "a\n```python\nx = 1\n```\n```sh\nselectrie tokens \\\n  -m m\nls\n$ cat p | selectrie rank\n```\n"
    assert list(snippets(text, "python")) == [(3, "x = 1\n")]
    assert list(commands(text)) == ["selectrie tokens    -m m", "cat p | selectrie rank"]
