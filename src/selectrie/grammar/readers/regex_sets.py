r"""Character sets of Python's regular expressions: what \d, \w and \s hold, and which characters differ by case only.

The Unicode tables are those of the running interpreter, computed once, when first needed.
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
MOST_RANGES = 400_000
"""Of all sets of a grammar text together, as they are put in order in about half a second."""
LINE_FEED: Ranges = ((10, 10),)
_ASCII_LETTERS = ((65, 90), (97, 122))
_SIZE_OF_CASE = 32


@cache
def category(letter: str, *, ascii_only: bool) -> Characters:
    """The characters of an escape: one of d, s, w, or of D, S, W for all others."""
    low = letter.lower()
    ranges = _ASCII_CATEGORIES[low] if ascii_only else _unicode_category(low)
    return Characters.of(list(ranges), negated=letter != low)


@cache
def any_character(*, line_feed: bool) -> Characters:
    """What `.` stands for: every character, or every one but the line feed."""
    return Characters.of([] if line_feed else list(LINE_FEED), negated=True)


@dataclass(frozen=True, slots=True)
class FoundSet:
    r"""A set as written: its ranges of characters, its categories (the letters of \d and the like), and is it all others?"""

    ranges: tuple[tuple[int, int], ...]
    categories: frozenset[str]
    negated: bool


class SetMaker:
    """Makes characters of sets, each once; in all at most `MOST_RANGES` ranges."""

    def __init__(self) -> None:
        self._made: dict[tuple[FoundSet, bool, bool], Characters] = {}
        self._left = MOST_RANGES

    def made(self, found: FoundSet, *, ascii_only: bool, ignore_case: bool) -> Characters | None:
        """The characters of a set; None where they are more ranges than are left."""
        key = found, ascii_only, ignore_case
        known = self._made.get(key)
        if known is None:
            ranges = ignoring_case(found.ranges, ascii_only=ascii_only) if ignore_case else list(found.ranges)
            for letter in found.categories:
                ranges += category(letter, ascii_only=ascii_only).ranges
            self._left -= len(ranges)
            if self._left < 0:
                return None
            known = self._made[key] = Characters.of(ranges, negated=found.negated)
        return known


def case_variants(code: int, *, ascii_only: bool) -> tuple[int, ...]:
    """The code points that equal this one when case is ignored, itself among them, ascending."""
    if ascii_only:
        low, high = sorted((code, code ^ _SIZE_OF_CASE))
        return (low, high) if any(first <= code <= last for first, last in _ASCII_LETTERS) else (code,)
    return _variants().get(code, (code,))


def ignoring_case(ranges: Iterable[tuple[int, int]], *, ascii_only: bool) -> list[tuple[int, int]]:
    """The ranges and every character that differs from one of theirs by case only."""
    ranges = list(ranges)
    cased = _ascii_cased() if ascii_only else _cased()
    wider: set[int] = set()
    for first, last in ranges:
        for code in cased[bisect_left(cased, first) : bisect_right(cased, last)]:
            wider.update(case_variants(code, ascii_only=ascii_only))
    return [*ranges, *((code, code) for code in wider)]


@cache
def _unicode_category(letter: str) -> Ranges:
    """Every run of characters that the interpreter's own `re` finds: the tables cannot drift from it."""
    everything = "".join(map(chr, range(SURROGATES[0]))) + "".join(
        map(chr, range(SURROGATES[1] + 1, LAST_CODE_POINT + 1))
    )
    return tuple((ord(run[0][0]), ord(run[0][-1])) for run in re.finditer(rf"\{letter}+", everything))


def _case_key(character: str) -> str:
    """Equal for two characters exactly where `re` takes them for one when case is ignored.

    It compares simple lower case (the first character, where full lower case has more), and lower-case characters whose
    upper case is the same count as equal too.
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
