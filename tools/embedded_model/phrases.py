"""What the corpus is made of: patterns with alternatives, facts that can be asked in many forms, held-out items."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
T = TypeVar("T")

FIELD = re.compile(r"\{(\w+)\}")

# Letters that are spoken one by one; words whose first sound is not that of their first letter (hour, honest, user, one, 18).
INITIALS = re.compile(r"[A-Z][A-Z0-9]+\b")
SPOKEN_OTHERWISE = re.compile(
    r"hour|honest|honou?r|heir|uni(?![mn]|d)|us[aeu]|ut[eio]|ukulele|eu|ewe|(one|once)\b|8|(11|18)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something to know, ready to be asked in every form of `forms`.

    question ends in a question mark or a full stop; statement is a sentence up to its answer, without the space before it; key is
    a short heading ("Capital of France"), which the answer follows after a colon. wrong: answers of the same kind that are wrong.
    """

    question: str
    statement: str
    key: str
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A question of the held-out set: which of `choices` continues `prompt`?

    phrase: the part of the prompt that does not occur in any document of the corpus.
    choices begin with the space that separates them from the prompt, if there is one.
    following: what comes after a choice, if one choice continues another.
    """

    kind: str
    prompt: str
    choices: tuple[str, ...]
    gold: int
    phrase: str
    following: str = ""


def expand(pattern: str, rng: random.Random, fields: Mapping[str, str] | None = None) -> str:
    """Return one text of a pattern: `[a|b]` takes one of the alternatives (which may be
    empty, and may nest), `{name}` a field.
    """
    while match := ALTERNATIVES.search(pattern):
        options = match[1].split("|")
        pattern = pattern[: match.start()] + rng.choice(options) + pattern[match.end() :]
    return FIELD.sub(lambda match: (fields or {})[match[1]], pattern)


def rounds(values: Sequence[T], rng: random.Random) -> Iterator[T]:
    """Yield the values in random order, again and again: each comes equally often."""
    while True:
        yield from rng.sample(values, len(values))


def wrong_answers(answer: str, pool: Sequence[str], rng: random.Random, n: int = 3) -> tuple[str, ...]:
    """Return n others of a pool, in random order, without repeats."""
    others = sorted(set(pool) - {answer})
    return tuple(rng.sample(others, min(n, len(others))))


def a(noun: str) -> str:
    """Return the noun after its indefinite article."""
    vowel = noun[0].lower() in "aeiou"
    if INITIALS.match(noun):
        vowel = noun[0] in "AEFHILMNORSX"
    elif SPOKEN_OTHERWISE.match(noun):
        vowel = not vowel
    return f"{'an' if vowel else 'a'} {noun}"


def capital(text: str) -> str:
    """Return the text with a capital first letter and no other change."""
    return text[:1].upper() + text[1:]
