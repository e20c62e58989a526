"""Parses the source text of a template to a `Document`.

Lark reports the parts of one tag at a time to the `ProductionReader`, which makes its
segment. A `DocumentBuilder` receives the texts and tags in order and checks which tags
are allowed where. It keeps open blocks on a stack, so nesting takes no recursion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from string import Template as Pattern
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedToken

from selectrie.errors import OptionError, clip, clipped
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import Refused
from selectrie.template.syntax.lexer import (
    MAX_DEPTH,
    OPENINGS,
    Edges,
    Literals,
    TemplateScanner,
    check_name,
    edges_of,
    slot_name,
    span_of,
    start_of,
    stop_of,
    text_of,
)
from selectrie.template.syntax.syntax_errors import BrokenTag, refusal
from selectrie.template.syntax.tags import DIALECTS, TAGS, TemplateDialect

_WORDS = {"TRUE": True, "FALSE": False, "NONE": None}
AT_NAMES = ("@index", "@first", "@last", "@key")
_EXAMPLES = {"select": "answer", "gen": "answer", "beam": "answer", "geneach": "items"}
_ROLE = "role takes the name of a role in quotes and nothing else, as in role 'tool'"
Named = list[tuple[Token, ast.Expression]]
TURNS = frozenset({"system", "user", "assistant", "role"})
_PARTED = {"or": ("select",), "else": ("if", "unless"), "elif": ("if", "unless")}


def parse(source: str, *, name: str = "<template>", dialect: str = "selectrie") -> ast.Document:
    """Parse a template.

    Takes time linear in the length of the source. Blocks nest at most 64 deep, and so
    do expressions.

    Args:
        source: The template.
        name: Name of the file, for errors.
        dialect: "selectrie" (`<<…>>`) or "handlebars" (`{{…}}`).

    Raises:
        TemplateError: If the source is not a template. The error has the position, the
            line and what was expected there.
        OptionError: If there is no such dialect.
    """
    if dialect not in DIALECTS:
        raise OptionError("dialect", dialect, f"one of {', '.join(DIALECTS)}")
    try:
        return ast.Document(name, source, _read(source, dialect), dialect)
    except Refused as refused:
        raise refused.error(source, name) from None


def _read(source: str, dialect: str) -> ast.Body:
    """Parse a source, and return its segments.

    Raises `Refused` if it cannot be parsed.
    """
    try:
        return cast("ast.Body", _parser(dialect).parse(source))
    except UnexpectedToken as error:
        offset = error.token.start_pos or 0
        stack = error.interactive_parser.parser_state.value_stack
        opening = next(
            (value for value in reversed(stack) if isinstance(value, Token) and value.type in OPENINGS), None
        )
        if opening is None:
            raise Refused(offset, f"{clipped(str(error.token))} is not allowed here") from None
        symbols = TemplateScanner(_parser(dialect).lexer_conf).symbols_before(source, opening, offset)
        raise refusal(BrokenTag(source, DIALECTS[dialect], symbols, error.token, error.accepts)) from None


@cache
def _parser(name: str) -> Lark:
    """Return the parser of a dialect, which has no state."""
    dialect = DIALECTS[name]
    text = files("selectrie.template.syntax").joinpath("template.lark").read_text(encoding="utf-8")
    first = re.escape(dialect.opens[0])
    grammar = Pattern(text).substitute(open=first * 2, close=re.escape(dialect.closes[0]) * 2, first=first)
    return Lark(
        grammar, parser="lalr", lexer=TemplateScanner, transformer=ProductionReader(dialect), keep_all_tokens=True
    )


class ProductionReader(Transformer[Token, Any]):
    """Handles the productions of the grammar file, one in each method.

    Tags are added to a `DocumentBuilder`, which the left-recursive rule `pieces` passes
    on.
    """

    def __init__(self, dialect: TemplateDialect) -> None:
        super().__init__()
        self._dialect = dialect

    # Pieces: the first child is the builder, which is passed on.

    def start(self, children: list[Any]) -> Any:
        return children[0].finish()

    def nothing(self, _children: list[Any]) -> DocumentBuilder:
        return DocumentBuilder(self._dialect)

    def text(self, children: list[Any]) -> Any:
        builder, token = children
        return builder.text(str(token), span_of(token), plain=True)

    def escaped(self, children: list[Any]) -> Any:
        builder, token = children
        opens = self._dialect.opens
        return builder.text("\\" * ((len(token) - len(opens)) // 2) + opens, span_of(token), plain=False)

    def backslashes(self, children: list[Any]) -> Any:
        builder, token = children
        return builder.text("\\" * (len(token) // 2), span_of(token), plain=False)

    def raw(self, children: list[Any]) -> Any:
        """Add the text of a raw block, trimmed beside each `~`."""
        builder, token = children
        opens, closes = self._dialect.opens, self._dialect.closes
        first, last = token.index(closes), token.rindex(opens)
        text = str(token[first + len(closes) : last])
        if token[first - 1] == "~":
            text = text.lstrip()
        if token[last + len(opens)] == "~":
            text = text.rstrip()
        return builder.raw(text, self._edges(token))

    def comment(self, children: list[Any]) -> Any:
        builder, token = children
        edges, n = self._edges(token), len(self._dialect.opens)
        inner = str(token[n + edges.trims_left + 1 : len(token) - n - edges.trims_right])
        return builder.leaf(ast.Comment(inner[2:-2] if inner.startswith("--") else inner, span=edges.span), edges)

    def partial(self, children: list[Any]) -> Any:
        builder, token = children
        edges, n = self._edges(token), len(self._dialect.opens)
        path = str(token[n:-n]).strip("~").strip().removeprefix(">").strip()
        return builder.leaf(ast.Include(path, span=edges.span), edges)

    def output(self, children: list[Any]) -> Any:
        """Add a tag that writes a value; raise `Refused` if it names no value."""
        builder, opening, value, closing = children
        edges = edges_of(opening, closing)
        if isinstance(value, ast.Path) and value.name in self._dialect.commands and not value.steps:
            reason = f"{value.name} has no meaning here: {self._dialect.commands[value.name]}"
            raise Refused(value.span.start, reason)
        if not _has_content(value):
            raise Refused(edges.start, f"this tag names no value; {self._dialect.escaped}")
        return builder.leaf(ast.Output(value, span=edges.span), edges)

    def slot(self, children: list[Any]) -> Any:
        builder, opening, kind, called, named, closing = children
        edges = edges_of(opening, closing)
        name, arguments = self._split_name(kind, called, named)
        return builder.leaf(ast.Slot(str(kind), name, arguments, None, span=edges.span), edges)

    def set_text(self, children: list[Any]) -> Any:
        builder, opening, _, name, value, closing = children
        edges = edges_of(opening, closing)
        return builder.leaf(ast.Set(check_name(self._text(name), start_of(name) + 1), value, span=edges.span), edges)

    def set_name(self, children: list[Any]) -> Any:
        builder, opening, _, name, _, value, closing = children
        edges = edges_of(opening, closing)
        return builder.leaf(ast.Set(str(name), value, span=edges.span), edges)

    def include(self, children: list[Any]) -> Any:
        """Add a tag that includes a file; raise `Refused` if it names none."""
        builder, opening, _, path, closing = children
        edges = edges_of(opening, closing)
        if not self._text(path):
            raise Refused(start_of(path), "include needs the name of a file of the search path")
        return builder.leaf(ast.Include(self._text(path), span=edges.span), edges)

    def named_block(self, children: list[Any]) -> Any:
        """Begin a `select`, `geneach` or `block`, which is made at its end tag."""
        builder, opening, kind, called, named, closing = children
        edges = edges_of(opening, closing)
        name, arguments = self._split_name(kind, called, named, required=kind != "block")

        def make(bodies: list[ast.Body], span: ast.Span) -> ast.Slot | ast.GenEach | ast.Block:
            if kind == "select":
                self._check_choices(bodies, dict(arguments), span)
                return ast.Slot("select", name, arguments, tuple(bodies), span=span)
            if kind == "geneach":
                return ast.GenEach(name, bodies[0], arguments, span=span)
            return ast.Block(bodies[0], name or None, arguments, span=span)

        return builder.open_block(Opening(str(kind), edges, make))

    def _check_choices(self, bodies: list[ast.Body], arguments: Mapping[str, ast.Expression], span: ast.Span) -> None:
        """Raise `Refused` if the block form of a select has no content."""
        if bodies != [()]:
            return
        language = next((name for name in ("options", "grammar", "regex") if name in arguments), None)
        tag = self._dialect.tag
        if language is not None:
            reason = f"with {language}= a select is not a block: write it without # and without {tag('/select')}"
            raise Refused(span.start, reason)
        raise Refused(span.start, f"this select has no choices; write them between its tags, separated by {tag('or')}")

    def joint(self, children: list[Any]) -> Any:
        """Begin a joint block, which is made at its end tag."""
        builder, opening, kind, named, closing = children
        arguments = self._check_arguments(kind, named)
        return builder.open_block(
            Opening(
                str(kind), edges_of(opening, closing), lambda bodies, span: ast.Joint(bodies[0], arguments, span=span)
            )
        )

    def each(self, children: list[Any]) -> Any:
        builder, opening, kind, items, named, closing = children
        return self._open_each(builder, kind, edges_of(opening, closing), (items, "this", named))

    def each_as(self, children: list[Any]) -> Any:
        builder, opening, kind, items, _, variable, named, closing = children
        return self._open_each(builder, kind, edges_of(opening, closing), (items, str(variable), named))

    def _open_each(
        self, builder: DocumentBuilder, kind: Token, edges: Edges, parts: tuple[ast.Expression, str, Named]
    ) -> Any:
        """Begin an `each` block; `parts` are its items, variable and arguments."""
        items, variable, named = parts
        arguments = self._check_arguments(kind, named)
        return builder.open_block(
            Opening("each", edges, lambda bodies, span: ast.Each(items, bodies[0], variable, arguments, span=span))
        )

    def condition(self, children: list[Any]) -> Any:
        builder, opening, kind, condition, closing = children
        first: ast.Expression = ast.Not(condition, span=condition.span) if kind == "unless" else condition
        return builder.open_block(Opening(str(kind), edges_of(opening, closing), condition=first))

    def turn(self, children: list[Any]) -> Any:
        builder, opening, kind, closing = children
        return self._open_role(builder, kind, edges_of(opening, closing), str(kind))

    def no_role(self, children: list[Any]) -> Any:
        raise Refused(stop_of(children[2]), _ROLE)

    def role(self, children: list[Any]) -> Any:
        """Begin a turn whose role is a text; raise `Refused` if that is blank."""
        builder, opening, kind, called, named, closing = children
        role = self._text(called)
        if named or not role.strip():
            raise Refused(stop_of(kind), _ROLE)
        return self._open_role(builder, kind, edges_of(opening, closing), role)

    def role_argument(self, children: list[Any]) -> Any:
        """Begin a turn with the role `name=`; raise `Refused` for other arguments."""
        builder, opening, kind, name, _, value, named, closing = children
        role = value.value if isinstance(value, ast.Constant) else value
        if (
            name != "name"
            or named
            or isinstance(role, bool | int | float | None)
            or (isinstance(role, str) and not role.strip())
        ):
            raise Refused(stop_of(kind), _ROLE)
        return self._open_role(builder, kind, edges_of(opening, closing), role)

    def role_of(self, children: list[Any]) -> Any:
        builder, opening, kind, path, closing = children
        if not path.steps and path.name != "this":
            raise Refused(path.span.start, f"expected a name in quotes; write role {clipped(path.name)}")
        return self._open_role(builder, kind, edges_of(opening, closing), path)

    def _open_role(self, builder: DocumentBuilder, kind: Token, edges: Edges, role: str | ast.Expression) -> Any:
        return builder.open_block(Opening(str(kind), edges, lambda bodies, span: ast.Role(role, bodies[0], span=span)))

    def middle(self, children: list[Any]) -> Any:
        builder, opening, word, closing = children
        return builder.divide_block(str(word), edges_of(opening, closing))

    def else_if(self, children: list[Any]) -> Any:
        builder, opening, word, condition, closing = children
        return builder.divide_block(str(word), edges_of(opening, closing), condition)

    def end(self, children: list[Any]) -> Any:
        builder, opening, name, closing = children
        return builder.close_block(str(name), edges_of(opening, closing))

    def _edges(self, token: Token) -> Edges:
        """Return the edges of a tag that is a single token."""
        n = len(self._dialect.opens)
        return Edges(start_of(token), stop_of(token), token[n] == "~", token[-n - 1] == "~")

    def _text(self, token: Token) -> str:
        return text_of(token, lenient=self._dialect.lenient)

    # Names and arguments.

    def no_name(self, _children: list[Any]) -> None:
        return None

    def string_name(self, children: list[Token]) -> Token:
        return children[0]

    def no_arguments(self, _children: list[Any]) -> Named:
        return []

    def argument(self, children: list[Any]) -> Named:
        pairs: Named = children[0]
        pairs.append((children[1], children[3]))
        return pairs

    def _split_name(
        self, kind: Token, called: Token | None, named: Named, *, required: bool = True
    ) -> tuple[str, ast.Arguments]:
        """Return the name of a slot or block, or "", and its other arguments.

        Args:
            kind: Kind of the tag.
            called: The string directly after the kind, if any.
            named: All `key=value` arguments; one may be `name`.
            required: Whether the name must be given.
        """
        others = [(argument, value) for argument, value in named if argument != "name"]
        name = "" if called is None else slot_name(kind, self._text(called), start_of(called) + 1)
        is_named = called is not None
        for argument, value in named:
            if argument == "name":
                if is_named:
                    raise Refused(start_of(argument), f"the name of this {kind} is given twice")
                if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
                    raise Refused(value.span.start, "a name must be a text in quotes")
                name, is_named = slot_name(kind, value.value, value.span.start + 1), True
        if required and not is_named:
            example = f"{kind} '{_EXAMPLES[str(kind)]}'"
            raise Refused(stop_of(kind), f"{kind} needs a name in quotes first, as in {example}")
        return name, self._check_arguments(kind, others)

    def _check_arguments(self, kind: Token, named: Named) -> ast.Arguments:
        """Return the arguments of a tag under the names in the table of tags.

        Raises `Refused` for unknown and repeated arguments.
        """
        known = TAGS[str(kind)].arguments
        arguments: dict[str, ast.Expression] = {}
        for argument, value in named:
            name = str(argument)
            if name not in known:
                name = self._dialect.aliases.get(name, name)
            if name not in known:
                raise Refused(
                    start_of(argument), f"{kind} takes no argument {clipped(name)}; {self._instead(name, known)}"
                )
            if name in arguments:
                raise Refused(start_of(argument), f"{clip(argument, 40)}= is given twice")
            arguments[name] = value
        return tuple(arguments.items())

    def _instead(self, name: str, known: Mapping[str, str]) -> str:
        """Return advice for an argument that a tag does not have."""
        if name in self._dialect.arguments:
            return self._dialect.arguments[name]
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{hint}it takes {', '.join(known)}" if known else "it takes none"

    # Expressions.

    def first_two(self, children: list[Any]) -> list[ast.Expression]:
        return [children[0], children[2]]

    def one_more(self, children: list[Any]) -> list[ast.Expression]:
        children[0].append(children[2])
        return children[0]  # type: ignore[no-any-return]

    def disjunction(self, children: list[Any]) -> ast.Logical:
        return _make_logical("or", children[0])

    def conjunction(self, children: list[Any]) -> ast.Logical:
        return _make_logical("and", children[0])

    def negated(self, children: list[Any]) -> ast.Not:
        return ast.Not(children[1], span=ast.Span(start_of(children[0]), children[1].span.stop))

    def compared(self, children: list[Any]) -> ast.Compare:
        return _make_compare(str(children[1]), children[0], children[2])

    def inside(self, children: list[Any]) -> ast.Compare:
        return _make_compare("in", children[0], children[2])

    def outside(self, children: list[Any]) -> ast.Compare:
        return _make_compare("not in", children[0], children[3])

    def string(self, children: list[Token]) -> ast.Constant:
        return ast.Constant(self._text(children[0]), span=span_of(children[0]))

    def number(self, children: list[Token]) -> ast.Constant:
        """Return a number as a constant; raise `Refused` for a long or large one."""
        token = children[0]
        if len(token) > 300:
            raise Refused(start_of(token), "this number has more than 300 characters")
        value = int(token) if token.lstrip("-").isdecimal() else float(token)
        if value in {float("inf"), -float("inf")}:
            raise Refused(start_of(token), f"{clip(token, 40)} exceeds the largest number")
        return ast.Constant(value, span=span_of(token))

    def word(self, children: list[Token]) -> ast.Constant:
        return ast.Constant(_WORDS[children[0].type], span=span_of(children[0]))

    def group(self, children: list[Any]) -> ast.Expression:
        return children[1]  # type: ignore[no-any-return]

    def no_items(self, children: list[Token]) -> ast.ListOf:
        return ast.ListOf((), span=ast.Span(start_of(children[0]), stop_of(children[-1])))

    def list_of(self, children: list[Any]) -> ast.ListOf:
        return ast.ListOf(tuple(children[1]), span=ast.Span(start_of(children[0]), stop_of(children[-1])))

    def first_item(self, children: list[Any]) -> list[ast.Expression]:
        return [children[0]]

    def next_item(self, children: list[Any]) -> list[ast.Expression]:
        children[0].append(children[-1])
        return children[0]  # type: ignore[no-any-return]

    one_more_operand = next_item

    def helper(self, children: list[Any]) -> ast.Expression:
        span = ast.Span(start_of(children[0]), stop_of(children[-1]))
        return _make_helped(children[1], self._dialect.helpers[str(children[1])], children[2], span)

    def first_step(self, children: list[Token]) -> ast.Path:
        token = children[0]
        if token.type == "AT_NAME" and token not in AT_NAMES:
            raise Refused(start_of(token), f"{clip(token, 40)} is unknown; a loop has {', '.join(AT_NAMES)}")
        return ast.Path(str(token), (), span=span_of(token))

    def key(self, children: list[Any]) -> ast.Path:
        return _add_step(children[0], str(children[2]), children[2])

    def subscript(self, children: list[Any]) -> ast.Path:
        """Return a path with an index or key added; raise `Refused` for others."""
        step = children[2]
        if isinstance(step, ast.Constant):
            if isinstance(step.value, bool) or not isinstance(step.value, int | str):
                raise Refused(step.span.start, "an index must be a whole number or a key in quotes")
            step = step.value
        return _add_step(children[0], step, children[3])


def _has_content(expression: ast.Expression) -> bool:
    """Return whether an expression contains a text or a named value."""
    pending = [expression]
    while pending:
        match pending.pop():
            case ast.Path():
                return True
            case ast.Constant(value):
                if isinstance(value, str) and value:
                    return True
            case ast.Not(operand):
                pending.append(operand)
            case ast.Compare(_, left, right):
                pending += [left, right]
            case ast.Logical(_, several) | ast.ListOf(several):
                pending += several
    return False


def _add_step(path: ast.Path, step: str | int | ast.Expression, last: Token) -> ast.Path:
    """Return the path extended by one step."""
    if len(path.steps) >= MAX_DEPTH:
        raise Refused(start_of(last), f"this path has more than {MAX_DEPTH} steps")
    return ast.Path(path.name, (*path.steps, step), span=ast.Span(path.span.start, stop_of(last)))


def _make_logical(operator: str, operands: list[ast.Expression]) -> ast.Logical:
    return ast.Logical(operator, tuple(operands), span=ast.Span(operands[0].span.start, operands[-1].span.stop))


def _make_compare(operator: str, left: ast.Expression, right: ast.Expression) -> ast.Compare:
    return ast.Compare(operator, left, right, span=ast.Span(left.span.start, right.span.stop))


def _make_helped(word: Token, operator: str, operands: list[ast.Expression], span: ast.Span) -> ast.Expression:
    """Return the expression of a helper such as `(equal a b)`."""
    if operator in {"and", "or"}:
        if len(operands) < 2:
            raise Refused(start_of(word), f"{word} needs at least two values, not {len(operands)}")
        return ast.Logical(operator, tuple(operands), span=span)
    if len(operands) != 2:
        raise Refused(start_of(word), f"{word} compares two values, not {len(operands)}")
    left, right = operands if operator != "in" else operands[::-1]
    return ast.Compare(operator, left, right, span=span)


@dataclass(frozen=True, slots=True)
class Opening:
    """A tag that begins a block.

    Attributes:
        kind: Kind of the tag.
        edges: The extent of the tag, and the sides that it trims.
        make: Makes the segment from the block's bodies and span; None for a block with
            conditions.
        condition: The first condition, or None.
    """

    kind: str
    edges: Edges
    make: Callable[[list[ast.Body], ast.Span], ast.Segment] | None = None
    condition: ast.Expression | None = None


@dataclass(slots=True)
class _OpenBlock:
    """An open block.

    Attributes:
        opening: The tag that began it.
        body: The current body.
        bodies: The bodies before it.
        conditions: The conditions of an `if`.
        last: Whether its `else` has been read.
    """

    opening: Opening
    body: list[ast.Segment] = field(default_factory=list)
    bodies: list[ast.Body] = field(default_factory=list)
    conditions: list[ast.Expression] = field(default_factory=list)
    last: bool = False


class DocumentBuilder:
    """Builds the segments of one source while it is being read.

    Every method that adds something returns the builder itself.
    """

    def __init__(self, dialect: TemplateDialect) -> None:
        self._tag = dialect.tag
        self._bottom: list[ast.Segment] = []
        self._frames: list[_OpenBlock] = []
        self._literals = Literals()

    def text(self, text: str, span: ast.Span, *, plain: bool) -> DocumentBuilder:
        """Add text between tags.

        `plain` says whether it is literally in the source, so that a tag may trim it.
        """
        self._literals.add(text, span, plain=plain)
        return self

    def raw(self, text: str, edges: Edges) -> DocumentBuilder:
        """Add the text of a raw block, which no other tag trims."""
        self._literals.trim_beside(edges)
        self._literals.add(text, edges.span, plain=False)
        if edges.trims_right:
            self._literals.trim_beside(Edges(edges.stop, edges.stop, trims_right=True))
        return self

    def leaf(self, segment: ast.Segment, edges: Edges) -> DocumentBuilder:
        """Add a segment without a body.

        Comments among the choices of a select are left out.
        """
        self._literals.trim_beside(edges)
        if isinstance(segment, ast.Comment) and self._is_in_choice:
            return self
        self._check_allowed(segment.kind if isinstance(segment, ast.Slot) else type(segment).__name__.lower(), edges)
        self._flush()
        self._body.append(segment)
        return self

    def open_block(self, opening: Opening) -> DocumentBuilder:
        """Begin a block at its first tag."""
        self._check_allowed(opening.kind, opening.edges)
        if len(self._frames) >= MAX_DEPTH:
            reason = f"blocks are nested more than {MAX_DEPTH} deep; move the inner ones into a file and include it"
            raise Refused(opening.edges.start, reason)
        self._end_literal(opening.edges)
        self._frames.append(_OpenBlock(opening))
        if opening.condition is not None:
            self._frames[-1].conditions.append(opening.condition)
        return self

    def divide_block(self, word: str, edges: Edges, condition: ast.Expression | None = None) -> DocumentBuilder:
        """Begin the next body of a block at `or`, `else` or `elif`."""
        frame = self._frames[-1] if self._frames else None
        kinds = _PARTED[word]
        if frame is None or frame.opening.kind not in kinds:
            reason = f"{self._tag(word)} divides {self._tag('#' + kinds[0])} and cannot be used elsewhere"
            if frame is None:
                raise Refused(edges.start, reason + "; no block is open here")
            raise Refused(edges.start, reason + "; {tag} of line {line} is open here", frame.opening.edges.span)
        if frame.last:
            reason = f"{self._tag(word)} cannot follow {self._tag('else')}, the last part of " + "{tag} in line {line}"
            raise Refused(edges.start, reason, frame.opening.edges.span)
        self._end_literal(edges)
        frame.bodies.append(tuple(frame.body))
        frame.body = []
        frame.last = word == "else"
        if condition is not None:
            frame.conditions.append(condition)
        return self

    def close_block(self, name: str, edges: Edges) -> DocumentBuilder:
        """End the innermost block at its end tag."""
        frame = self._block_to_close(name, edges)
        self._end_literal(edges)
        opening = frame.opening
        if opening.kind == "joint" and not any(isinstance(segment, ast.Slot) for segment in frame.body):
            raise Refused(opening.edges.start, "this joint has no select, so there is nothing to decide together")
        frame.bodies.append(tuple(frame.body))
        self._frames.pop()
        span = ast.Span(opening.edges.start, edges.stop)
        self._body.append(opening.make(frame.bodies, span) if opening.make else _make_if(frame, span))
        return self

    def finish(self) -> ast.Body:
        """Return the segments at the end of the source; raise if a block is open."""
        if self._frames:
            opening = self._frames[-1].opening
            reason = (
                "{tag} is not closed: expected " + f"{self._tag('/' + opening.kind)} before the end of the template"
            )
            raise Refused(opening.edges.start, reason + self._hint_at_end(), opening.edges.span)
        self._flush()
        return tuple(self._bottom)

    def _hint_at_end(self) -> str:
        """Return a hint if an output in the open block looks like its end tag, else "".

        Other languages end a block with such a word ("endif").
        """
        kind = self._frames[-1].opening.kind
        words = {"end", "end" + kind, *(("endfor",) if kind == "each" else ())}
        bodies = (*self._frames[-1].bodies, self._frames[-1].body)
        names = (
            one.value.name
            for body in bodies
            for one in body
            if isinstance(one, ast.Output) and isinstance(one.value, ast.Path)
        )
        word = next((name for name in names if name in words), None)
        return "" if word is None else f"; {self._tag(word)} is a value and does not end a block"

    @property
    def _body(self) -> list[ast.Segment]:
        return self._frames[-1].body if self._frames else self._bottom

    @property
    def _is_in_choice(self) -> bool:
        return bool(self._frames) and self._frames[-1].opening.kind == "select"

    def _end_literal(self, edges: Edges) -> None:
        self._literals.trim_beside(edges)
        self._flush()

    def _flush(self) -> None:
        self._body.extend(self._literals.take())

    def _block_to_close(self, name: str, edges: Edges) -> _OpenBlock:
        """Return the innermost block, if an end tag closes it; else raise `Refused`."""
        tag = self._tag("/" + clip(name, 40))
        if not self._frames:
            reason = f"{tag} closes nothing: no block is open here"
            if name not in TAGS or not TAGS[name].block:
                reason = f"{tag} closes nothing: {clipped(name)} is not a block"
            raise Refused(edges.start, reason)
        frame = self._frames[-1]
        if frame.opening.kind == name:
            return frame
        expected = self._tag("/" + frame.opening.kind)
        raise Refused(
            edges.start,
            f"expected {expected}, not {tag}: " + "{tag} of line {line} is still open",
            frame.opening.edges.span,
        )

    def _check_allowed(self, kind: str, edges: Edges) -> None:
        """Raise `Refused` if a tag of this kind is not allowed here."""
        within = [frame.opening.kind for frame in self._frames]
        if self._is_in_choice and kind != "output":
            word = self._tag("/select")
            reason = f"{kind} is not allowed in a choice of " + "{tag} (line {line}), which holds only text and values"
            raise Refused(edges.start, f"{reason}; is {word} missing?", self._frames[-1].opening.edges.span)
        if "joint" in within and kind not in {"output", "comment", "select"}:
            reason = f"{kind} is not allowed in a joint, which holds only text, values and selects"
            raise Refused(edges.start, reason)
        if kind in TURNS:
            for frame in self._frames:
                if frame.opening.kind in TURNS:
                    inside = f"{self._tag('#' + kind)} is inside " + "{tag} of line {line}"
                    reason = f"{inside}, but turns cannot be nested; close that one"
                    raise Refused(edges.start, reason, frame.opening.edges.span)


def _make_if(frame: _OpenBlock, span: ast.Span) -> ast.If:
    """Return the segment of an `if`, with its conditions, bodies and `else`."""
    otherwise = frame.bodies.pop() if frame.last else ()
    return ast.If(tuple(zip(frame.conditions, frame.bodies, strict=True)), otherwise, span=span)
