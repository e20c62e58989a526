r"""Rewrites a regular expression into an equivalent one without anchors.

The regex reader represents an anchor as a `Reference` named after it. A pattern is
matched against a whole text, so whether an anchor holds depends on the characters that
its neighbours match. The tree is rewritten once from the left for `^` and `\A` and once
from the right for `$` and `\Z`. Each part is rewritten for each case of the text
between it and that end of the whole text (`_Beyond`): none; one line feed, before which
`$` also holds; or more. Anchors that depend on the neighbouring character itself raise
an error.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from selectrie.errors import GrammarError
from selectrie.grammar.readers.shapes import (
    NOTHING,
    alternatives,
    empty_part,
    full_part,
    is_line_feed,
    long_part,
    repeat,
    sequence,
)
from selectrie.grammar.rules.expressions import (
    EMPTY,
    Alternatives,
    Expression,
    Reference,
    Repeat,
    Sequence,
    Span,
    Text,
    parts_of,
)

START, LINE_START, STOP, LINE_STOP, LAST = "^", "(?m)^", "$", "(?m)$", "\\Z"
_LEFT = frozenset({START, LINE_START})
_RIGHT = frozenset({STOP, LINE_STOP, LAST})


MAX_MORE = 5_000
"""Number of nodes that resolving may add to a small pattern."""
MAX_WORK_PER_NODE = 30


class _Beyond(Enum):
    """The text between a part of the pattern and the end that its anchors refer to."""

    NOTHING = "nothing"
    LINE_FEED = "one line feed"
    MORE = "anything else"


def anchor(name: str, offset: int) -> Reference:
    """Return a reference for the anchor `name` at an offset of the pattern."""
    return Reference(name, Span(offset, offset + 1))


def without_anchors(expression: Expression, refuse: Callable[[int, str], GrammarError]) -> Expression:
    """Return an expression for the same texts with every anchor resolved.

    Args:
        expression: The pattern, with anchors.
        refuse: Returns the error for an offset and a reason.
    """
    pass_left = _Pass(_LEFT, refuse)
    whole = _Pass(_RIGHT, refuse).resolved(pass_left.resolved(expression))
    if whole == NOTHING and pass_left.first is not None:
        raise refuse(pass_left.first, "no text can match: this anchor, or one after it, never holds")
    return whole


class _Pass:
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

    def resolved(self, expression: Expression) -> Expression:
        """Return the whole pattern rewritten, with no text beyond it."""
        self._max_size = MAX_MORE + 4 * self._size(expression)
        self._left = MAX_WORK_PER_NODE * self._max_size
        return self.beside(expression, _Beyond.NOTHING)

    def _has_anchor(self, expression: Expression) -> bool:
        """Return whether an expression contains an anchor of this direction."""
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

    def beside(self, expression: Expression, beyond: _Beyond) -> Expression:
        """Return the expression rewritten for the text `beyond` it."""
        if not self._has_anchor(expression):
            return expression
        result = self._beside(expression, beyond)
        size = self._size(result)
        self._left -= size
        if size > self._max_size or self._left < 0:
            offset = self.first or 0
            reason = "resolving the anchors inside the pattern takes too many cases; move them to its ends"
            raise self._refuse(offset, reason)
        return result

    def _beside(self, expression: Expression, beyond: _Beyond) -> Expression:
        match expression:
            case Reference():
                return EMPTY if self._holds(expression, beyond) else NOTHING
            case Alternatives(options):
                return alternatives([self.beside(option, beyond) for option in options])
            case Sequence(items):
                return (
                    self._right_to_left(items, beyond) if self._names is _RIGHT else self._left_to_right(items, beyond)
                )
            case Repeat(item, min_count, max_count):
                return self._repeated(item, min_count, max_count, beyond)
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

    def _left_to_right(self, items: tuple[Expression, ...], beyond: _Beyond) -> Expression:
        """Rewrite a sequence from the left.

        `empty` is the rewriting of the items so far for the case that they match no
        character, and `full` that for at least one character.
        """
        if beyond is _Beyond.MORE:
            return sequence([self.beside(item, beyond) for item in items])
        last = max(index for index, item in enumerate(items) if self._has_anchor(item))
        empty: Expression = EMPTY
        full: Expression = NOTHING
        for index, item in enumerate(items[: last + 1]):
            if empty == NOTHING:
                middle = [self.beside(one, _Beyond.MORE) for one in items[index : last + 1]]
                return sequence([full, *middle, *items[last + 1 :]])
            first = self.beside(item, beyond)
            later = NOTHING if full == NOTHING else sequence([full, self.beside(item, _Beyond.MORE)])
            full = alternatives([later, sequence([empty, full_part(first)])])
            empty = sequence([empty, empty_part(first)])
        return sequence([alternatives([empty, full]), *items[last + 1 :]])

    def _right_to_left(self, items: tuple[Expression, ...], beyond: _Beyond) -> Expression:
        """Rewrite a sequence from the right.

        `tails` holds the rewritings of the items so far, by the text that they match:
        none, a line feed, or more.
        """
        if beyond is _Beyond.MORE:
            return sequence([self.beside(item, beyond) for item in items])
        first = min(index for index, item in enumerate(items) if self._has_anchor(item))
        tails: dict[_Beyond, Expression] = {beyond: EMPTY}
        for index in range(len(items) - 1, first - 1, -1):
            if set(tails) == {_Beyond.MORE}:
                middle = [self.beside(one, _Beyond.MORE) for one in items[first : index + 1]]
                return sequence([*items[:first], *middle, tails[_Beyond.MORE]])
            tails = self._grown(items[index], tails)
        return sequence([*items[:first], alternatives(tails.values())])

    def _grown(self, item: Expression, tails: dict[_Beyond, Expression]) -> dict[_Beyond, Expression]:
        """Return the tails with one more item in front.

        Keys are the texts that lie beyond the next item.
        """
        grown: dict[_Beyond, list[Expression]] = {}
        for beyond, tail in tails.items():
            here = self.beside(item, beyond)
            if empty_part(here) != NOTHING:
                grown.setdefault(beyond, []).append(tail)
            if beyond is _Beyond.NOTHING and is_line_feed(here):
                grown.setdefault(_Beyond.LINE_FEED, []).append(sequence([Text(b"\n"), tail]))
            rest = long_part(here) if beyond is _Beyond.NOTHING else full_part(here)
            if rest != NOTHING:
                grown.setdefault(_Beyond.MORE, []).append(sequence([rest, tail]))
        return {beyond: alternatives(parts) for beyond, parts in grown.items()}

    def _repeated(self, item: Expression, min_count: int, max_count: int | None, beyond: _Beyond) -> Expression:
        """Return a repetition, rewritten for the text beyond it.

        Only the outermost round that matches a character is next to that text.
        """
        if beyond is not _Beyond.NOTHING and self._names is _LEFT:
            return repeat(self.beside(item, beyond), min_count, max_count)
        if self._names is _RIGHT:
            return self._repeated_from_right(item, min_count, max_count, beyond)
        first, later = self.beside(item, beyond), self.beside(item, _Beyond.MORE)
        empty = self._plain(empty_part(first))
        rounds = 0 if empty == EMPTY else max(min_count - 1, 0)
        full = sequence([full_part(first), repeat(later, rounds, None if max_count is None else max_count - 1)])
        return alternatives([EMPTY if min_count == 0 else empty, full])

    def _repeated_from_right(
        self, item: Expression, min_count: int, max_count: int | None, beyond: _Beyond
    ) -> Expression:
        """Return a repetition rewritten from the right, like `_repeated` from the left.

        If the last round may match a line feed, an anchor may still hold in the round
        before it.
        """
        if beyond is _Beyond.MORE:
            return repeat(self.beside(item, beyond), min_count, max_count)
        here = self.beside(item, beyond)
        empty = empty_part(here)
        rounds = 0 if empty == EMPTY else max(min_count - 1, 0)
        more = None if max_count is None else max_count - 1
        before = repeat(self.beside(item, _Beyond.MORE), rounds, more)
        options = [EMPTY if min_count == 0 else empty]
        if beyond is _Beyond.LINE_FEED or not is_line_feed(here):
            return alternatives([*options, sequence([before, full_part(here)])])
        options.append(sequence([before, long_part(here)]))
        if more != 0:
            again = self._repeated_from_right(item, rounds, more, _Beyond.LINE_FEED)
            options.append(sequence([again, Text(b"\n")]))
        elif rounds == 0:
            options.append(Text(b"\n"))
        return alternatives(options)

    def _plain(self, empty: Expression) -> Expression:
        if empty not in {EMPTY, NOTHING} or (empty != EMPTY and isinstance(empty, Reference)):
            offset = empty.span.start if isinstance(empty, Reference) and empty.span else 0
            raise self._refuse(offset, "this anchor is repeated together with others; write the repetition out")
        return empty
