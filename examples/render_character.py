"""A character sheet: what belongs together is decided together.

    python examples/render_character.py [model.gguf]

The template (`templates/character.tmpl`) decides class, armor and mantra jointly, then a weapon out of a grammar, and writes a
level and three items. The same template without its joint block decides class before armor, and armor before mantra: each is
the best when it is chosen, and together they need not fit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import selectrie

FOLDER = Path(__file__).parent / "templates"
SHEET = selectrie.Template.from_file(FOLDER / "character.tmpl")
APART = selectrie.Template(
    SHEET.source.replace("<<#joint k=3>>", "").replace("<</joint>>", ""), name="apart", search_path=FOLDER
)
LISTS = json.loads((FOLDER / "lists.json").read_text(encoding="utf-8"))


def main() -> None:
    values = {"name": "Aria", "race": "elf", **LISTS}
    with selectrie.load(*sys.argv[1:2]) as llm:
        page, apart = llm.render(SHEET, values), llm.render(APART, values)
    print(page.text)
    print("class, armor and mantra together, the best three of 48:")
    for one in page.selections["class"].top(3):
        print(f"  {one.probability:.2f}  {' / '.join(one.texts)}")
    print("one after the other:")
    print("       ", " / ".join(str(apart[name]) for name in ("class", "armor", "mantra")))
    print("items:", ", ".join(page["items"]))


if __name__ == "__main__":
    main()
