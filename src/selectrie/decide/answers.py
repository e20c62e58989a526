"""The answers to questions, and the arithmetic that makes them of selections."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from selectrie.core.output import probability
from selectrie.core.types import Cost
from selectrie.errors import OptionError, SelectrieError
from selectrie.results import FORMAT_VERSION, Selection, Signature
from selectrie.results.advice import LOW_COVERAGE, Advice, expected_tokens
from selectrie.results.plain import fields_of, jsonable, no_truth, number, plain, quoted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecisionSignature:
    """What an answer depends on besides the state and the question.

    Attributes:
        template: Name of the template.
        template_digest: Digest of its text, blake2b in hexadecimal.
        layout: "state first", "options last" or "questions first".
        scoring: "text" or "letters".
        rule: Name of the scoring rule.
        listed: Whether the prompt lists the options.
        orders: Number of orders of the options, or "auto"; 0 for the caller's order.
        selection: The signature of the selections: model, software and options.
        calibration: Digest of the calibration that was given; "" if none was.
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


@dataclass(frozen=True, slots=True)
class DecisionUsage:
    """The work that answers took.

    Attributes:
        prompts: Number of prompts.
        input_tokens: Number of tokens of all prompts together, each counted in full.
        cost: The model work. Prompts share rows, which are counted once; a call that
            serves several prompts is counted for each.
    """

    prompts: int
    input_tokens: int
    cost: Cost

    def __add__(self, other: DecisionUsage) -> DecisionUsage:
        return DecisionUsage(
            self.prompts + other.prompts, self.input_tokens + other.input_tokens, self.cost + other.cost
        )


CHAT_TEMPLATE = "chat.tmpl"
"""Name of the template of chats that comes with the package."""
NO_USAGE = DecisionUsage(0, 0, Cost())


def label_mass_advice(text: str) -> Advice:
    """Return advice on a low label mass, of which `text` says how low it is."""
    return Advice("label_mass", f"{text} Look at the prompt and at the options' texts.")


Bounds: TypeAlias = tuple[float, float]
"""A lower and an upper bound."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """Bounds on the numbers of an answer, where some of them are not known.

    They are not where rows were not read in full, or a selection has a `heal_gap`.

    Attributes:
        probabilities: Bounds on the probability of each option by value, in the
            caller's order; of true and false for a predicate.
        label_mass: Bounds on the label mass.
        score: Bounds on the score of a `ScoreAnswer`, else None.
    """

    probabilities: Mapping[Any, Bounds]
    label_mass: Bounds
    score: Bounds | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON."""
        return {
            "probabilities": [
                {"value": jsonable(value), "low": low, "high": high}
                for value, (low, high) in self.probabilities.items()
            ],
            **fields_of(self, "label_mass score?"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trust:
    """What says how far an answer can be trusted. All answers have these fields.

    If rows were not read in full, a probability is the middle of its bounds.
    Confidence, label mass and margin are then lower bounds.

    Attributes:
        confidence: 1 if one option has all probability, 0 if all have the same.
        label_mass: The share of the model's belief that the options' texts hold, by the
            joint without rule or prior (`Selection.coverage`). Near 0, the model wanted
            to say something else.
        first_token_fits: Whether the most probable token after the prompt begins an
            option, in every order.
        margin: Log of the ratio of the two largest probabilities, in nats; inf for one
            option.
        is_tie: Whether another option has the same probability, as far as the rounding
            of sums can tell, or may have it as far as bounds and the tolerance of a
            served model tell.
        abstained: Why the answer should not be relied on; "" if nothing was below
            `min_confidence` or `min_label_mass`.
        spread: Largest standard deviation of an option's probability over the orders
            (ddof 1); 0 for one order.
        order_dependent: Whether the orders have different winners, or for a predicate
            different values; None for one order.
        complete: Whether every option was evaluated.
        signature: What the answer depends on.
        selections: The selection after each prompt, one for each order. Not compared.
        usage: The work that the answer took. Not compared.
        bounds: Bounds on the numbers of the answer; None if they are known.
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
    bounds: AnswerBounds | None = None

    @property
    def selection(self) -> Selection:
        """Return the only selection; raise `OptionError` if there are several."""
        if len(self.selections) != 1:
            raise OptionError("selection", len(self.selections), "one order; with several, read `selections`")
        return self.selections[0]

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on it: a low label mass in a chat."""
        highest = self.label_mass if self.bounds is None else self.bounds.label_mass[1]
        if highest >= LOW_COVERAGE or self.signature.template != CHAT_TEMPLATE:
            return ()
        wants = expected_tokens(self.selections[0].top_tokens) if self.selections else ""
        share = f"the options hold {probability(highest)} of what the model would say."
        return (label_mass_advice(f"{share}{wants}"),)

    def __bool__(self) -> bool:
        """Raise `TypeError`: only the answer to a `Predicate` is true or false."""
        raise no_truth(self, "its `.value`")

    def _trust(self) -> dict[str, object]:
        """Return these fields, ready for JSON, without the selections."""
        names = "confidence label_mass first_token_fits margin is_tie abstained spread complete order_dependent"
        signature = plain(self.signature) | {"selection": self.signature.selection.to_dict()}
        usage = fields_of(self.usage, "prompts input_tokens cost")
        return {**fields_of(self, f"{names} bounds? warnings?"), "signature": signature, "usage": usage}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAnswer(_Trust, Generic[T]):
    """The answer to a `Choice`.

    Attributes:
        value: The value of the most probable option, as it was given.
        text: The text by which that option is scored.
        probability: Its probability.
        probabilities: Probability of each option by value, in the caller's order;
            they sum to 1. Options that `top` left open are not in it.
        probability_high: Upper bound on the probability of each option that `top` left
            open; empty if all were evaluated.
    """

    value: T
    text: str
    probability: float
    probabilities: Mapping[T, float]
    probability_high: Mapping[T, float]

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with kind "choice".

        Probabilities are a list of value and probability, because values need not be
        texts.
        """
        return {
            "kind": "choice",
            "value": jsonable(self.value),
            **fields_of(self, "text probability"),
            "probabilities": _listed(self.probabilities, "probability"),
            **({"probability_high": _listed(self.probability_high, "high")} if self.probability_high else {}),
            **self._trust(),
        }

    def __repr__(self) -> str:
        return f"ChoiceAnswer({_shown(self.value)}, {_summary(self.probability, self)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateAnswer(_Trust):
    """The answer to a `Predicate`.

    In an `if` it is its `value`; it raises `TypeError` if it `abstained`.

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
        """Return a dictionary ready for JSON, with kind "predicate"."""
        own = fields_of(self, "value probability threshold" if self.threshold != 0.5 else "value probability")
        return {"kind": "predicate", **own, **self._trust()}

    def __repr__(self) -> str:
        return f"PredicateAnswer({self.value}, {_summary(self.probability, self)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreAnswer(_Trust):
    """The answer to a `Score`. `float(answer)` is its `score`.

    Attributes:
        score: The expected number: the sum of each level's number times its
            probability.
        level: The text of the most probable level.
        value: Its number.
        probabilities: Probability of each level by its number, in the caller's order;
            they sum to 1.
        legend: The text of each level by its number.
    """

    score: float
    level: str
    value: float
    probabilities: Mapping[float, float]
    legend: Mapping[float, str]

    def __float__(self) -> float:
        return self.score

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with kind "score"."""
        levels = [
            {"value": value, "label": self.legend[value], "probability": p} for value, p in self.probabilities.items()
        ]
        return {
            "kind": "score",
            **fields_of(self, "score level value"),
            "probabilities": levels,
            **self._trust(),
        }

    def __repr__(self) -> str:
        return f"ScoreAnswer({self.score:.4g}, {quoted(self.level)}, {_summary(self.probabilities[self.value], self)})"


Answer: TypeAlias = ChoiceAnswer[Any] | PredicateAnswer | ScoreAnswer


@dataclass(frozen=True, slots=True, repr=False)
class Decision(Mapping[str, Answer]):
    """The answers to several questions about one state, by the questions' names.

    `decision[name]` is an answer of any kind. `choices`, `predicates` and `scores` hold
    those of one kind. If the state could not be asked and its error was kept, reading
    an answer raises that error.

    Attributes:
        answers: The answers by name, in the order of the questions.
        error: The error of a state that could not be asked (`on_error="keep"`), or
            None.
    """

    answers: Mapping[str, Answer]
    error: SelectrieError | None = None

    def __getitem__(self, name: str) -> Answer:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self.answers)

    def __bool__(self) -> bool:
        """Raise `TypeError`: the answers are true or false, not all together."""
        raise no_truth(self, "the `.value` of an answer, as in `decision[name].value`")

    @property
    def choices(self) -> Mapping[str, ChoiceAnswer[Any]]:
        """Return the answers to questions of the kind `Choice`."""
        return MappingProxyType({n: a for n, a in self._read().items() if isinstance(a, ChoiceAnswer)})

    @property
    def predicates(self) -> Mapping[str, PredicateAnswer]:
        """Return the answers to questions of the kind `Predicate`."""
        return MappingProxyType({n: a for n, a in self._read().items() if isinstance(a, PredicateAnswer)})

    @property
    def scores(self) -> Mapping[str, ScoreAnswer]:
        """Return the answers to questions of the kind `Score`."""
        return MappingProxyType({n: a for n, a in self._read().items() if isinstance(a, ScoreAnswer)})

    @property
    def usage(self) -> DecisionUsage:
        """Return the work of all answers together."""
        return sum((answer.usage for answer in self.answers.values()), NO_USAGE)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return the advice on the answers; `Advice.where` names the question."""
        return tuple(replace(one, where=name) for name, answer in self.answers.items() for one in answer.warnings)

    def to_dict(self) -> dict[str, object]:
        """Return a dictionary ready for JSON, with `format` and kind "decision".

        `answers` has the dictionary of each answer by name; `error` is there instead if
        the state could not be asked.
        """
        head = {"format": FORMAT_VERSION, "kind": "decision"}
        if self.error is not None:
            return {**head, "error": {"code": self.error.code, "message": str(self.error)}}
        answers = {name: answer.to_dict() for name, answer in self.answers.items()}
        return {**head, "answers": answers, "usage": fields_of(self.usage, "prompts input_tokens cost")}

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Decision(error={self.error!r})"
        return "\n".join(["Decision", *(f"  {name}: {answer!r}" for name, answer in self.answers.items())])

    def _read(self) -> Mapping[str, Answer]:
        if self.error is not None:
            raise self.error
        return self.answers


@dataclass(frozen=True, slots=True)
class Evidence:
    """What selections say about the options of a question, in the caller's order.

    Attributes:
        probabilities: Probability of each option by value, as a mean over the orders.
        texts: Their texts by value.
        winner: The value of the most probable option.
        probability: Its probability.
        probability_high: Upper bound on the probability of each option that was left
            open, by value.
        threshold: Probability above which a predicate is true.
        trust: The fields that all answers have.
    """

    probabilities: Mapping[Any, float]
    texts: Mapping[Any, str]
    winner: Any
    probability: float
    probability_high: Mapping[Any, float]
    threshold: float
    trust: Mapping[str, Any]


Cell: TypeAlias = str | float | int | bool | None
"""A value of an added column. None in every column of answers if there is an error."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that answers add to a table.

    Attributes:
        name: Its name; that of a question's own first column is used where columns have
            no question's name before them.
        kind: "label" (one of `labels`), "text", "float", "int" or "bool".
        labels: The texts of a column of labels, in the order of the options.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()


OwnColumns: TypeAlias = tuple[tuple[Column, ...], Callable[[Any], list[Cell]]]
"""The columns that a kind of question has of its own, and what fills them, and that of
the probability behind them, from an answer."""


def confidence_of(p: float, k: float) -> float:
    """Return (p - 1/k) / (1 - 1/k) for the largest probability p of k options.

    It is 1 for k = 1. k may be inf, for a grammar whose texts cannot be counted.
    """
    return 1.0 if k == 1 else (p - 1 / k) / (1 - 1 / k)


def spread_of(samples: Sequence[Sequence[float]]) -> float:
    """Return the largest standard deviation (ddof 1) of an option over several orders.

    `samples` has the probabilities of the options for each order. 0 for one order.
    """
    if len(samples) == 1:
        return 0.0
    return max(float(statistics.stdev(column)) for column in zip(*samples, strict=True))


def mean_of(samples: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each option's probability over several orders."""
    return tuple(math.fsum(column) / len(samples) for column in zip(*samples, strict=True))


def expected(values: Sequence[float], probabilities: Sequence[float]) -> float:
    """Return the sum of each value times its probability."""
    return math.fsum(value * p for value, p in zip(values, probabilities, strict=True))


def expected_bounds(values: Sequence[float], bounds: Sequence[Bounds]) -> Bounds:
    """Return bounds on `expected` for probabilities within bounds that sum to 1."""
    ordered = sorted(zip(values, bounds, strict=True), key=lambda one: one[0])
    return _least(ordered), -_least([(-value, one) for value, one in reversed(ordered)])


def _least(ordered: Sequence[tuple[float, Bounds]]) -> float:
    """Return the least expected value; `ordered` are ascending values with bounds."""
    left = max(0.0, 1.0 - math.fsum(low for _, (low, _) in ordered))
    total = []
    for value, (low, high) in ordered:
        more = min(left, high - low)
        left -= more
        total.append(value * (low + more))
    return math.fsum(total)


def margin_of(probabilities: Sequence[float]) -> float:
    """Return the log of the ratio of the two largest probabilities; inf for one."""
    if len(probabilities) == 1:
        return math.inf
    first, second = sorted(probabilities, reverse=True)[:2]
    return math.inf if second == 0 else math.log(first) - math.log(second)


def bounded_margin(between: Sequence[Bounds], winner: int) -> tuple[float, bool]:
    """Return a lower bound on the margin, and whether it leaves the winner open."""
    low = between[winner][0]
    rival = max((high for index, (_, high) in enumerate(between) if index != winner), default=0.0)
    if not rival:
        return math.inf, False
    return (math.log(low) - math.log(rival) if low else -math.inf), rival >= low


def mass_bounds(selections: Sequence[Selection]) -> Bounds:
    """Return bounds on the label mass."""
    low = mean_of([[one.coverage] for one in selections])[0]
    high = mean_of([[one.coverage if one.coverage_high is None else one.coverage_high] for one in selections])[0]
    return low, high


def abstention(
    confidence: float, label_mass: float, min_confidence: float, min_label_mass: float, *, are_bounds: bool = False
) -> str:
    """Return why an answer abstains, or "" if it does not.

    `are_bounds` says that confidence and label mass are lower bounds.
    """
    word = "may be {:.4g}, which is" if are_bounds else "{:.4g} is"
    reasons = []
    if confidence < min_confidence:
        reasons.append(f"confidence {word.format(confidence)} below {min_confidence:g}")
    if label_mass < min_label_mass:
        reasons.append(f"label mass {word.format(label_mass)} below {min_label_mass:g}")
    return " and ".join(reasons)


def _listed(probabilities: Mapping[Any, float], name: str) -> list[dict[str, object]]:
    return [{"value": jsonable(value), name: number(p)} for value, p in probabilities.items()]


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) and not isinstance(value, Enum) else repr(value)


def _summary(probability: float, trust: _Trust) -> str:
    abstained = f", abstained: {trust.abstained}" if trust.abstained else ""
    return f"p={probability:.4g}, confidence={trust.confidence:.3g}, label_mass={trust.label_mass:.3g}{abstained}"
