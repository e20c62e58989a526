"""What Python types consist of: parts of unions, fields of classes, listed values."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, Flag
from inspect import cleandoc
from math import lcm
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, Union, get_args, get_origin

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.readers.model_schemas import constraints_of

MAX_TYPES = 100_000
"""Maximum number of types inside a type; each occurrence counts."""
_MAX_DEPTH = 200
"""Maximum depth that is inspected; readers stop before."""


def check_size(kind: Any) -> None:
    """Raise `GrammarError` for a type that is too large to be written out.

    Call this before the type is compared: even hashing it would not finish.
    """
    if _n_types(kind, {}, 0) > MAX_TYPES:
        raise GrammarError(
            f"the type contains more than {MAX_TYPES} types, counting each occurrence; make classes "
            "of those that occur several times"
        )


def _n_types(kind: Any, known: dict[int, tuple[Any, int]], depth: int) -> int:
    """Return the number of types inside a type, counting every occurrence.

    `known` maps the identity of each type seen to the type and its size. It holds the
    types, so that identities are not reused.
    """
    parts = get_args(kind)
    if not parts or depth > _MAX_DEPTH:
        return 1
    if id(kind) not in known:
        known[id(kind)] = kind, 1 + sum(_n_types(part, known, depth + 1) for part in parts)
    return known[id(kind)][1]


MAX_DEPTH = 64
"""Maximum nesting of types; inside a class, the count starts again."""
_MARKS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})


def type_name(kind: Any) -> str:
    """Return the name of a type for messages."""
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else clipped(str(kind), 80)


def parts_of_union(kind: Any) -> list[Any]:
    """Return the parts of a union, or the type itself if it is not a union.

    Metadata that is only documentation is removed.
    """
    parts, waiting = [], deque([(kind, 0)])
    while waiting:
        part, depth = waiting.popleft()
        if depth > MAX_DEPTH:
            raise GrammarError(f"types are nested more than {MAX_DEPTH} levels deep; make classes of the inner ones")
        bare = _strip_marks(part)
        if get_origin(bare) in {Union, types.UnionType}:
            waiting.extendleft([(one, depth + 1) for one in reversed(get_args(bare))])
        elif bare is not part:
            waiting.appendleft((bare, depth + 1))
        else:
            parts.append(part)
    return parts


def members_of(kind: Any) -> list[Any] | None:
    """Return the values of an `Enum` or a `Literal`, or None for another type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
        if not values:
            raise GrammarError(f"{type_name(kind)} has no members; add at least one")
        return values
    if get_origin(kind) is Literal:
        return [value.value if isinstance(value, Enum) else value for value in get_args(kind)]
    return None


def _variables(kind: Any) -> dict[Any, Any]:
    """Return the values of the type variables of a generic class and its bases."""
    origin = get_origin(kind) or kind
    values = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
    for base in getattr(origin, "__orig_bases__", ()):
        if get_origin(base) not in (None, Generic, Protocol):
            for variable, value in _variables(base).items():
                own = _substitute(value, values)
                if values.setdefault(variable, own) != own:
                    raise GrammarError(f"{type_name(kind)} uses {variable} for several types; rename that of its base")
    return values


def _substitute(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """Return a type with its type variables replaced.

    A variable without a value is kept.
    """
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ()) if get_origin(hint) is not None else ()
    return hint[tuple(variables.get(one, one) for one in parameters)] if parameters else hint


def type_of_variable(variable: Any) -> Any:
    """Return the type of a variable without a value: its constraints, bound or Any."""
    if variable.__constraints__:
        return Union[variable.__constraints__]  # noqa: UP007 - the types are a tuple
    return variable.__bound__ or Any


def _strip_marks(kind: Any) -> Any:
    """Remove metadata that is only documentation, and marks such as `Required`."""
    origin = get_origin(kind)
    if origin is Annotated:
        known = {one: constraints_of(one) for one in kind.__metadata__ if is_hashable(one)}
        return (
            kind
            if any(constraints is None or constraints for constraints in known.values())
            or len(known) < len(kind.__metadata__)
            else kind.__origin__
        )
    if _last_name(origin) in _MARKS:
        return get_args(kind)[0]
    return getattr(kind, "__supertype__", getattr(kind, "__value__", kind))  # behind a NewType or a type alias


def _last_name(origin: Any) -> str:
    return str(origin).rpartition(".")[2]


def _is_required_key(hint: Any, *, is_required: bool) -> bool:
    """Return whether a typed dictionary needs a key.

    A mark `Required` or `NotRequired` decides, even if annotations were strings when
    the class was made.
    """
    while (name := _last_name(get_origin(hint))) in _MARKS:
        is_required = name == "Required" or (is_required and name != "NotRequired")
        hint = get_args(hint)[0]
    return is_required


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def is_class(kind: Any) -> bool:
    """Return whether a type is a class with fields.

    Typed dictionaries are recognised by their attributes, because `typing.is_typeddict`
    rejects those of typing_extensions.
    """
    if not isinstance(kind, type) or isinstance(kind, types.GenericAlias):
        return False
    typed_dictionary = issubclass(kind, dict) and hasattr(kind, "__required_keys__")
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "__attrs_attrs__")
    return has_fields or typed_dictionary or is_named_tuple(kind) or hasattr(kind, "model_json_schema")


def is_named_tuple(kind: Any) -> bool:
    """Return whether a class is a `NamedTuple`, or a `namedtuple`."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_field_defaults")


def is_pydantic(kind: Any) -> bool:
    """Return whether a class is a model or a data class of pydantic."""
    return hasattr(kind, "model_json_schema") or (
        hasattr(kind, "__pydantic_core_schema__") and "pydantic" in sys.modules
    )


def is_hashable(value: object) -> bool:
    """Return whether a value can be the key of a dictionary."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class TypeField:
    """A field with which objects of a class are made.

    Attributes:
        name: Its name in the class.
        argument: The keyword argument by which the class takes it: an alias, or its
            name.
        kind: Its type, with the metadata of `Annotated`.
        description: What the class says about it beside its type, or "".
        is_required: Whether the class needs it. An item of a `NamedTuple` without
            default is required.
    """

    name: str
    argument: str
    kind: Any
    description: str
    is_required: bool


def fields_of(kind: Any) -> tuple[TypeField, ...] | None:
    """Return the fields of a class in order, or None for any other type.

    Classes are data classes, attrs classes, typed dictionaries, `NamedTuple`s and
    pydantic models; generic ones may have arguments. Fields with `init=False` are left
    out. Calling the class with the arguments makes an object.

    Raises `GrammarError` for annotations that cannot be resolved.
    """
    origin = get_origin(kind) or kind
    if not is_class(origin):
        return None
    if not getattr(origin, "__pydantic_complete__", True) and hasattr(origin, "model_rebuild"):
        with _naming(kind):
            origin.model_rebuild()
    described = getattr(origin, "model_fields", None) or getattr(origin, "__pydantic_fields__", None)
    if isinstance(described, dict):
        return tuple(_field_of_pydantic(name, one) for name, one in described.items() if one.init is not False)
    hints = _hints(kind)
    if is_named_tuple(origin):
        names = [(name, name not in origin._field_defaults) for name in origin._fields]
        return tuple(TypeField(name, name, hints.get(name, Any), "", needed) for name, needed in names)
    if dataclasses.is_dataclass(origin):
        return tuple(
            TypeField(one.name, one.name, hints[one.name], _described(one), _is_required(one))
            for one in dataclasses.fields(origin)
            if one.init
        )
    if hasattr(origin, "__attrs_attrs__"):
        nothing = sys.modules["attr"].NOTHING
        return tuple(
            TypeField(one.name, one.alias, hints.get(one.name, Any), _described(one), one.default is nothing)
            for one in origin.__attrs_attrs__
            if one.init
        )
    keys = origin.__required_keys__
    return tuple(
        TypeField(name, name, hint, "", _is_required_key(hint, is_required=name in keys))
        for name, hint in hints.items()
    )


def _field_of_pydantic(name: str, field: Any) -> TypeField:
    """Return a field by what pydantic says about it (`FieldInfo`)."""
    aliases = getattr(field.validation_alias, "choices", [field.validation_alias])
    argument = next((one for one in (*aliases, field.alias) if isinstance(one, str)), name)
    kind = field.annotation
    for one in field.metadata:
        kind = Annotated[kind, one]
    return TypeField(name, argument, kind, field.description or "", field.is_required())


def _described(field: Any) -> str:
    """Return the description of a field of a data class or an attrs class, or ""."""
    text = field.metadata.get("description", "")
    return text if isinstance(text, str) else ""


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a class's annotations; a generic class has arguments."""
    with _naming(kind):
        hints = typing.get_type_hints(get_origin(kind) or kind, include_extras=True)
    for hint in hints.values():
        check_size(hint)
    variables = _variables(kind)
    return {name: _substitute(hint, variables) for name, hint in hints.items()}


@contextmanager
def _naming(kind: Any) -> Iterator[None]:
    """Raise `GrammarError` for annotations of a class that cannot be resolved."""
    try:
        yield
    except (NameError, TypeError, AttributeError) as error:
        reason = f"the annotations of {type_name(kind)} cannot be resolved: {error}; define the names at module level"
        raise GrammarError(reason) from error


def metadata_of(kind: Any) -> tuple[Any, ...]:
    """Return the metadata of an `Annotated` type, () for any other type."""
    while _last_name(get_origin(kind)) in _MARKS:
        kind = get_args(kind)[0]
    return kind.__metadata__ if get_origin(kind) is Annotated else ()


def description_of(field: TypeField) -> str:
    """Return what a class, or the metadata of the type, says about a field; or ""."""
    return find_words([field.description, *metadata_of(field.kind)])


def find_words(metadata: Iterable[Any]) -> str:
    """Return the first words in metadata, of a str, `Doc` or pydantic field; or ""."""
    for one in metadata:
        of_field = getattr(one, "description", None) if type(one).__module__.startswith("pydantic.") else None
        for text in (one, getattr(one, "documentation", None), of_field):
            if isinstance(text, str) and text.strip():
                return cleandoc(text)
    return ""


def values_of(kind: Any, limit: int) -> tuple[Any, ...] | None:
    """Return the values of a type that can be listed, in its order, or None.

    They are the members of an `Enum`, the values of a `Literal`, True and False, None,
    whole numbers between bounds, and those of a union of such types, each once. Other
    metadata than bounds is not read.

    >>> from typing import Annotated, Literal, Optional
    >>> values_of(Optional[Literal["a", "b"]], 10)
    ('a', 'b', None)

    Args:
        kind: The type.
        limit: Maximum number of whole numbers between bounds.
    """
    check_size(kind)
    found: dict[tuple[type, Any], Any] = {}
    for part, bounds in _bounded_parts(kind, (), 0):
        values = _values_of_part(part, bounds, limit)
        if values is None:
            return None
        found |= {(type(value), value): value for value in values}
    return tuple(found.values())


def _bounded_parts(kind: Any, bounds: tuple[tuple[str, Any], ...], depth: int) -> Iterator[tuple[Any, list[Any]]]:
    """Iterate over the parts of a union, with the constraints on each as pairs."""
    if depth > MAX_DEPTH:
        raise GrammarError(f"types are nested more than {MAX_DEPTH} levels deep; make classes of the inner ones")
    for part in parts_of_union(kind):
        own = (*bounds, *(pair for one in metadata_of(part) for pair in (constraints_of(one) or {}).items()))
        if get_origin(part) is Annotated:
            yield from _bounded_parts(part.__origin__, own, depth + 1)
        else:
            yield part, list(own)


def _values_of_part(part: Any, bounds: list[tuple[str, Any]], limit: int) -> list[Any] | None:
    """Return the values of a type that is no union, or None if they cannot be listed.

    `bounds` are constraints on whole numbers, such as ("ge", 0). Whole numbers are
    listed up to `limit`.
    """
    if isinstance(part, type) and issubclass(part, Enum):
        members_of(part)  # refuses one without members
        return None if issubclass(part, Flag) else list[Any](part)  # flags may be combined
    if get_origin(part) is Literal:
        return list(get_args(part))
    if part is None or part is type(None):
        return [None]
    if part is bool:
        return [True, False]
    return _whole_numbers(bounds, limit) if part is int else None


def _whole_numbers(bounds: list[tuple[str, Any]], limit: int) -> list[int] | None:
    """Return the whole numbers within bounds, or None if they exceed `limit`."""
    if not all(name in ("ge", "gt", "le", "lt", "multiple_of") and isinstance(one, int) for name, one in bounds):
        return None
    low = [one + (name == "gt") for name, one in bounds if name in ("ge", "gt")]
    high = [one - (name == "lt") for name, one in bounds if name in ("le", "lt")]
    step = lcm(*(one for name, one in bounds if name == "multiple_of"))
    if not low or not high or not step:
        return None
    numbers = range(-(-max(low) // step) * step, min(high) + 1, step)
    return list(numbers) if 0 < len(numbers) <= limit else None
