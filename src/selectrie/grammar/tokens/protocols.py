"""What automata over tokens can do beyond the port."""

from __future__ import annotations

from typing import Protocol

from selectrie.core.automaton import Automaton
from selectrie.core.types import BoolArray, IntArray


class WalkedAutomaton(Automaton, Protocol):
    """An automaton that can also be led by bytes."""

    def walk(self, state: int, text: bytes) -> int:
        """The state after these bytes, whatever tokens cut them; -1 where they are refused."""
        ...


class LedAutomaton(WalkedAutomaton, Protocol):
    """An automaton that is kept for the next caller."""

    @property
    def n_bytes(self) -> int:
        """Memory of what it learned."""
        ...

    def allowed_after(self, state: int, prefix: bytes) -> BoolArray | IntArray:
        """Tokens that are `prefix` and at least one byte more that the state accepts; with b"" as `allowed`."""
        ...
