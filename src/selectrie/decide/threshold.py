"""Thresholds of confidence above which answers are wrong at most so often.

They are found by Learn-then-Test (Angelopoulos et al. 2021): a fixed sequence of exact
binomial tests, from strict to lax thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from selectrie.decide.answers import Answer, Decision
from selectrie.decide.calibration import (
    LabelledAnswers,
    check_fitted,
    distinct_fits,
    labelled_answers,
    load_fitted,
    match_conditions,
    save_fitted,
)
from selectrie.errors import IncompatibleOptionsError, OptionError
from selectrie.options.arguments import named_arguments
from selectrie.options.checks import number
from selectrie.results.plain import JsonRecord

_LEVELS = tuple(1 - 2.0 ** (-step / 4) for step in range(80, -1, -1))
"""The thresholds that are tested, from strict to lax: 1 - confidence is at least 1e-6.

They do not depend on the answers, and four of them halve 1 - confidence.
"""
_FIRST_SHARE = 4
"""The first test needs 1/4 of the answers: fewer could fail by a single error."""


@dataclass(frozen=True, slots=True)
class QuestionThreshold:
    """The threshold of one question.

    Attributes:
        bound: The conditions of the fit (`Answer.conditions`), as JSON data. The
            threshold applies only to a question with equal conditions.
        error: Largest share of wrong answers among those that do not abstain.
        confidence: Probability, over the labelled answers, that this holds.
        n: Number of labelled answers.
        n_answered, n_wrong: Number of labelled answers that do not abstain, and of the
            wrong ones among them.
        min_confidence: Confidence below which an answer abstains; inf if all do,
            because no threshold passed its test.
    """

    bound: Mapping[str, object] = field(hash=False)
    error: float
    confidence: float
    n: int
    n_answered: int
    n_wrong: int
    min_confidence: float

    @classmethod
    def fit(cls, answers: LabelledAnswers, error: float, confidence: float) -> QuestionThreshold:
        """Return the laxest threshold before the first test that fails.

        A test is passed if the probability of at most as many errors, among as many
        answers that are wrong with probability `error`, is at most 1 - `confidence`.
        """
        least_mass: Any = answers.conditions["min_label_mass"]
        has_mass = answers.label_mass >= least_mass
        n = len(answers)
        n_first = max(least_answered(error, confidence), math.ceil(n / _FIRST_SHARE))
        found = cls(answers.conditions, error, confidence, n, 0, 0, math.inf)
        for level in _LEVELS:
            is_answered = has_mass & (answers.confidence >= level)
            n_answered = int(np.count_nonzero(is_answered))
            if n_answered < n_first:
                continue
            n_wrong = int(np.count_nonzero(is_answered & ~answers.is_right))
            if binomial_tail(n_wrong, n_answered, error) > 1 - confidence:
                break
            found = cls(answers.conditions, error, confidence, n, n_answered, n_wrong, level)
        return found

    def describe(self) -> str:
        """Return what is guaranteed, by which answers, and what that supposes."""
        goal = (
            f"at most {100 * self.error:.3g} % of the answers wrong, at a confidence of {100 * self.confidence:.3g} %"
        )
        if self.min_confidence == math.inf:
            least = least_answered(self.error, self.confidence)
            return (
                f"All answers abstain: {self.n} labelled answers do not show {goal}. That needs at least {least} "
                "answers above one of the thresholds that are tested without an error, or more with few."
            )
        return (
            f"Answers with a confidence below {self.min_confidence:.4g} abstain. Of {self.n} labelled answers, "
            f"{self.n_answered} did not, and {self.n_wrong} of these were wrong. This shows {goal}, if the texts are "
            "drawn independently and like the labelled ones, if these served for nothing else (examples, wording, "
            "calibration), and if answers of a higher confidence are not wrong more often."
        )


@dataclass(frozen=True, slots=True, repr=False)
class Threshold(JsonRecord):
    """Thresholds of several questions, for `DecisionParams.min_confidence`.

    Attributes:
        questions: The threshold of each question.
    """

    questions: tuple[QuestionThreshold, ...]

    def __post_init__(self) -> None:
        allowed = "thresholds that `Threshold.fit(answers, gold)` finds; a number is a min_confidence itself"
        check_fitted("questions", self.questions, QuestionThreshold, allowed)

    @classmethod
    @named_arguments
    def fit(
        cls,
        answers: Iterable[Answer | Decision],
        gold: Mapping[str, Iterable[Any]] | Iterable[Any],
        error: float | None = None,
        confidence: float = 0.9,
        precision: float | None = None,
    ) -> Threshold:
        """Return thresholds above which few answers are wrong.

        With the probability `confidence` over the labelled answers, at most the share
        `error` of later answers that do not abstain is wrong. `describe` says what that
        supposes. Where the answers cannot show it, all later answers abstain.

        Args:
            answers: Answers to one question, or decisions, as `decide_many` returns
                them, with the calibration that later answers have. A calibration must
                have been fitted to other answers.
            gold: The right value of each answer in order, None where it is not known;
                for several questions, a mapping from their names to these.
            error: Largest share of wrong answers, between 0 and 1. None means 0.05.
            confidence: Probability that this holds, between 0 and 1.
            precision: The share of right answers, 1 - `error`, in its place.

        Raises:
            OptionError: For answers or values that cannot be used, and for equal
                questions of two names with other right values.
        """
        given = [(name, value) for name, value in (("error", error), ("precision", precision)) if value is not None]
        if len(given) == 2:
            raise IncompatibleOptionsError("precision", "`error`", "it is 1 - error")
        for name, value in (*given, ("confidence", confidence)):
            number(name, value, min_value=math.ulp(0.0), max_value=1 - 2**-53, remedy="a number between 0 and 1")
        error = 0.05 if not given else given[0][1] if precision is None else round(1 - precision, 12)
        by_name = labelled_answers(answers, gold)
        fitted = {name: QuestionThreshold.fit(one, error, confidence) for name, one in by_name.items()}
        return cls(distinct_fits(fitted))

    def of(self, conditions: Mapping[str, object]) -> QuestionThreshold:
        """Return the threshold of the question with these conditions.

        Raises `OptionError` if there is none; the error names the first difference.
        """
        return match_conditions("min_confidence", self.questions, conditions)

    @property
    def value(self) -> float:
        """Return the threshold of the only question, a `Choice`, as a probability.

        Answers with a lower `probability` abstain. If all do, it is above 1. A label
        mass below `min_label_mass` is another reason to abstain.

        Raises `OptionError` for several questions and for other kinds of questions.
        """
        asked: list[Any] = [one.bound["question"] for one in self.questions]
        if [kind for kind, *_ in asked] != ["choice"] or len(asked[0]) == 2:
            allowed = "one question, a Choice; of others, `of(answer.conditions).min_confidence` is the threshold"
            raise OptionError("questions", [kind for kind, *_ in asked], allowed)
        least, k = self.questions[0].min_confidence, len(asked[0][2:])
        return math.nextafter(1.0, 2.0) if least == math.inf else least * (1 - 1 / k) + 1 / k

    def describe(self) -> str:
        """Return what is guaranteed for each question, in a line for each."""
        return "\n".join(f"{_words_of(one)}: {one.describe()}" for one in self.questions)

    def __repr__(self) -> str:
        return f"Threshold({self.describe()})"

    def to_dict(self) -> dict[str, object]:
        """Return the thresholds as JSON data, which `from_dict` reads."""
        questions = []
        for one in self.questions:
            data: dict[str, object] = {part.name: getattr(one, part.name) for part in fields(one)}
            least = one.min_confidence if one.min_confidence < math.inf else None
            questions.append({**data, "bound": dict(one.bound), "min_confidence": least})
        return {"kind": "threshold", "questions": questions}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Threshold:
        """Return the thresholds of `to_dict` data; raise `OptionError` otherwise."""
        try:
            return cls(tuple(_read_question(one) for one in data["questions"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError("min_confidence", data, "what `Threshold.to_dict` returned") from error

    def save(self, path: str | Path) -> None:
        """Write the thresholds to a JSON file."""
        save_fitted(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Threshold:
        """Read thresholds from a file that `save` wrote.

        Raises `InputFileError` if the file cannot be read or has no thresholds.
        """
        return load_fitted(path, cls.from_dict, "threshold")


def _words_of(one: QuestionThreshold) -> str:
    """Return the instructions of the question of a threshold, or its kind."""
    question: Any = one.bound["question"]
    return str(question[1] or question[0])


def _read_question(data: Mapping[str, Any]) -> QuestionThreshold:
    """Return the threshold of a question from its JSON data.

    Raises `KeyError`, `TypeError` or `ValueError` for other data.
    """
    shares = [data["error"], data["confidence"]]
    if not all(type(one) is float and 0 < one < 1 for one in shares):
        raise ValueError(shares)
    counts = [data["n"], data["n_answered"], data["n_wrong"]]
    if not all(type(one) is int and one >= 0 for one in counts):
        raise ValueError(counts)
    least = data["min_confidence"]
    if least is not None and not (isinstance(least, int | float) and 0 <= least <= 1):
        raise ValueError(least)
    bound = dict(data["bound"])
    return QuestionThreshold(*(bound, *shares, *counts, math.inf if least is None else float(least)))


def least_answered(error: float, confidence: float) -> int:
    """Return the least number of answers, all right, that pass a test.

    It is the least n with (1 - error)^n <= 1 - confidence: 45 for 0.05 and 0.9.
    """
    n = max(1, math.floor(math.log1p(-confidence) / math.log1p(-error)))
    while binomial_tail(0, n, error) > 1 - confidence:
        n += 1
    return n


def binomial_tail(k: int, n: int, p: float) -> float:
    """Return the probability of at most k successes among n with probability p each."""
    i = np.arange(k + 1)
    log_choose = math.lgamma(n + 1) - np.array([math.lgamma(j + 1) + math.lgamma(n - j + 1) for j in range(k + 1)])
    terms = log_choose + i * math.log(p) + (n - i) * math.log1p(-p)
    peak = float(terms.max())
    return min(1.0, math.exp(peak + math.log(float(np.exp(terms - peak).sum()))))
