"""The base of the models that declare bodies of requests, and errors about them.

A field is declared once, with its type, its bounds and what it means: the declaration
reads the field, refuses what is wrong and is its part of OpenAPI's document. Null is as
if a field were not given.

Errors say what is allowed as the document does; the `title` of a field says it where
its type does not. Texts of pydantic are not used, because they may hold what was sent.
Lists stop at the first wrong item (`Items`), and what an option of the server bounds is
counted before that (`UpTo`), so a wrong body costs no more than a right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    Tag,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic import GetCoreSchemaHandler as CoreHandler
from pydantic import GetJsonSchemaHandler as JsonHandler
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import MAX_QUOTED, OptionError, TextError, clip, of_value
from selectrie.options.checks import Bounds, Names, numbers_of, options_of
from selectrie.server.http_errors import HttpError, message_of, unsupported
from selectrie.server.options import ServerOptions

M = TypeVar("M", bound=BaseModel)

MAX_TOKENIZED_BYTES = 1 << 20
"""Maximum size of texts that are encoded in whole, whatever the context holds."""
REFERENCE = "#/components/schemas/{model}"
"""Where the schema of a model is in OpenAPI's document."""
_MAX_NAMED = 8
"""Maximum number of unknown fields that warnings name."""
_LIMIT = "x-limit"
"""Key of a schema with the option of the server that bounds the value."""
_NOUNS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class WireModel(BaseModel):
    """An object of a request. Types are strict, and unknown fields are left out."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class Body(WireModel):
    """The body of a request."""

    model: str | None = None
    """Name of the model (`GET /v1/models`)."""


class ClosedModel(WireModel):
    """An object of a request that has no other fields; errors name the first."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        names = _names_in(cls)
        if isinstance(data, dict) and not data.keys() <= names.keys():
            unknown = next(name for name in data if name not in names)
            offered = [name for name, is_offered in names.items() if is_offered]
            raise OptionError(f".{unknown}", data[unknown], f"one of the fields {', '.join(offered)}")
        return data


@cache
def _names_in(kind: type[BaseModel]) -> dict[str, bool]:
    """Return the names of the fields of an object, and whether each is offered."""
    return {
        field.alias or name: not any(isinstance(one, NotOffered) for one in field.metadata)
        for name, field in kind.model_fields.items()
    }


def fields_of(kind: type[BaseModel], **names: str) -> dict[str, str]:
    """Return the fields of a body by the names of the options that they become.

    Args:
        kind: The model of the body. Most of its fields have an option's name.
        names: Other names of options.
    """
    return {name: name for name, is_offered in _names_in(kind).items() if is_offered} | names


class UnsupportedError(ValueError):
    """A value is known and not offered; the message says what to do.

    Attributes:
        code: Code of the error.
        below: The path from the field to the value.
    """

    def __init__(self, why: str, code: str = "unsupported", below: str = "") -> None:
        super().__init__(why)
        self.code, self.below = code, below


@dataclass(frozen=True, slots=True, eq=False)
class NotOffered:
    """Marks a known field that is not offered.

    Attributes:
        neutral: The values, beside null, that ask for nothing.
        remedy: What to do.
        code: Code of the error.
    """

    neutral: tuple[object, ...] = ()
    remedy: str = "leave the field out"
    code: str = "unsupported"

    def __get_pydantic_core_schema__(self, source: Any, handler: CoreHandler) -> Any:
        return BeforeValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, _core: Any, _handler: JsonHandler) -> dict[str, Any]:
        return {"enum": [None, *self.neutral], "description": f"Not offered; {self.remedy}."}

    def _check(self, value: object) -> object:
        if value is not None and (type(value) is bool, value) not in [(type(one) is bool, one) for one in self.neutral]:
            raise UnsupportedError(f"{of_value(value)} is not offered; {self.remedy}", self.code)
        return value


def one_of(names: tuple[str, ...]) -> GetPydanticSchema:
    """Return the mark of a text that is one of some names."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(Literal[names]))


@dataclass(frozen=True, slots=True)
class UpTo:
    """Marks a number, or a list, that an option of the server bounds.

    Attributes:
        option: Name of the option in `ServerOptions`.
        what: What a list holds, in errors.
    """

    option: str
    what: str = "of them"

    def __get_pydantic_core_schema__(self, source: Any, handler: CoreHandler) -> Any:
        return BeforeValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: Any, handler: JsonHandler) -> dict[str, Any]:
        return {**handler(core), _LIMIT: self.option}

    def _check(self, value: object, info: ValidationInfo) -> object:
        limit: int = getattr(info.context, self.option)
        if isinstance(value, list | dict) and len(value) > limit:
            raise OptionError("", len(value), f"at most {limit} {self.what}")
        if isinstance(value, int) and value > limit:
            raise ValueError
        return value


TAG = "\0"
"""What the tag of a member of a union begins with, unlike the keys of clients."""


def _by_type(union: Any, handler: CoreHandler) -> Any:
    tagged: Any = Annotated  # for mypy, which reads subscripts of it as types
    members = [tagged[one, Tag(_tag_of(one))] for one in get_args(union)]
    return handler.generate_schema(
        tagged[reduce(or_, members), Discriminator(lambda value: TAG + type(value).__name__)]
    )


def _tag_of(kind: Any) -> str:
    """Return the tag of the type of JSON that a type reads, by its name in Python."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    name: str = (get_origin(kind) or kind).__name__
    return TAG + (name if name in {"str", "list", "dict", "int", "bool"} else "dict")  # of models


BY_TYPE = GetPydanticSchema(_by_type)
"""Marks a union whose member the type of a value in JSON decides."""
T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]
"""The type of a list of which errors name the first wrong item."""
Ignored = Annotated[Any, Field(description="Taken, and without effect on the answer.")]
"""The type of a field that says nothing about the answer."""


def _encodable(text: str) -> str:
    to_bytes(text, "")
    return text


def _encodable_in(value: Any) -> Any:
    """Return a value of JSON; raise `TextError` for a text in it with its path."""
    rest = [("", value)]
    while rest:
        path, one = rest.pop()
        if isinstance(one, str):
            to_bytes(one, path)
        elif isinstance(one, dict):
            rest += [(f"{path}.{key}", below) for key, below in one.items()]
        elif isinstance(one, list):
            rest += [(f"{path}[{index}]", below) for index, below in enumerate(one)]
    return value


EncodableText = Annotated[str, AfterValidator(_encodable)]
"""The type of a text that is tokenized."""
JsonTexts = AfterValidator(_encodable_in)
"""Marks a value of JSON whose texts are tokenized."""
TextOrJson = Annotated[
    EncodableText | list[Any] | dict[Any, Any], BY_TYPE, Field(title="a text, or an object or array of JSON")
]
"""The type of instructions and descriptions: text, parts of text, or JSON as text."""
TokenId = Annotated[int, Field(ge=0, title="a token id (a whole number of at least 0)")]


def bounded(bounds: Bounds, **further: Any) -> Any:
    """Return an optional field with the bounds of an option of a record."""
    if bounds.min_value == math.ulp(0.0):
        further["gt"] = 0
    elif bounds.min_value > -math.inf:
        further.setdefault("ge", bounds.min_value)
    if bounds.max_value < math.inf:
        further["le"] = bounds.max_value
    return Field(None, title=bounds.remedy or None, **further)


def with_options(record: Any, *names: str, **others: str) -> Callable[[type[M]], type[M]]:
    """Return a decorator that adds options of a record to a body.

    Args:
        record: The record of options.
        names: Names of options; none are all that are numbers.
        others: The options by further names of fields.
    """

    def extend(kind: type[M]) -> type[M]:
        added: dict[str, Any] = {}
        for name, option in (others | {name: name for name in names or numbers_of(record)}).items():
            declared = options_of(record)[option]
            if name in kind.model_fields:
                continue
            if isinstance(declared.allowed, Names):
                allowed = Annotated[str, one_of(declared.allowed.names)]
                added[name] = (allowed | None, Field(None, description=declared.help))
            else:
                added[name] = (declared.kind | None, bounded(declared.allowed, description=declared.help))
        return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **added)

    return extend


class _Schemas(GenerateJsonSchema):
    """Makes schemas without titles but those that are declared."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


@cache
def _schemas_of(*kinds: type[BaseModel]) -> dict[str, Any]:
    """Return the schemas of models and of all that they name."""
    both = [(kind, "validation") for kind in kinds]
    _, page = models_json_schema(both, ref_template=REFERENCE, schema_generator=_Schemas)  # type: ignore[arg-type]
    schemas: dict[str, Any] = page["$defs"]
    return schemas


def schemas_of(kinds: Iterable[type[BaseModel]], options: ServerOptions) -> dict[str, Any]:
    """Return the schemas of models and of all that they name, with limits."""
    schemas: dict[str, Any] = _limited(_schemas_of(*kinds), options)
    return schemas


def _limited(schema: Any, options: ServerOptions) -> Any:
    """Return a schema with numbers in place of names of options."""
    if isinstance(schema, list):
        return [_limited(one, options) for one in schema]
    if not isinstance(schema, dict):
        return schema
    limited = {key: _limited(one, options) for key, one in schema.items() if key != _LIMIT}
    if _LIMIT in schema:
        key = {"integer": "maximum", "array": "maxItems", "object": "maxProperties"}[schema["type"]]
        limited[key] = getattr(options, schema[_LIMIT])
    return limited


def members_of(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the members of a union, what a reference names, or itself.

    Null is no member if it has no title.
    """
    if "$ref" in schema:
        return [schemas[schema["$ref"].rpartition("/")[2]]]
    members = schema.get("anyOf", schema.get("oneOf", [schema]))
    return [one for one in members if one.get("type") != "null" or "title" in one]


def branches(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the members of a union, with nested unions expanded."""
    for one in members_of(schema, schemas):
        yield from [one] if one is schema else branches(one, schemas)


def read(kind: type[M], data: Mapping[str, Any], options: ServerOptions) -> M:
    """Return a body as its model has it.

    Raises `OptionError` or `HttpError` for the first field that is wrong.
    """
    try:
        return kind.model_validate(data, context=options)
    except ValidationError as error:
        raise _refusal(error, data, kind, options) from error


def _refusal(
    error: ValidationError, data: Mapping[str, Any], kind: type[BaseModel], options: ServerOptions
) -> Exception:
    """Return the error about a field; one that is not offered comes before others."""
    details = error.errors(include_url=False, include_input=False)
    first = next((one for one in details if isinstance(_cause(one), UnsupportedError)), details[0])
    schemas = _schemas_of(kind)
    path, value, schema = _place(first, data, schemas[kind.__name__], schemas)
    cause = _cause(first)
    if isinstance(cause, UnsupportedError):
        return unsupported(path + cause.below, str(cause), code=cause.code)
    if isinstance(cause, OptionError):
        return OptionError(path + cause.name, cause.value, cause.allowed)
    if first["type"] == "string_unicode":
        try:
            to_bytes(value, "")
        except TextError as wrong:
            cause = wrong
    if isinstance(cause, TextError):
        where = path + cause.what
        return HttpError(400, cause.code, message_of(TextError(where, cause.reason)), clip(where, MAX_QUOTED))
    return OptionError(
        path, len(value) if first["type"] == "too_long" else value, _allowed(_limited(schema, options), schemas)
    )


def _cause(error: Mapping[str, Any]) -> object:
    return error.get("ctx", {}).get("error")


def _place(
    error: Mapping[str, Any], value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any]
) -> tuple[str, Any, Mapping[str, Any]]:
    """Return the path to what an error is about, the value, and its schema.

    Members of unions are no part of a path. A name that is too long to be quoted is
    replaced by its index.
    """
    path = ""
    for depth, part in enumerate(error["loc"], 1):
        if isinstance(part, str) and part.startswith(TAG):
            continue
        if isinstance(value, list) and isinstance(part, int):
            path, value = f"{path}[{part}]", value[part]
        elif isinstance(value, dict) and part in value:
            path += f".{part}" if len(part) <= MAX_QUOTED else f"[{[*value].index(part)}]"
            value = value[part]
        elif error["type"] == "missing" and depth == len(error["loc"]):
            path, value = f"{path}.{part}", None
        else:
            continue
        schema = {"anyOf": list(_below(schema, part, schemas))}
    return path.removeprefix("."), value, schema


def _below(schema: Mapping[str, Any], part: str | int, schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what the schema of an array or object says about a part of it."""
    for one in branches(schema, schemas):
        if isinstance(part, int):
            yield from [one["items"]] if "items" in one else []
        elif part in one.get("properties", ()):
            yield one["properties"][part]
        elif isinstance(one.get("additionalProperties"), dict):
            yield one["additionalProperties"]


def _allowed(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return what a schema allows, in words."""
    if "title" in schema:
        return str(schema["title"])
    members = members_of(schema, schemas)
    if members != [schema]:
        return " or ".join(dict.fromkeys(_allowed(one, schemas) for one in members))
    names = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if names:
        return "one of " + ", ".join(map(repr, names))
    noun = _NOUNS.get(schema.get("type", ""), "a value")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return noun
    return f"{noun} of at least {low}" if high is None else f"{noun} from {low} to {high}"


def check_tokenized(name: str, n_bytes: int) -> None:
    """Raise `OptionError` for a text that would be encoded whole and is too long.

    Encoding cannot be stopped when the client leaves.
    """
    if n_bytes > MAX_TOKENIZED_BYTES:
        raise OptionError(name, f"{n_bytes} bytes", f"at most {MAX_TOKENIZED_BYTES} bytes of text; send it in parts")


def unknown_fields(names: Iterable[str], known: Collection[str], of: str = "") -> list[str]:
    """Return a warning for each name of a field that is not known.

    The first few are named, because warnings are sent in a header.

    Args:
        names: The names in the request.
        known: All names that are known.
        of: What has the fields, with a space before it.
    """
    unknown = [name for name in names if name not in known]
    warnings = [f"the field {of_value(name[:40])}{of} is unknown and was ignored" for name in unknown[:_MAX_NAMED]]
    n_more = len(unknown) - len(warnings)
    return [*warnings, f"{n_more} more fields{of} are unknown and were ignored"] if n_more else warnings
