"""Route support tickets to intents, and send those that fit none of them to a person.

    python examples/route_ticket.py [model.gguf]

The intents are the choices. `probability` compares them with each other and sums to one over them, even where none fits.
`coverage` is what tells: how much of the model's belief the intents hold together. The limit below is a guess; take yours
from tickets whose answer you know.
"""

from __future__ import annotations

import sys

import selectrie

INTENTS = ["lost card", "wrong amount", "close account", "change address", "exchange rate"]
TICKETS = [
    "I cannot find my card anywhere since yesterday.",
    "I moved house last week. Where do I tell you?",
    "Do you like cats?",
]
LEAST_COVERAGE = 0.01
LEAST_MARGIN = 0.7  # nats: the winner twice as likely as the runner-up


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        requests = [(f"Ticket: {ticket}\nTopic:", INTENTS) for ticket in TICKETS]
        answers = llm.select_many(requests, following="\n", prompting=selectrie.Prompting(delimiter=" "))
    for ticket, answer in zip(TICKETS, answers, strict=True):
        sure = answer.coverage >= LEAST_COVERAGE and answer.margin >= LEAST_MARGIN
        print(f"{ticket}\n  -> {answer.text if sure else 'a person'}")
        print(f"     best {answer.text!r} p={answer.probability:.3f} margin={answer.margin:.2f} nats", end=" ")
        print(f"coverage={answer.coverage:.2g}")
        if answer.coverage < LEAST_COVERAGE:
            print("     the model would have gone on with", ", ".join(repr(token.label) for token in answer.wanted[:3]))


if __name__ == "__main__":
    main()
