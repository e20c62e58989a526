"""Print how good probabilities are before and after a calibration by labels, on eight intents of Banking77.

    python tools/calibration.py MODEL [--draws 0 1 2] [--fit 64] [--threads 1] [--cache FOLDER]

MODEL is a GGUF file, or `embedded`. The set lies in the folder that SELECTRIE_TEST_DATA names. A draw is eight labels, with
the 320 messages that have one of them, in a fixed random order: the first `--fit` fit the calibrations, the others judge
them and serve for nothing else. Messages are asked by default, question first. With `--cache`, answers are kept there.

- right: share of right answers, in percent
- log loss, brier: of the probabilities, and their paired difference to the plain ones with its 95 % bootstrap interval
- ece: expected calibration error, and the one that a calibrated model exceeds in 5 % of sets of this size
- aurc: mean share of wrong answers among the surest, over all coverages
- threshold: fitted to half of the judging messages (at most 20 % wrong, at 90 %), and how it does on the other half

A way is `met` if log loss and brier are better beyond their intervals, ece is at most that of a calibrated model, and right
is not lower; else `missed`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import selectrie
from accuracy import banking
from selectrie import Choice
from selectrie.decide.calibration import LabelCalibration, LabelledAnswers, labelled_answers
from selectrie.decide.threshold import QuestionThreshold
from selectrie.evaluation.label_report import compare_labelled, kept_rows, rescaled

INSTRUCTIONS = "What is the message about?"
WAYS: tuple[tuple[str, float | str], ...] = (("temperature", 1.0), ("bias", 1.0), ("vector", 1.0), ("vector", "auto"))
"""Methods and ridges."""
N_LABELS, UNIT = 8, 32
ERROR, CONFIDENCE = 0.2, 0.9
ARRAYS = ("probabilities", "gold", "predicted", "confidence", "label_mass")


def messages(draw: int) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Return the labels of a draw, and the messages with one of them."""
    pairs = banking()
    labels = tuple(random.Random(f"banking {draw}").sample(sorted({label for _, label in pairs}), N_LABELS))
    return labels, [(text, label) for text, label in pairs if label in labels]


def asked(llm: selectrie.Engine, draw: int) -> LabelledAnswers:
    """Return the answers to the messages of a draw with their right labels."""
    labels, rows = messages(draw)
    decisions = []
    with llm.decision_scorer({"topic": Choice(INSTRUCTIONS, labels)}) as scorer:
        for at in range(0, len(rows), UNIT):
            decisions += scorer.decisions([text for text, _ in rows[at : at + UNIT]])
            print(f"\rdraw {draw}: {len(decisions)} of {len(rows)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return labelled_answers(decisions, [label for _, label in rows])["topic"]


def cached(llm: selectrie.Engine, draw: int, folder: Path | None) -> LabelledAnswers:
    """Return the answers of a draw, from the folder if they are there."""
    if folder is None:
        return asked(llm, draw)
    path = folder / f"banking8-{draw}-{llm.identity.digest[:16]}.json"
    if not path.exists():
        found = asked(llm, draw)
        data = {name: getattr(found, name).tolist() for name in ARRAYS}
        path.write_text(json.dumps({**data, "conditions": dict(found.conditions)}), encoding="utf-8")
    data = json.loads(path.read_text(encoding="utf-8"))
    kinds = dict(zip(ARRAYS, (np.float64, np.int32, np.int32, np.float64, np.float64), strict=True))
    arrays = {name: np.array(data[name], kind) for name, kind in kinds.items()}
    return LabelledAnswers(conditions=data["conditions"], values=messages(draw)[0], **arrays)


def is_met(report: Any) -> bool:
    """Return whether a calibration does what is asked of it."""
    is_better = all(interval.high < 0 for _, interval in report.differences.values())
    return is_better and report.after.ece <= report.after.ece_95 and report.after.accuracy >= report.before.accuracy


def threshold_line(answers: LabelledAnswers) -> str:
    """Return how a threshold of one half of the answers does on the other."""
    is_first = np.arange(len(answers)) % 2 == 0
    found = QuestionThreshold.fit(kept_rows(answers, is_first), ERROR, CONFIDENCE)
    others = kept_rows(answers, ~is_first)
    is_answered = others.confidence >= found.min_confidence
    n = int(is_answered.sum())
    wrong = f", {100 * float((~others.is_right[is_answered]).mean()):.1f} % of them wrong" if n else ""
    return f"confidence {found.min_confidence:.3f}: {n} of {len(others)} answered{wrong}"


def main(arguments: list[str] | None = None) -> None:
    """Print two lines for each draw and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file, or `embedded`")
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--fit", type=int, default=64, help="labelled messages that fit a calibration")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--cache", type=Path, default=None, metavar="FOLDER")
    options = parser.parse_args(arguments)
    source = None if options.model == "embedded" else options.model
    with closing(selectrie.load(source, n_ctx=8192, n_threads=options.threads)) as llm:
        print(f"{Path(options.model).name}, {options.fit} messages fit, the others judge")
        for draw in options.draws:
            answers = cached(llm, draw, options.cache)
            is_fit = np.arange(len(answers)) < options.fit
            fit, judged = kept_rows(answers, is_fit), kept_rows(answers, ~is_fit)
            for method, ridge in WAYS:
                made = LabelCalibration.fit(fit, method, ridge)
                calibrated = rescaled(judged, made.apply(judged.probabilities))
                report = compare_labelled(judged, calibrated)
                if method == WAYS[0][0]:
                    print(line(f"draw {draw}, plain", report, plain=True))
                    print(f"    threshold {threshold_line(judged)}", flush=True)
                verdict = "met" if is_met(report) else "missed"
                print(f"{line(f'draw {draw}, {method}, {ridge}', report)}  {verdict}")
                print(f"    threshold {threshold_line(calibrated)}", flush=True)


def line(name: str, report: Any, *, plain: bool = False) -> str:
    """Return the figures of a report, before or after, on one line."""
    one = report.before if plain else report.after
    texts = []
    for field in ("log_loss", "brier"):
        value, between = report.differences[field]
        change = "" if plain else f" ({value:+.3f}, {between.low:+.3f} to {between.high:+.3f})"
        texts.append(f"{field.replace('_', ' ')} {getattr(one, field):.3f}{change}")
    ece = f"ece {one.ece:.3f} (below {one.ece_95:.3f})"
    return f"{name:<24} right {100 * one.accuracy:5.1f}  {'  '.join(texts)}  {ece}  aurc {one.aurc:.3f}"


if __name__ == "__main__":
    main()
