"""Reads GBNF, llama.cpp's grammar notation, as llama.cpp's parser does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from types import MappingProxyType
from typing import Any

from lark import Token, Transformer, UnexpectedToken
from lark.common import LexerConf
from lark.lexer import Lexer

from selectrie.errors import GrammarError, MessageText, Noun, clipped, remedies, words
from selectrie.grammar.rules import (
    ANY,
    EMPTY,
    LAST_CODE_POINT,
    MAX_REPEATED,
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    Span,
    TokenTerminal,
    parts_of,
)
from selectrie.grammar.source_positions import (
    MAX_SYMBOLS,
    GrammarSource,
    SymbolError,
    parse_source,
    parser_of,
    span_of,
    start_of,
)

MAX_DEPTH = 100
"""Maximum nesting of parentheses and operators; deeper nesting is refused."""
_CHARACTER = re.compile(
    r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([nrt\"\[\]\\-])|([^\\])", re.DOTALL
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
WORDS = {
    "NAME": "a rule's name",
    "LITERAL": 'a text in quotes ("…")',
    "CLASS": "a class of characters ([…])",
    "_NEWLINE": "a new line",
    "_DEFINES": "'::='",
    "_OR": "'|'",
    "_OPEN": "'('",
    "_CLOSE": "')'",
    "ANY": "'.'",
    "TOKEN": "a token (<…>)",
    "TIMES": "a repetition (* + ? {m,n})",
    "$END": "the end",
}
_BROKEN = {
    '"': "this text in quotes is not closed: a '\"' is missing",
    "[": "this class of characters is not closed: a ']' is missing",
    "{": "this is not a repetition; write {m}, {m,} or {m,n} with numbers m and n",
    "<": "this is not a token; write <[id]> with a number, or <spelling>",
    "!": "'!' is only allowed before a token; write !<[id]> or !<spelling>",
    "_": "a rule's name consists of letters, digits and '-'; replace '_'",
    "'": "a text is written in double quotes; replace the single ones",
    "\\": "'\\' is only allowed inside quotes and classes",
}


class GbnfScanner(Lexer):
    """Scans the terminals of the grammar file with one regular expression.

    Line ends are yielded only where they end a rule.
    """

    __future_interface__ = 0

    def __init__(self, lexer_conf: LexerConf) -> None:
        order = [*WORDS, "BLANK"]
        terminals = sorted(lexer_conf.terminals, key=lambda terminal: order.index(terminal.name))
        pattern = "|".join(f"(?P<{terminal.name}>{terminal.pattern.to_regexp()})" for terminal in terminals)
        self._pattern = re.compile(pattern + r"|(?P<BROKEN>[\s\S])")

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the signature in all versions of lark
        """Yield the symbols of a grammar text; raise `SymbolError` for other text."""
        depth = n_symbols = 0
        goes_on = True
        for match in self._pattern.finditer(text):
            kind = match.lastgroup or ""
            if kind == "BLANK" or (kind == "_NEWLINE" and (goes_on or depth)):
                continue
            start = match.start()
            n_symbols += 1
            if n_symbols > MAX_SYMBOLS:
                raise SymbolError(start, f"the grammar has more than {MAX_SYMBOLS} symbols; make it smaller")
            if kind == "_OPEN":
                depth += 1
                if depth > MAX_DEPTH:
                    raise SymbolError(start, f"nested more than {MAX_DEPTH} levels deep; make rules of inner parts")
            elif kind == "_CLOSE":
                depth = max(depth - 1, 0)
            elif kind == "BROKEN":
                raise SymbolError(start, _BROKEN.get(match[0], f"{match[0]!r} is not allowed here"))
            elif kind == "TIMES" and not depth and ("\n" in match[0] or "\r" in match[0]):
                raise SymbolError(start, "a repetition may follow a line end only inside parentheses")
            goes_on = kind in {"_OR", "_DEFINES"}
            yield Token(kind, match[0], start)


def literal_of(token: Token) -> LiteralText:
    """Return the expression of a literal `"…"`, with escapes replaced."""
    text = "".join(chr(code) for code, _ in _characters(token, 1)) if "\\" in token else token[1:-1]
    try:
        return LiteralText(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise _surrogate_error(start_of(token), ord(text[error.start])) from None


def _surrogate_error(offset: int, code: int) -> SymbolError:
    return SymbolError(offset, f"the surrogate U+{code:04X} is not a character; write the character itself")


def class_of(token: Token) -> Characters:
    """Return the characters of a class `[…]`.

    A bare '-' between two characters makes a range of them, the leftmost first;
    elsewhere it is literal. A surrogate raises an error, but is ignored in a
    negated class.
    """
    negated = token[1:2] == "^"
    body = _characters(token, 1 + negated)
    if not body:
        raise SymbolError(start_of(token), 'this class is empty; write "" for the empty text, or . for any character')
    if not negated and (wrong := next((code for code, _ in body if 0xD800 <= code <= 0xDFFF), None)) is not None:
        raise _surrogate_error(start_of(token), wrong)
    ranges, i = [], 0
    while i < len(body):
        first = last = body[i][0]
        i += 1
        if i + 1 < len(body) and body[i][1] == "-":
            last = body[i + 1][0]
            i += 2
        if first > last:
            raise SymbolError(start_of(token), f"the range U+{first:04X} to U+{last:04X} is reversed; swap its ends")
        ranges.append((first, last))
    return Characters.of(ranges, negated=negated)


def _characters(token: Token, start: int) -> list[tuple[int, str]]:
    """Return the code point and the spelling of each character of a literal or class.

    Reads from `start` up to the closing delimiter.
    """
    characters = []
    stop = len(token) - 1
    while start < stop:
        match = _CHARACTER.match(token, start, stop)
        if match is None:
            known = r"\xNN \uNNNN \UNNNNNNNN \n \r \t \\ \" \[ \] and \-"
            raise SymbolError(start_of(token) + start, f"this escape does not exist; the escapes are {known}")
        digits = match[1] or match[2] or match[3]
        code = int(digits, 16) if digits else ord(_ESCAPED.get(match[4], match[4]) if match[4] else match[5])
        if code > LAST_CODE_POINT:
            raise SymbolError(
                start_of(token) + start, f"U+{code:X} is not a character; the last one is U+{LAST_CODE_POINT:X}"
            )
        characters.append((code, match[0]))
        start = match.end()
    return characters


def counts_of(token: Token) -> tuple[int, int | None]:
    """Return the bounds of `*`, `+`, `?` or `{m,n}`; the upper one may be None."""
    if token in _COUNTS:
        return _COUNTS[token]
    first, comma, second = token.strip("{}").partition(",")
    min_count = _number(first.strip(), start_of(token))
    max_count = min_count if not comma else _number(second.strip(), start_of(token)) if second.strip() else None
    if max_count is not None and max_count < min_count:
        raise SymbolError(
            start_of(token), f"the lower count {min_count} exceeds the upper count {max_count}; swap them"
        )
    if min_count > MAX_REPEATED:
        raise SymbolError(
            start_of(token), f"the lower count {min_count} exceeds the limit of {MAX_REPEATED}; reduce it"
        )
    return min_count, max_count


def _number(digits: str, offset: int) -> int:
    if len(digits) > 9:
        raise SymbolError(offset, f"the number {digits[:12]}… is too large")
    return int(digits)


def token_of(token: Token) -> TokenTerminal:
    """Return the token set of `<[id]>` or `<spelling>`, negated after `!`."""
    negated = token.startswith("!")
    spelling = token[negated:]
    if not spelling.startswith("<["):
        return TokenTerminal((spelling,), negated)
    return TokenTerminal((_number(spelling[2:-2], start_of(token)),), negated)


MAX_COPIES = 1_000_000
"""Maximum product of the counts of nested repetitions."""

_SYMBOLS = ("NAME", "LITERAL", "CLASS", "_OPEN", "ANY", "TOKEN")


def read_gbnf(text: str, *, root: str = "root") -> RuleSet:
    """Return the rules of a grammar in GBNF; `root` is the start rule.

    Runs in linear time. Raises `GrammarError` with the position and what was expected
    there. Also raises it for a rule that is used but not defined, for more than
    `MAX_SYMBOLS` symbols, and for nesting beyond `MAX_DEPTH`.
    """
    source = GrammarSource(text)
    if "\0" in text:
        raise source.error_at(text.index("\0"), r"the grammar has a NUL character; write \x00 in quotes or a class")
    if text.lstrip().startswith("{"):
        other = words("{} reads a JSON Schema (in a file, by the ending .json)", Noun("Grammar.from_json_schema"))
        raise source.error_at(text.index("{"), MessageText("this looks like JSON; ", remedies(other)))
    definitions: list[tuple[Token, Expression]] = parse_source(
        parser_of("gbnf.lark", GbnfScanner, _Builder), source, _expected_symbols
    )
    rules: dict[str, Expression] = {}
    spans: dict[str, Span] = {}
    for symbol, expression in definitions:
        name = str(symbol)
        if name in rules:
            reason = f"the rule {clipped(name)} is defined twice; keep one definition, or rename one"
            raise source.error_at(start_of(symbol), reason)
        rules[name], spans[name] = expression, span_of(symbol)
    if root not in rules:
        raise GrammarError(f"there is no rule {root!r}; name one of {_some_names(rules)} as the root, or add it")
    for name, expression in rules.items():
        _check_rule(source, rules, spans[name], expression)
    return RuleSet(MappingProxyType(rules), root, text, MappingProxyType(spans))


class _Builder(Transformer[Token, Any]):
    """Builds expressions from the productions of GBNF, bottom-up."""

    def start(self, children: list[tuple[Token, Expression]]) -> list[tuple[Token, Expression]]:
        return children

    def rule(self, children: list[Any]) -> tuple[Token, Expression]:
        return children[0], self.group(children[1:])

    def group(self, children: list[Expression]) -> Expression:
        return children[0] if len(children) == 1 else Alternatives(tuple(children))

    def sequence(self, children: list[Expression]) -> Expression:
        if not children:
            return EMPTY
        return children[0] if len(children) == 1 else Concatenation(tuple(children))

    def reference(self, children: list[Token]) -> Reference:
        return Reference(str(children[0]), span_of(children[0]))

    def literal(self, children: list[Token]) -> LiteralText:
        return literal_of(children[0])

    def character_class(self, children: list[Token]) -> Characters:
        return class_of(children[0])

    def any_character(self, _children: list[Token]) -> Characters:
        return ANY

    def token(self, children: list[Token]) -> TokenTerminal:
        return token_of(children[0])

    def repeated(self, children: list[Any]) -> Repeat:
        min_count, max_count = counts_of(children[1])
        return Repeat(children[0], min_count, max_count)


def _check_rule(source: GrammarSource, rules: dict[str, Expression], span: Span, expression: Expression) -> None:
    """Raise an error for undefined references, deep nesting or multiplying counts."""
    pending = [(expression, 0, 1)]
    while pending:
        node, depth, copies = pending.pop()
        if depth > MAX_DEPTH:
            raise source.error_at(span.start, f"the rule is nested more than {MAX_DEPTH} levels deep; split it up")
        if isinstance(node, Reference) and node.name not in rules:
            start = span.start if node.span is None else node.span.start
            name = clipped(node.name)
            raise source.error_at(start, f"the rule {name} is not defined; define it, or correct its name")
        if isinstance(node, Repeat):
            copies *= max(node.max_count or node.min_count, 1)
            if copies > MAX_COPIES:
                reason = f"the counts of nested repetitions multiply to more than {MAX_COPIES}; reduce them"
                raise source.error_at(span.start, reason)
        pending.extend((part, depth + 1, copies) for part in parts_of(node))


def _expected_symbols(error: UnexpectedToken) -> tuple[list[str], str]:
    """Return the symbols expected at an error, and a remedy."""
    expected = set(error.expected)
    inside = any(isinstance(value, Token) and value.type == "_OPEN" for value in error.state.value_stack)
    expected -= {"_NEWLINE", "$END"} if inside else {"_CLOSE"}
    expected -= {"TIMES"} if expected - {"TIMES"} and expected.issuperset(_SYMBOLS) else set()
    shown = ["a symbol"] if expected.issuperset(_SYMBOLS) else []
    shown += [word for name, word in WORDS.items() if name in expected and not (shown and name in _SYMBOLS)]
    if error.token.type == "_OR" and "NAME" in expected:
        return shown, ("; put the '|' before the line end, or use parentheses: a rule ends with its line")
    return shown, ""


def _some_names(names: Iterable[str]) -> str:
    """Return the first few names, quoted, for a message."""
    shown = [clipped(name) for name in islice(names, 6)]
    return ", ".join(shown[:5]) + (" …" if len(shown) > 5 else "")
