"""Does a grammar accept a text: yes, no, or not yet; where not, and what could stand there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from selectrie.grammar.expressions import SURROGATES, TokenSet
from selectrie.grammar.machine.characterwise import ByteReader, Characterwise, Choice
from selectrie.grammar.machine.machine import DEAD
from selectrie.vocabulary import to_bytes

END = "the end"
MOST_EXPECTED = 64
"""Things that `Verdict.expected` names; the last one says that there are more."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a grammar says about a text. True as a truth value where the verdict is "yes".

    verdict: "yes", "no", or "unfinished": some text of the grammar goes on from here.
    at: where the first character stands that no text has there, in characters of a `str` and in bytes of `bytes`; the
    length of the text where all of it may stand.
    expected: what may stand at that place: characters and ranges of them as Python writes them, tokens by name, "the end".
    """

    verdict: Literal["yes", "no", "unfinished"]
    at: int
    expected: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.verdict == "yes"


EVERY_BYTE = tuple(range(256))


def verdict_on(machine: ByteReader, text: str | bytes, class_of: Sequence[int] = EVERY_BYTE) -> Verdict:
    """Read the text byte by byte; `class_of` as `Characterwise` has it. Raises `TextError` for a lone surrogate, `GrammarError` beyond the machine's limits."""
    data = to_bytes(text, "text") if isinstance(text, str) else text
    configuration = begun = machine.start
    at_character = 0
    for i, byte in enumerate(data):
        if byte & 0xC0 != 0x80:
            at_character, begun = i, configuration
        after = machine.step(configuration, byte)
        if after == DEAD:
            if isinstance(text, str):
                return Verdict("no", len(data[:at_character].decode("utf-8")), expected(machine, begun, class_of))
            return Verdict("no", i, expected(machine, configuration, class_of))
        configuration = after
    ends = machine.can_end(configuration)
    return Verdict("yes" if ends else "unfinished", len(text), expected(machine, configuration, class_of))


def expected(machine: ByteReader, configuration: int, class_of: Sequence[int]) -> tuple[str, ...]:
    """What may come next, readable: characters, inside a character single bytes, tokens, the end; at most `MOST_EXPECTED`."""
    reader = Characterwise(machine, class_of)
    shown = [_range(_character(first), _character(last)) for first, last in _joined(reader.choices(configuration))]
    rest = _joined(reader.continuations(configuration))
    shown += [_range(f"byte 0x{first:02X}", f"byte 0x{last:02X}") for first, last in rest]
    shown += [_token(machine.token_sets[index]) for index in machine.token_terminals(configuration)]
    if len(shown) >= MOST_EXPECTED:
        n_more = len(shown) - MOST_EXPECTED + 2
        shown = [*shown[: MOST_EXPECTED - 2], f"{n_more} more"]
    if machine.can_end(configuration):
        shown.append(END)
    return tuple(shown)


def _joined(choices: list[Choice]) -> list[tuple[int, int]]:
    """Ranges, wherever they lead."""
    joined: list[tuple[int, int]] = []
    for first, last, _ in choices:
        if joined and (joined[-1][1] == first - 1 or (joined[-1][1], first) == (SURROGATES[0] - 1, SURROGATES[1] + 1)):
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}…{last}"


def _character(code: int) -> str:
    """As Python writes it where it can be seen, else U+…"""
    character = chr(code)
    return repr(character) if character.isprintable() or character in "\n\r\t" else f"U+{code:04X}"


def _token(tokens: TokenSet) -> str:
    named = " or ".join(f"token {token}" if isinstance(token, int) else token for token in tokens.tokens)
    return f"any token but {named}" if tokens.negated else named
