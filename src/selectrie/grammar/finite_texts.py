"""Builds the texts of a finite grammar from those of its parts, uncompiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from selectrie.grammar.machine.nullability import facts, walk
from selectrie.grammar.machine.scc import rings
from selectrie.grammar.rules.expressions import (
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
    TokenSet,
)

MAX_MADE = 2_000_000
"""Maximum number of texts of all parts together, of about 0.2 µs each."""
MAX_BYTES = 64 << 20
"""Maximum number of bytes of those texts."""


class TooManyError(Exception):
    """Raised if there are infinitely many texts or more than the limit."""


class UnknownError(Exception):
    """Raised if only the compiled grammar can tell what its texts are."""


def texts_of(rules: RuleSet, max_texts: int) -> tuple[str, ...]:
    """Return all texts, the shortest first, texts of equal length by code points.

    Sets of texts are combined from the leaves up. Every part that is expanded occurs in
    a text of the whole, and different texts of the part give different texts of the
    whole. So if one part has more than `max_texts` texts, the whole has more too.

    Raises `TooManyError` for more than `max_texts` texts. Raises `UnknownError` if a
    rule leads to itself or a part has no text, for token terminals and missing rules,
    and beyond `MAX_MADE` or `MAX_BYTES`.
    """
    references = facts(rules.rules, rules.root).references
    uses = {name: [reference.name for reference in own] for name, own in references.items()}
    if not all(used in uses for own in uses.values() for used in own):
        raise UnknownError
    if not all(_has_texts(rules.rules[name]) for name in uses):
        raise UnknownError
    parts = _Parts(max_texts)
    for ring in rings(uses):
        (name, *others) = ring
        if others or name in uses[name]:
            raise UnknownError
        parts.of_rule[name] = parts.texts(rules.rules[name])
    try:
        texts = [data.decode() for data in parts.of_rule[rules.root]]
    except UnicodeDecodeError:
        raise UnknownError from None
    return tuple(sorted(texts, key=lambda text: (len(text), text)))


def _has_texts(expression: Expression) -> bool:
    """Return whether an expression contains only text, so that it can be expanded.

    It must have no tokens, no part without texts, and no item repeated 0 times.
    """
    return not any(
        isinstance(part, TokenSet)
        or (isinstance(part, Characters) and not part.ranges)
        or (isinstance(part, Alternatives) and not part.options)
        or (isinstance(part, Repeat) and part.max_count == 0)
        for part in walk(expression)
    )


@dataclass(slots=True)
class _Parts:
    """Computes the texts of the parts of a grammar.

    Attributes:
        max_texts: Maximum number of texts of a part.
        of_rule: Texts of the rules that are finished.
        n_made: Number of texts so far, in all sets.
        n_bytes: Number of bytes of these texts.
    """

    max_texts: int
    of_rule: dict[str, set[bytes]] = field(default_factory=dict)
    n_made: int = 0
    n_bytes: int = 0

    def texts(self, part: Expression) -> set[bytes]:
        """Return all texts of a part.

        Recurses as deep as the part is nested, which readers bound.
        """
        match part:
            case Text(value):
                return {value}
            case Reference(name):
                return self.of_rule[name]
            case Characters(ranges):
                n_characters = sum(last - first + 1 for first, last in ranges)
                if n_characters > self.max_texts:
                    raise TooManyError
                return {chr(code).encode() for first, last in ranges for code in range(first, last + 1)}
            case Alternatives(options):
                return self._joined(map(self.texts, options))
            case Sequence(items):
                whole: set[bytes] = {b""}
                for item in items:
                    whole = self._product(whole, self.texts(item))
                return whole
            case Repeat(item, min_count, max_count):
                return self._repeated(self.texts(item), min_count, max_count)
            case TokenSet():
                raise UnknownError

    def _repeated(self, item: set[bytes], min_count: int, max_count: int | None) -> set[bytes]:
        if item == {b""}:
            return item
        if max_count is None:
            raise TooManyError
        power: set[bytes] = {b""}
        for _ in range(min_count):
            power = self._product(power, item)
        return self._joined(self._powers(power, item, max_count - min_count))

    def _powers(self, power: set[bytes], item: set[bytes], n_more: int) -> Iterable[set[bytes]]:
        yield power
        for _ in range(n_more):
            power = self._product(power, item)
            yield power

    def _product(self, before: set[bytes], after: set[bytes]) -> set[bytes]:
        if before == {b""}:
            return after
        if after == {b""}:
            return before
        texts: set[bytes] = set()
        for one in before:
            made = [one + other for other in after]
            self._count(made)
            texts.update(made)
            if len(texts) > self.max_texts:
                raise TooManyError
        return texts

    def _joined(self, sets: Iterable[set[bytes]]) -> set[bytes]:
        texts: set[bytes] = set()
        for one in sets:
            self._count(one)
            texts |= one
            if len(texts) > self.max_texts:
                raise TooManyError
        return texts

    def _count(self, made: Iterable[bytes]) -> None:
        lengths = list(map(len, made))
        self.n_made += len(lengths)
        self.n_bytes += sum(lengths)
        if self.n_made > MAX_MADE or self.n_bytes > MAX_BYTES:
            raise UnknownError
