"""Builds segments from texts and tags, and checks which tags are allowed where.

One `Builder` receives the texts and tags of one source in order. Open blocks are kept
on a stack, so nesting takes no recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from selectrie.errors import clip, clipped
from selectrie.template.syntax.ast import Body, Comment, Expression, If, Output, Path, Segment, Slot, Span
from selectrie.template.syntax.dialects import Dialect
from selectrie.template.syntax.lexer import MAX_DEPTH
from selectrie.template.syntax.source_positions import Refused
from selectrie.template.syntax.tags import TAGS
from selectrie.template.syntax.whitespace import Edges, Literals

TURNS = frozenset({"system", "user", "assistant", "role"})
_PARTED = {"or": ("select",), "else": ("if", "unless"), "elif": ("if", "unless")}


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
    make: Callable[[list[Body], Span], Segment] | None = None
    condition: Expression | None = None


@dataclass(slots=True)
class _Frame:
    """An open block.

    Attributes:
        opening: The tag that began it.
        body: The current body.
        bodies: The bodies before it.
        conditions: The conditions of an `if`.
        last: Whether its `else` has been read.
    """

    opening: Opening
    body: list[Segment] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    last: bool = False


class Builder:
    """Builds the segments of one source while it is being read.

    Every method that adds something returns the builder itself.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._tag = dialect.tag
        self._bottom: list[Segment] = []
        self._frames: list[_Frame] = []
        self._literals = Literals()

    def text(self, text: str, span: Span, *, plain: bool) -> Builder:
        """Add text between tags.

        `plain` says whether it is literally in the source, so that a tag may trim it.
        """
        self._literals.add(text, span, plain=plain)
        return self

    def raw(self, text: str, edges: Edges) -> Builder:
        """Add the text of a raw block, which no other tag trims."""
        self._literals.meet(edges)
        self._literals.add(text, edges.span, plain=False)
        if edges.trims_right:
            self._literals.meet(Edges(edges.stop, edges.stop, trims_right=True))
        return self

    def leaf(self, segment: Segment, edges: Edges) -> Builder:
        """Add a segment without a body.

        Comments among the choices of a select are left out.
        """
        self._literals.meet(edges)
        if isinstance(segment, Comment) and self._is_in_choice:
            return self
        self._admit(segment.kind if isinstance(segment, Slot) else type(segment).__name__.lower(), edges)
        self._flush()
        self._body.append(segment)
        return self

    def opened(self, opening: Opening) -> Builder:
        """Begin a block."""
        self._admit(opening.kind, opening.edges)
        if len(self._frames) >= MAX_DEPTH:
            reason = f"blocks are nested more than {MAX_DEPTH} deep; move the inner ones into a file and include it"
            raise Refused(opening.edges.start, reason)
        self._end_literal(opening.edges)
        self._frames.append(_Frame(opening))
        if opening.condition is not None:
            self._frames[-1].conditions.append(opening.condition)
        return self

    def parted(self, word: str, edges: Edges, condition: Expression | None = None) -> Builder:
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

    def closed(self, name: str, edges: Edges) -> Builder:
        """End the innermost block at its end tag."""
        frame = self._matching(name, edges)
        self._end_literal(edges)
        opening = frame.opening
        if opening.kind == "joint" and not any(isinstance(segment, Slot) for segment in frame.body):
            raise Refused(opening.edges.start, "this joint has no select, so there is nothing to decide together")
        frame.bodies.append(tuple(frame.body))
        self._frames.pop()
        span = Span(opening.edges.start, edges.stop)
        self._body.append(opening.make(frame.bodies, span) if opening.make else _branches(frame, span))
        return self

    def finish(self) -> Body:
        """Return the segments at the end of the source; raise if a block is open."""
        if self._frames:
            opening = self._frames[-1].opening
            reason = (
                "{tag} is not closed: expected " + f"{self._tag('/' + opening.kind)} before the end of the template"
            )
            raise Refused(opening.edges.start, reason + self._meant_as_end(), opening.edges.span)
        self._flush()
        return tuple(self._bottom)

    def _meant_as_end(self) -> str:
        """Return a hint if an output in the open block looks like its end tag, else "".

        Other languages end a block with such a word ("endif").
        """
        kind = self._frames[-1].opening.kind
        words = {"end", "end" + kind, *(("endfor",) if kind == "each" else ())}
        bodies = (*self._frames[-1].bodies, self._frames[-1].body)
        names = (
            one.value.name for body in bodies for one in body if isinstance(one, Output) and isinstance(one.value, Path)
        )
        word = next((name for name in names if name in words), None)
        return "" if word is None else f"; {self._tag(word)} is a value and does not end a block"

    @property
    def _body(self) -> list[Segment]:
        return self._frames[-1].body if self._frames else self._bottom

    @property
    def _is_in_choice(self) -> bool:
        return bool(self._frames) and self._frames[-1].opening.kind == "select"

    def _end_literal(self, edges: Edges) -> None:
        self._literals.meet(edges)
        self._flush()

    def _flush(self) -> None:
        self._body.extend(self._literals.take())

    def _matching(self, name: str, edges: Edges) -> _Frame:
        """Remove and return the open block that an end tag closes."""
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

    def _admit(self, kind: str, edges: Edges) -> None:
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


def _branches(frame: _Frame, span: Span) -> If:
    """Return the segment of an `if`, with its conditions, bodies and `else`."""
    otherwise = frame.bodies.pop() if frame.last else ()
    return If(tuple(zip(frame.conditions, frame.bodies, strict=True)), otherwise, span=span)
