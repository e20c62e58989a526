"""Reads texts byte by byte with an llguidance grammar, to accept or reject them."""

from __future__ import annotations

import numpy as np

from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar.acceptance import cut, shown_bytes, shown_characters
from selectrie.grammar.llguidance.matcher import GuidanceGrammar
from selectrie.grammar.machine.characters import LEADS, STRIPPED
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.rules.expressions import TokenSet

MAX_READS = 8
"""Maximum number of bytes read to find the characters that begin with one byte."""


class GuidedBytes:
    """A `ByteReader` over an llguidance automaton whose vocabulary is the 256 bytes.

    This vocabulary has no tokens that the grammar could name, so a grammar that names
    one raises an error. The mask of each state is computed before a byte is read, as in
    a search, because that makes llguidance renew the budget of its lexer.
    """

    token_sets: tuple[TokenSet, ...] = ()

    def __init__(self, grammar: GuidanceGrammar) -> None:
        self._automaton = grammar.automaton(_byte_vocabulary(), cache_bytes=16 << 20)
        self.start = self._automaton.start()

    def step(self, configuration: int, byte: int) -> int:
        """Return the state after one more byte, or `DEAD` if it is refused."""
        if configuration == DEAD or byte not in self.following(configuration):
            return DEAD
        return self._automaton.walk(configuration, bytes([byte]))

    def following(self, configuration: int) -> frozenset[int]:
        """Return the bytes that may come next."""
        allowed = self._automaton.allowed(configuration)
        return frozenset((np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed).tolist())

    def expected(self, configuration: int) -> tuple[str, ...]:
        """Return descriptions of the characters that may come next.

        A character of several bytes is found by reading its bytes, and each path of
        bytes is a separate state here. So at most `MAX_READS` bytes are read after each
        first byte. If that is not enough, that byte represents its characters.
        """
        bytes_ = self.following(configuration)
        characters: list[tuple[int, int]] = []
        unread: list[int] = []
        for lead in sorted(bytes_):
            n_more = next((n for first, last, n in LEADS if first <= lead < last), None)
            if n_more is None:
                continue
            ranges = self._spread(configuration, lead, n_more, lead - STRIPPED[n_more])
            if ranges is None:
                unread.append(lead)
            else:
                characters += ranges
        inside = [byte for byte in sorted(bytes_) if 0x80 <= byte < 0xC0]
        shown = shown_characters(characters) + shown_bytes((byte, byte) for byte in [*inside, *unread])
        return cut(shown, self.can_end(configuration))

    def _spread(self, configuration: int, byte: int, n_more: int, base: int) -> list[tuple[int, int]] | None:
        """Return ranges of the characters that continue with `byte`; None if too many.

        `base` holds the bits of the code point known so far, and `n_more` bytes follow.
        """
        if not n_more:
            return [(base, base)]
        waiting, ranges = [(configuration, byte, n_more, base)], list[tuple[int, int]]()
        n_reads = 0
        while waiting:
            at, byte, n_more, base = waiting.pop()
            n_reads += 1
            if n_reads > MAX_READS:
                return None
            after = self.step(at, byte)
            nexts = sorted(one for one in self.following(after) if 0x80 <= one < 0xC0)
            if n_more == 1:
                ranges += [((base << 6) + one - 0x80, (base << 6) + one - 0x80) for one in nexts]
            else:
                waiting += [(after, one, n_more - 1, (base << 6) + one - 0x80) for one in nexts]
        return sorted(ranges)

    def can_end(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        return self._automaton.can_end(configuration)

    def token_terminals(self, _configuration: int) -> tuple[int, ...]:
        """Return (): only bytes may come next."""
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
