"""Short reviews, composed from tables, and whether they are positive, negative or neutral."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from embedded_model import forms
from embedded_model.phrases import Item, a, capital, expand, rounds
from embedded_model.tables import read

TABLES: Final = read("sentiment")
POSITIVE, NEGATIVE, NEUTRAL = "positive", "negative", "neutral"
ANSWERS: Final[Mapping[str, Mapping[str, str]]] = {
    "label": {POSITIVE: "positive", NEGATIVE: "negative", NEUTRAL: "neutral"},
    "Label": {POSITIVE: "Positive", NEGATIVE: "Negative", NEUTRAL: "Neutral"},
    "yes": {POSITIVE: "Yes", NEGATIVE: "No"},
    "low yes": {POSITIVE: "yes", NEGATIVE: "no"},
    "no": {POSITIVE: "No", NEGATIVE: "Yes"},
    "good": {POSITIVE: "good", NEGATIVE: "bad"},
    "happy": {POSITIVE: "happy", NEGATIVE: "unhappy"},
    "liked": {POSITIVE: "liked", NEGATIVE: "disliked"},
}
TURNS: Final = (
    ", but ", ", but ", ", but ", ". But ", ". However, ", ", however, ", ". Still, ", ", yet ", ", yet ", ". Even so, ",
    ". Nevertheless, ", ", but in the end ", ", and still ", ". Despite that, ", ", but overall ", ". All the same, ",
)  # fmt: skip
ALTHOUGH: Final = ("although", "even though", "though", "while")
LINKS: Final = (". ", ". ", ". ", ". ", " and ", ", and ", "! ", "; ", ", ")
OPENINGS: Final = (
    "Honestly, ", "To be honest, ", "Well, ", "Wow, ", "Hm, ", "So, ", "Update: ", "My opinion: ", "I must say: ",
)  # fmt: skip
HELD_OUT_LAYOUTS: Final = (
    # The first five are layouts of the training text; it never uses the others.
    "Review: <r>\nSentiment:",
    "Text: <r>\nLabel:",
    f"{forms.USER}Is this review positive or negative?\n<r>{forms.END}{forms.ASSISTANT}",
    "Question: What is the sentiment of this review? <r>\nAnswer:",
    "Customer: <r>\nSentiment:",
    "Here is a review: <r>\nThe review is",
    "Read the review. Is it positive or negative?\nReview: <r>\nAnswer:",
    "Customer opinion: <r>\nTone of the review:",
    f"{forms.USER}Here is what a customer wrote: <r> Is it positive or negative?{forms.END}{forms.ASSISTANT}",
    'A customer wrote: "<r>"\nThe sentiment of the customer is',
)


@dataclass(slots=True)
class Aspect:
    """Parts of a thing, with the adjectives that praise and that blame them."""

    nouns: list[str]
    good: list[str]
    bad: list[str]


@dataclass(slots=True)
class Domain:
    """What reviews are about."""

    things: list[str]
    aspects: list[Aspect] = field(default_factory=list)
    clauses: dict[str, list[str]] = field(default_factory=lambda: {POSITIVE: [], NEGATIVE: []})


def domains(sections: Mapping[str, Sequence[str]]) -> list[Domain]:
    """Return the domains of a file: `=` marks the parts of a thing, `+` and `-` clauses
    that praise and that blame it.
    """
    found: list[Domain] = []
    for things, lines in sections.items():
        domain = Domain(things.split(", "))
        for line in lines:
            mark, rest = line[0], line[2:]
            if mark == "=":
                domain.aspects.append(Aspect(*(column.split(", ") for column in rest.split(" | "))))
            else:
                domain.clauses[{"+": POSITIVE, "-": NEGATIVE}[mark]].append(rest)
        found.append(domain)
    return found


GOOD, BAD, VERY = (TABLES[table].words() for table in ("good", "bad", "very"))
SYSTEMS: Final = TABLES["systems"]
_BY_HAND: Final = [read("sentiment_goods"), read("sentiment_places"), read("sentiment_turns"), read("sentiment_plain")]
WRITTEN: Final = {
    sign: [review for table in _BY_HAND for review in table.get(sign, ())] for sign in (POSITIVE, NEGATIVE, NEUTRAL)
}
"""Whole reviews by sign, as patterns."""
PRAISE, BLAME = _BY_HAND[-1]["praise"], _BY_HAND[-1]["blame"]
DOMAINS: Final = domains(read("review_domains"))
LAYOUTS, CHATS = TABLES["layouts"].rows(2), TABLES["chat questions"].rows(2)
OPPOSITE: Final = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE}


def several(noun: str) -> str:
    """Return the plural of a noun of the tables."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith("fe"):
        return noun[:-2] + "ves"
    return noun if noun == "series" else noun + ("es" if noun.endswith(("s", "ss", "ch", "x", "sh")) else "s")


def thing_fields(domain: Domain, rng: random.Random) -> dict[str, str]:
    """Return the words for one thing of a domain that patterns need: its noun, pronouns
    and verbs that agree.
    """
    thing = rng.choice(domain.things)
    plural, thing = thing.endswith("*"), thing.rstrip("*")
    past = rng.random() < 0.6
    return {
        "thing": thing if not plural else f"pair of {thing}",
        "things": f"pairs of {thing}" if plural else several(thing),
        "a_thing": a(thing) if not plural else f"a pair of {thing}",
        "this": rng.choice((f"this {thing}", f"the {thing}")) if not plural else f"these {thing}",
        "it": "they" if plural else "it",
        "it_obj": "them" if plural else "it",
        "obj": "them" if plural else "it",
        "is": "are" if plural else "is",
        "was": ("were" if past else "are") if plural else ("was" if past else "is"),
        "werent": ("weren't" if past else "aren't") if plural else ("wasn't" if past else "isn't"),
        "very": rng.choice(VERY),
    }


def aspect_clause(sign: str, domain: Domain, rng: random.Random, fields: dict[str, str], *, negate: bool) -> str:
    """Return a clause on one part of the thing; negate: by denying the opposite."""
    aspect = rng.choice(domain.aspects)
    noun = rng.choice(aspect.nouns)
    plural, noun = noun.endswith("*"), noun.rstrip("*")
    own, general = (aspect.good, GOOD) if (sign == POSITIVE) != negate else (aspect.bad, BAD)
    adjectives = own if rng.random() < 0.65 else general
    adjective = rng.choice(adjectives)
    patterns = (
        TABLES["aspect"] if not negate else TABLES["aspect not bad"] if sign == POSITIVE else TABLES["aspect not good"]
    )
    other = rng.choice(domain.aspects)
    second_noun = rng.choice(other.nouns)
    second = rng.choice(other.good if aspect.good is own or adjectives is GOOD else other.bad)
    verb = ("were" if plural else "was") if rng.random() < 0.7 else ("are" if plural else "is")
    words = {
        "aspect": noun, "adj": adjective, "adj2": second, "were": verb, "have": "have",
        "aspect2": second_noun.rstrip("*"), "were2": "were" if second_noun.endswith("*") else "was",
        "gen": rng.choice(GOOD if adjectives is GOOD or own is aspect.good else BAD),
        "werent": {"were": "weren't", "was": "wasn't", "are": "aren't", "is": "isn't"}[verb],
    }  # fmt: skip
    pattern = rng.choice(patterns)
    if (second == adjective or second_noun.rstrip("*") == noun) and "2}" in pattern:
        pattern = patterns[0]
    return expand(pattern, rng, fields | words)


def thing_clause(sign: str, rng: random.Random, fields: dict[str, str], *, negate: bool) -> str:
    """Return a clause on the thing as a whole; negate: by denying the opposite."""
    adjective = rng.choice(GOOD if (sign == POSITIVE) != negate else BAD)
    patterns = (
        TABLES["thing"] if not negate else TABLES["thing not bad"] if sign == POSITIVE else TABLES["thing not good"]
    )
    phrase = f"{adjective} {fields['thing']}"
    words = {"adj": adjective, "a_adj_thing": f"a {phrase}" if adjective.startswith("use") else a(phrase)}
    return expand(rng.choice(patterns), rng, fields | words)


def turned(sign: str, rng: random.Random, fields: dict[str, str]) -> str:
    """Return a clause that sets what was expected against what came."""
    one, other = rng.choice(GOOD), rng.choice(BAD)
    adjective, denied = (one, other) if sign == POSITIVE else (other, one)
    return expand(rng.choice(TABLES["turned"]), rng, fields | {"adj": adjective, "other": denied})


def clause(sign: str, domain: Domain, rng: random.Random, fields: dict[str, str]) -> str:
    """Return one clause of the sign, without a capital or a full stop."""
    kind = rng.random()
    if sign == NEUTRAL:
        text = expand(rng.choice(TABLES["neutral clauses"]), rng, fields)
    elif kind < 0.08:
        text = expand(f"{{it}} {{was}} {rng.choice(PRAISE if sign == POSITIVE else BLAME)}", rng, fields)
    elif kind < 0.20:
        text = aspect_clause(sign, domain, rng, fields, negate=False)
    elif kind < 0.27:
        text = aspect_clause(sign, domain, rng, fields, negate=True)
    elif kind < 0.36:
        text = thing_clause(sign, rng, fields, negate=False)
    elif kind < 0.42:
        text = thing_clause(sign, rng, fields, negate=True)
    elif kind < 0.48:
        text = turned(sign, rng, fields)
    elif kind < 0.76:
        text = expand(rng.choice(domain.clauses[sign]), rng, fields)
    else:
        text = expand(rng.choice(TABLES["good clauses"] if sign == POSITIVE else TABLES["bad clauses"]), rng, fields)
    return text


def concession(sign: str, domain: Domain, rng: random.Random, fields: dict[str, str]) -> str:
    """Return the part of a review of the sign before its "but": often something mild."""
    if rng.random() < 0.45:
        words = {"good": rng.choice(GOOD), "bad": rng.choice(BAD)}
        return expand(
            rng.choice(TABLES["despite bad"] if sign == POSITIVE else TABLES["despite good"]), rng, fields | words
        )
    return clause(OPPOSITE[sign], domain, rng, fields)


def tidy(text: str, rng: random.Random) -> str:
    """Return the text without doubled blanks, each sentence behind a capital; now and
    then all in lower case.
    """
    text = " ".join(text.split()).replace(" ,", ",").replace(" .", ".").replace(" !", "!").replace(" ;", ";")
    for mark in (". ", "! "):
        text = mark.join(capital(part) for part in text.split(mark))
    return text.lower() if rng.random() < 0.12 else text


@dataclass(frozen=True, slots=True)
class Review:
    """A review, its sentiment and, in words a customer would choose, its stars."""

    text: str
    sign: str
    stars: int


def written(sign: str, rng: random.Random) -> Review:
    """Return a review written by hand, now and then two."""
    lines = rng.sample(WRITTEN[sign], 2 if rng.random() < 0.2 else 1)
    text = " ".join(expand(line, rng) for line in lines)
    if rng.random() < 0.15:
        text = rng.choice((text.lower(), text.rstrip("."), text.lower().rstrip(".")))
    return Review(" ".join(text.split()), sign, {POSITIVE: 5, NEGATIVE: 1, NEUTRAL: 3}[sign])


def review(sign: str, domain: Domain, rng: random.Random) -> Review:
    """Return a review of one to four clauses; in mixed ones the last clause decides."""
    fields = thing_fields(domain, rng)
    said: list[str] = []

    def say(which: str) -> str:
        while (text := clause(which, domain, rng, fields | {"very": rng.choice(VERY)})) in said:
            pass
        said.append(text)
        return text

    opening = rng.choice(OPENINGS) if rng.random() < 0.08 else ""
    end = rng.choice((".", ".", ".", ".", "!", ""))
    if rng.random() < 0.5:
        return written(sign, rng)
    if sign == NEUTRAL:
        if rng.random() < 0.35:
            first, second = rng.sample((POSITIVE, NEGATIVE), 2)
            closing = expand(rng.choice(TABLES["neutral closings"]), rng, fields)
            text = f"{say(first)}, but {say(second)}{rng.choice(('. ', ', '))}{closing}."
        else:
            text = ". ".join(say(NEUTRAL) for _ in range(rng.choice((1, 1, 2)))) + "."
        return Review(tidy(opening + text, rng), sign, 3)
    mixed = rng.random() < 0.25
    if mixed and rng.random() < 0.25:
        text = f"{rng.choice(ALTHOUGH)} {concession(sign, domain, rng, fields)}, {say(sign)}"
    elif mixed:
        text = concession(sign, domain, rng, fields) + rng.choice(TURNS) + say(sign)
        if rng.random() < 0.4:
            text += ". " + say(sign)
    else:
        text = say(sign)
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
            text += rng.choice(LINKS) + say(sign)
    stars = (4 if mixed else 5) if sign == POSITIVE else (2 if mixed else 1)
    return Review(tidy(opening + text + end, rng), sign, stars)


def starred(one: Review, rng: random.Random) -> str:
    """Return a review with its stars, and sometimes more of a form filled in."""
    word = "star" if one.stars == 1 else "stars"
    layout = rng.choice(
        (
            "Review: <r>\nStars: <n>",
            "Review: <r>\nRating: <n> <w>",
            "<r>\n<n> <w>",
            "<n> <w>: <r>",
            "Review: <r>\nHow many stars? <n>",
            "Review: <r>\nSentiment: <s>\nStars: <n>",
            "Stars: <n>\nReview: <r>\nSentiment: <s>",
            "Q: How many stars would this customer give? <r>\nA: <n>",
        )
    )
    return layout.replace("<r>", one.text).replace("<n>", str(one.stars)).replace("<w>", word).replace("<s>", one.sign)


def lettered(one: Review, rng: random.Random) -> str:
    """Return a question with lettered answers on one review."""
    question = rng.choice(TABLES["lettered questions"])
    names = [POSITIVE, NEGATIVE, NEUTRAL] if one.sign == NEUTRAL or rng.random() < 0.5 else [POSITIVE, NEGATIVE]
    wrong = tuple(name for name in names if name != one.sign)
    asked = rng.choice((f"{question} {one.text}", f"{question}\n{one.text}", f"Review: {one.text}\n{question}"))
    return forms.lettered(asked, one.sign, wrong, rng)


def draw_layout(table: list[list[str]], reviews: list[Review], rng: random.Random) -> tuple[Mapping[str, str], str]:
    """Return a layout whose answers fit all the reviews."""
    while True:
        name, pattern = rng.choice(table)
        answers = ANSWERS[name]
        if all(one.sign in answers for one in reviews):
            return answers, expand(pattern, rng)


def chat(reviews: list[Review], rng: random.Random) -> str:
    """Return a conversation that asks for the sentiment of each review."""
    answers, question = draw_layout(CHATS, reviews, rng)
    if answers is ANSWERS["label"] and rng.random() < 0.5:
        bare = rng.random() < 0.6
        system = f"{forms.SYSTEM}{expand(rng.choice(TABLES['systems']), rng)}{forms.END}"
        turns = [(one.text if bare else question.replace("<r>", one.text), answers[one.sign]) for one in reviews]
        talk = (f"{forms.USER}{asked}{forms.END}{forms.ASSISTANT}{answer}{forms.END}" for asked, answer in turns)
        return (system + "".join(talk)).rstrip("\n")
    full = rng.choice(("<a>", "<a>", "<a>.", "This review is <a>.")) if answers is ANSWERS["label"] else "<a>"
    turns = [(question.replace("<r>", one.text), full.replace("<a>", answers[one.sign])) for one in reviews]
    return forms.chat(turns, rng).rstrip("\n")


def document(reviews: list[Review], rng: random.Random) -> str:
    """Return one document on the reviews."""
    kind = rng.random()
    if kind < 0.17:
        return chat(reviews, rng)
    if len(reviews) == 1 and kind < 0.27:
        return starred(reviews[0], rng)
    if len(reviews) == 1 and kind < 0.33:
        return lettered(reviews[0], rng)
    answers, layout = draw_layout(LAYOUTS, reviews, rng)
    blank = rng.choice(("\n", "\n\n"))
    return blank.join(layout.replace("<r>", one.text).replace("<a>", answers[one.sign]) for one in reviews)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield reviews, composed for every domain equally often or written by hand, alone
    or a few below one another, each with its sentiment.
    """
    signs = rounds([POSITIVE] * 9 + [NEGATIVE] * 9 + [NEUTRAL] * 3, rng)
    topics = rounds(DOMAINS, rng)
    while True:
        number = 1 if rng.random() < 0.78 else rng.randint(2, 5)
        yield document([review(next(signs), next(topics), rng) for _ in range(number)], rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield reviews written by hand, in layouts of the training text and in layouts
    that it never uses.
    """
    layouts = rounds(HELD_OUT_LAYOUTS, rng)
    reviews = [(sign, text) for sign, section in read("sentiment_held_out").items() for text in section]
    for turn, (sign, text) in enumerate(reviews):
        prompt = next(layouts).replace("<r>", text)
        three = sign == NEUTRAL or rng.random() < 0.25
        others = [name for name in (POSITIVE, NEGATIVE, NEUTRAL) if name != sign and (three or name != NEUTRAL)]
        rng.shuffle(others)
        gold = turn % (len(others) + 1)
        names = [*others[:gold], sign, *others[gold:]]
        lead = "" if prompt.endswith("\n") else " "
        yield Item("sentiment", prompt, tuple(lead + name for name in names), gold, text)
