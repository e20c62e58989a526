"""Reads regular expressions in Python's syntax."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.readers import shapes
from selectrie.grammar.readers.shapes import NOTHING, alternatives, empty_part, first_characters, repeat, sequence
from selectrie.grammar.rules import LAST_CODE_POINT, SURROGATES, Characters, Expression, LiteralText, RuleSet, Span
from selectrie.grammar.source_positions import GrammarSource

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
    """Return the characters of an escape d, s or w, or of D, S or W (all others)."""
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
    """Computes the characters of sets, once for each distinct set.

    All sets together have at most `MAX_RANGES` ranges.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[ParsedSet, bool, bool], Characters] = {}
        self._left = MAX_RANGES

    def make(self, parsed_set: ParsedSet, *, ascii_only: bool, ignore_case: bool) -> Characters | None:
        """Return the characters of a set, or None if they exceed the ranges left."""
        key = parsed_set, ascii_only, ignore_case
        known = self._made.get(key)
        if known is None:
            ranges = (
                add_case_variants(parsed_set.ranges, ascii_only=ascii_only) if ignore_case else list(parsed_set.ranges)
            )
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
    return _variants_of_code().get(code, (code,))


def add_case_variants(ranges: Iterable[tuple[int, int]], *, ascii_only: bool) -> list[tuple[int, int]]:
    """Return the ranges, and the characters that differ from theirs only by case."""
    ranges = list(ranges)
    cased = _ascii_cased_codes() if ascii_only else _cased_codes()
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
def _variants_of_code() -> dict[int, tuple[int, ...]]:
    """Map each code point that has case variants to all of them, ascending."""
    groups: dict[str, list[int]] = {}
    for code in range(LAST_CODE_POINT + 1):
        character = chr(code)
        if character.lower() != character or character.upper() != character:
            groups.setdefault(_case_key(character), []).append(code)
    return {code: tuple(codes) for codes in groups.values() if len(codes) > 1 for code in codes}


@cache
def _cased_codes() -> list[int]:
    """Return the code points that have case variants, in ascending order."""
    return sorted(_variants_of_code())


@cache
def _ascii_cased_codes() -> list[int]:
    return [code for first, last in _ASCII_LETTERS for code in range(first, last + 1)]


_LETTERS = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[0-7]{3})")
_OCTAL_IN_SET = re.compile(r"\\([0-7]{1,3})")
_NAMED_CHARACTER = re.compile(r"\\N\{([^}]+)\}")
_MAX_OCTAL = 0o377


class EscapeReader:
    """Reads escapes and sets at offsets of a text, up to `stop`."""

    def __init__(self, source: GrammarSource, stop: int) -> None:
        self._source, self._stop = source.text, stop
        self._error_at = source.error_at

    def outside_set(self, offset: int) -> tuple[int, int]:
        """Return the code point of the escape at a backslash, and its end."""
        letter = self._letter_after(offset)
        if match := _OCTAL.match(self._source, offset, self._stop):
            return self._read_octal(match, offset)
        if letter.isdecimal() and letter.isascii():
            raise self._error_at(offset, f"the back-reference '\\{letter}' is not supported; write out the text")
        return self._read_common(offset, letter, {key: code for key, code in _LETTERS.items() if key != "b"})

    def set_at(self, offset: int) -> tuple[ParsedSet, int]:
        """Return the character set at a bracket, and the offset after it."""
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
            low, after = self._read_member(offset, categories)
            if source.startswith("-", after, stop) and after + 1 < stop and source[after + 1] != "]":
                high, end = self._read_member(after + 1, categories)
                if low is None or high is None or high < low:
                    raise self._error_at(offset, f"{clipped(source[offset:end])} is not a range of characters")
                ranges.append((low, high))
                offset = end
            else:
                ranges += [] if low is None else [(low, low)]
                offset = after
        raise self._error_at(start, "this set is not closed; add ']'")

    def _read_member(self, offset: int, categories: set[str]) -> tuple[int | None, int]:
        """Return one member of a set, and where it ends.

        The member is a code point, or None for a category, which is added to
        `categories`.
        """
        if self._source[offset] != "\\":
            return ord(self._source[offset]), offset + 1
        letter = self._letter_after(offset)
        if letter in "dswDSW":
            categories.add(letter)
            return None, offset + 2
        if octal := _OCTAL_IN_SET.match(self._source, offset, self._stop):
            return self._read_octal(octal, offset)
        return self._read_common(offset, letter, _LETTERS)

    def _letter_after(self, offset: int) -> str:
        """Return the character after a backslash; raise an error if there is none."""
        if offset + 1 >= self._stop:
            raise self._error_at(offset, "nothing follows this backslash; write '\\\\' for the character")
        return self._source[offset + 1]

    def _read_octal(self, match: re.Match[str], offset: int) -> tuple[int, int]:
        """Return the code point of an octal escape, and the offset after it."""
        code = int(match[1], 8)
        if code > _MAX_OCTAL:
            raise self._error_at(offset, f"the octal escape {match[0]} is above \\377; write \\uNNNN")
        return code, match.end()

    def _read_common(self, offset: int, letter: str, letters: dict[str, int]) -> tuple[int, int]:
        """Return the code point of an escape, and where it ends.

        These escapes have one meaning inside and outside sets.
        """
        if match := _HEX.match(self._source, offset, self._stop):
            code = int(match[1] or match[2] or match[3], 16)
            if code <= LAST_CODE_POINT:
                return code, match.end()
        if match := _NAMED_CHARACTER.match(self._source, offset, self._stop):
            try:
                name = unicodedata.lookup(match[1])
            except KeyError:
                name = ""
            if len(name) == 1:
                return ord(name), match.end()
            raise self._error_at(offset, f"{clipped(match[1])} is not the name of a character")
        if letter in letters:
            return letters[letter], offset + 2
        if letter.isascii() and letter.isalnum():
            shown = clipped(self._source[offset : min(offset + 2, self._stop)])
            raise self._error_at(offset, f"{shown} is not a valid escape of Python's regular expressions")
        return ord(letter), offset + 2


REMEDY = "; use a greedy count of a smaller set"
MAX_WORK = 200_000
"""Maximum number of ranges compared for one pattern, taking about half a second."""


class Last(Enum):
    """The kind of the last item of a group, on which a count would act.

    In a run of plain characters, a count repeats only the last one.
    """

    NONE = "nothing"
    RUN = "run"
    ANCHOR = "anchor"
    REPEATED = "repeated"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PendingCount:
    """A lazy or possessive count that is valid unless its characters may follow it.

    Without such characters after it, it matches the same texts as a greedy count. A
    lazy count also needs an item that follows.

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
class OpenGroup:
    """An open group of a pattern.

    Attributes:
        flags: The flags that apply in the group.
        offset: Offset of the parenthesis, -1 for the whole pattern.
        options: The options that are complete.
        items: The items of the current option.
        last: The kind of the last item.
        last_offset: Offset of the last item.
        pending: Counts at the end of the current option, which restrict the next item.
        pending_before: Counts at the ends of the other options.
    """

    flags: frozenset[str]
    offset: int
    options: list[Expression] = field(default_factory=list)
    items: list[Expression] = field(default_factory=list)
    last: Last = Last.NONE
    last_offset: int = -1
    pending: list[PendingCount] = field(default_factory=list)
    pending_before: list[PendingCount] = field(default_factory=list)

    def end_option(self) -> None:
        """Close the current alternative of the group, and begin the next one."""
        self.release()
        self.options.append(sequence(self.items))
        self.pending_before += self.pending
        self.pending, self.items, self.last = [], [], Last.NONE

    def release(self) -> None:
        """Drop the pending counts that no longer restrict the next item.

        Those are the counts before the last item, if that item is never empty.
        """
        if self.pending and self.items and empty_part(self.items[-1]) == NOTHING:
            self.pending = [pending for pending in self.pending if pending.offset >= self.last_offset]


class FollowCheck:
    """Checks, with bounded work, that a pending count's characters cannot follow it."""

    def __init__(self, refuse: Callable[[int, str], GrammarError]) -> None:
        self._refuse = refuse
        self._left = MAX_WORK

    def watch(self, frame: OpenGroup, item: Expression, pending: PendingCount, *, is_fixed: bool) -> None:
        """Record a count, to check later that none of its characters can follow.

        That condition is enough for counts of single characters. Other counts raise an
        error, except lazy ones with a fixed number.

        Args:
            frame: The group that contains the count.
            item: The repeated item.
            pending: The count.
            is_fixed: Whether the count is one number, as in `{3}`.
        """
        is_one = isinstance(item, Characters) or (isinstance(item, LiteralText) and len(item.value.decode()) == 1)
        if not is_one and not (pending.lazy and is_fixed):
            reason = f"a {pending.what} count is supported only for single characters that cannot follow it{REMEDY}"
            raise self._refuse(pending.offset, reason)
        if not is_fixed:
            frame.pending.append(pending)

    def check(self, frame: OpenGroup, item: Expression) -> None:
        """Raise an error if the item may begin with a character of a pending count.

        Args:
            frame: The group that contains the item.
            item: The item that follows the counts.
        """
        if not frame.pending:
            return
        frame.release()
        first = first_characters(item)
        for pending in frame.pending:
            self._left -= len(pending.characters.ranges) + len(first.ranges) + 4
            if self._left < 0:
                raise self._refuse(
                    pending.offset, f"checking what may follow this {pending.what} count is too slow{REMEDY}"
                )
            if _overlap(pending.characters, first):
                reason = f"this {pending.what} count repeats characters that may also follow it{REMEDY}"
                raise self._refuse(pending.offset, reason)


def _overlap(left: Characters, right: Characters) -> bool:
    """Return whether two sets of characters have one in common."""
    both = Characters.of([*left.ranges, *right.ranges])
    return _size(both) < _size(left) + _size(right)


def _size(characters: Characters) -> int:
    return sum(last - first + 1 for first, last in characters.ranges)


MAX_DEPTH = 64
"""Maximum nesting of groups, so that expressions can be walked by recursion."""
MAX_ITEMS = 50_000
MAX_COUNT = 100_000
_PLAIN = re.compile(r"[^\\.^$*+?{\[|()]+")
_PLAIN_VERBOSE = re.compile(r"[^\\.^$*+?{\[|()#\s]+")
_SKIPPED = re.compile(r"(?:[ \t\n\r\v\f]+|#[^\n]*)+")
_COUNT = re.compile(r"\{(?!\})([0-9]*)(?:(,)([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([aiLmsux]*)(?:-([a-zA-Z]*))?([:)])")
_NAMED_GROUP = re.compile(r"\(\?P<([^>)]*)>")
_COMMENT = re.compile(r"\(\?#[^)]*\)")
_OTHER_GROUPS = (
    ("(?=", "look-ahead"),
    ("(?!", "negative look-ahead"),
    ("(?<=", "look-behind"),
    ("(?<!", "negative look-behind"),
    ("(?P=", "a back-reference"),
    ("(?(", "a conditional group"),
    ("(?>", "an atomic group"),
)
_ANCHOR_ESCAPES = {"A": shapes.START, "Z": shapes.LAST}


def read_regex(pattern: str) -> RuleSet:
    """Return one rule `root` for the texts that `re.fullmatch(pattern, text)` matches.

    Lazy counts are treated like greedy ones. Possessive counts are accepted only where
    greedy ones would match the same texts. Look-around, back-references, conditional
    and atomic groups, and word boundaries raise a `GrammarError` that names them and
    their position.
    """
    span = Span(0, len(pattern))
    return RuleSet({"root": read_pattern(GrammarSource(pattern), span)}, "root", pattern, {"root": span})


def read_pattern(
    source: GrammarSource, span: Span, flags: str = "", *, lazy_as_greedy: bool = True, sets: SetMaker | None = None
) -> Expression:
    """Return the expression of the pattern in `span` of a text.

    Args:
        source: The text.
        span: Position of the pattern in the text.
        flags: Letters of a, i, m, s, x.
        lazy_as_greedy: If False, a lazy count is refused where the first match would
            end before the longest one.
        sets: Character sets shared by all patterns of the text, if it has several.
    """
    reader = _Reader(source, span, frozenset(flags), sets or SetMaker(), lazy_as_greedy=lazy_as_greedy)
    whole = reader.read()
    if reader.has_anchors:
        whole = shapes.resolve_anchors(whole, source.error_at)
    if whole == NOTHING:
        raise source.error_at(span.start, "no text can match: every alternative requires a character of an empty set")
    return whole


class _Reader:
    """Reads a pattern in one pass; open groups are kept in a list of frames."""

    def __init__(
        self, source: GrammarSource, span: Span, flags: frozenset[str], sets: SetMaker, *, lazy_as_greedy: bool
    ) -> None:
        self._sets = sets
        self._source, self._offset, self._stop = source.text, span.start, span.stop
        self._error_at, self._lazy_as_greedy = source.error_at, lazy_as_greedy
        self._frames = [OpenGroup(flags, -1)]
        self._names: set[str] = set()
        self._n_items = 0
        self._escapes = EscapeReader(source, span.stop)
        self._pending: list[PendingCount] = []
        self._follow_check = FollowCheck(self._error_at)
        self.has_anchors = False
        self._signs: dict[str, Callable[[int], None]] = {
            "\\": self._read_escape,
            ".": self._read_dot,
            **dict.fromkeys("^$", self._read_edge),
            **dict.fromkeys("*+?", self._read_sign),
            "{": self._read_count,
            "[": self._read_set,
            "|": self._end_option,
            "(": self._read_group_start,
            ")": self._read_group_end,
        }

    def read(self) -> Expression:
        """Return the expression of the whole pattern."""
        while self._offset < self._stop:
            self._read_next()
        if len(self._frames) > 1:
            raise self._error_at(self._frames[-1].offset, "this group is not closed; add ')'")
        whole = self._close_group()
        if last := [pending for pending in self._pending if pending.lazy]:
            raise self._error_at(last[0].offset, f"nothing follows this lazy count, so it matches too little{REMEDY}")
        return whole

    def _read_next(self) -> None:
        """Read the next run of plain characters, or one item of syntax."""
        frame, offset = self._frames[-1], self._offset
        verbose = "x" in frame.flags
        if verbose and (skipped := _SKIPPED.match(self._source, offset, self._stop)):
            self._offset = skipped.end()
            return
        if plain := (_PLAIN_VERBOSE if verbose else _PLAIN).match(self._source, offset, self._stop):
            self._offset = plain.end()
            self._add_literal(plain[0], offset)
            return
        self._offset += 1
        read = self._signs.get(self._source[offset])
        if read is None:  # white space that the verbose flag does not skip
            self._add_literal(self._source[offset], offset)
        else:
            read(offset)

    def _read_dot(self, offset: int) -> None:
        self._add(any_character(line_feed="s" in self._frames[-1].flags), offset)

    def _read_edge(self, offset: int) -> None:
        """Read `^` or `$` as an anchor, of lines with the flag m."""
        multiline = "m" in self._frames[-1].flags
        starts, stops = (shapes.LINE_START, shapes.LINE_STOP) if multiline else (shapes.START, shapes.STOP)
        self._add_anchor(starts if self._source[offset] == "^" else stops, offset)

    def _read_sign(self, offset: int) -> None:
        """Read `*`, `+` or `?` as a repetition of the last item."""
        sign = self._source[offset]
        self._repeat(int(sign == "+"), 1 if sign == "?" else None, offset)

    def _add(self, item: Expression, offset: int, last: Last = Last.OTHER) -> None:
        """Append an item to the innermost open group."""
        frame = self._frames[-1]
        self._n_items += 1
        if self._n_items > MAX_ITEMS:
            raise self._error_at(offset, f"the pattern has more than {MAX_ITEMS} items; split it into rules")
        self._follow_check.check(frame, item)
        frame.items.append(item)
        frame.last, frame.last_offset = last, offset

    def _add_literal(self, text: str, offset: int) -> None:
        """Append a text; each character is a separate item if case is ignored."""
        try:
            value = text.encode()
        except UnicodeEncodeError as error:
            reason = f"U+{ord(text[error.start]):04X} is a surrogate, which is not a character; remove it"
            raise self._error_at(offset, reason) from None
        flags = self._frames[-1].flags
        if "i" not in flags:
            self._add(LiteralText(value), offset, Last.RUN)
            return
        for character in text:
            codes = case_variants(ord(character), ascii_only="a" in flags)
            same = (
                LiteralText(character.encode()) if len(codes) == 1 else Characters.of([(code, code) for code in codes])
            )
            self._add(same, offset)

    def _read_escape(self, offset: int) -> None:
        """Read the escape at `offset`: an anchor, a category or a character."""
        letter = self._source[self._offset : min(self._offset + 1, self._stop)]
        if letter in _ANCHOR_ESCAPES:
            self._offset += 1
            self._add_anchor(_ANCHOR_ESCAPES[letter], offset)
        elif letter and letter in "dswDSW":
            self._offset += 1
            self._add(category(letter, ascii_only="a" in self._frames[-1].flags), offset)
        elif letter and letter in "bB":
            raise self._error_at(offset, f"the word boundary '\\{letter}' is not supported; write both sides out")
        else:
            code, self._offset = self._escapes.outside_set(offset)
            self._add_literal(chr(code), offset)

    def _read_set(self, offset: int) -> None:
        """Read the character set at `offset`, and append it to the innermost group."""
        flags = self._frames[-1].flags
        parsed_set, self._offset = self._escapes.set_at(offset)
        whole = self._sets.make(parsed_set, ascii_only="a" in flags, ignore_case="i" in flags)
        if whole is None:
            raise self._error_at(offset, f"the sets have more than {MAX_RANGES} ranges in total; use fewer sets")
        self._add(whole if whole.ranges else NOTHING, offset)

    def _add_anchor(self, name: str, offset: int) -> None:
        self._add(shapes.anchor(name, offset), offset, Last.ANCHOR)
        self.has_anchors = True

    def _read_count(self, offset: int) -> None:
        """Read a count `{m,n}`; anything else is a literal brace."""
        match = _COUNT.match(self._source, offset, self._stop)
        if match is None:
            self._add_literal("{", offset)
            return
        low, comma, high = match.groups()
        if max(len(low), len(high or "")) > len(str(MAX_COUNT)) or max(int(low or 0), int(high or 0)) > MAX_COUNT:
            raise self._error_at(offset, f"the count {clipped(match[0])} exceeds the limit of {MAX_COUNT}")
        min_count = int(low or 0)
        max_count = (int(high) if high else None) if comma else min_count
        if max_count is not None and max_count < min_count:
            raise self._error_at(offset, f"the count {match[0]} ends below its beginning; swap the bounds")
        self._offset = match.end()
        self._repeat(min_count, max_count, offset)

    def _repeat(self, min_count: int, max_count: int | None, offset: int) -> None:
        """Repeat the last item, and read the sign of a lazy or possessive count."""
        frame = self._frames[-1]
        if frame.last in {Last.NONE, Last.ANCHOR}:
            raise self._error_at(offset, "there is nothing to repeat here; write '\\' before the sign to match it")
        if frame.last is Last.REPEATED:
            raise self._error_at(offset, "this repeats an item that is repeated already; put the item in a group")
        # After a count, "?" makes it lazy, and "+" possessive.
        suffix = self._source[self._offset : min(self._offset + 1, self._stop)]
        self._offset += suffix in ("?", "+")
        item = frame.items.pop()
        # A count applies to the last character of a text alone.
        if frame.last is Last.RUN and isinstance(item, LiteralText) and len(text := item.value.decode()) > 1:
            frame.items.append(LiteralText(text[:-1].encode()))
            item = LiteralText(text[-1].encode())
            frame.last_offset = offset - 1
        inside = [pending for pending in frame.pending if pending.offset >= frame.last_offset]
        if max_count != 1 and inside:
            raise self._error_at(inside[0].offset, f"a {inside[0].what} count must not end a repeated part")
        # Such a count accepts the texts of a greedy one only if what follows cannot
        # begin with a character of the item, which is checked when the rest is read. A
        # repeated part may be followed by itself.
        if suffix == "+" or (suffix == "?" and not self._lazy_as_greedy):
            self._follow_check.watch(
                frame,
                item,
                PendingCount(offset, first_characters(item), suffix == "?"),
                is_fixed=min_count == max_count,
            )
        frame.items.append(repeat(item, min_count, max_count))
        frame.last = Last.REPEATED

    def _end_option(self, _offset: int) -> None:
        self._frames[-1].end_option()

    def _close_group(self) -> Expression:
        """Close the innermost group and return its expression.

        Sets `_pending` to the counts at the ends of its options.
        """
        frame = self._frames.pop()
        frame.end_option()
        self._pending = frame.pending_before
        return alternatives(frame.options)

    def _read_group_end(self, offset: int) -> None:
        """Close the innermost group and append it to the group around it."""
        if len(self._frames) == 1:
            raise self._error_at(offset, "no group is open here; write '\\)' for the character")
        opened = self._frames[-1].offset
        whole = self._close_group()
        self._add(whole, opened)
        self._frames[-1].pending += self._pending

    def _read_group_start(self, offset: int) -> None:
        """Open a group, skip a comment, or set flags for the whole pattern."""
        frame = self._frames[-1]
        source, stop = self._source, self._stop
        flags = frame.flags
        if not source.startswith("?", self._offset, stop):
            pass
        elif named := _NAMED_GROUP.match(source, offset, stop):
            self._check_name(named[1], offset)
            self._offset = named.end()
        elif comment := _COMMENT.match(source, offset, stop):
            self._offset = comment.end()
            return
        elif (match := _FLAGS.match(source, offset, stop)) and match[0] != "(?)":
            flags = self._read_flags(match, offset)
            self._offset = match.end()
            if match[3] == ")":
                self._set_global(flags, offset)
                return
        else:
            raise self._error_at(offset, self._explain_group(offset))
        if len(self._frames) > MAX_DEPTH:
            raise self._error_at(offset, f"groups are nested more than {MAX_DEPTH} levels deep")
        self._frames.append(OpenGroup(flags, offset))

    def _check_name(self, name: str, offset: int) -> None:
        """Raise an error if a group's name is invalid or used twice."""
        if not name.isidentifier() or name in self._names:
            why = "is used twice" if name in self._names else "is not a Python identifier"
            raise self._error_at(offset, f"the name {clipped(name)} of this group {why}")
        self._names.add(name)

    def _explain_group(self, offset: int) -> str:
        """Return why the group at `offset` is not supported."""
        for opening, what in _OTHER_GROUPS:
            if self._source.startswith(opening, offset, self._stop):
                return f"{what} '{opening}…' is not supported; write out the texts that it allows"
        return f"{clipped(self._source[offset : min(offset + 4, self._stop)])} is not a group of Python's syntax"

    def _read_flags(self, match: re.Match[str], offset: int) -> frozenset[str]:
        """Return the flags inside a group, or after it if they apply to the whole."""
        on, off, last = match.groups()
        before = self._frames[-1].flags
        if "L" in on:
            raise self._error_at(offset, "the flag L applies to bytes only; remove it")
        if "a" in on and "u" in on:
            raise self._error_at(offset, "the flags a and u exclude each other; remove one")
        if off is not None and (last == ")" or not off or set(off) - set("imsx") or set(off) & set(on)):
            raise self._error_at(
                offset, f"the flags {match[0]} cannot be switched off; only i, m, s, x can, before ':'"
            )
        after = before | set(on) - {"u"}
        return frozenset(after - set(off or "") - ({"a"} if "u" in on else set()))

    def _set_global(self, flags: frozenset[str], offset: int) -> None:
        """Set flags for the whole pattern; they must stand at its start."""
        frame = self._frames[0]
        if len(self._frames) > 1 or frame.items or frame.options:
            raise self._error_at(offset, "flags of the whole pattern must be at its start; write (?…:…) for a part")
        self._frames[0] = replace(frame, flags=flags)
