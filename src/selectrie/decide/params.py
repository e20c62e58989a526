"""Options of a decision, and calibrations, which say what a model expects."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from selectrie.core.vocabulary import to_bytes
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, OptionRef, words
from selectrie.options.checks import Bounds, ReadOnlyDict, at_least, flag, named_fields, one_of
from selectrie.template.analysis.template import Template

N_SAMPLED = 64
"""Number of states to which a calibration is fitted."""
N_LEAST = 16
"""Number of states below which none is fitted."""
_N_UNIFORM = 16
"""Number of states as which equal probabilities count in a mean."""


@dataclass(frozen=True, slots=True)
class QuestionCalibration:
    """The calibration of one question.

    Attributes:
        bound: What it was fitted under: model, precision, question, template, layout,
            rule and the like. It holds for nothing else.
        n: Number of states.
        log_means: Log of the mean probability of each option over the states, in the
            caller's order; -inf for one that never had any.
    """

    bound: Mapping[str, object]
    n: int
    log_means: tuple[float, ...]

    def weights(self, prior: Sequence[float] | None) -> tuple[float, ...]:
        """Return the weight of each option: the prior's, divided by the mean.

        The mean is shrunk towards equal probabilities, as if 16 more states had these.
        """
        k = len(self.log_means)
        means = [(self.n * math.exp(one) + _N_UNIFORM / k) / (self.n + _N_UNIFORM) for one in self.log_means]
        return tuple(weight / mean for weight, mean in zip(prior or [1.0] * k, means, strict=True))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibrations of some questions, from `Engine.fit_calibration` or a run's folder.

    Attributes:
        questions: One for each question that was calibrated.
        is_default: Whether a question that it does not hold for is asked plainly, as by
            a server; else that is an error.
    """

    questions: tuple[QuestionCalibration, ...]
    is_default: bool = False

    def holds_for(self, bound: Mapping[str, object]) -> bool:
        """Return whether a question asked in this way has a calibration."""
        return any(one.bound == bound for one in self.questions)

    def of(self, bound: Mapping[str, object]) -> QuestionCalibration:
        """Return the calibration of a question asked in this way.

        Raises `OptionError` if there is none, with what differs first.
        """
        same = [one for one in self.questions if one.bound["question"] == bound["question"]]
        found = next((one for one in same if one.bound == bound), None)
        if found is not None:
            return found
        if not same:
            raise OptionError("calibration", "fitted", "one of this question, with the same options in their order")
        names = [*bound, *same[0].bound]
        name = next(name for name in names if same[0].bound.get(name) != bound.get(name))
        was, now = same[0].bound.get(name), bound.get(name)
        raise OptionError("calibration", "fitted", f"one of the same {name}: it has {was!r}, now it is {now!r}")

    @property
    def digest(self) -> str:
        """Return its digest, in hexadecimal."""
        return sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, object]:
        """Return it as data of JSON, from which `from_dict` makes it again."""
        return {
            "kind": "calibration",
            "questions": [
                {
                    "bound": dict(one.bound),
                    "n": one.n,
                    "log_means": [mean if math.isfinite(mean) else None for mean in one.log_means],
                }
                for one in self.questions
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Return what `to_dict` wrote; raise `OptionError` for anything else."""
        try:
            return cls(
                tuple(
                    QuestionCalibration(
                        dict(one["bound"]),
                        _count(one["n"]),
                        tuple(
                            _log_mean(mean)
                            for _, mean in zip(one["bound"]["question"][2:], one["log_means"], strict=True)
                        ),
                    )
                    for one in data["questions"]
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OptionError("calibration", data, "what `Calibration.to_dict` returned") from error

    def save(self, path: str | Path) -> None:
        """Write it to a file of JSON."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file that `save` wrote, or the `run.json` of a run over a table.

        Raises `InputFileError` if the file holds no calibration.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_dict(data.get("signature", {}).get("calibration", data))
        except OSError as error:
            raise InputFileError(str(path), error.strerror or str(error)) from error
        except (ValueError, AttributeError, OptionError) as error:
            raise InputFileError(str(path), "holds no calibration") from error


def _count(n: object) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(n)
    return n


def _log_mean(value: object) -> float:
    if value is None:
        return -math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= 1e-9:
        raise ValueError(value)
    return float(value)


def question_calibration(bound: Mapping[str, object], samples: Sequence[Sequence[float]]) -> QuestionCalibration:
    """Return the calibration of a question.

    Args:
        bound: What the samples depend on.
        samples: The probabilities of the options about each state.
    """
    means = [math.fsum(column) / len(samples) for column in zip(*samples, strict=True)]
    return QuestionCalibration(bound, len(samples), tuple(math.log(mean) if mean else -math.inf for mean in means))


def sample_of(texts: Iterable[str]) -> list[str]:
    """Return the 64 distinct texts of smallest SHA-256, or all if there are fewer.

    They depend neither on the order of the texts nor on how often each occurs.
    """
    kept: dict[bytes, str] = {}
    for text in texts:
        kept[sha256(to_bytes(text, "state")).digest()] = text
        if len(kept) == 2 * N_SAMPLED:
            kept = dict(sorted(kept.items())[:N_SAMPLED])
    return [text for _, text in sorted(kept.items())[:N_SAMPLED]]


TEMPLATES = ("auto", "chat", "base")
LAYOUTS = ("auto", "state first", "questions first", "options last")
SCORINGS = ("text", "letters")
RULES = ("joint", "token_mean", "char_mean", "byte_mean", "pmi", "calibrated")
BASELINE_RULES = ("pmi", "calibrated")
"""Rules that compare with a baseline, as a calibration does."""
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
        layout: The order of state, list of options and question in the prompt, and so
            what prompts share: "state first" (state, options, question), "options last"
            (state, question, options) or "questions first" (question, options, state).
            They give different numbers. "auto" is "questions first" for a `Choice` or
            `Score` that is asked alone, "options last" for one of several questions,
            and "state first" for a `Predicate`.
        scoring: "text" scores the options' own texts. "letters" lists the options
            behind letters and scores these alone, without what ends an answer; it takes
            at most 26 options.
        rule: "joint", "token_mean", "char_mean", "byte_mean", "pmi" (minus the joint
            after the same prompt without the state) or "calibrated" (minus the mean
            joint with the state replaced by "", "N/A" and "[MASK]").
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
    layout: str = "auto"
    scoring: str = "text"
    rule: str = "joint"
    calibration: str | Calibration | None = field(default=None, hash=False)
    prior: Mapping[Any, float] | Sequence[float] | None = field(default=None, hash=False)
    permutations: int | str | None = None
    top: int | None = None
    min_confidence: float = 0.0
    min_label_mass: float = 0.0
    threshold: float = 0.5
    list_options: bool | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.template, Template) and self.template not in TEMPLATES:
            raise OptionError("template", self.template, "'auto', 'chat', 'base', or a Template")
        one_of("layout", self.layout, LAYOUTS)
        one_of("scoring", self.scoring, SCORINGS)
        if self.rule == "batch":
            raise OptionError("rule", "batch", "a rule for one prompt: " + ", ".join(map(repr, RULES)))
        one_of("rule", self.rule, RULES)
        _check_calibration(self.calibration, self.rule)
        object.__setattr__(self, "prior", _prior(self.prior))
        if self.permutations not in ("all", "auto"):
            if isinstance(self.permutations, str):
                raise OptionError("permutations", self.permutations, "a number of orders, 'all' or 'auto'")
            at_least("permutations", self.permutations, 1, max_value=MAX_ORDERS)
        at_least("top", self.top, 1)
        for name in ("min_confidence", "min_label_mass", "threshold"):
            SHARE.check(name, getattr(self, name))
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
