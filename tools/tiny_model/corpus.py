"""Write the training corpus: documents of every topic in their shares, shuffled, one seed.

`python -m tiny_model.corpus` in `tools/`; documents are separated by a NUL character, which none contains.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Iterator
from pathlib import Path

from tiny_model.files import CORPUS
from tiny_model.phrases import Item

SEED = 20261121
N_CHARACTERS = 32_000_000
SEPARATOR = "\0"

#: Share of the corpus's characters, in parts of the sum.
SHARES = {
    "countries": 17,
    "animals": 8,
    "words": 9,
    "things": 10,
    "numbers": 9,
    "calendar": 3,
    "yes_no": 7,
    "sentiment": 9,
    "intents": 9,
    "records": 18,
    "extraction": 12,
    "categories": 13,
    "stories": 13,
    "conversation": 6,
}


def documents(seed: int = SEED, n_characters: int = N_CHARACTERS) -> list[str]:
    """The corpus. The same arguments give the same documents."""
    chosen = [document for topic in SHARES for document in _of_topic(topic, seed, n_characters)]
    random.Random(f"{seed} order").shuffle(chosen)
    return chosen


def held_out(topic: str, seed: int = SEED) -> list[Item]:
    """The held-out questions of a topic."""
    return list(_module(topic).held_out(random.Random(f"{seed} held out {topic}")))


def _of_topic(topic: str, seed: int, n_characters: int) -> Iterator[str]:
    left = n_characters * SHARES[topic] // sum(SHARES.values())
    for document in _module(topic).documents(random.Random(f"{seed} {topic}")):
        if left <= 0:
            return
        left -= len(document)
        yield document.rstrip("\n")


def _module(topic: str):  # noqa: ANN202 - a module with `documents` and `held_out`
    return importlib.import_module(f"tiny_model.topics.{topic}")


def read(path: Path = CORPUS) -> list[str]:
    """The documents of a written corpus."""
    return path.read_text(encoding="utf-8").split(SEPARATOR)


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=SEED, type=int)
    parser.add_argument("--characters", default=N_CHARACTERS, type=int)
    options = parser.parse_args()
    chosen = documents(options.seed, options.characters)
    CORPUS.parent.mkdir(parents=True, exist_ok=True)
    CORPUS.write_text(SEPARATOR.join(chosen), encoding="utf-8")
    print(f"{CORPUS}: {len(chosen):,} documents, {sum(map(len, chosen)):,} characters")


if __name__ == "__main__":
    main()
