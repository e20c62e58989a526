"""Reads the files that a template names, and compiles its regular expressions.

Files are included files and grammars. Only those in the template's search path are
read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Lock

from selectrie.errors import GrammarError, InputFileError, MessageText, OptionError, PythonOnly, TemplateError
from selectrie.grammar import Grammar, installed_names
from selectrie.grammar.grammar import ENDINGS, decode_source
from selectrie.template.values.values import describe, did_you_mean

MAX_PATTERNS = 64
"""Maximum number of patterns that are kept, since values may bring any number."""
MAX_PATTERN_BYTES = 64 << 20
"""Maximum size of the kept patterns together.

The pattern used last is kept in any case.
"""
MAX_FILE_BYTES = 1 << 20
"""Maximum size of one file."""
HANDLEBARS_ENDINGS = (".hbs", ".handlebars")


class Patterns:
    """A thread-safe cache of grammars by pattern; it drops the least recently used."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Grammar] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, pattern: str) -> Grammar | None:
        """Return the cached grammar of a pattern, else None."""
        with self._lock:
            if pattern in self._kept:
                self._kept.move_to_end(pattern)
            return self._kept.get(pattern)

    def keep(self, pattern: str, grammar: Grammar) -> Grammar:
        """Cache a grammar unless one is cached for the pattern; return the cached one.

        Another thread may have cached one before.
        """
        with self._lock:
            kept = self._kept.setdefault(pattern, grammar)
            self._kept.move_to_end(pattern)
            n_bytes = sum(one.held_bytes for one in self._kept.values())
            while len(self._kept) > 1 and (len(self._kept) > MAX_PATTERNS or n_bytes > MAX_PATTERN_BYTES):
                n_bytes -= self._kept.popitem(last=False)[1].held_bytes
            return kept


def read_source(path: Path, shown_as: str) -> str:
    """Return the text of a file, with LF line ends and without a byte order mark.

    Raises `InputFileError` with path and line if the file cannot be read, is not UTF-8,
    or is longer than `MAX_FILE_BYTES`.
    """
    try:
        if not path.is_file():
            reason = (
                "is a folder; name a file" if path.is_dir() else "is not a file" if path.exists() else "no such file"
            )
            raise InputFileError(shown_as, reason)
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputFileError(shown_as, getattr(error, "strerror", None) or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise InputFileError(shown_as, f"is longer than {MAX_FILE_BYTES} bytes; split it with `include`")
    return decode_source(data, shown_as)


def dialect_of(path: str, otherwise: str) -> str:
    """Return the dialect that a file's ending implies, or `otherwise`."""
    return "handlebars" if path.lower().endswith(HANDLEBARS_ENDINGS) else otherwise


@dataclass(slots=True)
class Sources:
    """The files of one search path as they were when first read.

    Errors are `TemplateError`s without a position.

    Attributes:
        root: The folder, resolved; None if there is no search path, so that every file
            raises an error.
        texts: Texts of included files by path as written.
        grammars: Grammars by file name or name of an installed one.
        patterns: Compiled regular expressions.
    """

    root: Path | None = None
    texts: dict[str, str] = field(default_factory=dict)
    grammars: dict[str, Grammar] = field(default_factory=dict)
    patterns: Patterns = field(default_factory=Patterns)

    def text(self, path: str) -> str:
        """Return the text of an included file, read once."""
        if path not in self.texts:
            self.texts.setdefault(path, self._read(self._resolve_path(path), path))
        return self.texts[path]

    def read_grammar(self, name: str) -> Grammar:
        """Return a grammar: an installed one, else a file of the search path."""
        if name not in self.grammars:
            self.grammars.setdefault(name, self._load_grammar(name))  # the first of two threads wins
        return self.grammars[name]

    def read_regex(self, pattern: str) -> Grammar:
        """Return a regular expression as a grammar.

        Grammars are cached by pattern, so the same object is returned until the cache
        drops it.
        """
        kept = self.patterns.get(pattern)
        if kept is not None:
            return kept
        try:
            return self.patterns.keep(pattern, _compile(Grammar.from_regex(pattern)))
        except (GrammarError, OptionError) as error:
            reason = _describe_error(error, "")
            raise TemplateError(f"the regular expression {describe(pattern)} cannot be read{reason}") from error

    def _load_grammar(self, name: str) -> Grammar:
        """Load an installed grammar, or one from a file of the search path."""
        if name in installed_names():
            return Grammar.load(name)
        if not name.lower().endswith(tuple(ENDINGS)):
            known = did_you_mean(name, installed_names()) or f"; installed are {', '.join(installed_names())}"
            endings = ", ".join(ENDINGS)
            raise TemplateError(
                f"no grammar is called {describe(name)}: it is not a file name ({endings}) and not installed{known}"
            )
        path = self._resolve_path(name)
        # Only the size and the encoding are checked; the content is parsed below.
        self._read(path, name)
        try:
            return _compile(Grammar.from_file(path))
        except (GrammarError, InputFileError, OptionError) as error:
            reason = _describe_error(error, f"{path}: ")
            raise TemplateError(f"the grammar {describe(name)} cannot be read{reason}") from error

    def _read(self, path: Path, name: str) -> str:
        """Return the text of a file; convert errors to `TemplateError` about `name`."""
        try:
            return read_source(path, name)
        except InputFileError as error:
            where = "" if error.line is None else f", line {error.line}"
            raise TemplateError(f"the file {describe(name)} cannot be read{where}: {error.reason}") from error

    def _resolve_path(self, name: str) -> Path:
        """Return the path of a file of the search path, with links resolved.

        Raises `TemplateError` if it is outside the search path.
        """
        if self.root is None:
            reason = f"{describe(name)} cannot be read, since this template has no folder of others"
            raise TemplateError(MessageText(reason, PythonOnly("; give search_path=<folder>")))
        pure = PurePosixPath(name)
        if not pure.parts or "\0" in name:
            raise TemplateError(f"{describe(name)} is not a file name")
        if "\\" in name:
            raise TemplateError(f"{describe(name)} has a backslash; write / between folders")
        if pure.is_absolute() or Path(name).is_absolute() or ":" in pure.parts[0]:
            raise TemplateError(f"{describe(name)} is an absolute path; name a file within the search path")
        if ".." in pure.parts:
            raise TemplateError(
                f"{describe(name)} has '..', which may lead out of the search path; name a file within it"
            )
        try:
            path = (self.root / pure).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links, before Python 3.13
            raise TemplateError(f"the file {describe(name)} cannot be read: {error}") from error
        if not path.is_relative_to(self.root):
            raise TemplateError(f"{describe(name)} is a link that leads out of the search path; name a file within it")
        return path


def try_grammar(grammar: Grammar) -> None:
    """Raise `TemplateError` if a given grammar cannot be compiled.

    The error has no position.
    """
    try:
        _compile(grammar)
    except GrammarError as error:
        raise TemplateError(
            f"the grammar {describe(grammar.name)} cannot be used{_describe_error(error, '')}"
        ) from error


def _compile(grammar: Grammar) -> Grammar:
    """Compile a grammar, and return it.

    Some mistakes show only then, as errors. The compiled form is kept.
    """
    grammar.accepts("")
    return grammar


def _describe_error(error: GrammarError | InputFileError | OptionError, prefix: str) -> str:
    """Return position and reason of an error in a grammar, on one line.

    `prefix` is removed from the beginning of the reason.
    """
    if not isinstance(error, GrammarError):
        return f": {error}"
    at = "" if error.line is None else f" at line {error.line}"
    at += "" if error.column is None else f", column {error.column}"
    return f"{at}: {error.reason.removeprefix(prefix)}"


def search_folder(path: str | Path | None) -> Path | None:
    """Return the folder to search, with links resolved.

    Raises `OptionError` if it is not a folder.
    """
    if path is None:
        return None
    if not isinstance(path, str | Path):
        raise OptionError("search_path", path, "the path of a folder, a str or a Path, or None")
    try:
        folder = Path(path).resolve()
        if folder.is_dir():
            return folder
    except (OSError, ValueError, RuntimeError):
        pass
    raise OptionError("search_path", str(path), "the path of a folder that exists")
