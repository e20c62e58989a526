"""Templates made by hypothesis: as segments (`documents`), and as people write them (`sources`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from hypothesis import strategies as st

from selectrie.template.syntax.ast import (
    Block,
    Body,
    Comment,
    Compare,
    Constant,
    Document,
    Each,
    Expression,
    GenEach,
    If,
    Include,
    Joint,
    ListOf,
    Literal,
    Logical,
    Not,
    Output,
    Path,
    Role,
    Segment,
    Set,
    Slot,
)
from selectrie.template.syntax.tags import DIALECTS, RESERVED, TAGS

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
NAMES = ("a", "name", "item", "_x", "größe", "x1", "equal", "selects", "android", "inner", "data")
TEXTS = (
    "",
    " ",
    "\n",
    "\r\n",
    "a",
    "<",
    "<<",
    "<<<",
    ">>",
    "}}",
    "{",
    "{{",
    "~",
    "\\",
    "\\\\",
    "\\<<",
    "\\{{",
    "'",
    '"',
    "\t",
    "é😀",
    "--",
)


@cache
def names() -> st.SearchStrategy[str]:
    """What a value may be called."""
    free = st.from_regex(r"[^\W\d]\w{0,5}", fullmatch=True).filter(
        lambda name: name not in RESERVED and name.isidentifier()
    )
    return st.sampled_from(NAMES) | free


@cache
def texts(*, least: int = 0) -> st.SearchStrategy[str]:
    """Any text, most of delimiters, quotes and backslashes."""
    odd = st.lists(st.sampled_from(TEXTS), min_size=least, max_size=6).map("".join)
    return (odd | st.text(min_size=least, max_size=8)).filter(lambda text: len(text) >= least)


@cache
def constants() -> st.SearchStrategy[Constant]:
    """Values as written."""
    numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    return st.builds(Constant, texts() | numbers | st.booleans() | st.none())


@cache
def expressions(depth: int = 2) -> st.SearchStrategy[Expression]:
    """Expressions nested to a depth."""
    paths = st.builds(Path, names() | st.sampled_from(("this", "@index", "@first", "@last", "@key")))
    if not depth:
        return constants() | paths
    inner = st.deferred(lambda: expressions(depth - 1))
    steps = texts() | st.sampled_from((*NAMES, "user", "in")) | st.integers(-3, 3) | inner.filter(_is_no_constant)
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        constants(),
        paths,
        st.builds(Path, names(), st.lists(steps, max_size=3).map(tuple)),
        st.builds(ListOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
        st.builds(Logical, st.sampled_from(("and", "or")), several),
        st.builds(Compare, st.sampled_from(OPERATORS), inner, inner),
    )


def _is_no_constant(expression: Expression) -> bool:
    return not isinstance(expression, Constant)


@cache
def arguments(kind: str) -> st.SearchStrategy[tuple[tuple[str, Expression], ...]]:
    """Some of what a tag may be told."""
    known = sorted(TAGS[kind].arguments)
    if not known:
        return st.just(())
    return st.lists(st.tuples(st.sampled_from(known), expressions(1)), max_size=3, unique_by=lambda pair: pair[0]).map(
        tuple
    )


@cache
def literals() -> st.SearchStrategy[Literal]:
    return st.builds(Literal, texts(least=1))


@cache
def comments() -> st.SearchStrategy[Comment]:
    """Comments that can be written in both dialects."""
    ends = ("-->>", "--~>>", "--}}", "--~}}")
    return st.builds(Comment, texts().filter(lambda text: not any(end in text for end in ends)))


@cache
def outputs() -> st.SearchStrategy[Output]:
    """Names and texts; never what names no value."""
    values = st.builds(Path, names(), st.lists(st.sampled_from(("a", 0, "b c")), max_size=2).map(tuple))
    return st.builds(Output, values | st.builds(Constant, texts(least=1)) | st.builds(Not, values))


@cache
def slots() -> st.SearchStrategy[Slot]:
    called = names() | st.sampled_from(("this", "this.name"))
    kinds = st.sampled_from(("select", "gen", "beam"))
    return kinds.flatmap(lambda kind: st.builds(Slot, st.just(kind), called, arguments(kind)))


@cache
def choosing() -> st.SearchStrategy[Slot]:
    """Selects, half of them with their choices."""
    choices = st.lists(bodies(literals() | outputs(), 2), min_size=1, max_size=3).map(tuple)
    inline = st.builds(Slot, st.just("select"), names(), arguments("select"))
    block = st.builds(Slot, st.just("select"), names(), arguments("select"), choices.filter(lambda one: one != ((),)))
    return inline | block


@cache
def joints() -> st.SearchStrategy[Joint]:
    parts = bodies(literals() | outputs() | choosing() | comments(), 4)
    return st.builds(Joint, parts.filter(lambda body: any(isinstance(one, Slot) for one in body)), arguments("joint"))


def bodies(segments: st.SearchStrategy[Segment], most: int) -> st.SearchStrategy[Body]:
    """Rows of segments, no two literals beside each other."""
    return st.lists(segments, max_size=most).map(_merged)


def _merged(segments: list[Segment]) -> Body:
    body: list[Segment] = []
    for segment in segments:
        if body and isinstance(segment, Literal) and isinstance(body[-1], Literal):
            body[-1] = Literal(body[-1].text + segment.text)
        else:
            body.append(segment)
    return tuple(body)


@cache
def segments(depth: int = 2, *, roles: bool = True) -> st.SearchStrategy[Segment]:
    """Segments nested to a depth. roles: may turns stand there?"""
    leaves: list[st.SearchStrategy[Segment]] = [
        literals(),
        comments(),
        outputs(),
        slots(),
        choosing(),
        joints(),
        st.builds(Set, names(), expressions()),
        st.builds(Include, texts(least=1)),
    ]
    if not depth:
        return st.one_of(leaves)
    inner = bodies(st.deferred(lambda: segments(depth - 1, roles=roles)), 3)
    branches = st.lists(st.tuples(expressions(), inner), min_size=1, max_size=3).map(tuple)
    blocks: list[st.SearchStrategy[Segment]] = [
        st.builds(If, branches, inner),
        st.builds(Each, expressions(1), inner, names() | st.just("this"), arguments("each")),
        st.builds(GenEach, names(), inner, arguments("geneach")),
        st.builds(Block, inner, st.none() | names(), arguments("block")),
    ]
    if roles:
        spoken = bodies(st.deferred(lambda: segments(depth - 1, roles=False)), 3)
        called = st.sampled_from(("system", "user", "assistant", "tool", "it's"))
        values = st.builds(Path, names() | st.just("this"), st.lists(names() | st.just(0), max_size=2).map(tuple))
        blocks.append(st.builds(Role, called | values, spoken))
    return st.one_of(leaves + blocks)


@cache
def documents(dialect: str = "selectrie", *, depth: int = 2) -> st.SearchStrategy[Document]:
    """Whole templates as segments, without a source. Forms that only the static checks refuse are among them."""
    return bodies(segments(depth), 4).map(lambda body: Document("made", "", body, dialect))


@cache
def sources(dialect: str = "selectrie", *, depth: int = 2) -> st.SearchStrategy[str]:
    """Templates as people write them: blanks and `~` in tags, comments, raw blocks, escapes, `unless`. All of them parse."""
    opens, closes = DIALECTS[dialect].opens, DIALECTS[dialect].closes
    return st.deferred(lambda: _source(opens, closes, depth))


@cache
def _source(opens: str, closes: str, depth: int) -> st.SearchStrategy[str]:
    blank = st.sampled_from(("", "", " ", "\n"))
    trim = st.sampled_from(("", "", "~"))
    edge = st.tuples(trim, blank, blank, trim)

    def tag(inner: str, sign: str = "") -> st.SearchStrategy[str]:
        return edge.map(lambda e: f"{opens}{e[0]}{e[1]}{sign}{inner}{e[2]}{e[3]}{closes}")

    def tight(inner: str) -> st.SearchStrategy[str]:
        return edge.map(lambda e: f"{opens}{e[0]}{inner}{e[3]}{closes}")

    plain = (
        st.text(alphabet="ab \n\té<>{}\\~'", max_size=6)
        .filter(lambda text: opens not in text + " ")
        .map(_without_escape)
    )
    leaves = [
        plain.map(lambda text: text + " "),
        plain.map(lambda text: " " + text + "."),
        st.just("\\" + opens),
        st.sampled_from(("name", "data.key[0]", "a == 'x' and not b", "items[i]['k']", "'text'")).flatmap(tag),
        st.sampled_from(("gen 'x' max_tokens=3", "select 'y' options=[1, \"b\"]", "set z=a", "set 'z' 3")).flatmap(tag),
        st.sampled_from(("! note ", f"!-- {closes} <a> --", "!")).flatmap(tight),
        st.tuples(tight("#raw"), plain, st.just(opens + " "), tight("/raw")).map("".join),
        st.tuples(tag("select 'c'", "#"), plain.map("x".__add__), tag("or"), plain, tag("select", "/")).map("".join),
    ]
    if not depth:
        return st.one_of(leaves)
    inner = st.deferred(lambda: st.lists(_source(opens, closes, depth - 1), max_size=3).map("".join))
    heads: list[tuple[str, str]] = [
        ("if a", "if"),
        ("unless a.b in [1, 2]", "unless"),
        ("each items as item join=', '", "each"),
        ("each items", "each"),
        ("geneach 'list' num=2", "geneach"),
        ("block hidden=true", "block"),
    ]
    blocks = [st.tuples(tag(head, "#"), inner, tag(end, "/")).map("".join) for head, end in heads]
    blocks.append(
        st.tuples(tag("if a", "#"), inner, tag("elif b"), inner, tag("else"), inner, tag("if", "/")).map("".join)
    )
    return st.lists(st.one_of(leaves + blocks), max_size=4).map("".join)


def _without_escape(text: str) -> str:
    """Text that neither ends in a backslash nor in half a delimiter."""
    return text.rstrip("\\<{")


def mutations(sources: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Sources with a few places cut, doubled, or overwritten by signs of the language."""
    signs = (
        "<<",
        ">>",
        "{{",
        "}}",
        "#",
        "/",
        "~",
        "'",
        '"',
        "\\",
        "(",
        ")",
        "[",
        "]",
        "=",
        "==",
        ".",
        ",",
        " ",
        "or",
        "if",
        "not",
        "3",
        "!",
        "--",
        "é",
    )
    edit = st.tuples(st.floats(0, 1), st.integers(0, 4), st.sampled_from(("", *signs)))

    def edited(source: str, edits: list[tuple[float, int, str]]) -> str:
        for where, length, sign in edits:
            place = int(where * len(source))
            source = source[:place] + sign + source[place + length :]
        return source

    return st.builds(edited, sources, st.lists(edit, min_size=1, max_size=4))


Walk = Callable[[Segment], None]


def walk(body: Body, visit: Walk) -> None:
    """Every segment of a body, those around before those inside."""
    for segment in body:
        visit(segment)
        for inner in inner_bodies(segment):
            walk(inner, visit)


def inner_bodies(segment: Segment) -> tuple[Body, ...]:
    """The bodies of a segment, in their order."""
    if isinstance(segment, Slot):
        return segment.choices or ()
    if isinstance(segment, If):
        return (*(body for _, body in segment.branches), segment.otherwise)
    return (segment.body,) if isinstance(segment, Each | GenEach | Block | Joint | Role) else ()
