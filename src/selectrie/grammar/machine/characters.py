"""Reads a machine of bytes character by character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.machine.utf8 import joined_runs
from selectrie.grammar.rules.expressions import TokenSet

LEADS = ((0x00, 0x80, 0), (0xC2, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0xF5, 3))
"""First byte, end (exclusive) of lead bytes, and the number of bytes that follow.

Source: RFC 3629, section 4.
"""
STRIPPED = (0x00, 0xC0, 0xE0, 0xF0)

Choice = tuple[int, int, int]
"""First and last code point, and the configuration that each of them leads to."""


class ByteReader(Protocol):
    """Anything that reads texts byte by byte, such as a `Machine`."""

    @property
    def start(self) -> int: ...
    @property
    def token_sets(self) -> tuple[TokenSet, ...]: ...
    def step(self, configuration: int, byte: int, /) -> int: ...
    def can_end(self, configuration: int, /) -> bool: ...
    def token_terminals(self, configuration: int, /) -> tuple[int, ...]: ...


class Characterwise:
    """Computes, and then keeps, the possible next characters of each configuration.

    Not thread-safe.

    Args:
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
                for first, last, target in self._bytes(configuration, low, high):
                    base = (first - STRIPPED[n_more]) << 6 * n_more
                    choices += self._spread(base, last - first + 1, n_more, target)
            choices = self._choices[configuration] = joined_runs(choices)
        return choices

    def continuations(self, configuration: int) -> list[Choice]:
        """Return runs of the possible next bytes inside a character, 0x80 to 0xBF."""
        return self._bytes(configuration, 0x80, 0xC0)

    def _bytes(self, configuration: int, low: int, high: int) -> list[Choice]:
        """Return runs of bytes that lead to the same configuration."""
        runs: list[Choice] = []
        targets: dict[int, int] = {}
        class_of = self._class_of
        for byte in range(low, high):
            target = targets.get(class_of[byte])
            if target is None:
                target = targets[class_of[byte]] = self._machine.step(configuration, byte)
            if target != DEAD:
                runs.append((byte, byte, target))
        return joined_runs(runs)

    def _spread(self, base: int, n_leads: int, n_more: int, target: int) -> list[Choice]:
        """Return edges for the characters that begin with one of several lead bytes.

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
            for first, last, after in self._bytes(target, 0x80, 0xC0):
                inner += self._spread((first - 0x80) << 6 * (n_more - 1), last - first + 1, n_more - 1, after)
            inner = self._inner[target, n_more] = joined_runs(inner)
        width = 1 << 6 * n_more
        return [
            (base + lead * width + first, base + lead * width + last, after)
            for lead in range(n_leads)
            for first, last, after in inner
        ]
