"""Held-out questions on records: values that follow from others, and values to copy,
under new headings.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

from embedded_model import forms
from embedded_model.describe import SUBJECT
from embedded_model.entities import (
    ARMORS,
    CITIES,
    CLASSES,
    ITEMS,
    JOBS,
    MAKERS,
    WEAPONS,
    Entity,
    Value,
    character,
    order,
    person,
    text,
)
from embedded_model.phrases import Item, expand, rounds, wrong_answers
from embedded_model.tables import read

TABLES = read("records")
NEW_PEOPLE, NEW_HEROES = TABLES["held out: people"], TABLES["held out: heroes"]
NEW_HEADS = {kind: TABLES[f"held out: headings: {kind}"] for kind in ("character", "person", "order")}


def placed(
    prompt: str,
    right: str,
    wrong: Sequence[str],
    phrase: str,
    rng: random.Random,
    *,
    following: str = "",
    kind: str = "records",
) -> Item:
    """Return the item with its right choice at a random place; wrong choices that begin
    like the right one are left out.
    """
    others = [
        choice for choice in dict.fromkeys(wrong) if not choice.startswith(right) and not right.startswith(choice)
    ][:3]
    gold = rng.randint(0, len(others))
    return Item(kind, prompt, (*others[:gold], right, *others[gold:]), gold, phrase, following)


def in_json(pairs: Sequence[tuple[str, object]], key: str, head: str, indent: int | None) -> str:
    """Return a JSON record up to the quotation mark that opens the value of the key."""
    body = json.dumps(dict(pairs), indent=indent)[:-1].rstrip()
    return f'{head}\n{body},{chr(10) + " " * indent if indent else " "}"{key}": "'


def linked(kind: str, thing: Entity, keys: Sequence[str], key: str, rng: random.Random) -> tuple[str, str, str, str]:
    """Return a record up to the value that follows from another: prompt, phrase, what a
    choice begins and ends with.
    """
    head = rng.choice(NEW_HEADS[kind])
    pairs = [(name, thing.values[name]) for name in keys]
    if rng.random() < 0.6:
        prompt = in_json(pairs, key, head, rng.choice((None, 2)))
        return prompt, prompt, "", '"'
    body = "\n".join(f"{name.capitalize()}: {text(value)}" for name, value in pairs)
    prompt = f"{head.replace('JSON', 'lines')}\n{body}\n{key.capitalize()}:"
    return prompt, prompt, " ", ""


def renamed(thing: Entity, name: str) -> Entity:
    """Return the same under another name."""
    subject = SUBJECT[thing.kind]
    words = {**thing.words, subject: name, "first": name.split(" ", maxsplit=1)[0]}
    return Entity(thing.kind, {**thing.values, subject: name}, words)


def classes(rng: random.Random) -> Iterator[Item]:
    """Yield items that ask for the armor and for the weapon of a class."""
    names = rounds(NEW_HEROES, rng)
    for role, armor, weapons, *_ in CLASSES:
        own = weapons.split(",")
        hero = renamed(character(rng, role), next(names))
        prompt, phrase, before, after = linked("character", hero, ("name", "level", "class", "race"), "armor", rng)
        others = [before + other for other in rng.sample(ARMORS, 3) if other != armor]
        yield placed(prompt, before + armor, others, phrase, rng, following=after)
        hero = renamed(character(rng, role), next(names))
        prompt, phrase, before, after = linked("character", hero, ("name", "class", "gold", "armor"), "weapon", rng)
        pool = [other for other in WEAPONS if other not in own]
        yield placed(
            prompt, before + own[0], [before + other for other in rng.sample(pool, 3)], phrase, rng, following=after
        )
        hero = renamed(character(rng, role), next(names))
        sentence = expand(
            "[At the gate stands {name}, {a_class} from far away, and wears|Look, {name} the {class} is back, dressed in]",
            rng,
            hero.words,
        )
        others = [" " + other for other in rng.sample(ARMORS, 3) if other != armor]
        yield placed(sentence, " " + armor, others, sentence, rng)


def links(rng: random.Random) -> Iterator[Item]:
    """Yield items that ask for what follows from a city, a job or an item."""
    names = rounds(NEW_PEOPLE, rng)
    for index, (city, country, language) in enumerate(rng.sample(CITIES, 36)):
        key, right = ("country", country) if index % 3 else ("language", language)
        column = 1 if index % 3 else 2
        someone = person(rng)
        job = someone.words["job"]
        thing = Entity("person", {**someone.values, "name": next(names), "city": city, "job": job}, someone.words)
        prompt, phrase, before, after = linked("person", thing, ("name", "phone", "city", "age"), key, rng)
        wrong = wrong_answers(right, [row[column] for row in CITIES], rng)
        yield placed(prompt, before + right, [before + other for other in wrong], phrase, rng, following=after)
    for item, category, *_ in rng.sample(ITEMS, 24):
        bought = order(rng)
        thing = Entity("order", {**bought.values, "customer": next(names), "item": item}, bought.words)
        prompt, phrase, before, after = linked(
            "order", thing, ("customer", "item", "status", "quantity"), "category", rng
        )
        wrong = wrong_answers(category, [row[1] for row in ITEMS], rng)
        yield placed(prompt, before + category, [before + other for other in wrong], phrase, rng, following=after)
    jobs = [
        row for row in JOBS if row[0] not in row[1] and row[0] not in {"student", "soldier", "secretary", "programmer"}
    ]
    for job, workplace in rng.sample(jobs, 12):
        someone = person(rng)
        thing = Entity("person", {**someone.values, "name": next(names), "job": job}, someone.words)
        prompt, phrase, before, after = linked("person", thing, ("name", "job", "age"), "workplace", rng)
        wrong = wrong_answers(workplace, [row[1] for row in jobs if row[1] != workplace], rng)
        yield placed(prompt, before + workplace, [before + other for other in wrong], phrase, rng, following=after)


def rivals(thing: Entity, key: str, rng: random.Random) -> list[str]:
    """Return wrong values of the same kind as the value of the key."""
    right = thing.words[key] if key not in {"weapon", "item"} else text(thing.values[key])
    if key == SUBJECT[thing.kind]:
        pool = NEW_HEROES if thing.kind == "character" else NEW_PEOPLE
        return [other for other in rng.sample(pool, 5) if other != right]
    others = [text(MAKERS[thing.kind](rng).values[key]) for _ in range(12)]
    return [other for other in dict.fromkeys(others) if other != right]


def near(pairs: dict[str, Value], key: str, rng: random.Random) -> list[str]:
    """Return at most one other value of the same record: a number for a number."""
    number = not isinstance(pairs[key], str)
    others = [text(value) for name, value in pairs.items() if name != key and isinstance(value, str) != number]
    return rng.sample(others, min(1, len(others)))


def copies(rng: random.Random) -> Iterator[Item]:
    """Yield values that the prompt contains: asked in words, or to be written again in
    another layout.
    """
    heroes, people = rounds(NEW_HEROES, rng), rounds(NEW_PEOPLE, rng)
    asked = {
        "character": ("name", "class", "weapon", "armor", "level", "age", "gold", "race"),
        "person": ("name", "age", "city", "job", "hobby", "phone", "country"),
        "order": ("customer", "item", "color", "quantity", "status", "payment", "order"),
    }
    for kind, keys in asked.items():
        for number, key in enumerate([key for key in keys for _ in range(4)]):
            thing = renamed(MAKERS[kind](rng), next(heroes if kind == "character" else people))
            shown = [SUBJECT[kind], *(other for other in rng.sample(keys, 4) if other != SUBJECT[kind]), key]
            pairs = {
                name: thing.values[name] for name in sorted(set(shown), key=lambda name: (name != SUBJECT[kind], name))
            }
            right, wrong = text(thing.values[key]), near(pairs, key, rng) + rivals(thing, key, rng)
            head = rng.choice(NEW_HEADS[kind])
            if number % 4 < 2:
                body = f"{head}\n{json.dumps(pairs, indent=rng.choice((None, 2)))}"
                tail = rng.choice((f"Question: What is the {key}?\nAnswer:", f"Q: Which {key} do you read here?\nA:"))
                yield placed(f"{body}\n{tail}", f" {right}", [f" {other}" for other in wrong], body, rng)
            elif number % 4 == 2:
                lines = "\n".join(f"{name.capitalize()}: {text(value)}" for name, value in pairs.items())
                first = {SUBJECT[kind]: thing.values[SUBJECT[kind]]} if key != SUBJECT[kind] else {}
                mark = '"' if isinstance(thing.values[key], str) else ""
                again = f'{json.dumps(first)[:-1]}{", " if first else ""}"{key}":' + (' "' if mark else "")
                before = "" if mark else " "
                prompt = f"{head.replace(', in JSON', '')}\n{lines}\nJSON:\n{again}"
                yield placed(
                    prompt, before + right, [before + other for other in wrong], lines, rng, following=mark or ","
                )
            else:
                lines = "\n".join(f"- {name}: {text(value)}" for name, value in pairs.items())
                user = f"{head.replace(', in JSON', '').replace('JSON', 'Data')}\n{lines}\nWhat is the {key}?"
                prompt = f"{forms.USER}{user}{forms.END}{forms.ASSISTANT}"
                yield placed(prompt, right, wrong, lines, rng, following="<|im_end|>")
