"""Base of the models that declare bodies of requests, and errors about them.

A field is declared once, with its type, its bounds and its meaning: the declaration
parses the field, refuses wrong values and appears in OpenAPI's document. Null counts as
an absent field.

Errors state what is allowed in the document's words; a field's `title` states it where
the type does not. Messages of pydantic are not used, because they may hold what was
sent. Lists stop at the first wrong item (`Items`), and lengths that an option of the
server bounds are checked before (`UpTo`), so a wrong body costs no more than a right
one.
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
from selectrie.errors import (
    MAX_QUOTED,
    MessageText,
    OptionError,
    TextError,
    UnknownArgumentError,
    as_json,
    clip,
    of_value,
    renamed,
)
from selectrie.options.checks import SEED, Bounds, Names, numbers_of, options_of
from selectrie.server.fields.names import advice_on_names
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, message_of, unsupported

M = TypeVar("M", bound=BaseModel)

MAX_TOKENIZED_BYTES = 1 << 20
"""Maximum size in bytes of a request's texts that are tokenized in one piece."""
MAX_ARGUMENTS = 256
"""Maximum number of arguments of the chat template in a request."""
REFERENCE = "#/components/schemas/{model}"
"""Reference to the schema of a model in OpenAPI's document."""
_MAX_NAMED = 8
"""Maximum number of unknown fields that warnings name."""
_LIMIT = "x-limit"
"""Key in a schema for the name of the server's option that bounds the value."""
MEDIA = ("input_image", "image_url", "image", "input_audio", "audio", "input_file", "file", "video", "video_url")
"""Types of parts of messages that are not text."""
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
    """An object in a request. Types are strict, and unknown fields are dropped."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class Body(WireModel):
    """The body of a request."""

    model: str | None = None
    """Name of the model (`GET /v1/models`)."""


class ClosedModel(WireModel):
    """An object in a request in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _check_known(cls, data: Any) -> Any:
        """Return the data of a body; raise `OptionError` for an unknown field."""
        names = _names_in(cls)
        if isinstance(data, dict) and not data.keys() <= names.keys():
            unknown = next(name for name in data if name not in names)
            offered = [name for name, is_offered in names.items() if is_offered]
            raise OptionError(f".{unknown}", data[unknown], f"one of the fields {', '.join(offered)}")
        return data


@cache
def _names_in(kind: type[BaseModel]) -> dict[str, bool]:
    """Return whether each field of a model is offered, by the field's name in JSON."""
    return {
        field.alias or name: not any(isinstance(one, NotOffered) for one in field.metadata)
        for name, field in kind.model_fields.items()
    }


def fields_of(kind: type[BaseModel], **names: str) -> dict[str, str]:
    """Return the names of a body's offered fields by the options that they set.

    Args:
        kind: The model of the body. Most of its fields have the option's name.
        names: Further entries: names of fields by option.
    """
    return {name: name for name, is_offered in _names_in(kind).items() if is_offered} | names


class UnsupportedError(ValueError):
    """Raised by validators for a known value that is not offered.

    Attributes:
        code: Code of the error.
        below: Path from the field to the value.
    """

    def __init__(self, why: str, code: str = "unsupported", below: str = "") -> None:
        super().__init__(why)
        self.code, self.below = code, below


@dataclass(frozen=True, slots=True, eq=False)
class NotOffered:
    """Marks a known field that is not offered.

    Attributes:
        neutral: Values, besides null, that are accepted because they ask for nothing.
        remedy: Advice in the error.
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
        """Return a value if it is null or neutral, or raise `UnsupportedError`."""
        if value is not None and (type(value) is bool, value) not in [(type(one) is bool, one) for one in self.neutral]:
            raise UnsupportedError(f"{as_json(value)} is not offered; {self.remedy}", self.code)
        return value


def one_of(names: tuple[str, ...]) -> GetPydanticSchema:
    """Return the annotation for a text that must be one of `names`."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(Literal[names]))


@dataclass(frozen=True, slots=True)
class UpTo:
    """Marks a number, or the length of a list, that an option of the server bounds.

    Attributes:
        option: Name of the option in `ServerOptions`.
        what: Noun for the items of a list, for errors.
    """

    option: str
    what: str = "of them"

    def __get_pydantic_core_schema__(self, source: Any, handler: CoreHandler) -> Any:
        return BeforeValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: Any, handler: JsonHandler) -> dict[str, Any]:
        return {**handler(core), _LIMIT: self.option}

    def _check(self, value: object, info: ValidationInfo) -> object:
        """Return a value; raise an error if it is above the limit in the options."""
        limit: int = getattr(info.context, self.option)
        if isinstance(value, list | dict) and len(value) > limit:
            raise OptionError("", len(value), f"at most {limit} {self.what}")
        if isinstance(value, int) and value > limit:
            raise ValueError
        return value


TAG = "\0"
"""Prefix of the tags of a union's members; no key of a client begins with it."""


_ANNOTATED: Any = Annotated  # for mypy, which reads subscripts of it as types


def _discriminate_by_type(union: Any, handler: CoreHandler) -> Any:
    """Return the core schema of a union whose member the value's JSON type picks."""
    members = [_ANNOTATED[one, Tag(_tag_of(one))] for one in get_args(union)]
    return handler.generate_schema(
        _ANNOTATED[reduce(or_, members), Discriminator(lambda value: TAG + type(value).__name__)]
    )


def _tag_of(kind: Any) -> str:
    """Return the tag of a union's member: its Python type for JSON values."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    name: str = (get_origin(kind) or kind).__name__
    return TAG + (name if name in {"str", "list", "dict", "int", "bool"} else "dict")  # of models


BY_TYPE = GetPydanticSchema(_discriminate_by_type)
"""Marks a union of which the JSON type of the value picks the member."""
T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]
"""Type of a list whose validation stops at the first wrong item."""
Ignored = Annotated[Any, Field(description="Taken, and without effect on the answer.")]
"""Type of a field that is accepted and does not influence the answer."""


def _check_encodable(text: str) -> str:
    """Return a text; raise `TextError` if it cannot be encoded as UTF-8."""
    to_bytes(text, "")
    return text


def _check_json_texts(value: Any) -> Any:
    """Return a JSON value; raise `TextError` if a text in it is not UTF-8.

    The error has the path to the text.
    """
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


EncodableText = Annotated[str, AfterValidator(_check_encodable)]
"""Type of a text that is tokenized, so it must be encodable as UTF-8."""
JsonTexts = AfterValidator(_check_json_texts)
"""Marks a JSON value whose texts are tokenized, so they must be encodable."""
TextOrJson = Annotated[
    EncodableText | list[Any] | dict[Any, Any], BY_TYPE, Field(title="a text, or an object or array of JSON")
]
"""Type of instructions and descriptions: a text, parts of text, or JSON."""


def _check_priority(priority: int, info: ValidationInfo) -> int:
    """Return a priority; raise an error if this server takes none."""
    if priority and not info.context.allow_priority:  # type: ignore[union-attr]  # `wire.read` gives it
        raise UnsupportedError("this server does not take it; the operator can start it with --allow-priority")
    return priority


def _reject_template(args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of the chat template, which must not contain a template."""
    if "chat_template" in args:
        raise UnsupportedError("a request cannot bring a template; the model's own is used", below=".chat_template")
    return args


Priority = Annotated[int, AfterValidator(_check_priority), Field(title="a whole number; a lower one goes first")]
"""Type of a request's priority, which the server takes if its operator allows it."""
TemplateArgs = Annotated[
    dict[str, Any],
    AfterValidator(_reject_template),
    JsonTexts,
    Field(
        title=f"an object of at most {MAX_ARGUMENTS} arguments of the chat template",
        max_length=MAX_ARGUMENTS,
        json_schema_extra={"not": {"required": ["chat_template"]}},
    ),
]
"""Type of the arguments of the model's chat template."""
Seed = Annotated[int, Field(ge=int(SEED.min_value), le=int(SEED.max_value), title=SEED.remedy)]
"""Type of the seed of draws."""
TokenId = Annotated[int, Field(ge=0, title="a token id (a whole number of at least 0)")]


_NONE: Mapping[str, str] = {}


def bounded(bounds: Bounds, **further: Any) -> Any:
    """Return an optional pydantic field with the bounds of an engine option.

    Args:
        bounds: The bounds, and how errors word them.
        further: Further arguments of `pydantic.Field`.
    """
    if bounds.min_value == math.ulp(0.0):
        further["gt"] = 0
    elif bounds.min_value > -math.inf:
        further.setdefault("ge", bounds.min_value)
    if bounds.max_value < math.inf:
        further["le"] = bounds.max_value
    return Field(None, title=MessageText(bounds.remedy).worded(renamed(_NONE)) or None, **further)


def with_options(
    record: Any, *names: str, others: Mapping[str, str] = _NONE, limits: Mapping[str, str] = _NONE
) -> Callable[[type[M]], type[M]]:
    """Return a class decorator that adds options of a record to a body.

    Args:
        record: The class of options.
        names: Names of options to add. If there are none, all numbers are added.
        others: Names of options by additional field names that set them.
        limits: Options of the server by the options of the record that they bound.

    A field of the body itself comes first, unless it is marked `NotOffered`.
    """

    def extend(kind: type[M]) -> type[M]:
        added: dict[str, Any] = {}
        for name, option in {**others, **{name: name for name in names or numbers_of(record)}}.items():
            declared = options_of(record)[option]
            own = kind.model_fields.get(name)
            if own is not None and not any(isinstance(one, NotOffered) for one in own.metadata):
                continue
            if isinstance(declared.allowed, Names):
                allowed = Annotated[str, one_of(declared.allowed.names)]
                added[name] = (allowed | None, Field(None, description=declared.help))
            elif option in limits:
                number: Any = _ANNOTATED[declared.kind, Field(ge=declared.allowed.min_value), UpTo(limits[option])]
                added[name] = (number | None, Field(None, description=declared.help))
            elif isinstance(declared.allowed, Bounds):
                added[name] = (declared.kind | None, bounded(declared.allowed, description=declared.help))
            else:
                added[name] = (bool | None, Field(None, description=declared.help))
        return create_model(kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **added)

    return extend


class _Schemas(GenerateJsonSchema):
    """Generates schemas that have only declared titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


@cache
def _schemas_of(*kinds: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schemas of models and of all models that they refer to."""
    both = [(kind, "validation") for kind in kinds]
    _, page = models_json_schema(both, ref_template=REFERENCE, schema_generator=_Schemas)  # type: ignore[arg-type]
    schemas: dict[str, Any] = page["$defs"]
    return schemas


def schemas_of(kinds: Iterable[type[BaseModel]], options: ServerOptions) -> dict[str, Any]:
    """Return the JSON schemas of models and of all models that they refer to.

    Limits are taken from `options`.
    """
    schemas: dict[str, Any] = _insert_limits(_schemas_of(*kinds), options)
    return schemas


def _insert_limits(schema: Any, options: ServerOptions) -> Any:
    """Return a schema in which names of options are replaced by the limits they set."""
    if isinstance(schema, list):
        return [_insert_limits(one, options) for one in schema]
    if not isinstance(schema, dict):
        return schema
    limited = {key: _insert_limits(one, options) for key, one in schema.items() if key != _LIMIT}
    if _LIMIT in schema:
        key = {"integer": "maximum", "array": "maxItems", "object": "maxProperties"}[schema["type"]]
        limited[key] = getattr(options, schema[_LIMIT])
    return limited


def union_members(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a union's members, the schema behind a reference, or the schema itself.

    A null member is left out unless it has a title.
    """
    if "$ref" in schema:
        return [schemas[schema["$ref"].rpartition("/")[2]]]
    members = schema.get("anyOf", schema.get("oneOf", [schema]))
    return [one for one in members if one.get("type") != "null" or "title" in one]


def flat_union_members(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the members of a union, with nested unions and references expanded."""
    for one in union_members(schema, schemas):
        yield from [one] if one is schema else flat_union_members(one, schemas)


def read(kind: type[M], data: Mapping[str, Any], options: ServerOptions) -> M:
    """Validate the data of a body as a model and return the model.

    Raises `OptionError` or `HttpError` about the first wrong field.

    Args:
        kind: The model.
        data: The parsed JSON.
        options: Limits, which validators read.
    """
    try:
        return kind.model_validate(data, context=options)
    except ValidationError as error:
        raise _to_request_error(error, data, kind, options) from error


def _to_request_error(
    error: ValidationError, data: Mapping[str, Any], kind: type[BaseModel], options: ServerOptions
) -> Exception:
    """Return our error for pydantic's; fields that are not offered come first."""
    details = error.errors(include_url=False, include_input=False)
    first = next((one for one in details if isinstance(_cause(one), UnsupportedError)), details[0])
    schemas = _schemas_of(kind)
    path, value, schema = _locate(first, data, schemas[kind.__name__], schemas)
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
        path,
        len(value) if first["type"] == "too_long" else value,
        _describe_allowed(_insert_limits(schema, options), schemas),
    )


def _cause(error: Mapping[str, Any]) -> object:
    """Return the exception that a validator raised, if any, from pydantic's details."""
    return error.get("ctx", {}).get("error")


def _locate(
    error: Mapping[str, Any], value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any]
) -> tuple[str, Any, Mapping[str, Any]]:
    """Return the path to the wrong value, the value, and its schema.

    Tags of union members are left out of the path. A key too long to be quoted is
    replaced by its index.

    Args:
        error: pydantic's details of the error.
        value: The body.
        schemas: All schemas that it refers to.
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
        schema = {"anyOf": list(_part_schemas(schema, part, schemas))}
    return path.removeprefix("."), value, schema


def _part_schemas(
    schema: Mapping[str, Any], part: str | int, schemas: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of an array's items, or of an object's field `part`."""
    for one in flat_union_members(schema, schemas):
        if isinstance(part, int):
            yield from [one["items"]] if "items" in one else []
        elif part in one.get("properties", ()):
            yield one["properties"][part]
        elif isinstance(one.get("additionalProperties"), dict):
            yield one["additionalProperties"]


def _describe_allowed(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return in words what a schema allows, such as "a number from 0 to 2"."""
    if "title" in schema:
        return str(schema["title"])
    members = union_members(schema, schemas)
    if members != [schema]:
        return " or ".join(dict.fromkeys(_describe_allowed(one, schemas) for one in members))
    names = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if names:
        return "one of " + ", ".join(map(as_json, names))
    noun = _NOUNS.get(schema.get("type", ""), "a value")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return noun
    return f"{noun} of at least {low}" if high is None else f"{noun} from {low} to {high}"


def refuse_media(value: object, path: str) -> None:
    """Raise `HttpError` for an image, audio or file part anywhere in messages.

    Args:
        value: The messages as they were sent.
        path: Path to them, for the error.
    """
    if not isinstance(value, list):
        return
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            continue
        where = f"{path}[{index}]"
        if item.get("type") in MEDIA:
            raise unsupported(where, f"{item['type']} is not read; give text", code="unsupported_input")
        for name in ("content", "output"):
            refuse_media(item.get(name), f"{where}.{name}")


def check_tokenized(name: str, n_bytes: int) -> None:
    """Raise `OptionError` for more than `MAX_TOKENIZED_BYTES` bytes of text.

    Encoding cannot be stopped when the client leaves.

    Args:
        name: The field with the text.
        n_bytes: Size of the text.
    """
    if n_bytes > MAX_TOKENIZED_BYTES:
        raise OptionError(name, f"{n_bytes} bytes", f"at most {MAX_TOKENIZED_BYTES} bytes of text; send it in parts")


def unknown_fields(names: Iterable[str], known: Collection[str], of: str = "") -> list[str]:
    """Return a warning for each unknown field name; after a few, for the rest together.

    Warnings are sent in a header, so they must be short. Raises `HttpError` for an
    unknown field of the body that stands for a known one, such as "temprature".

    Args:
        names: The names in the request.
        known: All names that are known.
        of: Words that say what has the fields, with a space before, as " of messages".
    """
    unknown = [name for name in names if name not in known]
    advice = None if of else advice_on_names(unknown, known)
    if advice is not None:
        name, remedy = advice
        raise HttpError(400, UnknownArgumentError.code, f"the field {of_value(name)} is unknown; {remedy}", name)
    warnings = [f"the field {of_value(name[:40])}{of} is unknown and was ignored" for name in unknown[:_MAX_NAMED]]
    n_more = len(unknown) - len(warnings)
    return [*warnings, f"{n_more} more fields{of} are unknown and were ignored"] if n_more else warnings
