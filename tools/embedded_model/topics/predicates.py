"""Statements about messages and reviews that are true or not, in the prompts of
`decide`, in levels.

From comparisons of all labels with all texts, the model learns nothing for long:
neither the text nor the statement alone says anything about the answer. On the first
level there is one label of a kind, so the text alone decides; the second level has a
few labels, not drawn evenly; the others have all of them, in few words or in many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from embedded_model.phrases import Item, expand, rounds
from embedded_model.topics import intents, sentiment, typed_questions
from embedded_model.topics.sentiment import NEGATIVE, NEUTRAL, POSITIVE
from embedded_model.topics.typed_questions import TABLES, Case, asked, predicate, statement
from selectrie import DecisionParams, Predicate

ALL: Final = len(intents.NAMES)


@dataclass(frozen=True, slots=True)
class Level:
    """What statements are about, and how varied they are.

    shares: of statements about intents, moods and reviews, and of questions about
    urgency. n_intents: how many intents they name. signs: how often they say that a
    review is negative, positive and neutral. calm: share of those on moods that say
    that a customer is calm. usual: share in the usual words. plain: share of chats, and
    of those with the state first. pleased: share of those on reviews that say whether
    the writer is pleased. turned: share with the answers in the other order. has_neutral:
    whether neutral reviews occur.
    """

    shares: tuple[int, int, int, int]
    n_intents: int = ALL
    signs: tuple[int, int, int] = (9, 9, 1)
    calm: float = 0.2
    usual: float = 0.6
    plain: float = 0.78
    pleased: float = 0.0
    turned: float = 0.2
    has_neutral: bool = True


LEVELS: Final[Mapping[int, Level]] = {
    1: Level((15, 30, 55, 0), 1, (1, 0, 0), calm=0.0, usual=1.0, plain=0.9, turned=0.0, has_neutral=False),
    2: Level((50, 15, 35, 0), 5, (6, 4, 0), calm=0.15, usual=1.0, plain=0.9, turned=0.0, has_neutral=False),
    3: Level((62, 12, 26, 0), calm=0.25, usual=0.45, pleased=0.12),
    4: Level((62, 8, 30, 0), calm=0.15, usual=0.85, plain=0.9, turned=0.0),
    5: Level((42, 10, 26, 22)),
    6: Level((28, 8, 54, 10), signs=(8, 8, 3)),
    7: Level((28, 8, 38, 26), signs=(8, 8, 2)),
}


def judged(state: str, kind: str, level: Level, rng: random.Random, *, true: bool, **fields: str) -> Case:
    """Return the case of a statement."""
    usual = expand(TABLES[f"statements: {kind}"][0], rng, fields)
    if level.usual == 1 or rng.random() < level.usual:
        return Case(state, Predicate(usual), "yes" if true else "no")
    return predicate(state, statement(kind, rng, **fields), rng, true=true)


def about_intents(rng: random.Random, level: Level) -> Iterator[Case]:
    """Yield statements on what a message wants, for each intent as often true as not; of
    those on a single intent, three in four are true.
    """
    names = intents.NAMES[:: ALL // level.n_intents][: level.n_intents]
    for name in rounds(names, rng):
        true = rng.random() < 0.5
        others = [other for other in (names if rng.random() < 0.5 else intents.NAMES) if other != name]
        own = name if true or not others else rng.choice(others)
        text = typed_questions.ticket(own, rng).text
        yield judged(text, "intents", level, rng, true=own == name, l=name, w=intents.INTENTS[name].wants)


def moody_tickets(rng: random.Random) -> Iterator[typed_questions.Ticket]:
    """Yield messages with a mood and a level of urgency."""
    for name in rounds([name for name in intents.NAMES if name not in typed_questions.MOODY], rng):
        yield typed_questions.moody_ticket(name, rng)


def about_moods(rng: random.Random, level: Level) -> Iterator[Case]:
    """Yield statements on whether a customer is angry, sometimes calm."""
    for of in moody_tickets(rng):
        kind = "calm" if rng.random() < level.calm else "angry"
        yield judged(of.text, kind, level, rng, true=of.is_angry == (kind == "angry"))


def about_reviews(rng: random.Random, level: Level) -> Iterator[Case]:
    """Yield statements on the sentiment of a review."""
    domains = rounds(sentiment.DOMAINS, rng)
    for sign in rounds([POSITIVE] * 9 + [NEGATIVE] * 9 + [NEUTRAL] * (2 if level.has_neutral else 0), rng):
        domain = next(domains)
        of = sentiment.written(sign, rng) if rng.random() < 0.5 else sentiment.review(sign, domain, rng)
        label = rng.choices((NEGATIVE, POSITIVE, NEUTRAL), level.signs)[0]
        if level.pleased and of.sign != NEUTRAL and rng.random() < level.pleased:
            true = rng.random() < 0.5
            kind = "pleased" if (of.sign == POSITIVE) == true else "displeased"
            yield predicate(of.text, statement(kind, rng), rng, true=true)
        else:
            yield judged(of.text, "sentiments", level, rng, true=of.sign == label, l=label)


def about_urgency(rng: random.Random, level: Level) -> Iterator[Case]:
    """Yield questions on how urgent a ticket is, the same on every level."""
    del level
    for of in moody_tickets(rng):
        yield typed_questions.urgency(of, rng)


SOURCES: Final = (about_intents, about_moods, about_reviews, about_urgency)


def documents(rng: random.Random, level: int) -> Iterator[str]:
    """Yield statements of a level with their answers, without end."""
    of = LEVELS[level]
    streams = [source(rng, of) for source in SOURCES]
    while True:
        case = next(rng.choices(streams, of.shares)[0])
        template = "chat" if rng.random() < of.plain else "base"
        params = DecisionParams(layout="state first" if rng.random() < of.plain else "questions first")
        may_turn = of.turned > 0 and isinstance(case.question, Predicate)
        yield asked(case, template, params, is_reversed=may_turn and rng.random() < of.turned)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield nothing: `decisions` asks the held-out questions of the other topics."""
    del rng
    yield from ()
