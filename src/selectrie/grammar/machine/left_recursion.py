"""Removes left recursion from automata without changing the language.

It uses the left-corner transformation (Rosenkrantz and Lewis, 1970). A text of X is
read along the leftmost calls of its derivation, from the innermost rule outwards.
Whenever a rule is complete, the rest of a rule that may begin with it is read.

For a ring, a set of rules that begin with each other, the result is one automaton of
all their states. It starts with every edge of a rule's start state that is not a call
within the ring. Where Y is complete, it continues at q for every edge start --Y--> q of
the ring. It ends where X is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from selectrie.grammar.machine.minimise import Work, simplified
from selectrie.grammar.machine.nfa import Nfa, RuleAutomaton, called


def without_empty(rule: RuleAutomaton) -> RuleAutomaton:
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
    """Return the rules that a text of `rule` may begin with, by number."""
    return [called(label) for label, _ in rule.edges[0] if label < 0]


def left_corner(
    ring: Sequence[int], number: int, automata: dict[int, RuleAutomaton], nfa: Nfa, work: Work
) -> RuleAutomaton:
    """Return an automaton of rule `number` of a ring, without left recursion.

    Args:
        automata: The automata of the rules, without the empty text (see
            `without_empty`).
        nfa: A new automaton, which is filled.
    """
    members = set(ring)
    own = {rule: [nfa.state() for _ in automata[rule].edges] for rule in ring}
    goes_on: dict[int, list[int]] = {rule: [] for rule in ring}
    for rule in ring:
        automaton, states = automata[rule], own[rule]
        for label, target in automaton.edges[0]:
            if label < 0 and called(label) in members:
                goes_on[called(label)].append(states[target])
            else:
                nfa.edges[0].append((label, states[target]))
        for state in range(1, len(automaton.edges)):
            nfa.edges[states[state]] = [(label, states[target]) for label, target in automaton.edges[state]]
    for rule in ring:
        joint = nfa.state()
        nfa.jumps[joint] = [*goes_on[rule], *([1] if rule == number else [])]
        for state, final in zip(own[rule], automata[rule].final, strict=True):
            if final:
                nfa.jumps[state].append(joint)
    return without_empty(simplified(nfa, work))
