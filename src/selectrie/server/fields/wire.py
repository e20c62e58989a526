"""Base of the models that declare bodies of requests, and the types of their fields.

A field is declared once, with its type, its bounds and its meaning: the declaration
parses the field, refuses wrong values and appears in OpenAPI's document. Null counts as
an absent field.

Lists stop at the first wrong item (`Items`), and lengths that an option of the server
bounds are checked before (`UpTo`), so a wrong body costs no more than a right one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
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
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic import GetCoreSchemaHandler as CoreHandler
from pydantic import GetJsonSchemaHandler as JsonHandler

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import Amount, MessageText, OptionError, as_json, renamed
from selectrie.options.checks import SEED, Bounds, Names, numbers_of, options_of

M = TypeVar("M", bound=BaseModel)

MAX_ARGUMENTS = 256
"""Maximum number of arguments of the chat template in a request."""
LIMIT = "x-limit"
"""Key in a schema for the name of the server's option that bounds the value."""


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


def fields_without_effect(not_offered: str, ignored: str = "") -> type[WireModel]:
    """Return the base of a body with known fields that have no effect.

    Args:
        not_offered: Names of fields that are not offered, each with its neutral value
            behind `=`, in JSON without spaces, if it has one.
        ignored: Names of fields that are taken and have no effect.
    """
    parts = (word.partition("=") for word in not_offered.split())
    fields: dict[str, Any] = {
        name: (Annotated[Any, NotOffered((json.loads(neutral),) if neutral else ())], None)
        for name, _, neutral in parts
    }
    fields |= dict.fromkeys(ignored.split(), (Ignored, None))
    return create_model("Unoffered", __base__=WireModel, **fields)


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
        return {**handler(core), LIMIT: self.option}

    def _check(self, value: object, info: ValidationInfo) -> object:
        """Return a value; raise an error if it is above the limit in the options."""
        limit: int = getattr(info.context, self.option)
        if isinstance(value, list | dict) and len(value) > limit:
            raise OptionError("", Amount(f"{len(value)} items"), f"at most {limit} {self.what}")
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
