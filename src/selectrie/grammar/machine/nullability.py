"""Finds facts about rules: their references, and whether they may be empty.

It also finds rules without any text.

All of this takes time linear in the size of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from selectrie.grammar.rules.expressions import (
    Characters,
    Expression,
    Reference,
    Repeat,
    Sequence,
    Text,
    TokenSet,
    parts_of,
)

NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the rules reachable from the root.

    Attributes:
        names: Names in the order of discovery, the root first.
        references: References of each rule, in the order of its text.
        productive: Rules that match some text.
        nullable: Rules that match the empty text.
        substantial: Rules that match some text other than the empty one.
    """

    names: tuple[str, ...]
    references: Mapping[str, tuple[Reference, ...]]
    productive: frozenset[str]
    nullable: frozenset[str]
    substantial: frozenset[str]


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions inside it, using an explicit stack."""
    work = [expression]
    while work:
        part = work.pop()
        yield part
        work.extend(reversed(parts_of(part)))


def facts(rules: Mapping[str, Expression], root: str) -> Facts:
    """Return the facts about the rules reachable from the root.

    A name without a rule counts as a rule without texts; the caller raises an error for
    it.
    """
    references: dict[str, tuple[Reference, ...]] = {}
    flat = _Flat()
    work = [root]
    for name in work:
        if name in references or name not in rules:
            continue
        references[name] = tuple(part for part in walk(rules[name]) if isinstance(part, Reference))
        work.extend(reference.name for reference in references[name])
        flat.add(name, rules[name])
    productive = flat.holds(_needs_for_a_text)
    whole = [missing <= 0 for missing in productive]
    return Facts(
        tuple(references),
        references,
        flat.names(productive),
        flat.names(flat.holds(_needs_for_empty)),
        flat.names(flat.holds(_needs_for_another, whole)),
    )


def _needs_for_a_text(part: Expression) -> int:
    if isinstance(part, Text):
        return 0
    if isinstance(part, Characters):
        return 0 if part.ranges else NEVER
    if isinstance(part, TokenSet):
        return 0 if part.negated or part.tokens else NEVER
    if isinstance(part, Repeat):
        return 0 if part.min_count == 0 or part.max_count == 0 else 1
    return len(part.items) if isinstance(part, Sequence) else 1


def _needs_for_empty(part: Expression) -> int:
    if isinstance(part, Text):
        return NEVER if part.value else 0
    return NEVER if isinstance(part, Characters | TokenSet) else _needs_for_a_text(part)


def _needs_for_another(part: Expression) -> int:
    if isinstance(part, Text):
        return 0 if part.value else NEVER
    if isinstance(part, Sequence | Repeat):
        return NEVER if isinstance(part, Repeat) and part.max_count == 0 else 1
    return _needs_for_a_text(part)


@dataclass(slots=True)
class _Flat:
    """All parts of all rules, in one list, for the computation of facts.

    Attributes:
        parent: For each part, the part that contains it; -1 at the top of a rule.
    """

    parts: list[Expression] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    top: dict[int, str] = field(default_factory=dict)
    users: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, expression: Expression) -> None:
        self.top[len(self.parts)] = name
        work = [(expression, -1)]
        while work:
            part, above = work.pop()
            own = len(self.parts)
            self.parts.append(part)
            self.parent.append(above)
            if isinstance(part, Reference):
                self.users.setdefault(part.name, []).append(own)
            work += [(inner, own) for inner in parts_of(part)]

    def holds(self, needs: Callable[[Expression], int], whole: list[bool] | None = None) -> list[int]:
        """Return how many of its parts each part still needs; it holds if that is <= 0.

        A part holds if enough of its own parts do, and the least solution is computed.
        Each part that begins to hold is counted once at the part that contains it
        (Dowling and Gallier, Journal of Logic Programming 1, 1984).

        Args:
            needs: Returns how many of a part's parts must hold; for a reference, the
                only part is the rule.
            whole: For each part, whether it may hold at all.
        """
        missing = [needs(part) for part in self.parts]
        if whole is not None:
            missing = [count if possible else NEVER for count, possible in zip(missing, whole, strict=True)]
        ready = [node for node, count in enumerate(missing) if count == 0]
        while ready:
            node = ready.pop()
            name = self.top.get(node)
            for above in (self.parent[node],) if name is None else self.users.get(name, ()):
                missing[above] -= 1
                if missing[above] == 0:
                    ready.append(above)
        return missing

    def names(self, missing: list[int]) -> frozenset[str]:
        return frozenset(name for node, name in self.top.items() if missing[node] <= 0)
