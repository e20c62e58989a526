"""Checks of options and choices, and how options are declared."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum, EnumMeta
from functools import cache
from numbers import Integral
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

from selectrie.errors import OptionError, PythonOnly, words

MAX_NUMBER = sys.float_info.max
"""Largest number that is accepted: greater whole numbers do not fit a float."""

MAX_TEXTS = 65_536
"""Maximum number of texts that one request may draw; each text is a separate task."""
_ITERABLES = "several texts, such as a list, a column of a data frame, an Enum class or a Literal type"


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise `OptionError` unless `value` is one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        near = get_close_matches(value, allowed, n=1, cutoff=0.65) if isinstance(value, str) else ()
        meant = "".join(f"; did you mean {one!r}?" for one in near)
        raise OptionError(name, value, "one of " + ", ".join(repr(a) for a in allowed) + meant)


def at_least(name: str, value: object, min_value: int, *, max_value: int = sys.maxsize, optional: bool = True) -> None:
    """Raise `OptionError` unless value is an int from `min_value` to `max_value`.

    None is accepted too if the value is optional.
    """
    if value is None and optional:
        return
    if isinstance(value, Integral) and not isinstance(value, int):
        raise OptionError(name, value, f"an int, not the type {type(value).__name__}; pass int(…)")
    if not isinstance(value, int) or isinstance(value, bool) or value < min_value:
        raise OptionError(name, value, f"a whole number of at least {min_value}")
    if value > max_value:
        raise OptionError(name, value, f"a whole number from {min_value} to {max_value}")


def record(name: str, value: object, kind: type) -> None:
    """Raise `OptionError` unless `value` is a record of the class `kind`."""
    if not isinstance(value, kind):
        raise OptionError(name, value, f"a {kind.__name__} record")


def flag(name: str, value: object) -> None:
    """Raise `OptionError` unless value is True or False."""
    if type(value) is not bool:
        raise OptionError(name, value, "True or False")


def callback(name: str, value: object, of: str) -> None:
    """Raise `OptionError` unless value is callable or None.

    `of` describes the arguments with which it is called.
    """
    if value is not None and not callable(value):
        raise OptionError(name, value, f"a callable of {of}, or None")


def text(name: str, value: object, *, optional: bool = False) -> None:
    """Raise `OptionError` unless value is a str, or None if it is optional."""
    if not isinstance(value, str) and not (optional and value is None):
        raise OptionError(name, value, "a str or None" if optional else "a str")


def number(name: str, value: object, *, min_value: float, max_value: float = math.inf, remedy: str) -> None:
    """Raise `OptionError` unless value is finite, and from `min_value` to `max_value`.

    `remedy` describes the allowed values in the message.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not max(min_value, -MAX_NUMBER) <= value <= min(max_value, MAX_NUMBER):  # type: ignore[operator]
        raise OptionError(name, value, remedy)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that an option may have, both bounds included.

    Attributes:
        min_value: The least allowed number.
        max_value: The greatest allowed number.
        remedy: Description of the allowed values in an error; "" for whole numbers.
        optional: Whether None is allowed too.
    """

    min_value: float
    max_value: float = math.inf
    remedy: str = ""
    optional: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise `OptionError` for a value outside the bounds."""
        if self.optional and value is None:
            return
        if self.remedy:
            number(name, value, min_value=self.min_value, max_value=self.max_value, remedy=self.remedy)
        else:
            greatest = sys.maxsize if self.max_value == math.inf else int(self.max_value)
            at_least(name, value, int(self.min_value), max_value=greatest, optional=False)


@dataclass(frozen=True, slots=True)
class Names:
    """The allowed values of an option that is one of several names."""

    names: tuple[str, ...]

    def check(self, name: str, value: object) -> None:
        """Raise `OptionError` for a value that is none of the names."""
        one_of(name, value, self.names)


class Flag:
    """The allowed values of a Boolean option, True and False."""

    check = staticmethod(flag)


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option of a record, as the record declares it.

    Flags, fields of requests and arguments of tags are made from it.

    Attributes:
        name: Name of the field.
        kind: `int`, `float`, `str` or `bool`.
        default: Default of the field.
        allowed: The allowed values, an object with a method `check`.
        help: The first sentence about the field in the record's docstring.
    """

    name: str
    kind: type[Any]
    default: Any
    allowed: Any
    help: str


def option(default: Any, allowed: Bounds | Names) -> Any:
    """Return a dataclass field that declares an option with a default.

    `allowed` holds its allowed values.
    """
    return field(default=default, metadata={_ALLOWED: allowed})


@cache
def options_of(record: Any) -> Mapping[str, OptionField]:
    """Return the options of a record by name: its `option` fields and Booleans.

    They are in the order of the record's docstring.
    """
    _, _, section = (inspect.getdoc(record) or "").partition("\nAttributes:\n")
    texts = {found[1]: " ".join(found[2].replace("`", "").split()) for found in _ATTRIBUTE.finditer(section)}
    found = {
        one.name: OptionField(
            name=one.name,
            kind=_KINDS.get(one.type.partition(" ")[0], str),
            default=one.default,
            allowed=one.metadata.get(_ALLOWED, Flag()),
            help=texts.get(one.name, "").partition(". ")[0].removesuffix(".") + ".",
        )
        for one in fields(record)
        if _ALLOWED in one.metadata or one.type == "bool"
    }
    return {name: found[name] for name in dict.fromkeys([*texts, *found]) if name in found}


def numbers_of(record: Any) -> dict[str, OptionField]:
    """Return the numeric options of a record by name."""
    return {name: one for name, one in options_of(record).items() if isinstance(one.allowed, Bounds)}


def check_options(options: Any) -> None:
    """Raise `OptionError` for the first option of a record with an invalid value."""
    record: Any = type(options)
    for one in options_of(record).values():
        one.allowed.check(one.name, getattr(options, one.name))


_ALLOWED = "allowed"
_KINDS: Mapping[str, type[Any]] = {"int": int, "float": float, "str": str, "bool": bool}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
DEADLINE = Bounds(math.ulp(0.0), remedy=words("seconds above 0{}", PythonOnly(", or None for no deadline")))
"""Bounds of seconds after which work is given up."""


def texts(name: str, value: object, *, allowed: str = "a list or tuple of texts, each a str") -> tuple[str, ...]:
    """Return the texts of a list, a tuple or another sequence, as a tuple.

    Raises `OptionError` for anything else, a single text included.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise OptionError(name, value, allowed)
    for index, one in enumerate(value):
        text(f"{name}[{index}]", one)
    return tuple(value)


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """Return the ids of a list, a tuple or an array, as a tuple of ints.

    Raises `OptionError` for anything else, or if one of them is not an id.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping | AbstractSet | Iterator):
        raise OptionError(name, value, "a list, tuple or array of token ids")
    try:
        ids = tuple(value)
    except TypeError:  # a zero-dimensional array
        raise OptionError(name, value, "a list, tuple or array of token ids") from None
    return tuple(natural(f"{name}[{index}]", token, _TOKEN_ID) for index, token in enumerate(ids))


K = TypeVar("K")
V = TypeVar("V")


class ReadOnlyDict(dict[K, V]):
    """A dict that cannot be changed.

    Unlike a `MappingProxyType`, it can be copied, pickled and written as JSON.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping is read-only; change a copy, `dict(mapping)`")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return type(self), (dict(self),)


_TOKEN_ID = "a whole number of at least 0, the id of a token"  # noqa: S105 - of a vocabulary


N_SEEDS = 1 << 64
"""Number of seeds."""
SEED = Bounds(-1, N_SEEDS - 1, "a whole number from 0 to 2**64 - 1; leave it out, or give -1, for a random one")
"""Bounds of a seed; -1 is a random one, as in llama.cpp and vLLM."""


def seed(name: str, value: object, n: int = 1) -> int | None:
    """Return a seed as an int of at least 0, or None for a random one.

    Raises `OptionError` for anything but None and a whole number in `SEED`, and for one
    to which the seeds of `n` texts cannot be added: text i has the seed plus i.
    """
    if value is None or (isinstance(value, Integral) and value == -1):
        return None
    whole = natural(name, value, SEED.remedy)
    SEED.check(name, whole)
    if whole + n > N_SEEDS:
        raise OptionError(name, whole, f"at most 2**64 - {n}, since text i has the seed plus i")
    return whole


def natural(name: str, value: object, allowed: str) -> int:
    """Return a whole number of at least 0, such as numpy's, as an int.

    Raises `OptionError` for anything else; `allowed` describes the values in it.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise OptionError(name, value, allowed)
    return int(value)


def named(name: str, value: object) -> Mapping[str, Any]:
    """Return a read-only copy of a mapping from names to values.

    Raises `OptionError` for anything else.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(name, value, "a mapping from names to values")
    return ReadOnlyDict(value)


def text_of(value: object) -> str | None:
    """Return the text by which a value is scored, or None if its type has no text.

    A str is returned as it is, a bool gives "true" or "false", an int its digits, and
    an Enum member the text of its value.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int):
        return None
    try:
        return str(value)
    except ValueError:  # more digits than Python writes
        return None


def is_table(given: object) -> bool:
    """Return whether an object is a data frame, of which iterating yields columns."""
    return hasattr(given, "columns") or hasattr(given, "column_names")


def listed(given: Any, refuse: Callable[[str], Exception]) -> tuple[Any, ...]:
    """Return the values of an iterable, an Enum class, a `Literal` or `bool`, in order.

    Values of numpy and pyarrow become Python's own.

    Args:
        given: The values. A set is refused, because it has no order, and so is a single
            text.
        refuse: Returns the error to raise, by what is expected instead.
    """
    if isinstance(given, EnumMeta):
        return tuple(given)
    if given is bool:
        return True, False
    if get_origin(given) is Literal:
        return get_args(given)
    if isinstance(given, set | frozenset):
        raise refuse("several texts in an order, such as `sorted(…)` of the set")
    if is_table(given):
        raise refuse("one column of the data frame")
    is_one = isinstance(given, str | bytes | bytearray | Mapping | type)
    if is_one or not isinstance(given, Iterable) or getattr(given, "ndim", 1) != 1:
        raise refuse(_ITERABLES)
    if isinstance(given, list | tuple):
        return tuple(given) if {*map(type, given)} <= {str} else tuple(map(_to_plain, given))
    return tuple(map(_to_plain, given))


def _to_plain(value: Any) -> Any:
    """Return a scalar of numpy or pyarrow as a value of Python, others as they are."""
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    return value.as_py() if hasattr(value, "as_py") else value
