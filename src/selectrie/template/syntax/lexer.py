"""From characters to the symbols of the grammar file: text between tags, and the words of a tag.

The patterns stand in the grammar file. What a pattern cannot say stands here: a word directly behind the beginning of a tag may
name the tag, a `[` directly behind a value is an index, and brackets nest to a depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer

from selectrie.template.syntax.handlebars import DIALECTS
from selectrie.template.syntax.source_positions import Refused
from selectrie.template.syntax.tags import MIDDLE, TAGS

MOST_DEPTH = 64
"""Blocks inside each other; brackets and `not` inside each other."""

WORDS: Mapping[str, str] = {
    **{word: word.upper() for word in ("and", "or", "not", "in", "as", "true", "false", "none", "this")},
    "True": "TRUE",
    "False": "FALSE",
    "None": "NONE",
}
"""Words that are symbols of their own wherever a value may stand."""

OPENINGS = frozenset({"OPEN", "OPEN_BLOCK", "OPEN_END"})
"""Symbols that a tag begins with, where it is not one symbol."""
_OUTSIDE = ("TEXT", "ESCAPED", "BACKSLASHES", "RAW_BLOCK", "COMMENT", "PARTIAL", "OPEN_BLOCK", "OPEN_END", "OPEN")
_INSIDE = ("BLANK", "CLOSE", "STRING", "NUMBER", "NAME", "AT_NAME", "COMPARISON", "EQUALS", "COMMA", "DOT")
_BRACKETS = {"(": "LPAR", ")": "RPAR", "[": "LIST", "]": "RSQB"}
_OPERATOR = re.compile(r"\s*(?:[.\[)]|==|!=|<|>|(?:in|and|or|not\s+in)\b)")
_OPENERS = frozenset({"LPAR", "LIST", "INDEX"})
_PATH_ENDS = frozenset({"NAME", "THIS", "AT_NAME", "RSQB"})
_VALUE_ENDS = _PATH_ENDS | {"RPAR", "STRING", "NUMBER", "TRUE", "FALSE", "NONE"}


@dataclass(slots=True)
class _Tag:
    """A tag under way. last: the symbol before; stop: where that ended; held: the depth inside each open bracket; runaway: a
    string that holds the end of a tag."""

    start: int
    last: str
    stop: int
    depth: int = 0
    held: list[int] = field(default_factory=list)
    runaway: Token | None = None


class Scanner(Lexer):
    """The symbols of a source. Raises `Refused` where there is none."""

    __future_interface__ = 0

    def __init__(self, lexer_conf: LexerConf) -> None:
        patterns = {terminal.name: terminal.pattern.to_regexp() for terminal in lexer_conf.terminals}
        self._dialect = next(d for d in DIALECTS.values() if re.fullmatch(patterns["OPEN"], d.opens))
        outside = [name for name in _OUTSIDE if name != "PARTIAL" or self._dialect.partials]
        self._outside = re.compile("|".join(f"(?P<{name}>{patterns[name]})" for name in outside))
        self._inside = re.compile("|".join(f"(?P<{name}>{patterns[name]})" for name in _INSIDE))

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the interface that every lark has
        place = 0
        while place < len(text):
            match = self._outside.match(text, place)
            if match is None:
                raise Refused(place, f"nothing of a template begins with {text[place]!r}")
            place = match.end()
            opening = Token(match.lastgroup or "", match[0], match.start())
            yield opening
            if opening.type in OPENINGS:
                tag = _Tag(match.start(), opening.type, place)
                yield from self._symbols(text, tag)
                place = tag.stop

    def symbols_before(self, text: str, opening: Token, place: int) -> list[Token]:
        """The symbols of one tag up to a place in it, which `lex` has passed without an error. The opening is the first."""
        start = opening.start_pos or 0
        tag = _Tag(start, opening.type, start + len(opening))
        return [opening, *takewhile(lambda symbol: (symbol.start_pos or 0) < place, self._symbols(text, tag))]

    def _symbols(self, text: str, tag: _Tag) -> Iterator[Token]:
        """What stands in a tag, its end included."""
        place = tag.stop
        while True:
            match = self._inside.match(text, place)
            if match is None:
                if place >= len(text):
                    raise self._unclosed(tag)
                kind, value = self._bracket(text, place, tag), text[place]
            else:
                kind, value = match.lastgroup or "", match[0]
            if kind == "BLANK":
                place += len(value)
                continue
            if tag.last == "LPAR" and self._is_helper(text, value, place):
                kind = "HELPER"
            elif kind == "NAME":
                kind = self._word(value, tag)
            self._check(tag, kind, value, place)
            _deepen(tag, kind, place)
            tag.last, tag.stop = kind, place + len(value)
            yield Token(kind, value, place)
            if kind == "CLOSE":
                return
            place = tag.stop

    def _word(self, word: str, tag: _Tag) -> str:
        """The symbol that a word is, from what stands before it."""
        is_tag = word in TAGS or word in MIDDLE
        if tag.last == "OPEN_END":
            return "END_NAME"
        if tag.last == "DOT":
            return "NAME"
        if is_tag and tag.last in {"OPEN", "OPEN_BLOCK"}:
            return word.upper()
        if tag.last == "OPEN_BLOCK":
            return "UNKNOWN_TAG"
        return WORDS.get(word, "RESERVED" if is_tag else "NAME")

    def _bracket(self, text: str, place: int, tag: _Tag) -> str:
        """The symbol of a character that no pattern has."""
        character = text[place]
        if character == "[" and tag.last in _PATH_ENDS and tag.stop == place:
            return "INDEX"
        if character in _BRACKETS:
            return _BRACKETS[character]
        if character == "!" and tag.last == "OPEN":
            long = text.startswith("!--", place)
            raise Refused(tag.start, f"this comment is not closed; end it with {'--' * long}{self._dialect.closes}")
        if character in "'\"":
            raise Refused(place, f"this string is not closed; end it with {character}")
        return "BROKEN"

    def _is_helper(self, text: str, word: str, place: int) -> bool:
        """Does a word or sign inside a parenthesis say what is done with what follows, instead of being a value itself?"""
        if word not in self._dialect.helpers:
            return False
        return _OPERATOR.match(text, place + len(word)) is None

    def _check(self, tag: _Tag, kind: str, value: str, place: int) -> None:
        """Raise where a symbol shows that something before it was not closed."""
        opens, closes = self._dialect.opens, self._dialect.closes
        if kind == "STRING" and closes in value:
            if "\n" in value:
                reason = f"this string goes on over {closes} and a line end; end it with {value[0]}"
                raise Refused(place, f"{reason}, or write \\n for the line ends that it has")
            tag.runaway = tag.runaway or Token(kind, value, place)
        elif kind == "RAW" and tag.last == "OPEN_BLOCK":
            raise Refused(tag.start, f"this raw block is not closed; write {opens}/raw{closes} where it ends")

    def _unclosed(self, tag: _Tag) -> Refused:
        """The error for a tag that the source ends in."""
        opens, closes = self._dialect.opens, self._dialect.closes
        if tag.runaway is not None:
            return runaway(tag.runaway, closes)
        escape = f"write \\{opens} for the characters {opens}"
        return Refused(tag.start, f"this tag is not closed; end it with {closes}, or {escape}")


def runaway(string: Token, closes: str) -> Refused:
    """The error for a string that has swallowed the end of its tag, and was ended by the next quote of the text."""
    reason = f"this string goes on over {closes}, and behind it the tag cannot be read"
    return Refused(string.start_pos or 0, f"{reason}; is its closing {string[0]} missing?")


def _deepen(tag: _Tag, kind: str, place: int) -> None:
    """Count the brackets, and the `not` before a value, that a symbol stands in."""
    if kind in _OPENERS:
        tag.held.append(tag.depth + 1)
    elif kind in {"RPAR", "RSQB"} and tag.held:
        tag.held.pop()
    if kind == "NOT" and tag.last not in _VALUE_ENDS:
        tag.depth += 1
    else:
        tag.depth = tag.held[-1] if tag.held else 0
    if tag.depth > MOST_DEPTH:
        raise Refused(place, f"nested more than {MOST_DEPTH} deep; name inner parts with `set`, or write less")
