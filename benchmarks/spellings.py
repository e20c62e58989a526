"""How many rows do close bounds on a text's probability over all its spellings take? `make bench`, or
`python benchmarks/spellings.py`.

Each of 244 countries after "The capital city is in", and each of the 77 labels of Banking77 after a sentence about a bank,
as they are (`card_arrival`) and as words, is scored alone on the embedded model by `Engine.score(..., tokenizations="all")`,
for both events. Rows are those read for the bounds, divided by the rows of the canonical spelling: its tokens, and one more
for an end. Printed is the worst of all texts whose upper bound is above -30 and above -50 nats, and the share of them whose
upper bound is at most 1.01 times the lower one. The targets are those of "ends", which is the default; "begins" counts a row
less for the canonical spelling, and is printed beside it.

The labels are in the folder that `SELECTRIE_TEST_DATA` names; without it, 64 made ones take their place, and nothing is a
target. `--json` prints one object of all figures as the last line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import selectrie
from benchmarks._common import NO_TARGETS, Targets, arguments, report
from benchmarks.workload import data_file, labels
from selectrie.engine.engine import Engine
from selectrie.engine.requests.spellings import MAX_RATIO
from selectrie.results import Spellings

BANK = "Once upon a time, there was a bank."
SETS = {
    "countries": ("labels/countries.txt", "The capital city is in", " {}"),
    "banking77": ("labels/banking77_labels.txt", f"{BANK} The question was about ", "{}"),
    "banking77_words": ("labels/banking77_labels.txt", f"{BANK} A man asked about", " {}"),
}
"""The file of the texts, the prompt, and how each text is written after it."""
EVENTS = ("ends", "begins")
MOST_ROWS = {-30: 12.0, -50: 40.0}
"""Rows for each canonical row, by the log-probability above which they are enough."""


def targets(figures: dict[str, Any]) -> Targets:
    """Return the bounds of the figures of the event "ends", where any text is so
    probable.
    """
    at_most, at_least = {}, {}
    for name in SETS:
        for nats, most in MOST_ROWS.items():
            if figures[f"{name}_ends_n_above_{-nats}"]:
                at_most[f"{name}_ends_rows_above_{-nats}"] = most
                at_least[f"{name}_ends_close_above_{-nats}"] = 1.0
    return Targets(at_most, at_least)


def written(line: str, name: str) -> str:
    """Return a label as it is scored in a set."""
    return SETS[name][2].format(line.replace("_", " ") if name.endswith("words") else line)


@dataclass(frozen=True, slots=True)
class Measured:
    """A text: what is known of its spellings, and its rows for each canonical one."""

    spellings: Spellings
    n_canonical: int

    @property
    def multiple(self) -> float:
        return self.spellings.n_rows / self.n_canonical

    @property
    def is_close(self) -> bool:
        return self.spellings.logp_high - self.spellings.logp_low <= np.log(MAX_RATIO)


def measure(engine: Engine, prompt: str, texts: list[str], event: str) -> list[Measured]:
    """Score each text alone."""
    found = []
    for text in texts:
        score = engine.score(prompt, text, tokenizations="all", event=event)
        if score.spellings is not None:
            found.append(Measured(score.spellings, len(score.tokens) + (event == "ends")))
    return found


def figures_of(name: str, found: list[Measured]) -> dict[str, Any]:
    """Return the figures of one set and event."""
    result: dict[str, Any] = {}
    for nats in MOST_ROWS:
        above = [one for one in found if one.spellings.logp_high > nats]
        result[f"{name}_n_above_{-nats}"] = len(above)
        if above:
            result[f"{name}_rows_above_{-nats}"] = max(one.multiple for one in above)
            result[f"{name}_close_above_{-nats}"] = float(np.mean([one.is_close for one in above]))
    return result | {
        f"{name}_median_rows": float(np.median([one.multiple for one in found])),
        f"{name}_close": float(np.mean([one.is_close for one in found])),
        f"{name}_proved": float(np.mean([one.spellings.proved for one in found])),
        f"{name}_canonical_share_median": float(np.median([one.spellings.canonical_share[0] for one in found])),
    }


def main() -> int:
    """Run and report; return the exit code."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--most", type=int, default=None, help="texts of each set: a quick look")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    is_real = all(data_file(path) is not None for path, *_ in SETS.values())
    with selectrie.load() as engine:
        for name, (path, prompt, _) in SETS.items():
            file = data_file(path)
            lines = file.read_text(encoding="utf-8").splitlines() if file is not None else labels(64)[1]
            texts = [written(line.strip(), name) for line in lines if line.strip()][: options.most]
            for event in EVENTS:
                start = time.perf_counter()
                figures |= figures_of(f"{name}_{event}", measure(engine, prompt, texts, event))
                figures[f"{name}_{event}_s"] = time.perf_counter() - start
    return report("spellings", figures, targets(figures) if is_real else NO_TARGETS, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
