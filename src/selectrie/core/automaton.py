"""The port `Automaton`, which decides which tokens may come next, and a product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        """Return the child of node `state` with this token."""
        children = self._trie.children(state)
        index = int(np.searchsorted(self._trie.token[children], token))
        if index == len(children) or self._trie.token[children[index]] != token:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return int(children[index])

    def can_end(self, state: int) -> bool:
        return bool(self._trie.end_path[state] != NO_PATH)


Position = tuple[int, int]
"""(set, node of its trie); the end is (number of sets, root)."""


class ProductAutomaton:
    """Accepts exactly the concatenations of one path of each set, in order.

    The product is never listed. A state is a set of positions in the sets' tries; it
    has several positions where a path of a set begins with another path of that set. A
    state gets its number when it is first reached.
    """

    def __init__(self, sets: Iterable[Sequence[Sequence[int]]]) -> None:
        self._tries = [TokenTrie.from_sequences(paths) for paths in sets]
        self._number: dict[frozenset[Position], int] = {}
        self._positions: list[frozenset[Position]] = []
        self._allowed: list[IntArray | None] = []
        self._next: dict[tuple[int, int], int] = {}
        self._start = self._number_state([(0, ROOT)])

    @property
    def longest(self) -> int:
        """Return the maximum number of tokens of a concatenation."""
        return sum(int(trie.depth.max()) for trie in self._tries)

    def start(self) -> int:
        return self._start

    def allowed(self, state: int) -> IntArray:
        """Return the allowed tokens, int32[], of all positions of a state together."""
        known = self._allowed[state]
        if known is None:
            tokens = [
                self._tries[number].token[self._tries[number].children(node)]
                for number, node in self._positions[state]
                if number < len(self._tries)
            ]
            known = self._allowed[state] = np.unique(np.concatenate([np.empty(0, dtype=np.int32), *tokens]))
        return known

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token, followed from each position of a state."""
        known = self._next.get((state, token))
        if known is not None:
            return known
        reached = []
        for number, node in self._positions[state]:
            if number < len(self._tries):
                trie = self._tries[number]
                children = trie.children(node)
                index = int(np.searchsorted(trie.token[children], token))
                if index < len(children) and trie.token[children[index]] == token:
                    reached.append((number, int(children[index])))
        if not reached:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        result = self._next[state, token] = self._number_state(reached)
        return result

    def can_end(self, state: int) -> bool:
        return (len(self._tries), ROOT) in self._positions[state]

    def _number_state(self, reached: list[Position]) -> int:
        """Return the number of the state of the positions `reached`.

        Where a path of a set ends, the first position of the next set belongs
        to the state too.
        """
        positions: set[Position] = set()
        while reached:
            number, node = reached.pop()
            positions.add((number, node))
            is_end = number < len(self._tries) and self._tries[number].end_path[node] != NO_PATH
            if is_end and (number + 1, ROOT) not in positions:
                reached.append((number + 1, ROOT))
        key = frozenset(positions)
        if key not in self._number:
            self._number[key] = len(self._positions)
            self._positions.append(key)
            self._allowed.append(None)
        return self._number[key]
