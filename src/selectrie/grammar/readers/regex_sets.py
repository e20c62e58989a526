r"""Computes character sets of Python's regular expressions.

These are the characters of \d, \w and \s, and those that differ only by case. The
Unicode tables are those of the running interpreter, computed once on first use.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from selectrie.grammar.rules.expressions import LAST_CODE_POINT, SURROGATES, Characters

Ranges = tuple[tuple[int, int], ...]

_ASCII_CATEGORIES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "s": ((9, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
MAX_RANGES = 400_000
"""Maximum number of ranges of all sets of a grammar text together.

Sorting them takes about half a second.
"""
LINE_FEED: Ranges = ((10, 10),)
_ASCII_LETTERS = ((65, 90), (97, 122))
_SIZE_OF_CASE = 32


@cache
def category(letter: str, *, ascii_only: bool) -> Characters:
    """Return the characters of an escape: d, s or w, or D, S or W for all others."""
    low = letter.lower()
    ranges = _ASCII_CATEGORIES[low] if ascii_only else _unicode_category(low)
    return Characters.of(list(ranges), negated=letter != low)


@cache
def any_character(*, line_feed: bool) -> Characters:
    """Return the characters that `.` matches: all, or all except the line feed."""
    return Characters.of([] if line_feed else list(LINE_FEED), negated=True)


@dataclass(frozen=True, slots=True)
class ParsedSet:
    r"""A character set of a pattern, as it is written.

    Attributes:
        ranges: Ranges of code points.
        categories: The letters of \d and the like.
        negated: Whether the set contains all other characters.
    """

    ranges: tuple[tuple[int, int], ...]
    categories: frozenset[str]
    negated: bool


class SetMaker:
    """Computes the characters of each distinct set once.

    All sets together have at most `MAX_RANGES` ranges.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[ParsedSet, bool, bool], Characters] = {}
        self._left = MAX_RANGES

    def made(self, parsed_set: ParsedSet, *, ascii_only: bool, ignore_case: bool) -> Characters | None:
        """Return the characters of a set, or None if they exceed the ranges left."""
        key = parsed_set, ascii_only, ignore_case
        known = self._made.get(key)
        if known is None:
            ranges = ignoring_case(parsed_set.ranges, ascii_only=ascii_only) if ignore_case else list(parsed_set.ranges)
            for letter in parsed_set.categories:
                ranges += category(letter, ascii_only=ascii_only).ranges
            self._left -= len(ranges)
            if self._left < 0:
                return None
            known = self._made[key] = Characters.of(ranges, negated=parsed_set.negated)
        return known


def case_variants(code: int, *, ascii_only: bool) -> tuple[int, ...]:
    """Return the code points equal to this one without case, in ascending order.

    The code point itself is included.
    """
    if ascii_only:
        low, high = sorted((code, code ^ _SIZE_OF_CASE))
        return (low, high) if any(first <= code <= last for first, last in _ASCII_LETTERS) else (code,)
    return _variants().get(code, (code,))


def ignoring_case(ranges: Iterable[tuple[int, int]], *, ascii_only: bool) -> list[tuple[int, int]]:
    """Return the ranges and all characters that differ from theirs only by case."""
    ranges = list(ranges)
    cased = _ascii_cased() if ascii_only else _cased()
    wider: set[int] = set()
    for first, last in ranges:
        for code in cased[bisect_left(cased, first) : bisect_right(cased, last)]:
            wider.update(case_variants(code, ascii_only=ascii_only))
    return [*ranges, *((code, code) for code in wider)]


@cache
def _unicode_category(letter: str) -> Ranges:
    """Return all runs of characters that the interpreter's `re` finds for a category.

    They are computed with `re`, so they always agree with it.
    """
    everything = "".join(map(chr, range(SURROGATES[0]))) + "".join(
        map(chr, range(SURROGATES[1] + 1, LAST_CODE_POINT + 1))
    )
    return tuple((ord(run[0][0]), ord(run[0][-1])) for run in re.finditer(rf"\{letter}+", everything))


def _case_key(character: str) -> str:
    """Return a key that is equal for two characters if `re.IGNORECASE` equates them.

    With case ignored, `re` compares the simple lower case (the first character, if the
    full lower case has more). It also treats lower-case characters with the same upper
    case as equal.
    """
    return character.lower()[0].upper()


@cache
def _variants() -> dict[int, tuple[int, ...]]:
    groups: dict[str, list[int]] = {}
    for code in range(LAST_CODE_POINT + 1):
        character = chr(code)
        if character.lower() != character or character.upper() != character:
            groups.setdefault(_case_key(character), []).append(code)
    return {code: tuple(codes) for codes in groups.values() if len(codes) > 1 for code in codes}


@cache
def _cased() -> list[int]:
    return sorted(_variants())


@cache
def _ascii_cased() -> list[int]:
    return [code for first, last in _ASCII_LETTERS for code in range(first, last + 1)]
