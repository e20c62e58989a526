"""Animals: their class, their sound, their young, how many legs they have and where they live."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Fact, Item, a
from embedded_model.relations import Relation, entries
from embedded_model.tables import patterns, read

TABLES = read("animals")
IRREGULAR = dict(TABLES["irregular plurals"].rows(2))


def third_person(verb: str) -> str:
    """Return the verb as one animal does it."""
    return verb + ("es" if verb.endswith(("s", "h", "z")) and not verb.endswith("gh") else "s")


def column(n: int) -> list[tuple[dict[str, str], str]]:
    """Return the animals that have something in a column, with the fields their
    patterns use.
    """
    rows = []
    for cells in TABLES["animals"].rows(6):
        name, answer = cells[0], cells[n]
        if answer != "-":
            many = IRREGULAR.get(name, name + "s")
            rows.append(
                (
                    {
                        "x": name,
                        "ax": a(name),
                        "xs": many,
                        "ay": a(answer),
                        "ys": third_person(answer),
                        "n": a(answer).split()[0],
                    },
                    answer,
                ),
            )
    return rows


CLASS = Relation(label="Class", head="Animal", entries=entries(column(1)), **patterns("animals", "class"))
SOUND = Relation(
    label="Sound", head="Animal", entries=entries(column(2), TABLES["sounds alike"]), **patterns("animals", "sound")
)
YOUNG = Relation(
    label="Young", head="Animal", entries=entries(column(3), TABLES["young alike"]), **patterns("animals", "young")
)
LEGS = Relation(label="Legs", head="Animal", entries=entries(column(4)), **patterns("animals", "legs"))
HABITAT = Relation(
    label="Lives", head="Animal", entries=entries(column(5), TABLES["habitats alike"]), **patterns("animals", "habitat")
)
RELATIONS = (CLASS, SOUND, YOUNG, LEGS, HABITAT)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield documents on the animals, without end."""
    return relations.documents(RELATIONS, rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield facts on the animals, without end."""
    return relations.facts(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions on the animals in phrasings that no document uses."""
    return relations.held_out("animals", RELATIONS, 24, rng)
