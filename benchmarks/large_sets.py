"""Large sets of choices: time, peak memory, and how much of the trie best-first search evaluates.

Each case runs in a process of its own, because peak memory is a property of a process:

- 10^4 words, exhaustive and best-first; 10^5 words, best-first (a vocabulary of 512 makes five rows of a word)
- 128 044 lemmas after a sentence that a model of children's stories can finish, closed by a full stop: few nodes should do
- 33 909 cities, which such a model knows nothing about: best-first should cost no more than exhaustive scoring

Labels and trained weights are read from the folder that SELECTRIE_TEST_DATA names; without it the first case runs on made
words and random weights, and the others are left out by name.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import json
import resource
import subprocess
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import selectrie
from benchmarks._common import arguments, refuse_under_load, report
from benchmarks.workload import data_file, generated_model

MEBIBYTE = 2**20
SYLLABLES = ("ba", "den", "fi", "gor", "ha", "kel", "lo", "mar", "ne", "ost", "pri", "run", "sel", "tu", "vor", "we")


@dataclass(frozen=True, slots=True)
class Case:
    """One set and the searches to time on it. following: text after the choice, or nothing."""

    file: str
    n: int
    prompt: str
    following: str
    methods: tuple[str, ...]


CASES = {
    "words_10k": Case("labels/wordnet_lemmas.txt", 10_000, "The girl saw a", "", ("exhaustive", "best_first")),
    "words_100k": Case("labels/wordnet_lemmas.txt", 100_000, "The girl saw a", "", ("best_first",)),
    "lemmas": Case(
        "labels/wordnet_lemmas.txt",
        128_044,
        "Lily and her mom went to the park to play with a",
        ".",
        ("best_first",),
    ),
    "cities": Case("labels/cities_full.txt", 33_909, "He lived in the city of", "", ("exhaustive", "best_first")),
}


def choices_of(case: Case) -> list[str]:
    """The first n lines of the case's file, or as many made words; a leading space before each."""
    path = data_file(case.file)
    if path is not None:
        return [" " + line for line in dict.fromkeys(path.read_text().splitlines()) if line][: case.n]
    words = ("".join(parts) for length in (1, 2, 3, 4, 5) for parts in product(SYLLABLES, repeat=length))
    return [f" {word}" for word, _ in zip(words, range(case.n), strict=False)]


def measure(name: str, threads: int) -> dict[str, Any]:
    """Figures of one case: of each search, after one that warms up on two choices."""
    case = CASES[name]
    choices = choices_of(case)
    model = data_file("weights/stories260K.gguf") or generated_model("tiny", "f32")
    figures: dict[str, Any] = {"model": model.name, "choices": len(choices)}
    with selectrie.load(model, n_threads=threads) as llm:
        llm.select(case.prompt, choices[:2])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for method in case.methods:
            llm.trim()
            search = selectrie.Search(method=method)
            start = time.perf_counter()
            chosen = llm.select(case.prompt, choices, following=case.following, search=search)
            seconds = time.perf_counter() - start
            certificate = chosen.certificate
            winner = chosen.choices[chosen.index]
            figures |= {
                f"{method}_s": seconds,
                f"{method}_decode_s": chosen.cost.decode_s,
                f"{method}_calls": chosen.cost.model_calls,
                f"{method}_rows": chosen.cost.rows,
                f"{method}_inner_share": certificate.nodes_evaluated / certificate.nodes_inner,
                f"{method}_proved": certificate.proved,
                f"{method}_calls_per_depth": chosen.cost.model_calls / max(1, len(winner.tokens)),
                f"{method}_winner": chosen.text,
            }
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures |= {"peak_mib": after * 1024 / MEBIBYTE, "peak_growth_mib": (after - before) * 1024 / MEBIBYTE}
    if len(case.methods) == 2:
        figures["best_first_over_exhaustive"] = figures["best_first_s"] / figures["exhaustive_s"]
    return figures


def main() -> None:
    """Entry point of the script."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--case", choices=tuple(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--inside", action="store_true", help="measure here and print plain figures (used by the script)"
    )
    options = parser.parse_args()
    cases = options.case or list(CASES)
    if options.inside:
        print(json.dumps(measure(cases[0], options.threads)))
        return
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {}
    for name in cases:
        if name in ("lemmas", "cities") and data_file(CASES[name].file) is None:
            figures[name] = "left out: SELECTRIE_TEST_DATA names no folder that has it"
            continue
        command = [sys.executable, str(Path(__file__).resolve()), "--inside", "--case", name]
        run = subprocess.run([*command, "--threads", str(options.threads)], capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{name}: {run.stderr}")
        figures |= {f"{name}_{key}": value for key, value in json.loads(run.stdout).items()}
    report("large_sets", figures, as_json=options.json)


if __name__ == "__main__":
    main()
