"""The text, equality, order and options of values in templates.

Values are texts, numbers, true, false, none, Enum members, lists and mappings.

Operations that are not possible raise a `TemplateError` without a position, which
`scope` adds. The only attribute of a value that is read is an Enum member's value, and
only methods of lists and mappings are called.
"""

from __future__ import annotations

import math
import re
from collections import UserString
from collections.abc import Hashable, Iterable, Mapping, MappingView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, EnumMeta
from itertools import islice
from numbers import Integral, Rational, Real
from typing import TypeGuard

from selectrie.errors import MessageText, PythonOnly, TemplateError, clip

MAX_TURNS = 100_000
"""Maximum number of items of one loop."""
MAX_OPTIONS = 1_000_000
"""Maximum number of options of one slot."""
MAX_COMPARED_PARTS = 100_000
"""Maximum number of parts of two values that one comparison looks at."""

_NO_LIST = (str, bytes, bytearray, memoryview, UserString)
_HASHABLE: type = Hashable  # a list that is an Enum is not
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SlotOption:
    """An option of a slot.

    Attributes:
        text: The option's text on the page.
        value: The slot's value if this option is chosen.
    """

    text: str
    value: object


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a sequence such as a list or range, but not a text."""
    return isinstance(value, Sequence) and not isinstance(value, _NO_LIST)


def to_plain(value: object) -> object:
    """Return the value of an Enum member, or a numpy number as Python's.

    Any other value is returned as it is.
    """
    for _ in range(8):
        if not isinstance(value, Enum):
            break
        value = value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Rational):
        return float(value)
    return value


def describe(value: object) -> str:
    """Return a short description of a value for messages."""
    inner = to_plain(value)
    if isinstance(inner, bool) or inner is None:
        return str(inner).lower()
    if isinstance(inner, str):
        return repr(clip(str.__str__(inner), 60))
    if isinstance(inner, float):
        return float.__repr__(inner)
    if isinstance(inner, int):
        return int.__repr__(inner) if abs(inner) < 10**40 else "a number of more than 40 digits"
    if is_list(inner):
        return f"a list of {len(inner)}"
    return f"a mapping of {len(inner)}" if isinstance(inner, Mapping) else _describe_type(inner)


def _describe_type(value: object) -> str:
    """Return a description of a value that is not a text, number, list or mapping."""
    if isinstance(value, EnumMeta):
        return f"the Enum class {value.__name__}"
    return f"a value of the type {type(value).__name__}"


def text_of(value: object) -> str:
    """Return the text with which a value is written to the page.

    A str is written as it is, a number by its repr, a bool as `true` or `false`, and an
    Enum member as its value. Raises `TemplateError` for anything without a text: none,
    lists, mappings, NaN, infinities, other types, and texts with lone surrogates.
    """
    value = to_plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise TemplateError("the text contains a lone surrogate, which no tokenizer can read; repair the text")
        return str.__str__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TemplateError(f"the number {float.__repr__(value)} has no text; give a finite one, or a text")
        return float.__repr__(value)
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:  # exceeds Python's limit on digits
            raise TemplateError("the number has too many digits to be written; give a text") from None
    raise TemplateError(_no_text_message(value))


def _no_text_message(value: object) -> str:
    """Return the reason why a value has no text."""
    if value is None:
        return "none has no text; give a value, or put the tag in an `if`"
    if is_list(value):
        return f"{describe(value)} has no text; use `each`, or one of its items: name[0]"
    if isinstance(value, Mapping):
        return f"{describe(value)} has no text; use `each`, or one of its values: name.key"
    return f"{describe(value)} has no text; give a str, a number, True, False or an Enum member"


def is_true(value: object) -> bool:
    """Return whether a value counts as true in a condition.

    none, false, 0, the empty text, an empty list and an empty mapping are false; an
    Enum member counts as its value. Raises `TemplateError` for other types.
    """
    value = to_plain(value)
    if value is None:
        return False
    if isinstance(value, str | int | float):
        return bool(value)
    if is_list(value) or isinstance(value, Mapping):
        return len(value) > 0
    raise TemplateError(
        f"{describe(value)} is neither true nor false; give a bool, a number, a text, a list or a mapping"
    )


def are_equal(left: object, right: object) -> bool:
    """Return whether two values are equal.

    Values of different kinds are never equal (`true` is not 1); an Enum member equals
    itself and its value. Lists are compared item by item, mappings key by key. Raises
    `TemplateError` beyond `MAX_COMPARED_PARTS` parts.
    """
    pending = [(left, right)]
    room = MAX_COMPARED_PARTS
    while pending and room > 0:
        one, other = pending.pop()
        room -= 1
        if one is other and not isinstance(one, float):
            continue
        if isinstance(one, Enum) and isinstance(other, Enum):
            return False
        one, other = to_plain(one), to_plain(other)
        if is_list(one) and is_list(other):
            if len(one) != len(other):
                return False
            room -= len(one)
            pending.extend(islice(zip(one, other, strict=False), max(room, 0)))
        elif isinstance(one, Mapping) and isinstance(other, Mapping):
            if len(one) != len(other) or any(key not in other for key in one):
                return False
            room -= len(one)
            pending.extend((one[key], other[key]) for key in islice(one, max(room, 0)))
        elif not _are_plain_equal(one, other):
            return False
    if room > 0:
        return True
    raise TemplateError("the two values are too large, or too deeply nested, to be compared")


def _are_plain_equal(one: object, other: object) -> bool:
    """Return whether two values that are neither lists nor mappings are equal."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return one is other


def compare_order(left: object, right: object) -> int:
    """Return -1, 0 or 1 for left < right, left == right or left > right.

    Numbers are ordered by size, texts by code points. Raises `TemplateError` for other
    values and for NaN, which has no order.
    """
    one, other = to_plain(left), to_plain(right)
    if isinstance(one, str) and isinstance(other, str):
        return (one > other) - (one < other)
    if _is_number(one) and _is_number(other):
        if one != one or other != other:  # noqa: PLR0124 - NaN
            raise TemplateError("NaN is neither less nor greater than a number")
        return (one > other) - (one < other)
    raise TemplateError(
        f"{describe(left)} and {describe(right)} cannot be ordered; only two numbers, or two texts, can"
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def contains(container: object, item: object) -> bool:
    """Return whether a container contains an item.

    The item may be equal to one of a list or Enum class, a key of a mapping, or a part
    of a text. Raises `TemplateError` for other containers, and for a part of a text
    that is not a text.
    """
    container = to_plain(container)
    if isinstance(container, str):
        inner = to_plain(item)
        if not isinstance(inner, str):
            raise TemplateError(f"only a text can be part of a text, not {describe(item)}")
        return inner in container
    if isinstance(container, Mapping):
        return _find_key(container, item) is not None
    if isinstance(container, range):  # may have any length
        number = to_plain(item)
        return _is_number(number) and (isinstance(number, int) or number.is_integer()) and int(number) in container
    if is_list(container):
        return any(are_equal(one, item) for one in container)
    if isinstance(container, EnumMeta):
        return any(are_equal(one, item) for one in members_of(container))
    raise TemplateError(f"`in` searches lists, mappings and texts, not {describe(container)}")


def get_part(value: object, step: object) -> object:
    """Return an item of a list by its index, or of a mapping by its key.

    Negative indices count from the end. Raises `TemplateError` if the key is missing,
    the index is out of range, or the value has no parts.
    """
    whole = value
    if isinstance(whole, Mapping):
        key = _find_key(whole, step)
        if key is None:
            raise TemplateError(f"the mapping has no key {describe(step)}{_hint_at_keys(step, whole)}")
        return whole[key[0]]
    if is_list(whole):
        index = to_plain(step)
        if not isinstance(index, int) or isinstance(index, bool):
            raise TemplateError(f"the index of a list must be a whole number such as [0], not {describe(step)}")
        if not -len(whole) <= index < len(whole):
            held = f"its indices are 0 to {len(whole) - 1}" if len(whole) else "it is empty"
            raise TemplateError(f"the list has no index {describe(index)}; {held}")
        return whole[index]
    raise TemplateError(
        f"{describe(value)} has no parts, so it has no {describe(step)}; only mappings and lists have parts"
    )


def _find_key(mapping: Mapping[object, object], key: object) -> tuple[object] | None:
    """Return the key of a mapping that equals `key`, as a tuple of one, or None.

    An Enum member is looked up itself, then by its value. None is also returned for a
    value that cannot be a key.
    """
    for candidate in (key, to_plain(key)):
        can_be_key = isinstance(candidate, str | int | float | Enum) and isinstance(candidate, _HASHABLE)
        if can_be_key and candidate in mapping:
            return (candidate,)
    return None


def _hint_at_keys(step: object, mapping: Mapping[object, object]) -> str:
    """Return the nearest key of a mapping, or some keys, as the end of a message."""
    keys = [key for key in islice(mapping, 1000) if isinstance(key, str)]
    return did_you_mean(step, keys) or (f"; its keys: {', '.join(map(describe, keys[:8]))}" if keys else "")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name.

    It is "; did you mean …?" with the nearest known name, or "".
    """
    from difflib import get_close_matches

    near = get_close_matches(name[:100], [one[:100] for one in known], n=1) if isinstance(name, str) else []
    return f"; did you mean {describe(near[0])}?" if near else ""


def members_of(enum: EnumMeta) -> list[object]:
    """Return the members of an Enum class in order of definition, without aliases."""
    return list(enum)


def items_of(value: object) -> list[tuple[object, object]]:
    """Return the items over which `each` loops.

    These are (index, item) of a list or an Enum class and (key, value) of a mapping.
    Raises `TemplateError` for other values and beyond `MAX_TURNS` items.
    """
    _check_size(value, MAX_TURNS, "items", "a loop")
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, EnumMeta):
        return list(enumerate(members_of(value)))
    if is_list(value):
        return list(enumerate(value))
    raise TemplateError(f"`each` loops over a list or a mapping, not {describe(value)}{_hint_at_list(value)}")


def _check_size(value: object, limit: int, what: str, of: str) -> None:
    """Raise `TemplateError` if a value is too large, before its items are listed.

    A range may have more items than fit in memory.
    """
    if (is_list(value) or isinstance(value, Mapping)) and len(value) > limit:
        raise TemplateError(f"{len(value)} {what} are too many: {of} takes at most {limit}")


def option_of(value: object) -> SlotOption:
    """Return a value as an option.

    The value is a text, a number, a bool or an Enum member, or a pair of a text and a
    value.
    """
    if is_list(value):
        if len(value) == 2 and isinstance(value[0], str):
            return SlotOption(text_of(value[0]), value[1])
        raise TemplateError(f"{describe(value)} is not an option; a pair is a text and its value: (text, value)")
    return SlotOption(text_of(value), value)


def options_of(value: object) -> tuple[SlotOption, ...]:
    """Return the options of a list, of an Enum class, or of a mapping, in their order.

    The options of an Enum class are its members; a mapping maps texts to values. Raises
    `TemplateError` if there are none, if there are more than `MAX_OPTIONS`, or if two
    have the same text.
    """
    _check_size(value, MAX_OPTIONS, "options", "a slot")
    if isinstance(value, EnumMeta):
        listed: Iterable[object] = members_of(value)
    elif isinstance(value, Mapping):
        listed = list(value.items())
    elif is_list(value):
        listed = value
    else:
        members, hint = PythonOnly(", or an Enum class"), PythonOnly(_hint_at_list(value))
        expected = "options must be a list or a mapping from texts to values"
        raise TemplateError(MessageText(expected, members, f", not {describe(value)}", hint))
    options: list[SlotOption] = []
    indices: dict[str, int] = {}
    for index, one in enumerate(listed):
        try:
            option = option_of(one)
        except TemplateError as error:
            raise TemplateError(f"option {index}: {error.reason}") from None
        first = indices.setdefault(option.text, index)
        if first != index:
            both = f"option {first} is {describe(options[first].value)}, option {index} is {describe(option.value)}"
            raise TemplateError(f"two options have the text {describe(option.text)}: {both}; leave one out")
        options.append(option)
    if not options:
        raise TemplateError("the list of options is empty; give at least one")
    return tuple(options)


def _hint_at_list(value: object) -> str:
    """Return a hint for an iterable that is not a list, or ""."""
    if isinstance(value, AbstractSet) and not isinstance(value, MappingView):
        return "; a set has no order, so pass sorted(…)"
    return "; pass list(…) of it" if isinstance(value, Iterable) and not isinstance(value, _NO_LIST) else ""
