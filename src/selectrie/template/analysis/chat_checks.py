"""Finds text and slots outside of every chat turn, on pages that must have turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import Block, Document, Include, Joint, Literal, Role, Segment, Slot, Span
from selectrie.template.syntax.source_positions import error_at

_REASON = "this is outside every role; on a page with roles, only white space is allowed there"


def check_outside(document: Document, documents: Mapping[str, Document]) -> None:
    """Raise `TemplateError` if every page has turns, and text or slots outside them.

    Such a template cannot be rendered, whatever the values are.

    Such a template cannot be rendered, whatever the values are.
    """
    segments = list(_certain(document, documents))
    if any(isinstance(segment, Role) for segment, _ in segments):
        for segment, where in segments:
            if not isinstance(segment, Role):
                raise outside(where, segment.span, is_literal=isinstance(segment, Literal))


def outside(document: Document, span: Span, *, is_literal: bool) -> TemplateError:
    """Return the error for a segment outside of every chat turn.

    For a literal, its position is the first character that is not white space.
    """
    written = document.source[span.start : span.stop]
    start = span.stop - len(written.lstrip()) if is_literal else span.start
    return error_at(document, Span(min(start, max(span.start, span.stop - 1)), span.stop), _REASON)


def _certain(document: Document, documents: Mapping[str, Document]) -> Iterator[tuple[Segment, Document]]:
    """Yield the turns, slots and literals with text that every page has, in page order.

    Segments that may be hidden are left out.
    """
    pending: list[tuple[Segment, Document]] = [(segment, document) for segment in reversed(document.body)]
    while pending:
        segment, where = pending.pop()
        if isinstance(segment, Block) and "hidden" not in dict(segment.arguments):
            pending.extend((inner, where) for inner in reversed(segment.body))
        elif isinstance(segment, Include):
            included = documents[segment.path]
            pending.extend((inner, included) for inner in reversed(included.body))
        elif isinstance(segment, Slot):
            if "hidden" not in dict(segment.arguments):
                yield segment, where
        elif isinstance(segment, Role | Joint) or (isinstance(segment, Literal) and segment.text.strip()):
            yield segment, where
