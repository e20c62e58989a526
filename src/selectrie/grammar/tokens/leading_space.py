"""Token paths of a grammar for a tokenizer that adds a space before some texts.

Such a tokenizer adds a space before a text only if the text does not begin with one, so
that the tokens of `a` and of ` a` are the same.
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
"""The state in which only the added space was spelled.

It is the start state of `inner`, but the text must not be empty or begin with a space.
"""


class LeadingSpaceAutomaton:
    """Accepts token paths that spell a text of `inner` as such a tokenizer writes it.

    A path spells a space and the text, or the text alone if that begins with a space.
    The empty text has no path. If `inner` accepts both `a` and ` a`, they share the
    path ` a`.

    What a path spells is therefore read in two ways: its first space was added, or it
    belongs to the text. State 0 is the start. Every other state stands for a pair of
    states of `inner`, one for each way; -1 means that the path cannot be read so. As a
    state of this automaton, -1 accepts nothing.
    """

    def __init__(self, inner: LedAutomaton, vocabulary: Vocabulary) -> None:
        self._inner, self._vocabulary = inner, vocabulary
        self._spaced = self._flags(vocabulary.with_prefix(_SPACE))
        self._twice_spaced = self._flags(vocabulary.with_prefix(_SPACE * 2))
        self._spaced[vocabulary.eog] = False
        self._pairs: list[tuple[int, int]] = []
        self._state_of: dict[tuple[int, int], int] = {}
        self._flags_of: dict[int, BoolArray] = {}

    def start(self) -> int:
        return 0

    def allowed(self, state: int) -> BoolArray | IntArray:
        added, own = self._pairs[state - 1] if state else (_FRESH, DEAD)
        if state and added >= 0 and own in (DEAD, added):
            return self._inner.allowed(added)
        if state and added == DEAD:
            return self._inner.allowed(own)
        flags = self._flags_of.get(state)
        if flags is None:
            flags = self._flags_of[state] = self._union(added, own) if state else self._first_tokens()
            flags.setflags(write=False)
        return flags

    def advance(self, state: int, token: int) -> int:
        if not allows(self.allowed(state), token):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        piece = self._vocabulary.pieces[token]
        if state:
            added, own = self._pairs[state - 1]
            if added == _FRESH:
                added = DEAD if piece[:1] == _SPACE else self._inner.start()
            return self._state(self._advance_inner(added, token), self._advance_inner(own, token))
        added = self._walk_inner(_FRESH, piece[1:]) if len(piece) > 1 else _FRESH
        return self._state(added, self._advance_inner(self._inner.start(), token))

    def can_end(self, state: int) -> bool:
        return bool(state) and any(one >= 0 and self._inner.can_end(one) for one in self._pairs[state - 1])

    def walk(self, state: int, text: bytes) -> int:
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        if not text:
            return state
        if state:
            added, own = self._pairs[state - 1]
        elif text[:1] != _SPACE:
            return DEAD
        else:
            added, own, text = _FRESH, self._inner.walk(self._inner.start(), _SPACE), text[1:]
        return self._state(self._walk_inner(added, text), self._walk_inner(own, text))

    def _walk_inner(self, state: int, text: bytes) -> int:
        if state == DEAD or not text:
            return state
        if state == _FRESH:
            return DEAD if text[:1] == _SPACE else self._inner.walk(self._inner.start(), text)
        return self._inner.walk(state, text)

    def _advance_inner(self, state: int, token: int) -> int:
        is_open = state != DEAD and allows(self._inner.allowed(state), token)
        return self._inner.advance(state, token) if is_open else DEAD

    def _state(self, added: int, own: int) -> int:
        if added == own == DEAD:
            return DEAD
        pair = added, own
        if pair not in self._state_of:
            self._pairs.append(pair)
            self._state_of[pair] = len(self._pairs)
        return self._state_of[pair]

    def _first_tokens(self) -> BoolArray:
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

    def _union(self, added: int, own: int) -> BoolArray:
        """Return the tokens that either text allows."""
        if added == _FRESH:
            flags: BoolArray = self._flags(self._inner.allowed(self._inner.start())) & ~self._spaced
        else:
            flags = self._flags(self._inner.allowed(added))
        return flags if own == DEAD else flags | self._flags(self._inner.allowed(own))

    def _flags(self, allowed: BoolArray | IntArray) -> BoolArray:
        """Return the tokens as a new bool[V]."""
        flags = np.zeros(self._vocabulary.n_tokens, dtype=np.bool_)
        flags[allowed] = True
        return flags
