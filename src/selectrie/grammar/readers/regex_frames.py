"""Open groups of a pattern, and checks on its lazy and possessive counts.

Such a count is accepted only if its way of matching makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from selectrie.errors import GrammarError
from selectrie.grammar.readers.shapes import NOTHING, empty_part, first_characters, sequence
from selectrie.grammar.rules.expressions import Characters, Expression, Text

REMEDY = "; use a greedy count of a smaller set"
MAX_WORK = 200_000
"""Maximum number of ranges compared for one pattern, taking about half a second."""


class Last(Enum):
    """What a count would repeat; for a run of plain characters, only the last one."""

    NONE = "nothing"
    RUN = "run"
    ANCHOR = "anchor"
    REPEATED = "repeated"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Held:
    """A lazy or possessive count that is accepted on a condition.

    It matches all texts that a greedy count would if none of its characters can follow
    it. A lazy count also needs something to follow.

    Attributes:
        offset: Where the count is.
        characters: The characters that must not follow.
        lazy: Whether the count is lazy; otherwise it is possessive.
    """

    offset: int
    characters: Characters
    lazy: bool

    @property
    def what(self) -> str:
        """Return how messages name the count."""
        return "lazy" if self.lazy else "possessive"


@dataclass(slots=True)
class Frame:
    """An open group.

    Attributes:
        flags: Flags in force.
        offset: Offset of the parenthesis, -1 for the whole pattern.
        options: The options that are complete.
        items: The items of the current option.
        last: What the last item is.
        last_offset: Where the last item begins.
        held: Counts at the end of this option, which restrict what follows.
        held_before: Counts at the ends of the other options.
    """

    flags: frozenset[str]
    offset: int
    options: list[Expression] = field(default_factory=list)
    items: list[Expression] = field(default_factory=list)
    last: Last = Last.NONE
    last_offset: int = -1
    held: list[Held] = field(default_factory=list)
    held_before: list[Held] = field(default_factory=list)

    def end_option(self) -> None:
        """Turn the items so far into an option and begin the next one."""
        self.release()
        self.options.append(sequence(self.items))
        self.held_before += self.held
        self.held, self.items, self.last = [], [], Last.NONE

    def release(self) -> None:
        """Drop the counts that cannot affect what follows.

        An item that is never empty separates them from it.
        """
        if self.held and self.items and empty_part(self.items[-1]) == NOTHING:
            self.held = [held for held in self.held if held.offset >= self.last_offset]


class Watch:
    """Checks, with bounded work, that no restricted character follows a count."""

    def __init__(self, refuse: Callable[[int, str], GrammarError]) -> None:
        self._refuse = refuse
        self._left = MAX_WORK

    def hold(self, frame: Frame, item: Expression, held: Held, *, is_fixed: bool) -> None:
        """Record a count, to check later that none of its characters can follow.

        A count of single characters loses no text in that case. Other counts are
        refused, except for lazy counts with a fixed number.
        """
        is_one = isinstance(item, Characters) or (isinstance(item, Text) and len(item.value.decode()) == 1)
        if not is_one and not (held.lazy and is_fixed):
            reason = f"a {held.what} count is supported only for single characters that cannot follow it{REMEDY}"
            raise self._refuse(held.offset, reason)
        if not is_fixed:
            frame.held.append(held)

    def check(self, frame: Frame, item: Expression) -> None:
        """Check that the item may follow the counts held in the frame."""
        if not frame.held:
            return
        frame.release()
        first = first_characters(item)
        for held in frame.held:
            self._left -= len(held.characters.ranges) + len(first.ranges) + 4
            if self._left < 0:
                raise self._refuse(held.offset, f"checking what may follow this {held.what} count is too slow{REMEDY}")
            if _overlap(held.characters, first):
                reason = f"this {held.what} count repeats characters that may also follow it{REMEDY}"
                raise self._refuse(held.offset, reason)


def _overlap(left: Characters, right: Characters) -> bool:
    both = Characters.of([*left.ranges, *right.ranges])
    return _size(both) < _size(left) + _size(right)


def _size(characters: Characters) -> int:
    return sum(last - first + 1 for first, last in characters.ranges)
