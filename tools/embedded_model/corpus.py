"""Write the training corpus: twelve courses, each with documents of every topic in its
shares, shuffled, from one seed.

Run `python -m embedded_model.corpus` in `tools/`. Documents are separated by a NUL
character, which none of them contains. `--last` writes only the last courses.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from embedded_model.files import corpus_file
from embedded_model.phrases import Item

SEPARATOR = "\0"


SHARES: Mapping[str, int] = {
    "countries": 11,
    "animals": 6,
    "words": 7,
    "things": 7,
    "numbers": 14,
    "calendar": 5,
    "yes_no": 10,
    "sentiment": 18,
    "intents": 9,
    "drills": 14,
    "records": 13,
    "extraction": 12,
    "categories": 9,
    "stories": 7,
    "conversation": 11,
}
"""Share of each topic in the characters of the corpus, in parts of their sum."""
TOPICS = tuple(topic for topic in SHARES if topic != "drills")
"""Topics that have held-out questions."""


@dataclass(frozen=True, slots=True)
class Course:
    """What one stage of the training reads, in random order."""

    seed: int
    n_characters: int
    shares: Mapping[str, int]


COURSES = (
    Course(20261121, 84_000_000, SHARES),
    Course(20261122, 6_000_000, {**SHARES, "sheets": 150}),  # half of it long documents
    Course(20261123, 7_500_000, {**SHARES, "opinions": 110}),  # reviews in very many layouts
    Course(20261124, 14_000_000, {**SHARES, "yes_no": 20, "typed_questions": 300}),  # what `decide` asks
    Course(20261125, 1_600_000, {**SHARES, "predicates 1": 1400}),  # statements, of one label,
    Course(20261126, 2_100_000, {**SHARES, "predicates 2": 1400}),  # of a few,
    Course(20261127, 7_000_000, {**SHARES, "typed_questions": 110, "predicates 3": 450}),  # of all
    Course(20261128, 2_900_000, {**SHARES, "predicates 4": 1400}),
    Course(20261129, 2_500_000, {**SHARES, "typed_questions": 80, "predicates 4": 70}),
    Course(
        20261130,
        6_000_000,
        {
            **SHARES,
            "records": 22,
            "categories": 16,
            "numbers": 19,
            "animals": 9,
            "typed_questions": 90,
            "predicates 5": 55,
        },
    ),
    Course(
        20261201,
        3_000_000,
        {**SHARES, "sentiment": 50, "opinions": 50, "extraction": 26, "categories": 18, "records": 16}
        | {"typed_questions": 85, "predicates 6": 90},
    ),
    Course(
        20261202,
        3_600_000,
        {**SHARES, "sentiment": 34, "opinions": 22, "extraction": 44, "categories": 34, "records": 16}
        | {"typed_questions": 85, "predicates 7": 80},
    ),
)
LAST = range(3, len(COURSES))
"""Numbers of the courses that go on from the file of the courses before them."""


def documents(course: Course) -> list[str]:
    """Return the documents of a course. The same course gives the same documents."""
    chosen = [document for topic in course.shares for document in _of_topic(topic, course)]
    random.Random(f"{course.seed} order").shuffle(chosen)
    return chosen


def held_out(topic: str, seed: int = COURSES[0].seed) -> list[Item]:
    """Return the held-out questions of a topic."""
    return list(_module(topic).held_out(random.Random(f"{seed} held out {topic}")))


def _of_topic(topic: str, course: Course) -> Iterator[str]:
    left = course.n_characters * course.shares[topic] // sum(course.shares.values())
    name, _, level = topic.partition(" ")
    rng = random.Random(f"{course.seed} {topic}")
    for document in _module(name).documents(rng, int(level)) if level else _module(name).documents(rng):
        if left <= 0:
            return
        left -= len(document)
        yield document.rstrip("\n")


def _module(topic: str):  # noqa: ANN202 - a module with `documents` and `held_out`
    return importlib.import_module(f"embedded_model.topics.{topic}")


def read(index: int) -> list[str]:
    """Return the documents of a course as written."""
    return corpus_file(index).read_text(encoding="utf-8").split(SEPARATOR)


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--last", action="store_true", help="only the last courses")
    only_last = parser.parse_args().last
    digest = hashlib.sha256()
    for index in LAST if only_last else range(len(COURSES)):
        course = COURSES[index]
        chosen, path = documents(course), corpus_file(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = SEPARATOR.join(chosen).encode()
        path.write_bytes(content)
        digest.update(content)
        print(f"{path}: {len(chosen):,} documents, {sum(map(len, chosen)):,} characters")
    if not only_last:
        print(f"sha256 of the corpus, for the card: {digest.hexdigest()}")


if __name__ == "__main__":
    main()
