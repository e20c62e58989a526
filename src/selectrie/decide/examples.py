"""Examples of a question, drawn evenly out of many texts with their answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import sha256
from typing import TypeVar

from selectrie.core.vocabulary import to_bytes
from selectrie.options.checks import at_least

A = TypeVar("A", bound=Hashable)


def balanced(examples: Iterable[tuple[str, A]], n_each: int, *, seed: int = 0) -> list[tuple[str, A]]:
    """Return some examples of each answer, mixed, for `examples=` of a question.

    Which ones depends on the texts and the seed alone, not on the order of `examples`.

    Args:
        examples: Pairs of a text and its answer.
        n_each: Maximum number of examples for each answer.
        seed: Another number draws others.
    """
    at_least("n_each", n_each, 1, optional=False)
    drawn: dict[A, list[tuple[str, A]]] = {}

    def place(one: tuple[str, A]) -> tuple[bytes, str]:
        return sha256(to_bytes(f"{seed}\0{one[0]}", "examples")).digest(), repr(one[1])

    for text, answer in sorted(set(examples), key=place):
        if len(of_answer := drawn.setdefault(answer, [])) < n_each:
            of_answer.append((text, answer))
    return [ones[at] for at in range(n_each) for ones in drawn.values() if at < len(ones)]
