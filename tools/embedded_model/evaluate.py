"""Ask the embedded model the held-out questions and measure its perplexity; prints the tables of the model card.

`python -m embedded_model.evaluate [MODEL] [--text FILE …]` in `tools/`. Joint: the choice of highest joint log-probability. Greedy: the
choice that masked decoding, token by token, ends in.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import selectrie
from embedded_model import corpus
from embedded_model.files import EMBEDDED, HELD_OUT
from embedded_model.phrases import Item

FACTS = ("countries", "animals", "words", "things", "numbers", "calendar")
WINDOW_CHARACTERS = 1000
CHATS = selectrie.PromptParams(parse_special=True)  # the marks of turns in a prompt are the control tokens


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of the questions of a kind that are answered right; n_joint_alone: where greedy is wrong."""

    kind: str
    n: int
    joint: float
    greedy: float
    n_joint_alone: int

    @staticmethod
    def of(kind: str, right: Sequence[tuple[bool, bool]]) -> Accuracy:
        """Count the answers. right: (joint, greedy) for each question."""
        n = len(right)
        joint, greedy = (sum(column) / n for column in zip(*right, strict=True))
        return Accuracy(kind, n, joint, greedy, sum(a and not b for a, b in right))


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Perplexity of a text, cut into windows that each begin anew."""

    name: str
    n_bytes: int
    n_tokens: int
    nats: float

    @property
    def per_token(self) -> float:
        """Return exp of the mean of -log p a token."""
        return math.exp(self.nats / self.n_tokens)

    @property
    def bits_per_byte(self) -> float:
        """Return bits a byte, which do not depend on the tokenizer."""
        return self.nats / self.n_bytes / math.log(2)


def read_items(folder: Path = HELD_OUT) -> list[Item]:
    """Return every held-out question."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines())
    records = map(json.loads, lines)
    return [Item(**(record | {"choices": tuple(record["choices"])})) for record in records]


def answers(llm: selectrie.Engine, items: Iterable[Item]) -> Iterator[tuple[Item, selectrie.Selection]]:
    """Yield the selection for each item, in batches of those with the same text after
    the choice.
    """
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[item.following].append(item)
    for following, group in groups.items():
        for start in range(0, len(group), 16):
            batch = group[start : start + 16]
            requests = [(item.prompt, item.choices) for item in batch]
            yield from zip(batch, llm.select_many(requests, following=following, prompting=CHATS), strict=True)


def accuracies(
    llm: selectrie.Engine, items: Iterable[Item], on_wrong: Callable[[Item, selectrie.Selection], None] | None = None
) -> list[Accuracy]:
    """Return the accuracies by kind; on_wrong is called with each wrong answer."""
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for item, answer in answers(llm, items):
        found[item.kind].append((answer.index == item.gold, answer.greedy_index == item.gold))
        if on_wrong is not None and answer.index != item.gold:
            on_wrong(item, answer)
    return [Accuracy.of(kind, right) for kind, right in found.items()]


def together(rows: Sequence[Accuracy], kinds: Sequence[str], name: str = "all facts") -> Accuracy:
    """Return the accuracy of several kinds taken together."""
    chosen = [row for row in rows if row.kind in kinds]
    n = sum(row.n for row in chosen)
    joint, greedy = (sum(getattr(row, which) * row.n for row in chosen) / n for which in ("joint", "greedy"))
    return Accuracy(name, n, joint, greedy, sum(row.n_joint_alone for row in chosen))


def table(rows: Sequence[Accuracy]) -> list[Accuracy]:
    """Return the lines of the card: facts, all facts together, the rest."""
    facts = [row for kind in FACTS for row in rows if row.kind == kind]
    return [*facts, together(rows, FACTS), *sorted((row for row in rows if row not in facts), key=lambda row: row.kind)]


def perplexity(llm: selectrie.Engine, name: str, texts: Iterable[str]) -> Perplexity:
    """Measure the perplexity of texts that are each short enough for the model's
    context.
    """
    n_bytes = n_tokens = 0
    nats = 0.0
    for text in texts:
        score = llm.score("", text)
        nats -= score.logp
        n_tokens += len(score.tokens)
        n_bytes += len(text.encode())
    return Perplexity(name, n_bytes, n_tokens, nats)


def unseen_documents(n: int = 400) -> list[str]:
    """Return documents from the generators of the corpus under another seed, without
    chats.

    The corpus does not contain any of them, but it does contain their facts.
    """
    seen = {text for course in corpus.COURSES for text in corpus.documents(course)}
    other = replace(corpus.COURSES[0], seed=corpus.COURSES[-1].seed + 1, n_characters=1_000_000)
    fresh = [text for text in corpus.documents(other) if text not in seen and "<|" not in text]
    return random.Random(1).sample(fresh, n)


def windows(text: str, n: int = 40) -> list[str]:
    """Return n evenly spaced pieces of a text."""
    step = max(WINDOW_CHARACTERS, len(text) // n)
    return [text[start : start + WINDOW_CHARACTERS] for start in range(0, len(text), step)]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=EMBEDDED)
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="plain English, for perplexity")
    parser.add_argument("--wrong", action="store_true", help="print wrong answers")
    parser.add_argument("--accuracy-only", action="store_true")
    options = parser.parse_args()
    wrong: list[str] = []

    def note(item: Item, answer: selectrie.Selection) -> None:
        wrong.append(f"{item.kind}: {item.prompt!r}{answer.text!r}, not {item.choices[item.gold]!r}")

    with selectrie.load(options.model, n_threads=1) as llm:
        print("| questions | n | joint | greedy | joint alone right |\n|---|---|---|---|---|")
        for row in table(accuracies(llm, read_items(), note)):
            print(f"| {row.kind} | {row.n} | {row.joint:.1%} | {row.greedy:.1%} | {row.n_joint_alone} |")
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
