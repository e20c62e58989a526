"""Print how often decisions are right on public sets, beside another prompt: accuracy, calibration, order, rows.

    python tools/accuracy.py MODEL [--half dev] [--sets sst2 tickets] [--items 100] [--mix even] [--ways plain default]

MODEL is a GGUF file, or `embedded`. The sets lie in the folder that SELECTRIE_TEST_DATA names; `tickets` is in this file.
Each set is asked in each way of `WAYS`, and each way is compared item by item with the first. Items go to the half `dev` or
`held-out` by the SHA-256 of their text, so that wordings can be chosen on one half and judged on the other.

- right: share of right answers, in percent; diff: that minus the first way's, with the 95 % interval of the paired mean
- brier: mean squared distance of the probabilities from the right answer (0 best, 2 worst)
- ece: mean distance of the probability of an answer from how often it is right, over ten bins of equal width
- auc: chance that a right answer has a larger probability than a wrong one
- first: share of answers that are the option listed first, in percent
- rows: rows of the model for an item, near ties included, without those of fitting

`--mix 80` gives the last label 80 % of the items, `--mix 95` gives it 95 %, and `--mix sorted` orders the items by label.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import selectrie
from selectrie import Choice, ChoiceAnswer, DecisionParams, SamplingParams, Thinking
from selectrie.decide.calibration import N_LEAST
from selectrie.decide.params import DEFAULT_DECISION
from selectrie.decide.questions import balanced


@dataclass(frozen=True)
class Way:
    """A way to ask.

    Attributes:
        params: Options of the decision.
        is_cued: Whether a cue stands in place of the question.
        n_each: Examples of each label, from the last items of the half `dev`.
        is_fitted: Whether a calibration is fitted to texts without their labels: those that are asked about, or, where these
            are fewer than 16, all of the half that have the same options.
    """

    params: DecisionParams = DEFAULT_DECISION
    is_cued: bool = False
    n_each: int = 0
    is_fitted: bool = False


THINKING = Thinking(n=4, max_tokens=100, start="Let me think first. ", stop="\nSo the answer is: ", seed=0)
"""Rationales for models whose chat template has no block of thinking."""
WAYS: Mapping[str, Way] = {
    "plain": Way(DecisionParams(layout="state first")),
    "default": Way(),
    "questions first": Way(DecisionParams(layout="questions first")),
    "content-free": Way(DecisionParams(calibration="content_free")),
    "batch": Way(is_fitted=True),
    "unlisted": Way(DecisionParams(list_options=False)),
    "unlisted, batch": Way(DecisionParams(list_options=False), is_fitted=True),
    "1 order": Way(DecisionParams(permutations=1)),
    "2 orders": Way(DecisionParams(permutations=2)),
    "auto orders": Way(DecisionParams(permutations="auto")),
    "all orders": Way(DecisionParams(permutations="all")),
    "cue": Way(is_cued=True),
    "cue, batch": Way(is_cued=True, is_fitted=True),
    "1 example": Way(n_each=1),
    "1 example, batch": Way(n_each=1, is_fitted=True),
    "2 examples": Way(n_each=2),
    "cue, 1 example": Way(is_cued=True, n_each=1),
    "cue, 2 examples": Way(is_cued=True, n_each=2),
    "think": Way(DecisionParams(think=THINKING)),
    "think once": Way(DecisionParams(think=replace(THINKING, n=1, sampling=SamplingParams.GREEDY))),
}
"""What is compared."""
N_POOL = 400
"""Items from which examples are drawn, where there are so many."""

N_DRAWS, N_DRAWN = 10, 8
"""Draws of labels out of a long list, and the labels of each."""


@dataclass(frozen=True)
class Item:
    """A text, the options of its question in the order in which they are listed, and the right one."""

    text: str
    options: tuple[str, ...]
    gold: str


@dataclass(frozen=True)
class Answered:
    """What was answered for an item, with the probabilities in the order of its options."""

    item: Item
    answer: ChoiceAnswer[Any]

    @property
    def probabilities(self) -> list[float]:
        """Return the probability of each option."""
        return [self.answer.probabilities[option] for option in self.item.options]

    @property
    def is_right(self) -> bool:
        """Return whether the answer is the right one."""
        return bool(self.answer.value == self.item.gold)


def data_folder() -> Path:
    """Return the folder of the sets."""
    return Path(os.environ.get("SELECTRIE_TEST_DATA", "."))


def lines(name: str) -> list[dict[str, Any]]:
    """Return the records of a set, in a fixed random order."""
    records = [
        json.loads(line) for line in (data_folder() / "mc" / f"{name}.jsonl").read_text("utf-8").split("\n") if line
    ]
    random.Random(name).shuffle(records)
    return records


def fixed(records: Sequence[dict[str, Any]]) -> list[Item]:
    """Return the items of a set whose records all have the same choices."""
    return [Item(one["context"].strip(), tuple(one["choices"]), one["choices"][one["gold"]]) for one in records]


def own(name: str) -> list[Item]:
    """Return the items of a set whose records have choices of their own, shuffled, at most five of them."""
    items = []
    for one in lines(name):
        question = one["context"].removeprefix("Question: ").removesuffix("Answer:").strip()
        gold, wrong = one["choices"][one["gold"]], [text for i, text in enumerate(one["choices"]) if i != one["gold"]]
        options = [gold, *dict.fromkeys(text for text in wrong if text != gold)][:5]
        random.Random(question).shuffle(options)
        items.append(Item(question, tuple(options), gold))
    return items


def drawn(pairs: Sequence[tuple[str, str]], name: str) -> list[Item]:
    """Return items of seeded draws of labels, in turn: each draw's texts have one of its labels."""
    labels = sorted({label for _, label in pairs})
    draws = [tuple(random.Random(f"{name} {i}").sample(labels, N_DRAWN)) for i in range(N_DRAWS)]
    left = [[Item(text, draw, label) for text, label in pairs if label in draw] for draw in draws]
    return [items[i] for i in range(max(map(len, left))) for items in left if i < len(items)]


def banking() -> list[tuple[str, str]]:
    """Return the messages of Banking77's test set with their labels, in a fixed random order."""
    with (data_folder() / "labels" / "banking77_test.csv").open(encoding="utf-8", newline="") as file:
        rows = [(text, label.replace("_", " ")) for text, label in list(csv.reader(file))[1:]]
    random.Random("banking").shuffle(rows)
    return rows


def all_banking() -> list[Item]:
    """Return Banking77 with all its labels."""
    pairs = banking()
    labels = tuple(sorted({label for _, label in pairs}))
    return [Item(text, labels, label) for text, label in pairs]


def sentences() -> list[Item]:
    """Return sentences of BLiMP, the good one or the bad one of each pair."""
    items = []
    for one in lines("blimp"):
        is_good = random.Random(one["id"]).random() < 0.5
        text = one["choices"][one["gold"] if is_good else 1 - one["gold"]]
        items.append(Item(text, ("correct", "incorrect"), "correct" if is_good else "incorrect"))
    return items


TICKETS = (
    ("Where is my parcel? It was due on Monday.", "track order"),
    ("The tracking number you sent me does not work.", "track order"),
    ("Has my package left the warehouse already?", "track order"),
    ("I ordered two weeks ago and nothing has come yet.", "track order"),
    ("The lamp is broken, please give me my money back.", "refund"),
    ("I want to return these shoes and be paid back.", "refund"),
    ("You charged my card twice, pay back one of them.", "refund"),
    ("I cannot log in because I forgot my password.", "reset password"),
    ("How do I choose a new password for my account?", "reset password"),
    ("Your site says that my password is wrong, but it is not.", "reset password"),
)
"""Messages to a shop with the intent of each."""


def tickets() -> list[Item]:
    """Return each message with its three intents in all orders."""
    orders = list(permutations(("track order", "refund", "reset password")))
    return [Item(text, order, intent) for order in orders for text, intent in TICKETS]


@dataclass(frozen=True)
class Set:
    """A public set: the question, the cue in place of it, and how its items are made."""

    instructions: str
    cue: str
    items: Callable[[], list[Item]]


SETS: Mapping[str, Set] = {
    "sst2": Set("Is the review positive or negative?", "Sentiment:", lambda: fixed(lines("sst2_val"))),
    "boolq": Set("Is the answer to the question yes or no?", "Answer:", lambda: fixed(lines("boolq"))),
    "blimp": Set("Is the grammar of this sentence correct or incorrect?", "Grammar:", sentences),
    "tickets": Set("What does the customer want?", "Intent:", tickets),
    "banking8": Set("What is the message about?", "Topic:", lambda: drawn(banking(), "banking")),
    "banking77": Set("What is the message about?", "Topic:", all_banking),
    "subjects8": Set(
        "Which subject is this exam question about?",
        "Subject:",
        lambda: drawn([(x["context"], x["subject"].replace("_", " ")) for x in lines("mmlu_validation")], "subjects"),
    ),
    "topics8": Set(
        "What is this question about?",
        "Topic:",
        lambda: drawn([(x["context"], x["category"].lower()) for x in lines("truthfulqa_from_csv")], "topics"),
    ),
    **{
        name: Set("Which answer is right?", "Answer:", partial(own, file))
        for name, file in (
            ("arc easy", "arc_easy_val"),
            ("arc challenge", "arc_challenge_val"),
            ("mmlu", "mmlu_validation"),
            ("truthfulqa", "truthfulqa_from_csv"),
            ("openbookqa", "openbook_qa"),
            ("commonsenseqa", "commonsense_qa_val"),
        )
    },
}
"""The question of each set and its items: labels that are the same for all items, then those with options of their own."""


def half_of(item: Item) -> str:
    """Return which half an item belongs to; the items of one text are in the same."""
    return ("dev", "held-out")[sha256(item.text.encode()).digest()[0] & 1]


def mixed(items: Sequence[Item], mix: str, n: int) -> list[Item]:
    """Return n items in which the last label has its share, or fewer if there are not enough."""
    if mix == "even":
        return list(items[:n])
    if mix == "sorted":
        return sorted(items[:n], key=lambda item: (item.options, item.options.index(item.gold)))
    share = int(mix) / 100
    last = [item for item in items if item.gold == item.options[-1]]
    others = [item for item in items if item.gold != item.options[-1]]
    n = int(min(n, len(last) / share, len(others) / (1 - share)))
    n_last = round(n * share)
    together = last[:n_last] + others[: n - n_last]
    random.Random(mix).shuffle(together)
    return together


def groups(items: Sequence[Item]) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """Yield the different options with the places of their items."""
    by_options: dict[tuple[str, ...], list[int]] = {}
    for at, item in enumerate(items):
        by_options.setdefault(item.options, []).append(at)
    yield from by_options.items()


def asked(
    llm: selectrie.Engine, of: Set, items: Sequence[Item], way: Way, *, half: Sequence[Item], pool: Sequence[Item]
) -> tuple[list[Answered], int]:
    """Return the answers of a set in the order of its items, and the rows that they took."""
    answers: dict[int, ChoiceAnswer[Any]] = {}
    n_rows = 0
    llm.trim()
    for options, places in groups(items):
        known = [(one.text, one.gold) for one in pool if one.gold in options] if way.n_each else []
        words = {"cue": of.cue} if way.is_cued else {"instructions": of.instructions}
        question = {"answer": Choice(options=options, examples=balanced(known, max(1, way.n_each)), **words)}
        texts, params = [items[at].text for at in places], way.params
        if way.is_fitted:
            enough = texts if len(texts) >= N_LEAST else [one.text for one in half if one.options == options]
            params = replace(params, calibration=llm.fit_calibration(enough, question, params=params))
        found = llm.decide_many(texts, question, params=params)
        n_rows += sum(one.usage.cost.rows for one in found)
        answers |= {at: one["answer"] for at, one in zip(places, found, strict=True)}  # type: ignore[misc]
    return [Answered(item, answers[at]) for at, item in enumerate(items)], n_rows


def figures(answered: Sequence[Answered], first: Sequence[Answered], n_rows: int) -> dict[str, float]:
    """Return the figures of a way, by column; `first` are the answers that it is compared with."""
    right = np.array([one.is_right for one in answered], float)
    p = np.array([max(one.probabilities) for one in answered])
    gained = 100 * (right - [one.is_right for one in first])
    brier = [
        sum((q - (option == one.item.gold)) ** 2 for q, option in zip(one.probabilities, one.item.options, strict=True))
        for one in answered
    ]
    bins = np.minimum((p * 10).astype(int), 9)
    gaps = [abs(float((right - p)[bins == i].sum())) for i in range(10)]
    high, low = p[right == 1][:, None], p[right == 0][None, :]
    return {
        "n": len(right),
        "right": 100 * float(right.mean()),
        "diff": float(gained.mean()),
        "±": 1.96 * float(gained.std(ddof=1)) / len(gained) ** 0.5 if len(gained) > 1 else float("nan"),
        "brier": float(np.mean(brier)),
        "ece": sum(gaps) / len(right),
        "auc": float(((high > low) + 0.5 * (high == low)).mean()) if high.size and low.size else float("nan"),
        "first": 100 * float(np.mean([one.answer.value == one.item.options[0] for one in answered])),
        "rows": n_rows / len(right),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each set and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file, or `embedded`")
    parser.add_argument("--half", choices=("dev", "held-out"), default="dev")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS), metavar="SET")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=("plain", "default"), metavar="WAY")
    parser.add_argument("--items", type=int, default=100, help="at most so many of each set")
    parser.add_argument("--mix", choices=("even", "80", "95", "sorted"), default="even")
    parser.add_argument("--precision", choices=("exact", "fast"), default="exact")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args(arguments)
    source = None if options.model == "embedded" else options.model
    with closing(selectrie.load(source, n_ctx=8192, precision=options.precision, n_threads=options.threads)) as llm:
        columns = ("n", "right", "diff", "±", "brier", "ece", "auc", "first", "rows")
        print(f"{Path(options.model).name}, {options.half}, mix {options.mix}, {options.precision}")
        print(f"{'set':<14} {'way':<24}" + "".join(f"{name:>9}" for name in columns), flush=True)
        for name in options.sets:
            try:
                every = SETS[name].items()
            except FileNotFoundError as error:
                print(f"{name:<14} skipped: there is no {error.filename}")
                continue
            half = [one for one in every if half_of(one) == options.half]
            items = mixed(half, options.mix, options.items)
            pool = [one for one in every if half_of(one) == "dev" and one not in items][-N_POOL:]
            first: list[Answered] = []
            for way in options.ways:
                answered, n_rows = asked(llm, SETS[name], items, WAYS[way], half=half, pool=pool)
                first = first or answered
                row = figures(answered, first, n_rows)
                print(f"{name:<14} {way:<24}" + "".join(f"{row[column]:>9.3g}" for column in columns), flush=True)


if __name__ == "__main__":
    main()
