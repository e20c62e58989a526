"""The public `Grammar` class, its shared automata, and the included grammars."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.resources import files
from itertools import islice
from pathlib import Path
from threading import RLock
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, final, get_origin

from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.errors import GrammarError, InputFileError, OptionError
from selectrie.grammar.machine.machine import ListMachine, Machine, Recogniser
from selectrie.grammar.rules import RuleSet, TextList, TokenTerminal, append_to_root, canonical_rules, gbnf_rules
from selectrie.grammar.token_automaton import (
    ByteAutomaton,
    GrammarAutomaton,
    LeadingSpaceAutomaton,
    PrefixableAutomaton,
    PrefixedAutomaton,
)
from selectrie.options.checks import at_least
from selectrie.options.checks import text as check_text
from selectrie.options.keywords import Regex

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from selectrie.grammar.acceptance import Verdict
    from selectrie.grammar.analysis import Report
    from selectrie.grammar.enumeration import Texts
    from selectrie.grammar.llguidance import GuidanceGrammar
    from selectrie.grammar.machine.program import Program
    from selectrie.grammar.schema.schema import Route, Spacing

P = ParamSpec("P")
R = TypeVar("R")


class SharedAutomaton:
    """An automaton that any thread may call, one call at a time.

    An automaton's tables grow while it is used, and the threads of several engines
    share a grammar. Without the grammar's lock, two of them would change one table
    at once; with separate tables, everything would be computed twice. An
    uncontended lock costs 0.1 µs a call. Arrays that were returned never change.
    """

    def __init__(self, inner: ByteAutomaton, lock: RLock) -> None:
        self._inner = inner
        self.start, self.allowed = _with_lock(inner.start, lock), _with_lock(inner.allowed, lock)
        self.advance, self.can_end = _with_lock(inner.advance, lock), _with_lock(inner.can_end, lock)
        self.walk = _with_lock(inner.walk, lock)


def _with_lock(function: Callable[P, R], lock: RLock) -> Callable[P, R]:
    """Return a function that holds a lock while it runs."""

    def run(*args: P.args, **named: P.kwargs) -> R:
        with lock:
            return function(*args, **named)

    return run


@cache
def _folder() -> Traversable:
    """Return the folder of the installed grammars.

    It is in the package or, in a source checkout, at the top level.
    """
    inside = files("selectrie").joinpath("grammars")
    checkout = Path(__file__).resolve().parents[3]
    if not inside.is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / "grammars"
    return inside


@cache
def installed_names() -> tuple[str, ...]:
    """Return the names of the installed grammars in alphabetical order."""
    return tuple(sorted(file.name.removesuffix(".gbnf") for file in _folder().iterdir() if file.name.endswith(".gbnf")))


def installed_grammar(name: str) -> str:
    """Return the GBNF text of an installed grammar; raise `OptionError` if unknown."""
    if name not in installed_names():
        raise OptionError("grammar", name, "the name of an installed grammar: " + ", ".join(installed_names()))
    return _folder().joinpath(f"{name}.gbnf").read_text(encoding="utf-8")


def installed_summary(name: str) -> str:
    """Return what an installed grammar accepts, in one line.

    This is the first line of its file without the grammar's name.
    """
    first = installed_grammar(name).partition("\n")[0].lstrip("# ").strip()
    return first.removeprefix(f"{name}:").strip()


FULL_BYTES, FULL_CONFIGURATIONS = 64 << 20, 150_000
"""Size beyond which a machine is replaced by a new one.

Its current users keep it. The size is well below the limits that raise errors.
"""
STATE_BYTES = 400
"""Approximate memory of a state of a compiled rule: its tuples of edges and calls."""
MAX_FOLLOWED = 16
"""Maximum number of results of `followed_by` that are kept.

The least recently used one is dropped.
"""
MAX_AUTOMATA = 4
"""Maximum number of vocabularies whose automata are kept."""
GUIDED_BYTES = 128 << 20
"""Size beyond which an automaton of llguidance is replaced for the next caller.

It keeps every path that was requested, beside 64 MiB of masks and matchers.
"""


@final
class Grammar:
    """An immutable description of the texts that may be generated.

    >>> from selectrie import Grammar
    >>> moves = Grammar.from_gbnf('root ::= ("left" | "right") " " [1-3]')
    >>> bool(moves.accepts("left 2")), list(moves.expand(2))
    (True, ['left 1', 'left 2'])

    Any number of engines and threads may use one grammar. Nothing is compiled before it
    is needed. Compiled forms are kept, and shared by all engines under one lock (see
    `SharedAutomaton`).

    Attributes:
        name: Name of the grammar in results and errors.
        notes: Parts of the source that have no effect although its author may expect
            one, such as unknown formats of a JSON Schema.
    """

    def __init__(
        self, source: RuleSet | TextList | GuidanceGrammar, *, name: str = "grammar", notes: tuple[str, ...] = ()
    ) -> None:
        if isinstance(source, str | type):
            readers = "Grammar.from_type" if isinstance(source, type) else "Grammar.from_gbnf, from_regex or from_lark"
            raise OptionError("source", source, f"rules; {readers} reads this")
        self.name = name
        self.notes = notes
        self._source = source
        self._lock = RLock()
        self._automata: OrderedDict[str, PrefixableAutomaton] = OrderedDict()  # by vocabulary, the last used last
        self._compiled: Program | None = None
        self._running: Recogniser | None = None
        self._followed: OrderedDict[str, Grammar] = OrderedDict()
        self._listing: tuple[str, ...] | None = None
        self._unlisted = -1  # largest limit for which `listed` is known to return None
        self._count_error: GrammarError | None = None

    def __repr__(self) -> str:
        return f"<Grammar {self.name}>"

    def __copy__(self) -> Grammar:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Grammar:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the source; the copy is compiled again on first use."""
        source = self._source
        if not isinstance(source, RuleSet):
            return _restore_grammar, (source, self.name, self.notes)
        return _restore_grammar, (
            (dict(source.rules), source.root, source.text, dict(source.spans)),
            self.name,
            self.notes,
        )

    @classmethod
    def from_gbnf(cls, text: str, *, root: str = "root", name: str = "gbnf") -> Grammar:
        """Return a grammar from GBNF, the notation of llama.cpp.

        Args:
            text: The grammar.
            root: The start rule.
            name: Name of the grammar in results and errors.
        """
        from selectrie.grammar.readers.gbnf import read_gbnf

        _check_source(text, ".gbnf")
        return cls(read_gbnf(text, root=root), name=name)

    @classmethod
    def from_regex(cls, pattern: str, *, name: str = "regex") -> Grammar:
        """Return a grammar of the texts that a regular expression matches as a whole.

        The pattern is in Python's syntax.
        """
        from selectrie.grammar.readers.regex import read_regex

        check_text("pattern", pattern)
        return cls(read_regex(pattern), name=name)

    @classmethod
    def from_lark(cls, text: str, *, start: str = "start", folder: Path | None = None, name: str = "lark") -> Grammar:
        """Return a grammar from Lark's notation.

        Args:
            text: The grammar.
            start: The start rule.
            folder: The folder in which `%import` looks for files.
            name: Name of the grammar in results and errors.
        """
        from selectrie.grammar.readers.lark import read_lark

        _check_source(text, ".lark")
        return cls(read_lark(text, folder=folder, start=start), name=name)

    @classmethod
    def from_choices(cls, texts: Iterable[str], *, name: str = "choices") -> Grammar:
        """Return a grammar of exactly these texts, however many there are.

        `Engine.select` takes the texts of the list as choices.
        """
        from selectrie.grammar.readers.types import list_of_choices

        return cls(list_of_choices(texts), name=name)

    @classmethod
    def from_type(cls, type: Any, *, name: str | None = None) -> Grammar:  # noqa: A002 - the public name
        """Return a grammar of the values of a Python type.

        `Enum` and `Literal` are plain text; data classes and other types are JSON.
        """
        from selectrie.grammar.readers.model_schemas import open_sets
        from selectrie.grammar.readers.types import rules_of_type

        source = rules_of_type(type)
        name = name or str(getattr(type, "__name__", "type"))
        return (
            cls(source, name=name)
            if isinstance(source, RuleSet | TextList)
            else cls.from_json_schema(open_sets(source), name=name)
        )

    @classmethod
    def from_json_schema(
        cls,
        schema: Mapping[str, Any] | str | bool,  # noqa: FBT001 - a bool is a schema
        *,
        route: Route = "auto",
        spacing: Spacing = "json",
        name: str = "json-schema",
    ) -> Grammar:
        """Return a grammar of the JSON texts that a JSON Schema allows.

        A `str` is the schema as JSON text. For `route` and `spacing` see `read_schema`.
        A schema that allows few values becomes a list of texts, as in `from_choices`.

        >>> from selectrie import Grammar
        >>> schema = {"type": "array", "items": {"type": "boolean"}, "maxItems": 1}
        >>> list(Grammar.from_json_schema(schema).expand())
        ['[]', '[true]', '[false]']
        """
        from selectrie.grammar.readers.types import list_of_choices
        from selectrie.grammar.schema.schema import ListedSchema, read_schema

        if isinstance(schema, str):
            _check_source(schema, ".json")
        result = read_schema(schema, route=route, spacing=spacing)
        if isinstance(result, ListedSchema):
            return cls(list_of_choices(result.texts), name=name, notes=result.notes)
        return cls(result, name=name, notes=result.notes)

    @classmethod
    def from_llguidance(cls, text: str, *, name: str = "llguidance") -> Grammar:
        """Return a grammar from a dialect of llguidance.

        The text is Lark-like, a regular expression in slashes, or serialised JSON.
        """
        from selectrie.grammar.llguidance import read_guidance

        check_text("text", text)
        return cls(read_guidance(text), name=name)

    @classmethod
    def from_file(cls, path: str | Path, *, ending: str | None = None) -> Grammar:
        """Return the grammar in a file.

        The extension decides how it is read: `.gbnf`, `.lark` or `.json` (a JSON
        Schema). Raises `InputFileError` or `GrammarError`.

        Args:
            path: The file.
            ending: Extension to use instead of the file's.
        """
        path = Path(path)
        ending = ending or path.suffix.lower()
        is_file = os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises for a name that is too long
        text = _read_file(path) if ending in ENDINGS or not is_file else ""
        try:
            if ending == ".lark":
                return cls.from_lark(text, folder=path.parent, name=path.name)
            if ending in ENDINGS:
                grammar: Grammar = getattr(cls, ENDINGS[ending])(text, name=path.name)
                return grammar
        except GrammarError as error:
            reason = f"{path}: {error.reason}"
            raise GrammarError(reason, line=error.line, column=error.column, excerpt=error.excerpt) from error
        raise InputFileError(str(path), f"unknown file extension; a grammar file ends in one of {', '.join(ENDINGS)}")

    @classmethod
    def load(cls, name: str) -> Grammar:
        """Return a grammar that comes with selectrie: `Grammar.load("json")`.

        See `installed_names()` for the names.
        """
        return cls.from_gbnf(installed_grammar(name), name=name)

    @cached_property
    def rules(self) -> Mapping[str, str]:
        """Return each rule's right-hand side in GBNF by name, the root first.

        Raises `GrammarError` for a rule that GBNF cannot express.
        """
        return MappingProxyType(gbnf_rules(self._rule_set("rules")))

    def to_gbnf(self) -> str:
        """Return the rules as GBNF that reads back to the same language.

        The root is the first rule.
        """
        rules = gbnf_rules(self._rule_set("to_gbnf"))
        return "".join(f"{name} ::= {right}\n" for name, right in rules.items())

    @cached_property
    def digest(self) -> str:
        """Return a hexadecimal blake2b digest for signatures of results.

        Equal rules have equal digests.
        """
        if not isinstance(self._source, RuleSet | TextList):
            return self._source.digest
        rules = self._rule_set("digest")
        return blake2b("\n".join(canonical_rules(rules)).encode(), digest_size=16).hexdigest()

    @property
    def held_bytes(self) -> int:
        """Return the approximate memory of compiled rules and their machine, in bytes.

        The tables for each vocabulary are not included.
        """
        program, machine = self._compiled, self._running
        states = 0 if program is None else len(program.edges)
        return states * STATE_BYTES + (0 if machine is None else machine.n_bytes)

    @property
    def n_bytes(self) -> int:
        """Return the approximate memory of the grammar in use, in bytes.

        It includes the tables for each vocabulary, which grow with use.
        """
        return self.held_bytes + sum(one.n_bytes for one in list(self._automata.values()))

    def automaton(self, vocabulary: Vocabulary, *, prefix: bytes = b"", shares_space: bool = False) -> ByteAutomaton:
        """Return the automaton over a vocabulary's tokens, made on first use.

        Any thread may use it.

        Args:
            vocabulary: The tokens.
            prefix: Bytes that token paths must spell before the text: healed bytes of a
                prompt.
            shares_space: Whether token paths must spell a space before each text that
                does not begin with one. `prefix` is not used then.
        """
        with self._lock:
            if isinstance(self._source, RuleSet | TextList):
                self._machine("automaton")
            inner = self._automaton_of(vocabulary)
            if shares_space:
                return SharedAutomaton(LeadingSpaceAutomaton(inner, vocabulary), self._lock)
            if not prefix:
                return SharedAutomaton(inner, self._lock)
            return SharedAutomaton(PrefixedAutomaton(inner, vocabulary, prefix), self._lock)

    def followed_by(self, text: str) -> Grammar:
        """Return a grammar of the same texts, each followed by `text`.

        The result for a text is cached. Raises `GrammarError` if llguidance reads the
        grammar, because its rules are not known.

        >>> from selectrie import Grammar
        >>> bool(Grammar.from_regex("[a-z]+").followed_by(", ").accepts("one, "))
        True
        """
        check_text("text", text)
        data = to_bytes(text, "text")
        source = self._source if isinstance(self._source, TextList) else self._rule_set("followed_by")
        if not text:
            return self
        with self._lock:
            grammar = self._followed.get(text)
            if grammar is None:
                longer = source.followed_by(text) if isinstance(source, TextList) else append_to_root(source, data)
                grammar = self._followed[text] = Grammar(longer, name=self.name, notes=self.notes)
                if len(self._followed) > MAX_FOLLOWED:
                    self._followed.popitem(last=False)
            self._followed.move_to_end(text)
            return grammar

    def accepts(self, text: str | bytes) -> Verdict:
        """Return whether a text is complete, can still be continued, or is refused.

        The verdict also says where the text stops being acceptable. Tokens that
        the grammar asks for by name are not text: they are expected, but never
        found.
        """
        from selectrie.grammar.acceptance import describe_expected, verdict_on

        if not isinstance(text, str | bytes):
            raise OptionError("text", text, "a str or bytes")
        with self._lock:
            if isinstance(self._source, RuleSet | TextList):
                machine = self._machine("accepts")
                class_of = machine.class_of.tolist()
                look = _with_lock(lambda at: describe_expected(machine, at, class_of), self._lock)
                return verdict_on(machine, text, look)
            from selectrie.grammar.llguidance import GuidedBytes

            reader = GuidedBytes(self._source)
            return verdict_on(reader, text, _with_lock(reader.expected, self._lock))

    def expand(self, limit: int | None = None) -> Iterator[str]:
        """Iterate over the texts, each once, the shortest first.

        Texts of equal length are ordered by code points. The iterator belongs to one
        thread. Raises `GrammarError` for a grammar with token terminals.

        Args:
            limit: Maximum number of texts. Without it, a grammar of infinitely many
                texts raises `OptionError`.
        """
        at_least("limit", limit, 0)
        if limit is None and not self.is_finite:
            raise OptionError("limit", None, f"a number, as {self.name} has infinitely many texts")
        if isinstance(self._source, TextList):
            return islice(self._source.expanded, limit)
        return islice(self._texts("expand").list_all(), limit)

    def listed(self, max_texts: int) -> tuple[str, ...] | None:
        """Return all texts as a tuple if they are few enough to be choices, else None.

        A grammar that is a list of texts returns that list in its order, whether or not
        it has more than `max_texts` texts. Any other grammar of at most `max_texts`
        texts returns them in the order of `expand`. None means that there are more or
        that the number is unknown: for token terminals, a grammar that llguidance
        reads, and one beyond the limits of `count`. The result is cached.
        """
        at_least("max_texts", max_texts, 0, optional=False)
        if isinstance(self._source, TextList):
            return self._source.texts
        if self._listing is None and max_texts > self._unlisted:
            self._listing = self._list_texts(max_texts)
            if self._listing is None:
                self._unlisted = max_texts
        return None if self._listing is None or len(self._listing) > max_texts else self._listing

    def _list_texts(self, max_texts: int) -> tuple[str, ...] | None:
        """Return all texts, or None if they exceed `max_texts` or cannot be listed."""
        from selectrie.grammar.enumeration import TooManyError, UnknownError, list_texts

        try:
            return list_texts(self._rule_set("listed"), max_texts)
        except TooManyError:
            return None
        except (GrammarError, UnknownError):
            pass
        try:
            # Not listed part by part, so through the compiled grammar, if it has few
            # texts.
            count = self.count()
            return None if count is None or count > max_texts else tuple(self.expand())
        except GrammarError:
            return None

    @cached_property
    def bytes_used(self) -> frozenset[int]:
        """Return a superset of the bytes that a text may contain.

        Tokens of `token_terminals` are not considered. Returns all bytes if llguidance
        reads the grammar.
        """
        if isinstance(self._source, TextList):
            return frozenset(b"".join(self._source.encoded))
        if not isinstance(self._source, RuleSet):
            return frozenset(range(256))
        labels = {label for edges in self._program("bytes_used").edges for label, _ in edges}
        return frozenset(byte for byte in range(256) if any(label >> byte & 1 for label in labels))

    @property
    def token_terminals(self) -> tuple[TokenTerminal, ...]:
        """Return the terminals that match one token by name, whatever its bytes.

        A grammar that llguidance reads has none.
        """
        return self._program("token_terminals").token_sets if isinstance(self._source, RuleSet) else ()

    @cached_property
    def is_finite(self) -> bool:
        """Return whether the number of texts is finite."""
        if isinstance(self._source, TextList):
            return True
        from selectrie.grammar.machine.compiling import is_finite

        return is_finite(self._program("is_finite"))

    @cached_property
    def is_prefix_free(self) -> bool:
        """Return whether no text is a prefix of another; False if unknown."""
        if isinstance(self._source, TextList):
            return self._source.is_prefix_free
        from selectrie.grammar.machine.compiling import is_prefix_free

        return is_prefix_free(self._program("is_prefix_free"))

    def count(self) -> int | None:
        """Return the exact number of texts, or None if there are infinitely many.

        The result is cached. Raises `GrammarError` for a grammar with token terminals,
        and if counting would take too long.
        """
        if self._count_error is not None:
            raise self._count_error.with_traceback(None)
        try:
            return self._count
        except GrammarError as error:
            self._count_error = error
            raise

    @cached_property
    def _count(self) -> int | None:
        if isinstance(self._source, TextList):
            return len(self._source.texts)
        return self._texts("count").count() if self.is_finite else None

    def check(self, *, seed: int = 0) -> Report:
        """Return a report on errors, notable properties and the number of texts.

        It includes samples. A grammar that cannot be compiled is reported too: the
        reason is the report's `error`.

        Args:
            seed: Seed for drawing the samples.
        """
        from selectrie.grammar.analysis import report_on, report_on_list

        if isinstance(self._source, TextList):
            return report_on_list(self._source.texts, seed=seed)
        return report_on(self._rule_set("check"), seed=seed)

    def _rule_set(self, what: str) -> RuleSet:
        """Return the rules; `what` names the method in the error for llguidance."""
        if isinstance(self._source, TextList):
            return self._source.rules
        if not isinstance(self._source, RuleSet):
            raise GrammarError(
                f"{what} is not available for {self.name}, because llguidance reads it; test texts with "
                "`accepts`, or write the grammar in GBNF or Lark"
            )
        return self._source

    def _program(self, what: str) -> Program:
        """Return the compiled rules; `what` names the method in an error.

        A program is immutable, unlike the machines that run it.
        """
        rules = self._rule_set(what)
        with self._lock:
            if self._compiled is None:
                from selectrie.grammar.machine.compiling import compile_rules

                self._compiled = compile_rules(rules)
            return self._compiled

    def _texts(self, what: str) -> Texts:
        """Return `Texts` of a separate machine; `what` names the method in an error.

        Listing texts fills tables that no engine needs.
        """
        from selectrie.grammar.enumeration import Texts

        return Texts(Machine(self._program(what)))

    def _machine(self, what: str) -> Recogniser:
        """Return the machine that all engines share, made on first use.

        A machine beyond `FULL_BYTES` or `FULL_CONFIGURATIONS` is replaced by a new one.
        Callers hold the lock. `what` names the method in an error.
        """
        running = self._running
        if running is None or running.n_bytes > FULL_BYTES or running.n_configurations > FULL_CONFIGURATIONS:
            if isinstance(self._source, TextList):
                running = ListMachine(self._source.encoded)
            else:
                running = Machine(self._program(what))
            self._running = running
            self._automata.clear()
        return running

    def _automaton_of(self, vocabulary: Vocabulary) -> PrefixableAutomaton:
        """Return the automaton over a vocabulary, which its digest identifies.

        Callers hold the lock. An automaton of llguidance grows with use, so one that
        exceeds `GUIDED_BYTES` is replaced; earlier callers keep the old one.
        """
        digest, source = vocabulary.digest, self._source
        automaton = self._automata.get(digest)
        if isinstance(source, RuleSet | TextList):
            if automaton is None:
                automaton = GrammarAutomaton(self._machine("automaton"), vocabulary)
        elif automaton is None or automaton.n_bytes > GUIDED_BYTES:
            automaton = source.automaton(vocabulary)
        self._automata[digest] = automaton
        self._automata.move_to_end(digest)
        while len(self._automata) > MAX_AUTOMATA:
            self._automata.popitem(last=False)
        return automaton


ENDINGS = {".gbnf": "from_gbnf", ".lark": "from_lark", ".json": "from_json_schema"}
"""The methods of `Grammar` that read files with these endings."""


GrammarLike: TypeAlias = "Grammar | type[Any] | Mapping[str, Any] | str"
"""A grammar, its text in GBNF, a type whose values are its texts, or a JSON Schema."""
_GBNF_ROOT = re.compile(r"^[ \t]*root[ \t]*::=", re.MULTILINE)
"""The first rule of a grammar in GBNF."""


def read_grammar(source: object) -> Grammar:
    """Return the grammar that an argument `grammar` stands for.

    It is a `Grammar`, a type, the dict of a JSON Schema, a `Regex`, or the text of a
    grammar in GBNF, which defines `root ::=`. Raises `OptionError` for anything else:
    other texts do not say in which language they are.
    """
    if isinstance(source, Grammar):
        return source
    if isinstance(source, Mapping):
        return Grammar.from_json_schema(dict(source))
    is_gbnf = isinstance(source, str) and _GBNF_ROOT.search(source) is not None
    if is_gbnf or isinstance(source, Regex | type | UnionType) or get_origin(source) is not None:
        return _read_once(source)
    readers = "Grammar.from_gbnf(…), Grammar.from_regex(…), Grammar.from_lark(…) or Grammar.load(…)"
    if isinstance(source, str):
        readers += ", which read texts; `regex=` takes a regular expression"
    elif source is not None:
        readers = f"a Grammar such as {readers}, a type, or the dict of a JSON Schema"
    raise OptionError("grammar", source, readers)


@lru_cache(maxsize=32, typed=True)  # a `Regex` equals the text that it is
def _read_once(source: Any) -> Grammar:
    """Return a grammar that is read anew, but keeps its tables between calls."""
    if isinstance(source, str):
        return Grammar.from_regex(str(source)) if isinstance(source, Regex) else Grammar.from_gbnf(source)
    return Grammar.from_type(source)


def _check_source(text: object, ending: str) -> None:
    """Raise an error if the text of a grammar is not a str, or is the name of a file.

    `ending` is the extension of such files.
    """
    check_text("text", text)
    if isinstance(text, str) and text.endswith(ending) and "\n" not in text and ":" not in text:
        raise OptionError("text", text, "the text of a grammar; Grammar.from_file reads files")


def _read_file(path: Path) -> str:
    try:
        return decode_source(path.read_bytes(), str(path))
    except (OSError, ValueError) as error:  # ValueError: the name has a null character or half a surrogate pair
        raise InputFileError(str(path), getattr(error, "strerror", None) or str(error)) from error


def decode_source(data: bytes, path: str) -> str:
    """Return the text of a file, with LF line ends and without a byte order mark.

    Raises `InputFileError` with path and line if the data is not UTF-8.
    """
    try:
        return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason}); save the file as UTF-8"
        raise InputFileError(path, reason, line=line) from error


def _restore_grammar(source: Any, name: str, notes: tuple[str, ...]) -> Grammar:
    """Restore a pickled grammar."""
    if isinstance(source, tuple):
        rules, root, text, spans = source
        source = RuleSet(MappingProxyType(rules), root, text, MappingProxyType(spans))
    return Grammar(source, name=name, notes=notes)
