"""Shares the automata of one grammar between engines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import RLock

from selectrie.core.types import BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar.tokens.protocols import LedAutomaton, WalkedAutomaton


class SharedAutomaton:
    """An automaton for any thread; its grammar's lock admits one call at a time.

    An automaton's tables grow while it is used, and the threads of several engines
    share a grammar. Without the lock, two of them would change one table at once. With
    separate tables, everything would be computed twice. An uncontended lock costs 0.1
    µs a call. Arrays that were returned never change.
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
        """Return the state after the bytes `text` in any tokens; -1 if refused."""
        with self._lock:
            return self._inner.walk(state, text)


class Automata:
    """The automata of a grammar for the most recently used vocabularies.

    Callers hold the lock. An automaton grows with use, so one that exceeds `max_bytes`
    is replaced by a new one for the next caller; earlier callers keep the old one.

    Args:
        make: Creates the automaton of a vocabulary.
        max_automata: Maximum number of vocabularies.
        max_bytes: Memory beyond which an automaton is replaced; None for no limit.
    """

    def __init__(
        self, make: Callable[[Vocabulary], LedAutomaton], *, max_automata: int = 4, max_bytes: int | None = None
    ) -> None:
        self._make, self._max_automata, self._max_bytes = make, max_automata, max_bytes
        self._of: OrderedDict[str, LedAutomaton] = OrderedDict()

    def get(self, vocabulary: Vocabulary) -> LedAutomaton:
        """Return the automaton of a vocabulary, identified by its digest."""
        digest = vocabulary.digest
        automaton = self._of.get(digest)
        if automaton is None or (self._max_bytes is not None and automaton.n_bytes > self._max_bytes):
            automaton = self._of[digest] = self._make(vocabulary)
        self._of.move_to_end(digest)
        while len(self._of) > self._max_automata:
            self._of.popitem(last=False)
        return automaton

    def clear(self) -> None:
        """Forget all automata."""
        self._of.clear()
