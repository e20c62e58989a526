"""Entities in words and in records: sentences about them, questions on them, JSON, lines of keys and values."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence

from embedded_model.entities import Entity, Value, text
from embedded_model.phrases import FIELD, expand
from embedded_model.tables import read

TABLES = read("describe")
KINDS = ("person", "order", "character", "event")
ANY_QUESTION = TABLES["any question"]
LABELS = {"order": "order number", "who": "host", "phone": "phone number", "class": "class", "price": "price"}
SPELLING = {key: value.split() for key, value in (line.split(": ") for line in TABLES["spellings"])}


def keyed(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return lines of `key: pattern`, grouped by key."""
    found: dict[str, list[str]] = {}
    for line in lines:
        key, pattern = line.split(": ", 1)
        found.setdefault(key, []).append(pattern)
    return found


OPENING = {kind: TABLES[f"openings: {kind}"] for kind in KINDS}
STATEMENT = {kind: keyed(TABLES[f"statements: {kind}"]) for kind in KINDS}
QUESTION = {kind: keyed(TABLES[f"questions: {kind}"]) for kind in KINDS}
SUBJECT = {"person": "name", "order": "customer", "character": "name", "event": "who"}
FIRST_PERSON = ("Hello", "Hi,", "My name", "I am")
PLAIN_KEY = {f"a_{key}": key for key in ("job", "item", "class", "race", "weapon", "event", "trait", "color")}


def statement(thing: Entity, key: str, rng: random.Random, subject: str) -> str:
    """Return a sentence that states one value."""
    words = {**thing.words, "S": subject}
    if subject == thing.words[SUBJECT[thing.kind]]:
        words["His"] = f"{subject}'s"
    return expand(rng.choice(STATEMENT[thing.kind][key]), rng, words)


def opening(thing: Entity, rng: random.Random) -> tuple[str, list[str]]:
    """Return a first sentence, and the keys whose values it gives, in its order."""
    braces = {key: f"{{{key}}}" for key in thing.words}
    pattern = expand(rng.choice(OPENING[thing.kind]), rng, braces)
    keys = [PLAIN_KEY.get(key, key) for key in FIELD.findall(pattern)]
    return FIELD.sub(lambda match: thing.words[match[1]], pattern), keys


def prose(thing: Entity, rng: random.Random, more: int = 2) -> tuple[str, list[str]]:
    """Return one to `more` + 1 sentences about the thing, and the keys that they
    mention, in their order.
    """
    sentences, keys = [], []
    first, keys = opening(thing, rng)
    sentences.append(first)
    others = [key for key in STATEMENT[thing.kind] if key not in keys]
    if first.startswith(FIRST_PERSON):
        more = 0
    for key in rng.sample(others, min(rng.randint(0, more), len(others))):
        subject = thing.words["He"] if thing.kind in {"person", "character"} else thing.words[SUBJECT[thing.kind]]
        sentences.append(statement(thing, key, rng, subject))
        keys.append(key)
    return " ".join(sentences), keys


def describe(thing: Entity, keys: Sequence[str], rng: random.Random) -> str:
    """Return a sentence for every key: the record in prose."""
    name = thing.words[SUBJECT[thing.kind]]
    sentences, named = [], False
    for key in keys:
        if key == SUBJECT[thing.kind] and len(keys) > 1 and thing.kind in {"person", "character"}:
            continue
        subject = thing.words["He"] if named and thing.kind != "order" else name
        sentence = statement(thing, key, rng, subject)
        named = named or name in sentence
        sentences.append(sentence)
    if not named and SUBJECT[thing.kind] in keys:
        sentences.insert(0, statement(thing, SUBJECT[thing.kind], rng, name))
    return " ".join(sentences)


def question(thing: Entity, key: str, rng: random.Random) -> str:
    """Return a question that the value of the key answers."""
    subject = thing.words[SUBJECT[thing.kind]]
    words = {**thing.words, "who": rng.choice((subject, thing.words["first"])), "label": LABELS.get(key, key)}
    generic = (rng.random() < 0.25 and key != "items") or key not in QUESTION[thing.kind]
    if key == SUBJECT[thing.kind] and generic:
        return expand("[What is the {label}?|Which {label} is it?|Give the {label}.|Tell me the {label}.]", rng, words)
    if generic and thing.kind in {"order", "event"}:
        return expand(rng.choice((ANY_QUESTION[0], *ANY_QUESTION[2:5], *ANY_QUESTION[6:])), rng, words)
    return expand(rng.choice(ANY_QUESTION if generic else QUESTION[thing.kind][key]), rng, words)


def answer(thing: Entity, key: str, rng: random.Random, sentences: float = 0.15) -> str:
    """Return the value asked for, now and then as a sentence."""
    if rng.random() < sentences and key in STATEMENT[thing.kind]:
        subject = rng.choice((thing.words[SUBJECT[thing.kind]], thing.words["He"]))
        return statement(thing, key, rng, subject)
    if key in {"weapon", "items"} and rng.random() < 0.3:
        return thing.words["a_weapon" if key == "weapon" else "items"]
    return text(thing.values[key])


def spelled(keys: Iterable[str], rng: random.Random, style: str) -> dict[str, str]:
    """Return how each key is written, in one style: snake, title, camel, upper or
    words.
    """
    names = {}
    for key in keys:
        name = rng.choice(SPELLING.get(key, [key]))
        parts = name.split("_")
        names[key] = {
            "snake": name,
            "title": " ".join(parts).capitalize(),
            "camel": parts[0] + "".join(part.capitalize() for part in parts[1:]),
            "upper": name.upper().replace("_", " "),
            "words": " ".join(parts),
        }[style]
    # Two keys of one record never share a spelling (`type`, `id`).
    return names if len(set(names.values())) == len(names) else {key: key for key in names}


def dump(record: object, rng: random.Random) -> str:
    """Return the record as JSON: on one line, compact or indented."""
    form = rng.random()
    if form < 0.5:
        return json.dumps(record)
    if form < 0.9:
        return json.dumps(record, indent=rng.choice((2, 2, 4)))
    return json.dumps(record, separators=(",", ":"))


def as_json(thing: Entity, keys: Sequence[str], rng: random.Random, *, plain: bool = False) -> str:
    """Return the values of the keys as a JSON object; plain: with the keys as they are."""
    style = rng.choice(("snake", "snake", "snake", "snake", "camel", "title"))
    names = {key: key for key in keys} if plain else spelled(keys, rng, style)
    record: dict[str, Value] = {names[key]: thing.values[key] for key in keys}
    return dump(record, rng)


def as_lines(thing: Entity, keys: Sequence[str], rng: random.Random, *, plain: bool = False) -> str:
    """Return the values of the keys, one a line (or all on one), each behind its key."""
    style = rng.choice(("title", "title", "title", "words", "snake", "upper"))
    names = {key: key for key in keys} if plain else spelled(keys, rng, style)
    layout = rng.choice(("{0}: {1}",) * 6 + ("- {0}: {1}", "* {0}: {1}", "{0} = {1}", "{0} - {1}", "{0}={1}"))
    joint = rng.choice(("\n", "\n", "\n", "\n", "; ", " | ")) if layout[0] == "{" else "\n"
    return joint.join(layout.format(names[key], text(thing.values[key])) for key in keys)
