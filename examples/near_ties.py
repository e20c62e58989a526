"""What near ties and `rescored` mean.

    python examples/near_ties.py [model.gguf]

In floating point a sum depends on the order of its terms, so the same text scored beside other texts can differ in the
last digits, and on quantised weights by 0.1 nats a row. Choices closer than that could make it (`near_margin`) are scored
again, each alone on an empty context; so the winner is the same in every set that holds the same finalists.
"""

from __future__ import annotations

import math
import sys

import selectrie

PROMPT = "They looked at the sky and saw a"
CHOICES = [" bird", " plane", " cloud", " kite", " star"]


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        answer = llm.select(PROMPT, CHOICES)
        print(f"near ties of these choices are closer than {answer.certificate.near_margin:.1e} nats")
        print(
            f"margin    {answer.margin:.6f} nats: {'a clear winner' if not answer.certificate.n_rescored else 'near'}"
        )

        # A prior can bring two choices as close as anyone likes.
        first, second = answer.top(2)
        prior = [1.0] * len(CHOICES)
        prior[second.index] = math.exp(first.score - second.score)
        near = llm.select(PROMPT, CHOICES, prior=prior)
        certificate = near.certificate
        print(f"near tie  {near.margin:.1e} nats between {first.text!r} and {second.text!r}")
        print(f"          rescored: {certificate.rescored}, by scoring {certificate.n_rescored} choices again")

        winners = {near.text}
        for others in ([2, 3], [4], []):
            kept = sorted({first.index, second.index, *others})
            some = [CHOICES[i] for i in kept]
            winners.add(llm.select(PROMPT, some, prior=[prior[i] for i in kept]).text)
        print(f"          winners in other sets with the same two: {', '.join(sorted(winners))}")

        tie = llm.select(PROMPT, [first.text, first.text])
        print(f"equal texts are one path and no tie: is_tie={tie.is_tie}, duplicate_of={tie.choices[1].duplicate_of}")


if __name__ == "__main__":
    main()
