"""The options of a decision, and which of them go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from selectrie.decide.calibration import Calibration
from selectrie.decide.questions import Question
from selectrie.decide.thinking import Thinking
from selectrie.decide.threshold import Threshold
from selectrie.decide.typed import Questions, parse_questions
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, PythonOnly, words
from selectrie.options.arguments import named_fields
from selectrie.options.checks import Bounds, Names, ReadOnlyDict, at_least, check_options, named, option, record
from selectrie.options.selection import BASELINE_RULES, RULES_OF_ONE_PROMPT
from selectrie.template.analysis.template import Template

TEMPLATES = ("auto", "chat", "base")
LAYOUTS = ("auto", "state first", "questions first", "options last")
SCORINGS = ("text", "letters")
IF_THEY_FIT = "if they fit"
"""Value of `list_options` that lists the options where the context has room."""
MAX_ORDERS = 64
"""Maximum number of orders of the options, except for "all"."""
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
            prompt fits the context, else False, with a warning. It stays an error where
            a calibration or a threshold holds for the list.
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
    check_compatible(
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


def check_compatible(other: str, *options: tuple[str | OptionRef, bool, str]) -> None:
    """Raise `IncompatibleOptionsError` for the first given option of `options`.

    Args:
        other: The name of what excludes all the options.
        options: The name of each option, whether it is given, and the remedy.
    """
    for name, is_given, remedy in options:
        if is_given:
            raise IncompatibleOptionsError(name, other, remedy)
