"""`Template`, which is parsed and checked when it is made, and immutable afterwards.

Every file that it includes is read once, and within limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import final

from selectrie.errors import OptionError, TemplateError
from selectrie.grammar import Grammar
from selectrie.options.checks import named, one_of
from selectrie.options.checks import text as check_text
from selectrie.template.analysis.dry_run import try_values
from selectrie.template.analysis.static_checks import Findings, examine, foreign_notes, refuse_foreign
from selectrie.template.syntax.ast import Document, Include, Span, error_at, error_in, walk
from selectrie.template.syntax.parser import parse
from selectrie.template.syntax.tags import DIALECTS
from selectrie.template.values.sources import MAX_FILE_BYTES, Sources, dialect_of, read_source, search_folder

MAX_INCLUDE_DEPTH = 16
"""Maximum depth of nested includes, not counting the template itself."""
MAX_BYTES = 4 << 20
"""Maximum size of all files together, counting each as often as it is included."""
MAX_BLOCK_DEPTH = 64
"""Maximum depth of nested blocks, through includes."""


@final
class Template:
    """A text with slots that a model fills in.

    Templates are immutable; any number of engines and threads may use one.

    The constructor parses the text, reads the files that it includes and the grammars
    that it names, and raises `TemplateError` for every error that can be found without
    values. Templates are equal if their sources and these files are equal.

    Attributes:
        source: The text of the template.
        name: Name of the template in errors.
        dialect: "selectrie" (`<<name>>`) or "handlebars" (`{{name}}`, the syntax of
            guidance 0.0.x).
        document: The parsed template.
        documents: The included files, by their path as written.
        notes: A sentence on each other language whose markup it seems to have.

    The argument `search_path` is the folder from which includes and grammar files are
    read.
    """

    source: str
    name: str
    dialect: str
    document: Document
    documents: Mapping[str, Document]
    notes: tuple[str, ...]
    _sources: Sources
    _findings: Findings

    def __init__(
        self, text: str, *, name: str = "<template>", search_path: str | Path | None = None, dialect: str = "selectrie"
    ) -> None:
        check_text("text", text)
        check_text("name", name)
        one_of("dialect", dialect, tuple(DIALECTS))
        self._read(text, name, dialect, Sources(search_folder(search_path)))

    def _read(self, text: str, name: str, dialect: str, sources: Sources) -> None:
        """Parse and check the text and all files that it includes."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_FILE_BYTES:
            # The character in which the limit is exceeded.
            n_characters = sum(byte & 0xC0 != 0x80 for byte in data[: MAX_FILE_BYTES + 1]) - 1
            reason = f"the template is longer than {MAX_FILE_BYTES} bytes, which end here; split it with `include`"
            raise error_in(text, name, n_characters, reason)
        document, documents = read_all(text, name, dialect, sources)
        refuse_foreign(document)
        held = {
            "source": text,
            "name": name,
            "dialect": dialect,
            "document": document,
            "documents": MappingProxyType(documents),
            "notes": foreign_notes(document),
            "_sources": sources,
            "_findings": examine(document, documents, sources),
        }
        # The class is frozen.
        self.__dict__.update(held)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: a template is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: a template is immutable")

    @classmethod
    def from_file(
        cls, path: str | Path, *, search_path: str | Path | None = None, dialect: str | None = None
    ) -> Template:
        """Return the template of a file.

        Args:
            path: The file.
            search_path: Folder of included files and grammars. The default is the
                file's own folder.
            dialect: "selectrie" or "handlebars". The default is "handlebars" for `.hbs`
                and `.handlebars`, else "selectrie".

        Raises:
            InputFileError: If the file cannot be read.
            TemplateError: If the template has an error.
        """
        if not isinstance(path, str | Path):
            raise OptionError("path", path, "the path of a file, a str or a Path")
        source = read_source(Path(path), str(path))
        dialect = dialect_of(str(path), "selectrie") if dialect is None else dialect
        folder = Path(path).parent if search_path is None else search_path
        return cls(source, name=str(path), search_path=folder, dialect=dialect)

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the names to which the model gives values, in page order.

        They are the names of selects, gens, beams and `geneach` lists.
        """
        return self._findings.slots

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the names for which values must be given, in order of first use.

        A name that occurs only in a branch that is not taken may be left out; `check`
        takes that into account.
        """
        return self._findings.needs

    def check(self, values: Mapping[str, object] | None = None) -> None:
        """Raise the first `TemplateError` that can be found before the model is used.

        Args:
            values: Values to check as well. Errors are then also raised for names
                without a value, invalid options, options with the same text, arguments
                of the wrong type, and values without a text. With None, nothing is
                checked, because the constructor has found all errors without values.
        """
        if values is not None:
            refuse_foreign(self.document, values)
            try_values(self.document, self.documents, self._sources, named("values", values))

    def unused(self, values: Mapping[str, object]) -> tuple[str, ...]:
        """Return the names of values that the template never reads, in their order."""
        return tuple(name for name in named("values", values) if name not in self._findings.read)

    def included(self, include: Include) -> Document:
        """Return the document that an include tag includes."""
        return self.documents[include.path]

    def read_grammar(self, name: str) -> Grammar:
        """Return a grammar by name: one that comes with selectrie, else a file.

        The file is read from the search path. The same object is returned each time.
        Raises `TemplateError` without a position.
        """
        return self._sources.read_grammar(name)

    def read_regex(self, pattern: str) -> Grammar:
        """Return a regular expression as a grammar.

        Grammars are cached by pattern, so the same object is returned until the cache
        drops it. Raises `TemplateError` without a position.
        """
        return self._sources.read_regex(pattern)

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        """Return the values by which templates are equal."""
        files = tuple(sorted(self._sources.texts.items()))
        grammars = tuple((name, self._sources.read_grammar(name).digest) for name in self._findings.grammars)
        return self.source, self.dialect, files, grammars

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Template) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"<Template {self.name}: slots {', '.join(self.slots) or 'none'}>"

    def __copy__(self) -> Template:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Template:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the template with the files it has read.

        The files are not needed to restore it.
        """
        sources = self._sources
        held = (sources.root, dict(sources.texts), dict(sources.grammars))
        return _restore_template, (self.source, self.name, self.dialect, held)


def _restore_template(
    source: str, name: str, dialect: str, held: tuple[Path | None, dict[str, str], dict[str, Grammar]]
) -> Template:
    """Restore a pickled template, without reading files."""
    template = Template.__new__(Template)
    template._read(source, name, dialect, Sources(*held))
    return template


@dataclass(frozen=True, slots=True)
class _Extent:
    """The size and the depth of a document with its includes.

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
    """Reads the included files of a template, within limits."""

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
            _check_limit(document, segment.span, n_bytes, MAX_BYTES, "bytes in all; include less")
            _check_limit(
                document, segment.span, files + len(chain) - 1, MAX_INCLUDE_DEPTH, "files include one another in a row"
            )
            _check_limit(document, segment.span, blocks, MAX_BLOCK_DEPTH, "blocks are nested in each other")
        return _Extent(n_bytes, files, blocks)

    def included(self, include: Include, document: Document, chain: tuple[str, ...]) -> _Extent:
        """Read an included file, if needed, and return its extent."""
        path = include.path
        if path in chain[1:]:
            circle = " -> ".join((*chain, path))
            raise error_at(document, include.span, f"the includes form a circle: {circle}; remove one of them")
        if path not in self.extents:
            _check_limit(document, include.span, len(chain), MAX_INCLUDE_DEPTH, "files include one another in a row")
            try:
                text = self.sources.text(path)
            except TemplateError as error:
                raise error_at(document, include.span, error.reason) from error.__cause__
            read = parse(text, name=path, dialect=dialect_of(path, self.dialect))
            self.documents[path] = read
            self.extents[path] = self.extent(read, (*chain, path))
        return self.extents[path]


def _check_limit(document: Document, span: Span, reached: int, limit: int, what: str) -> None:
    """Raise `TemplateError` at a span if `reached` exceeds a limit."""
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
