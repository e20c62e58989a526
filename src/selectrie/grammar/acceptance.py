"""Decides whether a grammar accepts a text: yes, no, or not yet.

The module also finds where a text stops being acceptable, and the characters that could
follow there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

from selectrie.core.vocabulary import to_bytes
from selectrie.grammar.machine.characters import ByteReader, Characterwise
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.rules.expressions import SURROGATES, TokenSet

END = "the end"
MAX_EXPECTED = 64
"""Maximum number of items in `Verdict.expected`.

If there are more, the last item says how many.
"""


Expecting = Callable[[int], tuple[str, ...]]
"""Returns readable descriptions of what may follow a configuration."""


@dataclass(frozen=True)
class Verdict:
    """The answer of a grammar about a text; true if the verdict is "yes".

    Attributes:
        verdict: "yes", "no", or "unfinished" if some text of the grammar continues this
            one.
        at: Offset of the first character with which no text of the grammar continues,
            in characters of a `str` or bytes of `bytes`; the length of the text if
            there is none.
        look: Computes `expected`.
    """

    verdict: Literal["yes", "no", "unfinished"]
    at: int
    look: Callable[[], tuple[str, ...]] = field(repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.verdict == "yes"

    @cached_property
    def expected(self) -> tuple[str, ...]:
        """Return descriptions of what may follow at the offset `at`.

        They are characters and ranges of characters as Python writes them, tokens by
        name, and "the end". The value is computed on first use. For a grammar of
        llguidance, characters of several bytes that would take many steps to find are
        represented by their first bytes.
        """
        return self.look()

    def __reduce__(self) -> tuple[Callable[..., Verdict], tuple[object, ...]]:
        return _known, (self.verdict, self.at, self.expected)


def _known(verdict: Literal["yes", "no", "unfinished"], at: int, expected: tuple[str, ...]) -> Verdict:
    """Return a verdict whose `expected` is already known."""
    return Verdict(verdict, at, lambda: expected)


def verdict_on(machine: ByteReader, text: str | bytes, expecting: Expecting) -> Verdict:
    """Read a text byte by byte and return the verdict.

    Raises `TextError` for a lone surrogate, and `GrammarError` beyond the machine's
    limits.
    """
    data = to_bytes(text, "text") if isinstance(text, str) else text
    configuration = before_character = machine.start
    at_character = 0
    for i, byte in enumerate(data):
        if byte & 0xC0 != 0x80:
            at_character, before_character = i, configuration
        after = machine.step(configuration, byte)
        if after == DEAD:
            if isinstance(text, str):
                return Verdict("no", len(data[:at_character].decode("utf-8")), partial(expecting, before_character))
            return Verdict("no", i, partial(expecting, configuration))
        configuration = after
    ends = machine.can_end(configuration)
    return Verdict("yes" if ends else "unfinished", len(text), partial(expecting, configuration))


def expected_of_machine(machine: ByteReader, configuration: int, class_of: Sequence[int]) -> tuple[str, ...]:
    """Return descriptions of the input that a machine allows in a configuration.

    They describe characters, single bytes inside a character, tokens, and "the end".

    Args:
        class_of: The class of each byte (see `Characterwise`).
    """
    reader = Characterwise(machine, class_of)
    shown = shown_characters((first, last) for first, last, _ in reader.choices(configuration))
    shown += shown_bytes((first, last) for first, last, _ in reader.continuations(configuration))
    shown += [_token(machine.token_sets[index]) for index in machine.token_terminals(configuration)]
    return cut(shown, machine.can_end(configuration))


def cut(shown: list[str], can_end: bool) -> tuple[str, ...]:  # noqa: FBT001 - a fact, not an option
    """Return at most `MAX_EXPECTED` of the items, and "the end" if a text may end."""
    if len(shown) >= MAX_EXPECTED:
        n_more = len(shown) - MAX_EXPECTED + 2
        shown = [*shown[: MAX_EXPECTED - 2], f"{n_more} more"]
    return (*shown, END) if can_end else tuple(shown)


def shown_characters(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return ascending ranges of code points as Python writes them."""
    return [_range(_character(first), _character(last)) for first, last in _joined(ranges)]


def shown_bytes(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return ascending ranges of bytes in readable form."""
    return [_range(f"byte 0x{first:02X}", f"byte 0x{last:02X}") for first, last in _joined(ranges)]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of code points, with adjacent ranges joined.

    Two ranges that only the surrogates separate are joined as well.
    """
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and (joined[-1][1] == first - 1 or (joined[-1][1], first) == (SURROGATES[0] - 1, SURROGATES[1] + 1)):
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first}…{last}"


def _character(code: int) -> str:
    """Return a visible character as Python writes it, and any other as U+…."""
    character = chr(code)
    return repr(character) if character.isprintable() or character in "\n\r\t" else f"U+{code:04X}"


def _token(tokens: TokenSet) -> str:
    named = " or ".join(f"token {token}" if isinstance(token, int) else token for token in tokens.tokens)
    return f"any token but {named}" if tokens.negated else named
