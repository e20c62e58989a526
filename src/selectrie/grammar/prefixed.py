"""A grammar behind bytes that come first: what the last token of a prompt spelled, once it was taken back."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from selectrie.errors import ProtocolError
from selectrie.types import BoolArray, IntArray
from selectrie.vocabulary import Vocabulary


class ByteAutomaton(Protocol):
    """An automaton (see `automaton.Automaton`) that also knows what lies between tokens."""

    def start(self) -> int: ...

    def allowed(self, state: int) -> BoolArray | IntArray: ...

    def advance(self, state: int, token: int) -> int: ...

    def can_end(self, state: int) -> bool: ...

    def allowed_after(self, state: int, prefix: bytes) -> IntArray | BoolArray:
        """Tokens whose bytes are `prefix` (not empty) and then at least one byte more that the state accepts: ids,
        ascending, or flags. The array belongs to the automaton."""
        ...

    def walk(self, state: int, text: bytes) -> int:
        """The state after bytes that need not be whole tokens; -1 where they are not accepted."""
        ...


class PrefixedAutomaton:
    """Accepts the token paths that spell `prefix` and then what `inner` accepts: tokens that are a beginning of what is
    left of the prefix, that are the rest of it, or that go beyond it into the grammar.

    The prefix is plain text; no control token is part of it. A state is a place in the prefix (0 to its length - 1), or
    that length and a state of `inner`. One that can read no token may be reached where no token spells the rest.
    """

    def __init__(self, inner: ByteAutomaton, vocabulary: Vocabulary, prefix: bytes) -> None:
        self._inner, self._vocabulary, self._prefix = inner, vocabulary, prefix
        self._is_eog = np.zeros(vocabulary.n_tokens, dtype=np.bool_)
        self._is_eog[vocabulary.eog] = True
        self._kept: dict[int, IntArray | BoolArray] = {}

    def start(self) -> int:
        return 0 if self._prefix else self._inner.start()  # with no prefix, states are those of `inner`

    def allowed(self, state: int) -> BoolArray | IntArray:
        if state >= len(self._prefix):
            return self._inner.allowed(state - len(self._prefix))
        found = self._kept.get(state)
        if found is None:
            found = self._kept[state] = self._computed(self._prefix[state:])
            found.setflags(write=False)
        return found

    def advance(self, state: int, token: int) -> int:
        n = len(self._prefix)
        if state >= n:
            return self._inner.advance(state - n, token) + n
        rest = self._prefix[state:]
        if 0 <= token < len(self._is_eog) and not self._is_eog[token]:
            piece = self._vocabulary.pieces[token]
            if piece and rest.startswith(piece):
                return state + len(piece) if len(piece) < len(rest) else self._inner.start() + n
            if piece.startswith(rest):
                after = self._inner.walk(self._inner.start(), piece[len(rest) :])
                if after >= 0:
                    return after + n
        raise ProtocolError(f"token {token} is not allowed in state {state}")

    def can_end(self, state: int) -> bool:
        n = len(self._prefix)
        return state >= n and self._inner.can_end(state - n)

    def _computed(self, rest: bytes) -> IntArray | BoolArray:
        beyond = self._inner.allowed_after(self._inner.start(), rest)
        within = self._vocabulary.prefixes_of(rest + b"\0")  # the rest itself among them
        within = within[~self._is_eog[within]]
        if beyond.dtype == np.bool_:
            flags = beyond.copy()
            flags[within] = True
            return flags
        ids: IntArray = np.union1d(within, beyond).astype(np.int32)
        return ids
