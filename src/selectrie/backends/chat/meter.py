"""A meter that limits the steps and characters of rendering a chat template.

A template comes with a model file, so it is a foreign program. Jinja's sandbox keeps it
from the system, but does not keep it from running forever or from filling the memory.
"""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from itertools import chain
from typing import Any

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

MAX_STEPS = 1_000_000
"""Maximum number of steps in one rendering.

A step is a part of the template that is evaluated, or an item that is made or looked
at.
"""
STEPS_A_VALUE = 4_000
"""Additional steps for each value, key and list that the template is given."""
MAX_CHARACTERS = 1 << 26
"""Maximum number of characters made or looked at in one rendering.

The characters of intermediate texts count as well.
"""
CHARACTERS_A_CHARACTER = 256
"""Additional characters for each one that the template is given."""
MAX_DEPTH = 200
"""Maximum depth of nested lists.

Python hashes tuples by recursion in C, which nothing stops.
"""
MAX_BITS = 4_096
"""Maximum size of an integer in bits."""


class LimitError(TemplateRuntimeError):
    """The error of a rendering that would cost more than it is allowed."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The size of values with everything inside them, counted once per occurrence.

    Attributes:
        nodes: Number of values, keys and containers.
        characters: Number of characters of their texts.
        longest: Length of the longest of these texts.
        depth: Maximum depth of nested containers.
    """

    nodes: int = 0
    characters: int = 0
    longest: int = 0
    depth: int = 0


class Meter:
    """A counter of what one rendering costs.

    It raises `LimitError` when a limit is exceeded.
    """

    def __init__(self, max_steps: float = math.inf, max_characters: float = math.inf) -> None:
        self.n_steps, self.n_characters = 0, 0
        self._max_steps, self._max_characters = max_steps, max_characters

    @staticmethod
    def of(values: Any) -> Meter:
        """Return the meter of a rendering that gets `values`."""
        weight = Meter().weigh(values)
        return Meter(
            MAX_STEPS + STEPS_A_VALUE * weight.nodes, MAX_CHARACTERS + CHARACTERS_A_CHARACTER * weight.characters
        )

    def tick(self, n: int = 1) -> bool:
        """Spend `n` steps.

        Returns True, so that it can be used in a condition.
        """
        self.n_steps += n
        if self.n_steps > self._max_steps:
            raise LimitError(f"it takes more than {self._max_steps} steps")
        return True

    def spend(self, n: int) -> None:
        """Spend `n` characters."""
        self.n_characters += n
        if self.n_characters > self._max_characters:
            raise LimitError(f"it reads and makes more than {self._max_characters} characters of text")

    def expect(self, n: float) -> None:
        """Raise `LimitError` if fewer than `n` characters are left.

        The characters are spent later, when they have been made.
        """
        if n > self._max_characters - self.n_characters:
            raise LimitError(f"it would make more than {self._max_characters} characters of text")

    def expect_items(self, n: float) -> None:
        """Raise `LimitError` if fewer than `n` steps are left for making `n` items."""
        if n > self._max_steps - self.n_steps:
            raise LimitError(f"it takes more than {self._max_steps} steps")

    def pass_over(self, value: Any) -> None:
        """Spend the cost of copying or scanning `value` once, without its parts."""
        if isinstance(value, str | bytes):
            self.spend(len(value))
        elif hasattr(type(value), "__len__"):
            self.tick(len(value))

    def weigh(self, *values: Any) -> Weight:
        """Return the weight of `values` with everything inside them, and spend it.

        Every value, key and container costs one step, and every text its characters.
        """
        nodes = characters = longest = deepest = 0
        waiting: list[tuple[Iterator[Any], int]] = [(iter(values), 0)]
        while waiting:
            inside, depth = waiting[-1]
            for value in inside:
                nodes += 1
                self.tick()
                if isinstance(value, (str, bytes)):  # a union takes three times as long
                    size = len(value)
                    characters += size
                    longest = max(longest, size)
                    self.spend(size)
                elif isinstance(value, range):
                    nodes += len(value)
                    self.tick(len(value))
                elif (parts := _parts(value)) is not None:
                    deepest = max(deepest, depth + 1)
                    if depth >= MAX_DEPTH:
                        raise LimitError(f"it puts more than {MAX_DEPTH} lists inside each other")
                    waiting.append((parts, depth + 1))
                    break
            else:
                waiting.pop()
        return Weight(nodes, characters, longest, deepest)

    def counted(self, values: Iterator[Any]) -> Iterator[Any]:
        """Yield the same values, and spend a step on each."""
        for value in values:
            self.tick()
            yield value

    def number(self, value: float) -> None:
        """Raise `LimitError` for an integer that is too large for fast arithmetic."""
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise LimitError(f"it makes a number of more than {MAX_BITS} bits")


_NUMBERS = (bool, int, float)
_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


def _parts(value: Any) -> Iterator[Any] | None:
    """Return an iterator over the parts of a container.

    None for any other value, including an iterator.
    """
    if type(value) is dict:
        return chain.from_iterable(list(value.items()))
    if value is None or type(value) in _NUMBERS:
        return None
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        return (part for item in list(value.items()) for part in item)
    if isinstance(value, _CONTAINERS):
        return iter(value)
    return None
