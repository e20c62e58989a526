"""Serves OpenAI's `POST /v1/decisions` and TypeSafe's `POST /v1/systemone`.

This server adds to their fields those of `_DecisionOptions` and `confidence` in
requests, and `diagnostics` and `warnings` in responses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from selectrie.decide.answers import Answer, ChoiceAnswer, Decision, PredicateAnswer
from selectrie.decide.calibration import Calibration
from selectrie.decide.params import (
    MAX_ORDERS,
    TEMPLATES,
    DecisionParams,
)
from selectrie.decide.question_data import TYPES, question_of_data
from selectrie.decide.questions import Question
from selectrie.decide.states import CALL_TYPES, ROLES, is_message, of_json, text_of_state
from selectrie.errors import MAX_QUOTED, THE_STATE, OptionError
from selectrie.options.selection import BASELINE_RULES
from selectrie.results.advice import collected_warnings
from selectrie.results.records import json_logprob
from selectrie.server.options import CONFIDENCES, ServerOptions
from selectrie.server.request_context import exchange_of, json_response, read_request
from selectrie.server.state import state_of
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
    fields_of,
    one_of,
    read,
    refuse_media,
    unknown_fields,
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
    list_options: bool | None = None
    """Whether the prompt lists the options."""


class _DecisionBody(_DecisionOptions, Body):
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
    _OPTIONS,
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
    choices: Annotated[Annotated[Items[_OptionOrValue], _NOT_EMPTY, _OPTIONS] | _Descriptions, BY_TYPE]
    """The options, or an object from their texts to descriptions."""


class ScoreQuestion(_QuestionWithCue):
    """A question that is answered by a level of a scale."""

    type: Literal["score"]
    """The kind of question."""
    levels: Annotated[Annotated[Items[_LevelOrText], _NOT_EMPTY, _OPTIONS] | _Descriptions, BY_TYPE]
    """The levels from the lowest, or an object from their texts to descriptions."""


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
    criteria: _Descriptions
    """The meaning of each option, by its text."""


class ScoreByCriteria(_QuestionModel):
    """A score in the form of TypeSafe's API."""

    type: Literal["score"]
    """The kind of question."""
    criteria: Annotated[Items[TextOrJson], _NOT_EMPTY, _OPTIONS]
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


_Question = Annotated[
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
_MESSAGE = {"required": ["role", "content"], "properties": {"type": {"const": "message"}, "role": {"enum": [*ROLES]}}}
_CALL = {
    "required": ["type", "call_id"],
    "properties": {"type": {"enum": [*CALL_TYPES]}, "call_id": {"type": "string"}},
}
_Item = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object", **one} for one in (_MESSAGE, _CALL)]})]
"""An item of a conversation; `text_of_state` validates it."""


class DecisionsBody(_DecisionBody):
    """Questions about an input, in the form of OpenAI's API."""

    input: Annotated[str | Annotated[list[_Item], Field(min_length=1)], BY_TYPE] = Field(
        title="a text, or a list of messages"
    )
    """The text or messages that the questions are about."""
    questions: Annotated[Items[_Question], UpTo("max_questions", "questions in a request")] = Field(
        title="a list of questions", min_length=1
    )
    """The questions."""
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    safety_identifier: Ignored = None


class SystemoneBody(_DecisionBody):
    """Questions about a state, in the form of TypeSafe's API."""

    state: TextOrJson = Field(title="a text, an object or an array")
    """The text or data that the questions are about."""
    questions: Annotated[dict[Any, _Question], UpTo("max_questions", "questions in a request")] = Field(
        title="an object of questions by name", min_length=1
    )
    """The questions by name."""
    instructions: str | None = None
    """Text that comes before the instructions of each question."""
    assets: Annotated[Any, NotOffered((), "images are not read", "unsupported_input")] = None


DECISIONS_FIELDS = fields_of(DecisionsBody, state="input") | {THE_STATE.name: "input"}
SYSTEMONE_FIELDS = fields_of(SystemoneBody) | {THE_STATE.name: "state"}


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRequest:
    """A checked request of either endpoint.

    Attributes:
        state: The text of the state.
        questions: The questions by their path in the request.
        names: The name of each question, or None.
        data: The questions as objects of the request.
        params: Options of the decision.
        confidence: How confidence is computed (`ServerOptions.confidence`).
        warnings: Warnings about ignored fields and about the questions.
    """

    state: str
    questions: Mapping[str, Question]
    names: Sequence[str | None]
    data: Sequence[Mapping[str, Any]]
    params: DecisionParams
    confidence: str
    warnings: Sequence[str]


def read_decisions(data: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Check the body of `/v1/decisions`, and return its request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    questions = data.get("questions")
    by_path = {f"questions[{index}]": one for index, one in enumerate(questions if isinstance(questions, list) else ())}
    _check_size(by_path, options)
    body = read(DecisionsBody, data, options)
    refuse_media(body.input, "input")
    for index, item in enumerate(body.input if isinstance(body.input, list) else ()):
        if not is_message(item):
            allowed = "a message with `role` and `content`, since input is a text, or a list of messages"
            raise OptionError(f"input[{index}]", item, allowed)
    return _make_request(body, data, by_path, [one.name for one in body.questions], options)


def read_systemone(data: Mapping[str, Any], options: ServerOptions) -> DecisionRequest:
    """Check the body of `/v1/systemone`, and return its request.

    Raises:
        HttpError, RequestError: For any error that can be found without a model.
    """
    questions = data.get("questions")
    items = questions.items() if isinstance(questions, dict) else ()
    by_path = {_make_path(name, index): one for index, (name, one) in enumerate(items)}
    _check_size(by_path, options)
    body = read(SystemoneBody, data, options)
    refuse_media(body.state, "state")
    return _make_request(body, data, by_path, list(data["questions"]), options)


def _make_request(
    body: DecisionsBody | SystemoneBody,
    data: Mapping[str, Any],
    by_path: Mapping[str, Mapping[str, Any]],
    names: Sequence[str | None],
    options: ServerOptions,
) -> DecisionRequest:
    """Return the request of a validated body.

    Args:
        body: The validated body.
        data: The same body as parsed JSON.
        by_path: The object of each question, by its path in the body.
        names: The name of each question, or None.
        options: Options of the server.
    """
    field, lead = ("state", body.instructions or "") if isinstance(body, SystemoneBody) else ("input", "")
    if len(lead) * len(by_path) > options.max_body_bytes:  # each question gets a copy
        allowed = f"at most {options.max_body_bytes} characters in all, since they are those of each question"
        raise OptionError("instructions", len(lead) * len(by_path), allowed)
    n_examples = sum(len(one.get("examples") or ()) for one in by_path.values())
    if n_examples > MAX_EXAMPLES:
        raise OptionError("questions", n_examples, f"at most {MAX_EXAMPLES} examples in a request")
    for path, one in by_path.items():
        refuse_media(one.get("instructions"), f"{path}.instructions")
    warnings, questions = unknown_fields(data, type(body).model_fields), {}
    for path, one in by_path.items():
        with collected_warnings() as notices:
            questions[path] = question_of_data(one, path, lead)
        warnings += [f"{path}: {notice}" for notice in notices]
    values = {name: getattr(body, name) for name in _DecisionOptions.model_fields if getattr(body, name) is not None}
    values.setdefault("min_label_mass", options.min_label_mass)
    if isinstance(body.calibration, dict):
        values["calibration"] = Calibration.from_dict(body.calibration)
    if options.calibration is not None and values.get("rule") not in BASELINE_RULES:
        values.setdefault("calibration", replace(options.calibration, is_default=True))
    params = DecisionParams(**values)
    text = text_of_state(of_json(data[field]), field)
    confidence = body.confidence or options.confidence
    return DecisionRequest(text, questions, names, [*by_path.values()], params, confidence, warnings)


def _make_path(name: str, index: int) -> str:
    """Return the path to a question: its name, or its index if the name is long."""
    return f"questions.{name}" if len(name) <= MAX_QUOTED else f"questions[{index}]"


def _check_size(questions: Mapping[str, object], options: ServerOptions) -> None:
    """Raise `OptionError` if the questions of a request have too many options.

    This check comes first, because pydantic would need much longer for large requests.
    """
    total = 0
    for path, question in questions.items():
        k = _count_texts(question)
        total += k
        if k > options.max_options:
            raise OptionError(path, k, f"at most {options.max_options} options of a question")
    if total > options.max_options_in_all:
        raise OptionError("questions", total, f"at most {options.max_options_in_all} options in a request")


def _count_texts(question: object) -> int:
    """Return the number of texts of an unchecked question's options."""
    if not isinstance(question, dict):
        return 0
    lists = [question.get(name) for name in ("choices", "levels", "criteria")]
    options = [one for given in lists if isinstance(given, list | dict) for one in given]
    texts = [one.get("texts") if isinstance(one, dict) else None for one in options]
    return sum(len(one) if isinstance(one, list) else 1 for one in texts) or 2  # a predicate has two


def decisions_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/decisions`, ready for JSON."""
    answers = []
    for path, name in zip(request.questions, request.names, strict=True):
        answer = decision[path]
        answers.append(_make_decisions_answer(answer, request.confidence) | {"name": name, **_make_diagnostics(answer)})
    usage = _make_usage(decision)
    details = {
        "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    tokens = {"input_tokens": usage["input_tokens"], "output_tokens": 0, "total_tokens": usage["input_tokens"]}
    return {"model": model, "answers": answers, "usage": {**tokens, **details}, **_make_warnings(request, decision)}


def _make_decisions_answer(answer: Answer, confidence: str) -> dict[str, Any]:
    """Return an answer in the form of `/v1/decisions`; a refusal if it abstained."""
    if answer.abstained:
        return {"type": "refusal"}
    if isinstance(answer, PredicateAnswer):
        return {"type": "predicate", "probability": answer.probability}
    certainty = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        probabilities = [{"value": value, "probability": p} for value, p in answer.probabilities.items()]
        return {"type": "choice", "choice": answer.value, "confidence": certainty, "probabilities": probabilities}
    levels = [
        {"value": index, "label": answer.legend[value], "probability": p}
        for index, (value, p) in enumerate(answer.probabilities.items())
    ]
    return {"type": "score", "score": answer.score, "confidence": certainty, "probabilities": levels}


def systemone_response(request: DecisionRequest, decision: Decision, model: str) -> dict[str, Any]:
    """Return the response of `/v1/systemone`, ready for JSON."""
    answers = {}
    for path, name, data in zip(request.questions, request.names, request.data, strict=True):
        answer = decision[path]
        answers[str(name)] = _make_systemone_answer(data, answer, request.confidence) | _make_diagnostics(answer)
    usage = {"input_tokens": _make_usage(decision)["input_tokens"], "output_tokens": 0}
    return {"model": model, "answers": answers, "usage": usage, **_make_warnings(request, decision)}


def _make_systemone_answer(data: Mapping[str, Any], answer: Answer, confidence: str) -> dict[str, Any]:
    """Return an answer in the form of `/v1/systemone`; `data` is its question."""
    if isinstance(answer, PredicateAnswer):
        return {"type": "noul", "noul": answer.probability}
    certainty = confidence_of(answer, confidence)
    if isinstance(answer, ChoiceAnswer):
        return {
            "type": "choice",
            "choice": answer.value,
            "confidence": certainty,
            "probabilities": {str(value): p for value, p in answer.probabilities.items()},
        }
    criteria = data.get("criteria") or [answer.legend[value] for value in answer.probabilities]
    return {
        "type": "score",
        "score": answer.score,
        "confidence": certainty,
        "legend": {str(index): one for index, one in enumerate(criteria)},
        "probabilities": {str(index): p for index, p in enumerate(answer.probabilities.values())},
    }


def confidence_of(answer: Answer, kind: str) -> float:
    """Return the confidence of an answer.

    Args:
        answer: The answer.
        kind: How to compute it: a value of `ServerOptions.confidence`.
    """
    if kind == "top":
        return answer.confidence
    probabilities = list(answer.probabilities.values())
    if kind == "label_mass":
        return max(probabilities) * answer.label_mass
    if len(probabilities) == 1:
        return 1.0
    entropy = -sum(p * math.log(p) for p in probabilities if p > 0)
    return max(0.0, 1 - entropy / math.log(len(probabilities)))


def _make_diagnostics(answer: Answer) -> dict[str, Any]:
    """Return the field `diagnostics` of an answer: its reliability and its cost."""
    first = answer.selections[0]
    top_tokens = [
        {"token": one.piece.decode("utf-8", "replace") or one.spelling, "logprob": json_logprob(one.logp)}
        for one in first.top_tokens
    ]
    cost = answer.usage.cost
    return {
        "diagnostics": {
            "label_mass": answer.label_mass,
            "first_token_fits": answer.first_token_fits,
            "top_tokens": top_tokens,
            "margin": None if math.isinf(answer.margin) else answer.margin,
            "is_tie": answer.is_tie,
            "proved": all(one.certificate.proved for one in answer.selections),
            "abstained": answer.abstained or None,
            "spread": answer.spread,
            "order_dependent": answer.order_dependent,
            "logprobs": [
                {"text": text, "logprob": json_logprob(float(logp))}
                for text, logp in zip(first.choices.texts, first.choices.logp, strict=True)
            ],
            "rows": cost.rows,
            "rows_one_by_one": cost.rows_naive,
        }
    }


def _make_usage(decision: Decision) -> dict[str, int]:
    """Return the numbers of input tokens and of cached tokens."""
    usage = decision.usage
    return {"input_tokens": usage.input_tokens, "cached_tokens": max(0, usage.input_tokens - usage.cost.rows)}


def _make_warnings(request: DecisionRequest, decision: Decision) -> dict[str, Any]:
    """Return the field `warnings` of a response; `{}` if there are none."""
    warnings = [*request.warnings, *map(str, decision.warnings)]
    return {"warnings": warnings} if warnings else {}


router = APIRouter()

Read = Callable[[Mapping[str, Any], ServerOptions], DecisionRequest]
Write = Callable[[DecisionRequest, Decision, str], dict[str, Any]]


@router.post("/v1/decisions")
async def decisions(request: Request) -> Response:
    """Answer typed questions about an input, in the form of OpenAI's API."""
    return await _decide(request, DECISIONS_FIELDS, read_decisions, decisions_response)


@router.post("/v1/systemone")
async def systemone(request: Request) -> Response:
    """Answer typed questions about a state, in the form of TypeSafe's API."""
    return await _decide(request, SYSTEMONE_FIELDS, read_systemone, systemone_response)


async def _decide(request: Request, fields: Mapping[str, str], read: Read, write: Write) -> Response:
    """Answer a request of either endpoint.

    Args:
        request: The HTTP request.
        fields: The names of the endpoint's fields, for errors.
        read: Reads the request from the body.
        write: Makes the body of the response.
    """
    state, exchange = state_of(request), exchange_of(request)
    exchange.fields = fields
    decision_request = await read_request(exchange, read, state.options)
    async with state.lease_model(exchange) as lease:
        questions, max_rows = decision_request.questions, state.options.max_rows
        decision = await exchange.hold(
            lambda: lease.engine.adecide(
                decision_request.state, questions, params=decision_request.params, max_rows=max_rows
            )
        )
    decision_request = replace(decision_request, warnings=[*decision_request.warnings, *exchange.notices])
    usage = decision.usage
    exchange.n_prompt, exchange.rows_naive = usage.input_tokens, usage.cost.rows_naive

    return await exchange.run(lambda: json_response(write(decision_request, decision, lease.name)))
