"""Extraction: short texts about people, orders, characters and events, and what they say as JSON, as lines or as answers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence

from embedded_model import forms
from embedded_model.describe import FIRST_PERSON, LABELS, SUBJECT, answer, as_json, as_lines, dump, prose, question
from embedded_model.entities import MAKERS, Entity, Value, text
from embedded_model.phrases import FIELD, Item, expand, rounds
from embedded_model.tables import read

KINDS = ("person", "person", "order", "character", "character", "event")
TABLES, HELD_OUT = read("extraction"), read("extraction_held_out")
ORDERS, PLAIN_ORDERS, FILLERS = TABLES["orders"], TABLES["plain orders"], TABLES["fillers"]
HEADS = ("Text: ", "Text: ", "Text: ", "Text:\n", "Input: ", "Message: ", "Sentence: ", "", "")
CONTRAST = [(*head.split(" "), pattern) for head, pattern in (line.split(": ", 1) for line in TABLES["contrasts"])]
TAILS = ("JSON: ", "JSON: ", "JSON: ", "JSON:\n", "Output: ", "Data: ")


def listed(keys: Sequence[str]) -> str:
    """Return keys as a sentence lists them: `name, age and city`."""
    words = [key.replace("_", " ") for key in keys]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def told(thing: Entity, rng: random.Random, more: int = 2) -> tuple[str, list[str]]:
    """Return a text and the keys it mentions, each once; now and then with a sentence
    without any value.
    """
    body, keys = prose(thing, rng, more)
    if rng.random() < 0.15:
        filler = expand(rng.choice(FILLERS), rng)
        body = f"{filler} {body}" if rng.random() < 0.4 else f"{body} {filler}"
    keys = list(dict.fromkeys(key for key in keys if key in thing.values))
    return body, keys


def order_of(keys: Sequence[str], rng: random.Random) -> list[str]:
    """Return some of the keys in some order: what is asked for."""
    chosen = list(keys)
    if rng.random() < 0.5:
        chosen = rng.sample(chosen, rng.randint(1, len(chosen)))
    elif rng.random() < 0.5:
        rng.shuffle(chosen)
    return chosen


def contrasted(rng: random.Random) -> str:
    """Return a text that gives a right value beside a wrong one, and the right one as
    JSON, as a line or as an answer.
    """
    kind, key, pattern = rng.choice(CONTRAST)
    thing = MAKERS[kind](rng)
    other = MAKERS[kind](rng)
    while other.words[key] == thing.words[key]:
        other = MAKERS[kind](rng)
    wrong = {f"not_{name}": word for name, word in other.words.items()}
    wrong |= {f"a_not_{name.removeprefix('a_')}": word for name, word in other.words.items() if name.startswith("a_")}
    words = {**thing.words, **wrong}
    pattern = expand(pattern, rng, {name: f"{{{name}}}" for name in words})
    body = expand(pattern, rng, words)
    keys = [name.removeprefix("a_") for name in FIELD.findall(pattern) if not name.startswith(("not_", "a_not_"))]
    subject = SUBJECT[kind]
    wanted = [
        subject,
        *rng.sample([name for name in dict.fromkeys(keys) if name != subject], len(set(keys) - {subject})),
    ]
    form = rng.random()
    if form < 0.45:
        return f"{rng.choice(HEADS)}{body}\n{rng.choice(TAILS)}{as_json(thing, wanted, rng, plain=True)}"
    if form < 0.6:
        return f"{rng.choice(HEADS)}{body}\n{LABELS.get(key, key).capitalize()}: {text(thing.values[key])}"
    pair = (question(thing, key, rng), answer(thing, key, rng, 0))
    return forms.chat([(f"{body}\n{pair[0]}", pair[1])], rng) if form > 0.85 else below(body, [pair], rng)


def to_json(rng: random.Random) -> str:
    """Return a text and its values as JSON, with the list of keys or without."""
    thing = MAKERS[rng.choice(KINDS)](rng)
    body, keys = told(thing, rng)
    form = rng.random()
    wanted = order_of(keys, rng) if 0.45 <= form < 0.85 else keys
    head = rng.choice(HEADS)
    if form < 0.45:
        record = as_json(thing, wanted, rng, plain=rng.random() < 0.7)
        return f"{head}{body}\n{rng.choice(TAILS)}{record}"
    wish = (
        expand(rng.choice(ORDERS), rng, {"keys": listed(wanted)})
        if form < 0.85
        else expand(rng.choice(PLAIN_ORDERS), rng)
    )
    record = as_json(thing, wanted, rng, plain=True)
    layout = rng.random()
    if layout < 0.35:
        return f"{head}{body}\n{wish}\n{record}"
    if layout < 0.65:
        return f"{wish}\n{head or 'Text: '}{body}\n{rng.choice((*TAILS[2:4], ''))}{record}"
    user = f"{wish}\n{head}{body}" if rng.random() < 0.5 else f"{head}{body}\n{wish}"
    return forms.chat([(user, record)], rng)


def to_lines(rng: random.Random) -> str:
    """Return a text and its values as lines of keys and values."""
    thing = MAKERS[rng.choice(KINDS)](rng)
    body, keys = told(thing, rng)
    wanted = order_of(keys, rng)
    lines = as_lines(thing, wanted, rng)
    if rng.random() < 0.3:
        wish = expand(rng.choice(ORDERS[:1] + ORDERS[2:3] + ORDERS[5:]), rng, {"keys": listed(wanted)})
        if rng.random() < 0.5:
            return forms.chat([(f"{body}\n{wish}", lines)], rng)
        return f"{rng.choice(HEADS)}{body}\n{wish}\n{lines}"
    return f"{rng.choice(HEADS)}{body}\n{lines}"


def to_answers(rng: random.Random) -> str:
    """Return a text and questions on it."""
    thing = MAKERS[rng.choice(KINDS)](rng)
    body, keys = told(thing, rng, 3)
    asked = rng.sample(keys, min(rng.choice((1, 1, 2, 3)), len(keys)))
    pairs = [(question(thing, key, rng), answer(thing, key, rng, 0.06)) for key in asked]
    if rng.random() < 0.2:
        first, *rest = pairs
        return forms.chat([(f"{rng.choice(HEADS)}{body}\n{first[0]}", first[1]), *rest], rng)
    return below(body, pairs, rng)


def below(body: str, pairs: Sequence[tuple[str, str]], rng: random.Random) -> str:
    """Return questions and answers below a text."""
    layout = expand(rng.choice(forms.QUESTION_ANSWER), rng)
    joint = rng.choice(("\n", "\n", "\n\n", " ")) if len(pairs) == 1 else rng.choice(("\n", "\n\n"))
    shown = (layout.replace("<q>", asked).replace("<a>", right).replace("..", ".") for asked, right in pairs)
    return joint.join([f"{rng.choice(HEADS)}{body}", *shown])


def of_two(rng: random.Random) -> str:
    """Return a text about two: the question, or the name in the record, says which of
    them is meant.
    """
    maker = MAKERS[rng.choice(("person", "person", "character", "order"))]
    things = [maker(rng), maker(rng)]
    kind = things[0].kind
    names = [thing.words[SUBJECT[kind]] for thing in things]
    texts = [told(thing, rng, 1) for thing in things]
    if (
        any(body.startswith(FIRST_PERSON) for body, _ in texts)
        or any(name not in body for name, (body, _) in zip(names, texts, strict=True))
        or names[0] == names[1]
    ):
        return of_two(rng)
    body = " ".join(body for body, _ in texts)
    which = rng.randrange(2)
    thing, keys = things[which], texts[which][1]
    others = [key for key in keys if key != SUBJECT[kind]]
    if rng.random() < 0.5 or not others:
        wanted = [SUBJECT[kind], *others]
        if rng.random() < 0.4 and others:
            both = [
                {key: each.values[key] for key in [SUBJECT[kind], *(k for k in said if k != SUBJECT[kind])]}
                for each, (_, said) in zip(things, texts, strict=True)
            ]
            return f"{rng.choice(HEADS)}{body}\nJSON: {dump(both, rng)}"
        head = rng.choice(("JSON: ", "JSON: ", f"{names[which]} as JSON: ", f"Extract the data of {names[which]}.\n"))
        return f"{rng.choice(HEADS)}{body}\n{head}{as_json(thing, wanted, rng, plain=True)}"
    pairs = []
    for key in rng.sample(others, min(rng.randint(1, 2), len(others))):
        label = LABELS.get(key, key)
        who = names[which]
        asked = question(thing, key, rng)
        if who not in asked and thing.words["first"] not in asked:
            asked = expand(f"What is the {label} of {who}?", rng)
        pairs.append((asked, answer(thing, key, rng, 0)))
    return below(body, pairs, rng)


def few_shot(rng: random.Random) -> str:
    """Return several texts of one kind with their records, all in one layout."""
    maker = MAKERS[rng.choice(KINDS)]
    head, tail = rng.choice(
        (("Text: ", "JSON: "), ("Text: ", "JSON: "), ("Input: ", "Output: "), ("Sentence: ", "Data: "))
    )
    compact = rng.random() < 0.3
    examples = []
    for _ in range(rng.randint(2, 4)):
        thing = maker(rng)
        body, keys = told(thing, rng, 1)
        record: dict[str, Value] = {key: thing.values[key] for key in keys}
        examples.append(f"{head}{body}\n{tail}{json.dumps(record, separators=(',', ':') if compact else None)}")
    return rng.choice(("\n", "\n\n")).join(examples)


def given_keys(rng: random.Random) -> str:
    """Return the request first, then texts, and from each the same single value."""
    maker = MAKERS[rng.choice(KINDS)]
    lines: list[str] = []
    wanted = ""
    count = rng.randint(1, 4)
    for _ in range(40):
        thing = maker(rng)
        body, keys = told(thing, rng, 1)
        wanted = wanted or rng.choice(keys)
        if wanted in keys:
            lines.append(f"Text: {body}\n{LABELS.get(wanted, wanted).capitalize()}: {text(thing.values[wanted])}")
        if len(lines) == count:
            break
    head = expand(
        rng.choice(("", "[Find|Extract|Give] the {key}[ in each text|].\n")), rng, {"key": LABELS.get(wanted, wanted)}
    )
    return head + rng.choice(("\n", "\n\n")).join(lines)


WAYS: tuple[tuple[Callable[[random.Random], str], int], ...] = (
    (to_json, 28),
    (to_lines, 10),
    (to_answers, 20),
    (of_two, 12),
    (contrasted, 14),
    (few_shot, 6),
    (given_keys, 10),
)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield texts and what they say, without end."""
    for way in rounds([way for way, times in WAYS for _ in range(times)], rng):
        yield way(rng)


MARK = re.compile(r"<(-?)(\w+):([^>]*)>")
ASKED = dict(line.split(": ", 1) for line in TABLES["asked"])
POOLS = dict(line.split(": ", 1) for line in HELD_OUT["pools"])
EVENT_CITY = "In which city will it take place?"
NUMBERS = {"age", "quantity", "level", "gold", "price"}


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield every value of the hand-written texts, asked for as JSON, as a line, as an
    answer or in chat.
    """
    number = 0
    for line in HELD_OUT["texts"]:
        found = [(match[2], match[3]) for match in MARK.finditer(line) if not match[1]]
        body = MARK.sub(lambda match: match[3], line)
        for index, (key, right) in enumerate(found):
            beside = [value for other, value in found if other not in NUMBERS and other != key]
            others = [match[3] for match in MARK.finditer(line) if match[2] == key and match[3] != right]
            if key in NUMBERS:
                others += [value for other, value in found if other in NUMBERS and other != key]
            elif not others:
                others = rng.sample(beside, min(1, len(beside)))
            pool = [value for value in POOLS[key].split("|") if value not in body]
            yield _item(number, body, found[: index + 1], [*others, *rng.sample(pool, min(4, len(pool)))], rng)
            number += 1


def _item(
    number: int,
    body: str,
    values: Sequence[tuple[str, str]],
    wrong: Sequence[str],
    rng: random.Random,
) -> Item:
    """Return the last value as an item in the layout of its turn; the values before it
    are in the record.
    """
    *before, (key, right) = values
    space, following = " ", ""
    asked = EVENT_CITY if key == "city" and "event" in dict(values) else ASKED[key]
    if number % 4 == 0 or (number % 4 == 2 and before):
        record = {name: int(value) if name in NUMBERS and value.isdigit() else value for name, value in before}
        so_far = f'{json.dumps(record)[:-1]}{", " if record else ""}"{key}":'
        wish = f"Extract {listed([name for name, _ in values])}.\n" if number % 8 == 4 else ""
        prompt = f"Text: {body}\n{wish}JSON: {so_far}"
        following = ","
        if key not in NUMBERS:
            prompt, space, following = f'{prompt} "', "", '"'
    elif number % 4 == 1:
        prompt = f"Text: {body}\nQuestion: {asked}\nAnswer:"
    elif number % 4 == 2:
        prompt = f"Text: {body}\n{LABELS.get(key, key).capitalize()}:"
    else:
        prompt = f"{forms.USER}{body}\n{asked}{forms.END}{forms.ASSISTANT}"
        space, following = "", "<|im_end|>"
    apart = [value for value in dict.fromkeys(wrong) if not value.startswith(right) and not right.startswith(value)][:3]
    gold = rng.randint(0, len(apart))
    choices = tuple(space + value for value in (*apart[:gold], right, *apart[gold:]))
    return Item("extraction", prompt, choices, gold, body, following)
