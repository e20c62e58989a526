"""Questions of `decide` about messages, reviews and facts, in the prompts that the
library itself writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from embedded_model import forms
from embedded_model.phrases import Fact, Item, capital, expand, rounds, wrong_answers
from embedded_model.tables import read
from embedded_model.topics import animals, calendar, countries, intents, numbers, sentiment, things, words, yes_no
from embedded_model.topics.sentiment import NEGATIVE, NEUTRAL, POSITIVE
from selectrie import Choice, DecisionParams, Option, Predicate, Score
from selectrie.decide.asks import ask_of
from selectrie.decide.templates import Page, page_of, values_of

TABLES: Final = read("typed_questions")
SIGNS: Final = (POSITIVE, NEGATIVE, NEUTRAL)
MOST_OPTIONS: Final = 12
UNHURRIED: Final = (
    "praise",
    "opening hours",
    "newsletter",
    "product question",
    "discount code",
    "gift card",
    "payment methods",
)
"""Intents of messages that can wait if they do not say otherwise."""
MOODY: Final = ("complaint", "praise")
"""Intents of messages that tell a mood by themselves."""
LEVELS: Final = ("can wait", "this week", "today")


@dataclass(frozen=True, slots=True)
class Case:
    """A question about a state, and the text of the option that answers it."""

    state: str
    question: Choice[str] | Predicate | Score
    answer: str


def instructions(kind: str, rng: random.Random, empty: float = 0.2) -> str:
    """Return the words of a question, or none."""
    return "" if rng.random() < empty else expand(rng.choice(TABLES[f"instructions: {kind}"]), rng)


def statement(kind: str, rng: random.Random, **fields: str) -> str:
    """Return a statement."""
    return capital(expand(rng.choice(TABLES[f"statements: {kind}"]), rng, fields))


def row(table: str, rng: random.Random) -> list[str]:
    """Return the cells of an entry."""
    return rng.choice(TABLES[table]).split("|")


Cases = Callable[[], Case]
"""Draws a question about one state."""


def predicate(state: str, text: str, rng: random.Random, *, true: bool) -> Case:
    """Return the case of a statement; now and then without its words, or with other
    words for yes and no.
    """
    yes, no = row("answers of predicates", rng)
    form = rng.random()
    if form < 0.03:
        question = Predicate(yes=yes, no=no, yes_when=text)
    elif form < 0.06:
        question = Predicate(text, yes=yes, no=no, yes_when="it is so", no_when="it is not so")
    else:
        question = Predicate(text, yes=yes, no=no)
    return Case(state, question, yes if true else no)


def choice(state: str, asked: str, answer: str, wrong: Sequence[str], rng: random.Random) -> Case:
    """Return the case of a choice, its options in random order."""
    return Case(state, Choice(asked, rng.sample([answer, *wrong], len(wrong) + 1)), answer)


# Messages


@dataclass(frozen=True, slots=True)
class Ticket:
    """A message, its intent, and, where they are known, whether its writer is angry and
    its level of urgency.
    """

    text: str
    intent: str
    is_angry: bool = False
    level: str = ""


def moody_ticket(name: str, rng: random.Random) -> Ticket:
    """Return a message with what an angry, calm or hurried customer adds."""
    text = intents.message(intents.INTENTS[name], rng)
    is_angry = rng.random() < 0.5
    parts = [text if text[-1] in ".?!" else f"{text}."]
    if is_angry:
        if rng.random() < 0.45 and text[-1] != "?":
            parts = [text.rstrip(".!") + expand(rng.choice(TABLES["angry endings"]), rng)]
        else:
            parts.insert(rng.choice((0, 1, 1, 1)), expand(rng.choice(TABLES["angry sentences"]), rng))
        if rng.random() < 0.25:
            parts.append(expand(rng.choice(TABLES["angry sentences"]), rng))
    elif rng.random() < 0.4:
        parts.append(expand(rng.choice(TABLES["calm sentences"]), rng))
    level = "today" if is_angry else "can wait" if name in UNHURRIED else "this week"
    if rng.random() < 0.5:
        level = rng.choice(LEVELS[1:] if is_angry else LEVELS)
        parts.insert(rng.randint(0, len(parts)), expand(rng.choice(TABLES[level]), rng))
    text = " ".join(parts)
    form = rng.random()
    text = text.lower() if form < 0.06 else text.upper() if form < 0.09 and is_angry else text
    return Ticket(text, name, is_angry, level)


def ticket(name: str, rng: random.Random) -> Ticket:
    """Return a message; to some, mood and hurry are added."""
    if rng.random() < 0.4 and name not in MOODY:
        return moody_ticket(name, rng)
    return Ticket(intents.message(intents.INTENTS[name], rng), name)


def intent_choice(of: Ticket, rng: random.Random) -> Case:
    """Ask which of two to twelve intents, or of all, a message has."""
    n_wrong = len(intents.NAMES) - 1 if rng.random() < 0.04 else rng.randint(1, MOST_OPTIONS - 1)
    wrong = wrong_answers(of.intent, intents.NAMES, rng, n_wrong)
    text = instructions("intents", rng)
    if rng.random() < 0.1:
        names = rng.sample([of.intent, *wrong[:5]], min(n_wrong, 5) + 1)
        options = [Option(name, None, intents.INTENTS[name].wants) for name in names]
        return Case(of.text, Choice(text, options), of.intent)
    return choice(of.text, text, of.intent, wrong, rng)


def intent_predicate(of: Ticket, rng: random.Random) -> Case:
    """Ask whether a message has an intent: its own, or another, often of its department."""
    true = rng.random() < 0.5
    own = intents.INTENTS[of.intent].department
    near = [name for name in intents.NAMES if name != of.intent and intents.INTENTS[name].department == own]
    others = near if near and rng.random() < 0.3 else [name for name in intents.NAMES if name != of.intent]
    claimed = of.intent if true else rng.choice(others)
    return predicate(of.text, statement("intents", rng, l=claimed, w=intents.INTENTS[claimed].wants), rng, true=true)


def department(of: Ticket, rng: random.Random) -> Case:
    """Ask which department a message is for, or whether it is for one."""
    right = intents.INTENTS[of.intent].department
    if rng.random() < 0.6:
        wrong = wrong_answers(right, intents.DEPARTMENTS, rng, rng.randint(1, 5))
        return choice(of.text, instructions("departments", rng, empty=0), right, wrong, rng)
    true = rng.random() < 0.5
    claimed = right if true else wrong_answers(right, intents.DEPARTMENTS, rng, 1)[0]
    return predicate(of.text, statement("departments", rng, l=claimed), rng, true=true)


def mood(of: Ticket, rng: random.Random) -> Case:
    """Ask whether the writer of a ticket is angry."""
    kind = "angry" if rng.random() < 0.75 else "calm"
    return predicate(of.text, statement(kind, rng), rng, true=of.is_angry == (kind == "angry"))


def urgency(of: Ticket, rng: random.Random) -> Case:
    """Ask how urgent a ticket is, or whether it is."""
    at = LEVELS.index(of.level)
    if at == 1 or rng.random() < 0.75:
        levels = row("levels: urgency", rng)
        return Case(of.text, Score(instructions("urgency", rng, empty=0.05), levels), levels[at])
    kind = rng.choice(("urgent", "not urgent"))
    return predicate(of.text, statement(kind, rng), rng, true=(kind == "urgent") == (at == 2))


def messages(rng: random.Random) -> Iterator[Cases]:
    """Yield questions about messages."""
    plain = {intent_choice: 5, intent_predicate: 14, department: 1}
    known = {**plain, mood: 7, urgency: 6}

    def cases(of: Ticket) -> Cases:
        kinds = known if of.level else plain
        return lambda: rng.choices(list(kinds), list(kinds.values()))[0](of, rng)

    return (cases(ticket(name, rng)) for name in rounds(intents.NAMES, rng))


# Reviews


def sentiment_choice(of: sentiment.Review, rng: random.Random) -> Case:
    """Ask which of two or three sentiments a review has."""
    labels = dict(zip(SIGNS, row("labels: sentiments", rng), strict=True))
    two = of.sign != NEUTRAL and rng.random() < 0.6
    wrong = [label for sign, label in labels.items() if sign != of.sign and not (two and sign == NEUTRAL)]
    return choice(of.text, instructions("sentiments", rng), labels[of.sign], wrong, rng)


def sentiment_predicate(of: sentiment.Review, rng: random.Random) -> Case:
    """Ask whether a review has a sentiment."""
    true = rng.random() < 0.5
    if of.sign != NEUTRAL and rng.random() < 0.25:
        kind = "pleased" if (of.sign == POSITIVE) == true else "displeased"
        return predicate(of.text, statement(kind, rng), rng, true=true)
    wrong = [sign for sign in SIGNS if sign != of.sign and (sign != NEUTRAL or rng.random() < 0.3)]
    claimed = of.sign if true else rng.choice(wrong)
    return predicate(of.text, statement("sentiments", rng, l=claimed), rng, true=true)


def satisfaction(of: sentiment.Review, rng: random.Random) -> Case:
    """Ask how good a review is, by three levels or by its stars."""
    text = instructions("satisfaction", rng, empty=0.1)
    if rng.random() < 0.3:
        levels, at = row("levels: stars", rng), of.stars - 1
    else:
        levels, at = row("levels: satisfaction", rng), (NEGATIVE, NEUTRAL, POSITIVE).index(of.sign)
    return Case(of.text, Score(text, levels), levels[at])


def reviews(rng: random.Random) -> Iterator[Cases]:
    """Yield questions about reviews, many of them written by hand."""
    kinds = {sentiment_choice: 5, sentiment_predicate: 8, satisfaction: 1}
    domains = rounds(sentiment.DOMAINS, rng)

    def cases(sign: str) -> Cases:
        domain = next(domains)
        of = sentiment.written(sign, rng) if rng.random() < 0.4 else sentiment.review(sign, domain, rng)
        return lambda: rng.choices(list(kinds), list(kinds.values()))[0](of, rng)

    return map(cases, rounds([POSITIVE] * 9 + [NEGATIVE] * 9 + [NEUTRAL] * 3, rng))


# Facts


def facts(rng: random.Random) -> Iterator[Cases]:
    """Yield questions about facts of all topics, numbers more often."""
    topics = {animals: 1.0, calendar: 1.2, countries: 2.0, numbers: 2.2, things: 1.2, words: 1.2}
    streams = [topic.known_facts(rng) for topic in topics]
    while True:
        fact = next(rng.choices(streams, list(topics.values()))[0])
        if fact.wrong:
            state = rng.choice(_states(fact))
            yield partial(_about_fact, fact, state, rng)


def _states(fact: Fact) -> Sequence[str]:
    """Return a fact as a question, as a sentence up to its answer, and as a key."""
    return fact.question, fact.question, fact.question, fact.statement, fact.statement, fact.key


def _about_fact(fact: Fact, state: str, rng: random.Random) -> Case:
    """Ask which answer is right, or whether one is."""
    if rng.random() < 0.78:
        wrong = fact.wrong[: rng.choice((1, 2, 3, 3, 3, 3))]
        return choice(state, instructions("facts", rng, empty=0.65), fact.answer, wrong, rng)
    true = rng.random() < 0.5
    answer = fact.answer if true else rng.choice(fact.wrong)
    return predicate(state, statement("facts", rng, a=answer), rng, true=true)


def claims(rng: random.Random) -> Iterator[Cases]:
    """Yield questions about what is true or not: facts with an answer, right or wrong,
    and what yes or no answers.
    """
    streams = [(wording, drawn(rng)) for _, wording, drawn, _ in yes_no.GROUPS]
    weights = [weight for weight, *_ in yes_no.GROUPS]
    while True:
        wording, stream = rng.choices(streams, weights)[0]
        claim = next(stream)
        if rng.random() < 0.6:
            state = yes_no.phrased(wording.questions, claim, rng)
            yield partial(_about_question, state, rng, is_yes=claim.true)
        else:
            state = yes_no.phrased(wording.claims, claim, rng)
            yield partial(_about_claim, state, rng, is_true=claim.true)


def _about_question(state: str, rng: random.Random, *, is_yes: bool) -> Case:
    """Ask for yes or no, or whether one of them is the answer."""
    right, wrong = ("yes", "no") if is_yes else ("no", "yes")
    if rng.random() < 0.65:
        return choice(state, instructions("yes or no", rng, empty=0.5), right, [wrong], rng)
    true = rng.random() < 0.5
    return predicate(state, statement("yes or no", rng, a=right if true else wrong), rng, true=true)


def _about_claim(state: str, rng: random.Random, *, is_true: bool) -> Case:
    """Ask whether a claim is true, or false."""
    kind = rng.choice(("true", "true", "untrue"))
    return predicate(state, statement(kind, rng), rng, true=is_true == (kind == "true"))


SOURCES: Final[Mapping[Callable[[random.Random], Iterator[Cases]], int]] = {
    messages: 44,
    reviews: 18,
    facts: 27,
    claims: 11,
}
"""What the documents are about, with shares."""


def written(page: Page, answer: str) -> str:
    """Return a page with its answer: turns of a chat in ChatML, or plain text."""
    if not page.is_chat:
        return page.text + answer + page.following
    turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}{forms.END}" for one in page.messages)
    return f"{turns}{forms.ASSISTANT}{page.assistant_prefix}{answer}{forms.END}"


def asked(
    case: Case, template: str, params: DecisionParams, *, is_reversed: bool = False, is_first: bool = True
) -> str:
    """Return the case as `decide` asks it, with its answer.

    is_reversed: with the last option listed first; is_first: with the state.
    """
    ask = ask_of(case.question, params)
    order = ask.orders[0][::-1] if is_reversed else ask.orders[0]
    page = page_of(template, case.question, values_of(ask, order), case.state if is_first else None)
    return written(page, case.answer)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield questions with their answers, without end: chats and plain pages, mostly of
    one question. State first, others may follow about the same message or review.
    """
    streams, weights = [source(rng) for source in SOURCES], list(SOURCES.values())
    while True:
        stream = rng.choices(streams, weights)[0]
        cases = next(stream)
        template = "chat" if rng.random() < 0.72 else "base"
        layout = "state first" if rng.random() < 0.7 else "questions first"
        params = DecisionParams(layout=layout, list_options=rng.random() > 0.05)
        may_go_on = layout == "state first" and stream in streams[:2]
        n = rng.randint(2, 5) if may_go_on and rng.random() < 0.6 else 1
        pieces = []
        for i in range(n):
            case = cases()
            is_reversed = isinstance(case.question, Predicate) and rng.random() < 0.25
            pieces.append(asked(case, template, params, is_reversed=is_reversed, is_first=i == 0))
        yield ("" if template == "chat" else "\n").join(pieces)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield nothing: `decisions` asks the held-out questions of the other topics."""
    del rng
    yield from ()
