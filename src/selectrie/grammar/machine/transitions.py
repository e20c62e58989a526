"""Computes the next states and the changes of the stacks when a state reads a symbol.

A symbol is a class of bytes or a token terminal. A plan is made once for each pair of
state and symbol.
"""

from __future__ import annotations

from dataclasses import dataclass

from selectrie.grammar.machine.program import Program


@dataclass(frozen=True, slots=True)
class Plan:
    """The next states after one symbol, and the return states pushed on their stacks.

    Attributes:
        targets: Next states that keep the stacks as they are.
        steps: The rules that are entered first, callers before the rules they call.
            Each is a pair (callers, next states). A caller is a pair (0 for the state
            itself or 1 + an earlier step, state to return to or `NO_RETURN`). The
            step's stacks are the union of its callers' stacks, each with that return
            state pushed; the next states get these stacks.
    """

    targets: tuple[int, ...]
    steps: tuple[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], ...]


NO_PLAN = Plan((), ())


class Plans:
    """The plans of a program, made on demand."""

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
            plan = self._plans[key] = self._make(state, symbol)
        return plan

    def terminals(self, state: int) -> frozenset[int]:
        """Return the token terminals that may come next, by index.

        They are those of the state and of the rules that it calls.
        """
        terminals = self._terminals.get(state)
        if terminals is None:
            tokens = self._program.tokens
            terminals = frozenset(index for inner in self._order(state) for index, _ in tokens[inner])
            self._terminals[state] = terminals
        return terminals

    def _make(self, state: int, symbol: int) -> Plan:
        """Make a plan.

        Only rules that read the symbol, or lead to one that does by their leftmost
        calls, become steps.
        """
        if not self._program.calls[state]:
            targets = self._targets(state, symbol)
            return Plan(targets, ()) if targets else NO_PLAN
        order = self._order(state)
        self.n_steps += 8 * len(order)
        targets_of = {inner: self._targets(inner, symbol) for inner in order}
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

    def _order(self, state: int) -> list[int]:
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
