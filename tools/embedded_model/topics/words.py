"""Words: opposites, plurals and past tenses."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Fact, Item
from embedded_model.relations import Entry, Relation, entries
from embedded_model.tables import patterns, read

TABLES = read("words")
KINDS = ("adjective", "verb", "noun", "adverb")
ACCEPTED = {"persons", "oxes", "echos", "heros", "waked"}  # unusual, but not wrong


def pairs(table: str) -> list[tuple[str, str]]:
    """Return the pairs of a table."""
    return [(left, right) for left, _, right in (pair.partition("/") for pair in TABLES[table])]


def opposites() -> tuple[Entry, ...]:
    """Return every pair in both directions; wrong answers are of the same part of
    speech.
    """
    tables = {kind: pairs(f"opposites: {kind}") for kind in KINDS}
    both = {kind: [*table, *((b, a) for a, b in table)] for kind, table in tables.items()}
    kinds = {word: kind for kind, words in both.items() for word, _ in words}
    rows = [({"x": word}, other) for words in both.values() for word, other in words]
    return entries(rows, TABLES["opposites alike"], kinds)


def forms_of(table: str, endings: tuple[str, ...]) -> tuple[Entry, ...]:
    """Return words with one form; wrong are the same form of other words and misformed
    ones.
    """
    rows = pairs(table)
    result = []
    for i, (word, right) in enumerate(rows):
        near = [rows[(i + step) % len(rows)][1] for step in (1, 2, 5, 11, 17, 23, 31)]
        misformed = (word, *(word + ending for ending in endings), right + endings[0])
        wrong = {*near, *misformed} - {right, *ACCEPTED, "people" if word.endswith("man") else ""}
        result.append(Entry({"x": word, "y": right}, right, tuple(sorted(wrong))))
    return tuple(result)


OPPOSITE = Relation(label="Opposite", head="Word", entries=opposites(), **patterns("words", "opposite"))
PLURAL = Relation(label="Plural", head="Word", entries=forms_of("plurals", ("s", "es")), **patterns("words", "plural"))
PAST = Relation(
    label="Past tense", head="Verb", entries=forms_of("past tenses", ("ed", "d", "s")), **patterns("words", "past")
)
RELATIONS = (OPPOSITE, PLURAL, PAST)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield documents on the words, without end."""
    return relations.documents(RELATIONS, rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield facts on the words, without end."""
    return relations.facts(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions on the words in phrasings that no document uses."""
    return relations.held_out("words", RELATIONS, 40, rng)
