"""A cache of the compiled regular expressions of a template."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from selectrie.grammar import Grammar

MAX_PATTERNS = 64
"""Maximum number of patterns that are kept, since values may bring any number."""
MAX_BYTES = 64 << 20
"""Maximum size of the kept patterns together.

The pattern used last is kept in any case.
"""


class Patterns:
    """A thread-safe cache of grammars by pattern; it drops the least recently used."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Grammar] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, pattern: str) -> Grammar | None:
        """Return the cached grammar of a pattern, else None."""
        with self._lock:
            if pattern in self._kept:
                self._kept.move_to_end(pattern)
            return self._kept.get(pattern)

    def keep(self, pattern: str, grammar: Grammar) -> Grammar:
        """Cache a grammar, and return the one that is cached for the pattern.

        That is the given one, unless another thread has cached one before.
        """
        with self._lock:
            kept = self._kept.setdefault(pattern, grammar)
            self._kept.move_to_end(pattern)
            n_bytes = sum(one.held_bytes for one in self._kept.values())
            while len(self._kept) > 1 and (len(self._kept) > MAX_PATTERNS or n_bytes > MAX_BYTES):
                n_bytes -= self._kept.popitem(last=False)[1].held_bytes
            return kept
