"""The charges for operators, methods and filters of a chat template, made in advance.

Every function raises `LimitError` if the result would have more text or items than the
rendering has left. It also charges the meter for the values that it looks at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, KeysView, Mapping, Sequence, ValuesView
from types import BuiltinMethodType, MappingProxyType, MethodType
from typing import Any

from jinja2 import Undefined
from jinja2.runtime import BlockReference, LoopContext, Macro, TemplateReference

from selectrie.backends.chat.meter import LimitError, Meter

GROWTH = 10
"""Maximum number of characters that escaping or `repr` makes of one."""
QUADRATIC = 1_000
"""Length at which a quadratic filter costs as much per character as others."""
MAX_PATH_STEPS = 64
"""Maximum number of steps in the path of an attribute, `a.b.c`."""
MAX_DECIMAL_PLACES = 400
"""Maximum number of decimal places for `round`; a double has no more."""

STEPS_A_CALL = 8
"""Steps for calling a filter, a macro or a method.

Python takes that much longer for a call than for other parts.
"""

Arguments = tuple[Any, ...]

_PADS = frozenset(("center", "ljust", "rjust", "zfill"))
_PRODUCTS = frozenset(("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition", "rsplit"))
_LINEAR_TEXT = frozenset(
    [
        "capitalize",
        "casefold",
        "count",
        "endswith",
        "escape",
        "find",
        "format",
        "format_map",
        "hex",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "lower",
        "maketrans",
        "partition",
        "removeprefix",
        "removesuffix",
        "split",
        "splitlines",
        "startswith",
        "swapcase",
        "title",
        "unescape",
        "upper",
    ]
)
_OF_NUMBERS = frozenset(["as_integer_ratio", "bit_count", "bit_length", "conjugate", "is_integer", "hex"])
_OF_CONTAINERS = frozenset(
    [
        "copy",
        "count",
        "difference",
        "fromkeys",
        "get",
        "index",
        "intersection",
        "isdisjoint",
        "issubset",
        "issuperset",
        "items",
        "keys",
        "symmetric_difference",
        "union",
        "values",
    ]
)
_ENCODINGS = frozenset(("utf8", "utf16", "utf32", "ascii", "latin1"))
_ENCODING_ERRORS = frozenset(("strict", "ignore", "replace"))
_CONTAINERS = (list, tuple, set, frozenset, range, Mapping, KeysView, ValuesView, ItemsView)
_PERCENT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_SPEC = re.compile(r"\{[^{}]*:([^{}]*)(\{?)")


def operate(meter: Meter, operator: str, left: Any, right: Any) -> None:
    """Charge the meter for `left operator right`, before it is computed."""
    is_number = isinstance(left, int | float) and isinstance(right, int | float)
    if is_number and operator == "**":
        _power(left, right)
    elif is_number:
        meter.number(left)
        meter.number(right)
    elif operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str | bytes) and isinstance(times, int):
                meter.expect(len(value) * max(times, 0))
            elif isinstance(value, list | tuple) and isinstance(times, int):
                meter.expect_items(len(value) * max(times, 0))
    elif operator == "+":
        meter.pass_over(left)
        meter.pass_over(right)
    elif operator == "%" and isinstance(left, str | bytes):
        formats(meter, left, right)
    else:
        meter.weigh(left, right)


def _power(base: float, exponent: float) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        Meter().number(1 << min(base.bit_length() * exponent, 1 << 20))


def formats(meter: Meter, template: str | bytes, *values: Any, braces: bool = False) -> None:
    """Charge the meter for `template % values`, or for `template.format(values)`.

    Raises `LimitError` if a width is taken from the values.
    """
    text = template.decode("latin-1") if isinstance(template, bytes) else str.__str__(template)
    weight = meter.weigh(values)
    widths = 0
    for match in (_SPEC if braces else _PERCENT).finditer(text):
        if "*" in match.groups() or (braces and match[2]):
            raise LimitError("it formats with a width that is computed")
        digits = re.findall(r"\d+", match[1]) if braces else [part for part in match.groups() if part]
        widths += sum(int(part) if len(part) < 10 else 10**10 for part in digits)
    n_fields = text.count("{" if braces else "%")
    meter.expect(len(text) + widths + n_fields * GROWTH * (weight.characters + weight.nodes))
    meter.spend(len(text))


def call(meter: Meter, function: Any, args: Arguments, kwargs: Mapping[str, Any]) -> Arguments:
    """Charge the meter for `function(*args, **kwargs)`, before it is called.

    Returns the arguments to call it with.
    """
    meter.tick(STEPS_A_CALL)
    if isinstance(function, Macro | BlockReference | LoopContext | TemplateReference | Undefined):
        meter.tick(1 + len(args) + len(kwargs))
        return args
    owner = getattr(function, "__self__", None) if isinstance(function, BuiltinMethodType | MethodType) else None
    if owner is None:
        meter.weigh(args, kwargs)
        return args
    name = function.__name__
    if isinstance(owner, str | bytes):
        return _of_text(meter, owner, name, args, kwargs)
    meter.weigh(args, kwargs)
    if isinstance(owner, int | float):
        known: frozenset[str] | None = _OF_NUMBERS
    elif isinstance(owner, _CONTAINERS):
        known = _OF_CONTAINERS
        meter.pass_over(owner)
        if name in ("count", "index"):
            meter.weigh(owner)
    elif isinstance(owner, type):
        known = frozenset(("fromkeys", "escape", "maketrans")) if isinstance(function, BuiltinMethodType) else None
    else:
        known = None if isinstance(function, MethodType) else frozenset()
    if known is not None and name not in known:
        raise LimitError(f"it calls {name}() of a {type(owner).__name__}, whose cost is not known")
    return args


def _of_text(meter: Meter, text: Any, name: str, args: Arguments, kwargs: Mapping[str, Any]) -> Arguments:
    """Charge the meter for the method `name` of a text or of bytes.

    Returns the arguments to call it with.
    """
    values = [*args, *kwargs.values()]
    meter.spend(len(text))
    if name == "join" and values:
        pieces = list(values[0])
        weight = meter.weigh(pieces)
        meter.expect(weight.characters * GROWTH + len(pieces) * len(text))
        return (pieces,)
    weight = meter.weigh(values)
    if name in _PADS:
        meter.expect(_largest(values))
    elif name == "expandtabs":
        meter.expect(_count(text, "\t") * (_largest(values) if values else 8))
    elif name == "replace" and len(values) > 1:
        meter.tick(_count(text, values[0]))
        meter.expect(_count(text, values[0]) * weight.longest)
    elif name == "translate":
        meter.expect(len(text) * weight.longest)
    elif name in _PRODUCTS:
        meter.spend(len(text) * weight.characters)
        meter.expect_items(_count(text, values[0]) if values and values[0] else len(text))
    elif name == "striptags":
        meter.spend(len(text) ** 2 // QUADRATIC)
    elif name in ("encode", "decode"):
        _check_codec(values)
    else:
        _linear(meter, text, name, values)
    return args


def _linear(meter: Meter, text: Any, name: str, values: Sequence[Any]) -> None:
    """Charge the meter for the method `name`, which reads `text` once."""
    if name not in _LINEAR_TEXT:
        raise LimitError(f"it calls {name}() of a text, whose cost is not known")
    if name in ("split", "splitlines"):
        meter.expect_items(_count(text, values[0]) if values and values[0] else len(text))


def _count(text: Any, part: Any) -> int:
    """Return how often a part occurs in a text."""
    if isinstance(text, bytes) and isinstance(part, str):
        part = part.encode()
    return (
        int(text.count(part)) if isinstance(part, str | bytes) and isinstance(part, str) == isinstance(text, str) else 0
    )


def _largest(values: Sequence[Any]) -> int:
    return max((value for value in values if isinstance(value, int)), default=0)


def _check_codec(values: Sequence[Any]) -> None:
    names = [str(value).lower().replace("-", "").replace("_", "") for value in values]
    if names[:1] and names[0] not in _ENCODINGS:
        raise LimitError(f"it encodes text as {str(values[0])[:40]!r}, whose cost is not known")
    if names[1:] and names[1] not in _ENCODING_ERRORS:
        raise LimitError(f"it encodes text with errors={str(values[1])[:40]!r}, whose cost is not known")


def _padded(meter: Meter, text: Any, /, width: Any = 80, *_: Any, **__: Any) -> None:
    del text
    meter.expect(_largest([width]))


def _indented(meter: Meter, text: Any, /, width: Any = 4, *_: Any, **__: Any) -> None:
    of_a_line = len(width) if isinstance(width, str) else _largest([width])
    meter.expect(of_a_line * (str(text).count("\n") + 1))


def _replaced(meter: Meter, text: Any, /, old: Any, new: Any, *_: Any, **__: Any) -> None:
    n_matches = _count(str(text), str(old))
    meter.tick(n_matches)
    meter.expect(n_matches * GROWTH * sum(_weight_of(meter, new)))


def _weight_of(meter: Meter, value: Any) -> tuple[int, int]:
    weight = meter.weigh(value)
    return weight.nodes, weight.characters


def _formatted(meter: Meter, template: Any, /, *args: Any, **kwargs: Any) -> None:
    formats(meter, str(template), args, kwargs)


def _dumped(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> None:
    weight, around = meter.weigh(value), meter.weigh(args, kwargs)
    indents = [one for one in (*args, *kwargs.values()) if type(one) is int]
    of_a_node = around.characters + (weight.depth + 1) * max([0, *indents]) + GROWTH * 4
    meter.expect(GROWTH * weight.characters + weight.nodes * (of_a_node + weight.depth * around.longest))


def _batched(meter: Meter, value: Any, /, linecount: Any, *_: Any, **__: Any) -> None:
    del value
    meter.expect_items(_largest([linecount]))


def _rounded(meter: Meter, value: Any, /, precision: Any = 0, *_: Any, **__: Any) -> None:
    meter.number(value)
    if isinstance(precision, int) and abs(precision) > MAX_DECIMAL_PLACES:
        raise LimitError(f"it rounds to more than {MAX_DECIMAL_PLACES} places")


def _summed(meter: Meter, value: Any, /, attribute: Any = None, start: Any = 0) -> None:
    del attribute
    if not isinstance(start, int | float):
        weight = meter.weigh(value)
        meter.tick(weight.nodes**2)


def _sorted(meter: Meter, value: Any, /, *_: Any, **__: Any) -> None:
    weight = meter.weigh(value)
    rounds = weight.nodes.bit_length()
    meter.tick(weight.nodes * rounds)
    meter.spend(weight.characters * rounds)


def _joined(meter: Meter, value: Any, /, d: Any = "", *_: Any, **__: Any) -> None:
    separator = meter.weigh(d)
    n = len(value) if hasattr(type(value), "__len__") else 0
    meter.expect(n * GROWTH * (separator.characters + (separator.nodes if not isinstance(d, str) else 0)))


def _quadratic(meter: Meter, value: Any, /, *args: Any, **kwargs: Any) -> None:
    n = sum(_weight_of(meter, value))
    meter.spend(n**2 // QUADRATIC)
    meter.expect(GROWTH * n * (1 + meter.weigh(args, kwargs).characters))


def _capitalized(meter: Meter, value: Any, /) -> None:
    meter.spend(STEPS_A_CALL * meter.weigh(value).characters)


def _printed(meter: Meter, value: Any, /, *_: Any, **__: Any) -> None:
    weight = meter.weigh(value)
    meter.tick(weight.nodes * 8 * weight.depth)
    meter.spend(weight.characters * 8 * weight.depth)


_FILTERS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "batch": _batched,
        "center": _padded,
        "dictsort": _sorted,
        "format": _formatted,
        "groupby": _sorted,
        "indent": _indented,
        "join": _joined,
        "max": _sorted,
        "min": _sorted,
        "pprint": _printed,
        "replace": _replaced,
        "round": _rounded,
        "sort": _sorted,
        "striptags": _quadratic,
        "sum": _summed,
        "title": _capitalized,
        "tojson": _dumped,
        "unique": _sorted,
        "urlize": _quadratic,
        "wordwrap": _quadratic,
    }
)
"""Filters that need a rule.

They may make more than ten times their input, or take longer than reading it.
"""
_SHALLOW = frozenset(
    [
        "abs",
        "batch",
        "count",
        "d",
        "default",
        "first",
        "float",
        "int",
        "items",
        "last",
        "length",
        "list",
        "map",
        "random",
        "reject",
        "rejectattr",
        "reverse",
        "round",
        "select",
        "selectattr",
        "slice",
    ]
)
"""Filters that only iterate over their input, without looking into its parts."""
_CONSTANT = frozenset(["abs", "count", "d", "default", "first", "last", "length", "round"])
"""Those shallow filters that look at one part at most."""
_BY_ATTRIBUTE = frozenset(
    ["groupby", "join", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "sum", "unique"]
)
_FREE_TESTS = frozenset(
    [
        "boolean",
        "callable",
        "defined",
        "escaped",
        "even",
        "false",
        "filter",
        "float",
        "integer",
        "iterable",
        "mapping",
        "none",
        "number",
        "odd",
        "sameas",
        "sequence",
        "string",
        "test",
        "true",
        "undefined",
    ]
)


def filters(meter: Meter, name: str, args: Arguments, kwargs: Mapping[str, Any]) -> Arguments:
    """Charge the meter for the filter `name`.

    Returns the arguments to call it with; the first is the value it is applied to.
    """
    meter.tick(STEPS_A_CALL)
    if name in ("join", "sum", "sort", "min", "max", "unique", "groupby") and args and hasattr(args[0], "__next__"):
        args = (list(args[0]), *args[1:])
    if name in _SHALLOW and args:
        if name not in _CONSTANT:
            meter.pass_over(args[0])
        meter.weigh(args[1:], kwargs)
    else:
        meter.weigh(args, kwargs)
    if name in _BY_ATTRIBUTE:
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, str) and value.count(".") + value.count(",") > MAX_PATH_STEPS:
                raise LimitError(f"it follows a path of more than {MAX_PATH_STEPS} steps")
    if name in _FILTERS:
        _FILTERS[name](meter, *args, **kwargs)
    return args


def tests(meter: Meter, name: str, args: Arguments, kwargs: Mapping[str, Any]) -> None:
    """Charge the meter for the test `value is name`."""
    meter.tick(STEPS_A_CALL)
    if name not in _FREE_TESTS:
        meter.weigh(args, kwargs)
