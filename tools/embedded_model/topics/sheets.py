"""Long documents: what a prompt with many examples looks like."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Final

from embedded_model.phrases import Item, rounds

TOPICS: Final = ("countries", "words", "numbers", "yes_no", "sentiment", "intents", "drills", "records", "extraction")
LEAST_CHARACTERS, MOST_CHARACTERS = 800, 3000


def documents(rng: random.Random) -> Iterator[str]:
    """Yield documents of one topic below one another, without chats, which do not
    continue after their end.
    """
    for topic in rounds(TOPICS, rng):
        pieces = importlib.import_module(f"embedded_model.topics.{topic}").documents(random.Random(rng.random()))
        n_characters, sheet = rng.randint(LEAST_CHARACTERS, MOST_CHARACTERS), ""
        while len(sheet) < n_characters:
            piece = next(pieces)
            if "<|" not in piece:
                sheet += piece.strip("\n") + "\n\n"
        yield sheet.rstrip("\n")


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield nothing: the topics have held-out questions."""
    del rng
    yield from ()
