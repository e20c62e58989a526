"""Converts offsets in a template to lines and columns, and to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from selectrie.errors import RequestError, TemplateError, Words, clip
from selectrie.template.syntax.ast import Document, Span


class Refused(Exception):
    """Raised inside this package for a source that cannot be parsed.

    Callers of the package get a `TemplateError` instead.

    Attributes:
        offset: Offset of the character at which parsing failed.
        reason: The reason. `{tag}` and `{line}` in it stand for the tag `about` and its
            line.
        about: A tag that the reason mentions, or None.
    """

    def __init__(self, offset: int, reason: str, about: Span | None = None) -> None:
        self.offset, self.reason, self.about = offset, reason, about
        super().__init__(reason)

    def error(self, source: str, name: str) -> TemplateError:
        """Return the `TemplateError` that callers of the package get."""
        reason = self.reason
        if self.about is not None:
            tag = " ".join(source[self.about.start : self.about.stop].split())
            line, _ = line_and_column(source, self.about.start)
            reason = reason.replace("{line}", str(line)).replace("{tag}", clip(tag, 60))
        return error_in(source, name, self.offset, reason)


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character.

    Both count from 1, the column in characters. A line ends at its line feed.
    """
    offset = max(0, min(offset, len(source)))
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def error_in(source: str, name: str, offset: int, reason: str) -> TemplateError:
    """Return the error for character `offset` of a source without a document."""
    offset = max(0, min(offset, len(source)))
    line, column = line_and_column(source, offset)
    stop = source.find("\n", offset)
    excerpt = source[offset - column + 1 : len(source) if stop < 0 else stop].rstrip("\r")
    return TemplateError(reason, name=name, line=line, column=column, excerpt=excerpt)


def error_at(document: Document, span: Span, reason: str) -> TemplateError:
    """Return the error for a span of a document.

    It has the document's name, line and column, and the line with a caret.
    """
    return error_in(document.source, document.name, span.start, reason)


@contextmanager
def reported_at(document: Document, span: Span) -> Iterator[None]:
    """Add the position of a span to template errors that are raised in the block.

    Errors that have a position keep it.
    """
    try:
        yield
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, span, error.reason) from error.__cause__
    except RequestError as error:
        raise error_at(document, span, Words(*error.args).worded(str)) from error


def where(document: Document, span: Span) -> str:
    """Return file:line:column of a span."""
    line, column = line_and_column(document.source, span.start)
    return f"{document.name}:{line}:{column}"
