"""The options of a decision, and how they turn a question into prompts and answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from itertools import count
from string import ascii_uppercase
from typing import Any

import numpy as np

from selectrie.core.numerics import uniform
from selectrie.core.types import FloatArray, ModelIdentity
from selectrie.core.vocabulary import to_bytes
from selectrie.decide.answers import (
    Answer,
    AnswerBounds,
    DecisionSignature,
    DecisionUsage,
    Evidence,
    abstention_reason,
    bounded_margin,
    confidence_of,
    margin_of,
    mass_bounds,
    mean_of,
    spread_of,
)
from selectrie.decide.calibration import Calibration, LabelCalibration
from selectrie.decide.questions import KINDS, KINDS_IN_WORDS, Option, Question
from selectrie.decide.thinking import Thinking
from selectrie.decide.threshold import Threshold
from selectrie.decide.typed import Questions, parse_questions
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, PythonOnly, words
from selectrie.options.arguments import named_fields
from selectrie.options.checks import (
    Bounds,
    Names,
    ReadOnlyDict,
    at_least,
    check_options,
    named,
    option,
    record,
)
from selectrie.options.selection import BASELINE_RULES, MEAN_RULES, RULES_OF_ONE_PROMPT
from selectrie.results import Selection
from selectrie.template.analysis.template import Template

TEMPLATES = ("auto", "chat", "base")
LAYOUTS = ("auto", "state first", "questions first", "options last")
SCORINGS = ("text", "letters")
IF_THEY_FIT = "if they fit"
"""Value of `list_options` that lists the options where the context has room."""
MAX_ORDERS = 64
"""Maximum number of orders of the options, except for "all"."""
MAX_ALL = 5
"""Maximum number of options with `permutations="all"`."""
MAX_AUTO = 8
"""Maximum number of orders with `permutations="auto"`."""
MAX_LETTERS = 26
"""Maximum number of options with `scoring="letters"`."""
SHARE = Bounds(0, 1, "a number from 0 to 1")
"""Allowed values of label masses and of the threshold of predicates."""


class _LeastConfidence(Bounds):
    """The allowed values of `min_confidence`: a number or a `Threshold`."""

    def check(self, name: str, value: object) -> None:
        """Raise `OptionError` for any other value."""
        if not isinstance(value, Threshold):
            Bounds.check(self, name, value)


LEAST_CONFIDENCE = _LeastConfidence(0, 1, words("a number from 0 to 1{}", PythonOnly(", or a Threshold")))


@named_fields
@dataclass(frozen=True, slots=True)
class DecisionParams:
    """Options of a decision, for every question of a call.

    Attributes:
        template: The prompt format: "chat" for the model's chat template, "base" for a
            plain page, "auto" for "chat" if the model has a chat template and "base"
            otherwise, or a `Template` with one slot,
            `<<select 'answer' options=answers>>`.
        layout: The order of state, list of options and question in the prompt. It
            decides which prefix prompts share: "state first" (state, options,
            question), "options last" (state, question, options) or "questions first"
            (question, options, state). Layouts give different numbers. "auto" means
            "state first" for a `Predicate`; for a `Choice` or `Score`, it means
            "questions first" if it is the only question, else "options last".
        scoring: Whether the model scores the texts of the options, or letters.
            "letters" puts a letter before each listed option and scores the letter
            alone, without an end of the answer. It allows at most 26 options.
        rule: How log-probabilities of tokens become a score: a name of `ScoringRule`
            except "batch". The baseline of "pmi" is the same prompt without the state,
            that of "calibrated" the prompt with "", "N/A" and "[MASK]" in its place.
        calibration: How to correct for options that the model prefers in any state.
            A fitted `Calibration`; "batch" fits one to the states of `decide_many` or
            of a table; "content_free" means the rule "calibrated"; None does not
            correct. It excludes the rules "pmi" and "calibrated". A `Predicate` or
            `Score` is calibrated only if `prior` is given.
        prior: Weights of the options, by value or in the order of the options.
        permutations: Number of orders of the options over which the answer is averaged,
            at most 64 and at most k!. "all" takes every order of up to 5 options.
            "auto" asks in two orders; if their winners differ, it asks in up to 8,
            until further orders cannot change the winner. The orders permute the
            options sorted by text, so the caller's order has no influence. None asks
            once, in the caller's order.
        top: Number of best options to find, best first. None evaluates all.
        min_confidence: Confidence below which an answer abstains. A `Threshold` finds
            it from answers with labels.
        min_label_mass: Label mass below which an answer abstains. If it is not known
            exactly, its lower bound counts.
        threshold: Probability above which a predicate is true. It is refused if no
            question is a predicate.
        list_options: Whether the prompt lists the options. Unlisted options are scored
            too. None lists them, except on the plain page of a question with examples
            or a cue whose options have no descriptions. "if they fit" is None where the
            prompt fits the context, else False, with a warning.
        template_args: Further arguments of the model's chat template, such as
            `{"enable_thinking": True}`; a thought that it opens is closed.
        think: Rationales that the model writes first; the answer is the mean of the
            posteriors behind them. None asks for the answer at once.
        time: The local time that a chat template may write, in ISO 8601. None is the
            time of the request, or for a table the time at which its run began.
    """

    template: str | Template = "auto"
    layout: str = option("auto", Names(LAYOUTS))
    scoring: str = option("text", Names(SCORINGS))
    rule: str = option("joint", Names(RULES_OF_ONE_PROMPT))
    calibration: str | Calibration | None = field(default=None, hash=False)
    prior: Mapping[Any, float] | Sequence[float] | None = field(default=None, hash=False)
    permutations: int | str | None = None
    top: int | None = option(None, Bounds(1, optional=True))
    min_confidence: float | Threshold = option(0.0, LEAST_CONFIDENCE)
    min_label_mass: float = option(0.0, SHARE)
    threshold: float = option(0.5, SHARE)
    list_options: bool | str | None = None
    time: str | None = None
    think: Thinking | None = None
    template_args: Mapping[str, Any] = field(default_factory=ReadOnlyDict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.template, Template) and self.template not in TEMPLATES:
            raise OptionError("template", self.template, "'auto', 'chat', 'base', or a Template")
        if self.rule == "batch":
            raise OptionError("rule", "batch", "a rule for one prompt: " + ", ".join(map(repr, RULES_OF_ONE_PROMPT)))
        check_options(self)
        _check_calibration(self.calibration, self.rule)
        object.__setattr__(self, "prior", _check_prior(self.prior))
        if self.permutations not in ("all", "auto"):
            if isinstance(self.permutations, str):
                raise OptionError("permutations", self.permutations, "a number of orders, 'all' or 'auto'")
            at_least("permutations", self.permutations, 1, max_value=MAX_ORDERS)
        if not isinstance(self.list_options, bool) and self.list_options not in (None, IF_THEY_FIT):
            raise OptionError("list_options", self.list_options, f"True, False, {IF_THEY_FIT!r} or None")
        _check_time(self.time)
        object.__setattr__(self, "template_args", named("template_args", self.template_args))
        if self.top is not None and self.permutations is not None:
            remedy = "orders are averaged over all options, so ask for one of the two"
            raise IncompatibleOptionsError("top", OptionRef("permutations"), remedy)
        if self.think is not None:
            _check_thinking(self)
        if self.scoring == "letters" and self.list_options is False:
            remedy = "letters stand for options that the prompt lists"
            other = OptionRef("list_options", value=False)
            raise IncompatibleOptionsError(OptionRef("scoring", "letters"), other, remedy)


def _check_calibration(calibration: object, rule: str) -> None:
    """Raise for a value that is no calibration, or that excludes the rule."""
    if calibration is None:
        return
    if not isinstance(calibration, Calibration) and calibration not in ("batch", "content_free"):
        raise OptionError("calibration", calibration, "None, 'batch', 'content_free' or a Calibration")
    if rule in BASELINE_RULES:
        raise IncompatibleOptionsError("calibration", OptionRef("rule", rule), "both compare with a baseline; take one")
    if calibration == "content_free" and rule != "joint":
        remedy = words("it is computed from joints; take `rule='joint'`, or another calibration")
        given = OptionRef("calibration", "content_free")
        raise IncompatibleOptionsError(given, OptionRef("rule", rule), remedy)


def _check_thinking(params: DecisionParams) -> None:
    """Raise for a value that is no `Thinking`, and for options that exclude it."""
    record("think", params.think, Thinking)
    _check_compatible(
        "`think`",
        ("permutations", params.permutations is not None, "the answer is a mean over rationales; take one of the two"),
        (OptionRef("scoring", "letters"), params.scoring == "letters", "score the texts of the options"),
        (OptionRef("rule", params.rule), params.rule in BASELINE_RULES, "a baseline has no rationales"),
        ("calibration", params.calibration is not None, "calibrations hold for answers without rationales"),
        ("top", params.top is not None, "the mean needs the probability of every option"),
        ("list_options", params.list_options == IF_THEY_FIT, "give True or False"),
    )


def _check_time(time: object) -> None:
    """Raise `OptionError` unless `time` is None or a time in ISO 8601."""
    try:
        if time is not None:
            datetime.fromisoformat(time)  # type: ignore[arg-type]  # another type raises
    except (TypeError, ValueError):
        raise OptionError("time", time, "a local time in ISO 8601, such as '2026-01-31T12:00:00'") from None


def _check_prior(prior: object) -> Mapping[Any, float] | tuple[float, ...] | None:
    """Return a read-only copy of the prior's weights; raise unless it is a collection.

    `_match_prior` later checks that it fits the options.
    """
    if prior is None:
        return None
    if isinstance(prior, Mapping):
        return ReadOnlyDict(prior)
    if not isinstance(prior, Sequence) or isinstance(prior, str | bytes | bytearray):
        raise OptionError("prior", prior, "a mapping from values to weights, or a sequence of weights")
    return tuple(prior)


DEFAULT_DECISION = DecisionParams()


def questions_and_params(
    questions: object, params: DecisionParams | None, *, may_be_one: bool = False
) -> tuple[Questions, DecisionParams]:
    """Check the arguments of `decide`; return the questions by name, and the options.

    Args:
        questions: Questions, types or options, as `parse_questions` reads them.
        params: The options; None means the defaults.
        may_be_one: Whether `questions` may also be a single question. Its name is "".

    Raises:
        OptionError: For any other argument.
    """
    options = DEFAULT_DECISION if params is None else params
    record("params", options, DecisionParams)
    return parse_questions(questions, may_be_one=may_be_one), options


Order = tuple[int, ...]
"""Indices of options in the order in which a prompt lists them."""

_SEED = 0
"""Seed of the shuffles. It is fixed, so that the same options have the same orders."""


def orders_of(k: int, n: int | str) -> tuple[Order, ...]:
    """Return n distinct orders of k options.

    The orders are rotations of seeded shuffles: the k rotations of one shuffle put each
    option at each place once. Among n orders, the numbers of times that an option is at
    two places differ by at most 1. The orders for a smaller n begin those for a larger.

    Args:
        k: Number of options, at least 1.
        n: Number of orders, at most k!; "all" for k! orders of at most 5 options;
            "auto" for up to 8.

    Raises:
        OptionError: If there are fewer than n orders.
    """
    if n == "all":
        if k > MAX_ALL:
            raise OptionError("permutations", n, f"a number of orders: 'all' takes at most {MAX_ALL} options, not {k}")
        n = math.factorial(k)
    if n == "auto":
        n = min(MAX_AUTO, math.factorial(min(k, MAX_ALL)))
    n_orders = int(n)
    # More than 5 options have more than 64 orders, the most that `permutations` allows.
    if k <= MAX_ALL and n_orders > math.factorial(k):
        raise OptionError("permutations", n, f"at most {math.factorial(k)} orders of {k} options")
    orders: list[Order] = []
    seen: set[Order] = set()
    draws = count()
    while len(orders) < n_orders:
        shuffle = _shuffle_options(k, draws)
        start = shuffle.index(0)
        cycle = shuffle[start:] + shuffle[:start]  # shuffles of equal `cycle` have the same rotations
        if cycle not in seen:
            seen.add(cycle)
            orders += [shuffle[at:] + shuffle[:at] for at in range(k)][: n_orders - len(orders)]
    return tuple(orders)


def _shuffle_options(k: int, draws: count[int]) -> Order:
    """Return a random order of k options by a Fisher-Yates shuffle.

    `draws` numbers the random draws; the shuffle consumes k - 1 of them.
    """
    order = list(range(k))
    for last in range(k - 1, 0, -1):
        other = int(uniform(_SEED, next(draws)) * (last + 1))
        order[last], order[other] = order[other], order[last]
    return tuple(order)


CONTENT_FREE = ("", "N/A", "[MASK]")
"""The states with which the rule "calibrated" computes its baseline."""
_ROUNDING = 1e-11
"""Maximum relative rounding error of a probability, the exp of a float64 sum."""
_N_FIRST = 2
"""Number of orders in the first round of `permutations="auto"`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question with its options in order, and its settings for prompts and scores.

    Attributes:
        question: The question.
        params: The options of the decision.
        options: The options of the answer: sorted by text if `params.permutations` is
            set, else in the caller's order; () with a grammar.
        orders: For each prompt, the indices into `options` in the order of its list.
        caller_order: Indices into `options` in the caller's order.
        prior: Weights in the order of `options`, or None.
        layout: The layout of the prompts, with "auto" resolved.
        listed: Whether the prompts list the options.
        rule: The scoring rule; "calibrated" for a content-free calibration.
        calibration: Digest of the calibration that `prior` or `scaling` includes, or
            "".
        scaling: The calibration, in the order of `options`, that is applied to the
            probabilities of the selections; None if `prior` includes it or there is
            none.
        min_confidence: Confidence below which the answer abstains; inf if it always
            does.
        option_of_text: For each text that is scored, the index of its option in
            `options`; None if each option has one text.
    """

    question: Question
    params: DecisionParams
    options: tuple[Option[Any], ...]
    orders: tuple[Order, ...]
    caller_order: Order
    prior: tuple[float, ...] | None
    layout: str
    listed: bool
    rule: str
    calibration: str = ""
    scaling: LabelCalibration | None = None
    min_confidence: float = 0.0
    option_of_text: Order | None = None

    @property
    def n_orders(self) -> int | str:
        """Return the number of orders for signatures: "auto", or 0 for the caller's."""
        if self.params.permutations == "auto":
            return "auto"
        return 0 if self.params.permutations is None else len(self.orders)

    def bound(self, template_digest: str, model: ModelIdentity) -> dict[str, object]:
        """Return the conditions, besides states, that determine the probabilities.

        A calibration fitted under these conditions is bound to them
        (`QuestionCalibration.bound`).
        """
        question = self.question
        shown = json.dumps([question.cue, *question.examples])
        return {
            "question": [question.kind, question.instructions]
            + [[one.scored, one.description or "", *one.spellings[1:]] for one in question.options],
            "model": model.digest,
            "tokenizer": model.tokenizer_digest,
            "precision": model.precision,
            "template": template_digest,
            "layout": self.layout,
            "rule": self.rule,
            "scoring": self.params.scoring,
            "listed": self.listed,
            "examples": sha256(shown.encode()).hexdigest()[:16],
            "orders": self.n_orders,
            **({} if self.params.think is None else {"thinking": self.params.think.describe()}),
            **({"template_args": self.params.template_args} if self.params.template_args else {}),
        }

    def conditions(self, bound: Mapping[str, object]) -> dict[str, object]:
        """Return `bound` with the options that change probabilities or abstention."""
        weights = _match_prior(self.params.prior, self.question.options)
        return {
            **bound,
            "calibration": self.calibration,
            "prior": None if weights is None else [float(weight) for weight in weights],
            "threshold": self.params.threshold if self.question.kind == "predicate" else None,
            "min_label_mass": self.params.min_label_mass,
        }

    def with_threshold(self, conditions: Mapping[str, object]) -> Ask:
        """Return a copy with the confidence below which an answer abstains."""
        least = self.params.min_confidence
        if isinstance(least, Threshold):
            least = least.of(conditions).min_confidence
        return replace(self, min_confidence=least)

    def with_calibration(self, calibration: Calibration, bound: Mapping[str, object]) -> Ask:
        """Return a copy to which a calibration is applied.

        `bound` are the conditions of this question. Weights and offsets become a part
        of the prior, so that near ties are those of calibrated scores. Scales, and
        offsets where several orders are averaged, are applied to the probabilities.

        Raises:
            OptionError: If the calibration has no match for `bound`.
            IncompatibleOptionsError: If it was fitted to labels, and other options
                exclude that.
        """
        fitted = calibration.of(bound)
        if isinstance(fitted, LabelCalibration):
            _check_labelled(self.params, fitted.method)
            if fitted.method != "bias" or len(self.orders) > 1:
                return replace(self, scaling=fitted.reordered(self.caller_order), calibration=calibration.digest)
            by_caller: Sequence[float] = np.exp(fitted.offsets).tolist()
        else:
            weights = None if self.prior is None else [self.prior[index] for index in self.caller_order]
            by_caller = fitted.weights(weights)
        by_index = dict(zip(self.caller_order, by_caller, strict=True))
        prior = tuple(by_index[index] for index in range(len(by_index)))
        return replace(self, prior=prior, calibration=calibration.digest)

    def choices(self, order: Order) -> list[str]:
        """Return the texts that are scored, in the order of `options`.

        With `scoring="letters"`, they are the letters that a prompt shows if it lists
        the options in `order`.
        """
        if self.params.scoring == "text":
            return [text for one in self.options for text in one.spellings]
        return [ascii_uppercase[order.index(index)] for index in range(len(order))]

    def option_probabilities(self, probability: FloatArray) -> list[float]:
        """Return the probability of each option: the sum over its texts, at most 1.

        `probability` is a float64 array with the probability of each text.
        """
        if self.option_of_text is not None:
            probability = np.minimum(np.bincount(self.option_of_text, probability), 1.0)
        listed: list[float] = probability.tolist()
        return listed

    def winners(self, by_order: Sequence[list[float]]) -> set[Any]:
        """Return the distinct winning values over several orders.

        `by_order[i][j]` is the probability of option j in order i.
        """
        values, threshold = [one.value for one in self.options], self.params.threshold
        return {self.question.winner(dict(zip(values, row, strict=True)), threshold) for row in by_order}

    def n_orders_wanted(self, selections: Sequence[Selection]) -> int:
        """Return the number of selections to make in all, given those made so far.

        With `think`, it is the number of rationales. It equals `len(selections)` if no
        further order is needed. With `permutations="auto"`, two orders are evaluated,
        and more only while the winners differ and the remaining orders could change the
        winner of the mean.

        A probability is between 0 and 1, so one order changes the difference of two
        options' sums by at most 1. The winner is final once its lead exceeds the
        number of remaining orders. The result is the smallest number of orders after
        which that is possible. With at most 8 orders, a tail bound for samples without
        replacement (Serfling 1974, at 5 %) would stop no earlier.

        Args:
            selections: The selections in the orders evaluated so far.
        """
        n, n_all = len(selections), len(self.orders)
        if self.params.think is not None:
            return self.params.think.n
        if self.params.permutations != "auto":
            return n_all
        if n < _N_FIRST:
            return min(_N_FIRST, n_all)
        by_order = [self.option_probabilities(one.choices.probability) for one in selections]
        if len(self.winners(by_order)) == 1:
            return n
        second, first = sorted(math.fsum(column) for column in zip(*by_order, strict=True))[-2:]
        lead = first - second
        while lead <= n_all - n and n < n_all:  # not final, even if each of these orders added 1
            n, lead = n + 1, lead + 1
        return n

    def answer(
        self,
        selections: tuple[Selection, ...],
        *,
        first_token_fits: bool,
        signature: DecisionSignature,
        usage: DecisionUsage,
        conditions: Mapping[str, object],
    ) -> Answer:
        """Return the answer to the question, given its selections.

        Probabilities and label mass are means over the orders. With a grammar, the
        options are the texts that the search found.

        Args:
            selections: One selection for each order or rationale, whose choices are
                `choices`.
            first_token_fits: Whether the most probable token begins an option in every
                order.
            signature: The settings that determine the answer.
            usage: The work done for the answer.
            conditions: The conditions under which the question was asked.
        """
        first, table = selections[0], selections[0].choices
        options = self.options or tuple(Option(text) for text in table.texts)
        by_order = [self.option_probabilities(one.choices.probability) for one in selections]
        probabilities = by_order[0] if len(by_order) == 1 else mean_of(by_order)
        between = None
        if are_bounds(selections):
            low = mean_of([self.option_probabilities(one.choices.probability_low) for one in selections])
            high = mean_of([self.option_probabilities(one.choices.probability_high) for one in selections])
            between = list(zip(low, high, strict=True))
        scaling = self.scaling
        keeps_winner = scaling is None or scaling.method == "temperature"
        if scaling is not None and not keeps_winner:
            probabilities, by_order, between = _rescale(scaling, probabilities, by_order, between)
        winner, margin, is_tie = first.index, first.margin, first.is_tie
        are_sums = len(selections) > 1 or self.option_of_text is not None or not keeps_winner
        if are_sums:
            best = max(probabilities)
            winner, margin = probabilities.index(best), margin_of(probabilities)
            is_tie = sum(p >= best * (1 - _ROUNDING) for p in probabilities) > 1
            if between is not None and any(one.is_bounded for one in selections):
                margin, is_tie = bounded_margin(between, winner)
        if scaling is not None and keeps_winner:
            probabilities, by_order, between = _rescale(scaling, probabilities, by_order, between)
            margin *= scaling.scales[0]
        # The number of texts that a search did not find is unknown.
        k = len(options) if first.grammar is None else math.inf
        least = probabilities[winner]
        if between is not None and any(one.is_bounded for one in selections):
            least = max(between[winner][0], 1 / k)  # the largest of k is at least 1/k
        in_order = [(index, options[index].value) for index in self.caller_order or range(len(options))]
        left_open = [] if self.option_of_text else [index for index, _ in in_order if not table.finished[index]]
        trust = trust_fields(selections, confidence_of(least, k), self.min_confidence, self.params.min_label_mass) | {
            "first_token_fits": first_token_fits,
            "margin": margin,
            "is_tie": is_tie,
            "spread": spread_of(by_order),
            "order_dependent": len(self.winners(by_order)) > 1 if len(self.orders) > 1 else None,
            "complete": not left_open and k < math.inf,
            "signature": signature,
            "selections": selections,
            "usage": usage,
            "conditions": conditions,
            "bounds": None
            if between is None
            else AnswerBounds({value: between[index] for index, value in in_order}, mass_bounds(selections)),
        }
        evidence = Evidence(
            probabilities={value: probabilities[index] for index, value in in_order},
            texts={value: options[index].scored for index, value in in_order},
            winner=options[winner].value,
            probability=probabilities[winner],
            probability_high={options[index].value: float(table.probability_high[index]) for index in left_open},
            threshold=self.params.threshold,
            trust=trust,
        )
        return self.question.answer(evidence)


def _rescale(
    scaling: LabelCalibration,
    probabilities: Sequence[float],
    by_order: Sequence[Sequence[float]],
    between: Sequence[tuple[float, float]] | None,
) -> tuple[list[float], list[list[float]], list[tuple[float, float]] | None]:
    """Return the probabilities, those of each order, and the bounds, calibrated."""
    bounds = None if between is None else scaling.apply_bounds(between)
    return scaling.apply(probabilities).tolist(), [scaling.apply(row).tolist() for row in by_order], bounds


def are_bounds(selections: Sequence[Selection]) -> bool:
    """Return whether some probability or coverage is known only by its bounds."""
    return any(one.is_bounded or one.coverage_high is not None for one in selections)


def trust_fields(
    selections: Sequence[Selection], confidence: float, min_confidence: float, min_label_mass: float
) -> dict[str, Any]:
    """Return the answer's fields `confidence`, `label_mass` and `abstained` by name."""
    masses = [one.coverage for one in selections]
    label_mass = masses[0] if len(masses) == 1 else mean_of([[mass] for mass in masses])[0]
    abstained = abstention_reason(
        confidence, label_mass, min_confidence, min_label_mass, are_bounds=are_bounds(selections)
    )
    return {"confidence": confidence, "label_mass": label_mass, "abstained": abstained}


def layout_of(question: Question, params: DecisionParams, n_questions: int = 1) -> str:
    """Return the layout of a question's prompts, with "auto" resolved.

    "auto" depends only on the kind of the question and the number of questions. A
    single state therefore has the same prompt as a row of a table.

    Raises `IncompatibleOptionsError` for examples or a cue with another layout than
    "questions first".
    """
    if question.examples or question.cue is not None:
        if params.layout not in ("auto", "questions first"):
            name = "examples" if question.examples else "cue"
            raise IncompatibleOptionsError(name, OptionRef("layout", params.layout), "they go with 'questions first'")
        return "questions first"
    if params.layout != "auto":
        return params.layout
    return question.auto_layout(n_questions)


def _check_labelled(params: DecisionParams, method: str) -> None:
    """Raise `IncompatibleOptionsError` if a calibration from labels cannot apply."""
    auto = OptionRef("permutations", "auto")
    _check_compatible(
        "a calibration from labels",
        ("prior", params.prior is not None, "the labels say how frequent the options are"),
        ("top", params.top is not None and method != "bias", "it scales the probabilities of all options"),
        (auto, params.permutations == "auto" and method != "temperature", "give a number of orders"),
    )


def check_threshold(params: DecisionParams, questions: Mapping[str, Question]) -> None:
    """Raise `OptionError` for a threshold of predicates if no question is one."""
    if params.threshold != DEFAULT_DECISION.threshold and all(one.kind != "predicate" for one in questions.values()):
        remedy = "a question of yes and no, whose answer it decides; `min_confidence` lets unsure answers abstain"
        raise OptionError("threshold", params.threshold, remedy)


def is_calibrated(question: Question, params: DecisionParams) -> bool:
    """Return whether a calibration applies to a question.

    A predicate or score needs a prior: without one, a calibration would assume that all
    its answers are equally frequent. A grammar cannot be calibrated.
    """
    return question.grammar is None and (params.prior is not None or not question.is_number)


def ask_of(
    question: object,
    params: DecisionParams,
    n_questions: int = 1,
    *,
    on_page: bool = False,
    has_calibration: bool = False,
) -> Ask:
    """Combine a question with the options of its decision, and check them together.

    Args:
        question: The question.
        params: The options of the decision.
        n_questions: Number of questions that are asked about the same states.
        on_page: Whether the prompt is the built-in page for models without a chat
            template.
        has_calibration: Whether a calibration is fitted to the answers or applied to
            them.

    Raises:
        TextError: For a text that cannot be tokenized.
        OptionError, ChoiceError: For options that do not fit this question.
    """
    if not isinstance(question, KINDS):
        raise OptionError("question", question, KINDS_IN_WORDS)
    to_bytes(question.instructions, "instructions")
    layout, options = layout_of(question, params, n_questions), question.options
    if question.grammar is not None:
        _check_grammar_options(params)
        return Ask(question, params, (), ((),), (), None, layout, listed=False, rule=params.rule)
    listed = params.list_options
    if not isinstance(listed, bool):
        described = any(one.description for one in options)
        is_short = question.examples or question.cue or (has_calibration and not question.is_number)
        listed = not on_page or described or params.scoring == "letters" or not is_short
    for index, one in enumerate(options):
        for text in one.spellings:
            to_bytes(text, f"option {index}")
        to_bytes(one.description or "", f"description of option {index}")
    if params.top is not None and question.is_number:
        other = f"a {type(question).__name__}"
        raise IncompatibleOptionsError(
            "top", other, words("it needs the probability of every option, so leave `top` out")
        )
    if params.scoring == "letters" and len(options) > MAX_LETTERS:
        raise OptionError("scoring", "letters", f"'text' for more than {MAX_LETTERS} options; there are {len(options)}")
    order = list(range(len(options)))
    if params.permutations is not None:
        order.sort(key=lambda index: options[index].scored)
    in_order = tuple(options[index] for index in order)
    option_of_text = None
    if any(len(one.spellings) > 1 for one in in_order):
        option_of_text = tuple(index for index, one in enumerate(in_order) for _ in one.spellings)
        _check_several_texts(params)
    weights = _match_prior(params.prior, options)
    is_content_free = params.calibration == "content_free" and is_calibrated(question, params)
    rule = "calibrated" if is_content_free else params.rule
    place = {index: at for at, index in enumerate(order)}
    return Ask(
        question,
        params,
        in_order,
        (tuple(order),) if params.permutations is None else orders_of(len(options), params.permutations),
        tuple(place[index] for index in range(len(options))),
        None if weights is None else tuple(weights[index] for index in order),
        layout,
        listed,
        rule,
        option_of_text=option_of_text,
    )


def _check_several_texts(params: DecisionParams) -> None:
    """Raise `IncompatibleOptionsError` if an option may not have several texts."""
    _check_compatible(
        "an option with several texts",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "a letter stands for all of them"),
        (OptionRef("rule", params.rule), params.rule in MEAN_RULES, "what adds up has no length to divide by"),
        ("top", params.top is not None, "every text is needed for the sums"),
    )


def _check_grammar_options(params: DecisionParams) -> None:
    """Raise `IncompatibleOptionsError` for options that a grammar excludes."""
    _check_compatible(
        "a grammar",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "its texts cannot be listed"),
        ("permutations", params.permutations is not None, "its texts are not listed, so they have no order"),
        ("think", params.think is not None, "each rationale would find other texts; give the options as a list"),
        ("prior", params.prior is not None, "a prior weighs options that are listed"),
    )


def _check_compatible(other: str, *options: tuple[str | OptionRef, bool, str]) -> None:
    """Raise `IncompatibleOptionsError` for the first given option of `options`.

    Args:
        other: The name of what excludes all the options.
        options: The name of each option, whether it is given, and the remedy.
    """
    for name, is_given, remedy in options:
        if is_given:
            raise IncompatibleOptionsError(name, other, remedy)


def _match_prior(
    prior: Mapping[Any, float] | Sequence[float] | None, options: tuple[Option[Any], ...]
) -> tuple[float, ...] | None:
    """Return the weight of each option, in the order of `options`.

    The numbers are checked later, by the engine. Raises `ChoiceError` unless every
    option has a weight and every weight an option.
    """
    if prior is None:
        return None
    if not isinstance(prior, Mapping):
        if len(prior) != len(options):
            raise ChoiceError(f"the prior has {len(prior)} weights for {len(options)} options")
        return tuple(prior)
    values = [one.value for one in options]
    unknown = [value for value in prior if value not in values]
    missing = [value for value in values if value not in prior]
    if unknown or missing:
        which = f"{unknown[0]!r} is not an option" if unknown else f"{missing[0]!r} has no weight"
        raise ChoiceError(f"the prior does not fit the options: {which}")
    return tuple(prior[value] for value in values)
