"""Makes grammars from Python values (lists of texts, types), and objects from JSON."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, abc, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.readers.model_schemas import (
    PATTERNS,
    REFERENCE,
    add_constraints,
    close_schema,
    constraints_of,
    generator_argument,
    is_text,
    list_sets,
    require_all,
    schema_of_written,
    unknown_constraint_error,
)
from selectrie.grammar.readers.regex import read_regex
from selectrie.grammar.readers.shapes import alternatives, repeat
from selectrie.grammar.readers.type_parts import (
    MAX_DEPTH,
    TypeField,
    check_size,
    description_of,
    fields_of,
    is_class,
    is_hashable,
    is_named_tuple,
    is_pydantic,
    members_of,
    parts_of_union,
    type_name,
    type_of_variable,
)
from selectrie.grammar.rules import (
    LAST_CODE_POINT,
    Alternatives,
    Characters,
    Expression,
    LiteralText,
    RuleSet,
    TextList,
)

_SIMPLE: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    None: "null",
    type(None): "null",
}
ARRAYS = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection})
SETS = frozenset({set, frozenset, abc.Set, abc.MutableSet})
MAPPINGS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_KNOWN = ARRAYS | SETS | MAPPINGS | {tuple}


def schema_of_type(kind: Any, *, is_whole: bool = False) -> Mapping[str, Any]:
    """Return the JSON Schema of a type's values.

    With `is_whole`, fields with a default are required too, except in typed
    dictionaries, and fields have their descriptions.

    - Data classes, attrs classes and typed dictionaries: an object with exactly their
      fields. A field with a default is optional; one with `init=False` is left out.
      Generic classes are given with their arguments.
    - list and sequences: an array. tuple and `NamedTuple`: an array of that length.
    - dict whose keys are str or the members of an `Enum` or `Literal`: an object.
    - set: an array without repetitions, in the order of the members if they are those
      of an `Enum` or `Literal`.
    - `Enum` and `Literal`: their values. Unions: any of the parts. Any: any value.
    - Dates, times, UUIDs, decimals, paths and bytes: see `schema_of_written`.
    - `Annotated`: constraints of annotated_types and pydantic; see `constraints_of`.
    - pydantic models and data classes: their JSON Schema, except that an object with
      named properties has no others, even if the model ignores or keeps them (`extra`).
    - Other types that pydantic describes, such as `HttpUrl`, `UUID4` and `condecimal`.

    Classes may contain each other; each is a definition under `$defs`. Raises
    `GrammarError` for any other type, by name.
    """
    check_size(kind)
    builder = _Builder(is_whole=is_whole)
    root = builder.schema(kind, 0)
    definitions = builder.definitions()
    name = root.get("$ref", "").removeprefix(REFERENCE)
    if name in definitions and builder.uses[name] == 1:
        root = definitions.pop(name)
    listed = {name: list_sets(one, definitions) for name, one in definitions.items()}
    root = list_sets(root, definitions)
    return {**root, "$defs": listed} if listed else root


def json_text(value: object, kind: Any) -> str:
    """Return a value as JSON; `kind` is its type in the error.

    Raises `GrammarError` for anything but a string, number, bool or None.
    """
    if value is None or isinstance(value, str | bool | int | float):
        try:
            return json.dumps(value, allow_nan=False)
        except ValueError:
            pass
    reason = f"{type_name(kind)} has the value {clipped(repr(value))}; JSON has strings, numbers, bools and None"
    raise GrammarError(reason)


class _Builder:
    """Builds the schemas of types.

    Classes are queued, so that they may contain each other.

    Args:
        is_whole: As in `schema_of_type`.

    Attributes:
        uses: Number of `$ref`s to each class.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._is_whole = is_whole
        self.uses: dict[str, int] = {}
        self._names: dict[Any, str] = {}
        self._waiting: deque[Any] = deque()
        self._done: dict[str, dict[str, Any]] = {}
        self._n_adapted = 0

    def definitions(self) -> dict[str, dict[str, Any]]:
        """Return the definitions of all classes that were referred to."""
        while self._waiting:
            kind = self._waiting.popleft()
            self._done[self._names[kind]] = self._class_schema(kind)
        return self._done

    def schema(self, kind: Any, depth: int) -> dict[str, Any]:
        """Return the schema for a use of a type inside `depth` other types."""
        if depth > MAX_DEPTH:
            raise GrammarError(f"types are nested more than {MAX_DEPTH} levels deep; make classes of the inner ones")
        parts = parts_of_union(kind)
        if len(parts) > 1:
            return {"anyOf": [self.schema(part, depth + 1) for part in parts]}
        part = parts[0]
        if get_origin(part) is Annotated:
            return self._annotated_schema(part, depth)
        if isinstance(part, TypeVar):
            return self.schema(type_of_variable(part), depth + 1)
        schema = _schema_of_simple(part)
        if schema is not None:
            return schema
        if is_hashable(part) and is_class(get_origin(part) or part):
            return self._refer_to(part)
        return self._container_schema(part, depth)

    def _annotated_schema(self, kind: Any, depth: int) -> dict[str, Any]:
        """Return the schema of an `Annotated` type, with its constraints."""
        unread = [one for one in kind.__metadata__ if constraints_of(one) is None]
        adapted = self._schema_by_pydantic(kind) if unread and all(map(_is_of_pydantic, unread)) else None
        if adapted is not None:
            return adapted
        schema = self.schema(kind.__origin__, depth + 1)
        for metadata in kind.__metadata__:
            constraints = constraints_of(metadata)

            def unknown(metadata: object = metadata) -> GrammarError:
                return unknown_constraint_error(type_name(kind), metadata)

            if constraints is None:
                raise unknown()
            schema = add_constraints(schema, constraints, unknown)
        return schema

    def _refer_to(self, kind: Any) -> dict[str, Any]:
        """Return a `$ref` to a class, which is named and queued on first use."""
        name = self._names.get(kind)
        if name is None:
            own = _class_name(kind)
            same = sum(_class_name(other) == own for other in self._names)
            name = self._names[kind] = own + (f"-{same + 1}" if same else "")
            self._waiting.append(kind)
        self.uses[name] = self.uses.get(name, 0) + 1
        return {"$ref": REFERENCE + name}

    def _container_schema(self, kind: Any, depth: int) -> dict[str, Any]:
        """Return the schema of a list, set, tuple, mapping, or type known to pydantic.

        Raises `GrammarError` for any other type.
        """
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if not is_hashable(origin):
            raise _unknown_type_error(kind)
        adapted = None if origin in _KNOWN else self._schema_by_pydantic(kind)
        if adapted is not None:
            return adapted
        if origin in ARRAYS or origin in SETS:
            item = self.schema(arguments[0], depth + 1) if arguments else {}
            return {"type": "array", "items": item, **({"uniqueItems": True} if origin in SETS else {})}
        if origin is tuple:
            return self._tuple_schema(arguments, depth)
        if origin in MAPPINGS:
            key, value = arguments or (str, Any)
            schema = self.schema(value, depth + 1)
            names = members_of(key)
            if names is not None and all(isinstance(name, str) for name in names):
                return {"type": "object", "properties": dict.fromkeys(names, schema), "additionalProperties": False}
            if key is not str:
                raise GrammarError(f"{type_name(kind)} has keys other than str, which JSON objects need; use str")
            return {"type": "object", "additionalProperties": schema}
        raise _unknown_type_error(kind)

    def _schema_by_pydantic(self, kind: Any) -> dict[str, Any] | None:
        """Return pydantic's schema of a type that this module does not know.

        Returns None without pydantic, if it does not know the type either, or
        if its schema only says that values are strings.
        """
        pydantic = sys.modules.get("pydantic")
        if pydantic is None:
            return None
        self._n_adapted += 1
        name = f"pydantic:{self._n_adapted}"
        try:
            whole = _pydantic_schema(pydantic.TypeAdapter(kind).json_schema, name)
        except (pydantic.PydanticUserError, AttributeError, NameError, TypeError):
            return None
        known = {keyword for keyword in whole if keyword not in ("title", "description")}
        if not known or (known == {"type"} and whole["type"] == "string"):
            return None
        return self._move_definitions(name, whole)

    def _tuple_schema(self, arguments: tuple[Any, ...], depth: int) -> dict[str, Any]:
        """Return the schema of a tuple with these type arguments."""
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": self.schema(arguments[0], depth + 1)}
        if not arguments:
            return {"type": "array"}
        items = [self.schema(one, depth + 1) for one in arguments if one != ()]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}

    def _class_schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a class with fields, or of a pydantic model."""
        if is_pydantic(kind):
            return self._model_schema(kind)
        origin, fields = get_origin(kind) or kind, fields_of(kind) or ()
        needs_all = self._is_whole and not issubclass(origin, dict)
        required = [one.argument for one in fields if one.is_required or needs_all]
        properties = {one.argument: self._field_schema(one) for one in fields}
        if is_named_tuple(origin):  # the last fields may be missing, if they have a default
            items = list(properties.values())
            bounds = {"minItems": len(required), "maxItems": len(items)}
            return {"type": "array", "prefixItems": items, "items": False, **bounds}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _field_schema(self, field: TypeField) -> dict[str, Any]:
        """Return the schema of a field, with its description if that is wanted."""
        schema = self.schema(field.kind, 1)
        said = description_of(field) if self._is_whole else ""
        return {**schema, "description": said} if said else schema

    def _model_schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a pydantic model or data class, closed.

        Definitions inside it are prefixed with its name.
        """
        write = getattr(kind, "model_json_schema", None) or sys.modules["pydantic"].TypeAdapter(kind).json_schema
        return self._move_definitions(self._names[kind], _pydantic_schema(write, self._names[kind]))

    def _move_definitions(self, name: str, whole: Any) -> dict[str, Any]:
        """Move a schema's definitions to this builder's, and close the schema.

        Their names get the prefix `name`.
        """
        made = dict(close_schema(require_all(whole) if self._is_whole else whole))
        for inner, schema in made.pop("$defs", {}).items():
            self._done[f"{name}.{inner}"] = schema
        return made


def _pydantic_schema(write: Callable[..., Any], name: str) -> Any:
    """Return the schema that a function of pydantic writes, references prefixed."""
    return write(ref_template=f"{REFERENCE}{name}.{{model}}", **generator_argument(write))


def _is_of_pydantic(metadata: object) -> bool:
    """Return whether metadata of `Annotated` is pydantic's and restricts values."""
    is_name = getattr(metadata, "alias", None) is not None  # of a field, without effect on a type
    return type(metadata).__module__.partition(".")[0] == "pydantic" and not is_name


def _schema_of_simple(part: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type without parts, or None for any other type."""
    if part is Any or part is object:
        return {}
    members = members_of(part)
    if members is not None:
        return {"enum": [json.loads(json_text(value, part)) for value in members]}
    if not is_hashable(part):
        return None
    return {"type": _SIMPLE[part]} if part in _SIMPLE else schema_of_written(part)


def _class_name(kind: Any) -> str:
    return str((get_origin(kind) or kind).__name__)


def _unknown_type_error(kind: Any) -> GrammarError:
    """Return the error for a type that is not supported."""
    if not isinstance(kind, type) and get_origin(kind) is None and fields_of(type(kind)) is not None:
        name = type(kind).__name__
        return GrammarError(f"an object of {name} was given in place of a type; give the class {name} itself")
    return GrammarError(
        f"the type {type_name(kind)} is not supported; use Enum, Literal, str, bool, int, float, "
        "None, list, tuple, dict, set, dates and times, UUID, Decimal, paths, bytes, unions, "
        "data classes, NamedTuple, attrs classes, TypedDict or pydantic models"
    )


_INTEGER = "-?(?:0|[1-9][0-9]*)"
_DECIMAL = rf"{_INTEGER}(?:\.[0-9]+)?"
_PATTERNS: dict[Any, str] = {**PATTERNS, int: _INTEGER, float: rf"{_DECIMAL}(?:[Ee][+-]?[0-9]+)?", Decimal: _DECIMAL}
"""Numbers are as JSON writes them (RFC 8259, section 6): no leading zero, no plus."""
_PLAIN: dict[Any, Expression] = {
    str: repeat(Characters.of([(0, LAST_CODE_POINT)]), 0, None),
    bool: Alternatives((LiteralText(b"true"), LiteralText(b"false"))),
    None: LiteralText(b"null"),
    type(None): LiteralText(b"null"),
}


def list_of_choices(texts: Iterable[str]) -> TextList:
    """Return a grammar of exactly these texts, without duplicates.

    Raises `GrammarError` if there are none, and for an item that is not a text; the
    message gives its index.
    """
    if isinstance(texts, str | bytes):
        raise GrammarError(f"the choices are a single text, {clipped(str(texts))}; give a list of texts")
    if not isinstance(texts, Iterable):
        raise GrammarError(f"the choices are {clipped(repr(texts))}; give a list of texts")
    options: dict[str, None] = {}
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise GrammarError(f"choice {index} is {clipped(repr(text))}, which is not a str")
        _encode(text, f"choice {index}")
        options[text] = None
    if not options:
        raise GrammarError("the list of choices is empty; give at least one text")
    return TextList(tuple(options))


def rules_of_type(type: Any) -> RuleSet | TextList | Mapping[str, Any]:  # noqa: A002 - the public name
    """Return the grammar of a type's values, or a JSON Schema if they have parts.

    If each value has exactly one text, the grammar is a list, in the order of the type.

    Plain text is used for `Enum` (the value of each member, not its name), `Literal`,
    str, bool, numbers, None, dates, times, UUIDs, paths, bytes, and unions of them. A
    string stays as it is, without quotes. Other values are written as in JSON (true,
    null, 1.5), or as by `isoformat` and `str`.

    JSON Schema is used for types with parts (data classes, models, lists …), types with
    constraints (`Annotated`), and unions that contain one of them; see
    `schema_of_type`. Raises `GrammarError` for any other type, by name.
    """
    check_size(type)
    options: list[Expression] = []
    for part in parts_of_union(type):
        expression = _plain_expression(part)
        if expression is None:
            return schema_of_type(type)
        options.append(expression)
    whole = alternatives(options)
    parts = whole.options if isinstance(whole, Alternatives) else (whole,)
    texts = [part.value.decode() for part in parts if isinstance(part, LiteralText)]
    if parts and len(texts) == len(parts):
        return TextList(tuple(dict.fromkeys(texts)))
    return RuleSet(MappingProxyType({"root": whole}))


def _plain_expression(part: Any) -> Expression | None:
    """Return the expression of one type without parts, or None for any other type."""
    if is_hashable(part) and part in _PLAIN:
        return _PLAIN[part]
    if is_text(part):
        return _PLAIN[str]
    if is_hashable(part) and part in _PATTERNS:
        return read_regex(_PATTERNS[part]).rules["root"]
    members = members_of(part)
    if members is None:
        return None
    texts = [value if isinstance(value, str) else json_text(value, part) for value in members]
    double = next((text for text, n in Counter(texts).items() if n > 1), None)
    if double is not None:
        raise GrammarError(f"{type_name(part)} has several values with the text {clipped(double)}; keep one of them")
    return alternatives([LiteralText(_encode(text, f"a value of {type_name(part)}")) for text in texts])


def _encode(text: str, what: str) -> bytes:
    """Encode a text; raise `GrammarError` for a surrogate. `what` names the text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise GrammarError(f"{what} contains the surrogate U+{code:04X}, which is not a character; remove it") from None


Make = Callable[[Any], Any]
"""Makes an object from a value of JSON, or raises `ValueError` or `TypeError`."""

_DURATION = re.compile(r"(-?)P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?", re.ASCII)


def object_maker(kind: Any) -> Make:
    """Return a function that makes objects of a type from values of JSON.

    The values are those that `json.loads` returns for a text of the type's schema
    (`schema_of_type`). The function raises `ValueError` or `TypeError` for a value that
    the type refuses, such as one that a validator of pydantic rejects.

    >>> from datetime import date
    >>> object_maker(tuple[date, int])(["2024-02-29", 3])
    (datetime.date(2024, 2, 29), 3)
    """
    return _Makers().of(kind)


class _Makers:
    """Makers of types. Each type has one, so that classes may contain each other."""

    def __init__(self) -> None:
        self._known: dict[Any, Make] = {}

    def of(self, kind: Any) -> Make:
        """Return the maker of a type."""
        parts = parts_of_union(kind)
        if len(parts) == 1:
            return self._of_part(parts[0])
        return _first_of([self._of_part(part) for part in parts])

    def _of_part(self, part: Any) -> Make:
        """Return the maker of a type that is no union."""
        if get_origin(part) is Annotated:
            return self.of(part.__origin__)
        if isinstance(part, TypeVar):
            return self.of(type_of_variable(part))
        if not is_hashable(part):
            return _by_pydantic(part)
        simple = _maker_of_simple(part)
        if simple is not None:
            return simple
        if not is_class(get_origin(part) or part):
            return self._of_container(part)
        if part not in self._known:
            self._known[part] = lambda value: self._known[part](value)  # noqa: PLW0108 - the class may contain itself
            self._known[part] = self._of_class(part)
        return self._known[part]

    def _of_class(self, kind: Any) -> Make:
        """Return the maker of a class with fields."""
        if is_pydantic(kind):
            return _by_pydantic(kind)
        origin = get_origin(kind) or kind
        makers = {one.argument: self.of(one.kind) for one in fields_of(kind) or ()}
        if is_named_tuple(origin):
            items = list(makers.values())
            return lambda value: origin(*(make(one) for make, one in zip(items, value, strict=False)))
        return lambda value: origin(**{name: makers[name](one) for name, one in value.items()})

    def _of_container(self, kind: Any) -> Make:
        """Return the maker of a list, set, tuple, mapping, or type of pydantic."""
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if origin in ARRAYS or origin in SETS:
            item = self.of(arguments[0]) if arguments else _as_it_is
            collect: Callable[[Any], Any] = list if origin in ARRAYS else frozenset if origin is frozenset else set
            return lambda value: collect(map(item, value))
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                item = self.of(arguments[0])
                return lambda value: tuple(map(item, value))
            items = [self.of(one) for one in arguments if one != ()]
            return lambda value: (
                tuple(make(one) for make, one in zip(items, value, strict=True)) if items else tuple(value)
            )
        if origin in MAPPINGS:
            key, item = map(self.of, arguments or (str, Any))
            return lambda value: {key(name): item(one) for name, one in value.items()}
        return _by_pydantic(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _first_of(makers: list[Make]) -> Make:
    """Return a maker of a union: the first of its parts that takes the value."""

    def make(value: Any) -> Any:
        refused: Exception | None = None
        for one in makers:
            try:
                return one(value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:  # noqa: PERF203 - each part may refuse
                refused = refused or error
        raise ValueError(str(refused)) from refused

    return make


def _maker_of_simple(part: Any) -> Make | None:
    """Return the maker of a type without parts, or None for any other type."""
    if part is Any or part is object:
        return _as_it_is
    if isinstance(part, type) and issubclass(part, Enum):
        return _one_of({_key(member.value): member for member in part})
    if get_origin(part) is Literal:
        return _one_of({_key(one.value if isinstance(one, Enum) else one): one for one in get_args(part)})
    if part in _WRITTEN:
        return _WRITTEN[part]
    if isinstance(part, type) and issubclass(part, PurePath):
        return lambda value: part(_text(value))
    return None


def _key(value: Any) -> tuple[bool, Any]:
    """Return a key of a value of JSON: true is not 1, but 1.0 is."""
    return isinstance(value, bool), value


def _one_of(values: Mapping[tuple[bool, Any], Any]) -> Make:
    """Return a maker that maps a value of JSON to one of the listed values."""

    def make(value: Any) -> Any:
        try:
            return values[_key(value)]
        except (KeyError, TypeError):
            raise ValueError(f"{value!r} is not a member") from None

    return make


def _checked(kinds: tuple[type, ...], make: Make) -> Make:
    """Return a maker that takes values of some types only; a bool is no number."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{value!r} is not {' or '.join(one.__name__ for one in kinds)}")
        return make(value)

    return checked


_text = _checked((str,), _as_it_is)


def _instant(kind: type[time | datetime]) -> Make:
    """Return a maker from what `isoformat` writes; Python 3.10 does not read `Z`."""
    return lambda value: kind.fromisoformat(re.sub("Z$", "+00:00", value))


def _duration(text: str) -> timedelta:
    """Return the duration that a text of ISO 8601 in days, hours … stands for."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    sign, days, hours, minutes, seconds = match.groups(default="0")
    length = timedelta(int(days), hours=int(hours), minutes=int(minutes)) + timedelta(
        microseconds=int(Decimal(seconds) * 1_000_000)
    )
    return -length if sign == "-" else length


_WRITTEN: dict[Any, Make] = {
    str: _text,
    bool: _checked((bool,), _as_it_is),
    int: _checked((int,), _as_it_is),
    float: _checked((int, float), float),
    None: _one_of({(False, None): None}),
    type(None): _one_of({(False, None): None}),
    date: _checked((str,), date.fromisoformat),
    time: _checked((str,), _instant(time)),
    datetime: _checked((str,), _instant(datetime)),
    timedelta: _checked((str,), _duration),
    UUID: _checked((str,), UUID),
    Decimal: _checked((int, float), lambda value: Decimal(str(value))),
    bytes: _checked((str,), str.encode),
}


def _by_pydantic(kind: Any) -> Make:
    """Return a maker that leaves the type to pydantic, or to the model itself."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        pydantic = sys.modules.get("pydantic")
        if pydantic is None:
            raise GrammarError(f"objects of the type {type_name(kind)} cannot be made without pydantic; import it")
        validate = pydantic.TypeAdapter(kind).validate_json
    return lambda value: validate(json.dumps(value))
