"""One rule as a nondeterministic automaton over bytes, calls of rules and token terminals.

Thompson's construction (Communications of the ACM 11, 1968), with an explicit stack of work, so that no nesting is too deep.
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
"""What an edge reads. 0 < label < 2**256: any of the bytes whose bits are set. Negative: rule -1 - label. Else a terminal."""
FIRST_TERMINAL: Label = 1 << 256


def call(rule: int) -> Label:
    """The label that reads a text of a rule."""
    return -1 - rule


def called(label: Label) -> int:
    """The rule of a label < 0."""
    return -1 - label


def terminal(index: int) -> Label:
    """The label that reads a token of a set of tokens."""
    return FIRST_TERMINAL + index


def bytes_between(first: int, last: int) -> Label:
    """The label that reads any of these bytes, both included."""
    return (1 << last + 1) - (1 << first)


Edge: TypeAlias = tuple[Label, int]


@dataclass(frozen=True, slots=True)
class RuleAutomaton:
    """A rule without empty moves. edges[state]: (label, next state); final[state]; state 0 is the start.

    Every state can be reached and can reach a final one, but for the start of a rule that has no texts. `deterministic`:
    labels of a state are apart from each other; it is also the smallest such automaton then.
    """

    edges: list[list[Edge]]
    final: list[bool]
    deterministic: bool


Resolved: TypeAlias = "RuleAutomaton | tuple[Label, bool] | None"
Resolve: TypeAlias = Callable[["Characters | TokenSet | Reference"], Resolved]
"""What a leaf becomes: an automaton to copy in; a label, and whether it may also be skipped; None: nothing matches it."""


@dataclass(slots=True)
class Nfa:
    """States 0 (start) and 1 (the one final state) and those made since. edges[state], and moves that read nothing.

    has_dead_ends: some states may not lead to the final one, or be reached from the start.
    """

    most_states: int
    what: str
    edges: list[list[Edge]] = field(default_factory=lambda: [[], []])
    jumps: list[list[int]] = field(default_factory=lambda: [[], []])
    has_dead_ends: bool = False

    def state(self) -> int:
        if len(self.edges) >= self.most_states:
            raise GrammarError(
                f"{self.what} unrolls to more than the {self.most_states} states left of the limit; "
                "lower its repeat counts, or split it"
            )
        self.edges.append([])
        self.jumps.append([])
        return len(self.edges) - 1

    def build(self, expression: Expression, resolve: Resolve) -> None:
        """Adds the paths from start to final that spell an expression."""
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
        """A rule's automaton between two states."""
        own = [self.state() for _ in rule.edges]
        self.jumps[start].append(own[0])
        for state, edges, final in zip(own, rule.edges, rule.final, strict=True):
            self.edges[state] = [(label, own[target]) for label, target in edges]
            if final:
                self.jumps[state].append(stop)

    def characters(self, part: Characters) -> None:
        """Adds the paths from start to final that spell one character of a set."""
        tree = byte_tree(part.ranges)
        own = [0, *(self.state() for _ in tree.edges[1:])]
        for state, edges in zip(own, tree.edges, strict=True):
            for first, last, after in edges:
                self.edges[state].append((bytes_between(first, last), 1 if after == END else own[after]))

    def _leaf(self, found: Resolved, start: int, stop: int) -> None:
        if isinstance(found, RuleAutomaton):
            self.copy(found, start, stop)
        elif found is None:
            self.has_dead_ends = True
        else:
            label, may_skip = found
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
        """Sorted, different texts: what they begin with in common is spelled once."""
        path = [start]
        for i, text in enumerate(texts):
            if not text:
                self.jumps[start].append(stop)
                continue
            n_shared, before = 0, texts[i - 1] if i else b""
            most = min(len(before), len(text) - 1, len(path) - 1)
            while n_shared < most and before[n_shared] == text[n_shared]:
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
        places = [start, *(self.state() for _ in part.items[1:]), stop]
        work += zip(part.items, places, places[1:], strict=False)

    def _repeat(self, part: Repeat, start: int, stop: int, work: list[tuple[Expression, int, int]]) -> None:
        least, most = part.least, part.most
        if least < 0 or (most is not None and most < least):
            raise GrammarError(f"{self.what} repeats from {least} to {most} times; give bounds in order, from 0 on")
        if (least if most is None else most) + len(self.edges) > self.most_states:
            raise GrammarError(
                f"{self.what} repeats something {most or least} times, beyond the limit of {self.most_states} states; "
                "lower the count"
            )
        for _ in range(least):
            after = self.state()
            work.append((part.item, start, after))
            start = after
        if most is None:
            around = self.state()
            self.jumps[start].append(around)
            self.jumps[around].append(stop)
            work.append((part.item, around, around))
            return
        self.jumps[start].append(stop)
        for _ in range(most - least):
            after = self.state()
            work.append((part.item, start, after))
            self.jumps[after].append(stop)
            start = after
