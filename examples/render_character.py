"""A character sheet: what belongs together is decided together.

    python examples/render_character.py [model.gguf]

The template (`templates/character.tmpl`) chooses a class, then armor and mantra jointly, then a weapon out of a grammar, and
writes a level and three items. Every choice is conditioned on the page above it and on the text that follows it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import selectrie

FOLDER = Path(__file__).parent / "templates"
SHEET = selectrie.Template.from_file(FOLDER / "character.tmpl")
LISTS = json.loads((FOLDER / "lists.json").read_text(encoding="utf-8"))


def main() -> None:
    with selectrie.load(*sys.argv[1:2]) as llm:
        page = llm.render(SHEET, name="Aria", race="elf", **LISTS)
        print(page.text)
        print("class, in the model's order:")
        for choice in page.selections["class"].ranked:
            print(f"  {choice.text:8} {choice.probability:.2f}")
        print("armor and mantra together, the best three of twelve pairs:")
        for pair in page.selections["armor"].top(3):
            print(f"  {pair.probability:.2f}  {' / '.join(pair.texts)}")
        print("items:", ", ".join(page["items"]))


if __name__ == "__main__":
    main()
