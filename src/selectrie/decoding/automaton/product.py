"""An automaton that accepts one token path of each of several sets, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, ROOT, IntArray
from selectrie.errors import ProtocolError

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
        self._start = self._numbered([(0, ROOT)])

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest path."""
        return sum(int(trie.depth.max()) for trie in self._tries)

    def start(self) -> int:
        return self._start

    def allowed(self, state: int) -> IntArray:
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
        result = self._next[state, token] = self._numbered(reached)
        return result

    def can_end(self, state: int) -> bool:
        return (len(self._tries), ROOT) in self._positions[state]

    def _numbered(self, reached: list[Position]) -> int:
        """Return the state that consists of `reached` and what follows without a token.

        Where a path of a set ends, the first position of the next set belongs to the
        state too.
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
