"""Splits a source into the terminals of the grammar file, and reads single ones.

Terminals are the text between tags, and the tokens of a tag. The patterns are in the
grammar file. `TemplateScanner` adds what a pattern cannot express: a word directly
after the beginning of a tag may name the tag, a `[` directly after a value is an index,
and nesting of brackets is limited. Text beside a tag with `~` is trimmed (`Literals`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from lark import Token
from lark.common import LexerConf
from lark.lexer import Lexer

from selectrie.errors import clipped
from selectrie.template.syntax.ast import Literal, Refused, Span
from selectrie.template.syntax.tags import DIALECTS, MIDDLE, RESERVED, TAGS

MAX_DEPTH = 64
"""Maximum depth of nested blocks, and of nested brackets and `not`."""

WORDS: Mapping[str, str] = {
    **{word: word.upper() for word in ("and", "or", "not", "in", "as", "true", "false", "none", "this")},
    "True": "TRUE",
    "False": "FALSE",
    "None": "NONE",
}
"""Words that are separate terminals wherever a value is allowed."""

OPENINGS = frozenset({"OPEN", "OPEN_BLOCK", "OPEN_END"})
"""Terminals that begin a tag of more than one token."""
_OUTSIDE = ("TEXT", "ESCAPED", "BACKSLASHES", "RAW_BLOCK", "COMMENT", "PARTIAL", "OPEN_BLOCK", "OPEN_END", "OPEN")
_INSIDE = ("BLANK", "CLOSE", "STRING", "NUMBER", "NAME", "AT_NAME", "COMPARISON", "EQUALS", "COMMA", "DOT")
_BRACKETS = {"(": "LPAR", ")": "RPAR", "[": "LIST", "]": "RSQB"}
_OPERATOR = re.compile(r"\s*(?:[.\[)]|==|!=|<|>|(?:in|and|or|not\s+in)\b)")
_OPENERS = frozenset({"LPAR", "LIST", "INDEX"})
_PATH_ENDS = frozenset({"NAME", "THIS", "AT_NAME", "RSQB"})
_VALUE_ENDS = _PATH_ENDS | {"RPAR", "STRING", "NUMBER", "TRUE", "FALSE", "NONE"}
_NAME = re.compile(r"[^\W\d]\w*")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")


@dataclass(slots=True)
class _Tag:
    """A tag that is being read.

    Attributes:
        start: Offset of the tag.
        last: Type of the previous token.
        stop: Offset after the previous token.
        depth: Current depth of nested brackets and `not`.
        held: Depth at each open bracket.
        runaway: A string that contains the end of a tag, or None.
    """

    start: int
    last: str
    stop: int
    depth: int = 0
    held: list[int] = field(default_factory=list)
    runaway: Token | None = None


class TemplateScanner(Lexer):
    """Splits a source into tokens; raises `Refused` where no token matches."""

    __future_interface__ = 0

    def __init__(self, lexer_conf: LexerConf) -> None:
        patterns = {terminal.name: terminal.pattern.to_regexp() for terminal in lexer_conf.terminals}
        self._dialect = next(d for d in DIALECTS.values() if re.fullmatch(patterns["OPEN"], d.opens))
        outside = [name for name in _OUTSIDE if name != "PARTIAL" or self._dialect.partials]
        self._outside = re.compile("|".join(f"(?P<{name}>{patterns[name]})" for name in outside))
        self._inside = re.compile("|".join(f"(?P<{name}>{patterns[name]})" for name in _INSIDE))

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # matches the interface of every lark
        """Yield the tokens of a template's source, in and between tags."""
        offset = 0
        while offset < len(text):
            match = self._outside.match(text, offset)
            if match is None:
                raise Refused(offset, f"no part of a template begins with {text[offset]!r}")
            offset = match.end()
            opening = Token(match.lastgroup or "", match[0], match.start())
            yield opening
            if opening.type in OPENINGS:
                tag = _Tag(match.start(), opening.type, offset)
                yield from self._symbols(text, tag)
                offset = tag.stop

    def symbols_before(self, text: str, opening: Token, offset: int) -> list[Token]:
        """Return the tokens of a tag up to an offset in it, its opening one first.

        `lex` has passed this part of the source without an error.
        """
        start = opening.start_pos or 0
        tag = _Tag(start, opening.type, start + len(opening))
        return [opening, *takewhile(lambda symbol: (symbol.start_pos or 0) < offset, self._symbols(text, tag))]

    def _symbols(self, text: str, tag: _Tag) -> Iterator[Token]:
        """Yield the tokens of a tag, including its end."""
        offset = tag.stop
        while True:
            match = self._inside.match(text, offset)
            if match is None:
                if offset >= len(text):
                    raise self._unclosed_error(tag)
                # No pattern matches: it is a bracket, or a sign that the grammar
                # refuses.
                kind, value = self._type_of_sign(text, offset, tag), text[offset]
            else:
                kind, value = match.lastgroup or "", match[0]
            if kind == "BLANK":
                offset += len(value)
                continue
            if tag.last == "LPAR" and self._is_helper(text, value, offset):
                kind = "HELPER"
            elif kind == "NAME":
                kind = self._type_of_word(value, tag)
            self._check_closed(tag, kind, value, offset)
            _deepen(tag, kind, offset)
            tag.last, tag.stop = kind, offset + len(value)
            yield Token(kind, value, offset)
            if kind == "CLOSE":
                return
            offset = tag.stop

    def _type_of_word(self, word: str, tag: _Tag) -> str:
        """Return the token type of a word, which depends on the token before it."""
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

    def _type_of_sign(self, text: str, offset: int, tag: _Tag) -> str:
        """Return the token type of a character that matches no pattern."""
        character = text[offset]
        if character == "[" and tag.last in _PATH_ENDS and tag.stop == offset:
            return "INDEX"
        if character in _BRACKETS:
            return _BRACKETS[character]
        if character == "!" and tag.last == "OPEN":
            long = text.startswith("!--", offset)
            raise Refused(tag.start, f"this comment is not closed; end it with {'--' * long}{self._dialect.closes}")
        if character in "'\"":
            raise Refused(offset, f"this string is not closed; end it with {character}")
        return "BROKEN"

    def _is_helper(self, text: str, word: str, offset: int) -> bool:
        """Return whether a word or sign after "(" is a helper rather than a value.

        A helper names the operation on the operands that follow it.
        """
        if word not in self._dialect.helpers:
            return False
        # Before an operator, the word is the operator's left operand.
        return _OPERATOR.match(text, offset + len(word)) is None

    def _check_closed(self, tag: _Tag, kind: str, value: str, offset: int) -> None:
        """Raise `Refused` if a token shows that a string or raw block is not closed."""
        closes = self._dialect.closes
        if kind == "STRING" and closes in value:
            if "\n" in value:
                reason = f"this string continues past {closes} and a line end; end it with {value[0]}"
                raise Refused(offset, f"{reason}, or write \\n for each line end in it")
            tag.runaway = tag.runaway or Token(kind, value, offset)
        elif kind == "RAW" and tag.last == "OPEN_BLOCK":
            raise Refused(tag.start, f"this raw block is not closed; write {self._dialect.tag('/raw')} where it ends")

    def _unclosed_error(self, tag: _Tag) -> Refused:
        """Return the error for a tag that is still open at the end of the source."""
        closes = self._dialect.closes
        if tag.runaway is not None:
            return runaway_error(tag.runaway, closes)
        return Refused(tag.start, f"this tag is not closed; end it with {closes}, or {self._dialect.escaped}")


def runaway_error(string: Token, closes: str) -> Refused:
    """Return the error for a string that contains the end of its tag.

    Its closing quote is missing, so the next quote of the text ended it.
    """
    reason = f"this string continues past {closes}, and the rest of the tag cannot be read"
    return Refused(string.start_pos or 0, f"{reason}; is its closing {string[0]} missing?")


def _deepen(tag: _Tag, kind: str, offset: int) -> None:
    """Count the depth of brackets and of `not`; raise `Refused` beyond the limit."""
    if kind in _OPENERS:
        tag.held.append(tag.depth + 1)
    elif kind in {"RPAR", "RSQB"} and tag.held:
        tag.held.pop()
    if kind == "NOT" and tag.last not in _VALUE_ENDS:
        tag.depth += 1
    else:
        tag.depth = tag.held[-1] if tag.held else 0
    if tag.depth > MAX_DEPTH:
        raise Refused(offset, f"expressions are nested more than {MAX_DEPTH} deep; name inner parts with `set`")


@dataclass(frozen=True, slots=True)
class Edges:
    """The extent of a tag, and whether it trims the text on its left and right."""

    start: int
    stop: int
    trims_left: bool = False
    trims_right: bool = False

    @property
    def span(self) -> Span:
        """Return the span of the tag."""
        return Span(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text between two tags.

    `plain` text is literally in the source, so a tag may trim it. The text of escapes
    and raw blocks is not trimmed.
    """

    text: str
    span: Span
    plain: bool


@dataclass(slots=True)
class Literals:
    """Collects the pieces of text between two tags, and joins them into one `Literal`.

    White space beside a tag that trims is removed: the characters of `str.isspace`.
    """

    _pieces: list[_Piece] = field(default_factory=list)
    _trims_next: bool = False

    def add(self, text: str, span: Span, *, plain: bool) -> None:
        """Append a piece of text; `plain` text is literally in the source."""
        if plain and self._trims_next:
            text = text.lstrip()
            span = Span(span.stop - len(text), span.stop)
        if text or not plain:
            self._trims_next = False
            self._pieces.append(_Piece(text, span, plain))

    def trim_beside(self, edges: Edges) -> None:
        """Trim the text on both sides of a tag, as far as its edges say.

        Text after the tag is trimmed when it is added.
        """
        while edges.trims_left and self._pieces and self._pieces[-1].plain:
            last = self._pieces.pop()
            kept = last.text.rstrip()
            if kept:
                self._pieces.append(_Piece(kept, Span(last.span.start, last.span.start + len(kept)), plain=True))
                break
        self._trims_next = edges.trims_right

    def take(self) -> list[Literal]:
        """Return the collected text as a list of at most one `Literal`, and start anew.

        Returns an empty list if the literal would be empty.
        """
        text = "".join(piece.text for piece in self._pieces)
        literals = [Literal(text, span=Span(self._pieces[0].span.start, self._pieces[-1].span.stop))] if text else []
        self._pieces.clear()
        return literals


def start_of(token: Token) -> int:
    """Return the offset at which a token starts."""
    return token.start_pos or 0


def stop_of(token: Token) -> int:
    """Return the offset after a token."""
    return start_of(token) + len(token)


def span_of(token: Token) -> Span:
    """Return the span of a token."""
    return Span(start_of(token), stop_of(token))


def text_of(token: Token, *, lenient: bool = False) -> str:
    """Return the text of a string token, without quotes and with escapes replaced.

    With `lenient`, a backslash that does not begin an escape is kept.
    """
    if "\\" not in token:
        return str(token[1:-1])
    return _ESCAPE.sub(lambda match: _unescape(token, match, lenient=lenient), token[1:-1])


def _unescape(token: Token, match: re.Match[str], *, lenient: bool) -> str:
    """Return the character of an escape; raise `Refused` for an invalid one."""
    offset = start_of(token) + 1 + match.start()
    if match[1]:
        code = int(match[1], 16)
        if 0xD800 <= code < 0xE000:
            raise Refused(offset, f"{match[0]} is half of a character; write the character itself")
        return chr(code)
    if match[2] in _ESCAPES:
        return _ESCAPES[match[2]]
    if lenient:
        return match[0]
    if match[2] == "u":
        raise Refused(offset, r"\u needs four hexadecimal digits, as in \u00e9")
    known = r"the escapes are \n \t \\ \' \" and \uXXXX"
    if not match[2].isprintable():
        raise Refused(offset, rf"a backslash before {match[2]!r} is not an escape; for a backslash write \\ ({known})")
    raise Refused(offset, rf"\{match[2]} is not an escape; for a backslash write \\{match[2]} ({known})")


def edges_of(opening: Token, closing: Token) -> Edges:
    """Return the `Edges` of a tag, given its opening and closing delimiters."""
    return Edges(start_of(opening), stop_of(closing), "~" in opening, closing.startswith("~"))


def slot_name(kind: str, name: str, offset: int) -> str:
    """Return the name if it may name a slot of this kind, else raise `Refused`.

    Allowed are a name, and `this` or `this.field` for an item of a `geneach`.
    """
    first, dot, key = name.partition(".")
    if kind in {"select", "gen", "beam"} and first == "this" and (not dot or _NAME.fullmatch(key)):
        return name
    return check_name(name, offset)


def check_name(name: str, offset: int) -> str:
    """Return the name if it may name a value, else raise `Refused` at `offset`."""
    if name in RESERVED:
        raise Refused(offset, f"{name!r} is a reserved word; choose another name")
    if not _NAME.fullmatch(name):
        raise Refused(
            offset, f"{clipped(name)} is not a name: names are letters, digits and _, and do not begin with a digit"
        )
    return name
