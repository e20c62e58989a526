"""`structured_outputs`, the field with which a request restricts its text.

It has vLLM's form: an object with one of `choice`, `regex`, `json`, `grammar` and
`json_object`. Each becomes a grammar of the engine, so the readers' limits on size,
depth and time hold (`docs/serving.md`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from selectrie.errors import GrammarError, OptionError, TokenRangeError, clip
from selectrie.grammar import Grammar
from selectrie.server.http_errors import HttpError, errors_at
from selectrie.server.wire import BY_TYPE, ClosedModel, Items, NotOffered, UpTo

FIELD = "structured_outputs"
KINDS = ("choice", "regex", "json", "grammar", "json_object")
MAX_CHARACTERS = 1_000_000
"""Maximum length of what a grammar is read from, for which `GrammarLimits` are made."""
_LISTED = ", ".join(f"`{kind}`" for kind in KINDS)
_MAX_KEPT = 8
"""Number of grammars that are kept compiled for later requests."""
_MAX_NOTES, _MAX_NOTE = 4, 200
"""Number of notes about a grammar in the warnings, and characters of each."""


_Source = Annotated[str, Field(json_schema_extra={"maxLength": MAX_CHARACTERS})]


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
    def grammar_errors(self) -> Iterator[None]:
        """Raise errors of the grammar under its path in the request."""
        with _errors_at(self.path):
            yield


def _with(kind: str) -> JsonDict:
    """Return the schema of an object in which a kind asks for something."""
    return {"required": [kind], "properties": {kind: {"not": {"enum": [None, False]}}}}


class StructuredOutputs(ClosedModel):
    """What a text has to be: exactly one of these."""

    model_config = ConfigDict(
        title=f"an object with exactly one of {_LISTED}",
        json_schema_extra={"allOf": [{"oneOf": [_with(kind) for kind in KINDS]}]},
    )

    structural_tag: Annotated[Any, NotOffered()] = None
    whitespace_pattern: Annotated[Any, NotOffered()] = None
    disable_any_whitespace: Annotated[Any, NotOffered((False, True))] = None  # JSON has one layout here
    disable_additional_properties: Annotated[Any, NotOffered((False,))] = None
    disable_fallback: Annotated[Any, NotOffered((False,))] = None
    choice: Annotated[Items[str], UpTo("max_options", "texts")] | None = Field(
        None, title="a list of texts that is not empty", min_length=1
    )
    """One of these texts."""
    regex: _Source | None = None
    """A text that this regular expression matches as a whole."""
    json_: Annotated[dict[Any, Any] | _Source, BY_TYPE] | None = Field(
        None, alias="json", title="a JSON Schema, or its text"
    )
    """JSON that this JSON Schema allows."""
    grammar: _Source | None = None
    """A text of this GBNF, with the start rule `root`."""
    json_object: bool | None = None
    """Any object of JSON."""

    def grammar_of_text(self) -> StructuredText:
        """Return the grammar that is asked for: for a large one, after seconds.

        Raises:
            RequestError, HttpError: For anything but one kind that can be read.
        """
        sources = {kind: getattr(self, "json_" if kind == "json" else kind) for kind in KINDS}
        kinds = [kind for kind, value in sources.items() if value is not None and value is not False]
        if len(kinds) != 1:
            several = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            raise HttpError(400, OptionError.code, f"{FIELD} has {several}: expected exactly one of {_LISTED}", FIELD)
        (kind,) = kinds
        path, source = f"{FIELD}.{kind}", sources[kind]
        if isinstance(source, dict):
            source = json.dumps(source)
        n_characters = sum(map(len, source)) if isinstance(source, str | list) else 0
        if n_characters > MAX_CHARACTERS:
            raise OptionError(path, n_characters, f"at most {MAX_CHARACTERS} characters")
        with _errors_at(path):
            return StructuredText(path, _read(kind, tuple(source) if isinstance(source, list) else source))


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


@contextmanager
def _errors_at(path: str) -> Iterator[None]:
    """Raise errors about a grammar and its tokens, without the line of a position."""
    try:
        yield
    except GrammarError as error:
        with errors_at(path):
            raise GrammarError(error.reason, line=error.line, column=error.column) from error
    except TokenRangeError:
        with errors_at(path):
            raise
