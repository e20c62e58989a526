"""What the productions of the grammar file mean: tags and expressions, from their symbols."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Transformer

from selectrie.template.dialects import Dialect
from selectrie.template.expressions import Compare, Constant, Expression, ListOf, Logical, Not, Path, Span
from selectrie.template.nesting import Builder, Edges, Opening
from selectrie.template.places import Refused, clipped
from selectrie.template.segments import (
    Arguments,
    Block,
    Body,
    Comment,
    Each,
    GenEach,
    Include,
    Joint,
    Output,
    Role,
    Set,
    Slot,
)
from selectrie.template.tags import RESERVED, TAGS

_NAME = re.compile(r"[^\W\d]\w*")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")
_WORDS = {"TRUE": True, "FALSE": False, "NONE": None}
Named = list[tuple[Token, Expression]]


def start_of(token: Token) -> int:
    """Where a symbol begins."""
    return token.start_pos or 0


def stop_of(token: Token) -> int:
    """Where a symbol ends."""
    return start_of(token) + len(token)


def span_of(token: Token) -> Span:
    """The characters of a symbol."""
    return Span(start_of(token), stop_of(token))


def text_of(token: Token) -> str:
    """What a string says: without its quotes, escapes read."""
    if "\\" not in token:
        return str(token[1:-1])
    return _ESCAPE.sub(lambda match: _escaped(token, match), token[1:-1])


def _escaped(token: Token, match: re.Match[str]) -> str:
    place = start_of(token) + 1 + match.start()
    if match[1]:
        code = int(match[1], 16)
        if 0xD800 <= code < 0xE000:
            raise Refused(place, f"{match[0]} is half a character; write the character itself")
        return chr(code)
    if match[2] in _ESCAPES:
        return _ESCAPES[match[2]]
    if match[2] == "u":
        raise Refused(place, r"\u wants four hexadecimal digits, as in \u00e9")
    reason = rf"\{match[2]} is no escape; write \\{match[2]} for a backslash before it"
    raise Refused(place, reason + r" (escapes: \n \t \\ \' \" \uXXXX)")


def edges_of(opening: Token, closing: Token) -> Edges:
    """Where the tag between two delimiters stands, and what it trims."""
    return Edges(start_of(opening), stop_of(closing), "~" in opening, closing.startswith("~"))


class Reader(Transformer[Token, Any]):
    """One production each. Tags are handed to the `Builder` that the left-recursive rule `pieces` passes on."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    # Pieces: callables that add themselves to the builder.

    def start(self, children: list[Any]) -> Body:
        return children[0].finish()  # type: ignore[no-any-return]

    def nothing(self, _children: list[Any]) -> Builder:
        return Builder(self._dialect)

    def more(self, children: list[Any]) -> Any:
        builder, piece = children
        piece(builder)
        return builder

    def text(self, children: list[Token]) -> Any:
        return lambda builder: builder.text(str(children[0]), span_of(children[0]), plain=True)

    def escaped(self, children: list[Token]) -> Any:
        opens = self._dialect.opens
        token = children[0]
        text = "\\" * ((len(token) - len(opens)) // 2) + opens
        return lambda builder: builder.text(text, span_of(token), plain=False)

    def backslashes(self, children: list[Token]) -> Any:
        token = children[0]
        return lambda builder: builder.text("\\" * (len(token) // 2), span_of(token), plain=False)

    def raw(self, children: list[Token]) -> Any:
        return lambda builder: self._raw(builder, children[0])

    def _raw(self, builder: Builder, token: Token) -> None:
        opens, closes = self._dialect.opens, self._dialect.closes
        first, last = token.index(closes), token.rindex(opens)
        text = token[first + len(closes) : last]
        if token[first - 1] == "~":
            text = text.lstrip()
        if token[last + len(opens)] == "~":
            text = text.rstrip()
        edges = Edges(start_of(token), stop_of(token), token[len(opens)] == "~", token[-len(closes) - 1] == "~")
        builder.raw(text, edges)

    def comment(self, children: list[Token]) -> Any:
        token, n = children[0], len(self._dialect.opens)
        left, right = token[n] == "~", token[-n - 1] == "~"
        inner = token[n + left + 1 : len(token) - n - right]
        edges = Edges(start_of(token), stop_of(token), left, right)
        text = inner[2:-2] if inner.startswith("--") else inner
        return lambda builder: builder.leaf(Comment(str(text), edges.span), edges)

    def partial(self, children: list[Token]) -> Any:
        token, n = children[0], len(self._dialect.opens)
        edges = Edges(start_of(token), stop_of(token), token[n] == "~", token[-n - 1] == "~")
        path = token[n:-n].strip("~").strip().removeprefix(">").strip()
        return lambda builder: builder.leaf(Include(str(path), edges.span), edges)

    def output(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        return lambda builder: builder.leaf(Output(children[1], edges.span), edges)

    def slot(self, children: list[Any]) -> Any:
        opening, kind, name, named, closing = children
        edges = edges_of(opening, closing)
        name, arguments = self._named(kind, name, named)
        return lambda builder: builder.leaf(Slot(str(kind), name, arguments, None, edges.span), edges)

    def set_text(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        name = _name(children[2], text_of(children[2]), 1)
        return lambda builder: builder.leaf(Set(name, children[3], edges.span), edges)

    def set_name(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        name = _name(children[2], str(children[2]), 0)
        return lambda builder: builder.leaf(Set(name, children[4], edges.span), edges)

    def include(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        path = text_of(children[2])
        if not path:
            raise Refused(start_of(children[2]), "include wants the name of a file of the search path in quotes")
        return lambda builder: builder.leaf(Include(path, edges.span), edges)

    def named_block(self, children: list[Any]) -> Any:
        opening, kind, name, named, closing = children
        edges = edges_of(opening, closing)
        name, arguments = self._named(kind, name, named, needed=kind != "block")

        def make(bodies: list[Body], span: Span) -> Slot | GenEach | Block:
            if kind == "select":
                if bodies == [()]:
                    raise Refused(edges.start, "this select has no choices; write them between its tags")
                return Slot("select", name or "", arguments, tuple(bodies), span)
            if kind == "geneach":
                return GenEach(name or "", bodies[0], arguments, span)
            return Block(bodies[0], name, arguments, span)

        return lambda builder: builder.opened(Opening(str(kind), edges, make))

    def joint(self, children: list[Any]) -> Any:
        opening, kind, named, closing = children
        arguments = self._arguments(kind, named)
        return self._block(kind, edges_of(opening, closing), lambda body, span: Joint(body, arguments, span))

    def each(self, children: list[Any]) -> Any:
        opening, kind, items, named, closing = children
        arguments = self._arguments(kind, named)
        return self._block(
            kind, edges_of(opening, closing), lambda body, span: Each(items, body, "this", arguments, span)
        )

    def each_as(self, children: list[Any]) -> Any:
        opening, kind, items, _, variable, named, closing = children
        arguments = self._arguments(kind, named)
        name = str(variable)
        return self._block(
            kind, edges_of(opening, closing), lambda body, span: Each(items, body, name, arguments, span)
        )

    def condition(self, children: list[Any]) -> Any:
        opening, kind, condition, closing = children
        found = Opening(str(kind), edges_of(opening, closing), _never, condition)
        return lambda builder: builder.opened(found)

    def turn(self, children: list[Any]) -> Any:
        role = str(children[1])
        return self._block(children[1], edges_of(children[0], children[-1]), lambda body, span: Role(role, body, span))

    def role(self, children: list[Any]) -> Any:
        opening, kind, name, named, closing = children
        if name is None and len(named) == 1 and named[0][0] == "name" and isinstance(named[0][1], Constant):
            role = named[0][1].value
        elif name is not None and not named:
            role = text_of(name)
        else:
            role = None
        if not isinstance(role, str) or not role.strip():
            raise Refused(
                start_of(kind), "role wants the name of the role in quotes, as in role 'tool', and nothing else"
            )
        return self._block(kind, edges_of(opening, closing), lambda body, span: Role(role, body, span))

    def _block(self, kind: Token, edges: Edges, make: Any) -> Any:
        opening = Opening(str(kind), edges, lambda bodies, span: make(bodies[0], span))
        return lambda builder: builder.opened(opening)

    def middle(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        return lambda builder: builder.parted(str(children[1]), edges)

    def else_if(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        return lambda builder: builder.parted("elif", edges, children[2])

    def end(self, children: list[Any]) -> Any:
        edges = edges_of(children[0], children[-1])
        return lambda builder: builder.closed(str(children[1]), start_of(children[1]), edges)

    # Names and arguments.

    def no_name(self, _children: list[Any]) -> None:
        return None

    def given_name(self, children: list[Token]) -> Token:
        return children[0]

    def no_arguments(self, _children: list[Any]) -> Named:
        return []

    def argument(self, children: list[Any]) -> Named:
        found: Named = children[0]
        found.append((children[1], children[3]))
        return found

    def _named(self, kind: Token, name: Token | None, named: Named, *, needed: bool = True) -> tuple[Any, Arguments]:
        """The name of a slot or block, and its other arguments."""
        found = None if name is None else _slot_name(kind, name, text_of(name), 1)
        for token, value in named:
            if token == "name":
                if name is not None:
                    raise Refused(start_of(token), "the name is given twice")
                if not isinstance(value, Constant) or not isinstance(value.value, str):
                    raise Refused(value.span.start, "the name is a text in quotes")
                found = _slot_name(kind, token, value.value, value.span.start - start_of(token) + 1)
                name = token
        if found is None and needed:
            raise Refused(stop_of(kind), f"{kind} wants a name in quotes first, as in {kind} 'answer'")
        return found, self._arguments(kind, [pair for pair in named if pair[0] != "name"])

    def _arguments(self, kind: Token, named: Named) -> Arguments:
        """Checked against the table of tags."""
        known = TAGS[str(kind)].arguments
        seen: dict[str, Expression] = {}
        for token, value in named:
            name = str(token)
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise Refused(start_of(token), f"{kind} takes no argument {clipped(name)}; {takes}")
            if name in seen:
                raise Refused(start_of(token), f"{name}= is given twice")
            seen[name] = value
        return tuple(seen.items())

    # Expressions.

    def first_two(self, children: list[Any]) -> list[Expression]:
        return [children[0], children[2]]

    def one_more(self, children: list[Any]) -> list[Expression]:
        children[0].append(children[2])
        return children[0]  # type: ignore[no-any-return]

    def disjunction(self, children: list[Any]) -> Logical:
        return _logical("or", children[0])

    def conjunction(self, children: list[Any]) -> Logical:
        return _logical("and", children[0])

    def negated(self, children: list[Any]) -> Not:
        return Not(children[1], Span(start_of(children[0]), children[1].span.stop))

    def compared(self, children: list[Any]) -> Compare:
        return _compare(str(children[1]), children[0], children[2])

    def inside(self, children: list[Any]) -> Compare:
        return _compare("in", children[0], children[2])

    def outside(self, children: list[Any]) -> Compare:
        return _compare("not in", children[0], children[3])

    def string(self, children: list[Token]) -> Constant:
        return Constant(text_of(children[0]), span_of(children[0]))

    def number(self, children: list[Token]) -> Constant:
        token = children[0]
        if len(token) > 300:
            raise Refused(start_of(token), "a number of more than 300 characters")
        value = int(token) if token.lstrip("-").isdecimal() else float(token)
        if value in {float("inf"), -float("inf")}:
            raise Refused(start_of(token), f"{token} is beyond the largest number")
        return Constant(value, span_of(token))

    def word(self, children: list[Token]) -> Constant:
        return Constant(_WORDS[children[0].type], span_of(children[0]))

    def group(self, children: list[Any]) -> Expression:
        return children[1]  # type: ignore[no-any-return]

    def no_items(self, children: list[Token]) -> ListOf:
        return ListOf((), Span(start_of(children[0]), stop_of(children[-1])))

    def list_of(self, children: list[Any]) -> ListOf:
        return ListOf(tuple(children[1]), Span(start_of(children[0]), stop_of(children[-1])))

    def first_item(self, children: list[Any]) -> list[Expression]:
        return [children[0]]

    def next_item(self, children: list[Any]) -> list[Expression]:
        children[0].append(children[-1])
        return children[0]  # type: ignore[no-any-return]

    def helper(self, children: list[Any]) -> Expression:
        span = Span(start_of(children[0]), stop_of(children[-1]))
        return _helped(children[1], self._dialect.helpers[str(children[1])], children[2], span)

    def first_step(self, children: list[Token]) -> tuple[Token, list[Any], int]:
        return children[0], [], stop_of(children[0])

    def key(self, children: list[Any]) -> tuple[Token, list[Any], int]:
        children[0][1].append(str(children[2]))
        return children[0][0], children[0][1], stop_of(children[2])

    def place(self, children: list[Any]) -> tuple[Token, list[Any], int]:
        step = children[2]
        if isinstance(step, Constant):
            if isinstance(step.value, bool) or not isinstance(step.value, (int, str)):
                raise Refused(step.span.start, "a place is a whole number or a key in quotes")
            step = step.value
        children[0][1].append(step)
        return children[0][0], children[0][1], stop_of(children[3])

    def whole_path(self, children: list[Any]) -> Path:
        first, steps, stop = children[0]
        return Path(str(first), tuple(steps), Span(start_of(first), stop))


def _never(_bodies: list[Body], _span: Span) -> Any:
    raise AssertionError("a block of conditions makes its own segment")


def _logical(operator: str, operands: list[Expression]) -> Logical:
    return Logical(operator, tuple(operands), Span(operands[0].span.start, operands[-1].span.stop))


def _compare(operator: str, left: Expression, right: Expression) -> Compare:
    return Compare(operator, left, right, Span(left.span.start, right.span.stop))


def _helped(word: Token, operator: str, operands: list[Expression], span: Span) -> Expression:
    """`(equal a b)` and its like."""
    if operator in {"and", "or"} and len(operands) > 1:
        return Logical(operator, tuple(operands), span)
    if len(operands) != 2:
        raise Refused(start_of(word), f"{word} compares two values, not {len(operands)}")
    left, right = operands if operator != "in" else operands[::-1]
    return Compare(operator, left, right, span)


def _slot_name(kind: Token, token: Token, name: str, offset: int) -> str:
    """A name, or inside a geneach `this` or `this.field`."""
    if kind in {"select", "gen", "beam"}:
        first, dot, field = name.partition(".")
        if first == "this" and (not dot or _NAME.fullmatch(field)):
            return name
    return _name(token, name, offset)


def _name(token: Token, name: str, offset: int) -> str:
    """What a value may be called."""
    place = start_of(token) + offset
    if name in RESERVED:
        raise Refused(place, f"{name} is a word of the language; choose another name")
    if not _NAME.fullmatch(name):
        raise Refused(place, f"{clipped(name)} is no name; a name is a letter or _ and then letters, digits and _")
    return name
