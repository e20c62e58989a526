"""Reads answers together with the right values, as arrays, and fits regressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selectrie.core.types import BoolArray, FloatArray, IntArray
from selectrie.decide.answers import Answer, Decision, is_answer
from selectrie.decide.states import is_missing
from selectrie.errors import InternalError, OptionError

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
    return {name: _read_question(name, rows, values) for name, values in named.items()}


def _list_several(name: str, given: object, allowed: str) -> list[Any]:
    """Return a list of several values; raise `OptionError` for a single one."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError(name, given, allowed)
    return list(given)


def _read_question(name: str, rows: Sequence[Any], gold: Sequence[Any]) -> LabelledAnswers:
    """Return the answers to the question of a name with their right values."""
    where = f"gold[{name!r}]" if name else "gold"
    if len(gold) != len(rows):
        raise OptionError(where, f"{len(gold)} values", f"one right value for each of the {len(rows)} answers")
    kept: list[tuple[Answer, int]] = []
    first: Any = None
    for at, (row, right) in enumerate(zip(rows, gold, strict=True)):
        if isinstance(row, Decision) and row.error is not None:
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
