"""The last token of a prompt taken back, for what is drawn token by token: its bytes come first, then anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.boundary.canonical import spells_text
from selectrie.boundary.records import PromptText
from selectrie.boundary.tail import encode_after
from selectrie.errors import PromptError, ProtocolError
from selectrie.types import IntArray
from selectrie.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Reopened:
    """A prompt whose last token may become another one.

    context: int32[T], T >= 1, tokens kept. healed: bytes of the token taken back, b"" where none was.
    prompt_tokens: int32[], the prompt alone.
    """

    context: IntArray
    healed: bytes
    prompt_tokens: IntArray


def reopen(vocabulary: Vocabulary, prompt: PromptText, *, heal: bool = True) -> Reopened:
    """Take the last token of a prompt's text back; with `heal` false, and as `open_prompt` has it, nothing.

    Nothing is healed where the prompt ends in a control token, is that one token, or where token bytes are not the text's.
    Raises `PromptError` for a prompt without tokens.
    """
    own = np.asarray(encode_after(vocabulary, prompt.prefix, prompt.text), dtype=np.int32)
    tokens = np.concatenate([prompt.prefix, own])
    if not len(tokens):
        raise PromptError("the prompt has no tokens, so there is nothing to predict the first one from")
    healed = b""
    if heal and len(own) and len(tokens) > 1 and not (vocabulary.eog == own[-1]).any():
        healed = vocabulary.pieces[own[-1]] if spells_text(vocabulary, own, prompt.text) else b""
    return Reopened(tokens[:-1] if healed else tokens, healed, tokens)


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
