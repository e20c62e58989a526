r"""Read GBNF, llama.cpp's grammar notation, as llama.cpp's parser does.

Two things are accepted in addition: left recursion (compiling rewrites it), and an
operator after an operator (`"a"?*`). Four things are refused although llama.cpp reads
them: a rule defined twice (there the last one wins), an empty class (there it is the
empty string), a backward range (there it is empty), and code points that are not
characters (surrogates, beyond U+10FFFF).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedToken

from selectrie.errors import GrammarError
from selectrie.grammar.readers.gbnf_symbols import (
    MOST_DEPTH,
    WORDS,
    Scanner,
    SymbolError,
    class_of,
    counts_of,
    literal_of,
    span_of,
    start_of,
    token_of,
)
from selectrie.grammar.readers.source_positions import refused
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
)
from selectrie.grammar.rules.gbnf_limits import ANY
from selectrie.grammar.rules.quoting import clipped

MOST_COPIES = 1_000_000
"""Maximum product of the counts of nested repetitions."""

_SYMBOLS = ("NAME", "LITERAL", "CLASS", "OPEN", "ANY", "TOKEN")


def read_gbnf(text: str, *, root: str = "root") -> RuleSet:
    """Return the rules of a grammar in GBNF; `root` is the start rule.

    Runs in linear time. Raises `GrammarError` with the place and what was expected
    there. Also raises it for a rule that is used but not defined, for more than
    `MOST_SYMBOLS` symbols, and for nesting beyond `MOST_DEPTH`.
    """
    if "\0" in text:
        raise refused(text, text.index("\0"), r"a NUL character; write \x00 inside quotes or a class")
    try:
        found = cast("list[tuple[Token, Expression]]", _parser().parse(text))
    except UnexpectedToken as error:
        raise _unexpected(text, error) from None
    except SymbolError as error:
        raise refused(text, error.offset, error.reason) from None
    rules: dict[str, Expression] = {}
    spans: dict[str, Span] = {}
    for symbol, expression in found:
        name = str(symbol)
        if name in rules:
            reason = f"the rule {clipped(name)} is defined twice; keep one definition, or rename one"
            raise refused(text, start_of(symbol), reason)
        rules[name], spans[name] = expression, span_of(symbol)
    if root not in rules:
        raise GrammarError(f"there is no rule {root!r}; name one of {_some(rules)} as the root, or add it")
    for name, expression in rules.items():
        _check(text, rules, spans[name], expression)
    return RuleSet(MappingProxyType(rules), root, text, MappingProxyType(spans))


class _Builder(Transformer[Token, Any]):
    """Builds expressions from the productions, bottom-up.

    Alternatives and sequences are lists until they are complete.
    """

    def start(self, children: list[Any]) -> Any:
        return children[0]

    def first_rule(self, children: list[Any]) -> list[Any]:
        return children

    def next_rule(self, children: list[Any]) -> Any:
        children[0].append(children[2])
        return children[0]

    def rule(self, children: list[Any]) -> tuple[Token, Expression]:
        return children[0], _alternatives(children[2])

    def first_option(self, children: list[Any]) -> list[Expression]:
        return [_sequence(children[0])]

    def next_option(self, children: list[Any]) -> Any:
        children[0].append(_sequence(children[2]))
        return children[0]

    def empty_sequence(self, children: list[Any]) -> list[Any]:
        return children

    def longer_sequence(self, children: list[Any]) -> Any:
        children[0].append(children[1])
        return children[0]

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

    def group(self, children: list[Any]) -> Expression:
        return _alternatives(children[1])

    def repeated(self, children: list[Any]) -> Repeat:
        least, most = counts_of(children[1])
        return Repeat(children[0], least, most)


@cache
def _parser() -> Lark:
    grammar = files("selectrie.grammar.readers").joinpath("gbnf.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=Scanner, transformer=_Builder(), keep_all_tokens=True)


def _alternatives(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternatives(tuple(options))


def _sequence(items: list[Expression]) -> Expression:
    if not items:
        return EMPTY
    return items[0] if len(items) == 1 else Sequence(tuple(items))


def _check(text: str, rules: dict[str, Expression], span: Span, expression: Expression) -> None:
    """Refuse undefined references, deep nesting, and repetitions that multiply."""
    pending = [(expression, 0, 1)]
    while pending:
        node, depth, copies = pending.pop()
        if depth > MOST_DEPTH:
            raise refused(
                text, span.start, f"the rule is nested more than {MOST_DEPTH} deep; name its inner parts as rules"
            )
        if isinstance(node, Reference):
            if node.name not in rules:
                place = span.start if node.span is None else node.span.start
                raise refused(text, place, f"the rule {node.name!r} is not defined; define it, or correct its name")
        elif isinstance(node, Repeat):
            copies *= max(node.most or node.least, 1)
            if copies > MOST_COPIES:
                raise refused(
                    text, span.start, f"repetitions inside each other multiply to more than {MOST_COPIES}; lower them"
                )
            pending.append((node.item, depth + 1, copies))
        elif isinstance(node, Sequence):
            pending.extend((item, depth + 1, copies) for item in node.items)
        elif isinstance(node, Alternatives):
            pending.extend((option, depth + 1, copies) for option in node.options)


def _unexpected(text: str, error: UnexpectedToken) -> GrammarError:
    """Return an error that says which token was found and what was expected."""
    token, expected = error.token, set(error.expected)
    inside = any(isinstance(value, Token) and value.type == "OPEN" for value in error.state.value_stack)
    expected -= {"NEWLINE", "$END"} if inside else {"CLOSE"}
    expected -= {"TIMES"} if expected - {"TIMES"} and expected.issuperset(_SYMBOLS) else set()
    shown = ["a symbol"] if expected.issuperset(_SYMBOLS) else []
    shown += [word for name, word in WORDS.items() if name in expected and not (shown and name in _SYMBOLS)]
    found = "the end" if token.type == "$END" else "a new line" if token.type == "NEWLINE" else clipped(str(token))
    remedy = ""
    if token.type == "OR" and "NAME" in expected:
        remedy = (
            "; a rule goes on behind a line end only inside parentheses or after '|': put the '|' before the line end"
        )
    offset = len(text) if token.type == "$END" else start_of(token)
    return refused(text, offset, f"expected {' or '.join(shown)}, found {found}{remedy}")


def _some(names: Iterable[str]) -> str:
    """Return the first few names, quoted."""
    shown = [clipped(name) for name in islice(names, 6)]
    return ", ".join(shown[:5]) + (" …" if len(shown) > 5 else "")
