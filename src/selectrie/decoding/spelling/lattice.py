"""Says token by token how the bytes of a set of texts can be spelled.

It knows positions in texts and tokens that fit there, and neither rows nor models.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError

NO_EVENT = -1


@dataclass(frozen=True, slots=True, order=True)
class ByteEvent:
    """What a sequence of tokens has to spell.

    Attributes:
        text: The bytes.
        ends: True if the tokens spell these bytes and no more, and an end-of-generation
            token follows. False if the bytes that the tokens spell begin with `text`;
            the last token may overrun it.
    """

    text: bytes
    ends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The tokens that may follow a prefix in one state, and what they lead to.

    An event is alive in a state if the prefix can still lead to it.

    Attributes:
        alive: The events that are alive, as a slice of `Lattice.events`.
        tokens: int32[n], the tokens after which some event is still alive, ascending.
            They spell a proper prefix of what is left of its text; where an event
            ends, also all of it.
        states: int64[n], the state after each of them.
        covering: Pairs (event, int32[] tokens): the tokens with which an event that
            does not end happens. They begin with all that is left of its text.
        ended: The event whose text is spelled, so that it happens with an
            end-of-generation token; `NO_EVENT` if there is none.
    """

    alive: slice
    tokens: IntArray
    states: IntArray
    covering: tuple[tuple[int, IntArray], ...]
    ended: int


class Lattice:
    """All ways to spell some events token by token: states, and steps between them.

    A state is a position in the bytes with the events that begin with the bytes before
    it. State 0 is the beginning. The steps of a state are computed on first use. There
    are at most as many states as distinct prefixes of the texts.

    Tokens without bytes, control tokens and end-of-generation tokens spell nothing.

    Args:
        vocabulary: The vocabulary.
        events: At least one event; equal ones are one.

    Attributes:
        events: The distinct events, in order.
        index_of: The position in `events` of each event that was given.
        eog: int32[], the end-of-generation tokens.
    """

    def __init__(self, vocabulary: Vocabulary, events: Sequence[ByteEvent]) -> None:
        if not events:
            raise ProtocolError("a lattice needs at least one event")
        if ByteEvent(b"", ends=False) in events:
            raise ProtocolError("every text begins with b''; an event needs bytes, or an end")
        self._vocabulary = vocabulary
        self.events = tuple(sorted(set(events)))
        self.index_of = tuple(self.events.index(event) for event in events)
        self.eog = vocabulary.eog
        spelling_nothing = np.union1d(vocabulary.eog, vocabulary.control)
        self._excluded = spelling_nothing[vocabulary.lengths[spelling_nothing] > 0]
        self._texts = [event.text for event in self.events]
        self._states: list[tuple[int, int, int]] = []  # position, first and last alive event
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._steps: dict[int, Step] = {}
        self._state(b"")

    @property
    def n_states(self) -> int:
        """Return the number of states that were reached so far."""
        return len(self._states)

    @property
    def max_tokens(self) -> int:
        """Return the length of the longest path whose row may be read."""
        return max(len(event.text) - (not event.ends) for event in self.events)

    def alive(self, state: int) -> slice:
        """Return the events that are alive in a state."""
        _, first, stop = self._states[state]
        return slice(first, stop)

    def step(self, state: int) -> Step:
        """Return the step from a state."""
        if state not in self._steps:
            self._steps[state] = self._make(state)
        return self._steps[state]

    def _state(self, spelled: bytes) -> int:
        """Return the state after some bytes, with which some event is alive."""
        first = bisect_left(self._texts, spelled)
        stop = first
        while stop < len(self._texts) and self._texts[stop].startswith(spelled):
            stop += 1
        # An event that does not end has happened once its bytes are spelled.
        first += first < stop and self.events[first] == ByteEvent(spelled, ends=False)
        key = len(spelled), first, stop
        if key not in self._numbers:
            self._numbers[key] = len(self._states)
            self._states.append(key)
        return self._numbers[key]

    def _make(self, state: int) -> Step:
        position, first, stop = self._states[state]
        spelled = self._texts[first][:position]
        ended = first if len(self._texts[first]) == position else NO_EVENT
        tokens: list[IntArray] = []
        covering = []
        for event in range(first + (ended != NO_EVENT), stop):
            left = self._texts[event][position:]
            tokens.append(self._vocabulary.prefixes_of(left))
            if self.events[event].ends:
                tokens.append(self._vocabulary.with_bytes(left))
            else:
                covering.append((event, self._spelling(self._vocabulary.with_prefix(left))))
        fitting = self._spelling(np.unique(np.concatenate(tokens)) if tokens else self._vocabulary.eog[:0])
        pieces = self._vocabulary.pieces
        after = [self._state(spelled + pieces[token]) for token in fitting.tolist()]
        return Step(
            slice(first, stop),
            fitting,
            np.array(after, dtype=np.int64),
            tuple(covering),
            ended,
        )

    def _spelling(self, tokens: IntArray) -> IntArray:
        """Return the tokens among `tokens` that may spell something."""
        return tokens if not len(self._excluded) else np.setdiff1d(tokens, self._excluded)
