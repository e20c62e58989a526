"""Protocols of automata over tokens with more methods than the port `Automaton`."""

from __future__ import annotations

from typing import Protocol

from selectrie.core.automaton import Automaton
from selectrie.core.types import BoolArray, IntArray


class WalkedAutomaton(Automaton, Protocol):
    """An automaton that can also be advanced by bytes."""

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        ...


class LedAutomaton(WalkedAutomaton, Protocol):
    """An automaton that can be cached and shared, and combined with a prefix."""

    @property
    def n_bytes(self) -> int:
        """Return the memory of the automaton's tables, in bytes."""
        ...

    def allowed_after(self, state: int, prefix: bytes) -> BoolArray | IntArray:
        """Return the tokens that begin with `prefix` and continue as the state allows.

        Only the bytes after the prefix, at least one, are read from the state on. With
        b"", the result is that of `allowed`.
        """
        ...
