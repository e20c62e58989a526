"""The literal under way between two tags: pieces of text, and the white space that a `~` beside them takes away."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.template.syntax.ast import Literal
from selectrie.template.syntax.expressions import Span


@dataclass(frozen=True, slots=True)
class Edges:
    """Where a tag stands, and on which of its sides it trims the text beside it."""

    start: int
    stop: int
    trims_left: bool = False
    trims_right: bool = False

    @property
    def span(self) -> Span:
        """Its characters."""
        return Span(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class _Piece:
    """plain: stands in the source as it is, so a tag may trim it; escapes and raw blocks are what they say."""

    text: str
    span: Span
    plain: bool


@dataclass(slots=True)
class Literals:
    """Pieces that become one `Literal`. White space is what `str.isspace` says."""

    _pieces: list[_Piece] = field(default_factory=list)
    _trims_next: bool = False

    def add(self, text: str, span: Span, *, plain: bool) -> None:
        """The next piece."""
        if plain and self._trims_next:
            text = text.lstrip()
            span = Span(span.stop - len(text), span.stop)
        if text or not plain:
            self._trims_next = False
            self._pieces.append(_Piece(text, span, plain))

    def meet(self, edges: Edges) -> None:
        """A tag comes next: it may trim what stands before it, and what will stand behind it."""
        while edges.trims_left and self._pieces and self._pieces[-1].plain:
            last = self._pieces.pop()
            kept = last.text.rstrip()
            if kept:
                self._pieces.append(_Piece(kept, Span(last.span.start, last.span.start + len(kept)), plain=True))
                break
        self._trims_next = edges.trims_right

    def take(self) -> list[Literal]:
        """The literal, or nothing where it would be empty; the next one begins."""
        text = "".join(piece.text for piece in self._pieces)
        found = [Literal(text, Span(self._pieces[0].span.start, self._pieces[-1].span.stop))] if text else []
        self._pieces.clear()
        return found
