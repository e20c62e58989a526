"""Compiles rules to a program for a machine.

Each rule becomes an automaton over bytes. Small automata are copied in place of their
calls, and left recursion is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from selectrie.errors import GrammarError
from selectrie.grammar.machine.left_recursion import left_corner, leftmost_calls, without_empty
from selectrie.grammar.machine.limits import DEFAULT_LIMITS, GrammarLimits
from selectrie.grammar.machine.minimise import Work, simplified
from selectrie.grammar.machine.nfa import Nfa, Resolved, RuleAutomaton, call, called, terminal
from selectrie.grammar.machine.nullability import Facts, facts
from selectrie.grammar.machine.program import Program, linked
from selectrie.grammar.machine.scc import rings
from selectrie.grammar.rules.expressions import Characters, Expression, Reference, RuleSet, TokenSet
from selectrie.grammar.rules.source_positions import Source

INLINED_STATES = 32
"""A rule of at most this many states replaces its calls."""
ONCE_STATES = 4096
"""So does a rule of at most this many states that is called only once."""
RING_EDGE = 8
"""Cost of an edge of a left-recursive rule, relative to other edges.

The automaton of such a rule is built again for each rule called.
"""
SPELLED_STATES = 14
"""A character set with a larger automaton becomes a separate rule.

For instance, `\\w` has more than a hundred nodes.
"""


def compiled(rules: RuleSet, limits: GrammarLimits = DEFAULT_LIMITS) -> Program:
    """Return the program that a `Machine` runs.

    It holds the states, edges and calls of all rules reachable from the root. Raises
    `GrammarError` if the root or a referenced rule does not exist, if no text matches
    the root, or if a limit is exceeded.
    """
    known = facts(rules.rules, rules.root)
    _check_names(rules, known)
    if len(known.names) > limits.max_rules:
        raise GrammarError(f"{rules.root!r} uses {len(known.names)} rules; the maximum is {limits.max_rules}")
    if rules.root not in known.productive:
        raise located(f"no text matches {rules.root!r}: each of its alternatives leads to itself or nowhere", rules)
    work = _Compiler(rules, limits, known, Work.of(limits))
    for ring in rings(_calls_of(known)):
        work.add(ring)
    return linked(_without_left_recursion(work), work.number[rules.root], tuple(work.token_sets))


def located(reason: str, rules: RuleSet, start: int | None = None) -> GrammarError:
    """Return an error that points into the source, by default at the root."""
    if start is None and rules.root in rules.spans:
        start = rules.spans[rules.root].start
    if start is None or not rules.text:
        return GrammarError(reason)
    return Source(rules.text).refused(start, reason)


def _check_names(rules: RuleSet, known: Facts) -> None:
    if rules.root not in rules.rules:
        names = ", ".join(sorted(rules.rules)[:10]) or "none"
        raise GrammarError(f"there is no rule {rules.root!r}; rules: {names}")
    for name, references in known.references.items():
        for reference in references:
            if reference.name not in rules.rules:
                start = reference.span.start if reference.span else None
                raise located(f"rule {name!r} uses {reference.name!r}, which is not defined", rules, start)


def _calls_of(known: Facts) -> dict[str, list[str]]:
    return {
        name: [one.name for one in known.references[name] if one.name in known.substantial]
        for name in known.names
        if name in known.productive
    }


@dataclass(slots=True)
class _Compiler:
    """Builds the automata of rules.

    Rules have numbers, and so have character sets that became rules of their own.
    """

    rules: RuleSet
    limits: GrammarLimits
    known: Facts
    work: Work
    number: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    automata: dict[int, RuleAutomaton] = field(default_factory=dict)
    inlined: dict[int, RuleAutomaton] = field(default_factory=dict)
    sets: dict[Characters, Resolved] = field(default_factory=dict)
    sets_met: dict[int, Resolved] = field(default_factory=dict)
    token_sets: dict[TokenSet, int] = field(default_factory=dict)
    n_uses: dict[str, int] = field(default_factory=dict)
    n_states: int = 0
    n_copied: int = 0

    def __post_init__(self) -> None:
        for name in self.known.names:
            self._new(name)
            for reference in self.known.references[name]:
                self.n_uses[reference.name] = self.n_uses.get(reference.name, 0) + 1

    def add(self, ring: Iterable[str]) -> None:
        """Add rules that call each other, or a single rule.

        All other rules that they call must have been added before.
        """
        members = list(ring)
        for name in members:
            automaton = self._automaton(self.rules.rules[name], f"rule {name!r}")
            self.automata[self.number[name]] = automaton
            recursive = len(members) > 1 or name in {one.name for one in self.known.references[name]}
            size = len(automaton.edges)
            if not recursive and (size <= INLINED_STATES or (size <= ONCE_STATES and self.n_uses.get(name) == 1)):
                self.inlined[self.number[name]] = automaton

    def _new(self, name: str) -> int:
        self.number[name] = len(self.names)
        self.names.append(name)
        return self.number[name]

    def _automaton(self, expression: Expression, what: str) -> RuleAutomaton:
        nfa = Nfa(self.limits.max_states - self.n_states, what)
        nfa.build(expression, self._resolve)
        automaton = simplified(nfa, self.work)
        self.n_states += len(automaton.edges)
        return automaton

    def _resolve(self, part: Characters | TokenSet | Reference) -> Resolved:
        if isinstance(part, Characters):
            if id(part) not in self.sets_met:  # by identity first: a set may have thousands of ranges to hash
                if part not in self.sets:
                    self.sets[part] = self._set(part)
                self.sets_met[id(part)] = self.sets[part]
            return self.sets_met[id(part)]
        if isinstance(part, Reference):
            return self._rule(part.name)
        if part.tokens or part.negated:
            return terminal(self.token_sets.setdefault(part, len(self.token_sets))), False
        return None

    def _rule(self, name: str) -> Resolved:
        if name not in self.known.substantial:
            return NOTHING if name in self.known.productive else None
        number = self.number[name]
        automaton = self.inlined.get(number)
        if automaton is None or self.n_copied + len(automaton.edges) > self.limits.max_inlined:
            return call(number), name in self.known.nullable
        self.n_copied += len(automaton.edges)
        return automaton

    def _set(self, part: Characters) -> Resolved:
        """Return the label of a character set, or the automaton to insert for it.

        If the automaton is large, it becomes a new rule, and the label calls that rule.
        """
        if not part.ranges:
            return None
        nfa = Nfa(self.limits.max_states - self.n_states, "a set of characters")
        nfa.characters(part)
        automaton = simplified(nfa, self.work)
        if len(automaton.edges) == 2 and len(automaton.edges[0]) == 1:
            return automaton.edges[0][0][0], False
        if len(automaton.edges) <= SPELLED_STATES:
            return automaton
        number = self._new(f"set {len(self.names)}")
        self.automata[number] = automaton
        self.n_states += len(automaton.edges)
        return call(number), False


NOTHING = RuleAutomaton([[]], [True], deterministic=True)
"""The automaton of the empty text."""


def _without_left_recursion(work: _Compiler) -> dict[int, tuple[RuleAutomaton, bool]]:
    """Return the root and the rules it calls once left recursion has been removed.

    Each rule is an automaton without the empty text, and whether the rule also matches
    that. Only the root's flag is used, because a caller of a rule that may be empty has
    an edge that skips the call.
    """
    root = work.number[work.rules.root]
    nullable = {number: automaton.final[0] for number, automaton in work.automata.items()}
    plain = {number: without_empty(automaton) for number, automaton in work.automata.items()}
    leftmost = {number: leftmost_calls(automaton) for number, automaton in plain.items()}
    ring_of = {
        number: ring for ring in rings(leftmost) for number in ring if len(ring) > 1 or number in leftmost[number]
    }
    done: dict[int, tuple[RuleAutomaton, bool]] = {}
    waiting = [root]
    n_states = 0
    for number in waiting:
        if number in done:
            continue
        automaton = plain[number]
        if number in ring_of:
            automaton = _rewritten(work, ring_of[number], number, plain)
        n_states += len(automaton.edges)
        if n_states > work.limits.max_states:
            raise GrammarError(f"the rules have more than {work.limits.max_states} states; split the grammar")
        done[number] = automaton, nullable[number]
        waiting += {called(label) for edges in automaton.edges for label, _ in edges if label < 0}
    return done


def _rewritten(work: _Compiler, ring: list[int], number: int, plain: dict[int, RuleAutomaton]) -> RuleAutomaton:
    names = [repr(work.names[one]) for one in ring]
    what = f"the left recursion of {' -> '.join([*names[:7], *(['...'] if len(names) > 7 else []), names[0]])}"
    work.work.edges -= RING_EDGE * sum(len(edges) for one in ring for edges in plain[one].edges)
    if work.work.edges < 0:
        raise GrammarError(f"{what} is too large to rewrite; reduce the number of rules that begin with each other")
    return left_corner(ring, number, plain, Nfa(work.limits.max_states, what), work.work)
