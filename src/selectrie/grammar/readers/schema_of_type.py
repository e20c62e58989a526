"""JSON Schemas (2020-12) of Python types, from their annotations.

pydantic is never imported: a model makes its own schema.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections import abc, deque
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from selectrie.errors import GrammarError
from selectrie.grammar.readers.placing import clipped

MOST_DEPTH = 64
"""Types inside types; a class inside a class counts anew."""

_SIMPLE: dict[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    None: "null",
    type(None): "null",
}
_ARRAYS = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection})
_SETS = frozenset({set, frozenset, abc.Set, abc.MutableSet})
_MAPPINGS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_MARKS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})


def schema_of_type(kind: Any) -> Mapping[str, Any]:
    """The JSON Schema of a type's values.

    Data class and typed dictionary: an object with their fields and no others; a field with a default may be missing, one
    with `init=False` has no place. list, sequences: array; set: array without repetitions; tuple: array of that length;
    dict with str keys: object; `Enum` and `Literal`: their values; unions: any of them; Any: any value. A pydantic model:
    what its own `model_json_schema` says, but that an object with named properties has no others, even where the model
    ignores or keeps them (`extra`). Classes may contain each other; each is a definition under `$defs`.
    `GrammarError` for any other type, by name.
    """
    builder = _Builder()
    root = builder.schema(kind, 0)
    definitions = builder.definitions()
    name = root.get("$ref", "").removeprefix(_REFERENCE)
    if name in definitions and builder.uses[name] == 1:
        root = definitions.pop(name)
    return {**root, "$defs": definitions} if definitions else root


def shown(kind: Any) -> str:
    """A type as messages name it."""
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else clipped(str(kind), 80)


def parts_of_union(kind: Any) -> list[Any]:
    """The types that a type is a union of, itself where it is none; what only documents it is left out."""
    found, waiting = [], deque([(kind, 0)])
    while waiting:
        part, depth = waiting.popleft()
        if depth > MOST_DEPTH:
            raise GrammarError(f"types are nested more than {MOST_DEPTH} deep; make the inner ones classes")
        bare = _bare(part)
        if get_origin(bare) in {Union, types.UnionType}:
            waiting.extendleft([(one, depth + 1) for one in reversed(get_args(bare))])
        elif bare is not part:
            waiting.appendleft((bare, depth + 1))
        else:
            found.append(part)
    return found


def members_of(kind: Any) -> list[Any] | None:
    """Values of an `Enum` or a `Literal`; None for another type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
        if not values:
            raise GrammarError(f"{shown(kind)} has no members; give it at least one")
        return values
    if get_origin(kind) is Literal:
        return [value.value if isinstance(value, Enum) else value for value in get_args(kind)]
    return None


def json_text(value: object, kind: Any) -> str:
    """A value as JSON writes it. `GrammarError` for what is no string, number, bool or None."""
    if value is None or isinstance(value, str | bool | int | float):
        try:
            return json.dumps(value, allow_nan=False)
        except ValueError:
            pass
    reason = f"{shown(kind)} has the value {clipped(repr(value))}, which JSON cannot say; use strings, numbers, bools or None"
    raise GrammarError(reason)


_REFERENCE = "#/$defs/"
_SCHEMAS = frozenset({"properties", "patternProperties", "$defs"})
_ONE_SCHEMA = frozenset({"items", "additionalProperties"})
_LISTS = frozenset({"prefixItems", "anyOf", "oneOf", "allOf"})
"""Keywords of JSON Schema that hold schemas by name, one schema, or a list of them."""


class _Builder:
    """Schemas of types; classes wait until their turn, so that they may contain each other. uses: of each by a `$ref`."""

    def __init__(self) -> None:
        self.uses: dict[str, int] = {}
        self._names: dict[Any, str] = {}
        self._waiting: deque[Any] = deque()
        self._done: dict[str, dict[str, Any]] = {}

    def definitions(self) -> dict[str, dict[str, Any]]:
        """Those of every class that was named."""
        while self._waiting:
            kind = self._waiting.popleft()
            self._done[self._names[kind]] = self._class(kind)
        return self._done

    def schema(self, kind: Any, depth: int) -> dict[str, Any]:
        """The schema where a type is named; `depth`: of types around it."""
        if depth > MOST_DEPTH:
            raise GrammarError(f"types are nested more than {MOST_DEPTH} deep; make the inner ones classes")
        parts = parts_of_union(kind)
        if len(parts) > 1:
            return {"anyOf": [self.schema(part, depth + 1) for part in parts]}
        part = parts[0]
        if part is Any or part is object:
            return {}
        if is_hashable(part) and part in _SIMPLE:
            return {"type": _SIMPLE[part]}
        members = members_of(part)
        if members is not None:
            return {"enum": [json.loads(json_text(value, part)) for value in members]}
        if isinstance(part, type) and not get_args(part) and _is_class(part):
            return self._reference(part)
        return self._container(part, depth)

    def _reference(self, kind: Any) -> dict[str, Any]:
        name = self._names.get(kind)
        if name is None:
            same = sum(other.__name__ == kind.__name__ for other in self._names)
            name = self._names[kind] = kind.__name__ + (f"-{same + 1}" if same else "")
            self._waiting.append(kind)
        self.uses[name] = self.uses.get(name, 0) + 1
        return {"$ref": _REFERENCE + name}

    def _container(self, kind: Any, depth: int) -> dict[str, Any]:
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        if not is_hashable(origin):
            raise _unknown(kind)
        if origin in _ARRAYS or origin in _SETS:
            item = self.schema(arguments[0], depth + 1) if arguments else {}
            return {"type": "array", "items": item, **({"uniqueItems": True} if origin in _SETS else {})}
        if origin is tuple:
            return self._tuple(arguments, depth)
        if origin in _MAPPINGS:
            key, value = arguments or (str, Any)
            if key is not str:
                raise GrammarError(f"{shown(kind)} has keys that are no str, which JSON objects have; make them str")
            return {"type": "object", "additionalProperties": self.schema(value, depth + 1)}
        raise _unknown(kind)

    def _tuple(self, arguments: tuple[Any, ...], depth: int) -> dict[str, Any]:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": self.schema(arguments[0], depth + 1)}
        if not arguments:
            return {"type": "array"}
        items = [self.schema(one, depth + 1) for one in arguments if one != ()]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}

    def _class(self, kind: Any) -> dict[str, Any]:
        if hasattr(kind, "model_json_schema"):
            return self._model(kind)
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, TypeError, AttributeError) as error:
            reason = (
                f"the annotations of {shown(kind)} cannot be resolved: {error}; define what they name at module level"
            )
            raise GrammarError(reason) from error
        if dataclasses.is_dataclass(kind):
            fields = [field for field in dataclasses.fields(kind) if field.init]
            required = [field.name for field in fields if _is_required(field)]
            hints = {field.name: hints[field.name] for field in fields}
        else:
            required = [name for name, hint in hints.items() if _needed(hint, is_needed=name in kind.__required_keys__)]
        properties = {name: self.schema(hint, 1) for name, hint in hints.items()}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _model(self, kind: Any) -> dict[str, Any]:
        """What a pydantic model says of itself, closed; the definitions inside it get its name before theirs."""
        name = self._names[kind]
        found: dict[str, Any] = _closed(kind.model_json_schema(ref_template=f"{_REFERENCE}{name}.{{model}}"))
        for inner, schema in found.pop("$defs", {}).items():
            self._done[f"{name}.{inner}"] = schema
        return found


def _closed(schema: Any, *, is_part: bool = False) -> Any:
    """The schema of a model without properties that it does not name: a type is its fields, JSON Schema is open.

    A tagged union becomes `anyOf`: its tags say that no value is of two of its parts. is_part: one of an `allOf`, which
    stays open, since its properties are those of the other parts too.
    """
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMAS and isinstance(value, dict):
            closed[key] = {name: _closed(one) for name, one in value.items()}
        elif key in _ONE_SCHEMA:
            closed[key] = _closed(value)
        elif key in _LISTS and isinstance(value, list):
            is_tagged = key == "oneOf" and "discriminator" in schema and "anyOf" not in schema
            closed["anyOf" if is_tagged else key] = [_closed(one, is_part=key == "allOf") for one in value]
        else:
            closed[key] = value
    if "properties" in schema and not is_part:
        closed["additionalProperties"] = False
    return closed


def _bare(kind: Any) -> Any:
    """Without what only documents it, or says whether a key is needed."""
    origin = get_origin(kind)
    if origin is Annotated:
        said = [one for one in kind.__metadata__ if not isinstance(one, str)]
        if said:
            reason = f"{shown(kind)} says more than its type, {clipped(repr(said[0]))}: not supported here; give a JSON Schema"
            raise GrammarError(reason)
        return kind.__origin__
    if _last_name(origin) in _MARKS:
        return get_args(kind)[0]
    return getattr(kind, "__supertype__", kind)  # of a NewType


def _last_name(origin: Any) -> str:
    return str(origin).rpartition(".")[2]


def _needed(hint: Any, *, is_needed: bool) -> bool:
    """Of a key of a typed dictionary: its own mark counts, also where annotations were strings when the class was made."""
    while (name := _last_name(get_origin(hint))) in _MARKS:
        is_needed = name == "Required" or (is_needed and name != "NotRequired")
        hint = get_args(hint)[0]
    return is_needed


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_class(kind: type) -> bool:
    """Typed dictionaries are told by what they have: `typing.is_typeddict` denies those of typing_extensions."""
    typed_dictionary = issubclass(kind, dict) and hasattr(kind, "__required_keys__")
    return dataclasses.is_dataclass(kind) or typed_dictionary or hasattr(kind, "model_json_schema")


def is_hashable(value: object) -> bool:
    """Can it be looked up?"""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _unknown(kind: Any) -> GrammarError:
    return GrammarError(
        f"{shown(kind)} is no type whose texts are known; there are Enum, Literal, str, bool, int, float, None, list, tuple, "
        "dict, unions, data classes, TypedDict and pydantic models"
    )
