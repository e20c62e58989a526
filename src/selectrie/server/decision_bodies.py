"""Bodies of requests for decisions: questions, options, and the request that they make.

The forms of OpenAI's `POST /v1/decisions` and of TypeSafe's `POST /v1/systemone` share
them. This server adds the fields of `_DecisionOptions` and `confidence` to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from selectrie.decide.calibration import Calibration
from selectrie.decide.params import IF_THEY_FIT, MAX_ORDERS, TEMPLATES, DecisionParams
from selectrie.decide.question_data import TYPES, question_of_data
from selectrie.decide.questions import MAX_NUMBERS, Question
from selectrie.errors import MAX_QUOTED, OptionError
from selectrie.options.selection import BASELINE_RULES
from selectrie.results.advice import collected_warnings
from selectrie.server.options import CONFIDENCES, ServerOptions
from selectrie.server.wire import (
    BY_TYPE,
    TAG,
    Body,
    ClosedModel,
    Ignored,
    Items,
    NotOffered,
    TextOrJson,
    UnsupportedError,
    UpTo,
    WireModel,
    one_of,
    refuse_media,
    with_options,
)

MAX_EXAMPLES = 1_000
"""Maximum number of examples of all questions of a request.

A template needs about a millisecond for each.
"""

_Orders = Annotated[int, Field(ge=1, le=MAX_ORDERS)]


@with_options(DecisionParams, "layout", "scoring", "rule", "min_confidence", "min_label_mass")
class _DecisionOptions(WireModel):
    """The fields of a request that are options of `DecisionParams`."""

    template: Annotated[str, one_of(TEMPLATES)] | None = None
    """The prompt format: the chat template, a plain page, or automatic."""
    calibration: Annotated[Annotated[str, one_of(("content_free",))] | dict[Any, Any], BY_TYPE] | None = Field(
        None, title="'content_free', or an object that `Calibration.to_dict` returned"
    )
    """How to correct for options that the model prefers in any state."""
    permutations: Annotated[_Orders | Annotated[str, one_of(("all", "auto"))], BY_TYPE] | None = None
    """Number of orders of the options over which an answer is averaged."""
    list_options: Annotated[bool | Annotated[str, one_of((IF_THEY_FIT,))], BY_TYPE] | None = None
    """Whether the prompt lists the options; by default if they fit."""


class DecisionBody(_DecisionOptions, Body):
    """The fields that the bodies of both endpoints share."""

    confidence: Annotated[str, one_of(CONFIDENCES)] | None = None
    """How confidence is computed."""
    request_id: str | None = None
    """Name of the request in headers and log."""
    cache_salt: Ignored = None
    top: Annotated[Any, NotOffered()] = None
    chat_template_kwargs: Annotated[Any, NotOffered(({},))] = None
    priority: Annotated[Any, NotOffered((0,))] = None


class QuestionOption(ClosedModel):
    """An option of a choice."""

    value: Any
    """The value that the answer returns for the option."""
    text: str | None = None
    """The text that is scored; by default the text of the value."""
    description: TextOrJson | None = None
    """The meaning of the option, for the prompt."""
    texts: list[str] | None = None
    """Several texts in place of `text`, whose probabilities add up."""


class QuestionLevel(ClosedModel):
    """A level of a score."""

    label: str | None = None
    """The text that is scored."""
    description: TextOrJson | None = None
    """The meaning of the level, for the prompt."""
    value: Any = None
    """The number of the level; by default its index, from 0."""
    texts: list[str] | None = None
    """Several texts in place of the label."""


class QuestionExample(ClosedModel):
    """An example that the prompt shows before the state."""

    model_config = ConfigDict(title="an object with a state and an answer")

    state: Any
    """The text or data that the example is about."""
    answer: Any
    """The value or the text of the right option."""


_OPTIONS = UpTo("max_options", "options of a question")
_NOT_EMPTY = Field(json_schema_extra={"minItems": 1})  # the classes of questions reject empty lists


def _check_descriptions(texts: dict[str, Any]) -> dict[str, Any]:
    """Raise `OptionError` for the first invalid description.

    Pydantic itself would report an error for each.
    """
    for index, (name, text) in enumerate(texts.items()):
        if not isinstance(text, str | list | dict | None):
            path = f".{name}" if len(name) <= MAX_QUOTED else f"[{index}]"
            raise OptionError(path, text, "a text, or an object or array of JSON")
    return texts


_DESCRIPTIONS = {"anyOf": [{"type": one} for one in ("string", "array", "object", "null")]}
_Descriptions = Annotated[
    dict[Any, Any],
    AfterValidator(_check_descriptions),
    WithJsonSchema({"type": "object", "additionalProperties": _DESCRIPTIONS}),
]
_VALUE = "a value that is a text, a truth value or a whole number, or an object with one"
_OptionOrValue = Annotated[str | int | bool | QuestionOption, BY_TYPE, Field(title=_VALUE)]
_LevelOrText = Annotated[str | QuestionLevel, BY_TYPE, Field(title="a text, or an object with a label")]


class _QuestionModel(ClosedModel):
    """The fields that all questions share."""

    model_config = ConfigDict(title="an object with a type")

    name: str | None = None
    """The name of the question in the answers."""
    instructions: TextOrJson | None = None
    """The question, or the statement of a predicate."""


class _QuestionWithExamples(_QuestionModel):
    """A question without `criteria`, so with all fields of this server."""

    examples: Items[QuestionExample] | None = None
    """Examples, shown before the state."""


class _QuestionWithCue(_QuestionWithExamples):
    """A choice or score without `criteria`."""

    cue: TextOrJson | None = None
    """A text before the answer, in place of a question."""


class ChoiceQuestion(_QuestionWithCue):
    """A question that is answered by one of several options."""

    type: Literal["choice"]
    """The kind of question."""
    choices: Annotated[
        Annotated[Items[_OptionOrValue], _NOT_EMPTY, _OPTIONS] | Annotated[_Descriptions, _OPTIONS], BY_TYPE
    ]
    """The options, or an object from their texts to descriptions."""


class ScoreQuestion(_QuestionWithCue):
    """A question that is answered by a level of a scale."""

    type: Literal["score"]
    """The kind of question."""
    levels: (
        Annotated[Annotated[Items[_LevelOrText], _NOT_EMPTY, _OPTIONS] | Annotated[_Descriptions, _OPTIONS], BY_TYPE]
        | None
    ) = None
    """The levels from the lowest, or an object from their texts to descriptions."""
    low: int | None = None
    """The lowest level, a whole number, in place of levels."""
    high: int | None = None
    """The highest level, a whole number, in place of levels."""


class PredicateQuestion(_QuestionWithExamples):
    """A question whether a statement is true. The statement is `instructions`."""

    type: Literal["predicate"]
    """The kind of question."""
    yes: TextOrJson | None = None
    """The text of the answer that the statement is true."""
    no: TextOrJson | None = None
    """The text of the answer that the statement is false."""
    yes_when: TextOrJson | None = None
    """When the statement is true."""
    no_when: TextOrJson | None = None
    """When the statement is false."""


class ChoiceByCriteria(_QuestionModel):
    """A choice in the form of TypeSafe's API."""

    type: Literal["choice"]
    """The kind of question."""
    criteria: Annotated[_Descriptions, UpTo("max_criteria", "options of a choice in this form")]
    """The meaning of each option, by its text."""


class ScoreByCriteria(_QuestionModel):
    """A score in the form of TypeSafe's API."""

    type: Literal["score"]
    """The kind of question."""
    criteria: Annotated[Items[TextOrJson], _NOT_EMPTY, UpTo("max_criteria_levels", "levels of a score in this form")]
    """The meaning of each level, from the lowest."""


class NoulCriteria(ClosedModel):
    """When a statement is true or false."""

    model_config = ConfigDict(title="an object with `true` or `false`")

    true: TextOrJson | None = None
    """When the statement is true."""
    false: TextOrJson | None = None
    """When the statement is false."""


class PredicateByCriteria(_QuestionModel):
    """A predicate in the form of TypeSafe's API."""

    type: Literal["noul", "predicate"]
    """The kind of question."""
    criteria: NoulCriteria | None = None
    """When the statement is true or false."""


def _check_type(question: object) -> object:
    """Return a question; raise if its type is unknown or not supported."""
    kind = question.get("type") if isinstance(question, dict) else TYPES[0]
    if kind == "box":
        raise UnsupportedError("boxes in images are not found", "unsupported_input", ".type")
    if kind not in TYPES:
        raise OptionError(".type", kind, "one of " + ", ".join(map(repr, TYPES)))
    return question


def _find_tag(question: object) -> str | None:
    """Return the tag of the model that validates a question; None if no object."""
    if not isinstance(question, dict):
        return None
    kind = "predicate" if question["type"] == "noul" else question["type"]
    return (
        f"{TAG}{kind} by criteria" if "criteria" in question or question["type"] == "noul" else f"{TAG}{kind} question"
    )


QuestionBody = Annotated[
    Annotated[ChoiceQuestion, Tag(f"{TAG}choice question")]
    | Annotated[PredicateQuestion, Tag(f"{TAG}predicate question")]
    | Annotated[ScoreQuestion, Tag(f"{TAG}score question")]
    | Annotated[ChoiceByCriteria, Tag(f"{TAG}choice by criteria")]
    | Annotated[PredicateByCriteria, Tag(f"{TAG}predicate by criteria")]
    | Annotated[ScoreByCriteria, Tag(f"{TAG}score by criteria")],
    Discriminator(_find_tag),
    BeforeValidator(_check_type),
]
"""A union of the models that validate questions, before `question_of_data`."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedQuestion:
    """What a request says of one of its questions.

    Attributes:
        path: The path in the body.
        name: The name for the answer, or None.
        data: The object in the body.
    """

    path: str
    name: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """A checked request of either endpoint.

    Attributes:
        state: The text of the state.
        questions: The questions by their path in the request.
        asked: What the request says of each question.
        params: Options of the decision.
        confidence: How confidence is computed (`ServerOptions.confidence`).
        warnings: Warnings about ignored fields and about the questions.
    """

    state: str
    questions: Mapping[str, Question]
    asked: Sequence[AskedQuestion]
    params: DecisionParams
    confidence: str
    warnings: Sequence[str]


def make_request(
    body: DecisionBody,
    state: str,
    asked: Sequence[AskedQuestion],
    options: ServerOptions,
    *,
    warnings: Sequence[str],
    lead: str = "",
) -> DecisionRequest:
    """Return the request of a validated body.

    Args:
        body: The body.
        state: The text of the state.
        asked: The questions.
        options: Options of the server.
        warnings: Warnings about ignored fields.
        lead: Text that comes before the instructions of each question.
    """
    if len(lead) * len(asked) > options.max_body_bytes:  # each question gets a copy
        allowed = f"at most {options.max_body_bytes} characters in all, since they are those of each question"
        raise OptionError("instructions", len(lead) * len(asked), allowed)
    n_examples = sum(len(one.data.get("examples") or ()) for one in asked)
    if n_examples > MAX_EXAMPLES:
        raise OptionError("questions", n_examples, f"at most {MAX_EXAMPLES} examples in a request")
    for one in asked:
        refuse_media(one.data.get("instructions"), f"{one.path}.instructions")
    warned, questions = [*warnings], {}
    for one in asked:
        with collected_warnings() as notices:
            questions[one.path] = question_of_data(one.data, one.path, lead)
        warned += [f"{one.path}: {notice}" for notice in notices]
    values = {name: getattr(body, name) for name in _DecisionOptions.model_fields if getattr(body, name) is not None}
    values.setdefault("min_label_mass", options.min_label_mass)
    values.setdefault("list_options", IF_THEY_FIT)
    if isinstance(body.calibration, dict):
        values["calibration"] = Calibration.from_dict(body.calibration)
    if options.calibration is not None and values.get("rule") not in BASELINE_RULES:
        values.setdefault("calibration", replace(options.calibration, is_default=True))
    confidence = body.confidence or options.confidence
    return DecisionRequest(state, questions, asked, DecisionParams(**values), confidence, warned)


def check_size(asked: Sequence[AskedQuestion], options: ServerOptions) -> None:
    """Raise `OptionError` if the questions of a request have too many options.

    This check comes first, because pydantic would need much longer for large requests.
    """
    total = 0
    for one in asked:
        k = _count_texts(one.data)
        total += k
        if k > options.max_options:
            raise OptionError(one.path, k, f"at most {options.max_options} options of a question")
    if total > options.max_options_in_all:
        raise OptionError("questions", total, f"at most {options.max_options_in_all} options in a request")


def _count_texts(question: object) -> int:
    """Return the number of texts of an unchecked question's options."""
    if not isinstance(question, dict):
        return 0
    lists = [question.get(name) for name in ("choices", "levels", "criteria")]
    options = [one for given in lists if isinstance(given, list | dict) for one in given]
    texts = [one.get("texts") if isinstance(one, dict) else None for one in options]
    low, high = question.get("low"), question.get("high")
    if not options and isinstance(low, int) and isinstance(high, int):
        return max(2, min(high - low + 1, MAX_NUMBERS))  # more are refused
    return sum(len(one) if isinstance(one, list) else 1 for one in texts) or 2  # a predicate has two
