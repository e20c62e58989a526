"""Options of a decision, and what is asked of a model under them."""

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
from selectrie.decide.calibration import Calibration
from selectrie.decide.questions import KINDS, Option, Question
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, words
from selectrie.options.checks import (
    Bounds,
    Names,
    ReadOnlyDict,
    at_least,
    check_options,
    flag,
    named_fields,
    option,
    record,
)
from selectrie.options.selection import BASELINE_RULES, RULES_OF_ONE_PROMPT
from selectrie.results import Selection
from selectrie.template.analysis.template import Template

TEMPLATES = ("auto", "chat", "base")
LAYOUTS = ("auto", "state first", "questions first", "options last")
SCORINGS = ("text", "letters")
MAX_ORDERS = 64
"""Maximum number of orders of the options, except for "all"."""
MAX_ALL = 5
"""Maximum number of options of which all orders may be asked for."""
MAX_AUTO = 8
"""Maximum number of orders for "auto"."""
MAX_LETTERS = 26
SHARE = Bounds(0, 1, "a number from 0 to 1")
"""Bounds of confidences, masses and thresholds."""


@named_fields
@dataclass(frozen=True, slots=True)
class DecisionParams:
    """Options of a decision. They apply to every question of a call.

    Attributes:
        template: What the model reads: "chat" for the model's own chat template,
            "base" for a plain page, "auto" for "chat" if the model has a chat template
            and "base" otherwise, or a `Template` with one slot,
            `<<select 'answer' options=answers>>`.
        layout: The order of state, list of options and question in the prompt. What
            comes first is what prompts share: "state first" (state, options, question),
            "options last" (state, question, options) or "questions first" (question,
            options, state). They give different numbers. "auto" is "questions first"
            for a `Choice` or `Score` that is asked alone, "options last" for one of
            several questions, and "state first" for a `Predicate`.
        scoring: Whether the options' own texts are scored, or letters. "letters" lists
            the options behind letters and scores these alone, without what ends an
            answer; it takes at most 26 options.
        rule: How a score is made of tokens. "joint", "token_mean", "char_mean",
            "byte_mean", "pmi" (minus the joint after the same prompt without the state)
            or "calibrated" (minus the mean joint with the state replaced by "", "N/A"
            and "[MASK]").
        calibration: What the options' own probabilities are compared with, under the
            rules "joint", "token_mean", "char_mean" and "byte_mean". None is nothing;
            a `Calibration` is one that was fitted; "batch" fits one to the states of
            `decide_many` or of a table; "content_free" is the rule "calibrated". A
            `Predicate` or `Score` is calibrated only if `prior` is given.
        prior: Weights of the options, by value or in the order of the options.
        permutations: Number of orders of the options over which the answer is averaged,
            at most 64 and at most k!, or "all" for up to 5 options. They are orders of
            the options sorted by text, so the caller's order has no influence. "auto"
            asks in two orders and, where these have different winners, in as many of 8
            as it takes until the rest cannot change the winner. None asks once, in the
            caller's order.
        top: Ask only for this number of best options, best first. None evaluates all.
        min_confidence: Confidence below which an answer abstains.
        min_label_mass: Label mass below which an answer abstains (its lower bound, if
            it is not known).
        threshold: Probability above which a predicate is true.
        list_options: Whether the prompt lists the options. Those that are not listed
            are scored all the same. None lists them, but not on the plain page of a
            question with examples or a cue, unless an option has a description.
        time: The local time that a chat template may write, in ISO 8601. None is that
            of the request, and for a table that at which its run began.
    """

    template: str | Template = "auto"
    layout: str = option("auto", Names(LAYOUTS))
    scoring: str = option("text", Names(SCORINGS))
    rule: str = option("joint", Names(RULES_OF_ONE_PROMPT))
    calibration: str | Calibration | None = field(default=None, hash=False)
    prior: Mapping[Any, float] | Sequence[float] | None = field(default=None, hash=False)
    permutations: int | str | None = None
    top: int | None = option(None, Bounds(1, optional=True))
    min_confidence: float = option(0.0, SHARE)
    min_label_mass: float = option(0.0, SHARE)
    threshold: float = option(0.5, SHARE)
    list_options: bool | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.template, Template) and self.template not in TEMPLATES:
            raise OptionError("template", self.template, "'auto', 'chat', 'base', or a Template")
        if self.rule == "batch":
            raise OptionError("rule", "batch", "a rule for one prompt: " + ", ".join(map(repr, RULES_OF_ONE_PROMPT)))
        check_options(self)
        _check_calibration(self.calibration, self.rule)
        object.__setattr__(self, "prior", _prior(self.prior))
        if self.permutations not in ("all", "auto"):
            if isinstance(self.permutations, str):
                raise OptionError("permutations", self.permutations, "a number of orders, 'all' or 'auto'")
            at_least("permutations", self.permutations, 1, max_value=MAX_ORDERS)
        if self.list_options is not None:
            flag("list_options", self.list_options)
        _check_time(self.time)
        if self.top is not None and self.permutations is not None:
            remedy = "orders are averaged over all options, so ask for one of the two"
            raise IncompatibleOptionsError("top", OptionRef("permutations"), remedy)
        if self.scoring == "letters" and self.list_options is False:
            remedy = "letters stand for options that the prompt lists"
            other = OptionRef("list_options", value=False)
            raise IncompatibleOptionsError(OptionRef("scoring", "letters"), other, remedy)


def _check_calibration(calibration: object, rule: str) -> None:
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


def _check_time(time: object) -> None:
    try:
        if time is not None:
            datetime.fromisoformat(time)  # type: ignore[arg-type]  # another type raises
    except (TypeError, ValueError):
        raise OptionError("time", time, "a local time in ISO 8601, such as '2026-01-31T12:00:00'") from None


def _prior(prior: object) -> Mapping[Any, float] | tuple[float, ...] | None:
    """Return a read-only copy of the weights; they are checked against the options."""
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
) -> tuple[dict[str, Question], DecisionParams]:
    """Return the questions by name, and the options of their decision.

    With `may_be_one`, a question alone has the name "".

    Raises `OptionError` for anything else.
    """
    options = DEFAULT_DECISION if params is None else params
    record("params", options, DecisionParams)
    return {"": questions} if may_be_one and isinstance(questions, KINDS) else named_questions(questions), options


def named_questions(questions: object) -> dict[str, Question]:
    """Return the questions by name; raise unless it is a mapping of some questions."""
    if not isinstance(questions, Mapping):
        raise OptionError("questions", questions, "a mapping from names to questions")
    if not questions:
        raise OptionError("questions", dict(questions), "at least one question")
    for name, question in questions.items():
        if not isinstance(name, str) or not name.strip():
            raise OptionError("questions", name, "names that are texts, and not blank")
        if not isinstance(question, KINDS):
            raise OptionError(f"questions[{name!r}]", question, "a Choice, a Predicate or a Score")
    return dict(questions)


Order = tuple[int, ...]
"""Indices of options in the order in which a prompt lists them."""

_SEED = 0
"""Seed of the shuffles. It is fixed, so that the same options get the same orders."""


def orders_of(k: int, n: int | str) -> tuple[Order, ...]:
    """Return n distinct orders of k options, all of them for "all", up to 8 for "auto".

    They are rotations of seeded shuffles: the k rotations of one shuffle put each
    option at each place once. Over all n orders, two places hold an option equally
    often, or one of them once more. Fewer orders are the first of more.

    Args:
        k: Number of options, at least 1.
        n: Number of orders, at most k!, or "all" for at most 5 options, or "auto".

    Raises:
        OptionError: If there are not so many orders.
    """
    if n == "all":
        if k > MAX_ALL:
            raise OptionError("permutations", n, f"a number of orders: 'all' takes at most {MAX_ALL} options, not {k}")
        n = math.factorial(k)
    if n == "auto":
        n = min(MAX_AUTO, math.factorial(min(k, MAX_ALL)))
    n_orders = int(n)
    # Beyond 5 options there are more orders than anyone may ask for.
    if k <= MAX_ALL and n_orders > math.factorial(k):
        raise OptionError("permutations", n, f"at most {math.factorial(k)} orders of {k} options")
    orders: list[Order] = []
    seen: set[Order] = set()
    draws = count()
    while len(orders) < n_orders:
        shuffle = _shuffled(k, draws)
        start = shuffle.index(0)
        cycle = shuffle[start:] + shuffle[:start]  # two shuffles of one cycle have the same rotations
        if cycle not in seen:
            seen.add(cycle)
            orders += [shuffle[at:] + shuffle[:at] for at in range(k)][: n_orders - len(orders)]
    return tuple(orders)


def _shuffled(k: int, draws: count[int]) -> Order:
    """Return a random order of k options (Fisher and Yates)."""
    order = list(range(k))
    for last in range(k - 1, 0, -1):
        other = int(uniform(_SEED, next(draws)) * (last + 1))
        order[last], order[other] = order[other], order[last]
    return tuple(order)


CONTENT_FREE = ("", "N/A", "[MASK]")
"""The states of the baseline of rule "calibrated"."""
_ROUNDED = 1e-11
"""Share by which rounding may move a probability: its logarithm is a sum of float64."""
_N_FIRST = 2
"""Number of orders that are asked at first for `permutations="auto"`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question with the orders in which its options are listed.

    Attributes:
        question: The question.
        params: The options of the decision.
        options: The options in the order in which they are scored: the caller's, or
            sorted by text if there are several orders to average over. () with a
            grammar.
        orders: Indices into `options`, one order for each prompt.
        by_caller: Indices into `options` in the caller's order.
        prior: Weights in the order of `options`, or None.
        layout: What comes first in its prompts; not "auto".
        listed: Whether the prompts list the options.
        rule: The rule, "calibrated" for a content-free calibration.
        calibration: Digest of the calibration that the prior has in it, or "".
        members: Index into `options` for each text that is scored; None if each option
            has one text.
    """

    question: Question
    params: DecisionParams
    options: tuple[Option[Any], ...]
    orders: tuple[Order, ...]
    by_caller: Order
    prior: tuple[float, ...] | None
    layout: str
    listed: bool
    rule: str
    calibration: str = ""
    members: Order | None = None

    @property
    def n_orders(self) -> int | str:
        """Return the number of orders as signatures have it: 0 for the caller's."""
        if self.params.permutations == "auto":
            return "auto"
        return 0 if self.params.permutations is None else len(self.orders)

    def bound(self, template_digest: str, model: ModelIdentity) -> dict[str, object]:
        """Return what the probabilities depend on besides the states."""
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
        }

    def with_calibration(self, calibration: Calibration, bound: Mapping[str, object]) -> Ask:
        """Return the question with the weights of a calibration; raise without any."""
        own = None if self.prior is None else [self.prior[index] for index in self.by_caller]
        by_index = dict(zip(self.by_caller, calibration.of(bound).weights(own), strict=True))
        prior = tuple(by_index[index] for index in range(len(by_index)))
        return replace(self, prior=prior, calibration=calibration.digest)

    def choices(self, order: Order) -> list[str]:
        """Return the texts that are scored, in the order of `options`.

        Letters are those that a prompt with this order of the options has.
        """
        if self.params.scoring == "text":
            return [text for one in self.options for text in one.spellings]
        return [ascii_uppercase[order.index(index)] for index in range(len(order))]

    def sums(self, probability: FloatArray) -> list[float]:
        """Return the probability of each option, given that of each text."""
        sums = probability if self.members is None else np.minimum(np.bincount(self.members, probability), 1.0)
        listed: list[float] = sums.tolist()
        return listed

    def winners(self, by_order: Sequence[list[float]]) -> set[Any]:
        """Return the values that win in some order, given each option's probability."""
        values, threshold = [one.value for one in self.options], self.params.threshold
        return {self.question.winner(dict(zip(values, row, strict=True)), threshold) for row in by_order}

    def n_orders_wanted(self, selections: Sequence[Selection]) -> int:
        """Return the number of orders in which a question is asked about a state.

        For `permutations="auto"` that are two, and more while their winners differ and
        the orders that are left could change the winner of the mean. A probability is
        between 0 and 1, so one more order changes the difference of two sums by at most
        1: the winner is settled once it leads by more than there are orders left. What
        is returned are the fewest orders after which that may be so. Of at most 8
        orders, a tail bound for samples without replacement (Serfling 1974, at 5 %)
        would stop no earlier.

        Args:
            selections: The selections in the orders so far.
        """
        n, n_all = len(selections), len(self.orders)
        if self.params.permutations != "auto":
            return n_all
        if n < _N_FIRST:
            return min(_N_FIRST, n_all)
        by_order = [self.sums(one.choices.probability) for one in selections]
        if len(self.winners(by_order)) == 1:
            return n
        second, first = sorted(math.fsum(column) for column in zip(*by_order, strict=True))[-2:]
        lead = first - second
        while lead <= n_all - n and n < n_all:  # not settled, even if each of these orders added 1
            n, lead = n + 1, lead + 1
        return n

    def answer(
        self,
        selections: tuple[Selection, ...],
        *,
        first_token_fits: bool,
        signature: DecisionSignature,
        usage: DecisionUsage,
    ) -> Answer:
        """Return the answer that the selections in some orders give.

        Probabilities and label mass are the means over the orders. With a grammar, the
        options are the texts that were found.

        Args:
            selections: One for each order, with the choices of `choices`.
            first_token_fits: Whether the most probable token begins an option, in all.
            signature: What the answer depends on.
            usage: The work that it took.
        """
        first, table = selections[0], selections[0].choices
        options = self.options or tuple(Option(text) for text in table.texts)
        by_order = [self.sums(one.choices.probability) for one in selections]
        probabilities = by_order[0] if len(by_order) == 1 else mean_of(by_order)
        winner, margin, is_tie = first.index, first.margin, first.is_tie
        are_sums = len(selections) > 1 or self.members is not None
        if are_sums:
            best = max(probabilities)
            winner, margin = probabilities.index(best), margin_of(probabilities)
            is_tie = sum(p >= best * (1 - _ROUNDED) for p in probabilities) > 1
        # Texts that a search did not find may be any number.
        k = len(options) if first.grammar is None else math.inf
        least, between = probabilities[winner], None
        if are_bounds(selections):
            low = mean_of([self.sums(one.choices.probability_low) for one in selections])
            high = mean_of([self.sums(one.choices.probability_high) for one in selections])
            between = list(zip(low, high, strict=True))
            if any(one.is_bounded for one in selections):
                least = max(low[winner], 1 / k)  # the largest of k is at least 1/k
                if are_sums:
                    margin, is_tie = bounded_margin(between, winner)
        in_order = [(index, options[index].value) for index in self.by_caller or range(len(options))]
        left_open = [] if self.members else [index for index, _ in in_order if not table.finished[index]]
        trust = trust_of(selections, confidence_of(least, k), self.params) | {
            "first_token_fits": first_token_fits,
            "margin": margin,
            "is_tie": is_tie,
            "spread": spread_of(by_order),
            "order_dependent": len(self.winners(by_order)) > 1 if len(selections) > 1 else None,
            "complete": not left_open and k < math.inf,
            "signature": signature,
            "selections": selections,
            "usage": usage,
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


def are_bounds(selections: Sequence[Selection]) -> bool:
    """Return whether some probability or coverage is known by its bounds only."""
    return any(one.is_bounded or one.coverage_high is not None for one in selections)


def trust_of(selections: Sequence[Selection], confidence: float, params: DecisionParams) -> dict[str, Any]:
    """Return how far an answer can be trusted by its confidence and its label mass."""
    masses = [one.coverage for one in selections]
    label_mass = masses[0] if len(masses) == 1 else mean_of([[mass] for mass in masses])[0]
    least = params.min_confidence, params.min_label_mass
    abstained = abstention_reason(confidence, label_mass, *least, are_bounds=are_bounds(selections))
    return {"confidence": confidence, "label_mass": label_mass, "abstained": abstained}


def layout_of(question: Question, params: DecisionParams, n_questions: int = 1) -> str:
    """Return the layout of a question's prompts: that of the options, or for "auto".

    "auto" goes by the kind and the number of questions alone, so a state has the prompt
    that it has in a table.
    """
    if question.examples or question.cue is not None:
        if params.layout not in ("auto", "questions first"):
            name = "examples" if question.examples else "cue"
            raise IncompatibleOptionsError(name, OptionRef("layout", params.layout), "they go with 'questions first'")
        return "questions first"
    if params.layout != "auto":
        return params.layout
    return question.auto_layout(n_questions)


def is_calibrated(question: Question, params: DecisionParams) -> bool:
    """Return whether a calibration concerns a question.

    Without a stated prior, that of a predicate or score would take all answers for
    equally frequent.
    """
    return question.grammar is None and (params.prior is not None or not question.is_number)


def ask_of(
    question: object,
    params: DecisionParams,
    n_questions: int = 1,
    *,
    on_page: bool = False,
    is_compared: bool = False,
) -> Ask:
    """Return a question with its options in order, its layout and its rule.

    Args:
        question: The question.
        params: The options of the decision.
        n_questions: The number of questions that are asked about the same states.
        on_page: Whether it is asked on the page for models without a chat template.
        is_compared: Whether a calibration is fitted to its answers or applied to them.

    Raises `TextError` for a text that cannot be tokenized, and `OptionError` or
    `ChoiceError` for options of the decision that this question cannot have.
    """
    if not isinstance(question, KINDS):
        raise OptionError("question", question, "a Choice, a Predicate or a Score")
    to_bytes(question.instructions, "instructions")
    layout, options = layout_of(question, params, n_questions), question.options
    if question.grammar is not None:
        _check_grammar(params)
        return Ask(question, params, (), ((),), (), None, layout, listed=False, rule=params.rule)
    listed = params.list_options
    if listed is None:
        described = any(one.description for one in options)
        is_short = question.examples or question.cue or (is_compared and not question.is_number)
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
    members = None
    if any(len(one.spellings) > 1 for one in in_order):
        members = tuple(index for index, one in enumerate(in_order) for _ in one.spellings)
        _check_spellings(params)
    weights = _weights(params.prior, options)
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
        members=members,
    )


def _check_spellings(params: DecisionParams) -> None:
    _refuse_with(
        "an option with several texts",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "a letter stands for all of them"),
        (OptionRef("rule", params.rule), params.rule.endswith("_mean"), "what adds up has no length to divide by"),
        ("top", params.top is not None, "every text is needed for the sums"),
    )


def _check_grammar(params: DecisionParams) -> None:
    _refuse_with(
        "a grammar",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "its texts cannot be listed"),
        ("permutations", params.permutations is not None, "its texts are not listed, so they have no order"),
        ("prior", params.prior is not None, "a prior weighs options that are listed"),
    )


def _refuse_with(other: str, *options: tuple[str | OptionRef, bool, str]) -> None:
    """Raise for the first option that is given; each has a name and a remedy."""
    for name, is_given, remedy in options:
        if is_given:
            raise IncompatibleOptionsError(name, other, remedy)


def _weights(
    prior: Mapping[Any, float] | Sequence[float] | None, options: tuple[Option[Any], ...]
) -> tuple[float, ...] | None:
    """Return the weight of each option; the engine checks the numbers."""
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
