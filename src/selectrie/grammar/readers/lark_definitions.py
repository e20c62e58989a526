"""The definitions of a Lark grammar and its imports, each under one global name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from selectrie.errors import clipped
from selectrie.grammar.readers.lark_syntax import Node, Statement, read_statements
from selectrie.grammar.rules.expressions import Span
from selectrie.grammar.rules.source_positions import Source

if TYPE_CHECKING:
    from importlib.abc import Traversable

MAX_FILES = 64
IGNORED = "ignored-text"
"""A name that cannot clash, since names in Lark have no '-'."""
_OURS = "lark_exact.lark"


@dataclass(frozen=True, slots=True)
class Scope:
    """Maps the names in one grammar text to global names.

    Explicitly imported names get their alias; other names get a prefix.

    Attributes:
        prefix: Prefix of other names, made from the path of the import.
        aliases: Aliases of explicitly imported names, in the outer scope.
        outer: Scope of the importing text; None for the top level.
    """

    prefix: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    outer: Scope | None = None

    def whole(self, name: str) -> str:
        """Return the global name of a name in the text."""
        if self.outer is None:
            return name
        hidden = name.startswith("_")
        return self.outer.whole(self.aliases.get(name, f"{'_' * hidden}{self.prefix}__{name[hidden:]}"))


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a definition, with its source and the scope of the names in it."""

    node: Node
    source: Source
    scope: Scope


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule or terminal of a Lark grammar.

    Attributes:
        bodies: Its alternatives; none if the name is only declared.
        source: The text that defines it.
        span: The position of its name in that text.
    """

    name: str
    is_terminal: bool
    bodies: tuple[Body, ...]
    parameters: tuple[str, ...]
    source: Source
    span: Span


@dataclass(slots=True)
class Definitions:
    """Everything that a grammar text defines or imports.

    Attributes:
        folder: The folder in which imports are looked for, besides lark's own files.
        ignored: Names of terminals, one for each `%ignore`.
    """

    folder: Path | None
    by_name: dict[str, Definition] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    n_files: int = 0

    def load(self, source: Source) -> None:
        """Add the definitions of a top-level text, after those of its imports."""
        self._load(source, Scope(), self.folder, ())

    def _load(self, source: Source, scope: Scope, folder: Traversable | None, within: tuple[str, ...]) -> None:
        statements = read_statements(source)
        imports: dict[tuple[str, ...], list[Statement]] = {}
        for statement in statements:
            if statement.kind == "import":
                imports.setdefault(statement.path, []).append(statement)
        for group in imports.values():
            self._import(group, source, scope, folder, within)
        for statement in statements:
            self._take(statement, source, scope)

    def _take(self, statement: Statement, source: Source, scope: Scope) -> None:
        match statement.kind:
            case "rule" | "terminal":
                self._define(self._definition(statement, source, scope))
            case "override":
                definition = self._definition(statement, source, scope)
                self._known(definition)
                self.by_name[definition.name] = definition
            case "extend":
                definition = self._definition(statement, source, scope)
                before = self._known(definition)
                if not before.bodies or before.parameters != definition.parameters:
                    why = "it is only declared, or has other parameters; use %override"
                    raise source.refused(statement.span.start, f"{clipped(statement.name)} cannot be extended: {why}")
                self.by_name[definition.name] = replace(before, bodies=(*before.bodies, *definition.bodies))
            case "declare":
                for name, _ in statement.names:
                    kind = _is_terminal(name)
                    self._define(Definition(scope.whole(name), kind, (), (), source, statement.span))
            case "ignore" if scope.outer is None:  # as in lark, an %ignore in an imported text has no effect
                name = f"{IGNORED}-{len(self.ignored) + 1}"
                self.ignored.append(name)
                self._define(replace(self._definition(statement, source, scope), name=name, is_terminal=True))

    def _definition(self, statement: Statement, source: Source, scope: Scope) -> Definition:
        parameters = tuple(name for name, _ in statement.names)
        if len(set(parameters)) < len(parameters):
            raise source.refused(
                statement.span.start, f"{clipped(statement.name)} has two parameters of one name; rename one"
            )
        name = scope.whole(statement.name)
        body = Body(statement.body, source, scope)
        return Definition(name, _is_terminal(statement.name), (body,), parameters, source, statement.span)

    def _define(self, definition: Definition) -> None:
        if definition.name in self.by_name:
            reason = f"{clipped(definition.name)} is defined twice; remove one definition, or use %override or %extend"
            raise definition.source.refused(definition.span.start, reason)
        self.by_name[definition.name] = definition

    def _known(self, definition: Definition) -> Definition:
        if definition.name not in self.by_name:
            raise definition.source.refused(
                definition.span.start, f"{clipped(definition.name)} is not defined yet; define it before"
            )
        return self.by_name[definition.name]

    def _import(
        self, group: list[Statement], source: Source, scope: Scope, folder: Traversable | None, within: tuple[str, ...]
    ) -> None:
        first = group[0]
        for other in group:
            if other.relative != first.relative:
                reason = f"{'.'.join(first.path)} is imported both with and without a leading dot; use one form"
                raise source.refused(other.span.start, reason)
        aliases = {name: alias for statement in group for name, alias in statement.names}
        for name, alias in aliases.items():
            if _is_terminal(name) != _is_terminal(alias):
                raise source.refused(
                    first.span.start,
                    f"{name} is imported as {alias}, but one is a rule and the other a terminal; keep the case",
                )
        text, inner_folder, name = self._file(first, source, folder)
        self.n_files += 1
        if name in within or self.n_files > MAX_FILES:
            why = "imports itself" if name in within else f"is one of more than {MAX_FILES} files"
            raise source.refused(first.span.start, f"{name} {why}; remove this import")
        inner = Scope("__".join(first.path), aliases, scope)
        self._load(Source(text, name), inner, inner_folder, (*within, name))
        if name == "lark:common.lark":
            self._load_ours(inner)
        missing = [name for name in aliases if inner.whole(name) not in self.by_name]
        if missing:
            raise source.refused(first.span.start, f"{name} does not define {clipped(missing[0])}; correct the name")

    def _load_ours(self, scope: Scope) -> None:
        source = Source(files("selectrie.grammar.readers").joinpath(_OURS).read_text(encoding="utf-8"), _OURS)
        for statement in read_statements(source):
            definition = self._definition(statement, source, scope)
            self.by_name[definition.name] = definition

    def _file(
        self, statement: Statement, source: Source, folder: Traversable | None
    ) -> tuple[str, Traversable | None, str]:
        """Return the text of an imported file, its folder, and its name in messages."""
        *folders, last = statement.path
        roots: list[Traversable] = [] if self.folder is None else [self.folder]
        if statement.relative and folder is not None:
            roots.insert(0, folder)
        own = files("lark").joinpath("grammars")
        for root in [*roots, own]:
            inside = root
            for folder_name in folders:
                inside = inside.joinpath(folder_name)
            path = inside.joinpath(f"{last}.lark")
            try:
                text = path.read_text(encoding="utf-8-sig")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise source.refused(statement.span.start, f"{path} cannot be read: {error}") from error
            return text, inside, f"lark:{'/'.join(statement.path)}.lark" if root is own else str(path)
        where = "; give the folder that contains it" if self.folder is None else f" in {self.folder}"
        raise source.refused(statement.span.start, f"the file {'/'.join(statement.path)}.lark does not exist{where}")


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()
