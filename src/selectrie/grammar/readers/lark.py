"""Reads Lark's grammar notation as a grammar of characters.

The grammar file `lark.lark` parses it into statements; definitions and imports get one
global name each; rules and terminals are then converted to expressions.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lark import Token, Transformer, UnexpectedToken
from lark.common import LexerConf
from lark.lexer import Lexer

from selectrie.errors import GrammarError, MessageText, PythonOnly, clipped
from selectrie.grammar.readers.regex import MAX_COUNT, SetMaker, case_variants, read_pattern
from selectrie.grammar.readers.shapes import alternatives, repeat, sequence
from selectrie.grammar.rules import (
    EMPTY,
    LAST_CODE_POINT,
    SURROGATES,
    Characters,
    Expression,
    LiteralText,
    Reference,
    RuleSet,
    Span,
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

if TYPE_CHECKING:
    from importlib.abc import Traversable

MAX_DEPTH = 64
"""Maximum nesting of brackets, so that expressions can be walked by recursion."""

_SCANNED = re.compile(
    r"""
    (?P<BLANK>[ \t\f]+|\\[ ]*\r?\n)
  | (?P<LINES>(?:\s|(?://|\#)[^\n]*)+)
  | (?P<REGEXP>/(?!/)(?:\\.|[^/\\])+/[imslux]*)
  | (?P<STRING>"(?:\\.|[^"\\\n])*"i?)
  | (?P<_IGNORE>%ignore\b) | (?P<_IMPORT>%import\b) | (?P<_OVERRIDE>%override\b)
  | (?P<_EXTEND>%extend\b) | (?P<_DECLARE>%declare\b)
  | (?P<_TO>->) | (?P<_DOTDOT>\.\.) | (?P<_DOT>\.) | (?P<_COLON>:) | (?P<_COMMA>,) | (?P<_OR>\|) | (?P<_TILDE>~)
  | (?P<_LPAR>\() | (?P<_RPAR>\)) | (?P<_LBRA>\[) | (?P<_RBRA>\]) | (?P<_LBRACE>\{) | (?P<_RBRACE>\})
  | (?P<_MODIFIERS>(?:!\??|\?!?)(?=_?[a-z])) | (?P<OP>[+*?])
  | (?P<RULE>_?[a-z][_a-z0-9]*) | (?P<TERMINAL>_?[A-Z][_A-Z0-9]*) | (?P<NUMBER>[+-]?[0-9]+)
  | (?P<BROKEN>[\s\S])
    """,
    re.VERBOSE,
)
_OPENING, _CLOSING = frozenset({"_LPAR", "_LBRA", "_LBRACE"}), frozenset({"_RPAR", "_RBRA", "_RBRACE"})
_BROKEN = {
    '"': "this string is not closed: a '\"' is missing",
    "/": "this regular expression is not closed: a '/' is missing",
    "'": "a string is written in double quotes; replace the single ones",
    "%": "this is not a statement; the statements are %ignore, %import, %declare, %override and %extend",
}
_WORDS = {
    "RULE": "a rule's name",
    "TERMINAL": "a terminal's name",
    "STRING": "a string",
    "REGEXP": "a regular expression",
    "NUMBER": "a number",
    "_COLON": "':'",
    "_OR": "'|'",
    "_NL": "a new line",
    "_COMMA": "','",
    "_DOT": "'.'",
    "_TO": "'->'",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_RBRA": "']'",
    "_RBRACE": "'}'",
}
_VALUE = frozenset({"RULE", "TERMINAL", "STRING", "REGEXP", "_LPAR"})


@dataclass(frozen=True, slots=True)
class DefinitionNode:
    """A node of the syntax tree of a definition.

    Attributes:
        kind: "alternatives", "sequence", "alias", "repeated", "name", "literal",
            "range" or "usage".
        parts: The parts of the node.
        word: The name, the literal, or the first end of the range, as written.
        last: The last end of the range, as written.
        offset: Offset of the node in the text.
        min_count: Minimum number of repetitions.
        max_count: Maximum number of repetitions; None for no limit.
    """

    kind: str
    parts: tuple[DefinitionNode, ...] = ()
    word: str = ""
    last: str = ""
    offset: int = field(default=0, compare=False)
    min_count: int = 0
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a grammar text.

    Attributes:
        kind: "rule", "terminal", "override", "extend", "ignore", "import" or "declare".
        span: Position of the name in the text.
        name: The name that is defined.
        body: The definition.
        names: Parameters of a template, declared names, or imported names; each with
            the name that it gets.
        path: Path of an import.
        relative: Whether the path begins with a dot.
    """

    kind: str
    span: Span
    name: str = ""
    body: DefinitionNode = DefinitionNode("sequence")
    names: tuple[tuple[str, str], ...] = ()
    path: tuple[str, ...] = ()
    relative: bool = False


def read_statements(source: GrammarSource) -> list[Statement]:
    """Return the statements of a grammar text, in order.

    Raises `GrammarError` with the position and what was expected there.
    """
    statements: list[Statement] = parse_source(parser_of("lark.lark", LarkScanner, _Builder), source, _expected_symbols)
    return statements


class LarkScanner(Lexer):
    """Splits a Lark grammar into symbols.

    A line end is yielded only where it ends a statement: not before `|` and not at the
    beginning.
    """

    __future_interface__ = 0

    def __init__(self, _lexer_conf: LexerConf) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the signature in all versions of lark
        """Yield the symbols of a grammar text; raise `SymbolError` for other text."""
        depth = n_symbols = 0
        line_end: int | None = None
        began = False
        for match in _SCANNED.finditer(text):
            kind, offset = match.lastgroup or "", match.start()
            if kind == "BLANK":
                continue
            if kind == "LINES":
                line_end = offset if began and "\n" in match[0] else line_end
                continue
            n_symbols += 1
            if n_symbols > MAX_SYMBOLS:
                raise SymbolError(offset, f"the grammar has more than {MAX_SYMBOLS} symbols; make it smaller")
            if kind == "BROKEN":
                raise SymbolError(offset, _BROKEN.get(match[0], f"{match[0]!r} is not allowed here"))
            if line_end is not None and kind != "_OR":
                yield Token("_NL", "\n", line_end)
            line_end, began = None, True
            depth += (kind in _OPENING) - (kind in _CLOSING)
            if depth > MAX_DEPTH:
                raise SymbolError(offset, f"nested more than {MAX_DEPTH} levels deep; make rules of the inner parts")
            yield Token(kind, match[0], offset)
        if began:
            yield Token("_NL", "\n", len(text))


class _Builder(Transformer[Token, Any]):
    """Builds nodes and statements from the productions, bottom-up."""

    def start(self, children: list[Statement]) -> list[Statement]:
        return children

    def expansions(self, children: list[DefinitionNode]) -> DefinitionNode:
        return (
            children[0]
            if len(children) == 1
            else DefinitionNode("alternatives", tuple(children), offset=children[0].offset)
        )

    def expansion(self, children: list[DefinitionNode]) -> DefinitionNode:
        if len(children) == 1:
            return children[0]
        return DefinitionNode("sequence", tuple(children), offset=children[0].offset if children else 0)

    def alias(self, children: list[Any]) -> DefinitionNode:
        return DefinitionNode("alias", (children[0],), str(children[1]), offset=start_of(children[1]))

    def repeated(self, children: list[Any]) -> DefinitionNode:
        item, count = children[0], children[1]
        if count.type == "OP":
            min_count, max_count = int(count == "+"), (1 if count == "?" else None)
        else:
            min_count, max_count = _number(count), _number(children[-1])
            if not 0 <= min_count <= max_count:
                raise SymbolError(
                    start_of(count), f"the counts {count} to {children[-1]} are not a range; write the lower one first"
                )
        return DefinitionNode("repeated", (item,), offset=item.offset, min_count=min_count, max_count=max_count)

    def optional(self, children: list[DefinitionNode]) -> DefinitionNode:
        return DefinitionNode("repeated", (children[0],), offset=children[0].offset, max_count=1)

    def name(self, children: list[Token]) -> DefinitionNode:
        return DefinitionNode("name", word=str(children[0]), offset=start_of(children[0]))

    def literal(self, children: list[Token]) -> DefinitionNode:
        return DefinitionNode("literal", word=str(children[0]), offset=start_of(children[0]))

    def range(self, children: list[Token]) -> DefinitionNode:
        return DefinitionNode("range", word=str(children[0]), last=str(children[1]), offset=start_of(children[0]))

    def usage(self, children: list[Any]) -> DefinitionNode:
        return DefinitionNode("usage", tuple(children[1:]), str(children[0]), offset=start_of(children[0]))

    def parameters(self, children: list[Token]) -> tuple[tuple[str, str], ...]:
        return tuple((str(name), str(name)) for name in children)

    def rule(self, children: list[Any]) -> Statement:
        return Statement("rule", span_of(children[0]), str(children[0]), children[-1], names=children[1])

    def terminal(self, children: list[Any]) -> Statement:
        return Statement("terminal", span_of(children[0]), str(children[0]), children[-1])

    def override(self, children: list[Statement]) -> Statement:
        return replace(children[0], kind="override")

    def extend(self, children: list[Statement]) -> Statement:
        return replace(children[0], kind="extend")

    def ignore(self, children: list[DefinitionNode]) -> Statement:
        return Statement("ignore", Span(children[0].offset, children[0].offset), body=children[0])

    def declare(self, children: list[Token]) -> Statement:
        return Statement("declare", span_of(children[0]), names=tuple((str(name), str(name)) for name in children))

    def path(self, children: list[Token]) -> list[Token]:
        """Return the names of a path; a dot at the beginning is kept."""
        return [child for index, child in enumerate(children) if not index or child.type != "_DOT"]

    def name_list(self, children: list[Token]) -> list[Token]:
        return children

    def import_one(self, children: list[list[Token]]) -> Statement:
        path = children[0]
        return _make_import(path[:-1], [(path[-1], path[-1])])

    def import_as(self, children: list[Any]) -> Statement:
        path = children[0]
        return _make_import(path[:-1], [(path[-1], children[1])])

    def import_many(self, children: list[list[Token]]) -> Statement:
        return _make_import(children[0], [(name, name) for name in children[1]])


def _number(token: Token) -> int:
    """Return the number of a count; raise `SymbolError` beyond 999999."""
    if len(token) > 6:
        raise SymbolError(start_of(token), f"the count {clipped(token, 12)} is too large; the maximum is 999999")
    return int(token)


def _make_import(path: list[Token], names: list[tuple[Token, Token]]) -> Statement:
    """Return the statement that imports names from a path."""
    relative = bool(path) and path[0].type == "_DOT"
    steps = tuple(str(step) for step in path[relative:])
    first = names[0][0]
    if not steps:
        raise SymbolError(start_of(first), f"nothing is imported from {clipped(str(first))}; add a dot and a name")
    return Statement(
        "import", span_of(first), names=tuple((str(a), str(b)) for a, b in names), path=steps, relative=relative
    )


def _expected_symbols(error: UnexpectedToken) -> tuple[list[str], str]:
    """Return the symbols expected at an error, and an empty remedy."""
    expected = set(error.expected)
    shown = ["a name, string, regular expression or '('"] if expected >= _VALUE else []
    return shown + [word for kind, word in _WORDS.items() if kind in expected and not (shown and kind in _VALUE)], ""


MAX_FILES = 64
IGNORED = "ignored-text"
"""A name that cannot clash, since names in Lark have no '-'."""
_OURS = "lark_exact.lark"


@dataclass(frozen=True, slots=True)
class NameScope:
    """Maps the names in one grammar text to global names.

    Explicitly imported names get their alias; other names get a prefix.

    Attributes:
        prefix: Prefix of other names, made from the path of the import.
        aliases: Aliases of explicitly imported names, in the outer scope.
        outer: Scope of the importing text; None for the top level.
    """

    prefix: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    outer: NameScope | None = None

    def global_name(self, name: str) -> str:
        """Return the name, unique across all files, of a name in this scope's text."""
        if self.outer is None:
            return name
        hidden = name.startswith("_")
        return self.outer.global_name(self.aliases.get(name, f"{'_' * hidden}{self.prefix}__{name[hidden:]}"))


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a definition, with its source and the scope of the names in it."""

    node: DefinitionNode
    source: GrammarSource
    scope: NameScope


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule or terminal of a Lark grammar.

    Attributes:
        bodies: Its alternatives; none if the name is only declared.
        source: The text that defines it.
        span: The position of its name in that text.
    """

    name: str
    is_terminal: bool
    bodies: tuple[Body, ...]
    parameters: tuple[str, ...]
    source: GrammarSource
    span: Span


@dataclass(slots=True)
class Definitions:
    """Everything that a grammar text defines or imports.

    Attributes:
        folder: The folder in which imports are looked for, besides lark's own files.
        ignored: Names of terminals, one for each `%ignore`.
    """

    folder: Path | None
    by_name: dict[str, Definition] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    n_files: int = 0

    def load(self, source: GrammarSource) -> None:
        """Add the definitions of a top-level text, after those of its imports."""
        self._load(source, NameScope(), self.folder, ())

    def _load(
        self, source: GrammarSource, scope: NameScope, folder: Traversable | None, within: tuple[str, ...]
    ) -> None:
        """Add the definitions of a text, after those of its imports.

        `scope` makes the text's names global, and `within` has the names of the files
        that are being imported, to find circles.
        """
        statements = read_statements(source)
        imports: dict[tuple[str, ...], list[Statement]] = {}
        for statement in statements:
            if statement.kind == "import":
                imports.setdefault(statement.path, []).append(statement)
        for group in imports.values():
            self._import_file(group, source, scope, folder, within)
        for statement in statements:
            self._add_statement(statement, source, scope)

    def _add_statement(self, statement: Statement, source: GrammarSource, scope: NameScope) -> None:
        """Add the definition of a statement, or change the one that it names."""
        match statement.kind:
            case "rule" | "terminal":
                self._define(self._make_definition(statement, source, scope))
            case "override":
                definition = self._make_definition(statement, source, scope)
                self._find_earlier(definition)
                self.by_name[definition.name] = definition
            case "extend":
                definition = self._make_definition(statement, source, scope)
                before = self._find_earlier(definition)
                if not before.bodies or before.parameters != definition.parameters:
                    why = "it is only declared, or has other parameters; use %override"
                    raise source.error_at(statement.span.start, f"{clipped(statement.name)} cannot be extended: {why}")
                self.by_name[definition.name] = replace(before, bodies=(*before.bodies, *definition.bodies))
            case "declare":
                for name, _ in statement.names:
                    kind = _is_terminal(name)
                    self._define(Definition(scope.global_name(name), kind, (), (), source, statement.span))
            case "ignore" if scope.outer is None:  # as in lark, an %ignore in an imported text has no effect
                name = f"{IGNORED}-{len(self.ignored) + 1}"
                self.ignored.append(name)
                self._define(replace(self._make_definition(statement, source, scope), name=name, is_terminal=True))

    def _make_definition(self, statement: Statement, source: GrammarSource, scope: NameScope) -> Definition:
        """Return the definition of a statement, with names made global."""
        parameters = tuple(name for name, _ in statement.names)
        if len(set(parameters)) < len(parameters):
            raise source.error_at(
                statement.span.start, f"{clipped(statement.name)} has two parameters of one name; rename one"
            )
        name = scope.global_name(statement.name)
        body = Body(statement.body, source, scope)
        return Definition(name, _is_terminal(statement.name), (body,), parameters, source, statement.span)

    def _define(self, definition: Definition) -> None:
        """Add a definition; raise `GrammarError` if the name is taken."""
        if definition.name in self.by_name:
            reason = f"{clipped(definition.name)} is defined twice; remove one definition, or use %override or %extend"
            raise definition.source.error_at(definition.span.start, reason)
        self.by_name[definition.name] = definition

    def _find_earlier(self, definition: Definition) -> Definition:
        """Return the earlier definition of the same name, or raise `GrammarError`."""
        if definition.name not in self.by_name:
            raise definition.source.error_at(
                definition.span.start, f"{clipped(definition.name)} is not defined yet; define it before"
            )
        return self.by_name[definition.name]

    def _import_file(
        self,
        group: list[Statement],
        source: GrammarSource,
        scope: NameScope,
        folder: Traversable | None,
        within: tuple[str, ...],
    ) -> None:
        """Add the definitions of a file that is imported by a group of statements."""
        first = group[0]
        for other in group:
            if other.relative != first.relative:
                reason = f"{'.'.join(first.path)} is imported both with and without a leading dot; use one form"
                raise source.error_at(other.span.start, reason)
        aliases = {name: alias for statement in group for name, alias in statement.names}
        for name, alias in aliases.items():
            if _is_terminal(name) != _is_terminal(alias):
                raise source.error_at(
                    first.span.start,
                    f"{name} is imported as {alias}, but one is a rule and the other a terminal; keep the case",
                )
        text, inner_folder, name = self._find_file(first, source, folder)
        self.n_files += 1
        if name in within or self.n_files > MAX_FILES:
            why = "imports itself" if name in within else f"is one of more than {MAX_FILES} files"
            raise source.error_at(first.span.start, f"{name} {why}; remove this import")
        inner = NameScope("__".join(first.path), aliases, scope)
        self._load(GrammarSource(text, name), inner, inner_folder, (*within, name))
        if name == "lark:common.lark":
            self._load_ours(inner)
        missing = [name for name in aliases if inner.global_name(name) not in self.by_name]
        if missing:
            raise source.error_at(first.span.start, f"{name} does not define {clipped(missing[0])}; correct the name")

    def _load_ours(self, scope: NameScope) -> None:
        """Replace definitions of lark's common file by exact ones."""
        source = GrammarSource(files("selectrie.grammar.readers").joinpath(_OURS).read_text(encoding="utf-8"), _OURS)
        for statement in read_statements(source):
            definition = self._make_definition(statement, source, scope)
            self.by_name[definition.name] = definition

    def _find_file(
        self, statement: Statement, source: GrammarSource, folder: Traversable | None
    ) -> tuple[str, Traversable | None, str]:
        """Return the text of an imported file, its folder, and its name in messages."""
        *folders, last = statement.path
        roots: list[Traversable] = [] if self.folder is None else [self.folder]
        if statement.relative and folder is not None:
            roots.insert(0, folder)
        own = files("lark").joinpath("grammars")
        for root in [*roots, own]:
            inside = root
            for folder_name in folders:
                inside = inside.joinpath(folder_name)
            path = inside.joinpath(f"{last}.lark")
            try:
                text = path.read_text(encoding="utf-8-sig")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise source.error_at(statement.span.start, f"{path} cannot be read: {error}") from error
            return text, inside, f"lark:{'/'.join(statement.path)}.lark" if root is own else str(path)
        name = clipped(f"{'/'.join(statement.path)}.lark")
        unknown = MessageText(
            f"{name} is none of the grammars that come with Lark", PythonOnly("; give the folder that contains it")
        )
        reason = unknown if self.folder is None else f"the file {name} does not exist in {self.folder}"
        raise source.error_at(statement.span.start, reason)


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


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
    definitions.load(GrammarSource(text))
    return _Converter(definitions, text).convert(start)


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
    def source(self) -> GrammarSource:
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

    def convert(self, start: str) -> RuleSet:
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
        self._reference_to(first)
        if self._ignored:
            options = [self._reference_to(self._definitions[name]) for name in self._ignored]
            rules[WHOLE] = sequence([Reference(IGNORED), Reference(start)])
            rules[IGNORED] = repeat(alternatives(options), 0, None)
        while self._waiting:
            name, definition, arguments = self._waiting.popleft()
            values = dict(zip(definition.parameters, arguments, strict=True))
            allows_ignored = bool(self._ignored) and not definition.is_terminal
            contexts = [_Context(definition, body, values, allows_ignored) for body in definition.bodies]
            rules[name] = alternatives([self._convert(context.body.node, context) for context in contexts])
        rules.update({name: expression for expression, name in self._arguments.items()})
        self._check_terminals()
        definitions = {name: self._definitions[name] for name in rules if name in self._definitions}
        spans = {name: one.span for name, one in definitions.items() if one.source.text is self._text}
        root = WHOLE if self._ignored else start
        return RuleSet(MappingProxyType(rules), root, self._text, MappingProxyType(spans))

    def _reference_to(self, definition: Definition, span: Span | None = None) -> Reference:
        """Return a reference to a definition without parameters.

        The rule of the definition is made later.
        """
        if definition.name not in self._named:
            self._named.add(definition.name)
            self._waiting.append((definition.name, definition, ()))
        return Reference(definition.name, span)

    def _convert(self, node: DefinitionNode, context: _Context) -> Expression:
        """Convert a node.

        Recurses as deep as brackets are nested, which the scanner bounds.
        """
        parts = [] if node.kind == "usage" else [self._convert(part, context) for part in node.parts]
        match node.kind:
            case "alternatives":
                return alternatives(parts)
            case "sequence":
                return sequence(parts)
            case "alias" | "repeated":
                return self._wrap(parts[0], node, context)
            case "name":
                return self._convert_name(node, context)
            case "usage":
                return self._convert_usage(node, context)
        return self._append_ignored(_convert_literal(node, context.source, self._sets), context)

    def _wrap(self, item: Expression, node: DefinitionNode, context: _Context) -> Expression:
        """Convert a node that has an alias or a repetition around `item`."""
        if node.kind == "repeated":
            if max(node.min_count, node.max_count or 0) > MAX_COUNT:
                raise context.source.error_at(
                    node.offset, f"the count {node.max_count or node.min_count} exceeds the limit of {MAX_COUNT}"
                )
            return repeat(item, node.min_count, node.max_count)
        if context.definition.is_terminal:
            raise context.source.error_at(node.offset, "a terminal cannot have an alias; remove '->' and the name")
        return item

    def _append_ignored(self, terminal: Expression, context: _Context) -> Expression:
        """Return a terminal followed by ignored text, if that is allowed here."""
        return sequence([terminal, Reference(IGNORED)]) if context.allows_ignored and terminal != EMPTY else terminal

    def _convert_name(self, node: DefinitionNode, context: _Context) -> Expression:
        """Convert the name of a parameter, a rule or a terminal."""
        value = context.values.get(node.word)
        if value is not None:
            return value
        definition = self._usable_definition(node, context)
        if definition.parameters:
            reason = f"the template {clipped(node.word)} is used without arguments; write them in braces"
            raise context.source.error_at(node.offset, reason)
        if context.definition.is_terminal:
            self._terminals_in.setdefault(context.definition.name, set()).add(definition.name)
        own = context.source.text is self._text
        reference = self._reference_to(definition, Span(node.offset, node.offset + len(node.word)) if own else None)
        return self._append_ignored(reference, context) if definition.is_terminal else reference

    def _find_definition(self, node: DefinitionNode, context: _Context) -> Definition:
        """Return the definition that a node names, or raise `GrammarError`."""
        definition = self._definitions.get(context.body.scope.global_name(node.word))
        if definition is None:
            reason = f"{clipped(node.word)} is not defined; define it, or correct the name"
            raise context.source.error_at(node.offset, reason)
        return definition

    def _usable_definition(self, node: DefinitionNode, context: _Context) -> Definition:
        """Return the definition that a node names, if it can be converted here.

        Raises `GrammarError` if it is only declared, or a rule inside a
        terminal.
        """
        definition = self._find_definition(node, context)
        if not definition.bodies:
            reason = f"{clipped(node.word)} is only declared, which is not supported; define it"
            raise context.source.error_at(node.offset, reason)
        if context.definition.is_terminal and not definition.is_terminal:
            raise context.source.error_at(
                node.offset, f"a terminal contains the rule {clipped(node.word)}; make it a terminal"
            )
        return definition

    def _convert_usage(self, node: DefinitionNode, context: _Context) -> Expression:
        """Return a reference to an instance of a template.

        Each distinct use becomes one rule. Arguments become rules too, so passing them
        on does not make expressions larger.
        """
        if node.word in context.values:
            raise context.source.error_at(node.offset, "a template cannot be the argument of another one; write it out")
        definition = self._usable_definition(node, context)
        if len(definition.parameters) != len(node.parts):
            reason = f"{clipped(node.word)} takes {len(definition.parameters)} arguments, not {len(node.parts)}"
            raise context.source.error_at(node.offset, reason)
        values = tuple(self._name_argument(self._convert(part, context)) for part in node.parts)
        name = self._instances.get((definition.name, values))
        if name is None:
            name = f"{definition.name}-{len(self._instances) + 1}"
            if len(self._instances) >= MAX_INSTANCES:
                raise context.source.error_at(
                    node.offset, f"there are more than {MAX_INSTANCES} uses of templates; use fewer"
                )
            self._instances[definition.name, values] = name
            self._waiting.append((name, definition, values))
        return Reference(name)

    def _name_argument(self, value: Expression) -> Expression:
        """Return a reference to a template's argument, which becomes a rule."""
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
                        self._find_definition(node, _Context(definition, body))

    def _check_terminals(self) -> None:
        """Raise `GrammarError` for a terminal that contains itself."""
        try:
            TopologicalSorter(self._terminals_in).prepare()
        except CycleError as error:
            cycle = " -> ".join(error.args[1][::-1])
            definition = self._definitions[error.args[1][0]]
            reason = f"a terminal contains itself: {cycle}; only rules may be recursive"
            raise definition.source.error_at(definition.span.start, reason) from None


def _convert_literal(node: DefinitionNode, source: GrammarSource, sets: SetMaker) -> Expression:
    """Return the expression of a string, a range or a regular expression."""
    if node.kind == "range":
        ends = _unescape(node.word, node.offset, source), _unescape(node.last, node.offset, source)
        if (
            any(word.endswith("i") for word in (node.word, node.last))
            or any(len(end) != 1 for end in ends)
            or ends[1] < ends[0]
        ):
            reason = f"{clipped(f'{node.word}..{node.last}')} is not an ascending range of characters"
            raise source.error_at(node.offset, reason)
        return Characters.of([(ord(ends[0]), ord(ends[1]))])
    if node.word.startswith("/"):
        stop = node.word.rindex("/")
        flags = node.word[stop + 1 :].replace("u", "")
        if "l" in flags:
            raise source.error_at(node.offset + stop + 1, "the flag l applies to bytes only; remove it")
        return read_pattern(source, Span(node.offset + 1, node.offset + stop), flags, lazy_as_greedy=False, sets=sets)
    text = _unescape(node.word, node.offset, source)
    if not node.word.endswith("i"):
        return LiteralText(text.encode())
    return sequence([_any_case(character) for character in text])


@lru_cache(maxsize=4096)
def _any_case(character: str) -> Expression:
    """Return the expression of a character in upper and lower case."""
    codes = case_variants(ord(character), ascii_only=False)
    return LiteralText(character.encode()) if len(codes) == 1 else Characters.of([(code, code) for code in codes])


def _unescape(word: str, offset: int, source: GrammarSource) -> str:
    """Return the characters of a string literal.

    As in lark, a backslash before any other character is a literal backslash.
    """

    def read(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3]
        if not digits:
            return _ESCAPED.get(match[4], match[4])
        code = int(digits, 16)
        if code > LAST_CODE_POINT:
            raise source.error_at(offset, f"{match[0]} is not a character; the last one is U+{LAST_CODE_POINT:X}")
        return chr(code)

    text = _ESCAPE.sub(read, word[1 : word.rindex('"')])
    for character in text:
        if SURROGATES[0] <= ord(character) <= SURROGATES[1]:
            raise source.error_at(offset, f"the surrogate U+{ord(character):04X} is not a character; remove it")
    return text
