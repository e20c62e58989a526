"""Decides, character by character, whether a grammar accepts a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, Protocol

from selectrie.core.vocabulary import to_bytes
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.machine.nfa import join_runs
from selectrie.grammar.rules import SURROGATES, TokenTerminal

LEADS = ((0x00, 0x80, 0), (0xC2, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0xF5, 3))
"""First byte, end (exclusive) of lead bytes, and the number of bytes that follow.

Source: RFC 3629, section 4.
"""
LENGTH_BITS = (0x00, 0xC0, 0xE0, 0xF0)
"""The bits of a lead byte that say how many bytes follow, for 0 to 3 of them."""

Choice = tuple[int, int, int]
"""First and last code point, and the configuration that each of them leads to."""


class ByteReader(Protocol):
    """Anything that reads texts byte by byte, such as a `Machine`."""

    @property
    def start(self) -> int: ...
    @property
    def token_sets(self) -> tuple[TokenTerminal, ...]: ...
    def step(self, configuration: int, byte: int, /) -> int: ...
    def can_end(self, configuration: int, /) -> bool: ...
    def token_terminals(self, configuration: int, /) -> tuple[int, ...]: ...


class Characterwise:
    """Computes, and then keeps, the possible next characters of each configuration.

    Not thread-safe.

    Args:
        machine: Reads the bytes of a text. Its configurations are those of the methods.
        class_of: The class of each byte; bytes of one class lead to the same
            configuration.
    """

    def __init__(self, machine: ByteReader, class_of: Sequence[int]) -> None:
        self._machine, self._class_of = machine, class_of
        self._choices: dict[int, list[Choice]] = {}
        self._inner: dict[tuple[int, int], list[Choice]] = {}

    def choices(self, configuration: int) -> list[Choice]:
        """Return the possible next characters as ascending ranges of code points.

        Adjacent ranges that lead to different configurations stay separate.
        """
        choices = self._choices.get(configuration)
        if choices is None:
            choices = []
            for low, high, n_more in LEADS:
                for first, last, target in self._byte_runs(configuration, low, high):
                    base = (first - LENGTH_BITS[n_more]) << 6 * n_more
                    choices += self._character_ranges(base, last - first + 1, n_more, target)
            choices = self._choices[configuration] = join_runs(choices)
        return choices

    def continuations(self, configuration: int) -> list[Choice]:
        """Return runs of the possible next bytes from 0x80 to 0xBF.

        A run is (first byte, last byte, configuration after it). These bytes
        continue a character.
        """
        return self._byte_runs(configuration, 0x80, 0xC0)

    def _byte_runs(self, configuration: int, low: int, high: int) -> list[Choice]:
        """Return runs (first, last, target) of the bytes `low` to `high` (exclusive).

        Adjacent bytes that lead to the same configuration form one run.
        """
        runs: list[Choice] = []
        targets: dict[int, int] = {}
        class_of = self._class_of
        for byte in range(low, high):
            target = targets.get(class_of[byte])
            if target is None:
                target = targets[class_of[byte]] = self._machine.step(configuration, byte)
            if target != DEAD:
                runs.append((byte, byte, target))
        return join_runs(runs)

    def _character_ranges(self, base: int, n_leads: int, n_more: int, target: int) -> list[Choice]:
        """Return ranges of the characters that begin with one of several lead bytes.

        Args:
            base: First code point of the first lead byte.
            n_leads: Number of neighbouring bytes that lead to `target`.
            n_more: Number of bytes still missing from each character.
        """
        if n_more == 0:
            return [(base, base + n_leads - 1, target)]
        inner = self._inner.get((target, n_more))
        if inner is None:
            inner = []
            for first, last, after in self._byte_runs(target, 0x80, 0xC0):
                inner += self._character_ranges((first - 0x80) << 6 * (n_more - 1), last - first + 1, n_more - 1, after)
            inner = self._inner[target, n_more] = join_runs(inner)
        # Each continuation byte has six bits of the code point.
        width = 1 << 6 * n_more
        return [
            (base + lead * width + first, base + lead * width + last, after)
            for lead in range(n_leads)
            for first, last, after in inner
        ]


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
        return _restore_verdict, (self.verdict, self.at, self.expected)


def _restore_verdict(verdict: Literal["yes", "no", "unfinished"], at: int, expected: tuple[str, ...]) -> Verdict:
    """Return a pickled verdict, whose `expected` was computed before."""
    return Verdict(verdict, at, lambda: expected)


def verdict_on(machine: ByteReader, text: str | bytes, expecting: Expecting) -> Verdict:
    """Read a text byte by byte and return the verdict.

    `expecting` describes what may follow in a configuration. Raises `TextError` for a
    lone surrogate, and `GrammarError` beyond the machine's limits.
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


def describe_expected(machine: ByteReader, configuration: int, class_of: Sequence[int]) -> tuple[str, ...]:
    """Return descriptions of the input that a machine allows in a configuration.

    They describe characters, single bytes inside a character, tokens, and "the end".

    Args:
        class_of: The class of each byte (see `Characterwise`).
    """
    reader = Characterwise(machine, class_of)
    shown = describe_characters((first, last) for first, last, _ in reader.choices(configuration))
    shown += describe_bytes((first, last) for first, last, _ in reader.continuations(configuration))
    shown += [_describe_terminal(machine.token_sets[index]) for index in machine.token_terminals(configuration)]
    return limit_descriptions(shown, machine.can_end(configuration))


def limit_descriptions(shown: list[str], can_end: bool) -> tuple[str, ...]:  # noqa: FBT001 - a fact, not an option
    """Return at most `MAX_EXPECTED` descriptions, and "the end" if a text may end."""
    if len(shown) >= MAX_EXPECTED:
        n_more = len(shown) - MAX_EXPECTED + 2
        shown = [*shown[: MAX_EXPECTED - 2], f"{n_more} more"]
    return (*shown, END) if can_end else tuple(shown)


def describe_characters(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return a description of each run of code points, as Python writes them."""
    return [
        _describe_range(_describe_character(first), _describe_character(last)) for first, last in _join_adjacent(ranges)
    ]


def describe_bytes(ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return a description, such as "byte 0x80…byte 0xBF", of each run of bytes."""
    return [_describe_range(f"byte 0x{first:02X}", f"byte 0x{last:02X}") for first, last in _join_adjacent(ranges)]


def _join_adjacent(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
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


def _describe_range(first: str, last: str) -> str:
    return first if first == last else f"{first}…{last}"


def _describe_character(code: int) -> str:
    """Return a visible character as Python writes it, and any other as U+…."""
    character = chr(code)
    return repr(character) if character.isprintable() or character in "\n\r\t" else f"U+{code:04X}"


def _describe_terminal(tokens: TokenTerminal) -> str:
    """Return a token terminal in words, such as "any token but <think>"."""
    named = " or ".join(f"token {token}" if isinstance(token, int) else token for token in tokens.tokens)
    return f"any token but {named}" if tokens.negated else named
