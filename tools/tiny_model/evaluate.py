"""Ask the embedded model the held-out questions and measure its perplexity; prints the tables of the model card.

`python -m tiny_model.evaluate [MODEL] [--text FILE …]` in `tools/`. Joint: the choice of highest joint log-probability. Greedy: the
choice that masked decoding, token by token, ends in.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import selectrie
from tiny_model import corpus
from tiny_model.files import EMBEDDED, HELD_OUT
from tiny_model.phrases import Item

FACTS = ("countries", "animals", "words", "things", "numbers", "calendar")
WINDOW_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of the questions of a kind that are answered right."""

    kind: str
    n: int
    joint: float
    greedy: float
    n_disagree: int


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Of a text, cut in windows that each begin anew."""

    name: str
    n_bytes: int
    n_tokens: int
    nats: float

    @property
    def per_token(self) -> float:
        """exp of the mean of -log p a token."""
        return math.exp(self.nats / self.n_tokens)

    @property
    def bits_per_byte(self) -> float:
        """Does not depend on the tokenizer."""
        return self.nats / self.n_bytes / math.log(2)


def read_items(folder: Path = HELD_OUT) -> list[Item]:
    """Every held-out question."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines())
    records = map(json.loads, lines)
    return [Item(**(record | {"choices": tuple(record["choices"])})) for record in records]


def answers(llm: selectrie.Engine, items: Iterable[Item]) -> Iterator[tuple[Item, selectrie.Selection]]:
    """The selection for each item, in batches of those with the same text after the choice."""
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[item.following].append(item)
    for following, group in groups.items():
        for start in range(0, len(group), 16):
            batch = group[start : start + 16]
            requests = [(item.prompt, item.choices) for item in batch]
            yield from zip(batch, llm.select_many(requests, following=following), strict=True)


def accuracies(llm: selectrie.Engine, items: Iterable[Item], wrong: list[str] | None = None) -> list[Accuracy]:
    """By kind, in the order of the corpus; `wrong` collects a line for each wrong answer."""
    found: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for item, answer in answers(llm, items):
        found[item.kind].append(
            (answer.index == item.gold, answer.greedy_index == item.gold, answer.index != answer.greedy_index)
        )
        if wrong is not None and answer.index != item.gold:
            wrong.append(f"{item.kind}: {item.prompt!r}{answer.text!r}, not {item.choices[item.gold]!r}")
    return [
        Accuracy(kind, len(rows), *(sum(column) / len(rows) for column in columns[:2]), sum(columns[2]))
        for kind, rows in found.items()
        for columns in [list(zip(*rows, strict=True))]
    ]


def perplexity(llm: selectrie.Engine, name: str, texts: Iterable[str]) -> Perplexity:
    """Of texts that are each short enough for the model's context."""
    n_bytes = n_tokens = 0
    nats = 0.0
    for text in texts:
        score = llm.score("", text)
        nats -= score.logp
        n_tokens += len(score.tokens)
        n_bytes += len(text.encode())
    return Perplexity(name, n_bytes, n_tokens, nats)


def unseen_documents(n: int = 400) -> list[str]:
    """Documents from the corpus's generators under another seed, none of which the corpus contains."""
    seen = set(corpus.documents())
    fresh = [text for text in corpus.documents(corpus.SEED + 1, 1_000_000) if text not in seen]
    chosen = random.Random(1).sample(fresh, n)
    return [text for text in chosen if "<|" not in text]


def windows(text: str, n: int = 40) -> list[str]:
    """n evenly spaced pieces of a text."""
    step = max(WINDOW_CHARACTERS, len(text) // n)
    return [text[start : start + WINDOW_CHARACTERS] for start in range(0, len(text), step)]


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=EMBEDDED)
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="plain English, for perplexity")
    parser.add_argument("--wrong", action="store_true", help="print wrong answers")
    parser.add_argument("--accuracy-only", action="store_true")
    options = parser.parse_args()
    wrong: list[str] = []
    with selectrie.load(options.model, n_threads=1) as llm:
        rows = accuracies(llm, read_items(), wrong)
        facts = [row for row in rows if row.kind in FACTS]
        n = sum(row.n for row in facts)
        joint, greedy = (sum(getattr(row, name) * row.n for row in facts) / n for name in ("joint", "greedy"))
        rows.append(Accuracy("all facts", n, joint, greedy, sum(row.n_disagree for row in facts)))
        print("| questions | n | joint | greedy | they differ |\n|---|---|---|---|---|")
        for row in rows:
            print(f"| {row.kind} | {row.n} | {row.joint:.1%} | {row.greedy:.1%} | {row.n_disagree} |")
        if options.wrong:
            print("\n".join(wrong))
        if options.accuracy_only:
            return
        print("\n| text | bytes | perplexity a token | bits a byte |\n|---|---|---|---|")
        texts = [("unseen generated documents", unseen_documents())]
        texts += [(path.stem, windows(path.read_text(encoding="utf-8"))) for path in options.text]
        for name, pieces in texts:
            found = perplexity(llm, name, pieces)
            print(f"| {name} | {found.n_bytes:,} | {found.per_token:.1f} | {found.bits_per_byte:.2f} |")


if __name__ == "__main__":
    main()
