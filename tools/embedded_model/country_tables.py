"""Tables of the topic of countries: the countries, and the patterns of questions about
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model import forms
from embedded_model.tables import read

CONTINENTS = ("Europe", "Asia", "Africa", "North America", "South America", "Oceania")


@dataclass(frozen=True, slots=True, eq=False)
class Country:
    """A row of the table; `also`: further languages and continents that many would accept."""

    name: str
    capital: str
    continent: str
    language: str
    adjective: str
    also: frozenset[str]


def _rows() -> Iterator[Country]:
    for title, section in read("countries").items():
        continent, *beside = title.removeprefix("no continent").split("+")
        for name, capital, languages, adjective in section.rows(4):
            language, *others = languages.split("+")
            yield Country(name, capital, continent, language, adjective, frozenset([*beside, *others]))


COUNTRIES = tuple(_rows())


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Patterns of questions about a country.

    {c} is the country, {C} the same to begin a sentence, {p} and {P} the possessive,
    {k} the capital, {d} the adjective.
    """

    questions: tuple[str, ...]
    statements: tuple[str, ...]
    keys: tuple[str, ...]


TABLES = read("countries_patterns")


def _table(title: str) -> tuple[str, ...]:
    """Return a table with the phrases that its patterns share filled in."""
    trip, nation = TABLES["trip"][0], TABLES["nation"][0]
    return tuple(pattern.replace("<trip>", trip).replace("<nation>", nation) for pattern in TABLES[title])


CAPITAL, COUNTRY, CONTINENT, LANGUAGE = (
    Relation(*(_table(f"{name}: {field}") for field in ("questions", "statements", "keys")))
    for name in ("capital", "country", "continent", "language")
)
RELATIONS = (CAPITAL, COUNTRY, CONTINENT, LANGUAGE)
SHARES = (34, 28, 19, 19)

PROSE = _table("prose")
LABELS = (("country", "c"), ("capital", "k"), ("continent", "t"), ("language", "l"))
FOLLOW_UPS = {field: _table(f"follow-ups: {label}") for label, field in LABELS[1:]}
SHARED = {CONTINENT: _table("shared: continent"), LANGUAGE: _table("shared: language")}
LAYOUTS = {
    "qa": "Q: <p>\nA:",
    "long": "Question: <p>\nAnswer:",
    "line": "<p>\nAnswer:",
    "plain": "<p>",
    "chat": f"{forms.USER}<p>{forms.END}{forms.ASSISTANT}",
}
"""Layouts of held-out questions, by the names that the tables use."""
HELD_OUT = {"capital": 104, "country": 84, "continent": 72, "language": 72}
"""How many held-out questions each relation gets."""
OF_RELATION = {"capital": CAPITAL, "country": COUNTRY, "continent": CONTINENT, "language": LANGUAGE}
