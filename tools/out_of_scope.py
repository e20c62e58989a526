"""Does an option for none of the labels find texts that no label fits? `python tools/out_of_scope.py MODEL --half judge`.

MODEL is a GGUF file, or `embedded`. Messages of Banking77 are asked about with 8 of its intents as labels; half of them have
one of these, half another one. The 77 intents are in two halves: wordings and thresholds are chosen on `dev` and judged on
`judge`, whose labels and texts are others. Each message is asked about twice, with the option "none of these" and without.
Of each score that may tell texts out of scope from others (the largest probability without the option; p(none); the log of
p(none) over that of the best label; the probability of the best label where the option is one of those that it is compared
with):

- auroc: chance that a text out of scope has a larger score than one in scope, with its 95 % interval over draws of texts
- gain: that minus the one of the largest probability without the option, with its paired interval
- found: share of the texts out of scope above the threshold, in percent
- refused: share of the texts in scope above it

The threshold of `--half judge` is the one above which 10 % of the texts in scope of `--half dev` are: run that first with
`--save FILE`, and give it as `--thresholds FILE`. Without, each half has its own. `labelled` is the share of the texts in
scope whose best label is right, and `none wins` says how often the option does. With `--examples 4` the prompt shows one
example of each label and 4 texts out of scope, of intents that are in neither the labels nor the texts. Three calibrations are compared: none, content-free, and batch (over the texts of a draw).
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import selectrie
from accuracy import banking
from selectrie import DecisionParams
from selectrie.decide.calibration import question_calibration
from selectrie.decide.classification import label_questions

QUESTION, NONE = "What is the message about?", "none of these"
N_LABELS = 8
N_DRAWS = {"dev": 5, "judge": 8}
N_DEV_INTENTS = 38
REFUSED = 0.1
"""Share of the texts in scope that a threshold of `dev` refuses."""
N_BOOTSTRAPS = 1000
CALIBRATIONS = ("plain", "content-free", "batch")
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Draw:
    """The labels of a draw, and its texts with their intents: half of them in scope."""

    labels: list[str]
    texts: list[tuple[str, str]]
    examples: list[tuple[str, str | None]]


def draws(half: str, n_each: int, n_examples: int = 0) -> Iterator[Draw]:
    """Yield the draws of a half of the intents, with `n_each` texts in scope and as many out of scope.

    With `n_examples`, a draw has one example of each label, and so many of texts out of scope, whose intents are all of the
    other half.
    """
    rows = banking()
    intents = sorted({label for _, label in rows})
    random.Random("out of scope").shuffle(intents)
    other, intents = intents[:N_DEV_INTENTS], intents[N_DEV_INTENTS:]
    if half == "dev":
        other, intents = intents, other
    foreign = random.Random("examples").sample(other, n_examples)
    outer = [(next(text for text, label in rows if label == intent), None) for intent in foreign]
    rows = [row for row in rows if row[1] in intents]
    for number in range(N_DRAWS[half]):
        drawing = random.Random(f"{half} {number}")
        labels = drawing.sample(intents, N_LABELS)
        inside = [row for row in rows if row[1] in labels]
        outside = [row for row in rows if row[1] not in labels]
        drawing.shuffle(inside)
        drawing.shuffle(outside)
        texts = inside[:n_each] + outside[:n_each]
        known = [next(row for row in rows if row[1] == label and row not in texts) for label in labels]
        examples: list[tuple[str, str | None]] = [*known, *outer] if n_examples else []
        random.Random(f"mix {number}").shuffle(examples)
        yield Draw(labels, texts, examples)


def log_probabilities(llm: selectrie.Engine, draw: Draw, none: str | None) -> dict[str, Floats]:
    """Return the log-probabilities [texts, labels] of a draw by calibration; that of `none` is last."""
    examples = [one for one in draw.examples if none is not None or one[1] is not None]
    asked = label_questions(draw.labels, none=none, instructions=QUESTION, examples=examples)
    with llm.decision_scorer(asked.questions, params=DecisionParams(rule="calibrated")) as scorer:
        found = scorer.decisions([text for text, _ in draw.texts])
    tables = [one["label"].selection.choices for one in found]
    plain = normalized(np.array([table.logp for table in tables]))
    weights = question_calibration({}, np.exp(plain).tolist()).weights(None)
    free = normalized(np.array([table.score for table in tables]))
    return {"plain": plain, "content-free": free, "batch": normalized(plain + np.log(weights))}


def normalized(logp: Floats) -> Floats:
    """Return log-probabilities whose exponentials add up to 1 in each row."""
    high = logp.max(axis=1, keepdims=True)
    shifted: Floats = logp - high - np.log(np.exp(logp - high).sum(axis=1, keepdims=True))
    return shifted


def scores_of(without: Mapping[str, Floats], beside: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the score of each text by name: the larger, the less any label fits."""
    scores = {f"largest p, {name}": -without[name].max(axis=1) for name in CALIBRATIONS}
    for name in CALIBRATIONS:
        labels, none = beside[name][:, :-1], beside[name][:, -1]
        best = labels.max(axis=1)
        scores |= {f"p(none), {name}": none, f"none against best label, {name}": none - best}
        scores[f"best label beside none, {name}"] = -best
    return scores


def auroc(score: Floats, is_out: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    """Return the chance that a text out of scope has a larger score than one in scope."""
    high, low = score[is_out][:, None], score[~is_out][None, :]
    return float(((high > low) + 0.5 * (high == low)).mean())


def resampled(is_out: np.ndarray[Any, np.dtype[np.bool_]]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Return seeded draws of texts with replacement, as many in scope and out of it as there are."""
    rng = np.random.default_rng(0)
    inside, outside = np.flatnonzero(~is_out), np.flatnonzero(is_out)
    return [
        np.concatenate([rng.choice(inside, len(inside)), rng.choice(outside, len(outside))])
        for _ in range(N_BOOTSTRAPS)
    ]


def show(scores: Mapping[str, Floats], is_out: Any, thresholds: Mapping[str, float]) -> None:
    """Print a line for each score."""
    samples = resampled(is_out)
    by_score = {name: np.array([auroc(one[at], is_out[at]) for at in samples]) for name, one in scores.items()}
    print(f"{'score':<40}{'auroc':>7}{'95 %':>16}{'gain':>8}{'95 %':>18}{'found':>8}{'refused':>9}")
    for name, score in scores.items():
        base = "largest p, " + name.split(", ")[1]
        low, high = np.percentile(by_score[name], [2.5, 97.5])
        less, more = np.percentile(by_score[name] - by_score[base], [2.5, 97.5])
        above = score > thresholds[name]
        gain = auroc(score, is_out) - auroc(scores[base], is_out)
        print(
            f"{name:<40}{auroc(score, is_out):>7.3f}{f'{low:.3f} to {high:.3f}':>16}{gain:>8.3f}"
            f"{f'{less:+.3f} to {more:+.3f}':>18}{100 * above[is_out].mean():>8.1f}{100 * above[~is_out].mean():>9.1f}"
        )


def labelled(logp: Floats, gold: Sequence[int]) -> float:
    """Return the share of the texts in scope whose best label is right, in percent."""
    right = [int(row[:N_LABELS].argmax()) == at for row, at in zip(logp, gold, strict=True) if at >= 0]
    return 100 * sum(right) / len(right)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures of a half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file, or `embedded`")
    parser.add_argument("--half", choices=tuple(N_DRAWS), default="dev")
    parser.add_argument("--items", type=int, default=25, help="texts of each draw in scope, and as many out of scope")
    parser.add_argument("--examples", type=int, default=0, help="examples of no label, beside one of each label")
    parser.add_argument("--none", default=NONE, metavar="TEXT", help="the option for none of the labels")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the thresholds of this half")
    parser.add_argument("--thresholds", type=Path, metavar="FILE", help="take these thresholds")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args(arguments)
    source = None if options.model == "embedded" else options.model
    without: dict[str, list[Floats]] = {name: [] for name in CALIBRATIONS}
    beside: dict[str, list[Floats]] = {name: [] for name in CALIBRATIONS}
    gold: list[int] = []
    with closing(selectrie.load(source, n_ctx=8192, precision="fast", n_threads=options.threads)) as llm:
        for draw in draws(options.half, options.items, options.examples):
            gold += [draw.labels.index(label) if label in draw.labels else -1 for _, label in draw.texts]
            for into, none in ((without, None), (beside, options.none)):
                for name, logp in log_probabilities(llm, draw, none).items():
                    into[name].append(logp)
            print(f"{len(gold)} texts", file=sys.stderr, flush=True)
    is_out = np.array(gold) < 0
    together = {name: np.concatenate(own) for name, own in without.items()}
    scores = scores_of(together, {name: np.concatenate(own) for name, own in beside.items()})
    thresholds = {name: float(np.quantile(one[~is_out], 1 - REFUSED)) for name, one in scores.items()}
    if options.save is not None:
        options.save.write_text(json.dumps(thresholds, indent=1) + "\n", encoding="utf-8")
    if options.thresholds is not None:
        thresholds = json.loads(options.thresholds.read_text(encoding="utf-8"))
    print(f"{Path(options.model).name}, {options.half}: {(~is_out).sum()} texts in scope, {is_out.sum()} out of it")
    show(scores, is_out, thresholds)
    for name, logp in together.items():
        print(f"labelled without the option, {name}: {labelled(logp, gold):.1f} %")
    for name, own in beside.items():
        logp = np.concatenate(own)
        wins = 100 * (logp.argmax(axis=1) == N_LABELS)
        print(
            f"labelled with it, {name}: {labelled(logp, gold):.1f} %; none wins for {wins[is_out].mean():.1f} %"
            f" of the texts out of scope and {wins[~is_out].mean():.1f} % of those in scope"
        )


if __name__ == "__main__":
    main()
