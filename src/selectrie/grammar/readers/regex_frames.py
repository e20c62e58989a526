"""Open groups of a pattern that is read, and the counts in them whose way of matching must not matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from selectrie.errors import GrammarError
from selectrie.grammar.readers.shapes import NOTHING, empty_part, first_characters, sequence
from selectrie.grammar.rules.expressions import Characters, Expression, Text

REMEDY = "; write a plain count of a smaller set"
MOST_WORK = 200_000
"""Ranges of characters compared for one pattern, in about half a second."""


class Last(Enum):
    """What a count would repeat; of a run of plain characters only the last."""

    NONE = "nothing"
    RUN = "run"
    ANCHOR = "anchor"
    REPEATED = "repeated"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Held:
    """A count at `place` whose way of matching loses no text as long as none of these characters can follow.

    lazy: and as long as something does follow.
    """

    place: int
    characters: Characters
    lazy: bool

    @property
    def what(self) -> str:
        """As messages name it."""
        return "lazy" if self.lazy else "possessive"


@dataclass(slots=True)
class Frame:
    """One open group.

    place: of its parenthesis, -1 for the whole. last, last_place: what the last item is, and where it begins. held: by the
    counts at the end of this option, what must not follow; held_before: by those at the end of the others.
    """

    flags: frozenset[str]
    place: int
    options: list[Expression] = field(default_factory=list)
    items: list[Expression] = field(default_factory=list)
    last: Last = Last.NONE
    last_place: int = -1
    held: list[Held] = field(default_factory=list)
    held_before: list[Held] = field(default_factory=list)

    def end_option(self) -> None:
        """The items so far are an option; the next begins."""
        self.release()
        self.options.append(sequence(self.items))
        self.held_before += self.held
        self.held, self.items, self.last = [], [], Last.NONE

    def release(self) -> None:
        """What stands before an item that is never empty concerns nothing after it."""
        if self.held and self.items and empty_part(self.items[-1]) == NOTHING:
            self.held = [held for held in self.held if held.place >= self.last_place]


class Watch:
    """Sees to it that nothing follows what must not be followed by it, with a bound on that work."""

    def __init__(self, refuse: Callable[[int, str], GrammarError]) -> None:
        self._refuse = refuse
        self._left = MOST_WORK

    def hold(self, frame: Frame, item: Expression, held: Held, *, is_fixed: bool) -> None:
        """Such a count of single characters loses no text where none of them can follow: remember to see to that."""
        is_one = isinstance(item, Characters) or (isinstance(item, Text) and len(item.value.decode()) == 1)
        if not is_one and not (held.lazy and is_fixed):
            reason = f"a {held.what} count is supported for single characters that cannot follow it{REMEDY}"
            raise self._refuse(held.place, reason)
        if not is_fixed:
            frame.held.append(held)

    def check(self, frame: Frame, item: Expression) -> None:
        """The item may follow what is held in the frame."""
        if not frame.held:
            return
        frame.release()
        first = first_characters(item)
        for held in frame.held:
            self._left -= len(held.characters.ranges) + len(first.ranges) + 4
            if self._left < 0:
                raise self._refuse(held.place, f"too much may follow this {held.what} count{REMEDY}")
            if _overlap(held.characters, first):
                reason = f"this {held.what} count is of characters that may follow it{REMEDY}"
                raise self._refuse(held.place, reason)


def _overlap(left: Characters, right: Characters) -> bool:
    both = Characters.of([*left.ranges, *right.ranges])
    return _size(both) < _size(left) + _size(right)


def _size(characters: Characters) -> int:
    return sum(last - first + 1 for first, last in characters.ranges)
