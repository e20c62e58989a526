"""Sort messages of customers: one template, many rows, each a short chat.

    python examples/classify_emails.py [model.gguf]

The template (`templates/email.tmpl`) is a chat by the model's own chat template. The intent is one of the labels, ended by the end of
the turn; the team follows from it without the model. All rows are worked on together, and what they share is evaluated once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import selectrie

FOLDER = Path(__file__).parent / "templates"
MAIL = selectrie.Template.from_file(FOLDER / "email.tmpl")
TEAMS = json.loads((FOLDER / "teams.json").read_text(encoding="utf-8"))
LEAST_COVERAGE = 0.1


def main() -> None:
    rows = [json.loads(line) for line in (FOLDER / "emails.jsonl").read_text(encoding="utf-8").splitlines()]
    with selectrie.load(*sys.argv[1:2]) as llm:
        pages = llm.render_many(MAIL, [{**TEAMS, **row} for row in rows])
    for row, page in zip(rows, pages, strict=True):
        answer = page.selections["intent"]
        team = page["team"] if answer.coverage > LEAST_COVERAGE else "a person"
        print(f"{row['mail']}\n  {page['intent']} (p {answer.probability:.2f}) -> {team}")


if __name__ == "__main__":
    main()
