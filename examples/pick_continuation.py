"""Three ways to ask when one choice continues another: " cat" and " cats".

    python examples/pick_continuation.py [model.gguf]

Without an end, " cat" can never lose to " cats": every text that goes on with " cats" goes on with " cat" too. So say what
ends a choice: the text that follows, or that the choice is not continued to a longer one.
"""

from __future__ import annotations

import sys

import selectrie

PROMPT = "Lily loves animals. At home she has a dog and two"
CHOICES = [" cat", " cats", " cats and a bird"]


def show(title: str, answer: selectrie.Selection) -> None:
    print(title)
    for choice in answer.ranked:
        print(f"  {choice.text!r:20} p={choice.probability:.4f}  logp={choice.logp:8.3f}")


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        show("no end, the short one is favoured:", llm.select(PROMPT, CHOICES, terminator="none"))
        show("not continued to a longer choice (the default here):", llm.select(PROMPT, CHOICES))
        show("followed by a full stop:", llm.select(PROMPT, CHOICES, following="."))
        absurd = [*CHOICES, " cats of pure mathematics"]
        same = llm.select(PROMPT, absurd).index == llm.select(PROMPT, CHOICES).index
        print("an absurd longer choice leaves the winner as it was:", "yes" if same else "no")


if __name__ == "__main__":
    main()
