"""Reads `structured_outputs`, the field with which a request restricts its text.

It has vLLM's form: an object with one of `choice`, `regex`, `json`, `grammar` and
`json_object`. Each becomes a grammar of the engine, so the readers' limits on size,
depth and time hold (`docs/serving.md`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from selectrie.errors import MAX_QUOTED, GrammarError, OptionError, TokenRangeError, clip
from selectrie.grammar import Grammar
from selectrie.server.fields import refuse_fields
from selectrie.server.http_errors import HttpError
from selectrie.server.options import ServerOptions

FIELD = "structured_outputs"
KINDS = ("choice", "regex", "json", "grammar", "json_object")
MAX_CHARACTERS = 1_000_000
"""Maximum length of what a grammar is read from, for which `GrammarLimits` are made."""
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "structural_tag": (),
    "whitespace_pattern": (),
    "disable_any_whitespace": (False, True),
    "disable_additional_properties": (False,),
    "disable_fallback": (False,),
}
"""Keys of vLLM that are not offered, with the values that ask for nothing.

JSON has one layout here, so `disable_any_whitespace` changes nothing.
"""
_UNSUPPORTED_PATHS = {f"{FIELD}.{name}": neutral for name, neutral in _UNSUPPORTED.items()}
_LISTED = ", ".join(f"`{kind}`" for kind in KINDS)
_MAX_KEPT = 8
"""Number of grammars that are kept compiled for later requests."""
_MAX_NOTES, _MAX_NOTE = 4, 200
"""Number of notes about a grammar in the warnings, and characters of each."""


@dataclass(frozen=True, slots=True, eq=False)
class StructuredText:
    """The grammar of the texts that a request allows.

    Attributes:
        path: Path to its source in the request.
        grammar: The grammar.
    """

    path: str
    grammar: Grammar

    def warnings(self) -> list[str]:
        """Return what in the source has no effect."""
        return [f"{self.path}: {clip(note, _MAX_NOTE)}" for note in self.grammar.notes[:_MAX_NOTES]]

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Raise errors of the grammar under its path in the request."""
        try:
            yield
        except GrammarError as error:
            raise _unreadable(self.path, error) from error
        except TokenRangeError as error:
            raise HttpError(400, error.code, f"{self.path}: {error}", self.path) from error


def read_structured_outputs(body: Mapping[str, Any], options: ServerOptions) -> StructuredText | None:
    """Return the grammar that a request asks for, None for free text.

    It takes up to seconds for a large one.

    Raises:
        RequestError, HttpError: For anything but one kind that can be read.
    """
    value = body.get(FIELD)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise OptionError(FIELD, value, f"an object with exactly one of {_LISTED}")
    unknown = next((clip(name, MAX_QUOTED) for name in value if name not in KINDS and name not in _UNSUPPORTED), None)
    if unknown is not None:
        message = f"{FIELD} has the unknown key {unknown!r}: expected exactly one of {_LISTED}"
        raise HttpError(400, OptionError.code, message, FIELD)
    refuse_fields({f"{FIELD}.{name}": one for name, one in value.items()}, _UNSUPPORTED_PATHS)
    kinds = [name for name in KINDS if value.get(name) is not None and (name, value[name]) != ("json_object", False)]
    if len(kinds) != 1:
        found = " and ".join(f"`{kind}`" for kind in kinds) or "none"
        raise HttpError(400, OptionError.code, f"{FIELD} has {found}: expected exactly one of {_LISTED}", FIELD)
    (kind,) = kinds
    path = f"{FIELD}.{kind}"
    source = _source(kind, value[kind], path, options)
    try:
        return StructuredText(path, _read(kind, source))
    except GrammarError as error:
        raise _unreadable(path, error) from error


def _source(kind: str, value: object, path: str, options: ServerOptions) -> str | tuple[str, ...]:
    """Return what a grammar is read from, as a key under which it may be kept."""
    source: str | tuple[str, ...]
    if kind == "choice":
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            raise OptionError(path, value, "a list of texts that is not empty")
        if len(value) > options.max_options:
            raise OptionError(path, len(value), f"at most {options.max_options} texts")
        source, n_characters = tuple(value), sum(map(len, value))
    elif kind == "json_object":
        if value is not True:
            raise OptionError(path, value, "true")
        source, n_characters = "", 0
    else:
        if kind == "json" and isinstance(value, Mapping):
            value = json.dumps(value)
        if not isinstance(value, str):
            raise OptionError(path, value, "a JSON Schema, or its text" if kind == "json" else "a text")
        source, n_characters = value, len(value)
    if n_characters > MAX_CHARACTERS:
        raise OptionError(path, n_characters, f"at most {MAX_CHARACTERS} characters")
    return source


@lru_cache(maxsize=_MAX_KEPT)
def _read(kind: str, source: Any) -> Grammar:
    """Return the grammar of a source; that of recent requests is compiled already."""
    if kind == "choice":
        return Grammar.from_choices(source)
    if kind == "regex":
        return Grammar.from_regex(source)
    if kind == "grammar":
        return Grammar.from_gbnf(source)
    return Grammar.from_json_schema({"type": "object"} if kind == "json_object" else source, name=kind)


def _unreadable(path: str, error: GrammarError) -> HttpError:
    """Return the response for a grammar; the position is enough, without the line."""
    short = GrammarError(error.reason, line=error.line, column=error.column)
    return HttpError(400, error.code, f"{path}: {short}", path)
