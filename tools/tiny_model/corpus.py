"""Write the training corpus: four courses, each with documents of every topic in its shares, shuffled, from one seed.

`python -m tiny_model.corpus` in `tools/`; documents are separated by a NUL character, which none contains.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiny_model.files import corpus_file
from tiny_model.phrases import Item

SEPARATOR = "\0"


@dataclass(frozen=True, slots=True)
class Course:
    """Documents that are read in one go, in random order. shares: of its characters, in parts of their sum."""

    seed: int
    n_characters: int
    shares: Mapping[str, int]


COURSES = (
    Course(
        20261121,
        32_000_000,
        {
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
        },
    ),
    Course(  # more of what takes long to learn, and then of what takes longest
        20261122,
        32_000_000,
        {
            "countries": 12,
            "animals": 7,
            "words": 8,
            "things": 6,
            "numbers": 15,
            "calendar": 6,
            "yes_no": 6,
            "sentiment": 17,
            "intents": 18,
            "records": 16,
            "extraction": 14,
            "categories": 13,
            "stories": 6,
            "conversation": 6,
        },
    ),
    Course(
        20261123,
        32_000_000,
        {
            "countries": 5,
            "animals": 3,
            "words": 7,
            "things": 3,
            "numbers": 30,
            "calendar": 8,
            "yes_no": 3,
            "sentiment": 26,
            "intents": 14,
            "records": 9,
            "extraction": 5,
            "categories": 4,
            "stories": 3,
            "conversation": 3,
        },
    ),
    Course(
        20261124,
        32_000_000,
        {
            "countries": 8,
            "animals": 5,
            "words": 8,
            "things": 5,
            "numbers": 20,
            "calendar": 6,
            "yes_no": 4,
            "sentiment": 12,
            "intents": 10,
            "drills": 40,
            "records": 10,
            "extraction": 5,
            "categories": 6,
            "stories": 3,
            "conversation": 4,
        },
    ),
)
TOPICS = tuple(COURSES[0].shares)


def documents(course: Course) -> list[str]:
    """The documents of a course. The same course gives the same documents."""
    chosen = [document for topic in course.shares for document in _of_topic(topic, course)]
    random.Random(f"{course.seed} order").shuffle(chosen)
    return chosen


def held_out(topic: str, seed: int = COURSES[0].seed) -> list[Item]:
    """The held-out questions of a topic."""
    return list(_module(topic).held_out(random.Random(f"{seed} held out {topic}")))


def _of_topic(topic: str, course: Course) -> Iterator[str]:
    left = course.n_characters * course.shares[topic] // sum(course.shares.values())
    for document in _module(topic).documents(random.Random(f"{course.seed} {topic}")):
        if left <= 0:
            return
        left -= len(document)
        yield document.rstrip("\n")


def _module(topic: str):  # noqa: ANN202 - a module with `documents` and `held_out`
    return importlib.import_module(f"tiny_model.topics.{topic}")


def read(index: int) -> list[str]:
    """The documents of a course as written."""
    return corpus_file(index).read_text(encoding="utf-8").split(SEPARATOR)


def main() -> None:
    """Entry point of the script."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for index, course in enumerate(COURSES):
        chosen, path = documents(course), corpus_file(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SEPARATOR.join(chosen), encoding="utf-8")
        print(f"{path}: {len(chosen):,} documents, {sum(map(len, chosen)):,} characters")


if __name__ == "__main__":
    main()
