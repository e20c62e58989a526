"""Bodies of requests for decisions: questions, options, and the request that they make.

The forms of OpenAI's `POST /v1/decisions`, of TypeSafe's `POST /v1/systemone` and of
`/v1/classify` share them. The fields of `_DecisionOptions` and `confidence` are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from selectrie.decide.calibration import Calibration
from selectrie.decide.classification import label_questions
from selectrie.decide.params import IF_THEY_FIT, MAX_ORDERS, TEMPLATES, DecisionParams
from selectrie.decide.question_data import TYPES, question_of_data
from selectrie.decide.questions import MAX_NUMBERS, Question
from selectrie.decide.states import of_json, text_of_state
from selectrie.decide.thinking import MAX_RATIONALES, Thinking
from selectrie.errors import MAX_QUOTED, Amount, OptionError, of_slot
from selectrie.options.selection import BASELINE_RULES
from selectrie.results.advice import collected_warnings
from selectrie.server.fields.reading import refuse_media, unknown_fields
from selectrie.server.fields.wire import (
    BY_TYPE,
    TAG,
    Body,
    ClosedModel,
    Ignored,
    Items,
    NotOffered,
    Priority,
    Seed,
    TemplateArgs,
    TextOrJson,
    UnsupportedError,
    UpTo,
    WireModel,
    one_of,
    with_options,
)
from selectrie.server.options import CONFIDENCES, ServerOptions

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


@with_options(Thinking, "max_tokens")
class ThinkOptions(ClosedModel):
    """Options of rationales that the model writes before its options are scored."""

    model_config = ConfigDict(title="an object with options of rationales")

    n: Annotated[int, Field(ge=1, le=MAX_RATIONALES)] | None = None
    """Number of rationales; the answer is the mean of the answers behind them."""
    start: str | None = None
    """Text before each rationale."""
    stop: str | None = None
    """Text that ends a rationale; by default the block of the chat template."""
    seed: Seed | None = None
    """Rationale i has the seed plus i."""
    shared: bool | None = None
    """Whether rationales are written once for all questions."""


class DecisionBody(_DecisionOptions, Body):
    """The fields that the bodies of all forms share."""

    think: ThinkOptions | None = None
    """Rationales that are written first."""
    drawing: bool | None = None
    """Whether the response has a drawing of the answers."""
    confidence: Annotated[str, one_of(CONFIDENCES)] | None = None
    """How confidence is computed."""
    request_id: str | None = None
    """Name of the request in headers and log."""
    cache_salt: Ignored = None
    top: Annotated[Any, NotOffered()] = None
    chat_template_kwargs: TemplateArgs | None = None
    """Arguments of the chat template."""
    priority: Priority | None = None
    """A lower number goes first, where the server takes it."""


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
OptionsBody = Annotated[
    Annotated[Items[_OptionOrValue], _NOT_EMPTY, _OPTIONS] | Annotated[_Descriptions, _OPTIONS], BY_TYPE
]
"""Type of options: a list of them, or an object from their texts to descriptions."""
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
    choices: OptionsBody
    """The options, or an object from their texts to descriptions."""
    multi_label: bool | None = None
    """Whether any number of options may fit: each is then a predicate."""


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
    multi_label: bool | None = None
    """Whether any number of options may fit: each is then a predicate."""


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
    is_noul = question["type"] == "noul"
    form = "by criteria" if "criteria" in question or is_noul else "question"
    return f"{TAG}{'predicate' if is_noul else question['type']} {form}"


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

    @property
    def is_multi_label(self) -> bool:
        """Return whether each option is asked as a predicate."""
        return isinstance(self.data, dict) and self.data.get("multi_label") is True

    @property
    def n_asked(self) -> int:
        """Return the number of questions as which it is asked."""
        return count_texts(self.data) if self.is_multi_label else 1

    def questions(self, lead: str) -> tuple[dict[str, Question], tuple[Any, ...]]:
        """Return the questions as which it is asked, by their paths, and the labels.

        With `multi_label`, the questions are a predicate for each option, and the
        labels are the values of the options; else there are none. Levels of equal
        labels are scored by their numbers, with the labels as descriptions.

        Args:
            lead: Text that comes before the instructions.

        Raises:
            RequestError: For data that makes no question.
        """
        given = {name: value for name, value in self.data.items() if name != "multi_label"}
        if not self.is_multi_label:
            return {self.path: question_of_data(_with_numbered_levels(given), self.path, lead)}, ()
        shown = given.pop("examples", None) or ()
        choice = question_of_data(given, self.path, lead)
        examples = [(of_json(one["state"]), one["answer"]) for one in shown]
        with of_slot(self.path, {}):
            statement = choice.instructions or None
            asked = label_questions(
                choice.options, multi_label=True, instructions=statement, cue=choice.cue, examples=examples
            )
        field = "criteria" if "criteria" in given else "choices"
        paths = (f"{self.path}.{field}[{index}]" for index in range(len(asked.labels)))
        return dict(zip(paths, asked.questions.values(), strict=True)), asked.labels


def _with_numbered_levels(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data; a score with equal labels in the form with criteria."""
    levels = data.get("levels")
    if not isinstance(levels, list) or data.keys() - {"type", "name", "instructions", "levels"}:
        return data
    given = [{"label": one} if isinstance(one, str) else one for one in levels]
    labels = [one.get("label") for one in given]
    if len({*labels}) == len(labels) or any(one.keys() - {"label", "description"} for one in given):
        return data
    criteria = [one["label"] if one.get("description") is None else one for one in given]
    return {**{name: value for name, value in data.items() if name != "levels"}, "criteria": criteria}


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """A checked request in any form.

    Attributes:
        state: The text of the state.
        questions: The questions by their path in the request.
        asked: What the request says of each question.
        params: Options of the decision.
        confidence: How confidence is computed (`ServerOptions.confidence`).
        warnings: Warnings about ignored fields and about the questions.
        priority: A lower number goes first.
        labels: The value of each label by the path of its question, for each question
            with `multi_label` by its path.
        is_drawn: Whether the response has a drawing of the answers.
    """

    state: str
    questions: Mapping[str, Question]
    asked: Sequence[AskedQuestion]
    params: DecisionParams
    confidence: str
    warnings: Sequence[str]
    priority: int
    labels: Mapping[str, Mapping[str, Any]]
    is_drawn: bool


def make_request(
    body: DecisionBody,
    state_field: str,
    data: Mapping[str, Any],
    asked: Sequence[AskedQuestion],
    options: ServerOptions,
    *,
    lead: str = "",
) -> DecisionRequest:
    """Return the request of a validated body.

    Args:
        body: The body.
        state_field: Name of the field with the state.
        data: The body before validation.
        asked: The questions.
        options: Options of the server.
        lead: Text that comes before the instructions of each question.
    """
    state = text_of_state(of_json(data[state_field]), state_field)
    warned = unknown_fields(data, type(body).model_fields)
    n_lead = len(lead) * sum(one.n_asked for one in asked)  # each question gets a copy
    if n_lead > options.max_body_bytes:
        allowed = f"at most {options.max_body_bytes} characters in all, since they are those of each question"
        raise OptionError("instructions", n_lead, allowed)
    n_examples = sum(len(one.data.get("examples") or ()) * one.n_asked for one in asked)
    if n_examples > MAX_EXAMPLES:
        name = "examples" if "examples" in type(body).model_fields else "questions"
        raise OptionError(name, n_examples, f"at most {MAX_EXAMPLES} examples in a request")
    for one in asked:
        refuse_media(one.data.get("instructions"), f"{one.path}.instructions")
    questions, labels = dict[str, Question](), dict[str, dict[str, Any]]()
    for one in asked:
        with collected_warnings() as notices:
            added, values = one.questions(lead)
        questions |= added
        labels |= {one.path: dict(zip(added, values, strict=True))} if values else {}
        warned += [f"{one.path}: {notice}" for notice in notices]
    given = {name: getattr(body, name) for name in _DecisionOptions.model_fields if getattr(body, name) is not None}
    given.setdefault("min_label_mass", options.min_label_mass)
    if body.think is not None:
        try:
            given["think"] = Thinking(**body.think.model_dump(exclude_none=True))
        except OptionError as error:
            raise OptionError(f"think.{error.name}", error.value, error.allowed) from error
    else:
        given.setdefault("list_options", IF_THEY_FIT)
    given["template_args"] = body.chat_template_kwargs or {}
    if isinstance(body.calibration, dict):
        given["calibration"] = Calibration.from_dict(body.calibration)
    if options.calibration is not None and body.think is None and given.get("rule") not in BASELINE_RULES:
        given.setdefault("calibration", replace(options.calibration, is_default=True))
    params, confidence = DecisionParams(**given), body.confidence or options.confidence
    priority, is_drawn = body.priority or 0, bool(body.drawing)
    return DecisionRequest(state, questions, asked, params, confidence, warned, priority, labels, is_drawn)


def check_size(asked: Sequence[AskedQuestion], options: ServerOptions) -> None:
    """Raise `OptionError` if the questions of a request have too many options.

    This check comes first, because pydantic would need much longer for large requests.
    """
    total, n_asked = 0, sum(one.n_asked for one in asked)
    if n_asked > max(options.max_questions, len(asked)):
        allowed = f"at most {options.max_questions}, where each option of a question with multi_label is one"
        raise OptionError("questions", Amount(f"{n_asked} questions"), allowed)
    for one in asked:
        k = count_texts(one.data)
        total += k
        if k > options.max_options:
            raise OptionError(one.path, Amount(f"{k} options"), f"at most {options.max_options} options of a question")
    if total > options.max_options_in_all:
        raise OptionError(
            "questions", Amount(f"{total} options"), f"at most {options.max_options_in_all} options in a request"
        )


def count_texts(question: object) -> int:
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
