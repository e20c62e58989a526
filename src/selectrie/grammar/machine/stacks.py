"""Interned sets of stacks: equal sets have one number, and stacks share tails.

A set is a node of an acyclic automaton over return states, which is deterministic and
minimal by construction. Many stacks that differ only in the calls on the way therefore
take little memory.
"""

from __future__ import annotations

from selectrie.errors import GrammarError
from selectrie.grammar.machine.limits import GrammarLimits

NOTHING_OPEN = 0
"""The set that contains only the empty stack."""
LONG_RETURN = 24
"""Returns through more rules than this are cached."""
STACK_BYTES = 330
"""Approximate memory of a set and its entries in the tables.

Measured on chains with CPython 3.11.
"""


class Stacks:
    """Sets of parser stacks, each known by its index.

    Sets share their tails, as in a graph-structured stack. `n_bytes` estimates the
    memory used. Methods raise `GrammarError` where the table would exceed the limits of
    the grammar.

    Attributes:
        ends: For each set, whether it contains the empty stack.
        links: For each set, pairs (return state, set of the stacks below it).
    """

    def __init__(self, final: list[bool], limits: GrammarLimits) -> None:
        self.ends: list[bool] = [True]
        self.links: list[tuple[tuple[int, int], ...]] = [()]
        self.n_steps = 0
        self._final = final
        self._limits = limits
        self._pushed: dict[tuple[int, int], int] = {}
        self._number: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self._returned: dict[int, dict[int, int]] = {}

    @property
    def n_bytes(self) -> int:
        return STACK_BYTES * len(self.links) + 200 * len(self._joined) + 500 * len(self._returned)

    def push(self, state: int, below: int) -> int:
        """Return the set `below` with the return state `state` pushed on each stack."""
        link = (state, below)
        number = self._pushed.get(link)
        if number is None:
            number = self._pushed[link] = self._add((link,), ends=False)
        return number

    def join(self, one: int, other: int) -> int:
        """Return the union of two sets.

        The implementation is iterative, because stacks may be 10**5 deep.
        """
        if one == other:
            return one
        first = (one, other) if one < other else (other, one)
        union = self._joined.get(first)
        if union is not None:
            return union
        work = [first]
        while work:
            pair = work[-1]
            if pair in self._joined:
                work.pop()
                continue
            self.n_steps += 16
            merged = dict(self.links[pair[0]])
            n_waiting = len(work)
            for state, below in self.links[pair[1]]:
                known = merged.setdefault(state, below)
                if known != below:
                    inner = (known, below) if known < below else (below, known)
                    joined = self._joined.get(inner)
                    if joined is None:
                        work.append(inner)
                    else:
                        merged[state] = joined
            if len(work) == n_waiting:
                work.pop()
                ends = self.ends[pair[0]] or self.ends[pair[1]]
                self._joined[pair] = self._intern(tuple(sorted(merged.items())), ends=ends)
        return self._joined[first]

    def returned(self, stacks: int) -> dict[int, int]:
        """Return the states after the completion of a rule, with their stacks.

        The rule returns to the states on top of `stacks`. If such a state is final, its
        rule is complete too, and the states after its return are included. A path that
        only leads to stacks already found is not followed. A long path is cached, so
        that the next one, which is mostly the same with one more rule, is short.
        """
        known = self._returned.get(stacks)
        if known is not None:
            return known
        stacks_of: dict[int, int] = {}
        work = list(self.links[stacks])
        n_returns = 0
        while work:
            state, below = work.pop()
            self.n_steps += 4
            if not self._add_to(stacks_of, state, below) or not self._final[state]:
                continue
            n_returns += 1
            rest = self._returned.get(below)
            if rest is None:
                work += self.links[below]
            else:
                for inner, deeper in rest.items():
                    self._add_to(stacks_of, inner, deeper)
        if n_returns > LONG_RETURN:
            self._returned[stacks] = stacks_of
        return stacks_of

    def _add_to(self, stacks_of: dict[int, int], state: int, stacks: int) -> bool:
        """Add the set `stacks` to that of a state; return False if it had them."""
        known = stacks_of.setdefault(state, -1)
        stacks_of[state] = stacks if known < 0 else self.join(known, stacks)
        return stacks_of[state] != known

    def _intern(self, links: tuple[tuple[int, int], ...], *, ends: bool) -> int:
        if not ends and len(links) == 1:
            return self.push(*links[0])
        number = NOTHING_OPEN if not links else self._number.get((ends, links))
        if number is None:
            number = self._number[ends, links] = self._add(links, ends=ends)
        return number

    def _add(self, links: tuple[tuple[int, int], ...], *, ends: bool) -> int:
        if len(self.links) + len(self._joined) // 2 >= self._limits.max_stacks:
            raise GrammarError(
                f"reading texts has opened rules in more than {self._limits.max_stacks} different ways; "
                "the grammar is too ambiguous, or the texts are nested too deeply"
            )
        self.n_steps += 8
        self.ends.append(ends)
        self.links.append(links)
        return len(self.links) - 1
