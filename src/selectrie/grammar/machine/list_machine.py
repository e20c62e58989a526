"""The recogniser of a list of texts, which searches the sorted list itself.

It needs no compilation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import IntArray
from selectrie.errors import GrammarError
from selectrie.grammar.machine.limits import DEFAULT_LIMITS, GrammarLimits
from selectrie.grammar.machine.machine import DEAD, UNKNOWN
from selectrie.grammar.rules.expressions import TokenSet

SPAN_BYTES = 150
"""Approximate memory of a configuration beside its row of the table."""


class ListMachine:
    """Reads the texts of a list byte by byte, with the interface of `Machine`.

    Not thread-safe. A configuration is a prefix of some text: a range of the sorted
    list and the number of bytes read. Its successors are found on first use, by one
    binary search for each byte that may come next. The cost therefore depends on the
    texts that are read and not on the length of the list.

    Any method raises `GrammarError` if the configurations take more memory than the
    limits allow.

    Args:
        texts: Distinct texts in ascending order.
    """

    token_sets: tuple[TokenSet, ...] = ()

    def __init__(self, texts: Sequence[bytes], limits: GrammarLimits = DEFAULT_LIMITS) -> None:
        self._texts, self._limits = texts, limits
        used = sorted(set().union(*texts))
        self.class_of: NDArray[np.uint8] = np.zeros(256, np.uint8)
        self.class_of[used] = np.arange(1, len(used) + 1)
        self._class_of: list[int] = self.class_of.tolist()
        self.n_classes = len(used) + 1  # class 0: bytes that occur in no text
        self._table: IntArray = np.full((64, self.n_classes), UNKNOWN, np.int32)
        self._spans: list[tuple[int, int, int]] = []
        self.start = self._made(0, len(texts), 0)

    @property
    def table(self) -> IntArray:
        """Return the transition table (see `Machine.table`)."""
        return self._table

    @property
    def n_configurations(self) -> int:
        return len(self._spans)

    @property
    def n_bytes(self) -> int:
        """Return the estimated memory of table and configurations, in bytes.

        The list itself is not counted.
        """
        return self._table.nbytes + SPAN_BYTES * len(self._spans)

    def begin(self) -> None:
        """Do nothing, since no steps are counted."""

    def fill(self, configurations: IntArray, classes: IntArray) -> None:
        """Compute unknown transitions (see `Machine.fill`), whole rows at once."""
        unknown = self._table[configurations, classes] == UNKNOWN
        for configuration in np.unique(configurations[unknown]).tolist():
            self._look_at(configuration)

    def step(self, configuration: int, byte: int) -> int:
        """Return the configuration after one more byte, or `DEAD` if it is refused."""
        target = int(self._table[configuration, self._class_of[byte]])
        if target != UNKNOWN:
            return target
        self._look_at(configuration)
        return int(self._table[configuration, self._class_of[byte]])

    def walk(self, configuration: int, text: bytes) -> int:
        """Return the configuration after a text, or `DEAD` if it is refused."""
        for byte in text:
            configuration = self.step(configuration, byte)
            if configuration == DEAD:
                break
        return configuration

    def can_end(self, configuration: int) -> bool:
        """Return whether the bytes read so far are a complete text."""
        first, _, n_read = self._spans[configuration]
        return len(self._texts[first]) == n_read

    def token_terminals(self, _configuration: int) -> tuple[int, ...]:
        """Return (): a list contains only texts."""
        return ()

    def take_terminal(self, _configuration: int, _terminal: int) -> int:
        """Return `DEAD`: a list contains only texts."""
        return DEAD

    def union(self, configurations: Sequence[int]) -> int:
        """Return the configuration given, of which there is only one.

        Two different ones would need token terminals.
        """
        (only,) = set(configurations)
        return only

    def _look_at(self, configuration: int) -> None:
        """Compute the successors of a configuration for all bytes that may come."""
        texts = self._texts
        first, stop, n_read = self._spans[configuration]
        row = np.full(self.n_classes, DEAD, np.int32)
        first += len(texts[first]) == n_read
        while first < stop:
            byte = texts[first][n_read]
            after = bisect_right(texts, byte, first + 1, stop, key=itemgetter(n_read))
            row[self._class_of[byte]] = self._made(first, after, n_read + 1)
            first = after
        self._table[configuration] = row

    def _made(self, first: int, stop: int, n_read: int) -> int:
        number = len(self._spans)
        if number == len(self._table):
            self._grow()
        self._spans.append((first, stop, n_read))
        return number

    def _grow(self) -> None:
        if self.n_bytes + self._table.nbytes > self._limits.max_bytes:
            raise GrammarError(
                f"reading the list of {len(self._texts)} texts led to {len(self._spans)} prefixes in "
                f"{self.n_bytes >> 20} MiB, which exceeds the limit; use `select` to choose among the "
                "texts, or give fewer texts"
            )
        table: IntArray = np.full((2 * len(self._table), self.n_classes), UNKNOWN, np.int32)
        table[: len(self._table)] = self._table
        self._table = table
