"""Write the held-out questions of every topic to `tests/data/held_out`: `python -m tiny_model.held_out` in `tools/`."""

from __future__ import annotations

import json
from dataclasses import asdict

from tiny_model import corpus
from tiny_model.files import HELD_OUT


def lines(topic: str) -> str:
    """The questions of a topic, a JSON object a line."""
    return "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in corpus.held_out(topic))


def main() -> None:
    """Entry point of the script."""
    HELD_OUT.mkdir(parents=True, exist_ok=True)
    for topic in corpus.TOPICS:
        path = HELD_OUT / f"{topic}.jsonl"
        path.write_text(lines(topic), encoding="utf-8")
        print(f"{path}: {len(path.read_text(encoding='utf-8').splitlines())} questions")


if __name__ == "__main__":
    main()
