"""What the rendering of a chat template may cost: steps, and characters.

A template comes with a model file, so it is somebody else's program. Jinja's sandbox keeps it from the system, and nothing
there keeps it from running for ever or from filling the memory.
"""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

MOST_STEPS = 1_000_000
"""Parts of the template that are evaluated, and items that are made or looked at, in one rendering."""
STEPS_A_VALUE = 4_000
"""Further steps for each value, key and list that the template is given."""
MOST_CHARACTERS = 1 << 26
"""Characters that are made or looked at in one rendering, those of intermediate texts included."""
CHARACTERS_A_CHARACTER = 256
"""Further characters for each one that the template is given."""
MOST_DEPTH = 200
"""Lists inside lists: Python hashes tuples by recursion in C, which nothing stops."""
MOST_BITS = 4_096
"""Of a whole number."""


class LimitError(TemplateRuntimeError):
    """A rendering would cost more than it may."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Of values with all that is inside them, as often as it stands there.

    nodes: values, keys and containers. characters: of their texts. longest: of these
    texts. depth: containers inside containers.
    """

    nodes: int = 0
    characters: int = 0
    longest: int = 0
    depth: int = 0


class Meter:
    """Counts what a rendering costs and raises `LimitError` where that is too much. One for each rendering."""

    def __init__(self, most_steps: float = math.inf, most_characters: float = math.inf) -> None:
        self.n_steps, self.n_characters = 0, 0
        self._most_steps, self._most_characters = most_steps, most_characters

    @staticmethod
    def of(given: Any) -> Meter:
        """The meter of a rendering that is given these values."""
        weight = Meter().weigh(given)
        return Meter(
            MOST_STEPS + STEPS_A_VALUE * weight.nodes, MOST_CHARACTERS + CHARACTERS_A_CHARACTER * weight.characters
        )

    def tick(self, n: int = 1) -> bool:
        """Spends steps. True, so that it can stand in a condition."""
        self.n_steps += n
        if self.n_steps > self._most_steps:
            raise LimitError(f"it takes more than {self._most_steps} steps")
        return True

    def spend(self, n: int) -> None:
        """Spends characters."""
        self.n_characters += n
        if self.n_characters > self._most_characters:
            raise LimitError(f"it makes more than {self._most_characters} characters of text")

    def expect(self, n: float) -> None:
        """Refuses characters that are to be made where there are not as many left. What is made is spent later."""
        if n > self._most_characters - self.n_characters:
            raise LimitError(f"it makes more than {self._most_characters} characters of text")

    def expect_items(self, n: float) -> None:
        """Refuses items that are to be made where there are not as many steps left."""
        if n > self._most_steps - self.n_steps:
            raise LimitError(f"it takes more than {self._most_steps} steps")

    def pass_over(self, value: Any) -> None:
        """Spends what it takes to copy a value or to look through it once, without what is inside of it."""
        if isinstance(value, str | bytes):
            self.spend(len(value))
        elif hasattr(type(value), "__len__"):
            self.tick(len(value))

    def weigh(self, *values: Any) -> Weight:
        """Spends what it takes to look at values and all that is inside them, a step and its characters for each."""
        nodes = characters = longest = deepest = 0
        waiting: list[tuple[Iterator[Any], int]] = [(iter(values), 0)]
        while waiting:
            inside, depth = waiting[-1]
            value = next(inside, _END)
            if value is _END:
                waiting.pop()
                continue
            nodes += 1
            self.tick()
            if isinstance(value, str | bytes):
                characters += len(value)
                longest = max(longest, len(value))
                self.spend(len(value))
            elif isinstance(value, range):
                nodes += len(value)
                self.tick(len(value))
            elif (parts := _parts(value)) is not None:
                deepest = max(deepest, depth + 1)
                if depth >= MOST_DEPTH:
                    raise LimitError(f"it puts more than {MOST_DEPTH} lists inside each other")
                waiting.append((parts, depth + 1))
        return Weight(nodes, characters, longest, deepest)

    def counted(self, values: Iterator[Any]) -> Iterator[Any]:
        """The same values, a step for each."""
        for value in values:
            self.tick()
            yield value

    def number(self, value: float) -> None:
        """Refuses a whole number that arithmetic would take long for."""
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise LimitError(f"it makes a number of more than {MOST_BITS} bits")


_END = object()
_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)


def _parts(value: Any) -> Iterator[Any] | None:
    """What a container shows of itself; None for what is none, iterators among it."""
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, Mapping):
        return (part for item in list(value.items()) for part in item)
    if isinstance(value, _CONTAINERS):
        return iter(value)
    return None
