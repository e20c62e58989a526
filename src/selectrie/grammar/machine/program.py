"""All rules of a grammar linked into one immutable table of states, with limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from selectrie.grammar.machine.nfa import FIRST_TERMINAL, RuleAutomaton, called_rule
from selectrie.grammar.rules import TokenTerminal

NO_RETURN = -1
"""In place of a state to return to: the called rule returns to its caller's caller."""


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
    token_sets: tuple[TokenTerminal, ...]
    class_of: tuple[int, ...]
    n_classes: int


def link_rules(
    rules: Mapping[int, tuple[RuleAutomaton, bool]], root: int, token_sets: tuple[TokenTerminal, ...]
) -> Program:
    """Link the automata of rules into one program with consecutive state numbers.

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
            calls.append(
                tuple(
                    [(first[called_rule(label)], _return_state(automaton, base, to)) for label, to in own if label < 0]
                )
            )
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
    class_of = _byte_classes(labels)
    return Program(starts, edges, calls, tokens, final, token_sets, class_of, max(class_of) + 1)


def _return_state(automaton: RuleAutomaton, base: int, state: int) -> int:
    """Return the state to return to, or `NO_RETURN` if it would only return in turn.

    `base` is the number in the program of the automaton's state 0.
    """
    return base + state if automaton.edges[state] or not automaton.final[state] else NO_RETURN


def _byte_classes(labels: set[int]) -> tuple[int, ...]:
    """Return the class of each byte.

    Bytes that belong to the same labels are one class. Classes are numbered by their
    first byte.
    """
    masks = sorted(labels)
    number: dict[tuple[bool, ...], int] = {}
    signatures = [tuple(bool(mask >> byte & 1) for mask in masks) for byte in range(256)]
    return tuple(number.setdefault(signature, len(number)) for signature in signatures)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next states after one symbol, and the return states pushed on their stacks.

    Attributes:
        targets: Next states that keep the stacks as they are.
        steps: The rules that are entered before the symbol is read, callers before the
            rules they call. Each is a pair (callers, next states). A caller is a pair
            (0 for the state itself or 1 + an earlier step, state to return to or
            `NO_RETURN`). The step's stacks are the union of its callers' stacks, each
            with that return state pushed, or as it is for `NO_RETURN`; the next states
            get these stacks.
    """

    targets: tuple[int, ...]
    steps: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...]


NO_PLAN = Plan((), ())


class Plans:
    """Computes and keeps the plans of a program: one for each state and symbol."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._n_symbols = program.n_classes + len(program.token_sets)
        bytes_of = {kind: byte for byte, kind in reversed(list(enumerate(program.class_of)))}
        self._bit = [1 << bytes_of[kind] for kind in range(program.n_classes)]
        self._plans: dict[int, Plan] = {}
        self._orders: dict[int, list[int]] = {}
        self.n_steps = 0
        self._terminals: dict[int, frozenset[int]] = {}
        self._tokens: dict[int, dict[int, tuple[int, ...]]] = {}

    @property
    def n_bytes(self) -> int:
        return 400 * len(self._plans) + 100 * sum(map(len, self._orders.values()))

    def plan(self, state: int, symbol: int) -> Plan:
        """Return the plan of a state for a symbol.

        The symbol is a class of bytes, or n_classes + the index of a token terminal.
        """
        key = state * self._n_symbols + symbol
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._make_plan(state, symbol)
        return plan

    def terminals(self, state: int) -> frozenset[int]:
        """Return the token terminals that may come next, by index.

        They are those of the state and of the rules that it calls.
        """
        terminals = self._terminals.get(state)
        if terminals is None:
            tokens = self._program.tokens
            terminals = frozenset(index for inner in self._call_order(state) for index, _ in tokens[inner])
            self._terminals[state] = terminals
        return terminals

    def _make_plan(self, state: int, symbol: int) -> Plan:
        """Compute the plan of a state for a symbol, which `plan` caches.

        Only rules that read the symbol, or lead to one that does by their leftmost
        calls, become steps.
        """
        if not self._program.calls[state]:
            targets = self._targets(state, symbol)
            return Plan(targets, ()) if targets else NO_PLAN
        order = self._call_order(state)
        self.n_steps += 8 * len(order)
        targets_of = {inner: self._targets(inner, symbol) for inner in order}
        # Callees come after their callers, so this finds from the end which rules lead
        # to the symbol.
        matters: set[int] = set()
        for inner in reversed(order):
            if targets_of[inner] or any(callee in matters for callee, _ in self._program.calls[inner]):
                matters.add(inner)
        if state not in matters:
            return NO_PLAN
        kept = [inner for inner in order if inner in matters]
        index = {inner: i for i, inner in enumerate(kept)}
        callers: list[dict[tuple[int, int], None]] = [{} for _ in kept]
        for inner in kept:
            for callee, back in self._program.calls[inner]:
                if callee in index:
                    callers[index[callee]][index[inner], back] = None
        steps = tuple((tuple(callers[index[inner]]), targets_of[inner]) for inner in kept[1:])
        return Plan(targets_of[state], steps)

    def _targets(self, state: int, symbol: int) -> tuple[int, ...]:
        """Return the next states of a state after a symbol, without calls."""
        if symbol < self._program.n_classes:
            bit = self._bit[symbol]
            return tuple(target for label, target in self._program.edges[state] if label & bit)
        tokens = self._program.tokens[state]
        if not tokens:
            return ()
        targets = self._tokens.get(state)
        if targets is None:
            targets = self._tokens[state] = {}
            for index, target in tokens:
                targets[index] = (*targets.get(index, ()), target)
        return targets.get(symbol - self._program.n_classes, ())

    def _call_order(self, state: int) -> list[int]:
        """Return the state and the first states of all rules that calls alone lead to.

        Callers come before the rules that they call.
        """
        order = self._orders.get(state)
        if order is not None:
            return order
        calls = self._program.calls
        seen, done = {state}, []
        work = [(state, iter(calls[state]))]
        while work:
            node, callees = work[-1]
            for callee, _ in callees:
                if callee not in seen:
                    seen.add(callee)
                    work.append((callee, iter(calls[callee])))
                    break
            else:
                work.pop()
                done.append(node)
        order = self._orders[state] = done[::-1]
        return order
