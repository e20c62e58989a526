"""Simplifies the automaton of one rule.

The result has no empty moves. If that is cheap, it is deterministic and minimal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from selectrie.errors import GrammarError
from selectrie.grammar.machine.limits import GrammarLimits
from selectrie.grammar.machine.nfa import FIRST_TERMINAL, Edge, Label, Nfa, RuleAutomaton

UNSEEN, ENTERED = -1, -2


@dataclass(slots=True)
class Work:
    """The budget of work that is left for the rules of one grammar.

    Attributes:
        steps: Elementary steps left for making rules deterministic.
        edges: Edges left for rules that stay nondeterministic and for rewriting left
            recursion.
    """

    steps: int
    edges: int

    @staticmethod
    def of(limits: GrammarLimits) -> Work:
        """Return the full budget."""
        return Work(limits.max_work, limits.max_edges)

    def spend(self, n: int) -> bool:
        """Spend n steps and return whether the budget is still not exceeded."""
        self.steps -= n
        return self.steps >= 0


def simplified(nfa: Nfa, work: Work) -> RuleAutomaton:
    """Return an equivalent automaton without empty moves and without dead states.

    It is deterministic and minimal if that takes no more than a quarter of the steps
    left, and otherwise keeps the structure of the rule. Raises `GrammarError` if
    removing the empty moves takes more edges than are left.
    """
    trimmed = _useful(nfa) if nfa.has_dead_ends else nfa
    own = Work(work.steps // 4, 0)
    automaton = _subsets(trimmed, own)
    work.steps -= work.steps // 4 - max(own.steps, 0)
    if automaton is None:
        return _without_jumps(trimmed, work)
    block = _blocks_without_cycles(automaton)
    return _merged(automaton, _blocks(automaton) if block is None else block)


def _useful(nfa: Nfa) -> Nfa:
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


def _subsets(nfa: Nfa, work: Work) -> RuleAutomaton | None:
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
        for label, targets in _apart(grouped, work):
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


def _apart(grouped: dict[Label, set[int]], work: Work) -> list[tuple[Label, set[int]]]:
    """Return the same targets, grouped by labels that have no byte in common."""
    pieces: list[tuple[Label, set[int]]] = []
    seen = 0
    for label, targets in grouped.items():
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


def _without_jumps(nfa: Nfa, work: Work) -> RuleAutomaton:
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


def _blocks_without_cycles(rule: RuleAutomaton) -> list[int] | None:
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


def _blocks(rule: RuleAutomaton) -> list[int]:
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
            moved += _split(rule, block, members, number, states)
        dirty = set()
        for number, states in moved:
            for state in states:
                block[state] = number
                dirty.update(sources[state])
    return block


def _split(
    rule: RuleAutomaton, block: list[int], members: list[set[int]], number: int, states: list[int]
) -> list[tuple[int, list[int]]]:
    """Return new blocks for those of `states` that differ from the rest of their block.

    `number` is that of the block. The caller updates `block`.
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


def _merged(rule: RuleAutomaton, block: list[int]) -> RuleAutomaton:
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
