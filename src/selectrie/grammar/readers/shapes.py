"""Builds small expressions, restricts them, and removes anchors from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from selectrie.errors import GrammarError
from selectrie.grammar.rules import (
    EMPTY,
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    Span,
    parts_of,
)

NOTHING = Alternatives(())
MAX_OPTIONAL = 64
_LINE_FEED = b"\n"
_LINE_FEED_CODE = 10


def sequence(items: Iterable[Expression]) -> Expression:
    """Return the concatenation of the items.

    Adjacent texts are joined and empty ones dropped. If an item is `NOTHING`, the
    result is `NOTHING`.
    """
    kept: list[Expression] = []
    texts: list[bytes] = []
    for item in items:
        if item == NOTHING:
            return NOTHING
        if isinstance(item, LiteralText):
            texts.append(item.value)
            continue
        if any(texts):
            kept.append(LiteralText(b"".join(texts)))
        texts = []
        kept += item.items if isinstance(item, Concatenation) else [item]
    if any(texts):
        kept.append(LiteralText(b"".join(texts)))
    return EMPTY if not kept else kept[0] if len(kept) == 1 else Concatenation(tuple(kept))


def alternatives(options: Iterable[Expression]) -> Expression:
    """Return the choice of the options, flattened and without `NOTHING`."""
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
        case LiteralText(value):
            return NOTHING if value else EMPTY
        case Concatenation(items):
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
        case LiteralText(value):
            return expression if value else NOTHING
        case Concatenation(items):
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
        case LiteralText(value):
            return NOTHING if value in {b"", _LINE_FEED} else expression
        case Characters(ranges):
            rest = [*((a, min(b, 9)) for a, b in ranges if a < 10), *((max(a, 11), b) for a, b in ranges if b > 10)]
            return Characters.of(rest) if rest else NOTHING
        case Concatenation(items):
            return expression if _at_least_two(items) else alternatives(_first_long(items))
        case Alternatives(options):
            return alternatives(map(long_part, options))
        case Repeat(item, min_count, max_count):
            return _long_repeat(item, min_count, max_count)
    return NOTHING


def _long_repeat(item: Expression, min_count: int, max_count: int | None) -> Expression:
    """Return a repetition of `item` without the texts "" and a single line feed.

    Either one round yields such a longer text, or at least two rounds are not
    empty.
    """
    one = long_part(item) if min_count <= 1 or empty_part(item) == EMPTY else NOTHING
    if max_count == 1:
        return one
    more = repeat(item, max(min_count - 2, 0), None if max_count is None else max_count - 2)
    return alternatives([one, sequence([full_part(item), full_part(item), more])])


def is_line_feed(expression: Expression) -> bool:
    """Return whether an expression matches the text that is one line feed."""
    match expression:
        case LiteralText(value):
            return value == _LINE_FEED
        case Characters(ranges):
            return any(first <= _LINE_FEED_CODE <= last for first, last in ranges)
        case Concatenation(items):
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
            case LiteralText(value):
                ranges += [(ord(character), ord(character)) for character in value.decode()[:1]]
            case Characters(more):
                ranges += more
            case Concatenation(items):
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
    for index, item in enumerate(_check_cases(items)):
        rest = sequence(items[index + 1 :])
        yield sequence([long_part(item), empty_part(rest)])
        yield sequence([full_part(item), full_part(rest)])
        if empty_part(item) == NOTHING:
            return


def _check_cases(items: tuple[Expression, ...]) -> tuple[Expression, ...]:
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
    for index, item in enumerate(_check_cases(items)):
        yield sequence([*empty, full_part(item), *items[index + 1 :]])
        part = empty_part(item)
        if part == NOTHING:
            return
        empty.append(part)


START, LINE_START, STOP, LINE_STOP, LAST = "^", "(?m)^", "$", "(?m)$", "\\Z"
_LEFT = frozenset({START, LINE_START})
_RIGHT = frozenset({STOP, LINE_STOP, LAST})


MAX_MORE = 5_000
"""Number of nodes that resolving may add to a small pattern."""
MAX_WORK_PER_NODE = 30


class _Beyond(Enum):
    """The text between a part of a pattern and the end that its anchors refer to."""

    NOTHING = "nothing"
    LINE_FEED = "one line feed"
    MORE = "anything else"


def anchor(name: str, offset: int) -> Reference:
    """Return a reference that represents an anchor at an offset of the pattern."""
    return Reference(name, Span(offset, offset + 1))


def resolve_anchors(expression: Expression, refuse: Callable[[int, str], GrammarError]) -> Expression:
    """Return an expression for the same texts with every anchor resolved.

    Args:
        expression: The pattern, with anchors.
        refuse: Returns the error for an offset and a reason.
    """
    pass_left = _AnchorPass(_LEFT, refuse)
    whole = _AnchorPass(_RIGHT, refuse).resolve(pass_left.resolve(expression))
    if whole == NOTHING and pass_left.first is not None:
        raise refuse(pass_left.first, "no text can match: this anchor, or one after it, never holds")
    return whole


class _AnchorPass:
    """Resolves the anchors of one direction, those of the left or of the right end.

    Attributes:
        first: Offset of the first anchor seen, of either direction.
    """

    def __init__(self, names: frozenset[str], refuse: Callable[[int, str], GrammarError]) -> None:
        self._names, self._refuse = names, refuse
        self._anchored: dict[int, tuple[Expression, bool]] = {}  # the expression is stored so that its id is not reused
        self._sizes: dict[int, tuple[Expression, int]] = {}
        self._max_size = self._left = 0
        self.first: int | None = None

    def resolve(self, expression: Expression) -> Expression:
        """Return the whole pattern rewritten, with no text beyond it."""
        self._max_size = MAX_MORE + 4 * self._size(expression)
        self._left = MAX_WORK_PER_NODE * self._max_size
        return self.rewrite(expression, _Beyond.NOTHING)

    def _has_anchor(self, expression: Expression) -> bool:
        """Return whether an expression contains an anchor of this pass; cached."""
        known = self._anchored.get(id(expression))
        if known is None:
            match expression:
                case Reference(name, span):
                    if span is not None:
                        self.first = span.start if self.first is None else min(self.first, span.start)
                    has_anchor = name in self._names
                case _:
                    has_anchor = sum(self._has_anchor(part) for part in parts_of(expression)) > 0
            known = self._anchored[id(expression)] = expression, has_anchor
        return known[1]

    def rewrite(self, expression: Expression, beyond: _Beyond) -> Expression:
        """Return the expression rewritten for the text `beyond` it."""
        if not self._has_anchor(expression):
            return expression
        result = self._rewrite_parts(expression, beyond)
        size = self._size(result)
        self._left -= size
        if size > self._max_size or self._left < 0:
            offset = self.first or 0
            reason = "resolving the anchors inside the pattern takes too many cases; move them to its ends"
            raise self._refuse(offset, reason)
        return result

    def _rewrite_parts(self, expression: Expression, beyond: _Beyond) -> Expression:
        """Return the expression with its anchors resolved by the text beyond it."""
        match expression:
            case Reference():
                return EMPTY if self._holds(expression, beyond) else NOTHING
            case Alternatives(options):
                return alternatives([self.rewrite(option, beyond) for option in options])
            case Concatenation(items):
                return (
                    self._rewrite_from_right(items, beyond)
                    if self._names is _RIGHT
                    else self._rewrite_from_left(items, beyond)
                )
            case Repeat(item, min_count, max_count):
                return self._rewrite_repeat(item, min_count, max_count, beyond)
        return expression

    def _size(self, expression: Expression) -> int:
        """Return the number of nodes of the tree, counting shared nodes repeatedly."""
        waiting = [expression]
        while waiting:
            node = waiting[-1]
            parts = parts_of(node)
            missing = [part for part in parts if id(part) not in self._sizes]
            if not missing:
                self._sizes[id(node)] = node, 1 + sum(self._sizes[id(part)][1] for part in parts)
                waiting.pop()
            waiting += missing
        return self._sizes[id(expression)][1]

    def _holds(self, anchor: Reference, beyond: _Beyond) -> bool:
        """Return whether an anchor holds before or after the text `beyond`."""
        if beyond is _Beyond.NOTHING:
            return True
        if anchor.name in {START, LAST}:
            return False
        if beyond is _Beyond.LINE_FEED:
            return True
        if anchor.name == STOP:
            return False
        offset = anchor.span.start if anchor.span else 0
        raise self._refuse(
            offset,
            f"{anchor.name[-1]!r} with the multi-line flag is not supported inside the pattern; write "
            "the line feeds out, or remove the flag",
        )

    def _rewrite_from_left(self, items: tuple[Expression, ...], beyond: _Beyond) -> Expression:
        """Rewrite a sequence from its left end.

        `empty` is the rewriting of the items so far for the case that they match no
        character, and `full` that for at least one character.
        """
        if beyond is _Beyond.MORE:
            return sequence([self.rewrite(item, beyond) for item in items])
        last = max(index for index, item in enumerate(items) if self._has_anchor(item))
        empty: Expression = EMPTY
        full: Expression = NOTHING
        for index, item in enumerate(items[: last + 1]):
            if empty == NOTHING:
                middle = [self.rewrite(one, _Beyond.MORE) for one in items[index : last + 1]]
                return sequence([full, *middle, *items[last + 1 :]])
            first = self.rewrite(item, beyond)
            later = NOTHING if full == NOTHING else sequence([full, self.rewrite(item, _Beyond.MORE)])
            full = alternatives([later, sequence([empty, full_part(first)])])
            empty = sequence([empty, empty_part(first)])
        return sequence([alternatives([empty, full]), *items[last + 1 :]])

    def _rewrite_from_right(self, items: tuple[Expression, ...], beyond: _Beyond) -> Expression:
        """Rewrite a sequence from its right end.

        `tails` holds the rewritings of the items so far, by the text that they match:
        none, a line feed, or more.
        """
        if beyond is _Beyond.MORE:
            return sequence([self.rewrite(item, beyond) for item in items])
        first = min(index for index, item in enumerate(items) if self._has_anchor(item))
        tails: dict[_Beyond, Expression] = {beyond: EMPTY}
        for index in range(len(items) - 1, first - 1, -1):
            if set(tails) == {_Beyond.MORE}:
                middle = [self.rewrite(one, _Beyond.MORE) for one in items[first : index + 1]]
                return sequence([*items[:first], *middle, tails[_Beyond.MORE]])
            tails = self._prepend(items[index], tails)
        return sequence([*items[:first], alternatives(tails.values())])

    def _prepend(self, item: Expression, tails: dict[_Beyond, Expression]) -> dict[_Beyond, Expression]:
        """Return the tails with one more item in front.

        Keys are the texts that lie beyond the next item.
        """
        grown: dict[_Beyond, list[Expression]] = {}
        for beyond, tail in tails.items():
            here = self.rewrite(item, beyond)
            if empty_part(here) != NOTHING:
                grown.setdefault(beyond, []).append(tail)
            if beyond is _Beyond.NOTHING and is_line_feed(here):
                grown.setdefault(_Beyond.LINE_FEED, []).append(sequence([LiteralText(b"\n"), tail]))
            rest = long_part(here) if beyond is _Beyond.NOTHING else full_part(here)
            if rest != NOTHING:
                grown.setdefault(_Beyond.MORE, []).append(sequence([rest, tail]))
        return {beyond: alternatives(parts) for beyond, parts in grown.items()}

    def _rewrite_repeat(self, item: Expression, min_count: int, max_count: int | None, beyond: _Beyond) -> Expression:
        """Return a repetition, rewritten for the text beyond it.

        Only the outermost round that matches a character is next to that text.
        """
        if beyond is not _Beyond.NOTHING and self._names is _LEFT:
            return repeat(self.rewrite(item, beyond), min_count, max_count)
        if self._names is _RIGHT:
            return self._rewrite_repeat_from_right(item, min_count, max_count, beyond)
        first, later = self.rewrite(item, beyond), self.rewrite(item, _Beyond.MORE)
        empty = self._refuse_anchor(empty_part(first))
        rounds = 0 if empty == EMPTY else max(min_count - 1, 0)
        full = sequence([full_part(first), repeat(later, rounds, None if max_count is None else max_count - 1)])
        return alternatives([EMPTY if min_count == 0 else empty, full])

    def _rewrite_repeat_from_right(
        self, item: Expression, min_count: int, max_count: int | None, beyond: _Beyond
    ) -> Expression:
        """Return a repetition rewritten from the right.

        If the last round may match a line feed, an anchor may still hold in the round
        before it.
        """
        if beyond is _Beyond.MORE:
            return repeat(self.rewrite(item, beyond), min_count, max_count)
        here = self.rewrite(item, beyond)
        empty = empty_part(here)
        # If a round may be empty, any number of rounds reaches the minimum.
        rounds = 0 if empty == EMPTY else max(min_count - 1, 0)
        more = None if max_count is None else max_count - 1
        before = repeat(self.rewrite(item, _Beyond.MORE), rounds, more)
        options = [EMPTY if min_count == 0 else empty]
        if beyond is _Beyond.LINE_FEED or not is_line_feed(here):
            return alternatives([*options, sequence([before, full_part(here)])])
        options.append(sequence([before, long_part(here)]))
        # The last round is one line feed, so that an anchor may hold before it.
        if more != 0:
            again = self._rewrite_repeat_from_right(item, rounds, more, _Beyond.LINE_FEED)
            options.append(sequence([again, LiteralText(b"\n")]))
        elif rounds == 0:
            options.append(LiteralText(b"\n"))
        return alternatives(options)

    def _refuse_anchor(self, empty: Expression) -> Expression:
        """Return an expression without anchors, or raise an error for its anchor."""
        if empty not in {EMPTY, NOTHING} or (empty != EMPTY and isinstance(empty, Reference)):
            offset = empty.span.start if isinstance(empty, Reference) and empty.span else 0
            raise self._refuse(offset, "this anchor is repeated together with others; write the repetition out")
        return empty
