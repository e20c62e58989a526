"""One rule as a nondeterministic automaton over bytes, rule calls and token terminals.

It is built by Thompson's construction (Communications of the ACM 11, 1968) with an
explicit stack, so nesting may be arbitrarily deep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.errors import GrammarError
from selectrie.grammar.machine.utf8 import END, byte_tree
from selectrie.grammar.rules.expressions import (
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    Sequence,
    Text,
    TokenSet,
)

Label: TypeAlias = int
"""What an edge reads.

0 < label < 2**256 reads any byte whose bit is set. A negative label calls rule -1 -
label. Any other label is a token terminal.
"""
FIRST_TERMINAL: Label = 1 << 256


def call(rule: int) -> Label:
    """Return the label of an edge that reads a text of a rule."""
    return -1 - rule


def called(label: Label) -> int:
    """Return the rule that a negative label calls."""
    return -1 - label


def terminal(index: int) -> Label:
    """Return the label of an edge that reads a token of the token set `index`."""
    return FIRST_TERMINAL + index


def bytes_between(first: int, last: int) -> Label:
    """Return the label of an edge that reads one byte, `first` to `last` (included)."""
    return (1 << last + 1) - (1 << first)


Edge: TypeAlias = tuple[Label, int]


@dataclass(frozen=True, slots=True)
class RuleAutomaton:
    """The automaton of a rule, without empty moves; state 0 is the start.

    Every state can be reached and can reach a final one, except for the start of a rule
    without texts.

    Attributes:
        edges: For each state, pairs (label, next state).
        final: For each state, whether the rule may be complete there.
        deterministic: Whether the labels of each state are disjoint. The automaton is
            then also minimal.
    """

    edges: list[list[Edge]]
    final: list[bool]
    deterministic: bool


Resolved: TypeAlias = "RuleAutomaton | tuple[Label, bool] | None"
Resolve: TypeAlias = Callable[["Characters | TokenSet | Reference"], Resolved]
"""What a leaf becomes.

An automaton is copied in. A label comes with whether it may also be skipped. None means
that nothing matches the leaf.
"""


@dataclass(slots=True)
class Nfa:
    """A nondeterministic automaton with start state 0 and one final state, 1.

    Attributes:
        max_states: Maximum number of states.
        what: Name of the compiled part in error messages, such as "rule 'root'".
        edges: For each state, pairs (label, next state).
        jumps: For each state, the targets of moves that read nothing.
        has_dead_ends: Whether some states might be unreachable or might not lead to the
            final state.
    """

    max_states: int
    what: str
    edges: list[list[Edge]] = field(default_factory=lambda: [[], []])
    jumps: list[list[int]] = field(default_factory=lambda: [[], []])
    has_dead_ends: bool = False

    def state(self) -> int:
        if len(self.edges) >= self.max_states:
            raise GrammarError(
                f"{self.what} expands to more than the {self.max_states} states left of the limit; "
                "reduce its repeat counts, or split it"
            )
        self.edges.append([])
        self.jumps.append([])
        return len(self.edges) - 1

    def build(self, expression: Expression, resolve: Resolve) -> None:
        """Add paths from start to final for all texts of an expression."""
        work: list[tuple[Expression, int, int]] = [(expression, 0, 1)]
        while work:
            part, start, stop = work.pop()
            if isinstance(part, Text):
                self._text(part.value, start, stop)
            elif isinstance(part, Sequence):
                self._sequence(part, start, stop, work)
            elif isinstance(part, Alternatives):
                texts = sorted({option.value for option in part.options if isinstance(option, Text)})
                self._texts(texts, start, stop)
                work += [(option, start, stop) for option in part.options if not isinstance(option, Text)]
                self.has_dead_ends |= not part.options
            elif isinstance(part, Repeat):
                self._repeat(part, start, stop, work)
            else:
                self._leaf(resolve(part), start, stop)

    def copy(self, rule: RuleAutomaton, start: int, stop: int) -> None:
        """Insert a copy of a rule's automaton between two states."""
        own = [self.state() for _ in rule.edges]
        self.jumps[start].append(own[0])
        for state, edges, final in zip(own, rule.edges, rule.final, strict=True):
            self.edges[state] = [(label, own[target]) for label, target in edges]
            if final:
                self.jumps[state].append(stop)

    def characters(self, part: Characters) -> None:
        """Add paths from start to final for each character of a set."""
        tree = byte_tree(part.ranges)
        own = [0, *(self.state() for _ in tree.edges[1:])]
        for state, edges in zip(own, tree.edges, strict=True):
            for first, last, after in edges:
                self.edges[state].append((bytes_between(first, last), 1 if after == END else own[after]))

    def _leaf(self, leaf: Resolved, start: int, stop: int) -> None:
        if isinstance(leaf, RuleAutomaton):
            self.copy(leaf, start, stop)
        elif leaf is None:
            self.has_dead_ends = True
        else:
            label, may_skip = leaf
            self.edges[start].append((label, stop))
            if may_skip:
                self.jumps[start].append(stop)

    def _text(self, value: bytes, start: int, stop: int) -> None:
        if not value:
            self.jumps[start].append(stop)
            return
        for byte in value[:-1]:
            after = self.state()
            self.edges[start].append((1 << byte, after))
            start = after
        self.edges[start].append((1 << value[-1], stop))

    def _texts(self, texts: list[bytes], start: int, stop: int) -> None:
        """Add paths for sorted distinct texts, which share common prefixes."""
        path = [start]
        for i, text in enumerate(texts):
            if not text:
                self.jumps[start].append(stop)
                continue
            n_shared, before = 0, texts[i - 1] if i else b""
            max_shared = min(len(before), len(text) - 1, len(path) - 1)
            while n_shared < max_shared and before[n_shared] == text[n_shared]:
                n_shared += 1
            del path[n_shared + 1 :]
            for byte in text[n_shared:-1]:
                after = self.state()
                self.edges[path[-1]].append((1 << byte, after))
                path.append(after)
            self.edges[path[-1]].append((1 << text[-1], stop))

    def _sequence(self, part: Sequence, start: int, stop: int, work: list[tuple[Expression, int, int]]) -> None:
        if not part.items:
            self.jumps[start].append(stop)
            return
        states = [start, *(self.state() for _ in part.items[1:]), stop]
        work += zip(part.items, states, states[1:], strict=False)

    def _repeat(self, part: Repeat, start: int, stop: int, work: list[tuple[Expression, int, int]]) -> None:
        min_count, max_count = part.min_count, part.max_count
        if min_count < 0 or (max_count is not None and max_count < min_count):
            raise GrammarError(
                f"{self.what} repeats from {min_count} to {max_count} times; the bounds must ascend, from 0 on"
            )
        if (min_count if max_count is None else max_count) + len(self.edges) > self.max_states:
            raise GrammarError(
                f"{self.what} repeats a part {max_count or min_count} times, beyond the limit of "
                f"{self.max_states} states; reduce the count"
            )
        for _ in range(min_count):
            after = self.state()
            work.append((part.item, start, after))
            start = after
        if max_count is None:
            around = self.state()
            self.jumps[start].append(around)
            self.jumps[around].append(stop)
            work.append((part.item, around, around))
            return
        self.jumps[start].append(stop)
        for _ in range(max_count - min_count):
            after = self.state()
            work.append((part.item, start, after))
            self.jumps[after].append(stop)
            start = after
