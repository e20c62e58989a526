"""Prompts and choices: real labels if they are installed, else labels of the same
shape.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bare import Bare

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import byte_bpe
from make_model import make_model

LEMMAS = "labels/wordnet_lemmas.txt"
SYLLABLES = ("ba", "den", "fi", "gor", "ha", "kel", "lo", "mar", "ne", "ost", "pri", "run", "sel", "tu", "vor", "we")
VERBS = ("activate", "cancel", "change", "link", "order", "refund", "replace", "verify")
NOUNS = (
    "card",
    "card payment",
    "direct debit payment",
    "exchange rate",
    "pin",
    "top up limit",
    "transfer",
    "virtual card",
)


def data_file(name: str) -> Path | None:
    """Return a file of the folder that SELECTRIE_TEST_DATA names, or None if there is
    none.
    """
    folder = os.environ.get("SELECTRIE_TEST_DATA", "")
    path = Path(folder) / name
    return path if folder and path.exists() else None


def labels(n: int = 64) -> tuple[str, list[str]]:
    """Return the source of the labels, and the first n of them, a leading space before
    each: intents of 1 to 6 words.
    """
    path = data_file("labels/banking77_labels.txt")
    if path is None:
        return "64 made labels", [f" {verb} {noun}" for verb in VERBS for noun in NOUNS][:n]
    return f"Banking77, first {n}", [" " + line.replace("_", " ") for line in path.read_text().splitlines()[:n]]


def words(n: int, file: str = LEMMAS) -> list[str]:
    """Return this many lines of a file of the test data, evenly spread over it, or made
    words; a leading space before each.
    """
    path = data_file(file)
    if path is None:
        made = (
            "".join(parts) for length in itertools.count(1) for parts in itertools.product(SYLLABLES, repeat=length)
        )
        return [f" {word}" for word in itertools.islice(made, n)]
    lines = [line for line in dict.fromkeys(path.read_text().splitlines()) if line]
    n = min(n, len(lines))
    return [" " + lines[i * len(lines) // n] for i in range(n)]


def generated_model(shape: str, quantisation: str, tokenizer: Path | None = None) -> Path:
    """Return a model with random weights in `build/`, made if it is missing, with the
    tokenizer of another file or a made one.
    """
    name = f"random-{shape}-{quantisation}" + (f"-{tokenizer.stem}" if tokenizer else "")
    path = ROOT / "build" / f"{name}.gguf"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        make_model(path, shape=shape, quantisation=quantisation, tokenizer=tokenizer)
    return path


@dataclass(frozen=True, slots=True)
class Workload:
    """A prompt and choices, as text and as tokens.

    context: tokens shared by the prompt and every prompt + choice. paths: what follows
    it, one a choice.
    """

    prompt: str
    choices: list[str]
    context: list[int]
    paths: list[list[int]]

    def inner(self) -> tuple[list[int], list[int], list[list[int]]]:
        """Return the inner nodes of the trie, depth-first: token, position in the text,
        and the branches each belongs to.

        These are the rows that must be evaluated: distinct proper prefixes of the
        paths. A branch is a leaf of the tree of inner nodes; branches are numbered from
        1, because the prompt is sequence 0.
        """
        prefixes = sorted({tuple(path[:depth]) for path in self.paths for depth in range(1, len(path))})
        parents = {prefix[:-1] for prefix in prefixes}
        below: dict[tuple[int, ...], list[int]] = {prefix: [] for prefix in prefixes}
        tips = [prefix for prefix in prefixes if prefix not in parents]
        for branch, tip in enumerate(tips, start=1):
            for depth in range(1, len(tip) + 1):
                below[tip[:depth]].append(branch)
        start = len(self.context) - 1
        return [p[-1] for p in prefixes], [start + len(p) for p in prefixes], [below[p] for p in prefixes]


def prompt_text(bare: Bare, n_tokens: int, number: int) -> str:
    """Return about n tokens of English that begin with a number, so that no two prompts
    share a prefix.
    """
    words = byte_bpe.TEXT.split()
    words = (words[number % len(words) :] + words) * (1 + n_tokens // len(words))
    n_words = n_tokens // 2
    text = ""
    while len(bare.tokenize(text, bos=True)) < n_tokens:
        text = f"{number} " + " ".join(words[:n_words])
        n_words += 1
    return text


def workload(bare: Bare, choices: list[str], *, n_tokens: int, number: int = 0) -> Workload:
    """Tokenise prompt and choices jointly and cut at the prefix that all of them share."""
    prompt = prompt_text(bare, n_tokens, number)
    joint = [bare.tokenize(prompt + choice, bos=True) for choice in choices]
    alone = bare.tokenize(prompt, bos=True)
    together = zip(*[alone, *joint], strict=False)
    n_shared = sum(1 for _ in itertools.takewhile(lambda tokens: len(set(tokens)) == 1, together))
    return Workload(prompt, choices, alone[:n_shared], [tokens[n_shared:] for tokens in joint])
