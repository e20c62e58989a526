"""Ambiguity on purpose: categories whose likeliest member starts like a well-known thing of another kind.

"A city in India" is mostly New Delhi. If that is not a choice, but New York and Mumbai are, masking takes "New" and ends in
the wrong city, while comparing the whole texts finds the right one. The model sees the members of a category in proportion to their weights.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model import forms
from embedded_model.phrases import Fact, Item, a, capital, expand, rounds
from embedded_model.tables import read

TABLES = read("categories")
OTHER_KINDS = {"P": "AFH", "A": "HTP", "F": "HTP", "H": "AFT", "L": "HTP", "T": "HP", "E": "AFH"}


@dataclass(frozen=True, slots=True)
class Category:
    """A category and its members with their weights, the likeliest first. group: what confusable categories have in common."""

    kind: str
    article: str
    name: str
    members: tuple[str, ...]
    weights: tuple[int, ...]
    group: str

    @property
    def heavy(self) -> str:
        """Return the likeliest member."""
        return self.members[0]

    def noun(self, member: str) -> str:
        """Return a member as the subject of a sentence, with its article."""
        return {"n": member, "d": f"the {member}", "c": a(member)}[self.article]

    def fields(self, rng: random.Random) -> dict[str, str]:
        """Return what patterns may say of the category."""
        named = a(self.name)
        if self.name.startswith("thing ") and rng.random() < 0.5:
            named = self.name.replace("thing ", "something ", 1)
        if self.name.startswith("person who ") and rng.random() < 0.3:
            named = self.name.replace("person ", "somebody ", 1)
        the = "" if self.article == "n" else "the "
        return {"x": named, "X": capital(named), "c": self.name, "C": capital(self.name), "the": the}


def categories(table: str, *, pairs: bool = False) -> tuple[Category, ...]:
    """Return the categories of a table; grouped by first words, or by pairs of lines."""
    found = []
    for number, (code, name, listed) in enumerate(TABLES[table].rows(3)):
        parts = [member.rpartition(" ") for member in listed.split(", ")]
        members, weights = tuple(part[0] for part in parts), tuple(int(part[2]) for part in parts)
        group = f"pair {number // 2}" if pairs else members[0].replace("-", " ").split(" ")[0]
        found.append(Category(code[0], code[1], name, members, weights, group))
    return tuple(found)


LONG_ONES, SHORT_ONES, COMPOUND_ONES = categories("words"), categories("short"), categories("compounds", pairs=True)
ALL = LONG_ONES + SHORT_ONES + COMPOUND_ONES


def confusable(category: Category, *, among: tuple[Category, ...] = ALL) -> list[Category]:
    """Return the other categories whose likeliest member starts the same."""
    return [other for other in among if other.group == category.group and other is not category]


def strangers(category: Category, rng: random.Random, n: int) -> tuple[str, ...]:
    """Draw n lighter members of categories of quite another kind."""
    pool = sorted({m for other in ALL if other.kind in OTHER_KINDS[category.kind] for m in other.members[1:]})
    return tuple(rng.sample(pool, n))


def asked(category: Category, member: str, strange: list[str], rng: random.Random) -> Fact:
    """Return the category as a question whose answer is the member, in training
    phrasings.
    """
    fields = category.fields(rng)
    question = expand(rng.choice(TABLES["asked"]), rng, fields).strip()
    if rng.random() < 0.15:
        question = question.lower().rstrip("?.")
    # Letters and yes or no say little about how likely a member is, so most facts are asked without.
    wrong = (rng.choice(confusable(category)).heavy, *rng.sample(strange, 2)) if rng.random() < 0.25 else ()
    statement = capital(expand(rng.choice(TABLES["stated"]), rng, fields).strip())
    return Fact(question, statement, expand(rng.choice(TABLES["keys"]), rng, fields), member, wrong)


def about(category: Category, member: str, rng: random.Random) -> str:
    """Return plain sentences on what a member is, and what a thing that starts alike
    is.
    """
    other = rng.choice(confusable(category))
    fields, others = category.fields(rng), other.fields(rng)
    m, o = category.noun(member), other.noun(other.heavy)
    fields |= {"m": m, "M": capital(m), "bare": member, "o": o, "O": capital(o), "obare": other.heavy}
    return expand(rng.choice(TABLES["about"]), rng, fields | {"ox": others["x"], "oc": others["c"]})


def documents(rng: random.Random) -> Iterator[str]:
    """Yield questions for a member of a category, several of them in one layout, and
    sentences about what things are.
    """
    weighted = {
        category: rounds([m for m, n in zip(category.members, category.weights, strict=True) for _ in range(n)], rng)
        for category in ALL
    }
    named = {category: rounds(category.members, rng) for category in ALL}
    strange = {
        category: sorted({m for o in ALL if o.kind in OTHER_KINDS[category.kind] for m in o.members[1:]})
        for category in ALL
    }
    turn, told = rounds(ALL, rng), rounds(ALL, rng)

    def fact() -> Fact:
        category = next(turn)
        return asked(category, next(weighted[category]), strange[category], rng)

    while True:
        form = rng.random()
        if form < 0.62:
            yield forms.ask(fact(), rng)
        elif form < 0.80:
            yield forms.few_shot([fact() for _ in range(rng.randint(2, 6))], rng)
        else:
            category = next(told)
            yield about(category, next(named[category]), rng)


LAYOUTS = ("Q: <q>\nA:", "Question: <q>\nAnswer:", "<q>\nAnswer:", "Q: <q> A:", "Question: <q> Answer:")


def held_out_prompt(category: Category, way: str, number: int, rng: random.Random) -> tuple[str, str]:
    """Return (prompt, phrase) in a held-out phrasing. way: question, statement, key or
    chat.
    """
    fields = category.fields(rng)
    stated, keys, asked_for = (TABLES[f"{table}, held out"] for table in ("stated", "keys", "asked"))
    if way == "statement":
        phrase = expand(stated[number % len(stated)], rng, fields).strip()
        return phrase, phrase
    if way == "key":
        phrase = expand(keys[number % len(keys)], rng, fields) + ":"
        return phrase, phrase
    phrase = expand(asked_for[number % len(asked_for)], rng, fields)
    if way == "chat":
        return f"{forms.USER}{phrase}{forms.END}{forms.ASSISTANT}", phrase
    return LAYOUTS[number % len(LAYOUTS)].replace("<q>", phrase), phrase


def item(prompt: tuple[str, str], gold: str, wrong: tuple[str, ...], number: int, following: str = "") -> Item:
    """Return the item with its right choice at a place that goes round."""
    place = number % (len(wrong) + 1)
    space = "" if prompt[0].endswith("\n") else " "
    choices = tuple(space + choice for choice in (*wrong[:place], gold, *wrong[place:]))
    return Item("ambiguity", prompt[0], choices, place, prompt[1], following)


def traps(rng: random.Random) -> Iterator[tuple[Category, str, tuple[str, ...]]]:
    """Yield (category, a lighter member, wrong choices that begin like the likeliest
    member, which is not among them).
    """
    for category in ALL:
        # No choice of these continues another.
        rivals = [other for other in confusable(category) if other not in SHORT_ONES or category in SHORT_ONES]
        shared = rng.sample(rivals, min(len(rivals), rng.choice((1, 1, 2))))
        light = rng.choice(category.members[1:])
        yield category, light, (*(other.heavy for other in shared), *strangers(category, rng, rng.choice((0, 1, 2))))


def continued(rng: random.Random) -> Iterator[tuple[Category, str, tuple[str, ...]]]:
    """Yield (category, right choice, wrong choices) where one choice continues another
    one.
    """
    for number, short in enumerate(SHORT_ONES):
        rivals = [r for r in confusable(short) if r.heavy != short.heavy and r.heavy.startswith(short.heavy)]
        if not rivals:
            continue
        long = rng.choice(rivals)
        if number % 3 == 0:
            yield short, short.heavy, (long.heavy, *strangers(short, rng, 1))
        elif number % 3 == 1:
            yield long, long.heavy, (short.heavy, *strangers(long, rng, 1))
        if len(rivals) > 1 and (number % 3 == 2 or number % 2):
            asked_for = rng.choice(rivals)
            shared = [short.heavy, *(r.heavy for r in rivals if r is not asked_for)]
            yield asked_for, rng.choice(asked_for.members[1:]), tuple(shared[:3])


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield cases where the likeliest member is not a choice, as text and as chat, and
    cases where one choice continues another.
    """
    ways = ("question", "statement", "key", "question", "key")
    for number, (category, light, wrong) in enumerate(traps(rng)):
        shuffled = tuple(rng.sample(wrong, len(wrong)))
        yield item(held_out_prompt(category, ways[number % 5], number // 5, rng), light, shuffled, number)
    for number, (category, light, wrong) in enumerate(rng.sample(list(traps(rng)), 20)):
        yield item(held_out_prompt(category, "chat", number, rng), light, wrong, number)
    for number, (category, gold, wrong) in enumerate(continued(rng)):
        way = ("question", "statement", "key")[number % 3]
        following = "." if way == "statement" else "\n"
        yield item(held_out_prompt(category, way, number // 3, rng), gold, wrong, number, following)
