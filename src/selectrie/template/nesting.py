"""From a row of texts and tags to segments: white space trimmed, blocks closed, and what may stand in what.

One `Builder` reads one source, piece by piece. It holds the open blocks on a stack, so depth costs no recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from selectrie.template.dialects import Dialect
from selectrie.template.expressions import Expression, Not, Span
from selectrie.template.lexing import MOST_DEPTH
from selectrie.template.places import Refused
from selectrie.template.segments import Body, Comment, If, Literal, Output, Segment, Slot


@dataclass(frozen=True, slots=True)
class Edges:
    """Where a tag stands, and which of its sides trim the text beside it."""

    start: int
    stop: int
    trims_left: bool = False
    trims_right: bool = False

    @property
    def span(self) -> Span:
        """Its characters."""
        return Span(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Opening:
    """A tag that begins a block. make: the segment, from the bodies and the span of the whole block."""

    kind: str
    edges: Edges
    make: Callable[[list[Body], Span], Segment]
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    """Text of the literal under way. plain: may a tag beside it trim it?"""

    text: str
    span: Span
    plain: bool


@dataclass(slots=True)
class _Frame:
    """An open block: its bodies so far, and for `if` its conditions. otherwise: was there an `else`?"""

    opening: Opening
    body: list[Segment] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    otherwise: bool = False


_TURNS = frozenset({"system", "user", "assistant", "role"})
_ALONE = {
    "select": "a choice is text and <<values>> alone",
    "joint": "a joint has text, <<values>> and selects alone",
}


class Builder:
    """The segments of one source, under way."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._bottom: list[Segment] = []
        self._frames: list[_Frame] = []
        self._texts: list[_Text] = []
        self._trimming = False

    def text(self, text: str, span: Span, *, plain: bool) -> None:
        """Text between tags. plain: as it stands in the source."""
        if plain and self._trimming:
            kept = text.lstrip()
            span, text = Span(span.stop - len(kept), span.stop), kept
        if text or not plain:
            self._trimming = False
            self._texts.append(_Text(text, span, plain))

    def raw(self, text: str, edges: Edges) -> None:
        """The text of a raw block, which nothing outside of it trims."""
        self._trim(edges)
        self._texts.append(_Text(text, edges.span, plain=False))

    def leaf(self, segment: Segment, edges: Edges) -> None:
        """A segment without a body."""
        if isinstance(segment, Comment) and self._in_choices:
            self._trim(edges)
            return
        self._check(self._kind_of(segment), edges)
        self._flush(edges)
        self._body.append(segment)

    def opened(self, opening: Opening) -> None:
        """The beginning of a block."""
        self._check(opening.kind, opening.edges)
        if len(self._frames) >= MOST_DEPTH:
            raise Refused(opening.edges.start, f"blocks are nested more than {MOST_DEPTH} deep; use includes, or fewer")
        self._flush(opening.edges)
        self._frames.append(_Frame(opening))
        if opening.condition is not None:
            self._frames[-1].conditions.append(opening.condition)

    def parted(self, word: str, edges: Edges, condition: Expression | None = None) -> None:
        """`or`, `else` or `elif`."""
        opens, closes = self._dialect.opens, self._dialect.closes
        frame = self._frames[-1] if self._frames else None
        wanted = ("select",) if word == "or" else ("if", "unless")
        if frame is None or frame.opening.kind not in wanted:
            where = f"; it stands in a {frame.opening.kind} block here" if frame else ""
            reason = (
                f"{opens}{word}{closes} parts the bodies of {opens}#{wanted[0]}{closes} and stands nowhere else{where}"
            )
            raise Refused(edges.start, reason)
        if frame.otherwise:
            raise Refused(edges.start, f"{opens}{word}{closes} stands behind the {opens}else{closes} of this block")
        self._flush(edges)
        frame.bodies.append(tuple(frame.body))
        frame.body = []
        frame.otherwise = word == "else"
        if condition is not None:
            frame.conditions.append(condition)

    def closed(self, name: str, name_at: int, edges: Edges) -> None:
        """The end of a block."""
        opens, closes = self._dialect.opens, self._dialect.closes
        if not self._frames:
            raise Refused(edges.start, f"{opens}/{name}{closes} closes nothing: no block is open here")
        frame = self._frames[-1]
        if name != frame.opening.kind:
            raise Refused(
                name_at,
                f"{opens}/{name}{closes} where {opens}/{frame.opening.kind}{closes} was expected",
            )
        self._flush(edges)
        frame.bodies.append(tuple(frame.body))
        self._frames.pop()
        span = Span(frame.opening.edges.start, edges.stop)
        segment = _if(frame, span) if frame.conditions else frame.opening.make(frame.bodies, span)
        self._body.append(segment)

    def finish(self) -> Body:
        """The segments, at the end of the source."""
        if self._frames:
            frame = self._frames[-1]
            opens, closes = self._dialect.opens, self._dialect.closes
            kind = frame.opening.kind
            raise Refused(
                frame.opening.edges.start,
                f"this {kind} block is not closed: write {opens}/{kind}{closes} where it ends",
            )
        self._flush(None)
        return tuple(self._bottom)

    @property
    def _body(self) -> list[Segment]:
        return self._frames[-1].body if self._frames else self._bottom

    @property
    def _in_choices(self) -> bool:
        return bool(self._frames) and self._frames[-1].opening.kind == "select"

    def _trim(self, edges: Edges | None) -> None:
        """Let a tag trim the text before it, and note whether it trims the text behind it."""
        while edges and edges.trims_left and self._texts and self._texts[-1].plain:
            last = self._texts.pop()
            kept = last.text.rstrip()
            if kept:
                span = Span(last.span.start, last.span.start + len(kept))
                self._texts.append(_Text(kept, span, plain=True))
                break
        self._trimming = edges is not None and edges.trims_right

    def _flush(self, edges: Edges | None) -> None:
        """End the literal under way at a tag."""
        self._trim(edges)
        text = "".join(part.text for part in self._texts)
        if text:
            self._body.append(Literal(text, Span(self._texts[0].span.start, self._texts[-1].span.stop)))
        self._texts.clear()

    def _kind_of(self, segment: Segment) -> str:
        return segment.kind if isinstance(segment, Slot) else type(segment).__name__.lower()

    def _check(self, kind: str, edges: Edges) -> None:
        """May such a tag stand here?"""
        inside = {frame.opening.kind for frame in self._frames}
        if self._in_choices and kind != "output":
            raise Refused(edges.start, f"{kind} cannot stand in a choice: {_ALONE['select']}")
        if "joint" in inside and kind not in {"output", "comment", "select"}:
            raise Refused(edges.start, f"{kind} cannot stand in a joint: {_ALONE['joint']}")
        if kind in _TURNS and inside & _TURNS:
            raise Refused(edges.start, "a turn cannot stand inside of another; close that first")


def _if(frame: _Frame, span: Span) -> If:
    """`if` with its branches; `unless` is `if not`."""
    conditions = list(frame.conditions)
    if frame.opening.kind == "unless":
        conditions[0] = Not(conditions[0], conditions[0].span)
    bodies = frame.bodies
    otherwise = bodies.pop() if frame.otherwise else ()
    return If(tuple(zip(conditions, bodies, strict=True)), otherwise, span)
