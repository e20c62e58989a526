"""Label every row of a table, look at what cannot be relied on, and go on with a run that was stopped.

    python examples/route_table.py [model.gguf]

`selectrie classify tickets.csv --state body --labels intents.txt --out routed.csv` does the same from a shell. The rows are
kept as they are written; the answers are new columns. The run has a folder, `routed.csv.run`, so a second call asks the model
for nothing that is already in its log.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import selectrie
from selectrie import Choice, DecisionParams
from selectrie.tables.table_questions import TableQuestions
from selectrie.tables.table_run import plan_table, run_table

DATA = Path(__file__).parent / "data"
INTENTS = (DATA / "intents.txt").read_text().splitlines()
ASKED = TableQuestions(
    state="body",
    questions={"intent": Choice("What does the customer want?", INTENTS)},
    params=DecisionParams(min_confidence=0.5, min_label_mass=0.2),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, selectrie.load(*sys.argv[1:2]) as llm:
        out = Path(folder) / "routed.csv"
        plan = plan_table(DATA / "tickets.csv", ASKED, out)
        print("asked about", run_table(llm, plan).rows, "rows")
        print("again:", run_table(llm, plan).rows_logged, "of them are in the log")
        with out.open(newline="") as file:
            for row in csv.DictReader(file):
                queue = row["intent"] if not (row["error"] or row["intent_abstained"]) else "a person"
                print(row["id"], queue, row["error"])


if __name__ == "__main__":
    main()
