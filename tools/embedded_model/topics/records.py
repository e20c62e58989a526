"""Records of people, orders and characters: JSON, lines of keys and values, and what can be asked about them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence

from embedded_model import forms, record_items
from embedded_model.describe import SUBJECT, answer, as_json, as_lines, describe, dump, prose, question, spelled
from embedded_model.entities import (
    ARMORS,
    CLASS,
    CLASSES,
    MAKERS,
    WEAPONS,
    Entity,
    character,
    made_word,
    text,
)
from embedded_model.phrases import Fact, Item, a, expand, rounds, wrong_answers
from embedded_model.tables import read

TABLES = read("records")
HEADING = {kind: TABLES[f"headings: {kind}"] for kind in ("character", "person", "order")}
# Keys that decide one another.
LINKED = {
    "character": ("class", "armor", "weapon", "items"),
    "person": ("city", "country", "language", "job", "workplace"),
    "order": ("item", "category", "color", "material"),
}
FREE = frozenset(TABLES["free keys"].words())
KINDS = ("character", "character", "person", "order")
LINES_FORM = ("text", "key and value", "plain text", "list")
ARMOR_QUESTIONS, WEAPON_QUESTIONS = TABLES["armor questions"], TABLES["weapon questions"]
ARMOR_SENTENCES, WEAPON_SENTENCES = TABLES["armor sentences"], TABLES["weapon sentences"]


def some_keys(thing: Entity, rng: random.Random) -> list[str]:
    """Return keys of a record: some or all, mostly in the usual order, the subject
    nearly always first.
    """
    keys = list(thing.values)
    subject = SUBJECT[thing.kind]
    chosen = [key for key in LINKED[thing.kind] if rng.random() < 0.65]
    others = [key for key in keys if key != subject and key not in LINKED[thing.kind]]
    chosen += rng.sample(others, rng.randint(max(0, 2 - len(chosen)), min(4, len(others))))
    if rng.random() < 0.4:
        rng.shuffle(chosen)
    elif rng.random() < 0.7:
        chosen.sort(key=keys.index)
    place = 0 if rng.random() < 0.75 else rng.randint(0, len(chosen))
    return chosen[:place] + [subject] * (rng.random() < 0.95) + chosen[place:]


def record(thing: Entity, keys: Sequence[str], rng: random.Random, *, heading: float = 0.5) -> str:
    """Return a record in JSON or in lines, with or without a heading."""
    if rng.random() < 0.6:
        body, form, joint = (
            as_json(thing, keys, rng),
            rng.choice(("JSON", "JSON", "json")),
            rng.choice(("\n", "\n", "\n\n", " ")),
        )
        if rng.random() < 0.15:
            body, joint = f"```json\n{body}\n```", "\n"
    else:
        body, form, joint = as_lines(thing, keys, rng), rng.choice(LINES_FORM), rng.choice(("\n", "\n\n"))
    if rng.random() < heading:
        return expand(rng.choice(HEADING[thing.kind]), rng, {"form": form}) + joint + body
    return body


def draw(rng: random.Random) -> Entity:
    """Return a character, a person or an order."""
    return MAKERS[rng.choice(KINDS)](rng)


def plain_record(rng: random.Random) -> str:
    """Return a record on its own."""
    thing = draw(rng)
    return record(thing, some_keys(thing, rng), rng, heading=0.7)


def asked_record(rng: random.Random) -> str:
    """Return a record and questions on it, whose answers copy its values."""
    thing = draw(rng)
    keys = some_keys(thing, rng)
    body = record(thing, keys, rng, heading=0.3)
    pairs = [
        (question(thing, key, rng), answer(thing, key, rng))
        for key in rng.sample(keys, min(rng.randint(1, 3), len(keys)))
    ]
    if rng.random() < 0.25:
        asked, *rest = pairs
        return forms.chat([(f"{body}\n{asked[0]}", asked[1]), *rest], rng)
    layout = expand(rng.choice(forms.QUESTION_ANSWER), rng)
    joint = rng.choice(("\n", "\n", "\n\n"))
    shown = (layout.replace("<q>", asked).replace("<a>", right).replace("..", ".") for asked, right in pairs)
    return joint.join([body, *shown])


def told_record(rng: random.Random) -> str:
    """Return a record in prose, before or after the same record with keys."""
    thing = draw(rng)
    keys = [key for key in some_keys(thing, rng) if key != "description"]
    told, body = describe(thing, keys, rng), record(thing, keys, rng, heading=0.2)
    if rng.random() < 0.5:
        head = rng.choice(("", "", "In words: ", "Summary: ", "Text: ", "As a text:\n"))
        return f"{body}\n{head}{told}"
    head = rng.choice(("", "", "As a record:\n", "Record:\n", "The same as a record:\n"))
    return f"{told}\n{head}{body}"


def translated_record(rng: random.Random) -> str:
    """Return a record in two layouts: every value is copied."""
    thing = draw(rng)
    keys = some_keys(thing, rng)
    lines, body = (
        as_lines(thing, keys, rng),
        as_json(thing, rng.sample(keys, len(keys)) if rng.random() < 0.3 else keys, rng),
    )
    first, second, head = rng.choice(
        (
            (lines, body, rng.choice(("JSON", "JSON", "As JSON", "In JSON"))),
            (body, lines, rng.choice(("As lines", "As text", "As a list"))),
        )
    )
    if rng.random() < 0.2:
        return forms.chat(
            [
                (
                    f"{expand('[Write|Give me|Show] this', rng)} {'as JSON' if head == 'JSON' else head.lower().replace('json', 'JSON')}:\n{first}",
                    second,
                )
            ],
            rng,
        )
    return f"{first}\n{head}:\n{second}" if rng.random() < 0.8 else f"{first}\n\n{second}"


def several_records(rng: random.Random) -> str:
    """Return records of several things of a kind, and questions on one of them."""
    maker = MAKERS[rng.choice(KINDS)]
    things = [maker(rng) for _ in range(rng.randint(2, 4))]
    subject = SUBJECT[things[0].kind]
    others = [key for key in things[0].values if key not in {subject, "description", "items", "mantra"}]
    keys = [subject, *rng.sample(others, rng.randint(1, 4))]
    form = rng.random()
    if form < 0.35:
        body = "\n".join(json.dumps({key: thing.values[key] for key in keys}) for thing in things)
    elif form < 0.55:
        names = spelled(keys, rng, "snake")
        body = dump([{names[key]: thing.values[key] for key in keys} for thing in things], rng)
    elif form < 0.8:
        mark = rng.choice((", ", ",", " | ", ";"))
        body = "\n".join([mark.join(keys), *(mark.join(text(thing.values[key]) for key in keys) for thing in things)])
    else:
        body = "\n\n".join(
            "\n".join(f"{key.capitalize()}: {text(thing.values[key])}" for key in keys) for thing in things
        )
    layout = expand(rng.choice(forms.QUESTION_ANSWER[:6]), rng)
    asked = []
    for thing in rng.sample(things, min(rng.randint(0, 2), len(things))):
        key = rng.choice(keys[1:])
        label = "phone number" if key == "phone" else key
        who = thing.words[subject]
        words = expand(
            f"[What is the {label} of {who}?|Which {label} has {who}?|{who}: what {label}?|What {label} does {who} have?]",
            rng,
        )
        asked.append(layout.replace("<q>", words).replace("<a>", text(thing.values[key])))
    return "\n".join([body, *asked])


def written_record(rng: random.Random) -> str:
    """Return a chat in which somebody asks for a record of a given thing."""
    kind = rng.choice(KINDS)
    thing = MAKERS[kind](rng)
    keys = some_keys(thing, rng)
    if kind == "character":
        wish = expand(
            "[Write|Create|Make|Give me] [a profile|a character profile|a record|a character sheet] of {a_class} [called|named] {name}[ in JSON| as JSON|].",
            rng,
            thing.words,
        )
    elif kind == "person":
        wish = expand(
            "[Write|Create|Make|Give me] [a profile|a record] of {name} [from|in] {city}[ in JSON|].", rng, thing.words
        )
    else:
        wish = expand(
            "[Write|Create|Make|Give me] [an order|a record of an order] of {a_item} for {customer}[ in JSON|].",
            rng,
            thing.words,
        )
    keys = list(dict.fromkeys([SUBJECT[kind], {"character": "class", "person": "city", "order": "item"}[kind], *keys]))
    body = as_json(thing, keys, rng)
    return forms.chat([(wish, body)], rng) if rng.random() < 0.6 else f"{wish}\n{body}"


def changed_record(rng: random.Random) -> str:
    """Return a record, a change, and the record after it."""
    kind = rng.choice(KINDS)
    old, new = MAKERS[kind](rng), MAKERS[kind](rng)
    keys = some_keys(old, rng)
    key = rng.choice([key for key in keys if key in FREE] or [SUBJECT[kind]])
    value = new.values[key]
    change = expand(f"[Change|Set] the {key} to {{value}}.", rng, {"value": text(value)})
    before = {name: old.values[name] for name in dict.fromkeys([*keys, key])}
    after = {**before, key: value}
    return f"{json.dumps(before)}\n{change}\n{json.dumps(after)}"


def copying(rng: random.Random) -> str:
    """Return pairs of a noun and a word that means nothing, and questions on them."""
    nouns = rng.sample(TABLES["nouns"], rng.randint(1, 6))
    pairs = [(noun, made_word(rng)) for noun in nouns]
    form = rng.random()
    if form < 0.3:
        body = json.dumps({noun.replace(" ", "_"): word for noun, word in pairs}, indent=rng.choice((None, 2)))
    elif form < 0.6:
        body = "\n".join(f"{noun.capitalize()}: {word}" for noun, word in pairs)
    else:
        body = " ".join(
            expand(f"[The {noun} is {word}.|My {noun} is {word}.|The {noun} is called {word}.]", rng)
            for noun, word in pairs
        )
    asked = rng.sample(pairs, min(rng.randint(1, 3), len(pairs)))
    if form > 0.9:
        again = [f"{noun}: {word}" for noun, word in asked]
        return "\n".join([body, *again])
    layout = expand(rng.choice(forms.QUESTION_ANSWER), rng)
    pattern = rng.choice(
        (
            "What is the {0}?",
            "Which {0} is it?",
            "What is the {0} called?",
            "what is the {0}",
            "Repeat the {0}.",
            "{0}?",
        )
    )
    lines = [layout.replace("<q>", pattern.format(noun)).replace("<a>", word) for noun, word in asked]
    if rng.random() < 0.2:
        return forms.chat([(f"{body}\n{pattern.format(asked[0][0])}", asked[0][1])], rng)
    return "\n".join([body, *lines])


def class_fact(role: str, rng: random.Random) -> Fact:
    """Return a fact on the armor or the weapon of a class."""
    armor, weapons, _, _ = CLASS[role]
    weapon = weapons[0] if rng.random() < 0.75 else weapons[-1]
    words = {"class": role, "a_class": a(role), "A_class": a(role).capitalize(), "armor": armor, "a_weapon": a(weapon)}
    if rng.random() < 0.5:
        sentence = expand(rng.choice(ARMOR_SENTENCES), rng, words)
        cut = sentence.rindex(f" {armor}")
        wrong = tuple(rng.sample([other for other in ARMORS if other != armor], 2))
        return Fact(
            expand(rng.choice(ARMOR_QUESTIONS), rng, words), sentence[:cut], f"Armor of {a(role)}", armor, wrong
        )
    sentence = expand(rng.choice(WEAPON_SENTENCES[:-1]), rng, words)
    pool = [a(other) for other in WEAPONS if other not in weapons]
    asked = expand(rng.choice(WEAPON_QUESTIONS), rng, words)
    right = a(weapon)
    return Fact(
        asked, sentence[: sentence.rindex(f" {right}")], f"Weapon of {a(role)}", right, wrong_answers(right, pool, rng)
    )


def class_text(role: str, rng: random.Random) -> str:
    """Return a fact on a class in some form, or a sentence on one of the class that
    follows from it.
    """
    form = rng.random()
    if form < 0.5:
        return forms.ask(class_fact(role, rng), rng)
    if form < 0.65:
        return forms.few_shot([class_fact(other[0], rng) for other in rng.sample(CLASSES, rng.randint(2, 5))], rng)
    return prose(character(rng, role), rng, 3)[0]


WAYS: tuple[tuple[Callable[[random.Random], str], int], ...] = (
    (plain_record, 26),
    (asked_record, 26),
    (told_record, 12),
    (translated_record, 10),
    (several_records, 8),
    (written_record, 6),
    (changed_record, 3),
    (copying, 12),
)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield records in all layouts, without end."""
    roles = rounds([row[0] for row in CLASSES], rng)
    ways = rounds([way for way, times in WAYS for _ in range(times)], rng)
    while True:
        for _ in range(9):
            yield next(ways)(rng)
        yield class_text(next(roles), rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield continuations inside records: what follows from another value, and what was
    given before.
    """
    yield from record_items.classes(rng)
    yield from record_items.links(rng)
    yield from record_items.copies(rng)
