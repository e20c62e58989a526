"""Lists of made-up words that share little, so that no compiled grammar of theirs is small."""

from __future__ import annotations

import random

_SYLLABLES = [
    first + second
    for first in ("b", "d", "f", "k", "l", "m", "n", "r", "s", "t", "st", "br", "cr", "th", "ch")
    for second in ("a", "e", "i", "o", "u", "ea", "oo")
]


def made_words(n: int, *, n_each: int = 1, seed: int = 5) -> list[str]:
    """So many different texts of `n_each` words, each word after a blank, in no order."""
    made = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < n:
        words = ("".join(made.choices(_SYLLABLES, k=made.randint(1, 3))) for _ in range(n_each))
        found["".join(f" {word}{made.choice(['', 'n', 'r', 's', 't'])}" for word in words)] = None
    return list(found)
