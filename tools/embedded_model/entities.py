"""People, orders, characters of role-playing games and events: their tables, and how one of each is drawn.

Some values follow from others, and these a model can learn: a city has a country and a language, a job a workplace, an item
a category and a colour, a class its armor and weapons. Names are mostly drawn from syllables, so that only copying gets them right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from embedded_model.phrases import a, capital
from embedded_model.tables import read

Value = str | int | float | list[str]


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing to write a record about.

    values: what a record may hold, in the usual order of keys. words: what sentences may use, each value as text
    (`a_job` with an article) and the pronouns of the subject.
    """

    kind: str
    values: dict[str, Value]
    words: dict[str, str]


TABLES = read("entities")
FEMALE, MALE = TABLES["names of women"].words(), TABLES["names of men"].words()
LAST = TABLES["last names"].words()
ONSETS, NUCLEI, MIDDLES = (TABLES[part].words() for part in ("onsets", "nuclei", "middles"))
FEMALE_ENDS, MALE_ENDS = TABLES["ends of names of women"].words(), TABLES["ends of names of men"].words()
BYNAMES = TABLES["bynames, first half"].words(), TABLES["bynames, second half"].words()
CITIES = TABLES["cities"].rows(3)
JOBS = TABLES["jobs"].rows(2)
HOBBIES = TABLES["hobbies"]
ITEMS = TABLES["items"].rows(4)
STATUS, PAYMENT = TABLES["status"], TABLES["payment"]
CLASSES = TABLES["classes"].rows(5)
CLASS = {row[0]: (row[1], row[2].split(","), row[3].split(","), row[4].split(";")) for row in CLASSES}
CASTERS = ("wizard", "mage", "sorcerer", "witch", "druid", "monk")
RACES = TABLES["races"]
USUAL_RACE = dict(TABLES["usual races"].rows(2))
TRAITS = {wearer: TABLES[f"traits of {wearer}"] for wearer in ("plate", "chainmail", "leather", "caster")}
WEAPONS = sorted({weapon for row in CLASSES for weapon in row[2].split(",")})
ARMORS = ("leather", "chainmail", "plate")
EVENT_NAMES, PLACE_NAMES = TABLES["events"], TABLES["places"]
MONTHS, DAYS = TABLES["months"].words(), TABLES["days"].words()


def made_name(rng: random.Random, *, female: bool) -> str:
    """Return a name of syllables, which hardly ever comes twice."""
    name = rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(MIDDLES)
    if rng.random() < 0.25:
        name += rng.choice(NUCLEI) + rng.choice(MIDDLES)
    return (name + rng.choice(FEMALE_ENDS if female else MALE_ENDS)).capitalize()


def made_word(rng: random.Random) -> str:
    """Return a word of syllables or a code of digits and letters: something that can
    only be copied.
    """
    form = rng.random()
    if form < 0.5:
        return made_name(rng, female=rng.random() < 0.5)
    if form < 0.7:
        return str(rng.randrange(10, 100000))
    letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    return f"{letters}{rng.choice(('', '-'))}{rng.randrange(10, 10000)}"


def full_name(rng: random.Random, *, female: bool) -> str:
    """Return a person's name: usual or made, with or without a last name."""
    first = made_name(rng, female=female) if rng.random() < 0.35 else rng.choice(FEMALE if female else MALE)
    if rng.random() < 0.4:
        return first
    last = made_name(rng, female=False) if rng.random() < 0.3 else rng.choice(LAST)
    return f"{first} {last}"


def hero_name(rng: random.Random, *, female: bool) -> str:
    """Return the name of a character, mostly made."""
    first = rng.choice(FEMALE if female else MALE) if rng.random() < 0.25 else made_name(rng, female=female)
    return f"{first} {rng.choice(BYNAMES[0])}{rng.choice(BYNAMES[1])}" if rng.random() < 0.2 else first


def with_article(noun: str) -> str:
    """Return the noun with the article that it takes: `a rope`, but `arrows`."""
    return noun if noun.endswith("s") and not noun.endswith(("ss", "cross")) else a(noun)


def text(value: Value) -> str:
    """Return a value as a sentence or a line writes it."""
    return ", ".join(value) if isinstance(value, list) else str(value)


def entity(kind: str, values: dict[str, Value], *, name: str, female: bool) -> Entity:
    """Return an entity with the words of its values."""
    words = {key: text(value) for key, value in values.items()}
    pronouns = ("she", "her", "her") if female else ("he", "his", "him")
    words |= {"he": pronouns[0], "his": pronouns[1], "him": pronouns[2]}
    words |= {"He": pronouns[0].capitalize(), "His": pronouns[1].capitalize(), "first": name.split(" ", maxsplit=1)[0]}
    words |= {
        f"a_{key}": with_article(words[key])
        for key in ("job", "workplace", "item", "class", "race", "weapon", "event")
        if key in words
    }
    words |= {f"a_{key}": a(words[key]) for key in ("trait", "color") if key in words}
    if "a_race" in words:
        words["A_race"] = capital(words["a_race"])
    if isinstance(items := values.get("items"), list):
        words["items"] = " and ".join(", ".join(with_article(item) for item in items).rsplit(", ", 1))
    return Entity(kind, values, words)


def person(rng: random.Random) -> Entity:
    """Return somebody with a home, a job and a hobby."""
    female = rng.random() < 0.5
    name = full_name(rng, female=female)
    city, country, language = rng.choice(CITIES)
    job, workplace = rng.choice(JOBS)
    values: dict[str, Value] = {"name": name, "age": rng.randint(18, 90), "city": city, "country": country}
    values |= {"language": language, "job": job, "workplace": workplace, "hobby": rng.choice(HOBBIES)}
    values["phone"] = f"{rng.randrange(100, 1000)}-{rng.randrange(1000, 10000)}"
    return entity("person", values, name=name, female=female)


def order(rng: random.Random) -> Entity:
    """Return an order of one item."""
    female = rng.random() < 0.5
    customer = full_name(rng, female=female)
    item, category, colors, materials = rng.choice(ITEMS)
    number = rng.choice(("{0}", "{0}", "A{0}", "ORD-{0}", "{1}{0}", "#{0}")).format(
        rng.randrange(100, 100000), rng.choice("BCDEFGHKLMNPRST")
    )
    cents = rng.choice((0, 0, 25, 49, 75, 95, 99))
    price = rng.randint(2, 400)
    values: dict[str, Value] = {"order": number, "customer": customer, "item": item, "category": category}
    values |= {"color": rng.choice(colors.split(",")), "material": rng.choice(materials.split(","))}
    values |= {"quantity": rng.randint(1, 20), "price": price + cents / 100 if cents else price}
    values |= {"status": rng.choice(STATUS), "payment": rng.choice(PAYMENT)}
    return entity("order", values, name=customer, female=female)


def character(rng: random.Random, role: str | None = None) -> Entity:
    """Return a hero of a game: of the given class, or of any."""
    female = rng.random() < 0.5
    name = hero_name(rng, female=female)
    role = role or rng.choice(CLASSES)[0]
    armor, weapons, items, mantras = CLASS[role]
    trait = rng.choice(TRAITS["caster" if role in CASTERS else armor])
    noun = rng.choice((role, role, "fighter" if role not in CASTERS else role, "hero", "adventurer"))
    race = USUAL_RACE[role] if role in USUAL_RACE and rng.random() < 0.5 else rng.choice(RACES)
    values: dict[str, Value] = {"name": name, "description": f"{a(trait).capitalize()} {noun}.", "race": race}
    values |= {"class": role, "age": rng.randint(16, 99), "level": rng.randint(1, 20), "armor": armor}
    values |= {
        "weapon": rng.choice((weapons[0], weapons[0], weapons[-1])),
        "items": rng.sample(items, rng.randint(1, 3)),
    }
    values |= {
        "trait": trait,
        "mantra": rng.choice(mantras),
        "strength": rng.randint(3, 20),
        "gold": rng.randint(1, 500),
    }
    return entity("character", values, name=name, female=female)


def event(rng: random.Random) -> Entity:
    """Return something that takes place, and who is responsible for it."""
    female = rng.random() < 0.5
    name = full_name(rng, female=female)
    day, month = rng.randint(1, 28), rng.choice(MONTHS)
    date = rng.choice(
        (f"{day} {month}", f"{month} {day}", rng.choice(DAYS), f"{day} {month} {rng.randint(1980, 2035)}")
    )
    hour = rng.randint(1, 11)
    time = rng.choice(
        (f"{hour} {rng.choice(('am', 'pm'))}", f"{rng.randint(8, 21)}:{rng.choice(('00', '15', '30', '45'))}")
    )
    values: dict[str, Value] = {"event": rng.choice(EVENT_NAMES), "date": date, "time": time}
    values |= {"place": rng.choice(PLACE_NAMES), "city": rng.choice(CITIES)[0], "who": name}
    return entity("event", values, name=name, female=female)


MAKERS = {"person": person, "order": order, "character": character, "event": event}
