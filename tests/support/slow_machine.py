"""A machine that is plainly right and slow: stacks of what is still to come, written out as tuples."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache

import numpy as np

from selectrie.grammar.rules import Alternatives, Characters, Concatenation, LiteralText, Reference, Repeat

DEAD, UNKNOWN = -1, -2


@dataclass(frozen=True)
class Begun:
    """A character of a set of which some bytes are there."""

    characters: Characters
    start: bytes


class SlowMachine:
    """What `Machine` promises, from the rules as they stand; no left recursion."""

    def __init__(self, rules, token_sets=()):
        self.rules = rules
        self.parts, self.part_number, self.ways = [], {}, {}
        self.token_sets = token_sets
        self.configurations, self.number = [], {}
        self.n_classes, self.class_of = 256, np.arange(256, dtype=np.uint8)
        self.table = np.full((4, 256), UNKNOWN, dtype=np.int32)
        self.start = self.intern(self.closure([self.numbers(rules.rules[rules.root])]))

    def begin(self):
        pass

    @property
    def n_configurations(self):
        return len(self.configurations)

    @property
    def n_bytes(self):
        return self.table.nbytes

    def intern(self, stacks):
        if not stacks:
            return DEAD
        if stacks not in self.number:
            self.number[stacks] = len(self.configurations)
            self.configurations.append(stacks)
            if len(self.configurations) > len(self.table):
                self.table = np.vstack([self.table, np.full_like(self.table, UNKNOWN)])
        return self.number[stacks]

    def numbers(self, *parts):
        """Expressions as numbers: stacks of numbers are quick to compare."""
        for part in parts:
            if self.part_number.setdefault(part, len(self.parts)) == len(self.parts):
                self.parts.append(part)
        return tuple(self.part_number[part] for part in parts)

    def closure(self, stacks):
        """Every way to open rules, until a text, a character or a token is on top, or nothing is left."""
        seen, todo, closed = set(), list(stacks), set()
        while todo:
            stack = todo.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if stack and stack[0] not in self.ways:
                self.ways[stack[0]] = self.opened(self.parts[stack[0]])
            ways = self.ways[stack[0]] if stack else None
            if ways is None:
                closed.add(stack)
            else:
                todo += [(*way, *stack[1:]) for way in ways]
        return frozenset(closed)

    def opened(self, part):
        """What a part may be instead; None where it reads something itself."""
        match part:
            case LiteralText(b"") | Repeat(_, _, 0):
                return [()]
            case Reference(name):
                return [self.numbers(self.rules.rules[name])]
            case Concatenation(items):
                return [self.numbers(*items)]
            case Alternatives(options):
                return [self.numbers(option) for option in options]
            case Repeat(item, least, most):
                fewer = Repeat(item, max(0, least - 1), None if most is None else most - 1)
                return [self.numbers(item, fewer), *([] if least else [()])]
        return None

    def taken(self, top, byte):
        """What is left of a part after a byte of it."""
        if (top, byte) not in self.ways:
            self.ways[top, byte] = [self.numbers(*left) for left in taken(self.parts[top], byte)]
        return self.ways[top, byte]

    def step(self, configuration, byte):
        given = [stack for stack in self.configurations[configuration] if stack]
        stacks = [(*left, *stack[1:]) for stack in given for left in self.taken(stack[0], byte)]
        return self.intern(self.closure(stacks))

    def walk(self, configuration, text):
        for byte in text:
            configuration = self.step(configuration, byte)
            if configuration == DEAD:
                break
        return configuration

    def fill(self, configurations, classes):
        for configuration, byte in zip(configurations.tolist(), classes.tolist(), strict=True):
            if self.table[configuration, byte] == UNKNOWN:
                after = self.step(configuration, byte)
                self.table[configuration, byte] = after

    def can_end(self, configuration):
        return () in self.configurations[configuration]

    def token_terminals(self, configuration):
        tops = {self.parts[stack[0]] for stack in self.configurations[configuration] if stack}
        return tuple(i for i, tokens in enumerate(self.token_sets) if tokens in tops)

    def take_terminal(self, configuration, terminal):
        (wanted,) = self.numbers(self.token_sets[terminal])
        given = [stack for stack in self.configurations[configuration] if stack and stack[0] == wanted]
        return self.intern(self.closure([stack[1:] for stack in given]))

    def union(self, configurations):
        return self.intern(frozenset().union(*(self.configurations[each] for each in configurations)))


def taken(top, byte):
    """The parts that are left after one byte of a part, for each way to read it."""
    if isinstance(top, LiteralText):
        return [(LiteralText(top.value[1:]),)] if top.value[0] == byte else []
    if isinstance(top, Characters):
        top = Begun(top, b"")
    if isinstance(top, Begun):
        start = top.start + bytes([byte])
        first, stop = code_points(start)
        if first == stop or not any(low < stop and first <= high for low, high in top.characters.ranges):
            return []
        return [()] if encoded(first) == start else [(Begun(top.characters, start),)]
    return []


@cache
def code_points(start):
    """First and one after the last code point whose UTF-8 begins so; encodings are in the order of code points."""
    everyone = range(0x110000)
    after = next((start[:n] + bytes([start[n] + 1]) for n in range(len(start))[::-1] if start[n] < 255), None)
    stop = 0x110000 if after is None else bisect_left(everyone, after, key=encoded)
    return bisect_left(everyone, start, key=encoded), stop


def encoded(code_point):
    return chr(code_point).encode("utf-8", "surrogatepass")
