"""Label the messages of a data frame, and send on what cannot be relied on.

    python examples/label_frame.py [model.gguf]

Needs pandas and the extra `tables`. `classify_many` keeps the index of a Series, so its answers join the frame. An example of
each label helps most models more than any other option. A message that cannot be asked about has the reason in `error`, and one
whose labels the model hardly expects abstains.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import selectrie

TICKETS = Path(__file__).parent / "data" / "tickets.csv"
LABELS = ["track order", "refund", "reset password"]
EXAMPLES = [
    ("Has it been sent?", "track order"),
    ("I want my money back.", "refund"),
    ("I lost my password.", "reset password"),
]


def main() -> None:
    tickets = pd.read_csv(TICKETS, dtype={"id": str}).set_index("id")
    with selectrie.load(*sys.argv[1:2]) as llm:
        found = llm.classify_many(
            tickets["body"],
            LABELS,
            instructions="What does the customer want?",
            examples=EXAMPLES,
            min_label_mass=0.25,
            on_error="keep",
        )
    routed = tickets.join(found.to_pandas())
    sure = routed["label"].notna() & (routed["abstained"] == "")
    routed["queue"] = routed["label"].astype(object).where(sure, "a person")
    print(routed[["subject", "label", "probability", "label_mass", "queue"]].round(2).to_string())


if __name__ == "__main__":
    main()
