"""An automaton for a grammar after a space that its texts may begin with already.

Some tokenizers add a space before a text only if the text does not begin with one.
"""

from __future__ import annotations

import numpy as np

from selectrie.core.automaton import allows, is_any
from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.tokens.protocols import LedAutomaton

_SPACE = b" "
_FRESH = -2
"""The state of `inner` before a text that must not be empty or begin with a space."""


class LeadingSpaceAutomaton:
    """Accepts the token paths that spell a text of `inner` after at most one space.

    The space is spelled before a text that does not begin with one, and no other space
    before a text that does. The empty text has no path. ` a` is the path of two texts,
    `a` and ` a`, if `inner` accepts both.

    State 0 is the start. The others stand for pairs of states of `inner`: after the
    text without the first space, and after the text with it. -1 stands for no text.
    """

    def __init__(self, inner: LedAutomaton, vocabulary: Vocabulary) -> None:
        self._inner, self._vocabulary = inner, vocabulary
        self._spaced = self._flags(vocabulary.with_prefix(_SPACE))
        self._twice_spaced = self._flags(vocabulary.with_prefix(_SPACE * 2))
        self._spaced[vocabulary.eog] = False
        self._pairs: list[tuple[int, int]] = []
        self._state_of: dict[tuple[int, int], int] = {}
        self._kept: dict[int, BoolArray] = {}

    def start(self) -> int:
        return 0

    def allowed(self, state: int) -> BoolArray | IntArray:
        without, within = self._pairs[state - 1] if state else (_FRESH, DEAD)
        if state and without >= 0 and within == DEAD:
            return self._inner.allowed(without)
        if state and without == DEAD:
            return self._inner.allowed(within)
        flags = self._kept.get(state)
        if flags is None:
            flags = self._kept[state] = self._joined(without, within) if state else self._first()
            flags.setflags(write=False)
        return flags

    def advance(self, state: int, token: int) -> int:
        if not allows(self.allowed(state), token):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        piece = self._vocabulary.pieces[token]
        if state:
            without, within = self._pairs[state - 1]
            if without == _FRESH:
                without = DEAD if piece[:1] == _SPACE else self._inner.start()
            return self._state(self._after(without, token), self._after(within, token))
        without = self._walked(_FRESH, piece[1:]) if len(piece) > 1 else _FRESH
        return self._state(without, self._after(self._inner.start(), token))

    def can_end(self, state: int) -> bool:
        return bool(state) and any(one >= 0 and self._inner.can_end(one) for one in self._pairs[state - 1])

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        if not text:
            return state
        if state:
            without, within = self._pairs[state - 1]
        elif text[:1] != _SPACE:
            return DEAD
        else:
            without, within, text = _FRESH, self._inner.walk(self._inner.start(), _SPACE), text[1:]
        return self._state(self._walked(without, text), self._walked(within, text))

    def _walked(self, state: int, text: bytes) -> int:
        if state == DEAD or not text:
            return state
        if state == _FRESH:
            return DEAD if text[:1] == _SPACE else self._inner.walk(self._inner.start(), text)
        return self._inner.walk(state, text)

    def _after(self, state: int, token: int) -> int:
        is_open = state != DEAD and allows(self._inner.allowed(state), token)
        return self._inner.advance(state, token) if is_open else DEAD

    def _state(self, without: int, within: int) -> int:
        if without == within == DEAD:
            return DEAD
        pair = without, within
        if pair not in self._state_of:
            self._pairs.append(pair)
            self._state_of[pair] = len(self._pairs)
        return self._state_of[pair]

    def _first(self) -> BoolArray:
        """Return the tokens with which a path may begin; they begin with a space."""
        start = self._inner.start()
        plain = self._flags(self._inner.allowed(start))
        goes_on: BoolArray = self._flags(self._inner.allowed_after(start, _SPACE)) & ~self._twice_spaced
        flags: BoolArray = self._spaced & (plain | goes_on)
        others = (bytes([byte]) for byte in range(256) if byte != _SPACE[0])
        if is_any(plain & ~self._spaced) or any(self._inner.walk(start, other) != DEAD for other in others):
            lone = [token for token in np.flatnonzero(self._spaced) if self._vocabulary.pieces[token] == _SPACE]
            flags[lone] = True
        return flags

    def _joined(self, without: int, within: int) -> BoolArray:
        """Return the tokens that either text allows."""
        if without == _FRESH:
            flags: BoolArray = self._flags(self._inner.allowed(self._inner.start())) & ~self._spaced
        else:
            flags = self._flags(self._inner.allowed(without))
        return flags if within == DEAD else flags | self._flags(self._inner.allowed(within))

    def _flags(self, allowed: BoolArray | IntArray) -> BoolArray:
        """Return the tokens as a new bool[V]."""
        flags = np.zeros(self._vocabulary.n_tokens, dtype=np.bool_)
        flags[allowed] = True
        return flags
