"""A grammar as data: what every reader makes and everything else works on. Characters here, bytes only once compiled.

Expressions are immutable trees; a rule is used by naming it, so that what is shared stays shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

LAST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""No characters: UTF-8 cannot hold them (RFC 3629, section 3)."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `stop` of a grammar's text."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Text:
    """These bytes: the UTF-8 of a literal. b"" is the empty string."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set. ranges: (first, last) code points, ascending, apart from each other, without surrogates."""

    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def of(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]], *, negated: bool = False) -> Characters:
        """The characters of ranges in any order, or all others; surrogates are taken out of either."""
        return Characters(_complement(_merged(ranges)) if negated else _without_surrogates(_merged(ranges)))


@dataclass(frozen=True, slots=True)
class TokenSet:
    """One token of the vocabulary, whatever its bytes: those named, or any other.

    tokens: spellings of control tokens (`<think>`) or ids. negated: every token but these, end-of-generation tokens never.
    """

    tokens: tuple[str | int, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule by name; span: where the text names it."""

    name: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; no items: the empty string."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of these; no options: nothing at all."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item `least` to `most` times; most None: without end."""

    item: Expression
    least: int
    most: int | None


Expression: TypeAlias = Text | Characters | TokenSet | Reference | Sequence | Alternatives | Repeat

EMPTY = Text(b"")


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """Rules by name, in order of definition, and the one that everything begins with.

    text: the source the rules were read from, "" where there is none; spans: where each rule's name stands in it.
    """

    rules: Mapping[str, Expression]
    root: str = "root"
    text: str = ""
    spans: Mapping[str, Span] = field(default_factory=lambda: MappingProxyType({}))


def _merged(ranges: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _complement(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    gaps, start = [], 0
    for first, last in merged:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= LAST_CODE_POINT:
        gaps.append((start, LAST_CODE_POINT))
    return _without_surrogates(gaps)


def _without_surrogates(merged: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
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
    """What an expression is put together of."""
    if isinstance(expression, Sequence):
        return expression.items
    if isinstance(expression, Alternatives):
        return expression.options
    return (expression.item,) if isinstance(expression, Repeat) else ()
