"""Reports how good the probabilities of answers are, by their right values.

A calibration is judged by cross-validation: each fifth of the answers is calibrated by
what was fitted to the other four.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from selectrie.core.notation import rate
from selectrie.core.types import FloatArray
from selectrie.decide.answers import Answer, Decision, confidence_of
from selectrie.decide.calibration import METHODS, LabelCalibration, LabelledAnswers, check_ridge, labelled_answers
from selectrie.errors import OptionError
from selectrie.evaluation.metrics import (
    BOOTSTRAP_SAMPLES,
    BOOTSTRAP_SEED,
    CalibrationBin,
    ConfidenceInterval,
    bootstrap,
    calibration_table,
    expected_calibration_error,
    wilson,
)
from selectrie.evaluation.report.charts import draw_reliability, draw_risk, short_percent
from selectrie.options.checks import at_least, one_of
from selectrie.results import FORMAT_VERSION
from selectrie.results.drawing.plot import plot_picture
from selectrie.results.drawing.shapes import Drawing
from selectrie.results.plain import JsonRecord, fields_of, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLOCK = 20
"""Number of sets that are simulated together."""
_LEAST = 1e-300
"""A smaller probability counts as this one in the log loss."""
COVERAGES = (0.9, 0.75, 0.5, 0.25)
"""Shares of answers, the surest first, whose risk is shown."""
N_BINS = 10
"""Number of bins of a reliability diagram, of equal width from 0 to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelFigures(JsonRecord):
    """The figures of N answers with their right values.

    Attributes:
        n: Number of answers.
        accuracy: Share of right answers.
        accuracy_interval: Wilson's 95 % interval of it.
        log_loss: Mean of -log p of the right value, in nats.
        brier: Mean squared distance of the probabilities from the right value, 0 to 2.
        ece: Expected calibration error: the mean distance of the probability of an
            answer from how often it is right, over ten bins.
        ece_95: The error that a calibrated model with these probabilities exceeds in
            5 % of 1 000 simulated sets of as many answers.
        bins: The bins, for a reliability diagram.
        aurc: Area under the risk-coverage curve: the mean risk over all coverages.
        coverage, risk: The curve, float64[N]: the share of the most confident answers,
            and the share of wrong ones among them. Equal confidences share their risk.
        losses: float64[N, 2], -log p and the squared distance of each answer.
    """

    n: int
    accuracy: float
    accuracy_interval: ConfidenceInterval
    log_loss: float
    brier: float
    ece: float
    ece_95: float
    bins: tuple[CalibrationBin, ...]
    aurc: float
    coverage: FloatArray
    risk: FloatArray
    losses: FloatArray

    def risk_at(self, coverage: float) -> float:
        """Return the share of wrong answers in the most confident `coverage` of all."""
        return float(self.risk[max(0, round(coverage * self.n) - 1)])

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON data, with the points of both diagrams."""
        return {
            **fields_of(self, "n accuracy accuracy_interval log_loss brier ece ece_95 aurc"),
            "reliability": [plain(one) for one in self.bins],
            "coverage": self.coverage.tolist(),
            "risk": self.risk.tolist(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LabelReport(JsonRecord):
    """The figures of the answers to one question, maybe before and after a calibration.

    Attributes:
        before: The figures of the answers as they are.
        method: The method of the calibration; "" without one.
        folds: The number of parts of the cross-validation; 0 without one.
        after: The figures of the calibrated answers; None without a calibration.
        differences: By "log_loss" and "brier", the mean difference, after minus before,
            and its 95 % interval: a bootstrap of pairs.
    """

    before: LabelFigures
    method: str = ""
    folds: int = 0
    after: LabelFigures | None = None
    differences: Mapping[str, tuple[float, ConfidenceInterval]] | None = None

    @property
    def figures(self) -> dict[str, LabelFigures]:
        """Return the figures by name, "as it is" and perhaps "calibrated …"."""
        by = f" ({self.method}, {self.folds} parts)" if self.method else ""
        return {"as it is": self.before} | ({} if self.after is None else {f"calibrated{by}": self.after})

    def draw(self, picture: str) -> Drawing | None:
        """Return a picture as `plot` names it; None if there is nothing to draw."""
        if picture == "risk":
            return draw_risk("Risk over coverage", self.figures, (1.0, *COVERAGES))
        shown = dict(zip(("reliability", "calibrated"), self.figures.items(), strict=False))
        if picture not in shown:
            return None
        name, figures = shown[picture]
        return draw_reliability(f"Reliability, {name}", figures.bins, figures.ece)

    def plot(self, picture: str = "reliability", *, ax: Axes | None = None) -> Axes:
        """Draw the report with matplotlib (extra `plot`), as a table's page shows it.

        Args:
            picture: "reliability" of the answers as they are, "calibrated" for the same
                after a calibration, or "risk" over coverage, with both.
            ax: Axes to draw into; None makes a figure of the picture's size.

        Raises:
            OptionError: For another picture, or one that the report does not have.
            MissingExtraError: If matplotlib is not installed.
        """
        return plot_picture(picture, ("reliability", "calibrated", "risk"), self.draw, ax)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON data."""
        data: dict[str, object] = {"format": FORMAT_VERSION, "kind": "label_report", "before": self.before.to_dict()}
        if self.after is None or self.differences is None:
            return data
        differences = {
            name: {"value": value, "low": between.low, "high": between.high}
            for name, (value, between) in self.differences.items()
        }
        after = {"method": self.method, "folds": self.folds, "after": self.after.to_dict()}
        return {**data, **after, "differences": differences}

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return for each figure its name, its value before and after, and the change.

        All are texts, "" for what there is not.
        """
        columns = [one for one in (self.before, self.after) if one is not None]
        low, high = self.before.accuracy_interval.low, self.before.accuracy_interval.high

        def row(name: str, texts: list[str], last: str = "") -> tuple[str, str, str, str]:
            return (name, texts[0], texts[1] if len(texts) > 1 else "", last)

        between = f"as it is: {rate(low)} to {rate(high)}"
        rows = [row("accuracy", [rate(one.accuracy) for one in columns], between)]
        for name, field in (("log loss", "log_loss"), ("Brier score", "brier")):
            rows.append(row(name, [f"{getattr(one, field):.3f}" for one in columns], self._change(field)))
        rows.append(row("calibration error", [f"{one.ece:.3f}" for one in columns]))
        rows.append(row("  below, if calibrated", [f"{one.ece_95:.3f}" for one in columns]))
        rows.append(row("risk over coverage", [f"{one.aurc:.3f}" for one in columns]))
        return rows + [
            row(f"  wrong in the surest {short_percent(share)}", [rate(one.risk_at(share)) for one in columns])
            for share in COVERAGES
        ]

    def _change(self, field: str) -> str:
        """Return the difference of a figure with its interval as text; "" for none."""
        if self.differences is None:
            return ""
        value, between = self.differences[field]
        return f"{value:+.3f} ({between.low:+.3f} to {between.high:+.3f})"


def label_reports(
    answers: Iterable[Answer | Decision],
    gold: Mapping[str, Iterable[Any]] | Iterable[Any],
    *,
    method: str = "",
    ridge: float | Literal["auto"] = 1.0,
    folds: int = 5,
) -> dict[str, LabelReport]:
    """Return a report on the answers to each question, by its name.

    Args:
        answers: Answers to one question, whose name is then "", or decisions, as
            `decide_many` returns them.
        gold: The right value of each answer in order, None where it is not known; for
            several questions, a mapping from their names to these.
        method: A method of `Calibration.fit`, which is cross-validated; "" for none.
        ridge: As for `Calibration.fit`.
        folds: Number of parts, at least 2. Part i has the answers i, i + folds, …

    Raises:
        OptionError: For answers or values that cannot be used.
    """
    at_least("folds", folds, 2, optional=False)
    if method:
        one_of("method", method, METHODS)
        check_ridge(ridge)
    return {name: _report(one, method, ridge, folds) for name, one in labelled_answers(answers, gold).items()}


def compare_labelled(before: LabelledAnswers, after: LabelledAnswers) -> LabelReport:
    """Return a report on the same answers before and after a calibration."""
    first, second = label_figures(before), label_figures(after)
    changes = second.losses - first.losses
    differences = {}
    for at, name in enumerate(("log_loss", "brier")):
        differences[name] = _mean_of(changes[:, at])
    return LabelReport(first, after=second, differences=differences)


def _mean_of(values: FloatArray) -> tuple[float, ConfidenceInterval]:
    """Return the mean of values with its 95 % bootstrap interval."""
    _, interval = bootstrap(len(values), lambda drawn: float(values[drawn].mean()))
    return float(values.mean()), interval


def _report(answers: LabelledAnswers, method: str, ridge: float | str, folds: int) -> LabelReport:
    """Return the report on the answers to one question."""
    if not method:
        return LabelReport(label_figures(answers))
    n = len(answers)
    if n < folds:
        raise OptionError("folds", folds, f"at most {n}, the number of labelled answers")
    part = np.arange(n) % folds
    calibrated = np.empty_like(answers.probabilities)
    for fold in range(folds):
        fitted = LabelCalibration.fit(kept_rows(answers, part != fold), method, ridge)
        calibrated[part == fold] = fitted.apply(answers.probabilities[part == fold])
    return replace(compare_labelled(answers, rescaled(answers, calibrated)), method=method, folds=folds)


def rescaled(answers: LabelledAnswers, probabilities: FloatArray) -> LabelledAnswers:
    """Return the answers as they are with other probabilities."""
    threshold: Any = answers.conditions["threshold"]
    predicted = probabilities.argmax(axis=1)
    if threshold is not None:
        # The options of a predicate are True and False.
        predicted = np.where(probabilities[:, 0] > threshold, 0, 1)
    k = probabilities.shape[1]
    confidence = np.array([confidence_of(float(one), k) for one in probabilities.max(axis=1)])
    return replace(answers, probabilities=probabilities, predicted=predicted.astype(np.int32), confidence=confidence)


def kept_rows(answers: LabelledAnswers, is_kept: np.ndarray) -> LabelledAnswers:
    """Return some of the answers; `is_kept` is bool[N]."""
    names = ("probabilities", "gold", "predicted", "confidence", "label_mass")
    return replace(answers, **{name: getattr(answers, name)[is_kept] for name in names})


def label_figures(answers: LabelledAnswers) -> LabelFigures:
    """Return the figures of labelled answers."""
    n, p = len(answers), answers.probabilities
    rows = np.arange(n)
    is_right, top = answers.is_right, p[rows, answers.predicted]
    logs = -np.log(np.maximum(p[rows, answers.gold], _LEAST))
    squares = ((p - np.eye(p.shape[1])[answers.gold]) ** 2).sum(axis=1)
    bins = calibration_table(top, is_right, N_BINS)
    coverage, risk = risk_coverage(answers.confidence, is_right)
    return LabelFigures(
        n=n,
        accuracy=float(is_right.mean()),
        accuracy_interval=wilson(int(is_right.sum()), n),
        log_loss=float(logs.mean()),
        brier=float(squares.mean()),
        ece=expected_calibration_error(bins),
        ece_95=ece_quantile(top),
        bins=bins,
        aurc=float(risk.mean()),
        coverage=coverage,
        risk=risk,
        losses=np.stack([logs, squares], axis=1),
    )


def risk_coverage(confidence: FloatArray, is_right: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Return coverage and risk of the i + 1 most confident answers, float64[N] each.

    Answers of equal confidence count with the mean of their errors, as in a random
    order.
    """
    values, group = np.unique(-confidence, return_inverse=True)
    counts = np.bincount(group, minlength=len(values))
    wrong = np.bincount(group, weights=~is_right, minlength=len(values)) / counts
    n = np.arange(1, len(confidence) + 1)
    return n / len(confidence), np.cumsum(np.repeat(wrong, counts)) / n


def ece_quantile(top: FloatArray, share: float = 0.95) -> float:
    """Return a quantile of the calibration error of a calibrated model, by simulation.

    `top` is float64[N], the probability of each answer. In each of 1 000 sets an answer
    is right with its probability. The seed is fixed.
    """
    generator, n = np.random.default_rng(BOOTSTRAP_SEED), len(top)
    bin_of = np.clip(np.ceil(top * N_BINS).astype(np.int64) - 1, 0, N_BINS - 1)
    is_inside = np.eye(N_BINS)[bin_of]
    errors: list[float] = []
    for _ in range(BOOTSTRAP_SAMPLES // _BLOCK):
        gaps = ((generator.random((_BLOCK, n)) < top) - top) @ is_inside
        errors += (np.abs(gaps).sum(axis=1) / n).tolist()
    return float(np.quantile(errors, share))
