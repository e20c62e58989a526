"""Messages of customers to a shop, what they want, and which department answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from embedded_model import forms
from embedded_model.phrases import Item, a, capital, expand, rounds, wrong_answers
from embedded_model.tables import cells, read

TABLES: Final = read("intents")
HELD_OUT_LAYOUTS: Final = (
    # The first four are layouts of the training text; it never uses the others.
    "Message: <m>\nIntent:",
    "Ticket: <m>\nTopic:",
    f"{forms.USER}What is this message about?\n<m>{forms.END}{forms.ASSISTANT}",
    "Customer: <m>\nWhat does the customer want?",
    "Customer message: <m>\nTopic of this message:",
    "A customer writes: <m>\nThe topic is:",
    "Read the message.\nMessage: <m>\nWhat is the intent? Answer:",
    f"{forms.USER}A customer writes: <m>\nWhat does the customer want?{forms.END}{forms.ASSISTANT}",
)
HELD_OUT_DEPARTMENT_LAYOUTS: Final = (
    "Customer: <m>\nDepartment:",
    "Read the message.\nMessage: <m>\nDepartment:",
    "A customer writes: <m>\nDepartment:",
)


@dataclass(slots=True)
class Intent:
    """Something a customer may want, the department that handles it, and the patterns of its messages."""

    name: str
    department: str
    wants: str
    patterns: list[str]


def intents() -> dict[str, Intent]:
    """Return the intents of the table of messages, by name."""
    found = [Intent(*cells(title), patterns) for title, patterns in read("intent_messages").items()]
    return {intent.name: intent for intent in found}


INTENTS: Final = intents()
NAMES: Final = tuple(INTENTS)
DEPARTMENTS: Final = tuple(sorted({intent.department for intent in INTENTS.values()}))
STREETS, TIMES = TABLES["streets"], TABLES["times"]
PRODUCTS, PAIRS, CITIES, PEOPLE = (TABLES[table].words() for table in ("products", "pairs", "cities", "names"))
CURRENCIES: Final = ("euros", "dollars", "pounds")
SHORT_FORMS: Final = (("please", "pls"), ("thank you", "thx"), ("I am", "im"), ("cannot", "cant"), ("do not", "dont"))


def plural(noun: str) -> str:
    """Return the plural of a product."""
    if noun == "knife":
        return "knives"
    return noun + ("es" if noun.endswith(("s", "h", "x")) else "s")


def message_fields(rng: random.Random) -> dict[str, str]:
    """Return the names and numbers of one message."""
    product, second = rng.sample(PRODUCTS, 2)
    return {
        "product": product,
        "products": plural(product),
        "product2": second,
        "a_product": rng.choice((a(product), a(product), a(f"new {product}"), rng.choice(PAIRS))),
        "a_product2": a(second),
        "pair": rng.choice(PAIRS),
        "city": rng.choice(CITIES),
        "address": f"{rng.randint(1, 99)} {rng.choice(STREETS)}",
        "time": rng.choice(TIMES),
        "number": str(rng.randint(1000, 99999)),
        "amount": f"{rng.randint(5, 90)} {rng.choice(CURRENCIES)}",
        "name": rng.choice(PEOPLE),
    }


def sentence(text: str) -> str:
    """Return the text tidied, with a capital and a mark at its end."""
    text = " ".join(text.split()).replace(" ,", ",").replace(" ?", "?").replace(" .", ".").strip()
    return capital(text if text.endswith((".", "?", "!")) else text + ".")


def message(intent: Intent, rng: random.Random) -> str:
    """Return a message of the intent: its core, perhaps behind a greeting and a
    background, perhaps before thanks.
    """
    fields = message_fields(rng)
    core = expand(rng.choice(intent.patterns), rng, fields)
    form = rng.random()
    if form < 0.30:
        return sloppy(" ".join(core.split()).replace(" ,", ",").replace(" ?", "?"), rng)
    if form < 0.36 and core.split()[0] not in {"I", "I'm"} and "please" not in core and not core.endswith("?"):
        core = rng.choice(("{} please", "{}, please", "{}, thanks")).format(core)
    parts = [sentence(core)]
    if rng.random() < 0.22:
        other = expand(rng.choice(intent.patterns), rng, fields)
        if other != core:
            parts.append(sentence(other))
    if rng.random() < 0.28:
        background = sentence(expand(rng.choice(TABLES["backgrounds"]), rng, fields))
        parts.insert(0 if rng.random() < 0.8 else len(parts), background)
    if rng.random() < 0.22:
        parts.append(expand(rng.choice(TABLES["thanks"]), rng, fields))
    if rng.random() < 0.28:
        greeting = expand(rng.choice(TABLES["greetings"]), rng)
        mark = rng.choice((", ", ", ", "! ", ". ", ": "))
        if mark in {", ", ": "} and not parts[0].startswith(("I ", "My name", "I'm")):
            parts[0] = parts[0][0].lower() + parts[0][1:]
        parts[0] = greeting + mark + parts[0]
    text = " ".join(parts)
    return text.lower() if rng.random() < 0.08 else text


def sloppy(core: str, rng: random.Random) -> str:
    """Return the core as people type in a hurry: lower case, marks left out, short
    forms.
    """
    text = core.rstrip(".?!") if rng.random() < 0.6 else core
    if rng.random() < 0.3:
        for long, short in SHORT_FORMS:
            text = text.replace(long, short)
    if rng.random() < 0.25:
        text = rng.choice(("hi ", "hello ", "hi, ", "hey ", "ok ", "sorry ", "please help, ")) + text
    return text.lower() if rng.random() < 0.8 else capital(text)


def listed(name: str, rng: random.Random) -> str:
    """Return some labels in random order, the right one among them."""
    names = [name, *wrong_answers(name, NAMES, rng, rng.randint(3, 7))]
    rng.shuffle(names)
    return ", ".join(names)


def fill(pattern: str, text: str, name: str) -> str:
    """Return a layout with its message and label."""
    return pattern.replace("<m>", text).replace("<i>", name)


def chat(pairs: list[tuple[Intent, str]], rng: random.Random) -> str:
    """Return a conversation that asks for the intent of each message."""
    if rng.random() < 0.65:
        names = list(dict.fromkeys(intent.name for intent, _ in pairs))
        names += [name for name in wrong_answers("", NAMES, rng, rng.randint(3, 7)) if name not in names]
        if rng.random() < 0.06:
            names = list(NAMES)
        rng.shuffle(names)
        system = expand(rng.choice(TABLES["systems"]), rng).replace("<l>", ", ".join(names))
        talk = (f"{forms.USER}{text}{forms.END}{forms.ASSISTANT}{intent.name}{forms.END}" for intent, text in pairs)
        return f"{forms.SYSTEM}{system}{forms.END}{''.join(talk)}".rstrip("\n")
    question = expand(rng.choice(TABLES["chat questions"]), rng)
    return forms.chat([(fill(question, text, ""), intent.name) for intent, text in pairs], rng).rstrip("\n")


def single(intent: Intent, rng: random.Random) -> str:
    """Return a document on one message."""
    text = message(intent, rng)
    kind = rng.random()
    if kind < 0.14:
        question = rng.choice(("What is this message about?", "What does the customer want?", "What is the intent?"))
        asked = rng.choice((f"{question} {text}", f"{text}\n{question}", f"Message: {text}\n{question}"))
        return forms.lettered(asked, intent.name, wrong_answers(intent.name, NAMES, rng), rng)
    if kind < 0.24:
        reply = expand(rng.choice(TABLES["replies"]), rng).replace("<w>", intent.wants).replace("<i>", intent.name)
        mark = rng.choice(
            ("Customer: <m>\nAnswer: ", "Customer: <m>\nShop: ", f"{forms.USER}<m>{forms.END}{forms.ASSISTANT}")
        )
        return mark.replace("<m>", text) + reply
    if kind < 0.34:
        layout = expand(rng.choice(TABLES["list layouts"]), rng).replace("<l>", listed(intent.name, rng))
        return fill(layout, text, intent.name)
    if kind < 0.40:
        return f"Message: {text}\nIntent: {intent.name}\nDepartment: {intent.department}"
    return fill(expand(rng.choice(TABLES["layouts"]), rng), text, intent.name)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield messages of every intent equally often, alone or a few below one another,
    each with its label.
    """
    drawn = rounds(list(INTENTS.values()), rng)
    while True:
        form = rng.random()
        if form < 0.56:
            yield single(next(drawn), rng)
            continue
        number = 1 if rng.random() < 0.5 else rng.randint(2, 5)
        pairs = [(intent, message(intent, rng)) for intent in (next(drawn) for _ in range(number))]
        if form < 0.72:
            yield chat(pairs, rng)
        elif form < 0.86:
            layout = expand(rng.choice(TABLES["department layouts"]), rng)
            yield "\n\n".join(fill(layout, text, intent.department) for intent, text in pairs)
        else:
            layout, gap = expand(rng.choice(TABLES["layouts"]), rng), rng.choice(("\n", "\n\n"))
            yield gap.join(fill(layout, text, intent.name) for intent, text in pairs)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield messages written by hand, most with four to eight labels, some with all,
    some with the departments.
    """
    layouts, departments = rounds(HELD_OUT_LAYOUTS, rng), rounds(HELD_OUT_DEPARTMENT_LAYOUTS, rng)
    messages = [(name, text) for name, section in read("intents_held_out").items() for text in section]
    for turn, (name, text) in enumerate(messages):
        if turn % 7 == 6:
            layout, right, others = next(departments), INTENTS[name].department, list(DEPARTMENTS)
            others.remove(right)
        else:
            layout, right = next(layouts), name
            n_wrong = len(NAMES) - 1 if turn % 7 == 3 else rng.randint(3, 7)
            others = list(wrong_answers(name, NAMES, rng, n_wrong))
        gold = (turn // 7 if turn % 7 == 6 else turn) % (len(others) + 1)
        names = [*others[:gold], right, *others[gold:]]
        prompt = layout.replace("<m>", text)
        lead = "" if prompt.endswith("\n") else " "
        yield Item("intents", prompt, tuple(lead + each for each in names), gold, text)
