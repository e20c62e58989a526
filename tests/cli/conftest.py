"""What holds for every error that a test of the command line provokes, and an engine for commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from selectrie.cli import arguments, requests
from selectrie.cli.arguments import flag_writer, message_of
from selectrie.engine.engine import Engine
from selectrie.errors import MessageText, OptionRef, SelectrieError
from tests.support.deciding import fake

UNFLAGGED = {"tokenizer", "prefix", "seed", "runs"}
"""Options of back ends that no flag gives, which errors list, and the two runs that `compare` takes by position."""


@pytest.fixture(autouse=True)
def _only_flags_are_named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An option that an error of a command mentions is named by a flag that the command has."""
    unknown: list[str] = []

    def checked(error: SelectrieError, flags: Mapping[str, str]) -> str:
        if flags and error.slot is None and error.args and isinstance(error.args[0], MessageText):
            write = flag_writer(flags)
            mentioned = [
                part for part in error.args[0].parts if isinstance(part, OptionRef) and part.name not in UNFLAGGED
            ]
            unknown.extend(f"{part} in {error}" for part in mentioned if write(part) == str(part))
        return message_of(error, flags)

    monkeypatch.setattr(arguments, "message_of", checked)
    yield
    assert unknown == []


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine that the command opens; another of the same model answers for comparison."""
    monkeypatch.setattr(requests, "open_engine", lambda _group: fake())
    with fake() as engine:
        yield engine
