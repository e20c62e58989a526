"""How fast are decisions about a table? Side by side in one run: `make bench`, or `python benchmarks/decide.py`.

64 messages of Banking77 and its 77 labels, which the prompt lists (about 700 tokens), on random weights of the 0.5B shape
(24 layers, width 896, q8_0), so that a row costs what it costs in practice:

- table: one unit of 64 rows by `Engine.decision_scorer`, with the question first and its labels evaluated once
- floor: as many rows as the table took, below a context of the shared tokens, in full `llama_decode` calls without anything
  else
- one by one: `Engine.decide` with the text first, as a loop over messages would call it (timed on some messages, and scaled)
- loop: llama.cpp driven by hand: the prompt's cache holds what the last prompt shared, then one `llama_decode` a label with
  its tokens (the same)
- guidance: `select` after the same prompts, where guidance is installed (the same)
- letters: 26 labels as letters, by table and by a loop that evaluates each prompt on its cache and reads one row. The table
  also settles near ties, which the loop does not see; they are frequent on random weights, whose letters are about equally
  probable and whose tolerance is large. Their number is printed, and the time of the table without them.

Accuracy is printed for what it is: on random weights it is chance. Then the Python of one row on a fake model, outside its
calls, for 5 and 77 options, as processor time. `--case python` prints this alone, also on a machine that is busy.
`--json` prints one object of all figures as the last line.
"""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import csv
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import selectrie
from benchmarks._common import NO_TARGETS, Figures, Targets, arguments, refuse_under_load, report
from benchmarks.bare import N_BATCH, Bare, Call, Recorder
from benchmarks.guided import Guided
from benchmarks.templates import guidance_at
from benchmarks.workload import data_file, generated_model, labels
from selectrie import Choice, DecisionParams
from selectrie.core.types import Limits, ModelKind
from selectrie.decide.answers import Decision
from selectrie.engine.sources import embedded_file
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.testing import HashModel

N_MESSAGES, N_LETTERS = 64, 26
INSTRUCTIONS = "Which intent does this message of a customer of a bank have?"
QUESTIONS_FIRST = DecisionParams(layout="questions first")
STATE_FIRST = DecisionParams(layout="state first")
LETTERS = replace(QUESTIONS_FIRST, scoring="letters")
N_FLOOR_CALLS = 8
"""Full calls that are timed for the floor; the rest takes as long a row."""
FAKE_LIMITS = Limits(nodes=1 << 16, sequences=8192, rows_per_call=2048, kind=ModelKind.ATTENTION, max_idle_rows=1 << 16)
TARGETS = Targets(
    at_most={"table_over_floor": 1.10, "letters_over_loop": 1.05, "python_5_ms": 0.5, "python_77_ms": 3.0},
    at_least={"one_by_one_over_table": 1.0, "loop_over_table": 1.0, "guidance_over_table": 1.0},
)


def messages(n: int) -> tuple[str, list[tuple[str, str]]]:
    """Return the source of the messages, and n of them with their labels."""
    path = data_file("labels/banking77_test.csv")
    if path is None:
        names = [name.strip() for name in labels(77)[1]]
        return "made messages", [
            (f"Message {i}: I would like to {names[i % len(names)]}.", names[i % len(names)]) for i in range(n)
        ]
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(text, label.replace("_", " ")) for text, label in list(csv.reader(file))[1:]]
    return "Banking77's test set", [rows[i * len(rows) // n] for i in range(n)]


def timed(function: Callable[..., Any], *args: Any, **named: Any) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    found = function(*args, **named)
    return time.perf_counter() - start, found


class Tables:
    """Decides about a table, and records the calls of the memory in which it does.

    The engine's self-check has been made, and its weights have been read.
    """

    def __init__(self, llm: Engine) -> None:
        self.llm = llm
        self.recorders: list[Recorder] = []
        new_context = llm._model.new_context

        def recorded(*args: Any, **named: Any) -> Any:
            made = new_context(*args, **named)
            self.recorders.append(Recorder(made))
            return made

        llm._model.new_context = recorded  # type: ignore[method-assign]

    def decisions(
        self, states: Sequence[str], question: Choice[str], params: DecisionParams
    ) -> tuple[float, list[Decision], list[tuple[int, int]]]:
        """Return seconds, decisions and calls (rows, outputs) of one unit, with the
        memory and the shared tokens evaluated anew.
        """
        self.recorders.clear()

        def decided() -> list[Decision]:
            with self.llm.decision_scorer({"q": question}, params=params) as scorer:
                return scorer.decisions(states)

        seconds, found = timed(decided)
        return seconds, found, [call for one in self.recorders for call in one.made]


def floor(bare: Bare, calls: Sequence[tuple[int, int]], shared: Sequence[int]) -> float:
    """Return the seconds of the same number of rows and outputs in full calls.

    Some full calls below the shared tokens are timed, after these tokens themselves.
    """
    n_rows, n_wanted = (sum(column) for column in zip(*calls, strict=True))
    n_below = n_rows - len(shared)
    full = [Call(N_BATCH, round(N_BATCH * n_wanted / n_below), range(N_MESSAGES))] * N_FLOOR_CALLS
    return bare.prompt(shared) + sum(bare.replay(full, shared)) * n_below / (N_BATCH * N_FLOOR_CALLS)


def plans(llm: Engine, states: Sequence[str], question: Choice[str], params: DecisionParams) -> list[Any]:
    """Return the tokens of the prompt about each state, and of its choices."""
    found = []
    for state in states:
        (prompt,) = llm.decision_prompts(state, {"q": question}, params=params)["q"]
        assert prompt.choices is not None
        found.append(
            llm.tokens(
                prompt.prompt,
                prompt.choices,
                terminator=prompt.terminator,
                following=prompt.following,
                prompting=prompt.prompting,
            )
        )
    return found


def ids(spelled: Sequence[tuple[int, str]]) -> list[int]:
    """Return the token ids of a plan's tokens."""
    return [token for token, _ in spelled]


def n_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of tokens with which both begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Loop:
    """llama.cpp by hand: a prompt is evaluated from where it differs from the one before.

    Args:
        bare: The model.
        ending: Tokens of which one ends an answer; none if its own tokens end it.
    """

    def __init__(self, bare: Bare, ending: Sequence[int] = ()) -> None:
        self.bare, self.ending = bare, list(ending)
        self.held: list[int] = []
        bare.clear()

    def prompt(self, tokens: list[int]) -> Any:
        """Evaluate a prompt and return the row after it, float32[V]."""
        n = min(n_common(self.held, tokens), len(tokens) - 1)
        self.bare.cut(0, n)
        for start in range(n, len(tokens), N_BATCH):
            part = tokens[start : start + N_BATCH]
            self.bare.fill_run(part, start, 0, 1)
            self.bare.decode()
        self.held = tokens
        return self.bare.logp(len(part) - 1)

    def rows(self, prompts: Sequence[list[int]]) -> list[Any]:
        """Return the row after each prompt."""
        return [self.prompt(tokens) for tokens in prompts]

    def scores(self, tokens: list[int], paths: Sequence[list[int]]) -> list[float]:
        """Return the log-probability of each path after a prompt, one call a path."""
        first, found = self.prompt(tokens), []
        for path in paths:
            score = float(first[path[0]])
            evaluated = path if self.ending else path[:-1]
            if evaluated:
                self.bare.fill_run(evaluated, len(tokens), 0, len(evaluated))
                self.bare.decode()
                score += sum(float(self.bare.logp(j)[token]) for j, token in enumerate(path[1:]))
                if self.ending:
                    score += float(np.logaddexp.reduce(self.bare.logp(len(path) - 1)[self.ending], dtype=np.float64))
                self.bare.cut(0, len(tokens))
            found.append(score)
        return found


def check(decision: Decision, scores: Sequence[float], name: str, n_rows: int) -> None:
    """Check that both sides computed the same numbers: otherwise their times cannot be
    compared.

    Those of a selection are less by one number, the log-probability of the healed bytes.
    Each number is read from at most `n_rows` rows, which other calls may move by the
    tolerance; so two differences are apart by twice that.
    """
    selection = decision["q"].selections[0]
    apart, tolerance = np.ptp(np.asarray(selection.choices.logp) - np.asarray(scores)), selection.signature.tolerance
    assert apart <= 2 * n_rows * tolerance, f"{name} differs by {apart:.3f} nats, with {tolerance:.3f} a row"


def accuracy(decisions: Sequence[Decision], wanted: Sequence[str]) -> float:
    """Return the share of right answers."""
    return sum(one["q"].value == label for one, label in zip(decisions, wanted, strict=True)) / len(wanted)


def is_near_tie(decision: Decision) -> bool:
    """Return whether the two best options are as close as calls may move them."""
    selection = decision["q"].selections[0]
    second, first = np.sort(selection.choices.logp)[-2:]
    return bool(first - second <= 2 * selection.signature.tolerance)


class Bench:
    """One model, loaded by each side, with the messages and what is asked about them."""

    def __init__(self, llm: Engine, bare: Bare, theirs: Guided | None, asked: Sequence[tuple[str, str]]) -> None:
        self.llm, self.bare, self.theirs, self.tables = llm, bare, theirs, Tables(llm)
        self.states, self.wanted = [text for text, _ in asked], [label for _, label in asked]
        self.names = [name.strip() for name in labels(77)[1]]
        self.question = Choice(INSTRUCTIONS, self.names)
        self.lettered = Choice(INSTRUCTIONS, self.names[:N_LETTERS])
        self.planned = plans(llm, self.states, self.question, QUESTIONS_FIRST)
        self.contexts = [ids(one.context) for one in self.planned]
        n_shared = min(n_common(self.contexts[0], other) for other in self.contexts[1:])
        self.shared = self.contexts[0][:n_shared]
        self.figures = Figures()
        self.facts: dict[str, Any] = {"shared_tokens": n_shared, "inner_rows": self.planned[0].rows_inner}

    def run(self, sample: Sequence[int]) -> None:
        """Run every way once, the slow ones on a sample of the messages."""
        scale = len(self.states) / len(sample)
        seconds, decisions, calls = self.tables.decisions(self.states, self.question, QUESTIONS_FIRST)
        self.figures.add("table", seconds)
        self.facts |= {"table_rows": sum(n for n, _ in calls), "table_calls": len(calls)}
        self.facts["table_accuracy"] = accuracy(decisions, self.wanted)
        self.figures.add("floor", floor(self.bare, calls, self.shared))
        seconds, n_rows = timed(self._one_by_one, sample)
        self.figures.add("one_by_one", seconds * scale)
        self.facts["one_by_one_rows"] = round(scale * n_rows)
        eog = self.llm.vocabulary.eog.tolist() if self.planned[0].terminator == "eog" else []
        loop = Loop(self.bare, eog)
        loop.prompt(self.contexts[sample[0] - 1])  # another message: the question is cached
        seconds, scored = timed(self._in_loop, loop, sample)
        self.figures.add("loop", seconds * scale)
        for i, scores in zip(sample, scored, strict=True):
            check(decisions[i], scores, "the loop", 1 + max(map(len, self.planned[0].choices)))
        if self.theirs is not None:
            self.figures.add("guidance", scale * self._guided(self.theirs, sample))
        self._letters()

    def _one_by_one(self, sample: Sequence[int]) -> int:
        """Decide about messages one after the other; return the rows."""
        self.llm.trim()
        made = [self.llm.decide(self.states[i], {"q": self.question}, params=STATE_FIRST) for i in sample]
        return sum(one.usage.cost.rows for one in made)

    def _in_loop(self, loop: Loop, sample: Sequence[int]) -> list[list[float]]:
        return [loop.scores(self.contexts[i], [ids(path) for path in self.planned[i].choices]) for i in sample]

    def _guided(self, theirs: Guided, sample: Sequence[int]) -> float:
        """Return the seconds of guidance's `select` after the prompts of messages."""
        prompts = [
            self.llm.decision_prompts(self.states[i], {"q": self.question}, params=QUESTIONS_FIRST)["q"][0].prompt
            for i in sample
        ]
        return sum(theirs.fill([(str(prompt), "q", self.names)], "")["seconds"] for prompt in prompts)

    def _letters(self) -> None:
        """Run the table with letters, and the loop that reads them."""
        planned = plans(self.llm, self.states, self.lettered, LETTERS)
        contexts, letters = [ids(one.context) for one in planned], [path[0][0] for path in planned[0].choices]
        seconds, decisions, calls = self.tables.decisions(self.states, self.lettered, LETTERS)
        self.figures.add("letters", seconds)
        self.figures.add("letters_without_ties", sum(one.decode_s for one in self.tables.recorders))
        self.facts |= {
            "letters_rows": sum(n for n, _ in calls),
            "letters_near_ties": sum(map(is_near_tie, decisions)),
            "letters_accuracy": accuracy(decisions, self.wanted),
        }
        seconds, rows = timed(Loop(self.bare).rows, contexts)
        self.figures.add("letters_loop", seconds)
        for decision, row in zip(decisions, rows, strict=True):
            check(decision, row[letters], "the loop that reads letters", 1)

    def ratios(self) -> dict[str, float]:
        """Compare each way with the table, in the same run."""
        at = self.figures.median
        found = {
            "table_over_floor": at("table") / at("floor"),
            "one_by_one_over_table": at("one_by_one") / at("table"),
            "loop_over_table": at("loop") / at("table"),
            "letters_over_loop": at("letters") / at("letters_loop"),
            "letters_without_ties_over_loop": at("letters_without_ties") / at("letters_loop"),
        }
        if self.theirs is not None:
            found["guidance_over_table"] = at("guidance") / at("table")
        return found


def python_ms(n_options: int, states: Sequence[str], repeats: int) -> float:
    """Return the milliseconds of processor time a row, outside the calls of a fake model.

    Its vocabulary and its chat template are those of the embedded model. Other work on the machine slows a repeat down and
    never speeds it up, so it is the fastest one.
    """
    with selectrie.load(embedded_file(), n_threads=1) as llm:
        model = HashModel(1, vocabulary=llm._model.vocabulary, limits=FAKE_LIMITS)
        spent = 0.0

        def apart(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **named: Any) -> Any:
                nonlocal spent
                start = time.process_time()
                try:
                    return function(*args, **named)
                finally:
                    spent += time.process_time() - start

            return called

        new_context = model.new_context

        def watched(*args: Any, **named: Any) -> Any:
            made = new_context(*args, **named)
            for name in ("extend", "match_prefix", "release", "capacity", "trim"):
                setattr(made, name, apart(getattr(made, name)))
            return made

        model.new_context = watched  # type: ignore[method-assign]
        found = []
        question = {"q": Choice(INSTRUCTIONS, [name.strip() for name in labels(77)[1]][:n_options])}
        fake = Engine(model, check=SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0))
        with fake, fake.decision_scorer(question, params=QUESTIONS_FIRST) as scorer:
            scorer.decisions(states)
            for _ in range(repeats):
                spent, start = 0.0, time.process_time()
                scorer.decisions(states)
                found.append((time.process_time() - start - spent) / len(states))
    return 1000 * min(found)


def main() -> int:
    """Run the script; return its exit code."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GGUF file (default: random weights of --shape, made in build/)")
    parser.add_argument("--shape", default="0.5b", choices=("tiny", "wide", "0.5b"), help="tiny: a quick look")
    parser.add_argument("--quantisation", default="q8_0", help="of the random weights")
    parser.add_argument(
        "--guidance", type=Path, help="an interpreter that has guidance (default: this, or build/guidance)"
    )
    parser.add_argument("--messages", type=int, default=N_MESSAGES)
    parser.add_argument("--sampled", type=int, default=2, help="messages on which the slow ways are timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", default="all", choices=("all", "python"), help="python: that of a row alone")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.case == "python":
        states = [text for text, _ in messages(options.messages)[1]]
        figures = {f"python_{n}_ms": python_ms(n, states, 5 * options.repeats) for n in (5, 77)}
        targets = Targets(at_most={name: TARGETS.at_most[name] for name in figures}, at_least={})
        return report("decide", figures, targets, as_json=options.json)
    path = options.model or generated_model(options.shape, options.quantisation)
    python = guidance_at(options.guidance)
    refuse_under_load(allowed=options.under_load)
    source, asked = messages(options.messages)
    figures: dict[str, Any] = {
        "model": path.name,
        "threads": options.threads,
        "repeats": options.repeats,
        "messages": source,
    }
    with ExitStack() as stack:
        bare = stack.enter_context(closing(Bare(path, n_ctx=8192, n_threads=options.threads)))
        llm = stack.enter_context(selectrie.load(path, n_ctx=8192, n_threads=options.threads))
        theirs = None
        if python is not None:
            theirs = stack.enter_context(closing(Guided(python)))
            figures["guidance"] = theirs.load(path, n_ctx=8192, n_threads=options.threads)
        llm.select("x", ["a", "b"])  # the first call reads the weights and checks the model
        bench = Bench(llm, bare, theirs, asked)
        for repeat in range(options.repeats):
            bench.run([(repeat + i * len(asked) // options.sampled) % len(asked) for i in range(options.sampled)])
        seconds = {f"{name}_s": bench.figures.median(name) for name in bench.figures.seconds}
        figures |= bench.facts | seconds | bench.ratios()
    states = [text for text, _ in asked]
    for n_options in (5, 77):
        figures[f"python_{n_options}_ms"] = python_ms(n_options, states, 5 * options.repeats)
    targets = TARGETS if options.shape == "0.5b" and not options.model else NO_TARGETS
    if python is None:
        figures["guidance"] = "skipped: it is not installed"
        targets = targets.without("guidance")
    return report("decide", figures, targets, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
