"""Finds a template's names, and the errors that do not depend on values.

One pass goes through the template in page order, with included files in their place. It
keeps the names declared so far; each branch of an `if` begins with the names declared
before it. Further checks find text outside of every chat turn, and tags of another
language.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from selectrie.errors import TemplateError, clip
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import error_at, expressions_of, paths_in, visit_method, where
from selectrie.template.syntax.tags import DIALECTS, HANDLEBARS, RESERVED, SELECTRIE, TAGS, TemplateDialect
from selectrie.template.values.arguments import check_constants, check_form, constant_name
from selectrie.template.values.sources import Sources
from selectrie.template.values.values import describe

LOOP = ("@index", "@first", "@last")
"""Variables of a loop besides its item; `each` over a mapping also has "@key"."""
_ITEM = "\0"
"""Prefix of the keys of `this` and its fields, once for each `geneach` around."""
_ANY_FIELD = "this."
_OUTSIDE = "this is outside every role; on a page with roles, only white space is allowed there"
_OTHER_DIALECT = {
    "selectrie": "use dialect='handlebars': --handlebars, or a file name that ends in .hbs",
    "handlebars": "use dialect='selectrie': no --handlebars, and no file name that ends in .hbs or .handlebars",
}
_MARKUP = {
    "Jinja": re.compile(r"\{\{[^{}]{1,200}\}\}|\{%[^{}]{1,200}%\}"),
    "an f-string": re.compile(r"(?<![\w{$)\\])\{[a-z_]\w{0,60}\}(?!\})"),
    "LMQL": re.compile(r"\[[A-Z][A-Z_]{0,60}\](?=[\"']?\s{0,200}where\b)"),
}
"""Patterns of other languages' markup, which is text in a template."""
_BLOCKS = "|".join(kind for kind, tag in TAGS.items() if tag.block)


@dataclass(frozen=True, slots=True)
class Findings:
    """Facts about a template that do not depend on values.

    Attributes:
        slots: Names whose values the model decides, in page order.
        needs: Names that are used before anything declares them, in the order of their
            use.
        read: Names whose given value may be read during rendering.
        grammars: Names of the grammars that the template uses.
    """

    slots: tuple[str, ...]
    needs: tuple[str, ...]
    read: frozenset[str]
    grammars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Declaration:
    """The tag that declares a name.

    Attributes:
        what: The kind of the tag, for messages.
        document: The document that contains the tag.
        span: The span of the tag.
        certain: Whether the name is declared on every path through the template up to
            the current segment.
    """

    what: str
    document: ast.Document
    span: ast.Span
    certain: bool = True

    @property
    def position(self) -> str:
        """Return the position of the tag as file:line:column."""
        return where(self.document, self.span)


class _Names:
    """The names declared so far; those of a branch or loop can be removed at its end.

    Removing them takes time in proportion to their number.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Declaration] = {}
        self._changes: list[tuple[str, _Declaration | None]] = []

    def get(self, name: str) -> _Declaration | None:
        """Return the declaration of a name, or None."""
        return self._held.get(name)

    def put(self, name: str, named: _Declaration) -> None:
        """Record the declaration of a name."""
        self._changes.append((name, self._held.get(name)))
        self._held[name] = named

    def mark(self) -> int:
        """Return a mark of the present state, for `back`."""
        return len(self._changes)

    def back(self, mark: int) -> dict[str, _Declaration]:
        """Remove the names declared since a mark, and return them."""
        since: dict[str, _Declaration] = {}
        while len(self._changes) > mark:
            name, before = self._changes.pop()
            since.setdefault(name, self._held[name])
            if before is None:
                del self._held[name]
            else:
                self._held[name] = before
        return dict(reversed(since.items()))


@dataclass(frozen=True, slots=True)
class _Context:
    """The context of a segment.

    Attributes:
        document: The document.
        variables: Variables of the loops around it.
        of: The kind of the innermost loop: "each", "geneach" or "" for none.
        level: Number of `geneach` loops around the segment.
        joint: Names of the slots of the joint block around the segment.
        role: Whether the segment is inside a chat turn.
        include: The document and span of the innermost include tag, or None.
    """

    document: ast.Document
    variables: frozenset[str] = frozenset()
    of: str = ""
    level: int = 0
    joint: frozenset[str] = frozenset()
    role: bool = False
    include: tuple[ast.Document, ast.Span] | None = None


def examine(document: ast.Document, documents: Mapping[str, ast.Document], sources: Sources) -> Findings:
    """Return facts about a template; raise `TemplateError` for its first error."""
    run = _Examination(documents, sources)
    run.body(document.body, _Context(document))
    check_outside(document, documents)
    for name, (used_in, span) in run.needs.items():
        if name in run.decided and used_in.dialect != "handlebars":  # in handlebars a given name may be decided again
            later = run.decided[name]
            reason = f"{describe(name)} is used here, but only decided later, by {later.what} at {later.position}"
            raise error_at(used_in, span, f"{reason}; move that before this, or rename it")
    return Findings(tuple(run.slots), tuple(run.needs), frozenset(run.read), tuple(sorted(run.grammars)))


@dataclass(slots=True)
class _Examination:
    """One pass through a template that collects names and finds errors."""

    documents: Mapping[str, ast.Document]
    sources: Sources
    known: _Names = field(default_factory=_Names)
    decided: dict[str, _Declaration] = field(default_factory=dict)
    needs: dict[str, tuple[ast.Document, ast.Span]] = field(default_factory=dict)
    slots: dict[str, None] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    grammars: set[str] = field(default_factory=set)

    def body(self, body: ast.Body, around: _Context) -> None:
        """Examine the segments of a body in order."""
        for segment in body:
            check_form(segment, around.document)
            check_constants(segment, around.document, self.sources)
            for name, expression in expressions_of(segment):
                if name == "grammar" and isinstance(expression, ast.Constant) and isinstance(expression.value, str):
                    self.grammars.add(expression.value)
                if not isinstance(segment, ast.If):  # its conditions are checked one after the other
                    self.uses(expression, around)
            visit = visit_method(self, segment)
            if visit is not None:
                visit(segment, around)

    # Uses of names.

    def uses(self, expression: ast.Expression, around: _Context) -> None:
        """Record the use of every name in an expression."""
        for path in paths_in(expression):
            self.use(path, around)

    def use(self, path: ast.Path, around: _Context) -> None:
        """Record the use of a name; raise an error if it cannot have a value."""
        name = path.name
        if name in around.joint:
            reason = f"{describe(name)} is decided in this joint, whose selects are decided together"
            raise error_at(around.document, path.span, f"{reason}; use it after the block")
        if name == "this" or name.startswith("@"):
            self._loop_name(path, around)
        elif name not in around.variables:
            known = self.known.get(name)
            if known is None:
                self.needs.setdefault(name, (around.document, path.span))
            if known is None or not known.certain:
                self.read.add(name)

    def _loop_name(self, path: ast.Path, around: _Context) -> None:
        """Check the use of `this` or of a name that begins with "@"."""
        name = path.name
        if name in around.variables:
            return
        if name == "this" and around.of == "geneach":
            reference = f"this.{path.steps[0]}" if path.steps else _ANY_FIELD
            if self.known.get(_key("this", around)) or self.known.get(_key(reference, around)):
                return
            reference = "this" if not path.steps else reference
            raise error_at(around.document, path.span, f"{reference} is not decided before this point of the geneach")
        if not around.of:
            raise error_at(around.document, path.span, f"{name} is known only in the body of a loop")
        there = ", ".join(sorted(around.variables))
        raise error_at(around.document, path.span, f"{name} is unknown in this loop; it has {there}")

    # Declarations of names.

    def declare(self, name: str, what: str, around: _Context, span: ast.Span) -> None:
        """Record that a slot or another segment declares a name."""
        self._check_name(name, what, around, span)
        key = _key(name, around)
        known = self.known.get(key)
        if known is not None:
            raise error_at(*_second_position(around, span, known), _duplicate_message(name, what, around, span, known))
        named = _Declaration(what, around.document, span)
        self.known.put(key, named)
        if key == name:
            self.decided.setdefault(name, named)
        elif name != "this":
            self.known.put(_key(_ANY_FIELD, around), named)

    def _check_name(self, name: str, what: str, around: _Context, span: ast.Span) -> None:
        """Raise an error if a segment may not declare this name here."""
        base = name.partition(".")[0]
        if base in around.variables:
            reason = "give it another name" if base != "this" else "only slots directly in a geneach are its items"
            raise error_at(
                around.document, span, f"{what} is called {describe(name)}, like the item of the loop; {reason}"
            )
        if base == "this":
            if around.of != "geneach":
                reason = "which names the item of a geneach, but it is not directly in one"
                raise error_at(around.document, span, f"{what} is called {describe(name)}, {reason}")
            if self.known.get(_key(_ANY_FIELD if name == "this" else "this", around)):
                reason = (
                    f"{what} is called {describe(name)}; "
                    "the item of a geneach is `this`, or has fields `this.name`, not both"
                )
                raise error_at(around.document, span, reason)
        elif base in RESERVED or base != name or base.startswith("@"):
            raise error_at(around.document, span, f"{what} cannot be called {describe(name)}; choose another name")

    # Segments.

    def visit_set(self, segment: ast.Set, around: _Context) -> None:
        """Record that a `set` gives a value to a name."""
        self._check_name(segment.name, "the set", around, segment.span)
        known = self.known.get(segment.name)
        if known is not None and known.what != "a set":
            reason = (
                f"{describe(segment.name)} is given by {known.what} at {known.position}, and a set cannot change it"
            )
            raise error_at(around.document, segment.span, f"{reason}; choose another name")
        self.known.put(segment.name, _Declaration("a set", around.document, segment.span))

    def visit_slot(self, segment: ast.Slot, around: _Context) -> None:
        """Examine the choices of a slot, and record its names."""
        for choice in segment.choices or ():
            self.body(choice, around)
        # A slot of a joint declares its name here, too, so that duplicates are found.
        self.declare(segment.name, f"a {segment.kind}", around, segment.span)
        if segment.name.partition(".")[0] != "this":
            self.slots[segment.name] = None
        logprobs = dict(segment.arguments).get("logprobs")
        if logprobs is not None:
            name = constant_name(logprobs, around.document)
            self.declare(name, "logprobs=", around, logprobs.span)

    def visit_block(self, segment: ast.Block, around: _Context) -> None:
        self.body(segment.body, around)
        if segment.name is not None:
            self.declare(segment.name, "a block", around, segment.span)

    def visit_role(self, segment: ast.Role, around: _Context) -> None:
        if around.role:
            raise error_at(around.document, segment.span, "a turn cannot be inside another one; close that first")
        self.body(segment.body, replace(around, role=True))

    def visit_include(self, segment: ast.Include, around: _Context) -> None:
        inner = self.documents[segment.path]
        self.body(inner.body, replace(around, document=inner, include=(around.document, segment.span)))

    def visit_joint(self, segment: ast.Joint, around: _Context) -> None:
        names = frozenset(one.name for one in segment.body if isinstance(one, ast.Slot))
        self.body(segment.body, replace(around, joint=names))

    def visit_if(self, segment: ast.If, around: _Context) -> None:
        """Examine each branch with the names declared before it."""
        mark = self.known.mark()
        ends: list[dict[str, _Declaration]] = []
        for condition, body in segment.branches:
            self.uses(condition, around)
            self.body(body, around)
            ends.append(self.known.back(mark))
        self.body(segment.otherwise, around)
        ends.append(self.known.back(mark))
        for name in dict.fromkeys(name for end in ends for name in end):
            ways = [end.get(name) or self.known.get(name) for end in ends]
            first = next(way for way in ways if way is not None)
            certain = all(way is not None and way.certain for way in ways)
            self.known.put(name, replace(first, certain=certain))

    def visit_each(self, segment: ast.Each, around: _Context) -> None:
        """Examine a loop with the variables that it defines."""
        variable = segment.variable
        if isinstance(segment.items, ast.Compare | ast.Logical | ast.Not):
            raise error_at(around.document, segment.items.span, _no_items(segment, around.document))
        if variable != "this":
            known = self.known.get(variable)
            if known is not None:
                reason = f"{describe(variable)} is given by {known.what} at {known.position}; rename the item"
                raise error_at(around.document, segment.span, reason)
            self._check_name(variable, "the item of this loop", around, segment.span)
        variables = frozenset({variable, "@key", *LOOP})
        self._loop(segment.body, replace(around, variables=around.variables | variables, of="each"))

    def visit_geneach(self, segment: ast.GenEach, around: _Context) -> None:
        """Examine a loop that makes a list, and record the list's name."""
        self._check_name(segment.name, "a geneach", around, segment.span)
        turn = set(LOOP) if "num" in dict(segment.arguments) else set(LOOP) - {"@last"}
        variables = around.variables - {"this", "@key", "@last"} | turn
        self.slots[segment.name] = None
        # Its name has no value yet while its items are made.
        if not self._loop(segment.body, replace(around, variables=variables, of="geneach", level=around.level + 1)):
            reason = "no slot of the geneach is called this (or this.field), so it has no items; give one this name"
            raise error_at(around.document, segment.span, reason)
        self.declare(segment.name, "a geneach", around, segment.span)

    def _loop(self, body: ast.Body, around: _Context) -> bool:
        """Examine the body of a loop, and return whether it makes items for the loop.

        After the loop, the values of its slots are lists.
        """
        mark = self.known.mark()
        self.body(body, around)
        own = {_key("this", around), _key(_ANY_FIELD, around)} if around.of == "geneach" else set()
        after = self.known.back(mark)
        for name, named in after.items():
            if not name.startswith(_ITEM) and self.known.get(name) is None:
                self.known.put(name, replace(named, certain=named.what != "a set"))
        return not own.isdisjoint(after)


def _key(name: str, around: _Context) -> str:
    """Return the key under which `_Names` keeps a name of the current loop."""
    return _ITEM * around.level + name if name.partition(".")[0] == "this" else name


def _no_items(segment: ast.Each, document: ast.Document) -> str:
    """Return the message for an `each` over a comparison.

    Its author may have meant `x in xs`, as loops are written in other languages.
    """
    items = segment.items
    if not isinstance(items, ast.Compare) or items.operator != "in" or segment.variable != "this":
        return "each loops over a list or a mapping, not over true or false"
    names = [one.name for one in (items.left, items.right) if isinstance(one, ast.Path) and not one.steps]
    item, whole = names if len(names) == 2 else ("item", "items")
    tag = DIALECTS[document.dialect].tag(f"#each {clip(whole, 40)} as {clip(item, 40)}")
    return f"each loops over a list or a mapping; write {tag}"


def _second_position(around: _Context, span: ast.Span, known: _Declaration) -> tuple[ast.Document, ast.Span]:
    """Return the position of the second declaration of a name.

    If a file is included twice, both declarations have one position. That of the
    include tag is then returned.
    """
    if known.document is around.document and known.span == span and around.include is not None:
        return around.include
    return around.document, span


def _duplicate_message(name: str, what: str, around: _Context, span: ast.Span, known: _Declaration) -> str:
    """Return the message for a name that is declared twice.

    `known` is the first declaration.
    """
    if known.document is around.document and known.span == span:
        return (
            f"{describe(name)} is named at {known.position}, and that file is included twice; "
            "include it in a loop, or once"
        )
    return f"{what} is called {describe(name)}, like {known.what} at {known.position}; give it another name"


def check_outside(document: ast.Document, documents: Mapping[str, ast.Document]) -> None:
    """Raise `TemplateError` if every page has turns, and text or slots outside them.

    Such a template cannot be rendered, whatever the values are.
    """
    segments = list(_certain_segments(document, documents))
    if any(isinstance(segment, ast.Role) for segment, _ in segments):
        for segment, where in segments:
            if not isinstance(segment, ast.Role):
                raise outside_error(where, segment.span, is_literal=isinstance(segment, ast.Literal))


def outside_error(document: ast.Document, span: ast.Span, *, is_literal: bool) -> TemplateError:
    """Return the error for a segment outside of every chat turn.

    For a literal, its position is the first character that is not white space.
    """
    written = document.source[span.start : span.stop]
    start = span.stop - len(written.lstrip()) if is_literal else span.start
    return error_at(document, ast.Span(min(start, max(span.start, span.stop - 1)), span.stop), _OUTSIDE)


def _certain_segments(
    document: ast.Document, documents: Mapping[str, ast.Document]
) -> Iterator[tuple[ast.Segment, ast.Document]]:
    """Yield the turns, slots and literals with text that every page has, in page order.

    Segments that may be hidden are left out.
    """
    pending: list[tuple[ast.Segment, ast.Document]] = [(segment, document) for segment in reversed(document.body)]
    while pending:
        segment, where = pending.pop()
        if isinstance(segment, ast.Block) and "hidden" not in dict(segment.arguments):
            pending.extend((inner, where) for inner in reversed(segment.body))
        elif isinstance(segment, ast.Include):
            included = documents[segment.path]
            pending.extend((inner, included) for inner in reversed(included.body))
        elif isinstance(segment, ast.Slot):
            if "hidden" not in dict(segment.arguments):
                yield segment, where
        elif isinstance(segment, ast.Role | ast.Joint) or (isinstance(segment, ast.Literal) and segment.text.strip()):
            yield segment, where


def refuse_foreign(document: ast.Document, names: Container[str] | None = None) -> None:
    """Raise `TemplateError` if a template only has tags of the other dialect.

    A slot or a block of that dialect counts as a tag. The output of a value counts only
    if its name is in `names`.
    """
    own, other = (SELECTRIE, HANDLEBARS) if document.dialect == "selectrie" else (HANDLEBARS, SELECTRIE)
    if own.opens in document.source:
        return
    for match in _find_tags(document.source, other):
        name = match["name"]
        if name is None or (names is not None and name in names):
            markup, tag = clip(match[0], 40), own.tag(" ")
            reason = f"{markup} is text here: tags are written {tag}, and the template has none"
            raise error_at(document, ast.Span(*match.span()), f"{reason}; {_OTHER_DIALECT[document.dialect]}")


def foreign_notes(document: ast.Document) -> tuple[str, ...]:
    """Return a sentence on each other language whose markup seems to be in a template.

    It is text on the page, and may be meant as such.
    """
    if document.dialect != "selectrie":
        return ()
    found = {name: pattern.search(document.source) for name, pattern in _MARKUP.items()}
    return tuple(
        f"{clip(match[0], 40)!r} in {document.name} is text on the page, and looks like {name}; tags here are <<…>>"
        for name, match in found.items()
        if match
    )


def _find_tags(source: str, dialect: TemplateDialect) -> Iterator[re.Match[str]]:
    """Yield matches of text that looks like a tag of a dialect.

    That is a slot, the beginning of a block, or the output of a value (group `name`).
    """
    opens, closes = re.escape(dialect.opens), re.escape(dialect.closes)
    inside = f"[^{re.escape(dialect.opens[0] + dialect.closes[0])}]{{0,400}}"
    slot, block = rf"(?:select|gen|beam)[ \t]+['\"]{inside}", rf"#(?:{_BLOCKS})\b{inside}"
    value = r"(?P<name>[^\W\d]\w{0,100})(?:[ \t.\[][\w.\[\] \t]{0,400})?"
    return re.finditer(rf"{opens}~?[ \t]*(?:{slot}|{block}|{value})~?{closes}", source)
