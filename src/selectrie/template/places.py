"""Where in a template something stands: offsets to lines and columns, and the errors that show them."""

from __future__ import annotations

from selectrie.errors import TemplateError
from selectrie.template.expressions import Span
from selectrie.template.segments import Document


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
            reason = reason.replace("{line}", str(line)).replace("{tag}", tag if len(tag) <= 60 else tag[:59] + "…")
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


def clipped(text: str, limit: int = 40) -> str:
    """A text as a message quotes it."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
