"""Lists the texts of a grammar shortest first, counts them and draws from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from heapq import heappop, heappush

from selectrie.errors import GrammarError
from selectrie.grammar.machine.characters import Characterwise
from selectrie.grammar.machine.machine import DEAD, Machine
from selectrie.grammar.shortest_completion import Shortest

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
    """Raised when the budget of steps is used up."""


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
        self._shortest = Shortest(machine)
        self._characters = Characterwise(machine, machine.program.class_of)

    @property
    def min_length(self) -> int:
        """Return the number of characters of the shortest text."""
        return self._shortest.remaining(self._machine.start)

    def _count_character(self) -> None:
        self._n_characters += 1
        if self._max_steps is not None:
            n_steps = self._machine.n_spent + STEPS_OF_A_CHARACTER * self._n_characters
            if n_steps > self._max_steps:
                raise TooLongError(f"the texts take more than {self._max_steps} steps to find")

    def listed(self) -> Iterator[str]:
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

    def drawn(self, rng: random.Random, *, soft_limit: int = 40) -> str:
        """Return a random text.

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
