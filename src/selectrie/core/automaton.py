"""The port `Automaton`, which decides which tokens may come next.

`ChoiceAutomaton` implements it for a set of choices.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, ROOT, BoolArray, IntArray
from selectrie.errors import ChoiceError, ProtocolError


class Automaton(Protocol):
    """Decides which tokens may come next.

    States are numbers that stay valid for the automaton's life. Copying a state is
    copying a number, and any number of sequences can share one automaton.

    Only one thread may use an automaton at a time.
    """

    def start(self) -> int:
        """Return the state before the first token."""
        ...

    def allowed(self, state: int) -> BoolArray | IntArray:
        """Return the tokens that may come next.

        The result is bool[V] (true = allowed) or int32[] ids in ascending order.
        End-of-generation tokens are not included (see `can_end`). The array belongs to
        the automaton and must not be written to.
        """
        ...

    def advance(self, state: int, token: int) -> int:
        """Return the state after one more token.

        Raises `ProtocolError` for a token that is not allowed.
        """
        ...

    def can_end(self, state: int) -> bool:
        """Return whether the text may end here."""
        ...


def is_any(allowed: BoolArray | IntArray) -> bool:
    """Return whether `allowed`, a value of `Automaton.allowed`, contains any token."""
    return bool(allowed.any()) if allowed.dtype == np.bool_ else len(allowed) > 0


def allowed_ids(allowed: BoolArray | IntArray) -> IntArray:
    """Return the tokens of `allowed`, a value of `Automaton.allowed`.

    The result is int32[] ids in ascending order.
    """
    ids = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed
    return ids.astype(np.int32)


def allows(allowed: BoolArray | IntArray, token: int) -> bool:
    """Return whether `allowed`, a value of `Automaton.allowed`, contains the token.

    False for ids that do not exist.
    """
    if allowed.dtype == np.bool_:
        return 0 <= token < len(allowed) and bool(allowed[token])
    return bool((allowed == token).any())


class ChoiceAutomaton:
    """Accepts exactly the token paths of a trie; a state is a node of the trie.

    `allowed` costs a slice, `advance` a binary search among the children. Raises
    `ChoiceError` for a trie without paths.
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
        index = int(np.searchsorted(self._trie.token[children], token))
        if index == len(children) or self._trie.token[children[index]] != token:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return int(children[index])

    def can_end(self, state: int) -> bool:
        return bool(self._trie.end_path[state] != NO_PATH)
