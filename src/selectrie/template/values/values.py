"""Values as templates see them: texts, numbers, true, false, none, Enum members, lists, mappings. What each is as text, which
are equal, which is less, what a list of options holds.

Nothing here knows a place: what cannot be done is a `TemplateError` with its reason alone; `scope` adds where it stands.
No attribute of a value is read but an Enum member's value, and nothing of it is called but what lists and mappings have.
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

from selectrie.errors import TemplateError

MOST_TURNS = 100_000
"""Items that one loop goes through."""
MOST_OPTIONS = 1_000_000
"""Options of one slot."""
MOST_COMPARED = 100_000
"""Parts of two values that one comparison looks at."""

_NO_LIST = (str, bytes, bytearray, memoryview, UserString)
_HASHABLE: type = Hashable  # a list that is an Enum is not
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Option:
    """One of what a slot chooses among. text: as it stands on the page. value: what the slot's value is then."""

    text: str
    value: object


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Does it have places? Lists, tuples, ranges; never a text."""
    return isinstance(value, Sequence) and not isinstance(value, _NO_LIST)


def plain(value: object) -> object:
    """An Enum member as its value, a number of numpy as Python's; anything else as it is."""
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


def shown(value: object) -> str:
    """It in a message: short, and without asking it for more than lists and mappings tell."""
    inner = plain(value)
    if isinstance(inner, bool) or inner is None:
        return str(inner).lower()
    if isinstance(inner, str):
        text = str.__str__(inner)
        return repr(text if len(text) <= 60 else text[:59] + "…")
    if isinstance(inner, float):
        return float.__repr__(inner)
    if isinstance(inner, int):
        return int.__repr__(inner) if abs(inner) < 10**40 else "a number of more than 40 digits"
    if is_list(inner):
        return f"a list of {len(inner)}"
    return f"a mapping of {len(inner)}" if isinstance(inner, Mapping) else _of_type(inner)


def _of_type(value: object) -> str:
    """What is no text, number, list or mapping, in a message."""
    if isinstance(value, EnumMeta):
        return f"the Enum class {value.__name__}"
    return f"a value of the type {type(value).__name__}"


def text_of(value: object) -> str:
    """A value as the page shows it: a str as it is, numbers by repr, `true` and `false`, Enum members by their value.

    Raises `TemplateError` for what has no text: none, lists, mappings, NaN, infinities, anything else.
    """
    value = plain(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise TemplateError("the text holds a lone surrogate, which no tokenizer can read; mend the text")
        return str.__str__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TemplateError(f"the number {float.__repr__(value)} has no text; give a finite one, or a text")
        return float.__repr__(value)
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:  # Python's limit on digits
            raise TemplateError("the number has too many digits to be written; give a text") from None
    raise TemplateError(_no_text(value))


def _no_text(value: object) -> str:
    if value is None:
        return "none has no text; give a value, or put the tag in an `if`"
    if is_list(value):
        return f"{shown(value)} has no text; use `each`, or one of its places: name[0]"
    if isinstance(value, Mapping):
        return f"{shown(value)} has no text; use `each`, or one of its keys: name.key"
    return f"{shown(value)} has no text; give a str, a number, True, False or an Enum member"


def truth(value: object) -> bool:
    """Does a condition hold? none, false, 0, the empty text, an empty list or mapping do not; an Enum member as its value."""
    value = plain(value)
    if value is None:
        return False
    if isinstance(value, str | int | float):
        return bool(value)
    if is_list(value) or isinstance(value, Mapping):
        return len(value) > 0
    raise TemplateError(f"{shown(value)} is neither true nor false; give a bool, a number, a text, a list or a mapping")


def same(left: object, right: object) -> bool:
    """Are they equal? Values of different kinds never are (`true` is no 1); an Enum member equals itself and its value.

    Lists are compared place by place, mappings key by key. Raises `TemplateError` beyond `MOST_COMPARED` parts.
    """
    pending = [(left, right)]
    room = MOST_COMPARED
    while pending and room > 0:
        one, other = pending.pop()
        room -= 1
        if one is other and not isinstance(one, float):
            continue
        if isinstance(one, Enum) and isinstance(other, Enum):
            return False
        one, other = plain(one), plain(other)
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
        elif not _same_plain(one, other):
            return False
    if room > 0:
        return True
    raise TemplateError("the two values are too large, or too deeply nested, to be compared")


def _same_plain(one: object, other: object) -> bool:
    """Two values that are neither lists nor mappings."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return one is other


def order(left: object, right: object) -> int:
    """-1, 0 or 1: two numbers by size, two texts by code points. Raises `TemplateError` for anything else.

    NaN is neither less nor more nor the same: it raises too.
    """
    one, other = plain(left), plain(right)
    if isinstance(one, str) and isinstance(other, str):
        return (one > other) - (one < other)
    if _is_number(one) and _is_number(other):
        if one != one or other != other:  # noqa: PLR0124 - NaN
            raise TemplateError("NaN is neither less nor more than a number")
        return (one > other) - (one < other)
    raise TemplateError(f"{shown(left)} and {shown(right)} have no order; only two numbers, or two texts, have one")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def contains(container: object, item: object) -> bool:
    """Is it in a list (an equal one), among a mapping's keys, or part of a text?"""
    container = plain(container)
    if isinstance(container, str):
        inner = plain(item)
        if not isinstance(inner, str):
            raise TemplateError(f"only a text can be part of a text, not {shown(item)}")
        return inner in container
    if isinstance(container, Mapping):
        return _key_in(container, item) is not None
    if isinstance(container, range):  # of any length
        number = plain(item)
        return _is_number(number) and (isinstance(number, int) or number.is_integer()) and int(number) in container
    if is_list(container):
        return any(same(one, item) for one in container)
    if isinstance(container, EnumMeta):
        return any(same(one, item) for one in members_of(container))
    raise TemplateError(f"`in` looks in lists, mappings and texts, not in {shown(container)}")


def part(value: object, step: object) -> object:
    """The part of a list at a place (negative ones count from the end), or of a mapping at a key.

    Raises `TemplateError` where there is none: a key that is missing, a place outside, a value without parts.
    """
    whole = value
    if isinstance(whole, Mapping):
        key = _key_in(whole, step)
        if key is None:
            raise TemplateError(f"the mapping has no key {shown(step)}{_nearest(step, whole)}")
        return whole[key[0]]
    if is_list(whole):
        place = plain(step)
        if not isinstance(place, int) or isinstance(place, bool):
            raise TemplateError(f"a list has places, not {shown(step)}; give a whole number such as [0]")
        if not -len(whole) <= place < len(whole):
            held = f"0 to {len(whole) - 1}" if len(whole) else "none"
            raise TemplateError(f"the list has no place {shown(place)}; its places: {held}")
        return whole[place]
    raise TemplateError(
        f"{shown(value)} has no parts, so {shown(step)} is nowhere in it; mappings and lists have parts"
    )


def _key_in(mapping: Mapping[object, object], key: object) -> tuple[object] | None:
    """The key as the mapping has it: an Enum member itself, else its value; None: it is not there, or can be no key."""
    for candidate in (key, plain(key)):
        can_be_key = isinstance(candidate, str | int | float | Enum) and isinstance(candidate, _HASHABLE)
        if can_be_key and candidate in mapping:
            return (candidate,)
    return None


def _nearest(step: object, mapping: Mapping[object, object]) -> str:
    keys = [key for key in islice(mapping, 1000) if isinstance(key, str)]
    return did_you_mean(step, keys) or (f"; its keys: {', '.join(map(shown, keys[:8]))}" if keys else "")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean …?" with the nearest name known, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name[:100], [one[:100] for one in known], n=1) if isinstance(name, str) else []
    return f"; did you mean {shown(near[0])}?" if near else ""


def members_of(enum: EnumMeta) -> list[object]:
    """The members of an Enum class, in the order defined, without aliases."""
    return list(enum)


def items_of(value: object) -> list[tuple[object, object]]:
    """What `each` goes through: (place, item) of a list or an Enum class, (key, value) of a mapping; `MOST_TURNS` at most."""
    _check_size(value, MOST_TURNS, "items", "that a loop goes through")
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, EnumMeta):
        return list(enumerate(members_of(value)))
    if is_list(value):
        return list(enumerate(value))
    raise TemplateError(f"`each` goes through a list or a mapping, not {shown(value)}{_make_list(value)}")


def _check_size(value: object, most: int, what: str, of: str) -> None:
    """Before anything is listed: a range may hold more than memory does."""
    if (is_list(value) or isinstance(value, Mapping)) and len(value) > most:
        raise TemplateError(f"{len(value)} {what} are more than the {most} {of}; give fewer")


def option_of(value: object) -> Option:
    """One option: a text, a number, true or false, an Enum member; or a pair of a text and the value it stands for."""
    if is_list(value):
        if len(value) == 2 and isinstance(value[0], str):
            return Option(text_of(value[0]), value[1])
        raise TemplateError(f"{shown(value)} is no option; a pair is a text and its value: (text, value)")
    return Option(text_of(value), value)


def options_of(value: object) -> tuple[Option, ...]:
    """The options of a list, of an Enum class (its members), or of a mapping from texts to values; in their order.

    Raises `TemplateError` where there is none, or more than `MOST_OPTIONS`, or where two have one text.
    """
    _check_size(value, MOST_OPTIONS, "options", "of one slot")
    if isinstance(value, EnumMeta):
        given: Iterable[object] = members_of(value)
    elif isinstance(value, Mapping):
        given = list(value.items())
    elif is_list(value):
        given = value
    else:
        reason = f"options are a list, a mapping from texts to values, or an Enum class, not {shown(value)}"
        raise TemplateError(reason + _make_list(value))
    options: list[Option] = []
    places: dict[str, int] = {}
    for place, one in enumerate(given):
        try:
            option = option_of(one)
        except TemplateError as error:
            raise TemplateError(f"option {place}: {error.reason}") from None
        first = places.setdefault(option.text, place)
        if first != place:
            both = f"option {first} is {shown(options[first].value)}, option {place} is {shown(option.value)}"
            raise TemplateError(f"two options have the text {shown(option.text)}: {both}; leave one out")
        options.append(option)
    if not options:
        raise TemplateError("the list of options is empty; give at least one")
    return tuple(options)


def _make_list(value: object) -> str:
    """The remedy for what holds several values and is no list."""
    if isinstance(value, AbstractSet) and not isinstance(value, MappingView):
        return "; a set has no order, give sorted(…)"
    return "; give list(…) of it" if isinstance(value, Iterable) and not isinstance(value, _NO_LIST) else ""
