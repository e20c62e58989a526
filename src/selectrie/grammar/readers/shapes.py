"""Builds small expressions, inspects them, and restricts them to some of their texts.

The restrictions are to the empty text, to non-empty texts, and to texts other than a
line feed. Functions that inspect an expression recurse as deep as it is nested, which
readers bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from selectrie.errors import GrammarError
from selectrie.grammar.rules.expressions import (
    EMPTY,
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    Sequence,
    Text,
)

NOTHING = Alternatives(())
MAX_OPTIONAL = 64
_LINE_FEED = b"\n"
_LINE_FEED_CODE = 10


def sequence(items: Iterable[Expression]) -> Expression:
    """Return a sequence.

    Adjacent texts are joined and empty ones dropped. If an item is `NOTHING`, the
    result is `NOTHING`.
    """
    kept: list[Expression] = []
    texts: list[bytes] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        if isinstance(item, Text):
            texts.append(item.value)
            continue
        if any(texts):
            kept.append(Text(b"".join(texts)))
        texts = []
        kept += item.items if isinstance(item, Sequence) else [item]
    if any(texts):
        kept.append(Text(b"".join(texts)))
    return EMPTY if not kept else kept[0] if len(kept) == 1 else Sequence(tuple(kept))


def alternatives(options: Iterable[Expression]) -> Expression:
    """Return a choice; nested choices are flattened and `NOTHING` is dropped."""
    kept: list[Expression] = []
    for option in options:
        kept += option.options if isinstance(option, Alternatives) else [option]
    return kept[0] if len(kept) == 1 else Alternatives(tuple(kept))


def repeat(item: Expression, min_count: int, max_count: int | None) -> Expression:
    """Return a repetition.

    The result is the empty string for at most 0 repetitions, and the item for exactly
    one.
    """
    if max_count == 0 or (item == NOTHING and min_count == 0):
        return EMPTY
    return item if (min_count, max_count) == (1, 1) or item == NOTHING else Repeat(item, min_count, max_count)


def empty_part(expression: Expression) -> Expression:
    """Return the expression restricted to the empty text.

    That is `EMPTY`, `NOTHING`, or the references in it, which represent anchors here.
    """
    match expression:
        case Reference():
            return expression
        case Text(value):
            return NOTHING if value else EMPTY
        case Sequence(items):
            return sequence(map(empty_part, items))
        case Alternatives(options):
            return alternatives(dict.fromkeys(part for option in options if (part := empty_part(option)) != NOTHING))
        case Repeat(item, min_count, _):
            return empty_part(item) if min_count else EMPTY
    return NOTHING


def full_part(expression: Expression) -> Expression:
    """Return the expression restricted to texts of at least one character."""
    match expression:
        case Reference():
            return NOTHING
        case Text(value):
            return expression if value else NOTHING
        case Sequence(items):
            return alternatives(_first_full(items))
        case Alternatives(options):
            return alternatives(map(full_part, options))
        case Repeat(item, min_count, max_count):
            return sequence(
                [full_part(item), repeat(item, max(min_count - 1, 0), None if max_count is None else max_count - 1)]
            )
    return expression


def long_part(expression: Expression) -> Expression:
    """Return the expression restricted to texts other than "" and a single line feed.

    The expression must have no anchors.
    """
    match expression:
        case Text(value):
            return NOTHING if value in {b"", _LINE_FEED} else expression
        case Characters(ranges):
            rest = [*((a, min(b, 9)) for a, b in ranges if a < 10), *((max(a, 11), b) for a, b in ranges if b > 10)]
            return Characters.of(rest) if rest else NOTHING
        case Sequence(items):
            return expression if _at_least_two(items) else alternatives(_first_long(items))
        case Alternatives(options):
            return alternatives(map(long_part, options))
        case Repeat(item, min_count, max_count):
            return _long_repeat(item, min_count, max_count)
    return NOTHING


def _long_repeat(item: Expression, min_count: int, max_count: int | None) -> Expression:
    """Return a repetition of `item` without the texts "" and a single line feed.

    Either `item` gives one such text in one round, or two rounds or more are not empty.
    """
    one = long_part(item) if min_count <= 1 or empty_part(item) == EMPTY else NOTHING
    if max_count == 1:
        return one
    more = repeat(item, max(min_count - 2, 0), None if max_count is None else max_count - 2)
    return alternatives([one, sequence([full_part(item), full_part(item), more])])


def is_line_feed(expression: Expression) -> bool:
    """Return whether an expression matches the text of one line feed."""
    match expression:
        case Text(value):
            return value == _LINE_FEED
        case Characters(ranges):
            return any(first <= _LINE_FEED_CODE <= last for first, last in ranges)
        case Sequence(items):
            full = [item for item in items if empty_part(item) == NOTHING]
            return any(is_line_feed(item) for item in items) if not full else len(full) == 1 and is_line_feed(full[0])
        case Alternatives(options):
            return any(map(is_line_feed, options))
        case Repeat(item, min_count, _):
            return is_line_feed(item) and (min_count <= 1 or empty_part(item) != NOTHING)
    return False


def first_characters(expression: Expression) -> Characters:
    """Return the characters that texts of an expression may begin with."""
    ranges: list[tuple[int, int]] = []
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case Text(value):
                ranges += [(ord(character), ord(character)) for character in value.decode()[:1]]
            case Characters(more):
                ranges += more
            case Sequence(items):
                for item in items:
                    waiting.append(item)
                    if empty_part(item) == NOTHING:
                        break
            case Alternatives(options):
                waiting += options
            case Repeat(item, _, _):
                waiting.append(item)
    return Characters.of(ranges)


def _at_least_two(items: tuple[Expression, ...]) -> bool:
    """Return whether at least two items must have characters."""
    return sum(empty_part(item) == NOTHING for item in items) > 1


def _first_long(items: tuple[Expression, ...]) -> Iterable[Expression]:
    """Yield sequences that together are the items restricted as by `long_part`.

    There is a case for each item that may be the first with characters. Either that
    item alone is long, or characters follow it.
    """
    for index, item in enumerate(_checked(items)):
        rest = sequence(items[index + 1 :])
        yield sequence([long_part(item), empty_part(rest)])
        yield sequence([full_part(item), full_part(rest)])
        if empty_part(item) == NOTHING:
            return


def _checked(items: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the items, or raise an error if there are too many cases to write out."""
    leading = next((index for index, item in enumerate(items) if empty_part(item) == NOTHING), len(items))
    if leading > MAX_OPTIONAL:
        raise GrammarError(
            f"{leading} consecutive items beside an anchor may be empty, but at most {MAX_OPTIONAL} "
            "are supported; move the anchor to an end of the pattern"
        )
    return items


def _first_full(items: tuple[Expression, ...]) -> Iterable[Expression]:
    """Yield sequences that together are the items restricted as by `full_part`.

    There is a sequence for each item that may be the first with characters.
    """
    empty: list[Expression] = []
    for index, item in enumerate(_checked(items)):
        yield sequence([*empty, full_part(item), *items[index + 1 :]])
        part = empty_part(item)
        if part == NOTHING:
            return
        empty.append(part)
