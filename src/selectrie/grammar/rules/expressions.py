"""Grammars as data: the expressions that readers produce and other modules work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias, final

from selectrie.core.vocabulary import to_bytes

LAST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Code points that UTF-8 cannot encode (RFC 3629, section 3)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a grammar's text: characters `start` to `stop` (exclusive)."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LiteralText:
    """Matches a literal text, given as UTF-8 bytes; b"" is the empty string."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Characters:
    """Matches one character of a set.

    Attributes:
        ranges: (first, last) code points, both inclusive, in ascending order, neither
            overlapping nor adjacent, without surrogates.
    """

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def of(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]], *, negated: bool = False) -> Characters:
        """Return the characters of ranges in any order or, if `negated`, all others.

        Surrogates are removed in both cases.
        """
        return Characters(
            _complement_ranges(_merge_ranges(ranges)) if negated else _remove_surrogates(_merge_ranges(ranges))
        )


@dataclass(frozen=True, slots=True)
class TokenTerminal:
    """Matches one token of the vocabulary, whatever its bytes.

    Attributes:
        tokens: Spellings of control tokens (`<think>`) or ids.
        negated: Whether to match every token except these. End-of-generation tokens
            never match a negated set.
    """

    tokens: tuple[str | int, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """Matches a text of the rule of this name.

    Attributes:
        span: Position of the name in the source text.
    """

    name: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Matches the items one after the other; no items match the empty string."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Matches any one of the options; without options it matches no text."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repeats an item `min_count` to `max_count` times; None means no maximum."""

    item: Expression
    min_count: int
    max_count: int | None


Expression: TypeAlias = LiteralText | Characters | TokenTerminal | Reference | Concatenation | Alternatives | Repeat

EMPTY = LiteralText(b"")


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """Rules by name, in order of definition.

    Attributes:
        root: The start rule.
        text: The source that the rules were read from, "" if there is none.
        spans: Position in the source of each rule's definition.
    """

    rules: Mapping[str, Expression]
    root: str = "root"
    text: str = ""
    spans: Mapping[str, Span] = field(default_factory=lambda: MappingProxyType({}))


def _merge_ranges(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges, and join those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _complement_ranges(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the code points outside of merged ranges, without surrogates."""
    gaps, start = [], 0
    for first, last in merged:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= LAST_CODE_POINT:
        gaps.append((start, LAST_CODE_POINT))
    return _remove_surrogates(gaps)


def _remove_surrogates(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Cut the surrogates out of merged ranges."""
    kept: list[tuple[int, int]] = []
    low, high = SURROGATES
    for first, last in merged:
        kept += [
            (start, stop)
            for start, stop in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if start <= stop
        ]
    return tuple(kept)


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions directly inside an expression."""
    if isinstance(expression, Concatenation):
        return expression.items
    if isinstance(expression, Alternatives):
        return expression.options
    return (expression.item,) if isinstance(expression, Repeat) else ()


def append_to_root(rules: RuleSet, following: bytes) -> RuleSet:
    """Return rules whose root is the old root followed by the bytes `following`.

    Positions in the source are unchanged.
    """
    root = f"{rules.root}-followed"
    while root in rules.rules:
        root += "-"
    whole = Concatenation((Reference(rules.root), LiteralText(following)))
    return RuleSet(MappingProxyType({root: whole, **rules.rules}), root, rules.text, rules.spans)


@final
class TextList:
    """A grammar of a list of distinct texts, of which there is at least one.

    The texts are numbered as choices in this order. Other forms of the list are
    computed on first use and kept. The caller makes sure that no text contains a lone
    surrogate.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.texts = texts

    def __reduce__(self) -> tuple[Any, ...]:
        return TextList, (self.texts,)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """Return the texts in UTF-8, in ascending order."""
        return tuple(sorted(to_bytes(text, "text") for text in self.texts))

    @cached_property
    def expanded(self) -> tuple[str, ...]:
        """Return the texts, shortest first, texts of equal length by code points."""
        return tuple(sorted(self.texts, key=lambda text: (len(text), text)))

    @cached_property
    def is_prefix_free(self) -> bool:
        """Return whether no text is a prefix of another.

        In the sorted list, a text that is a prefix of another comes right before such a
        text.
        """
        return not any(after.startswith(before) for before, after in pairwise(self.encoded))

    @cached_property
    def rules(self) -> RuleSet:
        """Return the list as a `RuleSet` with the single rule `root`."""
        options = tuple(LiteralText(to_bytes(text, "text")) for text in self.texts)
        whole = options[0] if len(options) == 1 else Alternatives(options)
        return RuleSet(MappingProxyType({"root": whole}))

    def followed_by(self, text: str) -> TextList:
        """Return the list with `text` appended to each of its texts."""
        return TextList(tuple(one + text for one in self.texts))
