"""Calibrations correct the probabilities of options, with or without labels.

A `QuestionCalibration` is fitted to states alone. It corrects for options that the
model prefers whatever the state says. A `LabelCalibration` is fitted to right answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np

from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.core.vocabulary import to_bytes
from selectrie.decide.answers import Answer, Decision, is_answer
from selectrie.decide.states import is_missing
from selectrie.errors import InputFileError, InternalError, MessageText, OptionError, Quoted, words
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import number, one_of
from selectrie.options.selection import BASELINE_RULES
from selectrie.results.plain import JsonRecord

_ANSWERS = "answers of decide: Decisions, ChoiceAnswers, PredicateAnswers or ScoreAnswers"
_GOLD = "the right value of each answer, in order"
_MAX_STEPS = 200
_SIZES = tuple(2.0**-n for n in range(40))
"""Sizes of a step that are tried, as parts of Newton's step."""
_TOLERANCE = 1e-12
"""Largest slope of the objective at the result, for each row and unit of a feature."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledAnswers:
    """N answers to a question with K options, with the right values.

    Attributes:
        conditions: The conditions under which the question was asked
            (`Answer.conditions`).
        values: The values of the options, in the caller's order.
        probabilities: float64[N, K], the probability of each option.
        gold: int32[N], the index of the right option.
        predicted: int32[N], the index of the answer's value.
        confidence, label_mass: float64[N], as in the answers.
    """

    conditions: Mapping[str, object]
    values: tuple[Any, ...]
    probabilities: FloatArray
    gold: IntArray
    predicted: IntArray
    confidence: FloatArray
    label_mass: FloatArray

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def is_right(self) -> BoolArray:
        """Return whether each answer's value is the right one, bool[N]."""
        is_right: BoolArray = self.predicted == self.gold
        return is_right


def labelled_answers(
    answers: Iterable[Answer | Decision], gold: Mapping[str, Iterable[Any]] | Iterable[Any]
) -> dict[str, LabelledAnswers]:
    """Return the answers to each question with the right values, by its name.

    Answers without a right value (None, NaN or a missing value of pandas, unless an
    option has it), and decisions with an error, are left out. Answers that are not
    in a `Decision` have the name "".

    Args:
        answers: The answers to one question, or decisions.
        gold: The right value of each answer, in their order: a value of an option, True
            or False, or the number of a level. For several questions, a mapping from
            their names to such values.

    Raises:
        OptionError: For a single answer or right value in place of several, for a right
            value that is not the value of an option, for another number of them than
            of answers, if none is left, if the answers were made under different
            conditions, or if not all options were evaluated.
    """
    rows = _list_several("answers", answers, "several answers of `decide`, such as a list of them")
    named: dict[str, list[Any]]
    decisions = [one for one in rows if isinstance(one, Decision)]
    if len(decisions) not in (0, len(rows)):
        raise OptionError("answers", rows, f"either Decisions or single {_ANSWERS.partition(': ')[2]}")
    if isinstance(gold, Mapping):
        named = {name: _list_several(f"gold[{name!r}]", values, _GOLD) for name, values in gold.items()}
    else:
        right = _list_several("gold", gold, _GOLD)
        names = {name: None for one in decisions if one.error is None for name in one}
        if len(names) > 1:
            raise OptionError("gold", "a sequence", "a mapping from the names of questions to right values")
        named = {next(iter(names), ""): right}
    return {name: _read_answers(name, rows, values) for name, values in named.items()}


def _list_several(name: str, given: object, allowed: str) -> list[Any]:
    """Return a list of several values; raise `OptionError` for a single one."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError(name, given, allowed)
    return list(given)


def _read_answers(name: str, rows: Sequence[Any], gold: Sequence[Any]) -> LabelledAnswers:
    """Return the answers to the question of a name with their right values."""
    where = f"gold[{name!r}]" if name else "gold"
    if len(gold) != len(rows):
        raise OptionError(where, f"{len(gold)} values", f"one right value for each of the {len(rows)} answers")
    kept: list[tuple[Answer, int]] = []
    first: Any = None
    for at, (row, right) in enumerate(zip(rows, gold, strict=True)):
        if row is None or (isinstance(row, Decision) and row.error is not None):
            continue
        answer = _answer_of(name, row)
        first = first or (answer.conditions, {value: index for index, value in enumerate(answer.probabilities)})
        _check_same(answer, first[0])
        index = _index_of(right, first[1])
        if index is None:
            if is_missing(right):
                continue
            raise OptionError(f"{where}[{at}]", right, f"one of the values {', '.join(map(repr, first[1]))}")
        kept.append((answer, index))
    if not kept:
        raise OptionError(where, gold, "at least one right value, of an answer without an error")
    taken = [answer for answer, _ in kept]
    return LabelledAnswers(
        conditions=first[0],
        values=tuple(first[1]),
        probabilities=np.array([list(one.probabilities.values()) for one in taken], dtype=np.float64),
        gold=np.array([index for _, index in kept], dtype=np.int32),
        predicted=np.array([first[1][answer.value] for answer in taken], dtype=np.int32),
        confidence=np.array([one.confidence for one in taken], dtype=np.float64),
        label_mass=np.array([one.label_mass for one in taken], dtype=np.float64),
    )


def _index_of(right: Any, index_of: Mapping[Any, int]) -> int | None:
    """Return the index of the option with a value; None if there is none."""
    try:
        return index_of.get(right)
    except TypeError:  # not hashable
        return None


def _answer_of(name: str, row: Any) -> Answer:
    """Return the answer of a row; raise `OptionError` for one that cannot be used."""
    if isinstance(row, Decision):
        if name not in row:
            raise OptionError("gold", name, f"names of questions that were asked: {', '.join(row)}")
        row = row[name]
    if not is_answer(row) or not row.conditions:
        raise OptionError("answers", row, _ANSWERS)
    if not row.complete:
        raise OptionError("answers", row, "answers whose options were all evaluated, without `top` and grammar")
    return row


def _check_same(answer: Answer, conditions: Mapping[str, object]) -> None:
    """Raise `OptionError` if an answer was made under other conditions."""
    if answer.conditions is conditions or answer.conditions == conditions:
        return
    names = [*conditions, *answer.conditions]
    name = next(name for name in names if answer.conditions.get(name) != conditions.get(name))
    was, now = conditions.get(name), answer.conditions.get(name)
    raise OptionError("answers", f"{name} {now!r}", f"answers that were made alike: the first has {was!r}")


def fit_ridge(
    features: FloatArray,
    fixed: FloatArray,
    gold: IntArray,
    *,
    start: FloatArray,
    lowest: FloatArray,
    penalty: FloatArray,
) -> FloatArray:
    """Return the parameters that minimise the penalised log loss.

    The logit of option k in row n is `fixed[n, k] + features[n, k] @ parameters`. The
    objective is the sum over rows of the negative log-probability of the right option,
    plus half of d @ penalty @ d for the distance d of the parameters from `start`. It
    is strictly convex, so the minimum is unique. Steps are projected on the lower
    bounds (Bertsekas 1982). The slope at the result is at most 1e-12 for each row, in
    units of the largest feature. The distance from the minimum is at most the slope
    divided by the least eigenvalue of `penalty`.

    Args:
        features: float64[N, K, M].
        fixed: float64[N, K], the part of each logit without parameters.
        gold: int64[N], the index of the right option.
        start: float64[M], parameters without a penalty; at least `lowest`.
        lowest: float64[M], lower bounds of the parameters, maybe -inf.
        penalty: float64[M, M], positive definite.

    Returns:
        float64[M].
    """
    rows = np.arange(len(gold))
    scale = max(1.0, float(np.abs(features).max(initial=0.0))) * max(1, len(gold))
    right = features[rows, gold]

    def evaluate(parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective, and the probability of each option in each row."""
        logits = fixed + features @ parameters
        top = logits.max(axis=1, keepdims=True)
        log_sums = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        loss = float((log_sums - logits[rows, gold]).sum())
        distance = parameters - start
        return loss + float(distance @ penalty @ distance) / 2, np.exp(logits - log_sums[:, None])

    parameters = np.maximum(start, lowest)
    value, shares = evaluate(parameters)
    for _ in range(_MAX_STEPS):
        means = np.einsum("nk,nkm->nm", shares, features)
        slope = (means - right).sum(axis=0) + penalty @ (parameters - start)
        is_free = (parameters > lowest) | (slope < 0)
        if np.abs(slope[is_free]).max(initial=0.0) <= _TOLERANCE * scale:
            return parameters
        weighted = (features * np.sqrt(shares)[:, :, None]).reshape(-1, len(parameters))
        curvature = weighted.T @ weighted - means.T @ means
        free = (curvature + penalty)[np.ix_(is_free, is_free)]
        step = np.zeros_like(parameters)
        step[is_free] = np.linalg.solve(free, slope[is_free])
        moved, new_value, new_shares = parameters, value, shares
        for size in _SIZES:
            moved = np.maximum(parameters - size * step, lowest)
            new_value, new_shares = evaluate(moved)
            # Near the minimum, a full step may not lower the objective beyond rounding.
            if new_value <= value - 1e-4 * float(slope @ (parameters - moved)) + 1e-13 * scale:
                break
        parameters, value, shares = moved, new_value, new_shares
    raise InternalError(f"the regression did not converge on {len(gold)} rows")


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities of logits, float64[…, K], with sum 1 over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    total: FloatArray = shares / shares.sum(axis=-1, keepdims=True)
    return total


T = TypeVar("T")


class _Bound(Protocol):
    """An object that holds for some conditions."""

    @property
    def bound(self) -> Mapping[str, object]: ...


B = TypeVar("B", bound=_Bound)
N_SAMPLED = 64
"""Maximum number of states to which a calibration is fitted."""
N_LEAST = 16
"""Minimum number of states: no calibration is fitted to fewer."""
_N_UNIFORM = 16
"""Weight of the uniform distribution in a mean, as a number of states."""
METHODS = ("temperature", "bias", "vector")
"""What a calibration may fit to labels."""
RIDGES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""The weights of the penalty among which `ridge="auto"` chooses."""
MIN_RIDGE = 1e-6
"""Least weight of the penalty: below it, the regression may not converge."""
_FOLDS = 5
"""Parts of the answers with which it chooses: each is predicted from the other four."""
_MAX_CELLS = 1 << 26
"""Largest number of answers times options times parameters of a fit: 512 MiB."""
_LEAST_SCALE = 0.01
"""Least scale: with one above 0, a larger probability never becomes a smaller one."""
_LEAST_PROBABILITY = 1e-300
"""A smaller probability counts as this one, so that its logarithm is finite."""
CHOSEN = ("calibration", "prior", "threshold", "min_label_mass")
"""The conditions of an answer that do not determine the plain probabilities."""


@dataclass(frozen=True, slots=True)
class QuestionCalibration(JsonRecord):
    """A calibration of one question.

    Attributes:
        bound: The conditions of the fit, as JSON data: model, precision, question,
            template, layout, rule and so on. The calibration applies only to a question
            with equal conditions.
        n: Number of states to which the calibration was fitted.
        log_means: Natural log of the mean probability of each option over the states,
            in the caller's order; -inf if the mean is 0.
    """

    bound: Mapping[str, object] = field(hash=False)
    n: int
    log_means: tuple[float, ...]

    def weights(self, prior: Sequence[float] | None) -> tuple[float, ...]:
        """Return the weight of each option: its prior divided by its mean probability.

        Each mean is smoothed as if 16 more states had given all options the same
        probability. Without a prior, all options have prior 1.
        """
        k = len(self.log_means)
        means = [(self.n * math.exp(one) + _N_UNIFORM / k) / (self.n + _N_UNIFORM) for one in self.log_means]
        return tuple(weight / mean for weight, mean in zip(prior or [1.0] * k, means, strict=True))

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as JSON data."""
        means = [mean if math.isfinite(mean) else None for mean in self.log_means]
        return {"bound": dict(self.bound), "n": self.n, "log_means": means}


@dataclass(frozen=True, slots=True)
class LabelCalibration(JsonRecord):
    """A calibration of one question that was fitted to right answers.

    The calibrated probability of option i is proportional to
    exp(scales[i] · log p[i] + offsets[i]).

    Attributes:
        bound: The conditions of the fit, as of `QuestionCalibration`.
        n: Number of labelled answers.
        method: "temperature" (one scale), "bias" (one offset for each option) or
            "vector" (a scale and an offset for each option).
        ridge: Weight of the penalty on the distance from scales of 1 and offsets of 0.
            With "vector" it is the distance of scales from a common one, and of that
            from 1.
        scales, offsets: Of each option, in the caller's order.
    """

    bound: Mapping[str, object] = field(hash=False)
    n: int
    method: str
    ridge: float
    scales: tuple[float, ...]
    offsets: tuple[float, ...]

    @classmethod
    def fit(cls, answers: LabelledAnswers, method: str, ridge: float | str) -> LabelCalibration:
        """Fit scales and offsets to labelled answers, by ridge-penalised log loss.

        With the ridge "auto", it is the one of `RIDGES` with the least log loss in a
        cross-validation; the largest of several.

        Raises `OptionError` if the answers were calibrated, weighted by a prior,
        compared with a baseline, or follow rationales: no calibration applies to these.
        """
        conditions = dict(answers.conditions)
        chosen = {name: conditions.pop(name) for name in CHOSEN}
        for name in ("calibration", "prior"):
            if chosen[name]:
                raise OptionError("answers", f"made with a {name}", "answers without calibration and prior")
        if "thinking" in conditions:
            raise OptionError("answers", "made with `think`", "answers without rationales")
        if conditions["rule"] in BASELINE_RULES:
            raise OptionError("answers", f"rule={conditions['rule']!r}", "a rule that compares with no baseline")
        logp = np.log(_positive(answers.probabilities))
        n_parameters = {"temperature": 1, "bias": logp.shape[1], "vector": 2 * logp.shape[1]}[method]
        if logp.size * n_parameters > _MAX_CELLS:
            raise OptionError("method", method, f"'temperature' for {logp.shape[1]} options and {len(logp)} answers")
        if ridge == "auto" and len(logp) < 2 * _FOLDS:
            raise OptionError("ridge", ridge, f"a number, because {len(logp)} answers are too few to choose it by")
        weight = _choose_ridge(logp, answers.gold, method) if isinstance(ridge, str) else float(ridge)
        scales, offsets = _fit(logp, answers.gold, method, weight)
        return cls(conditions, len(answers), method, weight, scales, offsets)

    def apply(self, probabilities: Sequence[float] | FloatArray) -> FloatArray:
        """Return calibrated probabilities, float64[…, K], of plain ones."""
        z = np.log(_positive(np.asarray(probabilities, np.float64))) * self.scales + self.offsets
        return softmax(z)

    def apply_bounds(self, bounds: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Return bounds on the calibrated probabilities, given bounds on plain ones."""
        z = np.log(_positive(np.array(bounds))) * np.array(self.scales)[:, None] + np.array(self.offsets)[:, None]
        low, high = z.T
        with np.errstate(over="ignore"):  # a probability of 0
            least, most = (1 / (1 + np.exp(_log_sums_of_others(b) - a)) for a, b in ((low, high), (high, low)))
        return [(float(a), float(b)) for a, b in zip(least, most, strict=True)]

    def reordered(self, order: Sequence[int]) -> LabelCalibration:
        """Return a copy for options in another order.

        `order[i]` is the index, in the new order, of the option at index i.
        """
        place = sorted(range(len(order)), key=order.__getitem__)
        scales, offsets = (tuple(values[index] for index in place) for values in (self.scales, self.offsets))
        return LabelCalibration(self.bound, self.n, self.method, self.ridge, scales, offsets)

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as JSON data."""
        lists = {"scales": [*self.scales], "offsets": [*self.offsets]}
        return {"bound": dict(self.bound), "n": self.n, "method": self.method, "ridge": self.ridge, **lists}


def _positive(probabilities: FloatArray) -> FloatArray:
    """Return the probabilities, at least `_LEAST_PROBABILITY`."""
    return np.maximum(probabilities, _LEAST_PROBABILITY)


def _log_sums_of_others(logs: FloatArray) -> FloatArray:
    """Return for each of K logarithms that of the sum of the others' exponentials."""
    before, after = np.full((2, len(logs)), -np.inf)
    before[1:] = np.logaddexp.accumulate(logs[:-1])
    after[:-1] = np.logaddexp.accumulate(logs[:0:-1])[::-1]
    sums: FloatArray = np.logaddexp(before, after)
    return sums


def _choose_ridge(logp: FloatArray, gold: IntArray, method: str) -> float:
    """Return the ridge with the least log loss of answers that it was not fitted to.

    Part i of the cross-validation has the answers i, i + 5, … of those sorted by their
    right value and log-probabilities. So it has about equally many of each right value,
    and the order in which the answers are given does not matter.
    """
    order = np.lexsort((*logp.T, gold))
    logp, gold = logp[order], gold[order]
    part = np.arange(len(gold)) % _FOLDS
    losses = []
    for ridge in RIDGES:
        loss = 0.0
        for fold in set(part.tolist()):
            scales, offsets = _fit(logp[part != fold], gold[part != fold], method, ridge)
            shares = softmax(logp[part == fold] * scales + offsets)
            right = shares[np.arange(len(shares)), gold[part == fold]]
            loss -= float(np.log(_positive(right)).sum())
        losses.append(loss)
    return RIDGES[int(np.argmin(losses))]


def _fit(logp: FloatArray, gold: IntArray, method: str, ridge: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the scales and the offsets that minimise the penalised log loss.

    `logp` is float64[N, K], the log-probability of each option.
    """
    n, k = logp.shape
    ones, zeros, free = np.ones(k), np.zeros(k), np.full(k, -np.inf)
    if method == "temperature":
        features, start, lowest = logp[:, :, None], ones[:1], np.full(1, _LEAST_SCALE)
    elif method == "bias":
        features, start, lowest = np.broadcast_to(np.eye(k), (n, k, k)), zeros, free
    else:
        diagonal = logp[:, :, None] * np.eye(k)
        features = np.concatenate([diagonal, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)
        start, lowest = np.concatenate([ones, zeros]), np.concatenate([np.full(k, _LEAST_SCALE), free])
    penalty = np.eye(len(start))
    if method == "vector":
        # The least, over a common scale c, of (c - 1)² plus each scale's (scale - c)².
        penalty[:k, :k] -= 1 / (k + 1)
    fixed = logp if method == "bias" else np.zeros_like(logp)
    found = fit_ridge(features, fixed, gold, start=start, lowest=lowest, penalty=ridge * penalty).tolist()
    if method == "temperature":
        return (found[0],) * k, (0.0,) * k
    return ((1.0,) * k, tuple(found)) if method == "bias" else (tuple(found[:k]), tuple(found[k:]))


@dataclass(frozen=True, slots=True)
class Calibration(JsonRecord):
    """Calibrations of several questions.

    `Engine.fit_calibration` fits one to states without labels, and `Calibration.fit` to
    answers with the right values.

    Attributes:
        questions: The calibration of each calibrated question.
        is_default: Whether a question without a matching calibration is asked
            uncalibrated, as on a server. If False, it is an error.
    """

    questions: tuple[QuestionCalibration | LabelCalibration, ...]
    is_default: bool = False

    def __post_init__(self) -> None:
        allowed = "calibrations that `Calibration.fit(answers, gold)` or `llm.fit_calibration(states, questions)` finds"
        check_fitted("questions", self.questions, QuestionCalibration | LabelCalibration, allowed)

    @classmethod
    @named_arguments
    def fit(
        cls,
        answers: Iterable[Answer | Decision],
        gold: Mapping[str, Iterable[Any]] | Iterable[Any],
        method: str = "temperature",
        ridge: float | Literal["auto"] = 1.0,
    ) -> Calibration:
        """Return a calibration that is fitted to answers with their right values.

        It minimises the sum of the negative log-probabilities of the right values, plus
        `ridge / 2` times the squared distance from no calibration: multinomial logistic
        regression on the log-probabilities. The minimum is unique and found by Newton's
        method. With "vector", the distance is that of each scale from a common one, and
        of that from 1, so that few answers can make all surer or less sure.

        Args:
            answers: Answers to one question, or decisions, as `decide_many` returns
                them, without a calibration or prior.
            gold: The right value of each answer in order, None where it is not known;
                for several questions, a mapping from their names to these.
            method: "temperature" fits one scale, which never changes the winner; "bias"
                an offset for each option; "vector" a scale and an offset for each.
            ridge: Weight of the penalty, at least 1e-6. A larger one needs more answers
                to move the probabilities. "auto" chooses one by cross-validation.

        Raises:
            OptionError: For answers or values that cannot be used, and for equal
                questions of two names with other right values.
        """
        one_of("method", method, METHODS)
        check_ridge(ridge)
        by_name = labelled_answers(answers, gold)
        for name, one in by_name.items():
            if len(one) < 2:
                where = f"gold[{name!r}]" if name else "gold"
                raise OptionError(where, "one right value", "at least two, and hundreds for a calibration to rely on")
        fitted = {name: LabelCalibration.fit(one, method, ridge) for name, one in by_name.items()}
        return cls(distinct_fits(fitted))

    def labels_kind(self, kind: str) -> bool:
        """Return whether a question of a kind ("choice" …) was fitted to labels."""
        return any(isinstance(one, LabelCalibration) and _kind_of(one) == kind for one in self.questions)

    def labels_question(self, question: object) -> bool:
        """Return whether a question, as in `bound`, was fitted to labels."""
        return any(isinstance(one, LabelCalibration) and one.bound["question"] == question for one in self.questions)

    def of(self, bound: Mapping[str, object]) -> QuestionCalibration | LabelCalibration:
        """Return the calibration of the question with the conditions `bound`.

        Raises `OptionError` if there is none; the error names the first difference.
        """
        return match_conditions("calibration", self.questions, bound)

    @property
    def digest(self) -> str:
        """Return the first 16 hexadecimal digits of the SHA-256 of `to_dict`."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as JSON data, which `from_dict` reads."""
        return {"kind": "calibration", "questions": [one.to_dict() for one in self.questions]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Return the calibration of `to_dict` data; raise `OptionError` otherwise."""
        try:
            return cls(tuple(_read_question(one) for one in data["questions"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OptionError("calibration", data, "what `Calibration.to_dict` returned") from error

    def save(self, path: str | Path) -> None:
        """Write the calibration to a JSON file."""
        save_fitted(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration from a file written by `save`, or from a run's `run.json`.

        Raises `InputFileError` if the file cannot be read or has no calibration.
        """
        return load_fitted(
            path, lambda data: cls.from_dict(data.get("signature", {}).get("calibration", data)), "calibration"
        )


def check_ridge(ridge: object) -> None:
    """Raise `OptionError` unless a ridge is at least `MIN_RIDGE` or "auto"."""
    if ridge != "auto":
        number("ridge", ridge, min_value=MIN_RIDGE, remedy=f"a number of at least {MIN_RIDGE:g}, or 'auto'")


def distinct_fits(fitted: Mapping[str, B]) -> tuple[B, ...]:
    """Return what was fitted to each question, given by the names of the questions.

    Raises `OptionError` if two are fitted differently and have equal conditions,
    because only one of them could apply to later answers.
    """
    for (name, one), (other, another) in combinations(fitted.items(), 2):
        if one.bound == another.bound and one != another:
            remedy = "right values of different questions: these two are equal, so one of the fits would apply to both"
            raise OptionError("gold", f"{name!r} and {other!r}", remedy)
    return tuple(fitted.values())


def match_conditions(name: str, fitted: Sequence[B], conditions: Mapping[str, object]) -> B:
    """Return the one of several objects whose `bound` are these conditions.

    Raises `OptionError` about the option `name` if there is none; the error names the
    first difference.
    """
    same = [one for one in fitted if one.bound["question"] == conditions["question"]]
    found = next((one for one in same if one.bound == conditions), None)
    if found is not None:
        return found
    if not same:
        allowed = "one of this question, with the same options in their order"
        if len(fitted) == 1:
            both = (cast("Sequence[Any]", one["question"]) for one in (fitted[0].bound, conditions))
            allowed = MessageText(allowed, _difference(*both))
        raise OptionError(name, "fitted", allowed)
    bound = same[0].bound
    other = next(key for key in [*conditions, *bound] if bound.get(key) != conditions.get(key))
    was, now = Quoted(bound.get(other)), Quoted(conditions.get(other))
    raise OptionError(name, "fitted", words("one of the same {}: it has {}, now it is {}", other, was, now))


def _difference(was: Sequence[Any], now: Sequence[Any]) -> MessageText:
    """Return the first difference between two questions of `bound` in words."""
    before, after = (
        {"kind": kind, "instructions": instructions, "options": [one[0] for one in options], "descriptions": options}
        for kind, instructions, *options in (was, now)
    )
    name = next(one for one in before if before[one] != after[one])
    return words("; the {}: it has {}, now it is {}", name, Quoted(before[name]), Quoted(after[name]))


def save_fitted(path: str | Path, data: Mapping[str, object]) -> None:
    """Write the data of a calibration or of thresholds to a JSON file."""
    Path(path).write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load_fitted(path: str | Path, read: Callable[[Any], T], what: str) -> T:
    """Return what `read` makes of the data of a JSON file.

    Raises `InputFileError` if the file cannot be read, or holds no `what`.
    """
    try:
        return read(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error
    except (ValueError, AttributeError, OptionError) as error:
        raise InputFileError(str(path), f"holds no {what}") from error


def refuse_gold(questions: object, states: object) -> None:
    """Raise `OptionError` for right answers where questions are asked for.

    They are values of which some are equal, or one for each state, so they are no
    options of a question.
    """
    several = isinstance(questions, list | tuple) or hasattr(questions, "tolist")
    texts = [str(one) for one in questions] if several and isinstance(questions, Iterable) else []
    one_each = isinstance(states, Sized) and not isinstance(states, str) and len(states) == len(texts) > 1
    if one_each or len(set(texts)) < len(texts):
        allowed = (
            "questions; right answers are not needed here, and `Calibration.fit(answers, gold)` fits to them"
            + "; options, one for each state, can be given as Choice(…, options)" * one_each
        )
        raise OptionError("questions", questions, allowed)


def check_fitted(name: str, given: object, kind: Any, allowed: str) -> None:
    """Raise `OptionError` unless an argument is a tuple of fitted records."""
    if not isinstance(given, tuple) or not all(isinstance(one, kind) for one in given):
        raise OptionError(name, given, allowed)


def _read_question(data: Mapping[str, Any]) -> QuestionCalibration | LabelCalibration:
    """Return the calibration of a question from its JSON data.

    Raises `KeyError`, `TypeError` or `ValueError` for other data.
    """
    bound, n = dict(data["bound"]), _count(data["n"])
    options = bound["question"][2:]
    if "log_means" in data:
        return QuestionCalibration(
            bound, n, tuple(_log_mean(mean) for _, mean in zip(options, data["log_means"], strict=True))
        )
    scales, offsets = (
        tuple(_finite(value) for _, value in zip(options, data[name], strict=True)) for name in ("scales", "offsets")
    )
    if data["method"] not in METHODS or not all(scale > 0 for scale in scales):
        raise ValueError(data["method"])
    return LabelCalibration(bound, n, data["method"], _finite(data["ridge"]), scales, offsets)


def _kind_of(one: LabelCalibration) -> object:
    """Return the kind of the question of a calibration: "choice" and so on."""
    question: Any = one.bound["question"]
    return question[0]


def _finite(value: object) -> float:
    """Return a finite number as a float; raise `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


def _count(n: object) -> int:
    """Return a number of states; raise `ValueError` unless it is an int above 0."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(n)
    return n


def _log_mean(value: object) -> float:
    """Return the log of a mean: -inf for None; raise `ValueError` if not a log."""
    if value is None:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= 1e-9:
        raise ValueError(value)
    return float(value)


def question_calibration(bound: Mapping[str, object], samples: Sequence[Sequence[float]]) -> QuestionCalibration:
    """Fit the calibration of a question to its answers about several states.

    Args:
        bound: The conditions under which the question was asked.
        samples: For each state, the probability of each option in the caller's order.
    """
    means = [math.fsum(column) / len(samples) for column in zip(*samples, strict=True)]
    return QuestionCalibration(bound, len(samples), tuple(math.log(mean) if mean else -math.inf for mean in means))


def sample_of(texts: Iterable[str]) -> list[str]:
    """Return the 64 distinct texts with the smallest SHA-256, or all if fewer.

    The sample depends neither on the order of the texts nor on repetitions.
    """
    kept: dict[bytes, str] = {}
    for text in texts:
        kept[sha256(to_bytes(text, "state")).digest()] = text
        if len(kept) == 2 * N_SAMPLED:
            kept = dict(sorted(kept.items())[:N_SAMPLED])
    return [text for _, text in sorted(kept.items())[:N_SAMPLED]]
