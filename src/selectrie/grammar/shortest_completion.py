"""Computes the fewest characters from a configuration to the end of some text."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TypeAlias

from selectrie.grammar.machine.machine import Machine
from selectrie.grammar.machine.program import NO_RETURN, Program

NEVER = 1 << 60
_CONTINUATIONS = (1 << 0xC0) - (1 << 0x80)
"""Bytes 0x80 to 0xBF as bits: the second to fourth bytes of characters."""


class Shortest:
    """Computes exact distances to the end of the shortest accepted text.

    Distances count characters and tokens of terminals. The missing bytes of an
    incomplete character count as 0. Distances are computed once for the states of the
    program, and then once for each set of stacks and each configuration requested.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._min_lengths = min_lengths(machine.program)
        self._below: list[int] = []
        self._remaining: dict[int, int] = {}

    def remaining(self, configuration: int) -> int:
        """Return the number of characters to the end of the shortest accepted text.

        It is 0 if the text may end here.
        """
        length = self._remaining.get(configuration)
        if length is None:
            length = min(
                self._min_lengths[state] + self._stack(stacks) for state, stacks in self._machine.items(configuration)
            )
            self._remaining[configuration] = length
        return length

    def _stack(self, stacks: int) -> int:
        """Return the least number of characters that complete all rules of a stack.

        `stacks` is the number of a set of stacks. Sets are numbered after the sets
        below them, so the distances of those are computed first.
        """
        sets = self._machine.stacks
        for number in range(len(self._below), stacks + 1):
            options = [self._min_lengths[state] + self._below[below] for state, below in sets.links[number]]
            self._below.append(0 if sets.ends[number] else min(options))
        return self._below[stacks]


def min_lengths(program: Program) -> list[int]:
    """Return, for each state, the minimum number of characters to the end of its rule.

    `NEVER` marks the start of a rule without texts. Uses Knuth's generalisation of
    Dijkstra's algorithm (Information Processing Letters 6, 1977): a call costs its rule
    and what follows it.
    """
    n_states = len(program.edges)
    before, halves = _backwards(program)
    lengths = [NEVER] * n_states
    waiting = [(0, state) for state in range(n_states) if program.final[state]]
    while waiting:
        cost, state = heappop(waiting)
        if lengths[state] < NEVER:
            continue
        lengths[state] = cost
        for other, more in before[state]:
            if lengths[other] == NEVER:
                heappush(waiting, (cost + more, other))
        for other, half in halves[state]:
            if lengths[other] == NEVER and lengths[half] < NEVER:
                heappush(waiting, (cost + lengths[half], other))
    return lengths


_Pairs: TypeAlias = list[list[tuple[int, int]]]


def _backwards(program: Program) -> tuple[_Pairs, _Pairs]:
    """Return the reversed steps and the reversed calls of each state.

    A reversed step is (state before, number of characters between). A reversed call is
    (caller, other state). A call has two states, the rule's first state and the state
    to return to; each of them lists the other.
    """
    before: _Pairs = [[] for _ in program.edges]
    halves: _Pairs = [[] for _ in program.edges]
    for state, calls in enumerate(program.calls):
        for label, to in program.edges[state]:
            before[to].append((state, int(label & ~_CONTINUATIONS != 0)))
        for _, to in program.tokens[state]:
            before[to].append((state, 1))
        for callee, back in calls:
            if back == NO_RETURN:
                before[callee].append((state, 0))
            else:
                halves[callee].append((state, back))
                halves[back].append((state, callee))
    return before, halves
