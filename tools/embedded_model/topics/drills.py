"""Many short answers in one document, for what takes long to learn: clauses and their
sentiment, messages and their intent, sums.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from embedded_model.phrases import Item, capital, expand, rounds
from embedded_model.topics import intents, sentiment
from embedded_model.topics.sentiment import NEGATIVE, NEUTRAL, POSITIVE, TABLES

REVIEW_LAYOUTS = (
    "Review: <r>\nSentiment: <a>",
    "Review: <r>\nSentiment: <a>",
    "[Text|Comment|Customer]: <r>\n[Sentiment|Label|Tone]: <a>",
    "<r>\n[Sentiment|Tone|Label]: <a>",
    "<r> [->|=>|:] <a>",
    "Q: Is this review positive or negative? <r>\nA: <a>",
    "Question: What is the sentiment of this review? <r>\nAnswer: <a>",
    '"<r>" [is|sounds] <a>',
    "[The review is|This is] <a>: <r>",
)


def clause(sign: str, domain: sentiment.Domain, rng: random.Random) -> str:
    """Return a plain sentence of the sign, or one written by hand."""
    if rng.random() < 0.5:
        return sentiment.written(sign, rng).text
    fields = sentiment.thing_fields(domain, rng)
    kind = rng.random()
    if sign == NEUTRAL:
        text = expand(rng.choice(TABLES["neutral clauses"]), rng, fields)
    elif kind < 0.12:
        text = expand(
            f"{{it}} {{was}} {rng.choice(sentiment.PRAISE if sign == POSITIVE else sentiment.BLAME)}", rng, fields
        )
    elif kind < 0.40:
        text = sentiment.aspect_clause(sign, domain, rng, fields, negate=False)
    elif kind < 0.50:
        text = sentiment.thing_clause(sign, rng, fields, negate=False)
    elif kind < 0.75:
        text = expand(rng.choice(domain.clauses[sign]), rng, fields)
    else:
        text = expand(rng.choice(TABLES["good clauses"] if sign == POSITIVE else TABLES["bad clauses"]), rng, fields)
    return capital(" ".join(text.split())) + rng.choice((".", ".", ".", "!", ""))


def reviews(signs: Iterator[str], domains: Iterator[sentiment.Domain], rng: random.Random) -> str:
    """Return three to nine sentences, each with its sentiment."""
    layout, gap = expand(rng.choice(REVIEW_LAYOUTS), rng), rng.choice(("\n", "\n\n"))
    drawn = [next(signs) for _ in range(rng.randint(3, 9))]
    if rng.random() < 0.25:
        return sentiment.chat([sentiment.Review(clause(sign, next(domains), rng), sign, 3) for sign in drawn], rng)
    return gap.join(layout.replace("<r>", clause(sign, next(domains), rng)).replace("<a>", sign) for sign in drawn)


def messages(drawn: Iterator[intents.Intent], rng: random.Random) -> str:
    """Return three to seven messages, each with its intent."""
    layout, gap = expand(rng.choice(intents.TABLES["layouts"]), rng), rng.choice(("\n", "\n\n"))
    chosen = [next(drawn) for _ in range(rng.randint(3, 7))]
    if rng.random() < 0.2:
        return intents.chat([(intent, intents.message(intent, rng)) for intent in chosen], rng)
    return gap.join(intents.fill(layout, intents.message(intent, rng), intent.name) for intent in chosen)


def sums(rng: random.Random) -> str:
    """Return six to fourteen sums and differences up to 20."""
    ask, gap = (
        rng.choice(("{a} {sign} {b} = {c}", "{a}{sign}{b}={c}", "Q: {a} {sign} {b}?\nA: {c}")),
        rng.choice(("\n", "\n", ", ")),
    )
    gap = "\n" if "\n" in ask else gap
    lines = []
    for _ in range(rng.randint(6, 14)):
        larger = rng.randint(0, 20)
        smaller = rng.randint(0, larger)
        plus = rng.random() < 0.6
        words = (smaller, "+", larger - smaller, larger) if plus else (larger, "-", smaller, larger - smaller)
        lines.append(ask.format(a=words[0], sign=words[1], b=words[2], c=words[3]))
    return gap.join(lines)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield reviews, messages and sums, in turn by chance."""
    signs = rounds([POSITIVE] * 9 + [NEGATIVE] * 9 + [NEUTRAL] * 2, rng)
    domains = rounds(sentiment.DOMAINS, rng)
    drawn = rounds(list(intents.INTENTS.values()), rng)
    while True:
        kind = rng.random()
        if kind < 0.55:
            yield reviews(signs, domains, rng)
        elif kind < 0.83:
            yield messages(drawn, rng)
        else:
            yield sums(rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield nothing: sentiment, intents and numbers have held-out questions."""
    del rng
    yield from ()
