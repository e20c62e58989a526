"""All rules of a grammar linked into one immutable table of states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from selectrie.grammar.machine.nfa import FIRST_TERMINAL, RuleAutomaton, called
from selectrie.grammar.rules.expressions import TokenSet

NO_RETURN = -1


@dataclass(frozen=True, slots=True)
class Program:
    """The states of all rules, linked into one table.

    A text begins in `starts` with no open rule, and may end where a final state has no
    open rule. No rule is complete at its first state, and no rule leads to itself by
    calls alone, so following calls terminates. Every state leads to a final one.

    Attributes:
        edges: For each state, pairs (bytes as bits of a number, next state).
        calls: For each state, pairs (first state of a rule, state to return to). The
            latter is `NO_RETURN` if that state could only return in turn.
        tokens: For each state, pairs (terminal, next state).
        final: For each state, whether the rule may be complete here.
        class_of: The class of each byte; no state distinguishes bytes of one class.
        n_classes: Number of classes.
    """

    starts: tuple[int, ...]
    edges: list[tuple[tuple[int, int], ...]]
    calls: list[tuple[tuple[int, int], ...]]
    tokens: list[tuple[tuple[int, int], ...]]
    final: list[bool]
    token_sets: tuple[TokenSet, ...]
    class_of: tuple[int, ...]
    n_classes: int


def linked(rules: Mapping[int, tuple[RuleAutomaton, bool]], root: int, token_sets: tuple[TokenSet, ...]) -> Program:
    """Link rules into a program with consecutive state numbers.

    Args:
        rules: For each rule number, the automaton without the empty text, and whether
            the rule also matches the empty text.
    """
    first: dict[int, int] = {}
    n_states = 0
    for number, (automaton, _) in rules.items():
        first[number] = n_states
        n_states += len(automaton.edges)
    edges: list[tuple[tuple[int, int], ...]] = []
    calls: list[tuple[tuple[int, int], ...]] = []
    tokens: list[tuple[tuple[int, int], ...]] = []
    final: list[bool] = []
    labels: set[int] = set()
    for number, (automaton, _) in rules.items():
        base = first[number]
        for own in automaton.edges:
            reads = [(label, base + to) for label, to in own if 0 < label < FIRST_TERMINAL]
            edges.append(tuple(reads))
            calls.append(tuple([(first[called(label)], _back(automaton, base, to)) for label, to in own if label < 0]))
            tokens.append(tuple([(label - FIRST_TERMINAL, base + to) for label, to in own if label >= FIRST_TERMINAL]))
            labels.update([label for label, _ in reads])
        final += automaton.final
    starts: tuple[int, ...] = (first[root],)
    if rules[root][1]:
        starts = (first[root], len(edges))
        edges.append(())
        calls.append(())
        tokens.append(())
        final.append(True)
    class_of = _classes(labels)
    return Program(starts, edges, calls, tokens, final, token_sets, class_of, max(class_of) + 1)


def _back(automaton: RuleAutomaton, base: int, state: int) -> int:
    """Return the state to return to, or `NO_RETURN` if it would only return in turn."""
    return base + state if automaton.edges[state] or not automaton.final[state] else NO_RETURN


def _classes(labels: set[int]) -> tuple[int, ...]:
    """Return the class of each byte.

    Bytes that belong to the same labels are one class. Classes are numbered by their
    first byte.
    """
    masks = sorted(labels)
    number: dict[tuple[bool, ...], int] = {}
    signatures = [tuple(bool(mask >> byte & 1) for mask in masks) for byte in range(256)]
    return tuple(number.setdefault(signature, len(number)) for signature in signatures)
