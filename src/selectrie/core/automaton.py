"""The port of what may be generated: states, allowed tokens, steps; and a list of choices as such an automaton."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, ROOT, BoolArray, IntArray
from selectrie.errors import ChoiceError, ProtocolError


class Automaton(Protocol):
    """Decides which tokens may come next. States are numbers that stay valid for the automaton's life, so copying a state
    is copying a number, and any number of sequences share one automaton.

    One thread at a time uses it.
    """

    def start(self) -> int:
        """The state before the first token."""
        ...

    def allowed(self, state: int) -> BoolArray | IntArray:
        """The tokens that may come next: bool[V] (true = allowed) or int32[] ids, ascending. End-of-generation tokens are
        no part of it (see `can_end`). The array belongs to the automaton: read only."""
        ...

    def advance(self, state: int, token: int) -> int:
        """The state after one more token; `ProtocolError` for a token that is not allowed."""
        ...

    def can_end(self, state: int) -> bool:
        """May the text end here?"""
        ...


class ChoiceAutomaton:
    """Accepts exactly the token paths of a trie. A state is a node of the trie.

    Raises `ChoiceError` for a trie without paths. An allowed set costs a slice, a step a binary search among children.
    """

    def __init__(self, trie: TokenTrie) -> None:
        if len(trie.path_node) == 0:
            raise ChoiceError("there are no choices; give at least one")
        self._trie = trie

    def start(self) -> int:
        return ROOT

    def allowed(self, state: int) -> IntArray:
        tokens: IntArray = self._trie.token[self._trie.children(state)]
        return tokens

    def advance(self, state: int, token: int) -> int:
        children = self._trie.children(state)
        place = int(np.searchsorted(self._trie.token[children], token))
        if place == len(children) or self._trie.token[children[place]] != token:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return int(children[place])

    def can_end(self, state: int) -> bool:
        return bool(self._trie.end_path[state] != NO_PATH)
