"""The recogniser: a pushdown automaton that is made deterministic while it reads.

A list of texts is recognised by a search of the sorted list itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import IntArray
from selectrie.errors import GrammarError
from selectrie.grammar.machine.nfa import DEFAULT_LIMITS, GrammarLimits
from selectrie.grammar.machine.program import Plans, Program
from selectrie.grammar.rules import TokenTerminal

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

    def states_after_return(self, stacks: int) -> dict[int, int]:
        """Return the states after a completed rule, each with the set of stacks below.

        `stacks` is the set of stacks below the rule. The rule returns to the states
        on top of them. A final state completes its own rule, so the states to which
        that returns are included too. Stacks that were found already are not followed
        again. The result of a long chain of returns is cached, because the next
        token often repeats the chain with one more rule.
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
        """Return the set with these links, added if it does not exist.

        `ends` says whether it contains the empty stack.
        """
        if not ends and len(links) == 1:
            return self.push(*links[0])
        number = NOTHING_OPEN if not links else self._number.get((ends, links))
        if number is None:
            number = self._number[ends, links] = self._add(links, ends=ends)
        return number

    def _add(self, links: tuple[tuple[int, int], ...], *, ends: bool) -> int:
        """Append a set of stacks, up to the limit, and return its index."""
        if len(self.links) + len(self._joined) // 2 >= self._limits.max_stacks:
            raise GrammarError(
                f"reading texts has opened rules in more than {self._limits.max_stacks} different ways; "
                "the grammar is too ambiguous, or the texts are nested too deeply"
            )
        self.n_steps += 8
        self.ends.append(ends)
        self.links.append(links)
        return len(self.links) - 1


DEAD = -1
UNKNOWN = -2
CONFIGURATION_BYTES = 250
ITEM_BYTES = 16
"""Approximate memory of a configuration, and of each number in it.

The configuration's row of the table and its stacks are counted elsewhere.
"""

Items = tuple[int, ...]
"""Alternating states and sets of stacks; the states ascend and are distinct."""


class _TableMachine:
    """A recogniser with a table of targets.

    Attributes:
        n_classes: Number of classes of bytes that the grammar does not tell apart.
        table: int32[capacity, n_classes] – the configuration after a class of bytes:
            `DEAD` if no text continues with such a byte, `UNKNOWN` until `fill`
            computes it. It is read-only, and is replaced when it grows.
    """

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self.table: IntArray = np.full((64, n_classes), UNKNOWN, np.int32)

    def step(self, configuration: int, byte: int) -> int:
        """Return the configuration after a byte; `DEAD` if it is refused."""
        raise NotImplementedError

    def walk(self, configuration: int, text: bytes) -> int:
        """Return the configuration after bytes; `DEAD` if they are refused."""
        for byte in text:
            configuration = self.step(configuration, byte)
            if configuration == DEAD:
                break
        return configuration

    def _double_table(self) -> None:
        self.table = np.vstack([self.table, np.full_like(self.table, UNKNOWN)])


class Machine(_TableMachine):
    """Reads bytes and token terminals according to a compiled grammar.

    A token terminal matches one token of the vocabulary by name, whatever its bytes
    (`TokenTerminal`).

    Not thread-safe. Configurations are numbered from 0 and stay valid for the machine's
    life. Every configuration except `DEAD` leads to an accepted text. Any method raises
    `GrammarError` if the limits are exceeded; earlier results remain.
    """

    def __init__(self, program: Program, limits: GrammarLimits = DEFAULT_LIMITS) -> None:
        super().__init__(program.n_classes)
        self.program = program
        self.token_sets: tuple[TokenTerminal, ...] = program.token_sets
        self.class_of: NDArray[np.uint8] = np.array(program.class_of, np.uint8)
        self._limits = limits
        self._plans = Plans(program)
        self.stacks = Stacks(program.final, limits)
        self._number: dict[Items, int] = {}
        self._items: list[Items] = []
        self._items_bytes = 0
        self._can_end: dict[int, bool] = {}
        self._n_steps = self._n_spent_at_begin = 0
        self._after_terminal: dict[tuple[int, int], int] = {}
        self.start = self._intern_merged(dict.fromkeys(program.starts, NOTHING_OPEN))

    @property
    def n_configurations(self) -> int:
        return len(self._items)

    def items(self, configuration: int) -> zip[tuple[int, int]]:
        """Return the pairs (program state, set of stacks) of a configuration.

        States ascend; a set of stacks is an index into `stacks`.
        """
        return _pairs(self._items[configuration])

    @property
    def n_bytes(self) -> int:
        """Return the estimated memory of table, configurations and stacks, in bytes."""
        return self.table.nbytes + self._items_bytes + self.stacks.n_bytes + self._plans.n_bytes

    def step(self, configuration: int, byte: int) -> int:
        """Return the configuration after one more byte, or `DEAD` if it is refused."""
        kind = self.program.class_of[byte]
        target = int(self.table[configuration, kind])
        if target == UNKNOWN:
            self.begin()
            target = self._after(self._add_returns(configuration), kind)
            self.table[configuration, kind] = target
        return target

    def begin(self) -> None:
        """Reset the step count at the beginning of a walk.

        Afterwards, `fill` may take `max_steps` steps before it raises an error.
        """
        self._n_spent_at_begin = self.n_spent

    @property
    def n_spent(self) -> int:
        """Return the number of elementary steps taken so far.

        `GrammarLimits.max_steps` counts the same steps.
        """
        return self._n_steps + self._plans.n_steps + self.stacks.n_steps

    def _check_spent(self) -> None:
        """Raise `GrammarError` for more than `max_steps` steps since `begin`."""
        if self.n_spent - self._n_spent_at_begin > self._limits.max_steps:
            raise GrammarError(
                f"finding what may follow takes more than {self._limits.max_steps} steps; the grammar "
                "is too ambiguous, or too many of its rules begin with each other"
            )

    def fill(self, configurations: IntArray, classes: IntArray) -> None:
        """Compute the unknown entries of `table[configurations, classes]`.

        Both arrays are int32[n]. Pairs may repeat; no configuration may be `DEAD`.
        """
        unknown = self.table[configurations, classes] == UNKNOWN
        if not unknown.any():
            return
        pairs = np.unique(configurations[unknown].astype(np.int64) * self.n_classes + classes[unknown])
        rows, columns = pairs // self.n_classes, pairs % self.n_classes
        targets: list[int] = []
        before = DEAD
        closed: Items = ()
        try:
            for configuration, kind in zip(rows.tolist(), columns.tolist(), strict=True):
                if configuration != before:
                    before, closed = configuration, self._add_returns(configuration)
                targets.append(self._after(closed, kind))
                self._check_spent()
        finally:
            self.table[rows[: len(targets)], columns[: len(targets)]] = targets

    def can_end(self, configuration: int) -> bool:
        """Return whether the text may end here."""
        can_end = self._can_end.get(configuration)
        if can_end is None:
            final, ends = self.program.final, self.stacks.ends
            closed = self._add_returns(configuration)
            can_end = any(final[state] and ends[stacks] for state, stacks in _pairs(closed))
            self._can_end[configuration] = can_end
        return can_end

    def token_terminals(self, configuration: int) -> tuple[int, ...]:
        """Return the indices into `token_sets` of the terminals that may come next.

        They are in ascending order.
        """
        if not self.token_sets:
            return ()
        terminals: set[int] = set()
        for state, _ in _pairs(self._add_returns(configuration)):
            terminals |= self._plans.terminals(state)
        return tuple(sorted(terminals))

    def take_terminal(self, configuration: int, terminal: int) -> int:
        """Return the configuration after a token of `token_sets[terminal]`.

        Returns `DEAD` if the terminal may not come here.
        """
        target = self._after_terminal.get((configuration, terminal))
        if target is None:
            self.begin()
            target = self._after(self._add_returns(configuration), self.n_classes + terminal)
            self._after_terminal[configuration, terminal] = target
        return target

    def union(self, configurations: Sequence[int]) -> int:
        """Return the configuration that accepts all continuations of any of these.

        Returns `DEAD` for an empty sequence.
        """
        stacks_of: dict[int, int] = {}
        for configuration in configurations:
            self._merge(stacks_of, _pairs(self._items[configuration]))
        return self._intern_merged(stacks_of)

    def _add_returns(self, configuration: int) -> Items:
        """Return a configuration's items, and those after returns from rules.

        A final state returns to the states on top of its stacks.
        """
        items = self._items[configuration]
        final = self.program.final
        if len(items) == 2 and not final[items[0]]:
            return items
        stacks_of: dict[int, int] = {}
        self._merge(stacks_of, _pairs(items))
        for state, stacks in _pairs(items):
            if final[state]:
                self._merge(stacks_of, self.stacks.states_after_return(stacks).items())
        return tuple([part for item in stacks_of.items() for part in item])

    def _after(self, closed: Items, symbol: int) -> int:
        """Return the configuration after the items `closed` and one symbol, or `DEAD`.

        `closed` includes returns from complete rules. The symbol is a class of
        bytes, or n_classes + the index of a token terminal.
        """
        stacks_of: dict[int, int] = {}
        self._n_steps += len(closed)
        push, join = self.stacks.push, self.stacks.join
        for i in range(0, len(closed), 2):
            stacks = closed[i + 1]
            plan = self._plans.plan(closed[i], symbol)
            for target in plan.targets:
                known = stacks_of.setdefault(target, stacks)
                if known != stacks:
                    stacks_of[target] = join(known, stacks)
            if plan.steps:
                self._n_steps += len(plan.steps)
                self._check_spent()
                opened = [stacks]
                for callers, targets in plan.steps:
                    own = -1
                    for caller, back in callers:
                        one = opened[caller] if back < 0 else push(back, opened[caller])
                        own = one if own < 0 else join(own, one)
                    opened.append(own)
                    for target in targets:
                        known = stacks_of.setdefault(target, own)
                        if known != own:
                            stacks_of[target] = join(known, own)
        return self._intern_merged(stacks_of)

    def _merge(self, stacks_of: dict[int, int], items: Iterable[tuple[int, int]]) -> None:
        """Add items to `stacks_of`, joining the stacks of equal states."""
        for state, stacks in items:
            known = stacks_of.setdefault(state, stacks)
            if known != stacks:
                stacks_of[state] = self.stacks.join(known, stacks)

    def _intern_merged(self, stacks_of: dict[int, int]) -> int:
        """Return the configuration of merged items, or `DEAD` if there are none."""
        if not stacks_of:
            return DEAD
        if len(stacks_of) == 1:
            return self._intern(*stacks_of.items())
        if len(stacks_of) > self._limits.max_alternatives:
            raise GrammarError(
                f"a text can be read in {len(stacks_of)} ways at once, which exceeds the limit of "
                f"{self._limits.max_alternatives}; the grammar is too ambiguous"
            )
        return self._intern(tuple([part for item in sorted(stacks_of.items()) for part in item]))

    def _intern(self, items: Items) -> int:
        """Return the configuration of these items, added if it does not exist."""
        number = self._number.get(items)
        if number is not None:
            return number
        number = len(self._items)
        if number == len(self.table):
            self._grow()
        self._items_bytes += CONFIGURATION_BYTES + ITEM_BYTES * len(items)
        if self._items_bytes > self._limits.max_bytes:
            raise self._limit_error()
        self._items.append(items)
        self._number[items] = number
        return number

    def _grow(self) -> None:
        """Double the capacity of the table; raise `GrammarError` beyond the limits."""
        limits = self._limits
        if len(self._items) >= limits.max_configurations or self.n_bytes + self.table.nbytes > limits.max_bytes:
            raise self._limit_error()
        self._double_table()

    def _limit_error(self) -> GrammarError:
        """Return the error for too many configurations or too much memory."""
        return GrammarError(
            f"reading texts has led to {len(self._items)} different states in {self.n_bytes >> 20} "
            "MiB, which exceeds the limits; the grammar is too ambiguous, or the texts are nested "
            "too deeply"
        )


def _pairs(items: Items) -> zip[tuple[int, int]]:
    return zip(items[::2], items[1::2], strict=True)


SPAN_BYTES = 150
"""Approximate memory of a configuration beside its row of the table."""


class ListMachine(_TableMachine):
    """Reads the texts of a list byte by byte, with the interface of `Machine`.

    Not thread-safe. A configuration is a prefix of some text: a range of the sorted
    list and the number of bytes read. Its successors are found on first use, by one
    binary search for each byte that may come next. The cost therefore depends on the
    texts that are read and not on the length of the list.

    Any method raises `GrammarError` if the configurations take more memory than the
    limits allow.

    Args:
        texts: Distinct texts in ascending order.
    """

    token_sets: tuple[TokenTerminal, ...] = ()

    def __init__(self, texts: Sequence[bytes], limits: GrammarLimits = DEFAULT_LIMITS) -> None:
        self._texts, self._limits = texts, limits
        used = sorted(set().union(*texts))
        self.class_of: NDArray[np.uint8] = np.zeros(256, np.uint8)
        self.class_of[used] = np.arange(1, len(used) + 1)
        self._class_of: list[int] = self.class_of.tolist()
        super().__init__(len(used) + 1)  # class 0: bytes that occur in no text
        self._spans: list[tuple[int, int, int]] = []
        self.start = self._add_span(0, len(texts), 0)

    @property
    def n_configurations(self) -> int:
        return len(self._spans)

    @property
    def n_bytes(self) -> int:
        """Return the estimated memory of table and configurations, in bytes.

        The list itself is not counted.
        """
        return self.table.nbytes + SPAN_BYTES * len(self._spans)

    def begin(self) -> None:
        """Do nothing: unlike `Machine`, a list counts no steps."""

    def fill(self, configurations: IntArray, classes: IntArray) -> None:
        """Compute the unknown entries of `table` for pairs of configuration and class.

        Whole rows are computed at once; see `Machine.fill`.
        """
        unknown = self.table[configurations, classes] == UNKNOWN
        for configuration in np.unique(configurations[unknown]).tolist():
            self._fill_row(configuration)

    def step(self, configuration: int, byte: int) -> int:
        """Return the configuration after one more byte, or `DEAD` if it is refused."""
        target = int(self.table[configuration, self._class_of[byte]])
        if target != UNKNOWN:
            return target
        self._fill_row(configuration)
        return int(self.table[configuration, self._class_of[byte]])

    def can_end(self, configuration: int) -> bool:
        """Return whether the bytes read so far are a complete text."""
        first, _, n_read = self._spans[configuration]
        return len(self._texts[first]) == n_read

    def token_terminals(self, _configuration: int) -> tuple[int, ...]:
        """Return (): a list contains only texts."""
        return ()

    def take_terminal(self, _configuration: int, _terminal: int) -> int:
        """Return `DEAD`: a list contains only texts."""
        return DEAD

    def union(self, configurations: Sequence[int]) -> int:
        """Return the configuration that all elements of a sequence are equal to.

        Different ones would need token terminals, which a list does not have.
        """
        (only,) = set(configurations)
        return only

    def _fill_row(self, configuration: int) -> None:
        """Compute the successors of a configuration for all bytes that may come."""
        texts = self._texts
        first, stop, n_read = self._spans[configuration]
        row = np.full(self.n_classes, DEAD, np.int32)
        first += len(texts[first]) == n_read
        while first < stop:
            byte = texts[first][n_read]
            after = bisect_right(texts, byte, first + 1, stop, key=itemgetter(n_read))
            row[self._class_of[byte]] = self._add_span(first, after, n_read + 1)
            first = after
        self.table[configuration] = row

    def _add_span(self, first: int, stop: int, n_read: int) -> int:
        """Add a configuration: the texts `first` to `stop` after `n_read` bytes.

        Returns its number.
        """
        number = len(self._spans)
        if number == len(self.table):
            self._grow()
        self._spans.append((first, stop, n_read))
        return number

    def _grow(self) -> None:
        """Double the capacity of the table; raise `GrammarError` beyond the limit."""
        if self.n_bytes + self.table.nbytes > self._limits.max_bytes:
            raise GrammarError(
                f"reading the list of {len(self._texts)} texts led to {len(self._spans)} prefixes in "
                f"{self.n_bytes >> 20} MiB, which exceeds the limit; use `select` to choose among the "
                "texts, or give fewer texts"
            )
        self._double_table()


Recogniser: TypeAlias = Machine | ListMachine
"""Reads texts: by rules, or by a search of a sorted list."""
