r"""Reads GBNF, llama.cpp's grammar notation, as llama.cpp's parser does.

Two things are accepted in addition: left recursion (compiling rewrites it), and an
operator after an operator (`"a"?*`). Four things are refused although llama.cpp reads
them: a rule defined twice (there the last one wins), an empty class (there it is the
empty string), a backward range (there it is empty), and code points that are not
characters (surrogates, beyond U+10FFFF).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from types import MappingProxyType
from typing import Any

from lark import Token, Transformer, UnexpectedToken

from selectrie.errors import GrammarError, Noun, Words, clipped, ways, words
from selectrie.grammar.readers.gbnf_symbols import (
    MAX_DEPTH,
    WORDS,
    Scanner,
    class_of,
    counts_of,
    literal_of,
    token_of,
)
from selectrie.grammar.readers.symbols import parsed, parser_of, span_of, start_of
from selectrie.grammar.rules.expressions import (
    EMPTY,
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Span,
    Text,
    TokenSet,
    parts_of,
)
from selectrie.grammar.rules.gbnf_limits import ANY
from selectrie.grammar.rules.source_positions import Source

MAX_COPIES = 1_000_000
"""Maximum product of the counts of nested repetitions."""

_SYMBOLS = ("NAME", "LITERAL", "CLASS", "_OPEN", "ANY", "TOKEN")


def read_gbnf(text: str, *, root: str = "root") -> RuleSet:
    """Return the rules of a grammar in GBNF; `root` is the start rule.

    Runs in linear time. Raises `GrammarError` with the position and what was expected
    there. Also raises it for a rule that is used but not defined, for more than
    `MAX_SYMBOLS` symbols, and for nesting beyond `MAX_DEPTH`.
    """
    source = Source(text)
    if "\0" in text:
        raise source.refused(text.index("\0"), r"the grammar has a NUL character; write \x00 in quotes or a class")
    if text.lstrip().startswith("{"):
        other = words("{} reads a JSON Schema (in a file, by the ending .json)", Noun("Grammar.from_json_schema"))
        raise source.refused(text.index("{"), Words("this looks like JSON; ", ways(other)))
    definitions: list[tuple[Token, Expression]] = parsed(parser_of("gbnf.lark", Scanner, _Builder), source, _expected)
    rules: dict[str, Expression] = {}
    spans: dict[str, Span] = {}
    for symbol, expression in definitions:
        name = str(symbol)
        if name in rules:
            reason = f"the rule {clipped(name)} is defined twice; keep one definition, or rename one"
            raise source.refused(start_of(symbol), reason)
        rules[name], spans[name] = expression, span_of(symbol)
    if root not in rules:
        raise GrammarError(f"there is no rule {root!r}; name one of {_some(rules)} as the root, or add it")
    for name, expression in rules.items():
        _check(source, rules, spans[name], expression)
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
        return children[0] if len(children) == 1 else Sequence(tuple(children))

    def reference(self, children: list[Token]) -> Reference:
        return Reference(str(children[0]), span_of(children[0]))

    def literal(self, children: list[Token]) -> Text:
        return literal_of(children[0])

    def character_class(self, children: list[Token]) -> Characters:
        return class_of(children[0])

    def any_character(self, _children: list[Token]) -> Characters:
        return ANY

    def token(self, children: list[Token]) -> TokenSet:
        return token_of(children[0])

    def repeated(self, children: list[Any]) -> Repeat:
        min_count, max_count = counts_of(children[1])
        return Repeat(children[0], min_count, max_count)


def _check(source: Source, rules: dict[str, Expression], span: Span, expression: Expression) -> None:
    """Raise an error for undefined references, deep nesting or multiplying counts."""
    pending = [(expression, 0, 1)]
    while pending:
        node, depth, copies = pending.pop()
        if depth > MAX_DEPTH:
            raise source.refused(span.start, f"the rule is nested more than {MAX_DEPTH} levels deep; split it up")
        if isinstance(node, Reference) and node.name not in rules:
            start = span.start if node.span is None else node.span.start
            raise source.refused(start, f"the rule {node.name!r} is not defined; define it, or correct its name")
        if isinstance(node, Repeat):
            copies *= max(node.max_count or node.min_count, 1)
            if copies > MAX_COPIES:
                reason = f"the counts of nested repetitions multiply to more than {MAX_COPIES}; reduce them"
                raise source.refused(span.start, reason)
        pending.extend((part, depth + 1, copies) for part in parts_of(node))


def _expected(error: UnexpectedToken) -> tuple[list[str], str]:
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


def _some(names: Iterable[str]) -> str:
    """Return the first few names, quoted, for a message."""
    shown = [clipped(name) for name in islice(names, 6)]
    return ", ".join(shown[:5]) + (" …" if len(shown) > 5 else "")
