"""Ask the embedded model the held-out questions through `decide`; prints accuracy and median label mass.

`python -m embedded_model.decisions [MODEL]` in `tools/`. Each row is a template and a layout. Predicates are asked of both sides: what is
true of the text, and one of the things that are not.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import selectrie
from embedded_model.evaluate import FACTS, read_items
from embedded_model.files import EMBEDDED
from embedded_model.phrases import Item
from selectrie import Choice, DecisionParams, Predicate
from selectrie.decide.params import LAYOUTS

INSTRUCTIONS = {"intents": "What does the customer want?", "sentiment": "What is the sentiment of this review?"}
STATEMENTS = {"intents": "The customer wants: {}.", "sentiment": "The review is {}."}
PROMPTS = [(template, layout) for template in ("chat", "base") for layout in LAYOUTS[1:]]


@dataclass(frozen=True, slots=True)
class Result:
    """How a kind of question was answered: number of questions, share right, median label mass."""

    kind: str
    n: int
    accuracy: float
    label_mass: float


def labels_of(item: Item) -> list[str]:
    """Return the choices of an item as labels, without the spaces that join them to a prompt."""
    return [choice.strip() for choice in item.choices]


def choices(llm: selectrie.Engine, kind: str, items: Sequence[Item], params: DecisionParams) -> Result:
    """Ask which of its choices answers each item."""
    right, masses = [], []
    for item in items:
        labels = labels_of(item)
        answer = llm.decide(item.phrase, Choice(INSTRUCTIONS.get(item.kind, ""), labels), params=params)
        right.append(answer.value == labels[item.gold])
        masses.append(answer.label_mass)
    return Result(kind, len(items), sum(right) / len(items), statistics.median(masses))


def predicates(llm: selectrie.Engine, kind: str, items: Sequence[Item], params: DecisionParams) -> Result:
    """Ask about each item whether its right label holds, and whether a wrong one does."""
    right, masses = [], []
    for item in items:
        labels = labels_of(item)
        wrong = labels[(item.gold + 1) % len(labels)]
        for label in (labels[item.gold], wrong):
            answer = llm.decide(item.phrase, Predicate(STATEMENTS[kind].format(label)), params=params)
            right.append(answer.value == (label != wrong))
            masses.append(answer.label_mass)
    return Result(f"is it: {kind}", len(right), sum(right) / len(right), statistics.median(masses))


def results(llm: selectrie.Engine, params: DecisionParams) -> Iterator[Result]:
    """Yield a result for each kind of question."""
    items = read_items()
    intents = [item for item in items if item.kind == "intents" and "Department" not in item.prompt]
    sentiments = [item for item in items if item.kind == "sentiment"]
    yield choices(llm, "intents", intents, params)
    yield choices(llm, "sentiment", sentiments, params)
    yield choices(llm, "all facts", [item for item in items if item.kind in FACTS], params)
    yield predicates(llm, "intents", intents, params)
    yield predicates(llm, "sentiment", sentiments, params)


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=EMBEDDED)
    parser.add_argument("--unlisted", action="store_true", help="do not list the options in the prompt")
    options = parser.parse_args()
    with selectrie.load(options.model, n_threads=1) as llm:
        print("| template | layout | questions | n | right | label mass |\n|---|---|---|---|---|---|")
        for template, layout in PROMPTS:
            params = DecisionParams(template=template, layout=layout, list_options=not options.unlisted)
            for one in results(llm, params):
                line = f"| {template} | {layout} | {one.kind} | {one.n} | {one.accuracy:.1%} | {one.label_mass:.3f} |"
                print(line, flush=True)


if __name__ == "__main__":
    main()
