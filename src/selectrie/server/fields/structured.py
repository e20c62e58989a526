"""The constraint on the text of an answer, under each name that clients have for it.

OpenAI calls it `response_format`, vLLM `structured_outputs` and earlier `guided_…`,
llama-server `grammar` and `json_schema`. Each field becomes a `Constraint`, which is
compiled to a grammar of the engine. Fields that say the same may stand together.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from selectrie.errors import (
    MAX_QUOTED,
    Amount,
    GrammarError,
    IncompatibleOptionsError,
    OptionError,
    OptionRef,
    TokenRangeError,
    clip,
)
from selectrie.grammar import Grammar
from selectrie.grammar.schema.schema import parse_schema
from selectrie.server.fields.wire import BY_TYPE, ClosedModel, Ignored, Items, NotOffered, UpTo, WireModel
from selectrie.server.transport.http_errors import HttpError, errors_at, unsupported

KINDS = ("choice", "regex", "json", "grammar", "json_object")
MAX_CHARACTERS = 1_000_000
"""Maximum number of characters of a grammar's source; `GrammarLimits` suits it."""
_LISTED = ", ".join(f"`{kind}`" for kind in KINDS)
_MAX_KEPT, _MAX_KEPT_BYTES = 64, 128 << 20
"""Maximum number of compiled grammars cached for later requests, and of their bytes."""
_BYTES_A_CHARACTER = 20
"""Upper estimate of the memory of a grammar that is not used yet, by its source."""
_MAX_NOTES, _MAX_NOTE = 4, 200
"""Maximum number of a grammar's notes in the warnings, and of characters of each."""
_LARK = re.compile(r"^[ \t]*[?!]*start(\.-?\d+)?[ \t]*:(?!:=)", re.MULTILINE)
_GBNF = re.compile(r"^[ \t]*root[ \t]*::=", re.MULTILINE)
"""The start rules of grammars in the notations of Lark and GBNF."""
_ANY_OBJECT = {"type": "object"}

Source = Annotated[str, Field(json_schema_extra={"maxLength": MAX_CHARACTERS})]
"""Type of the text of a grammar, a regular expression or a JSON Schema."""
Schema = Annotated[dict[Any, Any] | bool | Source, BY_TYPE, Field(title="a JSON Schema, or its text")]
Choices = Annotated[
    Items[str], UpTo("max_options", "texts"), Field(min_length=1, title="a list of texts that is not empty")
]


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
        """Return warnings about parts of the source that have no effect."""
        return [f"{self.path}: {clip(note, _MAX_NOTE)}" for note in self.grammar.notes[:_MAX_NOTES]]


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """A source of a grammar in a request.

    Attributes:
        path: Path to it in the request.
        kind: One of `KINDS`, but for "json_object", which is a JSON Schema here.
        source: Its value; a list of choices is a tuple, a JSON Schema a text.
        schema: The JSON Schema as an object; errors then name its parts. None for a
            text that is not the JSON of an object.
        whitespace: Regular expression of the white space that JSON may have, with its
            path; None for the layout of `json.dumps`.
    """

    path: str
    kind: str
    source: str | tuple[str, ...]
    schema: Mapping[str, Any] | None = None
    whitespace: tuple[str, str] | None = None

    @classmethod
    def of(
        cls, path: str, kind: str, value: Any, whitespace: tuple[str, str] | None = None, *, closes: bool = True
    ) -> Constraint:
        """Return the constraint that a field states.

        Args:
            path: Path to the field.
            kind: One of `KINDS`.
            value: Its value.
            whitespace: As the attribute.
            closes: Whether the objects of a JSON Schema get no further properties
                (`close_objects`).

        Raises `HttpError` for a JSON Schema that is nested too deeply to be written.
        """
        if kind == "json_object":
            kind, value = "json", _ANY_OBJECT
        if kind == "json" and isinstance(value, bool):
            value = json.dumps(value)
        elif kind == "json" and isinstance(value, str):
            members = _read_object(value)
            value = value if members is None else members
        if isinstance(value, dict):
            with grammar_errors_at(path):
                return cls(path, kind, _write_schema(value, closes=closes), value, whitespace)
        return cls(path, kind, tuple(value) if isinstance(value, list) else value, None, whitespace)

    def says_same(self, other: Constraint) -> bool:
        """Return whether both allow the same texts, as their sources are equal."""
        both = (self, other)
        first, second = ((one.kind, one.source, one.whitespace and one.whitespace[1]) for one in both)
        return first == second

    def compile(self) -> StructuredText:
        """Compile the grammar; a large one takes seconds.

        Raises:
            RequestError, HttpError: If the source is wrong.
        """
        n_characters = _n_characters(self.source)
        if n_characters > MAX_CHARACTERS:
            raise OptionError(self.path, n_characters, f"at most {MAX_CHARACTERS} characters")
        has_spaces = self.kind != "json" or _has_spaces(self.whitespace)
        with grammar_errors_at(self.path, self.schema):
            return StructuredText(self.path, _grammars.get(self.kind, self.source, has_spaces=has_spaces))


def _has_spaces(whitespace: tuple[str, str] | None) -> bool:
    """Return whether white space may be the spaces of `json.dumps`, or must be empty.

    Raises `HttpError` for a pattern that does not match the empty text: there is no
    layout with white space in all places.
    """
    if whitespace is None:
        return True
    path, pattern = whitespace
    with grammar_errors_at(path):
        blank = Grammar.from_regex(pattern)
        if not blank.accepts(""):
            raise unsupported(path, "white space that must not be empty is not offered; use one such as '[ ]?'")
        return bool(blank.accepts(" "))


def _read_object(text: str) -> dict[str, Any] | None:
    """Return the object of a JSON text, or None.

    A text that is not JSON, repeats a name or is too long gives None: compiling it as a
    JSON Schema raises the error, with its line and column.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        value = parse_schema(text)
    except GrammarError:
        return None
    return value if isinstance(value, dict) else None


def _write_schema(schema: Mapping[str, Any], *, closes: bool) -> str:
    """Return the text of a JSON Schema; `GrammarError` if it is too deep.

    Args:
        schema: The schema.
        closes: See `Constraint.of`.
    """
    try:
        return json.dumps(close_objects(schema) if closes else schema, separators=(",", ":"))
    except RecursionError as error:
        raise GrammarError("the schema is nested too deeply") from error


_OF_SCHEMAS = ("properties", "$defs", "definitions")
_IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_COMPOSING = {"anyOf", "oneOf", "allOf", "$ref"}
_OPEN = {"additionalProperties", "patternProperties"}
_KEPT_WHOLE = {"if", "not", "dependentSchemas", "dependencies", "unevaluatedProperties", "$dynamicRef"}


def close_objects(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a JSON Schema whose objects have no properties but the declared ones.

    Clients rely on that, as llama-server and vLLM do it: a model that may invent
    further properties seldom ends. Whatever the result allows, the schema allows too.
    Objects that state `additionalProperties` keep it. A schema that joins several
    objects by `allOf`, `$ref` and the like is returned as it is, since closed parts of
    one object would exclude each other.
    """
    closed = dict(schema)
    left, objects = [closed], []
    while left:
        one = left.pop()
        is_joined = "properties" in one and not _COMPOSING.isdisjoint(one)
        has_choice = "oneOf" in one and "discriminator" not in one
        has_parts = isinstance(one.get("allOf"), list) and len(one["allOf"]) > 1
        if is_joined or has_choice or has_parts or not _KEPT_WHOLE.isdisjoint(one):
            return schema
        if isinstance(one.get("properties"), dict) and _OPEN.isdisjoint(one):
            objects.append(one)
        left += _copy_children(one)
    for one in objects:
        required = one.get("required") or ()
        n_least = one.get("minProperties") or 0
        if (
            isinstance(required, list | tuple)
            and {*map(str, required)} <= one["properties"].keys()
            and (isinstance(n_least, int) and n_least <= len(one["properties"]))
        ):
            one["additionalProperties"] = False
    return closed


def _copy_children(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Replace the schemas within a schema by copies, and return these."""
    copies = []

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            value = value.copy()
            copies.append(value)
        return value

    for name, value in schema.items():
        if name in _OF_SCHEMAS and isinstance(value, dict):
            schema[name] = {key: copied(inner) for key, inner in value.items()}
        elif name in _IN_LISTS and isinstance(value, list):
            schema[name] = [copied(inner) for inner in value]
        elif name == "items":
            schema[name] = copied(value)
    return copies


class _GrammarCache:
    """The compiled grammars of recent requests. Any thread may use it.

    Grammars grow with use, so their bytes are counted at each request for one. The last
    one is always kept.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, Any, bool], Grammar] = OrderedDict()

    def get(self, kind: str, source: Any, *, has_spaces: bool) -> Grammar:
        """Return the grammar of a constraint, compiled now or before."""
        key = (kind, source, has_spaces)
        with self._lock:
            grammar = self._kept.get(key)
        if grammar is None:
            grammar = _compile(kind, source, has_spaces=has_spaces)
        with self._lock:
            self._kept[key] = grammar
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and (len(self._kept) > _MAX_KEPT or self._n_bytes() > _MAX_KEPT_BYTES):
                self._kept.popitem(last=False)
        return grammar

    def _n_bytes(self) -> int:
        return sum(_BYTES_A_CHARACTER * _n_characters(key[1]) + one.n_bytes for key, one in self._kept.items())


_grammars = _GrammarCache()


def _n_characters(source: str | tuple[str, ...]) -> int:
    return len(source) if isinstance(source, str) else sum(map(len, source))


def _compile(kind: str, source: Any, *, has_spaces: bool) -> Grammar:
    """Return the compiled grammar of a constraint."""
    if kind == "choice":
        return Grammar.from_choices(source)
    if kind == "regex":
        return Grammar.from_regex(source)
    if kind == "grammar":
        is_lark = _LARK.search(source) is not None and _GBNF.search(source) is None
        return Grammar.from_lark(source) if is_lark else Grammar.from_gbnf(source)
    return Grammar.from_json_schema(source, spacing="json" if has_spaces else "none", name=kind)


@contextmanager
def grammar_errors_at(path: str, schema: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn a grammar's errors in the `with` block into an `HttpError` about a field.

    The message shows line and column without the source's line.

    Args:
        path: Path to the field.
        schema: The JSON Schema that it holds, whose parts the error names.
    """
    try:
        yield
    except GrammarError as error:
        with errors_at(path + _path_in(schema, error.pointer)):
            raise GrammarError(error.reason, line=error.line, column=error.column) from error
    except TokenRangeError:
        with errors_at(path):
            raise


def _path_in(schema: object, pointer: str) -> str:
    """Return the path to a part of a JSON Schema, such as `.properties.a.pattern`.

    It ends before a step that does not exist. Long names are replaced by their index.
    """
    path = ""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and name in schema:
            path += f".{name}" if len(name) <= MAX_QUOTED else f"[{[*schema].index(name)}]"
            schema = schema[name]
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            path += f"[{name}]"
            schema = schema[int(name)]
        else:
            break
    return path


def _is_given(kind: str, value: object) -> bool:
    """Return whether the value of a field constrains; `json_object` may be false."""
    return value is not None and not (kind == "json_object" and value is False)


def _schema_requiring(kind: str) -> JsonDict:
    """Return the JSON Schema of an object with a value for `kind`."""
    return {"required": [kind], "properties": {kind: {"not": {"enum": [None, False]}}}}


class StructuredOutputs(ClosedModel):
    """A constraint on the text: exactly one of these fields."""

    model_config = ConfigDict(
        title=f"an object with exactly one of {_LISTED}",
        json_schema_extra={"allOf": [{"oneOf": [_schema_requiring(kind) for kind in KINDS]}]},
    )

    structural_tag: Annotated[Any, NotOffered()] = None
    disable_any_whitespace: Annotated[Any, NotOffered((False, True))] = None  # JSON has one layout here
    disable_additional_properties: Annotated[Any, NotOffered((False,))] = None
    disable_fallback: Annotated[Any, NotOffered((False,))] = None
    choice: Choices | None = None
    """One of these texts."""
    regex: Source | None = None
    """A text that this regular expression matches as a whole."""
    json_: Schema | None = Field(None, alias="json")
    """JSON that this JSON Schema allows."""
    grammar: Source | None = None
    """A text of this GBNF, with the start rule `root`, or Lark with `start`."""
    json_object: bool | None = None
    """Any object of JSON."""
    whitespace_pattern: Source | None = None
    """A regular expression of the white space that JSON may have between its parts."""

    def constraint(self, path: str) -> Constraint:
        """Return the constraint; raise `HttpError` if there is not exactly one.

        Args:
            path: Path to this object in the request.
        """
        sources = {kind: getattr(self, "json_" if kind == "json" else kind) for kind in KINDS}
        kinds = [kind for kind, value in sources.items() if _is_given(kind, value)]
        if len(kinds) != 1:
            several = " and ".join(f"`{kind}`" for kind in kinds) or "none"
            raise HttpError(400, OptionError.code, f"{path} has {several}: expected exactly one of {_LISTED}", path)
        (kind,) = kinds
        pattern = self.whitespace_pattern
        whitespace = None if pattern is None else (f"{path}.whitespace_pattern", pattern)
        return Constraint.of(f"{path}.{kind}", kind, sources[kind], whitespace)


class NamedSchema(WireModel):
    """A JSON Schema with a name, as OpenAI's API has it."""

    model_config = ConfigDict(title="an object with a `schema`")

    name: str | None = None
    """Its name, which does not influence the answer."""
    description: str | None = None
    """What it is for, which does not influence the answer."""
    schema_: Schema | None = Field(None, alias="schema")
    """The JSON Schema."""
    strict: bool | None = None
    """Whether the schema is enforced; it always is."""


class ResponseFormat(NamedSchema):
    """The format of an answer."""

    model_config = ConfigDict(
        title="an object with a `type`, such as {'type': 'json_schema', 'json_schema': {'schema': …}}"
    )

    type: Literal["text", "json_object", "json_schema"]
    """Any text, any object of JSON, or JSON that a schema allows."""
    json_schema: NamedSchema | None = None
    """The schema; it may also lie in the format itself."""

    def constraints(self, path: str) -> Iterator[Constraint]:
        """Yield what the format demands, nothing for text.

        Raises `RequestError` for a type without its schema, and for text with one.

        Args:
            path: Path to this object in the request.
        """
        schemas = {f"{path}.schema": self.schema_}
        if self.json_schema is not None:
            schemas[f"{path}.json_schema.schema"] = self.json_schema.schema_
        given = {where: schema for where, schema in schemas.items() if schema is not None}
        if self.type == "text" and given:
            raise IncompatibleOptionsError(next(iter(given)), f"the type 'text' of {path}", "give type='json_schema'")
        if self.type == "json_schema" and not given:
            if path == "response_format" and self.json_schema is None:
                raise OptionError(f"{path}.json_schema", None, "an object with a `schema`")
            raise OptionError([*schemas][-1], None, "a JSON Schema")
        for where, schema in given.items():
            yield Constraint.of(where, "json", schema)
        if self.type == "json_object" and not given:
            yield Constraint.of(path, "json_object", True)  # noqa: FBT003 - the field's value


_KINDS_OF_FIELDS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
    "grammar": "grammar",
    "json_schema": "json",
}
"""Kinds of constraints by the fields that hold nothing else."""
STRUCTURED_OUTPUTS = "structured_outputs"
_FIELDS = ("response_format", STRUCTURED_OUTPUTS, *_KINDS_OF_FIELDS)


class StructuredFields(WireModel):
    """The fields that constrain the text of an answer."""

    response_format: ResponseFormat | None = None
    """The format of the answer, as in OpenAI's API."""
    structured_outputs: StructuredOutputs | None = None
    """The texts that are allowed, as a grammar, a schema or a list."""
    guided_json: Schema | None = None
    """JSON that this JSON Schema allows, under vLLM's older name."""
    guided_regex: Source | None = None
    """A text that this regular expression matches, under vLLM's older name."""
    guided_choice: Choices | None = None
    """One of these texts, under vLLM's older name."""
    guided_grammar: Source | None = None
    """A text of this grammar, under vLLM's older name."""
    guided_json_object: bool | None = None
    """Any object of JSON, under vLLM's older name."""
    guided_whitespace_pattern: Source | None = None
    """The white space that JSON may have, as in `structured_outputs`."""
    guided_decoding_backend: Ignored = None
    grammar_lazy: Annotated[Any, NotOffered((False,))] = None
    grammar_triggers: Annotated[Any, NotOffered(([],))] = None
    grammar: Source | None = None
    """A text of this grammar, under llama-server's name."""
    json_schema: Schema | None = None
    """JSON that this JSON Schema allows, under llama-server's name."""

    def constraints(self) -> Iterator[Constraint]:
        """Yield the constraint of each field that states one."""
        if self.response_format is not None:
            yield from self.response_format.constraints("response_format")
        if self.structured_outputs is not None:
            yield self.structured_outputs.constraint(STRUCTURED_OUTPUTS)
        for field, kind in _KINDS_OF_FIELDS.items():
            value = getattr(self, field)
            if _is_given(kind, value) and (field, value) != ("grammar", ""):
                yield Constraint.of(field, kind, value)

    def structured_text(self) -> StructuredText | None:
        """Compile the constraint on the text; None if the request has none.

        Raises:
            RequestError, HttpError: If a source is wrong, or if two fields differ.
        """
        pattern = self.guided_whitespace_pattern
        if pattern is not None and len(pattern) > MAX_CHARACTERS:
            raise OptionError(
                "guided_whitespace_pattern", Amount(f"{len(pattern)} characters"), f"at most {MAX_CHARACTERS}"
            )
        whitespace = None if pattern is None else ("guided_whitespace_pattern", pattern)
        found = [replace(one, whitespace=one.whitespace or whitespace) for one in self.constraints()]
        for other in found[1:]:
            if not found[0].says_same(other):
                raise IncompatibleOptionsError(
                    other.path, OptionRef(found[0].path), "they constrain the text differently; give one of them"
                )
        return found[0].compile() if found else None


def constraining_field(data: Mapping[str, Any]) -> str | None:
    """Return the first field of a body that may constrain the text, or None."""
    return next((name for name in _FIELDS if data.get(name) is not None), None)
