"""The healed bytes of a prompt, for what is drawn token by token: they come first, then
anything."""

from __future__ import annotations

import numpy as np

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError


class HealedBytes:
    """The healed bytes of a prompt as an automaton: what is drawn spells them first. A state is how many are spelt.

    Where all are (`is_spelt`), anything may come, and nothing is asked any more. data: the bytes, at least one.
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
        """Do the tokens so far spell all the bytes?"""
        return state >= len(self.data)

    def allowed(self, state: int) -> IntArray:
        """int32[], by id: tokens that begin what is left of the bytes, are it, or go beyond it. Never one that ends a generation."""
        found = self._kept.get(state)
        if found is None:
            left = self.data[state:]
            agreeing = np.union1d(self._vocabulary.prefixes_of(left), self._vocabulary.with_prefix(left))
            found = np.setdiff1d(agreeing, self._vocabulary.eog).astype(np.int32)
            found.setflags(write=False)
            self._kept[state] = found
        return found

    def advance(self, state: int, token: int) -> int:
        """The state after one more token; `ProtocolError` for one that spells something else."""
        left, piece = self.data[state:], self._vocabulary.piece(token)
        if not piece or not (left.startswith(piece) or piece.startswith(left)):
            raise ProtocolError(f"token {token} is not allowed in state {state}")
        return min(len(self.data), state + len(piece))

    def can_end(self, state: int) -> bool:
        return self.is_spelt(state)
