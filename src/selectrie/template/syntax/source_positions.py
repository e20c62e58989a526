"""Where in a template something stands: offsets to lines and columns, and the errors that show them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from selectrie.errors import RequestError, TemplateError
from selectrie.template.syntax.ast import Document
from selectrie.template.syntax.expressions import Span


class Refused(Exception):
    """The source cannot be read: why, and at which character. It never leaves the package.

    about: a tag that the reason speaks of; `{tag}` and `{line}` in the reason stand for it and its line.
    """

    def __init__(self, offset: int, reason: str, about: Span | None = None) -> None:
        self.offset, self.reason, self.about = offset, reason, about
        super().__init__(reason)

    def error(self, source: str, name: str) -> TemplateError:
        """As the callers of the package see it."""
        reason = self.reason
        if self.about is not None:
            tag = " ".join(source[self.about.start : self.about.stop].split())
            line, _ = line_and_column(source, self.about.start)
            reason = reason.replace("{line}", str(line)).replace("{tag}", short(tag, 60))
        return error_in(source, name, self.offset, reason)


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, from 1 on, the column in characters. A line ends at its line feed."""
    offset = max(0, min(offset, len(source)))
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def error_in(source: str, name: str, offset: int, reason: str) -> TemplateError:
    """The error for character `offset` of a source that is no document yet."""
    offset = max(0, min(offset, len(source)))
    line, column = line_and_column(source, offset)
    stop = source.find("\n", offset)
    excerpt = source[offset - column + 1 : len(source) if stop < 0 else stop].rstrip("\r")
    return TemplateError(reason, name=name, line=line, column=column, excerpt=excerpt)


def error_at(document: Document, span: Span, reason: str) -> TemplateError:
    """The error for what stands at a span of a document: its name, line and column, and the line with a caret."""
    return error_in(document.source, document.name, span.start, reason)


@contextmanager
def told_at(document: Document, span: Span) -> Iterator[None]:
    """What is wrong with a value in the block is told at this place, unless it knows one."""
    try:
        yield
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, span, error.reason) from error.__cause__
    except RequestError as error:
        raise error_at(document, span, str(error)) from error


def where(document: Document, span: Span) -> str:
    """file:line:column of what stands at a span."""
    line, column = line_and_column(document.source, span.start)
    return f"{document.name}:{line}:{column}"


def short(text: str, limit: int = 40) -> str:
    """A text cut to what a message has room for."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clipped(text: str, limit: int = 40) -> str:
    """A text as a message quotes it."""
    return repr(short(text, limit))
