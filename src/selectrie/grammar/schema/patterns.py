r"""Rewrites JSON Schema patterns so that they have one meaning.

JSON Schema uses the regular expressions of ECMA-262, validators in Python use `re`, and
llguidance uses Rust's. The three differ in what `\d`, `\w`, `\s`, `.` and `$` match,
and in much syntax. The rewritten pattern consists only of literals, explicit ranges,
groups, anchors and repetitions. It matches only texts that both ECMA-262 and Python
match. A construct that cannot be rewritten raises an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from selectrie.grammar.rules import LAST_CODE_POINT, Characters

Ranges = tuple[tuple[int, int], ...]

NON_ASCII: Ranges = ((0x80, LAST_CODE_POINT),)
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACES: Ranges = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
SPACES_OF_SOME: Ranges = ((0x1C, 0x1F), (0x85, 0x85), (0x180E, 0x180E), (0xFEFF, 0xFEFF))
"""White space only to some: to Python, to ECMA-262 or to an older Unicode."""
LINE_ENDS_OF_SOME: Ranges = ((0x0D, 0x0D), (0x2028, 0x2029))
"""Line ends that `.` matches in Python but not in ECMA-262."""

UNSPELLED: Ranges = ((0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F), (0x7F, 0x7F))
"""Characters that strings of these grammars do not contain.

JSON spells them only by number. (The last one could be spelled otherwise, but
llguidance does not.) In a pattern or a constant, llguidance leaves them out and
continues with what follows.
"""

MAX_CHARACTERS = 20_000
"""Maximum length of a pattern."""
CLASSES: dict[str, tuple[Ranges, Ranges]] = {
    "d": (DIGITS, NON_ASCII),
    "w": (WORD, NON_ASCII),
    "s": (SPACES, SPACES_OF_SOME),
}
"""Maps a letter to the characters in the class in all dialects, and in only some."""
SINGLE = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}
_QUANTIFIER = re.compile(r"[*+?]|\{([0-9]+)(?:,([0-9]*))?\}")
_MAX_DIGITS = 9
"""Number of digits of a repetition that Python's `re` reads, whatever they are."""
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_$][A-Za-z0-9_$]*>|(?!\?))")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")


class PatternError(ValueError):
    """A pattern that cannot be rewritten; the message says which part, and why."""


@dataclass(frozen=True, slots=True)
class RewrittenPattern:
    """A pattern that matches only texts that ECMA-262 and Python both match.

    They agree on all texts without doubtful characters and final line feeds.

    Attributes:
        pattern: The pattern.
        doubtful: Characters of texts on which ECMA-262 and Python, or this pattern and
            one of them, disagree.
        line_end: Whether they disagree on texts that end with a line feed (because of
            `$` in Python).
    """

    pattern: str
    doubtful: Ranges
    line_end: bool

    def doubtful_in_names(self) -> Ranges:
        """Return the characters of names on which dialects may disagree."""
        return (*self.doubtful, *([(0x0A, 0x0A)] if self.line_end else []))


def rewrite_pattern(pattern: str) -> RewrittenPattern:
    """Rewrite a pattern of JSON Schema.

    The pattern may match anywhere in a text unless it is anchored. Raises
    `PatternError` if it cannot be rewritten.
    """
    if len(pattern) > MAX_CHARACTERS:
        raise PatternError(f"the pattern has {len(pattern)} characters; the maximum is {MAX_CHARACTERS}")
    return _Rewriter(pattern).rewrite()


def rewrite_name(pattern: str, without: Ranges) -> str:
    """Rewrite a pattern of names so that it excludes names with some characters.

    `pattern` is a result of `rewrite_pattern`, and `without` are the characters. If the
    restriction cannot be expressed, the pattern is returned unchanged. The text around
    an unanchored pattern is written out, so that llguidance can tell that it is
    disjoint from a pattern of names with one of these characters.
    """
    try:
        rewriter = _Rewriter(pattern, without)
        rewritten = rewriter.rewrite().pattern
    except PatternError:
        return rewrite_pattern(pattern).pattern
    inner = rewriter.inner()
    if not rewritten or inner is None:
        return rewrite_pattern(pattern).pattern
    others = class_of(Characters.of([*UNSPELLED, *without], negated=True).ranges)
    before = "" if rewritten.startswith("^") else f"{others}*"
    behind = "" if rewritten.endswith("$") else f"{others}*"
    return f"^{before}(?:{inner}){behind}$"


def is_spelled(text: str) -> bool:
    """Return whether strings of a JSON grammar can contain all characters of a text."""
    return not any(first <= ord(character) <= last for character in text for first, last in UNSPELLED)


def class_of(ranges: Iterable[tuple[int, int]]) -> str:
    """Return a bracket expression that matches these characters, in hexadecimal."""
    spelled = (rf"\x{{{first:x}}}" if first == last else rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
    return f"[{''.join(spelled)}]"


class _Rewriter:
    """Rewrites a pattern in one pass, from left to right."""

    def __init__(self, pattern: str, without: Ranges = ()) -> None:
        self._text, self._at, self._without = pattern, 0, (*UNSPELLED, *without)
        self._out: list[str] = []
        self._doubtful: list[tuple[int, int]] = []
        self._line_end = self._anchored = False
        self._depth = 0
        self._repeatable = False

    def rewrite(self) -> RewrittenPattern:
        """Rewrite the whole pattern."""
        while self._at < len(self._text):
            self._read_next()
        if self._depth:
            raise PatternError("a group is not closed")
        if not self._anchored and _matches_empty(self._out):
            return RewrittenPattern("", (), line_end=False)  # found in every text
        return RewrittenPattern("".join(self._out), Characters.of(self._doubtful).ranges, self._line_end)

    def inner(self) -> str | None:
        """Return the pattern between its anchors.

        Returns None if an anchor is elsewhere, or applies to only one of several
        alternatives.
        """
        out = list(self._out)
        anchored = [out.pop(0)] if out[:1] == ["^"] else []
        anchored += [out.pop()] if out[-1:] == ["$"] else []
        depth = 0
        for part in out:
            depth += (part == "(?:") - (part == ")")
            if part in ("^", "$") or (part == "|" and not depth and anchored):
                return None
        return "".join(out)

    def _read_next(self) -> None:
        """Read one character, class, group bracket, anchor or repetition."""
        sign = self._text[self._at]
        quantifier = _QUANTIFIER.match(self._text, self._at)
        if quantifier:
            self._read_quantifier(quantifier)
        elif sign == "(":
            self._read_group_start()
        elif sign in ")|^$":
            self._read_structure(sign)
        elif sign == "[":
            self._append_item(class_of(self._remove_unspelled(self._read_bracket())))
        elif sign == ".":
            self._at += 1
            self._doubtful += LINE_ENDS_OF_SOME
            self._append_item(
                class_of(self._remove_unspelled(Characters.of([(0x0A, 0x0A), *LINE_ENDS_OF_SOME], negated=True).ranges))
            )
        elif sign == "\\":
            ranges, doubtful = self._read_escape(inside=False)
            self._doubtful += doubtful
            self._append_item(class_of(self._remove_unspelled(ranges)))
        elif sign == "{" and re.compile(r"\{,[0-9]+\}").match(self._text, self._at):
            raise PatternError("{,n} is a repetition in some dialects and literal text in others; write {0,n}")
        else:
            self._at += 1
            code = ord(sign)
            self._append_item(
                sign if sign.isascii() and sign.isalnum() else class_of(self._remove_unspelled(((code, code),)))
            )

    def _append_item(self, text: str) -> None:
        """Write an item of the pattern, which a repetition may follow."""
        self._out.append(text)
        self._repeatable = True

    def _remove_unspelled(self, ranges: Ranges) -> Ranges:
        """Return the characters of `ranges` that strings of the grammar may contain."""
        outside = Characters.of([*ranges], negated=True).ranges
        kept = Characters.of([*outside, *self._without], negated=True).ranges
        if not kept:
            raise PatternError(f"no character before character {self._at} is allowed in all dialects and in strings")
        return kept

    def _read_quantifier(self, quantifier: re.Match[str]) -> None:
        """Copy a repetition; raise `PatternError` if it is invalid here."""
        bounds = [bound for bound in quantifier.groups() if bound]
        if any(len(bound) > _MAX_DIGITS for bound in bounds):
            raise PatternError(f"the repetition at character {self._at} has more than {_MAX_DIGITS} digits")
        if len(bounds) == 2 and int(bounds[1]) < int(bounds[0]):
            raise PatternError(f"the repetition at character {self._at} does not ascend")
        if not self._repeatable:
            raise PatternError(f"{quantifier[0]} at character {self._at} has nothing to repeat")
        self._at = quantifier.end()
        if self._text[self._at : self._at + 1] == "?":
            self._at += 1  # lazy: matches the same texts
        self._out.append(quantifier[0])
        self._repeatable = False

    def _read_group_start(self) -> None:
        """Copy the start of a group, without its name."""
        group = _GROUP.match(self._text, self._at)
        if group is None:
            raise PatternError(f"{self._text[self._at : self._at + 4]} at character {self._at} is not supported")
        self._at = group.end()
        self._out.append("(?:")
        self._depth += 1
        self._repeatable = False

    def _read_structure(self, sign: str) -> None:
        """Copy a closing parenthesis, a bar or an anchor."""
        if sign == ")":
            if not self._depth:
                raise PatternError(f"the parenthesis at character {self._at} does not close a group")
            self._depth -= 1
        self._line_end |= sign == "$"
        self._anchored |= sign in "^$"
        self._at += 1
        self._out.append(sign)
        self._repeatable = sign == ")"

    def _read_escape(self, *, inside: bool) -> tuple[Ranges, Ranges]:
        """Read an escape; return its characters in all dialects, and in only some.

        Args:
            inside: Whether the escape is in a bracket expression.
        """
        letter = self._text[self._at + 1 : self._at + 2]
        hexadecimal = _HEX.match(self._text, self._at + 1)
        self._at += 2
        if letter.lower() in CLASSES and letter:
            surely, maybe = CLASSES[letter.lower()]
            if letter.isupper():
                surely = Characters.of([*surely, *maybe], negated=True).ranges
            return surely, maybe
        if hexadecimal:
            self._at += hexadecimal.end() - hexadecimal.start() - 1
            code = int(hexadecimal[1] or hexadecimal[2], 16)
        elif letter == "0" and self._text[self._at : self._at + 1].isdigit():
            raise PatternError(f"the octal escape at character {self._at - 2} is not supported")
        elif letter in SINGLE:
            code = SINGLE[letter]
        elif letter == "b" and inside:
            code = 0x08
        elif not letter or letter.isalnum() or not letter.isascii():
            raise PatternError(f"\\{letter} at character {self._at - 2} is not supported")
        else:
            code = ord(letter)
        if 0xD800 <= code <= 0xDFFF:
            raise PatternError(f"the surrogate U+{code:04X} is not supported; write the character itself")
        return ((code, code),), ()

    def _read_bracket(self) -> Ranges:
        """Read a bracket expression; return the characters that it surely matches.

        Those are the characters that it matches for ECMA-262 and for Python, also if it
        is negated. Those on which the two disagree are added to `_doubtful`.
        """
        start = self._at
        negated = self._text.startswith("[^", start)
        self._at += 1 + negated
        if self._text[self._at : self._at + 1] == "]":
            raise PatternError(f"the class at character {start} begins with ], which is ambiguous; write \\]")
        surely: list[tuple[int, int]] = []
        maybe: list[tuple[int, int]] = []
        while self._text[self._at : self._at + 1] != "]":
            low, doubtful = self._read_member(start)
            maybe += doubtful
            ahead = self._text[self._at : self._at + 2]
            if len(ahead) == 2 and ahead[0] == "-" and ahead[1] != "]" and not doubtful:
                self._at += 1
                high, doubtful = self._read_member(start)
                if doubtful or high[0][0] < low[0][0]:
                    raise PatternError(f"a range in the class at character {start} does not ascend")
                low = ((low[0][0], high[0][0]),)
            surely += low
        self._at += 1
        self._doubtful += maybe
        ranges = Characters.of([*surely, *maybe], negated=True) if negated else Characters.of(surely)
        return ranges.ranges

    def _read_member(self, start: int) -> tuple[Ranges, Ranges]:
        r"""Read one character or escape of a bracket expression.

        Returns the characters that it matches in all dialects, and those that it
        matches in only some. Only a class such as `\d` has the latter; anything else
        matches one character.
        """
        sign = self._text[self._at : self._at + 1]
        if not sign:
            raise PatternError(f"the class at character {start} is not closed")
        if sign == "\\":
            return self._read_escape(inside=True)
        self._at += 1
        if 0xD800 <= ord(sign) <= 0xDFFF:
            raise PatternError(f"the surrogate U+{ord(sign):04X} is not supported; write the character itself")
        return ((ord(sign), ord(sign)),), ()


def _matches_empty(parts: Iterable[str]) -> bool:
    """Return whether a rewritten pattern without anchors matches the empty text.

    Python would warn of classes that later versions may read otherwise, and no class
    matches the empty text.
    """
    return re.fullmatch("".join("x" if part.startswith("[") else part for part in parts), "") is not None
