"""Reads every file that a template includes, once and within limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import Document, Include, Span
from selectrie.template.syntax.parser import parse
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.syntax.visitors import walk
from selectrie.template.values.sources import Sources, dialect_of

MAX_INCLUDE_DEPTH = 16
"""Maximum depth of nested includes, not counting the template itself."""
MAX_BYTES = 4 << 20
"""Maximum size of all files together, counting each as often as it is included."""
MAX_BLOCK_DEPTH = 64
"""Maximum depth of nested blocks, through includes."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """The extent of a document with its includes.

    Attributes:
        n_bytes: Size in bytes.
        files: Depth of nested files.
        blocks: Depth of nested blocks.
    """

    n_bytes: int
    files: int = 0
    blocks: int = 0


@dataclass(slots=True)
class _Reader:
    dialect: str
    sources: Sources
    documents: dict[str, Document] = field(default_factory=dict)
    extents: dict[str, _Extent] = field(default_factory=dict)

    def extent(self, document: Document, chain: tuple[str, ...]) -> _Extent:
        """Read the files that a document includes, and return its extent.

        `chain` holds the names of the documents that include it, outermost first, and
        then the document's own name.
        """
        n_bytes, files, blocks = len(document.source.encode("utf-8", "surrogatepass")), 0, 0
        for segment, depth in walk(document.body):
            inner = _Extent(0)
            if isinstance(segment, Include):
                inner = self.included(segment, document, chain)
                n_bytes, files = n_bytes + inner.n_bytes, max(files, inner.files + 1)
            blocks = max(blocks, depth + inner.blocks)
            _bound(document, segment.span, n_bytes, MAX_BYTES, "bytes in all; include less")
            _bound(
                document, segment.span, files + len(chain) - 1, MAX_INCLUDE_DEPTH, "files include one another in a row"
            )
            _bound(document, segment.span, blocks, MAX_BLOCK_DEPTH, "blocks are nested in each other")
        return _Extent(n_bytes, files, blocks)

    def included(self, include: Include, document: Document, chain: tuple[str, ...]) -> _Extent:
        path = include.path
        if path in chain[1:]:
            circle = " -> ".join((*chain, path))
            raise error_at(document, include.span, f"the includes form a circle: {circle}; remove one of them")
        if path not in self.extents:
            _bound(document, include.span, len(chain), MAX_INCLUDE_DEPTH, "files include one another in a row")
            try:
                text = self.sources.text(path)
            except TemplateError as error:
                raise error_at(document, include.span, error.reason) from error.__cause__
            read = parse(text, name=path, dialect=dialect_of(path, self.dialect))
            self.documents[path] = read
            self.extents[path] = self.extent(read, (*chain, path))
        return self.extents[path]


def _bound(document: Document, span: Span, reached: int, limit: int, what: str) -> None:
    if reached > limit:
        raise error_at(document, span, f"more than {limit} {what}")


def read_all(text: str, name: str, dialect: str, sources: Sources) -> tuple[Document, dict[str, Document]]:
    """Parse a template and the documents it includes, directly or not.

    Returns the template, and the included documents by their path as written. Files
    that end in `.hbs` or `.handlebars` are read in that dialect, others in the
    template's own.

    Raises `TemplateError`. For a file that cannot be read or exceeds a limit, its
    position is the include tag; for a file that cannot be parsed, it is in that file.
    """
    reader = _Reader(dialect, sources)
    document = parse(text, name=name, dialect=dialect)
    reader.extent(document, (name,))
    return document, reader.documents
