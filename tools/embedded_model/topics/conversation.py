"""Talk: greetings, who one speaks with, plain answers, instructions with a set of allowed answers, and names that come back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from embedded_model.forms import ASSISTANT, END, SYSTEM, USER, chat
from embedded_model.phrases import Item, a, expand, rounds, wrong_answers
from embedded_model.tables import read
from embedded_model.topics.stories import (
    ARTICLES,
    BOYS,
    GIRLS,
    HOW_TO_LIST,
    PETS,
    STORY_PLOTS,
    THING_LIST,
    advice,
    story,
    tidy,
)

KIND = "conversation"
NAMES = GIRLS + BOYS
WHO = "I am a very small language model that comes with selectrie."
TABLES = read("conversation")
UNCOUNTED = ("drink", "colour", "number", "day", "month", "metal", "sport", "season", "kind of weather")
REMEMBERED = ("{name}", "{pet}", "{colour}", "{food}", "{age}", "{home}", "thing}")
ANIMALS, COLOURS, FOODS, DWELLINGS = (TABLES[table] for table in ("animals", "colours", "foods", "dwellings"))
AGES = TABLES["ages"].words()
LONG_SYSTEM, CHOICE_SYSTEM = TABLES["system, long answers"], TABLES["system, choices"]
OVERLAP = {frozenset(pair.split("/")) for pair in TABLES["overlapping kinds"]}
STORY_TOPICS = dict(TABLES["topics of stories"].rows(2))
HERO_TOPICS = {"child": "a child", "animal": "an animal", "villager": "a village", "robot": "a robot"}
TALK, WHY_ROWS, SAY_ROWS = (TABLES[table].rows(2) for table in ("small talk", "why", "say"))
MEMORY_ROWS, SCENE_ROWS, ONE_OF_ROWS = TABLES["memory"].rows(5), TABLES["scenes"].rows(3), TABLES["one of"].rows(3)
YES_NO_ROWS = [(question, answer) for answer in ("yes", "no") for question in TABLES[answer]]
KIND_ROWS = [(*head.partition(", ")[::2], members.split()) for head, members in TABLES["kinds"].rows(2)]


def dialogue(turns: list[tuple[str, str]], rng: random.Random, systems: Sequence[str] = tuple(LONG_SYSTEM)) -> str:
    """Return turns in ChatML, or now and then as a script, some behind a system message
    that suits the answers.
    """
    if rng.random() < 0.12:
        you, me = rng.choice((("User", "Assistant"), ("You", "Me"), ("A", "B"), ("Question", "Answer")))
        return "\n".join(f"{you}: {user}\n{me}: {answer}" for user, answer in turns)
    system = f"{SYSTEM}{expand(rng.choice(systems), rng)}{END}" if rng.random() < 0.4 else ""
    return (system + "".join(f"{USER}{user}{END}{ASSISTANT}{answer}{END}" for user, answer in turns)).rstrip("\n")


def listed(options: list[str], last: str = "or") -> str:
    """Return the options as `red, green or blue`."""
    return f"{', '.join(options[:-1])} {last} {options[-1]}"


def with_options(pattern: str, fields: dict[str, str], options: list[str], rng: random.Random) -> str:
    """Return a pattern that names the allowed answers."""
    s = listed(options)
    fields = fields | {"s": s, "s_cap": s[0].upper() + s[1:], "c": ", ".join(options)}
    text = expand(pattern, rng, fields)
    return ARTICLES.sub(r"\1n ", text) if text[:1].islower() else tidy(text)


def small_talk(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """Return a turn of small talk."""
    return closed(expand(row[0], rng)), expand(row[1], rng)


def closed(text: str) -> str:
    """Return a text without the space that an empty alternative leaves before a full
    stop.
    """
    return text.replace(" .", ".").replace(" ?", "?").replace("  ", " ")


def choose_one(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """Return a question with its allowed answers."""
    question, answer, wrong = row
    options = [answer, *rng.sample(wrong.split(";"), rng.randint(1, 3))]
    rng.shuffle(options)
    return with_options(rng.choice(TABLES["choose one"]), {"q": question}, options, rng), answer


def strangers(kind: str) -> list[tuple[str, str, list[str]]]:
    """Return the kinds that share nothing with a kind."""
    return [row for row in KIND_ROWS if row[0] != kind and frozenset((row[0], kind)) not in OVERLAP]


def which_kind(rng: random.Random, row: tuple[str, str, list[str]], patterns: list[str]) -> tuple[str, str, list[str]]:
    """Return a request for the word that is of a kind, its answer and its options."""
    answer = rng.choice(row[2])
    options = [answer] + [rng.choice(other[2]) for other in rng.sample(strangers(row[0]), rng.randint(2, 3))]
    rng.shuffle(options)
    return with_options(rng.choice(patterns), {"k": row[0], "ks": row[1]}, options, rng), answer, options


def odd_one(rng: random.Random, row: tuple[str, str, list[str]]) -> tuple[str, str]:
    """Return a request for the word that is not of a kind, and its answer."""
    answer = rng.choice(rng.choice(strangers(row[0]))[2])
    options = [answer, *rng.sample(row[2], 3)]
    rng.shuffle(options)
    return with_options(rng.choice(TABLES["odd one"]), {"k": row[0], "ks": row[1]}, options, rng), answer


def yes_no(rng: random.Random, row: tuple[str, str]) -> tuple[str, str]:
    """Return a question to be answered with yes or no."""
    pattern = rng.choice(TABLES["yes or no"])
    answer = row[1].capitalize() if "Yes or no" in pattern or "yes" not in pattern else row[1]
    return expand(pattern, rng, {"q": row[0], "q_cap": row[0][0].upper() + row[0][1:]}), answer


def member(rng: random.Random, row: tuple[str, str, list[str]]) -> tuple[str, str]:
    """Return a question whether something is of a kind, and its answer."""
    true = rng.random() < 0.5
    kind, _, members = row if true else rng.choice(strangers(row[0]))
    thing = rng.choice(members)
    return f"is {thing if kind in UNCOUNTED else a(thing)} {a(row[0])}", "yes" if true else "no"


def remembered(rng: random.Random) -> dict[str, str]:
    """Return what a user may say about himself or herself."""
    thing = rng.choice(THING_LIST)
    return {
        "name": rng.choice(NAMES),
        "pet": rng.choice(PETS),
        "animal": rng.choice(ANIMALS),
        "colour": rng.choice(COLOURS),
        "food": rng.choice(FOODS),
        "age": rng.choice(AGES),
        "home": rng.choice(DWELLINGS),
        "thing": thing,
        "a_thing": a(thing),
    }


def memory(rng: random.Random, told: list[list[str]]) -> list[tuple[str, str]]:
    """Return one or two statements, some talk in between, and a question for each that
    the first turns answer.
    """
    fields = remembered(rng)
    turns, later = [], []
    for said, reply, question, full, short in told:
        turns.append((closed(tidy(expand(said, rng, fields))), tidy(expand(reply, rng, fields))))
        answer = tidy(expand(full, rng, fields)) if rng.random() < 0.6 else expand(short, rng, fields)
        later.append((expand(question, rng, fields), answer))
    turns += [small_talk(rng, rng.choice(TALK)) for _ in range(rng.choice((0, 0, 1, 2)))]
    return turns + rng.sample(later, len(later))


def scene(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """Return a sentence or two and a question about them."""
    n, f = rng.sample(NAMES, 2)
    o, x = rng.sample(THING_LIST, 2)
    fields = {"n": n, "f": f, "o": o, "a_o": a(o), "a_x": a(x)}
    text, question, answer = (part.format(**fields) for part in (row[0], rng.choice(row[1].split(";")), row[2]))
    sentences = text.split(". ")
    if len(sentences) == 2 and rng.random() < 0.5:
        text = f"{sentences[1].rstrip('.')}. {sentences[0]}."
    choice = f" {listed(rng.sample([n, f], 2)).replace(',', '')}?" if answer in (n, f) and rng.random() < 0.3 else ""
    return f"{text} {question}{choice}", answer


def say(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """Return a request to repeat a word, and the answer."""
    w, x = rng.sample([*THING_LIST, *COLOURS, *ANIMALS, *NAMES], 2)
    return expand(row[0], rng, {"w": w, "x": x}), row[1].format(w=w)


def told_story(rng: random.Random) -> tuple[str, str]:
    """Return a request for a story, and a story about what was asked for."""
    plot = rng.choice(STORY_PLOTS)
    kind = rng.choice(plot.suits)
    topic = rng.choice((STORY_TOPICS[plot.name], HERO_TOPICS[kind]))
    return expand(rng.choice(TABLES["ask for a story"]), rng, {"t": topic}), story(rng, plot, kind)


def why_asked(rng: random.Random, row: list[str]) -> tuple[str, str]:
    """Return a question with "why", direct, or as a part of a sentence if the verb allows
    it.
    """
    pattern = rng.choice(TABLES["ask why"])
    if row[0].startswith("do ") and rng.random() < 0.25:
        question = f"{rng.choice(('Tell me', 'Explain', 'Can you explain', 'Do you know'))} why {row[0][3:]}"
        question += "?" if "you" in question[:15] else "."
    else:
        question = expand(pattern, rng, {"t": row[0]})
    return question, rng.choice(row[1].split(";")) + "."


def free_talk(rng: random.Random) -> Iterator[str]:
    """Yield conversations whose answers are sentences: small talk, reasons, advice,
    stories.
    """
    talk, why, how = rounds(TALK, rng), rounds(WHY_ROWS, rng), rounds(HOW_TO_LIST, rng)
    while True:
        form = rng.random()
        if form < 0.50:
            yield dialogue([small_talk(rng, next(talk)) for _ in range(rng.choice((1, 1, 2, 3)))], rng)
        elif form < 0.73:
            yield dialogue([why_asked(rng, next(why))], rng)
        elif form < 0.90:
            name, todo = next(how)
            yield dialogue([(expand(rng.choice(TABLES["ask how"]), rng, {"t": name}), tidy(advice(todo, rng)))], rng)
        else:
            yield dialogue([told_story(rng)], rng)


def choices_asked(rng: random.Random) -> Iterator[str]:
    """Yield conversations whose answers are one of some words that the request names or
    implies.
    """
    polar, one_of, kinds = rounds(YES_NO_ROWS, rng), rounds(ONE_OF_ROWS, rng), rounds(KIND_ROWS, rng)
    while True:
        form = rng.random()
        if form < 0.26:
            claims = [
                next(polar) if rng.random() < 0.6 else member(rng, next(kinds)) for _ in range(rng.choice((1, 1, 2, 4)))
            ]
            yield dialogue([yes_no(rng, claim) for claim in claims], rng, CHOICE_SYSTEM[1:3])
        elif form < 0.67:
            yield dialogue([choose_one(rng, next(one_of)) for _ in range(rng.choice((1, 1, 1, 2)))], rng, CHOICE_SYSTEM)
        else:
            row = next(kinds)
            turn = odd_one(rng, row) if rng.random() < 0.2 else which_kind(rng, row, TABLES["which kind"])[:2]
            yield dialogue([turn], rng, CHOICE_SYSTEM)


def said_before(rng: random.Random) -> Iterator[str]:
    """Yield conversations whose answers repeat what the user said."""
    told, scenes, says = rounds(MEMORY_ROWS, rng), rounds(SCENE_ROWS, rng), rounds(SAY_ROWS, rng)
    while True:
        form = rng.random()
        if form < 0.56:
            first = next(told)
            other = rng.choice(MEMORY_ROWS)
            distinct = not any(field in first[0] and field in other[0] for field in REMEMBERED)
            yield dialogue(memory(rng, [first, other] if distinct and rng.random() < 0.5 else [first]), rng)
        elif form < 0.82:
            yield chat([scene(rng, next(scenes)) for _ in range(rng.choice((1, 1, 2)))], rng).rstrip("\n")
        else:
            yield chat([say(rng, next(says))], rng).rstrip("\n")


def documents(rng: random.Random) -> Iterator[str]:
    """Yield conversations: most of them ask for one of some answers or for something
    said before.
    """
    sources = (free_talk(rng), choices_asked(rng), said_before(rng))
    while True:
        yield next(rng.choices(sources, (0.30, 0.42, 0.28))[0])


def chat_item(turns: list[tuple[str, str]], request: str, choices: tuple[str, ...], phrase: str, place: int) -> Item:
    """Return an item in ChatML; choices come with the right one first, which goes to a
    position.
    """
    past = "".join(f"{USER}{user}{END}{ASSISTANT}{answer}{END}" for user, answer in turns)
    place %= len(choices)
    ordered = (*choices[1 : place + 1], choices[0], *choices[place + 1 :])
    return Item(KIND, f"{past}{USER}{request}{END}{ASSISTANT}", ordered, place, phrase)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield requests with allowed answers, and questions about what was said before, in
    words that `documents` does not combine.
    """
    made = 0
    choose, which, polar = (TABLES[f"held out: {table}"] for table in ("choose one", "which kind", "yes or no"))
    for question, answer, others in rng.sample(ONE_OF_ROWS, 24):
        wrong = others.split(";")
        options = rng.sample([answer, *wrong], 4)
        request = with_options(choose[made % len(choose)], {"q": question}, options, rng)
        yield chat_item([], request, (answer, *wrong), request, made)
        made += 1
    for row in rng.sample(KIND_ROWS, 16):
        answer = rng.choice(row[2])
        wrong = [rng.choice(other[2]) for other in rng.sample(strangers(row[0]), 3)]
        options = rng.sample([answer, *wrong], 4)
        request = with_options(which[made % len(which)], {"k": row[0], "ks": row[1]}, options, rng)
        yield chat_item([], request, (answer, *wrong), request, made)
        made += 1
    for i, (question, answer) in enumerate([*rng.sample(YES_NO_ROWS[:70], 6), *rng.sample(YES_NO_ROWS[-50:], 6)]):
        request = polar[i % len(polar)].format(q=question)
        yield chat_item([], request, (answer, "no" if answer == "yes" else "yes"), request, i // 3)
    for said, reply, asked, key in TABLES["held out: memory"].rows(4) * 3:
        fields = remembered(rng)
        pool = {"name": NAMES, "pet": PETS, "colour": COLOURS, "food": FOODS, "thing": THING_LIST, "age": AGES}[key]
        pool = [entry for entry in pool if entry.split()[-1] != fields[key].split()[-1]]
        choices = (fields[key], *wrong_answers(fields[key], pool, rng))
        first = tidy(said.format(**fields))
        yield chat_item([(first, tidy(reply.format(**fields)))], asked.format(**fields), choices, first, made)
        made += 1
