"""Collects the literal text between two tags, trimmed beside a tag with `~`."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.template.syntax.ast import Literal, Span


@dataclass(frozen=True, slots=True)
class Edges:
    """The extent of a tag, and the sides on which it trims the text beside it."""

    start: int
    stop: int
    trims_left: bool = False
    trims_right: bool = False

    @property
    def span(self) -> Span:
        """Return the span of the tag."""
        return Span(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text between two tags.

    `plain` text is literally in the source, so a tag may trim it. The text of escapes
    and raw blocks is not trimmed.
    """

    text: str
    span: Span
    plain: bool


@dataclass(slots=True)
class Literals:
    """Collects the pieces of text between two tags, and joins them into one `Literal`.

    White space beside a tag that trims is removed: the characters of `str.isspace`.
    """

    _pieces: list[_Piece] = field(default_factory=list)
    _trims_next: bool = False

    def add(self, text: str, span: Span, *, plain: bool) -> None:
        """Add the next piece."""
        if plain and self._trims_next:
            text = text.lstrip()
            span = Span(span.stop - len(text), span.stop)
        if text or not plain:
            self._trims_next = False
            self._pieces.append(_Piece(text, span, plain))

    def meet(self, edges: Edges) -> None:
        """Trim the text on both sides of a tag, as far as the tag trims it.

        Text after the tag is trimmed when it is added.
        """
        while edges.trims_left and self._pieces and self._pieces[-1].plain:
            last = self._pieces.pop()
            kept = last.text.rstrip()
            if kept:
                self._pieces.append(_Piece(kept, Span(last.span.start, last.span.start + len(kept)), plain=True))
                break
        self._trims_next = edges.trims_right

    def take(self) -> list[Literal]:
        """Return the text so far as a list of one `Literal`, and begin the next one.

        Returns an empty list if the literal would be empty.
        """
        text = "".join(piece.text for piece in self._pieces)
        literals = [Literal(text, span=Span(self._pieces[0].span.start, self._pieces[-1].span.stop))] if text else []
        self._pieces.clear()
        return literals
