"""Route support tickets to intents, and send those that fit none of them to a person.

    python examples/route_ticket.py [model.gguf]

The intents are the choices. `probability` compares them with each other and sums to one over them, even where none fits.
`coverage` is what tells: how much of the model's belief the intents hold together. Its limit is not a constant of this page: it
is fitted to messages whose answer is known, for this prompt, these intents and the model that is loaded. With another of
them, and with messages of your own, it is another number.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import selectrie

INTENTS = ["track order", "refund", "reset password", "change address", "opening hours"]
LABELLED = [  # None: for a person
    ("Where is my parcel? It has not arrived.", "track order"),
    ("When will my order arrive?", "track order"),
    ("I want my money back. The lamp is broken.", "refund"),
    ("Please refund my order. The chair was damaged.", "refund"),
    ("I forgot my password. Please help.", "reset password"),
    ("My password does not work.", "reset password"),
    ("I moved to a new house. My new address is in Paris.", "change address"),
    ("When do you open on Sunday?", "opening hours"),
    ("Are you open on Saturday?", "opening hours"),
    ("The weather is nice today.", None),
    ("Tom has a red ball.", None),
    ("I love pizza.", None),
    ("Once there was a dog.", None),
    ("Do you like music?", None),
    ("Hello, how are you?", None),
    ("Thank you!", None),
    ("What is the capital of France?", None),
]
TICKETS = [
    "My parcel has not come yet. Where is it now?",
    "I moved house last week. Please send the chairs to my new address.",
    "Once upon a time there was a little cat.",
    "What is the meaning of life?",
]


def ask(llm: selectrie.Engine, messages: list[str]) -> list[selectrie.Selection]:
    """The best intent for each message."""
    requests = [(f"Message: {message}\nIntent:", INTENTS) for message in messages]
    return llm.select_many(requests, following="\n", prompting=selectrie.PromptParams(delimiter=" "))


def n_right(answers: list[selectrie.Selection], limit: float) -> int:
    """How many labelled messages go where they should, if answers of at least this coverage are believed."""
    pairs = zip(answers, LABELLED, strict=True)
    return sum((answer.text if answer.coverage >= limit else None) == intent for answer, (_, intent) in pairs)


def fit(answers: list[selectrie.Selection]) -> float:
    """The limit that sends most labelled messages where they should go; of equally good ones, the middle of the widest gap."""
    seen = [0.0, *sorted({answer.coverage for answer in answers if answer.coverage > 0}), math.inf]
    gaps = list(pairwise(seen))  # any limit in a gap decides alike
    low, high = max(gaps, key=lambda gap: (n_right(answers, gap[1]), width(*gap)))
    return math.sqrt(low * high) if low > 0 and high < math.inf else high


def width(low: float, high: float) -> float:
    """How far apart two coverages are, as a ratio."""
    return high / low if low else math.inf


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        known = ask(llm, [message for message, _ in LABELLED])
        answers = ask(llm, TICKETS)
    limit = fit(known)
    print(f"limit {limit:.2g}: {n_right(known, limit)} of {len(LABELLED)} labelled messages go where they should")
    for ticket, answer in zip(TICKETS, answers, strict=True):
        print(f"{ticket}\n  -> {answer.text if answer.coverage >= limit else 'a person'}")
        print(f"     best {answer.text!r} p={answer.probability:.3f} coverage={answer.coverage:.2g}")
        if answer.coverage < limit:
            print(
                "     the model would have gone on with",
                ", ".join(repr(token.label) for token in answer.top_tokens[:3]),
            )


if __name__ == "__main__":
    main()
