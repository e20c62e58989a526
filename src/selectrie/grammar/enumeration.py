"""Lists the texts of a grammar shortest first, counts them, and draws from them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from selectrie.errors import GrammarError
from selectrie.grammar.acceptance import Characterwise
from selectrie.grammar.machine.compiling import find_facts, rings, walk
from selectrie.grammar.machine.machine import DEAD, Machine
from selectrie.grammar.machine.program import NO_RETURN, Program
from selectrie.grammar.rules import (
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
)

MAX_MADE = 2_000_000
"""Maximum number of texts of all parts together, of about 0.2 µs each."""
MAX_BYTES = 64 << 20
"""Maximum number of bytes of those texts."""


class TooManyError(Exception):
    """Raised if there are infinitely many texts or more than the limit."""


class UnknownError(Exception):
    """The texts of the rules can be found only by the compiled grammar, if at all."""


def list_texts(rules: RuleSet, max_texts: int) -> tuple[str, ...]:
    """Return all texts, the shortest first, texts of equal length by code points.

    Sets of texts are combined from the leaves up. Every part that is expanded occurs in
    a text of the whole, and different texts of the part give different texts of the
    whole. So if one part has more than `max_texts` texts, the whole has more too.

    Raises `TooManyError` for more than `max_texts` texts. Raises `UnknownError` if a
    rule leads to itself or a part has no text, for token terminals and missing rules,
    and beyond `MAX_MADE` or `MAX_BYTES`.
    """
    references = find_facts(rules.rules, rules.root).references
    uses = {name: [reference.name for reference in own] for name, own in references.items()}
    if not all(used in uses for own in uses.values() for used in own):
        raise UnknownError
    if not all(_is_expandable(rules.rules[name]) for name in uses):
        raise UnknownError
    parts = _Parts(max_texts)
    for ring in rings(uses):
        (name, *others) = ring
        if others or name in uses[name]:
            raise UnknownError
        parts.of_rule[name] = parts.texts(rules.rules[name])
    try:
        texts = [data.decode() for data in parts.of_rule[rules.root]]
    except UnicodeDecodeError:
        raise UnknownError from None
    return tuple(sorted(texts, key=lambda text: (len(text), text)))


def _is_expandable(expression: Expression) -> bool:
    """Return whether an expression contains only text, so that it can be expanded.

    It must have no tokens, no part without texts, and no item repeated 0 times.
    """
    return not any(
        isinstance(part, TokenTerminal)
        or (isinstance(part, Characters) and not part.ranges)
        or (isinstance(part, Alternatives) and not part.options)
        or (isinstance(part, Repeat) and part.max_count == 0)
        for part in walk(expression)
    )


@dataclass(slots=True)
class _Parts:
    """Computes the texts of the parts of a grammar.

    Attributes:
        max_texts: Maximum number of texts of a part.
        of_rule: Texts of the rules that are finished.
        n_made: Number of texts so far, in all sets.
        n_bytes: Number of bytes of these texts.
    """

    max_texts: int
    of_rule: dict[str, set[bytes]] = field(default_factory=dict)
    n_made: int = 0
    n_bytes: int = 0

    def texts(self, part: Expression) -> set[bytes]:
        """Return all texts of a part.

        Recurses as deep as the part is nested, which the parsers of notations limit.
        """
        match part:
            case LiteralText(value):
                return {value}
            case Reference(name):
                return self.of_rule[name]
            case Characters(ranges):
                n_characters = sum(last - first + 1 for first, last in ranges)
                if n_characters > self.max_texts:
                    raise TooManyError
                return {chr(code).encode() for first, last in ranges for code in range(first, last + 1)}
            case Alternatives(options):
                return self._unite(map(self.texts, options))
            case Concatenation(items):
                whole: set[bytes] = {b""}
                for item in items:
                    whole = self._combine(whole, self.texts(item))
                return whole
            case Repeat(item, min_count, max_count):
                return self._repeat(self.texts(item), min_count, max_count)
            case TokenTerminal():
                raise UnknownError

    def _repeat(self, item: set[bytes], min_count: int, max_count: int | None) -> set[bytes]:
        """Return the texts of `min_count` to `max_count` items in a row."""
        if item == {b""}:
            return item
        if max_count is None:
            raise TooManyError
        power: set[bytes] = {b""}
        for _ in range(min_count):
            power = self._combine(power, item)
        return self._unite(self._powers(power, item, max_count - min_count))

    def _powers(self, power: set[bytes], item: set[bytes], n_more: int) -> Iterable[set[bytes]]:
        """Yield `power`, and `power` followed by 1 to `n_more` items."""
        yield power
        for _ in range(n_more):
            power = self._combine(power, item)
            yield power

    def _combine(self, before: set[bytes], after: set[bytes]) -> set[bytes]:
        """Return every text of `before` followed by every text of `after`."""
        if before == {b""}:
            return after
        if after == {b""}:
            return before
        texts: set[bytes] = set()
        for one in before:
            made = [one + other for other in after]
            self._count_made(made)
            texts.update(made)
            if len(texts) > self.max_texts:
                raise TooManyError
        return texts

    def _unite(self, sets: Iterable[set[bytes]]) -> set[bytes]:
        """Return the union of sets of texts; raise `TooManyError` beyond the limit."""
        texts: set[bytes] = set()
        for one in sets:
            self._count_made(one)
            texts |= one
            if len(texts) > self.max_texts:
                raise TooManyError
        return texts

    def _count_made(self, made: Iterable[bytes]) -> None:
        """Count texts towards the limits; raise `UnknownError` if one is exceeded."""
        lengths = list(map(len, made))
        self.n_made += len(lengths)
        self.n_bytes += sum(lengths)
        if self.n_made > MAX_MADE or self.n_bytes > MAX_BYTES:
            raise UnknownError


NEVER = 1 << 60
_CONTINUATIONS = (1 << 0xC0) - (1 << 0x80)
"""Bytes 0x80 to 0xBF as bits: the second to fourth bytes of characters."""


class ShortestLengths:
    """Computes how many characters are missing to the nearest end of a text.

    Tokens of terminals count as characters; the missing bytes of an incomplete
    character count as 0. Lengths are computed once for the states of the program,
    and then once for each set of stacks and each configuration requested.
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
                self._min_lengths[state] + self._stack_length(stacks)
                for state, stacks in self._machine.items(configuration)
            )
            self._remaining[configuration] = length
        return length

    def _stack_length(self, stacks: int) -> int:
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
    before, halves = _reverse_edges(program)
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


def _reverse_edges(program: Program) -> tuple[_Pairs, _Pairs]:
    """Return the reversed steps and the reversed calls of each state.

    A reversed step is (state before, number of characters between). A call pairs
    the first state of a rule with the state to return to. Each of the two states
    lists (caller, the other one).
    """
    before: _Pairs = [[] for _ in program.edges]
    halves: _Pairs = [[] for _ in program.edges]
    for state, calls in enumerate(program.calls):
        for label, to in program.edges[state]:
            # A byte that begins a character counts as one, a continuation byte as none.
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


MAX_OPEN = 1_000_000
"""Maximum number of prefixes kept while texts are listed."""
MAX_CHARACTERS = 30_000_000
"""Maximum number of characters of those prefixes together."""
MAX_BITS = 1 << 29
"""Maximum number of bits of all intermediate counts together: 64 MiB."""
COUNTING_WORK = 3_000_000
"""Steps of counting, of about 5 µs; a step is a configuration and a class of bytes."""


STEPS_OF_A_CHARACTER = 200
"""Steps charged for each character, beside those of the machine."""


class TooLongError(GrammarError):
    """Listing or drawing texts has taken more steps than allowed."""


class Texts:
    """The texts that a machine accepts, character by character.

    Not thread-safe. Raises `GrammarError` for a machine with token terminals, because
    tokens are not text.

    Args:
        machine: The machine; nothing else may use it afterwards.
        max_steps: Budget after which listing and drawing raise `TooLongError`. It
            counts elementary steps of the machine, and `STEPS_OF_A_CHARACTER` for each
            character of a text.
    """

    def __init__(self, machine: Machine, *, max_steps: int | None = None) -> None:
        if machine.token_sets:
            raise GrammarError("the grammar names tokens, which are not text, so its texts cannot be listed")
        self._machine = machine
        self._max_steps, self._n_characters = max_steps, 0
        self._shortest = ShortestLengths(machine)
        self._characters = Characterwise(machine, machine.program.class_of)

    @property
    def min_length(self) -> int:
        """Return the number of characters of the shortest text."""
        return self._shortest.remaining(self._machine.start)

    def _count_character(self) -> None:
        """Charge the steps of one character; raise `TooLongError` beyond the budget."""
        self._n_characters += 1
        if self._max_steps is not None:
            n_steps = self._machine.n_spent + STEPS_OF_A_CHARACTER * self._n_characters
            if n_steps > self._max_steps:
                raise TooLongError(f"the texts take more than {self._max_steps} steps to find")

    def list_all(self) -> Iterator[str]:
        """Yield all texts, each once, by number of characters and then by code points.

        The search is best first by the length of the shortest text with a given prefix.
        That length is exact, so every prefix that is looked at leads to a text of the
        length being listed. Raises `GrammarError` beyond `MAX_OPEN` or
        `MAX_CHARACTERS`.
        """
        start = self._machine.start
        waiting = [(self._shortest.remaining(start), "", 0, start, "")]
        n_characters = 0
        while waiting:
            self._count_character()
            length, text, last, configuration, before = heappop(waiting)
            n_characters -= len(text)
            if text and ord(text[-1]) < last:
                heappush(waiting, (length, before + chr(ord(text[-1]) + 1), last, configuration, before))
                n_characters += len(text)
            if length == len(text) and self._machine.can_end(configuration):
                yield text
            for first, final, after in self._characters.choices(configuration):
                min_length = len(text) + 1 + self._shortest.remaining(after)
                heappush(waiting, (min_length, text + chr(first), final, after, text))
                n_characters += len(text) + 1
            if len(waiting) > MAX_OPEN or n_characters > MAX_CHARACTERS:
                raise GrammarError(f"listing keeps {len(waiting)} prefixes of {n_characters} characters; list fewer")

    def draw(self, rng: random.Random, *, soft_limit: int = 40) -> str:
        """Return a random text, drawn character by character.

        After `soft_limit` characters, the shortest way to the end is taken.
        """
        configuration = self._machine.start
        characters: list[str] = []
        while True:
            self._count_character()
            choices = self._characters.choices(configuration)
            over = len(characters) >= soft_limit
            if self._machine.can_end(configuration) and (over or not choices or rng.random() < 1 / 4):
                return "".join(characters)
            if over:
                nearest = min(self._shortest.remaining(after) for _, _, after in choices)
                choices = [choice for choice in choices if self._shortest.remaining(choice[2]) == nearest]
            plain = [
                (max(one[0], 0x20), min(one[1], 0x7E), one[2]) for one in choices if one[0] < 0x7F and one[1] >= 0x20
            ]
            first, last, configuration = rng.choice(plain if plain and rng.random() < 0.9 else choices)
            characters.append(chr(rng.randint(first, last)))

    def count(self, *, work: int = COUNTING_WORK) -> int:
        """Return the number of texts of a finite grammar.

        Counts over bytes; equal configurations are counted once. Raises `GrammarError`
        beyond `work` steps or `MAX_BITS`.
        """
        machine = self._machine
        sizes = [0] * machine.n_classes
        byte_of = dict(zip(reversed(machine.program.class_of), reversed(range(256)), strict=True))
        for kind in machine.program.class_of:
            sizes[kind] += 1
        counts: dict[int, int] = {DEAD: 0}
        path = [machine.start]
        n_bits = 0
        while path:
            configuration = path[-1]
            targets = [machine.step(configuration, byte_of[kind]) for kind in range(machine.n_classes)]
            missing = [target for target in targets if target not in counts]
            if configuration not in counts and missing:
                path += missing
                continue
            path.pop()
            ways = sum(size * counts[target] for size, target in zip(sizes, targets, strict=True))
            counts[configuration] = ways + int(machine.can_end(configuration))
            n_bits += ways.bit_length()
            if len(counts) * machine.n_classes > work or n_bits > MAX_BITS:
                raise GrammarError(f"the texts cannot be counted: they lead to more than {len(counts)} states")
        return counts[machine.start]
