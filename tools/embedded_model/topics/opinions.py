"""Single reviews in many layouts, so that the model finds the sentiment of a text
whatever surrounds it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from embedded_model import forms
from embedded_model.phrases import Item, expand, rounds
from embedded_model.topics import sentiment
from embedded_model.topics.sentiment import NEGATIVE, NEUTRAL, POSITIVE

BEFORE: Final = (
    "[Review|Text|Comment|Feedback|Opinion|Message|Post|Note]: <r>",
    "[A guest|A reader|A visitor|A buyer|A user|A client|Somebody|One person] [writes|wrote|says|said|told us|posted]: <r>",
    '[A guest|A reader|A visitor|A buyer|A user|A client|Somebody|My neighbour] [writes|wrote|says|said]: "<r>"',
    "[Here is|This is|I found|Look at|We got|We received] [a comment|an opinion|some feedback|a text|a post]: <r>",
    "[Read|Judge|Label|Rate|Consider] [this|the following] [comment|opinion|text|feedback|review]. <r>",
    '[In the guest book|On the website|In a letter|In an email] [it says|somebody wrote]: "<r>"',
    '"<r>"',
    "<r>",
)
AFTER: Final = (
    "\n[Sentiment|Tone|Label|Mood|Opinion|Verdict|Feeling|Judgement|Class]: <a>",
    "\n[Sentiment|Tone|Label|Mood] of the [text|comment|writer|opinion|message]: <a>",
    "\n[The tone|The mood|The opinion|The feeling|The verdict|The comment|The text|The feedback] is <a>",
    "\n[The tone|The mood|The opinion|The feeling|The verdict] of the [writer|guest|buyer|text|comment] is <a>",
    " [This|It|The writer|The guest] [is|sounds|seems] <a>",
    "\n[This person|The writer|The buyer|Whoever wrote this] is <a>",
    "\n[Overall|In short|All in all|In one word][,|:] <a>",
    "\n[Is it|Is this|Is that|Would you call it] [positive or negative|negative or positive|positive, negative or neutral]? <a>",
    "\nQ: [Is the writer|Is the tone|Is the mood] positive or negative?\nA: <a>",
    " [->|=>|=]  <a>",
)
ASKED: Final = (
    "[Is it|Is this] [positive or negative|negative or positive]? [Text|Comment|Opinion]: <r>",
    "[Tell me|Say] [the tone|the mood|the sentiment] of [this|the following]: <r>",
    "<r>\n[Is that|Would you call that|Is this guest|Is the writer] [positive or negative|negative or positive]?",
    "<r>\n[Positive or negative|Negative or positive|What is the tone|What is the mood]?",
    '[A guest|A reader|A buyer] [says|wrote]: "<r>" [What is the tone|Is that positive or negative]?',
)


def document(one: sentiment.Review, rng: random.Random) -> str:
    """Return the review in a layout put together from what comes before it and after
    it, or in a chat.
    """
    if rng.random() < 0.25:
        return forms.chat([(expand(rng.choice(ASKED), rng).replace("<r>", one.text), one.sign)], rng).rstrip("\n")
    layout = expand(rng.choice(BEFORE) + rng.choice(AFTER), rng).replace("  ", " ")
    return layout.replace("<r>", one.text).replace("<a>", one.sign)


def documents(rng: random.Random) -> Iterator[str]:
    """Yield reviews without end: two in three written by hand."""
    signs = rounds([POSITIVE] * 9 + [NEGATIVE] * 9 + [NEUTRAL] * 3, rng)
    domains = rounds(sentiment.DOMAINS, rng)
    for sign in signs:
        domain = next(domains)
        by_hand = rng.random() < 0.67
        yield document(sentiment.written(sign, rng) if by_hand else sentiment.review(sign, domain, rng), rng)


def held_out(rng: random.Random) -> Iterator[Item]:
    """Yield nothing: sentiment has held-out questions."""
    del rng
    yield from ()
