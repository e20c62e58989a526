"""Countries: their capitals, continents and main languages, and which country a capital belongs to."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from embedded_model import forms
from embedded_model.country_tables import (
    CAPITAL,
    CONTINENT,
    CONTINENTS,
    COUNTRIES,
    COUNTRY,
    FOLLOW_UPS,
    HELD_OUT,
    LABELS,
    LANGUAGE,
    LAYOUTS,
    OF_RELATION,
    PROSE,
    RELATIONS,
    SHARED,
    SHARES,
    TABLES,
    Country,
    Relation,
)
from embedded_model.phrases import Fact, Item, expand, rounds, wrong_answers

KIND = "countries"


def _first_up(text: str) -> str:
    return text[0].upper() + text[1:]


def _fields(of: Country) -> dict[str, str]:
    owner = of.name + ("'" if of.name.endswith("s") else "'s")
    names = {"c": of.name, "C": _first_up(of.name), "p": owner, "P": _first_up(owner)}
    return names | {"k": of.capital, "t": of.continent, "l": of.language, "d": of.adjective}


FIELDS = {country: _fields(country) for country in COUNTRIES}
SAME = {name: f"{{{name}}}" for name in "cCpPktld"}  # leaves the fields where they are


def _answer(of: Country, relation: Relation) -> str:
    """Return the answer; empty where the table says nothing."""
    if relation is COUNTRY:
        return of.name if of.capital else ""
    fields = FIELDS[of]
    return {CAPITAL: fields["k"], CONTINENT: fields["t"], LANGUAGE: fields["l"]}[relation]


def _pools() -> dict[tuple[Relation, str], tuple[str, ...]]:
    """Return the answers to a relation that a continent offers."""
    pools = {}
    for relation in RELATIONS:
        for continent in ("", *CONTINENTS):
            of = [country for country in COUNTRIES if continent in ("", country.continent)]
            pools[relation, continent] = tuple(sorted({_answer(country, relation) for country in of} - {""}))
    return pools


POOLS = _pools()
# Offered beside the languages of the continent: wrong answers that are widely known.
KNOWN_LANGUAGES = (
    "English",
    "French",
    "German",
    "Spanish",
    "Portuguese",
    "Russian",
    "Chinese",
    "Italian",
    "Japanese",
    "Hindi",
)
KNOWERS = {relation: tuple(country for country in COUNTRIES if _answer(country, relation)) for relation in RELATIONS}


def _wrong(of: Country, relation: Relation, rng: random.Random) -> tuple[str, ...]:
    """Return three wrong answers, of the same continent where it has enough."""
    pool = CONTINENTS if relation is CONTINENT else POOLS[relation, of.continent]
    if relation is LANGUAGE:
        pool = (*pool, *KNOWN_LANGUAGES)
    return wrong_answers(_answer(of, relation), [entry for entry in pool if entry not in of.also], rng)


def _sloppy(question: str, rng: random.Random) -> str:
    """Return the question as typed in haste, now and then."""
    chance = rng.random()
    if chance < 0.14:
        return question.lower().rstrip("?.") if chance < 0.09 else question.lower()
    return question.rstrip("?") if chance < 0.17 else question


def _pattern(patterns: tuple[str, ...], of: Country, rng: random.Random) -> str:
    """Return a pattern that the country has the words for."""
    while True:
        pattern = rng.choice(patterns)
        if of.adjective or "{d}" not in pattern:
            return pattern


def _fact(of: Country, relation: Relation, rng: random.Random, question: str = "", statement: str = "") -> Fact:
    """Return the fact in words drawn at random, or in those of the patterns given."""
    fields = FIELDS[of]
    return Fact(
        question=_sloppy(expand(question or _pattern(relation.questions, of, rng), rng, fields), rng),
        statement=expand(statement or _pattern(relation.statements, of, rng), rng, fields),
        key=expand(rng.choice(relation.keys), rng, fields),
        answer=_answer(of, relation),
        wrong=_wrong(of, relation, rng),
    )


def _known(of: Country) -> list[Relation]:
    return [relation for relation in RELATIONS if _answer(of, relation)]


def _draw(of: Country, rng: random.Random) -> Relation:
    """Return a relation that the table has for the country, the main ones more often."""
    known = _known(of)
    return rng.choices(known, [SHARES[RELATIONS.index(relation)] for relation in known])[0]


def _several(of: Country, rng: random.Random) -> str:
    """Return one relation of several countries, mostly in the same words, or several
    relations of one country.
    """
    if rng.random() < 0.35:
        known = _known(of)
        return forms.few_shot([_fact(of, relation, rng) for relation in rng.sample(known, len(known))], rng)
    relation = _draw(of, rng)
    others = rng.sample(KNOWERS[relation], rng.randint(2, 6))
    together = [of, *(other for other in others if other is not of)][:6]
    question = statement = ""
    if rng.random() < 0.7:  # alternatives are taken once for all of them, fields stay
        question, statement = (
            expand(rng.choice([pattern for pattern in patterns if "{d}" not in pattern]), rng, SAME)
            for patterns in (relation.questions, relation.statements)
        )
    return forms.few_shot([_fact(country, relation, rng, question, statement) for country in together], rng)


def _sheet(of: Country, rng: random.Random) -> str:
    """Return the facts of a country as lines, as JSON or as one line."""
    fields = FIELDS[of]
    cells = [(label, fields[name]) for label, name in LABELS if fields[name]]
    if rng.random() < 0.4:
        cells = cells[:1] + rng.sample(cells[1:], len(cells) - 1)
    form = rng.random()
    if form < 0.2:
        return json.dumps(dict(cells))
    lines = [f"{label.capitalize() if form < 0.8 else label}: {value}" for label, value in cells]
    return ("\n" if form < 0.65 else ", " if form < 0.8 else rng.choice(("\n", "; ", " | "))).join(lines)


def _talk(of: Country, rng: random.Random) -> str:
    """Return a conversation about one country, where only the first turn names it."""
    fields = FIELDS[of]
    first = _draw(of, rng)
    fact = _fact(of, first, rng)
    turns = [(fact.question, fact.answer)]
    said = {CAPITAL: "k", COUNTRY: "k", CONTINENT: "t", LANGUAGE: "l"}.get(first, "")
    for name in rng.sample("ktl", 3):
        if name != said and fields[name] and len(turns) < 3:
            turns.append((expand(rng.choice(FOLLOW_UPS[name]), rng), fields[name]))
    if rng.random() < 0.5:
        return forms.chat(turns, rng)
    return "\n".join(f"Q: {question}\nA: {answer}" for question, answer in turns)


def _together(of: Country, rng: random.Random) -> str:
    """Return countries that share a continent or a language, or the capitals of two."""
    by = rng.choice([relation for relation in (CONTINENT, LANGUAGE) if _answer(of, relation)] or [COUNTRY])
    shared = _answer(of, by)
    names = [country.name for country in KNOWERS[by] if _answer(country, by) == shared and country is not of]
    if by is COUNTRY or not names:
        other = rng.choice(KNOWERS[CAPITAL])
        pattern = rng.choice(("The capital of {c} is {k}.", "{k} is the capital of {c}."))
        return " ".join(expand(pattern, rng, FIELDS[country]) for country in (of, other) if country.capital)
    names = [of.name, *rng.sample(names, min(len(names), rng.randint(1, 5)))]
    rng.shuffle(names)
    row, last = ", ".join(names[:-1]), names[-1]
    text = expand(rng.choice(SHARED[by]), rng)
    return text.replace("<R>", _first_up(row)).replace("<r>", row).replace("<l>", last).replace("<s>", shared)


def _prose(of: Country, rng: random.Random) -> str:
    """Return the facts of a country in a few sentences, or as lines of `_sheet` if the
    table lacks some.
    """
    complete = of.capital and of.continent and of.language
    return expand(rng.choice(PROSE), rng, FIELDS[of]) if complete else _sheet(of, rng)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield training documents without end."""
    for of in rounds(COUNTRIES, rng):
        form = rng.random()
        if form < 0.62:
            yield forms.ask(_fact(of, _draw(of, rng), rng), rng)
        elif form < 0.84:
            yield _several(of, rng)
        elif form < 0.90:
            yield _prose(of, rng)
        elif form < 0.93:
            yield _sheet(of, rng)
        elif form < 0.97:
            yield _talk(of, rng)
        else:
            yield _together(of, rng)


def known_facts(rng: random.Random) -> Iterator[Fact]:
    """Yield facts on the countries, without end, each country equally often."""
    for of in rounds(COUNTRIES, rng):
        yield _fact(of, _draw(of, rng), rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield questions in words that `documents` never uses, each pattern of a relation
    equally often.
    """
    for name, count in HELD_OUT.items():
        relation, patterns = OF_RELATION[name], TABLES[f"held out: {name}"].rows(2)
        askable = [of for of in KNOWERS[relation] if len(_wrong(of, relation, rng)) == 3]
        for i, of in enumerate(rng.sample(askable, count)):
            layout, pattern = patterns[i % len(patterns)]
            phrase = expand(pattern, rng, FIELDS[of])
            prompt = LAYOUTS[layout].replace("<p>", phrase)
            choices = list(_wrong(of, relation, rng))
            choices.insert(i % 4, _answer(of, relation))
            space = "" if layout == "chat" else " "
            yield Item(KIND, prompt, tuple(space + choice for choice in choices), i % 4, phrase)
