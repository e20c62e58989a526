"""Reads Lark's grammar notation as a grammar of characters.

Lark first splits a text into terminals (the longest match, by priorities) and then
parses these. Here there is no such step: a terminal matches every text that its
expression matches in full, and ignored text may occur before, between and after
terminals. Therefore every text that Lark parses is a text of this grammar.

The converse holds for Lark's Earley parser with `lexer="dynamic_complete"`, which tries
every way of splitting. Its other lexers know only one way and refuse some of the texts:
with `"if" NAME`, "iffy" is `if` and `fy` here, but one NAME to the basic lexer.

Priorities, aliases, `?` and `!` determine the shape of a tree and which of several
trees is chosen; they are read and have no effect. Expressions that stop at their first
match (lazy counts) raise an error where that matters, since no match comes first here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.readers.lark_definitions import IGNORED, Body, Definition, Definitions
from selectrie.grammar.readers.lark_syntax import Node
from selectrie.grammar.readers.regex import MAX_COUNT, read_pattern
from selectrie.grammar.readers.regex_sets import SetMaker, case_variants
from selectrie.grammar.readers.shapes import alternatives, repeat, sequence
from selectrie.grammar.rules.expressions import (
    EMPTY,
    LAST_CODE_POINT,
    SURROGATES,
    Characters,
    Expression,
    Reference,
    RuleSet,
    Span,
    Text,
)
from selectrie.grammar.rules.source_positions import Source

WHOLE = "whole-text"
MAX_INSTANCES = 10_000
_ESCAPE = re.compile(r'\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrtf"\\]))')
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def read_lark(text: str, *, folder: Path | None = None, start: str = "start") -> RuleSet:
    """Return rules for the texts of the rule `start` of a grammar in Lark's notation.

    The module's docstring says how they relate to the texts that Lark parses. Only
    rules that `start` needs are converted. Raises `GrammarError` with the position of
    an error, and for features that cannot be converted: terminals that are only
    declared, look-around and back-references, recursive terminals, and a template as an
    argument of another one.

    Args:
        text: The grammar.
        folder: The folder in which `%import` looks for files, besides those that come
            with lark.
        start: The start rule.
    """
    definitions = Definitions(folder)
    definitions.load(Source(text))
    return _Converter(definitions, text).converted(start)


@dataclass(frozen=True, slots=True)
class _Context:
    """The context in which a node is converted.

    Attributes:
        values: Values of a template's parameters.
        allows_ignored: Whether ignored text may follow each terminal.
    """

    definition: Definition
    body: Body
    values: Mapping[str, Expression] = field(default_factory=dict)
    allows_ignored: bool = False

    @property
    def source(self) -> Source:
        """Return the text that contains the node."""
        return self.body.source


class _Converter:
    """Converts definitions to rules one by one, in the order of their first use."""

    def __init__(self, definitions: Definitions, text: str) -> None:
        self._definitions, self._ignored, self._text = definitions.by_name, definitions.ignored, text
        self._waiting: deque[tuple[str, Definition, tuple[Expression, ...]]] = deque()
        self._named: set[str] = set()
        self._instances: dict[tuple[str, tuple[Expression, ...]], str] = {}
        self._arguments: dict[Expression, str] = {}
        self._terminals_in: dict[str, set[str]] = {}
        self._sets = SetMaker()

    def converted(self, start: str) -> RuleSet:
        """Return the rules that `start` leads to."""
        first = self._definitions.get(start)
        if first is None or first.is_terminal or first.parameters:
            names = [
                name
                for name, candidate in self._definitions.items()
                if not candidate.is_terminal and not candidate.parameters
            ]
            shown = ", ".join(map(clipped, names[:5])) or "none"
            raise GrammarError(f"there is no rule {start!r} to start with; the rules are: {shown}")
        self._check_names()
        rules: dict[str, Expression] = {}
        self._name(first)
        if self._ignored:
            options = [self._name(self._definitions[name]) for name in self._ignored]
            rules[WHOLE] = sequence([Reference(IGNORED), Reference(start)])
            rules[IGNORED] = repeat(alternatives(options), 0, None)
        while self._waiting:
            name, definition, arguments = self._waiting.popleft()
            values = dict(zip(definition.parameters, arguments, strict=True))
            allows_ignored = bool(self._ignored) and not definition.is_terminal
            contexts = [_Context(definition, body, values, allows_ignored) for body in definition.bodies]
            rules[name] = alternatives([self._expression(context.body.node, context) for context in contexts])
        rules.update({name: expression for expression, name in self._arguments.items()})
        self._check_terminals()
        definitions = {name: self._definitions[name] for name in rules if name in self._definitions}
        spans = {name: one.span for name, one in definitions.items() if one.source.text is self._text}
        root = WHOLE if self._ignored else start
        return RuleSet(MappingProxyType(rules), root, self._text, MappingProxyType(spans))

    def _name(self, definition: Definition, span: Span | None = None) -> Reference:
        """Return a reference to a definition without parameters.

        The rule of the definition is made later.
        """
        if definition.name not in self._named:
            self._named.add(definition.name)
            self._waiting.append((definition.name, definition, ()))
        return Reference(definition.name, span)

    def _expression(self, node: Node, context: _Context) -> Expression:
        """Convert a node.

        Recurses as deep as brackets are nested, which the scanner bounds.
        """
        parts = [] if node.kind == "usage" else [self._expression(part, context) for part in node.parts]
        match node.kind:
            case "alternatives":
                return alternatives(parts)
            case "sequence":
                return sequence(parts)
            case "alias" | "repeated":
                return self._around(parts[0], node, context)
            case "name":
                return self._of_name(node, context)
            case "usage":
                return self._of_template(node, context)
        return self._with_ignored(_of_literal(node, context.source, self._sets), context)

    def _around(self, item: Expression, node: Node, context: _Context) -> Expression:
        """Convert a node that has an alias or a repetition around `item`."""
        if node.kind == "repeated":
            if max(node.min_count, node.max_count or 0) > MAX_COUNT:
                raise context.source.refused(
                    node.offset, f"the count {node.max_count or node.min_count} exceeds the limit of {MAX_COUNT}"
                )
            return repeat(item, node.min_count, node.max_count)
        if context.definition.is_terminal:
            raise context.source.refused(node.offset, "a terminal cannot have an alias; remove '->' and the name")
        return item

    def _with_ignored(self, terminal: Expression, context: _Context) -> Expression:
        """Return a terminal followed by ignored text, if that is allowed here."""
        return sequence([terminal, Reference(IGNORED)]) if context.allows_ignored and terminal != EMPTY else terminal

    def _of_name(self, node: Node, context: _Context) -> Expression:
        value = context.values.get(node.word)
        if value is not None:
            return value
        definition = self._definition(node, context)
        if definition.parameters:
            reason = f"the template {clipped(node.word)} is used without arguments; write them in braces"
            raise context.source.refused(node.offset, reason)
        if context.definition.is_terminal:
            self._terminals_in.setdefault(context.definition.name, set()).add(definition.name)
        own = context.source.text is self._text
        reference = self._name(definition, Span(node.offset, node.offset + len(node.word)) if own else None)
        return self._with_ignored(reference, context) if definition.is_terminal else reference

    def _known(self, node: Node, context: _Context) -> Definition:
        definition = self._definitions.get(context.body.scope.whole(node.word))
        if definition is None:
            reason = f"{clipped(node.word)} is not defined; define it, or correct the name"
            raise context.source.refused(node.offset, reason)
        return definition

    def _definition(self, node: Node, context: _Context) -> Definition:
        definition = self._known(node, context)
        if not definition.bodies:
            reason = f"{clipped(node.word)} is only declared, which is not supported; define it"
            raise context.source.refused(node.offset, reason)
        if context.definition.is_terminal and not definition.is_terminal:
            raise context.source.refused(
                node.offset, f"a terminal contains the rule {clipped(node.word)}; make it a terminal"
            )
        return definition

    def _of_template(self, node: Node, context: _Context) -> Expression:
        """Return a reference to an instance of a template.

        Each distinct use becomes one rule. Arguments become rules too, so passing them
        on does not make expressions larger.
        """
        if node.word in context.values:
            raise context.source.refused(node.offset, "a template cannot be the argument of another one; write it out")
        definition = self._definition(node, context)
        if len(definition.parameters) != len(node.parts):
            reason = f"{clipped(node.word)} takes {len(definition.parameters)} arguments, not {len(node.parts)}"
            raise context.source.refused(node.offset, reason)
        values = tuple(self._argument(self._expression(part, context)) for part in node.parts)
        name = self._instances.get((definition.name, values))
        if name is None:
            name = f"{definition.name}-{len(self._instances) + 1}"
            if len(self._instances) >= MAX_INSTANCES:
                raise context.source.refused(
                    node.offset, f"there are more than {MAX_INSTANCES} uses of templates; use fewer"
                )
            self._instances[definition.name, values] = name
            self._waiting.append((name, definition, values))
        return Reference(name)

    def _argument(self, value: Expression) -> Expression:
        if isinstance(value, Reference):
            return value
        return Reference(self._arguments.setdefault(value, f"argument-{len(self._arguments) + 1}"))

    def _check_names(self) -> None:
        """Raise an error for an undefined name in the top-level text."""
        for definition in self._definitions.values():
            for body in definition.bodies:
                waiting = [body.node] if body.source.text is self._text else []
                while waiting:
                    node = waiting.pop()
                    waiting += node.parts
                    if node.kind in {"name", "usage"} and node.word not in definition.parameters:
                        self._known(node, _Context(definition, body))

    def _check_terminals(self) -> None:
        try:
            TopologicalSorter(self._terminals_in).prepare()
        except CycleError as error:
            cycle = " -> ".join(error.args[1][::-1])
            definition = self._definitions[error.args[1][0]]
            reason = f"a terminal contains itself: {cycle}; only rules may be recursive"
            raise definition.source.refused(definition.span.start, reason) from None


def _of_literal(node: Node, source: Source, sets: SetMaker) -> Expression:
    """Return the expression of a string, a range or a regular expression."""
    if node.kind == "range":
        ends = _string(node.word, node.offset, source), _string(node.last, node.offset, source)
        if (
            any(word.endswith("i") for word in (node.word, node.last))
            or any(len(end) != 1 for end in ends)
            or ends[1] < ends[0]
        ):
            reason = f"{clipped(f'{node.word}..{node.last}')} is not an ascending range of characters"
            raise source.refused(node.offset, reason)
        return Characters.of([(ord(ends[0]), ord(ends[1]))])
    if node.word.startswith("/"):
        stop = node.word.rindex("/")
        flags = node.word[stop + 1 :].replace("u", "")
        if "l" in flags:
            raise source.refused(node.offset + stop + 1, "the flag l applies to bytes only; remove it")
        return read_pattern(source, Span(node.offset + 1, node.offset + stop), flags, lazy_as_greedy=False, sets=sets)
    text = _string(node.word, node.offset, source)
    if not node.word.endswith("i"):
        return Text(text.encode())
    return sequence([_any_case(character) for character in text])


@lru_cache(maxsize=4096)
def _any_case(character: str) -> Expression:
    codes = case_variants(ord(character), ascii_only=False)
    return Text(character.encode()) if len(codes) == 1 else Characters.of([(code, code) for code in codes])


def _string(word: str, offset: int, source: Source) -> str:
    """Return the characters of a string literal.

    As in lark, a backslash before any other character is a literal backslash.
    """

    def read(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        if not digits:
            return _ESCAPED.get(match[4], match[4])
        code = int(digits, 16)
        if code > LAST_CODE_POINT:
            raise source.refused(offset, f"{match[0]} is not a character; the last one is U+{LAST_CODE_POINT:X}")
        return chr(code)

    text = _ESCAPE.sub(read, word[1 : word.rindex('"')])
    for character in text:
        if SURROGATES[0] <= ord(character) <= SURROGATES[1]:
            raise source.refused(offset, f"the surrogate U+{ord(character):04X} is not a character; remove it")
    return text
