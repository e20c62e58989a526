"""Write the held-out questions of every topic to `tests/data/held_out`.

Run `python -m embedded_model.held_out` in `tools/`. It refuses if a course of the corpus
that was written contains one of them.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from embedded_model import corpus
from embedded_model.files import HELD_OUT, corpus_file

_BLANKS = str.maketrans(dict.fromkeys(string.punctuation, " "))


def lines(topic: str) -> str:
    """Return the questions of a topic, a JSON object a line."""
    return "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in corpus.held_out(topic))


def contained(texts: Iterable[str], documents: Sequence[str]) -> list[str]:
    """Return the texts whose words occur in some document one after the other, ignoring
    case and punctuation.

    A text is searched in the documents that contain its rarest word.
    """
    spelled = [_words(document) for document in documents]
    frequency = Counter(word for words in spelled for word in set(words))
    own = {text: _words(text) for text in texts}
    rarest = {text: min(words, key=frequency.__getitem__) for text, words in own.items()}
    where: dict[str, list[str]] = {word: [] for word in rarest.values()}
    for words in spelled:
        for word in where.keys() & set(words):
            where[word].append(f" {' '.join(words)} ")
    return [
        text for text, words in own.items() if any(f" {' '.join(words)} " in found for found in where[rarest[text]])
    ]


def _words(text: str) -> list[str]:
    return text.lower().translate(_BLANKS).split()


def main() -> None:
    """Run the script."""
    phrases = [item.phrase for topic in corpus.TOPICS for item in corpus.held_out(topic)]
    for index in range(len(corpus.COURSES)):
        if not corpus_file(index).exists():
            continue
        if leaked := contained(phrases, corpus.read(index)):
            raise ValueError(f"course {index} contains {len(leaked)} held-out phrases: {leaked[:5]}")
    HELD_OUT.mkdir(parents=True, exist_ok=True)
    for topic in corpus.TOPICS:
        path = HELD_OUT / f"{topic}.jsonl"
        path.write_text(lines(topic), encoding="utf-8")
        print(f"{path}: {len(path.read_text(encoding='utf-8').splitlines())} questions")


if __name__ == "__main__":
    main()
