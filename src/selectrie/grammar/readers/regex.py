"""Reads regular expressions in Python's syntax.

An expression stands for the texts that `re.fullmatch` accepts, as far as it is regular.
The parser is written by hand and not as a grammar file: flags inside a pattern change
how the characters after them are read, `{` begins a count or is literal depending on
what follows, and nesting must be bounded while reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from selectrie.errors import clipped
from selectrie.grammar.readers import anchors
from selectrie.grammar.readers.regex_escapes import EscapeReader
from selectrie.grammar.readers.regex_frames import REMEDY, Frame, Held, Last, Watch
from selectrie.grammar.readers.regex_sets import MAX_RANGES, SetMaker, any_character, case_variants, category
from selectrie.grammar.readers.shapes import NOTHING, alternatives, first_characters, repeat
from selectrie.grammar.rules.expressions import Characters, Expression, RuleSet, Span, Text
from selectrie.grammar.rules.source_positions import Source

MAX_DEPTH = 64
"""Maximum nesting of groups, so that expressions can be walked by recursion."""
MAX_ITEMS = 50_000
MAX_COUNT = 100_000
_PLAIN = re.compile(r"[^\\.^$*+?{\[|()]+")
_PLAIN_VERBOSE = re.compile(r"[^\\.^$*+?{\[|()#\s]+")
_SKIPPED = re.compile(r"(?:[ \t\n\r\v\f]+|#[^\n]*)+")
_COUNT = re.compile(r"\{(?!\})([0-9]*)(?:(,)([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([aiLmsux]*)(?:-([a-zA-Z]*))?([:)])")
_NAMED = re.compile(r"\(\?P<([^>)]*)>")
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
_ANCHOR_ESCAPES = {"A": anchors.START, "Z": anchors.LAST}


def read_regex(pattern: str) -> RuleSet:
    """Return one rule `root` for the texts that `re.fullmatch(pattern, text)` matches.

    Lazy counts are treated like greedy ones. Possessive counts are accepted only where
    greedy ones would match the same texts. Look-around, back-references, conditional
    and atomic groups, and word boundaries raise a `GrammarError` that names them and
    their position.
    """
    span = Span(0, len(pattern))
    return RuleSet({"root": read_pattern(Source(pattern), span)}, "root", pattern, {"root": span})


def read_pattern(
    source: Source, span: Span, flags: str = "", *, lazy_as_greedy: bool = True, sets: SetMaker | None = None
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
        whole = anchors.without_anchors(whole, source.refused)
    if whole == NOTHING:
        raise source.refused(span.start, "no text can match: every alternative requires a character of an empty set")
    return whole


class _Reader:
    """Reads a pattern in one pass; open groups are kept in a list of frames."""

    def __init__(
        self, source: Source, span: Span, flags: frozenset[str], sets: SetMaker, *, lazy_as_greedy: bool
    ) -> None:
        self._sets = sets
        self._source, self._offset, self._stop = source.text, span.start, span.stop
        self._refused, self._lazy_as_greedy = source.refused, lazy_as_greedy
        self._frames = [Frame(flags, -1)]
        self._names: set[str] = set()
        self._n_items = 0
        self._escapes = EscapeReader(source, span.stop)
        self._held: list[Held] = []
        self._watch = Watch(self._refused)
        self.has_anchors = False
        self._signs: dict[str, Callable[[int], None]] = {
            "\\": self._escape,
            ".": self._dot,
            **dict.fromkeys("^$", self._edge),
            **dict.fromkeys("*+?", self._sign),
            "{": self._count,
            "[": self._set,
            "|": self._end_option,
            "(": self._open,
            ")": self._close,
        }

    def read(self) -> Expression:
        """Return the expression of the whole pattern."""
        while self._offset < self._stop:
            self._next()
        if len(self._frames) > 1:
            raise self._refused(self._frames[-1].offset, "this group is not closed; add ')'")
        whole = self._closed()
        if last := [held for held in self._held if held.lazy]:
            raise self._refused(last[0].offset, f"nothing follows this lazy count, so it matches too little{REMEDY}")
        return whole

    def _next(self) -> None:
        frame, offset = self._frames[-1], self._offset
        verbose = "x" in frame.flags
        if verbose and (skipped := _SKIPPED.match(self._source, offset, self._stop)):
            self._offset = skipped.end()
            return
        if plain := (_PLAIN_VERBOSE if verbose else _PLAIN).match(self._source, offset, self._stop):
            self._offset = plain.end()
            self._literal(plain[0], offset)
            return
        self._offset += 1
        read = self._signs.get(self._source[offset])
        if read is None:  # white space that the verbose flag does not skip
            self._literal(self._source[offset], offset)
        else:
            read(offset)

    def _dot(self, offset: int) -> None:
        self._add(any_character(line_feed="s" in self._frames[-1].flags), offset)

    def _edge(self, offset: int) -> None:
        multiline = "m" in self._frames[-1].flags
        starts, stops = (anchors.LINE_START, anchors.LINE_STOP) if multiline else (anchors.START, anchors.STOP)
        self._anchor(starts if self._source[offset] == "^" else stops, offset)

    def _sign(self, offset: int) -> None:
        sign = self._source[offset]
        self._repeat(int(sign == "+"), 1 if sign == "?" else None, offset)

    def _add(self, item: Expression, offset: int, last: Last = Last.OTHER) -> None:
        frame = self._frames[-1]
        self._n_items += 1
        if self._n_items > MAX_ITEMS:
            raise self._refused(offset, f"the pattern has more than {MAX_ITEMS} items; split it into rules")
        self._watch.check(frame, item)
        frame.items.append(item)
        frame.last, frame.last_offset = last, offset

    def _literal(self, text: str, offset: int) -> None:
        try:
            value = text.encode()
        except UnicodeEncodeError as error:
            reason = f"U+{ord(text[error.start]):04X} is a surrogate, which is not a character; remove it"
            raise self._refused(offset, reason) from None
        flags = self._frames[-1].flags
        if "i" not in flags:
            self._add(Text(value), offset, Last.RUN)
            return
        for character in text:
            codes = case_variants(ord(character), ascii_only="a" in flags)
            same = Text(character.encode()) if len(codes) == 1 else Characters.of([(code, code) for code in codes])
            self._add(same, offset)

    def _escape(self, offset: int) -> None:
        letter = self._source[self._offset : min(self._offset + 1, self._stop)]
        if letter in _ANCHOR_ESCAPES:
            self._offset += 1
            self._anchor(_ANCHOR_ESCAPES[letter], offset)
        elif letter and letter in "dswDSW":
            self._offset += 1
            self._add(category(letter, ascii_only="a" in self._frames[-1].flags), offset)
        elif letter and letter in "bB":
            raise self._refused(offset, f"the word boundary '\\{letter}' is not supported; write both sides out")
        else:
            code, self._offset = self._escapes.outside_set(offset)
            self._literal(chr(code), offset)

    def _set(self, offset: int) -> None:
        flags = self._frames[-1].flags
        parsed_set, self._offset = self._escapes.set_at(offset)
        whole = self._sets.made(parsed_set, ascii_only="a" in flags, ignore_case="i" in flags)
        if whole is None:
            raise self._refused(offset, f"the sets have more than {MAX_RANGES} ranges in total; use fewer sets")
        self._add(whole if whole.ranges else NOTHING, offset)

    def _anchor(self, name: str, offset: int) -> None:
        self._add(anchors.anchor(name, offset), offset, Last.ANCHOR)
        self.has_anchors = True

    def _count(self, offset: int) -> None:
        match = _COUNT.match(self._source, offset, self._stop)
        if match is None:
            self._literal("{", offset)
            return
        low, comma, high = match.groups()
        if max(len(low), len(high or "")) > len(str(MAX_COUNT)) or max(int(low or 0), int(high or 0)) > MAX_COUNT:
            raise self._refused(offset, f"the count {clipped(match[0])} exceeds the limit of {MAX_COUNT}")
        min_count = int(low or 0)
        max_count = (int(high) if high else None) if comma else min_count
        if max_count is not None and max_count < min_count:
            raise self._refused(offset, f"the count {match[0]} ends below its beginning; swap the bounds")
        self._offset = match.end()
        self._repeat(min_count, max_count, offset)

    def _repeat(self, min_count: int, max_count: int | None, offset: int) -> None:
        frame = self._frames[-1]
        if frame.last in {Last.NONE, Last.ANCHOR}:
            raise self._refused(offset, "there is nothing to repeat here; write '\\' before the sign to match it")
        if frame.last is Last.REPEATED:
            raise self._refused(offset, "this repeats an item that is repeated already; put the item in a group")
        suffix = self._source[self._offset : min(self._offset + 1, self._stop)]
        self._offset += suffix in ("?", "+")
        item = frame.items.pop()
        if frame.last is Last.RUN and isinstance(item, Text) and len(text := item.value.decode()) > 1:
            frame.items.append(Text(text[:-1].encode()))
            item = Text(text[-1].encode())
            frame.last_offset = offset - 1
        inside = [held for held in frame.held if held.offset >= frame.last_offset]
        if max_count != 1 and inside:
            raise self._refused(inside[0].offset, f"a {inside[0].what} count must not end a repeated part")
        if suffix == "+" or (suffix == "?" and not self._lazy_as_greedy):
            self._watch.hold(
                frame, item, Held(offset, first_characters(item), suffix == "?"), is_fixed=min_count == max_count
            )
        frame.items.append(repeat(item, min_count, max_count))
        frame.last = Last.REPEATED

    def _end_option(self, _offset: int) -> None:
        self._frames[-1].end_option()

    def _closed(self) -> Expression:
        """Close the innermost group and return its expression.

        Sets `_held` to the counts at the ends of its options.
        """
        frame = self._frames.pop()
        frame.end_option()
        self._held = frame.held_before
        return alternatives(frame.options)

    def _close(self, offset: int) -> None:
        if len(self._frames) == 1:
            raise self._refused(offset, "no group is open here; write '\\)' for the character")
        opened = self._frames[-1].offset
        whole = self._closed()
        self._add(whole, opened)
        self._frames[-1].held += self._held

    def _open(self, offset: int) -> None:
        frame = self._frames[-1]
        source, stop = self._source, self._stop
        flags = frame.flags
        if not source.startswith("?", self._offset, stop):
            pass
        elif named := _NAMED.match(source, offset, stop):
            self._name(named[1], offset)
            self._offset = named.end()
        elif comment := _COMMENT.match(source, offset, stop):
            self._offset = comment.end()
            return
        elif (match := _FLAGS.match(source, offset, stop)) and match[0] != "(?)":
            flags = self._flags(match, offset)
            self._offset = match.end()
            if match[3] == ")":
                self._set_global(flags, offset)
                return
        else:
            raise self._refused(offset, self._why_not(offset))
        if len(self._frames) > MAX_DEPTH:
            raise self._refused(offset, f"groups are nested more than {MAX_DEPTH} levels deep")
        self._frames.append(Frame(flags, offset))

    def _name(self, name: str, offset: int) -> None:
        if not name.isidentifier() or name in self._names:
            why = "is used twice" if name in self._names else "is not a Python identifier"
            raise self._refused(offset, f"the name {clipped(name)} of this group {why}")
        self._names.add(name)

    def _why_not(self, offset: int) -> str:
        for opening, what in _OTHER_GROUPS:
            if self._source.startswith(opening, offset, self._stop):
                return f"{what} '{opening}…' is not supported; write out the texts that it allows"
        return f"{clipped(self._source[offset : min(offset + 4, self._stop)])} is not a group of Python's syntax"

    def _flags(self, match: re.Match[str], offset: int) -> frozenset[str]:
        """Return the flags inside a group, or after it if they apply to the whole."""
        on, off, last = match.groups()
        before = self._frames[-1].flags
        if "L" in on:
            raise self._refused(offset, "the flag L applies to bytes only; remove it")
        if "a" in on and "u" in on:
            raise self._refused(offset, "the flags a and u exclude each other; remove one")
        if off is not None and (last == ")" or not off or set(off) - set("imsx") or set(off) & set(on)):
            raise self._refused(offset, f"the flags {match[0]} cannot be switched off; only i, m, s, x can, before ':'")
        after = before | set(on) - {"u"}
        return frozenset(after - set(off or "") - ({"a"} if "u" in on else set()))

    def _set_global(self, flags: frozenset[str], offset: int) -> None:
        frame = self._frames[0]
        if len(self._frames) > 1 or frame.items or frame.options:
            raise self._refused(offset, "flags of the whole pattern must be at its start; write (?…:…) for a part")
        self._frames[0] = replace(frame, flags=flags)
