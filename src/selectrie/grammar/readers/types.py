"""Makes grammars from Python values: lists of texts, and types."""

from __future__ import annotations

import json
import sys
from collections import Counter, abc, deque
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, get_args, get_origin

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
from selectrie.grammar.rules.expressions import (
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
            adapter = pydantic.TypeAdapter(kind)
            whole = adapter.json_schema(
                ref_template=f"{REFERENCE}{name}.{{model}}", **generator_argument(adapter.json_schema)
            )
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
        name = self._names[kind]
        template = f"{REFERENCE}{name}.{{model}}"
        if hasattr(kind, "model_json_schema"):
            whole = kind.model_json_schema(ref_template=template, **generator_argument(kind.model_json_schema))
        else:
            adapter = sys.modules["pydantic"].TypeAdapter(kind)
            whole = adapter.json_schema(ref_template=template, **generator_argument(adapter.json_schema))
        return self._move_definitions(name, whole)

    def _move_definitions(self, name: str, whole: Any) -> dict[str, Any]:
        """Move a schema's definitions to this builder's, and close the schema.

        Their names get the prefix `name`.
        """
        made = dict(close_schema(require_all(whole) if self._is_whole else whole))
        for inner, schema in made.pop("$defs", {}).items():
            self._done[f"{name}.{inner}"] = schema
        return made


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
_PATTERNS: dict[Any, str] = {
    **PATTERNS,
    int: _INTEGER,
    float: rf"{_DECIMAL}(?:[Ee][+-]?[0-9]+)?",
    Decimal: _DECIMAL,
}
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
