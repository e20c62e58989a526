"""Fill in a form: the template is the JSON text, its slots are the values.

    python examples/fill_form.py [model.gguf]

Brackets, keys and quotes are the template's (`templates/form.tmpl`). A slot inside quotes has `json=true`, so that what
the model writes there is escaped and ends at the closing quote, or a regular expression without quotes; numbers are
options with their types. So the record always parses.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import selectrie

FORM = selectrie.Template.from_file(Path(__file__).parent / "templates" / "form.tmpl")
NOTES = [
    "Tara Brooks ordered 3 x lamp in white. She pays by credit card.",
    "We got order A4711 from Milan Kovac: 12 x chair at 45 euros each. The color is brown.",
]


def main() -> None:
    values = {"quantities": list(range(1, 21)), "colors": ["white", "brown", "black", "red"]}
    with selectrie.load(*sys.argv[1:2]) as llm:
        for note in NOTES:
            page = llm.render(FORM, note=note, **values)
            record = json.loads(page["record"])
            print(note)
            print(f"  {json.dumps(record)}")
            print(f"  quantity is {page['quantity']!r}, p {page.selections['quantity'].probability:.2f} of 20 numbers")


if __name__ == "__main__":
    main()
