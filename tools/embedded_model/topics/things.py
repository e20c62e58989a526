"""Things: their colours, materials and uses; professions with their places of work and their tools."""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model import relations
from embedded_model.phrases import Fact, Item, a
from embedded_model.relations import Entry, Relation, entries
from embedded_model.tables import patterns, read

TABLES = read("things")


def bare(name: str) -> str:
    """Return a thing without its article."""
    first, _, rest = name.partition(" ")
    return rest if first in {"a", "an", "the"} else name


def grouped(table: str) -> tuple[Entry, ...]:
    """Return the entries of a table of answers and the things that have them."""
    lines = (line.split(": ") for line in TABLES[table])
    rows = [({"x": bare(name), "ax": name}, answer) for answer, names in lines for name in names.split(", ")]
    return entries(rows, TABLES[f"{table} alike"])


def work(n: int, alike: str) -> tuple[Entry, ...]:
    """Return the entries of the professions that have something in a column."""
    rows = [({"x": row[0], "ax": a(row[0])}, row[n]) for row in TABLES["work"].rows(3) if row[n] != "-"]
    return entries(rows, TABLES[alike])


COLOUR = Relation(label="Colour", head="Thing", entries=grouped("colours"), **patterns("things", "colour"))
MATERIAL = Relation(label="Material", head="Thing", entries=grouped("materials"), **patterns("things", "material"))
PLACE = Relation(label="Works", head="Profession", entries=work(1, "places alike"), **patterns("things", "place"))
TOOL = Relation(label="Tool", head="Profession", entries=work(2, "tools alike"), **patterns("things", "tool"))
USES = TABLES["uses"].rows(2)
USE = Relation(
    label="Used for",
    head="Thing",
    entries=entries([({"x": bare(thing), "ax": thing}, use) for thing, use in USES], TABLES["uses alike"]),
    **patterns("things", "use"),
)
MEANS = Relation(
    label="Thing",
    head="Purpose",
    entries=entries([({"x": use, "ax": use}, thing) for thing, use in USES], TABLES["things alike"]),
    **patterns("things", "means"),
)
RELATIONS = (COLOUR, MATERIAL, PLACE, TOOL, USE, MEANS)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield documents on the things and professions, without end."""
    return relations.documents(RELATIONS, rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield facts on the things and professions, without end."""
    return relations.facts(RELATIONS, rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions on the things and professions in phrasings that no document uses."""
    return relations.held_out("things", RELATIONS, 20, rng)
