"""A grammar of llguidance read byte by byte, for verdicts on texts."""

from __future__ import annotations

import numpy as np

from selectrie.grammar.expressions import TokenSet
from selectrie.grammar.guidance import GuidanceGrammar
from selectrie.grammar.machine.machine import DEAD
from selectrie.vocabulary import Vocabulary


class GuidedBytes:
    """What a `Machine` promises a reader of texts, by an automaton whose vocabulary are the 256 bytes.

    Tokens that the grammar asks for by name are none of these, so it refuses to be read where it names one.
    """

    token_sets: tuple[TokenSet, ...] = ()

    def __init__(self, grammar: GuidanceGrammar) -> None:
        self._automaton = grammar.automaton(_byte_vocabulary(), cache_bytes=16 << 20)
        self.start = self._automaton.start()

    def step(self, configuration: int, byte: int) -> int:
        """The state after one more byte; `DEAD` where it is refused."""
        return self._automaton.walk(configuration, bytes([byte])) if configuration != DEAD else DEAD

    def can_end(self, configuration: int) -> bool:
        """May the text end here?"""
        return self._automaton.can_end(configuration)

    def token_terminals(self, _configuration: int) -> tuple[int, ...]:
        """None: all that may come next are bytes."""
        return ()


def _byte_vocabulary() -> Vocabulary:
    pieces = tuple(bytes([byte]) for byte in range(256))
    nothing = np.empty(0, dtype=np.int32)
    return Vocabulary(
        pieces=pieces,
        texts=tuple(f"<0x{byte:02X}>" for byte in range(256)),
        bos=None,
        eos=None,
        eog=nothing,
        control=nothing,
        space_prefix=False,
        tokenize=list,
    )
