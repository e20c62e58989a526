"""An automaton that makes drawn tokens spell the healed bytes of a prompt first."""

from __future__ import annotations

import numpy as np

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError


class HealedBytes:
    """The healed bytes of a prompt as an automaton; drawn tokens spell them first.

    A state is the number of bytes spelled. Once all are (`is_spelt`), any token may
    come, and the automaton is no longer needed.

    Attributes:
        data: The bytes, at least one.
    """

    def __init__(self, vocabulary: Vocabulary, data: bytes) -> None:
        if not data:
            raise ProtocolError("there are no healed bytes")
        self.data = data
        self._vocabulary = vocabulary
        self._kept: dict[int, IntArray] = {}

    def start(self) -> int:
        return 0

    def is_spelt(self, state: int) -> bool:
        """Return whether the tokens so far spell all the bytes."""
        return state >= len(self.data)

    def allowed(self, state: int) -> IntArray:
        """Return the tokens that agree with the remaining bytes, as int32[] by id.

        A token agrees if one of its bytes and the remaining bytes is a prefix of the
        other. Tokens that end a generation are excluded.
        """
        tokens = self._kept.get(state)
        if tokens is None:
            left = self.data[state:]
            agreeing = np.union1d(self._vocabulary.prefixes_of(left), self._vocabulary.with_prefix(left))
            tokens = np.setdiff1d(agreeing, self._vocabulary.eog).astype(np.int32)
            tokens.setflags(write=False)
            self._kept[state] = tokens
        return tokens

    def advance(self, state: int, token: int) -> int:
        """Return the state after one more token.

        Raises `ProtocolError` for a token that spells something else.
        """
        left, piece = self.data[state:], self._vocabulary.piece(token)
        if not piece or not (left.startswith(piece) or piece.startswith(left)):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return min(len(self.data), state + len(piece))

    def can_end(self, state: int) -> bool:
        return self.is_spelt(state)
