"""The open groups of a pattern, and checks on its lazy and possessive counts.

Such a count is accepted only if a greedy count would match the same texts.
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
    """The kind of the last item, which a count would repeat.

    Of a run of plain characters, a count repeats only the last one.
    """

    NONE = "nothing"
    RUN = "run"
    ANCHOR = "anchor"
    REPEATED = "repeated"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Held:
    """A lazy or possessive count that is accepted if its characters cannot follow.

    It then matches the same texts as a greedy count. A lazy count also needs an item
    that follows.

    Attributes:
        offset: Offset of the count in the pattern.
        characters: The characters that must not follow.
        lazy: Whether the count is lazy; otherwise it is possessive.
    """

    offset: int
    characters: Characters
    lazy: bool

    @property
    def what(self) -> str:
        """Return the kind of the count for messages: "lazy" or "possessive"."""
        return "lazy" if self.lazy else "possessive"


@dataclass(slots=True)
class Frame:
    """An open group of a pattern.

    Attributes:
        flags: The flags that apply in the group.
        offset: Offset of the parenthesis, -1 for the whole pattern.
        options: The options that are complete.
        items: The items of the current option.
        last: The kind of the last item.
        last_offset: Offset of the last item.
        held: Counts at the end of the current option, which restrict the next item.
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
        """Drop the held counts that no longer restrict the next item.

        Those are the counts before the last item, if that item is never empty.
        """
        if self.held and self.items and empty_part(self.items[-1]) == NOTHING:
            self.held = [held for held in self.held if held.offset >= self.last_offset]


class Watch:
    """Checks, with bounded work, that a held count's characters cannot follow it."""

    def __init__(self, refuse: Callable[[int, str], GrammarError]) -> None:
        self._refuse = refuse
        self._left = MAX_WORK

    def hold(self, frame: Frame, item: Expression, held: Held, *, is_fixed: bool) -> None:
        """Record a count, to check later that none of its characters can follow.

        That condition is enough for counts of single characters. Other counts raise an
        error, except lazy ones with a fixed number.
        """
        is_one = isinstance(item, Characters) or (isinstance(item, Text) and len(item.value.decode()) == 1)
        if not is_one and not (held.lazy and is_fixed):
            reason = f"a {held.what} count is supported only for single characters that cannot follow it{REMEDY}"
            raise self._refuse(held.offset, reason)
        if not is_fixed:
            frame.held.append(held)

    def check(self, frame: Frame, item: Expression) -> None:
        """Raise an error if the item may begin with a character of a held count."""
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
