"""What is asked of the model for a question, and the answer that comes of it."""

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
    Bounds,
    ChoiceAnswer,
    DecisionSignature,
    DecisionUsage,
    PredicateAnswer,
    ScoreAnswer,
    abstention,
    confidence_of,
    expected,
    expected_bounds,
    margin_of,
    mean_of,
    spread_of,
)
from selectrie.decide.params import MAX_ALL, MAX_AUTO, MAX_LETTERS, Calibration, DecisionParams
from selectrie.decide.questions import Choice, Option, Predicate, Question, Score
from selectrie.errors import ChoiceError, IncompatibleOptionsError, OptionError, OptionRef, words
from selectrie.results import Selection

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


KINDS: Mapping[type, str] = {Choice: "choice", Predicate: "predicate", Score: "score"}
CONTENT_FREE = ("", "N/A", "[MASK]")
"""The states of the baseline of rule "calibrated"."""
_ROUNDED = 1e-11
"""Share by which rounding may move a probability: its logarithm is a sum of float64."""
_N_FIRST = 2
"""Number of orders that are asked at first for `permutations="auto"`."""
_APART = (",", ";", "\n", "\r")
"""Characters that would blur where an option of a list in one line ends."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question with the orders in which its options are listed.

    Attributes:
        question: The question.
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
    def kind(self) -> str:
        """Return "choice", "predicate" or "score"."""
        return KINDS[type(self.question)]

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Return the prior in the caller's order, or None."""
        return None if self.prior is None else tuple(self.prior[index] for index in self.by_caller)

    def n_orders(self, params: DecisionParams) -> int | str:
        """Return the number of orders as signatures have it: 0 for the caller's."""
        if params.permutations == "auto":
            return "auto"
        return 0 if params.permutations is None else len(self.orders)

    @property
    def has_grammar(self) -> bool:
        """Return whether the texts of a grammar are the options."""
        return not self.options


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
    if isinstance(question, Predicate):
        return "state first"
    return "questions first" if n_questions == 1 else "options last"


def _is_listed(question: Question, params: DecisionParams, *, on_page: bool, is_compared: bool) -> bool:
    if params.list_options is not None:
        return params.list_options
    described = any(one.description for one in question.options)
    is_short = question.examples or question.cue or (is_compared and isinstance(question, Choice))
    return not on_page or described or params.scoring == "letters" or not is_short


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
    if not isinstance(question, Choice | Predicate | Score):
        raise OptionError("question", question, "a Choice, a Predicate or a Score")
    to_bytes(question.instructions, "instructions")
    layout = layout_of(question, params, n_questions)
    if isinstance(question, Choice) and question.grammar is not None:
        _check_grammar(params)
        return Ask(question, (), ((),), (), None, layout, listed=False, rule=params.rule)
    listed = _is_listed(question, params, on_page=on_page, is_compared=is_compared)
    options = question.options
    for index, one in enumerate(options):
        for text in one.spellings:
            to_bytes(text, f"option {index}")
        to_bytes(one.description or "", f"description of option {index}")
    if params.top is not None and not isinstance(question, Choice):
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
    members = _members(in_order)
    if members is not None:
        _check_spellings(params)
    weights = _weights(params.prior, options)
    is_content_free = params.calibration == "content_free" and is_calibrated(question, params)
    rule = "calibrated" if is_content_free else params.rule
    place = {index: at for at, index in enumerate(order)}
    return Ask(
        question,
        in_order,
        (tuple(order),) if params.permutations is None else orders_of(len(options), params.permutations),
        tuple(place[index] for index in range(len(options))),
        None if weights is None else tuple(weights[index] for index in order),
        layout,
        listed,
        rule,
        members=members,
    )


def _members(options: Sequence[Option[Any]]) -> Order | None:
    """Return the option of each text that is scored; None if each has one text."""
    if all(len(one.spellings) == 1 for one in options):
        return None
    return tuple(index for index, one in enumerate(options) for _ in one.spellings)


def is_calibrated(question: Question, params: DecisionParams) -> bool:
    """Return whether a calibration concerns a question.

    Without a stated prior, that of a predicate or score would take all answers for
    equally frequent.
    """
    if isinstance(question, Choice):
        return question.grammar is None
    return params.prior is not None


def bound_of(ask: Ask, params: DecisionParams, template_digest: str, model: ModelIdentity) -> dict[str, object]:
    """Return what the probabilities of a question depend on besides the states."""
    shown = json.dumps([ask.question.cue, *ask.question.examples])
    return {
        "question": [ask.kind, ask.question.instructions]
        + [[one.scored, one.description or "", *one.spellings[1:]] for one in ask.question.options],
        "model": model.digest,
        "tokenizer": model.tokenizer_digest,
        "precision": model.precision,
        "template": template_digest,
        "layout": ask.layout,
        "rule": ask.rule,
        "scoring": params.scoring,
        "listed": ask.listed,
        "examples": sha256(shown.encode()).hexdigest()[:16],
        "orders": ask.n_orders(params),
    }


def probabilities_of(question: Question, answer: Answer) -> list[float]:
    """Return the probabilities of all options in the caller's order."""
    if isinstance(answer, PredicateAnswer):
        return [answer.probability if one.value else 1 - answer.probability for one in question.options]
    return list(answer.probabilities.values())


def with_calibration(ask: Ask, calibration: Calibration, bound: Mapping[str, object]) -> Ask:
    """Return the question with the weights of a calibration; raise if it has none."""
    weights = calibration.of(bound).weights(ask.weights)
    by_index = dict(zip(ask.by_caller, weights, strict=True))
    prior = tuple(by_index[index] for index in range(len(weights)))
    return replace(ask, prior=prior, calibration=calibration.digest)


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


def values_of(ask: Ask, order: Order, params: DecisionParams, state: str | None) -> dict[str, object]:
    """Return the values for the template of a prompt.

    Args:
        ask: The question.
        order: The order in which the options are listed.
        params: The options of the decision.
        state: The text of the state; None for the prompt without it.
    """
    question = ask.question
    lettered = params.scoring == "letters"
    choices = choices_of(ask, order, params)
    shown_as = choices if lettered else [one.scored for one in ask.options]
    answers = {one.scored: text for one, text in zip(ask.options, shown_as, strict=True)}
    examples = [(text, answers[answer]) for text, answer in question.examples if not is_same_text(text, state)]
    shown = [
        {"text": one.scored, "description": one.description or "", "letter": letter if lettered else ""}
        for one, letter in zip([ask.options[index] for index in order], _letters(len(order)), strict=True)
    ]
    described = any(one["description"] for one in shown)
    apart = any(mark in one["text"] for one in shown for mark in _APART)
    return {
        "state": state or "",
        "with_state": state is not None,
        "state_first": ask.layout != "questions first",
        "options_first": ask.layout == "state first",
        "kind": ask.kind,
        "instructions": question.instructions,
        "cue": (question.cue or "").rstrip(),
        "asked": question.cue is None and bool(question.instructions or not question.examples),
        "examples": [{"state": text, "answer": answer} for text, answer in examples],
        "options": shown if ask.listed else [],
        "listed": ask.listed and bool(shown),
        "lettered": lettered,
        "described": described,
        "in_one_line": not (described or apart or lettered),
        "answers": choices or ["?"],
    }


def is_same_text(text: str, state: str | None) -> bool:
    """Return whether two texts differ in nothing but white space at their ends."""
    return state is not None and text.strip() == state.strip()


def _letters(k: int) -> list[str]:
    return [ascii_uppercase[at] if at < MAX_LETTERS else "" for at in range(k)]


def choices_of(ask: Ask, order: Order, params: DecisionParams) -> list[str]:
    """Return the texts that are scored, in the order of `Ask.options`."""
    if params.scoring == "text":
        return [text for one in ask.options for text in one.spellings]
    letters = _letters(len(order))
    return [letters[order.index(index)] for index in range(len(order))]


def _sums(ask: Ask, probability: FloatArray) -> list[float]:
    """Return the probability of each option, given that of each text, float64[C]."""
    sums = probability if ask.members is None else np.minimum(np.bincount(ask.members, probability), 1.0)
    listed: list[float] = sums.tolist()
    return listed


def _by_order(ask: Ask, selections: Sequence[Selection]) -> list[list[float]]:
    """Return the probabilities of the options in each order."""
    return [_sums(ask, one.choices.probability) for one in selections]


def _winners(ask: Ask, by_order: Sequence[list[float]], params: DecisionParams) -> list[int]:
    """Return the index of the winner in each order; a predicate's is its value."""
    if isinstance(ask.question, Predicate):
        return [row[0 if ask.options[0].value else 1] > params.threshold for row in by_order]
    return [row.index(max(row)) for row in by_order]


def n_orders_wanted(ask: Ask, selections: Sequence[Selection], params: DecisionParams) -> int:
    """Return the number of orders in which a question is asked about a state.

    For `permutations="auto"` that are two, and more while their winners differ and the
    orders that are left could change the winner of the mean. A probability is between 0
    and 1, so one more order changes the difference of two sums by at most 1: the winner
    is settled once it leads by more than there are orders left. What is returned are
    the fewest orders after which that may be so. Of at most 8 orders, a tail bound for
    samples without replacement (Serfling 1974, at 5 %) would stop no earlier.

    Args:
        ask: The question.
        selections: The selections in the orders so far.
        params: The options of the decision.
    """
    n, n_all = len(selections), len(ask.orders)
    if params.permutations != "auto":
        return n_all
    if n < _N_FIRST:
        return min(_N_FIRST, n_all)
    by_order = _by_order(ask, selections)
    if len(set(_winners(ask, by_order, params))) == 1:
        return n
    second, first = sorted(math.fsum(column) for column in zip(*by_order, strict=True))[-2:]
    lead = first - second
    while lead <= n_all - n and n < n_all:  # not settled, even if each of these orders added 1
        n, lead = n + 1, lead + 1
    return n


@dataclass(frozen=True, slots=True)
class Evidence:
    """The selections behind an answer.

    Attributes:
        selections: One for each order, with the choices of `choices_of`.
        first_token_fits: Whether the most probable token begins an option, in all.
        signature: What the answer depends on.
        usage: The work that it took.
    """

    selections: tuple[Selection, ...]
    first_token_fits: bool
    signature: DecisionSignature
    usage: DecisionUsage


def answer_of(ask: Ask, evidence: Evidence, params: DecisionParams) -> Answer:
    """Return the answer that the selections give.

    Probabilities and label mass are the means over the orders.
    """
    if ask.has_grammar:
        return _grammar_answer(ask, evidence, params)
    selections = evidence.selections
    first = selections[0]
    tables = [one.choices for one in selections]
    by_order = _by_order(ask, selections)
    probabilities = by_order[0] if len(by_order) == 1 else mean_of(by_order)
    winner, margin, is_tie = first.index, first.margin, first.is_tie
    are_sums = len(selections) > 1 or ask.members is not None
    if are_sums:
        best = max(probabilities)
        winner, margin = probabilities.index(best), margin_of(probabilities)
        is_tie = sum(p >= best * (1 - _ROUNDED) for p in probabilities) > 1
    finished: list[bool] = [True] * len(ask.options) if ask.members else tables[0].finished.tolist()
    between = _between(ask, selections)
    least = probabilities[winner]
    if between is not None and any(one.is_bounded for one in selections):
        least = max(between[winner][0], 1 / len(between))  # the largest of k is at least 1/k
        if are_sums:
            margin, is_tie = _bounded_margin(between, winner)
    trust = _trust(evidence, params, confidence_of(least, len(ask.options)))
    trust |= {"margin": margin, "is_tie": is_tie, "spread": spread_of(by_order), "complete": all(finished)}
    if len(selections) > 1:
        trust["order_dependent"] = len(set(_winners(ask, by_order, params))) > 1
    if between is not None:
        trust["bounds"] = _bounds(ask, evidence, between)
    if isinstance(ask.question, Predicate):
        p = probabilities[0 if ask.options[0].value else 1]
        return PredicateAnswer(probability=p, threshold=params.threshold, **trust)
    if isinstance(ask.question, Score):
        levels = [ask.options[index] for index in ask.by_caller]
        in_order = [probabilities[index] for index in ask.by_caller]
        return ScoreAnswer(
            score=expected([one.value for one in levels], in_order),
            level=ask.options[winner].scored,
            value=ask.options[winner].value,
            probabilities={one.value: p for one, p in zip(levels, in_order, strict=True)},
            legend={one.value: one.scored for one in levels},
            **trust,
        )
    return ChoiceAnswer(
        value=ask.options[winner].value,
        text=ask.options[winner].scored,
        probability=probabilities[winner],
        probabilities={ask.options[i].value: probabilities[i] for i in ask.by_caller if finished[i]},
        probability_high={
            ask.options[i].value: float(tables[0].probability_high[i]) for i in ask.by_caller if not finished[i]
        },
        **trust,
    )


def _between(ask: Ask, selections: Sequence[Selection]) -> list[Bounds] | None:
    """Return bounds on the mean probability of each option over the orders.

    None if all rows were read in full, and no number depends on `heal_gap`.
    """
    if not _are_bounds(selections):
        return None
    low = mean_of([_sums(ask, one.choices.probability_low) for one in selections])
    high = mean_of([_sums(ask, one.choices.probability_high) for one in selections])
    return list(zip(low, high, strict=True))


def _are_bounds(selections: Sequence[Selection]) -> bool:
    """Return whether some probability or coverage is known by its bounds only."""
    return any(one.is_bounded or one.coverage_high is not None for one in selections)


def _bounded_margin(between: Sequence[Bounds], winner: int) -> tuple[float, bool]:
    """Return a lower bound on the margin, and whether it leaves the winner open."""
    low = between[winner][0]
    rival = max((high for index, (_, high) in enumerate(between) if index != winner), default=0.0)
    if not rival:
        return math.inf, False
    return (math.log(low) - math.log(rival) if low else -math.inf), rival >= low


def _bounds(ask: Ask, evidence: Evidence, between: Sequence[Bounds]) -> AnswerBounds:
    options = [ask.options[index] for index in ask.by_caller]
    in_order = [between[index] for index in ask.by_caller]
    is_score = isinstance(ask.question, Score)
    return AnswerBounds(
        probabilities={one.value: bounds for one, bounds in zip(options, in_order, strict=True)},
        label_mass=_mass_bounds(evidence.selections),
        score=expected_bounds([one.value for one in options], in_order) if is_score else None,
    )


def _mass_bounds(selections: Sequence[Selection]) -> Bounds:
    low = mean_of([[one.coverage] for one in selections])[0]
    high = mean_of([[one.coverage if one.coverage_high is None else one.coverage_high] for one in selections])[0]
    return low, high


def _grammar_answer(ask: Ask, evidence: Evidence, params: DecisionParams) -> ChoiceAnswer[str]:
    """Return the answer to a question whose options are the texts of a grammar."""
    selection = evidence.selections[0]
    searched = selection.grammar is not None
    k = math.inf if searched else len(selection.choices)
    table = selection.choices
    complete = not searched and bool(table.finished.all())
    between = _between(ask, [selection])
    p = selection.probability
    if between is not None and selection.is_bounded:
        p = max(between[selection.index][0], 1 / k)
    trust = _trust(evidence, params, confidence_of(p, k))
    if between is not None:
        of_texts = dict(zip(table.texts, between, strict=True))
        trust["bounds"] = AnswerBounds(of_texts, _mass_bounds([selection]))
    return ChoiceAnswer(
        value=selection.text,
        text=selection.text,
        probability=selection.probability,
        probabilities={text: float(table.probability[i]) for i, text in enumerate(table.texts) if table.finished[i]},
        probability_high={
            text: float(table.probability_high[i]) for i, text in enumerate(table.texts) if not table.finished[i]
        },
        margin=selection.margin,
        is_tie=selection.is_tie,
        spread=0.0,
        complete=complete,
        **trust,
    )


def _trust(evidence: Evidence, params: DecisionParams, confidence: float) -> dict[str, Any]:
    selections = evidence.selections
    masses = [one.coverage for one in selections]
    label_mass = masses[0] if len(masses) == 1 else mean_of([[mass] for mass in masses])[0]
    return {
        "confidence": confidence,
        "label_mass": label_mass,
        "first_token_fits": evidence.first_token_fits,
        "abstained": abstention(
            confidence, label_mass, params.min_confidence, params.min_label_mass, are_bounds=_are_bounds(selections)
        ),
        "signature": evidence.signature,
        "selections": selections,
        "usage": evidence.usage,
    }


def named_questions(questions: object) -> dict[str, Question]:
    """Return the questions by name; raise unless it is a mapping of some questions."""
    if not isinstance(questions, Mapping):
        raise OptionError("questions", questions, "a mapping from names to questions")
    if not questions:
        raise OptionError("questions", dict(questions), "at least one question")
    for name, question in questions.items():
        if not isinstance(name, str) or not name.strip():
            raise OptionError("questions", name, "names that are texts, and not blank")
        if not isinstance(question, Choice | Predicate | Score):
            raise OptionError(f"questions[{name!r}]", question, "a Choice, a Predicate or a Score")
    return dict(questions)
