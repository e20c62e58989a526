"""Protocols of token automata that can do more than the `Automaton` port asks."""

from __future__ import annotations

from typing import Protocol

from selectrie.core.automaton import Automaton
from selectrie.core.types import BoolArray, IntArray


class WalkedAutomaton(Automaton, Protocol):
    """An automaton that can also be advanced by bytes."""

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after bytes, however tokens cut them; -1 if refused."""
        ...


class LedAutomaton(WalkedAutomaton, Protocol):
    """An automaton that can be kept and shared, and that accepts a prefix."""

    @property
    def n_bytes(self) -> int:
        """Return the memory of what it has computed, in bytes."""
        ...

    def allowed_after(self, state: int, prefix: bytes) -> BoolArray | IntArray:
        """Return the tokens that begin with `prefix` and go on as the state allows.

        The state reads only the bytes after the prefix, of which there is at least one.
        With b"", the result is that of `allowed`.
        """
        ...
