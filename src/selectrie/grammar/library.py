"""Finds the grammars that come with selectrie."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from selectrie.errors import OptionError

if TYPE_CHECKING:
    from importlib.abc import Traversable


@cache
def _folder() -> Traversable:
    """Return the folder of the installed grammars.

    It is in the package or, in a source checkout, at the top level.
    """
    inside = files("selectrie").joinpath("grammars")
    checkout = Path(__file__).resolve().parents[3]
    if not inside.is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / "grammars"
    return inside


@cache
def installed_names() -> tuple[str, ...]:
    """Return the names of the installed grammars in alphabetical order."""
    return tuple(sorted(file.name.removesuffix(".gbnf") for file in _folder().iterdir() if file.name.endswith(".gbnf")))


def installed_grammar(name: str) -> str:
    """Return the GBNF text of an installed grammar; raise `OptionError` if unknown."""
    if name not in installed_names():
        raise OptionError("grammar", name, "the name of an installed grammar: " + ", ".join(installed_names()))
    return _folder().joinpath(f"{name}.gbnf").read_text(encoding="utf-8")


def installed_summary(name: str) -> str:
    """Return one line that says what an installed grammar accepts.

    It is the first line of the file's header, without the grammar's name.
    """
    first = installed_grammar(name).partition("\n")[0].lstrip("# ").strip()
    return first.removeprefix(f"{name}:").strip()
