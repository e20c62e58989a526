"""Ask three typed questions about each ticket, and hand those that abstain to a person.

    python examples/decide_ticket.py [model.gguf]

An answer says how far to trust it: `label_mass` is the share of the model's belief that the options hold, `spread` is how much
the order of the options moves a probability. An answer below the limits abstains and keeps its numbers.
"""

from __future__ import annotations

import sys

import selectrie
from selectrie import Choice, DecisionParams, Option, Predicate

QUESTIONS = {
    "intent": Choice("What does the customer want?", ["track order", "refund", "reset password", "opening hours"]),
    "mood": Choice("What is the sentiment of this review?", [Option(+1, "positive"), Option(-1, "negative")]),
    "angry": Predicate("The customer is angry."),
}
TICKETS = [
    "Where is the lamp that I ordered last week?",
    {"subject": "My shoes", "body": "They are terrible, I want my money back!"},
    [{"role": "user", "content": "I forgot my password."}, {"role": "assistant", "content": "Which address is yours?"}],
]
PARAMS = DecisionParams(permutations=2, min_confidence=0.5, min_label_mass=0.2)


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        for ticket, decision in zip(TICKETS, llm.decide_iter(TICKETS, QUESTIONS, params=PARAMS), strict=True):
            print(ticket)
            for name, answer in decision.items():
                shown = f"{name}: {answer.value!r} label mass {answer.label_mass:.3f} spread {answer.spread:.3f}"
                print(f"  {shown}{' -> a person: ' + answer.abstained if answer.abstained else ''}")
        usage = llm.decide(TICKETS[0], QUESTIONS, params=PARAMS).usage
        print(f"{usage.prompts} prompts of {usage.input_tokens} tokens")


if __name__ == "__main__":
    main()
