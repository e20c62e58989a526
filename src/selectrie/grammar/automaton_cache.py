"""Automata of one grammar for every engine that uses it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import RLock

from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar.tokens.protocols import LedAutomaton, WalkedAutomaton


class SharedAutomaton:
    """An automaton that any thread may use: one call at a time, under the lock of its grammar.

    Its tables grow while it is asked. Engines have a thread each and share a grammar, so without the lock two of them
    would fill one table at once; with a table for each they would compute everything twice. An uncontended lock costs
    0.1 µs a call; arrays that were handed out never change.
    """

    def __init__(self, inner: WalkedAutomaton, lock: RLock) -> None:
        self._inner, self._lock = inner, lock

    def start(self) -> int:
        with self._lock:
            return self._inner.start()

    def allowed(self, state: int) -> BoolArray | IntArray:
        with self._lock:
            return self._inner.allowed(state)

    def advance(self, state: int, token: int) -> int:
        with self._lock:
            return self._inner.advance(state, token)

    def can_end(self, state: int) -> bool:
        with self._lock:
            return self._inner.can_end(state)

    def walk(self, state: int, text: bytes) -> int:
        """The state after these bytes, whatever tokens cut them; -1 where they are refused."""
        with self._lock:
            return self._inner.walk(state, text)


class Automata:
    """One automaton for each vocabulary; of more than `most` vocabularies the least recently used are forgotten.

    make: computes one. Callers hold the lock. What an automaton learned stays with it, so one that holds more than
    `most_bytes` is made anew for the next caller; those who have the old one keep it.
    """

    def __init__(
        self, make: Callable[[Vocabulary], LedAutomaton], *, most: int = 4, most_bytes: int | None = None
    ) -> None:
        self._make, self._most, self._most_bytes = make, most, most_bytes
        self._of: OrderedDict[str, LedAutomaton] = OrderedDict()

    def get(self, vocabulary: Vocabulary) -> LedAutomaton:
        """The automaton of a vocabulary, by its digest."""
        digest = vocabulary.digest
        found = self._of.get(digest)
        if found is None or (self._most_bytes is not None and found.n_bytes > self._most_bytes):
            found = self._of[digest] = self._make(vocabulary)
        self._of.move_to_end(digest)
        while len(self._of) > self._most:
            self._of.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget all of them."""
        self._of.clear()
