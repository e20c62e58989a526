"""Defines the answers to questions, and computes their numbers from selections."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeGuard, TypeVar

from selectrie.core.notation import percent, percent_between, quoted, written_tolerance
from selectrie.core.types import Cost
from selectrie.decide.drawn_answers import AnswerInWords, draw_answers
from selectrie.decide.thinking import Rationales
from selectrie.errors import OptionError, SelectrieError
from selectrie.results import FORMAT_VERSION, Selection, Signature
from selectrie.results.advice import LOW_COVERAGE, Advice, expected_tokens
from selectrie.results.drawing.plot import plot
from selectrie.results.drawing.shapes import to_html
from selectrie.results.plain import (
    REPR_CELLS,
    JsonRecord,
    fields_of,
    frame,
    jsonable,
    label,
    number,
    plain,
    row,
    table,
    truth_error,
    value_text,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from typing_extensions import TypeVar as TypeVarWithDefault

    V_co = TypeVarWithDefault("V_co", covariant=True, default=dict[str, Any])
else:
    V_co = TypeVar("V_co", covariant=True)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecisionSignature:
    """The settings, besides state and question, that determine an answer.

    Attributes:
        template: Name of the template.
        template_digest: Digest of the template's text, blake2b in hexadecimal.
        layout: "state first", "options last" or "questions first".
        scoring: "text" or "letters".
        rule: Name of the scoring rule.
        listed: Whether the prompt lists the options.
        orders: Number of orders of the options, or "auto"; 0 for the caller's order.
        selection: The signature of the selections: model, software and options.
        calibration: Digest of the calibration; "" without one.
        thinking: Options of the rationales, as JSON; "" without any.
    """

    template: str
    template_digest: str
    layout: str
    scoring: str
    rule: str
    listed: bool
    orders: int | str
    selection: Signature
    calibration: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class DecisionUsage(JsonRecord):
    """The work done for one or more answers.

    Attributes:
        prompts: Number of prompts.
        input_tokens: Total number of tokens of the prompts. A prefix that several
            prompts share is counted for each.
        cost: The model work. A row that several prompts share is counted once; a call
            that serves several prompts is counted for each.
        rows_by_model: Rows evaluated on each model of a cascade, in its order; () for
            answers of one model.
        rows_alone: Rows that the last model of a cascade would have evaluated without
            the others, with nothing cached; None for answers of one model.
        output_tokens: Number of tokens of the rationales that were drawn.
    """

    prompts: int
    input_tokens: int
    cost: Cost
    rows_by_model: tuple[int, ...] = ()
    rows_alone: int | None = None
    output_tokens: int = 0

    def __add__(self, other: DecisionUsage) -> DecisionUsage:
        by_model = zip_longest(self.rows_by_model, other.rows_by_model, fillvalue=0)
        alone = [n_rows for n_rows in (self.rows_alone, other.rows_alone) if n_rows is not None]
        return DecisionUsage(
            self.prompts + other.prompts,
            self.input_tokens + other.input_tokens,
            self.cost + other.cost,
            tuple(map(sum, by_model)),
            sum(alone) if alone else None,
            self.output_tokens + other.output_tokens,
        )

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent."""
        names = "prompts input_tokens cost rows_by_model? rows_alone?"
        return fields_of(self, f"{names} output_tokens" if self.output_tokens else names)


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """The model of a cascade that gave an answer.

    Attributes:
        index: Index of the model in the cascade.
        model: Name of the model.
    """

    index: int
    model: str


CHAT_TEMPLATE = "chat.tmpl"
"""Name of the built-in template for models with a chat template."""
NO_USAGE = DecisionUsage(0, 0, Cost())


def label_mass_advice(text: str, about: str = "") -> Advice:
    """Return the advice on a low label mass; `text` is a sentence with the number."""
    return Advice("label_mass", f"{text} Look at the prompt and at the options' texts.", about=about)


Bounds: TypeAlias = tuple[float, float]
"""A lower and an upper bound."""


@dataclass(frozen=True, slots=True)
class AnswerBounds(JsonRecord):
    """Bounds on the numbers of an answer that are not known exactly.

    Numbers are inexact if only a part of a row was read, or if a selection has a
    `heal_gap`.

    Attributes:
        probabilities: Bounds on the probability of each option by value, in the
            caller's order. The values of a predicate are True and False.
        label_mass: Bounds on the label mass.
        score: Bounds on the score of a `ScoreAnswer`, else None.
    """

    probabilities: Mapping[Any, Bounds] = field(hash=False)
    label_mass: Bounds
    score: Bounds | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent."""
        return {
            "probabilities": [
                {"value": jsonable(value), "low": low, "high": high}
                for value, (low, high) in self.probabilities.items()
            ],
            **fields_of(self, "label_mass score?"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnswerBase(JsonRecord):
    """The fields that all answers share; most say how far to trust the answer.

    If only a part of a row was read, each probability is the midpoint of its bounds.
    Confidence, label mass and margin are then lower bounds.

    Attributes:
        confidence: 1 if one option has probability 1; 0 if all options have the same
            probability.
        label_mass: Total probability of the options' texts by the plain joint, without
            rule or prior (`Selection.coverage`). If it is near 0, the model would
            rather say something else.
        first_token_fits: Whether the most probable token after the prompt begins an
            option, in every order.
        margin: Log of the ratio of the two largest probabilities, in nats; inf for one
            option.
        is_tie: Whether another option has the winner's probability up to rounding, or
            may have it within the bounds or the tolerance of a served model.
        abstained: Why the answer should not be relied on: which number is below
            `min_confidence` or `min_label_mass`. "" if none is.
        spread: Largest standard deviation of an option's probability over the orders or
            rationales (ddof 1); 0 for one.
        order_dependent: Whether the orders have different winners, or for a predicate
            different values; None for one order.
        complete: Whether every option was evaluated.
        signature: The settings that determine the answer.
        selections: The selection after each prompt, one for each order or rationale.
            Not compared.
        usage: The work done for the answer. Not compared.
        bounds: Bounds on the numbers of the answer; None if they are exact.
        conditions: The conditions under which the question was asked, as JSON data.
            Calibrations and thresholds are bound to them. Not compared.
        decided_by: The model of a cascade that gave the answer; None without a cascade.
            Not compared.
        rationales: What the model wrote before the answer; None without `think`.
    """

    confidence: float
    label_mass: float
    first_token_fits: bool
    margin: float
    is_tie: bool
    abstained: str
    spread: float
    order_dependent: bool | None = None
    complete: bool
    signature: DecisionSignature
    selections: tuple[Selection, ...] = field(compare=False, repr=False)
    usage: DecisionUsage = field(compare=False, repr=False)
    bounds: AnswerBounds | None = field(default=None, hash=False)
    conditions: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    decided_by: DecidedBy | None = field(default=None, compare=False)
    rationales: Rationales | None = None

    @property
    def selection(self) -> Selection:
        """Return the only selection; raise `OptionError` if there are several."""
        if len(self.selections) != 1:
            raise OptionError("selection", len(self.selections), "one prompt; with several, read `selections`")
        return self.selections[0]

    @property
    def tolerance(self) -> float | None:
        """Return the tolerance of the model's rows in nats; None if not measured."""
        return self.signature.selection.tolerance

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return advice if a built-in chat prompt has a low label mass, else ()."""
        highest = self.label_mass if self.bounds is None else self.bounds.label_mass[1]
        if highest >= LOW_COVERAGE or self.signature.template != CHAT_TEMPLATE:
            return ()
        tolerance = written_tolerance(self)
        wants = expected_tokens(self.selections[0].top_tokens, tolerance) if self.selections else ""
        share = f"the options hold {percent(highest, tolerance)} of what the model would say."
        about = repr([self.conditions.get("model"), self.conditions.get("question")])
        return (label_mass_advice(f"{share}{wants}", about),)

    def __bool__(self) -> bool:
        """Raise `TypeError`: only the answer to a `Predicate` is true or false."""
        raise truth_error(self, "its `.value`")

    def _repr_html_(self) -> str:
        """Return the options with bars, for notebooks."""
        return to_html(draw_answers([("", self)]), before=[f"! {advice}" for advice in self.warnings])

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the options with matplotlib (extra `plot`), as a notebook shows them."""
        return plot(draw_answers([("", self)]), ax)

    def in_words(self) -> AnswerInWords:
        """Return the words of all reports for the answer."""
        raise NotImplementedError

    def _describe(self, text: str, labels: Mapping[Any, str]) -> AnswerInWords:
        """Return the words for an answer with this text, whose options have labels."""
        answer: Any = self  # every kind has a value and probabilities
        tolerance = written_tolerance(self)
        _, low, high = bound_probability(self)
        mass = (self.label_mass, self.label_mass) if self.bounds is None else self.bounds.label_mass
        notes = [self.abstained] if self.abstained else []
        return AnswerInWords(
            text,
            percent_between(low, high, tolerance),
            percent(self.confidence, tolerance),
            percent_between(*mass, tolerance),
            [*notes, "tie"] if self.is_tie else notes,
            [(label, answer.probabilities[value], value == answer.value) for value, label in labels.items()],
        )

    def __repr__(self) -> str:
        words = self.in_words()
        abstained = f", abstained: {self.abstained}" if self.abstained else ""
        numbers = f"p {words.probability}, confidence {words.confidence}, label mass {words.label_mass}"
        return f"{type(self).__name__}({self._value_words()}, {numbers}{abstained})"

    def _value_words(self) -> str:
        """Return the value for a `repr`, in which long texts are cut."""
        return self.in_words().text

    def _base_to_dict(self) -> dict[str, object]:
        """Return the shared fields, except selections, as JSON data."""
        names = "confidence label_mass first_token_fits margin is_tie abstained spread complete order_dependent"
        signature = plain(self.signature) | {"selection": self.signature.selection.to_dict()}
        shared = fields_of(self, f"{names} bounds? decided_by? rationales? warnings?")
        return {**shared, "signature": signature, "usage": self.usage.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChoiceAnswer(_AnswerBase, Generic[T]):
    """The answer to a `Choice`.

    Attributes:
        value: The value of the most probable option, as the caller gave it.
        text: The text of the most probable option, which the model scores.
        probability: The probability of the most probable option.
        probabilities: Probability of each evaluated option by value, in the caller's
            order. If all options were evaluated, they sum to 1.
        probability_high: Upper bound on the probability of each option that `top` did
            not evaluate, by value; empty if all were evaluated.
        texts: The text of each option by value, which the model scores.
    """

    value: T
    text: str
    probability: float
    probabilities: Mapping[T, float] = field(hash=False)
    probability_high: Mapping[T, float] = field(hash=False)
    texts: Mapping[T, str] = field(compare=False)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent, with kind "choice".

        Probabilities are a list of value and probability, because values need not be
        strings.
        """
        return {
            "kind": "choice",
            "value": jsonable(self.value),
            **fields_of(self, "text probability"),
            "probabilities": _list_values(self.probabilities, "probability"),
            **({"probability_high": _list_values(self.probability_high, "high")} if self.probability_high else {}),
            **self._base_to_dict(),
        }

    def in_words(self) -> AnswerInWords:
        """Return the words of all reports for the answer; options best first."""
        best = sorted(self.probabilities, key=lambda value: -self.probabilities[value])
        return self._describe(quoted(self.text), {value: quoted(self.texts[value]) for value in best})

    def _value_words(self) -> str:
        return value_text(self.value)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PredicateAnswer(_AnswerBase):
    """The answer to a `Predicate`.

    `bool(answer)` is `answer.value`, or raises `TypeError` if the answer abstained.

    Attributes:
        probability: Probability that the statement is true: p(yes) / (p(yes) + p(no)).
        threshold: Probability above which the answer is true.
    """

    probability: float
    threshold: float = 0.5

    @property
    def value(self) -> bool:
        """Return whether the probability is above the threshold."""
        return self.probability > self.threshold

    @property
    def probabilities(self) -> Mapping[bool, float]:
        """Return the probabilities of True and False."""
        return {True: self.probability, False: 1 - self.probability}

    def __bool__(self) -> bool:
        """Return `value`; raise `TypeError` if the answer abstained."""
        if self.abstained:
            raise TypeError(f"the answer abstained ({self.abstained}); read its `.value` to use it all the same")
        return self.value

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent, with kind "predicate".

        It has `threshold` only if that is not 0.5.
        """
        names = "value probability threshold" if self.threshold != 0.5 else "value probability"
        return {"kind": "predicate", **fields_of(self, names), **self._base_to_dict()}

    def in_words(self) -> AnswerInWords:
        """Return the words of all reports for the answer."""
        return self._describe("true" if self.value else "false", {True: "true", False: "false"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScoreAnswer(_AnswerBase):
    """The answer to a `Score`. `float(answer)` is its `score`.

    Attributes:
        score: The expected number: the sum of each level's number times its
            probability.
        level: The text of the most probable level.
        value: The number of the most probable level.
        probabilities: Probability of each level by its number, in the caller's order;
            they sum to 1.
        legend: The text of each level by its number.
    """

    score: float
    level: str
    value: float
    probabilities: Mapping[float, float] = field(hash=False)
    legend: Mapping[float, str] = field(hash=False)

    def __float__(self) -> float:
        return self.score

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent, with kind "score"."""
        levels = [
            {"value": value, "label": self.legend[value], "probability": p} for value, p in self.probabilities.items()
        ]
        return {
            "kind": "score",
            **fields_of(self, "score level value"),
            "probabilities": levels,
            **self._base_to_dict(),
        }

    def in_words(self) -> AnswerInWords:
        """Return the words of all reports for the answer; levels in their order."""
        levels = {value: f"{value:g} {quoted(text)}" for value, text in self.legend.items()}
        return self._describe(f"{self.score:.2f}, {quoted(self.level)}", levels)

    def _value_words(self) -> str:
        return f"{self.score:.2f}, {quoted(self.level, REPR_CELLS)}"


Answer: TypeAlias = ChoiceAnswer[Any] | PredicateAnswer | ScoreAnswer


@dataclass(frozen=True, slots=True)
class ValueShape:
    """An object that values of answers make: of a class with fields, or a dictionary.

    Attributes:
        make: What makes it of keyword arguments.
        parts: Each argument, and the name of the question whose answer has its value,
            or the object that is its value.
    """

    make: Callable[..., Any]
    parts: tuple[tuple[str, str | ValueShape], ...]

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the object, by the values of the answers.

        Raises `OptionError` if the class refuses them.
        """
        parts = {name: values[part] if isinstance(part, str) else part.build(values) for name, part in self.parts}
        try:
            return self.make(**parts)
        except (TypeError, ValueError) as error:
            if isinstance(error, SelectrieError):
                raise
            reason = " ".join(str(error).split())
            raise OptionError("value", parts, f"values that {self.make.__name__} takes; it says: {reason}") from error


def is_answer(value: object) -> TypeGuard[Answer]:
    """Return whether a value is the answer to a question of any kind."""
    return isinstance(value, _AnswerBase)


@dataclass(frozen=True, slots=True, repr=False)
class Decision(JsonRecord, Mapping[str, Answer], Generic[V_co]):
    """The answers to several questions about one state, by the questions' names.

    `decision[name]` is an answer of any kind. `choices`, `predicates` and `scores` are
    the answers of one kind. If `error` is set, reading an answer raises it.

    Attributes:
        answers: The answers by name, in the order of the questions.
        error: Why no question could be asked about the state, with `on_error="keep"`;
            None if the questions were answered.
        shape: The object that the values make, if a class gave the questions.
    """

    answers: Mapping[str, Answer]
    error: SelectrieError | None = None
    shape: ValueShape | None = None

    def __hash__(self) -> int:
        return hash((frozenset(self.answers.items()), self.error))

    def __getitem__(self, name: str) -> Answer:
        return self._require_answers()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._require_answers())

    def __len__(self) -> int:
        return len(self.answers)

    def __bool__(self) -> bool:
        """Raise `TypeError`: several answers together have no truth value."""
        raise truth_error(self, "the `.value` of an answer, as in `decision[name].value`")

    @property
    def value(self) -> V_co:
        """Return the object that the values of the answers make.

        It is of the class whose fields were asked, and a dictionary for questions by
        name. A field has the value of its answer, even if that abstained. Raises
        `OptionError` if the class refuses the values together.
        """
        values: Any = {name: answer.value for name, answer in self.items()}
        value: V_co = values if self.shape is None else self.shape.build(values)
        return value

    @property
    def choices(self) -> Mapping[str, ChoiceAnswer[Any]]:
        """Return the answers to questions of the kind `Choice`."""
        return MappingProxyType({n: a for n, a in self._require_answers().items() if isinstance(a, ChoiceAnswer)})

    @property
    def predicates(self) -> Mapping[str, PredicateAnswer]:
        """Return the answers to questions of the kind `Predicate`."""
        return MappingProxyType({n: a for n, a in self._require_answers().items() if isinstance(a, PredicateAnswer)})

    @property
    def scores(self) -> Mapping[str, ScoreAnswer]:
        """Return the answers to questions of the kind `Score`."""
        return MappingProxyType({n: a for n, a in self._require_answers().items() if isinstance(a, ScoreAnswer)})

    @property
    def probabilities(self) -> Mapping[str, Mapping[Any, float]]:
        """Return the probabilities of each question's options, by the question's name.

        If an answer has `bounds`, they are the midpoints of the bounds.
        """
        return {name: answer.probabilities for name, answer in self._require_answers().items()}

    @property
    def usage(self) -> DecisionUsage:
        """Return the total work done for the answers."""
        return sum((answer.usage for answer in self.answers.values()), NO_USAGE)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on the answers; `Advice.where` names the question."""
        return tuple(replace(advice, where=name) for name, answer in self.answers.items() for advice in answer.warnings)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary that JSON can represent, with kind "decision".

        `answers` maps each name to the dictionary of its answer. A decision with an
        error has `error` in its place.
        """
        head = {"format": FORMAT_VERSION, "kind": "decision"}
        if self.error is not None:
            return {**head, "error": {"code": self.error.code, "message": str(self.error)}}
        answers = {name: answer.to_dict() for name, answer in self.answers.items()}
        return {**head, "answers": answers, "usage": self.usage.to_dict()}

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame with a row for each question (extra `pandas`).

        The columns are question, value, probability, probability_low, probability_high,
        confidence, label_mass, margin and abstained.
        """
        rows = (
            (name, a.value, *bound_probability(a), a.confidence, a.label_mass, a.margin, a.abstained)
            for name, a in self._require_answers().items()
        )
        names = "question value probability probability_low probability_high confidence label_mass margin abstained"
        return frame(rows, names)

    def _repr_html_(self) -> str:
        """Return the options of each question with bars, for notebooks."""
        if self.error is not None:
            return table(("error",), [row(label(str(self.error), wide=True))], type(self.error).__name__)
        lines = [f"! {advice}" for advice in self.warnings]
        return to_html(draw_answers(self.answers.items()), before=lines)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the options of each question with matplotlib (extra `plot`).

        Raises the error of a decision that has no answers.
        """
        return plot(draw_answers(self.items()), ax)

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Decision(error={self.error!r})"
        return "\n".join(["Decision", *(f"  {name}: {answer!r}" for name, answer in self.answers.items())])

    def _require_answers(self) -> Mapping[str, Answer]:
        """Return the answers, or raise the decision's error."""
        if self.error is not None:
            raise self.error
        return self.answers


@dataclass(frozen=True, slots=True)
class Evidence:
    """The probabilities of a question's options, from which its answer is made.

    Attributes:
        probabilities: Probability of each option by value, in the caller's order; the
            mean over the orders.
        texts: The text of each option by value, in the caller's order.
        winner: The value of the most probable option.
        probability: The probability of the most probable option.
        probability_high: Upper bound on the probability of each option that was not
            evaluated, by value.
        threshold: Probability above which a predicate is true.
        trust: The fields that all answers share, by name (`_AnswerBase`).
    """

    probabilities: Mapping[Any, float]
    texts: Mapping[Any, str]
    winner: Any
    probability: float
    probability_high: Mapping[Any, float]
    threshold: float
    trust: Mapping[str, Any]


Cell: TypeAlias = str | float | int | bool | None
"""A value in an added column. None if the state of the row could not be asked."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that answers add to a table.

    Attributes:
        name: The name of the column.
        kind: "label" (one of `labels`), "text", "float", "int" or "bool".
        labels: The possible texts of a "label" column, in the order of the options.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()


KindColumns: TypeAlias = tuple[tuple[Column, ...], Callable[[Any], list[Cell]]]
"""The columns that only one kind of question adds, and a function from an answer to
their cells. The function returns one cell more: the answer's probability."""


def confidence_of(p: float, k: float) -> float:
    """Return (p - 1/k) / (1 - 1/k) for the largest probability p of k options.

    The result is 1 for k = 1. k is inf for a grammar whose texts were not all found.
    """
    return 1.0 if k == 1 else (p - 1 / k) / (1 - 1 / k)


def spread_of(samples: Sequence[Sequence[float]]) -> float:
    """Return the largest standard deviation (ddof 1) of an option over several orders.

    `samples[i][j]` is the probability of option j in order i. One order gives 0.
    """
    if len(samples) == 1:
        return 0.0
    return max(float(statistics.stdev(column)) for column in zip(*samples, strict=True))


def mean_of(samples: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each column of `samples`, whose rows are orders."""
    return tuple(math.fsum(column) / len(samples) for column in zip(*samples, strict=True))


def expected(values: Sequence[float], probabilities: Sequence[float]) -> float:
    """Return the sum of each value times its probability."""
    return math.fsum(value * p for value, p in zip(values, probabilities, strict=True))


def expected_bounds(values: Sequence[float], bounds: Sequence[Bounds]) -> Bounds:
    """Return bounds on `expected`, given bounds on probabilities that sum to 1."""
    ordered = sorted(zip(values, bounds, strict=True), key=lambda one: one[0])
    return _compute_min_expected(ordered), -_compute_min_expected([(-value, one) for value, one in reversed(ordered)])


def _compute_min_expected(ordered: Sequence[tuple[float, Bounds]]) -> float:
    """Return the smallest expected value for probabilities within their bounds.

    `ordered` holds pairs of a value and bounds on its probability, by rising value.
    """
    remaining = max(0.0, 1.0 - math.fsum(low for _, (low, _) in ordered))
    products = []
    for value, (low, high) in ordered:
        extra = min(remaining, high - low)
        remaining -= extra
        products.append(value * (low + extra))
    return math.fsum(products)


def margin_of(probabilities: Sequence[float]) -> float:
    """Return the log ratio of the two largest probabilities; inf for one option."""
    if len(probabilities) == 1:
        return math.inf
    first, second = sorted(probabilities, reverse=True)[:2]
    return math.inf if second == 0 else math.log(first) - math.log(second)


def bounded_margin(between: Sequence[Bounds], winner: int) -> tuple[float, bool]:
    """Return a lower bound on the margin, and whether another option may win or tie.

    `between` has the bounds on each option's probability; `winner` is an index into it.
    """
    low = between[winner][0]
    rival = max((high for index, (_, high) in enumerate(between) if index != winner), default=0.0)
    if not rival:
        return math.inf, False
    return (math.log(low) - math.log(rival) if low else -math.inf), rival >= low


def mass_bounds(selections: Sequence[Selection]) -> Bounds:
    """Return bounds on the label mass, the mean coverage of the selections."""
    coverages = [(found.coverage, found.coverage_high) for found in selections]
    low = mean_of([[least] for least, _ in coverages])[0]
    high = mean_of([[least if most is None else most] for least, most in coverages])[0]
    return low, high


def abstention_reason(
    confidence: float, label_mass: float, min_confidence: float, min_label_mass: float, *, are_bounds: bool = False
) -> str:
    """Return why an answer abstains, or "" if it does not.

    Args:
        confidence: Confidence of the answer.
        label_mass: Label mass of the answer.
        min_confidence: Confidence below which the answer abstains; inf if it always
            does.
        min_label_mass: Label mass below which the answer abstains.
        are_bounds: Whether confidence and label mass are only lower bounds.
    """
    word = "may be {:.4g}, which is" if are_bounds else "{:.4g} is"
    reasons = []
    if min_confidence == math.inf:
        reasons.append("no confidence is enough for the threshold")
    elif confidence < min_confidence:
        reasons.append(f"confidence {word.format(confidence)} below {min_confidence:g}")
    if label_mass < min_label_mass:
        reasons.append(f"label mass {word.format(label_mass)} below {min_label_mass:g}")
    return " and ".join(reasons)


def _list_values(probabilities: Mapping[Any, float], name: str) -> list[dict[str, object]]:
    """Return an object for each option: its `value`, and its probability as `name`."""
    return [{"value": jsonable(value), name: number(p)} for value, p in probabilities.items()]


def bound_probability(answer: Any) -> tuple[float, float, float]:
    """Return the probability of an answer's value, and the bounds on it."""
    p = answer.probabilities[answer.value]
    return (p, p, p) if answer.bounds is None else (p, *answer.bounds.probabilities[answer.value])
