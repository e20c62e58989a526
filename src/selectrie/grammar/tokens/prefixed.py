"""An automaton for a grammar with fixed bytes before its texts.

The bytes are healed bytes of a prompt: tokens at its end were removed so that the model
can choose others there.
"""

from __future__ import annotations

import numpy as np

from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.tokens.protocols import LedAutomaton


class PrefixedAutomaton:
    """Accepts the token paths that spell `prefix` and then a text of `inner`.

    Until the prefix is spelled, a token may be a beginning of the bytes that are left
    of it, or these bytes followed by the beginning of a text of `inner`. The prefix is
    plain text without control tokens. If no token fits, no token is allowed.

    A state is a position in the prefix (0 to its length - 1), or the length of the
    prefix plus a state of `inner`.
    """

    def __init__(self, inner: LedAutomaton, vocabulary: Vocabulary, prefix: bytes) -> None:
        self._inner, self._vocabulary, self._prefix = inner, vocabulary, prefix
        self._is_eog = np.zeros(vocabulary.n_tokens, dtype=np.bool_)
        self._is_eog[vocabulary.eog] = True
        self._kept: dict[int, IntArray | BoolArray] = {}

    def start(self) -> int:
        return 0 if self._prefix else self._inner.start()

    def allowed(self, state: int) -> BoolArray | IntArray:
        if state >= len(self._prefix):
            return self._inner.allowed(state - len(self._prefix))
        allowed = self._kept.get(state)
        if allowed is None:
            allowed = self._kept[state] = self._computed(self._prefix[state:])
            allowed.setflags(write=False)
        return allowed

    def advance(self, state: int, token: int) -> int:
        n = len(self._prefix)
        if state >= n:
            return self._inner.advance(state - n, token) + n
        piece = b""
        if 0 <= token < len(self._is_eog) and not self._is_eog[token]:
            piece = self._vocabulary.pieces[token]
        after = self.walk(state, piece) if piece else DEAD
        if after == DEAD:
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return after

    def can_end(self, state: int) -> bool:
        n = len(self._prefix)
        return state >= n and self._inner.can_end(state - n)

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        rest, n = self._prefix[state:], len(self._prefix)
        if state < n:
            if len(text) < len(rest):
                return state + len(text) if rest.startswith(text) else DEAD
            if not text.startswith(rest):
                return DEAD
            state, text = self._inner.start() + n, text[len(rest) :]
        after = self._inner.walk(state - n, text)
        return after + n if after != DEAD else DEAD

    def _computed(self, rest: bytes) -> IntArray | BoolArray:
        beyond = self._inner.allowed_after(self._inner.start(), rest)
        within = self._vocabulary.prefixes_of(rest + b"\0")  # includes the rest itself
        within = within[~self._is_eog[within]]
        if beyond.dtype == np.bool_:
            flags: BoolArray = beyond.astype(np.bool_)
            flags[within] = True
            return flags
        return np.union1d(within, beyond).astype(np.int32)
