"""Large sets of choices: time, peak memory, and how much of the trie best-first search
evaluates.

Each search runs in a separate process, because peak memory is a property of a process:

- 10^4 words, exhaustive and best-first; 10^5 words, best-first (a vocabulary of 512 makes five rows of a word)
- 128 044 lemmas after a sentence that a model of children's stories can finish, closed by a full stop: few nodes should do
- 33 909 cities, which such a model knows nothing about: best-first should cost no more than exhaustive scoring
- 10^6 texts as a list and as a grammar made of it: the grammar should cost what the list does, and answer the same

Labels and trained weights are read from the folder that SELECTRIE_TEST_DATA names.
Without it, the first case runs on made words and random weights, and the report names
the others as left out: what they show depends on what the model knows.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import itertools
import json
import math
import resource
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import selectrie
from benchmarks._common import NO_TARGETS, Targets, arguments, refuse_under_load, report
from benchmarks.workload import LEMMAS, data_file, generated_model, words
from selectrie import Grammar

MEBIBYTE = 2**20
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of `ru_maxrss`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One set and the searches to time on it.

    following: text after the choice, or nothing. methods: of search; "as_grammar"
    searches the same choices as a grammar made of them. targets: by figure, without the
    name of the case. real: whether it runs only on the trained weights and labels.
    combined: whether choices are pairs of words.
    """

    file: str
    n: int
    prompt: str
    following: str
    methods: tuple[str, ...]
    targets: Targets = NO_TARGETS
    real: bool = False
    combined: bool = False


CASES = {
    "words_10k": Case(LEMMAS, 10_000, "The girl saw a", "", ("exhaustive", "best_first")),
    "words_100k": Case(LEMMAS, 100_000, "The girl saw a", "", ("best_first",)),
    "lemmas": Case(
        LEMMAS,
        128_044,
        "Lily and her mom went to the park to play with a",
        ".",
        ("best_first",),
        # Of 128 044 lemmas few are worth a look, and the search reaches the winner about as fast as it can be spelled.
        Targets(
            at_most={"best_first_inner_share": 0.001, "best_first_calls_per_depth": 2},
            at_least={"best_first_proved": 1, "choices": 128_044},
        ),
        real=True,
    ),
    "cities": Case(
        "labels/cities_full.txt",
        33_909,
        "He lived in the city of",
        "",
        ("exhaustive", "best_first"),
        Targets(
            at_most={"best_first_over_exhaustive": 1.2},
            at_least={"best_first_proved": 1, "same_winner": 1, "choices": 33_909},
        ),
        real=True,
    ),
    "pairs_1m": Case(
        LEMMAS,
        1_000_000,
        "The girl saw a",
        "",
        ("best_first", "as_grammar"),
        # The list is kept as it is, so what comes on top is one look at each text when the grammar is made.
        Targets(at_most={"as_grammar_over_best_first": 1.5}, at_least={"best_first_proved": 1, "same_winner": 1}),
        combined=True,
    ),
}
WEIGHTS = "weights/stories260K.gguf"


def measure(case: Case, method: str, threads: int) -> dict[str, Any]:
    """Measure one search, after another one that warms up on two choices. Peaks are
    those of this process so far.
    """
    choices = chosen_texts(case)
    model = data_file(WEIGHTS) or generated_model("tiny", "f32")
    with selectrie.load(model, n_threads=threads) as llm:
        llm.select(case.prompt, choices[:2])
        llm.trim()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        if method == "as_grammar":
            chosen = llm.select(case.prompt, grammar=Grammar.from_choices(choices), following=case.following)
        else:
            search = selectrie.SearchParams(method=method)
            chosen = llm.select(case.prompt, choices, following=case.following, search=search)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    certificate = chosen.certificate
    winner = chosen.choices[chosen.index]
    return {
        "model": model.name,
        "choices": len(choices),
        f"{method}_s": seconds,
        f"{method}_decode_s": chosen.cost.decode_s,
        f"{method}_calls": chosen.cost.model_calls,
        f"{method}_rows": chosen.cost.rows,
        f"{method}_inner_share": certificate.nodes_evaluated / certificate.nodes_inner,
        f"{method}_proved": certificate.proved,
        f"{method}_calls_per_depth": chosen.cost.model_calls / max(1, len(winner.tokens)),
        f"{method}_winner": chosen.text,
        f"{method}_peak_mib": after * MAXRSS_BYTES / MEBIBYTE,
        f"{method}_peak_growth_mib": (after - before) * MAXRSS_BYTES / MEBIBYTE,
    }


def chosen_texts(case: Case) -> list[str]:
    """Return the choices of a case."""
    if not case.combined:
        return words(case.n, case.file)
    n_first = math.isqrt(case.n)
    found = words(2 * n_first, case.file)
    pairs = (first + second for first in found[::2] for second in found[1::2])
    return list(itertools.islice(pairs, case.n))


def measured(name: str, case: Case, threads: int) -> dict[str, Any]:
    """Return the figures of all searches of a case, each measured in a separate
    process.
    """
    figures: dict[str, Any] = {}
    for method in case.methods:
        command = [sys.executable, str(Path(__file__).resolve()), "--inside", method, "--case", name]
        command += ["--most", str(case.n), "--threads", str(threads)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{name}, {method}: {run.stderr}")
        figures |= json.loads(run.stdout)
    if len(case.methods) == 2:
        one, other = sorted(case.methods, key=("exhaustive", "best_first", "as_grammar").index)
        figures[f"{other}_over_{one}"] = figures[f"{other}_s"] / figures[f"{one}_s"]
        figures["same_winner"] = figures[f"{other}_winner"] == figures[f"{one}_winner"]
    return figures


def named(name: str, targets: Targets) -> Targets:
    """Return the targets of a case under the names of the report."""
    at_most = {f"{name}_{key}": bound for key, bound in targets.at_most.items()}
    return Targets(at_most, {f"{name}_{key}": bound for key, bound in targets.at_least.items()})


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--case", choices=tuple(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--most", type=int, help="at most so many choices of each set: a quick look, without targets")
    parser.add_argument("--inside", metavar="METHOD", help="measure here and print plain figures (used by the script)")
    options = parser.parse_args()
    cases = {name: CASES[name] for name in options.case or CASES}
    if options.most:
        cases = {name: replace(case, n=min(case.n, options.most)) for name, case in cases.items()}
    if options.inside:
        print(json.dumps(measure(next(iter(cases.values())), options.inside, options.threads)))
        return 0
    refuse_under_load(allowed=options.under_load)
    figures: dict[str, Any] = {}
    targets = NO_TARGETS
    for name, case in cases.items():
        if case.real and not (data_file(case.file) and data_file(WEIGHTS)):
            figures[name] = f"left out: no folder SELECTRIE_TEST_DATA that holds {case.file} and {WEIGHTS}"
            continue
        figures |= {f"{name}_{key}": value for key, value in measured(name, case, options.threads).items()}
        targets = targets if options.most else targets.joined(named(name, case.targets))
    return report("large_sets", figures, targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
