"""Determines properties of all texts of a compiled grammar without reading any."""

from __future__ import annotations

from bisect import bisect_right

from selectrie.grammar.machine.program import NO_RETURN, Program
from selectrie.grammar.machine.scc import rings
from selectrie.grammar.machine.transitions import Plans

END = -1
"""Marks the bottom of a stack: no rule is open below."""
MAX_SETS = 2_000
MAX_ITEMS = 60_000
MAX_DEPTH = 12

Item = tuple[int, tuple[int, ...]]
"""A state and its return states, the next one first.

Return states below what all items have in common are left out.
"""


def is_finite(program: Program) -> bool:
    """Return whether there are finitely many texts.

    That is so if no state leads to itself by reading or by calling, because every state
    can be reached and left, and every rule reads at least one byte.
    """
    after = {state: _leads_to(program, state) for state in range(len(program.edges))}
    return all(len(ring) == 1 and ring[0] not in after[ring[0]] for ring in rings(after))


def is_prefix_free(program: Program) -> bool:
    """Return whether no text is a prefix of another; False if that is unknown.

    The search follows sets of items as the machine would. An item is a state with the
    upper part of its stack, above the part that all items of the set share. Where a set
    leaves the shared part, every possible return from its rule is tried. If one of them
    ends the text, no item may be able to continue. The result is right because more
    stacks are tried than exist. The search ends because it gives up beyond a number of
    sets.
    """
    start = program.starts[0]
    if program.token_sets:
        return False
    if len(program.starts) > 1:
        return not _leads_to(program, start)
    search = _Search(program)
    sets: list[frozenset[Item]] = [frozenset([(start, ())])]
    seen = set(sets)
    n_items = 0
    for items in sets:
        n_items += len(items)
        after = search.after(items)
        if after is None or len(seen) > MAX_SETS or n_items > MAX_ITEMS:
            return False
        for successor in after:
            if successor not in seen:
                seen.add(successor)
                sets.append(successor)
    return True


def _leads_to(program: Program, state: int) -> list[int]:
    called = [one for callee, back in program.calls[state] for one in (callee, back) if one != NO_RETURN]
    return [*(to for _, to in program.edges[state]), *called, *(to for _, to in program.tokens[state])]


class _Search:
    """Follows sets of items, to find a text that continues where another one ends."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._plans = Plans(program)
        self._firsts = sorted({program.starts[0], *(callee for calls in program.calls for callee, _ in calls)})
        self._returns = self._returns_of()

    def after(self, items: frozenset[Item]) -> list[frozenset[Item]] | None:
        """Return the sets of items after one more byte, or after a return to a caller.

        Returns None if some text continues another, or if the stacks get too deep to
        tell.
        """
        final = self._program.final
        closed = set(items)
        work = list(items)
        for state, stack in work:
            if final[state] and stack and (stack[0], stack[1:]) not in closed:
                closed.add((stack[0], stack[1:]))
                work.append((stack[0], stack[1:]))
        if any(final[state] and not stack for state, stack in closed):
            backs = self._returns[self._rule(min(closed, key=lambda item: len(item[1]))[0])]
            if END in backs and any(_leads_to(self._program, state) for state, _ in closed):
                return None
            deeper = [frozenset((state, (*stack, back)) for state, stack in closed) for back in backs if back != END]
            return None if any(len(stack) > MAX_DEPTH for _, stack in closed) else deeper
        successors = [
            self._common(read) for kind in range(self._program.n_classes) if (read := self._read(closed, kind))
        ]
        return None if any(len(stack) > MAX_DEPTH for one in successors for _, stack in one) else successors

    def _read(self, closed: set[Item], kind: int) -> set[Item]:
        items: set[Item] = set()
        for state, stack in closed:
            plan = self._plans.plan(state, kind)
            items.update((target, stack) for target in plan.targets)
            opened: list[set[tuple[int, ...]]] = [{stack}]
            for callers, targets in plan.steps:
                own = {
                    above if back == NO_RETURN else (back, *above)
                    for caller, back in callers
                    for above in opened[caller]
                }
                opened.append(own)
                items.update((target, above) for target in targets for above in own)
                if len(own) > MAX_SETS:
                    return items | {(state, (state,) * (MAX_DEPTH + 1))}
        return items

    def _common(self, items: set[Item]) -> frozenset[Item]:
        """Return the items without the bottom of their stacks, as far as all share it.

        The states below must have been called in one rule.
        """
        while len({stack[-1:] for _, stack in items}) == 1 and next(iter(items))[1]:
            if len({self._rule(stack[-2] if len(stack) > 1 else state) for state, stack in items}) > 1:
                break
            items = {(state, stack[:-1]) for state, stack in items}
        return frozenset(items)

    def _rule(self, state: int) -> int:
        """Return the first state of the rule that contains a state."""
        return self._firsts[bisect_right(self._firsts, state) - 1]

    def _returns_of(self) -> dict[int, set[int]]:
        """Return, for each rule by its first state, the states to return to.

        `END` is among those of the rule that the text begins with.
        """
        returns: dict[int, set[int]] = {first: set() for first in self._firsts}
        returns[self._program.starts[0]].add(END)
        heirs: dict[int, set[int]] = {first: set() for first in self._firsts}
        for caller, calls in enumerate(self._program.calls):
            for callee, back in calls:
                if back == NO_RETURN:
                    heirs[self._rule(caller)].add(callee)
                else:
                    returns[callee].add(back)
        work = list(returns)
        while work:
            rule = work.pop()
            for heir in heirs[rule]:
                if not returns[rule] <= returns[heir]:
                    returns[heir] |= returns[rule]
                    work.append(heir)
        return returns
