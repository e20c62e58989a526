"""A question with its options in order: what its prompts ask, and the answer to it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from selectrie.decide.params import DecisionParams, check_compatible, is_calibrated
from selectrie.decide.questions import KINDS, KINDS_IN_WORDS, Option, Question
from selectrie.decide.threshold import Threshold
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, RequestError, words
from selectrie.options.selection import MEAN_RULES
from selectrie.results import Selection
from selectrie.results.plain import jsonable

MAX_ALL = 5
"""Maximum number of options with `permutations="all"`."""
MAX_AUTO = 8
"""Maximum number of orders with `permutations="auto"`."""
MAX_LETTERS = 26
"""Maximum number of options with `scoring="letters"`."""
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
            **({"template_args": jsonable(self.params.template_args)} if self.params.template_args else {}),
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
    check_compatible(
        "a calibration from labels",
        ("prior", params.prior is not None, "the labels say how frequent the options are"),
        ("top", params.top is not None and method != "bias", "it scales the probabilities of all options"),
        (auto, params.permutations == "auto" and method != "temperature", "give a number of orders"),
    )


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
    check_compatible(
        "an option with several texts",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "a letter stands for all of them"),
        (OptionRef("rule", params.rule), params.rule in MEAN_RULES, "what adds up has no length to divide by"),
        ("top", params.top is not None, "every text is needed for the sums"),
    )


def _check_grammar_options(params: DecisionParams) -> None:
    """Raise `IncompatibleOptionsError` for options that a grammar excludes."""
    check_compatible(
        "a grammar",
        (OptionRef("scoring", "letters"), params.scoring == "letters", "its texts cannot be listed"),
        ("permutations", params.permutations is not None, "its texts are not listed, so they have no order"),
        ("think", params.think is not None, "each rationale would find other texts; give the options as a list"),
        ("prior", params.prior is not None, "a prior weighs options that are listed"),
    )


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
            raise ChoiceError(f"the prior has {len(prior)} weights for {len(options)} options", of_prior=True)
        return tuple(prior)
    values = [one.value for one in options]
    unknown = [value for value in prior if value not in values]
    missing = [value for value in values if value not in prior]
    if unknown or missing:
        which = f"{unknown[0]!r} is not an option" if unknown else f"{missing[0]!r} has no weight"
        raise ChoiceError(f"the prior does not fit the options: {which}", of_prior=True)
    return tuple(prior[value] for value in values)


def calibrated_ask(calibration: Calibration, plain: Ask, unlisted: Ask, digest: str, identity: ModelIdentity) -> Ask:
    """Return a question with a calibration, if that applies to it.

    Args:
        calibration: The calibration.
        plain: The question as it is asked without a calibration. One that was fitted to
            labels applies to it.
        unlisted: The question as it is asked with a calibration that was fitted without
            labels. On a page its options are not listed.
        digest: The digest of the template.
        identity: The model.

    Raises:
        OptionError: If the calibration has no match for the question, and is not the
            default of a server.
        IncompatibleOptionsError: If other options exclude it.
    """
    question = plain.question
    labelled = question.grammar is None and (
        calibration.labels_question(plain.bound(digest, identity)["question"])
        or (question.is_number and plain.params.prior is None and calibration.labels_kind(question.kind))
    )
    if not labelled and not is_calibrated(question, plain.params):
        return plain
    ask = plain if labelled else unlisted
    try:
        return ask.with_calibration(calibration, ask.bound(digest, identity))
    except RequestError:
        if calibration.is_default:
            return plain
        raise
