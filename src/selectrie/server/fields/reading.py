"""Reads bodies by their models, describes them, and says which field is wrong.

Errors state what is allowed in the words of OpenAPI's document; a field's `title`
states it where the type does not. Messages of pydantic are not used, because they may
hold what was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from selectrie.core.types import IntArray
from selectrie.core.vocabulary import Vocabulary, to_bytes
from selectrie.errors import (
    MAX_QUOTED,
    Amount,
    OptionError,
    TextError,
    TokenRangeError,
    UnknownArgumentError,
    as_json,
    clip,
    of_value,
)
from selectrie.options.arguments import SAME
from selectrie.server.fields.wire import LIMIT, TAG, M, UnsupportedError
from selectrie.server.options import ServerOptions
from selectrie.server.transport.http_errors import HttpError, errors_at, message_of, unsupported

MAX_TOKENIZED_BYTES = 1 << 20
"""Maximum size in bytes of a request's texts that are tokenized in one piece."""
REFERENCE = "#/components/schemas/{model}"
"""Reference to the schema of a model in OpenAPI's document."""
_MAX_NAMED = 8
"""Maximum number of unknown fields that warnings name."""
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
    limited = {key: _insert_limits(one, options) for key, one in schema.items() if key != LIMIT}
    if LIMIT in schema:
        key = {"integer": "maximum", "array": "maxItems", "object": "maxProperties"}[schema["type"]]
        limited[key] = getattr(options, schema[LIMIT])
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
        Amount(f"{len(value)} {'characters' if isinstance(value, str) else 'items'}")
        if first["type"] == "too_long"
        else value,
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
        return "one of " * (len(names) > 1) + ", ".join(map(as_json, names))
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
        raise OptionError(
            name, Amount(f"{n_bytes} bytes"), f"at most {MAX_TOKENIZED_BYTES} bytes of text; send it in parts"
        )


def check_tokens(vocabulary: Vocabulary, tokens: Sequence[int] | Mapping[int, object], path: str) -> IntArray:
    """Return token ids as int32[]; raise `HttpError` for the first that does not exist.

    Args:
        vocabulary: The vocabulary.
        tokens: The ids, or what a request says of each.
        path: Path to them in the request.
    """
    ids = [*tokens]
    try:
        return vocabulary.check_tokens(ids)
    except TokenRangeError as error:
        below = f".{error.token}" if isinstance(tokens, Mapping) else f"[{ids.index(error.token)}]"
        with errors_at(path + below):
            raise


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


_STAND_INS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("choices", "labels"), ("structured_outputs", "guided_choice", "questions")),
    **dict.fromkeys(("regex", "pattern"), ("structured_outputs", "guided_regex")),
    **dict.fromkeys(("grammar", "gbnf"), ("structured_outputs", "guided_grammar")),
    **dict.fromkeys(("json_schema", "response_model"), ("response_format", "schema")),
}
"""Fields that do what an argument of the Python API does; the first one is named."""
_DECIDING = (
    *("calibration", "delimiter", "following", "layout", "min_confidence", "min_label_mass", "multi_label"),
    *("permutations", "prior", "rule", "scoring", "terminator", "threshold"),
)
"""Arguments of the Python API that change answers, and that no other API has."""
_OF_OTHERS = frozenset({"models"})
"""Fields of other servers that resemble a field here and mean something else."""
_LEAST_RATIO = 0.9
"""Similarity from which a name is taken as a mistake for another one.

"temprature" and "temperature" have 0.95, "return_tokens" and "return_token_ids" 0.9.
"""
_MAX_LENGTH = 40
_MAX_COMPARED = 100
"""Maximum number of names that are compared with all fields."""


def advice_on_names(names: Collection[str], known: Collection[str]) -> tuple[str, str] | None:
    """Return the first unknown name that stands for a field, and what to write.

    Such a name differs from a field by a letter or two or by its way of writing, is
    what another library calls the field, or is an argument of the Python API that
    changes answers. None means that all names may be ignored.
    """
    plain = {_plain(field): field for field in known}
    for index, name in enumerate(names):
        if len(name) > _MAX_LENGTH or name in _OF_OTHERS:
            continue
        meant = plain.get(_plain(name)) or SAME.get(name)
        if meant not in known and index < _MAX_COMPARED:
            meant = next((one for one in get_close_matches(name, known, 1, _LEAST_RATIO) if one[0] == name[0]), None)
        if meant in known:
            return name, f"did you mean {meant}?"
        stand_in = next((one for one in _STAND_INS.get(name, ()) if one in known), None)
        if stand_in is not None:
            return name, f"give {stand_in} in its place"
        if name in _DECIDING:
            return name, "it is an argument of the Python API that this endpoint does not have; leave it out"
    return None


def _plain(name: str) -> str:
    """Return a name without the ways of writing it: "topP" and "top-p" are "top_p"."""
    return name.replace("_", "").replace("-", "").lower()
