"""Reads escapes and character sets of Python's regular expressions."""

from __future__ import annotations

import re
import unicodedata

from selectrie.errors import clipped
from selectrie.grammar.readers.regex_sets import ParsedSet
from selectrie.grammar.rules.expressions import LAST_CODE_POINT
from selectrie.grammar.rules.source_positions import Source

_LETTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[0-7]{3})")
_OCTAL_IN_SET = re.compile(r"\\([0-7]{1,3})")
_NAMED = re.compile(r"\\N\{([^}]+)\}")
_MAX_OCTAL = 0o377


class EscapeReader:
    """Reads escapes and sets at offsets of a text, up to `stop`."""

    def __init__(self, source: Source, stop: int) -> None:
        self._source, self._stop = source.text, stop
        self._refused = source.refused

    def outside_set(self, offset: int) -> tuple[int, int]:
        """Return the code point of the escape at a backslash, and where it ends."""
        letter = self._letter(offset)
        if match := _OCTAL.match(self._source, offset, self._stop):
            return self._octal(match, offset)
        if letter.isdecimal() and letter.isascii():
            raise self._refused(offset, f"the back-reference '\\{letter}' is not supported; write out the text")
        return self._common(offset, letter, {key: code for key, code in _LETTERS.items() if key != "b"})

    def set_at(self, offset: int) -> tuple[ParsedSet, int]:
        """Return the set at a bracket, and where it ends."""
        source, start, stop = self._source, offset, self._stop
        offset += 1
        negated = source.startswith("^", offset, stop)
        offset += negated
        ranges: list[tuple[int, int]] = []
        categories: set[str] = set()
        first = offset
        while offset < stop:
            if source[offset] == "]" and offset > first:
                return ParsedSet(tuple(ranges), frozenset(categories), negated), offset + 1
            low, after = self._member(offset, categories)
            if source.startswith("-", after, stop) and after + 1 < stop and source[after + 1] != "]":
                high, end = self._member(after + 1, categories)
                if low is None or high is None or high < low:
                    raise self._refused(offset, f"{clipped(source[offset:end])} is not a range of characters")
                ranges.append((low, high))
                offset = end
            else:
                ranges += [] if low is None else [(low, low)]
                offset = after
        raise self._refused(start, "this set is not closed; add ']'")

    def _member(self, offset: int, categories: set[str]) -> tuple[int | None, int]:
        """Return one member of a set, and where it ends.

        The member is a code point, or None for a category, which is added to
        `categories`.
        """
        if self._source[offset] != "\\":
            return ord(self._source[offset]), offset + 1
        letter = self._letter(offset)
        if letter in "dswDSW":
            categories.add(letter)
            return None, offset + 2
        if octal := _OCTAL_IN_SET.match(self._source, offset, self._stop):
            return self._octal(octal, offset)
        return self._common(offset, letter, _LETTERS)

    def _letter(self, offset: int) -> str:
        if offset + 1 >= self._stop:
            raise self._refused(offset, "nothing follows this backslash; write '\\\\' for the character")
        return self._source[offset + 1]

    def _octal(self, match: re.Match[str], offset: int) -> tuple[int, int]:
        code = int(match[1], 8)
        if code > _MAX_OCTAL:
            raise self._refused(offset, f"the octal escape {match[0]} is above \\377; write \\uNNNN")
        return code, match.end()

    def _common(self, offset: int, letter: str, letters: dict[str, int]) -> tuple[int, int]:
        """Return the code point of an escape with one meaning inside and outside sets.

        Also returns where it ends.
        """
        if match := _HEX.match(self._source, offset, self._stop):
            code = int(match[1] or match[2] or match[3], 16)
            if code <= LAST_CODE_POINT:
                return code, match.end()
        if match := _NAMED.match(self._source, offset, self._stop):
            try:
                name = unicodedata.lookup(match[1])
            except KeyError:
                name = ""
            if len(name) == 1:
                return ord(name), match.end()
            raise self._refused(offset, f"{clipped(match[1])} is not the name of a character")
        if letter in letters:
            return letters[letter], offset + 2
        if letter.isascii() and letter.isalnum():
            shown = clipped(self._source[offset : min(offset + 2, self._stop)])
            raise self._refused(offset, f"{shown} is not a valid escape of Python's regular expressions")
        return ord(letter), offset + 2
