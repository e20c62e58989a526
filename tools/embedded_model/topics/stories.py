"""Plain English: short stories with a plot, paragraphs of everyday life, causes and
effects, and tools and places for a purpose.

A story draws its world once (hero, friend, elder, place, things) and keeps it
throughout, so names and things come back.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from embedded_model.forms import question_answer
from embedded_model.phrases import FIELD, Item, a, expand, rounds, wrong_answers
from embedded_model.tables import cells, read

KIND = "stories"
TABLES, EVERYDAY = read("stories"), read("everyday")
GIRLS, BOYS, PETS, TRAITS = (TABLES[table].words() for table in ("girls", "boys", "pets", "traits"))
HEROES = {kind: (girls.split(", "), boys.split(", ")) for kind, girls, boys in TABLES["heroes"].rows(3)}
GIVERS = TABLES["givers"]
PRONOUNS = {"F": ("she", "her", "her", "herself"), "M": ("he", "him", "his", "himself")}
HOURS = TABLES["hours"].words()
ALIKE = {thing: others.split(", ") for thing, others in TABLES["alike"].rows(2)}
CAPITALS = re.compile(r'(^|[.?!] "?|[.]" |: ")([a-z])')
ARTICLES = re.compile(r"\b([Aa]) (?=[aeiou]|honest|hour)")
SPACES = re.compile(r" {2,}")


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: the heroes it suits, the fields it draws, and its slots, each with the ways to tell it."""

    name: str
    suits: tuple[str, ...]
    drawn: tuple[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    slots: tuple[tuple[str, ...], ...]


def plots(name: str) -> list[Plot]:
    """Return the plots of a file: a section is a plot, a block of lines one of its
    slots.
    """
    found = []
    for head, section in read(name).items():
        title, *suits = head.split()
        drawn = []
        slots = []
        for block in section.blocks:
            ways = []
            for line in block:
                if line.startswith("$"):
                    names, _, values = line[1:].partition(" = ")
                    rows = tuple(tuple(value.strip() for value in row.split("/")) for row in values.split(";"))
                    drawn.append((tuple(names.split(", ")), rows))
                else:
                    ways.append(line)
            if ways:
                slots.append(tuple(ways))
        found.append(Plot(title, tuple(suits), tuple(drawn), tuple(slots)))
    return found


STORY_PLOTS, EVERYDAY_PLOTS = plots("story_plots"), plots("everyday_plots")
DAY_LIST = [day for line in TABLES["days"] for day in cells(line)]
GROUND_LIST = TABLES["grounds"].rows(4)
THING_LIST = TABLES["things"]
HOW_TO_LIST = [(name, steps.split(";")) for name, steps in EVERYDAY["how to"].rows(2)]
CAUSE_LIST = [(cause, effects.split(";")) for cause, effects in EVERYDAY["causes"].rows(2)]
PLACE_LIST = [(place, wishes.split(";"), there) for place, wishes, there in EVERYDAY["places"].rows(3)]
TOOL_LIST = [(tool, wishes.split(";")) for tool, wishes in EVERYDAY["tools"].rows(2)]


def tidy(text: str) -> str:
    """Return the text with single spaces and with capitals where sentences begin."""
    text = ARTICLES.sub(r"\1n ", SPACES.sub(" ", text).strip())
    return "\n".join(
        CAPITALS.sub(lambda match: match[1] + match[2].upper(), line) for line in map(str.strip, text.split("\n"))
    )


def with_article(fields: dict[str, str], *names: str) -> None:
    """Add `a_x` for each field x."""
    for name in names:
        fields[f"a_{name}"] = a(fields[name])


def world(rng: random.Random, kind: str) -> dict[str, str]:
    """Return the fields of a story: hero, friend, elder, place and things, drawn once."""
    sex, fsex = rng.choice("FM"), rng.choice("FM")
    name = rng.choice(GIRLS if sex == "F" else BOYS)
    friend = rng.choice([other for other in (GIRLS if fsex == "F" else BOYS) if other != name])
    others = HEROES["robot" if kind == "robot" and rng.random() < 0.3 else "child" if kind == "robot" else kind]
    elder = rng.choice(TABLES[f"elders: {kind}"])
    place, to, at, spots = rng.choice(GROUND_LIST)
    giver = rng.choice(GIVERS)
    fields = {"n": name, "f": friend, "p": place, "to": to, "at": at, "spot": rng.choice(spots.split(";"))}
    fields |= zip(("he", "him", "his", "him_self"), PRONOUNS[sex], strict=True)
    fields |= zip(("fhe", "fhim", "fhis"), PRONOUNS[fsex], strict=False)
    fields |= zip(("ehe", "ehim", "ehis"), PRONOUNS[elder[0]], strict=False)
    fields |= {"giver": giver[1:], "ghis": PRONOUNS[giver[0]][2], "pn": rng.choice(PETS), "hour": rng.choice(HOURS)}
    fields |= {"k": rng.choice(HEROES[kind][sex == "M"]), "fk": rng.choice(others[fsex == "M"])}
    aged = any(word in fields["k"] for word in ("old", "young", "little", "small"))
    traits = [trait for trait in TRAITS if not aged or trait not in ("young", "small")]
    fields |= {"trait": rng.choice(traits), "home": rng.choice(TABLES[f"homes: {kind}"])}
    fields["e"] = elder[1:].replace("{his}", fields["his"])
    fields["o"], fields["x"] = rng.sample(THING_LIST, 2)
    fields["a_o2"] = "a big umbrella"
    with_article(fields, "o", "x", "giver", "fk")
    capital(fields)
    return fields


def capital(fields: dict[str, str]) -> None:
    """Add the forms that begin a sentence after a quotation."""
    fields["E"] = fields["e"][0].upper() + fields["e"][1:]
    fields["At"] = fields["at"][0].upper() + fields["at"][1:]
    for name in ("home", "at", "fhis", "fhe", "a_o"):
        fields[f"{name}_cap"] = fields[name][0].upper() + fields[name][1:]


def drawn(plot: Plot, fields: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Return the world with the fields that the plot draws."""
    fields = dict(fields)
    for names, rows in plot.drawn:
        for name, value in zip(names, rng.choice(rows), strict=True):
            fields[name] = FIELD.sub(lambda match: fields[match[1]], value)
            with_article(fields, name)
    if "gift" in fields:
        fields["gift_cap"] = fields["gift"].capitalize()
    fields["day_low"] = rng.choice(("one day", "one morning", "that day"))
    capital(fields)
    return fields


def sentence(pattern: str, fields: dict[str, str], rng: random.Random) -> str:
    """Return a pattern told in a world; `{day}` is drawn each time."""
    if "{day}" in pattern:
        pattern = pattern.replace("{day}", rng.choice(DAY_LIST))
    return expand(pattern, rng, fields)


def story(rng: random.Random, plot: Plot | None = None, kind: str | None = None) -> str:
    """Return a short story of a plot."""
    plot = plot or rng.choice([p for p in STORY_PLOTS if kind is None or kind in p.suits])
    fields = drawn(plot, world(rng, kind or rng.choice(plot.suits)), rng)
    parts = [sentence(rng.choice(TABLES["openings"]), fields, rng)]
    if rng.random() < 0.5:
        parts.append(sentence(rng.choice(TABLES["extras"]), fields, rng))
    parts += [sentence(rng.choice(slot), fields, rng) for slot in plot.slots]
    ending = rng.random()
    if ending < 0.12:
        parts.append(
            rng.choice(("The end.", "And they lived happily ever after.", "And that is the end of the story."))
        )
    return tidy(("\n\n" if rng.random() < 0.12 else " ").join(parts))


def tiny_story(rng: random.Random) -> str:
    """Return two or three sentences in which a thing and a name come back."""
    return tidy(
        sentence(
            rng.choice(TABLES["scenes in which a thing comes back"]), world(rng, rng.choice(("child", "villager"))), rng
        )
    )


def paragraph(rng: random.Random, plot: Plot) -> str:
    """Return a paragraph of everyday life."""
    fields = drawn(plot, world(rng, rng.choice(("child", "villager"))), rng)
    return tidy(" ".join(sentence(rng.choice(slot), fields, rng) for slot in plot.slots))


def steps(name: str, todo: list[str], rng: random.Random) -> str:
    """Return how to do something, in steps."""
    form = rng.random()
    if form < 0.35:
        head = expand(
            rng.choice(("How to {n}:", "How [do you|can I|do I] {n}?", "This is how [you|to] {n}:")), rng, {"n": name}
        )
        mark = rng.choice(("{}. ", "{}) ", "Step {}: ", "- "))
        return tidy(
            head + "\n" + "\n".join(mark.format(i + 1) + step.capitalize() + "." for i, step in enumerate(todo))
        )
    return tidy(expand(rng.choice(("To {n}, ", "[If|When] you want to {n}, ")), rng, {"n": name}) + advice(todo, rng))


def advice(todo: list[str], rng: random.Random) -> str:
    """Return the steps in one or more sentences, the first in small letters."""
    joints = [rng.choice((". Then ", ". After that, ", ". Next, ", ", then ", " and ")) for _ in todo[2:]]
    text = rng.choice(("first ", "")) + todo[0] + "".join(j + s for j, s in zip(joints, todo[1:-1], strict=True))
    return text + rng.choice((". Finally, ", ". At the end, ", ". Then ")) + todo[-1] + "."


def cause(row: tuple[str, list[str]], rng: random.Random) -> str:
    """Return a cause and an effect of it."""
    girl = rng.random() < 0.5
    name, he = (rng.choice(GIRLS), "she ") if girl else (rng.choice(BOYS), "he ")
    pattern = rng.choice(CAUSE_LINES)
    c, e = row[0], rng.choice(row[1])
    if c.startswith("{n} ") and e.startswith("{n} ") and rng.random() < 0.8:
        if pattern.index("{c}") < pattern.index("{e}"):
            e = he + e[4:]
        else:
            c = he + c[4:]
    return tidy(expand(pattern, rng, {"c": c.replace("{n}", name), "e": e.replace("{n}", name)}))


def purpose(thing: str, wish: str, forms: list[str], rng: random.Random, there: str = "") -> str:
    """Return a sentence about a place or a tool and its purpose."""
    fields = world(rng, "child") | {"p": thing, "t": thing, "there": there, "w": wish}
    fields["in"] = "in" if thing in INSIDE else "at"
    fields["In"] = fields["in"].capitalize()
    for key, his in (("w", fields["his"]), ("wy", "your"), ("wo", "their"), ("wm", "my"), ("wf", fields["fhis"])):
        fields[key] = wish.replace("{his}", his)
    fields["a_t"] = thing if thing in PLAIN else a(thing)
    fields["a_t_cap"] = fields["a_t"][0].upper() + fields["a_t"][1:]
    return tidy(expand(rng.choice(forms), rng, fields))


CAUSE_LINES, PLACE_LINES, TOOL_LINES = (TABLES[f"{kind} forms"] for kind in ("cause", "place", "tool"))
INSIDE = ("kitchen", "bedroom", "bathroom", "forest", "library", "garage", "hotel", "castle")
PLAIN = ("scissors", "soap", "glasses", "glue")
TOOL_LINES_PLAIN = [line for line in TOOL_LINES if "{a_t} is" not in line]


def asked(tool: str, wish: str, rng: random.Random) -> str:
    """Return a purpose as a question and answer."""
    question = rng.choice(("What do you need to {}?", "What do you use to {}?", "which thing do you take to {}"))
    return question_answer(question.format(wish.replace("{his}", "your")), tool, rng)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield stories for the most part, with everyday paragraphs, small scenes and
    single sentences in between.
    """
    tales, days, todo = rounds(STORY_PLOTS, rng), rounds(EVERYDAY_PLOTS, rng), rounds(HOW_TO_LIST, rng)
    causes, places, tools = rounds(CAUSE_LIST, rng), rounds(PLACE_LIST, rng), rounds(TOOL_LIST, rng)
    while True:
        form = rng.random()
        if form < 0.20:
            yield story(rng, next(tales))
        elif form < 0.28:
            yield paragraph(rng, next(days))
        elif form < 0.32:
            yield steps(*next(todo), rng)
        elif form < 0.48:
            yield tiny_story(rng)
        elif form < 0.64:
            yield cause(next(causes), rng)
        elif form < 0.77:
            place, wishes, there = next(places)
            yield purpose(place, rng.choice(wishes), PLACE_LINES, rng, there)
        elif form < 0.90:
            tool, wishes = next(tools)
            if rng.random() < 0.15:
                yield asked(tool, rng.choice(wishes), rng)
            else:
                yield purpose(tool, rng.choice(wishes), TOOL_LINES_PLAIN if tool in PLAIN else TOOL_LINES, rng)
        else:
            fields = world(rng, "child")
            yield tidy(
                " ".join(expand(p, rng, fields) for p in rng.sample(TABLES["single sentences"], rng.randint(1, 3)))
            )


def held_item(prompt: str, answer: str, wrong: tuple[str, ...] | list[str], place: int, rng: random.Random) -> Item:
    """Return a prompt with its right continuation at a position of the choices."""
    choices = rng.sample(list(wrong), 3)
    choices.insert(place % 4, answer)
    return Item(KIND, prompt, tuple(f" {choice}" for choice in choices), place % 4, prompt)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield beginnings of stories and sentences; one of four continuations refers to
    the right name or thing, or makes sense.
    """
    made = 0
    for pattern, key in TABLES["held out: scenes"].rows(2) * 4:
        fields = world(rng, rng.choice(("child", "villager")))
        pool = THING_LIST if key == "o" else [name for name in GIRLS + BOYS if name != fields["f"]]
        pool = [thing for thing in pool if thing.split()[-1] != fields[key].split()[-1]]
        yield held_item(
            tidy(expand(pattern, rng, fields)), fields[key], wrong_answers(fields[key], pool, rng), made, rng
        )
        made += 1
    for table, forms in (
        ([(place, wishes) for place, wishes, _ in PLACE_LIST], TABLES["held out: places"]),
        (TOOL_LIST, TABLES["held out: tools"]),
    ):
        pool = [name for name, _ in table]
        for thing, wishes in rng.sample(table, 24):
            wrong = wrong_answers(thing, [name for name in pool if name not in ALIKE.get(thing, ())], rng)
            yield held_item(purpose(thing, wishes[0], [forms[made % len(forms)]], rng), thing, wrong, made, rng)
            made += 1
    for prompt, answer, *others in TABLES["held out: causes"].rows(5):
        yield held_item(tidy(expand(prompt, rng, world(rng, "child"))), answer, others, made, rng)
        made += 1
