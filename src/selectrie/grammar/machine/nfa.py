"""One rule as a nondeterministic automaton over bytes, calls and token terminals.

Sets of characters become minimal automata over the bytes of UTF-8 (RFC 3629); automata
are simplified, and left recursion is removed, without changing the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.errors import GrammarError
from selectrie.grammar.rules import (
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    TokenTerminal,
)


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds on one compiled grammar.

    Exceeding any of them raises a `GrammarError` that says so. The defaults keep any
    source of up to 1 MB within 2 s and 256 MB, and any text read by it within the same
    memory.

    Attributes:
        max_rules: Rules reachable from the root.
        max_states: States of all rules together, with repetitions unrolled.
        max_work: Elementary steps spent on making rules deterministic. One rule may
            use a quarter of what is left; a rule that needs more stays
            nondeterministic, which is slower to read.
        max_edges: Edges of rules that stay nondeterministic, and edges of
            left-recursive rules together with their copies.
        max_inlined: States copied in place of calls, in total; beyond that, calls stay
            calls.
        max_alternatives: Ways to read one text that are followed at once.
        max_steps: Elementary steps, of about 0.4 µs, between two calls of
            `Machine.begin`.
        max_configurations: Different configurations in a machine's life.
        max_stacks: Different sets of open rules in a machine's life.
        max_bytes: Memory of configurations and stacks together.
    """

    max_rules: int = 20_000
    max_states: int = 150_000
    max_work: int = 240_000
    max_edges: int = 400_000
    max_inlined: int = 30_000
    max_alternatives: int = 5_000
    max_steps: int = 2_000_000
    max_configurations: int = 400_000
    max_stacks: int = 400_000
    max_bytes: int = 160 << 20


DEFAULT_LIMITS = GrammarLimits()

LENGTHS = ((0x00, 0x7F, 0x00), (0x80, 0x7FF, 0xC0), (0x800, 0xFFFF, 0xE0), (0x10000, 0x10FFFF, 0xF0))
"""Code points encoded in one, two, three and four bytes.

Each entry holds the first and last code point and the bits that mark the first byte.
"""
END = -1

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ByteTree:
    """An automaton over bytes without cycles, which reads one character.

    Nodes come before the nodes they lead to; node 0 is the start.

    Attributes:
        edges: For each node, triples (first byte, last byte, next node), disjoint and
            ascending. The next node `END` completes the character.
    """

    edges: tuple[tuple[tuple[int, int, int], ...], ...]


def byte_tree(ranges: Ranges) -> ByteTree:
    """Return the smallest automaton of a set of characters.

    Args:
        ranges: As in `expressions.Characters`: ascending, disjoint, without surrogates.
    """
    nodes: dict[tuple[tuple[int, int, int], ...], int] = {}
    start: list[tuple[int, int, int]] = []
    for n_more, (low, high, marker) in enumerate(LENGTHS):
        parts = tuple((max(first, low), min(last, high)) for first, last in ranges if first <= high and last >= low)
        if parts:
            start += [(marker + first, marker + last, after) for first, last, after in _branches(parts, n_more, nodes)]
    made = [*nodes, tuple(start)]
    number = {old: len(made) - 1 - old for old in range(len(made))} | {END: END}
    return ByteTree(
        tuple(tuple((first, last, number[after]) for first, last, after in edges) for edges in reversed(made))
    )


def _branches(
    ranges: Ranges, n_more: int, nodes: dict[tuple[tuple[int, int, int], ...], int]
) -> list[tuple[int, int, int]]:
    """Return edges (first byte, last byte, next node) for the leading digits.

    The numbers in `ranges` have a leading digit and `n_more` further ones, of six
    bits each. The nodes for these are added to `nodes`.
    """
    if n_more == 0:
        return [(first, last, END) for first, last in ranges]
    shift = 6 * n_more
    full = (0, (1 << shift) - 1)
    below: dict[int, list[tuple[int, int]]] = {}
    spans: list[tuple[int, int, int]] = []
    for first, last in ranges:
        top, stop = first >> shift, last >> shift
        if top == stop:
            below.setdefault(top, []).append((first & full[1], last & full[1]))
            continue
        # The first and the last leading digit may have only a part of the numbers
        # below.
        if first & full[1]:
            below.setdefault(top, []).append((first & full[1], full[1]))
            top += 1
        if last & full[1] != full[1]:
            below.setdefault(stop, []).append((0, last & full[1]))
            stop -= 1
        if top <= stop:
            spans.append((top, stop, _add_tail((full,), n_more, nodes)))
    spans += [(digit, digit, _add_tail(tuple(parts), n_more, nodes)) for digit, parts in below.items()]
    return join_runs(sorted(spans))


def join_runs(runs: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join neighbouring runs (first, last, target) that lead to the same target."""
    joined: list[tuple[int, int, int]] = []
    for first, last, target in runs:
        if joined and joined[-1][1] == first - 1 and joined[-1][2] == target:
            joined[-1] = joined[-1][0], last, target
        else:
            joined.append((first, last, target))
    return joined


def _add_tail(ranges: Ranges, n_more: int, nodes: dict[tuple[tuple[int, int, int], ...], int]) -> int:
    """Return the node that spells numbers of `n_more` digits in continuation bytes.

    Equal nodes are shared.
    """
    edges = tuple((0x80 + low, 0x80 + high, after) for low, high, after in _branches(ranges, n_more - 1, nodes))
    return nodes.setdefault(edges, len(nodes))


Label: TypeAlias = int
"""The input that an edge reads, as a number.

0 < label < 2**256 reads any byte whose bit is set. A negative label calls rule -1 -
label. Any other label is a token terminal.
"""
FIRST_TERMINAL: Label = 1 << 256


def call_label(rule: int) -> Label:
    """Return the label of an edge that reads a text of a rule."""
    return -1 - rule


def called_rule(label: Label) -> int:
    """Return the rule that a negative label calls."""
    return -1 - label


def terminal_label(index: int) -> Label:
    """Return the label of an edge that reads a token of the token set `index`."""
    return FIRST_TERMINAL + index


def byte_range_label(first: int, last: int) -> Label:
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
Resolve: TypeAlias = Callable[["Characters | TokenTerminal | Reference"], Resolved]
"""Returns the automaton to insert for a leaf, or a label for it.

A label is paired with whether it may also be skipped. None means that nothing matches
the leaf.
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

    def add_state(self) -> int:
        """Add a state and return its number; raise `GrammarError` beyond the limit."""
        if len(self.edges) >= self.max_states:
            raise GrammarError(
                f"{self.what} expands to more than the {self.max_states} states left of the limit; "
                "reduce its repeat counts, or split it"
            )
        self.edges.append([])
        self.jumps.append([])
        return len(self.edges) - 1

    def build(self, expression: Expression, resolve: Resolve) -> None:
        """Add paths from start to final for all texts of an expression.

        Args:
            expression: The expression.
            resolve: Returns the automaton or label for a set, a token or a reference.
        """
        work: list[tuple[Expression, int, int]] = [(expression, 0, 1)]
        while work:
            part, start, stop = work.pop()
            if isinstance(part, LiteralText):
                self._add_text(part.value, start, stop)
            elif isinstance(part, Concatenation):
                self._add_sequence(part, start, stop, work)
            elif isinstance(part, Alternatives):
                texts = sorted({option.value for option in part.options if isinstance(option, LiteralText)})
                self._add_texts(texts, start, stop)
                work += [(option, start, stop) for option in part.options if not isinstance(option, LiteralText)]
                self.has_dead_ends |= not part.options
            elif isinstance(part, Repeat):
                self._add_repeat(part, start, stop, work)
            else:
                self._add_leaf(resolve(part), start, stop)

    def insert_copy(self, rule: RuleAutomaton, start: int, stop: int) -> None:
        """Insert a copy of a rule's automaton between the states `start` and `stop`."""
        own = [self.add_state() for _ in rule.edges]
        self.jumps[start].append(own[0])
        for state, edges, final in zip(own, rule.edges, rule.final, strict=True):
            self.edges[state] = [(label, own[target]) for label, target in edges]
            if final:
                self.jumps[state].append(stop)

    def add_characters(self, part: Characters) -> None:
        """Add paths from start to final for each character of a set."""
        tree = byte_tree(part.ranges)
        own = [0, *(self.add_state() for _ in tree.edges[1:])]
        for state, edges in zip(own, tree.edges, strict=True):
            for first, last, after in edges:
                self.edges[state].append((byte_range_label(first, last), 1 if after == END else own[after]))

    def _add_leaf(self, leaf: Resolved, start: int, stop: int) -> None:
        """Add the automaton or label of a leaf from the state `start` to `stop`."""
        if isinstance(leaf, RuleAutomaton):
            self.insert_copy(leaf, start, stop)
        elif leaf is None:
            self.has_dead_ends = True
        else:
            label, may_skip = leaf
            self.edges[start].append((label, stop))
            if may_skip:
                self.jumps[start].append(stop)

    def _add_text(self, value: bytes, start: int, stop: int) -> None:
        """Add a path from `start` to `stop` that reads the bytes of a text."""
        if not value:
            self.jumps[start].append(stop)
            return
        for byte in value[:-1]:
            after = self.add_state()
            self.edges[start].append((1 << byte, after))
            start = after
        self.edges[start].append((1 << value[-1], stop))

    def _add_texts(self, texts: list[bytes], start: int, stop: int) -> None:
        """Add paths from `start` to `stop` for sorted texts, which share prefixes."""
        path = [start]
        for i, text in enumerate(texts):
            if not text:
                self.jumps[start].append(stop)
                continue
            n_shared, before = 0, texts[i - 1] if i else b""
            max_shared = min(len(before), len(text) - 1, len(path) - 1)
            while n_shared < max_shared and before[n_shared] == text[n_shared]:
                n_shared += 1
            # Keep the states of the prefix that is shared with the text before.
            del path[n_shared + 1 :]
            for byte in text[n_shared:-1]:
                after = self.add_state()
                self.edges[path[-1]].append((1 << byte, after))
                path.append(after)
            self.edges[path[-1]].append((1 << text[-1], stop))

    def _add_sequence(
        self, part: Concatenation, start: int, stop: int, work: list[tuple[Expression, int, int]]
    ) -> None:
        """Add the states between a sequence's items, and put the items into `work`.

        `work` lists the expressions still to be added, with the states around them.
        """
        if not part.items:
            self.jumps[start].append(stop)
            return
        states = [start, *(self.add_state() for _ in part.items[1:]), stop]
        work += zip(part.items, states, states[1:], strict=False)

    def _add_repeat(self, part: Repeat, start: int, stop: int, work: list[tuple[Expression, int, int]]) -> None:
        """Add a repetition's states, unrolled; put copies of its item into `work`.

        `work` lists the expressions still to be added, with the states around them.
        """
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
            after = self.add_state()
            work.append((part.item, start, after))
            start = after
        # Any number of further items: a loop around one state.
        if max_count is None:
            around = self.add_state()
            self.jumps[start].append(around)
            self.jumps[around].append(stop)
            work.append((part.item, around, around))
            return
        self.jumps[start].append(stop)
        for _ in range(max_count - min_count):
            after = self.add_state()
            work.append((part.item, start, after))
            self.jumps[after].append(stop)
            start = after


UNSEEN, ENTERED = -1, -2


@dataclass(slots=True)
class Work:
    """The remaining budget of work for the rules of one grammar.

    Attributes:
        steps: Elementary steps left for making rules deterministic.
        edges: Edges left for rules that stay nondeterministic and for rewriting left
            recursion.
    """

    steps: int
    edges: int

    @staticmethod
    def of(limits: GrammarLimits) -> Work:
        """Return a budget of all the work that `limits` allow."""
        return Work(limits.max_work, limits.max_edges)

    def spend(self, n: int) -> bool:
        """Subtract `n` steps, and return whether the budget covered them."""
        self.steps -= n
        return self.steps >= 0


def simplify(nfa: Nfa, work: Work) -> RuleAutomaton:
    """Return an equivalent automaton without empty moves and without dead states.

    It is deterministic and minimal if that takes no more than a quarter of the steps
    left, and otherwise keeps the structure of the rule. Raises `GrammarError` if
    removing the empty moves takes more edges than are left.
    """
    trimmed = _drop_dead_states(nfa) if nfa.has_dead_ends else nfa
    own = Work(work.steps // 4, 0)
    automaton = _make_deterministic(trimmed, own)
    work.steps -= work.steps // 4 - max(own.steps, 0)
    if automaton is None:
        return _remove_jumps(trimmed, work)
    block = _find_acyclic_blocks(automaton)
    return _merge_blocks(automaton, _find_blocks(automaton) if block is None else block)


def _drop_dead_states(nfa: Nfa) -> Nfa:
    """Return the automaton restricted to states on a path from start to final.

    States are renumbered; 0 and 1 keep their numbers.
    """
    forward = _closure([0], [[*(target for _, target in edges), *jumps] for edges, jumps in _states(nfa)])
    backward: list[list[int]] = [[] for _ in nfa.edges]
    for state, (edges, jumps) in enumerate(_states(nfa)):
        for _, target in edges:
            backward[target].append(state)
        for target in jumps:
            backward[target].append(state)
    kept = sorted((forward & _closure([1], backward)) | {0, 1})
    number = {old: new for new, old in enumerate(kept)}
    return Nfa(
        nfa.max_states,
        nfa.what,
        [[(label, number[target]) for label, target in nfa.edges[old] if target in number] for old in kept],
        [[number[target] for target in nfa.jumps[old] if target in number] for old in kept],
    )


def _states(nfa: Nfa) -> Iterable[tuple[list[Edge], list[int]]]:
    return zip(nfa.edges, nfa.jumps, strict=True)


def _closure(states: Iterable[int], jumps: list[list[int]]) -> set[int]:
    """Return the states and all states that empty moves (`jumps`) lead to."""
    closure = set(states)
    work = [state for state in closure if jumps[state]]
    if not work:
        return closure
    while work:
        for target in jumps[work.pop()]:
            if target not in closure:
                closure.add(target)
                if jumps[target]:
                    work.append(target)
    return closure


def _make_deterministic(nfa: Nfa, work: Work) -> RuleAutomaton | None:
    """Apply the subset construction (Rabin and Scott).

    Returns None if it takes too many steps.
    """
    start = frozenset(_closure([0], nfa.jumps))
    number: dict[frozenset[int], int] = {start: 0}
    order, edges = [start], []
    for subset in order:
        if not work.spend(1 + len(subset)):
            return None
        grouped: dict[Label, set[int]] = {}
        for state in subset:
            for label, target in nfa.edges[state]:
                grouped.setdefault(label, set()).add(target)
        own: list[Edge] = []
        for label, targets in _split_labels(grouped, work):
            after = frozenset(_closure(targets, nfa.jumps))
            if not work.spend(1 + len(after)):
                return None
            index = number.get(after)
            if index is None:
                index = number[after] = len(order)
                order.append(after)
            own.append((label, index))
        edges.append(own)
    return RuleAutomaton(edges, [1 in subset for subset in order], deterministic=True)


def _split_labels(grouped: dict[Label, set[int]], work: Work) -> list[tuple[Label, set[int]]]:
    """Split overlapping labels, so that no two labels of the result share a byte.

    Each piece keeps the targets of all labels that contain it.
    """
    pieces: list[tuple[Label, set[int]]] = []
    seen = 0
    for label, targets in grouped.items():
        # Calls and tokens never overlap, and neither do bytes that are new.
        if not 0 < label < FIRST_TERMINAL or not label & seen:
            pieces.append((label, targets))
            seen |= label if 0 < label < FIRST_TERMINAL else 0
            continue
        work.spend(len(pieces))
        split: list[tuple[Label, set[int]]] = []
        for other, known in pieces:
            common = other & label if 0 < other < FIRST_TERMINAL else 0
            if common:
                split.append((common, known | targets))
                if other ^ common:
                    split.append((other ^ common, known))
            else:
                split.append((other, known))
        if label & ~seen:
            split.append((label & ~seen, targets))
        pieces, seen = split, seen | label
    return pieces


def _remove_jumps(nfa: Nfa, work: Work) -> RuleAutomaton:
    """Return the automaton without empty moves, but not made deterministic.

    Each state gets the edges of all states that its empty moves lead to. Unreachable
    states are left out.
    """
    number, order = {0: 0}, [0]
    edges: list[list[Edge]] = []
    final: list[bool] = []
    for state in order:
        closure = _closure([state], nfa.jumps)
        own: set[Edge] = set()
        for member in closure:
            for label, target in nfa.edges[member]:
                if target not in number:
                    number[target] = len(order)
                    order.append(target)
                own.add((label, number[target]))
        work.edges -= len(own) + len(closure)
        if work.edges < 0:
            raise GrammarError(f"{nfa.what} has too many continuations; reduce its repeat counts, or split it")
        edges.append(sorted(own))
        final.append(1 in closure)
    return RuleAutomaton(edges, final, deterministic=False)


def _find_acyclic_blocks(rule: RuleAutomaton) -> list[int] | None:
    """Return for each state the number of its block, a set of equivalent states.

    The automaton must be deterministic; returns None if it has a cycle. Successors are
    visited first, so states with the same final flag and signature are equivalent.
    """
    block = [UNSEEN] * len(rule.edges)
    number: dict[tuple[bool, frozenset[tuple[int, Label]]], int] = {}
    work = [0]
    while work:
        state = work[-1]
        if block[state] == UNSEEN:
            block[state] = ENTERED
            for _, target in rule.edges[state]:
                if block[target] == UNSEEN:
                    work.append(target)
                elif block[target] == ENTERED:
                    return None
            continue
        work.pop()
        if block[state] == ENTERED:
            block[state] = number.setdefault((rule.final[state], _signature(rule.edges[state], block)), len(number))
    return block


def _find_blocks(rule: RuleAutomaton) -> list[int]:
    """Return for each state the number of its block, a set of equivalent states.

    The automaton must be deterministic. Partition refinement visits again only states
    whose successors moved to another block, and the larger part of a split block keeps
    its number. A state is therefore visited O(log n) times for each of its edges
    (Hopcroft 1971).
    """
    sources: list[list[int]] = [[] for _ in rule.edges]
    for state, edges in enumerate(rule.edges):
        for _, target in edges:
            sources[target].append(state)
    block = [int(final) for final in rule.final]
    members = [{state for state, number in enumerate(block) if number == kind} for kind in (0, 1)]
    dirty = set(range(len(block)))
    while dirty:
        by_block: dict[int, list[int]] = {}
        for state in dirty:
            by_block.setdefault(block[state], []).append(state)
        moved: list[tuple[int, list[int]]] = []
        for number, states in by_block.items():
            moved += _split_block(rule, block, members, number, states)
        dirty = set()
        for number, states in moved:
            for state in states:
                block[state] = number
                dirty.update(sources[state])
    return block


def _split_block(
    rule: RuleAutomaton, block: list[int], members: list[set[int]], number: int, states: list[int]
) -> list[tuple[int, list[int]]]:
    """Return new blocks for those of `states` that differ from the rest of their block.

    A new block is (number, states). `number` is that of the old one, whose
    `members` are updated; the caller updates `block`.
    """
    parts: dict[frozenset[tuple[int, Label]], list[int]] = {}
    for state in states:
        parts.setdefault(_signature(rule.edges[state], block), []).append(state)
    n_clean = len(members[number]) - len(states)
    moved: list[list[int]] = []
    if n_clean:
        looked_at = set(states)
        clean = next(state for state in members[number] if state not in looked_at)
        n_clean += len(parts.pop(_signature(rule.edges[clean], block), ()))
    # The largest part keeps the block's number, so that few states move.
    if parts and n_clean < max(map(len, parts.values())):
        rest = members[number].difference(*parts.values())
        moved = [list(rest)] if rest else []
        del parts[max(parts, key=lambda one: len(parts[one]))]
    moved += parts.values()
    new_blocks = []
    for part in moved:
        members[number].difference_update(part)
        members.append(set(part))
        new_blocks.append((len(members) - 1, part))
    return new_blocks


def _signature(edges: list[Edge], block: list[int]) -> frozenset[tuple[int, Label]]:
    """Return the edges of a state as pairs (block of the target, label).

    Edges to the same block are joined into one label.
    """
    if len(edges) == 1:
        return frozenset([(block[edges[0][1]], edges[0][0])])
    read: dict[int, Label] = {}
    other = []
    for label, target in edges:
        if 0 < label < FIRST_TERMINAL:
            read[block[target]] = read.get(block[target], 0) | label
        else:
            other.append((block[target], label))
    return frozenset([*read.items(), *other])


def _merge_blocks(rule: RuleAutomaton, block: list[int]) -> RuleAutomaton:
    """Return the automaton with one state for each block, in order of discovery."""
    example = {number: state for state, number in enumerate(block)}
    number, order = {block[0]: 0}, [block[0]]
    edges: list[list[Edge]] = []
    for old in order:
        own: list[Edge] = []
        for target, label in sorted(_signature(rule.edges[example[old]], block)):
            if target not in number:
                number[target] = len(order)
                order.append(target)
            own.append((label, number[target]))
        edges.append(own)
    return RuleAutomaton(edges, [rule.final[example[old]] for old in order], deterministic=True)


def remove_empty_text(rule: RuleAutomaton) -> RuleAutomaton:
    """Return an automaton of the same texts without the empty one.

    No edge leads back to the start state, which is not final.
    """
    if not rule.final[0] and not any(target == 0 for edges in rule.edges for _, target in edges):
        return rule
    again = len(rule.edges)
    edges = [[(label, target or again) for label, target in own] for own in rule.edges]
    final = [False, *rule.final[1:]]
    if any(target == again for own in edges for _, target in own):
        edges.append(edges[0])
        final.append(rule.final[0])
    return RuleAutomaton(edges, final, rule.deterministic)


def leftmost_calls(rule: RuleAutomaton) -> list[int]:
    """Return the numbers of the rules that a rule may call before reading anything."""
    return [called_rule(label) for label, _ in rule.edges[0] if label < 0]


def remove_left_recursion(
    ring: Sequence[int], number: int, automata: dict[int, RuleAutomaton], nfa: Nfa, work: Work
) -> RuleAutomaton:
    """Return an automaton of rule `number` of a ring, without left recursion.

    The rules of a ring begin with each other. The left-corner transformation turns
    such beginnings into continuations.

    Args:
        automata: The automata of the rules, without the empty text (see
            `remove_empty_text`).
        nfa: A new automaton, which is filled.
        work: The budget of edges.
    """
    members = set(ring)
    own = {rule: [nfa.add_state() for _ in automata[rule].edges] for rule in ring}
    goes_on: dict[int, list[int]] = {rule: [] for rule in ring}
    for rule in ring:
        automaton, states = automata[rule], own[rule]
        for label, target in automaton.edges[0]:
            if label < 0 and called_rule(label) in members:
                goes_on[called_rule(label)].append(states[target])
            else:
                nfa.edges[0].append((label, states[target]))
        for state in range(1, len(automaton.edges)):
            nfa.edges[states[state]] = [(label, states[target]) for label, target in automaton.edges[state]]
    for rule in ring:
        joint = nfa.add_state()
        nfa.jumps[joint] = [*goes_on[rule], *([1] if rule == number else [])]
        for state, final in zip(own[rule], automata[rule].final, strict=True):
            if final:
                nfa.jumps[state].append(joint)
    return remove_empty_text(simplify(nfa, work))
